//! `latent bench bus`.

use std::path::PathBuf;

use clap::Args;

use super::measure::Session;
use super::plan::Plan;
use super::row::Row;
use super::rows::{Logs, Report, RowId};
use super::scratch::Memory;
use super::{in_order, print_heading, print_row};
use crate::error::CliError;
use crate::limits;
use crate::output::{Form, Output};

/// Arguments of `latent bench bus`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent bench bus
  latent bench bus --rows Q-03,Q-04 --dir data
  latent bench bus --json

Every ratio is ours to a loop by hand that does the same work, both in turns in this run. A target that is missed is told in the row \
and is no failure of the command. It works in a new folder, which is removed at the end; the disk under it is what is measured. About \
600 MB are written for a million records.")]
pub(crate) struct BusArgs {
    /// Only these rows
    #[arg(long, value_name = "ROWS", value_delimiter = ',', ignore_case = true)]
    rows: Vec<RowId>,
    /// Records in the log of the rows about large logs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(limits::BENCH_RECORDS.min..=limits::BENCH_RECORDS.max))]
    records: Option<u64>,
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

impl BusArgs {
    fn plan(&self) -> Plan {
        let plan = if self.quick { Plan::quick() } else { Plan::full(self.records.unwrap_or(limits::BENCH_RECORDS.default)) };
        Plan { records: self.records.unwrap_or(plan.records), ..plan }
    }

    /// Each row once, in the order in which they are measured.
    fn rows(&self) -> Vec<RowId> {
        in_order(&self.rows)
    }
}

/// Measures row after row and prints each as soon as it is known.
pub(super) fn bus(args: &BusArgs, output: &mut Output) -> Result<(), CliError> {
    let memory = if args.allow_memory { Memory::Allowed } else { Memory::Refused };
    let mut session = Session::in_new_folder(args.plan(), args.dir.as_deref(), memory)?;
    let note = format!(", on {}; {}", session.scratch.file_system(), floor(&session));
    print_heading(&session, &note, output)?;
    let mut logs = Logs::default();
    for row in args.rows() {
        if output.is_closed() {
            break;
        }
        row.measure(&mut session, &mut logs, &mut Printed { output })?;
    }
    end(&session, output)
}

fn end(session: &Session, output: &mut Output) -> Result<(), CliError> {
    if output.form() == Form::Human {
        output.text(&format!("over the whole run, {}", floor(session)))?;
        output.text("The comparison with other embedded stores is a program of its own: benches/storage-engines.")?;
    }
    Ok(())
}

fn floor(session: &Session) -> String {
    let figures = session.floor().latency().map(|latency| format!("p50 {:.0} µs, p99 {:.0} µs", latency.p50, latency.p99));
    format!("4 KiB written and synced: {}", figures.unwrap_or_else(|| "not measured".to_owned()))
}

struct Printed<'o> {
    output: &'o mut Output,
}

impl Report for Printed<'_> {
    fn row(&mut self, row: &Row) -> Result<(), CliError> {
        print_row(row, self.output)
    }

    fn doing(&mut self, what: &str) {
        self.output.hint(what);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Words {
        #[command(flatten)]
        args: BusArgs,
    }

    fn args(words: &[&str]) -> Option<BusArgs> {
        Words::try_parse_from(["bus"].iter().chain(words)).ok().map(|words| words.args)
    }

    #[test]
    fn rows_are_named_as_in_the_table_and_measured_once_in_its_order() {
        let rows = |words: &[&str]| args(words).map(|args| args.rows());
        assert_eq!(rows(&["--rows", "q-33,Q-04,Q-04"]), Some(vec![RowId::Singles, RowId::Recovery]));
        assert_eq!(rows(&[]).map(|rows| (rows.len(), rows.last().copied())), Some((7, Some(RowId::Growth))));
        assert_eq!(rows(&["--rows", "Q-99"]), None);
    }

    #[test]
    fn records_are_accepted_at_their_bounds_and_refused_one_beyond() {
        let limit = limits::BENCH_RECORDS;
        for (records, accepted) in [(limit.min - 1, false), (limit.min, true), (limit.max, true), (limit.max + 1, false)] {
            assert_eq!(args(&["--records", &records.to_string()]).is_some(), accepted, "{records}");
        }
        assert_eq!(args(&[]).map(|args| args.plan().records), Some(limit.default));
        assert_eq!(args(&["--quick", "--records", "5000"]).map(|args| args.plan().records), Some(5_000));
    }
}
