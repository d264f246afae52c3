//! One record for each provider attempt: what the provider observed, and separately what the guest was told. Never a payload, key,
//! attribute, idempotency key, credential or text of a peer.
//!
//! ```text
//! admitted ── reserve ─▶ entry ── observe(outcome) ─▶ entry ── close(told) ─▶ record in its slot
//!                          └───────── dropped ──────────┴──────── dropped ──▶ record in its slot, told to nobody
//! ```
//! Invariant: an entry fills its slot exactly once, whichever way it goes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use latent_core::{ActivationId, Clock, KnownFailure, PublicationOutcome, TenantId, UncertainCause, UnixMillis};

use crate::event::{EventPublication, RequestDigest};
use crate::session::AttemptState;
use crate::{ProviderRef, limits};

/// What was attempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `publish` of `latent:events/publisher`.
    Publish,
}

impl Operation {
    /// The name used in audit.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
        }
    }
}

/// What became of an attempt, as the provider saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderOutcome {
    /// Nothing can have been written.
    NotStarted {
        /// Why, from the closed list of known failures, or `cancelled`.
        reason: &'static str,
    },
    /// The log said that it did not store it.
    Rejected {
        /// Why, from the closed list of known failures.
        reason: &'static str,
    },
    /// The log acknowledged.
    Acknowledged {
        /// The log already had it.
        duplicate: bool,
    },
    /// It may be stored.
    Unknown {
        /// What hid the answer.
        cause: &'static str,
    },
}

impl ProviderOutcome {
    /// The name used in audit.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::NotStarted { .. } => "not-started",
            Self::Rejected { .. } => "rejected",
            Self::Acknowledged { .. } => "acknowledged",
            Self::Unknown { .. } => "unknown",
        }
    }
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// When it was admitted.
    pub admitted_at: UnixMillis,
    /// When it had ended for the guest.
    pub ended_at: UnixMillis,
    /// Whose attempt.
    pub activation: ActivationId,
    /// For which tenant.
    pub tenant: TenantId,
    /// Through which provider.
    pub provider: ProviderRef,
    /// What was attempted.
    pub operation: Operation,
    /// Digest of the request.
    pub request: RequestDigest,
    /// What the provider observed.
    pub observed: ProviderOutcome,
    /// What the guest was told: the kind of outcome, or `None` when it was interrupted first.
    pub told: Option<&'static str>,
}

/// Where audit records go. Must not block.
pub trait AuditSink: Send + Sync {
    /// Takes the place for one record, at the admission of the attempt it will be about; false when there is none.
    ///
    /// Work never waits for audit and is never refused for it: a record without a place is counted as dropped when it is filled in, and
    /// the sink's status says how many those were.
    fn reserve(&self) -> bool;

    /// Takes a finished record into the place that was reserved for it, if there was one. Must not block.
    fn fill(&self, place: bool, record: AuditRecord);

    /// Takes back a reserved place whose record will not come.
    fn release(&self);
}

/// The place of one record, or none. Dropping it unfilled returns the place.
pub struct AuditSlot {
    sink: Option<Arc<dyn AuditSink>>,
    place: bool,
}

impl AuditSlot {
    /// Asks `sink` for a place.
    pub fn reserve(sink: &Arc<dyn AuditSink>) -> Self {
        Self { place: sink.reserve(), sink: Some(Arc::clone(sink)) }
    }

    /// Hands over the finished record.
    pub fn fill(mut self, record: AuditRecord) {
        if let Some(sink) = self.sink.take() {
            sink.fill(self.place, record);
        }
    }
}

impl Drop for AuditSlot {
    fn drop(&mut self) {
        if let Some(sink) = self.sink.take().filter(|_| self.place) {
            sink.release();
        }
    }
}

/// Keeps the last records in memory.
#[derive(Debug)]
pub struct AuditRing {
    records: Mutex<VecDeque<AuditRecord>>,
    records_max: usize,
}

impl Default for AuditRing {
    fn default() -> Self {
        Self { records: Mutex::default(), records_max: limits::AUDIT_RING_RECORDS.default_usize() }
    }
}

impl AuditRing {
    /// A ring of at most `records_max` records.
    pub fn new(records_max: usize) -> Self {
        Self { records: Mutex::default(), records_max: records_max.clamp(1, limits::AUDIT_RING_RECORDS.max_usize()) }
    }

    /// The records kept, oldest first.
    pub fn records(&self) -> Vec<AuditRecord> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl AuditSink for AuditRing {
    // The oldest record makes room, so there is always a place.
    fn reserve(&self) -> bool {
        true
    }

    fn fill(&self, _place: bool, record: AuditRecord) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if records.len() >= self.records_max {
            records.pop_front();
        }
        records.push_back(record);
    }

    fn release(&self) {}
}

/// Whether an attempt has been given out to be written. Decided once, by whoever comes first: the provider that starts it or the
/// caller that gives it up. So a record that says "not started" is true also when both happen at one time on two threads.
#[derive(Debug, Default)]
pub(crate) struct StartGate(AtomicU8);

const WAITING: u8 = 0;
const STARTED: u8 = 1;
const ABANDONED: u8 = 2;

