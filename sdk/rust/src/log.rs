//! Lines for the activation's log.
//!
//! As functions, `log::info("done")`, or as macros that format, `log::info!("{n} done")`. Lines count against the log bytes of the
//! budget; what is beyond is cut and counted. Standard output and error go to the same log.

use std::fmt::Display;

use crate::bindings::latent::log::log::{Level, write};

pub use crate::{debug, error, info, trace, warn};

/// Logs one line at level *trace*: every step.
pub fn trace(message: impl Display) {
    write(Level::Trace, &message.to_string());
}

/// Logs one line at level *debug*: for finding faults.
pub fn debug(message: impl Display) {
    write(Level::Debug, &message.to_string());
}

/// Logs one line at level *info*: worth knowing.
pub fn info(message: impl Display) {
    write(Level::Info, &message.to_string());
}

/// Logs one line at level *warn*: unexpected and survived.
pub fn warn(message: impl Display) {
    write(Level::Warn, &message.to_string());
}

/// Logs one line at level *error*: something failed.
pub fn error(message: impl Display) {
    write(Level::Error, &message.to_string());
}

/// Logs one line at level *trace*, formatted as by [`format!`].
#[macro_export]
macro_rules! trace {
    ($($argument:tt)*) => { $crate::log::trace(::std::format_args!($($argument)*)) };
}

/// Logs one line at level *debug*, formatted as by [`format!`].
#[macro_export]
macro_rules! debug {
    ($($argument:tt)*) => { $crate::log::debug(::std::format_args!($($argument)*)) };
}

/// Logs one line at level *info*, formatted as by [`format!`].
#[macro_export]
macro_rules! info {
    ($($argument:tt)*) => { $crate::log::info(::std::format_args!($($argument)*)) };
}

/// Logs one line at level *warn*, formatted as by [`format!`].
#[macro_export]
macro_rules! warn {
    ($($argument:tt)*) => { $crate::log::warn(::std::format_args!($($argument)*)) };
}

/// Logs one line at level *error*, formatted as by [`format!`].
#[macro_export]
macro_rules! error {
    ($($argument:tt)*) => { $crate::log::error(::std::format_args!($($argument)*)) };
}
