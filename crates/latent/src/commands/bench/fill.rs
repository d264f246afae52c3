//! The process that is killed: publishes batches and says when the wanted ones are stored, then goes on publishing until the kill.
//!
//! It ends by itself when whoever started it is gone.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use clap::Args;
use latent_bridge::EmbeddedBroker;

use super::event::{self, PayloadSize};
use super::plan::BATCH_EVENTS;
use super::store::{ClosedStore, publish_all};
use super::{failed, log_failed};
use crate::error::CliError;

/// Batches that are published at most after the wanted ones, while the kill is on its way.
const FURTHER_BATCHES_MAX: u64 = 64;

/// Arguments of the process.
#[derive(Debug, Args)]
pub(crate) struct FillArgs {
    #[arg(long)]
    directory: PathBuf,
    /// Number of the first event
    #[arg(long)]
    first: u64,
    /// Batches before it says that they are stored
    #[arg(long)]
    batches: u64,
}

/// The process itself.
pub(super) fn fill(args: &FillArgs) -> Result<(), CliError> {
    let broker = EmbeddedBroker::open(&args.directory).map_err(log_failed("opening the log that is going to be killed"))?;
    for batch in 0..args.batches + FURTHER_BATCHES_MAX {
        let first = args.first + batch * BATCH_EVENTS as u64;
        let records = (first..).take(BATCH_EVENTS).map(|number| event::record(PayloadSize::Small, number));
        publish_all(&broker, &records.collect::<Result<Vec<_>, _>>()?)?;
        if batch + 1 == args.batches {
            let mut stdout = std::io::stdout().lock();
            writeln!(stdout, "stored").and_then(|()| stdout.flush()).map_err(failed("saying what is stored"))?;
        }
    }
    std::io::stdin().read_to_end(&mut Vec::new()).map_err(failed("waiting for the kill")).map(drop)
}

/// A log's directory that a process was killed on.
pub(super) struct KilledLog {
    closed: ClosedStore,
    batches: u64,
}

impl KilledLog {
    /// A log of which `batches` are stored before each kill.
    pub(super) fn of(closed: ClosedStore, batches: u64) -> Self {
        Self { closed, batches }
    }

    pub(super) fn directory(&self) -> &Path {
        self.closed.folder()
    }

    pub(super) fn into_closed(self) -> ClosedStore {
        self.closed
    }

    /// Starts a process on the log and kills it while it publishes.
    pub(super) fn kill_again(&mut self) -> Result<(), CliError> {
        let first = self.closed.take((self.batches + FURTHER_BATCHES_MAX) * BATCH_EVENTS as u64).start;
        let mut process = ProcessToKill::start(self.closed.folder(), first, self.batches)?;
        process.wait_until_stored()?;
        process.kill()
    }
}

/// Killed when dropped, too.
struct ProcessToKill(Child);

impl ProcessToKill {
    fn start(directory: &Path, first: u64, batches: u64) -> Result<Self, CliError> {
        let program = std::env::current_exe().map_err(failed("finding this program"))?;
        let mut command = Command::new(program);
        command.args(["bench", "fill", "--directory"]).arg(directory);
        command.args(["--first", &first.to_string(), "--batches", &batches.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().map(Self).map_err(failed("starting the process that is going to be killed"))
    }

    fn wait_until_stored(&mut self) -> Result<(), CliError> {
        const DOING: &str = "waiting for the process that is going to be killed";
        let stdout = self.0.stdout.as_mut();
        let mut line = String::new();
        stdout.map_or(Ok(0), |stdout| BufReader::new(stdout).read_line(&mut line)).map_err(failed(DOING))?;
        if line.is_empty() {
            return Err(CliError::Bench { doing: DOING.to_owned(), reason: "it ended before its events were stored".to_owned() });
        }
        Ok(())
    }

    fn kill(&mut self) -> Result<(), CliError> {
        self.0.kill().and_then(|()| self.0.wait()).map(drop).map_err(failed("killing the process"))
    }
}

impl Drop for ProcessToKill {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