impl StartGate {
    /// True when the attempt may start.
    pub(crate) fn start(&self) -> bool {
        self.0.compare_exchange(WAITING, STARTED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Nothing may start any more; true when it had started before.
    pub(crate) fn shut(&self) -> bool {
        self.0.compare_exchange(WAITING, ABANDONED, Ordering::AcqRel, Ordering::Acquire) == Err(STARTED)
    }
}

/// The record of one admitted attempt while it is being made.
pub(crate) struct AuditEntry {
    attempt_state: Arc<AttemptState>,
    clock: Arc<dyn Clock>,
    observed: Option<ProviderOutcome>,
    /// The request, until its digest is needed.
    event: Arc<EventPublication>,
    request: Option<RequestDigest>,
    open: Option<(AuditSlot, Attempted)>,
}

/// What is known of an attempt when it is admitted.
pub(crate) struct Attempt {
    pub(crate) activation: ActivationId,
    pub(crate) tenant: TenantId,
    pub(crate) provider: ProviderRef,
    pub(crate) operation: Operation,
    pub(crate) event: Arc<EventPublication>,
}

/// The part of a record that is known at admission.
struct Attempted {
    admitted_at: UnixMillis,
    activation: ActivationId,
    tenant: TenantId,
    provider: ProviderRef,
    operation: Operation,
}

impl AuditEntry {
    pub(crate) fn open(sink: &Arc<dyn AuditSink>, attempt_state: &Arc<AttemptState>, clock: &Arc<dyn Clock>, attempt: Attempt) -> Self {
        let Attempt { activation, tenant, provider, operation, event } = attempt;
        let attempted = Attempted { admitted_at: clock.unix(), activation, tenant, provider, operation };
        let open = Some((AuditSlot::reserve(sink), attempted));
        Self { attempt_state: Arc::clone(attempt_state), clock: Arc::clone(clock), observed: None, event, request: None, open }
    }

    /// Makes the request's digest, once. It is made at the latest when the record is.
    pub(crate) fn identify(&mut self) -> RequestDigest {
        *self.request.get_or_insert_with(|| self.event.digest())
    }

    /// Keeps what the provider says.
    pub(crate) fn observe(&mut self, outcome: &PublicationOutcome) {
        self.observed = Some(observed(outcome, self.attempt_state.gate.shut()));
    }

    /// Ends it with what the guest is told.
    pub(crate) fn close(mut self, told: &'static str) {
        self.fill(Some(told));
    }

    fn fill(&mut self, told: Option<&'static str>) {
        let Some((slot, attempted)) = self.open.take() else { return };
        let Attempted { admitted_at, activation, tenant, provider, operation } = attempted;
        let request = self.identify();
        let observed = self.observed.unwrap_or_else(|| abandoned(self.attempt_state.gate.shut()));
        let ended_at = self.clock.unix();
        slot.fill(AuditRecord { admitted_at, ended_at, activation, tenant, provider, operation, request, observed, told });
    }
}

impl Drop for AuditEntry {
    fn drop(&mut self) {
        self.fill(None);
    }
}

impl fmt::Debug for AuditEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditEntry").field("observed", &self.observed).finish_non_exhaustive()
    }
}

/// What audit says of an attempt that nobody waited for.
const fn abandoned(started: bool) -> ProviderOutcome {
    if started {
        ProviderOutcome::Unknown { cause: UncertainCause::Cancelled.kind() }
    } else {
        ProviderOutcome::NotStarted { reason: KnownFailure::Cancelled.kind() }
    }
}

/// What audit says of an outcome. `started` is whether the provider had been given the event.
fn observed(outcome: &PublicationOutcome, started: bool) -> ProviderOutcome {
    match outcome {
        PublicationOutcome::Receipt(receipt) => ProviderOutcome::Acknowledged { duplicate: receipt.duplicate },
        PublicationOutcome::KnownFailure(failure) if started => ProviderOutcome::Rejected { reason: failure.kind() },
        PublicationOutcome::KnownFailure(failure) => ProviderOutcome::NotStarted { reason: failure.kind() },
        PublicationOutcome::Uncertain(uncertain) => ProviderOutcome::Unknown { cause: uncertain.cause.kind() },
    }
}

/// What audit says the guest was told, in the words of the guest's interface, which has none for a conflict.
pub(crate) const fn told(outcome: &PublicationOutcome) -> &'static str {
    match outcome {
        PublicationOutcome::Receipt(_) => "receipt",
        PublicationOutcome::KnownFailure(KnownFailure::Conflict) => "invalid-event",
        PublicationOutcome::KnownFailure(failure) => failure.kind(),
        PublicationOutcome::Uncertain(_) => "uncertain",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_is_recorded_as_itself_and_told_as_an_invalid_event() {
        let conflict = PublicationOutcome::KnownFailure(KnownFailure::Conflict);
        assert_eq!((observed(&conflict, true), told(&conflict)), (ProviderOutcome::Rejected { reason: "conflict" }, "invalid-event"));
    }

    #[test]
    fn an_attempt_starts_or_is_given_up_and_never_both() {
        let gate = StartGate::default();
        assert!(gate.start() && !gate.start() && gate.shut());
        let gate = StartGate::default();
        assert!(!gate.shut() && !gate.start() && !gate.shut());
    }

    #[test]
    fn two_threads_agree_on_whether_an_attempt_started() {
        for _ in 0..500 {
            let gate = StartGate::default();
            let (started, seen) = std::thread::scope(|scope| {
                let start = scope.spawn(|| gate.start());
                let shut = scope.spawn(|| gate.shut());
                (start.join().unwrap(), shut.join().unwrap())
            });
            assert_eq!(started, seen);
        }
    }
}
