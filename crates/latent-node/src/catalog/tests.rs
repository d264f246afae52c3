use super::*;

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

fn service(name: &str) -> ServiceName {
    ServiceName::parse(name).unwrap()
}

fn contract(number: usize) -> ContractName {
    ContractName::parse(&format!("demo:pkg/i{number}@1.0.0")).unwrap()
}

fn function(name: &str) -> FunctionName {
    FunctionName::parse(name).unwrap()
}

/// Service `triage` for acme and beta, with `handle` of contract 1.
fn publication(component: &[u8]) -> NewPublication {
    NewPublication {
        service: service("triage"),
        tenants: BTreeSet::from([tenant("acme"), tenant("beta")]).into(),
        contracts: Contracts::from([(contract(1), BTreeSet::from([function("handle")]))]).into(),
        digest: ComponentDigest::of(component),
    }
}

fn key(of: &str) -> RouteKey {
    RouteKey { tenant: tenant(of), service: service("triage"), route: None }
}

/// A catalog with one publication, routed for acme and beta.
fn catalog() -> (Catalog, PublicationId) {
    let catalog = Catalog::default();
    let id = catalog.add(publication(b"one")).unwrap();
    for of in ["acme", "beta"] {
        assert_eq!(catalog.point_route(key(of), id), Ok(RouteGeneration(1)));
    }
    (catalog, id)
}

struct Names {
    tenant: &'static str,
    service: &'static str,
    route: Option<&'static str>,
    contract: usize,
    function: &'static str,
}

const GOOD: Names = Names { tenant: "acme", service: "triage", route: None, contract: 1, function: "handle" };

fn resolve(catalog: &Catalog, names: &Names) -> Result<Pin, ResolveError> {
    let (tenant, service, contract, function) =
        (tenant(names.tenant), service(names.service), contract(names.contract), function(names.function));
    let route = names.route.map(|name| RouteName::parse(name).unwrap());
    catalog.resolve(Call { tenant: &tenant, service: &service, route: route.as_ref(), contract: &contract, function: &function })
}

#[test]
fn a_call_is_pinned_to_publication_generation_and_component() {
    let (catalog, id) = catalog();
    let pin = resolve(&catalog, &GOOD).unwrap();
    let expected = Pin { route: key("acme"), generation: RouteGeneration(1), publication: id, digest: ComponentDigest::of(b"one") };
    assert_eq!(pin, expected);
}

#[test]
fn each_way_to_miss_has_its_own_error() {
    let (catalog, publication) = catalog();
    let service_of = service;
    let table = [
        (Names { service: "other", ..GOOD }, ResolveError::UnknownService { service: service_of("other") }),
        (Names { tenant: "mallory", ..GOOD }, ResolveError::OtherTenant { service: service_of("triage"), tenant: tenant("mallory") }),
        (
            Names { route: Some("canary"), ..GOOD },
            ResolveError::UnknownRoute { route: RouteKey { route: Some(RouteName::parse("canary").unwrap()), ..key("acme") } },
        ),
        (Names { contract: 2, ..GOOD }, ResolveError::ContractNotOffered { publication, contract: contract(2) }),
        (
            Names { function: "other", ..GOOD },
            ResolveError::FunctionNotOffered { publication, contract: contract(1), function: function("other") },
        ),
    ];
    for (names, expected) in table {
        assert_eq!(resolve(&catalog, &names), Err(expected));
    }
}

#[test]
fn a_published_service_without_a_route_says_that_the_route_is_missing() {
    let catalog = Catalog::default();
    catalog.add(publication(b"one")).unwrap();
    assert_eq!(resolve(&catalog, &GOOD), Err(ResolveError::UnknownRoute { route: key("acme") }));
}

#[test]
fn a_replaced_route_raises_its_generation_and_leaves_the_old_pin_startable() {
    let (catalog, old) = catalog();
    let pin = resolve(&catalog, &GOOD).unwrap();
    let new = catalog.add(publication(b"two")).unwrap();
    assert_eq!(catalog.point_route(key("acme"), new), Ok(RouteGeneration(2)));
    let fresh = resolve(&catalog, &GOOD).unwrap();
    assert_eq!((pin.publication, pin.generation), (old, RouteGeneration(1)));
    assert_eq!((fresh.publication, fresh.generation, fresh.digest), (new, RouteGeneration(2), ComponentDigest::of(b"two")));
    for pin in [pin, fresh] {
        assert_eq!(catalog.start_allowed(&pin, &tenant("acme")), Ok(()));
    }
    // The other tenant's route did not move.
    assert_eq!(catalog.route(&key("beta")), Some((old, RouteGeneration(1))));
}

#[test]
fn naming_the_target_in_force_again_is_not_a_change() {
    let (catalog, id) = catalog();
    assert_eq!(catalog.point_route(key("acme"), id), Ok(RouteGeneration(1)));
}

