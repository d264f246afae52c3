//! Triggers without a broker: their configuration, their installation, what can be seen of them, and scripted peers for everything that a
//! broker could say and the pinned one never does.

mod bench;
mod config;
mod eligible;
mod installing;
mod monitor;
mod pulls;
mod settling;
mod stopping;
mod turned_away;
