//! Starts: whose turn it is, what a guest is given, and the check that no cached component can skip (X-036, T-012, T-013).

use std::sync::Arc;

use latent_core::{ActivationOutcome, ComponentDigest, MonoTime, RouteGeneration};
use latent_node::{Delivery, InboundTarget, NodeLimits, ReserveRefusal, RevocationScope, event_input_bytes};

use crate::node::{DEADLINE_MILLIS, Node, START, ended, event, limits, origin, place, publication, route, settle, target, tenant};
use crate::scripted::Script;

fn is_permission_refused(outcome: &ActivationOutcome) -> bool {
    matches!(outcome, ActivationOutcome::PermissionRefused { reason } if reason.contains("revoked"))
}

#[tokio::test]
async fn a_guest_gets_its_event_a_fresh_session_and_the_nearer_of_budget_and_deadline() {
    for (deadline_millis, ends_at_millis) in [(DEADLINE_MILLIS, 2_500), (2_000, 2_000), (2_001, 2_001), (3_000, 2_500)] {
        let node = Node::new(limits());
        let reservation = node.reserve("a");
        let activation = reservation.activation();
        let order = node.order("one", deadline_millis);
        node.clock.advance_millis(500);
        let ticket = node.manager.activate(reservation, order);
        settle().await;
        let guest = node.guests.last_guest();
        let spec = guest.session.spec();
        assert_eq!((spec.activation, &spec.tenant, spec.publication), (activation, &tenant("a"), node.publication));
        assert_eq!(spec.origin, Some(origin()));
        assert_eq!(spec.deadline.at(), MonoTime::from_millis(ends_at_millis), "{deadline_millis}");
        node.succeed("one", ticket).await;
        node.assert_empty();
    }
}

#[tokio::test]
async fn each_activation_of_the_same_event_has_its_own_id_and_trace() {
    let node = Node::new(limits());
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let (_, ticket) = node.activate("a", "same");
        settle().await;
        node.guests.end("same", ActivationOutcome::Success);
        let end = ended(ticket).await;
        assert!(seen.insert(end.activation.to_string()) && seen.insert(end.trace.to_string()));
    }
}

#[tokio::test]
async fn an_ended_activation_is_in_the_journal_with_what_it_was_and_used() {
    let node = Node::new(NodeLimits { cells: 1, ..limits() });
    let (_, first) = node.activate("a", "first");
    let (activation, ticket) = node.activate("b", "second");
    settle().await;
    node.clock.advance_millis(30);
    node.succeed("first", first).await;
    settle().await;
    node.clock.advance_millis(4);
    node.guests.end("second", ActivationOutcome::Success);
    let end = ended(ticket).await;
    assert_eq!(end.started_at.map(|at| at.0), Some(START.0 + 30));
    let entry = node.manager.journal_entry(activation).unwrap();
    assert_eq!((&entry.tenant, entry.principal.to_string()), (&tenant("b"), "trigger:triage-github".to_owned()));
    assert_eq!((entry.publication, entry.generation, entry.digest), (node.publication, RouteGeneration(1), ComponentDigest::of(b"one")));
    assert_eq!((entry.delivery.as_ref(), entry.trace), (Some(&Delivery { place: place(), origin: origin(), count: 2 }), end.trace));
    assert_eq!((entry.queued_at, entry.started_at), (START, end.started_at));
    assert_eq!((entry.wait_micros, entry.run_micros), (30_000, 4_000));
    assert_eq!((entry.ended.kind, entry.fuel_used, entry.memory_bytes_peak), ("success", 11, 22));
    assert_eq!((entry.log[0].text.as_str(), entry.log_bytes_cut), ("hello", 33));
    let newest = node.manager.journal_newest(10);
    assert_eq!((newest.len(), newest[0].activation), (2, activation));
}