#[test]
fn a_revocation_stops_reservations_and_starts_within_its_scope_only() {
    for (scope, beta_goes_on) in [(RevocationScope::Tenant(tenant("acme")), true), (RevocationScope::Whole, false)] {
        let (catalog, publication) = catalog();
        let pins = ["acme", "beta"].map(|of| resolve(&catalog, &Names { tenant: of, ..GOOD }).unwrap());
        catalog.revoke(publication, scope.clone()).unwrap();
        let refused = match scope {
            RevocationScope::Tenant(_) => StartRefused::RevokedForTenant { publication, tenant: tenant("acme") },
            RevocationScope::Whole => StartRefused::PublicationRevoked { publication },
        };
        assert_eq!(catalog.start_allowed(&pins[0], &tenant("acme")), Err(refused.clone()));
        assert_eq!(resolve(&catalog, &GOOD), Err(ResolveError::Refused(refused)));
        assert_eq!(catalog.start_allowed(&pins[1], &tenant("beta")).is_ok(), beta_goes_on);
        assert_eq!(resolve(&catalog, &Names { tenant: "beta", ..GOOD }).is_ok(), beta_goes_on);
        // Again, and less than what is revoked already: no error, and nothing comes back.
        for scope in [scope, RevocationScope::Tenant(tenant("acme"))] {
            assert_eq!(catalog.revoke(publication, scope), Ok(()));
        }
        assert!(catalog.start_allowed(&pins[0], &tenant("acme")).is_err());
        assert_eq!(catalog.start_allowed(&pins[1], &tenant("beta")).is_ok(), beta_goes_on);
    }
}

#[test]
fn a_revocation_for_a_tenant_that_was_never_in_the_scope_is_a_mistake_that_is_told() {
    let (catalog, publication) = catalog();
    let stranger = tenant("acne");
    let refused = StartRefused::OutOfScope { publication, tenant: stranger.clone() };
    let expected = CatalogError::NotCallable { publication, tenant: stranger.clone(), refused };
    assert_eq!(catalog.revoke(publication, RevocationScope::Tenant(stranger)), Err(RevokeError::Refused(expected)));
    assert!(resolve(&catalog, &GOOD).is_ok());
}

#[test]
fn an_error_names_the_route_it_means() {
    let named = RouteKey { route: Some(RouteName::parse("canary").unwrap()), ..key("acme") };
    let unknown = ResolveError::UnknownRoute { route: named }.to_string();
    assert_eq!(unknown, "there is no route canary of acme to service triage; point one at a publication");
    let revoked = StartRefused::RouteRevoked { route: key("acme"), generation: RouteGeneration(3) }.to_string();
    assert_eq!(revoked, "the default route of acme to service triage was revoked after generation 3");
}

#[test]
fn a_revoked_route_stops_its_pins_and_pointing_it_again_does_not_revive_them() {
    let (catalog, publication) = catalog();
    let pin = resolve(&catalog, &GOOD).unwrap();
    assert_eq!(catalog.revoke_route(&key("acme")), Ok(RouteGeneration(2)));
    let refused = StartRefused::RouteRevoked { route: key("acme"), generation: RouteGeneration(1) };
    assert_eq!(catalog.start_allowed(&pin, &tenant("acme")), Err(refused.clone()));
    assert_eq!(resolve(&catalog, &GOOD), Err(ResolveError::UnknownRoute { route: key("acme") }));
    assert_eq!(catalog.revoke_route(&key("acme")), Ok(RouteGeneration(2)));
    assert_eq!(catalog.point_route(key("acme"), publication), Ok(RouteGeneration(3)));
    assert_eq!(catalog.start_allowed(&pin, &tenant("acme")), Err(refused));
    assert_eq!(catalog.start_allowed(&resolve(&catalog, &GOOD).unwrap(), &tenant("acme")), Ok(()));
}

#[test]
fn a_pin_is_of_no_use_to_another_tenant() {
    let (catalog, publication) = catalog();
    let pin = resolve(&catalog, &GOOD).unwrap();
    let stranger = tenant("mallory");
    assert_eq!(catalog.start_allowed(&pin, &stranger), Err(StartRefused::OutOfScope { publication, tenant: stranger }));
}

