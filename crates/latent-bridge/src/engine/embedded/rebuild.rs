//! From what a scan found to what a topic contains. No I/O.
//!
//! Sequences are dense over a topic and offsets are dense over a partition, and every record has one of each. So the next sequence
//! equals the sum of all next offsets, unless records were lost that nothing names. Then nobody knows in which partitions they were,
//! and every partition skips as many offsets: no offset is ever given twice.

use super::body;
use super::frame::Identity;
use super::positions::{Place, Positions};
use super::scan::Found;
use super::uid_index::{Located, UidHash, UidIndex};

/// The next numbers of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NextNumbers {
    pub(super) sequence: u64,
    /// One for each partition.
    pub(super) offsets: Vec<u64>,
}

/// See the module.
pub(super) struct Rebuild {
    positions: Vec<Positions>,
    uids: UidIndex,
    next_sequence: u64,
    displaced: u64,
}

/// What came of it.
pub(super) struct Rebuilt {
    pub(super) positions: Vec<Positions>,
    pub(super) uids: UidIndex,
    pub(super) next: NextNumbers,
    /// Records whose sequence or offset repeats or falls, or whose partition does not exist. They are not readable.
    pub(super) displaced: u64,
}

impl Rebuild {
    pub(super) fn new(partitions: u32) -> Self {
        Self {
            positions: (0..partitions).map(|_| Positions::default()).collect(),
            uids: UidIndex::default(),
            next_sequence: 0,
            displaced: 0,
        }
    }

    /// A segment begins whose name says that every sequence below `sequence` was given.
    pub(super) fn segment_begins(&mut self, sequence: u64) {
        self.next_sequence = self.next_sequence.max(sequence);
    }

    /// Takes one thing that the scan of segment number `segment` found.
    pub(super) fn take(&mut self, segment: u32, found: &Found<'_>) {
        let identity = match found {
            Found::Record { header, .. } => header.identity,
            Found::Damaged(identity) => *identity,
        };
        let placed = self.occupy(identity, |positions| match found {
            Found::Record { header, at, .. } => {
                positions.push(Place { offset: identity.offset, at: *at, segment, body_len: header.body_len })
            }
            Found::Damaged(_) => {
                positions.raise(identity.offset.saturating_add(1));
                true
            }
        });
        if !placed {
            self.displaced += 1;
        } else if let Found::Record { body, .. } = found
            && let Some(uid) = body::decode_uid(body)
        {
            self.uids.add(UidHash::of(uid), Located { partition: identity.partition, offset: identity.offset });
        }
    }

    fn occupy(&mut self, identity: Identity, place: impl FnOnce(&mut Positions) -> bool) -> bool {
        let Some(positions) = self.positions.get_mut(identity.partition as usize) else { return false };
        let ahead = identity.sequence >= self.next_sequence && identity.offset >= positions.next().0;
        if ahead {
            self.next_sequence = identity.sequence.saturating_add(1);
        }
        ahead && place(positions)
    }

    /// Ends the scan. `seen` are the next numbers of an earlier time, from the watermark; they only ever raise.
    pub(super) fn finish(mut self, seen: Option<&NextNumbers>) -> Rebuilt {
        if let Some(seen) = seen {
            self.next_sequence = self.next_sequence.max(seen.sequence);
            self.positions.iter_mut().zip(&seen.offsets).for_each(|(positions, next)| positions.raise(*next));
        }
        let unattributed = self.next_sequence.saturating_sub(self.offsets_given());
        if unattributed > 0 {
            self.positions.iter_mut().for_each(|positions| positions.raise(positions.next().0.saturating_add(unattributed)));
        }
        let sequence = self.next_sequence.max(self.offsets_given());
        let offsets = self.positions.iter().map(|positions| positions.next().0).collect();
        Rebuilt { positions: self.positions, uids: self.uids, next: NextNumbers { sequence, offsets }, displaced: self.displaced }
    }

    fn offsets_given(&self) -> u64 {
        self.positions.iter().fold(0, |sum, positions| sum.saturating_add(positions.next().0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::embedded::frame::Header;

    fn rebuilt(found: &[(u64, u32, u64)], seen: Option<NextNumbers>) -> Rebuilt {
        let mut rebuild = Rebuild::new(2);
        for (sequence, partition, offset) in found {
            let identity = Identity { sequence: *sequence, partition: *partition, offset: *offset };
            let header = Header { identity, stored_at: 0, body_len: 0, body_crc: 0, head_crc: 0 };
            rebuild.take(0, &Found::Record { header, at: 0, body: b"" });
        }
        rebuild.finish(seen.as_ref())
    }

    #[test]
    fn a_lost_record_is_known_by_the_gap_of_its_partition() {
        let rebuilt = rebuilt(&[(0, 0, 0), (2, 0, 2), (3, 1, 0)], None);
        assert_eq!(rebuilt.next, NextNumbers { sequence: 4, offsets: vec![3, 1] });
        assert_eq!(rebuilt.positions[0].damaged(), 1);
    }

    #[test]
    fn a_record_lost_without_a_name_costs_an_offset_in_every_partition() {
        let rebuilt = rebuilt(&[(0, 0, 0), (2, 0, 1)], None);
        assert_eq!(rebuilt.next, NextNumbers { sequence: 4, offsets: vec![3, 1] });
    }

    #[test]
    fn a_watermark_only_raises() {
        let seen = |sequence, offsets: [u64; 2]| Some(NextNumbers { sequence, offsets: offsets.to_vec() });
        let records = [(0, 0, 0), (1, 1, 0), (2, 1, 1)];
        assert_eq!(rebuilt(&records, seen(1, [1, 0])).next.offsets, [1, 2]);
        assert_eq!(rebuilt(&records, seen(5, [1, 4])).next, NextNumbers { sequence: 5, offsets: vec![1, 4] });
    }

    #[test]
    fn repeated_falling_and_foreign_numbers_are_counted_and_left_out() {
        let rebuilt = rebuilt(&[(0, 0, 0), (0, 0, 1), (1, 0, 0), (2, 7, 0), (1, 1, 0)], None);
        assert_eq!(rebuilt.displaced, 3);
        assert_eq!(rebuilt.positions[0].next().0, 1);
    }
}
