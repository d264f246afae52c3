//! Routes: which publication a tenant's service leads to. Metadata only; the catalog owns the table and checks what goes in.
//!
//! Each change of a route raises its generation, a revocation too. A [`Pin`] holds the generation it was taken at: work on an older
//! generation goes on after a replacement, and does not start any more after the route itself was revoked.

use std::collections::BTreeMap;
use std::fmt;

use latent_core::{ComponentDigest, PublicationId, RouteGeneration, RouteName, ServiceName, TenantId};

/// What selects a publication: tenant, service and, where a service has several, the route's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteKey {
    /// Whose route.
    pub tenant: TenantId,
    /// To which service.
    pub service: ServiceName,
    /// `None` is the service's only or default route.
    pub route: Option<RouteName>,
}

impl fmt::Display for RouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenant, service, route } = self;
        match route {
            Some(route) => write!(f, "route {route} of {tenant} to service {service}"),
            None => write!(f, "default route of {tenant} to service {service}"),
        }
    }
}

/// One resolved call: the publication, and the route and generation that selected it. Stays true to its target whatever happens
/// to the route afterwards; it is a memory, not a permission (see [`crate::Catalog::start_allowed`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// The route.
    pub route: RouteKey,
    /// Its generation when the pin was taken.
    pub generation: RouteGeneration,
    /// The publication it led to.
    pub publication: PublicationId,
    /// That publication's component.
    pub digest: ComponentDigest,
}

#[derive(Debug)]
struct Route {
    target: Option<PublicationId>,
    generation: RouteGeneration,
    revoked_up_to: RouteGeneration,
}

/// All routes of a node.
#[derive(Debug, Default)]
pub(crate) struct RouteTable {
    routes: BTreeMap<RouteKey, Route>,
}

impl RouteTable {
    /// Number of routes, revoked ones included.
    pub(crate) fn len(&self) -> usize {
        self.routes.len()
    }

    pub(crate) fn contains(&self, key: &RouteKey) -> bool {
        self.routes.contains_key(key)
    }

    /// Points the route at `target`. Naming the target in force changes nothing and keeps the generation.
    pub(crate) fn point(&mut self, key: RouteKey, target: PublicationId) -> RouteGeneration {
        let route =
            self.routes.entry(key).or_insert(Route { target: None, generation: RouteGeneration(0), revoked_up_to: RouteGeneration(0) });
        if route.target != Some(target) {
            route.target = Some(target);
            route.generation = next(route.generation);
        }
        route.generation
    }

    /// Ends the route: it selects nothing, and no pin on it starts. Pointing it again makes new generations valid, not old ones.
    pub(crate) fn revoke(&mut self, key: &RouteKey) -> Option<RouteGeneration> {
        let route = self.routes.get_mut(key)?;
        if route.target.take().is_some() {
            route.revoked_up_to = route.generation;
            route.generation = next(route.generation);
        }
        Some(route.generation)
    }

    /// What the route selects now.
    pub(crate) fn select(&self, key: &RouteKey) -> Option<(PublicationId, RouteGeneration)> {
        let route = self.routes.get(key)?;
        route.target.map(|target| (target, route.generation))
    }

    /// The route's generation, 0 when it never was.
    pub(crate) fn generation(&self, key: &RouteKey) -> RouteGeneration {
        self.routes.get(key).map_or(RouteGeneration(0), |route| route.generation)
    }

    /// Every route that leads somewhere.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&RouteKey, PublicationId, RouteGeneration)> {
        self.routes.iter().filter_map(|(key, route)| route.target.map(|target| (key, target, route.generation)))
    }

    /// True when the pinned generation was in force at a revocation of its route, or before it.
    pub(crate) fn is_revoked(&self, pin: &Pin) -> bool {
        self.routes.get(&pin.route).is_none_or(|route| pin.generation <= route.revoked_up_to)
    }

    /// True when the tenant has a route to the service, whatever it is called.
    pub(crate) fn serves(&self, tenant: &TenantId, service: &ServiceName) -> bool {
        self.routes.keys().any(|key| key.tenant == *tenant && key.service == *service)
    }
}

fn next(generation: RouteGeneration) -> RouteGeneration {
    RouteGeneration(generation.0.saturating_add(1))
}
