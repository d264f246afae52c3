use super::*;

fn name<T>(parsed: Result<T, CoreError>) -> T {
    parsed.unwrap()
}

fn publish(catalog: &Catalog, service: &str, tenants: &[&str], component: &[u8]) -> PublicationId {
    let publication = NewPublication {
        service: name(ServiceName::parse(service)),
        tenants: tenants.iter().map(|tenant| name(TenantId::parse(tenant))).collect::<BTreeSet<_>>().into(),
        contracts: BTreeMap::from([(name(ContractName::parse("a:b/c@1.0.0")), BTreeSet::from([name(FunctionName::parse("f"))]))]).into(),
        digest: ComponentDigest::of(component),
    };
    catalog.publish(publication).unwrap()
}

/// `triage` with two components for acme and beta, `mail` with one for acme.
fn catalog() -> Catalog {
    let catalog = Catalog::default();
    publish(&catalog, "triage", &["acme", "beta"], b"one");
    publish(&catalog, "triage", &["acme", "beta"], b"two");
    publish(&catalog, "mail", &["acme"], b"mail");
    catalog
}

fn digest(component: &[u8]) -> String {
    ComponentDigest::of(component).to_string()
}

fn to(service: &str, to: &str) -> RouteOrder {
    RouteOrder { service: service.to_owned(), tenant: None, route: None, to: to.to_owned(), expect_generation: None }
}

fn revoking(service: &str, digest: Option<&str>, tenant: Option<&str>) -> RevokeOrder {
    RevokeOrder { service: service.to_owned(), digest: digest.map(str::to_owned), tenant: tenant.map(str::to_owned) }
}

fn kind<T: std::fmt::Debug>(result: Result<T, AdminError>) -> &'static str {
    result.unwrap_err().kind()
}

#[test]
fn a_selector_is_a_number_or_the_beginning_of_a_digest() {
    let digest = |digits: &str| Some(Selector::Digest(digits.to_owned()));
    let whole = "a".repeat(64);
    let cases = [
        ("2", Some(Selector::Publication(PublicationId(2)))),
        ("12345678", Some(Selector::Publication(PublicationId(12_345_678)))),
        ("sha256:12345678", digest("12345678")),
        ("3F2a", digest("3f2a")),
        ("3f2", None),
        ("sha256:", None),
        ("", None),
        ("xyzw", None),
        ("éé", None),
        (&whole, digest(&whole)),
        (&format!("{whole}a"), None),
        // More than a number holds: digits of a digest.
        ("99999999999999999999", digest("99999999999999999999")),
    ];
    for (text, expected) in cases {
        assert_eq!(Selector::parse(text).ok(), expected, "{text:?}");
    }
}

#[test]
fn a_route_goes_back_and_forth_and_each_change_is_a_generation() {
    let catalog = catalog();
    let steps = [("1", 2), ("1", 2), ("2", 3), (&digest(b"one")[..20], 4)];
    // Publishing the second component pointed the route at it.
    for (target, generation) in steps {
        let order = RouteOrder { tenant: Some("acme".to_owned()), ..to("triage", target) };
        let routed = route(&catalog, &order).unwrap();
        assert_eq!((routed.generation, routed.publication), (generation + 1, if target == "2" { 2 } else { 1 }), "{target}");
    }
    let canary = route(&catalog, &RouteOrder { route: Some("canary".to_owned()), ..to("mail", "3") }).unwrap();
    assert_eq!((canary.tenant.as_str(), canary.route.as_deref(), canary.generation), ("acme", Some("canary"), 1));
}

#[test]
fn a_route_order_that_means_nothing_or_too_much_is_refused_with_what_there_is() {
    let catalog = catalog();
    publish(&catalog, "mail", &["acme"], b"mail");
    let of_acme = |target: &str| RouteOrder { tenant: Some("acme".to_owned()), ..to("triage", target) };
    let cases = [
        (to("tirage", "1"), "unknown-service", "there is no service tirage"),
        (to("triage", "1"), "tenant-needed", "publication 1 of service triage is for acme, beta; say whose route is meant"),
        (of_acme("3"), "unknown-publication", "service triage has no publication 3; it has 1 (sha256:"),
        (of_acme("sha256:0000"), "unknown-publication", "service triage has no component sha256:0000; it has 1 (sha256:"),
        (to("mail", &digest(b"mail")), "ambiguous-publication", "of service mail may be 3 (sha256:"),
        (
            RouteOrder { tenant: Some("mallory".to_owned()), ..to("triage", "1") },
            "unknown-tenant",
            "is not published for mallory; it is for acme, beta",
        ),
        (of_acme("??"), "value", "is neither the number of a publication nor the beginning of a digest"),
        (RouteOrder { tenant: Some("a b".to_owned()), ..to("triage", "1") }, "value", "tenant"),
        (RouteOrder { expect_generation: Some(7), ..of_acme("1") }, "route-moved", "has generation 2 and not 7"),
    ];
    for (order, kind, words) in cases {
        let error = route(&catalog, &order).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(words), "{order:?}: {error}");
    }
    revoke(&catalog, &Unread::new(), &revoking("triage", Some(&digest(b"one")), None)).unwrap();
    assert_eq!(kind(route(&catalog, &of_acme("1"))), "catalog", "it was revoked");
}

/// An order, the components it concerns, and who may call which publication no more.
type RevokeCase = (RevokeOrder, &'static [&'static [u8]], &'static [(u64, &'static str)]);

