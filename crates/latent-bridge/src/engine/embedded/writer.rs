//! Commits groups: takes commands from the queue, lets the machine decide, does the I/O it asks for, and hands out the answers.
//!
//! One thread at a time is the writer: the log's own thread, or a publisher that would wait anyway and found the writer idle (then a
//! lone publisher needs no other thread to wake), or who brings a note for a state log that nobody syncs. Order within a group: write every file, answer who waits for no more than that, sync
//! every file, show the records to readers, tell the watcher, let go of the writer, complete the tickets.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, TryLockError};

use latent_core::{Completer, Offset, Partition, UnixMillis};

use super::Shared;
use super::body;
use super::cold::Exported;
use super::commit::{Answer, GroupCommit, Known, Located, Submission, WriteOutcome};
use super::events::Event;
use super::queue::Bound;
use super::retention_pass;
use super::segment::Segment;
use super::state_log::{Durability, StateShared};
use super::state_writer::{self, Entry, Settled, StateCommand, StateGroup};
use super::topic::Topic;
use super::topic_log::{SealedBefore, TopicLog};
use super::watermark::Watermark;
use crate::{BusError, MaintenanceReport, PublishResult};

/// What the writer is asked to do.
pub(super) enum Command {
    /// Store events.
    Publish(Submission<Asker>),
    /// Something about a state log.
    State {
        /// The log.
        log: Arc<StateShared>,
        /// What.
        command: StateCommand,
    },
    /// Give up every offset of a partition below `next`. Comes alone.
    Raise { topic: usize, partition: u32, next: u64, completer: Completer<Result<(), BusError>> },
    /// End segments whose records begin to expire, of topics that are archived. Comes alone.
    EndOldSegments { now: UnixMillis, completer: Completer<Result<(), BusError>> },
    /// Expire what is old; of topics that are archived no more than what was exported. Comes alone.
    Maintain { now: UnixMillis, exported: Exported, completer: Completer<Result<MaintenanceReport, BusError>> },
}

impl Command {
    /// Whether it is done when it is written: it never waits for the disk.
    fn is_note(&self) -> bool {
        matches!(self, Self::State { command: StateCommand::Append { durability: Durability::Written, .. }, .. })
    }
}

/// Who is told what became of a submission.
pub(super) enum Asker {
    One(Completer<PublishResult>),
    Many(Completer<Vec<PublishResult>>),
}

impl Asker {
    fn answer(self, results: Vec<PublishResult>) {
        match self {
            Self::Many(completer) => completer.complete(results),
            Self::One(completer) => {
                if let Some(result) = results.into_iter().next() {
                    completer.complete(result);
                }
            }
        }
    }
}

/// See the module.
pub(super) struct Writer {
    machine: GroupCommit<Asker>,
    logs: Vec<TopicLog>,
    buffer: Vec<u8>,
    /// Submissions of the last group, which tells how many publishers there are.
    last_submissions: usize,
}

/// What a group leaves to do when the writer is free again.
#[derive(Default)]
struct Finished {
    answers: Vec<Answer<Asker>>,
    states: Vec<Settled>,
}

impl Finished {
    fn complete(mut self) {
        std::mem::take(&mut self.answers).into_iter().for_each(|answer| answer.ticket.answer(answer.results));
        self.complete_states();
    }

    /// What is known of state logs so far.
    fn complete_states(&mut self) {
        self.states.drain(..).for_each(|(completer, result)| completer.complete(result));
    }
}

/// Times that a publisher gives way to others before it commits, so that they can join its group.
const GIVE_WAY_MAX: usize = 16;

impl Shared {
    /// The body of the log's own thread: works until the queue is closed and empty, then leaves a watermark for each topic.
    pub(super) fn write_until_closed(&self) {
        let _close = CloseAtEnd(self);
        while self.queue.wait() {
            let Ok(mut writer) = self.writer.lock() else { return };
            let finished = writer.next_group(self);
            drop(writer);
            finished.complete();
        }
        if let Ok(mut writer) = self.writer.lock() {
            (0..self.topics.len()).for_each(|topic| writer.write_watermark(topic));
        }
    }

    /// Commits what waits, unless somebody does so already. For a publisher that is going to wait anyway.
    pub(super) fn write_if_idle(&self) {
        let finished = match self.writer.try_lock() {
            Ok(mut writer) => {
                let _close = CloseOnPanic(self);
                self.let_others_join(writer.last_submissions);
                writer.next_group(self)
            }
            Err(TryLockError::WouldBlock) => return,
            Err(TryLockError::Poisoned(_)) => return self.abandon_queue(),
        };
        finished.complete();
        // Looked at only now that the writer is free: who came in between found it busy and waits.
        if self.queue.waiting() > 0 {
            self.queue.wake();
        }
    }

