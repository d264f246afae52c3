//! Audit on disk: a bounded set of JSON Lines files, written by a thread of its own.
//!
//! ```text
//! admission ─ reserve ─▶ slot ─ fill ─▶ queue ─▶ writer thread ─▶ newest file ─ full ─▶ next file, oldest removed
//!                                        └─ full: counted as dropped
//! ```
//! Work never waits for the disk and is never refused for it. What cannot be written is counted in [`AuditStatus`], from which the
//! node's readiness warns. A written record survives the end of the process; a file is synced when it is full and at the close, so a
//! power cut may cost the newest ones.

mod line;
mod queue;
mod storage;
mod writer;

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use latent_capabilities::{AuditRecord, AuditSink};
use latent_core::LimitError;

use crate::limits;
use queue::Queue;
use writer::Writer;

pub use storage::{AuditDirectory, AuditStorage, Tail};
pub use writer::AuditFault;

/// How much audit keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditFileLimits {
    /// [`limits::AUDIT_FILES`].
    pub files: u64,
    /// [`limits::AUDIT_FILE_BYTES`].
    pub file_bytes: u64,
    /// [`limits::AUDIT_QUEUE_RECORDS`].
    pub queue_records: u64,
}

impl Default for AuditFileLimits {
    fn default() -> Self {
        Self {
            files: limits::AUDIT_FILES.default,
            file_bytes: limits::AUDIT_FILE_BYTES.default,
            queue_records: limits::AUDIT_QUEUE_RECORDS.default,
        }
    }
}

impl AuditFileLimits {
    /// Checks every field against its limit.
    ///
    /// # Errors
    /// [`LimitError`] naming the first field out of range.
    pub fn checked(self) -> Result<Self, LimitError> {
        limits::AUDIT_FILES.check(self.files)?;
        limits::AUDIT_FILE_BYTES.check(self.file_bytes)?;
        limits::AUDIT_QUEUE_RECORDS.check(self.queue_records)?;
        Ok(self)
    }
}

/// Why audit could not begin.
#[derive(Debug, thiserror::Error)]
pub enum AuditFileError {
    /// A limit is out of range.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// There is no thread for the writer.
    #[error("the audit writer has no thread; free threads or memory")]
    Thread(#[source] std::io::Error),
}

/// What became of the records so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AuditStatus {
    /// Records that are in a file.
    pub written: u64,
    /// Records that are in none and never will be: the queue was full, the write failed, or audit was closed.
    pub dropped: u64,
    /// Records waiting for the writer.
    pub queued: usize,
    /// The last write failed. The next record tries again.
    pub failing: bool,
    /// The last failure, also when writing has worked again since.
    pub last_error: Option<AuditFault>,
}

/// How a close ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "records may be left unwritten"]
pub enum AuditClose {
    /// The writer has ended; what it could write is written and synced.
    Ended,
    /// The time was over first. The writer goes on for as long as the process does.
    Unfinished {
        /// Records still waiting.
        queued: usize,
    },
}

/// The audit files of a node.
pub struct AuditFile {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// There is a record, or the close began.
    work: Condvar,
    /// The writer has ended.
    ended: Condvar,
}

struct State {
    queue: Queue,
    written: u64,
    dropped: u64,
    failing: bool,
    last_error: Option<AuditFault>,
    /// No place was free at the last reservation.
    full: bool,
    closing: bool,
    ended: bool,
}

impl AuditFile {
    /// Continues the audit files in `directory`, which is made when it is not there. A disk that cannot be written is no error here:
    /// it shows in the status, and each record tries again.
    ///
    /// # Errors
    /// [`AuditFileError`].
    pub fn start(directory: impl Into<PathBuf>, limits: AuditFileLimits) -> Result<Arc<Self>, AuditFileError> {
        Self::start_on(AuditDirectory::new(directory), limits)
    }