#[test]
fn a_revocation_concerns_what_it_names_and_nothing_else() {
    let cases: [RevokeCase; 4] = [
        (revoking("triage", None, None), &[b"one", b"two"], &[(1, "acme"), (1, "beta"), (2, "acme"), (2, "beta")]),
        (revoking("triage", None, Some("beta")), &[b"one", b"two"], &[(1, "beta"), (2, "beta")]),
        (revoking("triage", Some(&digest(b"two")[..12]), None), &[b"two"], &[(2, "acme"), (2, "beta")]),
        (revoking("triage", Some(&digest(b"one")), Some("acme")), &[b"one"], &[(1, "acme")]),
    ];
    for (order, components, refused) in cases {
        let catalog = catalog();
        let revoked: BTreeSet<_> = revoke(&catalog, &Unread::new(), &order).unwrap().into_iter().map(|revoked| revoked.digest).collect();
        assert_eq!(revoked, components.iter().map(|component| digest(component)).collect());
        for (id, tenant) in [(1, "acme"), (1, "beta"), (2, "acme"), (2, "beta"), (3, "acme")] {
            let publication = catalog.publication(PublicationId(id)).unwrap();
            let callable = publication.callable_by(&name(TenantId::parse(tenant))).is_ok();
            assert_eq!(callable, !refused.contains(&(id, tenant)), "{order:?}: {id} by {tenant}");
        }
    }
}

#[test]
fn a_revocation_order_that_means_nothing_is_refused_and_revokes_nothing() {
    let catalog = catalog();
    let cases = [
        (revoking("mial", None, None), "unknown-service"),
        (revoking("triage", None, Some("mallory")), "unknown-tenant"),
        (revoking("triage", Some("0000"), None), "unknown-publication"),
        (revoking("triage", Some("1"), None), "value"),
        (revoking("tri age", None, None), "value"),
    ];
    for (order, expected) in cases {
        assert_eq!(kind(revoke(&catalog, &Unread::new(), &order)), expected, "{order:?}");
    }
    assert!(catalog.revocations().is_empty());
}

#[test]
fn a_component_that_is_not_there_is_named_by_its_whole_digest() {
    let catalog = catalog();
    let old = digest(b"an older one");
    assert_eq!(kind(revoke(&catalog, &Unread::new(), &revoking("triage", Some(&old[..30]), None))), "unknown-publication");
    let revoked = revoke(&catalog, &Unread::new(), &revoking("triage", Some(&old), None)).unwrap();
    assert_eq!(revoked, [Revoked { service: "triage".to_owned(), digest: old.clone(), tenant: None }]);
    // Now it is known, and listed behind what is published.
    assert!(revoke(&catalog, &Unread::new(), &revoking("triage", Some(&old[..30]), None)).is_ok());
    let listed = list(&catalog);
    assert_eq!(listed.len(), 4);
    let absent = listed.last().unwrap();
    assert_eq!((absent.publication, absent.state, absent.digest.as_ref()), (None, ServiceState::Revoked, Some(&old)));
}

#[test]
fn the_list_says_for_whom_and_where_from() {
    let catalog = catalog();
    revoke(&catalog, &Unread::new(), &revoking("triage", Some(&digest(b"two")), Some("beta"))).unwrap();
    let listed = list(&catalog);
    let told: Vec<_> = listed.iter().map(|info| (info.publication, info.state, info.revoked_for.clone(), info.routes.len())).collect();
    assert_eq!(
        told,
        [
            (Some(1), ServiceState::Live, vec![], 0),
            (Some(2), ServiceState::Live, vec!["beta".to_owned()], 2),
            (Some(3), ServiceState::Live, vec![], 1)
        ]
    );
    assert_eq!(listed[1].routes[0], RouteInfo { tenant: "acme".to_owned(), route: None, generation: 2 });
}

#[test]
fn routes_beyond_the_bound_are_counted() {
    let catalog = Catalog::default();
    publish(&catalog, "mail", &["acme"], b"mail");
    let shown = limits::SERVICE_ROUTES.max_usize();
    for (routes, left_out) in [(shown - 1, 0), (shown, 0), (shown + 1, 1)] {
        // One is the default route.
        for number in 1..routes {
            route(&catalog, &RouteOrder { route: Some(format!("r{number}")), ..to("mail", "1") }).unwrap();
        }
        let info = list(&catalog).remove(0);
        assert_eq!((info.routes.len(), info.routes_left_out), (routes.min(shown), left_out));
    }
}

#[test]
fn a_stopped_node_publishes_what_its_configuration_says_less_what_was_revoked() {
    let temp = tempfile::tempdir().unwrap();
    let component = temp.path().join("c.wasm");
    std::fs::write(&component, b"component").unwrap();
    let service = |name_: &str, component| ServiceConfig {
        name: name(ServiceName::parse(name_)),
        tenant: name(TenantId::parse("acme")),
        component,
        grants: Vec::new(),
    };
    let services = [service("mail", component), service("unbuilt", temp.path().join("nowhere.wasm"))];
    let open = || of_configuration(HostFiles::below(temp.path()), &services).unwrap();
    let states = || {
        let (catalog, unread) = open();
        list_stopped(&catalog, &unread).into_iter().map(|info| (info.service, info.state, info.digest.is_some())).collect::<Vec<_>>()
    };
    let unbuilt = ("unbuilt".to_owned(), ServiceState::Stopped, false);
    assert_eq!(states(), [("mail".to_owned(), ServiceState::Stopped, true), unbuilt.clone()]);
    let (catalog, unread) = open();
    assert_eq!(kind(revoke(&catalog, &unread, &revoking("unbuilt", None, None))), "unknown-publication");
    assert!(revoke(&catalog, &unread, &revoking("mail", None, None)).is_ok());
    assert!(revoke(&catalog, &unread, &revoking("unbuilt", Some(&digest(b"u")), Some("acme"))).is_ok());
    let absent = ("unbuilt".to_owned(), ServiceState::Absent, true);
    assert_eq!(states(), [("mail".to_owned(), ServiceState::Revoked, true), absent, unbuilt]);
}
