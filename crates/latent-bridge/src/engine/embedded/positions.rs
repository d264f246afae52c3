//! Where the readable records of one segment lie, by partition and offset. In memory, 8 bytes a record; used for the segment that is
//! being written, and until a full one has its index file.
//!
//! Invariants: the entries of a partition ascend; an offset of the segment without an entry is damaged.

use super::numbers::Numbers;

/// One record: its offset less the partition's first one in the segment, and the position of its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) relative: u32,
    pub(super) at: u32,
}

/// A record's offset and the position of its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) at: u32,
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Positions {
    partitions: Vec<PartitionPositions>,
}

/// The records of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PartitionPositions {
    /// The first offset that the segment may hold.
    pub(super) start: u64,
    pub(super) entries: Vec<Entry>,
    /// Bytes of the entries' frames.
    pub(super) bytes: u64,
}

impl Positions {
    /// No records yet, in a segment before which these numbers were given.
    pub(super) fn starting_at(start: &Numbers) -> Self {
        let partition = |start: &u64| PartitionPositions { start: *start, entries: Vec::new(), bytes: 0 };
        Self { partitions: start.offsets.iter().map(partition).collect() }
    }

    /// Whether a record with this offset can be kept: further than a `u32` from the segment's first, it needs a segment of its own.
    pub(super) fn holds(&self, partition: u16, offset: u64) -> bool {
        self.relative(partition, offset).is_some()
    }

    /// Adds a record, whose offset is above all earlier ones of its partition. False when it is not or cannot be kept.
    pub(super) fn push(&mut self, partition: u16, place: Place, frame_bytes: u64) -> bool {
        let Some(relative) = self.relative(partition, place.offset) else { return false };
        let Some(of) = self.partitions.get_mut(usize::from(partition)) else { return false };
        let ahead = of.entries.last().is_none_or(|last| last.relative < relative);
        if ahead {
            of.entries.push(Entry { relative, at: place.at });
            of.bytes = of.bytes.saturating_add(frame_bytes);
        }
        ahead
    }

    fn relative(&self, partition: u16, offset: u64) -> Option<u32> {
        u32::try_from(offset.checked_sub(self.partitions.get(usize::from(partition))?.start)?).ok()
    }

    pub(super) fn partitions(&self) -> &[PartitionPositions] {
        &self.partitions
    }

    /// Readable records.
    pub(super) fn count(&self) -> u64 {
        self.partitions.iter().map(|partition| partition.entries.len() as u64).sum()
    }

    /// Up to `max` records of a partition from `offset` on.
    pub(super) fn from(&self, partition: usize, offset: u64, max: usize) -> Vec<Place> {
        let Some(of) = self.partitions.get(partition) else { return Vec::new() };
        let Ok(relative) = u32::try_from(offset.saturating_sub(of.start)) else { return Vec::new() };
        let start = search(of.entries.len(), relative, |at| of.entries.get(at).map(|entry| entry.relative)).unwrap_or(0);
        let entries = of.entries.get(start..).unwrap_or_default().iter().take(max);
        entries.map(|entry| Place { offset: of.start.saturating_add(entry.relative.into()), at: entry.at }).collect()
    }
}

/// The first of `count` ascending values that is not below `wanted`. Without damage a value is its own index, so the search ends at
/// once. `None` when a value cannot be read.
pub(super) fn search(count: usize, wanted: u32, value: impl Fn(usize) -> Option<u32>) -> Option<usize> {
    let guess = (wanted as usize).min(count);
    if guess < count && value(guess)? == wanted {
        return Some(guess);
    }
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        if value(middle)? < wanted {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Numbers {
        Numbers { sequence: 7, offsets: vec![100, 5] }
    }

    fn place(offset: u64) -> Place {
        Place { offset, at: u32::try_from(offset).unwrap_or(0) * 10 }
    }

    #[test]
    fn records_are_found_from_any_offset_on_and_gaps_are_skipped() {
        let mut positions = Positions::starting_at(&start());
        for offset in [100, 101, 105, 106] {
            assert!(positions.push(0, place(offset), 10));
        }
        let from = |offset, max| positions.from(0, offset, max).iter().map(|place| place.offset).collect::<Vec<_>>();
        assert_eq!(from(0, 9), [100, 101, 105, 106]);
        assert_eq!(from(102, 9), [105, 106]);
        assert_eq!(from(105, 1), [105]);
        assert!(from(107, 9).is_empty() && from(u64::MAX, 9).is_empty() && positions.from(9, 0, 9).is_empty());
        assert_eq!((positions.count(), positions.partitions()[0].bytes), (4, 40));
    }

    #[test]
    fn what_falls_repeats_or_lies_too_far_is_refused() {
        let mut positions = Positions::starting_at(&start());
        assert!(positions.push(1, place(9), 1));
        for (partition, offset) in [(1, 9), (1, 6), (1, 4), (2, 9), (1, 5 + u64::from(u32::MAX) + 1)] {
            assert!(!positions.push(partition, place(offset), 1), "{partition}/{offset}");
        }
        assert!(positions.holds(1, 5 + u64::from(u32::MAX)) && !positions.holds(1, 6 + u64::from(u32::MAX)));
    }
}
