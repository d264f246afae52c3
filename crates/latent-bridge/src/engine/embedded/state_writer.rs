//! The state logs' part of a group: entries are written and synced with the group's records, a replacement comes alone.

use std::sync::Arc;

use latent_core::Completer;

use super::append_file::{AppendError, AppendFile, Extent};
use super::directory::{discard, sync_parent, write_temporary};
use super::state_log::{Durability, StateShared};
use super::storage::{OpenAs, Storage};
use crate::error::base_name;
use crate::{BusError, limits};

/// What the writer is asked to do with a state log. Entries come as frames.
pub(super) enum StateCommand {
    Append { frame: Vec<u8>, durability: Durability, completer: StateCompleter },
    Replace { frames: Vec<u8>, completer: StateCompleter },
}

/// Who waits for a state log.
pub(super) type StateCompleter = Completer<Result<(), BusError>>;

/// An answer and whose it is.
pub(super) type Settled = (StateCompleter, Result<(), BusError>);

/// An entry on its way into a state log.
pub(super) struct Entry {
    pub(super) frame: Vec<u8>,
    pub(super) durability: Durability,
    pub(super) completer: StateCompleter,
}

/// The entries of one state log in a group.
pub(super) struct StateGroup {
    log: Arc<StateShared>,
    frames: Vec<u8>,
    written: Vec<StateCompleter>,
    synced: Vec<StateCompleter>,
}

/// Adds an entry to the group of its log, or answers it.
pub(super) fn join(groups: &mut Vec<StateGroup>, log: Arc<StateShared>, log_bytes_max: u64, entry: Entry) -> Option<Settled> {
    let at = groups.iter().position(|group| Arc::ptr_eq(&group.log, &log)).unwrap_or_else(|| {
        groups.push(StateGroup { log, frames: Vec::new(), written: Vec::new(), synced: Vec::new() });
        groups.len() - 1
    });
    let group = groups.get_mut(at)?;
    let bytes = group.log.lock().length() + (group.frames.len() + entry.frame.len()) as u64;
    if bytes > log_bytes_max {
        return Some((entry.completer, Err(BusError::Busy { limit: limits::STATE_LOG_BYTES.name })));
    }
    group.frames.extend_from_slice(&entry.frame);
    match entry.durability {
        Durability::Written => group.written.push(entry.completer),
        Durability::Synced => group.synced.push(entry.completer),
    }
    None
}

impl StateGroup {
    /// Writes the entries. False when that ended the group, all of which is then settled.
    pub(super) fn write(&mut self, settled: &mut Vec<Settled>) -> bool {
        let result = {
            let mut file = self.log.lock();
            if file.is_poisoned() {
                Err(self.log.poisoned_error())
            } else {
                file.append(&self.frames).map(|_| self.log.set_length(file.length())).map_err(|error| match error {
                    AppendError::TakenBack(error) => {
                        BusError::NotSent { reason: format!("write of {} failed: {error}; nothing was stored", base_name(file.path())) }
                    }
                    AppendError::Unknown(error) => BusError::io("write", file.path(), &error),
                })
            }
        };
        settled.extend(self.written.drain(..).map(|completer| (completer, result.clone())));
        if result.is_err() {
            settled.extend(self.synced.drain(..).map(|completer| (completer, result.clone())));
        }
        result.is_ok()
    }

    /// Syncs the log if anybody waits for that.
    pub(super) fn sync(self, settled: &mut Vec<Settled>) {
        if self.synced.is_empty() {
            return;
        }
        let result = {
            let mut file = self.log.lock();
            file.sync().map_err(|error| BusError::io("sync", file.path(), &error))
        };
        settled.extend(self.synced.into_iter().map(|completer| (completer, result.clone())));
    }
}

/// Puts a new state log in the place of the old one, durably.
pub(super) fn replace(storage: &dyn Storage, log: &StateShared, frames: &[u8], preallocation_bytes: u64) -> Result<(), BusError> {
    let mut file = log.lock();
    if file.is_poisoned() {
        return Err(log.poisoned_error());
    }
    let not_replaced = |error: BusError| BusError::NotSent { reason: format!("the old state log goes on: {error}") };
    let prepared = write_temporary(storage, &log.path, frames).map_err(not_replaced)?;
    let renamed = storage.open(&prepared, OpenAs::Existing).and_then(|new| storage.rename(&prepared, &log.path).map(|()| new));
    let new = match renamed {
        Ok(new) => new,
        Err(error) => {
            discard(storage, &prepared);
            return Err(not_replaced(BusError::io("rename", &log.path, &error)));
        }
    };
    let length = frames.len() as u64;
    *file = AppendFile::new(new, log.path.clone(), Extent { length, allocated: length }, preallocation_bytes);
    log.set_length(length);
    let named = sync_parent(storage, &log.path);
    if named.is_err() {
        // After a power cut the old log may be back, so nothing may be promised on top of the new one.
        file.poison();
    }
    named
}
