//! What can be seen of triggers from outside, as plain data (X-039, X-040, T-021): numbers and names of this side only.

use std::sync::Arc;

use latent_core::{BindingId, Epoch, RouteGeneration, UnixMillis};
use latent_node::delivery::{Confirmation, Handed, Unsettled, VisitSettlement};

use super::fault::StepFault;

/// Counts of everything since the installation, and what is held now. Every number stops at its largest value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TriggerSnapshot {
    /// The epoch of this installation.
    pub epoch: Epoch,
    /// Bindings.
    pub bindings: u64,
    /// Tenants with bindings.
    pub tenants: u64,
    /// Visits of bindings.
    pub visits: u64,
    /// Inspections that were answered.
    pub inspections: u64,
    /// Pulls that were sent.
    pub pulls: u64,
    /// Messages handed out.
    pub delivered: u64,
    /// Activations that ended.
    pub activations: u64,
    /// Confirmed acknowledgements.
    pub acknowledged: u64,
    /// Confirmed delays.
    pub delayed: u64,
    /// Confirmed terminations of messages that can never run, or never again by the function's word.
    pub terminated: u64,
    /// Confirmed terminations after the last run.
    pub exhausted: u64,
    /// Messages put into dead-letter topics, again where their settlement had not arrived.
    pub dead_lettered: u64,
    /// Settlements of which it is not known whether they arrived.
    pub uncertain: u64,
    /// Messages left as they were, which the broker delivers again.
    pub unsettled: u64,
    /// Messages that the broker was seen to have given up, neither settled nor delivered again (T-052).
    pub stranded: u64,
    /// Visits refused by a bound of admission or of the pools.
    pub refused: u64,
    /// Visits that failed otherwise.
    pub failed: u64,
    /// Visits under way.
    pub running: u64,
    /// Connections, from dial to closed socket.
    pub connections: u64,
    /// Connections that authenticated.
    pub connected: u64,
    /// Attempts to connect that failed.
    pub connects_failed: u64,
    /// Parked connections that were found closed or unusable.
    pub parked_lost: u64,
}

/// How a binding stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TriggerState {
    /// Nothing waits.
    Idle,
    /// Messages wait or are being handled.
    Busy,
    /// A bound of the node keeps it from pulling.
    Saturated,
    /// Its one message waits for its delay (D-26).
    Delayed,
    /// It cannot get on; the report says why.
    Stalled,
    /// The broker gave up on a message, which is neither settled nor delivered again (T-052).
    Stranded,
    /// Nobody drives it.
    Stopped,
}

impl TriggerState {
    /// The name used in status.
    pub const fn kind(self) -> &'static str {
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

/// One binding, as it was after its last visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingReport {
    /// Its id.
    pub id: BindingId,
    /// How it stands.
    pub state: TriggerState,
    /// Messages never delivered, as the broker said last; `None` before it said anything.
    pub pending: Option<u64>,
    /// Messages delivered and not settled, as the broker said last; `None` before it said anything.
    pub unacknowledged: Option<u64>,
    /// Whether its one message waits for its delay.
    pub delayed: bool,
    /// Messages acknowledged or terminated, confirmed.
    pub settled: u64,
    /// Of them, terminated.
    pub terminated: u64,
    /// Of the terminated, those whose runs were used up.
    pub exhausted: u64,
    /// Messages put into the dead-letter topic.
    pub dead_lettered: u64,
    /// How the last activation ended.
    pub last_outcome: Option<&'static str>,
    /// When the last message was handed out.
    pub last_delivery_at: Option<UnixMillis>,
    /// When the delayed message is due.
    pub next_attempt_at: Option<UnixMillis>,
    /// Messages that the broker was seen to have given up.
    pub stranded: u64,
    /// The sequence of the last message that the broker was seen to have given up (T-052).
    pub stranded_at: Option<u64>,
    /// Why it cannot get on, in words of this side.
    pub problem: Option<(StepFault, Arc<str>)>,
}

/// The last step that ended with a message or an error. Empty visits leave it in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastStep {
    /// The epoch of the installation.
    pub epoch: Epoch,
    /// The binding's place in the configuration.
    pub binding: usize,
    /// The message's sequence in its stream and which delivery it was, if one was handed out.
    pub handed: Option<Handed>,
    /// The route generation that was pinned, if the reservation was made.
    pub generation: Option<RouteGeneration>,
    /// How it ended.
    pub end: StepEnd,
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepEnd {
    /// A settlement was sent.
    Settled {
        /// Which.
        settlement: VisitSettlement,
        /// Whether the broker has it. It never says that the message was still pending (T-049).
        confirmation: Confirmation,
    },
    /// The message was left as it was.
    Unsettled(Unsettled),
    /// There was none.
    Failed(StepFault),
}
