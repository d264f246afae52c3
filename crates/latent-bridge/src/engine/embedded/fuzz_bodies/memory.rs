//! Files in memory, so that a body costs no system call.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::storage::{OpenAs, PathKind, Storage, StorageFile};

/// A file's content.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct MemoryFile(Arc<Mutex<Vec<u8>>>);

/// Files by their paths; every folder exists.
#[derive(Debug, Default)]
pub(super) struct MemoryStorage(Mutex<BTreeMap<PathBuf, MemoryFile>>);

impl MemoryFile {
    pub(in super::super) fn of(content: &[u8]) -> Self {
        Self(Arc::new(Mutex::new(content.to_vec())))
    }

    fn content(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryStorage {
    pub(super) fn with(path: &Path, content: &[u8]) -> Self {
        Self(Mutex::new(BTreeMap::from([(path.to_owned(), MemoryFile::of(content))])))
    }

    /// The only file.
    #[cfg(test)]
    pub(super) fn content(&self) -> Vec<u8> {
        self.files().values().next().map(|file| file.content().clone()).unwrap_or_default()
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<PathBuf, MemoryFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for MemoryStorage {
    fn open(&self, path: &Path, how: OpenAs) -> Result<Arc<dyn StorageFile>> {
        let mut files = self.files();
        if how != OpenAs::Existing {
            files.insert(path.to_owned(), MemoryFile::default());
        }
        files.get(path).map(|file| Arc::new(file.clone()) as Arc<dyn StorageFile>).ok_or_else(|| Error::from(ErrorKind::NotFound))
    }

    fn kind(&self, path: &Path) -> Result<PathKind> {
        Ok(if self.files().contains_key(path) { PathKind::File } else { PathKind::Missing })
    }

    fn list(&self, _: &Path) -> Result<Vec<String>> {
        Ok(self.files().keys().filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect())
    }

    fn create_directory(&self, _: &Path) -> Result<()> {
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut files = self.files();
        let file = files.remove(from).ok_or_else(|| Error::from(ErrorKind::NotFound))?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn hard_link(&self, _: &Path, _: &Path) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.files().remove(path).map(drop).ok_or_else(|| Error::from(ErrorKind::NotFound))
    }

    fn sync_directory(&self, _: &Path) -> Result<()> {
        Ok(())
    }
}

impl StorageFile for MemoryFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<usize> {
        let content = self.content();
        let rest = usize::try_from(at).ok().and_then(|at| content.get(at..)).unwrap_or_default();
        let read = rest.len().min(bytes.len());
        bytes.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<()> {
        let (mut content, at) = (self.content(), usize::try_from(at).map_err(Error::other)?);
        let end = at.saturating_add(bytes.len());
        if content.len() < end {
            content.resize(end, 0);
        }
        content.iter_mut().skip(at).zip(bytes).for_each(|(to, from)| *to = *from);
        Ok(())
    }

    fn resize(&self, bytes: u64) -> Result<()> {
        self.content().resize(usize::try_from(bytes).map_err(Error::other)?, 0);
        Ok(())
    }

    fn bytes(&self) -> Result<u64> {
        Ok(self.content().len() as u64)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}
