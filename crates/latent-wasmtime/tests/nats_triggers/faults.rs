//! Settlements that get lost behind the TLS fault proxy (T-050, T-061): it never arrives, or nobody learns that it did. Neither is sent
//! again.

use latent_nats::triggers::{LastStep, StepEnd};
use latent_node::delivery::{Confirmation, TerminationReason, VisitSettlement};
use latent_testkit::proxy::{At, Direction, Fault, FaultProxy};
use latent_testkit::require_broker;

use crate::node::Node;
use crate::shutdown::until;
use crate::world::{ACKNOWLEDGED, IN, Proxied, Setup, World};

fn uncertain(settlement: VisitSettlement) -> StepEnd {
    StepEnd::Settled { settlement, confirmation: Confirmation::Uncertain }
}

/// Commands of this kind that left for the broker, on all connections.
fn commands(proxy: &FaultProxy, command: &[u8]) -> usize {
    let count = |text: Vec<u8>| text.windows(command.len()).filter(|window| *window == command).count();
    (0..proxy.connections()).map(|connection| count(proxy.transcript_of(connection, Direction::ToBroker))).sum()
}

#[tokio::test]
async fn an_acknowledgement_that_never_arrives_is_uncertain_and_the_message_runs_again() {
    require_broker!();
    let mut world = World::start(Setup::calling("act").behind_proxy(Proxied::Triggers)).await;
    let cut = world.proxy.as_ref().unwrap().inject(None, Direction::ToBroker, At::Before(b"PUB $JS.ACK.".to_vec()), Fault::Cut);
    world.send("one", r#"["m-1"]"#).await;
    assert_eq!(world.step_until_reported().await.end, uncertain(VisitSettlement::Acknowledge));
    assert!(cut.is_reached());
    assert_eq!(world.backlog("one").await, (0, 1));
    let step = world.step_until_reported().await;
    assert_eq!((step.end, step.handed.unwrap().delivery), (ACKNOWLEDGED, 2));
    assert_eq!(
        (world.ends(), world.results().await),
        (vec!["success"; 2], vec!["m-1".to_owned()]),
        "twice, with one effect of its own key"
    );
    assert_eq!(commands(world.proxy.as_ref().unwrap(), b"+ACK"), 1, "the second run's");
}

/// Runs the first message, its answers withheld from the moment its guest runs on.
async fn settled_unseen(world: &mut World) -> LastStep {
    let monitor = world.node.monitor.clone();
    let (proxy, Node { triggers, manager, .. }) = (world.proxy.as_ref().unwrap(), &mut world.node);
    let withhold = async {
        until("the guest runs", || monitor.snapshot().delivered == 1).await;
        proxy.withhold(Direction::ToClient);
    };
    let steps = async {
        loop {
            if let latent_nats::triggers::StepOutcome::Reported(step) = triggers.step(manager).await {
                return step;
            }
        }
    };
    let (step, ()) = tokio::join!(steps, withhold);
    proxy.until_open(0).await;
    proxy.release();
    step
}

#[tokio::test]
async fn an_acknowledgement_whose_receipt_is_lost_is_uncertain_and_the_message_is_not_delivered_again() {
    require_broker!();
    let mut world = World::start(Setup::calling("sleep").behind_proxy(Proxied::Triggers)).await;
    world.send("one", "[200]").await;
    assert_eq!(settled_unseen(&mut world).await.end, uncertain(VisitSettlement::Acknowledge));
    let info = world.admin.consumer(IN, "one").await;
    assert_eq!((&info["num_ack_pending"], &info["ack_floor"]["stream_seq"]), (&0.into(), &1.into()), "the broker has it");
    world.send("one", "[0]").await;
    assert_eq!(world.step_until_reported().await.handed.unwrap().sequence, 2);
    assert_eq!((world.ends().len(), world.node.monitor.snapshot().uncertain), (2, 1));
    assert_eq!(commands(world.proxy.as_ref().unwrap(), b"+ACK"), 2, "one for each message");
}

/// BUG-37 (c).
#[tokio::test]
async fn a_termination_whose_receipt_is_lost_is_uncertain_and_not_sent_again() {
    require_broker!();
    let setup = Setup::calling("sleep").behind_proxy(Proxied::Triggers).each(|binding| {
        binding.max_deliver = Some(1);
        binding.budget.as_mut().unwrap().wall_time_millis = Some(200);
    });
    let mut world = World::start(setup).await;
    world.send("one", "[600000]").await;
    let exhausted = VisitSettlement::Terminate(TerminationReason::Exhausted);
    assert_eq!(settled_unseen(&mut world).await.end, uncertain(exhausted));
    world.send("one", "[0]").await;
    assert_eq!(world.step_until_reported().await.end, ACKNOWLEDGED);
    assert_eq!((world.ends(), world.backlog("one").await), (vec!["timeout", "success"], (0, 0)));
    assert_eq!(commands(world.proxy.as_ref().unwrap(), b"+TERM"), 1);
}
