//! What changes while triggers run: publications, routes, connections, the broker (T-013, T-057, T-058, T-061).

use latent_core::ComponentDigest;
use latent_nats::triggers::{StepEnd, StepFault, StepOutcome, TriggerState};
use latent_node::RevocationScope;
use latent_test_guests::PLAIN;
use latent_testkit::broker::StreamSpec;
use latent_testkit::{require_broker, until_some};

use crate::node::Node;
use crate::shutdown::until;
use crate::world::{ACKNOWLEDGED, IN, Setup, World, binding, results};

#[tokio::test]
async fn a_revoked_publication_stops_its_own_bindings_only() {
    require_broker!();
    let mut bindings = ["old", "new"].map(|name| binding("shop", name, "act"));
    bindings[1].route = Some("next".to_owned());
    let mut world = World::start(Setup::of(bindings)).await;
    let (variant, _) = world.node.publish_variant("next");
    world.node.point(Some("next"), variant);
    for name in ["old", "new"] {
        world.send(name, r#"["well"]"#).await;
        assert_eq!(world.step_until_reported().await.end, ACKNOWLEDGED, "{name}");
    }
    world.node.catalog.revoke(world.node.publication, RevocationScope::Whole).unwrap();
    let pulls = world.node.monitor.snapshot().pulls;
    for name in ["old", "new"] {
        world.send(name, r#"["well"]"#).await;
    }
    let StepOutcome::Reported(refused) = world.step().await else { panic!("the revoked one has its turn") };
    assert_eq!((refused.binding, refused.end), (0, StepEnd::Failed(StepFault::Ineligible)));
    assert_eq!(world.node.monitor.snapshot().pulls, pulls, "nothing is asked of the broker for it");
    world.until_waiting("old", 1).await;
    let went_on = loop {
        match world.step_until_reported().await {
            refused if refused.binding == 0 => assert_eq!(refused.end, StepEnd::Failed(StepFault::Ineligible)),
            other => break other,
        }
    };
    assert_eq!(went_on.end, ACKNOWLEDGED);
    assert_eq!((world.backlog("old").await, world.backlog("new").await), ((1, 0), (0, 0)), "the message stays with the broker");
    assert_eq!(world.node.monitor.bindings()[0].state, TriggerState::Stalled);
}

#[tokio::test]
async fn a_route_that_is_replaced_serves_the_next_message_and_not_the_one_under_way() {
    require_broker!();
    let World { broker: _broker, admin, node, .. } = World::start(Setup::calling("in-steps").patient()).await;
    let (variant, digest) = node.publish_variant("next");
    node.grant(&[node.publication, variant]);
    let (manager, monitor) = (node.manager.clone(), node.monitor.clone());
    admin.publish("in.one", br#"["out","m-1",600]"#).await;
    let begun = || async { results(&admin).await.first().cloned() };
    let catalog = node.catalog.clone();
    let point = |publication| {
        let key = latent_node::RouteKey {
            tenant: crate::node::parsed("shop"),
            service: latent_core::ServiceName::parse("work").unwrap(),
            route: None,
        };
        catalog.point_route(key, publication).unwrap()
    };
    let running = Node::run(node.triggers, &manager);
    assert_eq!(until_some("the guest works", begun).await, "m-1:begun");
    let replaced = point(variant);
    admin.publish("in.one", br#"["out","m-2",0]"#).await;
    until("both messages", || monitor.snapshot().acknowledged == 2).await;
    running.stop().await;
    let journal = manager.journal_newest(10);
    let ran: Vec<_> = journal.iter().rev().map(|entry| (entry.digest, entry.ended.kind)).collect();
    assert_eq!(ran, [(ComponentDigest::of(PLAIN.component), "success"), (digest, "success")]);
    assert_eq!(monitor.last_step().unwrap().generation, Some(replaced));
    assert!(journal[1].generation < replaced);
    assert_eq!(results(&admin).await, ["m-1:begun", "m-1:done", "m-2:begun", "m-2:done"]);
}

#[tokio::test]
async fn bindings_of_a_tenant_share_one_connection_that_is_used_again() {
    require_broker!();
    let mut world = World::start(Setup::of(["a", "b", "c"].map(|name| binding("shop", name, "act")))).await;
    for _ in 0..3 {
        for name in ["a", "b", "c"] {
            world.send(name, r#"["well"]"#).await;
            assert_eq!(world.step_until_reported().await.end, ACKNOWLEDGED);
        }
    }
    let snapshot = world.node.monitor.snapshot();
    assert_eq!((snapshot.acknowledged, snapshot.connected, world.admin.connections_of("shop")), (9, 1, 1));
    world.node.triggers.close_idle();
    until("the broker sees it closed", || world.admin.connections_of("shop") == 0).await;
    world.assert_nothing_held();
}

/// The broker dies under a guest that works, and comes back: the node is not restarted, and the message runs again.
#[tokio::test]
async fn a_message_is_delivered_again_after_the_broker_was_restarted() {
    require_broker!();
    let setup = Setup { input: StreamSpec::new(IN, ["in.>"]).on_disk(16 << 20), ..Setup::calling("in-steps").patient() };
    let World { broker, admin, node, .. } = World::start(setup).await;
    let (manager, monitor) = (node.manager.clone(), node.monitor.clone());
    // A publication of the administrator has no receipt, and a broker that is killed has only what it wrote.
    admin.publish("in.one", br#"["out","m-1",600]"#).await;
    let running = Node::run(node.triggers, &manager);
    let begun = || async { results(&admin).await.first().cloned() };
    assert_eq!(until_some("the guest works", begun).await, "m-1:begun");
    broker.kill();
    until("the first run", || monitor.snapshot().activations == 1).await;
    broker.restart();
    until("the second run", || monitor.snapshot().acknowledged == 1).await;
    running.stop().await;
    assert_eq!(monitor.last_step().unwrap().handed.unwrap().sequence, 1);
    let admin = broker.admin().await;
    let info = admin.consumer(IN, "one").await;
    assert_eq!((&info["num_pending"], &info["num_ack_pending"]), (&0.into(), &0.into()));
    assert_eq!(results(&admin).await, ["m-1:begun", "m-1:done"], "by the second run: the stream of the first is gone");
}
