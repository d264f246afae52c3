//! The log beside the archive: what it has at the offsets that pass by, page by page.

use std::collections::VecDeque;

use latent_core::{Offset, Partition, Record};

use super::finding::{Finding, FindingKind};
use crate::cold::export::{BusItems, ItemSource as _};
use crate::cold::segment::Item;
use crate::{BusError, EventBus, limits};

/// A partition of the log. What cannot be read of it is told once, and nothing is compared from then on.
pub(super) struct Hot<'b> {
    items: BusItems<'b>,
    bounds: (Offset, Offset),
    from: Offset,
    page: VecDeque<Item>,
    /// What the log has and the archive did not have yet, below the last one seen, ascending.
    passed: Vec<Passed>,
    failed: Option<BusError>,
    is_off: bool,
}

/// Events from one offset to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) count: u64,
}

impl<'b> Hot<'b> {
    pub(super) fn open(bus: &'b dyn EventBus, topic: &str, partition: Partition) -> Self {
        let items = BusItems { bus, topic: topic.to_owned(), partition };
        let (bounds, failed) = match items.bounds() {
            Ok(bounds) => (bounds, None),
            Err(error) => ((Offset(0), Offset(0)), Some(error)),
        };
        Self { items, bounds, from: bounds.0, page: VecDeque::new(), passed: Vec::new(), failed, is_off: false }
    }

    /// Why it could not be read, once.
    pub(super) fn failure(&mut self) -> Option<Finding> {
        let error = self.failed.take()?;
        let problem = format!("the log could not be compared: {error}");
        self.is_off = true;
        Some(Finding::of(FindingKind::Unknown, (&self.items.topic, self.items.partition), self.from, None, problem))
    }

    /// An empty log can be compared as well: nothing may lie behind its end.
    fn is_usable(&self) -> bool {
        self.failed.is_none() && !self.is_off
    }

    /// First offset that the log still has, and the one after its last.
    pub(super) const fn bounds(&self) -> (Offset, Offset) {
        self.bounds
    }

    /// Compares what the archive has next, by ascending offset. `is_compared` counts.
    pub(super) fn compare(&mut self, item: &Item, compared: &mut u64) -> Option<Finding> {
        let offset = item.offset();
        if !self.is_usable() || offset < self.bounds.0 {
            return None;
        }
        let place = (self.items.topic.clone(), self.items.partition);
        let finding = |kind, problem: String| Some(Finding::of(kind, (&place.0, place.1), offset, Some(offset), problem));
        if offset >= self.bounds.1 {
            return finding(FindingKind::Extra, format!("the log ends before offset {}", self.bounds.1));
        }
        let there = self.advance_to(offset)?;
        if there.is_none() && self.has_left(offset) {
            return None;
        }
        *compared += 1;
        match there {
            None => finding(FindingKind::Extra, "the log has no event at this offset".to_owned()),
            Some(there) => difference(item, &there).and_then(|problem| finding(FindingKind::Different, problem)),
        }
    }

    /// Compares one that comes out of order: a single event whose offset lies in a segment.
    pub(super) fn compare_late(&mut self, item: &Item, compared: &mut u64) -> Option<Finding> {
        let offset = item.offset();
        self.forget_passed(offset.0);
        if !self.is_usable() || !(self.bounds.0..self.bounds.1).contains(&offset) {
            return None;
        }
        let there = match self.items.page(offset) {
            Ok(page) => page.into_iter().next().filter(|there| there.offset() == offset),
            Err(error) => {
                self.failed = Some(error);
                return None;
            }
        };
        if there.is_none() && self.has_left(offset) {
            return None;
        }
        *compared += 1;
        let place = (&*self.items.topic, self.items.partition);
        let finding = |kind, problem: String| Some(Finding::of(kind, place, offset, Some(offset), problem));
        match there {
            None => finding(FindingKind::Extra, "the log has no event at this offset".to_owned()),
            Some(there) => difference(item, &there).and_then(|problem| finding(FindingKind::Different, problem)),
        }
    }

