//! One record for each provider attempt: what the provider observed, and separately what the guest was told. Never a payload, key,
//! attribute, idempotency key, credential or text of a peer.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use latent_core::{ActivationId, KnownFailure, PublicationOutcome, TenantId};

use crate::{ProviderRef, limits};

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

/// One attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Whose attempt.
    pub activation: ActivationId,
    /// For which tenant.
    pub tenant: TenantId,
    /// Through which provider.
    pub provider: ProviderRef,
    /// Digest of the request.
    pub request_digest: [u8; 32],
    /// What the provider observed.
    pub observed: ProviderOutcome,
    /// What the guest was told: the kind of outcome, or `None` when it was interrupted first.
    pub told: Option<&'static str>,
}

/// Where audit records go. Must not block.
pub trait AuditSink: Send + Sync {
    /// Takes one finished record.
    fn record(&self, record: AuditRecord);
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
    fn record(&self, record: AuditRecord) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if records.len() >= self.records_max {
            records.pop_front();
        }
        records.push_back(record);
    }
}

/// What audit says of an outcome. `started` is whether the provider had been given the event.
pub(crate) fn observed(outcome: &PublicationOutcome, started: bool) -> ProviderOutcome {
    match outcome {
        PublicationOutcome::Receipt(receipt) => ProviderOutcome::Acknowledged { duplicate: receipt.duplicate },
        PublicationOutcome::KnownFailure(failure) if started => ProviderOutcome::Rejected { reason: failure.kind() },
        PublicationOutcome::KnownFailure(failure) => ProviderOutcome::NotStarted { reason: failure.kind() },
        PublicationOutcome::Uncertain(uncertain) => ProviderOutcome::Unknown { cause: uncertain.cause.kind() },
    }
}

/// What audit says the guest was told, in the words of the guest's interface, which has none for a conflict.
pub(crate) fn told(outcome: &PublicationOutcome) -> &'static str {
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
}
