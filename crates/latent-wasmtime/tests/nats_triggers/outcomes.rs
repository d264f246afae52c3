//! How a guest ends and what becomes of its message (T-043 to T-047).

use std::collections::BTreeSet;

use latent_node::delivery::Handed;
use latent_test_guests::PLAIN;
use latent_testkit::require_broker;
use latent_wasmtime::{EngineOptions, WasmEngine};

use crate::world::{ACKNOWLEDGED, DELAYED, EXHAUSTED, REJECTED, Setup, World};

/// T-001, T-043.
#[tokio::test]
async fn a_success_is_acknowledged_once_its_effect_is_there() {
    require_broker!();
    let mut world = World::start(Setup::calling("announce-as")).await;
    world.send("one", r#"["out","m-1"]"#).await;
    let step = world.step_until_reported().await;
    assert_eq!((step.end, step.handed), (ACKNOWLEDGED, Some(Handed { sequence: 1, delivery: 1 })));
    assert_eq!((world.results().await, world.backlog("one").await), (vec!["m-1".to_owned()], (0, 0)));
    let entry = &world.journal()[0];
    assert_eq!((entry.principal.to_string().as_str(), entry.tenant.as_str(), entry.service.as_str()), ("trigger:one", "shop", "work"));
    assert_eq!((entry.contract.as_str(), entry.function.as_str()), ("demo:plain/worse@1.0.0", "announce-as"));
}

/// T-044.
#[tokio::test]
async fn a_declared_failure_is_terminated_and_the_next_message_runs() {
    require_broker!();
    let mut world = World::start(Setup::calling("divide")).await;
    for (payload, end) in [("[1,0]", REJECTED), ("[4,2]", ACKNOWLEDGED)] {
        world.send("one", payload).await;
        assert_eq!(world.step_until_reported().await.end, end, "{payload}");
    }
    assert_eq!((world.ends(), world.backlog("one").await), (vec!["declared-failure", "success"], (0, 0)));
}

/// T-006, T-045.
#[tokio::test]
async fn an_invalid_payload_is_terminated_and_no_guest_runs() {
    require_broker!();
    let mut world = World::start(Setup::calling("divide")).await;
    let payloads = ["", "[", "{}", "null", "[1]", "[1,2,3]", "[1,\"2\"]", "[1,2] x", "[1,2147483648]"];
    for payload in payloads {
        world.send("one", payload).await;
        assert_eq!(world.step_until_reported().await.end, REJECTED, "{payload}");
    }
    let journal = world.journal();
    assert_eq!(journal.len(), payloads.len(), "each once");
    assert!(journal.iter().all(|entry| (entry.ended.kind, entry.fuel_used) == ("invalid-arguments", 0)), "{journal:?}");
    world.send("one", "[6,3]").await;
    assert_eq!(world.step_until_reported().await.end, ACKNOWLEDGED);
}

/// T-046, T-047, T-004, BUG-37 (a).
#[tokio::test]
async fn a_poison_message_runs_as_often_as_configured_each_time_as_a_new_activation() {
    require_broker!();
    let mut world = World::start(Setup::calling("act")).await;
    for payload in [r#"["trap"]"#, r#"["well"]"#] {
        world.send("one", payload).await;
    }
    for (delivery, end) in [(1, DELAYED), (2, DELAYED), (3, EXHAUSTED)] {
        let step = world.step_until_reported().await;
        assert_eq!((step.end, step.handed), (end, Some(Handed { sequence: 1, delivery })));
    }
    let step = world.step_until_reported().await;
    assert_eq!((step.end, step.handed), (ACKNOWLEDGED, Some(Handed { sequence: 2, delivery: 1 })));
    let (journal, snapshot) = (world.journal(), world.node.monitor.snapshot());
    assert_eq!(world.ends(), ["trap", "trap", "trap", "success"]);
    let different: BTreeSet<_> = journal.iter().map(|entry| (entry.activation, entry.trace)).collect();
    assert_eq!(different.len(), 4);
    assert_eq!((snapshot.delivered, snapshot.delayed, snapshot.exhausted, snapshot.acknowledged), (4, 2, 1, 1));
}

/// BUG-37 (d): with one delivery the first failure is the last.
#[tokio::test]
async fn a_message_with_one_delivery_is_exhausted_by_its_first_failure() {
    require_broker!();
    let mut world = World::start(Setup::calling("act").each(|binding| binding.max_deliver = Some(1))).await;
    for payload in [r#"["trap"]"#, r#"["well"]"#] {
        world.send("one", payload).await;
    }
    assert_eq!([world.step_until_reported().await.end, world.step_until_reported().await.end], [EXHAUSTED, ACKNOWLEDGED]);
    assert_eq!(world.ends(), ["trap", "success"]);
}

/// T-002: what these tests trigger imports what every guest may, and nothing of triggers, brokers or an outbox.
#[test]
fn a_component_imports_nothing_for_being_triggered() {
    let engine = WasmEngine::new(EngineOptions::default()).unwrap();
    let plain = engine.prepare(PLAIN.component).unwrap();
    let imports: Vec<_> = plain.imports().collect();
    assert!(!imports.is_empty());
    for import in imports {
        let import = format!("{import:?}");
        assert!(!["trigger", "nats", "jetstream", "outbox", "ack"].iter().any(|word| import.contains(word)), "{import}");
    }
}
