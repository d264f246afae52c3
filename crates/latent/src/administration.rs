//! What administration means: services, routes and revocations of a catalog, whether a running node's or one made of a configuration
//! for a moment. Names are those of people; what they mean is decided here, for the node's socket and for a directory alike.

use std::collections::{BTreeMap, BTreeSet};

use latent_core::{
    ComponentDigest, ContractName, CoreError, FunctionName, PublicationId, RouteGeneration, RouteName, ServiceName, TenantId,
};
use latent_node::{
    Catalog, CatalogError, Hold, HoldCause, NewPublication, NotKept, Observation, PublicationState, PublicationSummary, Revocation,
    RevocationScope, RevokeError, RouteKey,
};
use latent_wasmtime::HANDLER_CONTRACT;

use crate::component_file;
use crate::config::settings::ServiceConfig;
use crate::control::{ClockInfo, ClockState, RevokeOrder, Revoked, RouteInfo, RouteOrder, Routed, ServiceInfo, ServiceState};
use crate::host::{ClockWatch, HostFileError, HostFiles, RevocationFile, held_words, read_revocations};
use crate::limits;

/// The function of the handler contract.
const HANDLE: &str = "handle";
/// Digits of a digest that are enough to name it, if no other begins with them.
const DIGEST_DIGITS_MIN: usize = 4;
/// Digits of a digest that people are shown.
const DIGEST_DIGITS_SHOWN: usize = 12;
/// Things that an error names at most.
const NAMED_MAX: usize = 8;

/// Why an administrative request was not carried out, or not as a whole.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    /// A name breaks its rule.
    #[error(transparent)]
    Name(#[from] CoreError),
    /// Nothing of that name is published or was revoked.
    #[error("there is no service {service}")]
    UnknownService {
        /// As given.
        service: ServiceName,
    },
    /// It names no publication.
    #[error(
        "{text:?} is neither the number of a publication nor the beginning of a digest; give at least {DIGEST_DIGITS_MIN} digits of 0-9a-f, after `sha256:` if all are decimal"
    )]
    Selector {
        /// As given.
        text: String,
    },
    /// No publication or component of the service is meant.
    #[error("service {service} has no {wanted}; it has {}", listed(known))]
    NothingMeant {
        /// The service.
        service: ServiceName,
        /// What was looked for.
        wanted: String,
        /// What there is.
        known: Vec<String>,
    },
    /// More than one is meant.
    #[error("{wanted} of service {service} may be {}; name one of them", listed(meant))]
    Ambiguous {
        /// The service.
        service: ServiceName,
        /// What was looked for.
        wanted: String,
        /// What it may be.
        meant: Vec<String>,
    },
    /// The service is not published for the tenant.
    #[error("service {service} is not published for {tenant}; it is for {}", listed(known))]
    UnknownTenant {
        /// The service.
        service: ServiceName,
        /// As given.
        tenant: TenantId,
        /// Its tenants.
        known: Vec<String>,
    },
    /// Whose route is meant has to be said.
    #[error("publication {publication} of service {service} is for {}; say whose route is meant", listed(tenants))]
    TenantNeeded {
        /// The service.
        service: ServiceName,
        /// The publication.
        publication: PublicationId,
        /// Its tenants.
        tenants: Vec<String>,
    },
    /// The catalog said no.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The revocation is in force and may be forgotten.
    #[error("the revocation is in force and may be forgotten when the node stops: {0}")]
    NotDurable(NotKept),
    /// A node that does not run has no routes.
    #[error("the node is not running; the routes of its next start come from the configuration")]
    Stopped,
    /// The command that asked knows no configuration.
    #[error("what the node publishes stands in its configuration, which this command was not given")]
    NoConfiguration,
    /// What was revoked, or what the clock said, cannot be read or written.
    #[error(transparent)]
    Host(#[from] HostFileError),
    /// The clock is taken for right, and the next start may not know.
    #[error("the clock is taken for right until the node stops, and that could not be written down: {0}")]
    ClockNotDurable(HostFileError),
}

