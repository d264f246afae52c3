//! `crash`: kills a process that commits, at a random moment, again and again in one directory, and looks what is there.
//!
//! After each kill everything acknowledged must be there, and what is there must be a prefix of what was published. A kill takes the
//! process, not the power: that an acknowledged record was synced is what `trace` shows.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc;
use std::time::Duration;

use crate::commit_child::{BEGIN, Child};
use crate::engine::Name;
use crate::event::number_in;
use crate::failure::Failure;
use crate::scratch::Scratch;

/// The latest moment of a kill after the first commits, in microseconds.
const KILL_AFTER_MICROS_MAX: u64 = 60_000;
/// A child that is not killed ends by itself.
const COMMITS_MAX: u64 = 100_000;
/// Events of the largest commit.
const BATCH_MAX: u64 = 8;

/// What the kills of one engine showed.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) kills: usize,
    pub(crate) acknowledged: u64,
    /// Stored without having been acknowledged: allowed, and a sign that kills met commits under way.
    pub(crate) unacknowledged: u64,
    /// Directories that did not open, lost an acknowledged event, or held no prefix.
    pub(crate) broken: Vec<String>,
}

/// Kills `engine` so many times at moments that `seed` chooses.
pub(crate) fn crash(engine: Name, kills: usize, seed: u64, scratch: &Scratch) -> Result<Outcome, Failure> {
    let folder = scratch.folder()?;
    let (mut outcome, mut seed, mut first) = (Outcome::default(), seed, 0);
    for kill in 0..kills {
        seed = mixed(seed);
        let child = Child { engine, directory: folder.path(), first, commits: COMMITS_MAX, batch_max: BATCH_MAX };
        let acknowledged = run_and_kill(&child, Duration::from_micros(seed % KILL_AFTER_MICROS_MAX))?.max(first);
        outcome.kills += 1;
        outcome.acknowledged += acknowledged - first;
        let stored = match numbers(engine, folder.path()) {
            Ok(stored) => stored,
            Err(failure) => {
                outcome.broken.push(format!("kill {kill}: {failure}"));
                break;
            }
        };
        let next = stored.last().map_or(0, |last| last + 1);
        if next < acknowledged || stored.len() as u64 != next {
            outcome.broken.push(format!("kill {kill}: {acknowledged} acknowledged, {} stored, the last is {next}", stored.len()));
        }
        outcome.unacknowledged += next.saturating_sub(acknowledged);
        first = next;
    }
    Ok(outcome)
}

/// How many events the child had acknowledged in total when it was killed.
fn run_and_kill(child: &Child<'_>, after: Duration) -> Result<u64, Failure> {
    let mut process = child.command(None)?.spawn().map_err(Failure::io("start the process that is to be killed"))?;
    let mut output = BufReader::new(process.stdout.take().ok_or(Failure::ForeignRecord { problem: "the process has no output" })?);
    let mut line = String::new();
    output.read_line(&mut line).map_err(Failure::io("hear of the process"))?;
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        let mut rest = String::new();
        ended.send(output.read_to_string(&mut rest).map(|_| rest))
    });
    let early = end.recv_timeout(after);
    process.kill().map_err(Failure::io("kill the process"))?;
    let status = process.wait().map_err(Failure::io("wait for the killed process"))?;
    let reports =
        early.or_else(|_| end.recv()).unwrap_or_else(|_| Ok(String::new())).map_err(Failure::io("read what the process reported"))?;
    if line.trim_end() != BEGIN || status.code().is_some() {
        let message = format!("it was to be killed and ended by itself; it said {line:?}");
        return Err(Failure::Child { program: child.engine.to_string(), status: status.to_string(), message });
    }
    Ok(reports.lines().filter_map(|line| line.parse().ok()).max().unwrap_or(0))
}

fn numbers(engine: Name, folder: &std::path::Path) -> Result<BTreeSet<u64>, Failure> {
    let mut numbers = BTreeSet::new();
    engine.open(folder)?.read(&mut |payload| {
        numbers.insert(number_in(payload)?);
        Ok(())
    })?;
    Ok(numbers)
}

/// splitmix64: one number is the whole state, so a run can be repeated.
pub(crate) fn mixed(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
