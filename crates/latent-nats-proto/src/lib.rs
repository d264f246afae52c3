//! The NATS client protocol and the JetStream exchanges as state machines: bytes in, bytes out.
//!
//! Nothing here does I/O, knows the time or an async runtime. A [`Link`] is the protocol memory of one connection; a [`Handshake`], a
//! [`Checkout`] and a [`Publish`] are what happens on it, one at a time. The shell writes what [`Exchange::outgoing`] holds, hands over what
//! it reads, and says when the connection, the deadline or the caller ended the exchange.
//!
//! [`triggers`] has the three operations of one delivery in the same form. [`session`] has them for many deliveries at once on one connection:
//! a [`Session`](session::Session) takes the link whose handshake is done, and tells its shell in events what became of each operation.
//!
//! What always holds: no input panics or is kept beyond a bound of [`limits`]; a publication in steady state allocates nothing; *possible
//! write* (D-06) is crossed in [`Exchange::offering`] and [`session::Session::offering`] and nowhere else; and only [`decide`] turns evidence into an answer.

mod broker_error;
mod checkout;
mod connect;
mod decoder;
#[cfg(test)]
mod every_byte;
mod exchange;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz_bodies;
mod handshake;
mod headers;
mod inbox;
mod info;
mod json;
pub mod limits;
mod link;
mod outcome;
mod publication;
mod publish;
mod receipt;
pub mod session;
#[cfg(any(test, feature = "fuzzing"))]
mod testing;
pub mod triggers;

pub use checkout::{Checkout, CheckoutError};
pub use connect::{Credential, CredentialError};
pub use exchange::{Ended, Exchange, Want};
pub use handshake::{Handshake, HandshakeError};
pub use inbox::InstanceInbox;
pub use info::{InfoError, ServerFacts, ServerVersion};
pub use latent_core::MessageId;
pub use link::Link;
pub use outcome::{Answer, Connection, Evidence, FailureCause, FailureKind, Stage, UncertainCause, connection_after, decide};
pub use publication::{Publication, header_block_bytes, message_id};
pub use publish::{Publish, PublishEnd, PublishRefused};
