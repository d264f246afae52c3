//! Stops: of one activation, of the node, and of the runtime below it (X-043, T-060).

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use latent_core::ActivationOutcome;
use latent_node::{NodeLimits, ReserveRefusal};

use crate::node::{DEADLINE_MILLIS, Node, ended, limits, settle, target};

#[tokio::test]
async fn an_activation_can_be_cancelled_once_wherever_it_is() {
    let node = Node::new(NodeLimits { cells: 1, ..limits() });
    let (running, first) = node.activate("a", "running");
    let (queued, second) = node.activate("a", "queued");
    settle().await;
    assert_eq!((node.guests.stores(), node.manager.running()), (1, vec![running]));
    for (activation, ticket) in [(queued, second), (running, first)] {
        assert!(node.manager.cancel(activation));
        assert!(!node.manager.cancel(activation));
        let end = ended(ticket).await;
        assert_eq!((end.activation, end.report.outcome), (activation, ActivationOutcome::Cancelled));
        assert_eq!(node.manager.journal_entry(activation).unwrap().ended.kind, "cancelled");
        assert!(!node.manager.cancel(activation));
    }
    assert_eq!(node.guests.started(), ["running"]);
    node.assert_empty();
}

#[tokio::test]
async fn an_activation_cancelled_before_its_task_ran_never_starts() {
    let node = Node::new(limits());
    let (activation, ticket) = node.activate("a", "one");
    assert_eq!(node.counts(), (0, 0, 1));
    assert!(node.manager.cancel(activation));
    assert_eq!(ended(ticket).await.report.outcome, ActivationOutcome::Cancelled);
    assert!(node.guests.started().is_empty());
    node.assert_empty();
}

#[tokio::test]
async fn dropping_the_ticket_stops_nothing() {
    let node = Node::new(limits());
    let (activation, ticket) = node.activate("a", "one");
    drop(ticket);
    settle().await;
    assert_eq!(node.counts(), (0, 0, 1));
    node.guests.end("one", ActivationOutcome::Success);
    settle().await;
    assert_eq!(node.manager.journal_entry(activation).unwrap().ended.kind, "success");
    node.assert_empty();
}

#[tokio::test]
async fn a_drain_takes_nothing_new_and_waits_for_everything_that_was_admitted() {
    let node = Node::new(NodeLimits { cells: 1, ..limits() });
    let (reserved, unused) = (node.reserve("a"), node.reserve("b"));
    let (_, running) = node.activate("a", "running");
    let (_, queued) = node.activate("a", "queued");
    settle().await;
    let mut drain = pin!(node.manager.drain());
    let mut cx = Context::from_waker(Waker::noop());
    assert_eq!(drain.as_mut().poll(&mut cx), Poll::Pending);
    let refused = node.manager.reserve_inbound(&target("a")).unwrap_err();
    assert_eq!(refused, ReserveRefusal::Stopping);
    assert!(!refused.waits_for_capacity());
    // What was reserved may still be used, and queued work still gets its cell.
    let late = node.manager.activate(reserved, node.order("late", DEADLINE_MILLIS));
    for (label, ticket) in [("running", running), ("queued", queued), ("late", late)] {
        node.succeed(label, ticket).await;
        settle().await;
        assert_eq!(drain.as_mut().poll(&mut cx), Poll::Pending, "{label}");
    }
    drop(unused);
    drain.await;
    node.assert_empty();
}

#[tokio::test]
async fn a_shutdown_cancels_the_queued_and_the_running_and_waits_until_their_stores_are_gone() {
    let node = Node::new(limits());
    let held = node.reserve("c");
    let tickets: Vec<_> = ["one", "two", "three", "four"].map(|label| node.activate("a", label).1).into();
    settle().await;
    assert_eq!((node.counts(), node.guests.stores()), ((1, 2, 2), 2));
    node.manager.shutdown().await;
    assert_eq!((node.counts(), node.guests.stores()), ((1, 0, 0), 0));
    for ticket in tickets {
        assert_eq!(ended(ticket).await.report.outcome, ActivationOutcome::Cancelled);
    }
    assert_eq!(node.guests.started(), ["one", "two"]);
    assert_eq!(node.manager.reserve_inbound(&target("a")).unwrap_err(), ReserveRefusal::Stopping);
    // What somebody still holds can only end as cancelled.
    let late = node.manager.activate(held, node.order("late", DEADLINE_MILLIS));
    assert_eq!(ended(late).await.report.outcome, ActivationOutcome::Cancelled);
    node.assert_empty();
    // A second stop, of either kind, has nothing to do.
    node.manager.shutdown().await;
    node.manager.drain().await;
}

#[tokio::test]
async fn a_shutdown_stops_what_got_its_cell_in_the_same_moment() {
    let node = Node::new(limits());
    // Its task exists and has never run.
    let (_, ticket) = node.activate("a", "one");
    node.manager.shutdown().await;
    assert_eq!(ended(ticket).await.report.outcome, ActivationOutcome::Cancelled);
    assert!(node.guests.started().is_empty());
    node.assert_empty();
}

#[test]
fn a_runtime_that_goes_away_ends_everything_as_cancelled() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (node, tickets, held) = runtime.block_on(async {
        let node = Node::new(limits());
        let held = node.reserve("b");
        let tickets: Vec<_> = ["one", "two", "three", "four", "five"].map(|label| node.activate("a", label).1).into();
        settle().await;
        (node, tickets, held)
    });
    drop(runtime);
    for ticket in tickets {
        assert_eq!(ticket.wait().report.outcome, ActivationOutcome::Cancelled);
    }
    assert_eq!(node.guests.started(), ["one", "two"]);
    let late = node.manager.activate(held, node.order("late", DEADLINE_MILLIS));
    assert_eq!(late.wait().report.outcome, ActivationOutcome::Cancelled);
    assert_eq!(node.manager.reserve_inbound(&target("a")).unwrap_err(), ReserveRefusal::Stopping);
    node.assert_empty();
}

#[test]
fn a_runtime_that_was_gone_before_the_first_activation_ends_it_too() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let node = runtime.block_on(async { Node::new(limits()) });
    drop(runtime);
    let (_, ticket) = node.activate("a", "one");
    assert_eq!(ticket.wait().report.outcome, ActivationOutcome::Cancelled);
    node.assert_empty();
}

#[tokio::test]
async fn a_manager_that_nobody_holds_is_gone_with_its_task() {
    let node = Node::new(limits());
    let manager = std::sync::Arc::downgrade(&node.manager);
    let (_, ticket) = node.activate("a", "one");
    settle().await;
    node.succeed("one", ticket).await;
    settle().await;
    drop(node);
    assert!(manager.upgrade().is_none());
    settle().await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}