impl AdminError {
    /// The name used in machine-readable output and `docs/errors.md`.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Name(_) | Self::Selector { .. } => "value",
            Self::UnknownService { .. } => "unknown-service",
            Self::NothingMeant { .. } => "unknown-publication",
            Self::Ambiguous { .. } => "ambiguous-publication",
            Self::UnknownTenant { .. } => "unknown-tenant",
            Self::TenantNeeded { .. } => "tenant-needed",
            Self::Catalog(CatalogError::RouteMoved { .. }) => "route-moved",
            Self::Catalog(_) => "catalog",
            Self::NotDurable(_) => "revocation-not-durable",
            Self::Stopped | Self::NoConfiguration => "node-stopped",
            Self::Host(error) => error.kind(),
            Self::ClockNotDurable(_) => "clock-not-durable",
        }
    }

    /// True when it happened and may not last: the same request again tries again.
    pub(crate) const fn is_uncertain(&self) -> bool {
        matches!(self, Self::NotDurable(_) | Self::ClockNotDurable(_))
    }
}

fn listed(names: &[String]) -> String {
    let named = names.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match (names.len(), names.len().saturating_sub(NAMED_MAX)) {
        (0, _) => "none".to_owned(),
        (_, 0) => named,
        (_, more) => format!("{named} and {more} more"),
    }
}

/// What people name a publication by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selector {
    /// Its number.
    Publication(PublicationId),
    /// The beginning of its component's digest, without `sha256:`.
    Digest(String),
}

impl Selector {
    /// Decimal digits alone are a number, anything else is a digest.
    ///
    /// # Errors
    /// [`AdminError::Selector`].
    pub(crate) fn parse(text: &str) -> Result<Self, AdminError> {
        if let Some(id) = Some(text).filter(|text| text.bytes().all(|digit| digit.is_ascii_digit())).and_then(|text| text.parse().ok()) {
            return Ok(Self::Publication(PublicationId(id)));
        }
        Self::parse_digest(text)
    }

    /// As [`Selector::parse`], where no number can be meant.
    ///
    /// # Errors
    /// [`AdminError::Selector`].
    pub(crate) fn parse_digest(text: &str) -> Result<Self, AdminError> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text).to_ascii_lowercase();
        let usable = (DIGEST_DIGITS_MIN..=64).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if usable { Ok(Self::Digest(digits)) } else { Err(AdminError::Selector { text: text.chars().take(80).collect() }) }
    }

    fn selects(&self, publication: Option<PublicationId>, digest: ComponentDigest) -> bool {
        match self {
            Self::Publication(id) => publication == Some(*id),
            Self::Digest(digits) => digest.to_string().strip_prefix("sha256:").is_some_and(|whole| whole.starts_with(digits)),
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Publication(id) => format!("publication {id}"),
            Self::Digest(digits) => format!("component sha256:{digits}"),
        }
    }
}

/// The beginning of a digest, as people are shown it.
pub(crate) fn short_digest(digest: &str) -> &str {
    digest.get(.."sha256:".len() + DIGEST_DIGITS_SHOWN).unwrap_or(digest)
}

fn named(summary: &PublicationSummary) -> String {
    format!("{} ({})", summary.id, short_digest(&summary.digest.to_string()))
}

/// Every publication, and every component that was revoked and is not published.
pub(crate) fn list(catalog: &Catalog) -> Vec<ServiceInfo> {
    let summaries = catalog.summaries();
    let published: BTreeSet<_> = summaries.iter().map(|summary| (summary.service.clone(), summary.digest)).collect();
    let revocations = catalog.revocations();
    let absent = revocations.components().filter(|(service, digest, _)| !published.contains(&((*service).clone(), *digest)));
    let absent: Vec<_> = absent.map(|(service, digest, state)| absent_info(service, digest, state)).collect();
    summaries.into_iter().map(info).chain(absent).collect()
}

