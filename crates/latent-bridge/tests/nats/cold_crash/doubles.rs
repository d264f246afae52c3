//! A file system and a store that make so many calls and then none: the process has ended.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use latent_bridge::cold::{ColdError, ColdStore, Listed, PutEnd};
use latent_bridge::embedded::{OpenAs, OsStorage, PathKind, Storage, StorageFile};

use crate::doubles::MemoryStore;

/// How many calls are left.
#[derive(Clone)]
pub(super) struct Left(Arc<AtomicU64>);

impl Left {
    /// So many that it never ends.
    pub(super) fn forever() -> Self {
        Self(Arc::new(AtomicU64::new(u64::MAX)))
    }

    /// From now on so many.
    pub(super) fn set(&self, calls: u64) {
        self.0.store(calls, Ordering::SeqCst);
    }

    /// How many are left.
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Takes one. How many were left before; an error when none was.
    fn take(&self) -> io::Result<u64> {
        let took = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        took.map_err(|_| io::Error::other("the process has ended"))
    }

    fn change(&self) -> io::Result<()> {
        self.take().map(drop)
    }
}

/// Changes of files. What is read is there to read: it is looked at by whoever comes after.
pub(super) struct EndingFiles(pub(super) Left);

struct EndingFile(Arc<dyn StorageFile>, Left);

impl Storage for EndingFiles {
    fn open(&self, path: &Path, how: OpenAs) -> io::Result<Arc<dyn StorageFile>> {
        if how != OpenAs::Existing {
            self.0.change()?;
        }
        Ok(Arc::new(EndingFile(OsStorage.open(path, how)?, self.0.clone())))
    }

    fn kind(&self, path: &Path) -> io::Result<PathKind> {
        OsStorage.kind(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        OsStorage.list(directory)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.0.change().and_then(|()| OsStorage.create_directory(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.change().and_then(|()| OsStorage.rename(from, to))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.change().and_then(|()| OsStorage.hard_link(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.change().and_then(|()| OsStorage.remove_file(path))
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        self.0.change()
    }
}

impl StorageFile for EndingFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        // Half of what the last one has is there.
        if self.1.take()? == 1 {
            return self.0.write_at(&bytes[..bytes.len() / 2], at).and_then(|()| Err(io::Error::other("the process has ended")));
        }
        self.0.write_at(bytes, at)
    }

    fn resize(&self, bytes: u64) -> io::Result<()> {
        self.1.change().and_then(|()| self.0.resize(bytes))
    }

    fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }

    fn sync(&self) -> io::Result<()> {
        self.1.change()
    }
}

/// Calls of a store. The last one may have been done or not; nobody hears either.
pub(super) struct EndingStore {
    pub(super) store: Arc<MemoryStore>,
    pub(super) left: Left,
    pub(super) last_is_done: bool,
}

impl EndingStore {
    /// Whether this is the last call.
    fn begin(&self) -> Result<bool, ColdError> {
        self.left.take().map(|left| left == 1).map_err(|_| ended())
    }
}

fn ended() -> ColdError {
    ColdError::Failed { operation: "any", object: "any".to_owned(), reason: "the process has ended".to_owned() }
}

impl ColdStore for EndingStore {
    fn put_new(&self, path: &str, bytes: Bytes) -> Result<PutEnd, ColdError> {
        let is_last = self.begin()?;
        let put = if is_last && !self.last_is_done { Err(ended()) } else { self.store.put_new(path, bytes) };
        if is_last { Err(ended()) } else { put }
    }

    fn get(&self, path: &str, bytes_max: u64) -> Result<Option<Bytes>, ColdError> {
        if self.begin()? { Err(ended()) } else { self.store.get(path, bytes_max) }
    }

    fn list_after(&self, prefix: &str, after: &str, count_max: usize) -> Result<Vec<Listed>, ColdError> {
        if self.begin()? { Err(ended()) } else { self.store.list_after(prefix, after, count_max) }
    }
}
