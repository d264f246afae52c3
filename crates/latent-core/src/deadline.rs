//! One deadline for one delivery, which no wait extends, and the part of it that is kept for settling.

use crate::MonoTime;

/// Kept for settling inside one original deadline of `timeout_millis`: max(50 ms, 10 %) (T-063).
pub const fn settle_margin(timeout_millis: u64) -> u64 {
    let tenth = timeout_millis / 10;
    if tenth > 50 { tenth } else { 50 }
}

/// The one original deadline of an operation. It can be narrowed, never extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(MonoTime);

impl Deadline {
    /// `timeout_millis` after `now`.
    pub const fn after(now: MonoTime, timeout_millis: u64) -> Self {
        Self(now.plus_millis(timeout_millis))
    }

    /// The nearer of this deadline and `now` plus `millis`.
    #[must_use]
    pub fn narrowed(self, now: MonoTime, millis: u64) -> Self {
        self.min(Self::after(now, millis))
    }

    /// A deadline `millis` before this one.
    #[must_use]
    pub const fn earlier_by(self, millis: u64) -> Self {
        Self(MonoTime::from_micros(self.0.as_micros().saturating_sub(millis.saturating_mul(1_000))))
    }

    /// The point in time.
    pub const fn at(self) -> MonoTime {
        self.0
    }

    /// True once `now` has reached it.
    pub fn has_passed(self, now: MonoTime) -> bool {
        now >= self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_is_a_tenth_and_at_least_fifty_milliseconds() {
        assert_eq!([0, 100, 500, 510, 10_000].map(settle_margin), [50, 50, 50, 51, 1_000]);
    }

    #[test]
    fn narrowing_never_extends() {
        let deadline = Deadline::after(MonoTime::ZERO, 100);
        assert_eq!(deadline.narrowed(MonoTime::from_millis(90), 100), deadline);
        assert_eq!(deadline.narrowed(MonoTime::from_millis(10), 20).at(), MonoTime::from_millis(30));
        assert!(deadline.has_passed(MonoTime::from_millis(100)) && !deadline.has_passed(MonoTime::from_micros(99_999)));
    }
}
