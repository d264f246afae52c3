//! Group commit, decided without I/O. The writer thread drives it:
//!
//! 1. [`GroupCommit::admit`] for each publication: an answer at once, or a place in the group.
//! 2. For each topic in [`GroupCommit::touched`]: [`GroupCommit::encode`], write, sync.
//! 3. [`GroupCommit::settle`] with what became of it: the answers.
//!
//! Invariants: sequences and offsets of durable records are dense; a number of a group that was taken back is given again, one of a
//! group whose fate is unknown never; a topic with such a group takes nothing more; every ticket is answered exactly once.

use std::collections::{BTreeMap, HashMap};

use latent_core::{Uid, UncertainCause, UnixMillis};

use super::body::EncodedBody;
use super::frame::{Header, Identity, Salt};
use super::rebuild::NextNumbers;
use super::uid_index::{Located, UidHash};
use crate::{BusError, PublishAck, PublishResult};

/// One publication, checked and encoded. `T` is whatever takes the answer.
pub(super) struct Submission<T> {
    /// Number of the topic.
    pub(super) topic: usize,
    pub(super) partition: u32,
    pub(super) uid: Uid,
    pub(super) uid_hash: UidHash,
    pub(super) body: EncodedBody,
    pub(super) ticket: T,
}

/// What the topic's durable records say about a publication's uid.
#[derive(Debug)]
pub(super) enum Known {
    /// No record has it.
    Absent,
    /// A record with the same body has it.
    SameContent(Located),
    /// A record with another body has it.
    OtherContent,
    /// The record that has it could not be read.
    Failed(BusError),
}

/// What became of a topic's part of the group.
#[derive(Debug)]
pub(super) enum WriteOutcome {
    /// Written and synced.
    Durable,
    /// Certainly not stored.
    NotStored {
        /// Why.
        reason: String,
    },
    /// Perhaps stored.
    Unknown,
}

/// An answer and whose it is.
#[derive(Debug, PartialEq)]
pub(super) struct Answer<T> {
    pub(super) ticket: T,
    pub(super) result: PublishResult,
}

/// See the module.
pub(super) struct GroupCommit<T> {
    topics: Vec<TopicState>,
    groups: BTreeMap<usize, TopicGroup<T>>,
}

struct TopicState {
    name: String,
    next: NextNumbers,
    poisoned: bool,
}

struct TopicGroup<T> {
    planned: Vec<Planned<T>>,
    by_uid: HashMap<UidHash, usize>,
}

struct Planned<T> {
    header: Header,
    uid: Uid,
    uid_hash: UidHash,
    body: EncodedBody,
    ticket: T,
    followers: Vec<Follower<T>>,
}

/// A later publication of the same group with the same uid. Its answer depends on the fate of the first.
struct Follower<T> {
    ticket: T,
    same_content: bool,
}

impl<T> GroupCommit<T> {
    /// A machine over topics with these names and next numbers.
    pub(super) fn new(topics: impl IntoIterator<Item = (String, NextNumbers)>) -> Self {
        let topics = topics.into_iter().map(|(name, next)| TopicState { name, next, poisoned: false }).collect();
        Self { topics, groups: BTreeMap::new() }
    }

    /// Takes a publication into the group, or answers it. `now` becomes its `stored_at` as it is: a wall clock that was wrong once
    /// must not decide what later records say.
    pub(super) fn admit(&mut self, now: UnixMillis, submission: Submission<T>, known: Known) -> Option<Answer<T>> {
        let Submission { topic, partition, uid, uid_hash, body, ticket } = submission;
        let Some(state) = self.topics.get_mut(topic) else {
            return Some(Answer { ticket, result: Err(BusError::UnknownTopic { topic: format!("number {topic}") }) });
        };
        if let Err(result) = state.answer(&uid, known) {
            return Some(Answer { ticket, result });
        }
        let group = self.groups.entry(topic).or_insert_with(|| TopicGroup { planned: Vec::new(), by_uid: HashMap::new() });
        if let Some(first) = group.by_uid.get(&uid_hash).and_then(|at| group.planned.get_mut(*at)) {
            let same_content = first.body.bytes == body.bytes;
            first.followers.push(Follower { ticket, same_content });
            return None;
        }
        let Some(identity) = state.next.assign(partition) else {
            let what = format!("the next offset of topic {:?}, partition {partition}", state.name);
            let problem = "its numbers are used up, which files of another origin or damage can cause; restore the directory from a copy";
            return Some(Answer { ticket, result: Err(BusError::OutOfRange { what, problem: problem.to_owned() }) });
        };
        let body_len = u32::try_from(body.bytes.len()).unwrap_or(u32::MAX);
        let header = Header { identity, stored_at: now.0, body_len, body_crc: body.body_crc, head_crc: body.head_crc };
        group.by_uid.insert(uid_hash, group.planned.len());
        group.planned.push(Planned { header, uid, uid_hash, body, ticket, followers: Vec::new() });
        None
    }

    /// Topics of which the group holds records.
    pub(super) fn touched(&self) -> Vec<usize> {
        self.groups.iter().filter(|(_, group)| !group.planned.is_empty()).map(|(topic, _)| *topic).collect()
    }

    /// Appends the frames of a topic's records to `out` and returns the first one's sequence.
    pub(super) fn encode(&self, topic: usize, salt: Salt, out: &mut Vec<u8>) -> Option<u64> {
        let group = self.groups.get(&topic)?;
        group.planned.iter().for_each(|planned| planned.header.encode(salt, &planned.body.bytes, out));
        group.planned.first().map(|first| first.header.identity.sequence)
    }

