//! The hash under which uids are looked up, and by which a segment's end is known again. Keyed by the store, so that nobody can choose
//! uids or events that share one.

use siphasher::sip::SipHasher24;

use super::directory::StoreId;
use super::uid_runs::UidHash;

/// Makes the hashes of one store. They are written to disk, so the function is part of the format: SipHash-2-4 under the first 16
/// bytes of SHA-256(store id, then `uids`).
#[derive(Debug, Clone)]
pub(super) struct UidHasher(SipHasher24);

impl UidHasher {
    pub(super) fn of(store: StoreId) -> Self {
        Self(SipHasher24::new_with_key(&store.derived("uids")))
    }

    pub(super) fn hash(&self, uid: &str) -> UidHash {
        UidHash(self.hash_bytes(uid.as_bytes()))
    }

    /// The same hash, of any bytes.
    pub(super) fn hash_bytes(&self, bytes: &[u8]) -> u64 {
        self.0.hash(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_pinned_and_differ_from_store_to_store() {
        let hash = |id: u8, uid| UidHasher::of(StoreId([id; 16])).hash(uid).0;
        assert_eq!(hash(1, "a"), hash(1, "a"));
        assert_ne!(hash(1, "a"), hash(1, "b"));
        assert_ne!(hash(1, "a"), hash(2, "a"));
        assert_eq!(hash(0, "event-1"), 7_458_477_921_008_808_131);
    }
}
