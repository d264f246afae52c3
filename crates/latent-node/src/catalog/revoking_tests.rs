//! Revocations that outlive a catalog, and routes that are changed by comparison.

use std::sync::Arc;

use super::*;

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

/// Service `triage` for acme and beta.
fn publication(component: &[u8]) -> NewPublication {
    NewPublication {
        service: ServiceName::parse("triage").unwrap(),
        tenants: BTreeSet::from([tenant("acme"), tenant("beta")]).into(),
        contracts: Contracts::from([(
            ContractName::parse("demo:pkg/i@1.0.0").unwrap(),
            BTreeSet::from([FunctionName::parse("handle").unwrap()]),
        )])
        .into(),
        digest: ComponentDigest::of(component),
    }
}

fn revocation(component: &[u8], scope: RevocationScope) -> Revocation {
    let NewPublication { service, digest, .. } = publication(component);
    Revocation { service, digest, scope }
}

fn key(of: &str) -> RouteKey {
    RouteKey { tenant: tenant(of), service: ServiceName::parse("triage").unwrap(), route: None }
}

fn resolved(catalog: &Catalog, of: &str) -> Result<Pin, ResolveError> {
    let content = publication(b"");
    let (contract, functions) = content.contracts.first_key_value().unwrap();
    let function = functions.first().unwrap();
    catalog.resolve(Call { tenant: &tenant(of), service: &content.service, route: None, contract, function })
}

/// What is kept, and whether the next writings fail.
#[derive(Debug, Default)]
struct Disk {
    kept: Mutex<RevocationList>,
    writings: Mutex<Vec<Result<(), NotKept>>>,
    count: Mutex<usize>,
}

#[derive(Debug)]
struct OnDisk(Arc<Disk>);

impl RevocationRecord for OnDisk {
    fn keep(&self, list: &RevocationList) -> Result<(), NotKept> {
        *self.0.count.lock().unwrap() += 1;
        self.0.writings.lock().unwrap().pop().unwrap_or(Ok(()))?;
        *self.0.kept.lock().unwrap() = list.clone();
        Ok(())
    }
}

impl Disk {
    /// A catalog as the next process makes it, with the one publication of the configuration.
    fn start(self: &Arc<Self>) -> (Catalog, PublicationId) {
        let catalog = Catalog::with_revocations(self.kept.lock().unwrap().clone(), Box::new(OnDisk(Arc::clone(self))));
        let id = catalog.publish(publication(b"one")).unwrap();
        (catalog, id)
    }
}

fn broken() -> NotKept {
    NotKept::Io { operation: "sync", file: "revocations".to_owned(), reason: "it burns".to_owned() }
}

#[test]
fn a_revocation_outlives_its_catalog_whatever_the_configuration_says() {
    for (scope, beta_goes_on) in [(RevocationScope::Tenant(tenant("acme")), true), (RevocationScope::Whole, false)] {
        let disk = Arc::new(Disk::default());
        let (first, id) = disk.start();
        assert!(resolved(&first, "acme").is_ok());
        first.revoke(id, scope).unwrap();
        let (second, id) = disk.start();
        let refused = if beta_goes_on {
            StartRefused::RevokedForTenant { publication: id, tenant: tenant("acme") }
        } else {
            StartRefused::PublicationRevoked { publication: id }
        };
        assert_eq!(resolved(&second, "acme"), Err(ResolveError::Refused(refused)), "the reason, and not a missing route");
        assert_eq!(resolved(&second, "beta").is_ok(), beta_goes_on);
    }
}

#[test]
fn another_component_of_the_service_is_callable_after_a_revocation() {
    let (catalog, id) = Arc::new(Disk::default()).start();
    catalog.revoke(id, RevocationScope::Whole).unwrap();
    let same = catalog.add(publication(b"one")).unwrap();
    assert_eq!(catalog.publication(same).unwrap().state, PublicationState::Revoked, "the same component is born revoked");
    let rebuilt = catalog.add(publication(b"two")).unwrap();
    assert_eq!(catalog.point_route(key("acme"), rebuilt), Ok(RouteGeneration(2)));
    assert_eq!(resolved(&catalog, "acme").unwrap().publication, rebuilt);
}

#[test]
fn one_revocation_reaches_every_publication_of_its_component() {
    let catalog = Catalog::default();
    let [first, second, other] = [b"one", b"one", b"two"].map(|component| catalog.add(publication(component)).unwrap());
    catalog.revoke(first, RevocationScope::Tenant(tenant("beta"))).unwrap();
    let of_beta = |id| catalog.publication(id).unwrap().callable_by(&tenant("beta")).is_ok();
    assert_eq!([first, second, other].map(of_beta), [false, false, true]);
}

