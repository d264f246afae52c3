//! Places of messages that the client cannot read: each of them ends the connection when a consumer delivers it, so consumers are stopped
//! before it and it is looked at singly. Kept in bounded memory; a place that was forgotten costs the connection once more. No I/O.

use std::collections::BTreeSet;

use latent_core::Partition;

use crate::limits;

/// See the module. Of one topic.
#[derive(Debug, Default)]
pub(super) struct Unparsable {
    epoch: u64,
    places: BTreeSet<(u32, u64)>,
}

impl Unparsable {
    /// Such a message lies there, in this history.
    pub(super) fn note(&mut self, epoch: u64, partition: Partition, sequence: u64) {
        self.begin(epoch);
        self.places.insert((partition.0, sequence));
        if self.places.len() > limits::UNPARSABLE_KEPT.default_usize() {
            self.places.pop_first();
        }
    }

    /// The first one of a partition from a sequence on.
    pub(super) fn next(&mut self, epoch: u64, partition: Partition, from: u64) -> Option<u64> {
        self.begin(epoch);
        self.places.range((partition.0, from)..=(partition.0, u64::MAX)).next().map(|(_, sequence)| *sequence)
    }

    /// What was known of another history is of no use.
    fn begin(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.places.clear();
            self.epoch = epoch;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P0: Partition = Partition(0);
    const P1: Partition = Partition(1);

    #[test]
    fn the_next_one_of_the_partition_is_told_in_its_history_alone() {
        let mut places = Unparsable::default();
        places.note(0, P0, 5);
        places.note(0, P0, 9);
        places.note(0, P1, 7);
        assert_eq!([1, 5, 6, 9, 10].map(|from| places.next(0, P0, from)), [Some(5), Some(5), Some(9), Some(9), None]);
        assert_eq!(places.next(0, P1, 1), Some(7));
        assert_eq!((places.next(1, P0, 1), places.next(0, P0, 1)), (None, None));
    }

    #[test]
    fn so_many_are_kept_and_no_more() {
        let mut places = Unparsable::default();
        let max = limits::UNPARSABLE_KEPT.default;
        (1..=max).for_each(|sequence| places.note(0, P0, sequence));
        assert_eq!(places.next(0, P0, 1), Some(1));
        places.note(0, P0, max + 1);
        assert_eq!((places.next(0, P0, 1), places.places.len() as u64), (Some(2), max));
    }
}
