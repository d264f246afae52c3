//! The closed table of P.5: what one publication came to, from how far it was written and what was seen. Nothing else decides it.

/// How far a publication was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// No byte of it was offered to the writer. Handshake and checkout are here too.
    BeforeWrite,
    /// Bytes may have left; the writer has not taken all of them.
    PartlyWritten,
    /// The writer has taken all of it.
    Written,
}

impl Stage {
    /// Whether a byte of the publication may have left (D-06).
    pub const fn possible_write(self) -> bool {
        matches!(self, Self::PartlyWritten | Self::Written)
    }
}

/// What was seen last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// A receipt for the expected stream.
    Stored {
        /// Positive.
        sequence: u64,
        /// The stream already had this id.
        duplicate: bool,
    },
    /// A refusal by the stream, with its two codes.
    Rejected {
        /// The class of the error.
        code: Option<u64>,
        /// The error itself.
        err_code: Option<u64>,
    },
    /// Nothing listens on the subject.
    NoResponders,
    /// The broker's exact refusal to publish to this subject.
    PublishRefused,
    /// A refusal of a permission in other words or for another subject.
    PermissionOfAnother,
    /// The broker took the message for too large and says so.
    MaximumPayload,
    /// A newer INFO allows less than this publication has.
    AboveServerMaximum,
    /// Credentials were refused.
    AuthenticationFailed,
    /// Any other `-ERR`.
    BrokerError,
    /// The connection ended.
    ConnectionLost {
        /// Inside a frame.
        within_reply: bool,
    },
    /// The deadline passed.
    Deadline {
        /// Inside a frame.
        within_reply: bool,
    },
    /// The caller cancelled.
    Cancelled,
    /// Bytes that are no frame.
    MalformedFrame,
    /// A line above its bound.
    LineTooLong,
    /// A message above its bound.
    OversizedReply,
    /// A message for another inbox or subscription.
    ForeignReply,
    /// A frame that nothing was waiting for.
    UnexpectedFrame,
    /// A reply whose body is no receipt.
    MalformedReceipt,
    /// A reply that names another stream.
    WrongStream,
    /// A reply with a status that is not known.
    UnexpectedStatus,
    /// More control frames than a stage may have.
    ControlFlood,
    /// The broker cannot be worked with, for what its INFO says.
    UnusableServer,
}

/// What one publication came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a publication's answer decides whether it may be sent again"]
pub enum Answer {
    /// The expected stream has it.
    Receipt {
        /// Its sequence there.
        sequence: u64,
        /// The stream already had this id.
        duplicate: bool,
    },
    /// It was certainly not stored.
    KnownFailure {
        /// What the guest is told.
        kind: FailureKind,
        /// Why, for audit.
        cause: FailureCause,
    },
    /// It may have been stored.
    Uncertain(UncertainCause),
}

/// What a guest is told of a publication that was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The broker cannot take it now.
    Unavailable,
    /// The broker does not permit it.
    PermissionDenied,
    /// The broker, or a bound, does not take this event.
    InvalidEvent,
    /// The deadline passed first.
    DeadlineExceeded,
    /// Cancelled first.
    Cancelled,
}

/// Why a publication was certainly not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FailureCause {
    /// The subject belongs to another stream (400/10060).
    #[error("the subject belongs to another stream")]
    StreamMismatch,
    /// Larger than the stream takes (400/10054).
    #[error("the message is larger than the stream allows")]
    StreamMessageSize,
    /// Larger than the server takes.
    #[error("headers and payload are larger than the broker's max_payload")]
    ServerMaximum,
    /// Nothing listens on the subject.
    #[error("no stream listens on the subject")]
    NoResponders,
    /// The user may not publish to the subject.
    #[error("the broker does not permit publishing to the subject")]
    PublishRefused,
    /// The deadline passed.
    #[error("the deadline passed before the publication began")]
    Deadline,
    /// Cancelled.
    #[error("cancelled before the publication began")]
    Cancelled,
    /// Credentials were refused.
    #[error("the broker refused the credentials")]
    AuthenticationFailed,
    /// The connection ended.
    #[error("the connection ended before the publication began")]
    ConnectionLost,
    /// The broker reported an error.
    #[error("the broker reported an error before the publication began")]
    BrokerError,
    /// The broker's bytes are no protocol, or none that was waited for.
    #[error("the broker broke the protocol before the publication began")]
    Protocol,
    /// A line above its bound.
    #[error("a line of the broker is longer than 8 KiB (an INFO of a very large cluster is)")]
    LineTooLong,
    /// Too many control frames.
    #[error("the broker sent more control frames than one stage may have")]
    ControlFlood,
    /// The broker cannot be worked with.
    #[error("the broker's INFO lacks what is needed")]
    UnusableServer,
    /// A bound or a rule of this side, checked before anything is written.
    #[error("refused on this side before anything was written")]
    Local,
}