fn info(summary: PublicationSummary) -> ServiceInfo {
    let PublicationSummary { id, service, tenants, digest, state, mut routes } = summary;
    let shown = limits::SERVICE_ROUTES.max_usize();
    let routes_left_out = routes.len().saturating_sub(shown) as u64;
    routes.truncate(shown);
    let route = |(key, generation): (RouteKey, RouteGeneration)| RouteInfo {
        tenant: key.tenant.to_string(),
        route: key.route.map(|name| name.to_string()),
        generation: generation.0,
    };
    let (state, revoked_for) = words_of(&state, ServiceState::Live);
    ServiceInfo {
        service: service.to_string(),
        tenants: tenants.iter().map(ToString::to_string).collect(),
        publication: Some(id.0),
        digest: Some(digest.to_string()),
        state,
        revoked_for,
        routes: routes.into_iter().map(route).collect(),
        routes_left_out,
    }
}

fn absent_info(service: &ServiceName, digest: ComponentDigest, state: &PublicationState) -> ServiceInfo {
    let (state, revoked_for) = words_of(state, ServiceState::Absent);
    ServiceInfo {
        service: service.to_string(),
        tenants: Vec::new(),
        publication: None,
        digest: Some(digest.to_string()),
        state,
        revoked_for,
        routes: Vec::new(),
        routes_left_out: 0,
    }
}

fn words_of(state: &PublicationState, otherwise: ServiceState) -> (ServiceState, Vec<String>) {
    match state {
        PublicationState::Revoked => (ServiceState::Revoked, Vec::new()),
        PublicationState::Live { revoked_for } => (otherwise, revoked_for.iter().map(ToString::to_string).collect()),
    }
}

/// The catalog of a node that does not run: what its configuration would publish, less what was revoked. No route leads anywhere.
///
/// # Errors
/// [`AdminError::Host`] when what was revoked cannot be read.
pub(crate) fn of_configuration(files: HostFiles, services: &[ServiceConfig]) -> Result<(Catalog, Unread), AdminError> {
    let catalog = Catalog::with_revocations(read_revocations(&files)?, Box::new(RevocationFile(files)));
    let handler = (ContractName::parse(HANDLER_CONTRACT)?, BTreeSet::from([FunctionName::parse(HANDLE)?]));
    let mut unread = Unread::new();
    for service in services {
        let (name, tenant) = (service.name.clone(), service.tenant.clone());
        match component_file::read(&service.component) {
            Ok(component) => {
                let (tenants, digest) = (BTreeSet::from([tenant]).into(), ComponentDigest::of(&component));
                catalog.add(NewPublication { service: name, tenants, contracts: BTreeMap::from([handler.clone()]).into(), digest })?;
            }
            Err(_) => _ = unread.entry(name).or_default().insert(tenant),
        }
    }
    Ok((catalog, unread))
}

/// What a node that does not run would publish, and what was revoked.
pub(crate) fn list_stopped(catalog: &Catalog, unread: &Unread) -> Vec<ServiceInfo> {
    let stopped = |info: ServiceInfo| match info.state {
        ServiceState::Live => ServiceInfo { state: ServiceState::Stopped, publication: None, ..info },
        ServiceState::Revoked | ServiceState::Stopped | ServiceState::Absent => ServiceInfo { publication: None, ..info },
    };
    let unread = unread.iter().map(|(service, tenants)| ServiceInfo {
        service: service.to_string(),
        tenants: texts(tenants),
        publication: None,
        digest: None,
        state: ServiceState::Stopped,
        revoked_for: Vec::new(),
        routes: Vec::new(),
        routes_left_out: 0,
    });
    list(catalog).into_iter().map(stopped).chain(unread).collect()
}

