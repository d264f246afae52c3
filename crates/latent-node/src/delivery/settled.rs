//! Which offsets of a partition are settled: everything below a floor, and ranges above it. Pure data.

use std::collections::BTreeMap;

use latent_core::Offset;

/// A set of settled offsets. Invariants: every range lies above the floor, ranges neither touch nor overlap, none is empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SettledSet {
    floor: u64,
    /// Start of a range → its end, exclusive.
    above: BTreeMap<u64, u64>,
    above_count: u64,
}

impl SettledSet {
    /// Everything below `floor` is settled.
    pub fn up_to(floor: Offset) -> Self {
        Self { floor: floor.0, ..Self::default() }
    }

    /// The first offset that is not settled.
    pub fn floor(&self) -> Offset {
        Offset(self.floor)
    }

    /// How many offsets above the floor are settled.
    pub fn above_count(&self) -> u64 {
        self.above_count
    }

    /// Whether `offset` is settled.
    pub fn contains(&self, offset: Offset) -> bool {
        offset.0 < self.floor || self.above.range(..=offset.0).next_back().is_some_and(|(_, end)| offset.0 < *end)
    }

    /// The first offset at or after `from` that is not settled.
    pub fn first_unsettled(&self, from: Offset) -> Offset {
        let from = from.0.max(self.floor);
        let range = self.above.range(..=from).next_back().filter(|(_, end)| from < **end);
        Offset(range.map_or(from, |(_, end)| *end))
    }

    /// How many offsets of `start..end` are not settled.
    pub fn unsettled_in(&self, start: Offset, end: Offset) -> u64 {
        let (start, end) = (start.0.max(self.floor), end.0);
        let settled = self.above.range(..end).map(|(from, to)| (*to).min(end).saturating_sub((*from).max(start)));
        end.saturating_sub(start).saturating_sub(settled.sum())
    }

    /// Settles `offset`.
    pub fn insert(&mut self, offset: Offset) {
        self.insert_range(offset, Offset(offset.0.saturating_add(1)));
    }

    /// Settles `start..end`.
    pub fn insert_range(&mut self, start: Offset, end: Offset) {
        let (mut start, mut end) = (start.0.max(self.floor), end.0);
        if start >= end {
            return;
        }
        // Swallow every range that touches the new one.
        while let Some((&from, &to)) = self.above.range(..=end).next_back() {
            if to < start {
                break;
            }
            self.above.remove(&from);
            self.above_count -= to - from;
            (start, end) = (start.min(from), end.max(to));
        }
        if start == self.floor {
            self.floor = end;
        } else {
            self.above.insert(start, end);
            self.above_count += end - start;
        }
    }

    /// The ranges above the floor, ascending, ends exclusive.
    pub fn ranges(&self) -> impl Iterator<Item = (Offset, Offset)> {
        self.above.iter().map(|(start, end)| (Offset(*start), Offset(*end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_floor_moves_over_ranges_that_become_contiguous() {
        let mut set = SettledSet::default();
        for offset in [3, 1, 2] {
            set.insert(Offset(offset));
        }
        assert_eq!((set.floor(), set.above_count(), set.ranges().count()), (Offset(0), 3, 1));
        set.insert(Offset(0));
        assert_eq!((set.floor(), set.above_count()), (Offset(4), 0));
    }

    proptest! {
        #[test]
        fn it_holds_exactly_what_was_inserted(inserts in proptest::collection::vec((0_u64..60, 0_u64..9), 0..60)) {
            let (mut set, mut model) = (SettledSet::default(), BTreeSet::new());
            for (start, length) in inserts {
                set.insert_range(Offset(start), Offset(start + length));
                model.extend(start..start + length);
            }
            for offset in 0..80 {
                prop_assert_eq!(set.contains(Offset(offset)), model.contains(&offset));
            }
            let floor = (0..).find(|offset| !model.contains(offset)).unwrap_or_default();
            prop_assert_eq!(set.floor(), Offset(floor));
            prop_assert_eq!(set.above_count(), model.iter().filter(|offset| **offset > floor).count() as u64);
            for from in 0..80 {
                let first = (from..).find(|offset| !model.contains(offset)).unwrap_or_default();
                prop_assert_eq!(set.first_unsettled(Offset(from)), Offset(first));
                for end in 0..80 {
                    let unsettled = (from..end).filter(|offset| !model.contains(offset)).count() as u64;
                    prop_assert_eq!(set.unsettled_in(Offset(from), Offset(end)), unsettled);
                }
            }
            let ranges: Vec<_> = set.ranges().collect();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
