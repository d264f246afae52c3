//! Topics on a broker, for commands that ask it without a node: it answers what is about the topics, and knows nothing of a node.

use std::sync::Arc;

use latent_bridge::{EventBus, MaintenanceReport, NatsBus, TopicStatistics};
use latent_core::{ActivationId, Clock as _, Place, SystemClock};

use crate::administration::AdminError;
use crate::control::{
    ClockInfo, ControlTarget, EventHistory, Fault, ForgetRefused, Forgotten, Invocation, Invoked, NodeInfo, NodeSummary, ReloadOrder,
    Reloaded, RemovedTrigger, RevokeOrder, Revoked, RouteOrder, Routed, ServiceInfo, TriggerStatus,
};
use crate::engine::Engine;
use crate::maintenance::MaintainError;

/// See the module.
pub(super) struct BrokerTarget(Arc<NatsBus>);

impl BrokerTarget {
    pub(super) fn new(bus: NatsBus) -> Self {
        Self(Arc::new(bus))
    }
}

/// What only a node could do.
fn no_node() -> Fault {
    Fault::refused("node", "there is no node between this command and the broker".to_owned())
}

impl ControlTarget for BrokerTarget {
    fn engine(&self) -> Engine {
        Engine::Nats
    }

    fn bus(&self) -> Result<Arc<dyn EventBus>, Fault> {
        Ok(Arc::clone(&self.0) as _)
    }

    fn node_info(&self) -> NodeInfo {
        let (version, engine) = (env!("CARGO_PKG_VERSION").to_owned(), Engine::Nats.word().to_owned());
        NodeInfo { name: String::new(), version, pid: std::process::id(), engine }
    }

    fn trigger_status(&self) -> Vec<TriggerStatus> {
        Vec::new()
    }

    fn node_summary(&self) -> NodeSummary {
        NodeSummary::default()
    }

    fn statistics(&self) -> Result<Vec<TopicStatistics>, Fault> {
        Ok(self.0.statistics()?)
    }

    /// No directory's clock is asked: nothing expires by it.
    fn maintain(&self) -> Result<MaintenanceReport, MaintainError> {
        Ok(self.0.maintain(SystemClock::start().unix())?)
    }

    fn services(&self) -> Result<Vec<ServiceInfo>, AdminError> {
        Err(AdminError::NoConfiguration)
    }

    fn route_service(&self, _: &RouteOrder) -> Result<Routed, AdminError> {
        Err(AdminError::Stopped)
    }

    fn revoke_service(&self, _: &RevokeOrder) -> Result<Vec<Revoked>, AdminError> {
        Err(AdminError::NoConfiguration)
    }

    fn clock(&self) -> Result<ClockInfo, AdminError> {
        Err(AdminError::NoConfiguration)
    }

    fn confirm_clock(&self) -> Result<ClockInfo, AdminError> {
        Err(AdminError::NoConfiguration)
    }

    fn reload(&self, _: ReloadOrder) -> Result<Reloaded, Fault> {
        Err(no_node())
    }

    fn invoke(&self, _: Invocation, _: &dyn Fn(ActivationId)) -> Result<Invoked, Fault> {
        Err(no_node())
    }

    fn abandon(&self, _: ActivationId) {}

    fn event_history(&self, _: &Place) -> Result<EventHistory, Fault> {
        Ok(EventHistory::default())
    }

    fn removed_triggers(&self) -> Result<Vec<RemovedTrigger>, Fault> {
        Ok(Vec::new())
    }

    fn forget_trigger(&self, id: &str) -> Result<Forgotten, Fault> {
        Err(ForgetRefused::Unknown { id: id.to_owned() }.into())
    }
}
