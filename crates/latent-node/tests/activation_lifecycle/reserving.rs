//! Reservations: what they take, when they are refused, and that everything comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use latent_core::{ActivationOutcome, Budget, FunctionName, RouteName};
use latent_node::{Account, AdmissionLimit, InboundTarget, NodeLimits, Refusal, ReserveRefusal, ResolveError, limits::INPUT_BYTES};

use crate::node::{Node, limits, settle, target, tenant};

#[tokio::test]
async fn a_reservation_takes_a_slot_and_the_largest_input_and_starts_nothing() {
    let node = Node::new(limits());
    let reservation = node.reserve("a");
    settle().await;
    let account = Account { reserved: 1, queued: 0, running: 0, input_bytes: 1_000 };
    let snapshot = node.manager.snapshot();
    assert_eq!((snapshot.node, snapshot.tenants), (account, [(tenant("a"), account)].into()));
    assert_eq!((node.guests.stores(), node.guests.started()), (0, vec![]));
    drop(reservation);
    node.assert_empty();
}

#[tokio::test]
async fn an_unused_reservation_leaves_no_trace_in_the_journal() {
    let node = Node::new(limits());
    for _ in 0..10 {
        drop(node.reserve("a"));
    }
    assert!(node.manager.journal_newest(usize::MAX).is_empty());
}

#[tokio::test]
async fn every_stage_an_activation_can_end_in_returns_what_it_held() {
    let node = Node::new(NodeLimits { cells: 1, ..limits() });
    let held = |reserved, queued, running| {
        assert_eq!(node.counts(), (reserved, queued, running));
        assert_eq!(node.manager.snapshot().node.input_bytes, u64::from(reserved + queued + running) * 1_000);
    };
    let unused = node.reserve("a");
    held(1, 0, 0);
    let (running, first) = node.activate("a", "first");
    held(1, 0, 1);
    let (queued, second) = node.activate("a", "second");
    let (_, third) = node.activate("a", "third");
    held(1, 2, 1);
    drop(unused);
    held(0, 2, 1);
    assert!(node.manager.cancel(queued));
    held(0, 1, 1);
    settle().await;
    assert!(node.manager.cancel(running));
    settle().await;
    held(0, 0, 1);
    node.succeed("third", third).await;
    node.assert_empty();
    for ticket in [first, second] {
        assert_eq!(crate::node::ended(ticket).await.report.outcome, ActivationOutcome::Cancelled);
    }
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_takes_again_what_came_back() {
    let node = Node::new(NodeLimits { tenant_queued: 2, ..limits() });
    let held = [node.reserve("a"), node.reserve("a")];
    let refused = node.manager.reserve_inbound(&target("a")).unwrap_err();
    let refusal = Refusal { limit: AdmissionLimit::TenantQueued, tenant: tenant("a"), in_use: 2, asked: 1, max: 2 };
    assert_eq!(refused, ReserveRefusal::Admission(refusal));
    assert!(refused.waits_for_capacity());
    assert_eq!(node.counts(), (2, 0, 0));
    let other = node.reserve("b");
    drop(held);
    drop((node.reserve("a"), other));
    node.assert_empty();
}

#[tokio::test]
async fn what_can_never_be_reserved_says_so_and_charges_nothing() {
    let node = Node::new(limits());
    let refused = |change: &dyn Fn(&mut InboundTarget)| {
        let mut target = target("a");
        change(&mut target);
        let refused = node.manager.reserve_inbound(&target).unwrap_err();
        assert!(!refused.waits_for_capacity(), "{refused}");
        node.assert_empty();
        refused
    };
    let other_function = |target: &mut InboundTarget| target.function = FunctionName::parse("other").unwrap();
    assert!(matches!(refused(&other_function), ReserveRefusal::Route(ResolveError::FunctionNotOffered { .. })));
    let other_route = |target: &mut InboundTarget| target.route = Some(RouteName::parse("canary").unwrap());
    assert!(matches!(refused(&other_route), ReserveRefusal::Route(ResolveError::UnknownRoute { .. })));
    let other_tenant = |target: &mut InboundTarget| target.tenant = tenant("mallory");
    assert!(matches!(refused(&other_tenant), ReserveRefusal::Route(ResolveError::OtherTenant { .. })));
    let no_fuel = |target: &mut InboundTarget| target.budget = Budget { cpu_fuel: 0, ..Budget::default() };
    assert!(matches!(refused(&no_fuel), ReserveRefusal::Target(_)));
    for bad in [INPUT_BYTES.min - 1, INPUT_BYTES.max + 1, u64::MAX] {
        assert!(matches!(refused(&|target| target.input_bytes_max = bad), ReserveRefusal::Target(_)), "{bad}");
    }
    for good in [INPUT_BYTES.min, INPUT_BYTES.max] {
        let reservation = node.manager.reserve_inbound(&InboundTarget { input_bytes_max: good, ..target("a") });
        assert_eq!(node.manager.snapshot().node.input_bytes, good);
        drop(reservation);
    }
}

#[tokio::test]
async fn a_listener_hears_of_returned_capacity_and_may_reserve_at_once() {
    let node = Node::new(NodeLimits { tenant_queued: 1, ..limits() });
    let (heard, reserved) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (hearing, reserving, manager) = (Arc::clone(&heard), Arc::clone(&reserved), Arc::downgrade(&node.manager));
    let listener = Arc::new(move || {
        // Only the first call reserves: the drop of that reservation calls again.
        if hearing.fetch_add(1, Ordering::SeqCst) == 0 {
            let reservation = manager.upgrade().unwrap().reserve_inbound(&target("a"));
            reserving.fetch_add(usize::from(reservation.is_ok()), Ordering::SeqCst);
        }
    });
    node.manager.on_capacity(listener).unwrap();
    let held = node.reserve("a");
    assert!(node.manager.reserve_inbound(&target("a")).is_err());
    assert_eq!(heard.load(Ordering::SeqCst), 0, "a refusal returns nothing");
    drop(held);
    assert_eq!((heard.load(Ordering::SeqCst), reserved.load(Ordering::SeqCst)), (2, 1));
    // A start frees a place in the queue, an end frees the cell.
    let (_, ticket) = node.activate("a", "one");
    assert_eq!(heard.load(Ordering::SeqCst), 3);
    settle().await;
    node.succeed("one", ticket).await;
    settle().await;
    assert_eq!(heard.load(Ordering::SeqCst), 4);
    node.assert_empty();
}
