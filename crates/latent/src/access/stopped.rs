//! A node that is not running, for whoever asks its directory.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use latent_bridge::embedded::DirectoryLock;
use latent_bridge::{BusError, EmbeddedBroker, EventBus, MaintenanceReport, NatsBus, TopicStatistics};
use latent_core::{ActivationId, Place, SystemClock};

use super::open_log;
use crate::administration::{self, AdminError};
use crate::broker::{self, BrokerError};
use crate::config::Config;
use crate::config::settings::{ServiceConfig, TriggerConfig};
use crate::control::{
    ClockInfo, ControlTarget, EventHistory, Fault, Forgotten, Invocation, Invoked, NodeInfo, NodeSummary, ReloadOrder, Reloaded,
    RemovedTrigger, RevokeOrder, Revoked, RouteOrder, Routed, ServiceInfo, TriggerStatus,
};
use crate::data_dir::DataDir;
use crate::engine::Engine;
use crate::host::{ClockWatch, HostFileError, HostFiles};
use crate::maintenance::{MaintainError, Maintainer};
use crate::node;

/// The log of a directory that no node has.
pub(super) enum StoppedLog {
    /// In the directory.
    Embedded(Arc<EmbeddedBroker>),
    /// On a broker, which is opened when something asks for it: what is in the directory is had without it.
    Broker { bus: Box<LazyBus>, _lock: DirectoryLock },
}

/// A broker that is opened once.
pub(super) struct LazyBus {
    config: Config,
    open: Mutex<Option<Arc<NatsBus>>>,
}

impl LazyBus {
    fn get(&self) -> Result<Arc<NatsBus>, BrokerError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bus) = &*open {
            return Ok(Arc::clone(bus));
        }
        let bus = Arc::new(broker::open_for_command(&self.config)?);
        *open = Some(Arc::clone(&bus));
        Ok(bus)
    }
}

impl StoppedLog {
    /// Takes the directory. `config` says where the log is; without one it is in the directory.
    pub(super) fn open(dir: &DataDir, holder: &str, config: Option<&Config>) -> Result<Self, BusError> {
        match config.filter(|config| config.engine.broker().is_some()) {
            None => open_log(dir.log(), holder).map(|log| Self::Embedded(Arc::new(log))),
            Some(config) => {
                let _lock = dir.take(holder)?;
                Ok(Self::Broker { bus: Box::new(LazyBus { config: config.clone(), open: Mutex::default() }), _lock })
            }
        }
    }

    fn embedded(&self) -> Option<&Arc<EmbeddedBroker>> {
        if let Self::Embedded(log) = self { Some(log) } else { None }
    }
}

/// See the module.
pub(super) struct StoppedNode {
    log: StoppedLog,
    dir: PathBuf,
    services: Option<Vec<ServiceConfig>>,
    triggers: Vec<TriggerConfig>,
    statuses: Vec<TriggerStatus>,
}

impl StoppedNode {
    pub(super) fn new(dir: &DataDir, log: StoppedLog, config: Option<&Config>, statuses: Vec<TriggerStatus>) -> Self {
        let services = config.map(|config| config.services.clone());
        let triggers = config.map_or_else(Vec::new, |config| config.triggers.clone());
        Self { log, dir: dir.log().to_owned(), services, triggers, statuses }
    }

    fn watch(&self) -> Result<ClockWatch, HostFileError> {
        ClockWatch::open(HostFiles::below(&self.dir), Arc::new(SystemClock::start()))
    }

    fn catalog(&self) -> Result<(latent_node::Catalog, administration::Unread), AdminError> {
        let services = self.services.as_ref().ok_or(AdminError::NoConfiguration)?;
        administration::of_configuration(HostFiles::below(&self.dir), services)
    }
}

impl ControlTarget for StoppedNode {
    fn engine(&self) -> Engine {
        if self.log.embedded().is_some() { Engine::Embedded } else { Engine::Nats }
    }

    fn bus(&self) -> Result<Arc<dyn EventBus>, Fault> {
        match &self.log {
            StoppedLog::Embedded(log) => Ok(Arc::clone(log) as _),
            StoppedLog::Broker { bus, .. } => Ok(bus.get()? as _),
        }
    }

    fn node_info(&self) -> NodeInfo {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        NodeInfo { name: String::new(), version, pid: std::process::id(), engine: self.engine().word().to_owned() }
    }

    fn trigger_status(&self) -> Vec<TriggerStatus> {
        self.statuses.clone()
    }

    fn node_summary(&self) -> NodeSummary {
        NodeSummary::default()
    }

    fn statistics(&self) -> Result<Vec<TopicStatistics>, Fault> {
        match &self.log {
            StoppedLog::Embedded(log) => Ok(log.statistics()),
            StoppedLog::Broker { bus, .. } => Ok(bus.get()?.statistics()?),
        }
    }

    fn maintain(&self) -> Result<MaintenanceReport, MaintainError> {
        match &self.log {
            StoppedLog::Embedded(log) => Maintainer::new(Arc::clone(log) as _, Arc::new(self.watch()?)).run(),
            // The broker does by itself what there is to do.
            StoppedLog::Broker { .. } => Ok(MaintenanceReport::default()),
        }
    }

    fn services(&self) -> Result<Vec<ServiceInfo>, AdminError> {
        let (catalog, unread) = self.catalog()?;
        Ok(administration::list_stopped(&catalog, &unread))
    }

    fn route_service(&self, _: &RouteOrder) -> Result<Routed, AdminError> {
        Err(AdminError::Stopped)
    }

    fn revoke_service(&self, order: &RevokeOrder) -> Result<Vec<Revoked>, AdminError> {
        let (catalog, unread) = self.catalog()?;
        administration::revoke(&catalog, &unread, order)
    }

    fn clock(&self) -> Result<ClockInfo, AdminError> {
        Ok(administration::clock(&self.watch()?))
    }

    fn confirm_clock(&self) -> Result<ClockInfo, AdminError> {
        administration::confirm_clock(&self.watch()?)
    }

    fn reload(&self, _: ReloadOrder) -> Result<Reloaded, Fault> {
        Err(Fault::refused("node", "no node is running on this directory; the next start reads the configuration".to_owned()))
    }

    fn invoke(&self, _: Invocation, _: &dyn Fn(ActivationId)) -> Result<Invoked, Fault> {
        // `latent invoke` makes a node of its own for that.
        Err(Fault::refused("node", "no node is running on this directory".to_owned()))
    }

    fn abandon(&self, _: ActivationId) {}

    /// The journal has ended with its node.
    fn event_history(&self, place: &Place) -> Result<EventHistory, Fault> {
        let Some(log) = self.log.embedded() else { return Ok(EventHistory::default()) };
        let store = node::memory_of(log)?;
        let mut triggers = node::stopped_events(log, store.as_deref(), &self.triggers, place)?;
        triggers.extend(store.into_iter().flat_map(|store| node::removed_events(&store, &self.triggers, &place.topic)));
        Ok(EventHistory::of_triggers(triggers))
    }

    fn removed_triggers(&self) -> Result<Vec<RemovedTrigger>, Fault> {
        let Some(log) = self.log.embedded() else { return Ok(Vec::new()) };
        Ok(node::memory_of(log)?.map_or_else(Vec::new, |store| node::removed_triggers(&store, &self.triggers)))
    }

    fn forget_trigger(&self, id: &str) -> Result<Forgotten, Fault> {
        let store = self.log.embedded().map_or(Ok(None), |log| node::memory_of(log))?;
        node::forget(store.as_deref(), &self.triggers, id, "remove it from the configuration first")
    }
}