#[tokio::test]
async fn while_one_tenant_floods_the_others_event_starts_in_the_first_cell_that_becomes_free() {
    let node = Node::new(limits());
    let labels: Vec<_> = (0..10).map(|number| format!("flood-{number}")).collect();
    let mut flood: Vec<_> = labels.iter().map(|label| node.activate("a", label).1).collect();
    let (_, only) = node.activate("b", "only");
    settle().await;
    assert_eq!(node.guests.started(), ["flood-0", "flood-1"]);
    node.succeed("flood-1", flood.remove(1)).await;
    settle().await;
    assert_eq!(node.guests.started(), ["flood-0", "flood-1", "only"]);
    node.succeed("only", only).await;
    flood.clear();
    node.manager.shutdown().await;
    node.assert_empty();
}

#[tokio::test]
async fn a_revocation_before_the_reservation_refuses_it() {
    let node = Node::new(limits());
    node.catalog.revoke(node.publication, RevocationScope::Tenant(tenant("a"))).unwrap();
    let refused = node.manager.reserve_inbound(&target("a")).unwrap_err();
    assert!(matches!(refused, ReserveRefusal::Route(_)) && !refused.waits_for_capacity());
    drop(node.reserve("b"));
    node.assert_empty();
}

#[tokio::test]
async fn a_revocation_between_admission_and_start_runs_no_guest_wherever_it_falls() {
    type Revoke = fn(&Node);
    let revocations: [Revoke; 3] = [
        |node| node.catalog.revoke(node.publication, RevocationScope::Whole).unwrap(),
        |node| node.catalog.revoke(node.publication, RevocationScope::Tenant(tenant("a"))).unwrap(),
        |node| assert_eq!(node.catalog.revoke_route(&route("a")), Ok(RouteGeneration(2))),
    ];
    for revoke in revocations {
        // While it is only reserved.
        let node = Node::new(NodeLimits { cells: 1, ..limits() });
        let reservation = node.reserve("a");
        revoke(&node);
        let ticket = node.manager.activate(reservation, node.order("never", DEADLINE_MILLIS));
        check_refused(&node, ended(ticket).await);

        // While it is queued.
        let node = Node::new(NodeLimits { cells: 1, ..limits() });
        let (_, running) = node.activate("b", "running");
        let (_, queued) = node.activate("a", "never");
        settle().await;
        revoke(&node);
        node.succeed("running", running).await;
        check_refused(&node, ended(queued).await);

        // While the backend loads the component.
        let node = Node::new(NodeLimits { cells: 1, ..limits() });
        node.guests.script(Script::LoadFirst);
        let (_, loading) = node.activate("a", "never");
        settle().await;
        assert_eq!(node.counts(), (0, 0, 1));
        revoke(&node);
        node.guests.finish_loading();
        check_refused(&node, ended(loading).await);
    }
}

fn check_refused(node: &Node, end: latent_node::ActivationEnd) {
    assert!(is_permission_refused(&end.report.outcome), "{:?}", end.report.outcome);
    assert_eq!(end.started_at, None);
    assert!(!node.guests.started().contains(&"never".to_owned()));
    let entry = node.manager.journal_entry(end.activation).unwrap();
    assert_eq!((entry.ended.kind, entry.started_at), ("permission-refused", None));
    node.assert_empty();
}

#[tokio::test]
async fn a_revocation_during_a_run_lets_it_end() {
    let node = Node::new(limits());
    let (_, ticket) = node.activate("a", "one");
    settle().await;
    node.catalog.revoke(node.publication, RevocationScope::Whole).unwrap();
    settle().await;
    assert_eq!(node.counts(), (0, 0, 1));
    node.succeed("one", ticket).await;
    node.assert_empty();
}