    /// Whether the log has let go of an offset since it was opened. It does so while an archive is read.
    fn has_left(&mut self, offset: Offset) -> bool {
        match self.items.bounds() {
            Ok((first, next)) => {
                self.bounds = (first, self.bounds.1.max(next));
                offset < first
            }
            Err(error) => {
                self.failed = Some(error);
                true
            }
        }
    }

    /// What the log has at an offset, and notes what it has before it. The outer `None` when it could not be read.
    fn advance_to(&mut self, offset: Offset) -> Option<Option<Item>> {
        loop {
            while let Some(next) = self.page.front() {
                if next.offset() > offset {
                    return Some(None);
                }
                let next = self.page.pop_front()?;
                self.from = Offset(next.offset().0.saturating_add(1));
                if next.offset() == offset {
                    return Some(Some(next));
                }
                // What is damaged in the log need not be anywhere else.
                if next.record().is_some() {
                    self.note_passed(next.offset().0);
                }
            }
            match self.items.page(self.from) {
                Ok(page) if page.is_empty() => return Some(None),
                Ok(page) => self.page = page.into(),
                Err(error) => {
                    self.failed = Some(error);
                    return None;
                }
            }
        }
    }

    fn note_passed(&mut self, offset: u64) {
        let full = self.passed.len() >= limits::ARCHIVE_FINDINGS.default_usize();
        match self.passed.last_mut() {
            // Between two of a broker's offsets are those of other partitions: too many ranges become one, and never none.
            Some(range) if full || range.last.checked_add(1) == Some(offset) => {
                range.last = offset;
                range.count += 1;
            }
            _ => self.passed.push(Passed { first: offset, last: offset, count: 1 }),
        }
    }

    /// The archive has it after all.
    fn forget_passed(&mut self, offset: u64) {
        let Some(at) = self.passed.iter().position(|range| (range.first..=range.last).contains(&offset)) else { return };
        let Passed { first, last, count } = self.passed.remove(at);
        let left = count.saturating_sub(1);
        let before = offset.checked_sub(1).filter(|before| *before >= first);
        let behind = offset.checked_add(1).filter(|behind| *behind <= last);
        // Which of a range that has gaps are on which side is not known; that all are counted is.
        let in_front = if behind.is_some() { left.min(offset - first) } else { left };
        let parts = [
            before.map(|last| Passed { first, last, count: in_front }),
            behind.map(|first| Passed { first, last, count: left - in_front }),
        ];
        self.passed.splice(at..at, parts.into_iter().flatten().filter(|part| part.count > 0));
    }

    /// What the log has up to `end` and the archive does not. Nothing comes late for it any more.
    pub(super) fn missing(&mut self, end: Offset) -> Vec<Passed> {
        if self.is_usable()
            && end >= self.from
            && let Some(Some(there)) = self.advance_to(end)
            && there.record().is_some()
        {
            self.note_passed(there.offset().0);
        }
        std::mem::take(&mut self.passed)
    }

    /// Nothing before this offset is asked for: the archive begins there, or what it has up to there cannot be compared.
    pub(super) fn begin_at(&mut self, offset: Offset) {
        if offset > self.from {
            self.from = offset.min(self.bounds.1);
            self.page.clear();
        }
    }
}

/// What the archive has that the log has otherwise. A record that the log can no longer read is no difference.
fn difference(archived: &Item, there: &Item) -> Option<String> {
    let (Some(archived), Some(there)) = (archived.record(), there.record()) else {
        let lost = archived.record().is_none() && there.record().is_some();
        return lost.then(|| "the archive has it as damaged, and the log can read it".to_owned());
    };
    let field = fields(archived).into_iter().zip(fields(there)).find(|(one, other)| one != other).map(|((name, _), _)| name);
    let field = field.or_else(|| (archived.attributes != there.attributes).then_some("attributes"))?;
    Some(format!("its {field} differs from that of the log, where the uid is {:?}", there.uid.as_str()))
}

fn fields(record: &Record) -> [(&'static str, &[u8]); 4] {
    [
        ("uid", record.uid.as_str().as_bytes()),
        ("key", record.key.as_bytes()),
        ("media type", record.media_type.as_str().as_bytes()),
        ("payload", &record.payload),
    ]
}
