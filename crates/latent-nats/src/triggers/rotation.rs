//! Whose turn it is: over the tenants, and within each over its bindings (T-053). Without I/O; time is an argument.
//!
//! A sweep is over when every binding was found empty since the last message; only then does the loop rest (D-13). While there is work,
//! tenants take strict turns, so that one with a single message waits for at most one visit of each other tenant.

use latent_core::MonoTime;

use super::limits;

/// See the module.
#[derive(Debug)]
pub(crate) struct Rotation {
    tenants: Vec<Turn>,
    /// The tenant whose turn it is.
    next: usize,
    /// By binding.
    places: Vec<Place>,
}

/// One tenant's bindings and the next of them.
#[derive(Debug)]
struct Turn {
    bindings: Vec<usize>,
    next: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// Found empty since the last message.
    is_empty: bool,
    /// After a failure: not asked again before.
    not_before: MonoTime,
}

/// What a visit found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// A message.
    Work,
    /// Nothing.
    Nothing,
    /// A failure: it is left alone until then.
    Failure {
        /// When it may be asked again.
        not_before: MonoTime,
    },
}

/// How many times as long as it took a visit in vain is not repeated.
const PAUSE_FACTOR: u64 = 9;

/// How long a binding is left alone after a visit that took so long and brought nothing. A pull that waits at the broker keeps the one loop
/// from everybody else, so it may take a tenth of the time and no more (T-054). A question that nobody answers until its deadline takes
/// more, or its binding would be found late when there is an answer again.
pub(crate) fn pause_millis(interval_millis: u64, took_millis: u64) -> u64 {
    took_millis.saturating_mul(PAUSE_FACTOR).min(limits::PAUSE_MILLIS.default).max(interval_millis)
}

impl Rotation {
    /// `tenants` has the tenant of each binding, in the order of the bindings.
    pub(crate) fn new(tenants: &[usize]) -> Self {
        let count = tenants.iter().max().map_or(0, |last| last + 1);
        let of = |tenant| tenants.iter().enumerate().filter(|(_, owner)| **owner == tenant).map(|(binding, _)| binding).collect();
        let turns = (0..count).map(|tenant| Turn { bindings: of(tenant), next: 0 }).collect();
        Self { tenants: turns, next: 0, places: vec![Place::default(); tenants.len()] }
    }

    /// The next binding, whatever was found before: for whoever drives single steps.
    pub(crate) fn next(&mut self) -> Option<usize> {
        self.take(|_| true)
    }

    /// The next binding that is worth a visit at `now`, or `None` when a sweep is over.
    pub(crate) fn next_due(&mut self, now: MonoTime) -> Option<usize> {
        self.take(|place| !place.is_empty && place.not_before <= now)
    }

    fn take(&mut self, is_due: impl Fn(&Place) -> bool) -> Option<usize> {
        let count = self.tenants.len();
        for step in 0..count {
            let at = (self.next + step) % count;
            let places = &self.places;
            let Some(turn) = self.tenants.get_mut(at) else { continue };
            if let Some(binding) = turn.take(|binding| places.get(binding).is_some_and(&is_due)) {
                self.next = (at + 1) % count;
                return Some(binding);
            }
        }
        None
    }

    /// What the visit of a binding found.
    pub(crate) fn visited(&mut self, binding: usize, found: Found) {
        if found == Found::Work {
            self.begin_sweep();
        }
        let Some(place) = self.places.get_mut(binding) else { return };
        match found {
            Found::Work => place.not_before = MonoTime::ZERO,
            Found::Nothing => *place = Place { is_empty: true, not_before: MonoTime::ZERO },
            Found::Failure { not_before } => place.not_before = not_before,
        }
    }

    /// Everything is worth a visit again, but for the pauses after failures.
    pub(crate) fn begin_sweep(&mut self) {
        self.places.iter_mut().for_each(|place| place.is_empty = false);
    }
}

