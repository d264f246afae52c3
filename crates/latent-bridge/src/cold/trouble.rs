//! What is remembered of an intent that could not be finished, and when it is tried again. Time is an argument; no I/O.

use latent_core::UnixMillis;

use crate::limits;

/// Why an intent is where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    attempts: u32,
    tried_at: UnixMillis,
    /// Time alone will not heal it: somebody has to look. It is looked at again all the same, seldom.
    pub(crate) is_quarantined: bool,
}

impl Trouble {
    /// After one more attempt that failed at `now`.
    pub(crate) fn after(earlier: Option<&Self>, now: UnixMillis, is_quarantined: bool) -> Self {
        let attempts = earlier.map_or(0, |earlier| earlier.attempts).saturating_add(1);
        Self { attempts, tried_at: now, is_quarantined }
    }

    /// Whether it is tried at `now`. A clock that went back says nothing about how long ago that was, so it is.
    pub(crate) fn is_due(&self, now: UnixMillis) -> bool {
        now < self.tried_at || now.0 - self.tried_at.0 >= self.pause_millis()
    }

    fn pause_millis(&self) -> u64 {
        if self.is_quarantined {
            return limits::COLD_QUARANTINE_MILLIS.default;
        }
        let doubled = limits::COLD_RETRY_MILLIS.default.saturating_mul(1_u64 << self.attempts.saturating_sub(1).min(16));
        doubled.min(limits::COLD_RETRY_MILLIS_MAX.default)
    }
}

/// Whether the publisher of an intent without an offset must have ended (B-078). A clock that is behind what was written makes it wait.
pub(crate) fn is_past_grace(stored_at: UnixMillis, now: UnixMillis) -> bool {
    now.0.saturating_sub(stored_at.0) >= limits::COLD_GRACE_MILLIS.default
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let (first, most) = (limits::COLD_RETRY_MILLIS.default, limits::COLD_RETRY_MILLIS_MAX.default);
        let mut trouble = None;
        let mut pauses = Vec::new();
        for _ in 0..40 {
            let after = Trouble::after(trouble.as_ref(), UnixMillis(1_000), false);
            let pause = after.pause_millis();
            assert!(!after.is_due(UnixMillis(1_000 + pause - 1)) && after.is_due(UnixMillis(1_000 + pause)));
            pauses.push(pause);
            trouble = Some(after);
        }
        assert_eq!(pauses[..3], [first, 2 * first, 4 * first]);
        assert_eq!(pauses.last(), Some(&most));
    }

    #[test]
    fn what_is_quarantined_is_looked_at_seldom_and_not_never() {
        let trouble = Trouble::after(None, UnixMillis(0), true);
        let pause = limits::COLD_QUARANTINE_MILLIS.default;
        assert!(!trouble.is_due(UnixMillis(pause - 1)) && trouble.is_due(UnixMillis(pause)));
    }

    #[test]
    fn a_clock_that_went_back_holds_up_nothing_for_long() {
        let day = 86_400_000;
        let trouble = Trouble::after(None, UnixMillis(2 * day), true);
        assert!(trouble.is_due(UnixMillis(day)));
    }

    /// B-078.
    #[test]
    fn the_grace_is_sixty_seconds_by_the_clock_given() {
        let stored = UnixMillis(1_000_000);
        assert!(!is_past_grace(stored, UnixMillis(1_059_999)) && is_past_grace(stored, UnixMillis(1_060_000)));
        assert!(!is_past_grace(stored, UnixMillis(0)), "staged by a clock that is ahead");
    }
}
