//! Numbers from times. Pure: whoever measured hands in what it saw.

use std::time::Duration;

/// What one bounded piece of work took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Slice {
    /// Events, look-ups or openings that were done.
    pub(super) units: u64,
    /// The time of all of them.
    pub(super) elapsed: Duration,
    /// The time of each call, where calls are looked at one by one.
    pub(super) latencies: Vec<Duration>,
}

impl Slice {
    /// Units a second. `None` when nothing was done or no time went by, which says nothing.
    pub(super) fn per_second(&self) -> Option<f64> {
        let seconds = self.elapsed.as_secs_f64();
        (self.units > 0 && seconds > 0.0).then(|| self.units as f64 / seconds)
    }
}

impl Slice {
    /// One of its latencies in the place of the time of one unit, with all of them kept.
    pub(super) fn narrowed_to(self, of: fn(&Latency) -> f64) -> Self {
        match Latency::of(self.latencies.clone()) {
            Some(latency) => Self { units: 1, elapsed: Duration::from_secs_f64(of(&latency) / 1e6), ..self },
            None => self,
        }
    }
}

/// Two of a slice's latencies, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

impl Latency {
    pub(super) fn median(&self) -> f64 {
        self.p50
    }

    pub(super) fn high(&self) -> f64 {
        self.p99
    }

    /// Over everything that was measured. `None` when that is nothing.
    pub(super) fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        let at = |percent| percentile(&times, percent).map(|time| time.as_secs_f64() * 1e6);
        Some(Self { p50: at(50)?, p99: at(99)? })
    }
}

/// The smallest time that is not below `percent` per cent of them. `sorted` ascends.
pub(super) fn percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// The middle one, or the mean of the two in the middle.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(*lower, upper))
}

/// The smallest and the largest.
pub(super) fn spread(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    Some((least, values.iter().copied().max_by(f64::total_cmp)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(times: &[u64]) -> Vec<Duration> {
        times.iter().map(|time| Duration::from_micros(*time)).collect()
    }

    #[test]
    fn a_median_is_the_middle_or_between_the_two_middles() {
        for (values, expected) in [
            (&[3.0, 1.0, 2.0][..], Some(2.0)),
            (&[4.0, 1.0, 2.0, 3.0], Some(2.5)),
            (&[7.0], Some(7.0)),
            (&[2.0, 1.0], Some(1.5)),
            (&[], None),
        ] {
            assert_eq!(median(values), expected, "{values:?}");
        }
    }

    #[test]
    fn a_percentile_is_one_of_the_times_and_has_that_many_at_or_below_it() {
        let hundred = micros(&(1..=100).collect::<Vec<_>>());
        for (times, percent, expected) in [
            (&hundred[..], 50, Some(50)),
            (&hundred, 99, Some(99)),
            (&hundred, 100, Some(100)),
            (&hundred, 0, Some(1)),
            (&hundred[..1], 99, Some(1)),
            (&hundred[..3], 50, Some(2)),
            (&[], 50, None),
        ] {
            assert_eq!(percentile(times, percent), expected.map(Duration::from_micros), "{percent} of {}", times.len());
        }
    }

    #[test]
    fn latencies_need_no_order() {
        let times = micros(&[9, 1, 5]);
        assert_eq!(Latency::of(times), Some(Latency { p50: 5.0, p99: 9.0 }));
        assert_eq!(Latency::of(Vec::new()), None);
    }

    #[test]
    fn a_spread_is_the_two_ends() {
        assert_eq!(spread(&[0.5, 0.2, 0.9]), Some((0.2, 0.9)));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn a_slice_without_work_or_time_has_no_rate() {
        let second = Duration::from_secs(2);
        for (units, elapsed, rate) in [(10, second, Some(5.0)), (0, second, None), (10, Duration::ZERO, None)] {
            assert_eq!(Slice { units, elapsed, latencies: Vec::new() }.per_second(), rate);
        }
    }
}
