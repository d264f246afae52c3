//! The thread that writes into an outbox for publishers that must not wait for a disk, and the threads that upload what was acknowledged.
//!
//! What waits is done in its order; what is done together shares one sync of the directory. Uploads are an offer: what finds no room, and
//! everything while a store is away, is left to maintenance.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use latent_core::Clock;

use super::archive::{Archive, Finished, Pass};
use super::outbox::{Done, Op};
use crate::{BusError, limits};

/// Name of the thread that writes.
const STAGER_THREAD: &str = "latent-cold-outbox";
/// Name of the threads that upload.
const UPLOAD_THREAD: &str = "latent-cold-upload";

/// Told what became of an [`Op`], on the thread of the outbox: it must not block.
pub(crate) type Then = Box<dyn FnOnce(Result<Done, BusError>) + Send>;

/// See the module. Dropping it finishes what waits for the outbox and stops the threads.
pub(crate) struct Stager {
    queues: Arc<Queues>,
    threads: Vec<JoinHandle<()>>,
}

struct Queues {
    state: Mutex<State>,
    staging: Condvar,
    uploading: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<(Op, Then)>,
    /// Publications among them, and their bytes.
    publications: u64,
    bytes: u64,
    uploads: VecDeque<String>,
    /// A store did not take the last upload: maintenance finds out when it does again.
    is_away: bool,
    is_closed: bool,
}

impl Queues {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stager {
    /// Starts the threads of `archive`.
    ///
    /// # Errors
    /// [`BusError::Backend`] when the system gives no thread.
    pub(crate) fn start(archive: &Arc<Archive>, clock: &Arc<dyn Clock>) -> Result<Self, BusError> {
        let queues = Arc::new(Queues { state: Mutex::default(), staging: Condvar::new(), uploading: Condvar::new() });
        let mut stager = Self { queues, threads: Vec::new() };
        let (of, queues) = (Arc::clone(archive), Arc::clone(&stager.queues));
        stager.spawn(STAGER_THREAD, move || stage(&of, &queues))?;
        for _ in 0..archive.uploads() {
            let (of, queues, clock) = (Arc::clone(archive), Arc::clone(&stager.queues), Arc::clone(clock));
            stager.spawn(UPLOAD_THREAD, move || upload(&of, &queues, &*clock))?;
        }
        Ok(stager)
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), BusError> {
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(body);
        self.threads.push(spawned.map_err(|error| BusError::Backend(format!("the thread {name} could not be started: {error}")))?);
        Ok(())
    }

    /// Who does things here, for tasks that go on later.
    pub(crate) fn handle(&self) -> StagerHandle {
        StagerHandle(Arc::clone(&self.queues))
    }

    /// A pass of maintenance begins: uploads are tried again.
    pub(crate) fn wake(&self) {
        self.queues.lock().is_away = false;
    }
}

/// See [`Stager::handle`].
#[derive(Clone)]
pub(crate) struct StagerHandle(Arc<Queues>);

impl StagerHandle {
    /// Has a publication staged.
    ///
    /// # Errors
    /// [`BusError::Busy`], [`BusError::NotSent`] when it is closed; `then` is not called.
    pub(crate) fn stage(&self, op: Op, bytes: u64, then: Then) -> Result<(), BusError> {
        let mut state = self.0.lock();
        if state.is_closed {
            return Err(BusError::NotSent { reason: "the bus is closed".to_owned() });
        }
        if state.publications >= limits::COLD_STAGE_QUEUE.default {
            return Err(BusError::Busy { limit: limits::COLD_STAGE_QUEUE.name });
        }
        if state.bytes.saturating_add(bytes) > limits::COLD_STAGE_QUEUE_BYTES.default {
            return Err(BusError::Busy { limit: limits::COLD_STAGE_QUEUE_BYTES.name });
        }
        state.publications += 1;
        state.bytes += bytes;
        state.jobs.push_back((op, then));
        self.0.staging.notify_one();
        Ok(())
    }

    /// Has something done that follows from a publication: there are no more of these than publications in flight. When it is closed `then`
    /// is dropped.
    pub(crate) fn follow(&self, op: Op, then: Then) {
        let mut state = self.0.lock();
        if !state.is_closed {
            state.jobs.push_back((op, then));
            self.0.staging.notify_one();
        }
    }

    /// Offers an intent that has its offset for uploading.
    pub(crate) fn offer(&self, name: String) {
        let mut state = self.0.lock();
        let has_room = (state.uploads.len() as u64) < limits::COLD_UPLOAD_QUEUE.default;
        if has_room && !state.is_away && !state.is_closed {
            state.uploads.push_back(name);
            self.0.uploading.notify_one();
        }
    }
}

fn stage(archive: &Archive, queues: &Queues) {
    loop {
        let (ops, thens) = {
            let mut state = queues.lock();
            while state.jobs.is_empty() {
                if state.is_closed {
                    return;
                }
                state = queues.staging.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let count = state.jobs.len().min(limits::COLD_BATCH_RECORDS.default_usize());
            let taken: Vec<_> = state.jobs.drain(..count).collect();
            for (op, _) in &taken {
                if let Op::Stage(intent) = op {
                    state.publications = state.publications.saturating_sub(1);
                    state.bytes = state.bytes.saturating_sub(intent.record.payload.len() as u64);
                }
            }
            taken.into_iter().unzip::<_, _, Vec<_>, Vec<_>>()
        };
        let done = archive.outbox.apply(&ops);
        done.into_iter().zip(thens).for_each(|(done, then)| then(done));
    }
}

fn upload(archive: &Archive, queues: &Queues, clock: &dyn Clock) {
    loop {
        let name = {
            let mut state = queues.lock();
            loop {
                if state.is_closed {
                    return;
                }
                if let Some(name) = state.uploads.pop_front() {
                    break name;
                }
                state = queues.uploading.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        };
        if matches!(archive.finish(&Pass::default(), &name, clock.unix()), Finished::Passing) {
            let mut state = queues.lock();
            state.is_away = true;
            state.uploads.clear();
        }
    }
}

impl Drop for Stager {
    fn drop(&mut self) {
        self.queues.lock().is_closed = true;
        self.queues.staging.notify_all();
        self.queues.uploading.notify_all();
        for thread in self.threads.drain(..) {
            // Dropped by one of them, from what it was told to do then, it cannot wait for itself.
            let is_other = thread.thread().id() != std::thread::current().id();
            if is_other && thread.join().is_err() {
                tracing::error!("a thread of the archive panicked");
            }
        }
    }
}
