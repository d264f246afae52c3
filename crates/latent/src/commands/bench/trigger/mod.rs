//! `latent bench trigger`: what an event costs from topic to topic, and how soon one wakes its function.
//!
//! `node` is a node of this process with one trigger, put together as `latent run` does it; `passage` sends events through it; `watched`
//! sees what its function publishes. `pull` is the same on a broker that is there, through the first profile, and `lanes`
//! through the second. What is compared with which target stands in `rows`.

mod guest;
mod lanes;
mod node;
mod passage;
mod pull;
mod rows;
mod watched;

use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;

use self::rows::{RowId, Source};
use super::floor::Floor;
use super::measure::Session;
use super::plan::Plan;
use super::publish::TargetArgs;
use super::row::Row;
use super::scratch::Memory;
use super::{in_order, print_heading, print_row};
use crate::error::CliError;
use crate::output::Output;

/// Arguments of `latent bench trigger`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent bench trigger
  latent bench trigger --rows Q-06,Q-22 --dir data
  latent bench trigger --json
  cargo xtask bench trigger

Without a broker every event is durable on both sides, so the disk under the folder is measured too. What an event costs is compared with \
what its parts cost alone, both in turns in this run. With --address and what belongs to it, messages of that broker wake functions instead: \
`cargo xtask bench trigger` starts the pinned one with the consumers `bench-0` to `bench-257`, `lane-0` to `lane-263`, \
`peer-0` and `peer-1` and measures both. A target that is missed is \
told in the row and is no failure of the command. It works in a new folder, which is removed at the end.")]
pub(crate) struct TriggerArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Only these rows
    #[arg(long, value_name = "ROWS", value_delimiter = ',', ignore_case = true)]
    rows: Vec<RowId>,
    /// Make the folder in this one instead of the current one
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Everything once, with as little as can be: whether it works. Nothing is judged
    #[arg(long)]
    quick: bool,
    /// Go on where a sync costs nothing
    #[arg(long)]
    allow_memory: bool,
}

/// Measures row after row and prints each as soon as it is known.
pub(super) fn trigger(args: &TriggerArgs, output: &mut Output) -> Result<(), CliError> {
    let plan = if args.quick { Plan::quick() } else { Plan::full(0) };
    let needs_a_broker = args.rows.iter().copied().any(RowId::needs_a_broker);
    if args.target.is_given() || needs_a_broker {
        return on_broker(args, plan, output);
    }
    let memory = if args.allow_memory { Memory::Allowed } else { Memory::Refused };
    let mut session = Session::in_new_folder(plan, args.dir.as_deref(), memory)?;
    let note = format!(", on {}", session.scratch.file_system());
    print_heading(&session, &note, output)?;
    measure(args, Source::Log, &mut session, output)
}

fn on_broker(args: &TriggerArgs, plan: Plan, output: &mut Output) -> Result<(), CliError> {
    let target = args.target.read(pull::STARTER)?;
    let note = format!(", at {}", target.address);
    let bench = Rc::new(pull::Bench::connect(target)?);
    let pinged = Rc::clone(&bench);
    let session = Session::in_new_folder(plan, args.dir.as_deref(), Memory::Allowed)?;
    let mut session = session.on_floor(Floor::of(move || pinged.ping()))?;
    print_heading(&session, &note, output)?;
    measure(args, Source::Broker(&bench), &mut session, output)
}

fn measure(args: &TriggerArgs, source: Source<'_>, session: &mut Session, output: &mut Output) -> Result<(), CliError> {
    for row in in_order(&args.rows) {
        if output.is_closed() {
            break;
        }
        row.measure(source, session, &mut |row: &Row| print_row(row, output))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Words {
        #[command(flatten)]
        args: TriggerArgs,
    }

    #[test]
    fn rows_are_named_as_in_the_table_and_measured_once_in_its_order() {
        let rows = |words: &[&str]| {
            let words = Words::try_parse_from(["trigger"].iter().chain(words)).ok()?;
            Some(in_order(&words.args.rows))
        };
        assert_eq!(rows(&["--rows", "q-22,Q-06,Q-06"]), Some(vec![RowId::Passage, RowId::WakeUp]));
        assert_eq!(rows(&[]).map(|rows| rows.len()), Some(7));
        assert_eq!(rows(&["--rows", "Q-03"]), None);
        assert_eq!(rows(&["--rows", "Q-20"]), Some(vec![RowId::OneBinding]));
    }
}
