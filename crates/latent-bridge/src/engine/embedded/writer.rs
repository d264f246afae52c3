//! The writer thread: takes a group from the queue, lets the machine decide, does the I/O it asks for, and hands out the answers.
//!
//! Order within a group: write every file, sync every file, show the records to readers, complete the tickets, tell the watcher.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use latent_core::{Completer, Offset, Partition};

use super::Shared;
use super::append_file::{AppendError, AppendFile, Extent};
use super::commit::{Answer, GroupCommit, Known, Submission, WriteOutcome};
use super::directory::{discard, sync_parent, write_temporary};
use super::frame::frame_bytes;
use super::positions::Place;
use super::queue::Bound;
use super::reader::read_located;
use super::state_log::{Durability, StateShared};
use super::storage::OpenAs;
use super::topic_log::{TopicLog, Written};
use super::uid_index::Located;
use crate::error::base_name;
use crate::{BusError, PublishResult, limits};

/// What the writer is asked to do.
pub(super) enum Command {
    /// Store a record.
    Publish(Submission<Completer<PublishResult>>),
    /// Something about a state log.
    State {
        /// The log.
        log: Arc<StateShared>,
        /// What.
        command: StateCommand,
    },
    /// Give up every offset of a partition below `next`. Comes alone.
    Raise { topic: usize, partition: u32, next: u64, completer: Completer<Result<(), BusError>> },
}

/// What the writer is asked to do with a state log. Entries come as frames.
pub(super) enum StateCommand {
    Append { frame: Vec<u8>, durability: Durability, completer: Completer<Result<(), BusError>> },
    Replace { frames: Vec<u8>, completer: Completer<Result<(), BusError>> },
}

/// See the module.
pub(super) struct Writer {
    shared: Arc<Shared>,
    machine: GroupCommit<Completer<PublishResult>>,
    logs: Vec<TopicLog>,
    buffer: Vec<u8>,
}

/// The entries of one state log in a group.
struct StateGroup {
    log: Arc<StateShared>,
    frames: Vec<u8>,
    written: Vec<Completer<Result<(), BusError>>>,
    synced: Vec<Completer<Result<(), BusError>>>,
}

/// Closes the queue however the thread ends, so that nobody waits for a writer that is gone.
struct CloseAtEnd(Arc<Shared>);

