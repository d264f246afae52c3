//! State logs: checksummed append-only logs of opaque entries that other parts of the node keep beside the topics. They are written
//! by the same writer thread and take part in the same group commit.
//!
//! `state_scan` reads their form, `writer` fills them; here is the handle and the opening.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use latent_core::Ticket;

use super::append_file::{AppendFile, Extent};
use super::directory::{discard, set_aside, sync_parent, temporary};
use super::frame::Salt;
use super::queue::{Cost, Grouping, Lane};
use super::recovery::confirm;
use super::state_scan::{ENTRY_HEADER_BYTES, encode_entry, scan_entries};
use super::state_writer::StateCommand;
use super::storage::{OpenAs, PathKind, Storage, StorageFile};
use super::window::Window;
use super::writer::Command;
use super::{Shared, Waking};
use crate::error::base_name;
use crate::{BusError, limits};

/// When an append counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Handed to the operating system: survives a kill of the process, not a power cut.
    Written,
    /// Synced with the group: survives a power cut.
    Synced,
}

/// What a replay met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayReport {
    /// Entries handed over.
    pub entries: u64,
    /// Damaged places in the middle. Each may have held several entries; they stay in the file until it is replaced.
    pub damaged: u64,
    /// 1 when an unfinished last write was cut at opening.
    pub torn: u64,
}

/// One state log. Clones are the same log.
#[derive(Clone)]
pub struct StateLog {
    pub(super) shared: Arc<StateShared>,
    pub(super) engine: Arc<Shared>,
    pub(super) entry_bytes_max: u64,
    pub(super) log_bytes_max: u64,
}

/// What handles and the writer share of one state log.
pub(super) struct StateShared {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) salt: Salt,
    torn: u64,
    /// Used by the writer, and for a moment by replays.
    file: Mutex<AppendFile>,
    length: AtomicU64,
}

impl StateLog {
    /// Appends one entry. The ticket resolves as soon as the entry is as durable as asked.
    ///
    /// It resolves to [`BusError::Busy`] when a queue or the log itself is full, [`BusError::NotSent`] when the entry is certainly not
    /// in the log, [`BusError::Poisoned`] when the log takes nothing until it is opened again, and [`BusError::Io`] when a write or sync
    /// failed so that the entry may or may not be there after reopening.
    pub fn append(&self, entry: Bytes, durability: Durability) -> Ticket<Result<(), BusError>> {
        if let Err(error) = self.check_entry(&entry) {
            return Ticket::ready(Err(error));
        }
        let mut frame = Vec::with_capacity(ENTRY_HEADER_BYTES + entry.len());
        encode_entry(self.shared.salt, &entry, &mut frame);
        let waking = if durability == Durability::Written { Waking::Nobody } else { Waking::Writer };
        let ticket =
            self.submit(frame, (Grouping::Shared, waking), |frame, completer| StateCommand::Append { frame, durability, completer });
        if durability == Durability::Written {
            // Nobody waits for the disk here, so no other thread has to wake for it.
            self.engine.write_notes_if_idle();
        }
        ticket
    }

    /// Hands every entry to `take`, oldest first, from a copy of the log's length taken now.
    ///
    /// # Errors
    /// [`BusError::Io`].
    pub fn replay(&self, mut take: impl FnMut(&[u8])) -> Result<ReplayReport, BusError> {
        let (file, length) = {
            let file = self.shared.lock();
            (Arc::clone(file.file()), file.length())
        };
        let failed = |error: std::io::Error| BusError::io("read", &self.shared.path, &error);
        let mut window = Window::new(&*file).map_err(failed)?;
        let scanned = scan_entries(&mut window, length, self.shared.salt, &mut |entry| take(entry)).map_err(failed)?;
        Ok(ReplayReport { entries: scanned.entries, damaged: scanned.damaged, torn: self.shared.torn })
    }

    /// Bytes of entries with their frames.
    pub fn len_bytes(&self) -> u64 {
        self.shared.length.load(Ordering::Acquire)
    }

    /// Replaces the whole log by `entries`, atomically and durably: after a crash there is the old log or the new one. Appends made
    /// before this call are superseded, later ones go to the new log.
    ///
    /// It resolves like [`StateLog::append`]; after an error other than `Poisoned` or `Io` the old log goes on.
    pub fn replace(&self, entries: &[Bytes]) -> Ticket<Result<(), BusError>> {
        if let Err(error) = entries.iter().try_for_each(|entry| self.check_entry(entry)) {
            return Ticket::ready(Err(error));
        }
        let bytes = entries.iter().map(|entry| ENTRY_HEADER_BYTES + entry.len()).sum();
        if bytes as u64 > self.log_bytes_max {
            return Ticket::ready(Err(BusError::Busy { limit: limits::STATE_LOG_BYTES.name }));
        }
        let mut frames = Vec::with_capacity(bytes);
        entries.iter().for_each(|entry| encode_entry(self.shared.salt, entry, &mut frames));
        self.submit(frames, (Grouping::Alone, Waking::Writer), |frames, completer| StateCommand::Replace { frames, completer })
    }

