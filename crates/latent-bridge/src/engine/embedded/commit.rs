//! Group commit, decided without I/O. Whoever holds the writer drives it:
//!
//! 1. [`GroupCommit::admit`] for each submission: an answer at once, or a place in the group.
//! 2. For each topic in [`GroupCommit::touched`]: [`GroupCommit::encode`], write, sync.
//! 3. [`GroupCommit::settle`] with what became of it: the answers.
//!
//! Invariants: sequences and offsets of durable records are dense; a number of a group that was taken back is given again, one of a
//! group whose fate is unknown never; a topic with such a group takes nothing more; every submission is answered exactly once, with
//! one result for each of its events, in their order.

use std::collections::{BTreeMap, HashMap};

use latent_core::{Uid, UncertainCause, UnixMillis};

use super::body::{self, BodySummary};
use super::events::{Event, Events, body_of};
use super::frame::{Header, Identity, Salt};
use super::numbers::Numbers;
use super::uid_map::ByUidHash;
use super::uid_runs::UidHash;
use crate::bus::in_order;
use crate::{BusError, PublishAck, PublishResult};

/// Events of one topic, handed over together. `T` is whatever takes the answer.
pub(super) struct Submission<T> {
    /// Number of the topic.
    pub(super) topic: usize,
    pub(super) events: Events,
    /// The sequence that its first event must get, and that each of its events must follow the one before it; `None`: each for itself.
    pub(super) behind: Option<u64>,
    pub(super) ticket: T,
}

/// A place in a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Located {
    pub(super) partition: u16,
    pub(super) offset: u64,
}

/// What the topic's durable records say about an event's uid.
#[derive(Debug)]
pub(super) enum Known {
    /// No record has it.
    Absent,
    /// A record of the same event has it.
    SameContent(Located),
    /// A record of another event has it.
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

/// The answers to a submission and whose they are.
#[derive(Debug, PartialEq)]
pub(super) struct Answer<T> {
    pub(super) ticket: T,
    pub(super) results: Vec<PublishResult>,
}

/// A record on its way into the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlannedRecord {
    pub(super) header: Header,
    pub(super) uid_hash: UidHash,
}

/// See the module.
pub(super) struct GroupCommit<T> {
    topics: Vec<TopicState>,
    groups: BTreeMap<usize, TopicGroup<T>>,
}

struct TopicState {
    name: String,
    next: Numbers,
    poisoned: bool,
    /// The first planned record of each hash, of the group at hand.
    by_uid: HashMap<UidHash, usize, ByUidHash>,
}

struct TopicGroup<T> {
    submissions: Vec<Pending<T>>,
    planned: Vec<Planned>,
}

struct Pending<T> {
    events: Events,
    fates: Vec<Fate>,
    ticket: T,
}

/// What will become of one event.
enum Fate {
    Answered(PublishResult),
    /// Whatever becomes of the planned record with this number, which is its own.
    First(usize),
    /// It follows another event of the group with the same uid, whose fate decides.
    Follower {
        planned: usize,
        same_content: bool,
    },
}

struct Planned {
    record: PlannedRecord,
    submission: usize,
    /// Its number in the submission.
    event: usize,
    /// Where its frame lies in the submission's frames.
    at: usize,
}

impl<T> GroupCommit<T> {
    /// A machine over topics with these names and next numbers.
    pub(super) fn new(topics: impl IntoIterator<Item = (String, Numbers)>) -> Self {
        let topics =
            topics.into_iter().map(|(name, next)| TopicState { name, next, poisoned: false, by_uid: HashMap::default() }).collect();
        Self { topics, groups: BTreeMap::new() }
    }

    /// Takes a submission into the group, or answers it. `known` is asked for each event and is given its body. `now` becomes the
    /// records' `stored_at` as it is: a wall clock that was wrong once must not decide what later records say.
    pub(super) fn admit(
        &mut self,
        now: UnixMillis,
        submission: Submission<T>,
        mut known: impl FnMut(&Event, &[u8]) -> Known,
    ) -> Option<Answer<T>> {
        let Submission { topic, events, behind, ticket } = submission;
        let Some(state) = self.topics.get_mut(topic) else {
            let unknown = || Err(BusError::UnknownTopic { topic: format!("number {topic}") });
            return Some(Answer { ticket, results: events.events.iter().map(|_| unknown()).collect() });
        };
        let group = self.groups.entry(topic).or_insert_with(TopicGroup::empty);
        let mut fates = Vec::with_capacity(events.events.len());
        let mut at = 0;
        // Why the events from here on are not taken.
        let mut ended = behind.filter(|behind| *behind != state.next.sequence).map(|_| in_order::passed(&state.name));
        for (number, event) in events.events.iter().enumerate() {
            let end = at + usize::try_from(event.frame_bytes()).unwrap_or(usize::MAX);
            let body = body_of(events.frames.get(at..end).unwrap_or_default());
            let fate = match ended.clone().map_or_else(|| state.answer(&event.uid, || known(event, body)), |ended| Err(Err(ended))) {
                Err(result) => Fate::Answered(result),
                Ok(()) => group.plan(state, now, EventToPlan { number, event, admitting: &events, at, body }),
            };
            if behind.is_some() && ended.is_none() && !matches!(fate, Fate::First(_)) {
                ended = Some(in_order::behind_another());
            }
            fates.push(fate);
            at = end;
        }
        if fates.iter().all(|fate| matches!(fate, Fate::Answered(_))) {
            let results = fates.into_iter().map(|fate| state.result(&group.planned, None, fate, &WriteOutcome::Durable)).collect();
            return Some(Answer { ticket, results });
        }
        group.submissions.push(Pending { events, fates, ticket });
        None
    }

