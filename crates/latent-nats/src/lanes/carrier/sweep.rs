//! The sweep: lanes that have nothing to do are inspected one after the other, all of a connection in one slow round (T-107).

use latent_core::MonoTime;

use super::{Carrier, PullState};
use crate::lanes::limits;

/// Between two steps, at least: inspections of one step leave in one write.
const STEP_LEAST_MILLIS: u64 = 50;

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct Sweep {
    lanes: usize,
    next: usize,
    /// Lanes that are left of the first round on a connection, which goes as fast as answers come.
    first_round: usize,
    open: u64,
    step_at: MonoTime,
}

impl Sweep {
    pub(super) const fn new(lanes: usize) -> Self {
        Self { lanes, next: 0, first_round: 0, open: 0, step_at: MonoTime::ZERO }
    }

    /// There is a new connection.
    pub(super) const fn begin_anew(&mut self, now: MonoTime) {
        (self.first_round, self.open, self.step_at) = (self.lanes, 0, now);
    }

    pub(super) const fn answered(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// When the next step is due; `None` while as many are open as may be.
    pub(super) fn next_at(&self) -> Option<MonoTime> {
        (self.lanes > 0 && self.open < limits::SWEEP_OPEN.default).then_some(self.step_at)
    }

    /// How long a round takes.
    fn round_millis(&self) -> u64 {
        let lanes = self.lanes as u64;
        limits::SWEEP_MILLIS.default.max(lanes.saturating_mul(1_000) / limits::SWEEP_RATE.default)
    }

    /// How many lanes a step looks at, and how long it is.
    fn step(&self) -> (u64, u64) {
        let lanes = (self.lanes as u64).max(1);
        let step_millis = (self.round_millis() / lanes).max(STEP_LEAST_MILLIS);
        (lanes.saturating_mul(step_millis).div_ceil(self.round_millis().max(1)).max(1), step_millis)
    }

    /// The lanes to look at now. Steps that were due earlier are made up for, so that a round takes no longer where timers are late.
    fn due(&mut self, now: MonoTime) -> Vec<usize> {
        if self.lanes == 0 || now < self.step_at {
            return Vec::new();
        }
        let (count, step_millis) = self.step();
        let late_millis = u64::try_from(now.since(self.step_at).as_millis()).unwrap_or(u64::MAX);
        let steps = (late_millis / step_millis).saturating_add(1);
        let wanted = if self.first_round > 0 { self.first_round as u64 } else { count.saturating_mul(steps) };
        let most = limits::SWEEP_OPEN.default.saturating_sub(self.open).min(self.lanes as u64);
        let count = wanted.min(most);
        self.first_round = self.first_round.saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
        self.step_at = match self.first_round {
            0 if wanted <= most => self.step_at.plus_millis(step_millis.saturating_mul(steps)),
            // What there was no room for is not owed.
            0 => now.plus_millis(step_millis),
            _ => now.plus_millis(1),
        };
        let due = (0..count).map(|_| {
            let place = self.next;
            self.next = (self.next + 1) % self.lanes;
            place
        });
        due.collect()
    }
}

impl Carrier {
    /// Inspects the lanes whose turn it is and that have nothing to do: of the others more is known already.
    pub(super) fn sweep_on(&mut self) {
        if self.session.is_none() {
            return;
        }
        for place in self.sweep.due(self.clock.mono()) {
            let is_quiet = self.lanes.get(place).is_some_and(|lane| {
                let office = lane.cell.office();
                lane.pull == PullState::None && lane.inspections == 0 && office.desk.lane.held() == 0 && !office.desk.lane.is_asked()
            });
            if is_quiet && self.begin_inspection(place, None, true).is_ok() {
                self.sweep.open += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked_at(lanes: usize, millis: u64) -> Vec<usize> {
        let mut sweep = Sweep::new(lanes);
        let ends = (0..=millis).map(MonoTime::from_millis);
        ends.flat_map(|now| {
            let due = sweep.due(now);
            due.iter().for_each(|_| sweep.answered());
            due
        })
        .collect()
    }

    #[test]
    fn a_round_takes_half_a_second_and_longer_only_for_many_lanes() {
        for (lanes, round) in [(1, 500), (10, 500), (50, 500), (256, 2_560), (4_096, 40_960)] {
            let seen = looked_at(lanes, round - 1);
            let counts: Vec<usize> = (0..lanes).map(|place| seen.iter().filter(|seen| **seen == place).count()).collect();
            assert!(counts.iter().all(|count| (1..=2).contains(count)), "{lanes}: {counts:?}");
            assert!(seen.len() <= lanes + 5, "{lanes}: {}", seen.len());
        }
    }

    #[test]
    fn a_round_takes_no_longer_where_timers_are_late() {
        for late in [1, 7, 60, 130] {
            let mut sweep = Sweep::new(256);
            let (mut now, mut seen) = (0, 0);
            while now < 25_600 {
                seen += sweep.due(MonoTime::from_millis(now)).len();
                sweep.open = 0;
                now = now.max(u64::try_from(sweep.step_at.since(MonoTime::ZERO).as_millis()).unwrap()) + late;
            }
            assert!((2_500..=2_620).contains(&seen), "{late}: {seen}");
        }
    }

    #[test]
    fn what_is_not_answered_is_bounded_and_a_new_connection_is_seen_at_once() {
        let mut sweep = Sweep::new(256);
        sweep.begin_anew(MonoTime::ZERO);
        let first = sweep.due(MonoTime::ZERO);
        assert_eq!(first.len() as u64, limits::SWEEP_OPEN.default);
        sweep.open = limits::SWEEP_OPEN.default;
        assert_eq!((sweep.next_at(), sweep.due(MonoTime::from_millis(5)).len()), (None, 0));
        sweep.open = 0;
        assert_eq!(sweep.due(MonoTime::from_millis(6)).first(), Some(&32));
    }
}
