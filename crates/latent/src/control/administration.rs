//! The words of administration as they cross the socket and as machines read them: services, routes, revocations, the clock.

use serde::{Deserialize, Serialize};

use super::protocol::Fault;
use crate::limits;

/// One publication, or a component that was revoked and is not published: also the document that `latent service list --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServiceInfo {
    /// The service.
    pub(crate) service: String,
    /// The tenants it was published for.
    pub(crate) tenants: Vec<String>,
    /// Its number while this node runs; `None` for what is not published.
    pub(crate) publication: Option<u64>,
    /// Its component, `sha256:` and 64 digits; `None` when the component's file cannot be read.
    pub(crate) digest: Option<String>,
    /// Whether it may be called.
    pub(crate) state: ServiceState,
    /// Tenants for which it was revoked, when it was not revoked wholly.
    pub(crate) revoked_for: Vec<String>,
    /// Routes that lead to it now, at most `service_routes`.
    pub(crate) routes: Vec<RouteInfo>,
    /// Further routes that lead to it.
    pub(crate) routes_left_out: u64,
}

/// Whether a publication may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ServiceState {
    /// By its tenants, except those for which it was revoked.
    Live,
    /// By nobody, ever again.
    Revoked,
    /// By nobody now: the node is not running.
    Stopped,
    /// It is not published; it was revoked for some tenants.
    Absent,
}

impl ServiceState {
    /// The word of documents.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Revoked => "revoked",
            Self::Stopped => "stopped",
            Self::Absent => "absent",
        }
    }
}

/// A route that leads to a publication.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteInfo {
    /// Whose.
    pub(crate) tenant: String,
    /// Its name; `None` for the default one.
    pub(crate) route: Option<String>,
    /// How often its target changed.
    pub(crate) generation: u64,
}

/// Where a page of services ended. Publications come in the order of their numbers, what is not published behind them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServicePlace {
    /// False sorts before true.
    unpublished: bool,
    publication: u64,
    service: String,
    digest: String,
}

impl ServiceInfo {
    /// Its place in the order of pages.
    pub(crate) fn place(&self) -> ServicePlace {
        ServicePlace {
            unpublished: self.publication.is_none(),
            publication: self.publication.unwrap_or_default(),
            service: self.service.clone(),
            digest: self.digest.clone().unwrap_or_default(),
        }
    }

    /// Names in its document.
    fn names(&self) -> usize {
        self.tenants.len() + self.revoked_for.len() + self.routes.len()
    }
}

/// A page of services and whether there are more. At least one, if there is one.
pub(super) fn page_of_services(mut services: Vec<ServiceInfo>, after: Option<&ServicePlace>) -> (Vec<ServiceInfo>, bool) {
    services.sort_by_cached_key(ServiceInfo::place);
    services.retain(|service| after.is_none_or(|after| service.place() > *after));
    let mut names = 0;
    let fits = |service: &&ServiceInfo| {
        names += service.names();
        names <= limits::SERVICE_PAGE_NAMES.max_usize()
    };
    let fitting = services.iter().take(limits::SERVICE_PAGE.max_usize()).take_while(fits).count();
    let fitting = fitting.max(services.len().min(1));
    let more = services.len() > fitting;
    services.truncate(fitting);
    (services, more)
}

/// Which route is to lead where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteOrder {
    /// The service.
    pub(crate) service: String,
    /// Whose route; may be left out when the publication has one tenant.
    pub(crate) tenant: Option<String>,
    /// Its name; `None` for the default one.
    pub(crate) route: Option<String>,
    /// A publication's number or the beginning of its digest, see [`crate::administration::Selector`].
    pub(crate) to: String,
    /// Only if the route has this generation.
    pub(crate) expect_generation: Option<u64>,
}

/// Where a route leads: also the document that `latent service route --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Routed {
    /// The service.
    pub(crate) service: String,
    /// Whose route.
    pub(crate) tenant: String,
    /// Its name; `None` for the default one.
    pub(crate) route: Option<String>,
    /// The publication it leads to.
    pub(crate) publication: u64,
    /// That publication's component.
    pub(crate) digest: String,
    /// Its generation.
    pub(crate) generation: u64,
}

