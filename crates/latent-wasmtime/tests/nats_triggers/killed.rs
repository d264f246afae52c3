//! Nodes that are killed or stand still while their guests work (BUG-43, BUG-38, BUG-37, T-020, T-051, T-052).

use std::collections::BTreeSet;

use latent_nats::triggers::TriggerState;
use latent_testkit::broker::{Admin, StreamSpec};
use latent_testkit::{require_broker, until_some};

use crate::node::Node;
use crate::process::{NodeProcess, write_orders};
use crate::shutdown::until;
use crate::world::{Ground, IN, Setup, binding, results, subject};

const KILLS: u32 = 20;
const BINDINGS: u32 = 5;
const MESSAGES: u32 = 20;

/// Payloads that are still in the input stream, by the name of their work.
async fn waiting(admin: &Admin) -> BTreeSet<String> {
    let name = |payload: &[u8]| {
        let arguments: (String, String, u32) = serde_json::from_slice(payload).unwrap();
        arguments.1
    };
    admin.messages(IN).await.iter().map(|message| name(&message.payload)).collect()
}

/// Which work has been done. To be asked after [`waiting`], so that what left the stream in between has its effect.
async fn done(admin: &Admin) -> BTreeSet<String> {
    results(admin).await.iter().filter_map(|result| Some(result.strip_suffix(":done")?.to_owned())).collect()
}

/// BUG-43, T-020: whatever the moment, a message leaves the stream only after its guest has ended well, and a node that knows nothing of
/// an earlier one goes on where the broker is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_killed_while_guests_work_lose_no_message() {
    require_broker!();
    let bindings = (0..BINDINGS).map(|number| binding("shop", &format!("b-{number}"), "in-steps"));
    let setup = Setup { input: StreamSpec::new(IN, ["in.>"]).work_queue(), ..Setup::of(bindings) };
    let Ground { broker: _broker, admin, orders, .. } = Ground::prepare(setup.each(|binding| binding.max_deliver = Some(16))).await;
    let folder = tempfile::tempdir().unwrap();
    write_orders(folder.path(), &orders);
    let all: BTreeSet<_> = (0..MESSAGES).map(|number| format!("m-{number}")).collect();
    for (number, name) in (0..).zip(&all) {
        let payload = format!("[\"out\",\"{name}\",{}]", 20 + number);
        admin.publish(&subject(&format!("b-{}", number % BINDINGS)), payload.as_bytes()).await;
    }
    until_some("the messages at the broker", || async { (admin.count(IN).await == u64::from(MESSAGES)).then_some(()) }).await;
    let mut interrupted = 0;
    for kill in 0..KILLS {
        let mut node = NodeProcess::start(folder.path());
        node.until_delivered(1);
        // Somewhere in the function, before it or behind it: so many round trips to the broker.
        for _ in 0..kill * 29 % 120 {
            admin.count(IN).await;
        }
        node.kill();
        let (waiting, done) = (waiting(&admin).await, done(&admin).await);
        assert!(all.difference(&waiting).all(|left| done.contains(left)), "after kill {kill}: {waiting:?} wait, {done:?} are done");
        if waiting.is_empty() {
            break;
        }
        interrupted += usize::from(results(&admin).await.iter().any(|result| {
            let begun = result.strip_suffix(":begun");
            begun.is_some_and(|name| waiting.contains(name) && !done.contains(name))
        }));
    }
    assert!(interrupted > 0, "no kill hit a guest that had begun and was not done");
    let node = NodeProcess::start(folder.path());
    until_some("every message handled", || async { (admin.count(IN).await == 0).then_some(()) }).await;
    assert_eq!(done(&admin).await, all);
    let counted = node.end();
    assert!(counted.contains("exhausted: 0,"), "{counted}");
}

/// T-052, BUG-37 (b) and (e).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_last_delivery_ended_with_its_node_is_stranded_at_the_broker_and_claimed_by_nobody() {
    require_broker!();
    let setup = Setup::calling("in-steps").patient().each(|binding| binding.max_deliver = Some(1));
    let Ground { broker: _broker, admin, orders, .. } = Ground::prepare(setup).await;
    let folder = tempfile::tempdir().unwrap();
    write_orders(folder.path(), &orders);
    admin.publish(&subject("one"), br#"["out","m-1",1000]"#).await;
    let mut node = NodeProcess::start(folder.path());
    node.until_delivered(1);
    let begun = || async { results(&admin).await.first().cloned() };
    assert_eq!(until_some("the guest works", begun).await, "m-1:begun");
    node.kill();

    let node = Node::start(orders);
    let (manager, monitor) = (node.manager.clone(), node.monitor.clone());
    let running = Node::run(node.triggers, &manager);
    until("the broker has given up", || monitor.bindings()[0].state == TriggerState::Stranded).await;
    let info = admin.consumer(IN, "one").await;
    assert!(info["ack_floor"]["stream_seq"].as_u64() < info["delivered"]["stream_seq"].as_u64(), "{info}");
    assert_eq!((&info["num_ack_pending"], admin.count(IN).await), (&0.into(), 1), "the message is still there");
    let snapshot = monitor.snapshot();
    assert_eq!((snapshot.delivered, snapshot.exhausted, snapshot.terminated, snapshot.failed), (0, 0, 0, 0));
    admin.publish(&subject("one"), br#"["out","m-2",0]"#).await;
    until("the next message", || monitor.snapshot().acknowledged == 1).await;
    running.stop().await;
    assert_eq!(results(&admin).await, ["m-1:begun", "m-2:begun", "m-2:done"]);
}

/// BUG-38: node A stands still for longer than the broker waits, and node B has the message meanwhile.
async fn overtaken(goes_on: fn(&latent_nats::triggers::TriggerSnapshot) -> bool) {
    let Ground { broker: _broker, admin, orders, .. } = Ground::prepare(Setup::calling("in-steps").patient()).await;
    let folder = tempfile::tempdir().unwrap();
    write_orders(folder.path(), &orders);
    admin.publish(&subject("one"), br#"["out","m-1",600]"#).await;
    let mut frozen = NodeProcess::start(folder.path());
    frozen.until_delivered(1);
    let begun = || async { results(&admin).await.first().cloned() };
    assert_eq!(until_some("the guest works", begun).await, "m-1:begun");
    frozen.freeze();

    let node = Node::start(orders);
    let (manager, monitor) = (node.manager.clone(), node.monitor.clone());
    let running = Node::run(node.triggers, &manager);
    until("the other node has the message", || goes_on(&monitor.snapshot())).await;
    frozen.thaw();
    until("the other node has handled it", || monitor.snapshot().acknowledged == 1).await;
    assert_eq!(monitor.last_step().unwrap().handed.unwrap().delivery, 2);
    let counted = frozen.end();
    for nothing in ["acknowledged: 0,", "delayed: 0,", "terminated: 0,", "exhausted: 0,", "uncertain: 0,", "unsettled: 1,"] {
        assert!(counted.contains(nothing), "{nothing} {counted}");
    }
    running.stop().await;
    let info = admin.consumer(IN, "one").await;
    assert_eq!((&info["num_pending"], &info["num_ack_pending"]), (&0.into(), &0.into()), "the other node's settlement stands");
    assert_eq!(results(&admin).await, ["m-1:begun", "m-1:done"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stood_still_until_another_finished_its_message_settles_nothing() {
    require_broker!();
    overtaken(|snapshot| snapshot.acknowledged == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stood_still_until_another_works_on_its_message_settles_nothing() {
    require_broker!();
    overtaken(|snapshot| snapshot.delivered == 1).await;
}