/// What hid the answer of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UncertainCause {
    /// The deadline passed.
    #[error("the deadline passed after the write began")]
    Deadline,
    /// The deadline passed inside a reply.
    #[error("the reply stalled half-way until the deadline")]
    ReplyStalled,
    /// Cancelled.
    #[error("cancelled after the write began")]
    Cancelled,
    /// The connection ended.
    #[error("the connection ended without a reply")]
    ConnectionLost,
    /// The connection ended inside a reply.
    #[error("the connection ended inside the reply")]
    ReplyTruncated,
    /// Bytes that are no reply.
    #[error("the reply is malformed")]
    MalformedReply,
    /// A reply to something else.
    #[error("a reply belongs to something else")]
    ForeignReply,
    /// A reply that names another stream.
    #[error("the reply names another stream")]
    WrongStream,
    /// A status that is not known.
    #[error("the reply has an unknown status")]
    UnexpectedStatus,
    /// A reply above its bound.
    #[error("the reply is larger than 4 KiB")]
    OversizedReply,
    /// A line above its bound.
    #[error("a line of the broker is longer than 8 KiB")]
    LineTooLong,
    /// Too many control frames.
    #[error("the broker sent more control frames than one stage may have")]
    ControlFlood,
    /// The stream or the server is full (503/10077 and kin).
    #[error("a storage limit of the broker")]
    StorageLimit,
    /// A 5xx whose effect cannot be known.
    #[error("an internal error of the broker")]
    InternalError,
    /// A refusal that is not on the list of those proved not to store.
    #[error("a refusal that is not known to store nothing")]
    UnlistedRejection,
    /// A refusal of a permission in other words or for another subject.
    #[error("a refusal of a permission that is not this publication's")]
    PermissionOfAnother,
    /// Any other error of the broker.
    #[error("the broker reported an error after the write began")]
    BrokerError,
}

/// What may become of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    /// It is in step and may be used again.
    Keep,
    /// It must be closed.
    Close,
}

/// Refusals proved on the pinned broker to store nothing, as (code, err_code) (D-05). A new line needs a test that reads the stream.
const NOT_STORED: &[(u64, u64, FailureKind, FailureCause)] = &[
    (400, 10_060, FailureKind::InvalidEvent, FailureCause::StreamMismatch),
    (400, 10_054, FailureKind::InvalidEvent, FailureCause::StreamMessageSize),
];
/// Errors about room: stream full, memory, storage or account limits. What they did differs between server versions.
const STORAGE_LIMITS: &[u64] = &[10_023, 10_028, 10_047, 10_077];

/// The one table from stage and evidence to an answer.
pub fn decide(stage: Stage, evidence: Evidence) -> Answer {
    match stage {
        Stage::BeforeWrite => before_write(evidence),
        Stage::PartlyWritten => Answer::Uncertain(match evidence {
            // The broker reads sizes before it reads the message, so this refusal alone may come early.
            Evidence::MaximumPayload => return failure(FailureKind::InvalidEvent, FailureCause::ServerMaximum),
            // A reply to what was not sent completely is a reply to something else.
            Evidence::Stored { .. } | Evidence::Rejected { .. } | Evidence::NoResponders => UncertainCause::ForeignReply,
            Evidence::PublishRefused => UncertainCause::PermissionOfAnother,
            other => after_write(other),
        }),
        Stage::Written => match evidence {
            Evidence::Stored { sequence, duplicate } => Answer::Receipt { sequence, duplicate },
            Evidence::Rejected { code, err_code } => rejected(code, err_code),
            Evidence::NoResponders => failure(FailureKind::Unavailable, FailureCause::NoResponders),
            Evidence::PublishRefused => failure(FailureKind::PermissionDenied, FailureCause::PublishRefused),
            Evidence::MaximumPayload => failure(FailureKind::InvalidEvent, FailureCause::ServerMaximum),
            other => Answer::Uncertain(after_write(other)),
        },
    }
}

