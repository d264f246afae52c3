//! What an activation may know about itself.

use std::fmt;
use std::time::Duration;

use crate::bindings::latent::context::context as host;

/// What is left of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remaining {
    /// Fuel, the measure of computing.
    pub fuel: u64,
    /// Time until the activation is stopped.
    pub wall_time: Duration,
    /// Publications that may still be attempted.
    pub outbound_requests: u64,
    /// Bytes that may still be logged.
    pub log_bytes: u64,
}

/// Why no key could be derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeriveError {
    /// The activation answers to no delivered event and was given no origin.
    NoOrigin,
    /// The label is empty or longer than 128 bytes.
    InvalidLabel,
}

impl fmt::Display for DeriveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoOrigin => "there is no delivered event to derive a key from",
            Self::InvalidLabel => "a label has 1 to 128 bytes",
        })
    }
}

impl std::error::Error for DeriveError {}

impl From<host::DeriveError> for DeriveError {
    fn from(error: host::DeriveError) -> Self {
        match error {
            host::DeriveError::NoOrigin => Self::NoOrigin,
            host::DeriveError::InvalidLabel => Self::InvalidLabel,
        }
    }
}

/// This activation's id: 32 hex digits, as the node's journal shows it.
pub fn activation_id() -> String {
    host::activation_id()
}

/// This activation's trace, as a W3C `traceparent`.
pub fn trace() -> String {
    host::trace()
}

/// The tenant this activation runs for.
pub fn tenant() -> String {
    host::tenant()
}

/// What is left of the budget at the moment of the call.
pub fn remaining() -> Remaining {
    let left = host::remaining();
    Remaining {
        fuel: left.cpu_fuel,
        wall_time: Duration::from_millis(left.wall_time_millis),
        outbound_requests: left.outbound_requests,
        log_bytes: left.log_bytes,
    }
}

/// A key that is the same whenever the same event is handled again: derived from the event and from how many keys this activation has
/// derived before. Use [`derive_label`] where the order of calls may vary.
///
/// # Errors
/// [`DeriveError::NoOrigin`].
pub fn derive() -> Result<String, DeriveError> {
    host::derive().map_err(DeriveError::from)
}

/// A key that is the same whenever the same event is handled again, one for each label.
///
/// # Errors
/// [`DeriveError`].
pub fn derive_label(label: &str) -> Result<String, DeriveError> {
    host::derive_label(label).map_err(DeriveError::from)
}
