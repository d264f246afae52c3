//! The catalog: what may be called, by whom, and where calls lead. Metadata only; a compiled component authorises nothing.
//!
//! A publication is never changed, only revoked, for one tenant or wholly, and never comes back: a revocation is of the service's
//! component, so that a new publication of the same one is born revoked. To be called again the component has to be another one.
//!
//! A revocation is first in force, then made durable by the [`RevocationRecord`], then reported. So nothing starts while a disk is
//! slow, a revocation that was reported survives a crash, and one that could not be made durable is in force and says so.
//!
//! Two questions, at two times: [`Catalog::resolve`] when something is reserved, [`Catalog::start_allowed`] when it starts, after
//! every wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use latent_core::{
    ComponentDigest, ContractName, FunctionName, Limit, LimitError, PublicationId, RouteGeneration, RouteName, ServiceName, TenantId,
};

use crate::limits;
use crate::revocation::{NotKept, Noted, Revocation, RevocationList, RevocationRecord, Unrecorded};
use crate::route::{Pin, RouteKey, RouteTable};

/// The contracts a publication offers, each with its functions.
pub type Contracts = BTreeMap<ContractName, BTreeSet<FunctionName>>;

/// A component made callable: what [`Catalog::add`] takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPublication {
    /// The service it implements.
    pub service: ServiceName,
    /// The tenants that may call it. The catalog shares equal ones.
    pub tenants: Arc<BTreeSet<TenantId>>,
    /// What it offers.
    pub contracts: Arc<Contracts>,
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