/// Whether the connection is in step after `evidence`: only where a whole reply to this very publication ended it, or nothing was begun.
pub const fn connection_after(stage: Stage, evidence: Evidence) -> Connection {
    match (stage, evidence) {
        (Stage::Written, Evidence::Stored { .. } | Evidence::Rejected { .. } | Evidence::NoResponders | Evidence::PublishRefused)
        | (Stage::BeforeWrite, Evidence::AboveServerMaximum) => Connection::Keep,
        _ => Connection::Close,
    }
}

const fn failure(kind: FailureKind, cause: FailureCause) -> Answer {
    Answer::KnownFailure { kind, cause }
}

const fn before_write(evidence: Evidence) -> Answer {
    let cause = match evidence {
        Evidence::Deadline { .. } => return failure(FailureKind::DeadlineExceeded, FailureCause::Deadline),
        Evidence::Cancelled => return failure(FailureKind::Cancelled, FailureCause::Cancelled),
        Evidence::AboveServerMaximum => return failure(FailureKind::InvalidEvent, FailureCause::ServerMaximum),
        Evidence::AuthenticationFailed => FailureCause::AuthenticationFailed,
        Evidence::ConnectionLost { .. } => FailureCause::ConnectionLost,
        Evidence::PublishRefused | Evidence::PermissionOfAnother | Evidence::MaximumPayload | Evidence::BrokerError => {
            FailureCause::BrokerError
        }
        Evidence::LineTooLong => FailureCause::LineTooLong,
        Evidence::ControlFlood => FailureCause::ControlFlood,
        Evidence::UnusableServer => FailureCause::UnusableServer,
        Evidence::Stored { .. }
        | Evidence::Rejected { .. }
        | Evidence::NoResponders
        | Evidence::MalformedFrame
        | Evidence::OversizedReply
        | Evidence::ForeignReply
        | Evidence::UnexpectedFrame
        | Evidence::MalformedReceipt
        | Evidence::WrongStream
        | Evidence::UnexpectedStatus => FailureCause::Protocol,
    };
    failure(FailureKind::Unavailable, cause)
}

/// Everything that leaves a written publication uncertain. What answers it does not come here; if it did, it would be foreign.
const fn after_write(evidence: Evidence) -> UncertainCause {
    match evidence {
        Evidence::Deadline { within_reply: false } => UncertainCause::Deadline,
        Evidence::Deadline { within_reply: true } => UncertainCause::ReplyStalled,
        Evidence::Cancelled => UncertainCause::Cancelled,
        Evidence::ConnectionLost { within_reply: false } => UncertainCause::ConnectionLost,
        Evidence::ConnectionLost { within_reply: true } => UncertainCause::ReplyTruncated,
        Evidence::MalformedFrame | Evidence::MalformedReceipt | Evidence::UnusableServer => UncertainCause::MalformedReply,
        Evidence::WrongStream => UncertainCause::WrongStream,
        Evidence::UnexpectedStatus => UncertainCause::UnexpectedStatus,
        Evidence::OversizedReply => UncertainCause::OversizedReply,
        Evidence::LineTooLong => UncertainCause::LineTooLong,
        Evidence::ControlFlood => UncertainCause::ControlFlood,
        Evidence::PermissionOfAnother => UncertainCause::PermissionOfAnother,
        Evidence::AuthenticationFailed | Evidence::AboveServerMaximum | Evidence::BrokerError => UncertainCause::BrokerError,
        Evidence::ForeignReply
        | Evidence::UnexpectedFrame
        | Evidence::Stored { .. }
        | Evidence::Rejected { .. }
        | Evidence::NoResponders
        | Evidence::PublishRefused
        | Evidence::MaximumPayload => UncertainCause::ForeignReply,
    }
}

fn rejected(code: Option<u64>, err_code: Option<u64>) -> Answer {
    let (Some(code), Some(err_code)) = (code, err_code) else { return Answer::Uncertain(UncertainCause::UnlistedRejection) };
    if let Some((.., kind, cause)) = NOT_STORED.iter().find(|known| (known.0, known.1) == (code, err_code)) {
        return failure(*kind, *cause);
    }
    Answer::Uncertain(if !(500..600).contains(&code) {
        UncertainCause::UnlistedRejection
    } else if STORAGE_LIMITS.contains(&err_code) {
        UncertainCause::StorageLimit
    } else {
        UncertainCause::InternalError
    })
}

#[cfg(test)]
mod tests;
