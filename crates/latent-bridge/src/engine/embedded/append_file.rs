//! One file that only grows: append, sync, and take back what failed. Used by segments and by state logs.
//!
//! Invariants: bytes below `length` are whole frames; bytes from `length` to `allocated` are zero; once `poisoned`, nothing is
//! written again. It is driven by the writer thread alone.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::storage::{StorageFile, write_zeros};

/// See the module.
pub(super) struct AppendFile {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    length: u64,
    allocated: u64,
    preallocation_bytes: u64,
    poisoned: bool,
}

/// Why an append did not happen.
#[derive(Debug)]
pub(super) enum AppendError {
    /// Nothing of it is in the file, durably so.
    TakenBack(io::Error),
    /// Some of it may be in the file. The file is poisoned.
    Unknown(io::Error),
}

/// Where the good bytes of a file end and how far the zeros after them reach.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extent {
    /// End of the last whole frame.
    pub(super) length: u64,
    /// End of the zeros written ahead.
    pub(super) allocated: u64,
}

impl AppendFile {
    pub(super) fn new(file: Arc<dyn StorageFile>, path: PathBuf, extent: Extent, preallocation_bytes: u64) -> Self {
        Self { file, path, length: extent.length, allocated: extent.allocated, preallocation_bytes, poisoned: false }
    }

    pub(super) fn file(&self) -> &Arc<dyn StorageFile> {
        &self.file
    }

    pub(super) fn path(&self) -> &std::path::Path {
        &self.path
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// Takes nothing more: what lies under this name after a crash is not known.
    pub(super) fn poison(&mut self) {
        self.poisoned = true;
    }

    /// Writes `bytes` at the end and says where they begin. They are durable after the next [`AppendFile::sync`] only.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<u64, AppendError> {
        let at = self.length;
        let end = at + bytes.len() as u64;
        match self.reserve(end).and_then(|()| self.file.write_at(bytes, at)) {
            Ok(()) => {
                self.length = end;
                Ok(at)
            }
            Err(error) => Err(self.take_back(error)),
        }
    }

    /// A failed sync poisons: the system may have dropped the pages, and a later success would say nothing about them.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        let synced = self.file.sync();
        self.poisoned |= synced.is_err();
        synced
    }

    /// Gives back the zeros ahead, when nothing will be appended any more. A failure costs only their space.
    pub(super) fn trim(&mut self) {
        if !self.poisoned && self.file.resize(self.length).is_ok() {
            self.allocated = self.length;
        }
    }

    /// Writes zeros ahead of `end`. On a disk that has no room for them there may still be room for what they would be for.
    fn reserve(&mut self, end: u64) -> io::Result<()> {
        if self.preallocation_bytes == 0 || end <= self.allocated {
            return Ok(());
        }
        let target = end.saturating_add(self.preallocation_bytes);
        match write_zeros(&*self.file, end.max(self.allocated), target) {
            Ok(()) => {
                self.allocated = target;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::StorageFull => self.file.resize(self.allocated.max(self.length)),
            failed => failed,
        }
    }

    fn take_back(&mut self, error: io::Error) -> AppendError {
        // Synced, because a record reported as not stored must not come back after a power cut.
        match self.file.resize(self.length).and_then(|()| self.file.sync()) {
            Ok(()) => {
                self.allocated = self.length;
                AppendError::TakenBack(error)
            }
            Err(_) => {
                self.poisoned = true;
                AppendError::Unknown(error)
            }
        }
    }
}
