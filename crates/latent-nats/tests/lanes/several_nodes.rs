//! Two and three nodes on the same partitions.

use latent_testkit::require_broker;

use crate::world::{Setup, World};

/// T-104: a node that dies with events under way is followed by another, and no event of a key begins before the earlier ones are settled.
#[tokio::test]
async fn another_node_takes_over_and_keeps_the_order_of_each_key() {
    require_broker!();
    let world = World::start(Setup { ack_wait_millis: 3_000, ..Setup::default() }).await;
    for number in 0..4 {
        world.publish(0, ["a", "b"][number % 2], &format!("hang-{number}")).await;
    }
    let first = world.node("first");
    world.handler.until_runs(2).await;
    let second = world.node("second");
    first.kill().await;
    world.handler.go_on(1_000);
    world.until_settled(0).await;
    for (key, numbers) in [("a", [0, 2]), ("b", [1, 3])] {
        let runs = world.handler.of_key(key);
        let last: Vec<_> = numbers.map(|number| format!("hang-{number}")).to_vec();
        assert!(runs.ends_with(&last) && runs.len() <= 3, "{key}: {runs:?}");
    }
    second.stop().await;
}
