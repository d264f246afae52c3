//! Which offsets readers may hold of a history that is no more. No I/O.
//!
//! An offset says nothing of the history that it was given in, so what was given is remembered: where pages ended, how many readers stand
//! there, and how far the pages of a partition went. After a change whoever comes with such an offset is told, once for each reader that
//! stood there; whoever comes with another one from within what was given, once for each offset, unless pages of the new history went there,
//! too. The beginning belongs to every history.

use std::collections::{BTreeMap, BTreeSet};

use latent_core::Partition;

use crate::limits;

/// See the module. Of one topic.
#[derive(Debug, Default)]
pub(super) struct Given {
    epoch: u64,
    partitions: BTreeMap<u32, OfPartition>,
}

#[derive(Debug, Default)]
struct OfPartition {
    /// Readers by the offset at which they go on.
    standing: Standing,
    /// The lowest offset asked for and the highest one given.
    covered: Option<(u64, u64)>,
    /// What is left of earlier histories.
    stale: Option<Stale>,
}

#[derive(Debug, Default)]
struct Stale {
    highest: u64,
    standing: Standing,
    told: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct Standing(BTreeMap<u64, u64>);

impl Standing {
    fn add(&mut self, offset: u64, readers: u64) {
        *self.0.entry(offset).or_default() += readers;
        if self.0.len() > limits::GIVEN_OFFSETS.default_usize() {
            self.0.pop_first();
        }
    }

    /// Whether one stood there, who stands there no more.
    fn take(&mut self, offset: u64) -> bool {
        let Some(readers) = self.0.get_mut(&offset) else { return false };
        *readers -= 1;
        if *readers == 0 {
            self.0.remove(&offset);
        }
        true
    }
}

impl Stale {
    fn is_told(&mut self, from: u64, covered: Option<(u64, u64)>) -> bool {
        if self.standing.take(from) {
            return true;
        }
        let is_given_anew = covered.is_some_and(|(low, high)| low <= from && from <= high);
        if from > self.highest || is_given_anew || !self.told.insert(from) {
            return false;
        }
        if self.told.len() > limits::GIVEN_OFFSETS.default_usize() {
            self.told.pop_first();
        }
        true
    }
}

impl Given {
    /// A reader goes on at `from`. True when it must be told that this offset is of another history than the one of `epoch`.
    pub(super) fn goes_on(&mut self, epoch: u64, partition: Partition, from: u64) -> bool {
        self.begin(epoch);
        let Some(of) = self.partitions.get_mut(&partition.0) else { return false };
        if from > 1 && of.stale.as_mut().is_some_and(|stale| stale.is_told(from, of.covered)) {
            return true;
        }
        of.standing.take(from);
        false
    }

    /// A page of the history of `epoch` was given, from one offset up to another, which is where its reader stands now. Of an end both are
    /// the same.
    pub(super) fn gave(&mut self, epoch: u64, partition: Partition, from: u64, next: u64) {
        self.begin(epoch);
        let of = self.partitions.entry(partition.0).or_default();
        if epoch < self.epoch {
            // Read before the change, given after it.
            let stale = of.stale.get_or_insert_default();
            stale.highest = stale.highest.max(next);
            stale.standing.add(next, 1);
            return;
        }
        of.standing.add(next, 1);
        if next <= from {
            // An end was told, which anybody may ask for anywhere.
            return;
        }
        let (low, high) = of.covered.unwrap_or((from, next));
        of.covered = Some((low.min(from), high.max(next)));
    }

    /// Everything that was given in an earlier history is stale.
    fn begin(&mut self, epoch: u64) {
        if epoch <= self.epoch {
            return;
        }
        self.epoch = epoch;
        for of in self.partitions.values_mut() {
            let stale = of.stale.get_or_insert_default();
            stale.highest = stale.highest.max(of.covered.take().map_or(0, |(_, high)| high));
            stale.told.clear();
            for (offset, readers) in std::mem::take(&mut of.standing).0 {
                stale.standing.add(offset, readers);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P0: Partition = Partition(0);
    const P1: Partition = Partition(1);

    /// Two readers tail at 11, one stands at 6; then the history changes.
    fn changed() -> Given {
        let mut given = Given::default();
        for (from, next) in [(1, 11), (1, 11), (1, 6)] {
            assert!(!given.goes_on(0, P0, from));
            given.gave(0, P0, from, next);
        }
        given.gave(0, P1, 1, 21);
        given
    }

    #[test]
    fn each_reader_that_stood_somewhere_is_told_once_in_every_partition() {
        let mut given = changed();
        assert_eq!([11, 11, 6].map(|from| given.goes_on(1, P0, from)), [true; 3]);
        assert!(given.goes_on(1, P1, 21));
        // And for each further offset once: who asks again knows.
        assert_eq!([11, 11, 6, 6, 3, 3].map(|from| given.goes_on(1, P0, from)), [true, false, true, false, true, false]);
    }

    #[test]
    fn the_beginning_and_what_was_never_given_are_of_every_history() {
        let mut given = changed();
        assert_eq!([0, 1, 12, 1_000].map(|from| given.goes_on(1, P0, from)), [false; 4]);
        assert!(!given.goes_on(1, Partition(2), 5));
        assert!(!Given::default().goes_on(0, P0, 5));
    }

    #[test]
    fn who_reads_the_new_history_is_told_nothing() {
        let mut given = changed();
        let mut at = 1;
        for next in [3, 5, 9, 15] {
            assert!(!given.goes_on(1, P0, at), "{at}");
            given.gave(1, P0, at, next);
            at = next;
        }
        assert!(!given.goes_on(1, P0, 7), "somewhere in what was given of it");
        assert!(given.goes_on(1, P0, 11), "but who stood there before is told");
        assert!(given.goes_on(2, P0, 15), "and after another change everybody");
    }

    #[test]
    fn a_page_that_was_read_before_a_change_and_given_after_it_is_of_the_old_history() {
        let mut given = Given::default();
        assert!(!given.goes_on(0, P0, 1) && !given.goes_on(1, P0, 1));
        given.gave(0, P0, 1, 9);
        assert!(given.goes_on(1, P0, 9));
    }

    #[test]
    fn an_end_that_was_told_far_out_says_nothing_of_what_lies_before_it() {
        let mut given = Given::default();
        given.gave(0, P0, 1, 5);
        given.gave(0, P0, 1_000, 1_000);
        assert_eq!([7, 1_000].map(|from| given.goes_on(1, P0, from)), [false, true]);
        given.gave(1, P0, 1_000, 1_000);
        assert!(given.goes_on(1, P0, 4), "not covered by the new one");
    }

    #[test]
    fn so_many_places_are_remembered_and_no_more() {
        let max = limits::GIVEN_OFFSETS.default;
        for (count, is_first_known) in [(max, true), (max + 1, false)] {
            let mut given = Given::default();
            // Each by two readers, which only a remembered place can tell.
            (0..count).for_each(|n| (0..2).for_each(|_| given.gave(0, P0, 1, n + 2)));
            let told = [given.goes_on(1, P0, 2), given.goes_on(1, P0, 2), given.goes_on(1, P0, 2)];
            assert_eq!(told, [true, is_first_known, is_first_known], "{count}");
        }
    }
}
