//! One node on one or several partitions.

use latent_testkit::{require_broker, until_some};

use crate::world::{Setup, World};

/// T-103: events of one key run one at a time and in order, different keys beside each other.
#[tokio::test]
async fn events_run_in_order_by_key_and_are_settled() {
    require_broker!();
    let world = World::start(Setup::default()).await;
    for number in 0..60 {
        world.publish(0, ["a", "b", "c"][number % 3], &format!("ok-{number}")).await;
    }
    let node = world.node("one");
    world.handler.until_runs(60).await;
    world.until_settled(0).await;
    for (key, first) in [("a", 0), ("b", 1), ("c", 2)] {
        let expected: Vec<_> = (0..20).map(|number| format!("ok-{}", number * 3 + first)).collect();
        assert_eq!(world.handler.of_key(key), expected);
    }
    assert_eq!(world.handler.overlaps(), 0);
    // What comes to a lane that has nothing to do is seen, too.
    world.publish(0, "a", "ok-late").await;
    world.handler.until_runs(61).await;
    world.until_settled(0).await;
    node.stop().await;
    assert_eq!(world.consumer_info(0).await["num_redelivered"], 0);
}

/// D-23, 25-joins: what is rejected is parked at once, what fails when its runs are used up, what is no event without running.
#[tokio::test]
async fn what_never_runs_again_is_parked_and_then_terminated() {
    require_broker!();
    let world = World::start(Setup { dead_letter: true, ..Setup::default() }).await;
    world.publish(0, "a", "reject-1").await;
    world.publish(0, "b", "trap-2").await;
    world.admin.store("orders.p0", b"not an event").await;
    world.publish(0, "b", "once-4").await;
    let node = world.node("one");
    world.until_settled(0).await;
    until_some("three letters", || std::future::ready((world.parked.0.lock().unwrap().len() == 3).then_some(()))).await;
    let mut letters = world.parked.0.lock().unwrap().clone();
    letters.sort();
    let letter = |offset, text: &str, reason: &str| (offset, text.to_owned(), reason.to_owned());
    let expected = [letter(1, "reject-1", "rejected"), letter(2, "trap-2", "exhausted"), letter(3, "not an event", "undecodable")];
    assert_eq!(letters, expected);
    assert_eq!(world.handler.of_key("b"), ["trap-2", "trap-2", "trap-2", "once-4", "once-4"]);
    let deliveries: Vec<u32> = world.handler.runs().iter().filter(|run| run.key == "b").map(|run| run.delivery).collect();
    assert_eq!(deliveries, [1, 2, 3, 1, 2]);
    node.stop().await;
}
