//! What can be wrong with a binding, before it is installed and while it is visited.

use latent_core::{ConsumerName, CoreError, LimitError, StreamName, Subject, TenantId};
use latent_nats_proto::Evidence;
use latent_nats_proto::triggers::{ProfileField, PullStatus};

/// What is wrong with one binding of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindingProblem {
    /// Something that has no default is missing.
    #[error("{field} is missing; {advice}")]
    Missing {
        /// The field.
        field: &'static str,
        /// What to write there.
        advice: &'static str,
    },
    /// A name or budget that breaks its rule.
    #[error("{field}: {error}")]
    Name {
        /// The field.
        field: &'static str,
        /// The rule.
        #[source]
        error: CoreError,
    },
    /// A number outside its limit.
    #[error("{field}: {error}")]
    Limit {
        /// The field.
        field: &'static str,
        /// The limit.
        #[source]
        error: LimitError,
    },
    /// A dead letter tells its stream as a topic, and this name cannot be one.
    #[error("stream {stream} has no name that a dead letter can tell: {error}; rename it, or do without deadLetter")]
    DeadLetterOf {
        /// The stream.
        stream: StreamName,
        /// What a topic's name must be.
        #[source]
        error: Box<CoreError>,
    },
    /// More or fewer deliveries than the runs need (25-joins, attempts).
    #[error(
        "maxDeliver is {max_deliver} and maxDeliveries {max_deliveries}: {}",
        if *.parks { "with a dead-letter topic the consumer delivers at least once more, so that what could not be parked comes again" } else { "without a dead-letter topic they are the same" }
    )]
    Deliveries {
        /// Deliveries of the consumer.
        max_deliver: u64,
        /// Runs.
        max_deliveries: u64,
        /// Whether there is a dead-letter topic.
        parks: bool,
    },
    /// A partition that no topic has.
    #[error("partition is above {most}")]
    Partition {
        /// The last one that there can be.
        most: u32,
    },
    /// Another form of input.
    #[error("input is {found:?}; a function is given `wit-values`, or `event` of a topic's stream")]
    Input {
        /// What was written, cut to 40 characters.
        found: String,
    },
    /// The broker would deliver again while the function still runs (T-030).
    #[error("ackWaitMillis is {ack_wait_millis} and must be at least {least_millis}, a second above operationTimeoutMillis")]
    AckWait {
        /// What was written.
        ack_wait_millis: u64,
        /// The least.
        least_millis: u64,
    },
    /// The function may run longer than its delivery (T-027).
    #[error("budget.wallTimeMillis is {wall_time_millis} and must be at most operationTimeoutMillis, {operation_timeout_millis}")]
    WallTime {
        /// What was written.
        wall_time_millis: u64,
        /// The most.
        operation_timeout_millis: u64,
    },
    /// The id of another binding (T-008).
    #[error("bindings[{first}] has the same id; ids are unique in a configuration")]
    SameId {
        /// The first one's place.
        first: usize,
    },
    /// The consumer of another binding (T-008).
    #[error("bindings[{first}] has consumer {consumer} of stream {stream} already; each binding needs a consumer of its own")]
    SameConsumer {
        /// The stream.
        stream: StreamName,
        /// The consumer.
        consumer: ConsumerName,
        /// The first one's place.
        first: usize,
    },
    /// A subject of another tenant (T-009).
    #[error("its filter {filter} belongs to tenant {owner}; a subject has one tenant")]
    SharedFilter {
        /// The subject.
        filter: Subject,
        /// Whose it is.
        owner: TenantId,
    },
}

/// Why a visit came to nothing, as a closed set of numbers and names: no text of the broker, nothing of a message or a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepFault {
    /// The service cannot be called: it is not there, or was revoked (T-012).
    Ineligible,
    /// A bound of admission is reached; nothing was asked of the broker (T-056).
    Overloaded,
    /// The node takes no new work.
    NodeStopping,
    /// A bound of the pools is reached, or no connection became free.
    PoolFull,
    /// The last dial failed; the next one waits.
    Backoff,
    /// No connection could be made.
    Unreachable,
    /// The broker does not take the credential.
    AuthenticationRefused,
    /// The credential is missing, expired or was changed.
    Credential,
    /// The stream is not there.
    StreamMissing,
    /// The consumer is not there.
    ConsumerMissing,
    /// The consumer is not as configured.
    Mismatch(ProfileField),
    /// The broker refuses the inspection, with its own code.
    Refused(u64),
    /// The broker's user may not do this.
    PermissionRefused,
    /// The pull ended with a status that is somebody's to mend.
    Status(PullStatus),
    /// The connection was lost, or the broker said what it must not.
    Protocol(Evidence),
    /// The deadline passed before anything was handed out.
    DeadlineExceeded,
    /// A message was handed out more often than the consumer's limit (D-12).
    DeliveredTooOften,
    /// The broker's user may not settle, so every message comes again until the broker gives it up.
    SettlementRefused,
    /// A message cannot be put into the dead-letter topic, and is not terminated (D-22).
    NotParked,
}

