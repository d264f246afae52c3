//! The catalog: what may be called, by whom, and where calls lead. Metadata only; a compiled component authorises nothing.
//!
//! A publication is never changed, only revoked, for one tenant or wholly, and never comes back: calling the same component again
//! takes a new publication. Every change passes through one `&self` method here, so that a durable record of revocations has one
//! place from which it is written before a revocation is reported.
//!
//! Two questions, at two times: [`Catalog::resolve`] when something is reserved, [`Catalog::start_allowed`] when it starts, after
//! every wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use latent_core::{
    ComponentDigest, ContractName, FunctionName, Limit, LimitError, PublicationId, RouteGeneration, RouteName, ServiceName, TenantId,
};

use crate::limits;
use crate::route::{Pin, RouteKey, RouteTable};

/// The contracts a publication offers, each with its functions.
pub type Contracts = BTreeMap<ContractName, BTreeSet<FunctionName>>;

/// A component made callable: what [`Catalog::add`] takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPublication {
    /// The service it implements.
    pub service: ServiceName,
    /// The tenants that may call it.
    pub tenants: BTreeSet<TenantId>,
    /// What it offers.
    pub contracts: Contracts,
    /// Its component.
    pub digest: ComponentDigest,
}

/// A catalog entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// Its id, never given again.
    pub id: PublicationId,
    /// What was published.
    pub content: NewPublication,
    /// Who may still call it.
    pub state: PublicationState,
}

/// Whether a publication may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublicationState {
    /// By the tenants of its scope, except these.
    Live {
        /// Tenants for which it was revoked.
        revoked_for: BTreeSet<TenantId>,
    },
    /// By nobody.
    Revoked,
}

/// For whom a publication is revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RevocationScope {
    /// For one tenant; others go on.
    Tenant(TenantId),
    /// For everybody.
    Whole,
}

/// What a caller names.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Who calls.
    pub tenant: &'a TenantId,
    /// The service.
    pub service: &'a ServiceName,
    /// The route, `None` for the default one.
    pub route: Option<&'a RouteName>,
    /// The contract.
    pub contract: &'a ContractName,
    /// The function.
    pub function: &'a FunctionName,
}

/// Why the catalog did not take a change. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// A count is out of range: too many publications or routes, or a publication with too many or no parts.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// No such publication.
    #[error("publication {publication} does not exist")]
    UnknownPublication {
        /// The id given.
        publication: PublicationId,
    },
    /// No such route.
    #[error("there is no {route}")]
    UnknownRoute {
        /// The route given.
        route: RouteKey,
    },
    /// A route would lead to a publication of another service.
    #[error("publication {publication} implements service {implements}, not {wanted}")]
    OtherService {
        /// The publication.
        publication: PublicationId,
        /// The route's service.
        wanted: ServiceName,
        /// The publication's service.
        implements: ServiceName,
    },
    /// A route would lead to a publication that its tenant may not call, or a revocation names a tenant that never could.
    #[error("{tenant} may not call publication {publication}: {refused}")]
    NotCallable {
        /// The publication.
        publication: PublicationId,
        /// The route's, or the revocation's, tenant.
        tenant: TenantId,
        /// Why not.
        refused: StartRefused,
    },
}

/// Why a call leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// Nothing of that name was ever published.
    #[error("service {service} does not exist; publish it first")]
    UnknownService {
        /// The service.
        service: ServiceName,
    },
    /// The service exists for other tenants only.
    #[error("service {service} is not published for {tenant}")]
    OtherTenant {
        /// The service.
        service: ServiceName,
        /// Who called.
        tenant: TenantId,
    },
    /// The tenant may call the service, but no such route leads to it (any more).
    #[error("there is no {route}; point one at a publication")]
    UnknownRoute {
        /// The route.
        route: RouteKey,
    },
    /// The route leads to something that may not be called any more.
    #[error(transparent)]
    Refused(#[from] StartRefused),
    /// The publication offers no such contract.
    #[error("publication {publication} does not offer {contract}")]
    ContractNotOffered {
        /// The publication.
        publication: PublicationId,
        /// The contract.
        contract: ContractName,
    },
    /// The contract has no such function.
    #[error("{contract} of publication {publication} has no function {function}")]
    FunctionNotOffered {
        /// The publication.
        publication: PublicationId,
        /// The contract.
        contract: ContractName,
        /// The function.
        function: FunctionName,
    },
}

