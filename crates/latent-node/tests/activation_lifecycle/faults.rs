//! Faults of the host: a backend that panics or does not end, and a node that is set up wrongly.

use std::sync::Arc;

use latent_core::ActivationOutcome;
use latent_node::{NodeError, NodeLimits, limits::CAPACITY_LISTENERS};
use latent_testkit::ManualClock;

use crate::node::{Node, START, catalog, ended, limits, manager, settle};
use crate::scripted::{Script, ScriptedBackend};

#[tokio::test]
async fn a_backend_that_panics_is_a_host_failure_that_releases_everything() {
    for (script, started) in [(Script::PanicInCall, false), (Script::PanicInGuest, true)] {
        let node = Node::new(NodeLimits { cells: 1, ..limits() });
        node.guests.script(script);
        let (_, failing) = node.activate("a", "failing");
        let (_, next) = node.activate("a", "next");
        let end = ended(failing).await;
        assert!(matches!(end.report.outcome, ActivationOutcome::HostFailure { .. }), "{script:?}");
        assert_eq!(end.started_at.is_some(), started, "{script:?}");
        settle().await;
        node.succeed("next", next).await;
        node.assert_empty();
    }
}

#[tokio::test]
async fn a_guest_that_panics_while_it_is_dropped_takes_nothing_with_it() {
    let node = Node::new(NodeLimits { cells: 1, ..limits() });
    node.guests.script(Script::PanicInDrop);
    let (activation, failing) = node.activate("a", "failing");
    let (_, next) = node.activate("a", "next");
    settle().await;
    assert!(node.manager.cancel(activation));
    assert!(matches!(ended(failing).await.report.outcome, ActivationOutcome::HostFailure { .. }));
    settle().await;
    node.succeed("next", next).await;
    drop(node.reserve("a"));
    node.assert_empty();
}

#[tokio::test]
async fn a_backend_that_does_not_end_is_stopped_soon_after_the_deadline() {
    let node = Node::new(limits());
    let (_, ticket) = node.activate_until("a", "endless", 1);
    let end = ended(ticket).await;
    assert_eq!(end.report.outcome, ActivationOutcome::Timeout);
    assert!(end.started_at.is_some());
    node.assert_empty();
}

#[tokio::test]
async fn a_node_has_no_more_cells_than_its_backend() {
    let (catalog, _) = catalog(b"one");
    for (cells_max, fits) in [(Some(1), false), (Some(2), true), (Some(3), true), (None, true)] {
        let backend = Arc::new(ScriptedBackend::with_cells_max(cells_max));
        let made = manager(backend, &catalog, Arc::new(ManualClock::starting_at(START)), limits());
        match made.err() {
            None => assert!(fits, "{cells_max:?}"),
            Some(error) => {
                assert!(!fits, "{cells_max:?}");
                assert_eq!(error, NodeError::TooFewBackendCells { cells: 2, backend_cells: 1 });
            }
        }
    }
}

#[tokio::test]
async fn limits_are_checked_when_the_manager_is_made() {
    let (catalog, _) = catalog(b"one");
    let bad = NodeLimits { tenant_queued: 0, ..limits() };
    let made = manager(Arc::new(ScriptedBackend::default()), &catalog, Arc::new(ManualClock::starting_at(START)), bad);
    assert!(matches!(made.err(), Some(NodeError::Limit(refused)) if refused.name == "tenant_queued"));
}

#[tokio::test]
async fn listeners_are_bounded() {
    let node = Node::new(limits());
    for _ in 0..CAPACITY_LISTENERS.max {
        node.manager.on_capacity(Arc::new(|| ())).unwrap();
    }
    let refused = node.manager.on_capacity(Arc::new(|| ())).unwrap_err();
    assert!(matches!(refused, NodeError::Limit(refused) if refused.name == "capacity_listeners"));
}
