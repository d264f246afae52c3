//! `latent bench`: the project's own measurements.
//!
//! Every figure is a ratio in one run: our path against the smallest loop that does the same work by hand, in turns. What is compared
//! stands in `rows`, what is timed in `workload`, the loops by hand in `raw`. Decisions have no I/O: `figure` (numbers from times),
//! `row` (whether a target is met), `calm` (whether a slice counts), `recovery_files` (what a recovery has to read).

mod activation;
mod archive;
mod broker;
mod bus;
mod calm;
mod event;
mod figure;
mod fill;
mod floor;
mod measure;
mod plan;
mod publish;
mod raw;
mod recovery_files;
mod row;
mod rows;
mod scratch;
mod store;
mod trigger;
mod workload;

use clap::{Subcommand, ValueEnum};
use latent_bridge::BusError;

use self::measure::Session;
use self::row::{HEADINGS, Row};
use crate::control::Fault;
use crate::error::CliError;
use crate::output::{Form, Output};

/// `latent bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure the embedded log against loops by hand
    Bus(bus::BusArgs),
    /// Measure activations against a loop by hand, and what idle nodes take
    Activation(activation::ActivationArgs),
    /// Measure events from topic to topic: publication, activation, publication
    Trigger(trigger::TriggerArgs),
    /// Measure publications on a NATS broker, from a function to its receipt
    Publish(publish::PublishArgs),
    /// Measure topics on a NATS broker against its client by hand
    Broker(broker::BrokerArgs),
    /// Publishes until it is killed; `bench bus` starts it
    #[command(hide = true)]
    Fill(fill::FillArgs),
}

/// Runs `latent bench …`.
///
/// # Errors
/// [`CliError`].
pub(crate) fn bench(command: &BenchCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        BenchCommand::Bus(args) => bus::bus(args, output),
        BenchCommand::Activation(args) => activation::activation(args, output),
        BenchCommand::Trigger(args) => trigger::trigger(args, output),
        BenchCommand::Publish(args) => publish::publish(args, output),
        BenchCommand::Broker(args) => broker::broker(args, output),
        BenchCommand::Fill(args) => fill::fill(args),
    }
}

/// The named rows, each once and in the order of the table; all of them when none is named.
fn in_order<R: ValueEnum + Ord + Clone>(named: &[R]) -> Vec<R> {
    let mut rows = if named.is_empty() { R::value_variants().to_vec() } else { named.to_vec() };
    rows.sort_unstable();
    rows.dedup();
    rows
}

/// What stands above the rows, for people.
fn print_heading(session: &Session, note: &str, output: &mut Output) -> Result<(), CliError> {
    if output.form() == Form::Human {
        output.text(&format!("{} runs of each side in turns{note}", session.plan.rounds))?;
        output.text(HEADINGS)?;
    }
    output.flush()
}

/// Each row is shown as soon as it is known.
fn print_row(row: &Row, output: &mut Output) -> Result<(), CliError> {
    output.line(row, || row.to_string())?;
    output.flush()
}

/// A failure of the system while something was measured.
fn failed(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> CliError {
    let doing = doing.into();
    move |error| CliError::Bench { doing, reason: error.to_string() }
}

/// A failure of the log that is measured.
fn log_failed(doing: &str) -> impl Fn(BusError) -> CliError {
    move |error| CliError::Log { doing: doing.to_owned(), fault: Fault::from(&error) }
}