/// Why a pinned call may not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartRefused {
    /// The publication was revoked wholly.
    #[error("publication {publication} was revoked")]
    PublicationRevoked {
        /// The publication.
        publication: PublicationId,
    },
    /// The publication was revoked for this tenant.
    #[error("publication {publication} was revoked for {tenant}")]
    RevokedForTenant {
        /// The publication.
        publication: PublicationId,
        /// The tenant.
        tenant: TenantId,
    },
    /// The tenant was never in the publication's scope.
    #[error("publication {publication} was not made for {tenant}")]
    OutOfScope {
        /// The publication.
        publication: PublicationId,
        /// The tenant.
        tenant: TenantId,
    },
    /// The route that was pinned was revoked.
    #[error("the {route} was revoked after generation {generation}")]
    RouteRevoked {
        /// The route.
        route: RouteKey,
        /// The pinned generation.
        generation: RouteGeneration,
    },
}

/// The publications and routes of one node. Shared; readers do not wait for each other.
#[derive(Debug, Default)]
pub struct Catalog {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    publications: BTreeMap<PublicationId, Publication>,
    last_id: u64,
    routes: RouteTable,
}

impl Catalog {
    /// Adds a publication. No route leads to it yet.
    ///
    /// # Errors
    /// [`CatalogError::Limit`].
    pub fn add(&self, content: NewPublication) -> Result<PublicationId, CatalogError> {
        check_count(limits::PUBLICATION_TENANTS, content.tenants.len())?;
        check_count(limits::PUBLICATION_CONTRACTS, content.contracts.len())?;
        content.contracts.values().try_for_each(|functions| check_count(limits::CONTRACT_FUNCTIONS, functions.len()))?;
        let mut state = self.write();
        check_count(limits::PUBLICATIONS, state.publications.len() + 1)?;
        state.last_id = state.last_id.saturating_add(1);
        let id = PublicationId(state.last_id);
        let live = PublicationState::Live { revoked_for: BTreeSet::new() };
        state.publications.insert(id, Publication { id, content, state: live });
        Ok(id)
    }

    /// Revokes a publication. From here on nothing starts on it for that tenant, or at all; what runs ends by itself.
    ///
    /// # Errors
    /// [`CatalogError::UnknownPublication`]; [`CatalogError::NotCallable`] for a tenant that was never in the scope of a live
    /// publication. Revoking again is not an error.
    pub fn revoke(&self, publication: PublicationId, scope: RevocationScope) -> Result<(), CatalogError> {
        let mut state = self.write();
        let entry = state.publications.get_mut(&publication).ok_or(CatalogError::UnknownPublication { publication })?;
        match (&mut entry.state, scope) {
            (PublicationState::Revoked, _) => {}
            (state, RevocationScope::Whole) => *state = PublicationState::Revoked,
            (PublicationState::Live { revoked_for }, RevocationScope::Tenant(tenant)) => {
                // A tenant outside the scope is a mistake to be told, not a revocation. This bounds the set, too.
                if !entry.content.tenants.contains(&tenant) {
                    let refused = StartRefused::OutOfScope { publication, tenant: tenant.clone() };
                    return Err(CatalogError::NotCallable { publication, tenant, refused });
                }
                revoked_for.insert(tenant);
            }
        }
        Ok(())
    }

    /// Points a route at a publication and returns its generation, which grows with each change of target. What was reserved on
    /// the old target stays there.
    ///
    /// # Errors
    /// [`CatalogError::UnknownPublication`], [`CatalogError::OtherService`], [`CatalogError::NotCallable`],
    /// [`CatalogError::Limit`]; the route stays as it was.
    pub fn point_route(&self, key: RouteKey, publication: PublicationId) -> Result<RouteGeneration, CatalogError> {
        let mut state = self.write();
        let entry = state.publications.get(&publication).ok_or(CatalogError::UnknownPublication { publication })?;
        if entry.content.service != key.service {
            let implements = entry.content.service.clone();
            return Err(CatalogError::OtherService { publication, wanted: key.service, implements });
        }
        if let Err(refused) = entry.callable_by(&key.tenant) {
            return Err(CatalogError::NotCallable { publication, tenant: key.tenant, refused });
        }
        if !state.routes.contains(&key) {
            check_count(limits::ROUTES, state.routes.len() + 1)?;
        }
        Ok(state.routes.point(key, publication))
    }

