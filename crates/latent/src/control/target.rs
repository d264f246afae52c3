//! What a node offers to its control socket.

use std::sync::Arc;

use latent_bridge::{EventBus, MaintenanceReport, TopicStatistics};
use latent_core::{ActivationId, Place};
use serde::{Deserialize, Serialize};

use super::administration::{ClockInfo, RevokeOrder, Revoked, RouteOrder, Routed, ServiceInfo};
use super::forgetting::{Forgotten, RemovedTrigger};
use super::history::EventHistory;
use super::invocation::{Invocation, Invoked};
use super::protocol::{Fault, NodeInfo, cut};
use super::reloading::{ReloadOrder, Reloaded};
use crate::administration::AdminError;
use crate::engine::Engine;
use crate::limits;
use crate::maintenance::MaintainError;
use crate::node::AccountingBound;

/// A node, running or stopped, as commands see it.
///
/// Reports and maintenance are called on threads that may block, never on an executor's; reports should still answer from memory, but for
/// the numbers of a log that a broker has.
pub(crate) trait ControlTarget: Send + Sync + 'static {
    /// What keeps the topics.
    fn engine(&self) -> Engine;
    /// The log.
    ///
    /// # Errors
    /// When it is on a broker that is opened only now, and cannot be.
    fn bus(&self) -> Result<Arc<dyn EventBus>, Fault>;
    /// Who answers.
    fn node_info(&self) -> NodeInfo;
    /// Every binding, ordered by id.
    fn trigger_status(&self) -> Vec<TriggerStatus>;
    /// Counters since the node started.
    fn node_summary(&self) -> NodeSummary;
    /// Numbers of every topic, sorted by name.
    ///
    /// # Errors
    /// When the log is on a broker, which does not tell them.
    fn statistics(&self) -> Result<Vec<TopicStatistics>, Fault>;
    /// Runs the log's maintenance now, after one that is under way.
    ///
    /// # Errors
    /// The log's, and a clock that is not believed.
    fn maintain(&self) -> Result<MaintenanceReport, MaintainError>;
    /// Takes the node's configuration in again, all of it or nothing.
    ///
    /// # Errors
    /// Why not.
    fn reload(&self, order: ReloadOrder) -> Result<Reloaded, Fault>;
    /// Runs one activation and waits for its end; `handed_over` hears its id before it can start.
    ///
    /// # Errors
    /// Why nothing was admitted.
    fn invoke(&self, invocation: Invocation, handed_over: &dyn Fn(ActivationId)) -> Result<Invoked, Fault>;
    /// Stops an activation whose caller has gone, if it is still there.
    fn abandon(&self, activation: ActivationId);
    /// Every publication, and every component that was revoked.
    ///
    /// # Errors
    /// [`AdminError`] when what was revoked cannot be read.
    fn services(&self) -> Result<Vec<ServiceInfo>, AdminError>;
    /// Points a route at a publication.
    ///
    /// # Errors
    /// [`AdminError`].
    fn route_service(&self, order: &RouteOrder) -> Result<Routed, AdminError>;
    /// Revokes components for good; what is answered is durable.
    ///
    /// # Errors
    /// [`AdminError`].
    fn revoke_service(&self, order: &RevokeOrder) -> Result<Vec<Revoked>, AdminError>;
    /// Whether the wall clock is believed.
    ///
    /// # Errors
    /// [`AdminError`] when what it said before cannot be read.
    fn clock(&self) -> Result<ClockInfo, AdminError>;
    /// Takes the wall clock for right.
    ///
    /// # Errors
    /// [`AdminError`].
    fn confirm_clock(&self) -> Result<ClockInfo, AdminError>;
    /// What became of the event at a place, whether it is still there or not.
    ///
    /// # Errors
    /// When the memory of deliveries cannot be read.
    fn event_history(&self, place: &Place) -> Result<EventHistory, Fault>;
    /// Triggers that are remembered and not configured.
    ///
    /// # Errors
    /// When the memory of deliveries cannot be read.
    fn removed_triggers(&self) -> Result<Vec<RemovedTrigger>, Fault>;
    /// Forgets a trigger that is not configured; what is answered is durable.
    ///
    /// # Errors
    /// [`ForgetRefused`](super::ForgetRefused), and what the disk says.
    fn forget_trigger(&self, id: &str) -> Result<Forgotten, Fault>;
}

/// What a binding is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BindingState {
    /// Nothing to do.
    Idle,
    /// Events are running or about to.
    Busy,
    /// As many events are unsettled as it looks at.
    Saturated,
    /// Only delayed retries are left.
    Delayed,
    /// There is work and nothing moves.
    Stalled,
    /// The broker has given up on an event. Never on the embedded engine.
    Stranded,
    /// The node is not running.
    Stopped,
}

impl BindingState {
    /// The word of status documents.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Saturated => "saturated",
            Self::Delayed => "delayed",
            Self::Stalled => "stalled",
            Self::Stranded => "stranded",
            Self::Stopped => "stopped",
        }
    }
}

