//! The log behind a node's topics, on whichever engine, with what makes its data directory this process's own.

use std::sync::Arc;

use latent_bridge::embedded::DirectoryLock;
use latent_bridge::{BusError, EmbeddedBroker, EventBus, TopicStatistics};

use crate::engine::Engine;
use crate::late_bus::LateBus;

/// See the module. Clones share one log; the directory is released with the last of them.
#[derive(Clone)]
pub(crate) enum Log {
    /// In the data directory, whose lock it has.
    Embedded(Arc<EmbeddedBroker>),
    /// On a broker.
    Broker(Arc<BrokerLog>),
}

/// A bus on a broker, and the lock of the node's data directory: what else is in it must not have two owners.
pub(crate) struct BrokerLog {
    bus: Arc<LateBus>,
    /// Last, so that it is released when the bus has ended.
    _lock: DirectoryLock,
}

impl Log {
    /// A log on a broker, for the owner of a data directory.
    pub(crate) fn on_broker(bus: LateBus, lock: DirectoryLock) -> Self {
        Self::Broker(Arc::new(BrokerLog { bus: Arc::new(bus), _lock: lock }))
    }

    /// The engine.
    pub(crate) const fn engine(&self) -> Engine {
        match self {
            Self::Embedded(_) => Engine::Embedded,
            Self::Broker(_) => Engine::Nats,
        }
    }

    /// The topics.
    pub(crate) fn bus(&self) -> Arc<dyn EventBus> {
        match self {
            Self::Embedded(log) => Arc::clone(log) as _,
            Self::Broker(log) => Arc::clone(&log.bus) as _,
        }
    }

    /// The log on this machine, when it is: what deliveries and their memory need.
    pub(crate) const fn embedded(&self) -> Option<&Arc<EmbeddedBroker>> {
        match self {
            Self::Embedded(log) => Some(log),
            Self::Broker(_) => None,
        }
    }

    /// What an operator should know of it.
    pub(crate) fn warning(&self) -> Option<String> {
        match self {
            Self::Embedded(_) => None,
            Self::Broker(log) => log.bus.warning(),
        }
    }

    /// Numbers of every topic, sorted by name.
    ///
    /// # Errors
    /// The broker's.
    pub(crate) fn statistics(&self) -> Result<Vec<TopicStatistics>, BusError> {
        match self {
            Self::Embedded(log) => Ok(log.statistics()),
            Self::Broker(log) => log.bus.statistics(),
        }
    }
}
