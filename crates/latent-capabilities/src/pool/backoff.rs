//! How long a client that could not connect leaves its peer alone: doubling, capped, jittered.

use latent_core::MonoTime;

/// The dial backoff of one client. No timer: it is looked at when a call wants to dial.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Backoff {
    failures: u32,
    /// When the last counted one was known.
    failed_at: Option<MonoTime>,
    until: MonoTime,
}

impl Backoff {
    /// Notes a failed dial that had begun at `begun`. `jitter` is any random number: the wait lies between half of the step and the
    /// whole. Dials that were under way together are one attempt: those that fail after the first one tell nothing new.
    pub(super) fn failed(&mut self, begun: MonoTime, now: MonoTime, jitter: u16, min_millis: u64, max_millis: u64) {
        if self.failed_at.is_some_and(|at| begun <= at) {
            return;
        }
        self.failed_at = Some(now);
        let doubled = 1_u64.checked_shl(self.failures).map_or(u64::MAX, |factor| min_millis.saturating_mul(factor));
        let step = doubled.min(max_millis).max(1);
        self.failures = self.failures.saturating_add(1);
        let half = step / 2;
        let span = step - half;
        let share = u128::from(span) * u128::from(jitter) / u128::from(u16::MAX);
        let wait = half.saturating_add(u64::try_from(share).unwrap_or(span));
        self.until = now.plus_millis(wait.max(1));
    }

    /// Notes a dial that led to a usable connection.
    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Milliseconds until the next dial may be made, rounded up; 0 for now.
    pub(super) fn left_millis(&self, now: MonoTime) -> u64 {
        let left = self.until.since(now);
        u64::try_from(left.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_to_its_cap_and_stays_between_half_and_whole() {
        for (jitter, part) in [(0, 2), (u16::MAX, 1)] {
            let mut backoff = Backoff::default();
            let waits: Vec<u64> = (0..12)
                .map(|attempt| {
                    let now = MonoTime::from_millis(attempt * 100_000);
                    backoff.failed(now, now, jitter, 100, 30_000);
                    backoff.left_millis(now)
                })
                .collect();
            let whole = [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000, 30_000];
            assert_eq!(waits, whole.map(|step| step / part), "{jitter}");
        }
    }

    #[test]
    fn a_thousand_failures_do_not_overflow_and_one_success_ends_it() {
        let mut backoff = Backoff::default();
        let at = |attempt| MonoTime::from_millis(u64::MAX - 1_000 + attempt);
        (0..1_000).for_each(|attempt| backoff.failed(at(attempt), at(attempt), 7, 1, u64::MAX));
        backoff.succeeded();
        assert_eq!(backoff.left_millis(MonoTime::ZERO), 0);
        backoff.failed(MonoTime::ZERO, MonoTime::ZERO, u16::MAX, 100, 30_000);
        assert_eq!([99, 100, 101].map(|at| backoff.left_millis(MonoTime::from_millis(at))), [1, 0, 0]);
    }
}
