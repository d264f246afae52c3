//! One partition copied: first what the destination has already is compared in step, then what it lacks is published behind it.
//!
//! After every failure that may pass the destination is looked at again from where it was last known, and only then published to: what
//! became of an uncertain publication is read there, not guessed.

use latent_core::{NewRecord, Offset, Record, StoredRecord};

use super::pairing::{Line, Pair, pair};
use super::patience::Patience;
use super::{Finding, Page, Position, RecordDigest, Side, Step, UnreadableRecords};
use crate::bus::in_order::is_new;
use crate::{BusError, Fence, PublishResult, limits};

/// What was done for a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Copied {
    /// Published now.
    pub copied: u64,
    /// Found in the destination and compared.
    pub already_there: u64,
    /// In the destination, and expired in the source since they were copied.
    pub expired: u64,
    /// Records of the source that cannot be read and were passed over.
    pub passed_over: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Copying {
    source: Line,
    destination: Line,
    end: Offset,
    unreadable: UnreadableRecords,
    /// Where an earlier run was, until the records that it names were seen.
    witness: Option<Position>,
    /// What the destination has next may have expired in the source.
    may_have_expired: bool,
    was_disbelieved: bool,
    position: Option<Position>,
    phase: Phase,
    /// Where the topic ended before the destination's end was read; while publishing, where it ends.
    fence: Option<Fence>,
    patience: Patience,
    pause: Option<u64>,
    /// The record whose publication was answered with an earlier one of its uid.
    doubted: Option<Offset>,
    passed_over: Vec<Offset>,
    counts: Copied,
    finding: Option<Finding>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// What the destination has.
    Comparing,
    /// Its end was read. Whether the topic ended there all the while is asked.
    Confirming,
    Publishing,
}

impl Copying {
    /// A partition whose source is copied up to `end`. `known` is where an earlier run was.
    pub fn new(end: Offset, unreadable: UnreadableRecords, known: Option<Position>) -> Self {
        let (from, to) = known.map_or((Offset(0), Offset(0)), |known| (known.source, known.destination));
        Self {
            source: Line::new(from, Some(end)),
            destination: Line::new(to, None),
            end,
            unreadable,
            witness: known,
            may_have_expired: false,
            was_disbelieved: false,
            position: None,
            phase: Phase::Comparing,
            fence: None,
            patience: Patience::default(),
            pause: None,
            doubted: None,
            passed_over: Vec::new(),
            counts: Copied::default(),
            finding: None,
        }
    }

    /// What to do next. After [`Step::Done`] there is nothing more.
    pub fn step(&mut self) -> Step {
        if let Some(millis) = self.pause.take() {
            return Step::Pause { millis };
        }
        while self.finding.is_none() {
            let step = match self.phase {
                Phase::Comparing => self.compare(),
                Phase::Confirming => Some(Step::Fence),
                Phase::Publishing => self.publish(),
            };
            if let Some(step) = step {
                return step;
            }
        }
        Step::Done
    }

    /// Answers [`Step::Fence`].
    pub fn fenced(&mut self, fence: Fence) {
        let known = self.fence.replace(fence);
        if self.phase == Phase::Confirming {
            if known == Some(fence) {
                self.phase = Phase::Publishing;
            } else {
                // Something was stored while the end was read: perhaps behind what was seen of it.
                self.phase = Phase::Comparing;
                self.destination.reopen();
            }
        }
    }

    /// Answers a read of either side.
    pub fn read(&mut self, side: Side, page: Page) {
        let line = if side == Side::Source { &mut self.source } else { &mut self.destination };
        match (line.take(page), side, self.unreadable) {
            (Ok(None), ..) => {}
            (Ok(Some(at)), Side::Source, UnreadableRecords::PassOver) => {
                self.counts.passed_over += 1;
                self.passed_over.push(at);
            }
            (Ok(Some(at)), ..) => self.finding = Some(Finding::Unreadable { side, at }),
            (Err(error), ..) => self.finding = Some(Finding::GaveUp { side, error }),
        }
    }

    /// Answers [`Step::Publish`].
    pub fn published(&mut self, results: Vec<PublishResult>) {
        for result in results {
            if !is_new(&result) {
                // What is said of those behind it is read again: they may lie there all the same, each in its place.
                self.stumbled(result);
                break;
            }
            if let (Ok(ack), Some(stored)) = (result, self.source.pop()) {
                self.stored(&stored, Offset(ack.offset));
            }
        }
    }

    /// Answers any step: it could not be done.
    pub fn failed(&mut self, side: Side, error: BusError) {
        match self.patience.pause(&error) {
            Some(millis) => {
                self.pause = Some(millis);
                self.look_again();
            }
            None => self.finding = Some(Finding::GaveUp { side, error }),
        }
    }

    /// How far it is: what is known to be in the destination.
    pub const fn position(&self) -> Option<Position> {
        self.position
    }

    /// What an earlier run knew was not found so, and everything is compared from the beginning.
    pub const fn was_disbelieved(&self) -> bool {
        self.was_disbelieved
    }

    /// Records that were passed over since the last call.
    pub fn take_passed_over(&mut self) -> Vec<Offset> {
        std::mem::take(&mut self.passed_over)
    }