#[test]
fn a_route_leads_only_to_what_its_tenant_may_call() {
    let (catalog, publication) = catalog();
    let unknown = PublicationId(77);
    assert_eq!(catalog.point_route(key("acme"), unknown), Err(CatalogError::UnknownPublication { publication: unknown }));
    let unknown_publication = CatalogError::UnknownPublication { publication: unknown };
    assert_eq!(catalog.revoke(unknown, RevocationScope::Whole), Err(RevokeError::Refused(unknown_publication)));
    assert_eq!(catalog.revoke_route(&key("mallory")), Err(CatalogError::UnknownRoute { route: key("mallory") }));
    let elsewhere = RouteKey { service: service("other"), ..key("acme") };
    let other = CatalogError::OtherService { publication, wanted: service("other"), implements: service("triage") };
    assert_eq!(catalog.point_route(elsewhere, publication), Err(other));
    let not_callable = |of: &str, refused| CatalogError::NotCallable { publication, tenant: tenant(of), refused };
    let stranger = StartRefused::OutOfScope { publication, tenant: tenant("mallory") };
    assert_eq!(catalog.point_route(key("mallory"), publication), Err(not_callable("mallory", stranger)));
    catalog.revoke(publication, RevocationScope::Whole).unwrap();
    let revoked = StartRefused::PublicationRevoked { publication };
    assert_eq!(catalog.point_route(key("acme"), publication), Err(not_callable("acme", revoked)));
    assert_eq!(catalog.route(&key("acme")), Some((publication, RouteGeneration(1))));
}

#[test]
fn a_publication_is_bounded_in_tenants_contracts_and_functions() {
    let tenants = |count: usize| Arc::new((0..count).map(|n| tenant(&format!("t{n}"))).collect());
    let functions = |count: usize| (0..count).map(|n| function(&format!("f{n}"))).collect::<BTreeSet<_>>();
    let contracts = |count: usize| Arc::new((0..count).map(|n| (contract(n), functions(1))).collect());
    type Make<'a> = Box<dyn Fn(usize) -> NewPublication + 'a>;
    let with = |change: &dyn Fn(&mut NewPublication)| {
        let mut content = publication(b"one");
        change(&mut content);
        content
    };
    let cases: [(Limit, Make<'_>); 3] = [
        (limits::PUBLICATION_TENANTS, Box::new(|count| with(&|content| content.tenants = tenants(count)))),
        (limits::PUBLICATION_CONTRACTS, Box::new(|count| with(&|content| content.contracts = contracts(count)))),
        (
            limits::CONTRACT_FUNCTIONS,
            Box::new(|count| with(&|content| content.contracts = Contracts::from([(contract(1), functions(count))]).into())),
        ),
    ];
    for (limit, make) in cases {
        let most = limit.max_usize();
        let catalog = Catalog::default();
        assert!(catalog.add(make(1)).is_ok() && catalog.add(make(most - 1)).is_ok() && catalog.add(make(most)).is_ok(), "{}", limit.name);
        for bad in [0, most + 1] {
            assert!(matches!(catalog.add(make(bad)), Err(CatalogError::Limit(refused)) if refused.name == limit.name), "{bad}");
        }
    }
}

#[test]
fn publications_are_bounded_and_ten_thousand_of_them_are_cheap() {
    let catalog = Catalog::default();
    let most = limits::PUBLICATIONS.max;
    let ids: BTreeSet<_> = (0..most).map(|n| catalog.add(publication(&n.to_le_bytes())).unwrap()).collect();
    assert_eq!(ids.len() as u64, most);
    let full = catalog.add(publication(b"one more"));
    assert!(matches!(full, Err(CatalogError::Limit(refused)) if refused.name == "publications" && refused.value == most + 1));
    catalog.point_route(key("acme"), *ids.last().unwrap()).unwrap();
    assert!(resolve(&catalog, &GOOD).is_ok());
}

#[test]
fn routes_are_bounded_and_a_full_table_can_still_be_changed() {
    let (catalog, first) = catalog();
    let named = |n: u64| RouteKey { route: Some(RouteName::parse(&format!("r{n}")).unwrap()), ..key("acme") };
    // Two routes are there already.
    for n in 2..limits::ROUTES.max {
        catalog.point_route(named(n), first).unwrap();
    }
    let full = catalog.point_route(named(0), first);
    assert!(matches!(full, Err(CatalogError::Limit(refused)) if refused.name == "routes"));
    let second = catalog.add(publication(b"two")).unwrap();
    assert_eq!(catalog.point_route(named(2), second), Ok(RouteGeneration(2)));
}

#[test]
fn a_withdrawn_publication_is_gone_and_what_was_pinned_to_it_still_starts_unless_it_is_revoked() {
    let (catalog, old) = catalog();
    let pin = resolve(&catalog, &GOOD).unwrap();
    // A route leads there: it stays.
    catalog.withdraw([old]);
    assert!(catalog.publication(old).is_some());
    let new = catalog.add(publication(b"new")).unwrap();
    for of in ["acme", "beta"] {
        catalog.point_route(key(of), new).unwrap();
    }
    catalog.withdraw([old, new]);
    assert!(catalog.publication(old).is_none() && catalog.publication(new).is_some());
    assert_eq!(catalog.start_allowed(&pin, &tenant("acme")), Ok(()));
    let revocation = |scope| Revocation { service: service("triage"), digest: pin.digest, scope };
    catalog.revoke_component(revocation(RevocationScope::Whole)).unwrap();
    assert_eq!(catalog.start_allowed(&pin, &tenant("acme")), Err(StartRefused::PublicationRevoked { publication: old }));
}