    /// Revokes a route: it leads nowhere, and what was reserved through it does not start. What runs ends by itself.
    ///
    /// # Errors
    /// [`CatalogError::UnknownRoute`]. Revoking again is not an error.
    pub fn revoke_route(&self, key: &RouteKey) -> Result<RouteGeneration, CatalogError> {
        self.write().routes.revoke(key).ok_or_else(|| CatalogError::UnknownRoute { route: key.clone() })
    }

    /// Where a call leads now.
    ///
    /// # Errors
    /// [`ResolveError`] naming what is missing.
    pub fn resolve(&self, call: Call<'_>) -> Result<Pin, ResolveError> {
        let state = self.read();
        let route = RouteKey { tenant: call.tenant.clone(), service: call.service.clone(), route: call.route.cloned() };
        let Some((publication, generation)) = state.routes.select(&route) else {
            return Err(state.why_no_route(route));
        };
        let revoked = StartRefused::PublicationRevoked { publication };
        let entry = state.publications.get(&publication).ok_or(revoked)?;
        entry.callable_by(call.tenant)?;
        let contract = entry.content.contracts.get(call.contract);
        let functions = contract.ok_or_else(|| ResolveError::ContractNotOffered { publication, contract: call.contract.clone() })?;
        if !functions.contains(call.function) {
            let (contract, function) = (call.contract.clone(), call.function.clone());
            return Err(ResolveError::FunctionNotOffered { publication, contract, function });
        }
        Ok(Pin { route, generation, publication, digest: entry.content.digest })
    }

    /// The final guarded check: may a pinned call start now? To be asked after the last wait, immediately before the start.
    ///
    /// A replaced route does not stop it; a revoked publication or route does.
    ///
    /// # Errors
    /// [`StartRefused`].
    pub fn start_allowed(&self, pin: &Pin, tenant: &TenantId) -> Result<(), StartRefused> {
        let state = self.read();
        let revoked = StartRefused::PublicationRevoked { publication: pin.publication };
        state.publications.get(&pin.publication).ok_or(revoked)?.callable_by(tenant)?;
        if state.routes.is_revoked(pin) {
            return Err(StartRefused::RouteRevoked { route: pin.route.clone(), generation: pin.generation });
        }
        Ok(())
    }

    /// A publication as it stands.
    pub fn publication(&self, id: PublicationId) -> Option<Publication> {
        self.read().publications.get(&id).cloned()
    }

    /// Where a route leads now, whether or not that may still be called.
    pub fn route(&self, key: &RouteKey) -> Option<(PublicationId, RouteGeneration)> {
        self.read().routes.select(key)
    }

    // A change is checked before its first write, so a poisoned lock still guards a whole state.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Slow and exact: this runs once for a broken configuration, not for each call.
    fn why_no_route(&self, route: RouteKey) -> ResolveError {
        let mut published = self.publications.values().filter(|entry| entry.content.service == route.service).peekable();
        if published.peek().is_none() {
            return ResolveError::UnknownService { service: route.service };
        }
        if self.routes.serves(&route.tenant, &route.service) || published.any(|entry| entry.content.tenants.contains(&route.tenant)) {
            return ResolveError::UnknownRoute { route };
        }
        ResolveError::OtherTenant { service: route.service, tenant: route.tenant }
    }
}

impl Publication {
    /// Whether `tenant` may call it now.
    ///
    /// # Errors
    /// [`StartRefused`].
    pub fn callable_by(&self, tenant: &TenantId) -> Result<(), StartRefused> {
        let publication = self.id;
        if !self.content.tenants.contains(tenant) {
            return Err(StartRefused::OutOfScope { publication, tenant: tenant.clone() });
        }
        match &self.state {
            PublicationState::Revoked => Err(StartRefused::PublicationRevoked { publication }),
            PublicationState::Live { revoked_for } if revoked_for.contains(tenant) => {
                Err(StartRefused::RevokedForTenant { publication, tenant: tenant.clone() })
            }
            PublicationState::Live { .. } => Ok(()),
        }
    }
}

fn check_count(limit: Limit, count: usize) -> Result<(), LimitError> {
    limit.check(count as u64).map(drop)
}

#[cfg(test)]
mod tests;
