//! The store's directory, opened once for each call and looked at before anything in it is used.
//!
//! Files are opened below the open directory and never through a link, so what was checked is what is read.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use crate::SecretError;
use crate::access::{self, Kind};
use crate::limits::{SECRET_FILE_BYTES, SECRETS};
use crate::sight::Sight;

/// What the file of a secret ends with.
pub(crate) const SUFFIX: &str = ".secret";

/// A directory that is ours alone.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    fd: OwnedFd,
}

impl Directory {
    /// Opens what [`normal`] made.
    pub(crate) fn open(path: &Path) -> Result<Self, SecretError> {
        let path = path.to_owned();
        let problem = |problem| SecretError::Directory { directory: path.clone(), problem };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(CWD, &path, flags, Mode::empty()).map_err(|errno| match access::refused(&path, errno, Kind::Directory) {
            Some(found) => problem(found),
            None => failed("opening", &path, errno.into()),
        })?;
        let file = File::from(fd);
        let metadata = file.metadata().map_err(|error| failed("looking at", &path, error))?;
        access::owner_only(&path, &metadata, Kind::Directory).map_err(problem)?;
        Ok(Self { fd: file.into(), path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where a file of the store is, for people.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file of the store that is its owner's alone; `None` when it is not there and `flags` do not make it.
    pub(crate) fn open_file(&self, name: &str, flags: OFlags) -> Result<Option<File>, SecretError> {
        let path = self.file(name);
        // A pipe must not wait for its other end.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let problem = |problem| SecretError::File { file: path.clone(), problem };
        let fd = match openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => {
                return Err(match access::refused(&path, errno, Kind::File) {
                    Some(found) => problem(found),
                    None => failed("opening", &path, errno.into()),
                });
            }
        };
        let file = File::from(fd);
        let metadata = file.metadata().map_err(|error| failed("looking at", &path, error))?;
        access::owner_only(&path, &metadata, Kind::File).map_err(problem)?;
        Ok(Some(file))
    }

    /// A file's content, `None` when there is no such file.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, SecretError> {
        Ok(self.read_kept(name)?.map(|(_, content)| content))
    }

    /// A file and its content.
    pub(crate) fn read_kept(&self, name: &str) -> Result<Option<(Sight, Vec<u8>)>, SecretError> {
        let Some(file) = self.open_file(name, OFlags::RDONLY)? else { return Ok(None) };
        // Looked at first: what is written into it meanwhile shows later.
        let sight = Sight::of(file).map_err(|error| failed("looking at", &self.file(name), error))?;
        let mut content = Vec::with_capacity(SECRET_FILE_BYTES.max_usize() + 1);
        let read = sight.file().take(SECRET_FILE_BYTES.max + 1).read_to_end(&mut content);
        read.map_err(|error| failed("reading", &self.file(name), error))?;
        if content.len() > SECRET_FILE_BYTES.max_usize() {
            return Err(SecretError::Damaged { file: self.file(name), problem: "it is longer than any file of a store" });
        }
        Ok(Some((sight, content)))
    }

    /// The names of the files of secrets, in order.
    pub(crate) fn secret_files(&self) -> Result<Vec<String>, SecretError> {
        let unreadable = |errno: Errno| failed("listing", &self.path, errno.into());
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name().to_string_lossy();
            if name.ends_with(SUFFIX) {
                names.push(name.into_owned());
            }
            if names.len() > SECRETS.max_usize() {
                return Err(SecretError::Full);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Removes a file that may not be there.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// A path without what would make the system follow a link at its end: `dir/` is what a link `dir` points to.
pub(crate) fn normal(path: &Path) -> PathBuf {
    path.components().collect()
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What the system's refusal is reported as.
pub(crate) fn failed(operation: &'static str, file: &Path, error: io::Error) -> SecretError {
    SecretError::Io { operation, file: file.to_owned(), reason: error.to_string() }
}
