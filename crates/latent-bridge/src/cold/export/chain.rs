//! When a segment is closed. No I/O: what is in it, what must go, and the clock that it is given.

use latent_core::{Offset, UnixMillis};

/// What an export is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goal {
    /// Everything at or below this offset goes now, because it must leave hot storage.
    pub must: Option<Offset>,
    /// Full segments and old events behind that go as well.
    pub ahead: bool,
    /// How long an event waits for its segment to become full.
    pub age_millis: u64,
    /// The wall clock.
    pub now: UnixMillis,
}

impl Goal {
    /// Whether an archive that goes up to `last` is all that this asks for.
    pub(super) fn is_met(&self, last: Option<Offset>) -> bool {
        !self.ahead && (self.must.is_none() || last >= self.must)
    }
}

/// What was put into a segment so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Filled {
    /// Earliest time in it.
    pub(super) oldest: Option<u64>,
    pub(super) first: Option<Offset>,
    /// The next item has no room.
    pub(super) is_full: bool,
    /// The log has no more.
    pub(super) has_ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// There is room and there may be more.
    Read,
    /// It goes to the store.
    Close,
    /// Nothing goes; it is built again when there is more.
    Wait,
}

/// A segment is closed when it is full; when the log has no more, only if something in it has to go or has waited long enough.
pub(super) fn step(filled: Filled, goal: Goal) -> Step {
    if filled.is_full {
        return Step::Close;
    }
    if !filled.has_ended {
        return Step::Read;
    }
    let must = filled.first.zip(goal.must).is_some_and(|(first, must)| first <= must);
    let is_old = filled.oldest.is_some_and(|oldest| goal.now.0.saturating_sub(oldest) >= goal.age_millis);
    if must || is_old { Step::Close } else { Step::Wait }
}

/// What the last look at a partition left in its log, because nothing was due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Earliest time in it.
    pub(super) oldest: Option<u64>,
    /// First offset in it.
    pub(super) first: Option<Offset>,
    /// The offset after the log's last one, then.
    pub(super) next: Offset,
}

impl Waiting {
    /// Whether nothing can be due yet, so that reading it again would be for nothing. `step` is how many offsets more are worth a look.
    pub(super) fn goes_on(&self, next: Offset, goal: Goal, step: u64) -> bool {
        let same = Filled { oldest: self.oldest, first: self.first, is_full: false, has_ended: true };
        // A log that has become shorter is another one.
        let Some(new) = next.0.checked_sub(self.next.0) else { return false };
        let must = goal.must.is_some_and(|must| must >= self.next) || (self.first.is_none() && goal.must.is_some());
        !must && new < step && (self.first.is_some() || new == 0) && self::step(same, goal) == Step::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;

    const AGE: u64 = limits::ARCHIVE_SEGMENT_AGE_MILLIS.default;

    fn filled(first: u64, oldest: u64) -> Filled {
        Filled { oldest: Some(oldest), first: Some(Offset(first)), is_full: false, has_ended: true }
    }

    fn goal(must: Option<u64>, now: u64) -> Goal {
        Goal { must: must.map(Offset), age_millis: AGE, ahead: true, now: UnixMillis(now) }
    }

    #[test]
    fn a_segment_is_closed_when_it_is_full_and_not_before_the_log_ends() {
        let reading = Filled { has_ended: false, ..filled(5, 0) };
        assert_eq!(step(reading, goal(Some(5), u64::MAX)), Step::Read);
        assert_eq!(step(Filled { is_full: true, ..reading }, goal(None, 0)), Step::Close);
    }

    #[test]
    fn what_must_go_or_is_old_goes_in_a_small_one() {
        assert_eq!(step(filled(5, 100), goal(None, 100 + AGE - 1)), Step::Wait);
        assert_eq!(step(filled(5, 100), goal(None, 100 + AGE)), Step::Close);
        assert_eq!(step(filled(5, 100), goal(Some(4), 100)), Step::Wait);
        assert_eq!(step(filled(5, 100), goal(Some(5), 100)), Step::Close);
        assert_eq!(step(filled(5, 100), goal(None, 0)), Step::Wait, "a clock that went back makes nothing old");
        let nothing = Filled { oldest: None, first: None, is_full: false, has_ended: true };
        assert_eq!(step(nothing, goal(Some(9), u64::MAX)), Step::Wait);
    }

    #[test]
    fn a_goal_without_ahead_is_met_when_all_that_must_go_has_gone() {
        let must = Goal { ahead: false, ..goal(Some(5), 0) };
        assert_eq!([None, Some(4), Some(5), Some(9)].map(|last| must.is_met(last.map(Offset))), [false, false, true, true]);
        assert!(!goal(Some(5), 0).is_met(Some(Offset(9))));
    }

    #[test]
    fn what_waits_is_looked_at_again_when_something_can_be_due() {
        let waiting = Waiting { oldest: Some(100), first: Some(Offset(5)), next: Offset(10) };
        assert!(waiting.goes_on(Offset(12), goal(None, 100), 3) && waiting.goes_on(Offset(12), goal(Some(4), 100), 3));
        for (next, goal) in [(13, goal(None, 100)), (10, goal(Some(5), 100)), (11, goal(Some(10), 100)), (10, goal(None, 100 + AGE))] {
            assert!(!waiting.goes_on(Offset(next), goal, 3), "{next} {goal:?}");
        }
        assert!(!waiting.goes_on(Offset(9), goal(None, 100), 3), "a log that has become shorter");
        let empty = Waiting { oldest: None, first: None, next: Offset(10) };
        assert!(empty.goes_on(Offset(10), goal(None, u64::MAX), 3) && !empty.goes_on(Offset(11), goal(None, 0), 3));
    }
}