impl Turn {
    fn take(&mut self, is_due: impl Fn(usize) -> bool) -> Option<usize> {
        let count = self.bindings.len();
        let at = (0..count).map(|step| (self.next + step) % count).find(|at| self.bindings.get(*at).is_some_and(|b| is_due(*b)))?;
        self.next = (at + 1) % count;
        self.bindings.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> MonoTime {
        MonoTime::from_millis(millis)
    }

    /// T-053: a flood of one tenant is interrupted after every message.
    #[test]
    fn tenants_take_turns_while_one_of_them_floods() {
        // Binding 0 belongs to the one that floods, 1 to 3 to the other.
        let mut rotation = Rotation::new(&[0, 1, 1, 1]);
        let mut visits = Vec::new();
        for _ in 0..8 {
            let binding = rotation.next_due(at(0)).unwrap();
            visits.push(binding);
            rotation.visited(binding, if binding == 0 { Found::Work } else { Found::Nothing });
        }
        assert_eq!(visits, [0, 1, 0, 2, 0, 3, 0, 1]);
    }

    /// D-13: rest comes only after everything was found empty since the last message.
    #[test]
    fn a_sweep_is_over_when_everything_was_empty_since_the_last_message() {
        let mut rotation = Rotation::new(&[0, 1, 0]);
        let sweep = |rotation: &mut Rotation, works: Option<usize>| {
            let mut visits = Vec::new();
            let mut works = works;
            while let Some(binding) = rotation.next_due(at(0)) {
                visits.push(binding);
                let work = works.take_if(|works| *works == binding).is_some();
                rotation.visited(binding, if work { Found::Work } else { Found::Nothing });
            }
            rotation.begin_sweep();
            visits
        };
        assert_eq!(sweep(&mut rotation, None), [0, 1, 2]);
        assert_eq!(sweep(&mut rotation, Some(1)), [1, 0, 1, 2]);
    }

    /// T-054, BUG-33: what failed is left alone for its pause, and nobody else is.
    #[test]
    fn a_failure_pauses_its_own_binding_only() {
        let mut rotation = Rotation::new(&[0, 0]);
        rotation.visited(0, Found::Failure { not_before: at(100) });
        for now in [0, 99] {
            assert_eq!(rotation.next_due(at(now)), Some(1));
            rotation.visited(1, Found::Work);
        }
        assert_eq!([rotation.next_due(at(100)), rotation.next_due(at(100))], [Some(0), Some(1)]);
        // A step that somebody drives by hand honours no pause.
        rotation.visited(0, Found::Failure { not_before: at(200) });
        assert_eq!([rotation.next(), rotation.next()], [Some(0), Some(1)]);
    }

    /// T-054: what waits and brings nothing has a tenth of the time at most; what fails at once is asked again at the interval.
    #[test]
    fn a_visit_in_vain_is_repeated_the_later_the_longer_it_took() {
        let pauses = [0, 1, 2, 100, 555, 556, 10_000, u64::MAX].map(|took| pause_millis(10, took));
        assert_eq!(pauses, [10, 10, 18, 900, 4_995, 5_000, 5_000, 5_000]);
        assert_eq!([0, 100].map(|took| pause_millis(1_000, took)), [1_000, 1_000]);
    }

    proptest! {
        /// Whatever is found, no binding waits for more than a sweep that finds nothing and two rounds of its tenant, tenants alternating.
        #[test]
        fn every_binding_s_wait_is_bounded_whatever_is_found(owners in prop::collection::vec(0_usize..8, 1..40), found in prop::collection::vec(any::<bool>(), 1..400)) {
            let mut known = Vec::new();
            let owners: Vec<usize> = owners.iter().map(|owner| {
                known.iter().position(|other| other == owner).unwrap_or_else(|| { known.push(*owner); known.len() - 1 })
            }).collect();
            let mut rotation = Rotation::new(&owners);
            let mut since = vec![0_usize; owners.len()];
            for work in found {
                let Some(binding) = rotation.next_due(at(0)) else { rotation.begin_sweep(); continue };
                since.iter_mut().for_each(|since| *since += 1);
                since[binding] = 0;
                rotation.visited(binding, if work { Found::Work } else { Found::Nothing });
                let tenants = known.len();
                for (other, waited) in since.iter().enumerate() {
                    let own = owners.iter().filter(|owner| **owner == owners[other]).count();
                    prop_assert!(*waited <= owners.len() + 2 * own * tenants, "{other} waited {waited}");
                }
            }
        }
    }
}
