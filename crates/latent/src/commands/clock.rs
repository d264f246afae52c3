//! `latent clock`: whether the node believes the wall clock, and an operator's word that it may.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::access::{Access, Stopped, unexpected, without_bindings};
use crate::config::{self, NamedFiles};
use crate::control::{Answer, ClockInfo, ClockState, ControlError, Request};
use crate::data_dir::DataDir;
use crate::error::CliError;
use crate::output::Output;
use crate::timestamp::timestamp_seconds;

/// `latent clock`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClockCommand {
    /// Show whether the wall clock is believed, and what is held if it is not
    Status(StatusArgs),
    /// Say that the wall clock is right now: retention goes on by it
    Confirm(ConfirmArgs),
}

/// Arguments of `latent clock status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  latent clock status -c latent.toml --json

The node compares the wall clock with time that nobody sets and with what it was when the node last ran. After a jump of more than five \
minutes it holds retention, because a wrong clock would remove what is not old. Functions go on. It ends by itself when the clock is \
where it was expected.")]
pub(crate) struct StatusArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// Arguments of `latent clock confirm`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  latent clock confirm -c latent.toml

Look at the clock first (`date`): what is older than its topic's `hot_hours` by this clock is removed with the next maintenance. The \
word outlives restarts of the node.

Exit status: 3 when it could not be written down, so that the next start may hold again; else 0.")]
pub(crate) struct ConfirmArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// Runs `latent clock …`.
///
/// # Errors
/// [`CliError`].
pub(crate) fn clock(command: &ClockCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        ClockCommand::Status(args) => {
            const DOING: &str = "asking for the clock's status";
            let answer = access(&args.config, "latent clock status")?.ask(DOING, Request::Clock)?;
            let Answer::Clock(info) = answer else { return Err(unexpected(DOING)) };
            output.line(&info, || sentence(&info))
        }
        ClockCommand::Confirm(args) => {
            let doing = "confirming the clock".to_owned();
            let info = match access(&args.config, "latent clock confirm")?.try_ask(Request::ConfirmClock) {
                Ok(Answer::Clock(info)) => info,
                Ok(_) => return Err(unexpected(&doing)),
                Err(ControlError::Refused(fault)) => return Err(CliError::Log { doing, fault }),
                Err(source) if source.may_have_happened() => return Err(CliError::Unanswered { doing, source }),
                Err(source) => return Err(CliError::Control { doing, source }),
            };
            output.line(&info, || format!("confirmed: it is {}; retention goes by it", timestamp_seconds(info.now)))
        }
    }
}

fn access(config: &std::path::Path, holder: &str) -> Result<Access, CliError> {
    let config = config::load(config, NamedFiles::NotNeeded)?.config;
    let stopped = Stopped { bindings: &without_bindings, config: Some(&config) };
    Access::open_knowing(&DataDir::new(&config.node.data_dir), holder, stopped)
}

fn sentence(info: &ClockInfo) -> String {
    let now = timestamp_seconds(info.now);
    match info.state {
        ClockState::Sound => format!("sound: it is {now}"),
        ClockState::Held => {
            let reason = info.reason.as_deref().unwrap_or("the wall clock is not believed");
            format!("held: it is {now} by the wall clock; {reason}; retention waits")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_what_is_held_and_why() {
        let sound = ClockInfo { state: ClockState::Sound, now: 0, jump_ms: None, held_since: None, reason: None };
        assert_eq!(sentence(&sound), "sound: it is 1970-01-01T00:00:00Z");
        let held = ClockInfo { state: ClockState::Held, reason: Some("it is 2 days ahead".to_owned()), ..sound };
        assert_eq!(sentence(&held), "held: it is 1970-01-01T00:00:00Z by the wall clock; it is 2 days ahead; retention waits");
    }
}