/// A catalog entry as administration shows it: without what it offers, with the routes that lead to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicationSummary {
    /// Its id.
    pub id: PublicationId,
    /// The service it implements.
    pub service: ServiceName,
    /// Its scope.
    pub tenants: Arc<BTreeSet<TenantId>>,
    /// Its component.
    pub digest: ComponentDigest,
    /// Who may still call it.
    pub state: PublicationState,
    /// The routes that lead to it now, each with its generation.
    pub routes: Vec<(RouteKey, RouteGeneration)>,
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
    /// The route was changed since it was looked at.
    #[error("the {route} has generation {found} and not {expected}; somebody else changed it")]
    RouteMoved {
        /// The route.
        route: RouteKey,
        /// The generation given.
        expected: RouteGeneration,
        /// The generation in force; 0 when there is no such route.
        found: RouteGeneration,
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

/// What is wrong with a revocation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RevokeError {
    /// Nothing was revoked.
    #[error(transparent)]
    Refused(#[from] CatalogError),
    /// It is in force, and may be forgotten when the node stops. Revoking again tries again.
    #[error("it is in force and may not outlive the node")]
    NotDurable(#[source] NotKept),
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
#[derive(Debug)]
pub struct Catalog {
    state: RwLock<State>,
    /// Held from the change of a revocation until it is durable, so that the list written last is the whole one.
    keeper: Mutex<Keeper>,
}

#[derive(Debug, Default)]
struct State {
    publications: BTreeMap<PublicationId, Publication>,
    /// Scopes and offers of the publications, each once: thousands of publications are alike in both.
    scopes: BTreeSet<Arc<BTreeSet<TenantId>>>,
    offers: BTreeSet<Arc<Contracts>>,
    last_id: u64,
    routes: RouteTable,
    revocations: RevocationList,
}

#[derive(Debug)]
struct Keeper {
    record: Box<dyn RevocationRecord>,
    /// The last writing failed: what is kept is not the list in force.
    behind: bool,
}

/// An empty catalog that forgets its revocations with the process.
impl Default for Catalog {
    fn default() -> Self {
        Self::with_revocations(RevocationList::default(), Box::new(Unrecorded))
    }
}

impl Catalog {
    /// An empty catalog in which everything in `revocations` is revoked already. `record` keeps that list and what is added to it.
    pub fn with_revocations(revocations: RevocationList, record: Box<dyn RevocationRecord>) -> Self {
        let state = State { revocations, ..State::default() };
        Self { state: RwLock::new(state), keeper: Mutex::new(Keeper { record, behind: false }) }
    }

    /// Adds a publication. No route leads to it yet. It is revoked if its component was.
    ///
    /// # Errors
    /// [`CatalogError::Limit`].
    pub fn add(&self, content: NewPublication) -> Result<PublicationId, CatalogError> {
        check_content(&content)?;
        self.write().add(content)
    }

    /// Adds a publication and does what [`Catalog::point_default_routes`] does.
    ///
    /// # Errors
    /// [`CatalogError::Limit`]; then no route has moved.
    pub fn publish(&self, content: NewPublication) -> Result<PublicationId, CatalogError> {
        check_content(&content)?;
        let mut state = self.write();
        state.check_default_routes(&content)?;
        let id = state.add(content)?;
        state.point_default_routes(id)?;
        Ok(id)
    }

    /// Points the default route of each of a publication's tenants at it, also when it is revoked: whoever calls then learns that, and
    /// not that a route is missing.
    ///
    /// # Errors
    /// [`CatalogError::UnknownPublication`], [`CatalogError::Limit`]; then no route has moved.
    pub fn point_default_routes(&self, publication: PublicationId) -> Result<(), CatalogError> {
        self.write().point_default_routes(publication)
    }

    /// Takes publications out to which no route leads: nobody can call them any more. What was reserved on one runs nevertheless, unless
    /// its component was revoked.
    pub fn withdraw(&self, publications: impl IntoIterator<Item = PublicationId>) {
        let mut state = self.write();
        let routed: BTreeSet<_> = state.routes.iter().map(|(_, target, _)| target).collect();
        for publication in publications.into_iter().filter(|publication| !routed.contains(publication)) {
            state.publications.remove(&publication);
        }
    }

    /// Revokes a publication's component: see [`Catalog::revoke_component`].
    ///
    /// # Errors
    /// [`CatalogError::UnknownPublication`], and those of [`Catalog::revoke_component`].
    pub fn revoke(&self, publication: PublicationId, scope: RevocationScope) -> Result<(), RevokeError> {
        let unknown = CatalogError::UnknownPublication { publication };
        let NewPublication { service, digest, .. } = self.publication(publication).ok_or(unknown)?.content;
        self.revoke_component(Revocation { service, digest, scope })
    }

    /// Revokes a component of a service, published or not. From here on none of its publications starts for that tenant, or at all;
    /// what runs ends by itself. Blocks until that is durable.
    ///
    /// # Errors
    /// [`CatalogError::NotCallable`] for a tenant in whose scope no publication of the component ever was: nothing was revoked.
    /// [`RevokeError::NotDurable`]: it is in force until the node stops. Revoking again is not an error.
    pub fn revoke_component(&self, revocation: Revocation) -> Result<(), RevokeError> {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        let (noted, list) = {
            let mut state = self.write();
            let noted = state.revoke(revocation)?;
            (noted, state.revocations.clone())
        };
        if noted.map_err(|full| RevokeError::NotDurable(full.into()))? == Noted::Known && !keeper.behind {
            return Ok(());
        }
        keeper.behind = true;
        keeper.record.keep(&list).map_err(RevokeError::NotDurable)?;
        keeper.behind = false;
        Ok(())
    }

    /// Everything that was revoked.
    pub fn revocations(&self) -> RevocationList {
        self.read().revocations.clone()
    }

    /// Every publication in the order of their ids, with the routes that lead to it.
    pub fn summaries(&self) -> Vec<PublicationSummary> {
        let state = self.read();
        let mut routes = BTreeMap::<PublicationId, Vec<_>>::new();
        for (key, target, generation) in state.routes.iter() {
            routes.entry(target).or_default().push((key.clone(), generation));
        }
        let summary = |entry: &Publication| {
            let NewPublication { service, tenants, digest, .. } = &entry.content;
            let (service, tenants) = (service.clone(), tenants.clone());
            let routes = routes.remove(&entry.id).unwrap_or_default();
            PublicationSummary { id: entry.id, service, tenants, digest: *digest, state: entry.state.clone(), routes }
        };
        state.publications.values().map(summary).collect()
    }

    /// Points a route at a publication and returns its generation, which grows with each change of target. What was reserved on
    /// the old target stays there.
    ///
    /// # Errors
    /// [`CatalogError::UnknownPublication`], [`CatalogError::OtherService`], [`CatalogError::NotCallable`],
    /// [`CatalogError::Limit`]; the route stays as it was.
    pub fn point_route(&self, key: RouteKey, publication: PublicationId) -> Result<RouteGeneration, CatalogError> {
        self.write().point_route(key, publication)
    }

    /// As [`Catalog::point_route`], if the route's generation is still `expected`; a route that never was has generation 0.
    ///
    /// # Errors
    /// [`CatalogError::RouteMoved`], and those of [`Catalog::point_route`].
    pub fn point_route_from(
        &self,
        key: RouteKey,
        publication: PublicationId,
        expected: RouteGeneration,
    ) -> Result<RouteGeneration, CatalogError> {
        let mut state = self.write();
        let found = state.routes.generation(&key);
        if found != expected {
            return Err(CatalogError::RouteMoved { route: key, expected, found });
        }
        state.point_route(key, publication)
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
        match state.publications.get(&pin.publication) {
            Some(entry) => entry.callable_by(tenant)?,
            // It was withdrawn after it was pinned; what may still stop it is a revocation of its component.
            None => state.revocations.state_of(&pin.route.service, pin.digest).callable(pin.publication, tenant)?,
        }
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

/// The one that is equal and known already, if there is one.
fn shared<T: Ord>(known: &mut BTreeSet<Arc<T>>, value: Arc<T>) -> Arc<T> {
    if let Some(equal) = known.get(&value) {
        return Arc::clone(equal);
    }
    known.insert(Arc::clone(&value));
    value
}

fn default_routes(content: &NewPublication) -> impl Iterator<Item = RouteKey> {
    content.tenants.iter().map(|tenant| RouteKey { tenant: tenant.clone(), service: content.service.clone(), route: None })
}

impl State {
    fn check_default_routes(&self, content: &NewPublication) -> Result<(), CatalogError> {
        let new = default_routes(content).filter(|key| !self.routes.contains(key)).count();
        if new > 0 {
            check_count(limits::ROUTES, self.routes.len() + new)?;
        }
        Ok(())
    }

    fn point_default_routes(&mut self, publication: PublicationId) -> Result<(), CatalogError> {
        let unknown = CatalogError::UnknownPublication { publication };
        let content = self.publications.get(&publication).ok_or(unknown)?.content.clone();
        self.check_default_routes(&content)?;
        default_routes(&content).for_each(|key| {
            self.routes.point(key, publication);
        });
        Ok(())
    }

    fn add(&mut self, mut content: NewPublication) -> Result<PublicationId, CatalogError> {
        check_count(limits::PUBLICATIONS, self.publications.len() + 1)?;
        content.tenants = shared(&mut self.scopes, content.tenants);
        content.contracts = shared(&mut self.offers, content.contracts);
        self.last_id = self.last_id.saturating_add(1);
        let id = PublicationId(self.last_id);
        let mut state = self.revocations.state_of(&content.service, content.digest);
        if let PublicationState::Live { revoked_for } = &mut state {
            revoked_for.retain(|tenant| content.tenants.contains(tenant));
        }
        self.publications.insert(id, Publication { id, content, state });
        Ok(id)
    }

    /// Takes a revocation into force. The inner error says that it could not be put on the list as well.
    fn revoke(&mut self, revocation: Revocation) -> Result<Result<Noted, LimitError>, CatalogError> {
        let Revocation { service, digest, scope } = &revocation;
        let concerned = |entry: &Publication| entry.content.service == *service && entry.content.digest == *digest;
        if let RevocationScope::Tenant(tenant) = scope {
            // A tenant outside the scope is a mistake to be told, not a revocation.
            let mut entries = self.publications.values().filter(|entry| concerned(entry)).peekable();
            if let Some(first) = entries.peek().map(|entry| entry.id)
                && !entries.any(|entry| entry.content.tenants.contains(tenant))
            {
                let refused = StartRefused::OutOfScope { publication: first, tenant: tenant.clone() };
                return Err(CatalogError::NotCallable { publication: first, tenant: tenant.clone(), refused });
            }
        }
        for entry in self.publications.values_mut().filter(|entry| concerned(entry)) {
            match scope {
                RevocationScope::Whole => entry.state = PublicationState::Revoked,
                // The scope bounds the set of tenants.
                RevocationScope::Tenant(tenant) if entry.content.tenants.contains(tenant) => entry.state.revoke_for(tenant.clone()),
                RevocationScope::Tenant(_) => {}
            }
        }
        Ok(self.revocations.insert(revocation))
    }

    fn point_route(&mut self, key: RouteKey, publication: PublicationId) -> Result<RouteGeneration, CatalogError> {
        let entry = self.publications.get(&publication).ok_or(CatalogError::UnknownPublication { publication })?;
        if entry.content.service != key.service {
            let implements = entry.content.service.clone();
            return Err(CatalogError::OtherService { publication, wanted: key.service, implements });
        }
        if let Err(refused) = entry.callable_by(&key.tenant) {
            return Err(CatalogError::NotCallable { publication, tenant: key.tenant, refused });
        }
        if !self.routes.contains(&key) {
            check_count(limits::ROUTES, self.routes.len() + 1)?;
        }
        Ok(self.routes.point(key, publication))
    }

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

impl PublicationState {
    /// Takes the right to call from one more tenant.
    pub(crate) fn revoke_for(&mut self, tenant: TenantId) {
        match self {
            Self::Revoked => {}
            Self::Live { revoked_for } => _ = revoked_for.insert(tenant),
        }
    }
}

impl PublicationState {
    /// Whether a tenant of its scope may call the publication in this state.
    fn callable(&self, publication: PublicationId, tenant: &TenantId) -> Result<(), StartRefused> {
        match self {
            Self::Revoked => Err(StartRefused::PublicationRevoked { publication }),
            Self::Live { revoked_for } if revoked_for.contains(tenant) => {
                Err(StartRefused::RevokedForTenant { publication, tenant: tenant.clone() })
            }
            Self::Live { .. } => Ok(()),
        }
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
        self.state.callable(publication, tenant)
    }
}

fn check_content(content: &NewPublication) -> Result<(), LimitError> {
    check_count(limits::PUBLICATION_TENANTS, content.tenants.len())?;
    check_count(limits::PUBLICATION_CONTRACTS, content.contracts.len())?;
    content.contracts.values().try_for_each(|functions| check_count(limits::CONTRACT_FUNCTIONS, functions.len()))
}

fn check_count(limit: Limit, count: usize) -> Result<(), LimitError> {
    limit.check(count as u64).map(drop)
}

#[cfg(test)]
mod revoking_tests;
#[cfg(test)]
mod tests;