    /// Writes the notes that wait, up to the first command that needs more, unless somebody is the writer already. For who brings one and
    /// must not wait for the disk.
    pub(super) fn write_notes_if_idle(&self) {
        let finished = match self.writer.try_lock() {
            Ok(mut writer) => {
                let _close = CloseOnPanic(self);
                let notes = self.queue.take_while(self.group_bound(), Command::is_note);
                writer.group(self, notes)
            }
            Err(TryLockError::WouldBlock) => return,
            Err(TryLockError::Poisoned(_)) => return self.abandon_queue(),
        };
        finished.complete();
        if self.queue.waiting() > 0 {
            self.queue.wake();
        }
    }

    fn group_bound(&self) -> Bound {
        Bound { count: self.limits.group_records, bytes: self.limits.group_bytes }
    }

    fn let_others_join(&self, expected: usize) {
        for _ in 0..GIVE_WAY_MAX {
            if self.queue.waiting() >= expected {
                return;
            }
            std::thread::yield_now();
        }
    }

    fn abandon_queue(&self) {
        drop(self.queue.abandon());
    }
}

/// Closes the queue however the thread ends, so that nobody waits for a writer that is gone.
struct CloseAtEnd<'s>(&'s Shared);

impl Drop for CloseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.abandon_queue();
    }
}

/// As [`CloseAtEnd`], when a publisher's thread panics as the writer.
struct CloseOnPanic<'s>(&'s Shared);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abandon_queue();
        }
    }
}

/// How a topic's log reaches the thread that keeps indexes.
struct Indexing<'s> {
    shared: &'s Shared,
    topic: usize,
}

impl SealedBefore for Indexing<'_> {
    fn wait(&self) -> Result<(), BusError> {
        self.shared.indexing.wait_sealed(self.topic)
    }

    fn seal(&self, segment: Arc<Segment>) {
        self.shared.indexing.seal(self.topic, segment);
    }

    fn forget(&self, segment: &Arc<Segment>) {
        self.shared.indexing.forget(self.topic, segment);
    }
}

impl Writer {
    pub(super) fn new(machine: GroupCommit<Asker>, logs: Vec<TopicLog>) -> Self {
        Self { machine, logs, buffer: Vec::new(), last_submissions: 0 }
    }

    fn next_group(&mut self, shared: &Shared) -> Finished {
        let commands = shared.queue.take(shared.group_bound());
        self.last_submissions = commands.len();
        self.group(shared, commands)
    }

    fn group(&mut self, shared: &Shared, commands: Vec<Command>) -> Finished {
        let now = shared.clock.unix();
        let mut states: Vec<StateGroup> = Vec::new();
        let mut finished = Finished::default();
        for command in commands {
            match command {
                Command::Publish(submission) => {
                    let number = submission.topic;
                    let topic = shared.topics.get(number);
                    let known =
                        |event: &Event, body: &[u8]| topic.map_or(Known::Absent, |topic| known(shared, (number, topic), event, body));
                    finished.answers.extend(self.machine.admit(now, submission, known));
                }
                Command::State { log, command: StateCommand::Append { frame, durability, completer } } => {
                    let entry = Entry { frame, durability, completer };
                    finished.states.extend(state_writer::join(&mut states, log, shared.limits.state_log_bytes, entry));
                }
                Command::State { log, command: StateCommand::Replace { frames, completer } } => {
                    let replaced = state_writer::replace(&*shared.storage, &log, &frames, shared.limits.preallocation_bytes);
                    finished.states.push((completer, replaced));
                }
                Command::Raise { topic, partition, next, completer } => {
                    finished.states.push((completer, self.raise(topic, partition, next)));
                }
                Command::EndOldSegments { now, completer } => {
                    self.end_old_segments(shared, now);
                    completer.complete(Ok(()));
                }
                Command::Maintain { now, exported, completer } => completer.complete(Ok(self.maintain(shared, now, &exported))),
            }
        }
        self.machine.drop_empty();
        let written = self.write_topics(shared);
        states.retain_mut(|group| group.write(&mut finished.states));
        // A note of an attempt need not wait for the disk, and what it lets begin goes on while the disk is busy.
        finished.complete_states();
        let settled = self.sync_topics(shared, written);
        states.into_iter().for_each(|group| group.sync(&mut finished.states));
        self.settle(shared, settled, &mut finished);
        finished
    }

    fn write_topics(&mut self, shared: &Shared) -> Vec<(usize, Result<u64, WriteOutcome>)> {
        let mut written = Vec::new();
        for topic in self.machine.touched() {
            let Some(log) = self.logs.get_mut(topic) else { continue };
            self.buffer.clear();
            self.machine.encode(topic, log.topic.salt, &mut self.buffer);
            let records = self.machine.planned(topic);
            written.push((topic, log.append(records, &mut self.buffer, &Indexing { shared, topic })));
        }
        written
    }

