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

/// T-104, T-111: three nodes, several partitions, nodes that die and begin again while events come: everything is settled, in order by key, and
/// no two runs of a key overlap.
#[tokio::test]
async fn three_nodes_with_kills_keep_order_and_settle_everything() {
    const COUNT: usize = 120;
    require_broker!();
    let world = World::start(Setup { partitions: 2, ack_wait_millis: 3_000, ..Setup::default() }).await;
    let mut nodes = Vec::from(["first", "second", "third"].map(|name| world.node(name)));
    for number in 0..COUNT {
        for partition in 0..2 {
            world.publish(partition, &format!("k{partition}{}", number % 3), &format!("ok-{number}")).await;
        }
        if number % 40 == 20 {
            nodes.remove(0).kill().await;
            nodes.push(world.node("another"));
        }
    }
    for partition in 0..2 {
        world.until_settled(partition).await;
    }
    world.assert_order(&["k00", "k01", "k02", "k10", "k11", "k12"], COUNT / 3);
    for node in nodes {
        node.stop().await;
    }
}

/// T-104: the pin moves while its holder runs something: what runs ends and is settled, the rest goes to the new holder.
#[tokio::test]
async fn a_pin_that_is_taken_away_ends_nothing_that_runs() {
    require_broker!();
    let world = World::start(Setup { ack_wait_millis: 3_000, ..Setup::default() }).await;
    for number in 0..6 {
        world.publish(0, "a", &format!("hang-{number}")).await;
    }
    let first = world.node("first");
    world.handler.until_runs(1).await;
    let second = world.node("second");
    world.admin.unpin(crate::world::STREAM, "latent_work_p0", "latent").await;
    world.handler.go_on(1_000);
    world.until_settled(0).await;
    world.assert_order(&["a"], 6);
    assert_eq!(world.handler.of_key("a").len(), 6, "nothing ran twice");
    first.stop().await;
    second.stop().await;
}

/// A lane whose places are all taken has no room to pull and keeps its pin all the same, however short that lasts: nothing of what runs moves to
/// another node.
#[tokio::test]
async fn a_holder_that_has_no_room_to_pull_keeps_its_pin() {
    require_broker!();
    let limits = latent_node::NodeLimits { cells: 2, admission_slots: 4, ..latent_node::NodeLimits::for_cores(1) };
    let world = World::start(Setup { limits, priority_timeout_millis: 500, ..Setup::default() }).await;
    for key in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        world.publish(0, key, "hang").await;
    }
    let first = world.node("first");
    world.handler.until_runs(2).await;
    let second = world.node("second");
    let pin = |info: &serde_json::Value| info["priority_groups"][0]["pinned_client_id"].as_str().unwrap_or_default().to_owned();
    let (begin, mut pins) = (world.consumer_info(0).await, Vec::new());
    // Four times as long as the pin lasts, on the broker's clock.
    while broker_millis(&world.consumer_info(0).await) < broker_millis(&begin) + 2_000 {
        pins.push(pin(&world.consumer_info(0).await));
    }
    assert!(!pin(&begin).is_empty() && pins.iter().all(|seen| *seen == pin(&begin)), "{begin} {pins:?}");
    assert!(world.consumer_info(0).await["num_pending"].as_u64() >= Some(2), "there is something to be taken away");
    world.handler.go_on(8);
    world.until_settled(0).await;
    let runs: Vec<_> = world.handler.runs().into_iter().map(|run| (run.node, run.delivery)).collect();
    assert_eq!(runs, [("first", 1); 8]);
    first.stop().await;
    second.stop().await;
}

/// Milliseconds of the day of an answer, as the broker has it. A test that runs over midnight is another test.
fn broker_millis(info: &serde_json::Value) -> u64 {
    let text = info["ts"].as_str().unwrap_or_default();
    let (_, time) = text.split_once('T').unwrap_or_default();
    let mut parts = time.trim_end_matches('Z').split(':').map(|part| part.parse::<f64>().unwrap_or_default());
    let mut next = || parts.next().unwrap_or_default();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time of day")]
    let millis = (((next() * 60.0 + next()) * 60.0 + next()) * 1_000.0) as u64;
    millis
}
