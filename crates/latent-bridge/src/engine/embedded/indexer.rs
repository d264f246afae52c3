//! The thread that keeps derived files: the index and the uid run of a full segment, merged runs, and the zeros of the next segment.
//! One for each bus. The writer hands over work and, before it ends another segment, waits for the one before: so at most two
//! segments of a topic have their index in memory.
//!
//! Nothing here is needed for what the log promises. What fails is said to the writer, stays in memory and is tried again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::Shared;
use super::directory::discard;
use super::heal;
use super::prepared;
use super::segment::Segment;
use super::segment_index::{self, index_path};
use super::topic::Topic;
use super::uid_runs::{RunToWrite, SequenceRange};
use crate::BusError;

/// Work for the thread, by number of topic.
#[derive(Default)]
pub(super) struct IndexWork {
    state: Mutex<Work>,
    changed: Condvar,
}

#[derive(Default)]
struct Work {
    seals: VecDeque<(usize, Arc<Segment>)>,
    /// The topic whose segment is being sealed just now.
    sealing: Option<usize>,
    failed: BTreeMap<usize, (Arc<Segment>, BusError)>,
    to_prepare: BTreeSet<usize>,
    /// Topics whose runs changed.
    to_merge: BTreeSet<usize>,
    end: Option<End>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Finish what the next opening would have to do otherwise, then end.
    Asked,
    /// The thread is gone.
    Ended,
}

enum Job {
    Seal(usize, Arc<Segment>),
    Prepare(usize),
    Merge(usize),
}

impl IndexWork {
    fn lock(&self) -> MutexGuard<'_, Work> {
        // The guarded sections cannot panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the index of a full segment written.
    pub(super) fn seal(&self, topic: usize, segment: Arc<Segment>) {
        self.lock().seals.push_back((topic, segment));
        self.changed.notify_all();
    }

    /// Has the next segment's zeros written.
    pub(super) fn prepare(&self, topic: usize) {
        self.lock().to_prepare.insert(topic);
        self.changed.notify_all();
    }

    /// Has the runs of a topic looked at.
    pub(super) fn merge(&self, topic: usize) {
        self.lock().to_merge.insert(topic);
        self.changed.notify_all();
    }