    /// As [`start`](Self::start), on another storage.
    ///
    /// # Errors
    /// [`AuditFileError`].
    pub fn start_on(storage: impl AuditStorage, limits: AuditFileLimits) -> Result<Arc<Self>, AuditFileError> {
        let limits = limits.checked()?;
        let state = State {
            queue: Queue::new(usize::try_from(limits.queue_records).unwrap_or(usize::MAX)),
            written: 0,
            dropped: 0,
            failing: false,
            last_error: None,
            full: false,
            closing: false,
            ended: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), work: Condvar::new(), ended: Condvar::new() });
        let (for_writer, writer) = (Arc::clone(&shared), Writer::new(storage, limits));
        let thread = std::thread::Builder::new().name("audit".to_owned());
        thread.spawn(move || for_writer.write_until_closed(writer)).map_err(AuditFileError::Thread)?;
        Ok(Arc::new(Self { shared }))
    }

    /// What became of the records so far.
    pub fn status(&self) -> AuditStatus {
        let state = self.shared.lock();
        let State { written, dropped, failing, last_error, .. } = *state;
        AuditStatus { written, dropped, queued: state.queue.len(), failing, last_error }
    }

    /// Takes no more records, and waits at most `within` until what is queued is written and synced. Blocks the calling thread.
    pub fn close(&self, within: Duration) -> AuditClose {
        self.shared.begin_close();
        let waited = self.shared.ended.wait_timeout_while(self.shared.lock(), within, |state| !state.ended);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.ended { AuditClose::Ended } else { AuditClose::Unfinished { queued: state.queue.len() } }
    }
}

impl Drop for AuditFile {
    fn drop(&mut self) {
        // Lets the writer end once its queue is empty; nobody is left to wait for it.
        self.shared.begin_close();
    }
}

impl AuditSink for AuditFile {
    fn reserve(&self) -> bool {
        let (place, first_refusal) = {
            let mut state = self.shared.lock();
            let place = !state.closing && state.queue.reserve();
            let full_before = std::mem::replace(&mut state.full, !place);
            (place, !place && !full_before)
        };
        if first_refusal {
            tracing::warn!(limit = limits::AUDIT_QUEUE_RECORDS.name, "audit records are dropped: no place in the queue to their file");
        }
        place
    }

    fn fill(&self, place: bool, record: AuditRecord) {
        line::trace(&record);
        let mut state = self.shared.lock();
        if place && !state.closing {
            state.queue.fill(record);
            drop(state);
            self.shared.work.notify_one();
            return;
        }
        if place {
            state.queue.release();
        }
        state.dropped = state.dropped.saturating_add(1);
    }

    fn release(&self) {
        self.shared.lock().queue.release();
    }
}

impl Shared {
    // No guarded section calls out or panics half-way, so a poisoned lock still guards a whole state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_close(&self) {
        self.lock().closing = true;
        self.work.notify_one();
    }

    fn write_until_closed(&self, mut writer: Writer<impl AuditStorage>) {
        while let Some(record) = self.next() {
            let result = writer.write(&line::of(&record));
            let counted = u64::from(result.is_ok());
            self.note(result, |state| {
                state.written = state.written.saturating_add(counted);
                state.dropped = state.dropped.saturating_add(1 - counted);
            });
        }
        let synced = writer.sync();
        self.note(synced, |state| state.ended = true);
        self.ended.notify_all();
    }

    /// The next record; `None` when the close began and nothing is left.
    fn next(&self) -> Option<AuditRecord> {
        let mut state = self.lock();
        loop {
            if let Some(record) = state.queue.pop() {
                return Some(record);
            }
            if state.closing {
                return None;
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Keeps how a step of the writer ended, and tells of a change from one state to the other.
    fn note(&self, result: Result<(), AuditFault>, count: impl FnOnce(&mut State)) {
        let failing_before = {
            let mut state = self.lock();
            count(&mut state);
            state.last_error = result.err().or(state.last_error);
            std::mem::replace(&mut state.failing, result.is_err())
        };
        match result {
            Err(fault) if !failing_before => tracing::warn!(%fault, "audit records are dropped: their file cannot be written"),
            Ok(()) if failing_before => tracing::info!("the audit file can be written again"),
            Ok(()) | Err(_) => {}
        }
    }
}
