//! Where the readable records of one partition lie. In memory: 24 bytes a record.
//!
//! Invariants: `places` is ascending in offset; every offset in `first..next` that has no place is damaged; `next` never falls.

use latent_core::Offset;

/// Where one record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Its offset in the partition.
    pub(super) offset: u64,
    /// Position of its frame in the segment.
    pub(super) at: u64,
    /// Number of the segment in the topic.
    pub(super) segment: u32,
    /// Bytes of its body.
    pub(super) body_len: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Positions {
    places: Vec<Place>,
    next: u64,
    bytes: u64,
}

impl Positions {
    /// The first offset.
    pub(super) const fn first(&self) -> Offset {
        Offset(0)
    }

    /// The offset after the last one.
    pub(super) const fn next(&self) -> Offset {
        Offset(self.next)
    }

    /// Bytes of readable frames.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Offsets that cannot be read.
    pub(super) fn damaged(&self) -> u64 {
        self.next.saturating_sub(self.places.len() as u64)
    }

    /// Adds a record. False when its offset lies before the end, where it would break the order.
    pub(super) fn push(&mut self, place: Place) -> bool {
        let ahead = place.offset >= self.next;
        if ahead {
            self.bytes = self.bytes.saturating_add(super::frame::frame_bytes(place.body_len));
            self.places.push(place);
            self.raise(place.offset.saturating_add(1));
        }
        ahead
    }

    /// Occupies every offset below `next`; those without a record are damaged.
    pub(super) fn raise(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// The record at `offset`, or `None` when there is none or it is damaged.
    pub(super) fn at(&self, offset: u64) -> Option<Place> {
        self.from(offset).first().copied().filter(|place| place.offset == offset)
    }

    /// Records at `offset` and after it.
    pub(super) fn from(&self, offset: u64) -> &[Place] {
        // Without damage a record's offset is its index, so the search ends at once.
        let guess = usize::try_from(offset).unwrap_or(usize::MAX).min(self.places.len());
        let start = match self.places.get(guess) {
            Some(place) if place.offset == offset => guess,
            _ => self.places.partition_point(|place| place.offset < offset),
        };
        self.places.get(start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: u64) -> Place {
        Place { offset, at: offset * 100, segment: 0, body_len: 10 }
    }

    #[test]
    fn offsets_without_a_record_are_damaged_and_stay_occupied() {
        let mut positions = Positions::default();
        assert!(positions.push(place(0)) && positions.push(place(3)));
        positions.raise(6);
        assert_eq!((positions.next(), positions.damaged()), (Offset(6), 4));
        assert_eq!(positions.at(3), Some(place(3)));
        assert!([1, 2, 4, 5, 6, u64::MAX].iter().all(|offset| positions.at(*offset).is_none()));
        assert_eq!(positions.from(1), [place(3)]);
    }

    #[test]
    fn repeated_and_falling_offsets_are_refused() {
        let mut positions = Positions::default();
        assert!(positions.push(place(4)));
        assert!(!positions.push(place(4)) && !positions.push(place(2)));
        assert_eq!(positions.next(), Offset(5));
    }
}
