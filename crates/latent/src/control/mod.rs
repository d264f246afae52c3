//! Talking to a running node: JSON lines on a Unix socket in its data directory, owner-only, versioned, bounded.
//!
//! `protocol` holds the words, `target` and `statistics` what nodes and logs tell of themselves, `frame` the bounded lines, `answer` turns a request into an answer over a [`ControlTarget`], `socket`
//! makes the socket file, `server` and `client` are the two shells. The same `answer` serves commands that open the directory
//! themselves, so that a command gives one result whichever way it took.
//!
//! One line each way:
//!
//! ```text
//! → {"version":1,"request":"summary"}
//! ← {"version":1,"answer":{"summary":{…}}}
//! ```

mod answer;
mod client;
mod frame;
mod protocol;
mod server;
mod socket;
mod statistics;
pub(crate) mod target;

#[cfg(test)]
mod tests;

pub(crate) use answer::answer;
pub(crate) use client::{ControlClient, ControlError};
pub(crate) use protocol::{Answer, Bounds, Event, Fault, NewEvent, NodeInfo, Payload, Placed, Published, Request, TopicInfo};
pub(crate) use server::ControlServer;
pub(crate) use socket::ControlSocket;
pub(crate) use statistics::{Maintained, PartitionInfo};
pub(crate) use target::{ActivationCounts, BindingState, ControlTarget, LatencyMillis, NodeSummary, PublicationCounts, TriggerStatus};
