//! One file of the directory `host`, read whole and replaced whole: a temporary file, its sync, a rename, the directory's sync.
//! Everything is the owner's alone.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::checked_lines::Malformed;
use crate::limits;

const DIRECTORY: &str = "host";

/// Why a file of the node's own could not be read or replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HostFileError {
    /// The system said no.
    #[error("{operation} of {} failed: {reason}", file.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The file, or the directory it lies in.
        file: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// It is there and says nothing that can be relied on.
    #[error("{} is damaged: {problem}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

impl HostFileError {
    /// The name used in machine-readable output and `docs/errors.md`.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Io { .. } => "host-file-io",
            Self::Damaged { .. } => "host-file-damaged",
        }
    }
}

/// The calls that a replacement makes, so that tests can let each of them fail.
pub(super) trait HostStorage: fmt::Debug + Send + Sync {
    /// Makes a directory that only the owner may enter. One that is there is left as it is.
    fn create_directory(&self, path: &Path) -> io::Result<()>;
    /// At most `bytes_max + 1` bytes; `None` when there is no such file.
    fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>>;
    /// Writes a file that only the owner may read, over what is there.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// Makes a file's content, or a directory's names, durable.
    fn sync(&self, path: &Path) -> io::Result<()>;
    /// Gives a file another's name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
}

/// The machine's own file system.
#[derive(Debug, Clone, Copy)]
struct Disk;

impl HostStorage for Disk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            created => created,
        }
    }

    fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        // Looked at before it is opened: opening a pipe would wait for its other end.
        match path.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Ok(metadata) if !metadata.is_file() => return Err(io::Error::other("it is not a file")),
            looked_at => _ = looked_at?,
        }
        let file = std::fs::File::open(path)?;
        let mut bytes = Vec::new();
        file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        // What is left of an earlier try may have other rights.
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(content)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        std::fs::File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }
}

/// The directory `host` of a data directory, there or not.
#[derive(Debug, Clone)]
pub(crate) struct HostFiles {
    directory: PathBuf,
    storage: Arc<dyn HostStorage>,
}

impl HostFiles {
    /// Below the data directory `root`.
    pub(crate) fn below(root: &Path) -> Self {
        Self::with_storage(root, Arc::new(Disk))
    }

    /// As [`HostFiles::below`], over other calls.
    pub(super) fn with_storage(root: &Path, storage: Arc<dyn HostStorage>) -> Self {
        Self { directory: root.join(DIRECTORY), storage }
    }

    /// Where a file lies.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A file's content, `None` when it was never written.
    ///
    /// # Errors
    /// [`HostFileError`]; a file longer than `host_file_bytes` is damaged.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, HostFileError> {
        let file = self.path(name);
        let bytes_max = limits::HOST_FILE_BYTES.max;
        let content = self.storage.read(&file, bytes_max).map_err(|error| failed("reading", &file, &error))?;
        match content {
            Some(content) if content.len() as u64 > bytes_max => {
                Err(HostFileError::Damaged { file, problem: format!("it is longer than {bytes_max} bytes") })
            }
            content => Ok(content),
        }
    }

    /// What a malformed file is reported as.
    pub(super) fn damaged(&self, name: &str, problem: &Malformed) -> HostFileError {
        HostFileError::Damaged { file: self.path(name), problem: problem.to_string() }
    }

    /// Replaces a file durably. After an error the old or the new content is there, whole.
    ///
    /// # Errors
    /// [`HostFileError::Io`] naming the step.
    pub(super) fn replace(&self, name: &str, content: &[u8]) -> Result<(), HostFileError> {
        let (file, prepared) = (self.path(name), self.path(&format!("{name}.tmp")));
        let step = |operation, path: &Path, done: io::Result<()>| done.map_err(|error| failed(operation, path, &error));
        step("creation", &self.directory, self.storage.create_directory(&self.directory))?;
        step("writing", &file, self.storage.write(&prepared, content))?;
        step("syncing", &file, self.storage.sync(&prepared))?;
        step("renaming", &file, self.storage.rename(&prepared, &file))?;
        step("syncing", &self.directory, self.storage.sync(&self.directory))?;
        // The directory may be a new name in the one above it.
        let root = self.directory.parent().unwrap_or(&self.directory);
        step("syncing", root, self.storage.sync(root))
    }
}