    /// What was done.
    pub const fn counts(&self) -> Copied {
        self.counts
    }

    /// Why it ended before its end.
    pub const fn finding(&self) -> Option<&Finding> {
        self.finding.as_ref()
    }

    /// The end of the destination is not known any more.
    fn look_again(&mut self) {
        self.fence = None;
        self.phase = Phase::Comparing;
        self.destination.reopen();
    }

    fn compare(&mut self) -> Option<Step> {
        // Before the end is read, and once more after it: only what was read while nothing came is the end.
        if self.fence.is_none() {
            return Some(Step::Fence);
        }
        if let Some(from) = self.destination.wants() {
            return Some(Step::ReadDestination(from));
        }
        if self.destination.is_over() && self.witness.is_none() {
            self.phase = Phase::Confirming;
            return None;
        }
        if let Some(from) = self.source.wants() {
            return Some(Step::ReadSource(from));
        }
        match self.witness {
            Some(known) => self.hear(known),
            None => self.pair(),
        }
        None
    }

    /// Whether the records are there that an earlier run names.
    fn hear(&mut self, known: Position) {
        self.witness = None;
        let is_last = |stored: &StoredRecord| RecordDigest::of(&stored.record) == known.last;
        let is_there = self.destination.front().is_some_and(|stored| stored.offset == known.destination && is_last(stored));
        let at_source = self.source.front().filter(|stored| stored.offset == known.source);
        if !is_there || !at_source.is_none_or(is_last) {
            self.was_disbelieved = true;
            (self.source, self.destination) = (Line::new(Offset(0), Some(self.end)), Line::new(Offset(0), None));
            self.fence = None;
            return;
        }
        self.may_have_expired = at_source.is_none();
        if at_source.is_some() {
            self.source.pop();
        }
        self.destination.pop();
        self.position = Some(known);
    }

    fn pair(&mut self) {
        if self.source.is_over() {
            self.finding = self.destination.front().map(|extra| Finding::Extra { at: extra.offset, uid: extra.record.uid.clone() });
            return;
        }
        match pair(&mut self.source, &mut self.destination) {
            Pair::Open => {}
            Pair::Same(from, to) => {
                self.counts.already_there += 1;
                self.may_have_expired = false;
                self.moved(&from, to.offset);
            }
            Pair::Different(_) if self.may_have_expired => {
                self.counts.expired += 1;
                self.destination.pop();
            }
            Pair::Different(finding) => self.finding = Some(finding),
        }
    }

    fn publish(&mut self) -> Option<Step> {
        if let Some(from) = self.source.wants() {
            return Some(Step::ReadSource(from));
        }
        if self.source.is_over() {
            return Some(Step::Done);
        }
        let Some(fence) = self.fence else {
            self.look_again();
            return None;
        };
        let mut records = Vec::new();
        for stored in self.source.iter().take(limits::MIGRATE_BATCH_RECORDS.default_usize()) {
            match anew(&stored.record) {
                Ok(record) => records.push(record),
                // What is before it is published first.
                Err(_) if !records.is_empty() => break,
                Err(error) => {
                    self.finding = Some(Finding::Refused { at: stored.offset, uid: stored.record.uid.clone(), error });
                    return None;
                }
            }
        }
        Some(Step::Publish { fence, records })
    }

    fn stored(&mut self, stored: &StoredRecord, at: Offset) {
        self.counts.copied += 1;
        self.fence = self.fence.map(|fence| fence.after(1));
        if let Err(error) = self.destination.step_over(at) {
            self.finding = Some(Finding::GaveUp { side: Side::Destination, error });
        }
        self.moved(stored, at);
    }

    fn moved(&mut self, stored: &StoredRecord, at: Offset) {
        self.patience.renew();
        let (first, records) = self.position.map_or((stored.offset, 0), |position| (position.first, position.records));
        let last = RecordDigest::of(&stored.record);
        self.position = Some(Position { first, source: stored.offset, destination: at, records: records.saturating_add(1), last });
    }

    /// The record at hand was not stored as a new one.
    fn stumbled(&mut self, result: PublishResult) {
        let Some((at, uid)) = self.source.front().map(|stored| (stored.offset, stored.record.uid.clone())) else { return };
        match result {
            Ok(ack) if self.doubted == Some(at) => {
                self.finding = Some(Finding::Doubled { at, uid, partition: ack.partition, first: Offset(ack.offset) });
            }
            // A publication of an earlier run, or one that was given up, came first. It is looked for at the end.
            Ok(_) => {
                self.doubted = Some(at);
                self.look_again();
            }
            Err(error) if error.is_permanent() || matches!(error, BusError::Unreadable { .. }) => {
                self.finding = Some(Finding::Refused { at, uid, error });
            }
            Err(error) => self.failed(Side::Destination, error),
        }
    }
}

/// The record, to be published again under its uid.
fn anew(record: &Record) -> Result<NewRecord, BusError> {
    let Record { uid, key, media_type, attributes, payload, stored_at: _ } = record.clone();
    Ok(NewRecord::new(Some(uid), &key, media_type, attributes, payload)?)
}
