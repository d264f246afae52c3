//! From an object to the certainty that it lies in the store (B-077). The decision is a machine; [`put`] asks the store what it says.
//!
//! ```text
//! create ─┬─ created ─────────────────────────────── done
//!         ├─ exists ── read ─┬─ the same bytes ────── done
//!         │                  ├─ other bytes ───────── different content: nothing is overwritten
//!         │                  └─ none, unreadable ──── later: another write was in the way and did not land
//!         └─ anything else ───────────────────────── later: it may have landed, which the next attempt finds out
//! ```

use bytes::Bytes;

use super::store::{ColdError, ColdStore, PutEnd};

/// Why an object does not lie in the store for certain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PutFault {
    /// Tried again.
    #[error(transparent)]
    Store(#[from] ColdError),
    /// The store says that it is there, and it cannot be found. Tried again.
    #[error("cold store: {object:?} is said to exist and is not there; it is tried again")]
    Absent {
        /// The object's path.
        object: String,
    },
    /// Another object lies there. For an operator.
    #[error("cold store: {object:?} already exists with different content; it was not overwritten, compare both and move one away")]
    Different {
        /// The object's path.
        object: String,
    },
}

impl PutFault {
    /// Whether another attempt may end otherwise without anybody doing something.
    pub(crate) const fn is_passing(&self) -> bool {
        !matches!(self, Self::Different { .. } | Self::Store(ColdError::Unconditional { .. }))
    }

    /// Whether it is the store that fails, so that others will fail as well.
    pub(crate) const fn is_of_store(&self) -> bool {
        matches!(self, Self::Store(_))
    }
}

/// What follows the store's answer to a creation.
#[derive(Debug, PartialEq, Eq)]
enum AfterPut {
    Done,
    Read,
    Failed(PutFault),
}

fn after_put(answer: Result<PutEnd, ColdError>) -> AfterPut {
    match answer {
        Ok(PutEnd::Created) => AfterPut::Done,
        Ok(PutEnd::Exists) => AfterPut::Read,
        Err(error) => AfterPut::Failed(error.into()),
    }
}

/// What a reading of what is said to exist means.
fn after_read(object: &str, wanted: &[u8], answer: Result<Option<Bytes>, ColdError>) -> Result<(), PutFault> {
    match answer {
        Ok(Some(found)) if found == wanted => Ok(()),
        Ok(Some(_)) | Err(ColdError::TooLarge { .. }) => Err(PutFault::Different { object: object.to_owned() }),
        Ok(None) => Err(PutFault::Absent { object: object.to_owned() }),
        Err(error) => Err(error.into()),
    }
}

/// Puts an object. Done means that these bytes lie there.
pub(crate) fn put(store: &dyn ColdStore, object: &str, bytes: &Bytes) -> Result<(), PutFault> {
    match after_put(store.put_new(object, bytes.clone())) {
        AfterPut::Done => Ok(()),
        AfterPut::Failed(fault) => Err(fault),
        AfterPut::Read => after_read(object, bytes, store.get(object, bytes.len() as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::doubles::{Call, Fault, MemoryStore};
    use super::*;

    const OBJECT: &str = "t/p0/00000000000000000000.json";
    const OURS: &[u8] = b"{\"uid\":1}";

    fn put_ours(store: &MemoryStore) -> Result<(), PutFault> {
        put(store, OBJECT, &Bytes::from_static(OURS))
    }

    #[test]
    fn an_object_is_made_with_one_call_and_nothing_is_read() {
        let store = MemoryStore::new();
        assert_eq!(put_ours(&store), Ok(()));
        assert_eq!(store.calls(), [Call::Put(OBJECT.to_owned())]);
        assert_eq!(store.objects()[OBJECT], OURS);
    }

    /// BUG-66.
    #[test]
    fn exists_is_believed_when_the_bytes_are_ours_and_never_alone() {
        let store = MemoryStore::new();
        store.plan([Some(Fault::SayExists), None, Some(Fault::SayExists)]);
        for _ in 0..2 {
            let fault = put_ours(&store).unwrap_err();
            assert!(matches!(fault, PutFault::Absent { .. }) && fault.is_passing());
        }
        assert_eq!(put_ours(&store), Ok(()), "written when nothing was in the way");
        assert_eq!(put_ours(&store), Ok(()), "and found to be ours after that");
        store.plan([None, Some(Fault::Fail)]);
        assert!(matches!(put_ours(&store), Err(PutFault::Store(ColdError::Failed { operation: "get", .. }))));
    }

    /// BUG-66, BUG-70.
    #[test]
    fn other_bytes_short_or_empty_ones_are_different_content_and_stay() {
        for there in [b"{\"uid\":2}" as &[u8], b"", &OURS[..4], b"{\"uid\":1} and more"] {
            let store = MemoryStore::new();
            store.plant(OBJECT, there);
            let fault = put_ours(&store).unwrap_err();
            assert!(fault.to_string().contains("already exists with different content") && !fault.is_passing());
            assert_eq!(store.objects()[OBJECT], there, "never overwritten");
        }
    }

    /// BUG-67, BUG-71.
    #[test]
    fn a_creation_whose_answer_was_lost_is_recognised_as_ours() {
        let store = MemoryStore::new();
        store.plan([Some(Fault::DoneThenTimeout)]);
        assert!(put_ours(&store).is_err_and(|fault| fault.is_passing() && fault.is_of_store()));
        assert_eq!(put_ours(&store), Ok(()));
        assert_eq!(store.objects().len(), 1);
    }

    /// BUG-69.
    #[test]
    fn a_store_without_conditional_writes_gets_no_other_kind() {
        let store = MemoryStore::new();
        store.every_put(Some(Fault::SayUnconditional));
        let fault = put_ours(&store).unwrap_err();
        assert!(!fault.is_passing() && fault.is_of_store());
        assert_eq!((store.calls().len(), store.objects().len()), (1, 0));
    }
}
