//! Places between those who work and the one who writes.
//!
//! Invariant: `records + reserved ≤ places`, so a reserved place is there when its record comes.

use std::collections::VecDeque;

use latent_capabilities::AuditRecord;

pub(super) struct Queue {
    records: VecDeque<AuditRecord>,
    reserved: usize,
    places: usize,
}

impl Queue {
    pub(super) const fn new(places: usize) -> Self {
        Self { records: VecDeque::new(), reserved: 0, places }
    }

    /// Takes a place if one is free.
    pub(super) fn reserve(&mut self) -> bool {
        let free = self.records.len() + self.reserved < self.places;
        self.reserved += usize::from(free);
        free
    }

    /// Returns a reserved place.
    pub(super) const fn release(&mut self) {
        self.reserved = self.reserved.saturating_sub(1);
    }

    /// Puts a record in its reserved place.
    pub(super) fn fill(&mut self, record: AuditRecord) {
        self.release();
        self.records.push_back(record);
    }

    /// The oldest record; its place is free again.
    pub(super) fn pop(&mut self) -> Option<AuditRecord> {
        self.records.pop_front()
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::tests::record;
    use super::*;

    #[test]
    fn a_place_is_free_up_to_the_bound_whether_reserved_or_filled() {
        let mut queue = Queue::new(2);
        assert!(queue.reserve() && queue.reserve() && !queue.reserve());
        queue.fill(record());
        assert!(!queue.reserve() && queue.len() == 1);
        queue.release();
        assert!(queue.reserve() && !queue.reserve());
        assert!(queue.pop().is_some() && queue.pop().is_none());
        assert!(queue.reserve() && !queue.reserve());
    }
}
