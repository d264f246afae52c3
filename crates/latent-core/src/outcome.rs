//! How things end. An outcome is a value that somebody must look at, not an error that `?` could turn into another.

use std::sync::Arc;

use crate::{Uid, UnixMillis};

/// How one publication ended. Exactly one of three, decided in one place for each provider.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a publication's outcome decides whether it may be sent again"]
pub enum PublicationOutcome {
    /// The log stored it (or already had it) and said so.
    Receipt(Receipt),
    /// There is enough evidence that it did not happen.
    KnownFailure(KnownFailure),
    /// It may have happened and no valid acknowledgement exists.
    Uncertain(Uncertain),
}

/// A validated acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The stream: on the embedded engine the topic.
    pub stream: Arc<str>,
    /// Sequence in the stream; on the embedded engine the offset in the partition.
    pub sequence: u64,
    /// True when the log already held this uid.
    pub duplicate: bool,
    /// Local time at which the acknowledgement was seen; not a server time.
    pub accepted_at: UnixMillis,
}

/// Why a publication certainly did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KnownFailure {
    /// The topic's name is not one a guest may use.
    #[error("invalid topic")]
    InvalidTopic,
    /// The event breaks a rule of the profile or of the topic.
    #[error("invalid event: {rule}")]
    InvalidEvent {
        /// The rule, in words that carry no event content.
        rule: String,
    },
    /// The plan does not grant this topic to this service.
    #[error("permission denied")]
    PermissionDenied,
    /// The activation's own budget is spent.
    #[error("outbound requests of the budget are spent")]
    BudgetExhausted,
    /// The deadline passed before anything could have been written.
    #[error("deadline exceeded before the publication began")]
    DeadlineExceeded,
    /// The activation was cancelled before anything could have been written.
    #[error("cancelled before the publication began")]
    Cancelled,
    /// The log or its provider cannot take it now.
    #[error("unavailable: {reason}")]
    Unavailable {
        /// Which bound or state said no.
        reason: String,
    },
    /// The uid already belongs to an event with other content. Guests see an invalid event; everyone else sees this.
    #[error("conflict: the uid belongs to an event with other content")]
    Conflict,
}

impl KnownFailure {
    /// The name used in audit, journal and `docs/errors.md`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::InvalidTopic => "invalid-topic",
            Self::InvalidEvent { .. } => "invalid-event",
            Self::PermissionDenied => "permission-denied",
            Self::BudgetExhausted => "budget-exhausted",
            Self::DeadlineExceeded => "deadline-exceeded",
            Self::Cancelled => "cancelled",
            Self::Unavailable { .. } => "unavailable",
            Self::Conflict => "conflict",
        }
    }
}

/// A publication whose fate is not known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncertain {
    /// The uid to look it up by, or to publish it again with.
    pub uid: Option<Uid>,
    /// What hid the answer.
    pub cause: UncertainCause,
}

/// What hid the answer of a publication, as a bounded set for audit (D-09).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UncertainCause {
    /// The deadline passed after the write began.
    Deadline,
    /// The activation was cancelled after the write began.
    Cancelled,
    /// A write or a sync failed after it began.
    Storage,
    /// The log said that a storage limit is reached, which on some versions of it does not tell whether the event was stored (D-05).
    StorageLimit,
    /// The connection or the engine ended before it answered.
    Closed,
    /// The answer could not be understood or belonged to something else.
    Unusable,
}

impl UncertainCause {
    /// The name used in audit and journal.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Cancelled => "cancelled",
            Self::Storage => "storage",
            Self::StorageLimit => "storage-limit",
            Self::Closed => "closed",
            Self::Unusable => "unusable",
        }
    }
}

/// How one activation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "an activation's outcome decides what happens to its event"]
pub enum ActivationOutcome {
    /// The function returned, without a declared failure.
    Success,
    /// The handler refused the event for good.
    Rejected {
        /// The guest's reason, bounded.
        reason: String,
    },
    /// The handler asked to see the event again.
    RetryRequested {
        /// The guest's reason, bounded.
        reason: String,
        /// The delay it asked for, before policy clamps it.
        delay_millis: Option<u64>,
    },
    /// The function's single top-level `result` was an `err`.
    DeclaredFailure,
    /// The arguments do not fit the function.
    InvalidArguments {
        /// What does not fit.
        reason: String,
    },
    /// The component does not export what the binding names.
    IncompatibleContract {
        /// What is missing or different.
        reason: String,
    },
    /// Revoked, not granted, or not authenticated.
    PermissionRefused {
        /// Which check said no.
        reason: String,
    },
    /// Wall time ran out.
    Timeout,
    /// Stopped from outside.
    Cancelled,
    /// The guest trapped.
    Trap {
        /// Which trap.
        code: TrapCode,
        /// Where and why, bounded.
        detail: String,
    },
    /// A part of the budget ran out.
    BudgetExhausted(BudgetKind),
    /// The host itself failed.
    HostFailure {
        /// What failed.
        reason: String,
    },
}

