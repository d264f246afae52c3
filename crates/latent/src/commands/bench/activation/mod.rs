//! `latent bench activation`: what an activation costs beside the engine itself, and what a node costs that does nothing.
//!
//! `ours` and `raw` are the two sides of the rows about speed: the same component, a fresh store for each call. `idle` measures whole
//! `latent run` processes from outside. What is compared with which target stands in `rows`.

mod guest;
mod idle;
mod ours;
mod raw;
mod rows;

use std::path::PathBuf;

use clap::Args;

pub(super) use self::guest::NOTHING;
pub(super) use self::ours::OurNode;
pub(super) use self::raw::RawLoop;
use self::rows::RowId;
pub(super) use self::rows::dormant;
use super::measure::Session;
use super::plan::Plan;
use super::row::Row;
use super::scratch::Memory;
use super::{in_order, print_heading, print_row};
use crate::error::CliError;
use crate::output::Output;

/// Arguments of `latent bench activation`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent bench activation
  latent bench activation --rows Q-01,Q-02
  latent bench activation --json

Every ratio is ours to a loop by hand on the same engine, both in turns in this run. A target that is missed is told in the row and is no \
failure of the command. The rows about idle nodes start nodes of this program in a new folder, which is removed at the end.")]
pub(crate) struct ActivationArgs {
    /// Only these rows
    #[arg(long, value_name = "ROWS", value_delimiter = ',', ignore_case = true)]
    rows: Vec<RowId>,
    /// Make the folder in this one instead of the current one
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Everything once, with as little as can be: whether it works. Nothing is judged
    #[arg(long)]
    quick: bool,
}

impl ActivationArgs {
    /// Each row once, in the order in which they are measured.
    fn rows(&self) -> Vec<RowId> {
        in_order(&self.rows)
    }
}

/// Measures row after row and prints each as soon as it is known.
pub(super) fn activation(args: &ActivationArgs, output: &mut Output) -> Result<(), CliError> {
    // Nothing here waits for the disk but the starts of nodes, which are compared with one another.
    let plan = if args.quick { Plan::quick() } else { Plan::full(0) };
    let mut session = Session::in_new_folder(plan, args.dir.as_deref(), Memory::Allowed)?;
    print_heading(&session, "", output)?;
    for row in args.rows() {
        if output.is_closed() {
            break;
        }
        row.measure(&mut session, &mut |row: &Row| print_row(row, output))?;
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
        args: ActivationArgs,
    }

    #[test]
    fn rows_are_named_as_in_the_table_and_measured_once_in_its_order() {
        let rows = |words: &[&str]| Words::try_parse_from(["activation"].iter().chain(words)).ok().map(|words| words.args.rows());
        assert_eq!(rows(&["--rows", "q-07,Q-01,Q-01"]), Some(vec![RowId::Activation, RowId::Dormant]));
        assert_eq!(rows(&[]).map(|rows| rows.len()), Some(4));
        assert_eq!(rows(&["--rows", "Q-03"]), None);
    }
}
