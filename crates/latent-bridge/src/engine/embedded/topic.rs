//! What readers and the writer share of one topic: which records are readable and in which files.
//!
//! Invariants: everything in here is durable. The writer adds records after their sync, readers see nothing earlier. Segments tile
//! the topic in the order of their sequences; what lies below `first` has expired.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use latent_core::{Offset, Partition};

use super::frame::Salt;
use super::numbers::Numbers;
use super::positions::Positions;
use super::segment::Segment;
use super::storage::StorageFile;
use super::uid_hash::UidHasher;
use super::uid_map::UidMap;
use super::uid_runs::{Run, RunStore, Successor, UidRuns};
use crate::{BusError, TopicSchema};

/// See the module.
pub(super) struct Topic {
    pub(super) name: String,
    pub(super) partitions: u32,
    pub(super) directory: PathBuf,
    pub(super) salt: Salt,
    /// Hours an event stays.
    pub(super) hot_hours: u64,
    /// What its events must conform to.
    pub(super) schema: Option<Arc<TopicSchema>>,
    pub(super) run_store: RunStore,
    pub(super) hasher: UidHasher,
    contents: RwLock<Contents>,
    /// Held by who puts uid runs in place and removes others, so that nobody removes what another one just wrote under that name.
    runs_changing: Mutex<()>,
    poisoned: AtomicBool,
}

/// The readable records.
pub(super) struct Contents {
    /// The full segments.
    pub(super) segments: VecDeque<Arc<Segment>>,
    /// The segment that is being written, when there is one.
    pub(super) active: Option<Active>,
    pub(super) runs: UidRuns,
    /// Below these numbers everything has expired.
    pub(super) first: Numbers,
    /// The numbers after the last readable record.
    pub(super) next: Numbers,
    /// Records that are kept and not shown because their numbers repeat or fall.
    pub(super) displaced: u64,
}

/// The segment that is being written.
pub(super) struct Active {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn StorageFile>,
    pub(super) start: Numbers,
    pub(super) length: u64,
    pub(super) positions: Positions,
    pub(super) uids: UidMap,
    pub(super) oldest: u64,
    pub(super) newest: u64,
    pub(super) displaced: u64,
}

/// What a topic is made from.
pub(super) struct TopicParts {
    pub(super) name: String,
    pub(super) directory: PathBuf,
    pub(super) salt: Salt,
    pub(super) hot_hours: u64,
    /// What its events must conform to.
    pub(super) schema: Option<Arc<TopicSchema>>,
    pub(super) run_store: RunStore,
    pub(super) hasher: UidHasher,
}

impl Topic {
    pub(super) fn new(parts: TopicParts, contents: Contents) -> Self {
        let TopicParts { name, directory, salt, hot_hours, schema, run_store, hasher } = parts;
        let partitions = u32::try_from(contents.next.offsets.len()).unwrap_or(u32::MAX);
        let contents = RwLock::new(contents);
        Self {
            name,
            partitions,
            directory,
            salt,
            hot_hours,
            schema,
            run_store,
            hasher,
            contents,
            runs_changing: Mutex::new(()),
            poisoned: AtomicBool::new(false),
        }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Contents> {
        // Writers change contents in steps that cannot panic half-way.
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.contents.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// See `runs_changing`.
    pub(super) fn changing_runs(&self) -> MutexGuard<'_, ()> {
        self.runs_changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    pub(super) fn poisoned_error(&self) -> BusError {
        BusError::Poisoned { log: format!("topic {:?}", self.name) }
    }

    /// First offset and the offset after the last.
    pub(super) fn bounds(&self, partition: Partition) -> Result<(Offset, Offset), BusError> {
        self.bounds_in(&self.read(), partition)
    }

    pub(super) fn bounds_in(&self, contents: &Contents, partition: Partition) -> Result<(Offset, Offset), BusError> {
        let at = partition.0 as usize;
        let bounds = contents.first.offsets.get(at).zip(contents.next.offsets.get(at));
        bounds.map(|(first, next)| (Offset(*first), Offset(*next))).ok_or_else(|| self.out_of_range(partition))
    }

    pub(super) fn out_of_range(&self, partition: Partition) -> BusError {
        let problem = format!("topic {:?} has {} partitions, counted from 0", self.name, self.partitions);
        BusError::OutOfRange { what: format!("partition {partition}"), problem }
    }

    pub(super) fn unreadable(&self, partition: Partition, offset: Offset) -> BusError {
        BusError::Unreadable { topic: self.name.clone(), partition: partition.0, offset: offset.0 }
    }
}

impl Contents {
    /// The full segment that may hold this offset of a partition: the last one that begins at or before it.
    pub(super) fn segment_of_offset(&self, partition: usize, offset: u64) -> Option<usize> {
        let starts_after = |segment: &Arc<Segment>| segment.start.offsets.get(partition).is_some_and(|start| *start > offset);
        self.segments.partition_point(|segment| !starts_after(segment)).checked_sub(1)
    }

    /// The full segment that holds this sequence.
    pub(super) fn segment_of_sequence(&self, sequence: u64) -> Option<&Arc<Segment>> {
        let at = self.segments.partition_point(|segment| segment.start.sequence <= sequence).checked_sub(1)?;
        self.segments.get(at).filter(|segment| sequence < segment.next_sequence)
    }

    /// Whether this full segment is still one of the topic's: it is not when it has expired.
    pub(super) fn has(&self, segment: &Arc<Segment>) -> bool {
        self.segments.iter().any(|known| Arc::ptr_eq(known, segment))
    }

    /// Puts a uid run in place. Returns those whose files may go: what it replaces, and what has expired meanwhile.
    pub(super) fn put_run(&mut self, run: Arc<Run>) -> Vec<Arc<Run>> {
        let Successor { runs, mut dropped } = self.runs.with(run);
        self.runs = runs;
        dropped.extend(self.prune_runs());
        dropped
    }

    /// Takes out the uid runs that nobody needs any more, and returns them.
    pub(super) fn prune_runs(&mut self) -> Vec<Arc<Run>> {
        let pruned = self.runs.pruned(self.first.sequence);
        self.replace_runs(pruned)
    }

    /// Puts another set of uid runs in place, if there is one. Returns those whose files may go.
    pub(super) fn replace_runs(&mut self, successor: Option<Successor>) -> Vec<Arc<Run>> {
        let Some(Successor { runs, dropped }) = successor else { return Vec::new() };
        self.runs = runs;
        dropped
    }

    /// Readable records and bytes of their frames, of a partition.
    pub(super) fn records_and_bytes(&self, partition: usize) -> (u64, u64) {
        let full = self.segments.iter().map(|segment| (segment.records(partition), segment.bytes(partition)));
        let active = self.active.iter().filter_map(|active| active.positions.partitions().get(partition));
        let active = active.map(|positions| (positions.entries.len() as u64, positions.bytes));
        full.chain(active).fold((0, 0), |(records, bytes), (more_records, more_bytes)| (records + more_records, bytes + more_bytes))
    }
}

impl Active {
    /// A segment just begun.
    pub(super) fn new(path: PathBuf, file: Arc<dyn StorageFile>, start: Numbers) -> Self {
        let positions = Positions::starting_at(&start);
        Self { path, file, start, length: 0, positions, uids: UidMap::default(), oldest: u64::MAX, newest: 0, displaced: 0 }
    }
}
