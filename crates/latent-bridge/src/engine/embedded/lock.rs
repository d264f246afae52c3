//! One process at a time. The operating system holds the lock, so a killed holder leaves nothing to clean up; the text in the file
//! only tells who to ask.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use crate::BusError;
use crate::error::base_name;

/// Bytes of the lock file that are shown.
const HOLDER_BYTES_MAX: u64 = 200;

/// The lock, held until dropped.
#[derive(Debug)]
pub(super) struct DirectoryLock(File);

impl DirectoryLock {
    /// Takes the lock at `path`, which `holder` describes to others, or says who has it.
    pub(super) fn take(path: &Path, holder: &str) -> Result<Self, BusError> {
        let failed = |error: std::io::Error| BusError::io("lock", path, &error);
        if std::fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(BusError::Config { problem: "lock is not a regular file; remove it".to_owned() });
        }
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(path, &mut file)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.set_len(0).and_then(|()| writeln!(file, "process {} ({holder})", std::process::id())).map_err(failed)?;
        Ok(Self(file))
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Whoever asks next must not be sent to a process that has gone. Closing the file would release the lock too, but not while
        // a child that is just being started still shares it.
        if let Err(error) = self.0.set_len(0).and_then(|()| self.0.unlock()) {
            tracing::warn!(%error, "the lock is released when the file is closed");
        }
    }
}

fn in_use(path: &Path, file: &mut File) -> BusError {
    let mut text = String::new();
    let read = file.take(HOLDER_BYTES_MAX).read_to_string(&mut text).is_ok();
    let holder = text.lines().next().filter(|line| read && !line.is_empty()).unwrap_or("another process");
    let directory = path.parent().map_or_else(|| "?".to_owned(), base_name);
    BusError::InUse { directory, holder: holder.to_owned() }
}
