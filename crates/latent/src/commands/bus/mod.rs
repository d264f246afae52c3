//! `latent bus`: the log behind the topics, through the running node or in its directory.

mod event;
mod fetch;
mod find;
mod location;
mod provision;
mod publish;
mod tail;
mod topic;
mod topics;

use clap::Subcommand;
pub(crate) use publish::{Repetition, SentCounts};

use crate::cli::LaterArgs;
use crate::error::CliError;
use crate::output::Output;

/// `latent bus`.
#[derive(Debug, Subcommand)]
pub(crate) enum BusCommand {
    /// Create the data directory for a manifest
    Provision(provision::ProvisionArgs),
    /// List the topics
    Topics(topics::TopicsArgs),
    /// Publish a file of events, one a line
    Publish(publish::PublishArgs),
    /// Print events, partition by partition in order
    Fetch(fetch::FetchArgs),
    /// Print the event with a uid
    Find(find::FindArgs),
    /// Print events as they are stored, until interrupted
    Tail(tail::TailArgs),
    /// Not built in this version: sizes and rates
    #[command(hide = true)]
    Stats(LaterArgs),
    /// Not built in this version: retention and archive
    #[command(hide = true)]
    Maintain(LaterArgs),
    /// Not built in this version: from one engine to the other
    #[command(hide = true)]
    Migrate(LaterArgs),
}

/// Runs `latent bus …`.
///
/// # Errors
/// [`CliError`].
pub(crate) fn bus(command: &BusCommand, output: &mut Output) -> Result<(), CliError> {
    let later =
        |what: &str| CliError::NotBuilt { what: format!("latent bus {what}"), instead: "see `latent bus --help` for what there is" };
    match command {
        BusCommand::Provision(args) => provision::provision(args, output),
        BusCommand::Topics(args) => topics::topics(args, output),
        BusCommand::Publish(args) => publish::publish(args, output),
        BusCommand::Fetch(args) => fetch::fetch(args, output),
        BusCommand::Find(args) => find::find(args, output),
        BusCommand::Tail(args) => tail::tail(args, output),
        BusCommand::Stats(_) => Err(later("stats")),
        BusCommand::Maintain(_) => Err(later("maintain")),
        BusCommand::Migrate(_) => Err(later("migrate")),
    }
}
