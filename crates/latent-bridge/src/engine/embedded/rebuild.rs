//! From what a scan of one segment found to what the segment holds. No I/O.
//!
//! Sequences are dense over a topic and offsets are dense over a partition, and every record has one of each. So the next sequence
//! equals the sum of all next offsets, unless records were lost that nothing names. Then nobody knows in which partitions they were,
//! and every partition skips as many offsets: no offset is ever given twice.

use super::body;
use super::frame::Identity;
use super::numbers::Numbers;
use super::positions::{Place, Positions};
use super::scan::Found;
use super::segment_index::{PartitionSummary, SegmentSummary};
use super::uid_hash::UidHasher;
use super::uid_map::UidMap;
use super::uid_runs::UidEntry;
use crate::limits;

/// See the module.
pub(super) struct SegmentRebuild<'h> {
    hasher: &'h UidHasher,
    start: Numbers,
    next: Numbers,
    positions: Positions,
    uids: UidMap,
    oldest: u64,
    newest: u64,
    displaced: u64,
    /// The last group that was found.
    last_group: Option<GroupStart>,
    /// Bytes of the segment's file, as far as anybody said.
    file_bytes: u64,
    /// Records taken so far.
    taken: u64,
}

/// Records after which it is known about how many more there are.
const RECORDS_TO_LEARN: u64 = 1_024;

/// Where a group begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupStart {
    pub(super) sequence: u64,
    pub(super) at: u64,
}

/// What came of it.
pub(super) struct Rebuilt {
    pub(super) start: Numbers,
    pub(super) end: Numbers,
    pub(super) positions: Positions,
    pub(super) uids: UidMap,
    pub(super) oldest: u64,
    pub(super) newest: u64,
    /// Records whose sequence or offset repeats or falls, or whose partition does not exist. They are not readable.
    pub(super) displaced: u64,
    /// The last group. It alone may not be synced: a later one exists only after its sync.
    pub(super) last_group: Option<GroupStart>,
}

impl<'h> SegmentRebuild<'h> {
    /// A segment before which these numbers were given.
    pub(super) fn new(start: Numbers, hasher: &'h UidHasher) -> Self {
        Self {
            hasher,
            next: start.clone(),
            positions: Positions::starting_at(&start),
            start,
            uids: UidMap::default(),
            oldest: u64::MAX,
            newest: 0,
            displaced: 0,
            last_group: None,
            file_bytes: 0,
            taken: 0,
        }
    }

    /// Says how long the segment's file is, so that room can be made for about as many records as it has.
    pub(super) fn of_file(self, file_bytes: u64) -> Self {
        Self { file_bytes, ..self }
    }

    /// Takes one thing that the scan found.
    pub(super) fn take(&mut self, found: &Found<'_>) {
        match found {
            // What the segment says of itself; numbers that were given before it and are higher stay.
            Found::Start(start) if self.positions.count() == 0 => {
                self.start.raise_to(start);
                self.next.raise_to(start);
                self.positions = Positions::starting_at(&self.start);
            }
            Found::Start(_) => {}
            Found::Damaged(identity) => {
                if self.is_ahead(*identity) {
                    self.occupy(*identity);
                } else {
                    self.displaced += 1;
                }
            }
            Found::Record { header, at, body } => {
                let identity = header.identity;
                let place = u32::try_from(*at).ok().map(|at| Place { offset: identity.offset, at });
                let fits = |positions: &mut Positions, place| positions.push(identity.partition, place, header.frame_bytes());
                let Some(place) = place.filter(|place| self.is_ahead(identity) && fits(&mut self.positions, *place)) else {
                    self.displaced += 1;
                    return;
                };
                self.occupy(identity);
                if header.group_index == 0 || self.last_group.is_none() {
                    self.last_group = Some(GroupStart { sequence: identity.sequence, at: *at });
                }
                self.oldest = self.oldest.min(header.stored_at);
                self.newest = self.newest.max(header.stored_at);
                if let Some(uid) = body::decode_uid(body) {
                    self.uids.add(UidEntry { hash: self.hasher.hash(uid), sequence: identity.sequence, at: place.at });
                }
                self.taken += 1;
                if self.taken == RECORDS_TO_LEARN {
                    self.make_room(*at);
                }
            }
        }
    }

    /// As if all records were as long as those up to `at`: growing step by step would move every entry several times. A file may be
    /// longer than any segment is, so the room is bounded.
    fn make_room(&mut self, at: u64) {
        let expected = self.file_bytes / (at / RECORDS_TO_LEARN).max(1);
        let room = expected.min(limits::SEGMENT_RECORDS.default).saturating_sub(RECORDS_TO_LEARN);
        self.uids.reserve(usize::try_from(room).unwrap_or(0));
    }

    fn is_ahead(&self, identity: Identity) -> bool {
        let next_offset = self.next.offsets.get(usize::from(identity.partition));
        identity.sequence >= self.next.sequence && next_offset.is_some_and(|next| identity.offset >= *next)
    }

    fn occupy(&mut self, identity: Identity) {
        self.next.sequence = identity.sequence.saturating_add(1);
        self.next.raise(usize::from(identity.partition), identity.offset.saturating_add(1));
    }