fn failed(operation: &'static str, file: &Path, error: &io::Error) -> HostFileError {
    HostFileError::Io { operation, file: file.to_owned(), reason: error.to_string() }
}

#[cfg(test)]
pub(super) mod faults {
    //! A disk of which one call fails.

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Calls of one replacement.
    pub(in super::super) const CALLS: usize = 6;

    #[derive(Debug)]
    pub(in super::super) struct Faulty {
        /// Calls that still succeed.
        pub(in super::super) left: AtomicUsize,
    }

    impl Faulty {
        pub(in super::super) fn after(calls: usize) -> Arc<Self> {
            Arc::new(Self { left: AtomicUsize::new(calls) })
        }

        fn spend(&self) -> io::Result<()> {
            let spent = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            spent.map(drop).map_err(|_| io::Error::from(io::ErrorKind::StorageFull))
        }
    }

    impl HostStorage for Faulty {
        fn create_directory(&self, path: &Path) -> io::Result<()> {
            self.spend().and_then(|()| Disk.create_directory(path))
        }

        fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
            self.spend().and_then(|()| Disk.read(path, bytes_max))
        }

        fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
            // A write that fails has written half.
            let half = content.get(..content.len() / 2).unwrap_or_default();
            match self.spend() {
                Ok(()) => Disk.write(path, content),
                Err(error) => Disk.write(path, half).and(Err(error)),
            }
        }

        fn sync(&self, path: &Path) -> io::Result<()> {
            self.spend().and_then(|()| Disk.sync(path))
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.spend().and_then(|()| Disk.rename(from, to))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::faults::{CALLS, Faulty};
    use super::*;

    #[test]
    fn what_was_written_is_read_and_only_its_owner_may() {
        let temp = tempfile::tempdir().unwrap();
        let files = HostFiles::below(temp.path());
        assert_eq!(files.read("f"), Ok(None));
        for content in [&b"one"[..], b"", b"three"] {
            files.replace("f", content).unwrap();
            assert_eq!(files.read("f"), Ok(Some(content.to_vec())));
        }
        let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(files.path("f")), mode(files.path(""))), (0o600, 0o700));
        assert!(!files.path("f.tmp").exists());
    }

    #[test]
    fn whichever_call_fails_the_file_is_whole_and_old_or_new() {
        for calls in 0..=CALLS {
            let temp = tempfile::tempdir().unwrap();
            HostFiles::below(temp.path()).replace("f", b"old").unwrap();
            let failing = HostFiles::with_storage(temp.path(), Faulty::after(calls));
            let replaced = failing.replace("f", b"new content");
            assert_eq!(replaced.is_ok(), calls == CALLS, "{calls}");
            let there = HostFiles::below(temp.path()).read("f").unwrap().unwrap();
            assert_eq!(there, if calls < 4 { &b"old"[..] } else { b"new content" }, "{calls}");
            // The next try starts over, whatever is left lying about.
            HostFiles::below(temp.path()).replace("f", b"again").unwrap();
            assert_eq!(HostFiles::below(temp.path()).read("f"), Ok(Some(b"again".to_vec())));
        }
    }

    #[test]
    fn a_file_is_read_up_to_its_bound_and_damaged_beyond() {
        let temp = tempfile::tempdir().unwrap();
        let files = HostFiles::below(temp.path());
        let max = limits::HOST_FILE_BYTES.max_usize();
        for (bytes, read) in [(max - 1, true), (max, true), (max + 1, false)] {
            files.replace("f", &vec![b'x'; bytes]).unwrap();
            assert_eq!(files.read("f").is_ok(), read, "{bytes}");
        }
        assert_eq!(files.read("f").unwrap_err().kind(), "host-file-damaged");
    }
}
