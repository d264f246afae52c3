//! Whether the machine is calm enough for a slice to count. Another program that computes makes a sync many times slower, for both
//! sides alike, and then every ratio drifts to 1.
//!
//! Before and after each slice some blocks are written and synced: a probe. A slice counts as disturbed when a probe took much longer
//! than the best one did; it is done again while patience lasts, and taken as it is afterwards. Pure: probes in, decisions out.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// A probe this many times slower than the best one is a disturbance.
const DISTURBED_FACTOR: u32 = 3;

/// How calm it was while one row was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct CalmReport {
    /// Slices that were done again.
    repeated: u64,
    /// Slices that were taken although something disturbed them.
    disturbed: u64,
}

impl CalmReport {
    pub(super) const fn was_calm(self) -> bool {
        self.repeated == 0 && self.disturbed == 0
    }
}

impl fmt::Display for CalmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the machine was busy: {} slices were repeated, {} taken although disturbed", self.repeated, self.disturbed)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Calm {
    best: Duration,
    patience: Duration,
    report: CalmReport,
}

/// What to do after the probe before a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// Run it, in a calm moment.
    Run,
    /// Run it although the moment is not calm: patience is at its end.
    RunDisturbed,
    /// Wait a little and probe again.
    Wait,
}

/// What to do with a slice after the probe behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Keep,
    Repeat,
}

impl Calm {
    /// Knows no probe yet and has no patience.
    pub(super) fn new() -> Self {
        Self { best: Duration::MAX, patience: Duration::ZERO, report: CalmReport::default() }
    }

    /// Begins a row, which may wait and repeat for at most `patience` in total.
    pub(super) fn begin(&mut self, patience: Duration) {
        self.patience = patience;
        self.report = CalmReport::default();
    }

    /// Learns from a probe and says whether it was a calm one.
    pub(super) fn learn(&mut self, probe: Duration) -> bool {
        self.best = self.best.min(probe);
        probe <= self.best.saturating_mul(DISTURBED_FACTOR)
    }

    pub(super) fn before(&mut self, probe: Duration) -> Before {
        match (self.learn(probe), self.patience.is_zero()) {
            (true, _) => Before::Run,
            (false, true) => Before::RunDisturbed,
            (false, false) => Before::Wait,
        }
    }

    /// Decides about a slice that began as `before` said.
    pub(super) fn after(&mut self, before: Before, probe: Duration) -> After {
        if self.learn(probe) && before == Before::Run {
            return After::Keep;
        }
        if self.patience.is_zero() {
            self.report.disturbed += 1;
            return After::Keep;
        }
        self.report.repeated += 1;
        After::Repeat
    }

    /// Takes time that was spent on waiting or on a slice that is repeated.
    pub(super) fn spend(&mut self, time: Duration) {
        self.patience = self.patience.saturating_sub(time);
    }

    pub(super) const fn report(&self) -> CalmReport {
        self.report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    fn patient() -> Calm {
        let mut calm = Calm::new();
        calm.begin(Duration::from_secs(1));
        calm
    }

    #[test]
    fn a_probe_is_calm_up_to_three_times_the_best() {
        let mut calm = patient();
        for (probe, is_calm) in [(100, true), (300, true), (301, false), (90, true), (271, false), (270, true)] {
            assert_eq!(calm.learn(micros(probe)), is_calm, "{probe}");
        }
    }

    #[test]
    fn a_calm_slice_is_kept_and_a_disturbed_one_repeated() {
        let mut calm = patient();
        assert_eq!(calm.before(micros(100)), Before::Run);
        assert_eq!(calm.after(Before::Run, micros(120)), After::Keep);
        assert_eq!(calm.before(micros(900)), Before::Wait);
        assert_eq!(calm.after(Before::Run, micros(900)), After::Repeat);
        assert_eq!(calm.report(), CalmReport { repeated: 1, disturbed: 0 });
    }

    #[test]
    fn without_patience_a_slice_is_taken_and_counted_as_disturbed() {
        let mut calm = patient();
        calm.learn(micros(100));
        calm.spend(Duration::from_secs(2));
        assert_eq!(calm.before(micros(900)), Before::RunDisturbed);
        assert_eq!(calm.after(Before::RunDisturbed, micros(100)), After::Keep);
        assert_eq!(calm.report(), CalmReport { repeated: 0, disturbed: 1 });
        calm.begin(Duration::from_secs(1));
        assert!(calm.report().was_calm());
    }
}
