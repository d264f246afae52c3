//! A full segment as readers see it: what it holds, and where to look that up. It stays in memory only until its index file is
//! written; files are opened when they are needed, and the set of open ones is bounded.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::frame::Salt;
use super::numbers::Numbers;
use super::positions::{Place, Positions};
use super::segment_index::{IndexError, IndexFile, PartitionEntries, SegmentSummary, index_path};
use super::storage::{OpenAs, Storage, StorageFile};
use super::uid_map::UidMap;

/// See the module.
pub(super) struct Segment {
    pub(super) path: PathBuf,
    pub(super) start: Numbers,
    /// The sequence after its last record.
    pub(super) next_sequence: u64,
    /// Smallest and largest `stored_at`; see [`SegmentSummary`].
    pub(super) oldest: u64,
    pub(super) newest: u64,
    /// See [`super::segment_index::witness`].
    pub(super) witness: u64,
    /// One for each partition, and one more for the end.
    first_entries: Box<[u32]>,
    bytes: Box<[u64]>,
    memory: RwLock<Option<Arc<InMemory>>>,
    files: Mutex<Files>,
    /// How often its index was made again. Held by whoever does so.
    made_again: Mutex<u64>,
}

/// What a segment without index file keeps in memory.
pub(super) struct InMemory {
    pub(super) summary: SegmentSummary,
    pub(super) positions: Positions,
    pub(super) uids: UidMap,
}

#[derive(Default)]
struct Files {
    segment: Option<Arc<dyn StorageFile>>,
    index: Option<Arc<IndexFile>>,
    /// It has expired. Who still reads it may open its files, and nobody keeps them open: that would keep them on the disk.
    gone: bool,
}

impl Segment {
    /// A segment whose index is in memory, or else in its file.
    pub(super) fn new(path: PathBuf, summary: &SegmentSummary, memory: Option<Arc<InMemory>>) -> Self {
        let mut entry = 0_u32;
        let mut first_entries = vec![0];
        for partition in &summary.partitions {
            entry = entry.saturating_add(partition.entries);
            first_entries.push(entry);
        }
        Self {
            path,
            start: summary.start.clone(),
            next_sequence: summary.end.sequence,
            oldest: summary.oldest,
            newest: summary.newest,
            witness: summary.witness,
            first_entries: first_entries.into(),
            bytes: summary.partitions.iter().map(|partition| partition.bytes).collect(),
            memory: RwLock::new(memory),
            files: Mutex::new(Files::default()),
            made_again: Mutex::new(0),
        }
    }

    /// How often its index was made again. Who makes it again keeps the guard until that is done: two at once would write one file.
    pub(super) fn made_again(&self) -> MutexGuard<'_, u64> {
        self.made_again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an index with this summary is of this segment as it was when it was opened: entries are counted by what was known then.
    pub(super) fn is_described_by(&self, summary: &SegmentSummary) -> bool {
        let counts = self.first_entries.iter().zip(self.first_entries.iter().skip(1)).map(|(from, to)| to - from);
        summary.start == self.start
            && summary.end.sequence == self.next_sequence
            && summary.witness == self.witness
            && counts.eq(summary.partitions.iter().map(|partition| partition.entries))
    }

    /// What is in memory, if it still is.
    pub(super) fn in_memory(&self) -> Option<Arc<InMemory>> {
        self.memory.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The index is on disk, or has to be in memory again.
    pub(super) fn set_memory(&self, memory: Option<Arc<InMemory>>) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).index = None;
        *self.memory.write().unwrap_or_else(PoisonError::into_inner) = memory;
    }

    /// Readable records of a partition.
    pub(super) fn records(&self, partition: usize) -> u64 {
        self.entries(partition).map_or(0, |entries| u64::from(entries.end - entries.start))
    }

    /// Bytes of the readable frames of a partition.
    pub(super) fn bytes(&self, partition: usize) -> u64 {
        self.bytes.get(partition).copied().unwrap_or_default()
    }

    /// Readable records of all partitions.
    pub(super) fn records_in_all(&self) -> u64 {
        self.first_entries.last().copied().unwrap_or_default().into()
    }

    fn entries(&self, partition: usize) -> Option<Range<u32>> {
        Some(*self.first_entries.get(partition)?..*self.first_entries.get(partition + 1)?)
    }

    /// Up to `max` records of a partition from `offset` on.
    pub(super) fn places(self: &Arc<Self>, disk: &Disk<'_>, partition: usize, offset: u64, max: usize) -> Result<Vec<Place>, IndexError> {
        if let Some(memory) = self.in_memory() {
            return Ok(memory.positions.from(partition, offset, max));
        }
        let (Some(start), Some(entries)) = (self.start.offsets.get(partition), self.entries(partition)) else { return Ok(Vec::new()) };
        self.index(disk)?.from(PartitionEntries { start: *start, entries }, offset, max)
    }

    fn index(self: &Arc<Self>, disk: &Disk<'_>) -> Result<Arc<IndexFile>, IndexError> {
        if let Some(index) = &self.files.lock().unwrap_or_else(PoisonError::into_inner).index {
            return Ok(Arc::clone(index));
        }
        let partitions = u32::try_from(self.start.offsets.len()).unwrap_or(u32::MAX);
        let (index, summary) = IndexFile::open(disk.storage, &index_path(&self.path), disk.salt, partitions)?;
        if !self.is_described_by(&summary) {
            return Err(IndexError::Unusable);
        }
        let index = Arc::new(index);
        self.keep_open(disk, |files| files.index = Some(Arc::clone(&index)));
        Ok(index)
    }

    /// The segment's file.
    pub(super) fn file(self: &Arc<Self>, disk: &Disk<'_>) -> std::io::Result<Arc<dyn StorageFile>> {
        if let Some(file) = &self.files.lock().unwrap_or_else(PoisonError::into_inner).segment {
            return Ok(Arc::clone(file));
        }
        let file = disk.storage.open(&self.path, OpenAs::Existing)?;
        self.keep_open(disk, |files| files.segment = Some(Arc::clone(&file)));
        Ok(file)
    }

    fn keep_open(self: &Arc<Self>, disk: &Disk<'_>, keep: impl FnOnce(&mut Files)) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if files.gone {
            return;
        }
        keep(&mut files);
        drop(files);
        disk.open.note(self);
    }

    fn close_files(&self) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        (files.segment, files.index) = (None, None);
    }
}

/// What reading files of a topic needs.
#[derive(Clone, Copy)]
pub(super) struct Disk<'d> {
    pub(super) storage: &'d dyn Storage,
    pub(super) open: &'d OpenSegments,
    pub(super) salt: Salt,
}

/// The full segments whose files are open, so that there are never more than a bound. The one opened first is closed first.
pub(super) struct OpenSegments {
    max: usize,
    open: Mutex<VecDeque<Arc<Segment>>>,
}

impl OpenSegments {
    pub(super) fn new(max: usize) -> Self {
        Self { max, open: Mutex::new(VecDeque::new()) }
    }

    fn note(&self, segment: &Arc<Segment>) {
        let closed = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            if open.iter().any(|known| Arc::ptr_eq(known, segment)) {
                return;
            }
            open.push_back(Arc::clone(segment));
            if open.len() > self.max { open.pop_front() } else { None }
        };
        if let Some(closed) = closed {
            closed.close_files();
        }
    }

    /// Closes the files of a segment that has expired, for good.
    pub(super) fn forget(&self, segment: &Arc<Segment>) {
        segment.files.lock().unwrap_or_else(PoisonError::into_inner).gone = true;
        self.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| !Arc::ptr_eq(known, segment));
        segment.close_files();
    }
}