    pub(super) fn finish(self) -> Rebuilt {
        let Self { start, next, positions, uids, oldest, newest, displaced, last_group, .. } = self;
        Rebuilt { start, end: next, positions, uids, oldest, newest, displaced, last_group }
    }
}

impl Rebuilt {
    /// The summary of a segment that ends after `length` bytes with this witness.
    pub(super) fn summary(&self, length: u64, witness: u64) -> SegmentSummary {
        SegmentSummary {
            start: self.start.clone(),
            end: self.end.clone(),
            length,
            oldest: self.oldest,
            newest: self.newest,
            displaced: self.displaced,
            witness,
            partitions: partition_summaries(&self.positions),
        }
    }
}

/// Counts and bytes of each partition.
pub(super) fn partition_summaries(positions: &Positions) -> Vec<PartitionSummary> {
    let count = |entries: usize| u32::try_from(entries).unwrap_or(u32::MAX);
    positions.partitions().iter().map(|of| PartitionSummary { entries: count(of.entries.len()), bytes: of.bytes }).collect()
}

/// The next numbers of a topic from where its last segment ended and from what other files have seen.
pub(super) fn next_numbers(end: &Numbers, seen: &Numbers) -> Numbers {
    let mut next = end.clone();
    next.raise_to(seen);
    let unattributed = next.sequence.saturating_sub(next.offsets_given());
    next.offsets.iter_mut().for_each(|offset| *offset = offset.saturating_add(unattributed));
    next.sequence = next.sequence.max(next.offsets_given());
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::embedded::directory::StoreId;
    use crate::engine::embedded::frame::Header;

    fn rebuilt(found: &[(u64, u16, u64, u16)]) -> Rebuilt {
        let hasher = UidHasher::of(StoreId([0; 16]));
        let mut rebuild = SegmentRebuild::new(Numbers::zero(2), &hasher);
        for (at, (sequence, partition, offset, group_index)) in found.iter().enumerate() {
            let identity = Identity { sequence: *sequence, partition: *partition, offset: *offset };
            let header = Header { identity, group_index: *group_index, stored_at: *sequence, body_len: 0, body_crc: 0, head_crc: 0 };
            rebuild.take(&Found::Record { header, at: at as u64 * 100, body: b"" });
        }
        rebuild.finish()
    }

    fn next(found: &[(u64, u16, u64, u16)], seen: Option<(u64, [u64; 2])>) -> Numbers {
        let seen = seen.map_or_else(|| Numbers::zero(2), |(sequence, offsets)| Numbers { sequence, offsets: offsets.to_vec() });
        next_numbers(&rebuilt(found).end, &seen)
    }

    #[test]
    fn a_lost_record_is_known_by_the_gap_of_its_partition() {
        let found = [(0, 0, 0, 0), (2, 0, 2, 0), (3, 1, 0, 0)];
        assert_eq!(next(&found, None), Numbers { sequence: 4, offsets: vec![3, 1] });
        assert_eq!(rebuilt(&found).positions.count(), 3);
    }

    #[test]
    fn a_record_lost_without_a_name_costs_an_offset_in_every_partition() {
        assert_eq!(next(&[(0, 0, 0, 0), (2, 0, 1, 0)], None), Numbers { sequence: 4, offsets: vec![3, 1] });
    }

    #[test]
    fn a_watermark_only_raises() {
        let records = [(0, 0, 0, 0), (1, 1, 0, 0), (2, 1, 1, 0)];
        assert_eq!(next(&records, Some((1, [1, 0]))).offsets, [1, 2]);
        assert_eq!(next(&records, Some((5, [1, 4]))), Numbers { sequence: 5, offsets: vec![1, 4] });
    }

    #[test]
    fn repeated_falling_and_foreign_numbers_are_counted_and_left_out() {
        let rebuilt = rebuilt(&[(0, 0, 0, 0), (0, 0, 1, 0), (1, 0, 0, 0), (2, 7, 0, 0), (1, 1, 0, 0)]);
        assert_eq!((rebuilt.displaced, rebuilt.end.offsets), (3, vec![1, 1]));
    }

    #[test]
    fn the_last_group_begins_where_a_record_says_that_it_is_the_first_of_one() {
        assert_eq!(
            rebuilt(&[(0, 0, 0, 0), (1, 0, 1, 1), (2, 0, 2, 0), (3, 0, 3, 1)]).last_group,
            Some(GroupStart { sequence: 2, at: 200 })
        );
        assert_eq!(rebuilt(&[(1, 0, 1, 1), (2, 0, 2, 2)]).last_group, Some(GroupStart { sequence: 1, at: 0 }), "its first is lost");
        assert_eq!(rebuilt(&[]).last_group, None);
    }

    #[test]
    fn a_start_raises_what_was_known_before() {
        let hasher = UidHasher::of(StoreId([0; 16]));
        let mut rebuild = SegmentRebuild::new(Numbers { sequence: 3, offsets: vec![3, 0] }, &hasher);
        rebuild.take(&Found::Start(Numbers { sequence: 9, offsets: vec![2, 7] }));
        let rebuilt = rebuild.finish();
        assert_eq!(rebuilt.start, Numbers { sequence: 9, offsets: vec![3, 7] });
        assert_eq!(rebuilt.start, rebuilt.end);
    }
}