/// One binding over all partitions of its topic. The first ten fields are the stable document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TriggerStatus {
    /// Id of the trigger.
    pub(crate) id: String,
    /// `embedded`.
    pub(crate) engine: String,
    /// What it is doing: the most telling state of its partitions.
    pub(crate) state: BindingState,
    /// Events not settled yet, those in flight and delayed included; `None` when that is not known, as for the next: the broker has not
    /// been asked.
    pub(crate) pending: Option<u64>,
    /// Of them, started and not settled.
    pub(crate) unacknowledged: Option<u64>,
    /// Of them, waiting for a retry.
    pub(crate) delayed: u64,
    /// Events parked in a dead-letter topic.
    pub(crate) dead_lettered: u64,
    /// Kind of the last activation's outcome.
    pub(crate) last_outcome: Option<String>,
    /// When the last activation started, in milliseconds since 1970.
    pub(crate) last_delivery_at: Option<u64>,
    /// When the nearest retry is due, in milliseconds since 1970.
    pub(crate) next_attempt_at: Option<u64>,
    /// The topic it reads.
    pub(crate) topic: String,
    /// Partitions of the topic.
    pub(crate) partitions: u32,
    /// Events settled since the node started; `None` when it is stopped, as for the next two.
    pub(crate) settled: Option<u64>,
    /// Of them, terminated: refused by the function, or out of attempts.
    pub(crate) terminated: Option<u64>,
    /// Of the terminated, those whose attempts were used up.
    pub(crate) exhausted: Option<u64>,
    /// Events that retention removed before they were settled.
    pub(crate) expired_unread: u64,
    /// Messages that the broker was seen to have given up since the node started, and the sequence of the last.
    pub(crate) stranded: u64,
    /// See `stranded`.
    pub(crate) stranded_at: Option<u64>,
    /// The last failure in words, cut to `status_text_chars`.
    pub(crate) last_error: Option<String>,
}

impl TriggerStatus {
    /// This status with its free text within bounds.
    pub(super) fn bounded(mut self) -> Self {
        let chars_max = limits::STATUS_TEXT_CHARS.max_usize();
        self.last_error = self.last_error.map(|text| cut(text, chars_max));
        self
    }
}

/// Counters of a node since it started.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeSummary {
    /// Activations by how they ended.
    pub(crate) activations: ActivationCounts,
    /// Events acknowledged or terminated.
    pub(crate) events_settled: u64,
    /// Publications of functions by how they ended.
    pub(crate) publications: PublicationCounts,
    /// From append to settlement; `None` before the first settlement.
    pub(crate) append_to_settled_ms: Option<LatencyMillis>,
    /// What the node's memory can add up to.
    #[serde(default)]
    pub(crate) accounting: AccountingBound,
    /// Providers that publish to a broker; their publications are counted above as well.
    #[serde(default)]
    pub(crate) providers: Vec<ProviderSummary>,
    /// What of the pools that all providers share is in use.
    #[serde(default)]
    pub(crate) pools: PoolUse,
    /// Records of the audit.
    #[serde(default)]
    pub(crate) audit: AuditCounts,
    /// What an operator should know of a node that works: sentences, each with its number.
    #[serde(default)]
    pub(crate) warnings: Vec<String>,
}

/// What of the pools is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolUse {
    /// Publications that hold a connection, or make one.
    pub(crate) running: u64,
    /// Publications that wait for one.
    pub(crate) queued: u64,
    /// Connections that exist.
    pub(crate) connections: u64,
    /// Bytes charged for them. An accounting figure.
    pub(crate) bytes: u64,
}

/// Records of the audit since the node started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditCounts {
    /// In a file.
    pub(crate) written: u64,
    /// In none, for ever.
    pub(crate) dropped: u64,
    /// The last write failed.
    pub(crate) failing: bool,
}

/// A provider that publishes to a broker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderSummary {
    /// Its id.
    pub(crate) id: String,
    /// The rules it follows.
    pub(crate) profile: String,
    /// The epoch in force.
    pub(crate) epoch: u64,
    /// Topics that it maps.
    pub(crate) mappings: u64,
    /// Publications that wait for a connection.
    pub(crate) queued: u64,
    /// Publications that hold one, or make one.
    pub(crate) running: u64,
    /// Connections that exist.
    pub(crate) connections: u64,
    /// Connections made since the node started.
    pub(crate) connected: u64,
    /// Attempts to connect that failed.
    pub(crate) connects_failed: u64,
    /// Idle connections that were found closed.
    pub(crate) parked_lost: u64,
    /// Its publications by how they ended.
    pub(crate) publications: PublicationCounts,
}

/// Activations by how they ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActivationCounts {
    /// The function said yes.
    pub(crate) success: u64,
    /// The function refused the event for good.
    pub(crate) rejected: u64,
    /// Everything else: retries asked for, traps, exhausted budgets, timeouts.
    pub(crate) failed: u64,
}

/// Publications by how they ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PublicationCounts {
    /// With a receipt, duplicates included.
    pub(crate) receipts: u64,
    /// Of the receipts, those the log already had.
    pub(crate) duplicates: u64,
    /// Certainly not stored.
    pub(crate) failures: u64,
    /// May be stored.
    pub(crate) uncertain: u64,
}

/// Two percentiles in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LatencyMillis {
    /// Half are at most this.
    pub(crate) p50: f64,
    /// 99 of 100 are at most this.
    pub(crate) p99: f64,
}
