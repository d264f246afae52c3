//! What is known of a log that removes events by itself: up to where it was looked through, what was seen there and still waits, and what it
//! lost before it was archived. No I/O.
//!
//! ```text
//!           archived            looked through: nobody's     seen, waits     not seen
//! ├──────────────────────────┼───────────────────────────┼──────────────┼───────────▶
//!                          head                         upto          seen.last
//! ```
//!
//! A broker removes from the front, so a log that begins behind `upto + 1` has lost what lay between, or may have: offsets are those of all
//! partitions. What is removed out of the middle is found when fewer events are read than were seen before.

use latent_core::{Offset, UnixMillis};

use crate::cold::segment::{Hole, HoleReason};
use crate::limits;

/// Where a log begins and ends, over all partitions that share its offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSpan {
    /// Below it nothing is there any more.
    pub first: Offset,
    /// The offset after the last one that was given.
    pub next: Offset,
}

/// Events of the partition that were read and wait for their segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The first one.
    pub first: Offset,
    /// The last one.
    pub last: Offset,
    /// How many.
    pub events: u64,
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lookout {
    /// Everything of the partition up to here is in the archive, in a hole, or was never there.
    pub upto: Offset,
    /// What waits behind it, as far as it was seen.
    pub seen: Option<Seen>,
}

/// How far a partition was read for its next segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tally {
    /// Events read that had been seen before.
    pub(super) again: u64,
    /// Whether everything was passed that had been seen before.
    pub(super) is_past: bool,
}

impl Tally {
    /// One more is looked at. The last one may find no room; if it had been seen, those behind it are read again as well.
    pub(super) fn pass(&mut self, offset: Offset, seen: Option<Seen>) {
        let Some(seen) = seen else { return };
        self.again += u64::from((seen.first..=seen.last).contains(&offset));
        self.is_past |= offset > seen.last;
    }
}

const fn before(offset: Offset) -> Offset {
    Offset(offset.0.saturating_sub(1))
}

impl Lookout {
    /// Of a partition that was never looked at, and is archived up to `last`. What the log does not have at this moment nobody promised.
    pub(super) fn begin(span: LogSpan, last: Option<Offset>) -> Self {
        Self { upto: before(span.first).max(last.unwrap_or(Offset(0))), seen: None }
    }

    /// Takes in where the log begins now. The hole, if it begins behind what was looked through. `is_read`: everything that was there has
    /// just been read, so that what was seen is not lost.
    pub(super) fn removed(&mut self, span: LogSpan, is_read: bool, now: UnixMillis) -> Option<Hole> {
        let (first, last) = (Offset(self.upto.0.saturating_add(1)), before(span.first));
        if last < first {
            return None;
        }
        let lost = |seen: Seen| if seen.last <= last { seen.events } else { u64::from(seen.first <= last) };
        let events = self.seen.filter(|_| !is_read).map_or(0, lost);
        self.upto = last;
        // Of what is left of it the number is not known.
        self.seen = self.seen.filter(|seen| seen.first > last);
        Some(hole((first, last), events, now))
    }

    /// Takes in what was read again. The hole, if not all of what had been seen was there.
    pub(super) fn read(&mut self, tally: Tally, now: UnixMillis) -> Option<Hole> {
        let seen = self.seen.filter(|_| tally.is_past)?;
        let events = seen.events.checked_sub(tally.again).filter(|events| *events > 0)?;
        self.seen = None;
        Some(hole((seen.first, seen.last), events, now))
    }

    /// The archive goes up to `last` now, with so many items more.
    pub(super) fn archived(&mut self, last: Offset, items: u64) {
        self.upto = self.upto.max(last);
        self.seen = self.seen.filter(|seen| seen.last > last).map(|seen| {
            let first = seen.first.max(Offset(last.0.saturating_add(1)));
            Seen { first, events: seen.events.saturating_sub(items), ..seen }
        });
    }

    /// The partition was read to its end, when the log was at least `span`, and this is what waits of it.
    pub(super) fn waits(&mut self, span: LogSpan, seen: Option<Seen>) {
        let upto = seen.map_or_else(|| before(span.next), |seen| before(seen.first));
        self.upto = self.upto.max(upto);
        self.seen = seen;
    }

    /// Whether the log is one that was never looked through: it ends before.
    pub(super) fn is_beyond(&self, span: LogSpan) -> bool {
        self.upto >= span.next
    }
}

const fn hole((first, last): (Offset, Offset), events: u64, found_at: UnixMillis) -> Hole {
    Hole { first, last, events, found_at, reason: HoleReason::RemovedBeforeArchived }
}

/// A hole and where in the chain it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptHole {
    /// The hole.
    pub hole: Hole,
    /// Number of the segment that names it, once there is one.
    pub segment: u64,
}

/// The holes of a partition's archive: the last `limits::ARCHIVE_HOLES`, and how many there are. All of them are in the chain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holes {
    pub(super) kept: Vec<KeptHole>,
    pub(super) total: u64,
}

impl Holes {
    /// The last ones, ascending.
    pub fn kept(&self) -> &[KeptHole] {
        &self.kept
    }

    /// How many there are.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The one that the segment of this number has to name.
    pub(super) fn before(&self, segment: u64) -> Option<Hole> {
        self.kept.last().filter(|kept| kept.segment == segment).map(|kept| kept.hole)
    }

