//! Making a run: entries in order in, a complete file under its final name out.
//!
//! A run is prepared under a temporary name and gets its own when all of it is durable. Its header is written last. Whatever stops the
//! writing removes the temporary file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::filter::{Filter, blocks_for, bytes_of};
use super::header::{RunHeader, bucket_pages_for};
use super::page::{ENTRY_BYTES, PAGE_BYTES, PAGE_ENTRIES, PageIdentity, seal};
use super::run::{ResidentFilter, Run, RunFile};
use super::store::RunStore;
use super::{SequenceRange, UidEntry};
use crate::BusError;
use crate::engine::embedded::directory::{discard, sync_parent};
use crate::engine::embedded::storage::{OpenAs, Storage, StorageFile};

/// Pages that are written at once: 64 KiB.
pub(super) const CHUNK_PAGES: u64 = 16;

/// A run to be made from entries in memory.
pub(in super::super) struct RunToWrite {
    /// The sequences that it covers.
    pub(in super::super) range: SequenceRange,
    /// 0, but for a run that takes the place of merged ones.
    pub(in super::super) level: u32,
    /// What tells the record before `range.next` from any other that could have its sequence, for instance its checksums. A log that
    /// was put back from a copy gives the same sequences to other records. Whoever opens the runs compares this with the log, and so
    /// notices one that was made from another history: since a log only grows at its end, the last record stands for all before it.
    pub(in super::super) witness: u64,
    /// Every record of the range that can be found, in any order. The same entry twice counts once.
    pub(in super::super) entries: Vec<UidEntry>,
}

impl RunStore {
    /// Writes a run durably.
    ///
    /// # Errors
    /// [`BusError::OutOfRange`] when the range is empty or an entry lies outside it; [`BusError::Io`]. Then the runs that were there
    /// are as they were, but a complete run may have the new one's name already.
    pub(in super::super) fn write(&self, wanted: RunToWrite) -> Result<Arc<Run>, BusError> {
        let RunToWrite { range, level, witness, mut entries } = wanted;
        check_entries(range, &entries)?;
        entries.sort_unstable();
        entries.dedup();
        let mut writer = RunWriter::begin(self, RunPlan { range, level, witness, entries_max: entries.len() as u64 })?;
        entries.iter().try_for_each(|entry| writer.push(*entry))?;
        writer.finish(0)
    }
}

fn check_entries(range: SequenceRange, entries: &[UidEntry]) -> Result<(), BusError> {
    let SequenceRange { first, next } = range;
    let what = || format!("run {first} to {next} of the uid index");
    if first >= next {
        return Err(BusError::OutOfRange { what: what(), problem: "it covers nothing; give it at least one sequence".to_owned() });
    }
    match entries.iter().find(|entry| !(first..next).contains(&entry.sequence)) {
        None => Ok(()),
        Some(UidEntry { sequence, .. }) => {
            let problem = format!("sequence {sequence} lies outside; give it only entries of its range");
            Err(BusError::OutOfRange { what: what(), problem })
        }
    }
}

/// What is known of a run before its first entry.
pub(super) struct RunPlan {
    pub(super) range: SequenceRange,
    pub(super) level: u32,
    pub(super) witness: u64,
    /// At least as many entries as it will have. Only the fill of pages and filter depends on it.
    pub(super) entries_max: u64,
}

/// A file that is removed unless it gets its final name.
struct Prepared<'s> {
    storage: &'s dyn Storage,
    path: PathBuf,
    renamed: bool,
}

impl Prepared<'_> {
    fn rename(&mut self, path: &Path) -> std::io::Result<()> {
        self.storage.rename(&self.path, path)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            discard(self.storage, &self.path);
        }
    }
}

/// Takes entries in order and writes the pages.
pub(super) struct RunWriter<'s> {
    store: &'s RunStore,
    prepared: Prepared<'s>,
    path: PathBuf,
    file: Arc<dyn StorageFile>,
    header: RunHeader,
    mark: u32,
    filter: Option<Filter>,
    /// The entries of the page that is being filled, encoded.
    content: Vec<u8>,
    /// Sealed pages that are not yet written.
    chunk: Vec<u8>,
    /// Number in the file of the next page to be sealed. Page 0 is the header.
    number: u64,
}