#[test]
fn a_component_can_be_revoked_before_it_is_published() {
    let catalog = Catalog::default();
    catalog.revoke_component(revocation(b"later", RevocationScope::Tenant(tenant("acme")))).unwrap();
    catalog.revoke_component(revocation(b"later", RevocationScope::Tenant(tenant("elsewhere")))).unwrap();
    let id = catalog.publish(publication(b"later")).unwrap();
    let revoked_for = BTreeSet::from([tenant("acme")]);
    assert_eq!(catalog.publication(id).unwrap().state, PublicationState::Live { revoked_for }, "bounded by the scope");
}

#[test]
fn what_cannot_be_made_durable_is_in_force_and_told_and_tried_again_with_the_next_one() {
    let disk = Arc::new(Disk::default());
    let (catalog, id) = disk.start();
    disk.writings.lock().unwrap().extend([Err(broken()), Err(broken())]);
    let acme = RevocationScope::Tenant(tenant("acme"));
    for _ in 0..2 {
        assert_eq!(catalog.revoke(id, acme.clone()), Err(RevokeError::NotDurable(broken())));
        assert!(resolved(&catalog, "acme").is_err() && resolved(&catalog, "beta").is_ok());
    }
    assert!(disk.kept.lock().unwrap().is_empty());
    // The repetition changes nothing in force, and yet writes.
    assert_eq!(catalog.revoke(id, acme.clone()), Ok(()));
    assert_eq!((disk.kept.lock().unwrap().clone(), *disk.count.lock().unwrap()), (catalog.revocations(), 3));
    assert_eq!(catalog.revoke(id, acme), Ok(()));
    assert_eq!(*disk.count.lock().unwrap(), 3, "nothing was left to write");
}

#[test]
fn a_full_list_still_stops_what_is_published() {
    let disk = Arc::new(Disk::default());
    let (catalog, id) = disk.start();
    for number in 0..limits::REVOCATIONS.max {
        disk.kept.lock().unwrap().insert(revocation(&number.to_le_bytes(), RevocationScope::Whole)).unwrap();
    }
    drop(catalog);
    let (catalog, again) = disk.start();
    assert_eq!(again, id);
    let full = catalog.revoke(again, RevocationScope::Whole).unwrap_err();
    assert!(matches!(full, RevokeError::NotDurable(NotKept::Full(limit)) if limit.name == "revocations"));
    assert!(resolved(&catalog, "acme").is_err());
}

#[test]
fn a_route_is_changed_only_from_the_generation_that_was_looked_at() {
    let catalog = Catalog::default();
    let [one, two] = [b"one", b"two"].map(|component| catalog.add(publication(component)).unwrap());
    let steps = [
        (one, 1, Err((1, 0))),
        (one, 0, Ok(1)),
        (two, 0, Err((0, 1))),
        (two, 1, Ok(2)),
        (one, 2, Ok(3)),
        (one, 3, Ok(3)),
        (two, 4, Err((4, 3))),
    ];
    for (target, expected, outcome) in steps {
        let moved = |(expected, found): (u64, u64)| CatalogError::RouteMoved {
            route: key("acme"),
            expected: RouteGeneration(expected),
            found: RouteGeneration(found),
        };
        let pointed = catalog.point_route_from(key("acme"), target, RouteGeneration(expected));
        assert_eq!(pointed, outcome.map(RouteGeneration).map_err(moved), "{target} from {expected}");
    }
}

#[test]
fn a_summary_names_the_routes_that_lead_to_a_publication_now() {
    let catalog = Catalog::default();
    let first = catalog.publish(publication(b"one")).unwrap();
    let second = catalog.add(publication(b"two")).unwrap();
    catalog.point_route(key("acme"), second).unwrap();
    catalog.revoke(first, RevocationScope::Whole).unwrap();
    let summaries = catalog.summaries();
    let told: Vec<_> = summaries.iter().map(|summary| (summary.id, summary.state.clone(), summary.routes.clone())).collect();
    let live = PublicationState::Live { revoked_for: BTreeSet::new() };
    assert_eq!(
        told,
        [
            (first, PublicationState::Revoked, vec![(key("beta"), RouteGeneration(1))]),
            (second, live, vec![(key("acme"), RouteGeneration(2))])
        ]
    );
}