    /// Topics of which the group holds records.
    pub(super) fn touched(&self) -> Vec<usize> {
        self.groups.iter().filter(|(_, group)| !group.planned.is_empty()).map(|(topic, _)| *topic).collect()
    }

    /// Appends the frames of a topic's records to `out`, their numbers filled in.
    pub(super) fn encode(&self, topic: usize, salt: Salt, out: &mut Vec<u8>) {
        let Some(group) = self.groups.get(&topic) else { return };
        for planned in &group.planned {
            let header = &planned.record.header;
            let end = planned.at + usize::try_from(header.frame_bytes()).unwrap_or(usize::MAX);
            let frames = group.submissions.get(planned.submission).map_or(&[] as &[u8], |pending| &pending.events.frames);
            let start = out.len();
            out.extend_from_slice(frames.get(planned.at..end).unwrap_or_default());
            if let Some(frame) = out.get_mut(start..) {
                header.seal(salt, frame);
            }
        }
    }

    /// The records of a topic in the order in which they are encoded.
    pub(super) fn planned(&self, topic: usize) -> impl Iterator<Item = PlannedRecord> + Clone {
        self.groups.get(&topic).into_iter().flat_map(|group| group.planned.iter().map(|planned| planned.record))
    }

    /// Ends a topic's part of the group.
    pub(super) fn settle(&mut self, topic: usize, outcome: &WriteOutcome) -> Vec<Answer<T>> {
        let (Some(state), Some(group)) = (self.topics.get_mut(topic), self.groups.remove(&topic)) else { return Vec::new() };
        state.by_uid.clear();
        match outcome {
            WriteOutcome::Durable => {}
            WriteOutcome::NotStored { .. } => {
                group.planned.iter().rev().for_each(|planned| state.next.give_back(planned.record.header.identity));
            }
            WriteOutcome::Unknown => state.poisoned = true,
        }
        let planned = &group.planned;
        let answer = |Pending { events, fates, ticket }: Pending<T>| {
            let fated = fates.into_iter().zip(events.events);
            let results = fated.map(|(fate, event)| state.result(planned, Some(&event.uid), fate, outcome)).collect();
            Answer { ticket, results }
        };
        group.submissions.into_iter().map(answer).collect()
    }

    /// Drops a group without records, so that its topic is free again.
    pub(super) fn drop_empty(&mut self) {
        self.groups.retain(|_, group| !group.planned.is_empty());
    }

    /// The next numbers of a topic with every offset of `partition` below `next` given up; `None` as for
    /// [`GroupCommit::next_numbers`].
    pub(super) fn raised(&self, topic: usize, partition: u32, next: u64) -> Option<Numbers> {
        let mut numbers = self.next_numbers(topic)?.clone();
        numbers.raise(partition as usize, next);
        Some(numbers)
    }

    /// Gives up every offset of `partition` below `next`.
    pub(super) fn raise(&mut self, topic: usize, partition: u32, next: u64) {
        if let Some(state) = self.topics.get_mut(topic) {
            state.next.raise(partition as usize, next);
        }
    }

    /// The next numbers of a topic, or `None` while their truth is unknown.
    pub(super) fn next_numbers(&self, topic: usize) -> Option<&Numbers> {
        let open = |group: &TopicGroup<T>| !group.planned.is_empty();
        self.topics.get(topic).filter(|state| !state.poisoned && !self.groups.get(&topic).is_some_and(open)).map(|state| &state.next)
    }
}

struct EventToPlan<'e> {
    /// In its submission.
    number: usize,
    event: &'e Event,
    /// Its submission.
    admitting: &'e Events,
    at: usize,
    body: &'e [u8],
}

impl<T> TopicGroup<T> {
    fn empty() -> Self {
        Self { submissions: Vec::new(), planned: Vec::new() }
    }

