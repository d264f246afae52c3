//! One partition read again on both sides, to the end: whether they are the same, and what each holds.

use latent_core::{Offset, StoredRecord};

use super::digest::SequenceDigest;
use super::pairing::{Line, Pair, pair};
use super::patience::Patience;
use super::{Finding, Page, Position, RecordDigest, Side, Step, UnreadableRecords};
use crate::BusError;

/// What one side holds of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Records that can be read.
    pub records: u64,
    /// SHA-256 over their digests, in their order.
    pub digest: RecordDigest,
}

/// The end of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    /// Of the source.
    pub source: Held,
    /// Of the destination, without what expired.
    pub destination: Held,
    /// Records at the beginning of the destination that were copied and have expired in the source since.
    pub expired: u64,
    /// Records of the source that cannot be read and were passed over.
    pub passed_over: u64,
    /// The first difference; `None`: both are the same.
    pub finding: Option<Finding>,
}

/// See the module.
pub struct Comparing {
    source: Sum,
    destination: Sum,
    unreadable: UnreadableRecords,
    /// The first record of the source that was ever copied, until the first one of now is known.
    first: Option<Offset>,
    may_have_expired: bool,
    expired: u64,
    passed_over: Vec<Offset>,
    passed_over_count: u64,
    patience: Patience,
    pause: Option<u64>,
    finding: Option<Finding>,
    gave_up: bool,
}

struct Sum {
    line: Line,
    records: u64,
    digest: SequenceDigest,
}

impl Sum {
    fn new(end: Option<Offset>) -> Self {
        Self { line: Line::new(Offset(0), end), records: 0, digest: SequenceDigest::default() }
    }

    fn add(&mut self, stored: &StoredRecord) {
        self.records += 1;
        self.digest.push(RecordDigest::of(&stored.record));
    }

    fn drain(&mut self) {
        while let Some(stored) = self.line.pop() {
            self.add(&stored);
        }
    }

    fn held(&self) -> Held {
        Held { records: self.records, digest: self.digest.clone().finish() }
    }
}

impl Comparing {
    /// A partition whose source counts up to `end`. `known` is what was copied of it.
    pub fn new(end: Offset, unreadable: UnreadableRecords, known: Option<Position>) -> Self {
        Self {
            source: Sum::new(Some(end)),
            destination: Sum::new(None),
            unreadable,
            first: known.map(|known| known.first),
            may_have_expired: false,
            expired: 0,
            passed_over: Vec::new(),
            passed_over_count: 0,
            patience: Patience::default(),
            pause: None,
            finding: None,
            gave_up: false,
        }
    }

    /// What to do next: a read, a pause, or nothing more.
    pub fn step(&mut self) -> Step {
        if let Some(millis) = self.pause.take() {
            return Step::Pause { millis };
        }
        while !self.gave_up {
            if let Some(from) = self.source.line.wants() {
                return Step::ReadSource(from);
            }
            if let Some(from) = self.destination.line.wants() {
                return Step::ReadDestination(from);
            }
            if self.source.line.is_over() && self.destination.line.is_over() {
                break;
            }
            self.compare();
        }
        Step::Done
    }

    /// Answers a read of either side.
    pub fn read(&mut self, side: Side, page: Page) {
        let sum = if side == Side::Source { &mut self.source } else { &mut self.destination };
        self.patience.renew();
        match (sum.line.take(page), side, self.unreadable) {
            (Ok(None), ..) => {}
            (Ok(Some(at)), Side::Source, UnreadableRecords::PassOver) => {
                self.passed_over_count += 1;
                self.passed_over.push(at);
            }
            (Ok(Some(at)), ..) => self.found(Finding::Unreadable { side, at }),
            (Err(error), ..) => self.give_up(side, error),
        }
    }

    /// Answers any step: it could not be done.
    pub fn failed(&mut self, side: Side, error: BusError) {
        match self.patience.pause(&error) {
            Some(millis) => self.pause = Some(millis),
            None => self.give_up(side, error),
        }
    }

    /// Records that were passed over since the last call.
    pub fn take_passed_over(&mut self) -> Vec<Offset> {
        std::mem::take(&mut self.passed_over)
    }

    /// Up to where the source was read.
    pub const fn position(&self) -> Offset {
        self.source.line.next()
    }

    /// What came of it.
    pub fn compared(&self) -> Compared {
        Compared {
            source: self.source.held(),
            destination: self.destination.held(),
            expired: self.expired,
            passed_over: self.passed_over_count,
            finding: self.finding.clone(),
        }
    }

    fn give_up(&mut self, side: Side, error: BusError) {
        self.found(Finding::GaveUp { side, error });
        self.gave_up = true;
    }

    /// The first one counts.
    fn found(&mut self, finding: Finding) {
        self.finding.get_or_insert(finding);
    }

    fn compare(&mut self) {
        if let (Some(first), Some(front)) = (self.first, self.source.line.front()) {
            self.may_have_expired = front.offset > first;
            self.first = None;
        }
        if self.finding.is_some() {
            // What each side holds is told all the same.
            self.source.drain();
            self.destination.drain();
            return;
        }
        match pair(&mut self.source.line, &mut self.destination.line) {
            Pair::Same(from, to) => {
                self.may_have_expired = false;
                self.source.add(&from);
                self.destination.add(&to);
            }
            Pair::Different(_) if self.may_have_expired => {
                self.expired += 1;
                self.destination.line.pop();
            }
            Pair::Different(finding) => self.found(finding),
            Pair::Open => self.one_is_longer(),
        }
    }

    fn one_is_longer(&mut self) {
        let of = |stored: &StoredRecord| (stored.offset, stored.record.uid.clone());
        let missing = self.source.line.front().map(of).map(|(at, uid)| Finding::Missing { at, uid });
        let extra = self.destination.line.front().map(of).map(|(at, uid)| Finding::Extra { at, uid });
        // Everything in the source has expired.
        if missing.is_none() && self.first.is_some() && self.source.records == 0 {
            self.expired += 1;
            self.destination.line.pop();
            return;
        }
        if let Some(finding) = missing.or(extra) {
            self.found(finding);
        }
    }
}