    /// One more, before the segment of this number. With nothing archived in between, two are one.
    pub(super) fn note(&mut self, hole: Hole, segment: u64) {
        if let Some(KeptHole { hole: known, .. }) = self.kept.last_mut().filter(|kept| kept.segment == segment) {
            known.first = known.first.min(hole.first);
            known.last = known.last.max(hole.last);
            known.events = known.events.saturating_add(hole.events);
            return;
        }
        self.kept.push(KeptHole { hole, segment });
        self.total = self.total.saturating_add(1);
        if self.kept.len() > limits::ARCHIVE_HOLES.default_usize() {
            self.kept.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(7);

    fn span(first: u64, next: u64) -> LogSpan {
        LogSpan { first: Offset(first), next: Offset(next) }
    }

    fn seen(first: u64, last: u64, events: u64) -> Option<Seen> {
        Some(Seen { first: Offset(first), last: Offset(last), events })
    }

    fn lookout(upto: u64, seen: Option<Seen>) -> Lookout {
        Lookout { upto: Offset(upto), seen }
    }

    fn told(hole: Option<Hole>) -> Option<(u64, u64, u64)> {
        hole.map(|hole| (hole.first.0, hole.last.0, hole.events))
    }

    #[test]
    fn what_a_log_does_not_have_when_it_is_first_looked_at_is_no_hole() {
        let mut first = Lookout::begin(span(1_000, 1_001), None);
        assert_eq!((first.upto, told(first.removed(span(1_000, 2_000), false, NOW))), (Offset(999), None));
        assert_eq!(Lookout::begin(span(1, 1), None).upto, Offset(0));
        assert_eq!(Lookout::begin(span(5, 100), Some(Offset(50))).upto, Offset(50));
    }

    #[test]
    fn a_log_that_begins_behind_what_was_looked_through_has_a_hole_once() {
        let mut one = lookout(10, None);
        assert_eq!(told(one.removed(span(11, 50), false, NOW)), None, "the next one is there");
        assert_eq!(told(one.removed(span(12, 50), false, NOW)), Some((11, 11, 0)));
        assert_eq!(told(one.removed(span(12, 50), false, NOW)), None);
        assert_eq!(told(one.removed(span(51, 51), false, NOW)), Some((12, 50, 0)));
        assert_eq!(one, lookout(50, None));
    }

    #[test]
    fn events_that_had_been_seen_are_lost_for_certain() {
        for (begins, events, left) in [(41, 12, None), (30, 1, None), (15, 0, seen(20, 40, 12)), (20, 0, seen(20, 40, 12))] {
            let mut one = lookout(10, seen(20, 40, 12));
            assert_eq!(told(one.removed(span(begins, 60), false, NOW)), Some((11, begins - 1, events)));
            assert_eq!(one, lookout(begins - 1, left));
        }
        let mut read = lookout(10, seen(20, 40, 12));
        assert_eq!(told(read.removed(span(41, 60), true, NOW)), Some((11, 40, 0)), "removed while it was read, or just after");
    }

    #[test]
    fn fewer_than_were_seen_is_a_hole_when_all_of_them_were_passed() {
        let tally = |again, is_past| Tally { again, is_past };
        for (tally, expected) in [(tally(12, true), None), (tally(9, false), None), (tally(9, true), Some((20, 40, 3)))] {
            let mut one = lookout(10, seen(20, 40, 12));
            assert_eq!(told(one.read(tally, NOW)), expected);
            assert_eq!(one.seen.is_none(), expected.is_some());
        }
        assert_eq!(told(lookout(10, None).read(tally(0, true), NOW)), None);
    }

    #[test]
    fn what_was_archived_is_not_expected_again() {
        let mut one = lookout(10, seen(20, 40, 12));
        one.archived(Offset(30), 8);
        assert_eq!(one, lookout(30, seen(31, 40, 4)));
        one.archived(Offset(45), 7);
        assert_eq!(one, lookout(45, None));
    }

    #[test]
    fn it_was_looked_through_up_to_what_waits_or_to_the_end() {
        let mut one = lookout(10, None);
        one.waits(span(1, 60), seen(20, 64, 12));
        assert_eq!(one, lookout(19, seen(20, 64, 12)));
        one.waits(span(1, 80), None);
        assert_eq!(one, lookout(79, None));
        one.waits(span(1, 60), None);
        assert_eq!((one.upto, one.is_beyond(span(1, 79)), one.is_beyond(span(1, 80))), (Offset(79), true, false));
    }

    #[test]
    fn holes_with_nothing_archived_between_are_one_and_only_the_last_are_kept() {
        let mut holes = Holes::default();
        let one = |first, last| hole((Offset(first), Offset(last)), 1, NOW);
        holes.note(one(5, 9), 3);
        holes.note(one(12, 14), 3);
        assert_eq!((holes.total(), told(holes.before(3)), holes.before(4)), (1, Some((5, 14, 2)), None));
        let max = limits::ARCHIVE_HOLES.default;
        (0..max - 1).for_each(|n| holes.note(one(100 + n, 100 + n), 10 + n));
        assert_eq!((holes.kept().len() as u64, holes.kept()[0].segment), (max, 3));
        holes.note(one(9_000, 9_000), 9_000);
        assert_eq!((holes.kept().len() as u64, holes.total(), holes.kept()[0].segment), (max, max + 1, 10));
    }
}
