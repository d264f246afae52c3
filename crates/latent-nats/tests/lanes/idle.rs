//! What idleness costs, and how soon something is noticed (T-106, T-107).

use latent_testkit::proxy::Direction;
use latent_testkit::{require_broker, until_some};

use crate::world::{HOT, Setup, World};

fn said(proxy: &latent_testkit::proxy::FaultProxy, what: &str) -> usize {
    String::from_utf8_lossy(&proxy.transcript_of(0, Direction::ToBroker)).matches(what).count()
}

/// T-107: lanes that have nothing to do share one connection and one sweep, no pull of theirs reaches the broker, and what comes is seen.
#[tokio::test]
async fn idle_lanes_are_inspections_on_one_connection_and_no_pull() {
    require_broker!();
    let (world, proxy) = World::behind_proxy(Setup { partitions: 256, ..Setup::default() }).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let small = World::start(Setup::default()).await;
    let before = tasks();
    let node = small.node("small");
    until_some("it was inspected", || std::future::ready(node.monitor.lanes()[0].is_inspected.then_some(()))).await;
    let of_one = tasks() - before;
    node.stop().await;
    until_some("its tasks are gone", || std::future::ready((tasks() == before).then_some(()))).await;
    let node = world.node("one");
    let all_seen = || std::future::ready(node.monitor.lanes().iter().all(|lane| lane.is_inspected).then_some(()));
    until_some("every lane was inspected", all_seen).await;
    until_some("a second round", || std::future::ready((said(&proxy, "CONSUMER.INFO") >= 300).then_some(()))).await;
    assert_eq!((said(&proxy, "MSG.NEXT"), proxy.connections(), node.monitor.connections()), (0, 1, 1));
    assert_eq!(tasks() - before, of_one, "as many tasks as with one lane");
    world.publish(200, "a", "ok-0").await;
    world.handler.until_runs(1).await;
    world.until_settled(200).await;
    // One that had something to do keeps a pull open, and the other 255 none.
    until_some("a standing pull", || std::future::ready((said(&proxy, "MSG.NEXT") >= 2).then_some(()))).await;
    let inspections = said(&proxy, "CONSUMER.INFO.av_orders.latent_work_p200 ");
    for number in 1..=20 {
        world.publish(200, "a", &format!("ok-{number}")).await;
        world.handler.until_runs(1 + number).await;
    }
    world.until_settled(200).await;
    assert!(said(&proxy, "MSG.NEXT.av_orders.latent_work_p200 ") >= 20);
    assert_eq!(said(&proxy, "MSG.NEXT"), said(&proxy, "MSG.NEXT.av_orders.latent_work_p200 "));
    // T-106: the consumer is not looked at again for each of them.
    assert!(said(&proxy, "CONSUMER.INFO.av_orders.latent_work_p200 ") <= inspections + 1, "inspected once more at most");
    node.stop().await;
}

/// T-107: of more lanes than may keep a pull open, those whose last message is oldest go back to the sweep, and lose nothing.
#[tokio::test]
async fn the_hot_set_is_bounded() {
    require_broker!();
    let most = HOT;
    let partitions = u32::try_from(most).unwrap() + 8;
    let (world, proxy) = World::behind_proxy(Setup { partitions, ack_wait_millis: 3_000, ..Setup::default() }).await;
    let node = world.node("one");
    for round in 0..2 {
        for partition in 0..partitions {
            world.publish(partition, "a", &format!("ok-{round}")).await;
        }
        world.handler.until_runs((partitions * (round + 1)) as usize).await;
        for partition in 0..partitions {
            world.until_settled(partition).await;
        }
    }
    // What waits at the broker are the pulls of the hot ones.
    let waiting = || async {
        let mut waiting = 0;
        for partition in 0..partitions {
            waiting += world.consumer_info(partition).await["num_waiting"].as_u64().unwrap();
        }
        // One that has just ended is asked again a moment later.
        (most - 2..=most).contains(&waiting).then_some(())
    };
    until_some("as many pulls as there may be hot lanes", waiting).await;
    assert_eq!(proxy.connections(), 1);
    node.stop().await;
}
