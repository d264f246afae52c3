//! `latent trigger status`: every binding, what it is doing and what is left.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use latent_core::{Clock as _, SystemClock};

use crate::access::{Access, unexpected};
use crate::cli::LaterArgs;
use crate::config::{self, NamedFiles};
use crate::control::{Answer, Request, TriggerStatus};
use crate::data_dir::DataDir;
use crate::error::CliError;
use crate::node;
use crate::output::{Form, Output};
use crate::table::Table;
use crate::timestamp::{time_until, timestamp};

/// `latent trigger`.
#[derive(Debug, Subcommand)]
pub(crate) enum TriggerCommand {
    /// Show every binding: state, backlog, last outcome
    Status(StatusArgs),
    /// Not built in this version: forget a removed binding's state
    #[command(hide = true)]
    Forget(LaterArgs),
    /// Not built in this version: publish stranded events again
    #[command(hide = true)]
    Redrive(LaterArgs),
}

/// Arguments of `latent trigger status`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  latent trigger status -c latent.toml --json")]
pub(crate) struct StatusArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// Runs `latent trigger …`.
///
/// # Errors
/// [`CliError`].
pub(crate) fn trigger(command: &TriggerCommand, output: &mut Output) -> Result<(), CliError> {
    let later = |what: &str| CliError::NotBuilt { what: format!("latent trigger {what}"), instead: "see `latent trigger status`" };
    match command {
        TriggerCommand::Status(args) => status(args, output),
        TriggerCommand::Forget(_) => Err(later("forget")),
        TriggerCommand::Redrive(_) => Err(later("redrive")),
    }
}

/// Of a running node its live numbers; of a stopped one what its directory says.
fn status(args: &StatusArgs, output: &mut Output) -> Result<(), CliError> {
    let config = config::load(&args.config, NamedFiles::NotNeeded)?.config;
    let stopped = |log: &latent_bridge::EmbeddedBroker| node::stopped_status(&config, log);
    let mut access = Access::open(&DataDir::new(&config.node.data_dir), "latent trigger status", &stopped)?;
    let statuses = every_status(&mut access)?;
    match output.form() {
        Form::Json => statuses.iter().try_for_each(|status| output.json(status)),
        Form::Human => table(&statuses, SystemClock::start().unix().0).lines().try_for_each(|line| output.text(line)),
    }
}

fn every_status(access: &mut Access) -> Result<Vec<TriggerStatus>, CliError> {
    const DOING: &str = "asking for the triggers' status";
    let mut all: Vec<TriggerStatus> = Vec::new();
    loop {
        let after = all.last().map(|status| status.id.clone());
        let Answer::Statuses { statuses, more } = access.ask(DOING, Request::TriggerStatus { after: after.clone() })? else {
            return Err(unexpected(DOING));
        };
        // Each page must lie after the one before it, or this would never end.
        let advances = statuses.last().is_some_and(|last| after.is_none_or(|after| last.id > after));
        if more && !advances {
            return Err(unexpected(DOING));
        }
        all.extend(statuses);
        if !more {
            return Ok(all);
        }
    }
}

const HEADINGS: &[&str] = &[
    "TRIGGER",
    "TOPIC",
    "STATE",
    "PENDING",
    "RUNNING",
    "DELAYED",
    "DEAD",
    "TERMINATED",
    "EXHAUSTED",
    "LAST OUTCOME",
    "LAST DELIVERY",
    "NEXT ATTEMPT",
    "LAST ERROR",
];
/// Under the table of a running node: these columns say nothing of the time before.
const CAPTION: &str = "TERMINATED, EXHAUSTED and the LAST columns: since the node started, or the trigger was last changed by a reload";

/// What people see at `now`, in milliseconds since 1970.
fn table(statuses: &[TriggerStatus], now: u64) -> String {
    let mut table = Table::new(HEADINGS);
    for status in statuses {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let numbers = [status.pending, status.unacknowledged, status.delayed, status.dead_lettered];
        let mut row = vec![status.id.clone(), status.topic.clone(), status.state.word().to_owned()];
        row.extend(numbers.iter().map(u64::to_string));
        row.extend([
            or_dash(status.terminated.map(|count| count.to_string())),
            or_dash(status.exhausted.map(|count| count.to_string())),
            or_dash(status.last_outcome.clone()),
            or_dash(status.last_delivery_at.map(timestamp)),
            or_dash(status.next_attempt_at.map(|at| time_until(at, now))),
            or_dash(status.last_error.clone()),
        ]);
        table.push(row);
    }
    let counted = statuses.iter().any(|status| status.terminated.is_some());
    if counted { format!("{table}{CAPTION}\n") } else { table.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::BindingState;

    fn status(state: BindingState) -> TriggerStatus {
        let count = (state != BindingState::Stopped).then_some(3);
        TriggerStatus {
            id: "t".to_owned(),
            engine: "embedded".to_owned(),
            state,
            pending: 1,
            unacknowledged: 0,
            delayed: 1,
            dead_lettered: 0,
            last_outcome: None,
            last_delivery_at: None,
            next_attempt_at: Some(12_000),
            topic: "in".to_owned(),
            partitions: 1,
            settled: count,
            terminated: count,
            exhausted: count,
            expired_unread: 0,
            last_error: count.map(|_| "trap: unreachable".to_owned()),
        }
    }

    /// The cells of the one row, and the lines under it.
    fn shown(status: TriggerStatus) -> (Vec<String>, Vec<String>) {
        let text = table(&[status], 0);
        let mut lines = text.lines().skip(1);
        let cells = lines.next().unwrap_or_default().split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        (cells.map(str::to_owned).collect(), lines.map(str::to_owned).collect())
    }

    #[test]
    fn a_stopped_node_has_dashes_where_it_does_not_know() {
        let (cells, below) = shown(status(BindingState::Stopped));
        assert_eq!(cells, ["t", "in", "stopped", "1", "0", "1", "0", "-", "-", "-", "-", "in 12 s", "-"]);
        assert!(below.is_empty(), "{below:?}");
    }

    #[test]
    fn a_running_node_s_counters_are_said_to_begin_with_it() {
        let (cells, below) = shown(status(BindingState::Delayed));
        assert_eq!(cells, ["t", "in", "delayed", "1", "0", "1", "0", "3", "3", "-", "-", "in 12 s", "trap: unreachable"]);
        assert_eq!(below, [CAPTION]);
    }
}
