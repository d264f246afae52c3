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
    // T-110.
    let settled = || async {
        let status = node.deliveries.statuses().await.remove(0);
        (status.acknowledged + status.terminated == 4).then_some(status)
    };
    let status = until_some("four settled", settled).await;
    assert_eq!((status.acknowledged, status.terminated, status.exhausted, status.dead_lettered), (1, 3, 1, 3));
    assert!(status.last_delivery_at.is_some() && status.last_failure.is_some() && status.obstacle.is_none());
    node.stop().await;
}

/// T-102, T-111: what is at the node is never more than what it has room to run.
#[tokio::test]
async fn no_more_is_pulled_than_there_is_room_for() {
    require_broker!();
    let limits = latent_node::NodeLimits { cells: 2, admission_slots: 5, ..latent_node::NodeLimits::for_cores(1) };
    let world = World::start(Setup { partitions: 4, limits, ..Setup::default() }).await;
    for number in 0..20 {
        for partition in 0..4 {
            world.publish(partition, &format!("k{partition}{number}"), "hang").await;
        }
    }
    let node = world.node("one");
    for done in 0..80 {
        world.handler.until_runs(done + 1).await;
        let mut unsettled = 0;
        for partition in 0..4 {
            unsettled += world.consumer_info(partition).await["num_ack_pending"].as_u64().unwrap();
        }
        assert!((1..=5).contains(&unsettled), "{unsettled} at the node after {done}");
        world.handler.go_on(1);
    }
    for partition in 0..4 {
        world.until_settled(partition).await;
    }
    assert!(world.handler.most_under_way() <= 2);
    node.stop().await;
}

/// A stop lets end what has begun, settles it, and leaves the rest to the broker.
#[tokio::test]
async fn a_stop_settles_what_runs_and_leaves_the_rest() {
    require_broker!();
    let world = World::start(Setup::default()).await;
    for number in 0..10 {
        world.publish(0, "a", &format!("hang-{number}")).await;
    }
    let node = world.node("one");
    world.handler.until_runs(1).await;
    let (stopped, ()) = tokio::join!(node.stop(), async { world.handler.go_on(1) });
    let () = stopped;
    assert_eq!(world.handler.of_key("a"), ["hang-0"]);
    let info = world.consumer_info(0).await;
    assert_eq!(info["ack_floor"]["stream_seq"], 1);
    // Another node goes on with them.
    world.handler.go_on(100);
    let node = world.node("two");
    world.until_settled(0).await;
    world.assert_order(&["a"], 10);
    node.stop().await;
}
