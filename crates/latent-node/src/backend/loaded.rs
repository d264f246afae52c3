//! What is loaded: values by digest under a bound of bytes, the least recently used going first. A pure machine; the backend keeps
//! compiled components in it.
//!
//! Invariants: the sum of sizes is at most the bound; what was used last goes last. Removing an entry frees its memory only when nobody
//! else holds it: an activation under way keeps its component, so at most as many removed ones live on as there are cells.

use std::collections::BTreeMap;

use latent_core::ComponentDigest;

/// See the module.
#[derive(Debug)]
pub(super) struct Loaded<T> {
    entries: BTreeMap<ComponentDigest, Entry<T>>,
    /// Digests by last use.
    uses: BTreeMap<u64, ComponentDigest>,
    next_use: u64,
    bytes: u64,
    bytes_max: u64,
    evicted: u64,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    bytes: u64,
    last_use: u64,
}

/// A value is larger than all that may be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLarge;

impl<T: Clone> Loaded<T> {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { entries: BTreeMap::new(), uses: BTreeMap::new(), next_use: 0, bytes: 0, bytes_max, evicted: 0 }
    }

    /// The value of that digest, which counts as used now.
    pub(super) fn get(&mut self, digest: ComponentDigest) -> Option<T> {
        let now = self.next_use;
        let entry = self.entries.get_mut(&digest)?;
        self.uses.remove(&entry.last_use);
        entry.last_use = now;
        self.uses.insert(now, digest);
        self.next_use += 1;
        Some(entry.value.clone())
    }

    /// Keeps a value; the least recently used ones make room. One that is there already stays.
    pub(super) fn keep(&mut self, digest: ComponentDigest, value: T, bytes: u64) -> Result<(), TooLarge> {
        if bytes > self.bytes_max {
            return Err(TooLarge);
        }
        if self.get(digest).is_some() {
            return Ok(());
        }
        while self.bytes > self.bytes_max - bytes {
            self.evict_oldest();
        }
        self.uses.insert(self.next_use, digest);
        self.entries.insert(digest, Entry { value, bytes, last_use: self.next_use });
        self.next_use += 1;
        self.bytes += bytes;
        Ok(())
    }

    pub(super) fn contains(&self, digest: ComponentDigest) -> bool {
        self.entries.contains_key(&digest)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// How many made room for others so far.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    fn evict_oldest(&mut self) {
        let Some(entry) = self.uses.pop_first().and_then(|(_, digest)| self.entries.remove(&digest)) else {
            // Nothing is loaded, so nothing is counted.
            self.bytes = 0;
            return;
        };
        self.bytes -= entry.bytes;
        self.evicted += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(name: u8) -> ComponentDigest {
        ComponentDigest::of(&[name])
    }

    fn kept(loaded: &Loaded<u8>) -> Vec<u8> {
        (0..10).filter(|name| loaded.contains(digest(*name))).collect()
    }

    #[test]
    fn the_least_recently_used_makes_room_and_the_sum_stays_within_the_bound() {
        let mut loaded = Loaded::new(10);
        for (name, bytes) in [(1, 4), (2, 3), (3, 3)] {
            loaded.keep(digest(name), name, bytes).unwrap();
        }
        assert_eq!((kept(&loaded), loaded.bytes()), (vec![1, 2, 3], 10));
        assert_eq!(loaded.get(digest(1)), Some(1));
        loaded.keep(digest(4), 4, 1).unwrap();
        assert_eq!((kept(&loaded), loaded.bytes(), loaded.evicted()), (vec![1, 3, 4], 8, 1));
        loaded.keep(digest(5), 5, 7).unwrap();
        assert_eq!((kept(&loaded), loaded.bytes(), loaded.evicted()), (vec![4, 5], 8, 3));
    }

    #[test]
    fn a_value_of_the_whole_bound_fits_alone_and_a_larger_one_displaces_nothing() {
        let mut loaded = Loaded::new(10);
        loaded.keep(digest(1), 1, 2).unwrap();
        assert_eq!(loaded.keep(digest(2), 2, 11), Err(TooLarge));
        assert_eq!(kept(&loaded), [1]);
        loaded.keep(digest(3), 3, 10).unwrap();
        assert_eq!((kept(&loaded), loaded.bytes(), loaded.len()), (vec![3], 10, 1));
    }

    #[test]
    fn keeping_a_value_again_changes_nothing_but_its_last_use() {
        let mut loaded = Loaded::new(10);
        for name in [1, 2, 1] {
            loaded.keep(digest(name), name, 5).unwrap();
        }
        assert_eq!(loaded.bytes(), 10);
        loaded.keep(digest(3), 3, 5).unwrap();
        assert_eq!(kept(&loaded), [1, 3]);
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_kept_and_used_the_books_balance(steps in proptest::collection::vec((0_u8..8, 0_u64..12, proptest::bool::ANY), 0..200)) {
            let mut loaded = Loaded::new(20);
            for (name, bytes, keep) in steps {
                if keep {
                    // Sizes belong to digests, as they do for components.
                    let bytes = (bytes + u64::from(name)) % 12;
                    loaded.keep(digest(name), name, bytes).unwrap();
                } else {
                    assert_eq!(loaded.get(digest(name)).is_some(), loaded.contains(digest(name)));
                }
                let sum: u64 = loaded.entries.values().map(|entry| entry.bytes).sum();
                assert!(sum == loaded.bytes() && sum <= 20);
                assert_eq!(loaded.uses.len(), loaded.entries.len());
                assert!(loaded.uses.iter().all(|(at, digest)| loaded.entries[digest].last_use == *at));
            }
        }
    }
}
