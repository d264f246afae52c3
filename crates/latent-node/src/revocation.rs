//! Which components may not be called any more, whatever a configuration says.
//!
//! A revocation names a service and a component, not a publication: publications are made anew at each start, and the component that
//! was revoked must not come back with the next one. [`RevocationList`] decides and has no I/O; a [`RevocationRecord`] keeps the
//! list where it outlives the process. The [`crate::Catalog`] asks both.
//!
//! Invariants: the list holds at most [`limits::REVOCATIONS`] entries; a whole revocation of a component stands alone, without
//! entries for single tenants beside it; nothing is ever taken out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use latent_core::{ComponentDigest, LimitError, ServiceName};

use crate::catalog::{PublicationState, RevocationScope};
use crate::limits;

/// One component of one service, revoked for one tenant or wholly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// The service.
    pub service: ServiceName,
    /// The component. Another component of the service is not concerned.
    pub digest: ComponentDigest,
    /// For whom.
    pub scope: RevocationScope,
}

/// Every revocation of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RevocationList {
    revoked: BTreeMap<(ServiceName, ComponentDigest), PublicationState>,
    len: usize,
}

/// Whether the list says more than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// It does.
    New,
    /// It said so already.
    Known,
}

impl RevocationList {
    /// Adds a revocation. A whole one takes the place of those for single tenants.
    ///
    /// # Errors
    /// The limit `revocations`; the list stays as it was.
    pub fn insert(&mut self, revocation: Revocation) -> Result<Noted, LimitError> {
        let Revocation { service, digest, scope } = revocation;
        let key = (service, digest);
        let replaced = match (self.revoked.get(&key), &scope) {
            (Some(PublicationState::Revoked), _) => return Ok(Noted::Known),
            (Some(PublicationState::Live { revoked_for }), RevocationScope::Tenant(tenant)) if revoked_for.contains(tenant) => {
                return Ok(Noted::Known);
            }
            (Some(PublicationState::Live { revoked_for }), RevocationScope::Whole) => revoked_for.len(),
            (_, RevocationScope::Tenant(_)) | (None, RevocationScope::Whole) => 0,
        };
        let len = self.len.saturating_add(1).saturating_sub(replaced);
        limits::REVOCATIONS.check(len as u64)?;
        self.len = len;
        let state = self.revoked.entry(key).or_insert(PublicationState::Live { revoked_for: BTreeSet::new() });
        match scope {
            RevocationScope::Whole => *state = PublicationState::Revoked,
            RevocationScope::Tenant(tenant) => state.revoke_for(tenant),
        }
        Ok(Noted::New)
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True when nothing was ever revoked.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What a publication of this component may still be.
    pub fn state_of(&self, service: &ServiceName, digest: ComponentDigest) -> PublicationState {
        let live = || PublicationState::Live { revoked_for: BTreeSet::new() };
        self.revoked.get(&(service.clone(), digest)).cloned().unwrap_or_else(live)
    }

    /// Every component concerned, ordered by service and digest.
    pub fn components(&self) -> impl Iterator<Item = (&ServiceName, ComponentDigest, &PublicationState)> {
        self.revoked.iter().map(|((service, digest), state)| (service, *digest, state))
    }

    /// Every revocation, ordered by service, digest and tenant.
    pub fn iter(&self) -> impl Iterator<Item = Revocation> + '_ {
        self.components().flat_map(|(service, digest, state)| {
            let scopes: Vec<_> = match state {
                PublicationState::Revoked => vec![RevocationScope::Whole],
                PublicationState::Live { revoked_for } => revoked_for.iter().cloned().map(RevocationScope::Tenant).collect(),
            };
            scopes.into_iter().map(move |scope| Revocation { service: service.clone(), digest, scope })
        })
    }
}

/// Where a list outlives the process.
pub trait RevocationRecord: fmt::Debug + Send + Sync {
    /// Replaces what is kept by `list`. When this returns, a crash does not lose it. It may block for as long as a disk takes.
    ///
    /// # Errors
    /// [`NotKept`]: the older list or this one is kept, and which of them is not known.
    fn keep(&self, list: &RevocationList) -> Result<(), NotKept>;
}

