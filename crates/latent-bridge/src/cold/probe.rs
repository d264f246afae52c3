//! Whether a store really creates only where nothing is (B-069). One that overwrites in silence would lose what it was given before.
//!
//! One object is made and stays, because nothing is ever removed here; then another one under its name must be refused.

use bytes::Bytes;

use super::store::{ColdError, ColdStore, PutEnd};

/// The object, below the place of the `cold_uri`.
pub(crate) const PROBE_OBJECT: &str = "latent-probe/create-only.json";
const FIRST: &[u8] = b"{\"latent\":\"this store must never replace this object\"}";
const OTHER: &[u8] = b"{\"latent\":\"this store replaces objects and must not be used\"}";
const BYTES_MAX: u64 = 1_024;

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Probed {
    /// It can be used.
    CreatesOnly,
    /// It must not be used, and why.
    Unfit(String),
    /// It could not be asked.
    Unknown(ColdError),
}

/// Probes a store.
pub(crate) fn probe(store: &dyn ColdStore) -> Probed {
    match attempt(store) {
        Ok(None) => Probed::CreatesOnly,
        Ok(Some(problem)) => Probed::Unfit(problem.to_owned()),
        Err(ColdError::Unconditional { reason, .. }) => Probed::Unfit(format!("it has no conditional writes ({reason})")),
        Err(error) => Probed::Unknown(error),
    }
}

fn attempt(store: &dyn ColdStore) -> Result<Option<&'static str>, ColdError> {
    store.put_new(PROBE_OBJECT, Bytes::from_static(FIRST))?;
    let Some(there) = store.get(PROBE_OBJECT, BYTES_MAX)? else {
        let reason = "it is said to be there and is not".to_owned();
        return Err(ColdError::Failed { operation: "probe", object: PROBE_OBJECT.to_owned(), reason });
    };
    if store.put_new(PROBE_OBJECT, Bytes::from_static(OTHER))? == PutEnd::Created {
        return Ok(Some("it took a second object of one name, so it overwrites what was archived"));
    }
    if store.get(PROBE_OBJECT, BYTES_MAX)?.as_ref() != Some(&there) {
        return Ok(Some("it refused a second object of one name and replaced the first all the same"));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::doubles::{Fault, MemoryStore};
    use super::*;

    #[test]
    fn a_store_that_creates_only_where_nothing_is_passes_every_time() {
        let store = MemoryStore::new();
        store.set_lists(false);
        assert_eq!([probe(&store), probe(&store)], [Probed::CreatesOnly, Probed::CreatesOnly]);
        assert_eq!(store.objects()[PROBE_OBJECT], FIRST);
    }

    /// BUG-69.
    #[test]
    fn one_that_overwrites_or_has_no_conditional_writes_is_unfit() {
        let store = MemoryStore::new();
        store.set_overwrites(true);
        assert!(matches!(probe(&store), Probed::Unfit(_)) && matches!(probe(&store), Probed::Unfit(_)));
        let store = MemoryStore::new();
        store.every_put(Some(Fault::SayUnconditional));
        assert!(matches!(probe(&store), Probed::Unfit(_)));
    }

    #[test]
    fn one_that_cannot_be_asked_is_neither() {
        let store = MemoryStore::new();
        for plan in
            [vec![Some(Fault::Fail)], vec![None, Some(Fault::Fail)], vec![None, None, Some(Fault::Fail)], vec![Some(Fault::SayExists)]]
        {
            let store = if plan == [Some(Fault::SayExists)] { &MemoryStore::new() } else { &store };
            store.plan(plan);
            assert!(matches!(probe(store), Probed::Unknown(_)));
        }
        assert_eq!(probe(&store), Probed::CreatesOnly);
    }
}
