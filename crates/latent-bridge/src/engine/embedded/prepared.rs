//! The next segment of a busy topic, its zeros written and synced ahead, so that a commit writes over blocks the file already has.
//! It is nothing but zeros: it may be missing, and one that is left over is removed at opening.

use std::io;
use std::path::{Path, PathBuf};

use super::directory::{discard, sync_parent, temporary};
use super::storage::{OpenAs, PathKind, Storage, write_zeros};
use crate::BusError;

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
    write_zeros(&*file, 0, bytes)?;
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

/// Removes it: what an earlier process left, which may have been stopped before it was whole, or what takes up room that records need.
pub(super) fn remove(storage: &dyn Storage, topic_directory: &Path) {
    let path = path(topic_directory);
    discard(storage, &temporary(&path));
    discard(storage, &path);
}

fn is_there(storage: &dyn Storage, path: &Path) -> bool {
    storage.kind(path).is_ok_and(|kind| kind == PathKind::File)
}