/// Why a revocation may be forgotten with the process. It is in force until then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotKept {
    /// There are too many. It is in force for what is published, and not for what is published later.
    #[error(transparent)]
    Full(#[from] LimitError),
    /// The system said no.
    #[error("{operation} of {file} failed: {reason}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The file's name.
        file: String,
        /// The system's words.
        reason: String,
    },
}

/// A record that forgets with the process: for nodes that keep nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unrecorded;

impl RevocationRecord for Unrecorded {
    fn keep(&self, _: &RevocationList) -> Result<(), NotKept> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use latent_core::TenantId;

    use super::*;

    fn revocation(component: u64, tenant: Option<&str>) -> Revocation {
        let scope = tenant.map_or(RevocationScope::Whole, |tenant| RevocationScope::Tenant(TenantId::parse(tenant).unwrap()));
        let digest = ComponentDigest::of(&component.to_le_bytes());
        Revocation { service: ServiceName::parse("triage").unwrap(), digest, scope }
    }

    fn state(list: &RevocationList, component: u64) -> PublicationState {
        let Revocation { service, digest, .. } = revocation(component, None);
        list.state_of(&service, digest)
    }

    #[test]
    fn what_is_revoked_stays_so_and_is_listed_once() {
        let mut list = RevocationList::default();
        let steps = [
            (revocation(1, Some("acme")), Noted::New, 1),
            (revocation(1, Some("acme")), Noted::Known, 1),
            (revocation(1, Some("beta")), Noted::New, 2),
            (revocation(2, Some("acme")), Noted::New, 3),
            (revocation(1, None), Noted::New, 2),
            (revocation(1, Some("gamma")), Noted::Known, 2),
            (revocation(1, None), Noted::Known, 2),
        ];
        for (revocation, noted, len) in steps {
            assert_eq!((list.insert(revocation.clone()), list.len()), (Ok(noted), len), "{revocation:?}");
            assert_eq!(list.iter().count(), len);
        }
        assert_eq!(state(&list, 1), PublicationState::Revoked);
        let revoked_for = BTreeSet::from([TenantId::parse("acme").unwrap()]);
        assert_eq!(state(&list, 2), PublicationState::Live { revoked_for });
        assert_eq!(state(&list, 3), PublicationState::Live { revoked_for: BTreeSet::new() });
    }

    #[test]
    fn another_service_with_the_same_component_is_not_concerned() {
        let mut list = RevocationList::default();
        list.insert(revocation(1, None)).unwrap();
        let Revocation { digest, .. } = revocation(1, None);
        let other = list.state_of(&ServiceName::parse("other").unwrap(), digest);
        assert_eq!(other, PublicationState::Live { revoked_for: BTreeSet::new() });
    }

    #[test]
    fn a_list_made_of_what_another_one_lists_is_the_same() {
        let mut list = RevocationList::default();
        for revocation in [revocation(3, Some("a")), revocation(3, Some("b")), revocation(1, None), revocation(2, Some("a"))] {
            list.insert(revocation).unwrap();
        }
        let mut again = RevocationList::default();
        list.iter().for_each(|revocation| assert_eq!(again.insert(revocation), Ok(Noted::New)));
        assert_eq!(again, list);
    }

    #[test]
    fn the_list_is_bounded_and_a_full_one_still_takes_what_makes_it_no_longer() {
        let mut list = RevocationList::default();
        list.insert(revocation(0, Some("acme"))).unwrap();
        for component in 1..limits::REVOCATIONS.max {
            list.insert(revocation(component, None)).unwrap();
        }
        let full = list.insert(revocation(limits::REVOCATIONS.max, None)).unwrap_err();
        assert_eq!((full.name, full.value), ("revocations", limits::REVOCATIONS.max + 1));
        assert_eq!(list.insert(revocation(1, None)), Ok(Noted::Known));
        assert_eq!(list.insert(revocation(0, None)), Ok(Noted::New), "it takes the place of the one for a tenant");
        assert_eq!(list.len() as u64, limits::REVOCATIONS.max);
    }
}
