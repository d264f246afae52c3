//! Commands on their way out, in order and in bounded memory, and how far each of them came.

use std::collections::VecDeque;

use crate::limits::CONTROL_FRAMES;
use crate::link::PONG;
use crate::outcome::Stage;

/// Where a command lies among all bytes that this connection ever writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) start: u64,
    pub(super) end: u64,
}

pub(super) struct Outgoing {
    bytes: Vec<u8>,
    /// How many of `bytes` the writer took.
    taken: usize,
    /// The place of the first of `bytes`.
    base: u64,
    /// Everything before this place was offered to the writer.
    offered: u64,
    /// Where the answers to PINGs end that the writer has not taken.
    pongs: VecDeque<u64>,
    bytes_max: usize,
}

const PONGS_MAX: usize = CONTROL_FRAMES.max_usize();

impl Outgoing {
    pub(super) fn new(bytes_max: usize) -> Self {
        let bytes = Vec::with_capacity(Self::buffer_bytes(bytes_max));
        Self { bytes, taken: 0, base: 0, offered: 0, pongs: VecDeque::with_capacity(PONGS_MAX), bytes_max }
    }

    /// Memory that is allocated for commands of so many bytes.
    pub(super) const fn buffer_bytes(bytes_max: usize) -> usize {
        bytes_max + PONGS_MAX * PONG.len()
    }

    pub(super) fn waiting(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    /// Bytes that commands may still have.
    pub(super) fn free(&self) -> usize {
        self.bytes_max.saturating_sub(self.waiting().len().saturating_sub(self.pongs.len() * PONG.len()))
    }

    /// Queues a command. Nothing when there is no room.
    pub(super) fn push(&mut self, parts: &[&[u8]]) -> Option<Place> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        (bytes <= self.free()).then(|| self.append(parts))
    }

    /// Queues the answer to a PING. False when as many wait as may.
    pub(super) fn push_pong(&mut self) -> bool {
        if self.pongs.len() >= PONGS_MAX {
            return false;
        }
        let place = self.append(&[PONG]);
        self.pongs.push_back(place.end);
        true
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    fn append(&mut self, parts: &[&[u8]]) -> Place {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.base += self.taken as u64;
            self.taken = 0;
        }
        let start = self.end();
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        Place { start, end: self.end() }
    }

    fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    pub(super) fn offering(&mut self) {
        self.offered = self.end();
    }

    pub(super) fn wrote(&mut self, bytes: usize) {
        self.offering();
        self.taken = self.taken.saturating_add(bytes).min(self.bytes.len());
        let written = self.base + self.taken as u64;
        while self.pongs.front().is_some_and(|end| *end <= written) {
            self.pongs.pop_front();
        }
    }

    pub(super) fn stage(&self, place: Place) -> Stage {
        if place.end <= self.base + self.taken as u64 {
            Stage::Written
        } else if place.start < self.offered {
            Stage::PartlyWritten
        } else {
            Stage::BeforeWrite
        }
    }

    /// Takes back a command of which nothing was offered. Places behind it move to the front by its length.
    pub(super) fn take_back(&mut self, place: Place) -> bool {
        let at = |place: u64| usize::try_from(place.saturating_sub(self.base)).unwrap_or(usize::MAX);
        let (start, end) = (at(place.start), at(place.end));
        if place.start < self.offered || start < self.taken || end > self.bytes.len() {
            return false;
        }
        self.bytes.drain(start..end);
        for pong in &mut self.pongs {
            *pong = place.behind_removed(*pong);
        }
        true
    }
}

impl Place {
    /// Where `other` is once this place is gone.
    fn behind_removed(self, other: u64) -> u64 {
        if other > self.start { other.saturating_sub(self.end - self.start) } else { other }
    }

    /// Where this one is once `removed` is gone.
    pub(super) fn without(self, removed: Self) -> Self {
        Self {
            start: if self.start >= removed.end { removed.behind_removed(self.start) } else { self.start },
            end: removed.behind_removed(self.end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_offered_and_written_by_its_own_bytes() {
        let mut outgoing = Outgoing::new(4_096);
        let (first, second) = (outgoing.push(&[b"ab", b"c"]).unwrap(), outgoing.push(&[b"de"]).unwrap());
        assert_eq!((outgoing.stage(first), outgoing.stage(second)), (Stage::BeforeWrite, Stage::BeforeWrite));
        outgoing.offering();
        let third = outgoing.push(&[b"f"]).unwrap();
        assert_eq!((outgoing.stage(second), outgoing.stage(third)), (Stage::PartlyWritten, Stage::BeforeWrite));
        for (count, waiting, stages) in [
            (2, &b"cdef"[..], [Stage::PartlyWritten, Stage::PartlyWritten, Stage::PartlyWritten]),
            (1, b"def", [Stage::Written, Stage::PartlyWritten, Stage::PartlyWritten]),
            (2, b"f", [Stage::Written, Stage::Written, Stage::PartlyWritten]),
            (9, b"", [Stage::Written, Stage::Written, Stage::Written]),
        ] {
            outgoing.wrote(count);
            assert_eq!(outgoing.waiting(), waiting);
            assert_eq!([first, second, third].map(|place| outgoing.stage(place)), stages);
        }
    }

    #[test]
    fn what_was_not_offered_is_taken_back_and_what_is_behind_moves() {
        let mut outgoing = Outgoing::new(4_096);
        let first = outgoing.push(&[b"first"]).unwrap();
        outgoing.wrote(2);
        let (second, third) = (outgoing.push(&[b"second"]).unwrap(), outgoing.push(&[b"third"]).unwrap());
        assert!(!outgoing.take_back(first));
        assert!(outgoing.push_pong() && outgoing.take_back(second));
        let third = third.without(second);
        assert_eq!(outgoing.waiting(), b"rstthirdPONG\r\n");
        outgoing.wrote(3 + 5);
        assert_eq!((outgoing.stage(first), outgoing.stage(third)), (Stage::Written, Stage::Written));
        outgoing.wrote(6);
        assert!(outgoing.waiting().is_empty() && (0..8).all(|_| outgoing.push_pong()));
    }

    #[test]
    fn the_queue_refuses_beyond_its_bound_and_answers_to_pings_have_their_own() {
        let mut outgoing = Outgoing::new(10);
        let capacity = outgoing.bytes.capacity();
        for _ in 0..100 {
            assert!(outgoing.push(&[b"12345678901"]).is_none());
            assert!(outgoing.push(&[b"123456789"]).is_some());
            assert!((0..8).all(|_| outgoing.push_pong()) && !outgoing.push_pong());
            assert!(outgoing.push(&[b"12"]).is_none());
            assert!(outgoing.push(&[b"1"]).is_some() && outgoing.push(&[b"1"]).is_none());
            outgoing.wrote(3);
            assert!(outgoing.push(&[b"123"]).is_some());
            outgoing.wrote(usize::MAX);
        }
        assert_eq!(outgoing.bytes.capacity(), capacity);
    }
}
