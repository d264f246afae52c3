//! A storage that counts what is read, by the end of the file's name.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use latent_bridge::embedded::{OpenAs, OsStorage, PathKind, Storage, StorageFile};

/// Calls and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reads {
    pub(crate) calls: u64,
    pub(crate) bytes: u64,
}

/// See the module. Syncs do nothing.
#[derive(Clone, Default)]
pub(crate) struct CountingStorage(Arc<Mutex<BTreeMap<String, Reads>>>);

impl CountingStorage {
    /// Reads of files with this extension since the last call.
    pub(crate) fn take(&self, extension: &str) -> Reads {
        self.0.lock().unwrap().remove(extension).unwrap_or_default()
    }

    /// Reads of all files since the last call.
    pub(crate) fn take_all(&self) -> Reads {
        let taken = std::mem::take(&mut *self.0.lock().unwrap());
        taken.values().fold(Reads::default(), |sum, more| Reads { calls: sum.calls + more.calls, bytes: sum.bytes + more.bytes })
    }
}

impl Storage for CountingStorage {
    fn open(&self, path: &Path, how: OpenAs) -> io::Result<Arc<dyn StorageFile>> {
        let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Arc::new(CountingFile { file: OsStorage.open(path, how)?, extension, storage: self.clone() }))
    }

    fn kind(&self, path: &Path) -> io::Result<PathKind> {
        OsStorage.kind(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        OsStorage.list(directory)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        OsStorage.create_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsStorage.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsStorage.hard_link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        OsStorage.remove_file(path)
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

struct CountingFile {
    file: Arc<dyn StorageFile>,
    extension: String,
    storage: CountingStorage,
}

impl StorageFile for CountingFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        let read = self.file.read_at(bytes, at)?;
        let mut counts = self.storage.0.lock().unwrap();
        let of = counts.entry(self.extension.clone()).or_default();
        *of = Reads { calls: of.calls + 1, bytes: of.bytes + read as u64 };
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_at(bytes, at)
    }

    fn resize(&self, bytes: u64) -> io::Result<()> {
        self.file.resize(bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
