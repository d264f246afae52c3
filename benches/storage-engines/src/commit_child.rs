//! The process that `trace` watches and `crash` kills: commits numbered events and reports each as soon as it is acknowledged.
//!
//! One line for each report: [`BEGIN`] when the engine is open, then how many events are acknowledged in total, after each commit.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use crate::engine::Name;
use crate::event::Batch;
use crate::failure::Failure;

/// The first line.
pub(crate) const BEGIN: &str = "begin";

/// What the child is told.
#[derive(Debug, Args)]
pub(crate) struct ChildArgs {
    #[arg(long)]
    engine: Name,
    #[arg(long)]
    directory: PathBuf,
    /// Number of the first event
    #[arg(long)]
    first: u64,
    /// Commits before it ends by itself
    #[arg(long)]
    commits: u64,
    /// Commits are of 1, 2, … up to so many events, over and over
    #[arg(long)]
    batch_max: u64,
}

impl ChildArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let engine = self.engine.open(&self.directory)?;
        let sizes = (1..=self.batch_max.max(1)).cycle();
        let sizes = sizes.take(usize::try_from(self.commits).unwrap_or(usize::MAX));
        engine.prepare(usize::try_from(self.commits * self.batch_max).unwrap_or(0).min(100_000))?;
        report(BEGIN)?;
        let mut next = self.first;
        for size in sizes {
            let batch = Batch::numbered_from(next, usize::try_from(size).unwrap_or(1))?;
            match batch.events.as_slice() {
                [event] => engine.publish(event)?,
                _ => engine.publish_batch(&batch)?,
            }
            next += size;
            report(&next.to_string())?;
        }
        Ok(())
    }
}

/// The arguments of a child, for a command that runs this program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Child<'a> {
    pub(crate) engine: Name,
    pub(crate) directory: &'a Path,
    pub(crate) first: u64,
    pub(crate) commits: u64,
    pub(crate) batch_max: u64,
}

impl Child<'_> {
    /// Adds program and arguments to `prefix`, or makes them the command.
    pub(crate) fn command(&self, prefix: Option<Command>) -> Result<Command, Failure> {
        let program = std::env::current_exe().map_err(Failure::io("find this program"))?;
        let mut command = match prefix {
            None => Command::new(program),
            Some(mut prefix) => {
                prefix.arg(program);
                prefix
            }
        };
        command.args(["commit-child", "--engine", &self.engine.to_string(), "--directory"]).arg(self.directory);
        for (name, value) in [("--first", self.first), ("--commits", self.commits), ("--batch-max", self.batch_max)] {
            command.args([name, &value.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(command)
    }
}

/// One write, so that a kill never leaves half a number behind.
fn report(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).map_err(Failure::io("report a commit"))
}
