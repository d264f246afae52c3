//! Services, routes, revocations and the clock as a peer asks for them.

use std::collections::{BTreeMap, BTreeSet};

use latent_core::{ComponentDigest, ContractName, FunctionName, ServiceName, TenantId};
use latent_node::{NewPublication, NotKept, RevocationList, RevocationRecord};

use super::*;

/// A disk on which nothing can be kept.
#[derive(Debug)]
struct Broken;

impl RevocationRecord for Broken {
    fn keep(&self, _: &RevocationList) -> Result<(), NotKept> {
        Err(NotKept::Io { operation: "syncing", file: "revocations".to_owned(), reason: "it burns".to_owned() })
    }
}

fn digest(number: u64) -> ComponentDigest {
    ComponentDigest::of(&number.to_le_bytes())
}

/// A node with `count` publications of service `triage` for `acme`.
fn served(catalog: Catalog, count: u64, clock: Believed) -> Served {
    for number in 1..=count {
        let handler = (ContractName::parse("a:b/c@1.0.0").unwrap(), BTreeSet::from([FunctionName::parse("f").unwrap()]));
        let publication = NewPublication {
            service: ServiceName::parse("triage").unwrap(),
            tenants: BTreeSet::from([TenantId::parse("acme").unwrap()]).into(),
            contracts: BTreeMap::from([handler]).into(),
            digest: digest(number),
        };
        catalog.publish(publication).unwrap();
    }
    Served::with_node(defaults(), |log, files| {
        let watch = ClockWatch::open(files, Arc::new(SystemClock::start())).unwrap();
        FakeNode { log, bindings: 0, catalog: Arc::new(catalog), watch, clock, abandoned: Arc::default() }
    })
}

fn asked(peer: &mut BufReader<UnixStream>, request: &Value) -> Value {
    ask(peer, &json!({ "version": 1, "request": request }).to_string())["answer"].clone()
}

#[test]
fn services_are_listed_with_their_routes() {
    let served = served(Catalog::default(), 1, Believed::Yes);
    let answer = asked(&mut served.connect(), &json!({ "services": { "after": null } }));
    let service = json!({
        "service": "triage", "tenants": ["acme"], "publication": 1, "digest": digest(1).to_string(), "state": "live", "revoked_for": [],
        "routes": [{ "tenant": "acme", "route": null, "generation": 1 }], "routes_left_out": 0,
    });
    assert_eq!(answer, json!({ "services": { "services": [service], "more": false } }));
}

#[test]
fn services_come_in_pages() {
    let count = limits::SERVICE_PAGE.max + 1;
    let served = served(Catalog::default(), count, Believed::Yes);
    let mut client = served.client();
    let (mut after, mut numbers) = (None, Vec::new());
    loop {
        let Answer::Services { services, more } = client.call(Request::Services { after }).unwrap() else { panic!("no services") };
        numbers.extend(services.iter().filter_map(|service| service.publication));
        after = services.last().map(ServiceInfo::place);
        if !more {
            break;
        }
    }
    assert_eq!(numbers, (1..=count).collect::<Vec<_>>());
}

#[test]
fn a_route_is_changed_back_and_forth_by_comparison() {
    let served = served(Catalog::default(), 2, Believed::Yes);
    let mut peer = served.connect();
    let order = |to: &str, generation: Value| json!({ "route-service": { "service": "triage", "tenant": null, "route": null, "to": to, "expect_generation": generation } });
    let first = asked(&mut peer, &order("1", json!(2)));
    let routed = json!({
        "service": "triage", "tenant": "acme", "route": null, "publication": 1, "digest": digest(1).to_string(), "generation": 3,
    });
    assert_eq!(first, json!({ "routed": routed }));
    let fault = asked(&mut peer, &order("2", json!(2)))["fault"].clone();
    assert_eq!((&fault["kind"], &fault["permanent"], &fault["uncertain"]), (&json!("route-moved"), &json!(true), &json!(false)));
    assert_eq!(asked(&mut peer, &order(&digest(2).to_string(), json!(3)))["routed"]["generation"], json!(4));
    assert_eq!(asked(&mut peer, &order("1", json!(null)))["routed"]["generation"], json!(5));
}

