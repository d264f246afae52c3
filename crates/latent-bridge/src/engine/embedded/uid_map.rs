//! Uids of the records of one segment, in memory: for the segment that is being written, and until a full one has its run on disk.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use super::uid_runs::{UidEntry, UidHash};

/// See the module. Two uids may share a hash; all entries of a hash are kept, the first one first.
#[derive(Debug, Clone, Default)]
pub(super) struct UidMap {
    first: HashMap<UidHash, Spot, ByUidHash>,
    /// Entries whose hash another record has already. Almost always empty: uids repeat only where something is damaged.
    further: Vec<UidEntry>,
}

#[derive(Debug, Clone, Copy)]
struct Spot {
    sequence: u64,
    at: u32,
}

impl UidMap {
    pub(super) fn add(&mut self, entry: UidEntry) {
        match self.first.entry(entry.hash) {
            Entry::Occupied(_) => self.further.push(entry),
            Entry::Vacant(free) => drop(free.insert(Spot { sequence: entry.sequence, at: entry.at })),
        }
    }

    /// The entries of a hash.
    pub(super) fn candidates(&self, hash: UidHash) -> impl Iterator<Item = UidEntry> + use<'_> {
        let first = self.first.get(&hash).map(|spot| UidEntry { hash, sequence: spot.sequence, at: spot.at });
        let further = first.is_some().then(|| self.further.iter().filter(move |entry| entry.hash == hash).copied());
        first.into_iter().chain(further.into_iter().flatten())
    }

    pub(super) fn reserve(&mut self, more: usize) {
        self.first.reserve(more);
    }

    /// Every entry, in the order of the hashes.
    pub(super) fn sorted(&self) -> Vec<UidEntry> {
        let first = self.first.iter().map(|(hash, spot)| UidEntry { hash: *hash, sequence: spot.sequence, at: spot.at });
        let mut entries: Vec<_> = first.chain(self.further.iter().copied()).collect();
        entries.sort_unstable_by_key(|entry| (entry.hash, entry.sequence));
        entries
    }
}

/// Builds maps by hashes of uids, which are evenly distributed already.
pub(super) type ByUidHash = BuildHasherDefault<AsIs>;

/// See [`ByUidHash`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_share_a_hash_are_all_found_and_sorted() {
        let entry = |hash, sequence| UidEntry { hash: UidHash(hash), sequence, at: 0 };
        let mut map = UidMap::default();
        [entry(2, 0), entry(1, 1), entry(2, 2)].into_iter().for_each(|entry| map.add(entry));
        assert_eq!(map.candidates(UidHash(2)).collect::<Vec<_>>(), [entry(2, 0), entry(2, 2)]);
        assert_eq!(map.candidates(UidHash(3)).count(), 0);
        assert_eq!(map.sorted(), [entry(1, 1), entry(2, 0), entry(2, 2)]);
    }
}