/// Points a route at a publication.
///
/// # Errors
/// [`AdminError`]; the route stays as it was.
pub(crate) fn route(catalog: &Catalog, order: &RouteOrder) -> Result<Routed, AdminError> {
    let service = ServiceName::parse(&order.service)?;
    let tenant = order.tenant.as_deref().map(TenantId::parse).transpose()?;
    let name = order.route.as_deref().map(RouteName::parse).transpose()?;
    let target = the_one(catalog, &service, &Selector::parse(&order.to)?)?;
    let tenant = match (tenant, target.tenants.first()) {
        (Some(tenant), _) if target.tenants.contains(&tenant) => tenant,
        (Some(tenant), _) => return Err(AdminError::UnknownTenant { service, tenant, known: texts(&target.tenants) }),
        (None, Some(only)) if target.tenants.len() == 1 => only.clone(),
        (None, _) => return Err(AdminError::TenantNeeded { service, publication: target.id, tenants: texts(&target.tenants) }),
    };
    let key = RouteKey { tenant: tenant.clone(), service: service.clone(), route: name };
    let generation = match order.expect_generation {
        Some(expected) => catalog.point_route_from(key, target.id, RouteGeneration(expected))?,
        None => catalog.point_route(key, target.id)?,
    };
    Ok(Routed {
        service: service.to_string(),
        tenant: tenant.to_string(),
        route: order.route.clone(),
        publication: target.id.0,
        digest: target.digest.to_string(),
        generation: generation.0,
    })
}

fn the_one(catalog: &Catalog, service: &ServiceName, wanted: &Selector) -> Result<PublicationSummary, AdminError> {
    let mut published: Vec<_> = catalog.summaries().into_iter().filter(|summary| summary.service == *service).collect();
    if published.is_empty() {
        return Err(AdminError::UnknownService { service: service.clone() });
    }
    let known: Vec<_> = published.iter().map(named).collect();
    published.retain(|summary| wanted.selects(Some(summary.id), summary.digest));
    let meant: Vec<_> = published.iter().map(named).collect();
    match (published.pop(), meant.len()) {
        (Some(one), 1) => Ok(one),
        (None, _) => Err(AdminError::NothingMeant { service: service.clone(), wanted: wanted.words(), known }),
        (Some(_), _) => Err(AdminError::Ambiguous { service: service.clone(), wanted: wanted.words(), meant }),
    }
}

fn texts(tenants: &BTreeSet<TenantId>) -> Vec<String> {
    tenants.iter().map(ToString::to_string).collect()
}

/// Services of a configuration whose component cannot be read, so that they are in no catalog, and their tenants.
pub(crate) type Unread = BTreeMap<ServiceName, BTreeSet<TenantId>>;

/// Revokes one component of a service, or all it is published with. Every one is tried, also when one cannot be made durable.
///
/// # Errors
/// [`AdminError`]. But for [`AdminError::NotDurable`] nothing was revoked.
pub(crate) fn revoke(catalog: &Catalog, unread: &Unread, order: &RevokeOrder) -> Result<Vec<Revoked>, AdminError> {
    let service = ServiceName::parse(&order.service)?;
    let tenant = order.tenant.as_deref().map(TenantId::parse).transpose()?;
    let wanted = order.digest.as_deref().map(Selector::parse_digest).transpose()?;
    let known = Known::of(catalog, unread, &service)?;
    if let Some(tenant) = &tenant {
        known.check_tenant(tenant)?;
    }
    let digests = known.meant(wanted.as_ref(), tenant.as_ref())?;
    let scope = tenant.clone().map_or(RevocationScope::Whole, RevocationScope::Tenant);
    let mut not_durable = None;
    for digest in &digests {
        match catalog.revoke_component(Revocation { service: service.clone(), digest: *digest, scope: scope.clone() }) {
            Ok(()) => {}
            Err(RevokeError::NotDurable(why)) => not_durable = Some(why),
            Err(RevokeError::Refused(refused)) => return Err(refused.into()),
        }
    }
    if let Some(why) = not_durable {
        return Err(AdminError::NotDurable(why));
    }
    let tenant = tenant.map(|tenant| tenant.to_string());
    Ok(digests
        .into_iter()
        .map(|digest| Revoked { service: service.to_string(), digest: digest.to_string(), tenant: tenant.clone() })
        .collect())
}

/// Whether the wall clock is believed.
pub(crate) fn clock(watch: &ClockWatch) -> ClockInfo {
    let (now, hold) = watch.look();
    clock_info(now, hold)
}

