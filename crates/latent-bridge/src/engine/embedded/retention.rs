//! Which segments have expired. No I/O: what was written as `stored_at`, the clock it is given, and nothing else.
//!
//! A record is kept at least until its `stored_at` is `hot_hours` ago, and goes with its segment. A `stored_at` later than the clock
//! is no date to wait for: then the records behind it say how old the segment is, because they came later. They also speak for a
//! segment of which no record can be read.

use super::segment::Segment;

const HOUR_MILLIS: u64 = 3_600_000;

/// The age at which records expire: `stored_at` below this has expired.
pub(super) fn cutoff(now_millis: u64, hot_hours: u64) -> u64 {
    now_millis.saturating_sub(hot_hours.saturating_mul(HOUR_MILLIS))
}

/// What retention looks at in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Age {
    /// Largest `stored_at`. `None` when no record of it can be read.
    pub(super) newest: Option<u64>,
}

impl From<&Segment> for Age {
    fn from(segment: &Segment) -> Self {
        Self { newest: (segment.records_in_all() > 0).then_some(segment.newest) }
    }
}

/// How many of a topic's full segments, oldest first, have expired. `later` is the age of the segment being written, if there is one.
pub(super) fn expired(full: &[Age], later: Option<Age>, now_millis: u64, hot_hours: u64) -> usize {
    let cutoff = cutoff(now_millis, hot_hours);
    let from = |at: usize| full.get(at..).unwrap_or_default().iter().copied().chain(later);
    (0..full.len()).take_while(|at| evident(from(*at), now_millis).is_some_and(|newest| newest < cutoff)).count()
}

/// The latest time at which the records of the first of these segments can have been stored: what it says itself, or else what the
/// first one behind it says that can be right.
fn evident(mut from: impl Iterator<Item = Age>, now_millis: u64) -> Option<u64> {
    from.find_map(|age| age.newest.filter(|newest| *newest <= now_millis))
}

/// Whether the segment being written must be ended, so that its records can expire: its oldest record has.
pub(super) fn must_end(oldest: u64, now_millis: u64, hot_hours: u64) -> bool {
    oldest < cutoff(now_millis, hot_hours)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 100 * HOUR_MILLIS;

    fn age(newest_hours: u64) -> Age {
        Age { newest: Some(newest_hours.saturating_mul(HOUR_MILLIS)) }
    }

    fn ages(newest_hours: &[u64]) -> Vec<Age> {
        newest_hours.iter().copied().map(age).collect()
    }

    #[test]
    fn a_segment_expires_when_its_newest_record_has_and_not_a_millisecond_earlier() {
        let at = |newest| expired(&[Age { newest: Some(newest) }], None, NOW, 10);
        assert_eq!([at(90 * HOUR_MILLIS), at(90 * HOUR_MILLIS - 1)], [0, 1]);
    }

    #[test]
    fn only_the_oldest_segments_in_a_row_expire() {
        assert_eq!(expired(&ages(&[1, 2, 95, 3]), None, NOW, 10), 2);
    }

    #[test]
    fn a_date_in_the_future_neither_pins_the_log_nor_expires_what_is_newer() {
        let future = u64::MAX / HOUR_MILLIS;
        assert_eq!(expired(&ages(&[1, future, 2, 3]), None, NOW, 10), 4);
        assert_eq!(expired(&ages(&[1, future, 95]), None, NOW, 10), 1, "what came after it is still young");
        assert_eq!(expired(&ages(&[1, future]), Some(age(95)), NOW, 10), 1);
        assert_eq!(expired(&ages(&[future]), None, NOW, 10), 0, "nothing says how old it is");
    }

    #[test]
    fn a_clock_that_fell_far_behind_what_is_young_does_not_expire_what_came_before() {
        let future = u64::MAX / HOUR_MILLIS;
        assert_eq!(expired(&ages(&[future, 95, 0]), None, NOW, 10), 0);
        assert_eq!(expired(&ages(&[future, 95]), Some(age(0)), NOW, 10), 0);
    }

    #[test]
    fn a_segment_without_a_readable_record_is_as_old_as_what_came_after_it() {
        let unreadable = Age { newest: None };
        let followed_by = |newest_hours| expired(&[age(1), unreadable, age(newest_hours)], None, NOW, 10);
        assert_eq!([followed_by(95), followed_by(2)], [1, 3]);
        assert_eq!(expired(&[unreadable], None, NOW, 10), 0, "nothing says how old it is");
        assert_eq!(expired(&[age(u64::MAX / HOUR_MILLIS), unreadable, age(95)], None, NOW, 10), 0, "it says nothing about others");
    }

    #[test]
    fn a_clock_that_went_back_expires_nothing_and_extremes_do_not_overflow() {
        assert_eq!(expired(&ages(&[95, 96]), None, 5 * HOUR_MILLIS, 10), 0);
        assert_eq!(expired(&ages(&[0]), None, 0, u64::MAX), 0);
        assert_eq!(expired(&ages(&[0]), None, u64::MAX, 1), 1);
        assert!(must_end(0, NOW, 10) && !must_end(90 * HOUR_MILLIS, NOW, 10) && !must_end(u64::MAX, NOW, 10));
    }
}
