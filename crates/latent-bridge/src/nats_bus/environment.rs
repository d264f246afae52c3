//! The environment of the bus: which variables there are and what may stand in them (B-047, B-048, D-19). Reads through a function that
//! is given to it, so that nothing here depends on the process's own environment.

use std::ffi::OsString;
use std::path::PathBuf;

use super::options::{NatsCredentials, NatsOptions, NatsRoots};
use crate::BusError;

/// The file of root certificates, in PEM form.
pub(super) const CA_FILE: &str = "AV_NATS_CA_FILE";
/// The user.
pub(super) const USER: &str = "AV_NATS_USER";
/// The user's password.
pub(super) const PASSWORD: &str = "AV_NATS_PASSWORD";
/// Whether TLS comes before anything else: `true` or `false`.
pub(super) const TLS_FIRST: &str = "AV_NATS_TLS_FIRST";

/// `options` with what the variables say.
pub(super) fn read(mut options: NatsOptions, lookup: impl Fn(&str) -> Option<OsString>) -> Result<NatsOptions, BusError> {
    let text = |name: &str| text(name, lookup(name));
    // A path need not be text.
    if let Some(path) = lookup(CA_FILE) {
        if path.is_empty() {
            return Err(empty(CA_FILE));
        }
        options.roots = NatsRoots::Pem(PathBuf::from(text(CA_FILE)?.unwrap_or_default()));
    }
    options.credentials = nats_credentials(text(USER)?, text(PASSWORD)?)?;
    options.tls_first = match text(TLS_FIRST)?.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => return Err(config(format!("{TLS_FIRST} is {other:?}; write true or false"))),
    };
    Ok(options)
}

/// Both or neither: half a credential is never taken for none.
///
/// # Errors
/// [`BusError::Config`] when one is missing.
pub fn nats_credentials(user: Option<String>, password: Option<String>) -> Result<Option<NatsCredentials>, BusError> {
    match (user, password) {
        (Some(user), Some(password)) => Ok(Some(NatsCredentials::UserPassword { user, password })),
        (None, None) => Ok(None),
        (user, _) => {
            let missing = if user.is_some() { PASSWORD } else { USER };
            Err(config(format!("AV_NATS_USER and AV_NATS_PASSWORD must be set together; {missing} is not set")))
        }
    }
}

fn text(name: &str, value: Option<OsString>) -> Result<Option<String>, BusError> {
    let Some(value) = value else { return Ok(None) };
    if value.is_empty() {
        return Err(empty(name));
    }
    // What is no text is not shown: it may be a password.
    value.into_string().map(Some).map_err(|_| config(format!("{name} is not UTF-8; set it to text, or take it out of the environment")))
}

fn empty(name: &str) -> BusError {
    config(format!("{name} is set and empty; give it a value, or take it out of the environment"))
}

fn config(problem: String) -> BusError {
    BusError::Config { problem }
}
