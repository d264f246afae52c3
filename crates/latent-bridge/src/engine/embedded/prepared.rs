//! The next segment of a busy topic, its zeros written and synced ahead, so that a commit writes over blocks the file already has.
//! It is nothing but zeros: it may be missing, and one that is left over is removed at opening.

use std::io;
use std::path::{Path, PathBuf};

use super::directory::{discard, sync_parent, temporary};
use super::storage::{OpenAs, PathKind, Storage};
use crate::BusError;

const ZEROS: &[u8] = &[0; 65_536];

/// Where a topic's prepared segment is.
pub(super) fn path(topic_directory: &Path) -> PathBuf {
    topic_directory.join("next.zeros")
}

/// Writes `bytes` zeros, unless that was done already.
pub(super) fn write(storage: &dyn Storage, topic_directory: &Path, bytes: u64) -> Result<(), BusError> {
    let path = path(topic_directory);
    if is_there(storage, &path) {
        return Ok(());
    }
    let unfinished = temporary(&path);
    let written = zeros(storage, &unfinished, bytes).and_then(|()| storage.rename(&unfinished, &path));
    if let Err(error) = written {
        discard(storage, &unfinished);
        return Err(BusError::io("write", &path, &error));
    }
    sync_parent(storage, &path)
}

fn zeros(storage: &dyn Storage, path: &Path, bytes: u64) -> io::Result<()> {
    let file = storage.open(path, OpenAs::Empty)?;
    let mut at = 0;
    while at < bytes {
        let zeros = usize::try_from(bytes - at).ok().and_then(|rest| ZEROS.get(..rest)).unwrap_or(ZEROS);
        file.write_at(zeros, at)?;
        at += zeros.len() as u64;
    }
    file.sync()
}

/// Gives the prepared segment its name, if there is one.
pub(super) fn claim(storage: &dyn Storage, topic_directory: &Path, segment: &Path) -> io::Result<bool> {
    let path = path(topic_directory);
    if !is_there(storage, &path) {
        return Ok(false);
    }
    storage.rename(&path, segment).map(|()| true)
}

/// Removes what an earlier process left. Whoever wrote it may have been stopped before it was whole.
pub(super) fn remove(storage: &dyn Storage, topic_directory: &Path) {
    let path = path(topic_directory);
    discard(storage, &temporary(&path));
    discard(storage, &path);
}

fn is_there(storage: &dyn Storage, path: &Path) -> bool {
    storage.kind(path).is_ok_and(|kind| kind == PathKind::File)
}
