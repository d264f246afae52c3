//! Deliveries: how the events of a source reach their function, each as a fresh activation, settled by its outcome.
//!
//! [`Cycle`] decides and does no I/O; [`Source`] is what it needs from a log or a broker; the driver is the thin shell that carries
//! commands and answers between them and the activation manager. [`Visit`] is the same decision for a source that keeps attempts and delays
//! itself and hands events out one at a time. Nothing here knows a file format or a wire protocol.

mod cycle;
mod driver;
mod lane;
pub mod limits;
mod policy;
mod settled;
#[cfg(test)]
mod sim;
mod source;
mod visit;

pub use cycle::{Command, Cycle, CycleOptions, CycleSnapshot, CycleState, EventState, Intake, Termination};
pub(crate) use driver::detail_of;
pub use driver::{
    Attempt, AttemptLog, BindingSpec, BindingStatus, Changed, DeliveryDriver, DeliveryHandle, DeliveryTotals, EventStatus, LatencyMillis,
    PartitionSpec,
};
pub use lane::{Delivery, Desk, Inspected, Lane, LaneCommand, LaneOptions, NotOurs, PinId, PullEnd, ReplyId};
pub use policy::DeliveryPolicy;
pub use settled::SettledSet;
pub use source::{
    Arrival, Head, HeadContent, KeyId, Listing, Postponement, Remembered, Reporter, Settlement, Source, SourceError, SourceNews,
    TerminationReason, origin_of,
};
pub use visit::{
    Backlog, Condemned, Confirmation, Handed, Known, PutOff, Unsettled, Visit, VisitEnd, VisitNext, VisitPolicy, VisitSettlement, Waiting,
};