    fn check_entry(&self, entry: &Bytes) -> Result<(), BusError> {
        let bytes = entry.len() as u64;
        if bytes > self.entry_bytes_max {
            let what = format!("{} of {bytes} bytes", limits::STATE_ENTRY_BYTES.name);
            return Err(BusError::OutOfRange { what, problem: format!("at most {} are taken; write less", self.entry_bytes_max) });
        }
        Ok(())
    }

    fn submit(
        &self,
        frames: Vec<u8>,
        (grouping, waking): (Grouping, Waking),
        command: impl FnOnce(Vec<u8>, latent_core::Completer<Result<(), BusError>>) -> StateCommand,
    ) -> Ticket<Result<(), BusError>> {
        let cost = Cost { lane: Lane::State, count: 1, bytes: frames.len() as u64, grouping };
        let (ticket, completer) = Ticket::pair(Err(BusError::Backend("the log's writer ended before it answered".to_owned())));
        let command = Command::State { log: Arc::clone(&self.shared), command: command(frames, completer) };
        let queue = &self.engine.queue;
        let pushed = match waking {
            Waking::Writer => queue.push(cost, command),
            Waking::Nobody => queue.push_quietly(cost, command),
        };
        match pushed {
            Ok(()) => ticket,
            Err(error) => Ticket::ready(Err(error)),
        }
    }
}

/// What to open.
pub(super) struct StateLogToOpen<'a> {
    pub(super) name: &'a str,
    pub(super) path: PathBuf,
    pub(super) salt: Salt,
    pub(super) preallocation_bytes: u64,
}

impl StateShared {
    /// Opens or creates a state log, and cuts a torn tail.
    pub(super) fn open(storage: &dyn Storage, wanted: StateLogToOpen<'_>) -> Result<Self, BusError> {
        let StateLogToOpen { name, path, salt, preallocation_bytes } = wanted;
        discard(storage, &temporary(&path));
        let failed = |error: std::io::Error| BusError::io("open", &path, &error);
        let file = match storage.kind(&path).map_err(failed)? {
            PathKind::File => storage.open(&path, OpenAs::Existing).map_err(failed)?,
            PathKind::Missing => create(storage, &path)?,
            PathKind::Directory | PathKind::Unusual => {
                return Err(BusError::Config { problem: format!("state log {name} is not a regular file; remove what lies in its place") });
            }
        };
        let (mut file, (mut extent, torn)) = (Arc::clone(&file), recover(&*file, salt).map_err(failed)?);
        if torn > 0 && extent.length == 0 {
            // Not one entry is ours: a first write that was torn, or a file from elsewhere. Either way it is kept as it is.
            let aside = set_aside(storage, &path)?;
            tracing::error!(log = name, file = base_name(&aside), "a state log without a readable entry was set aside");
            (file, extent) = (create(storage, &path)?, Extent::default());
        }
        let length = AtomicU64::new(extent.length);
        let file = Mutex::new(AppendFile::new(file, path.clone(), extent, preallocation_bytes));
        Ok(Self { name: name.to_owned(), path, salt, torn, file, length })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, AppendFile> {
        // A half-done append is seen by its length, which is moved last.
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_length(&self, bytes: u64) {
        self.length.store(bytes, Ordering::Release);
    }

    pub(super) fn poisoned_error(&self) -> BusError {
        BusError::Poisoned { log: format!("state log {:?}", self.name) }
    }
}

fn create(storage: &dyn Storage, path: &Path) -> Result<Arc<dyn StorageFile>, BusError> {
    let file = storage.open(path, OpenAs::New).map_err(|error| BusError::io("create", path, &error))?;
    sync_parent(storage, path)?;
    Ok(file)
}

fn recover(file: &dyn StorageFile, salt: Salt) -> std::io::Result<(Extent, u64)> {
    let mut window = Window::new(file)?;
    let file_bytes = window.file_bytes();
    let length = scan_entries(&mut window, file_bytes, salt, &mut |_| {})?.length;
    let torn = !window.is_zero_from(length)?;
    if torn && length == 0 {
        return Ok((Extent::default(), 1));
    }
    if torn {
        file.resize(length)?;
    }
    confirm(file, 0, length)?;
    let allocated = if torn { length } else { file_bytes };
    Ok((Extent { length, allocated }, u64::from(torn)))
}
