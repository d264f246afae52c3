//! `latent trigger status`: every binding, what it is doing and what is left.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::access::{Access, unexpected};
use crate::cli::LaterArgs;
use crate::config::{self, ComponentFiles};
use crate::control::{Answer, Request, TriggerStatus};
use crate::data_dir::DataDir;
use crate::error::CliError;
use crate::node;
use crate::output::{Form, Output};
use crate::table::Table;
use crate::timestamp::timestamp;

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
    let config = config::load(&args.config, ComponentFiles::NotNeeded)?.config;
    let stopped = |log: &latent_bridge::EmbeddedBroker| node::stopped_status(&config, log);
    let mut access = Access::open(&DataDir::new(&config.node.data_dir), "latent trigger status", &stopped)?;
    let statuses = every_status(&mut access)?;
    match output.form() {
        Form::Json => statuses.iter().try_for_each(|status| output.json(status)),
        Form::Human => table(&statuses).lines().try_for_each(|line| output.text(line)),
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

fn table(statuses: &[TriggerStatus]) -> String {
    let mut table =
        Table::new(&["TRIGGER", "TOPIC", "STATE", "PENDING", "RUNNING", "DELAYED", "DEAD", "TERMINATED", "LAST OUTCOME", "LAST DELIVERY"]);
    for status in statuses {
        let numbers = [status.pending, status.unacknowledged, status.delayed, status.dead_lettered, status.terminated];
        let mut row = vec![status.id.clone(), status.topic.clone(), status.state.word().to_owned()];
        row.extend(numbers.iter().map(u64::to_string));
        row.push(status.last_outcome.clone().unwrap_or_else(|| "-".to_owned()));
        row.push(status.last_delivery_at.map_or_else(|| "-".to_owned(), timestamp));
        table.push(row);
    }
    table.to_string()
}
