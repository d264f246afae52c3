//! Numbers of a topic: one sequence, and one offset for each partition. No I/O.

use super::frame::Identity;

/// A position in a topic: in the order of all its records, and in each partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) sequence: u64,
    /// One for each partition.
    pub(super) offsets: Vec<u64>,
}

impl Numbers {
    /// The beginning of a topic with `partitions` partitions.
    pub(super) fn zero(partitions: u32) -> Self {
        Self { sequence: 0, offsets: vec![0; partitions as usize] }
    }

    /// Gives the next numbers to a record of `partition`. `None` when there is no such partition or its numbers are used up.
    pub(super) fn assign(&mut self, partition: u16) -> Option<Identity> {
        let offset = self.offsets.get_mut(usize::from(partition))?;
        let identity = Identity { sequence: self.sequence, partition, offset: *offset };
        // Both or neither: a number that was taken and not used would be a gap.
        let (next_offset, next_sequence) = (offset.checked_add(1)?, self.sequence.checked_add(1)?);
        (*offset, self.sequence) = (next_offset, next_sequence);
        Some(identity)
    }

    /// Undoes [`Numbers::assign`]; the latest first.
    pub(super) fn give_back(&mut self, identity: Identity) {
        self.sequence = identity.sequence;
        if let Some(offset) = self.offsets.get_mut(usize::from(identity.partition)) {
            *offset = identity.offset;
        }
    }

    /// Moves the offset of one partition up to `next`, if it is below.
    pub(super) fn raise(&mut self, partition: usize, next: u64) {
        if let Some(offset) = self.offsets.get_mut(partition) {
            *offset = next.max(*offset);
        }
    }

    /// Moves every number up to that of `other`, where it is below.
    pub(super) fn raise_to(&mut self, other: &Self) {
        self.sequence = self.sequence.max(other.sequence);
        self.offsets.iter_mut().zip(&other.offsets).for_each(|(own, other)| *own = (*own).max(*other));
    }

    /// True when no number of `other` is below this one's.
    pub(super) fn all_reached_by(&self, other: &Self) -> bool {
        self.sequence <= other.sequence && self.offsets.iter().zip(&other.offsets).all(|(own, other)| own <= other)
    }

    /// How many offsets all partitions have given.
    pub(super) fn offsets_given(&self) -> u64 {
        self.offsets.iter().fold(0, |sum, offset| sum.saturating_add(*offset))
    }
}
