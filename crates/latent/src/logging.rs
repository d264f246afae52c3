//! The log on standard error: of a node, and of a command that opens the data directory itself.

use crate::error::CliError;

/// Names the filter of the log.
const LOG_FILTER_VAR: &str = "LATENT_LOG";

/// What a command logs unless the variable says otherwise.
pub(crate) const OF_A_COMMAND: &str = "warn,async_nats=error";

/// One line an event on standard error. `LATENT_LOG` chooses what, in the form of a `tracing` filter; `level` unless said.
///
/// # Errors
/// [`CliError::Value`] for a filter that is none.
pub(crate) fn to_stderr(level: &str) -> Result<(), CliError> {
    use std::io::IsTerminal as _;
    use tracing_subscriber::EnvFilter;

    let wrong = |error: &dyn std::fmt::Display| CliError::Value { option: LOG_FILTER_VAR, reason: error.to_string() };
    let filter = match std::env::var(LOG_FILTER_VAR) {
        Ok(filter) if filter.is_empty() => return Err(wrong(&"it is set and empty; unset it or give a level such as `info`")),
        Ok(filter) => EnvFilter::try_new(filter).map_err(|error| wrong(&error))?,
        Err(std::env::VarError::NotPresent) => EnvFilter::new(level),
        Err(error @ std::env::VarError::NotUnicode(_)) => return Err(wrong(&error)),
    };
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(std::io::stderr().is_terminal()).with_writer(std::io::stderr);
    // Set before, by an embedder: then that one stays.
    let _ = subscriber.try_init();
    Ok(())
}
