//! One process at a time. The operating system holds the lock, so a killed holder leaves nothing to clean up. What is locked is the
//! directory: a file in it could be removed and made anew, and then two would each have a lock. The text in the file only tells who
//! to ask.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use super::directory::{Layout, create_directories};
use super::storage::OsStorage;
use crate::BusError;
use crate::error::base_name;

/// Bytes of the lock file that are shown.
const HOLDER_BYTES_MAX: u64 = 200;

/// The lock, held until dropped.
#[derive(Debug)]
pub struct DirectoryLock {
    directory: File,
    text: File,
}

impl DirectoryLock {
    /// Takes the lock of `directory`, which is made if it is not there, for a process that keeps things of its own in it and no log: nobody
    /// can have both.
    ///
    /// # Errors
    /// [`BusError::InUse`] naming the holder; [`BusError::Io`].
    pub fn of_directory(directory: &Path, holder: &str) -> Result<Self, BusError> {
        create_directories(&OsStorage, directory)?;
        Self::take(&Layout::new(directory).lock(), holder)
    }

    /// Takes the lock of the directory of `path`, whose text `holder` describes to others, or says who has it.
    pub(crate) fn take(path: &Path, holder: &str) -> Result<Self, BusError> {
        let failed = |error: std::io::Error| BusError::io("lock", path, &error);
        if std::fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(BusError::Config { problem: "lock is not a regular file; remove it".to_owned() });
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        let directory = File::open(parent).map_err(failed)?;
        match directory.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(path)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut text = OpenOptions::new().write(true).create(true).truncate(true).open(path).map_err(failed)?;
        // On a full disk the directory must still open, because opening is the way to make room. The lock holds without its text.
        if let Err(error) = writeln!(text, "process {} ({holder})", std::process::id()) {
            tracing::warn!(%error, "others will not be told who holds the directory");
        }
        Ok(Self { directory, text })
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Whoever asks next must not be sent to a process that has gone. Closing the directory would release the lock too, but not while
        // a child that is just being started still shares it.
        if let Err(error) = self.text.set_len(0).and_then(|()| self.directory.unlock()) {
            tracing::warn!(%error, "the lock is released when the directory is closed");
        }
    }
}

fn in_use(path: &Path) -> BusError {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(HOLDER_BYTES_MAX).read_to_string(&mut text)).is_ok();
    let is_text = |line: &&str| read && !line.is_empty() && !line.contains(char::is_control);
    let holder = text.lines().next().filter(is_text).unwrap_or("another process");
    let directory = path.parent().map_or_else(|| "?".to_owned(), base_name);
    BusError::InUse { directory, holder: holder.to_owned() }
}
