//! Bounded triggers, `nats-jetstream-pull-v1`: a durable consumer's message becomes one fresh activation, admitted before it is pulled
//! and settled by its outcome.
//!
//! ```text
//! NatsTriggers::run ─▶ rotation: whose turn ─▶ visit: reserve ─▶ connection ─▶ inspect ─▶ pull ─▶ activate ─▶ settle
//!                        ▲                        │
//!                        └── worked, or nothing ──┴─▶ board: counters, states, the last step ◀── TriggerMonitor
//! ```
//!
//! What is decided is decided elsewhere: what a visit does in `latent_node::delivery::Visit`, what an answer of the broker means in
//! `latent_nats_proto::triggers`, who may connect in the pools, whose turn it is in `rotation`. This module carries between them. There is
//! one loop, owned by whoever calls [`NatsTriggers::run`]; no binding has a task, a timer, a socket or a subscription (T-014, T-015).
//!
//! A message is delivered *at least* once: one that was not settled comes again, and its function runs again (T-051). A confirmed
//! settlement says that the broker has the command, and nothing of what the function did elsewhere (T-049).

mod binding;
mod board;
mod config;
mod fault;
mod ingress;
mod install;
pub mod limits;
mod report;
mod rotation;
mod run;
pub(crate) mod stop;
mod tell;
#[cfg(test)]
mod tests;
mod topics;
pub(crate) mod trouble;
mod visit;

pub use binding::{BindingInput, TriggerBinding};
pub use board::TriggerMonitor;
pub use config::{BindingDraft, BudgetDraft, TriggerConfig, TriggerDraft};
pub use fault::{BindingProblem, StepFault};
pub use install::{NatsTriggers, PROFILE};
pub use report::{BindingReport, LastStep, StepEnd, TriggerSnapshot, TriggerState};
pub use run::{RunEnd, StepOutcome};
pub use topics::{Delivered, Topics};