impl StepFault {
    /// The name used in status, metrics and documentation.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Ineligible => "ineligible",
            Self::Overloaded => "overloaded",
            Self::NodeStopping => "node-stopping",
            Self::PoolFull => "pool-full",
            Self::Backoff => "backoff",
            Self::Unreachable => "unreachable",
            Self::AuthenticationRefused => "authentication-refused",
            Self::Credential => "credential",
            Self::StreamMissing => "stream-missing",
            Self::ConsumerMissing => "consumer-missing",
            Self::Mismatch(_) => "consumer-mismatch",
            Self::Refused(_) => "broker-refused",
            Self::PermissionRefused => "permission-refused",
            Self::Status(status) => status_kind(status),
            Self::Protocol(_) => "protocol",
            Self::DeadlineExceeded => "deadline-exceeded",
            Self::DeliveredTooOften => "delivered-too-often",
            Self::SettlementRefused => "settlement-refused",
            Self::NotParked => "not-parked",
        }
    }

    /// Whether it is about the message at the head, which stays there until somebody removes it or the broker gives it up.
    pub(super) const fn is_of_message(self) -> bool {
        match self {
            Self::Protocol(evidence) => matches!(
                evidence,
                Evidence::OversizedReply
                    | Evidence::ForeignReply
                    | Evidence::MalformedFrame
                    | Evidence::LineTooLong
                    | Evidence::MalformedReceipt
            ),
            Self::DeliveredTooOften | Self::SettlementRefused | Self::NotParked => true,
            _ => false,
        }
    }

    /// Whether an inspection of the consumer that passes shows that it is over: it was the connection's, the server's or the consumer's, and
    /// neither a message's nor one of the right to pull.
    pub(crate) const fn is_over_with_an_inspection(self) -> bool {
        match self {
            Self::Protocol(evidence) => {
                matches!(evidence, Evidence::ConnectionLost { .. } | Evidence::Deadline { .. } | Evidence::NoResponders)
            }
            Self::Status(status) => matches!(
                status,
                PullStatus::LeadershipChange
                    | PullStatus::ServerShutdown
                    | PullStatus::ConsumerDeleted
                    | PullStatus::NoResponders
                    | PullStatus::TooManyRequests
            ),
            Self::DeadlineExceeded | Self::AuthenticationRefused => true,
            _ => false,
        }
    }

    /// Whether dials wait after it.
    pub(super) const fn begins_backoff(self) -> bool {
        matches!(self, Self::Unreachable | Self::AuthenticationRefused | Self::Credential | Self::Backoff)
    }

    /// Whether it goes away with load, and is no sign of something to mend.
    pub const fn is_load(self) -> bool {
        matches!(self, Self::Overloaded | Self::PoolFull | Self::NodeStopping)
    }
}

const fn status_kind(status: PullStatus) -> &'static str {
    match status {
        PullStatus::LeadershipChange => "leadership-change",
        PullStatus::ServerShutdown => "server-shutdown",
        PullStatus::ConsumerDeleted => "consumer-missing",
        PullStatus::NoResponders => "no-responders",
        PullStatus::PushBased => "push-based",
        PullStatus::RequestTooLarge => "request-too-large",
        PullStatus::MessageTooLarge => "message-too-large",
        PullStatus::Precondition => "precondition",
        PullStatus::PinLost => "pin-lost",
        PullStatus::TooManyRequests => "too-many-requests",
        PullStatus::Empty | PullStatus::Expired | PullStatus::AtCapacity | PullStatus::BatchCompleted => "empty",
        PullStatus::Unknown(_) => "unknown-status",
    }
}
