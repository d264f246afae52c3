//! Talking to a running node: JSON lines on a Unix socket in its data directory, owner-only, versioned, bounded.
//!
//! `protocol` holds the words, `administration` those about services and the clock, `invocation` those of a call, `reloading` those of a
//! reload, `replaying` those of dead letters, `history` those of what became of an event, `forgetting` those of triggers that are gone, `target` and `statistics` what nodes and logs tell of themselves, `frame` the bounded lines, `publishing` keeps the order of what is published together, `answer` turns a request into an
//! answer over a [`ControlTarget`], `socket`
//! makes the socket file, `server` and `client` are the two shells. The same `answer` serves commands that open the directory
//! themselves, so that a command gives one result whichever way it took.
//!
//! One line each way:
//!
//! ```text
//! → {"version":1,"request":"summary"}
//! ← {"version":1,"answer":{"summary":{…}}}
//! ```

mod administration;
mod answer;
mod client;
mod forgetting;
mod frame;
mod history;
mod invocation;
mod protocol;
mod publishing;
mod reloading;
mod replaying;
mod server;
mod socket;
mod statistics;
pub(crate) mod target;

#[cfg(test)]
mod tests;

pub(crate) use administration::{ClockInfo, ClockState, RevokeOrder, Revoked, RouteInfo, RouteOrder, Routed, ServiceInfo, ServiceState};
pub(crate) use answer::answer;
pub(crate) use client::{ControlClient, ControlError};
pub(crate) use forgetting::{ForgetRefused, Forgotten, RemovedTrigger};
pub(crate) use history::{EventHistory, EventWord, JournalReach, Run, RunOutput, TriggerEvent, runs_of};
pub(crate) use invocation::{Invocation, InvocationBudget, Invoked};
pub(crate) use protocol::{Answer, Bounds, Event, Fault, HeadInfo, NewEvent, NodeInfo, Payload, Placed, Published, Request, TopicInfo};
pub(crate) use reloading::{Difference, ReloadOrder, Reloaded};
pub(crate) use replaying::{ReplayOrder, ReplayRefused, Replayed};
pub(crate) use server::ControlServer;
pub(crate) use socket::ControlSocket;
pub(crate) use statistics::{Maintained, PartitionInfo};
pub(crate) use target::{
    ActivationCounts, AuditCounts, BindingState, ControlTarget, LatencyMillis, NodeSummary, PoolUse, ProviderSummary, PublicationCounts,
    TriggerStatus,
};
