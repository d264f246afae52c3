//! Many messages, many bindings, no room (T-053, T-055, T-056, T-061, T-062).

use latent_nats::triggers::{StepEnd, StepFault, StepOutcome, TriggerState};
use latent_node::{NodeLimits, ReserveRefusal};
use latent_testkit::{require_broker, until_some};

use crate::node::Node;
use crate::shutdown::until;
use crate::world::{ACKNOWLEDGED, IN, Setup, World, binding, subject};

/// Messages of a tenant that has many.
const FLOOD: u64 = 100;

#[tokio::test]
async fn a_tenant_with_one_message_is_served_while_another_one_floods() {
    require_broker!();
    let world = World::start(Setup::of([binding("shop", "flood", "act"), binding("bank", "single", "act")])).await;
    let World { broker: _broker, admin, node, .. } = world;
    let (manager, monitor) = (node.manager.clone(), node.monitor.clone());
    for _ in 0..FLOOD {
        admin.publish(&subject("flood"), br#"["well"]"#).await;
    }
    let running = Node::run(node.triggers, &manager);
    until("the flood runs", || monitor.snapshot().acknowledged >= 3).await;
    admin.publish(&subject("single"), br#"["well"]"#).await;
    let stored = || async {
        let info = admin.consumer(IN, "single").await;
        (info["num_pending"] != 0 || info["delivered"]["consumer_seq"] != 0).then_some(())
    };
    until_some("the message in the stream", stored).await;
    let before = monitor.snapshot().acknowledged;
    until("everything", || monitor.snapshot().acknowledged == FLOOD + 1).await;
    running.stop().await;
    let order: Vec<_> = manager.journal_newest(1_000).iter().rev().map(|entry| entry.tenant.to_string()).collect();
    let place = order.iter().position(|tenant| tenant == "bank").unwrap() as u64;
    assert!(place <= before + 2, "after {before} of the flood it was the {place}th");
    assert!(before < FLOOD, "the flood went on");
}

#[tokio::test]
async fn an_overloaded_node_pulls_nothing_and_goes_on_without_loss() {
    require_broker!();
    let limits = NodeLimits { cells: 1, admission_slots: 4, ..NodeLimits::for_cores(1) };
    let mut world = World::start(Setup { limits, ..Setup::calling("act") }).await;
    let target = world.orders.triggers.bindings()[0].target().clone();
    let mut held = Vec::new();
    let refused = loop {
        match world.node.manager.reserve_inbound(&target) {
            Ok(reservation) => held.push(reservation),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, ReserveRefusal::Admission(_)), "{refused:?}");
    for _ in 0..3 {
        world.send("one", r#"["well"]"#).await;
    }
    world.until_waiting("one", 3).await;
    for _ in 0..3 {
        let StepOutcome::Reported(step) = world.step().await else { panic!("it says why") };
        assert_eq!(step.end, StepEnd::Failed(StepFault::Overloaded));
    }
    let snapshot = world.node.monitor.snapshot();
    assert_eq!((snapshot.pulls, snapshot.refused, snapshot.connected, world.backlog("one").await), (0, 3, 0, (3, 0)));
    assert_eq!(world.node.monitor.bindings()[0].state, TriggerState::Saturated);
    held.clear();
    for sequence in 1..=3 {
        let step = world.step_until_reported().await;
        assert_eq!((step.end, step.handed.unwrap().sequence), (ACKNOWLEDGED, sequence));
    }
    assert_eq!(world.backlog("one").await, (0, 0));
}

#[tokio::test]
async fn two_hundred_and_fifty_six_idle_bindings_cost_two_sockets_and_no_pull_and_a_message_is_found() {
    require_broker!();
    let bindings = (0..256).map(|number| binding(if number % 2 == 0 { "shop" } else { "bank" }, &format!("b-{number}"), "act"));
    let World { broker: _broker, admin, node, .. } = World::start(Setup::of(bindings)).await;
    let (manager, monitor) = (node.manager.clone(), node.monitor.clone());
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!((monitor.snapshot().visits, monitor.snapshot().connections), (0, 0), "installed is not opened");
    let before = tasks();
    let running = Node::run(node.triggers, &manager);
    until("two sweeps", || monitor.snapshot().inspections >= 512).await;
    let snapshot = monitor.snapshot();
    assert_eq!((snapshot.pulls, snapshot.delivered, snapshot.connected, snapshot.failed), (0, 0, 2, 0));
    assert!(tasks() <= before + 1, "the driver's own task is all there is");
    assert_eq!((admin.connections_of("shop"), admin.connections_of("bank")), (1, 1));
    assert_eq!(manager.journal_newest(10).len(), 0);
    let visits = monitor.snapshot().visits;
    admin.publish(&subject("b-77"), br#"["well"]"#).await;
    until("the message", || monitor.snapshot().acknowledged == 1).await;
    let snapshot = monitor.snapshot();
    assert!(snapshot.visits - visits <= 2 * 256 + 2, "within the next sweep");
    assert_eq!((snapshot.pulls, monitor.last_step().unwrap().binding), (1, 77));
    running.stop().await;
    assert_eq!((manager.snapshot().node.held(), monitor.snapshot().connections), (0, 0));
}