/// What is to be revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokeOrder {
    /// The service.
    pub(crate) service: String,
    /// The beginning of one component's digest; `None` for every component it is published with.
    pub(crate) digest: Option<String>,
    /// For one tenant; `None` for everybody.
    pub(crate) tenant: Option<String>,
}

/// One component that is revoked: also the document that `latent service revoke --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Revoked {
    /// The service.
    pub(crate) service: String,
    /// The component.
    pub(crate) digest: String,
    /// For whom; `None` for everybody.
    pub(crate) tenant: Option<String>,
}

/// What is known of the wall clock: also the document that `latent clock status --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClockInfo {
    /// `held` while the wall clock is not believed.
    pub(crate) state: ClockState,
    /// What it says, in milliseconds since 1970.
    pub(crate) now: u64,
    /// How far it is from what was expected, negative when behind. `None` when it is believed or nothing was expected.
    pub(crate) jump_ms: Option<i64>,
    /// Since when it is held, in milliseconds since 1970.
    pub(crate) held_since: Option<u64>,
    /// In words, when it is held.
    pub(crate) reason: Option<String>,
}

/// Whether the wall clock is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClockState {
    /// It is.
    Sound,
    /// It is not: what depends on it waits.
    Held,
}

/// Kind of a service that nobody published.
pub(super) const UNKNOWN_SERVICE: &str = "unknown-service";

impl Fault {
    /// True when there is no such service.
    pub(crate) fn is_unknown_service(&self) -> bool {
        self.kind == UNKNOWN_SERVICE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(publication: Option<u64>, name: &str, tenants: usize) -> ServiceInfo {
        ServiceInfo {
            service: name.to_owned(),
            tenants: (0..tenants).map(|number| format!("t{number}")).collect(),
            publication,
            digest: None,
            state: ServiceState::Live,
            revoked_for: Vec::new(),
            routes: Vec::new(),
            routes_left_out: 0,
        }
    }

    /// Walks the pages and gives their lengths.
    fn pages(services: &[ServiceInfo]) -> Vec<usize> {
        let (mut lengths, mut after, mut seen) = (Vec::new(), None, Vec::new());
        loop {
            let (page, more) = page_of_services(services.to_vec(), after.as_ref());
            lengths.push(page.len());
            after = page.last().map(ServiceInfo::place).or(after);
            seen.extend(page);
            if !more {
                let mut sorted = services.to_vec();
                sorted.sort_by_cached_key(ServiceInfo::place);
                assert_eq!(seen, sorted, "each once");
                return lengths;
            }
        }
    }

    #[test]
    fn pages_are_cut_at_their_count_and_at_their_names() {
        let count = limits::SERVICE_PAGE.max_usize();
        let many = |services: usize, tenants: usize| (0..services).map(|n| service(Some(n as u64), "s", tenants)).collect::<Vec<_>>();
        let names = limits::SERVICE_PAGE_NAMES.max_usize();
        let cases = [
            (many(0, 1), vec![0]),
            (many(count - 1, 1), vec![count - 1]),
            (many(count, 1), vec![count]),
            (many(count + 1, 1), vec![count, 1]),
            (many(2, names / 2), vec![2]),
            (many(2, names / 2 + 1), vec![1, 1]),
            (many(2, names + 1), vec![1, 1]),
        ];
        for (services, expected) in cases {
            assert_eq!(pages(&services), expected);
        }
    }

    #[test]
    fn what_is_not_published_comes_behind_what_is() {
        assert_eq!(pages(&[service(None, "a", 0), service(Some(2), "z", 1), service(None, "b", 0), service(Some(10), "a", 1)]), [4]);
        let (page, _) = page_of_services(vec![service(None, "a", 0), service(Some(10), "a", 1), service(Some(2), "z", 1)], None);
        assert_eq!(page.iter().map(|service| service.publication).collect::<Vec<_>>(), [Some(2), Some(10), None]);
    }
}