impl<'s> RunWriter<'s> {
    pub(super) fn begin(store: &'s RunStore, plan: RunPlan) -> Result<Self, BusError> {
        let filter = Filter::empty(blocks_for(plan.entries_max, store.budget.filter_bytes_max()));
        let header = RunHeader {
            level: plan.level,
            range: plan.range,
            witness: plan.witness,
            entries: 0,
            bucket_pages: bucket_pages_for(plan.entries_max),
            entry_pages: 0,
            filter_blocks: filter.as_ref().map_or(0, Filter::blocks),
        };
        let (path, prepared) = store.paths(plan.range);
        let storage = &*store.storage;
        let file = storage.open(&prepared, OpenAs::Empty).map_err(|error| BusError::io("create", &path, &error))?;
        Ok(Self {
            store,
            prepared: Prepared { storage, path: prepared, renamed: false },
            path,
            file,
            header,
            mark: header.mark(store.salt),
            filter,
            content: Vec::with_capacity(PAGE_BYTES),
            chunk: Vec::new(),
            number: 1,
        })
    }

    /// Pages sealed until now.
    pub(super) const fn pages(&self) -> u64 {
        self.number
    }

    /// Adds an entry. None that was added before is greater.
    pub(super) fn push(&mut self, entry: UidEntry) -> Result<(), BusError> {
        let first_page = self.header.first_page_of(entry.hash);
        while self.number < first_page || self.content.len() >= PAGE_ENTRIES * ENTRY_BYTES {
            self.seal_entries()?;
        }
        entry.encode(&mut self.content);
        self.header.entries = self.header.entries.saturating_add(1);
        if let Some(filter) = &mut self.filter {
            filter.add(entry.hash);
        }
        Ok(())
    }

    /// Seals one of the pages that remain after the last entry; false when there is none. Each call takes as long as one page, so
    /// that a merge can look up between them.
    pub(super) fn seal_next(&mut self) -> Result<bool, BusError> {
        if !self.content.is_empty() || self.number <= self.header.bucket_pages {
            self.seal_entries()?;
            return Ok(true);
        }
        if self.header.entry_pages == 0 {
            // The first call after the last of them.
            self.header.entry_pages = self.number.saturating_sub(1);
        }
        let at = self.number.saturating_sub(self.header.entries_end());
        match self.filter.as_ref().filter(|_| at < self.header.filter_pages()).map(|filter| filter.page(at)) {
            Some((count, content)) => self.seal(count, &content).map(|()| true),
            None => Ok(false),
        }
    }

    /// Writes what remains, makes the file durable and gives it its name. The new filter comes into memory if the budget has room
    /// for it once `returning` bytes of it have come back.
    pub(super) fn finish(mut self, returning: u64) -> Result<Arc<Run>, BusError> {
        while self.seal_next()? {}
        self.write_chunk()?;
        let failed = |operation| {
            let path = &self.path;
            move |error: std::io::Error| BusError::io(operation, path, &error)
        };
        self.file.write_at(&self.header.encode(self.store.salt), 0).map_err(failed("write"))?;
        self.file.sync().map_err(failed("sync"))?;
        self.prepared.rename(&self.path).map_err(failed("rename"))?;
        sync_parent(&*self.store.storage, &self.path)?;
        let filter = self.filter.and_then(|filter| {
            let share = self.store.budget.take(bytes_of(filter.blocks()), returning)?;
            Some(ResidentFilter { filter, share })
        });
        let file = RunFile { path: self.path, file: self.file, salt: self.store.salt, header: self.header };
        Ok(Arc::new(Run::new(file, filter)))
    }

    fn seal_entries(&mut self) -> Result<(), BusError> {
        let mut content = std::mem::take(&mut self.content);
        let count = u16::try_from(content.len() / ENTRY_BYTES).unwrap_or(u16::MAX);
        self.seal(count, &content)?;
        content.clear();
        self.content = content;
        Ok(())
    }

    fn seal(&mut self, count: u16, content: &[u8]) -> Result<(), BusError> {
        seal(self.store.salt, PageIdentity { run: self.mark, number: self.number }, count, content, &mut self.chunk);
        self.number = self.number.saturating_add(1);
        if self.chunk.len() as u64 >= CHUNK_PAGES * PAGE_BYTES as u64 { self.write_chunk() } else { Ok(()) }
    }

    fn write_chunk(&mut self) -> Result<(), BusError> {
        let first = self.number.saturating_sub((self.chunk.len() / PAGE_BYTES) as u64);
        let at = first.saturating_mul(PAGE_BYTES as u64);
        self.file.write_at(&self.chunk, at).map_err(|error| BusError::io("write", &self.path, &error))?;
        self.chunk.clear();
        Ok(())
    }
}
