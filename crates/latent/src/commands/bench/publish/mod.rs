//! `latent bench publish`: what a publication on a NATS broker costs, from a function's call to its receipt.
//!
//! The broker is one that is there: `target` says which. `ours` is this program's way to it, `raw` the loop by hand, `peer` the client
//! that people use instead, in builds with the feature `bench-peers`; `idle` measures what is installed and not used. What is compared
//! with which target stands in `rows`.

mod guest;
mod idle;
mod ours;
#[cfg(feature = "bench-peers")]
mod peer;
mod raw;
mod rows;
mod target;
mod watched;
mod wire;

use std::fmt::Display;

use clap::Args;

pub(super) use self::idle::{resident_bytes, sockets};
pub(super) use self::ours::{parsed, store};
pub(super) use self::target::{Target, TargetArgs};
pub(super) use self::wire::tls;

use self::raw::RawLoop;
use self::rows::RowId;
use super::floor::Floor;
use super::measure::Session;
use super::plan::Plan;
use super::row::Row;
use super::scratch::Memory;
use super::{in_order, print_heading, print_row};
use crate::error::CliError;
use crate::limits;
use crate::output::{Form, Output};

/// Who starts a broker when there is none.
const STARTER: &str = "cargo xtask bench publish";

/// Arguments of `latent bench publish`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo xtask bench publish
  latent bench publish --address 192.0.2.10:4222 --server-name nats.example.net --root ca.der \\
    --user bench --password-file password --subject bench.out --stream BENCH
  latent bench publish … --rows Q-10 --json

The broker is not started here: `cargo xtask bench publish` starts the pinned one, with a stream on disk, and runs this command on it. The \
user may publish on the subject and subscribe below `_INBOX.LSF.`, and the stream must have room for about 1 GB; nothing that was \
published is removed. Ours and the reference run in turns. A target that is missed is told in the row and is no failure of the command.")]
pub(crate) struct PublishArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Only these rows
    #[arg(long, value_name = "ROWS", value_delimiter = ',', ignore_case = true)]
    rows: Vec<RowId>,
    /// Slices of each side
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(limits::BENCH_ROUNDS.min..=limits::BENCH_ROUNDS.max))]
    rounds: Option<u64>,
    /// Make the folder of the secrets in this one instead of the current one
    #[arg(long, value_name = "DIR")]
    dir: Option<std::path::PathBuf>,
    /// Everything once, with as little as can be: whether it works. Nothing is judged
    #[arg(long)]
    quick: bool,
}

impl PublishArgs {
    fn plan(&self) -> Plan {
        let plan = if self.quick { Plan::quick() } else { Plan::full(0) };
        let rounds = self.rounds.and_then(|rounds| usize::try_from(rounds).ok());
        Plan { rounds: rounds.unwrap_or(plan.rounds), ..plan }
    }
}

/// Measures row after row and prints each as soon as it is known.
pub(super) fn publish(args: &PublishArgs, output: &mut Output) -> Result<(), CliError> {
    let target = args.target.read(STARTER)?;
    let session = Session::in_new_folder(args.plan(), args.dir.as_deref(), Memory::Allowed)?;
    let pinged = RawLoop::connect(&target, 1)?;
    let mut session = session.on_floor(Floor::of(move || pinged.ping()))?;
    print_heading(&session, &format!(", at {}; a PING and its PONG: {}", target.address, floor(&session)), output)?;
    for row in in_order(&args.rows) {
        if output.is_closed() {
            break;
        }
        row.measure(&mut session, &target, &mut |row: &Row| print_row(row, output))?;
    }
    end(&session, output)
}

fn end(session: &Session, output: &mut Output) -> Result<(), CliError> {
    if output.form() == Form::Human {
        output.text(&format!("over the whole run, a PING and its PONG: {}", floor(session)))?;
        if cfg!(not(feature = "bench-peers")) {
            output.text("The comparison with async-nats is not in this build; `cargo xtask bench publish` has it.")?;
        }
    }
    Ok(())
}

fn floor(session: &Session) -> String {
    let figures = session.floor().latency().map(|latency| format!("p50 {:.0} µs, p99 {:.0} µs", latency.p50, latency.p99));
    figures.unwrap_or_else(|| "not measured".to_owned())
}

/// A failure of the broker, or of what publishes to it.
pub(super) fn broken(doing: &str, reason: &dyn Display) -> CliError {
    CliError::Bench { doing: doing.to_owned(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Words {
        #[command(flatten)]
        args: PublishArgs,
    }

    fn args(words: &[&str]) -> Option<PublishArgs> {
        Words::try_parse_from(["publish"].iter().chain(words)).ok().map(|words| words.args)
    }

    #[test]
    fn rows_are_named_as_in_the_table_and_measured_once_in_its_order() {
        let rows = |words: &[&str]| args(words).map(|args| in_order(&args.rows));
        assert_eq!(rows(&["--rows", "q-11,Q-10,Q-10"]), Some(vec![RowId::Singles, RowId::Together]));
        assert_eq!(rows(&[]).map(|rows| rows.len()), Some(3));
        assert_eq!(rows(&["--rows", "Q-12"]), None);
    }

    #[test]
    fn rounds_are_accepted_at_their_bounds_and_refused_one_beyond() {
        let limit = limits::BENCH_ROUNDS;
        for (rounds, accepted) in [(limit.min - 1, false), (limit.min, true), (limit.max, true), (limit.max + 1, false)] {
            assert_eq!(args(&["--rounds", &rounds.to_string()]).is_some(), accepted, "{rounds}");
        }
        assert_eq!(args(&["--quick", "--rounds", "3"]).map(|args| args.plan().rounds), Some(3));
        assert_eq!(args(&[]).map(|args| args.plan().rounds), Some(Plan::full(0).rounds));
    }
}
