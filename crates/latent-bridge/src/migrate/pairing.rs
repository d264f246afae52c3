//! Two partitions read in step. No decision but which of the two to read next, and whether the two records at hand are the same.

use std::collections::VecDeque;

use latent_core::{Offset, StoredRecord};

use super::{Finding, Page, Part};
use crate::BusError;

/// What was read of one side and not used yet.
#[derive(Debug, Default)]
pub(super) struct Line {
    records: VecDeque<StoredRecord>,
    next: Offset,
    /// Nothing from here on is asked for.
    end: Option<Offset>,
    has_ended: bool,
}

impl Line {
    /// From an offset on, up to another one.
    pub(super) fn new(next: Offset, end: Option<Offset>) -> Self {
        let mut line = Self { next, end, ..Self::default() };
        line.has_ended = end.is_some_and(|end| next >= end);
        line
    }

    /// The record at hand.
    pub(super) fn front(&self) -> Option<&StoredRecord> {
        self.records.front()
    }

    pub(super) fn pop(&mut self) -> Option<StoredRecord> {
        self.records.pop_front()
    }

    /// The first records at hand.
    pub(super) fn iter(&self) -> impl Iterator<Item = &StoredRecord> {
        self.records.iter()
    }

    /// The offset that is read next.
    pub(super) const fn next(&self) -> Offset {
        self.next
    }

    /// Where to read on, when there is nothing at hand and there may be more.
    pub(super) fn wants(&self) -> Option<Offset> {
        (self.records.is_empty() && !self.has_ended).then_some(self.next)
    }

    /// Nothing is at hand and there is no more.
    pub(super) fn is_over(&self) -> bool {
        self.records.is_empty() && self.has_ended
    }

    /// Takes what was read. Says where a record lies that cannot be.
    pub(super) fn take(&mut self, page: Page) -> Result<Option<Offset>, BusError> {
        let is_beyond = |end: Option<Offset>, offset| end.is_some_and(|end| offset >= end);
        match page {
            Page::End => self.has_ended = true,
            Page::Unreadable(offset) if is_beyond(self.end, offset) => self.has_ended = true,
            Page::Unreadable(offset) => {
                self.pass(offset, 0)?;
                return Ok(Some(offset));
            }
            Page::Records(records) => {
                for stored in records {
                    if is_beyond(self.end, stored.offset) {
                        self.has_ended = true;
                        break;
                    }
                    self.pass(stored.offset, stored.partition.0)?;
                    self.records.push_back(stored);
                }
            }
        }
        Ok(None)
    }

    /// What lies at this offset is known and need not be read.
    pub(super) fn step_over(&mut self, at: Offset) -> Result<(), BusError> {
        self.pass(at, 0)
    }

    /// There may be more than there was.
    pub(super) fn reopen(&mut self) {
        self.has_ended = self.end.is_some_and(|end| self.next >= end);
    }

    fn pass(&mut self, answered: Offset, partition: u32) -> Result<(), BusError> {
        if answered < self.next {
            return Err(BusError::Disordered { topic: String::new(), partition, asked: self.next.0, answered: answered.0 });
        }
        match answered.next() {
            Some(next) => self.next = next,
            None => self.has_ended = true,
        }
        self.has_ended |= self.end.is_some_and(|end| self.next >= end);
        Ok(())
    }
}

/// The two records at hand.
#[derive(Debug)]
pub(super) enum Pair {
    /// They are the same, and at hand no longer.
    Same(StoredRecord, StoredRecord),
    /// They are not, and stay.
    Different(Finding),
    /// One is not at hand.
    Open,
}

/// Compares the records at hand.
pub(super) fn pair(source: &mut Line, destination: &mut Line) -> Pair {
    let (Some(from), Some(to)) = (source.front(), destination.front()) else { return Pair::Open };
    if let Some(part) = Part::different(&from.record, &to.record) {
        return Pair::Different(Finding::Different {
            at_source: from.offset,
            source_uid: from.record.uid.clone(),
            at_destination: to.offset,
            destination_uid: to.record.uid.clone(),
            part,
        });
    }
    match (source.pop(), destination.pop()) {
        (Some(from), Some(to)) => Pair::Same(from, to),
        _ => Pair::Open,
    }
}