    /// Waits until no full segment of a topic is without index file. One that could not be written is tried again afterwards.
    ///
    /// # Errors
    /// Why it could not be written.
    pub(super) fn wait_sealed(&self, topic: usize) -> Result<(), BusError> {
        let mut work = self.lock();
        loop {
            if let Some((segment, error)) = work.failed.remove(&topic) {
                work.seals.push_back((topic, segment));
                self.changed.notify_all();
                return Err(error);
            }
            if work.sealing != Some(topic) && work.seals.iter().all(|(waiting, _)| *waiting != topic) {
                return Ok(());
            }
            if work.end == Some(End::Ended) {
                return Err(BusError::Backend("the thread that writes indexes has ended; restart".to_owned()));
            }
            work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets the thread end.
    pub(super) fn close(&self) {
        let mut work = self.lock();
        work.end = work.end.or(Some(End::Asked));
        self.changed.notify_all();
    }

    fn is_closed(&self) -> bool {
        self.lock().end.is_some()
    }

    fn next_seal(&self) -> Option<(usize, Arc<Segment>)> {
        let mut work = self.lock();
        let next = work.seals.pop_front();
        work.sealing = next.as_ref().map(|(topic, _)| *topic);
        next
    }

    /// The next job. Full segments come first, because a writer may wait for them. `None` when the thread shall end.
    fn next(&self) -> Option<Job> {
        let mut work = self.lock();
        loop {
            if let Some((topic, segment)) = work.seals.pop_front() {
                work.sealing = Some(topic);
                return Some(Job::Seal(topic, segment));
            }
            if work.end.is_some() {
                return None;
            }
            if let Some(topic) = work.to_prepare.pop_first() {
                return Some(Job::Prepare(topic));
            }
            if let Some(topic) = work.to_merge.pop_first() {
                return Some(Job::Merge(topic));
            }
            work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A segment has expired: whether it could be sealed matters to nobody.
    pub(super) fn forget(&self, topic: usize, segment: &Arc<Segment>) {
        let mut work = self.lock();
        if work.failed.get(&topic).is_some_and(|(failed, _)| Arc::ptr_eq(failed, segment)) {
            work.failed.remove(&topic);
        }
    }

    fn sealed(&self, number: usize, topic: &Topic, segment: Arc<Segment>, result: Result<(), BusError>) {
        let mut work = self.lock();
        work.sealing = None;
        match result {
            Ok(()) => drop(work.to_merge.insert(number)),
            // Looked at under the lock that `forget` takes, so that no failure is left of a segment that has expired.
            Err(error) if topic.read().has(&segment) => drop(work.failed.insert(number, (segment, error))),
            Err(_) => {}
        }
        self.changed.notify_all();
    }
}

/// Says that the thread is gone, however it ends.
struct EndedAtEnd(Arc<Shared>);

impl Drop for EndedAtEnd {
    fn drop(&mut self) {
        self.0.indexing.lock().end = Some(End::Ended);
        self.0.indexing.changed.notify_all();
    }
}

/// The thread's body.
pub(super) fn run(shared: &Arc<Shared>) {
    let _end = EndedAtEnd(Arc::clone(shared));
    while let Some(job) = shared.indexing.next() {
        match job {
            Job::Seal(topic, segment) => seal(shared, topic, segment),
            Job::Prepare(topic) => prepare(shared, topic),
            Job::Merge(topic) => merge(shared, topic),
        }
    }
}

fn seal(shared: &Shared, number: usize, segment: Arc<Segment>) {
    let Some(topic) = shared.topics.get(number) else { return };
    let result = write_index(shared, topic, &segment);
    if let Err(error) = &result {
        tracing::warn!(topic = topic.name, %error, "the index of a full segment could not be written; it stays in memory");
    }
    shared.indexing.sealed(number, topic, segment, result);
}

fn write_index(shared: &Shared, topic: &Topic, segment: &Arc<Segment>) -> Result<(), BusError> {
    let Some(memory) = segment.in_memory() else { return Ok(()) };
    // What has expired needs no index, and a disk that takes none must not hold up what comes after it.
    if !topic.read().has(segment) {
        return Ok(());
    }
    let path = index_path(&segment.path);
    segment_index::write(&*shared.storage, &path, topic.salt, (&memory.summary, &memory.positions))?;
    let range = SequenceRange { first: segment.start.sequence, next: segment.next_sequence };
    let write_run = || topic.run_store.write(RunToWrite { range, level: 0, witness: segment.witness, entries: memory.uids.sorted() });
    let _changing = topic.changing_runs();
    let run = (range.first < range.next).then(write_run).transpose()?;
    let mut contents = topic.write();
    let expired = !contents.has(segment);
    let needless = match run {
        Some(run) if expired => vec![run],
        Some(run) => contents.put_run(run),
        None => Vec::new(),
    };
    if !expired {
        segment.set_memory(None);
    }
    drop(contents);
    if expired {
        discard(&*shared.storage, &path);
    }
    needless.iter().for_each(|run| topic.run_store.remove(run));
    Ok(())
}

fn prepare(shared: &Shared, number: usize) {
    let Some(topic) = shared.topics.get(number) else { return };
    if let Err(error) = prepared::write(&*shared.storage, &topic.directory, shared.limits.segment_bytes) {
        tracing::warn!(topic = topic.name, %error, "the next segment could not be prepared; it is begun without");
    }
}

/// Merges runs while some are due. A full segment goes first, and closing ends a merge half-way, which leaves nothing behind.
fn merge(shared: &Shared, number: usize) {
    let Some(topic) = shared.topics.get(number) else { return };
    loop {
        let (plan, first) = {
            let contents = topic.read();
            let Some(plan) = contents.runs.merge_due() else { return };
            (plan, contents.first.sequence)
        };
        let mut between = || {
            while let Some((number, segment)) = shared.indexing.next_seal() {
                seal(shared, number, segment);
            }
            if shared.indexing.is_closed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match topic.run_store.merge(&plan, first, &mut between) {
            Ok(Some(run)) => {
                let _changing = topic.changing_runs();
                let needless = topic.write().put_run(run);
                needless.iter().for_each(|run| topic.run_store.remove(run));
            }
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(topic = topic.name, %error, "uid runs could not be merged; look-ups go on over more of them");
                // A damaged one is made again at once; a look-up that meets one does the same.
                if let Err(error) = heal::runs_again(&shared.disk(topic), topic, u64::MAX) {
                    tracing::warn!(topic = topic.name, %error, "damaged uid runs could not be made again; look-ups that need them fail");
                }
                return;
            }
        }
    }
}
