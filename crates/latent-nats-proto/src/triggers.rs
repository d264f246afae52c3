//! The three operations of one delivery (T-036): a consumer is inspected, one message is pulled, and it is settled.
//!
//! Each is a request with one reply on an inbox of its own. A pulled message comes with its own subject instead, so it is matched by the
//! subscription, its subject and its reply field.

mod ack_subject;
mod consumer;
#[cfg(test)]
mod every_byte;
mod pull;
mod request;
mod settle;
mod status;
#[cfg(test)]
mod tests;

pub(crate) use ack_subject::parse as parse_ack_subject;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use ack_subject::read as read_ack_subject;
pub use ack_subject::{AckNumbers, MalformedAckSubject};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use consumer::read as read_consumer;
pub use consumer::{ConsumerProfile, ConsumerState, Inspect, InspectEnd, InspectError, ProfileField, ProfileMismatch};
pub(crate) use consumer::{Demands, FORBIDDEN, NO_GROUPS, Wanted, read_facts};
pub use pull::{Delivery, Pull, PullEnd, PullError, Pulled};
pub use request::RequestRefused;
pub(crate) use request::{is_name, is_status};
pub use settle::{Settle, SettleAnswer, SettleEnd, Settlement};
pub use status::PullStatus;
pub(crate) use status::read as read_status;