#[tokio::test]
async fn a_replaced_route_serves_new_reservations_while_older_ones_keep_their_target() {
    let node = Node::new(limits());
    let older = node.reserve("a");
    let new = node.catalog.add(publication(b"two")).unwrap();
    assert_eq!(node.catalog.point_route(route("a"), new), Ok(RouteGeneration(2)));
    let newer = node.reserve("a");
    let expected = [(older, b"one", node.publication, 1), (newer, b"two", new, 2)];
    for (reservation, component, publication, generation) in expected {
        let activation = reservation.activation();
        let ticket = node.manager.activate(reservation, node.order("one", DEADLINE_MILLIS));
        settle().await;
        let guest = node.guests.last_guest();
        assert_eq!((guest.digest, guest.session.spec().publication), (ComponentDigest::of(component), publication));
        node.succeed("one", ticket).await;
        let entry = node.manager.journal_entry(activation).unwrap();
        assert_eq!((entry.generation, entry.publication), (RouteGeneration(generation), publication));
    }
    node.assert_empty();
}

#[tokio::test]
async fn an_event_runs_if_it_fits_what_was_reserved_for_it() {
    let bytes = event_input_bytes(&event("one"));
    assert_eq!(bytes, 3 + "text/plain".len() as u64);
    for (reserved, runs) in [(bytes - 1, false), (bytes, true), (bytes + 1, true)] {
        let node = Node::new(limits());
        let reservation = node.manager.reserve_inbound(&InboundTarget { input_bytes_max: reserved, ..target("a") }).unwrap();
        let ticket = node.manager.activate(reservation, node.order("one", DEADLINE_MILLIS));
        settle().await;
        assert_eq!(!node.guests.started().is_empty(), runs, "{reserved}");
        if runs {
            node.succeed("one", ticket).await;
        } else {
            let end = ended(ticket).await;
            assert!(matches!(end.report.outcome, ActivationOutcome::InvalidArguments { .. }));
            assert_eq!(node.manager.journal_entry(end.activation).unwrap().ended.kind, "invalid-arguments");
        }
        node.assert_empty();
    }
}

#[tokio::test]
async fn what_waits_beyond_its_deadline_times_out_in_the_queue_and_gives_its_place_back() {
    let node = Node::new(NodeLimits { cells: 1, ..limits() });
    let (_, running) = node.activate("a", "running");
    let (_, later) = node.activate("a", "later");
    // The queue is watched for the later deadline when the nearer one comes.
    settle().await;
    let (_, nearer) = node.activate_until("a", "nearer", 5);
    settle().await;
    node.clock.advance_millis(5);
    let end = ended(nearer).await;
    assert_eq!((end.report.outcome, end.started_at), (ActivationOutcome::Timeout, None));
    assert_eq!(node.counts(), (0, 1, 1));
    for (label, ticket) in [("running", running), ("later", later)] {
        settle().await;
        node.succeed(label, ticket).await;
    }
    assert_eq!(node.guests.started(), ["running", "later"]);
    node.assert_empty();
}

#[tokio::test]
async fn a_deadline_that_passed_while_the_backend_prepared_runs_no_guest() {
    for (passed_millis, runs) in [(999, true), (1_000, false)] {
        let node = Node::new(limits());
        node.guests.script(Script::LoadFirst);
        let (_, ticket) = node.activate_until("a", "one", 1_000);
        settle().await;
        node.clock.advance_millis(passed_millis);
        node.guests.finish_loading();
        settle().await;
        assert_eq!(!node.guests.started().is_empty(), runs, "{passed_millis}");
        if runs {
            node.succeed("one", ticket).await;
        } else {
            assert_eq!(ended(ticket).await.report.outcome, ActivationOutcome::Timeout);
        }
        node.assert_empty();
    }
}

#[tokio::test]
async fn a_reservation_of_another_manager_is_refused_and_returned_to_its_own() {
    let (node, other) = (Node::new(limits()), Node::new(limits()));
    let foreign = other.reserve("a");
    let end = ended(node.manager.activate(foreign, node.order("one", DEADLINE_MILLIS))).await;
    assert!(matches!(end.report.outcome, ActivationOutcome::HostFailure { .. }));
    assert!(!Arc::ptr_eq(&node.manager, &other.manager));
    node.assert_empty();
    other.assert_empty();
}
