//! One run, open for reading. Immutable: a file is complete before it has its name, and never changes after.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::budget::{FilterBudget, FilterShare};
use super::filter::{Filter, bytes_of};
use super::header::RunHeader;
use super::page::{EntryPage, PAGE_BYTES, PageBytes, PageIdentity, unseal};
use super::{SequenceRange, UidEntry, UidHash};
use crate::BusError;
use crate::engine::embedded::frame::Salt;
use crate::engine::embedded::storage::{OpenAs, Storage, StorageFile};
use crate::error::base_name;

/// See the module. Keeps its file open, so that it can be read after the file's name is gone.
pub(in super::super) struct Run {
    path: PathBuf,
    file: Arc<dyn StorageFile>,
    salt: Salt,
    header: RunHeader,
    /// See [`RunHeader::mark`].
    mark: u32,
    filter: OnceLock<ResidentFilter>,
    damaged: AtomicBool,
}

/// A filter in memory and what it takes of the budget.
pub(super) struct ResidentFilter {
    pub(super) filter: Filter,
    pub(super) share: FilterShare,
}

/// An open file and the header that was read from it or is being written to it.
pub(super) struct RunFile {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn StorageFile>,
    pub(super) salt: Salt,
    pub(super) header: RunHeader,
}

/// What was found under a run's name.
pub(super) enum Found {
    /// A run as its name says. Its pages were not looked at.
    Run(RunFile),
    /// Nothing of use, and why.
    Useless(&'static str),
}

impl RunFile {
    /// Opens a run's file and reads its header.
    pub(super) fn open(storage: &dyn Storage, path: &Path, salt: Salt, range: SequenceRange) -> Result<Found, BusError> {
        let file = storage.open(path, OpenAs::Existing).map_err(|error| BusError::io("open", path, &error))?;
        let mut page = [0; PAGE_BYTES];
        let (Ok(read), Ok(bytes)) = (file.read_at(&mut page, 0), file.bytes()) else {
            return Ok(Found::Useless("it cannot be read"));
        };
        let header = page.get(..read).and_then(|page| RunHeader::decode(salt, page));
        Ok(match header {
            None => Found::Useless("its header is damaged, or of another log or format"),
            Some(header) if header.range != range => Found::Useless("its header is that of another file"),
            Some(header) if header.file_bytes() != Some(bytes) => Found::Useless("it does not have its length"),
            Some(header) => Found::Run(Self { path: path.to_owned(), file, salt, header }),
        })
    }
}

impl Run {
    pub(super) fn new(file: RunFile, filter: Option<ResidentFilter>) -> Self {
        let RunFile { path, file, salt, header } = file;
        let filter = filter.map_or_else(OnceLock::new, OnceLock::from);
        Self { path, file, salt, header, mark: header.mark(salt), filter, damaged: AtomicBool::new(false) }
    }

    /// The sequences whose records it has.
    pub(in super::super) const fn range(&self) -> SequenceRange {
        self.header.range
    }

    /// How many merges made it.
    pub(in super::super) const fn level(&self) -> u32 {
        self.header.level
    }

    /// How many entries it has.
    pub(in super::super) const fn entries(&self) -> u64 {
        self.header.entries
    }

    /// What [`super::RunToWrite::witness`] was when it or the newest run it was merged from was written.
    pub(in super::super) const fn witness(&self) -> u64 {
        self.header.witness
    }

    /// True when a page of it could once not be read. It is to be made again from the log.
    pub(in super::super) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    pub(in super::super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) const fn header(&self) -> &RunHeader {
        &self.header
    }

    /// What its filter takes in memory now.
    pub(in super::super) fn resident_filter_bytes(&self) -> u64 {
        self.filter.get().map_or(0, |resident| resident.share.bytes())
    }

    /// See [`super::UidRuns::candidates`]. Breaks when `take` did.
    pub(super) fn candidates(
        &self,
        hash: UidHash,
        first_live: u64,
        take: &mut dyn FnMut(UidEntry) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, BusError> {
        let excluded = self.filter.get().is_some_and(|resident| !resident.filter.may_have(hash));
        if excluded || self.header.range.next <= first_live {
            return Ok(ControlFlow::Continue(()));
        }
        self.look_up(hash, first_live, take)
    }

    /// Apart from `candidates`, so that a hash that the filter excludes does not pay for the buffer.
    #[inline(never)]
    fn look_up(
        &self,
        hash: UidHash,
        first_live: u64,
        take: &mut dyn FnMut(UidEntry) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, BusError> {
        let mut buffer = [0; PAGE_BYTES];
        for number in self.header.first_page_of(hash)..self.header.entries_end() {
            let page = self.entry_page(number, &mut buffer)?;
            for entry in page.matching(hash).filter(|entry| entry.sequence >= first_live) {
                if take(entry).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            if !page.may_go_on(hash) {
                break;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads and checks a page of entries.
    pub(super) fn entry_page<'b>(&self, number: u64, buffer: &'b mut PageBytes) -> Result<EntryPage<'b>, BusError> {
        self.read_page(number, buffer)?;
        EntryPage::open(self.salt, self.page_identity(number), buffer).ok_or_else(|| self.damaged_page(number))
    }

    /// Puts the filter into memory, if it has one that is not there and the budget has room for it.
    pub(super) fn load_filter(&self, budget: &FilterBudget) {
        let bytes = bytes_of(self.header.filter_blocks);
        if bytes == 0 || self.filter.get().is_some() {
            return;
        }
        let Some(share) = budget.take(bytes, 0) else { return };
        match self.read_filter() {
            // Somebody else may have loaded it meanwhile; then this one and its share go.
            Ok(Some(filter)) => drop(self.filter.set(ResidentFilter { filter, share })),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "a filter of the uid index cannot be loaded; lookups read its run instead"),
        }
    }

    fn read_filter(&self) -> Result<Option<Filter>, BusError> {
        let Some(mut filter) = Filter::empty(self.header.filter_blocks) else { return Ok(None) };
        let mut buffer = [0; PAGE_BYTES];
        for at in 0..self.header.filter_pages() {
            let number = self.header.entries_end().saturating_add(at);
            self.read_page(number, &mut buffer)?;
            let page = unseal(self.salt, self.page_identity(number), &buffer);
            let filled = page.and_then(|(count, content)| filter.fill_page(at, count, content));
            filled.ok_or_else(|| self.damaged_page(number))?;
        }
        Ok(Some(filter))
    }

    fn read_page(&self, number: u64, buffer: &mut PageBytes) -> Result<(), BusError> {
        let at = number.saturating_mul(PAGE_BYTES as u64);
        match self.file.read_at(buffer, at) {
            Ok(PAGE_BYTES) => Ok(()),
            Ok(_) => Err(self.damaged_page(number)),
            Err(error) => {
                self.damaged.store(true, Ordering::Relaxed);
                Err(BusError::io("read", &self.path, &error))
            }
        }
    }

    const fn page_identity(&self, number: u64) -> PageIdentity {
        PageIdentity { run: self.mark, number }
    }

    fn damaged_page(&self, number: u64) -> BusError {
        self.damaged.store(true, Ordering::Relaxed);
        BusError::Io {
            operation: "read",
            file: base_name(&self.path),
            kind: std::io::ErrorKind::InvalidData,
            reason: format!("the checksum of page {number} does not fit; the file is made again from the log"),
        }
    }
}
