//! What readers and the writer share of one topic: which records are readable and in which files.
//!
//! Invariant: everything in here is durable. The writer adds records after their sync, readers see nothing earlier.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use latent_core::{Offset, Partition};

use super::frame::Salt;
use super::positions::Positions;
use super::storage::StorageFile;
use super::uid_index::UidIndex;
use crate::BusError;

/// See the module.
pub(super) struct Topic {
    pub(super) name: String,
    pub(super) partitions: u32,
    pub(super) salt: Salt,
    contents: RwLock<Contents>,
    poisoned: AtomicBool,
}

/// The readable records.
pub(super) struct Contents {
    pub(super) segments: Vec<SegmentRef>,
    /// One for each partition.
    pub(super) positions: Vec<Positions>,
    pub(super) uids: UidIndex,
}

/// A segment. Only the one being written stays open, so that a long log does not use up file descriptors.
#[derive(Clone)]
pub(super) struct SegmentRef {
    pub(super) path: PathBuf,
    pub(super) open: Option<Arc<dyn StorageFile>>,
}

impl Topic {
    pub(super) fn new(name: String, salt: Salt, contents: Contents) -> Self {
        let partitions = u32::try_from(contents.positions.len()).unwrap_or(u32::MAX);
        Self { name, partitions, salt, contents: RwLock::new(contents), poisoned: AtomicBool::new(false) }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Contents> {
        // Writers change contents in steps that cannot panic half-way.
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.contents.write().unwrap_or_else(PoisonError::into_inner)
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
        let contents = self.read();
        let positions = contents.partition(partition).ok_or_else(|| self.out_of_range(partition))?;
        Ok((positions.first(), positions.next()))
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
    pub(super) fn partition(&self, partition: Partition) -> Option<&Positions> {
        self.positions.get(partition.0 as usize)
    }
}
