//! Which sequences of a partition may hold a uid: what lookups have read so far, kept in bounded memory. No I/O.
//!
//! Holds, for everything from `floor` up to `scanned`, the sequences of each uid's hash. It is a hint: a hash can be of two uids, and a
//! record can have gone, so every hit is read before it is believed. When its room is used up the older half is forgotten and `floor`
//! rises; what lies below must then be read again by who needs to be certain.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};

use latent_core::Uid;

/// A keyed hash of a uid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct UidHash(u64);

/// See the module.
#[derive(Debug)]
pub(super) struct UidIndex {
    hasher: RandomState,
    entries_max: usize,
    /// Everything below is not known.
    floor: u64,
    /// Everything from the floor up to this is known, this one included.
    scanned: u64,
    /// The last record that was read and had a uid.
    witness: Option<(u64, UidHash)>,
    young: Generation,
    old: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    first: u64,
    lowest: HashMap<u64, u64>,
    /// Further sequences of a hash: a uid that was published again after the broker forgot it, or two uids with one hash.
    further: BTreeMap<u64, Vec<u64>>,
    entries: usize,
}

impl UidIndex {
    pub(super) fn new(entries_max: usize) -> Self {
        let empty = || Generation { first: 1, ..Generation::default() };
        Self { hasher: RandomState::new(), entries_max, floor: 1, scanned: 0, witness: None, young: empty(), old: empty() }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.entries_max);
    }

    /// The first sequence that is known.
    pub(super) const fn floor(&self) -> u64 {
        self.floor
    }

    /// The last sequence that is known; 0 when none is.
    pub(super) const fn scanned(&self) -> u64 {
        self.scanned
    }

    /// The last record that was read and had a uid: where it lies and its uid's hash.
    pub(super) const fn witness(&self) -> Option<(u64, UidHash)> {
        self.witness
    }

    /// Entries now.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.young.entries + self.old.entries
    }

    pub(super) fn hash(&self, uid: &Uid) -> UidHash {
        UidHash(self.hasher.hash_one(uid.as_str()))
    }

    /// Notes the next record of the partition. Sequences must rise; what lies between two of them is of other partitions, or gone.
    pub(super) fn note(&mut self, sequence: u64, uid: Option<&Uid>) {
        if sequence <= self.scanned {
            return;
        }
        self.scanned = sequence;
        let Some(hash) = uid.map(|uid| self.hash(uid)) else { return };
        self.witness = Some((sequence, hash));
        if self.young.entries * 2 >= self.entries_max.max(2) {
            let fresh = Generation { first: sequence, ..Generation::default() };
            self.old = std::mem::replace(&mut self.young, fresh);
            self.floor = self.old.first;
        }
        self.young.add(hash, sequence);
    }

    /// Everything up to this sequence was looked at.
    pub(super) fn note_scanned(&mut self, sequence: u64) {
        self.scanned = self.scanned.max(sequence);
    }

    /// Where a uid may lie, ascending.
    pub(super) fn candidates(&self, hash: UidHash) -> Vec<u64> {
        let mut found = self.old.of(hash);
        found.extend(self.young.of(hash));
        found
    }

    /// A record is not there any more.
    pub(super) fn forget(&mut self, hash: UidHash, sequence: u64) {
        self.old.remove(hash, sequence);
        self.young.remove(hash, sequence);
    }
}

impl Generation {
    fn add(&mut self, UidHash(hash): UidHash, sequence: u64) {
        self.entries += 1;
        match self.lowest.entry(hash) {
            std::collections::hash_map::Entry::Vacant(vacant) => drop(vacant.insert(sequence)),
            std::collections::hash_map::Entry::Occupied(_) => self.further.entry(hash).or_default().push(sequence),
        }
    }

    fn of(&self, UidHash(hash): UidHash) -> Vec<u64> {
        let lowest = self.lowest.get(&hash).copied();
        lowest.into_iter().chain(self.further.get(&hash).into_iter().flatten().copied()).collect()
    }

    fn remove(&mut self, UidHash(hash): UidHash, sequence: u64) {
        if let Some(further) = self.further.get_mut(&hash) {
            let before = further.len();
            further.retain(|known| *known != sequence);
            self.entries -= before - further.len();
        }
        if self.lowest.get(&hash) == Some(&sequence) {
            self.entries -= 1;
            let next = self.further.get_mut(&hash).filter(|further| !further.is_empty()).map(|further| further.remove(0));
            match next {
                Some(next) => drop(self.lowest.insert(hash, next)),
                None => drop(self.lowest.remove(&hash)),
            }
        }
        if self.further.get(&hash).is_some_and(Vec::is_empty) {
            self.further.remove(&hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(n: u64) -> Uid {
        Uid::parse(&format!("u{n}")).unwrap()
    }

    #[test]
    fn a_uid_is_known_at_every_sequence_it_was_noted_at_lowest_first() {
        let mut index = UidIndex::new(100);
        for (sequence, n) in [(1, 0), (5, 1), (9, 0), (10, 0)] {
            index.note(sequence, Some(&uid(n)));
        }
        let hash = index.hash(&uid(0));
        assert_eq!((index.candidates(hash), index.scanned(), index.floor()), (vec![1, 9, 10], 10, 1));
        index.forget(hash, 1);
        assert_eq!(index.candidates(hash), [9, 10]);
        index.forget(hash, 10);
        index.forget(hash, 9);
        assert_eq!((index.candidates(hash), index.len()), (vec![], 1));
        assert!(index.candidates(index.hash(&uid(7))).is_empty());
    }

    #[test]
    fn what_has_no_room_is_forgotten_and_the_floor_says_so() {
        let mut index = UidIndex::new(8);
        for n in 1..=100_u64 {
            index.note(n * 2, Some(&uid(n)));
            assert!(index.len() <= 8);
            assert!(index.scanned() == n * 2 && index.floor() <= n * 2);
            for known in 1..=n {
                let is_there = index.candidates(index.hash(&uid(known))) == [known * 2];
                assert_eq!(is_there, known * 2 >= index.floor(), "{known} of {n}");
            }
        }
    }

    #[test]
    fn a_sequence_is_noted_once_and_one_without_a_uid_only_raises_the_mark() {
        let mut index = UidIndex::new(8);
        index.note(3, Some(&uid(1)));
        index.note(3, Some(&uid(1)));
        index.note(2, Some(&uid(2)));
        index.note(4, None);
        index.note_scanned(9);
        assert_eq!((index.len(), index.scanned()), (1, 9));
        index.clear();
        assert_eq!((index.len(), index.scanned(), index.floor()), (0, 0, 1));
    }
}
