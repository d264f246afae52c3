//! How long to wait before a lost connection is made again: not at all the first time, then longer and longer, up to a few seconds. A
//! broker that takes connections only to end them is dialled no more often than one that takes none.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// After the first attempt; doubled each time.
const STEP: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(4);
/// A connection that held this long after the last attempt begins anew.
const QUIET: Duration = Duration::from_secs(30);

/// Delays of one connection, from when it is first there.
#[derive(Debug, Default)]
pub(super) struct Reconnects(Mutex<Option<Backoff>>);

impl Reconnects {
    /// The first connection is there. Until now nothing was waited for: the servers were tried one after the other.
    pub(super) fn begin(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Backoff::default());
    }

    pub(super) fn next(&self) -> Duration {
        let mut backoff = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(backoff) = &mut *backoff else { return Duration::ZERO };
        let mut random = [0; 1];
        // Without random bytes everybody waits the same, which is no harm to one.
        let _ = getrandom::fill(&mut random);
        backoff.next(Instant::now(), random[0])
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Backoff {
    last: Option<Instant>,
    level: u32,
}

impl Backoff {
    /// The delay before an attempt that is wanted at `now`, shortened by up to half, so that not all clients come at once.
    fn next(&mut self, now: Instant, random: u8) -> Duration {
        let quiet = self.last.is_none_or(|last| now.saturating_duration_since(last) >= QUIET);
        self.level = if quiet { 0 } else { self.level.saturating_add(1) };
        let full = match self.level {
            0 => Duration::ZERO,
            level => STEP.saturating_mul(2_u32.saturating_pow(level - 1)).min(DELAY_MAX),
        };
        let delay = full - full.mul_f64(f64::from(random) / 512.0);
        self.last = now.checked_add(delay);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_come_further_and_further_apart_up_to_a_bound() {
        let (mut backoff, mut now) = (Backoff::default(), Instant::now());
        let mut delays = Vec::new();
        for _ in 0..12 {
            let delay = backoff.next(now, 0);
            now += delay;
            delays.push(delay.as_millis());
        }
        assert_eq!(delays, [0, 50, 100, 200, 400, 800, 1_600, 3_200, 4_000, 4_000, 4_000, 4_000]);
    }

    #[test]
    fn a_connection_that_held_begins_anew_and_one_that_did_not_goes_on() {
        let (mut backoff, start) = (Backoff::default(), Instant::now());
        assert_eq!(backoff.next(start, 0), Duration::ZERO);
        assert_eq!(backoff.next(start + QUIET - Duration::from_nanos(1), 0), STEP);
        let last = start + QUIET + STEP;
        assert_eq!(backoff.next(last + QUIET, 0), Duration::ZERO);
    }

    #[test]
    fn chance_shortens_a_delay_by_half_at_most() {
        let start = Instant::now();
        for random in [1, 128, 255] {
            let mut backoff = Backoff::default();
            backoff.next(start, random);
            let delay = backoff.next(start, random);
            assert!(delay >= STEP / 2 && delay < STEP, "{delay:?}");
        }
    }

    #[test]
    fn nothing_is_waited_for_until_the_first_connection_is_there() {
        let reconnects = Reconnects::default();
        assert_eq!([(); 5].map(|()| reconnects.next()), [Duration::ZERO; 5]);
        reconnects.begin();
        assert_eq!(reconnects.next(), Duration::ZERO);
        assert!(reconnects.next() > Duration::ZERO);
    }
}
