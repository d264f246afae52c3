//! The operator stops while something is pending or executes (T-018, T-048, T-060, T-061).

use latent_nats::triggers::{StepEnd, TriggerState};
use latent_node::delivery::Unsettled;
use latent_testkit::proxy::Direction;
use latent_testkit::{require_broker, until_some};

use crate::node::Node;
use crate::world::{Proxied, Setup, World, results};

/// Waits until it says yes.
pub(crate) async fn until(awaited: &str, look: impl Fn() -> bool) {
    until_some(awaited, || std::future::ready(look().then_some(()))).await;
}

#[tokio::test]
async fn a_stop_while_a_guest_executes_leaves_its_message_to_be_delivered_again() {
    require_broker!();
    let World { broker: _broker, admin, node, .. } = World::start(Setup::calling("in-steps").patient()).await;
    let (manager, monitor) = (node.manager.clone(), node.monitor.clone());
    admin.publish("in.one", br#"["out","m-1",600]"#).await;
    let running = Node::run(node.triggers, &manager);
    let begun = || async { results(&admin).await.first().cloned() };
    assert_eq!(until_some("the guest works", begun).await, "m-1:begun");
    assert_eq!(monitor.bindings()[0].state, TriggerState::Busy);
    let triggers = running.stop().await;
    assert_eq!(monitor.last_step().unwrap().end, StepEnd::Unsettled(Unsettled::Stopped));
    assert_eq!(monitor.bindings()[0].state, TriggerState::Stopped);
    let account = manager.snapshot().node;
    assert_eq!((account.held(), account.input_bytes, monitor.snapshot().connections), (0, 0, 0), "everything is back");
    until("the broker sees the socket closed", || admin.connections_of("shop") == 0).await;
    let info = admin.consumer("IN", "one").await;
    assert_eq!((&info["num_pending"], &info["num_ack_pending"]), (&0.into(), &1.into()), "neither acknowledged nor given up");

    // After the broker's wait the same message runs once more.
    let running = Node::run(triggers, &manager);
    until("the second run", || monitor.snapshot().acknowledged == 1).await;
    running.stop().await;
    let ends: Vec<_> = manager.journal_newest(10).iter().map(|entry| entry.ended.kind).collect();
    assert_eq!(ends, ["success", "cancelled"]);
    assert_eq!(monitor.last_step().unwrap().handed.unwrap().delivery, 2);
}

#[tokio::test]
async fn a_stop_while_the_broker_has_not_answered_ends_at_once_and_loses_nothing() {
    require_broker!();
    let world = World::start(Setup::calling("act").behind_proxy(Proxied::Triggers)).await;
    let World { broker: _broker, admin, proxy, node, .. } = world;
    let (manager, monitor, proxy) = (node.manager.clone(), node.monitor.clone(), proxy.unwrap());
    let running = Node::run(node.triggers, &manager);
    until("a first inspection", || monitor.snapshot().inspections > 0).await;
    proxy.withhold(Direction::ToClient);
    proxy.until_held(Direction::ToClient, 1).await;
    admin.publish("in.one", br#"["well"]"#).await;
    let triggers = running.stop().await;
    let (account, snapshot) = (manager.snapshot().node, monitor.snapshot());
    assert_eq!((account.held(), snapshot.running, snapshot.connections, snapshot.activations), (0, 0, 0, 0));
    proxy.until_open(0).await;
    proxy.release();
    let running = Node::run(triggers, &manager);
    until("the message", || monitor.snapshot().acknowledged == 1).await;
    running.stop().await;
    assert_eq!(manager.snapshot().node.held(), 0);
}