/// Takes the wall clock for right.
///
/// # Errors
/// [`AdminError::ClockNotDurable`].
pub(crate) fn confirm_clock(watch: &ClockWatch) -> Result<ClockInfo, AdminError> {
    watch.confirm().map(|now| clock_info(now, None)).map_err(AdminError::ClockNotDurable)
}

fn clock_info(now: Observation, hold: Option<Hold>) -> ClockInfo {
    let jump_ms = hold.and_then(|hold| match hold.cause {
        HoldCause::Jump { millis } => Some(millis),
        HoldCause::Unknown => None,
    });
    ClockInfo {
        state: if hold.is_some() { ClockState::Held } else { ClockState::Sound },
        now: now.unix.0,
        jump_ms,
        held_since: hold.map(|hold| hold.since.0),
        reason: hold.as_ref().map(held_words),
    }
}

/// What there is of one service.
struct Known {
    service: ServiceName,
    published: Vec<PublicationSummary>,
    /// Components that were revoked, published or not.
    revoked: Vec<ComponentDigest>,
    tenants: BTreeSet<TenantId>,
}

impl Known {
    fn of(catalog: &Catalog, unread: &Unread, service: &ServiceName) -> Result<Self, AdminError> {
        let published: Vec<_> = catalog.summaries().into_iter().filter(|summary| summary.service == *service).collect();
        let revocations = catalog.revocations();
        let revoked: Vec<_> = revocations.components().filter(|(of, ..)| *of == service).map(|(_, digest, _)| digest).collect();
        if published.is_empty() && revoked.is_empty() && !unread.contains_key(service) {
            return Err(AdminError::UnknownService { service: service.clone() });
        }
        let tenants = published.iter().flat_map(|summary| summary.tenants.iter()).chain(unread.get(service).into_iter().flatten());
        Ok(Self { service: service.clone(), tenants: tenants.cloned().collect(), published, revoked })
    }

    /// A service that is not published any more is known by no tenant; then any may be named.
    fn check_tenant(&self, tenant: &TenantId) -> Result<(), AdminError> {
        if self.tenants.is_empty() || self.tenants.contains(tenant) {
            return Ok(());
        }
        Err(AdminError::UnknownTenant { service: self.service.clone(), tenant: tenant.clone(), known: texts(&self.tenants) })
    }

    fn meant(&self, wanted: Option<&Selector>, tenant: Option<&TenantId>) -> Result<BTreeSet<ComponentDigest>, AdminError> {
        let concerned = self.published.iter().filter(|summary| tenant.is_none_or(|tenant| summary.tenants.contains(tenant)));
        let Some(wanted) = wanted else {
            let all: BTreeSet<_> = concerned.map(|summary| summary.digest).collect();
            let known = Vec::new();
            let nothing =
                || AdminError::NothingMeant { service: self.service.clone(), wanted: "component that can be read".to_owned(), known };
            return if all.is_empty() { Err(nothing()) } else { Ok(all) };
        };
        let every: BTreeSet<_> = self.published.iter().map(|summary| summary.digest).chain(self.revoked.iter().copied()).collect();
        let meant: BTreeSet<_> = every.iter().copied().filter(|digest| wanted.selects(None, *digest)).collect();
        let texts = |digests: &BTreeSet<ComponentDigest>| {
            digests.iter().map(|digest| short_digest(&digest.to_string()).to_owned()).collect::<Vec<_>>()
        };
        match (meant.len(), wanted) {
            (1, _) => Ok(meant),
            // Named as a whole, a component can be revoked before it is published.
            (0, Selector::Digest(digits)) if digits.len() == 64 => {
                Ok(BTreeSet::from([ComponentDigest::parse(&format!("sha256:{digits}"))?]))
            }
            (0, _) => Err(AdminError::NothingMeant { service: self.service.clone(), wanted: wanted.words(), known: texts(&every) }),
            (_, _) => Err(AdminError::Ambiguous { service: self.service.clone(), wanted: wanted.words(), meant: texts(&meant) }),
        }
    }
}

#[cfg(test)]
mod tests;
