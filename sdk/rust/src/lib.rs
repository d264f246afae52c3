//! What a function on Latent is written against.
//!
//! A function is woken by one event, may publish others, and says how it went:
//!
//! ```
//! use latent_sdk::{Event, Handled, Reject, publish};
//!
//! fn handle(event: Event) -> Handled {
//!     let text = event.text()?; // not UTF-8: rejected, never seen again
//!     if text.is_empty() {
//!         return Err(Reject::because("nothing to say"));
//!     }
//!     publish("greetings").key("all").text(format!("hello, {text}")).send()?;
//!     Ok(())
//! }
//!
//! latent_sdk::handler!(handle);
//! # fn main() {}
//! ```
//!
//! The topic `greetings` must be declared in the node's manifest and `[[topic]]`, and granted to the function's `[[service]]`. Where the
//! grant is missing, `send()?` asks to see the event again and names what to add: a mistake of the configuration rejects no event.
//!
//! Build it as a `cdylib` for `wasm32-wasip2`. Each run has a fresh memory: nothing survives from one event to the next. An event may
//! be handed over again, after a crash or when the function asks for it, so what a function does must bear being done twice;
//! [`publish`] does, because its idempotency key is derived from the event when none is given.
//!
//! The same crate compiles for the host too, where [`handler!`] exports nothing: plain `cargo build` and `cargo test` work. Only [`publish`], the
//! functions of [`log`] and those of [`context`] need a Latent host around them; called without one, they panic.

// The handler macro names this crate from the outside; so do the bindings.
extern crate self as latent_sdk;

#[doc(hidden)]
pub mod bindings;
pub mod context;
mod event;
mod handled;
mod handler;
pub mod log;
mod publish;

pub use event::Event;
pub use handled::{Failure, Handled, Reject, Retry};
pub use publish::{Publish, PublishError, Receipt, publish};

#[doc(hidden)]
pub mod __private {
    pub use crate::bindings::exports::latent::events::handler::{DeliveredEvent, Guest, HandlerError};
    pub use crate::bindings::{self, __export_latent_function as export};
    pub use crate::handler::run;
    pub use wit_bindgen;
}
