//! Which uid lies where. In memory in this version: about 48 bytes a record, so a topic of 10 million records takes some 500 MB.
//!
//! This type is the seam for a bounded index on disk: nothing else knows how a uid is found. It holds hashes, not uids; who asks
//! compares with the stored record before believing an answer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use sha2::{Digest, Sha256};

/// The first half of a uid's SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct UidHash([u8; 16]);

impl UidHash {
    pub(super) fn of(uid: &str) -> Self {
        let mut hash = [0; 16];
        hash.iter_mut().zip(Sha256::digest(uid.as_bytes())).for_each(|(to, from)| *to = from);
        Self(hash)
    }
}

/// A place in a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Located {
    pub(super) partition: u32,
    pub(super) offset: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct UidIndex(HashMap<UidHash, Located>);

impl UidIndex {
    pub(super) fn locate(&self, uid: UidHash) -> Option<Located> {
        self.0.get(&uid).copied()
    }

    /// Adds a uid. False when it is there already: the first record of a uid is the one that was acknowledged.
    pub(super) fn add(&mut self, uid: UidHash, at: Located) -> bool {
        match self.0.entry(uid) {
            Entry::Occupied(_) => false,
            Entry::Vacant(slot) => {
                slot.insert(at);
                true
            }
        }
    }
}
