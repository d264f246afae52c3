//! What a trace says about durability. Calls in, counts out.
//!
//! Every file has two clocks: writes that began or ended, and the point up to which a finished sync covers them. A sync covers what
//! was written before it began. At an acknowledgement, a file whose clocks differ has unsynced writes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::calls::{Call, Moment};
use crate::commit_child::BEGIN;

const WRITES: &[&str] = &["write", "writev", "pwrite64", "pwritev", "pwritev2"];
const SYNCS: &[&str] = &["fsync", "fdatasync"];

/// Counts between the first report of the process and its last one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// Reports of acknowledged commits.
    pub(crate) acknowledged: u64,
    pub(crate) fsyncs: u64,
    pub(crate) fdatasyncs: u64,
    /// Writes to files of the store.
    pub(crate) writes: u64,
    /// `io_uring_enter`, `msync` and `sync_file_range`.
    pub(crate) other_ways: u64,
    /// Files of the store that were mapped to be written to, at any time.
    pub(crate) mapped: BTreeSet<String>,
    /// Files opened with `O_SYNC` or `O_DSYNC`, at any time.
    pub(crate) synced_opens: u64,
    /// Files with unsynced writes at an acknowledgement, by name, and at how many.
    pub(crate) unsynced: BTreeMap<String, u64>,
    folder: PathBuf,
    running: bool,
    /// Counts that no acknowledgement has followed yet.
    since: Counts,
    files: HashMap<String, Clocks>,
    /// Where a sync under way began, by thread.
    syncing: HashMap<String, u64>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    fsyncs: u64,
    fdatasyncs: u64,
    writes: u64,
    other_ways: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Clocks {
    written: u64,
    covered: u64,
    syncs_itself: bool,
}

impl Evidence {
    pub(super) fn of_files_in(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), ..Self::default() }
    }

    pub(super) fn note(&mut self, call: &Call) {
        match &*call.name {
            "write" if call.target.starts_with("pipe:") => self.report(call),
            "openat" => self.open(call),
            "io_uring_enter" | "msync" | "sync_file_range" if call.moment != Moment::Began => self.since.other_ways += 1,
            "mmap" if call.arguments.contains("PROT_WRITE") && call.arguments.contains("MAP_SHARED") => self.map(call),
            name if SYNCS.contains(&name) && self.is_ours(call) => self.sync(call),
            name if WRITES.contains(&name) && self.is_ours(call) => self.write(call),
            _ => {}
        }
    }

    /// The unsynced files in a few words.
    pub(crate) fn unsynced_text(&self) -> String {
        let files: Vec<_> = self.unsynced.iter().map(|(name, count)| format!("{name} at {count}")).collect();
        if files.is_empty() { "none".to_owned() } else { files.join(", ") }
    }

    /// The mapped files in a few words.
    pub(crate) fn mapped_text(&self) -> String {
        let files: Vec<_> = self.mapped.iter().map(String::as_str).collect();
        if files.is_empty() { "none".to_owned() } else { files.join(", ") }
    }

    fn is_ours(&self, call: &Call) -> bool {
        Path::new(&call.target).starts_with(&self.folder)
    }

    /// The process reports when its write begins: from then on its parent may have read it.
    fn report(&mut self, call: &Call) {
        if matches!(call.moment, Moment::Ended { whole: false, .. }) {
            return;
        }
        let since = std::mem::take(&mut self.since);
        if !self.running {
            self.running = call.arguments.contains(BEGIN);
            return;
        }
        self.acknowledged += 1;
        self.fsyncs += since.fsyncs;
        self.fdatasyncs += since.fdatasyncs;
        self.writes += since.writes;
        self.other_ways += since.other_ways;
        let unsynced = self.files.iter().filter(|(_, file)| file.covered < file.written && !file.syncs_itself);
        for (path, _) in unsynced {
            *self.unsynced.entry(file_name(path).to_owned()).or_default() += 1;
        }
    }

    fn map(&mut self, call: &Call) {
        let path = call.arguments.split_once('<').and_then(|(_, rest)| rest.split('>').next()).unwrap_or_default();
        if Path::new(path).starts_with(&self.folder) {
            self.mapped.insert(file_name(path).to_owned());
        }
    }

    fn open(&mut self, call: &Call) {
        let flags = ["O_SYNC", "O_DSYNC"];
        if self.is_ours(call) && flags.iter().any(|flag| call.arguments.contains(flag)) {
            self.synced_opens += 1;
            self.files.entry(call.target.clone()).or_default().syncs_itself = true;
        }
    }

    /// Both ends of a write count: what a sync that lay between them covered is not known.
    fn write(&mut self, call: &Call) {
        self.files.entry(call.target.clone()).or_default().written += 1;
        self.since.writes += u64::from(call.moment != Moment::Began);
    }

    fn sync(&mut self, call: &Call) {
        let file = self.files.entry(call.target.clone()).or_default();
        let began = match call.moment {
            Moment::Began => {
                self.syncing.insert(call.thread.clone(), file.written);
                return;
            }
            Moment::Ended { whole: true, .. } => file.written,
            Moment::Ended { whole: false, .. } => self.syncing.remove(&call.thread).unwrap_or(0),
        };
        if matches!(call.moment, Moment::Ended { succeeded: true, .. }) {
            file.covered = file.covered.max(began);
            if call.name == "fsync" { self.since.fsyncs += 1 } else { self.since.fdatasyncs += 1 }
        }
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}