    /// The records of a topic in the order in which they were encoded.
    pub(super) fn planned(&self, topic: usize) -> impl Iterator<Item = (&Header, UidHash)> {
        self.groups.get(&topic).into_iter().flat_map(|group| group.planned.iter().map(|planned| (&planned.header, planned.uid_hash)))
    }

    /// Ends a topic's part of the group.
    pub(super) fn settle(&mut self, topic: usize, outcome: &WriteOutcome) -> Vec<Answer<T>> {
        let (Some(state), Some(group)) = (self.topics.get_mut(topic), self.groups.remove(&topic)) else { return Vec::new() };
        match outcome {
            WriteOutcome::Durable => {}
            WriteOutcome::NotStored { .. } => {
                group.planned.iter().rev().for_each(|planned| state.next.give_back(planned.header.identity));
            }
            WriteOutcome::Unknown => state.poisoned = true,
        }
        let mut answers = Vec::with_capacity(group.planned.len());
        for planned in group.planned {
            let Planned { header, uid, ticket, followers, .. } = planned;
            answers.push(Answer { ticket, result: state.first_answer(&uid, header.identity, outcome) });
            answers.extend(followers.into_iter().map(|follower| Answer {
                result: state.follower_answer(&uid, header.identity, outcome, follower.same_content),
                ticket: follower.ticket,
            }));
        }
        answers
    }

    /// The next numbers of a topic with every offset of `partition` below `next` given up; `None` as for
    /// [`GroupCommit::next_numbers`].
    pub(super) fn raised(&self, topic: usize, partition: u32, next: u64) -> Option<NextNumbers> {
        let mut numbers = self.next_numbers(topic)?.clone();
        numbers.raise(partition, next);
        Some(numbers)
    }

    /// Gives up every offset of `partition` below `next`.
    pub(super) fn raise(&mut self, topic: usize, partition: u32, next: u64) {
        if let Some(state) = self.topics.get_mut(topic) {
            state.next.raise(partition, next);
        }
    }

    /// The next numbers of a topic, or `None` while their truth is unknown.
    pub(super) fn next_numbers(&self, topic: usize) -> Option<&NextNumbers> {
        self.topics.get(topic).filter(|state| !state.poisoned && !self.groups.contains_key(&topic)).map(|state| &state.next)
    }
}

impl NextNumbers {
    fn assign(&mut self, partition: u32) -> Option<Identity> {
        let offset = self.offsets.get_mut(partition as usize)?;
        let identity = Identity { sequence: self.sequence, partition, offset: *offset };
        // Both or neither: a number that was taken and not used would be a gap.
        let (next_offset, next_sequence) = (offset.checked_add(1)?, self.sequence.checked_add(1)?);
        (*offset, self.sequence) = (next_offset, next_sequence);
        Some(identity)
    }

    fn raise(&mut self, partition: u32, next: u64) {
        if let Some(offset) = self.offsets.get_mut(partition as usize) {
            *offset = next.max(*offset);
        }
    }

    /// Undoes [`NextNumbers::assign`]; the latest first.
    fn give_back(&mut self, identity: Identity) {
        self.sequence = identity.sequence;
        if let Some(offset) = self.offsets.get_mut(identity.partition as usize) {
            *offset = identity.offset;
        }
    }
}

impl TopicState {
    /// Ok when the publication must be stored; else its answer.
    fn answer(&self, uid: &Uid, known: Known) -> Result<(), PublishResult> {
        if self.poisoned {
            return Err(Err(BusError::Poisoned { log: format!("topic {:?}", self.name) }));
        }
        match known {
            Known::Absent => Ok(()),
            Known::SameContent(at) => Err(Ok(self.ack(uid, at, true))),
            Known::OtherContent => Err(Err(self.conflict(uid))),
            Known::Failed(error) => Err(Err(error)),
        }
    }

    fn ack(&self, uid: &Uid, at: Located, duplicate: bool) -> PublishAck {
        PublishAck { topic: self.name.clone(), partition: at.partition, offset: at.offset, uid: uid.as_str().to_owned(), duplicate }
    }

    fn conflict(&self, uid: &Uid) -> BusError {
        BusError::Conflict { topic: self.name.clone(), uid: uid.clone() }
    }

    fn first_answer(&self, uid: &Uid, identity: Identity, outcome: &WriteOutcome) -> PublishResult {
        match outcome {
            WriteOutcome::Durable => Ok(self.ack(uid, identity.into(), false)),
            WriteOutcome::NotStored { reason } => Err(BusError::NotSent { reason: reason.clone() }),
            WriteOutcome::Unknown => Err(BusError::Uncertain { uid: uid.clone(), cause: UncertainCause::Storage }),
        }
    }

    fn follower_answer(&self, uid: &Uid, identity: Identity, outcome: &WriteOutcome, same_content: bool) -> PublishResult {
        match (outcome, same_content) {
            (WriteOutcome::Durable, true) => Ok(self.ack(uid, identity.into(), true)),
            (WriteOutcome::Durable, false) => Err(self.conflict(uid)),
            // It was never part of the write, whatever became of the one that was.
            (WriteOutcome::Unknown, false) => {
                Err(BusError::NotSent { reason: "another event with this uid is uncertain; restart, then publish again".to_owned() })
            }
            (WriteOutcome::Unknown, true) | (WriteOutcome::NotStored { .. }, _) => self.first_answer(uid, identity, outcome),
        }
    }
}

impl From<Identity> for Located {
    fn from(identity: Identity) -> Self {
        Self { partition: identity.partition, offset: identity.offset }
    }
}

#[cfg(test)]
mod tests;
