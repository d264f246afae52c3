//! A storage of which one call fails, over the real file system.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::super::storage::{OpenAs, PathKind, StorageFile};
use super::*;

#[derive(Default)]
struct Calls {
    made: AtomicU64,
    /// Number of the call that fails, counted from 1; 0 when none does.
    failing: AtomicU64,
}

impl Calls {
    fn call(&self) -> io::Result<()> {
        let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        if number == self.failing.load(Ordering::Relaxed) { Err(io::Error::other("injected")) } else { Ok(()) }
    }
}

/// See the module. Every call counts; a failing write leaves half of its bytes; syncs do nothing.
#[derive(Default, Clone)]
pub(super) struct FailingStorage(Arc<Calls>);

impl FailingStorage {
    /// The call with this number from now on, counted from 1, fails; no other one does.
    pub(super) fn fail(&self, number: u64) {
        self.0.made.store(0, Ordering::Relaxed);
        self.0.failing.store(number, Ordering::Relaxed);
    }

    /// Whether the call that was to fail has come. From now on none fails.
    pub(super) fn take_failed(&self) -> bool {
        self.0.made.load(Ordering::Relaxed) >= self.0.failing.swap(0, Ordering::Relaxed)
    }
}

impl Storage for FailingStorage {
    fn open(&self, path: &Path, how: OpenAs) -> io::Result<Arc<dyn StorageFile>> {
        self.0.call()?;
        Ok(Arc::new(FailingFile { file: OsStorage.open(path, how)?, calls: Arc::clone(&self.0) }))
    }

    fn kind(&self, path: &Path) -> io::Result<PathKind> {
        self.0.call()?;
        OsStorage.kind(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.0.call()?;
        OsStorage.list(directory)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.0.call()?;
        OsStorage.create_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.call()?;
        OsStorage.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.call()?;
        OsStorage.hard_link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.call()?;
        OsStorage.remove_file(path)
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        self.0.call()
    }
}

struct FailingFile {
    file: Arc<dyn StorageFile>,
    calls: Arc<Calls>,
}

impl StorageFile for FailingFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        self.calls.call()?;
        self.file.read_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        if let Err(error) = self.calls.call() {
            self.file.write_at(&bytes[..bytes.len() / 2], at)?;
            return Err(error);
        }
        self.file.write_at(bytes, at)
    }

    fn resize(&self, bytes: u64) -> io::Result<()> {
        self.calls.call()?;
        self.file.resize(bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.calls.call()?;
        self.file.bytes()
    }

    fn sync(&self) -> io::Result<()> {
        self.calls.call()
    }
}
