//! One file for each command. A command reads its arguments, does one thing and says what came of it; how it ends is its
//! [`CliError`](crate::error::CliError).

pub(crate) mod archive;
pub(crate) mod bench;
pub(crate) mod broker;
pub(crate) mod bus;
pub(crate) mod check;
pub(crate) mod clock;
pub(crate) mod completions;
pub(crate) mod deadletter;
pub(crate) mod dev;
pub(crate) mod invoke;
pub(crate) mod new;
pub(crate) mod reload;
pub(crate) mod run;
pub(crate) mod secret;
pub(crate) mod service;
pub(crate) mod trigger;
pub(crate) mod why;
