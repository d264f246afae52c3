//! From the protocol's answer to the outcome that everyone else knows. The table is in `latent-nats-proto`; nothing is decided here.

use latent_core::{KnownFailure, PublicationOutcome, Receipt, StreamName, Uid, Uncertain, UncertainCause, UnixMillis};
use latent_nats_proto::{Answer, FailureCause, FailureKind, UncertainCause as Hidden};

/// The outcome of an answer, for the publication with this uid and expected stream.
pub(crate) fn outcome_of(answer: Answer, uid: &Uid, stream: &StreamName, now: UnixMillis) -> PublicationOutcome {
    match answer {
        Answer::Receipt { sequence, duplicate } => {
            PublicationOutcome::Receipt(Receipt { stream: stream.shared(), sequence, duplicate, accepted_at: now })
        }
        Answer::KnownFailure { kind, cause } => PublicationOutcome::KnownFailure(failure_of(kind, cause)),
        Answer::Uncertain(hidden) => PublicationOutcome::Uncertain(Uncertain { uid: Some(uid.clone()), cause: cause_of(hidden) }),
    }
}

pub(crate) fn failure_of(kind: FailureKind, cause: FailureCause) -> KnownFailure {
    match kind {
        FailureKind::Unavailable => KnownFailure::Unavailable { reason: cause.to_string() },
        FailureKind::PermissionDenied => KnownFailure::PermissionDenied,
        FailureKind::InvalidEvent => KnownFailure::InvalidEvent { rule: cause.to_string() },
        FailureKind::DeadlineExceeded => KnownFailure::DeadlineExceeded,
        FailureKind::Cancelled => KnownFailure::Cancelled,
    }
}

/// The bounded cause for audit (D-09).
fn cause_of(hidden: Hidden) -> UncertainCause {
    match hidden {
        Hidden::Deadline | Hidden::ReplyStalled => UncertainCause::Deadline,
        Hidden::Cancelled => UncertainCause::Cancelled,
        Hidden::ConnectionLost | Hidden::ReplyTruncated => UncertainCause::Closed,
        Hidden::StorageLimit => UncertainCause::StorageLimit,
        Hidden::InternalError => UncertainCause::Storage,
        Hidden::MalformedReply
        | Hidden::ForeignReply
        | Hidden::WrongStream
        | Hidden::UnexpectedStatus
        | Hidden::OversizedReply
        | Hidden::LineTooLong
        | Hidden::ControlFlood
        | Hidden::UnlistedRejection
        | Hidden::PermissionOfAnother
        | Hidden::BrokerError => UncertainCause::Unusable,
    }
}
