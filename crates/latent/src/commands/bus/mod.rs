//! `latent bus`: the log behind the topics, through the running node, in its directory or on a broker.

mod event;
mod fetch;
mod find;
mod location;
mod maintain;
mod migrate;
mod provision;
mod publish;
mod stats;
mod tail;
mod topic;
mod topics;

use clap::Subcommand;
pub(crate) use event::{AttributesDocument, readable, value_of};
pub(crate) use fetch::Cursor;
pub(crate) use location::{KEYLESS, LocationArgs};
pub(crate) use migrate::{MigrationCounts, PartitionFinding};
pub(crate) use publish::{EmptyLines, Repetition, SentCounts, Stopped};
pub(crate) use tail::named;
pub(crate) use topic::{ask as ask_about, partitions as partitions_of};

use crate::error::CliError;
use crate::output::Output;

/// `latent bus`.
#[derive(Debug, Subcommand)]
pub(crate) enum BusCommand {
    /// Create the data directory for a manifest, or the streams on a broker
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
    /// Show how much each partition holds
    Stats(stats::StatsArgs),
    /// Remove what has expired, now
    Maintain(maintain::MaintainArgs),
    /// Bring topics from one engine to the other
    Migrate(migrate::MigrateArgs),
}

/// Runs `latent bus …`.
///
/// # Errors
/// [`CliError`].
pub(crate) fn bus(command: &BusCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        BusCommand::Provision(args) => provision::provision(args, output),
        BusCommand::Topics(args) => topics::topics(args, output),
        BusCommand::Publish(args) => publish::publish(args, output),
        BusCommand::Fetch(args) => fetch::fetch(args, output),
        BusCommand::Find(args) => find::find(args, output),
        BusCommand::Tail(args) => tail::tail(args, output),
        BusCommand::Stats(args) => stats::stats(args, output),
        BusCommand::Maintain(args) => maintain::maintain(args, output),
        BusCommand::Migrate(args) => migrate::migrate(args, output),
    }
}