impl Drop for CloseAtEnd {
    fn drop(&mut self) {
        drop(self.0.queue.abandon());
    }
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, machine: GroupCommit<Completer<PublishResult>>, logs: Vec<TopicLog>) -> Self {
        Self { shared, machine, logs, buffer: Vec::new() }
    }

    /// Works until the queue is closed and empty, then leaves a watermark for each topic.
    pub(super) fn run(mut self) {
        let _close = CloseAtEnd(Arc::clone(&self.shared));
        let limits = self.shared.limits;
        let group = Bound { count: limits.group_records, bytes: limits.group_bytes };
        while let Some(commands) = self.shared.queue.take(group) {
            self.group(commands);
        }
        (0..self.logs.len()).for_each(|topic| self.write_watermark(topic));
    }

    fn group(&mut self, commands: Vec<Command>) {
        let now = self.shared.clock.unix();
        let mut states: Vec<StateGroup> = Vec::new();
        let mut answers = Vec::new();
        for command in commands {
            match command {
                Command::Publish(submission) => {
                    let known = self.known(&submission);
                    answers.extend(self.machine.admit(now, submission, known));
                }
                Command::State { log, command: StateCommand::Append { frame, durability, completer } } => {
                    join_state_group(&mut states, log, self.shared.limits.state_log_bytes, Entry { frame, durability, completer });
                }
                Command::State { log, command: StateCommand::Replace { frames, completer } } => {
                    completer.complete(self.replace(&log, &frames));
                }
                Command::Raise { topic, partition, next, completer } => completer.complete(self.raise(topic, partition, next)),
            }
        }
        let written = self.write_topics();
        states.retain_mut(StateGroup::write);
        let settled = self.sync_topics(written);
        states.into_iter().for_each(StateGroup::sync);
        self.finish(answers, settled);
    }

    /// What the topic's durable records say about the uid of a submission.
    fn known(&self, submission: &Submission<Completer<PublishResult>>) -> Known {
        let Some(log) = self.logs.get(submission.topic) else { return Known::Absent };
        match read_located(&*self.shared.storage, &log.topic, submission.uid_hash) {
            Ok(None) => Known::Absent,
            Ok(Some((at, body))) if body == submission.body.bytes => Known::SameContent(at),
            Ok(Some(_)) => Known::OtherContent,
            Err(error) => Known::Failed(error),
        }
    }

    fn write_topics(&mut self) -> Vec<(usize, Result<Written, WriteOutcome>)> {
        let mut written = Vec::new();
        for topic in self.machine.touched() {
            let Some(log) = self.logs.get_mut(topic) else { continue };
            self.buffer.clear();
            let Some(first_sequence) = self.machine.encode(topic, log.topic.salt, &mut self.buffer) else { continue };
            written.push((topic, log.append(first_sequence, &self.buffer)));
        }
        written
    }

    fn sync_topics(&mut self, written: Vec<(usize, Result<Written, WriteOutcome>)>) -> Vec<(usize, WriteOutcome)> {
        let mut settled = Vec::with_capacity(written.len());
        for (topic, written) in written {
            let Some(log) = self.logs.get_mut(topic) else { continue };
            let outcome = match written {
                Ok(written) => match log.sync() {
                    WriteOutcome::Durable => {
                        show(log, &self.machine, topic, written);
                        WriteOutcome::Durable
                    }
                    failed => failed,
                },
                Err(failed) => failed,
            };
            if matches!(outcome, WriteOutcome::Unknown) {
                log.topic.poison();
            }
            settled.push((topic, outcome));
        }
        settled
    }

    fn finish(&mut self, mut answers: Vec<Answer<Completer<PublishResult>>>, settled: Vec<(usize, WriteOutcome)>) {
        let mut appended = Vec::new();
        for (topic, outcome) in settled {
            if matches!(outcome, WriteOutcome::Durable) {
                appended.push((topic, next_of_partitions(&self.machine, topic)));
            }
            answers.extend(self.machine.settle(topic, &outcome));
        }
        for answer in answers {
            answer.ticket.complete(answer.result);
        }
        self.tell_watcher(appended);
    }

    fn tell_watcher(&self, appended: Vec<(usize, BTreeMap<u32, u64>)>) {
        let Some(watcher) = self.shared.watcher() else { return };
        for (topic, partitions) in appended {
            let Some(log) = self.logs.get(topic) else { continue };
            for (partition, next) in partitions {
                let told = || watcher.appended(&log.topic.name, Partition(partition), Offset(next));
                // The watcher is not ours: its panic must not end the writer.
                if catch_unwind(AssertUnwindSafe(told)).is_err() {
                    tracing::error!(topic = log.topic.name, partition, "the append watcher panicked");
                }
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
        log.keep_watermark(&raised)?;
        self.machine.raise(topic, partition, next);
        if let Some(positions) = log.topic.write().positions.get_mut(partition as usize) {
            positions.raise(next);
        }
        Ok(())
    }

    fn replace(&self, log: &StateShared, frames: &[u8]) -> Result<(), BusError> {
        let storage = &*self.shared.storage;
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
        let extent = Extent { length, allocated: length };
        *file = AppendFile::new(new, log.path.clone(), extent, self.shared.limits.preallocation_bytes);
        log.set_length(length);
        let named = sync_parent(storage, &log.path);
        if named.is_err() {
            // After a power cut the old log may be back, so nothing may be promised on top of the new one.
            file.poison();
        }
        named
    }
}

/// Shows durable records to readers.
fn show(log: &TopicLog, machine: &GroupCommit<Completer<PublishResult>>, topic: usize, written: Written) {
    let mut contents = log.topic.write();
    let mut at = written.at;
    for (header, uid_hash) in machine.planned(topic) {
        let place = Place { offset: header.identity.offset, at, segment: written.segment, body_len: header.body_len };
        at += frame_bytes(header.body_len);
        if let Some(positions) = contents.positions.get_mut(header.identity.partition as usize) {
            positions.push(place);
        }
        contents.uids.add(uid_hash, Located::from(header.identity));
    }
}

fn next_of_partitions(machine: &GroupCommit<Completer<PublishResult>>, topic: usize) -> BTreeMap<u32, u64> {
    machine.planned(topic).map(|(header, _)| (header.identity.partition, header.identity.offset.saturating_add(1))).collect()
}

struct Entry {
    frame: Vec<u8>,
    durability: Durability,
    completer: Completer<Result<(), BusError>>,
}

fn join_state_group(groups: &mut Vec<StateGroup>, log: Arc<StateShared>, log_bytes_max: u64, entry: Entry) {
    let at = groups.iter().position(|group| Arc::ptr_eq(&group.log, &log)).unwrap_or_else(|| {
        groups.push(StateGroup { log, frames: Vec::new(), written: Vec::new(), synced: Vec::new() });
        groups.len() - 1
    });
    let Some(group) = groups.get_mut(at) else { return };
    let bytes = group.log.lock().length() + (group.frames.len() + entry.frame.len()) as u64;
    if bytes > log_bytes_max {
        entry.completer.complete(Err(BusError::Busy { limit: limits::STATE_LOG_BYTES.name }));
        return;
    }
    group.frames.extend_from_slice(&entry.frame);
    match entry.durability {
        Durability::Written => group.written.push(entry.completer),
        Durability::Synced => group.synced.push(entry.completer),
    }
}

impl StateGroup {
    /// Writes the entries. False when that ended the group, all of whose tickets are then completed.
    fn write(&mut self) -> bool {
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
        complete_all(self.written.drain(..), &result);
        if result.is_err() {
            complete_all(self.synced.drain(..), &result);
        }
        result.is_ok()
    }

    /// Syncs the log if anybody waits for that.
    fn sync(self) {
        if self.synced.is_empty() {
            return;
        }
        let result = {
            let mut file = self.log.lock();
            file.sync().map_err(|error| BusError::io("sync", file.path(), &error))
        };
        complete_all(self.synced, &result);
    }
}

fn complete_all(completers: impl IntoIterator<Item = Completer<Result<(), BusError>>>, result: &Result<(), BusError>) {
    completers.into_iter().for_each(|completer| completer.complete(result.clone()));
}
