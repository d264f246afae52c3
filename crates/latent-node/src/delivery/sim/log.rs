//! The fake log: what is durable, what has been asked and not answered, and the [`Source`] that a cycle's commands go to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use latent_core::{
    Attributes, Completer, DeliveredEvent, MediaType, MonoTime, Offset, Partition, TerminationReason, Ticket, TopicName, UnixMillis,
    Verdict,
};

use crate::delivery::{Head, HeadContent, Listing, Postponement, Remembered, SettledSet, Settlement, Source, SourceError};

/// What one run of an event's handler does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    Succeed,
    Reject,
    Fail,
    AskAgain(u64),
    /// It ends before it begins.
    NeverStart,
}

#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) content: HeadContent,
    /// What its runs do, in order; the last one repeats.
    pub(super) script: Vec<Run>,
}

/// What survives a kill.
#[derive(Debug, Default)]
pub(super) struct Durable {
    pub(super) events: Vec<Event>,
    pub(super) settled: BTreeMap<Offset, Settlement>,
    pub(super) attempts: BTreeMap<Offset, Note>,
    pub(super) verdicts: BTreeMap<Offset, Verdict>,
    /// The dead letters, by the event they are of: parking twice stores once.
    pub(super) parked: BTreeMap<Offset, TerminationReason>,
    /// Below this everything has expired.
    pub(super) first: Offset,
    /// What a new process is told of that, if it is told.
    pub(super) first_noted: Offset,
}

/// What is written down about attempts on an event. Notes are written in the order in which they were handed over, which is what
/// their numbers say; here operations end in any order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Note {
    number: u64,
    pub(super) attempts: u32,
    pub(super) not_before: MonoTime,
}

/// An operation that was handed over and not answered.
pub(super) enum Open {
    /// With what was there when it was handed over: by the time of the answer there may be more.
    Pull(Listing, Completer<Result<Listing, SourceError>>),
    Begin(Offset, Note, Completer<Result<DeliveredEvent, SourceError>>),
    Postpone(Offset, Note, Completer<Result<(), SourceError>>),
    Condemn(Offset, Verdict, Completer<Result<(), SourceError>>),
    Park(Offset, TerminationReason, Completer<Result<(), SourceError>>),
    Settle(Offset, Settlement, Completer<Result<(), SourceError>>),
}

/// How an operation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Done,
    /// Nothing happened, and the answer says so.
    Refused,
    /// It happened, and the answer says that it could not be done.
    AnswerLost,
}

#[derive(Default)]
pub(super) struct Log {
    pub(super) durable: Durable,
    pub(super) open: VecDeque<Open>,
    /// The dead-letter topic takes nothing.
    pub(super) no_parking: bool,
    notes: u64,
}

impl Log {
    fn note(&mut self, attempts: u32, not_before: MonoTime) -> Note {
        self.notes += 1;
        Note { number: self.notes, attempts, not_before }
    }
}

/// One partition as a cycle's source. Clones share the log.
#[derive(Clone, Default)]
pub(super) struct FakeSource(Arc<Mutex<Log>>);

impl FakeSource {
    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().expect("one thread at a time")
    }

    /// Ends the `index`-th open operation. Answers arrive through the ticket its caller holds.
    pub(super) fn end(&self, index: usize, ending: Ending) {
        let mut log = self.log();
        let Some(open) = log.open.remove(index) else { return };
        let ending = if log.no_parking && matches!(open, Open::Park(..)) { Ending::Refused } else { ending };
        let first = log.durable.first;
        // Who finds that an event has expired writes nothing down about it.
        let expired = ending == Ending::Done && matches!(open, Open::Begin(offset, ..) | Open::Park(offset, ..) if offset < first);
        if ending != Ending::Refused && !expired {
            log.durable.apply(&open);
        }
        let refused = || SourceError::Unavailable { reason: "scripted".to_owned() };
        match open {
            Open::Pull(listing, completer) if ending == Ending::Done => completer.complete(Ok(listing)),
            Open::Begin(.., completer) if expired => completer.complete(Err(SourceError::Expired { first })),
            Open::Begin(offset, note, completer) if ending == Ending::Done => completer.complete(Ok(event(offset, note.attempts))),
            Open::Park(.., completer) if expired => completer.complete(Err(SourceError::Expired { first })),
            Open::Postpone(.., completer) | Open::Condemn(.., completer) | Open::Park(.., completer) | Open::Settle(.., completer)
                if ending == Ending::Done =>
            {
                completer.complete(Ok(()));
            }
            Open::Pull(.., completer) => completer.complete(Err(refused())),
            Open::Begin(.., completer) => completer.complete(Err(refused())),
            Open::Postpone(.., completer) | Open::Condemn(.., completer) | Open::Park(.., completer) | Open::Settle(.., completer) => {
                completer.complete(Err(refused()))
            }
        }
    }

    /// Kills the process: of what was not answered, the first `kept` operations had reached the disk.
    pub(super) fn kill(&self, kept: usize) {
        let mut log = self.log();
        let open = std::mem::take(&mut log.open);
        let refused = log.no_parking;
        let reached = open.iter().take(kept).filter(|open| !(refused && matches!(open, Open::Park(..))));
        reached.for_each(|open| log.durable.apply(open));
    }
}