/// The parts of a budget whose end stops an activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BudgetKind {
    /// Fuel.
    Fuel,
    /// Linear memory.
    Memory,
    /// Table elements.
    Tables,
    /// What the function gave back is beyond a limit of the values' form.
    Result,
}

/// The traps a guest can end in, as a closed set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TrapCode {
    /// `unreachable`, which is what a panic becomes.
    Unreachable,
    /// Memory access out of bounds.
    MemoryOutOfBounds,
    /// Table access out of bounds, or a call through a null or mistyped element.
    TableAccess,
    /// Call stack exhausted.
    StackOverflow,
    /// Integer overflow, division by zero or a bad conversion.
    Arithmetic,
    /// The guest called `exit`.
    Exit,
    /// Any other trap of the engine.
    Unlisted,
}

impl TrapCode {
    /// The name used in journal and documentation.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::MemoryOutOfBounds => "memory-out-of-bounds",
            Self::TableAccess => "table-access",
            Self::StackOverflow => "stack-overflow",
            Self::Arithmetic => "arithmetic",
            Self::Exit => "exit",
            Self::Unlisted => "unlisted",
        }
    }
}

/// What happens to a delivered event after its activation (D-23).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Handled: acknowledge.
    Acknowledge,
    /// Never again: terminate, and park where a dead-letter topic is named.
    Terminate,
    /// Again after a delay, until attempts are used up.
    Retry {
        /// The delay the guest asked for, before policy clamps it.
        delay_millis: Option<u64>,
    },
}

impl ActivationOutcome {
    /// The one table from outcome to what happens to the event.
    pub const fn disposition(&self) -> Disposition {
        match self {
            Self::Success => Disposition::Acknowledge,
            Self::Rejected { .. }
            | Self::DeclaredFailure
            | Self::InvalidArguments { .. }
            | Self::IncompatibleContract { .. }
            | Self::PermissionRefused { .. } => Disposition::Terminate,
            Self::RetryRequested { delay_millis, .. } => Disposition::Retry { delay_millis: *delay_millis },
            Self::Timeout | Self::Cancelled | Self::Trap { .. } | Self::BudgetExhausted(_) | Self::HostFailure { .. } => {
                Disposition::Retry { delay_millis: None }
            }
        }
    }

    /// The name used in journal, status and `docs/errors.md`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Rejected { .. } => "rejected",
            Self::RetryRequested { .. } => "retry",
            Self::DeclaredFailure => "declared-failure",
            Self::InvalidArguments { .. } => "invalid-arguments",
            Self::IncompatibleContract { .. } => "incompatible-contract",
            Self::PermissionRefused { .. } => "permission-refused",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Trap { .. } => "trap",
            Self::BudgetExhausted(BudgetKind::Fuel) => "fuel-exhausted",
            Self::BudgetExhausted(BudgetKind::Memory) => "memory-exhausted",
            Self::BudgetExhausted(BudgetKind::Tables) => "tables-exhausted",
            Self::BudgetExhausted(BudgetKind::Result) => "result-exhausted",
            Self::HostFailure { .. } => "host-failure",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_disposition() {
        let text = String::new;
        let retry = Disposition::Retry { delay_millis: None };
        let table = [
            (ActivationOutcome::Success, Disposition::Acknowledge),
            (ActivationOutcome::Rejected { reason: text() }, Disposition::Terminate),
            (ActivationOutcome::RetryRequested { reason: text(), delay_millis: Some(7) }, Disposition::Retry { delay_millis: Some(7) }),
            (ActivationOutcome::DeclaredFailure, Disposition::Terminate),
            (ActivationOutcome::InvalidArguments { reason: text() }, Disposition::Terminate),
            (ActivationOutcome::IncompatibleContract { reason: text() }, Disposition::Terminate),
            (ActivationOutcome::PermissionRefused { reason: text() }, Disposition::Terminate),
            (ActivationOutcome::Timeout, retry),
            (ActivationOutcome::Cancelled, retry),
            (ActivationOutcome::Trap { code: TrapCode::Exit, detail: text() }, retry),
            (ActivationOutcome::BudgetExhausted(BudgetKind::Fuel), retry),
            (ActivationOutcome::BudgetExhausted(BudgetKind::Memory), retry),
            (ActivationOutcome::BudgetExhausted(BudgetKind::Tables), retry),
            (ActivationOutcome::BudgetExhausted(BudgetKind::Result), retry),
            (ActivationOutcome::HostFailure { reason: text() }, retry),
        ];
        let mut kinds = std::collections::BTreeSet::new();
        for (outcome, expected) in table {
            assert_eq!(outcome.disposition(), expected, "{}", outcome.kind());
            assert!(kinds.insert(outcome.kind()), "{} stands for two outcomes", outcome.kind());
        }
    }
}