#[test]
fn a_revocation_that_is_answered_is_listed_and_one_that_cannot_be_kept_is_uncertain_and_listed_too() {
    for (catalog, kept) in [(Catalog::default(), true), (Catalog::with_revocations(RevocationList::default(), Box::new(Broken)), false)] {
        let served = served(catalog, 2, Believed::Yes);
        let mut peer = served.connect();
        let order = json!({ "revoke-service": { "service": "triage", "digest": digest(2).to_string(), "tenant": null } });
        for _ in 0..2 {
            let answer = asked(&mut peer, &order);
            if kept {
                assert_eq!(answer, json!({ "revoked": [{ "service": "triage", "digest": digest(2).to_string(), "tenant": null }] }));
            } else {
                let fault = &answer["fault"];
                assert_eq!((&fault["kind"], &fault["uncertain"]), (&json!("revocation-not-durable"), &json!(true)));
                assert!(fault["message"].as_str().unwrap().contains("in force"), "{fault}");
            }
        }
        let services = asked(&mut peer, &json!({ "services": { "after": null } }))["services"]["services"].clone();
        let states: Vec<_> = services.as_array().unwrap().iter().map(|service| service["state"].clone()).collect();
        assert_eq!(states, [json!("live"), json!("revoked")]);
    }
}

#[test]
fn the_clock_is_told_and_confirmed() {
    let served = served(Catalog::default(), 0, Believed::Yes);
    let mut peer = served.connect();
    for request in ["clock", "confirm-clock"] {
        let clock = asked(&mut peer, &json!(request))["clock"].clone();
        assert_eq!((&clock["state"], &clock["jump_ms"], &clock["held_since"]), (&json!("sound"), &json!(null), &json!(null)));
        assert!(clock["now"].as_u64().unwrap() > 0);
    }
}

#[test]
fn a_maintenance_that_is_held_is_a_fault_that_may_pass() {
    let served = served(Catalog::default(), 0, Believed::No);
    let fault = asked(&mut served.connect(), &json!("maintain"))["fault"].clone();
    assert_eq!((&fault["kind"], &fault["permanent"], &fault["uncertain"]), (&json!("clock-held"), &json!(false), &json!(false)));
    assert!(fault["message"].as_str().unwrap().starts_with("retention is held: the wall clock is 10 minutes ahead"), "{fault}");
}

#[test]
fn what_is_remembered_of_triggers_and_dead_letters_is_asked_for_in_these_words() {
    let served = Served::start(defaults());
    let mut peer = served.connect();
    let kind = |answer: &Value| answer["fault"]["kind"].clone();
    assert_eq!(
        asked(&mut peer, &json!({ "removed-triggers": { "after": null } })),
        json!({ "removed-triggers": { "triggers": [{ "id": "gone", "topic": "t" }], "more": false } })
    );
    assert_eq!(kind(&asked(&mut peer, &json!({ "forget-trigger": { "id": "absent" } }))), json!("unknown-trigger"));
    assert_eq!(
        asked(&mut peer, &json!({ "event-history": { "topic": "t", "partition": 0, "offset": 0 } })),
        json!({ "event-history": { "triggers": [], "triggers_left_out": 0, "runs": [], "runs_left_out": 0, "journal": null } })
    );
    for (letter, expected) in [("t/0/0", "no-dead-letter"), ("t/9/0", "out-of-range"), ("u/0/0", "unknown-topic"), ("t/0", "rejected")] {
        assert_eq!(kind(&asked(&mut peer, &json!({ "replay": { "letter": letter } }))), json!(expected), "{letter}");
    }
}