    /// Gives the event a place in the group, or lets it follow the one that has its uid.
    fn plan(&mut self, state: &mut TopicState, now: UnixMillis, wanted: EventToPlan<'_>) -> Fate {
        let EventToPlan { number: number_in_submission, event, admitting, at, body } = wanted;
        let known = state.by_uid.get(&event.uid_hash).copied();
        if let Some(first) = known.and_then(|known| self.first_with(known, &event.uid, admitting)) {
            return Fate::Follower { planned: first, same_content: body::same_event(self.body_of(first, admitting), body) };
        }
        let number = self.planned.len();
        let Some((group_index, identity)) = u16::try_from(number).ok().and_then(|index| Some((index, state.next.assign(event.partition)?)))
        else {
            return Fate::Answered(Err(state.used_up(event.partition)));
        };
        let BodySummary { body_len, body_crc, head_crc } = event.body;
        let header = Header { identity, group_index, stored_at: now.0, body_len, body_crc, head_crc };
        state.by_uid.entry(event.uid_hash).or_insert(number);
        let record = PlannedRecord { header, uid_hash: event.uid_hash };
        self.planned.push(Planned { record, submission: self.submissions.len(), event: number_in_submission, at });
        Fate::First(number)
    }

    /// The planned record with this uid. `known` is the first with its hash, which two uids may share.
    fn first_with(&self, known: usize, uid: &Uid, admitting: &Events) -> Option<usize> {
        let has = |number: &usize| self.planned.get(*number).and_then(|planned| self.uid_of(planned, admitting)) == Some(uid);
        Some(known).filter(has).or_else(|| (known..self.planned.len()).find(has))
    }

    fn uid_of<'e>(&'e self, planned: &Planned, admitting: &'e Events) -> Option<&'e Uid> {
        self.events_of(planned, admitting).events.get(planned.event).map(|event| &event.uid)
    }

    /// The submission of a planned record. `admitting` is the one that is not in the list yet.
    fn events_of<'e>(&'e self, planned: &Planned, admitting: &'e Events) -> &'e Events {
        self.submissions.get(planned.submission).map_or(admitting, |pending| &pending.events)
    }

    fn body_of<'b>(&'b self, planned: usize, admitting: &'b Events) -> &'b [u8] {
        let Some(planned) = self.planned.get(planned) else { return &[] };
        let end = planned.at + usize::try_from(planned.record.header.frame_bytes()).unwrap_or(usize::MAX);
        body_of(self.events_of(planned, admitting).frames.get(planned.at..end).unwrap_or_default())
    }
}

impl TopicState {
    /// Ok when the event must be stored; else its answer.
    fn answer(&self, uid: &Uid, known: impl FnOnce() -> Known) -> Result<(), PublishResult> {
        if self.poisoned {
            return Err(Err(BusError::Poisoned { log: format!("topic {:?}", self.name) }));
        }
        match known() {
            Known::Absent => Ok(()),
            Known::SameContent(at) => Err(Ok(self.ack(uid, at, true))),
            Known::OtherContent => Err(Err(self.conflict(uid))),
            Known::Failed(error) => Err(Err(error)),
        }
    }

    fn result(&self, planned: &[Planned], uid: Option<&Uid>, fate: Fate, outcome: &WriteOutcome) -> PublishResult {
        let (number, same_content, first) = match fate {
            Fate::Answered(result) => return result,
            Fate::First(number) => (number, true, true),
            Fate::Follower { planned, same_content } => (planned, same_content, false),
        };
        let (Some(planned), Some(uid)) = (planned.get(number), uid) else {
            return Err(BusError::Backend("the group lost an event of its own".to_owned()));
        };
        let at = Located::from(planned.record.header.identity);
        match (outcome, same_content) {
            (WriteOutcome::Durable, true) => Ok(self.ack(uid, at, !first)),
            (WriteOutcome::Durable, false) => Err(self.conflict(uid)),
            (WriteOutcome::NotStored { reason }, _) => Err(BusError::NotSent { reason: reason.clone() }),
            (WriteOutcome::Unknown, true) => Err(BusError::Uncertain { uid: uid.clone(), cause: UncertainCause::Storage }),
            // It was never part of the write, whatever became of the one that was.
            (WriteOutcome::Unknown, false) => {
                Err(BusError::NotSent { reason: "another event with this uid is uncertain; restart, then publish again".to_owned() })
            }
        }
    }

    fn ack(&self, uid: &Uid, at: Located, duplicate: bool) -> PublishAck {
        let Located { partition, offset } = at;
        PublishAck { topic: self.name.clone(), partition: partition.into(), offset, uid: uid.as_str().to_owned(), duplicate }
    }

    fn conflict(&self, uid: &Uid) -> BusError {
        BusError::Conflict { topic: self.name.clone(), uid: uid.clone() }
    }

    fn used_up(&self, partition: u16) -> BusError {
        let what = format!("the next offset of topic {:?}, partition {partition}", self.name);
        let problem = "its numbers are used up, which files of another origin or damage can cause; restore the directory from a copy";
        BusError::OutOfRange { what, problem: problem.to_owned() }
    }
}

impl From<Identity> for Located {
    fn from(identity: Identity) -> Self {
        Self { partition: identity.partition, offset: identity.offset }
    }
}

#[cfg(test)]
mod tests;
