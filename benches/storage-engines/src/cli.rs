//! The command line: four questions and the child that two of them start.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::calm::Calm;
use crate::commit_child::ChildArgs;
use crate::engine::{Job, Name, Persist};
use crate::failure::Failure;
use crate::measure::{Extent, measure};
use crate::scratch::Scratch;
use crate::workload::Workload;
use crate::{crash, damage, report, trace};

/// What `crash` kills and `damage` damages when nothing else is said: everybody who does the job of a log.
const KILLED: [Name; 4] = [Name::Sqlite(Job::Log), Name::Fjall(Job::Log, Persist::SyncData), Name::Redb(Job::Log), Name::Latent];
/// What `trace` watches when nothing else is said.
const TRACED: [Name; 9] = [
    Name::RawPreallocated,
    Name::RawGrowing,
    Name::Sqlite(Job::Log),
    Name::Fjall(Job::Log, Persist::Unset),
    Name::Fjall(Job::Log, Persist::Buffer),
    Name::Fjall(Job::Log, Persist::SyncData),
    Name::Fjall(Job::Log, Persist::SyncAll),
    Name::Redb(Job::Log),
    Name::Latent,
];

/// Raw files, existing stores and our own engine as the storage of an event log
#[derive(Debug, Parser)]
pub(crate) struct Cli {
    /// Where stores are made for the time of the run: on the disk that is meant
    #[arg(long, global = true, default_value_os_t = std::env::temp_dir())]
    stores_in: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// How fast, interleaved, as ratios to the raw limit
    Measure(MeasureArgs),
    /// Whether everything acknowledged was synced, by its system calls
    Trace {
        /// Engines to look at; all when none is given
        #[arg(long)]
        engine: Vec<Name>,
        /// Commits of one event
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=10_000))]
        commits: u64,
    },
    /// Whether everything acknowledged survives a kill
    Crash {
        /// Engines to kill; all when none is given
        #[arg(long)]
        engine: Vec<Name>,
        /// Kills of each
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        kills: u16,
        /// Chooses the moments
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Whether a flipped bit is noticed
    Damage {
        /// Engines to damage; all when none is given
        #[arg(long)]
        engine: Vec<Name>,
        /// Flips, each in a copy of its own
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        flips: u16,
        /// Chooses the places
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Commits events and reports them; `trace` and `crash` start it
    #[command(hide = true)]
    CommitChild(ChildArgs),
}

#[derive(Debug, Args)]
struct MeasureArgs {
    /// Workloads; all when none is given
    #[arg(long)]
    workload: Vec<Workload>,
    /// Slices of each contender
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// The longest a slice of writing takes, in milliseconds
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    slice_millis: u64,
    /// Events that are stored before anything is read
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=2_000_000))]
    stored: u64,
    /// How long a workload may wait in total for a machine that is busy with something else
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=3_600))]
    patience_seconds: u64,
    /// One JSON object a line instead of tables
    #[arg(long)]
    json: bool,
}

/// Does what the command line says.
pub(crate) fn run(cli: Cli) -> Result<(), Failure> {
    if let Command::CommitChild(child) = cli.command {
        return child.run();
    }
    let scratch = Scratch::in_folder(&cli.stores_in)?;
    match cli.command {
        Command::Measure(args) => measure_all(&args, &scratch),
        Command::Trace { engine, commits } => trace_all(&or_all(engine, &TRACED), commits, &scratch),
        Command::Crash { engine, kills, seed } => crash_all(&or_all(engine, &KILLED), (kills.into(), seed), &scratch),
        Command::Damage { engine, flips, seed } => damage_all(&or_all(engine, &KILLED), (flips.into(), seed), &scratch),
        Command::CommitChild(child) => child.run(),
    }
}

fn or_all<T: Clone>(given: Vec<T>, all: &[T]) -> Vec<T> {
    if given.is_empty() { all.to_vec() } else { given }
}

fn measure_all(args: &MeasureArgs, scratch: &Scratch) -> Result<(), Failure> {
    let extent = Extent {
        rounds: args.rounds.into(),
        slice: Duration::from_millis(args.slice_millis),
        stored: args.stored,
        patience: Duration::from_secs(args.patience_seconds),
    };
    if !args.json {
        print(&format!("{} rounds, interleaved, on {}\n\n", extent.rounds, scratch.file_system()))?;
    }
    let mut calm = Calm::watch(scratch)?;
    for workload in or_all(args.workload.clone(), Workload::value_variants()) {
        let measured = measure(workload, extent, scratch, &mut calm)?;
        let rows = report::rows(&measured.series);
        if args.json {
            eprintln!("{}", measured.calm);
        }
        print(&if args.json { report::json_lines(workload, &rows) } else { report::table(workload, &rows, measured.calm) })?;
    }
    Ok(())
}

fn trace_all(engines: &[Name], commits: u64, scratch: &Scratch) -> Result<(), Failure> {
    print(
        "| engine | acknowledged | fsync | fdatasync | writes | other ways | opened to sync | mapped | unsynced at an acknowledgement |\n",
    )?;
    print("|---|---|---|---|---|---|---|---|---|\n")?;
    for engine in engines {
        let found = trace::trace(*engine, commits, scratch)?;
        let trace::Evidence { acknowledged, fsyncs, fdatasyncs, writes, other_ways, synced_opens, .. } = &found;
        let (mapped, unsynced) = (found.mapped_text(), found.unsynced_text());
        print(&format!(
            "| {engine} | {acknowledged} | {fsyncs} | {fdatasyncs} | {writes} | {other_ways} | {synced_opens} | {mapped} | {unsynced} |\n"
        ))?;
    }
    Ok(())
}

fn crash_all(engines: &[Name], (kills, seed): (usize, u64), scratch: &Scratch) -> Result<(), Failure> {
    print("| engine | kills | acknowledged | stored without an answer | lost, torn or unreadable |\n|---|---|---|---|---|\n")?;
    let mut failed = None;
    for engine in engines {
        let found = crash::crash(*engine, kills, seed, scratch)?;
        let broken = found.broken.len();
        print(&format!("| {engine} | {} | {} | {} | {broken} |\n", found.kills, found.acknowledged, found.unacknowledged))?;
        found.broken.iter().for_each(|broken| eprintln!("{engine}: {broken}"));
        if broken > 0 {
            failed = Some(Failure::CheckFailed { engine: engine.to_string(), failed: broken });
        }
    }
    failed.map_or(Ok(()), Err)
}

fn damage_all(engines: &[Name], (flips, seed): (usize, u64), scratch: &Scratch) -> Result<(), Failure> {
    print("| engine | flips | unharmed | refused or named | fewer events, silently | most lost by one flip | other bytes, silently |\n")?;
    print("|---|---|---|---|---|---|---|\n")?;
    for engine in engines {
        let damage::Outcome { flips, unharmed, refused, lost_silently, lost_most, changed_silently } =
            damage::damage(*engine, flips, seed, scratch)?;
        print(&format!("| {engine} | {flips} | {unharmed} | {refused} | {lost_silently} | {lost_most} | {changed_silently} |\n"))?;
    }
    Ok(())
}

/// Unlike the macro, it does not panic when nobody reads any more.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::io("write the report"))
}