impl Durable {
    fn apply(&mut self, open: &Open) {
        match open {
            Open::Pull(..) => {}
            Open::Begin(offset, note, _) | Open::Postpone(offset, note, _) => {
                let noted = self.attempts.entry(*offset).or_default();
                *noted = (*note).max(*noted);
            }
            Open::Condemn(offset, verdict, _) => {
                self.verdicts.entry(*offset).or_insert_with(|| verdict.clone());
            }
            Open::Park(offset, reason, _) if *offset >= self.first => {
                self.parked.entry(*offset).or_insert(*reason);
            }
            Open::Park(..) => {}
            Open::Settle(offset, settlement, _) => {
                self.settled.entry(*offset).or_insert(*settlement);
            }
        }
    }

    fn heads(&self, from: Offset, heads_max: u32) -> Vec<Head> {
        let events = (0_u64..).zip(&self.events).skip_while(|(offset, _)| *offset < from.max(self.first).0);
        events.take(heads_max as usize).map(|(offset, event)| Head { offset: Offset(offset), content: event.content }).collect()
    }

    /// Whether nothing is left to do with an event.
    pub(super) fn is_over(&self, offset: Offset) -> bool {
        offset < self.first || self.settled.contains_key(&offset)
    }

    /// What a new process is told.
    pub(super) fn remembered(&self) -> Remembered {
        let mut settled = SettledSet::up_to(self.first_noted);
        self.settled.keys().for_each(|offset| settled.insert(*offset));
        let attempts = self
            .attempts
            .iter()
            .filter(|(offset, _)| **offset >= self.first_noted)
            .map(|(offset, note)| (*offset, note.attempts, note.not_before))
            .collect();
        let verdicts = self.verdicts.iter().filter(|(offset, _)| **offset >= self.first_noted && !self.settled.contains_key(offset));
        Remembered { settled, attempts, verdicts: verdicts.map(|(offset, verdict)| (*offset, verdict.clone())).collect() }
    }
}

impl Source for FakeSource {
    fn pull(&mut self, from: Offset, heads_max: u32) -> Ticket<Result<Listing, SourceError>> {
        let (ticket, completer) = Ticket::pair(Err(abandoned()));
        let mut log = self.log();
        let listing = Listing { heads: log.durable.heads(from, heads_max), first: log.durable.first };
        log.open.push_back(Open::Pull(listing, completer));
        ticket
    }

    fn begin(&mut self, offset: Offset, attempt: u32) -> Ticket<Result<DeliveredEvent, SourceError>> {
        let (ticket, completer) = Ticket::pair(Err(abandoned()));
        let mut log = self.log();
        let note = log.note(attempt, MonoTime::ZERO);
        log.open.push_back(Open::Begin(offset, note, completer));
        ticket
    }

    fn postpone(&mut self, offset: Offset, postponement: Postponement) -> Ticket<Result<(), SourceError>> {
        let (ticket, completer) = Ticket::pair(Err(abandoned()));
        let mut log = self.log();
        let note = log.note(postponement.attempts, MonoTime::from_millis(postponement.not_before.0));
        log.open.push_back(Open::Postpone(offset, note, completer));
        ticket
    }

    fn condemn(&mut self, offset: Offset, verdict: &Verdict) -> Ticket<Result<(), SourceError>> {
        let (ticket, completer) = Ticket::pair(Err(abandoned()));
        self.log().open.push_back(Open::Condemn(offset, verdict.clone(), completer));
        ticket
    }

    fn park(&mut self, offset: Offset, verdict: &Verdict) -> Ticket<Result<(), SourceError>> {
        let (ticket, completer) = Ticket::pair(Err(abandoned()));
        self.log().open.push_back(Open::Park(offset, verdict.reason, completer));
        ticket
    }

    fn settle(&mut self, offset: Offset, settlement: Settlement) -> Ticket<Result<(), SourceError>> {
        let (ticket, completer) = Ticket::pair(Err(abandoned()));
        self.log().open.push_back(Open::Settle(offset, settlement, completer));
        ticket
    }
}

fn abandoned() -> SourceError {
    SourceError::Unavailable { reason: "killed".to_owned() }
}

fn event(offset: Offset, attempt: u32) -> DeliveredEvent {
    DeliveredEvent {
        topic: TopicName::parse("t").expect("a topic"),
        partition: Partition(0),
        offset,
        uid: None,
        key: String::new(),
        media_type: MediaType::octet_stream(),
        attributes: Attributes::default(),
        payload: Bytes::new(),
        delivery: attempt,
        stored_at: UnixMillis(0),
    }
}
