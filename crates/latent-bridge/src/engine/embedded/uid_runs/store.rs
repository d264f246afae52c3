//! The runs of a topic in its directory: their names, opening them, removing them. Other files are left alone.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::budget::FilterBudget;
use super::run::{Found, Run, RunFile};
use super::{SequenceRange, UidRuns};
use crate::BusError;
use crate::engine::embedded::directory::temporary;
use crate::engine::embedded::frame::Salt;
use crate::engine::embedded::storage::{PathKind, Storage};
use crate::error::base_name;

/// Where the runs of a topic are, and what they have in common.
pub(in super::super) struct RunStore {
    /// The file system.
    pub(in super::super) storage: Arc<dyn Storage>,
    /// The topic's directory, which exists.
    pub(in super::super) directory: PathBuf,
    /// The topic's salt.
    pub(in super::super) salt: Salt,
    /// Shared by all topics.
    pub(in super::super) budget: FilterBudget,
}

/// Name of the run that covers these sequences.
pub(in super::super) fn run_name(range: SequenceRange) -> String {
    format!("{:020}-{:020}{RUN_SUFFIX}", range.first, range.next)
}

const RUN_SUFFIX: &str = ".uids";

/// What a run of this name covers, or `None` when it is no run's name.
fn parse_run_name(name: &str) -> Option<SequenceRange> {
    let (first, next) = name.strip_suffix(RUN_SUFFIX)?.split_once('-')?;
    let number = |digits: &str| {
        let exact = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
        exact.then(|| digits.parse().ok()).flatten()
    };
    Some(SequenceRange { first: number(first)?, next: number(next)? })
}

impl RunStore {
    /// Opens the runs that are there, and loads filters while the budget lasts, newest first. Reads headers and filters only. Runs that
    /// cannot be used, runs that others contain and unfinished files are removed: all of it can be made again, or was. The caller
    /// compares the witnesses of what was opened with the log before it relies on what the runs cover.
    ///
    /// # Errors
    /// [`BusError::Io`] when the directory cannot be listed or a file cannot be opened.
    pub(in super::super) fn open(&self) -> Result<UidRuns, BusError> {
        let names = self.storage.list(&self.directory).map_err(|error| BusError::io("list", &self.directory, &error))?;
        let mut runs = Vec::new();
        for name in names {
            let path = self.directory.join(&name);
            if name.strip_suffix(".tmp").and_then(parse_run_name).is_some() && self.is_file(&path)? {
                self.remove_file(&path);
            } else if let Some(range) = parse_run_name(&name)
                && self.is_file(&path)?
            {
                runs.extend(self.open_run(&path, range)?);
            }
        }
        let runs = UidRuns::new(self.without_contained(runs));
        runs.load_filters(&self.budget);
        Ok(runs)
    }

    fn open_run(&self, path: &Path, range: SequenceRange) -> Result<Option<Arc<Run>>, BusError> {
        match RunFile::open(&*self.storage, path, self.salt, range)? {
            Found::Run(file) => Ok(Some(Arc::new(Run::new(file, None)))),
            Found::Useless(reason) => {
                tracing::warn!(file = base_name(path), reason, "a run of the uid index is dropped and made again from the log");
                self.remove_file(path);
                Ok(None)
            }
        }
    }

    /// A merge that was cut off before its inputs were removed leaves them beside its result.
    fn without_contained(&self, mut runs: Vec<Arc<Run>>) -> Vec<Arc<Run>> {
        runs.sort_by_key(|run| (run.range().first, std::cmp::Reverse(run.range().next)));
        let mut reached = 0;
        runs.retain(|run| {
            let contained = run.range().next <= reached;
            reached = reached.max(run.range().next);
            if contained {
                self.remove(run);
            }
            !contained
        });
        runs
    }

    /// Removes the file of a run that was dropped from the set. When that fails the file stays, and the next opening drops it again.
    pub(in super::super) fn remove(&self, run: &Run) {
        self.remove_file(run.path());
    }

    /// Not made durable: a file that comes back after a power loss is judged again.
    fn remove_file(&self, path: &Path) {
        if let Err(error) = self.storage.remove_file(path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(file = base_name(path), %error, "a file of the uid index that is not needed any more could not be removed");
        }
    }

    fn is_file(&self, path: &Path) -> Result<bool, BusError> {
        let kind = self.storage.kind(path).map_err(|error| BusError::io("open", path, &error))?;
        Ok(kind == PathKind::File)
    }

    /// Final and temporary path of a run.
    pub(super) fn paths(&self, range: SequenceRange) -> (PathBuf, PathBuf) {
        let path = self.directory.join(run_name(range));
        let prepared = temporary(&path);
        (path, prepared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_names_are_exact() {
        for range in [SequenceRange { first: 0, next: 42 }, SequenceRange { first: 7, next: u64::MAX }] {
            assert_eq!(parse_run_name(&run_name(range)), Some(range));
        }
        let digits = "00000000000000000000";
        for bad in [
            format!("{digits}.uids"),
            format!("{digits}-42.uids"),
            format!("{digits}-{digits}.uids.tmp"),
            format!("{digits}-{digits}-{digits}.uids"),
            format!("{digits}-9{}.uids", "9".repeat(19)),
            format!("{digits}-+{}.uids", "9".repeat(19)),
        ] {
            assert_eq!(parse_run_name(&bad), None, "{bad}");
        }
    }
}
