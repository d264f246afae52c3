//! The file system as the embedded engine sees it: the seam at which tests make every call fail.
//!
//! Nothing here decides anything. The directory lock is not behind it, because only the operating system can hold it.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened. Always for reading and writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenAs {
    /// It must exist.
    Existing,
    /// It must not exist and is created.
    New,
    /// It is created empty, or emptied.
    Empty,
}

/// What a path names. Symbolic links are not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// Nothing.
    Missing,
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A link, a pipe, a socket, a device.
    Unusual,
}

/// Operations on paths.
pub trait Storage: Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// Those of the operating system, as in every method here.
    fn open(&self, path: &Path, how: OpenAs) -> io::Result<Arc<dyn StorageFile>>;
    /// Says what a path names.
    ///
    /// # Errors
    /// See [`Storage::open`].
    fn kind(&self, path: &Path) -> io::Result<PathKind>;
    /// Names in a directory, in no order. A name that is not UTF-8 is none of ours and is left out.
    ///
    /// # Errors
    /// See [`Storage::open`].
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;
    /// Tells every name in a directory with what it names, in no order: also names that are not UTF-8, for whoever must not overlook them.
    ///
    /// # Errors
    /// See [`Storage::open`].
    fn visit(&self, directory: &Path, tell: &mut dyn FnMut(&OsStr, PathKind)) -> io::Result<()> {
        for name in self.list(directory)? {
            let kind = self.kind(&directory.join(&name))?;
            tell(name.as_ref(), kind);
        }
        Ok(())
    }
    /// Creates one directory; one that exists is fine.
    ///
    /// # Errors
    /// See [`Storage::open`].
    fn create_directory(&self, path: &Path) -> io::Result<()>;
    /// Renames, replacing `to`.
    ///
    /// # Errors
    /// See [`Storage::open`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name, which must be free.
    ///
    /// # Errors
    /// See [`Storage::open`].
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// See [`Storage::open`].
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Makes names in a directory durable.
    ///
    /// # Errors
    /// See [`Storage::open`].
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
}

/// Operations on one open file.
pub trait StorageFile: Send + Sync {
    /// Reads up to `bytes.len()` bytes at `at`; less only at the end of the file.
    ///
    /// # Errors
    /// See [`Storage::open`].
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes all of `bytes` at `at`. On an error any part of it may be written.
    ///
    /// # Errors
    /// See [`Storage::open`].
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Cuts or extends the file.
    ///
    /// # Errors
    /// See [`Storage::open`].
    fn resize(&self, bytes: u64) -> io::Result<()>;
    /// Its size.
    ///
    /// # Errors
    /// See [`Storage::open`].
    fn bytes(&self) -> io::Result<u64>;
    /// Makes its content durable (`fdatasync`).
    ///
    /// # Errors
    /// See [`Storage::open`]. After an error nobody knows what is durable; trying again tells nothing.
    fn sync(&self) -> io::Result<()>;
}

/// Writes zeros from `at` to `end`, in pieces.
pub(super) fn write_zeros(file: &dyn StorageFile, mut at: u64, end: u64) -> io::Result<()> {
    const ZEROS: &[u8] = &[0; 65_536];
    while at < end {
        let zeros = usize::try_from(end - at).ok().and_then(|rest| ZEROS.get(..rest)).unwrap_or(ZEROS);
        file.write_at(zeros, at)?;
        at += zeros.len() as u64;
    }
    Ok(())
}

/// The operating system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsStorage;

impl Storage for OsStorage {
    fn open(&self, path: &Path, how: OpenAs) -> io::Result<Arc<dyn StorageFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        match how {
            OpenAs::Existing => {}
            OpenAs::New => drop(options.create_new(true)),
            OpenAs::Empty => drop(options.create(true).truncate(true)),
        }
        let file = options.open(path)?;
        Ok(Arc::new(OsFile(file)))
    }

    fn kind(&self, path: &Path) -> io::Result<PathKind> {
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_file() => Ok(PathKind::File),
            Ok(metadata) if metadata.is_dir() => Ok(PathKind::Directory),
            Ok(_) => Ok(PathKind::Unusual),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PathKind::Missing),
            Err(error) => Err(error),
        }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(directory)?;
        let names = entries.map(|entry| entry.map(|entry| entry.file_name().into_string().ok()));
        names.filter_map(Result::transpose).collect()
    }

    fn visit(&self, directory: &Path, tell: &mut dyn FnMut(&OsStr, PathKind)) -> io::Result<()> {
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let kind = match entry.file_type() {
                Ok(kind) if kind.is_file() => PathKind::File,
                Ok(kind) if kind.is_dir() => PathKind::Directory,
                Ok(_) => PathKind::Unusual,
                Err(error) if error.kind() == io::ErrorKind::NotFound => PathKind::Missing,
                Err(error) => return Err(error),
            };
            tell(&entry.file_name(), kind);
        }
        Ok(())
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        match std::fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            created => created,
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::hard_link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

struct OsFile(File);

impl StorageFile for OsFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, at + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    fn resize(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
