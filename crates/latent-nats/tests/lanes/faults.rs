//! Connections that are cut, stalled and lost, brokers that go away, and users that may not do what is needed (T-105, T-109, D-14).

use latent_nats::triggers::StepFault;
use latent_node::delivery::DeliveryPolicy;
use latent_testkit::broker::BrokerAuth;
use latent_testkit::proxy::{At, Direction, Fault};
use latent_testkit::{require_broker, until_some};

use crate::world::{Setup, World};

fn soon() -> Setup {
    Setup { ack_wait_millis: 3_000, priority_timeout_millis: 6_000, ..Setup::default() }
}

/// T-105, T-050: an acknowledgement that is lost, or whose confirmation is: it is uncertain, the event does not run again for it where its
/// settlement had arrived, and the next of its key waits until that is known.
#[tokio::test]
async fn a_lost_acknowledgement_and_a_lost_confirmation_are_uncertain_and_never_repeated_on_their_own() {
    require_broker!();
    for is_command_lost in [true, false] {
        let (world, proxy) = World::behind_proxy(soon()).await;
        if is_command_lost {
            proxy.inject(None, Direction::ToBroker, At::Before(b"PUB $JS.ACK.".to_vec()), Fault::Cut);
        } else {
            proxy.inject(None, Direction::ToBroker, At::After(b"+ACK\r\n".to_vec()), Fault::CutClientSide);
        }
        for number in 0..3 {
            world.publish(0, "a", &format!("ok-{number}")).await;
        }
        let node = world.node("one");
        world.until_settled(0).await;
        let runs = world.handler.of_key("a");
        let first = runs.iter().filter(|text| *text == "ok-0").count();
        assert!(if is_command_lost { (1..=2).contains(&first) } else { first == 1 }, "{is_command_lost}: {runs:?}");
        world.assert_order(&["a"], 3);
        assert_eq!(node.monitor.lanes()[0].settlements_uncertain, u64::from(true), "{is_command_lost}");
        node.stop().await;
    }
}

/// A command that the broker takes and does not answer is given up at its deadline alone; the connection goes on.
#[tokio::test]
async fn a_confirmation_that_does_not_come_holds_back_its_key_and_nothing_else() {
    require_broker!();
    let (world, proxy) = World::behind_proxy(soon()).await;
    let node = world.node("one");
    world.publish(0, "a", "ok-0").await;
    world.handler.until_runs(1).await;
    world.until_settled(0).await;
    let cut = proxy.inject(None, Direction::ToBroker, At::Before(b"+ACK\r\n".to_vec()), Fault::Cut);
    for number in 1..=20 {
        world.publish(0, ["a", "b", "c", "d"][number % 4], &format!("ok-{number}")).await;
    }
    world.until_settled(0).await;
    assert!(cut.is_reached());
    assert_eq!(world.handler.overlaps(), 0);
    assert!(world.handler.runs().len() >= 21);
    node.stop().await;
}

/// D-14, T-057: a broker that goes away and comes back; nothing is lost and nothing has to be started again.
#[tokio::test]
async fn a_broker_that_restarts_is_used_again_by_itself() {
    require_broker!();
    let world = World::start(soon()).await;
    let node = world.node("one");
    world.publish(0, "a", "hang-0").await;
    world.handler.until_runs(1).await;
    world.broker.kill();
    let told = || std::future::ready(node.monitor.lanes()[0].trouble.clone());
    until_some("the outage is told", told).await;
    world.handler.go_on(1_000);
    world.broker.restart();
    // The stream was in memory: what is published now is there, and the consumer is made again.
    let admin = world.broker.admin().await;
    drop(admin);
    world.add_consumer(0).await;
    world.publish(0, "a", "ok-1").await;
    world.handler.until_runs(2).await;
    world.until_settled(0).await;
    until_some("nothing is in its way", || std::future::ready(node.monitor.lanes()[0].trouble.is_none().then_some(()))).await;
    node.stop().await;
}

/// T-111: a broker that was killed may hand out again what runs here, and take our settlement for that of who has it then.
#[tokio::test]
async fn a_run_is_stopped_when_the_broker_was_started_anew() {
    require_broker!();
    // Longer than any test waits: no lease and no run ends by its time.
    let soon = soon();
    let policy = DeliveryPolicy { operation_timeout_millis: 280_000, ..soon.policy };
    let world = World::start(Setup { ack_wait_millis: 300_000, policy, ..soon }).await;
    let node = world.node("one");
    world.publish(0, "a", "hang-0").await;
    world.handler.until_runs(1).await;
    world.broker.kill();
    world.broker.restart();
    until_some("the run is stopped", || std::future::ready((world.handler.under_way() == 0).then_some(()))).await;
    node.stop().await;
}

/// T-109, BUG-38: a user who may not settle is told as that; one who may not pull or inspect, too.
#[tokio::test]
async fn what_a_user_may_not_do_is_told() {
    require_broker!();
    let without = ["$JS.ACK.", "$JS.API.CONSUMER.MSG.NEXT.", "$JS.API.CONSUMER.INFO."];
    for missing in without {
        let world = World::start(soon()).await;
        world.broker.reload(|spec| {
            let BrokerAuth::Users(users) = &mut spec.auth else { panic!("users") };
            users.iter_mut().for_each(|user| user.publish.retain(|subject| !subject.starts_with(missing)));
        });
        world.publish(0, "a", "ok-0").await;
        let node = world.node("one");
        let told = || {
            let trouble = node
                .monitor
                .failures()
                .into_iter()
                .find(|failure| matches!(failure.fault, StepFault::PermissionRefused | StepFault::SettlementRefused));
            std::future::ready(trouble)
        };
        let failure = until_some("the missing permission", told).await;
        let is_settlement = failure.fault == StepFault::SettlementRefused;
        assert_eq!(is_settlement, missing == "$JS.ACK.", "{failure:?}");
        assert!(failure.why.contains("latent broker permissions"), "{failure:?}");
        node.kill().await;
    }
}
