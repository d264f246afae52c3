//! The words every other crate uses: ids, limits, budgets, deadlines, the clock, outcomes and the record.
//!
//! Nothing here does I/O, knows an async runtime or depends on another crate of the workspace. Values are parsed once, at the
//! border, into types that cannot be wrong afterwards.

mod attributes;
mod budget;
mod clock;
mod dead_letter;
mod deadline;
mod delivered;
mod digest;
mod error;
mod id;
mod limit;
pub mod limits;
mod message_id;
mod name;
mod outcome;
mod place;
mod record;
mod ticket;

pub use attributes::{Attributes, RESERVED_ATTRIBUTE_PREFIX};
pub use budget::Budget;
pub use clock::{Clock, MonoTime, SystemClock, UnixMillis};
pub use dead_letter::{DeadLetter, FirstPublication, Replay, TerminationReason, Verdict};
pub use deadline::{Deadline, settle_margin};
pub use delivered::DeliveredEvent;
pub use digest::{ComponentDigest, length_delimited_sha256, length_delimited_sha256_of};
pub use error::{CoreError, TextProblem};
pub use id::{ActivationId, Epoch, Offset, Partition, PublicationId, RouteGeneration, TraceId, Uid};
pub use limit::{Limit, LimitError};
pub use message_id::MessageId;
pub use name::{
    BindingId, ConsumerName, ContractName, FunctionName, IdempotencyNamespace, LogicalTopic, MediaType, ProviderId, RouteName, ServiceName,
    StreamName, Subject, TenantId, TopicName,
};
pub use outcome::{
    ActivationOutcome, BudgetKind, Disposition, KnownFailure, PublicationOutcome, Receipt, TrapCode, Uncertain, UncertainCause,
};
pub use place::Place;
pub use record::{NewRecord, Record, StoredRecord, partition_for};
pub use ticket::{Completer, Ticket};