    fn sync_topics(&mut self, shared: &Shared, written: Vec<(usize, Result<u64, WriteOutcome>)>) -> Vec<(usize, WriteOutcome)> {
        let mut settled = Vec::with_capacity(written.len());
        for (topic, written) in written {
            let Some(log) = self.logs.get_mut(topic) else { continue };
            let outcome = match written.map(|at| (at, log.sync())) {
                Ok((at, WriteOutcome::Durable)) => {
                    log.show(self.machine.planned(topic), at);
                    WriteOutcome::Durable
                }
                Ok((_, failed)) | Err(failed) => failed,
            };
            if matches!(outcome, WriteOutcome::Unknown) {
                log.topic.poison();
            }
            if log.wants_next() {
                shared.indexing.prepare(topic);
            }
            settled.push((topic, outcome));
        }
        settled
    }

    fn settle(&mut self, shared: &Shared, settled: Vec<(usize, WriteOutcome)>, finished: &mut Finished) {
        for (topic, outcome) in settled {
            if matches!(outcome, WriteOutcome::Durable) {
                self.tell_watcher(shared, topic);
            }
            finished.answers.extend(self.machine.settle(topic, &outcome));
        }
    }

    fn tell_watcher(&self, shared: &Shared, topic: usize) {
        let (Some(watcher), Some(log)) = (shared.watcher(), self.logs.get(topic)) else { return };
        let next = self.machine.planned(topic).map(|record| record.header.identity);
        let next: BTreeMap<u16, u64> = next.map(|identity| (identity.partition, identity.offset.saturating_add(1))).collect();
        for (partition, next) in next {
            let told = || watcher.appended(&log.topic.name, Partition(partition.into()), Offset(next));
            // The watcher is not ours: its panic must not end the writer.
            if catch_unwind(AssertUnwindSafe(told)).is_err() {
                tracing::error!(topic = log.topic.name, partition, "the append watcher panicked");
            }
        }
    }

    fn write_watermark(&mut self, topic: usize) {
        if let (Some(log), Some(next)) = (self.logs.get_mut(topic), self.machine.next_numbers(topic)) {
            log.write_watermark(next);
        }
    }

    /// Durable first, in the watermark; then for readers and for what is written next.
    fn raise(&mut self, topic: usize, partition: u32, next: u64) -> Result<(), BusError> {
        let Some(log) = self.logs.get_mut(topic) else { return Ok(()) };
        let Some(raised) = self.machine.raised(topic, partition, next) else { return Err(log.topic.poisoned_error()) };
        let first = log.topic.read().first.clone();
        log.keep_watermark(Watermark { first, next: raised })?;
        self.machine.raise(topic, partition, next);
        log.topic.write().next.raise(partition as usize, next);
        Ok(())
    }

    fn end_old_segments(&mut self, shared: &Shared, now: UnixMillis) {
        for (topic, log) in self.logs.iter_mut().enumerate() {
            let is_archived = shared.cold.as_ref().is_some_and(|cold| cold.archive.has(&log.topic.name));
            if is_archived && self.machine.next_numbers(topic).is_some() {
                retention_pass::end_segment_with_old_records(log, now.0, &Indexing { shared, topic });
            }
        }
    }

    fn maintain(&mut self, shared: &Shared, now: UnixMillis, exported: &Exported) -> MaintenanceReport {
        let mut report = MaintenanceReport::default();
        for (topic, log) in self.logs.iter_mut().enumerate() {
            // Of a topic whose end is not known nothing is removed either.
            let passed = self.machine.next_numbers(topic).map(|next| {
                let indexing = Indexing { shared, topic };
                let exported = exported.get(&topic).copied();
                retention_pass::run(log, next, retention_pass::Due { now_millis: now.0, exported }, &indexing, &shared.open_segments)
            });
            match passed {
                Some(Ok(expired)) => {
                    report.expired_segments += expired.segments;
                    report.expired_records += expired.records;
                    report.unremoved_files += expired.unremoved_files;
                }
                Some(Err(error)) => {
                    tracing::warn!(topic = log.topic.name, %error, "nothing was expired");
                    report.skipped_topics.push(log.topic.name.clone());
                }
                None => report.skipped_topics.push(log.topic.name.clone()),
            }
        }
        report
    }
}

/// What the topic's durable records say about the uid of an event with this body.
fn known(shared: &Shared, (number, topic): (usize, &Topic), event: &Event, body: &[u8]) -> Known {
    match shared.look_up(number, topic, &event.uid, event.uid_hash) {
        Ok(None) => Known::Absent,
        Ok(Some(found)) if body::same_event(&found.body, body) => Known::SameContent(Located::from(found.identity)),
        Ok(Some(_)) => Known::OtherContent,
        Err(error) => Known::Failed(error),
    }
}
