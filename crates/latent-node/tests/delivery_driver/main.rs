//! The delivery driver between a source, the activation manager and a backend, in virtual time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod bench;
mod handed;
mod parking;

use bench::{Bench, MemorySource};
use latent_core::{BindingId, Offset, Partition};
use latent_node::RevocationScope;
use latent_node::delivery::{Changed, CycleState, DeliveryPolicy, Settlement, TerminationReason};

const ACKNOWLEDGED: Settlement = Settlement::Acknowledged;

fn source(events: &[(&'static str, &'static str)]) -> MemorySource {
    let source = MemorySource::default();
    source.log().events.extend(events);
    source
}

#[tokio::test(start_paused = true)]
async fn events_of_a_key_run_in_order_and_other_keys_beside_them() {
    let bench = Bench::new(8, &["acme"]);
    let source = source(&[("a", "slow"), ("a", "slow"), ("b", "slow"), ("a", "ok"), ("c", "slow")]);
    let driving = bench.drive(vec![bench.binding("t", "acme", DeliveryPolicy::default(), &source)]);
    let status = bench.until(&driving, |status| status.acknowledged == 5).await;
    assert_eq!(bench.backend.started(), ["acme/0#1", "acme/2#1", "acme/4#1", "acme/1#1", "acme/3#1"]);
    assert_eq!(*bench.backend.most.lock().unwrap(), 3);
    assert_eq!((status.state, status.pending, status.last_outcome), (CycleState::Idle, 0, Some("success")));
    driving.stop().await;
    assert_eq!(bench.manager.snapshot().node.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failing_event_runs_again_after_its_delays_and_ends_exhausted() {
    let bench = Bench::new(2, &["acme"]);
    let source = source(&[("a", "trap"), ("b", "again"), ("c", "reject")]);
    let policy = DeliveryPolicy { deliveries_max: 3, retry_delay_millis: 100, retry_delay_max_millis: 1_000, ..DeliveryPolicy::default() };
    let driving = bench.drive(vec![bench.binding("t", "acme", policy, &source)]);
    let delayed = bench.until(&driving, |status| status.delayed == 2).await;
    assert_eq!((delayed.state, delayed.terminated), (CycleState::Delayed, 1));
    assert!(delayed.next_attempt_at.is_some());
    let status = bench.until(&driving, |status| status.terminated == 3).await;
    assert_eq!((status.exhausted, status.pending, status.state), (2, 0, CycleState::Idle));
    assert_eq!(status.last_failure.map(|(failure, _)| failure).as_deref(), Some("retry"));
    let waits: Vec<_> = source.log().postponed.iter().map(|(offset, postponed)| (*offset, postponed.attempts)).collect();
    assert_eq!(waits, [(0, 1), (1, 1), (0, 2), (1, 2)]);
    let at: Vec<_> = source.log().postponed.iter().map(|(_, postponed)| postponed.not_before.0 - 1_000_000).collect();
    // The handler's own wish of 700 ms stands; the trap's delay doubles from 100 ms.
    assert!(at[0] >= 100 && at[1] >= 700 && at[2] >= at[0] + 200 && at[3] >= at[1] + 700, "{at:?}");
    let settled = |offset: u64| source.log().settled[&offset];
    assert_eq!(settled(0), Settlement::Terminated(TerminationReason::Exhausted));
    assert_eq!(settled(2), Settlement::Terminated(TerminationReason::Rejected));
    let totals = driving.handle.totals();
    assert_eq!((totals.success, totals.rejected, totals.failed, totals.settled), (0, 1, 6, 3));
    driving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_expires_before_it_runs_is_counted_apart_and_nothing_waits_for_it() {
    let bench = Bench::new(2, &["acme"]);
    let source = source(&[("a", "ok"), ("a", "ok"), ("a", "trap"), ("a", "ok"), ("b", "trap"), ("a", "ok")]);
    source.log().first = 2;
    let policy = DeliveryPolicy { deliveries_max: 5, retry_delay_millis: 1_000, ..DeliveryPolicy::default() };
    let driving = bench.drive(vec![bench.binding("t", "acme", policy, &source)]);
    let delayed = bench.until(&driving, |status| status.delayed == 2).await;
    assert_eq!((delayed.expired_unread, delayed.pending), (2, 4), "two were gone before the first look");
    // Found when the delay is over: the retried ones and the one that waits behind one of them are gone too.
    source.log().first = 5;
    let status = bench.until(&driving, |status| status.acknowledged == 1).await;
    assert_eq!((status.expired_unread, status.terminated, status.pending, status.state), (5, 0, 0, CycleState::Idle));
    assert_eq!(bench.backend.started(), ["acme/2#1", "acme/4#1", "acme/5#1"]);
    assert_eq!(source.log().settled.keys().copied().collect::<Vec<_>>(), [5]);
    driving.stop().await;
    assert_eq!(bench.manager.snapshot().node.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_expires_while_it_runs_is_not_tried_again() {
    let bench = Bench::new(2, &["acme"]);
    let source = source(&[("a", "hang"), ("b", "ok")]);
    let policy = DeliveryPolicy { deliveries_max: 5, operation_timeout_millis: 1_000, ..DeliveryPolicy::default() };
    let driving = bench.drive(vec![bench.binding("t", "acme", policy, &source)]);
    bench.until(&driving, |status| status.acknowledged == 1).await;
    {
        let mut log = source.log();
        log.events.push(("c", "ok"));
        log.first = 2;
    }
    driving.handle.available("in", Partition(0), Offset(3));
    let status = bench.until(&driving, |status| status.pending == 0).await;
    assert_eq!((status.acknowledged, status.terminated, status.expired_unread, status.state), (2, 0, 1, CycleState::Idle));
    assert_eq!(bench.backend.started(), ["acme/0#1", "acme/1#1", "acme/2#1"]);
    driving.stop().await;
    assert_eq!(bench.manager.snapshot().node.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn guest_code_ends_a_settle_margin_before_the_one_deadline() {
    let bench = Bench::new(2, &["acme"]);
    let source = source(&[("a", "hang")]);
    let policy = DeliveryPolicy { deliveries_max: 1, operation_timeout_millis: 1_000, ..DeliveryPolicy::default() };
    let driving = bench.drive(vec![bench.binding("t", "acme", policy, &source)]);
    let status = bench.until(&driving, |status| status.terminated == 1).await;
    assert_eq!((status.last_outcome, status.exhausted), (Some("timeout"), 1));
    let guest_ended = bench.backend.deadlines.lock().unwrap()[0].as_micros() / 1_000;
    let settled = bench.clock.mono().as_micros() / 1_000;
    assert!((895..=900).contains(&guest_ended) && settled <= 1_000, "guest {guest_ended} ms, settled {settled} ms");
    driving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_append_wakes_a_dormant_binding() {
    let bench = Bench::new(2, &["acme"]);
    let source = source(&[]);
    let driving = bench.drive(vec![bench.binding("t", "acme", DeliveryPolicy::default(), &source)]);
    bench.until(&driving, |status| status.state == CycleState::Idle).await;
    source.log().events.push(("a", "ok"));
    driving.handle.available("elsewhere", Partition(0), Offset(1));
    driving.handle.available("in", Partition(1), Offset(1));
    bench.until(&driving, |status| status.pending == 0).await;
    assert!(bench.backend.started().is_empty());
    driving.handle.available("in", Partition(0), Offset(1));
    bench.until(&driving, |status| status.acknowledged == 1).await;
    driving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stopping_begins_nothing_new_settles_what_ends_and_leaves_the_rest_unsettled() {
    let bench = Bench::new(8, &["acme"]);
    let source = source(&[("a", "slow"), ("a", "ok"), ("b", "hang")]);
    let driving = bench.drive(vec![bench.binding("t", "acme", DeliveryPolicy::default(), &source)]);
    bench.until(&driving, |status| status.unacknowledged == 2).await;
    driving.tell_to_stop();
    let status = bench.until(&driving, |status| status.acknowledged == 1).await;
    assert_eq!(status.state, CycleState::Stopped);
    assert!(!driving.has_ended());
    // What hangs is ended by the manager, as the node does when draining takes too long.
    bench.manager.shutdown().await;
    driving.stop().await;
    assert_eq!(bench.backend.started(), ["acme/0#1", "acme/2#1"]);
    assert_eq!(source.log().settled.iter().collect::<Vec<_>>(), [(&0, &ACKNOWLEDGED)]);
    let taken_back: Vec<_> = source.log().postponed.iter().map(|(offset, postponed)| (*offset, postponed.attempts)).collect();
    assert_eq!(taken_back, [(2, 0)]);
    assert_eq!(bench.manager.snapshot().node.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_revoked_service_leaves_events_waiting_and_says_why_while_others_go_on() {
    let bench = Bench::new(2, &["acme", "other"]);
    let (waiting, healthy) = (source(&[("a", "ok")]), source(&[("a", "ok"), ("a", "ok")]));
    bench.catalog.revoke(bench.publications["acme"], RevocationScope::Whole).unwrap();
    let policy = DeliveryPolicy::default();
    let driving = bench.drive(vec![bench.binding("t", "acme", policy, &waiting), bench.binding("u", "other", policy, &healthy)]);
    let status = bench.until(&driving, |status| status.state == CycleState::Stalled).await;
    assert!(status.obstacle.is_some_and(|error| error.contains("revoked")));
    let statuses = driving.handle.statuses().await;
    assert_eq!((statuses[0].pending, statuses[1].acknowledged), (1, 2));
    assert!(waiting.log().settled.is_empty() && bench.backend.started().iter().all(|start| start.starts_with("other/")));
    driving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_binding_whose_service_cannot_be_called_asks_again_after_the_refused_wait_and_not_before() {
    let bench = Bench::new(2, &["acme"]);
    let source = source(&[("a", "ok")]);
    let publication = bench.publications["acme"];
    bench.catalog.revoke(publication, RevocationScope::Whole).unwrap();
    let driving = bench.drive(vec![bench.binding("t", "acme", DeliveryPolicy::default(), &source)]);
    bench.until(&driving, |status| status.state == CycleState::Stalled).await;
    let refused = bench.clock.mono();
    bench.publish_again("acme");
    let status = bench.until(&driving, |status| status.acknowledged == 1).await;
    let waited = bench.clock.mono().since(refused).as_millis();
    assert!((990..=1_010).contains(&waited), "asked again after {waited} ms");
    assert_eq!(status.obstacle, None);
    driving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_log_that_cannot_answer_stalls_the_binding_and_it_goes_on_by_itself() {
    let bench = Bench::new(2, &["acme"]);
    let source = source(&[("a", "ok"), ("a", "ok")]);
    source.log().refuse = 5;
    let driving = bench.drive(vec![bench.binding("t", "acme", DeliveryPolicy::default(), &source)]);
    let status = bench.until(&driving, |status| status.state == CycleState::Stalled).await;
    assert_eq!(status.obstacle.as_deref(), Some("the disk is away"));
    let status = bench.until(&driving, |status| status.acknowledged == 2).await;
    assert_eq!((status.state, status.obstacle), (CycleState::Idle, None));
    driving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_flooding_tenant_does_not_keep_another_waiting() {
    let bench = Bench::new(2, &["flood", "quiet"]);
    let flood: Vec<_> = ["a", "b", "c", "d", "e", "f", "g", "h"].into_iter().cycle().take(400).map(|key| (key, "slow")).collect();
    let (flooding, quiet) = (source(&flood), source(&[]));
    let policy = DeliveryPolicy { in_flight_max: 64, ..DeliveryPolicy::default() };
    let driving = bench.drive(vec![bench.binding("f", "flood", policy, &flooding), bench.binding("q", "quiet", policy, &quiet)]);
    bench.until(&driving, |status| status.acknowledged >= 20).await;
    quiet.log().events.push(("a", "ok"));
    let before = bench.backend.started().len();
    driving.handle.available("in", Partition(0), Offset(1));
    while quiet.log().settled.is_empty() {
        tokio::time::advance(std::time::Duration::from_millis(1)).await;
    }
    let started = bench.backend.started();
    let at = started.iter().position(|start| start == "quiet/0#1").unwrap();
    // With two cells it starts in the first one that becomes free; one start may have been on its way.
    assert!(at <= before + 2, "{} starts of the flood came first", at - before);
    driving.tell_to_stop();
    bench.manager.shutdown().await;
    driving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_has_ended_answers_with_nothing() {
    let bench = Bench::new(2, &["acme"]);
    let driving = bench.drive(vec![bench.binding("t", "acme", DeliveryPolicy::default(), &source(&[]))]);
    let handle = driving.handle.clone();
    assert_eq!(handle.statuses().await.len(), 1);
    driving.stop().await;
    assert!(handle.statuses().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_thousand_dormant_bindings_have_no_task_of_their_own() {
    let bench = Bench::new(2, &["acme"]);
    let empty = source(&[]);
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let bindings = (0..1_000).map(|n| bench.binding(&format!("t{n}"), "acme", DeliveryPolicy::default(), &empty)).collect();
    let driving = bench.drive(bindings);
    assert_eq!(driving.handle.statuses().await.len(), 1_000);
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), before + 1);
    driving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_is_added_to_a_running_driver_delivers() {
    let bench = Bench::new(2, &["acme"]);
    let (first, second) = (source(&[("a", "ok")]), source(&[("a", "ok"), ("b", "ok")]));
    let driving = bench.drive(vec![bench.binding("one", "acme", DeliveryPolicy::default(), &first)]);
    bench.until(&driving, |status| status.acknowledged == 1).await;
    let added = driving.handle.add(vec![bench.binding("two", "acme", DeliveryPolicy::default(), &second)]);
    assert_eq!(added.await, Changed::Done);
    while second.log().settled.len() < 2 {
        tokio::time::advance(std::time::Duration::from_millis(1)).await;
    }
    // It hears of appends like the first.
    second.log().events.push(("a", "ok"));
    driving.handle.available("in", Partition(0), Offset(3));
    while second.log().settled.len() < 3 {
        tokio::time::advance(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(driving.handle.statuses().await.iter().map(|status| status.acknowledged).collect::<Vec<_>>(), [1, 3]);
    driving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_is_removed_settles_what_began_and_begins_nothing_more() {
    let bench = Bench::new(1, &["acme"]);
    let (leaving, staying) = (source(&[("a", "slow"), ("a", "ok"), ("b", "ok")]), source(&[]));
    let bindings = [("leaving", &leaving), ("staying", &staying)];
    let driving = bench.drive(bindings.map(|(id, source)| bench.binding(id, "acme", DeliveryPolicy::default(), source)).into());
    while bench.backend.started().is_empty() {
        tokio::task::yield_now().await;
    }
    let removed = driving.handle.remove([BindingId::parse("leaving").unwrap()].into());
    assert_eq!(removed.await, Changed::Done);
    // Two keys had begun, and the second event of the first key had not.
    assert_eq!(bench.backend.started(), ["acme/0#1", "acme/2#1"]);
    assert_eq!(leaving.log().settled.keys().copied().collect::<Vec<_>>(), [0, 2]);
    let statuses = driving.handle.statuses().await;
    assert_eq!(statuses.iter().map(|status| status.id.as_str()).collect::<Vec<_>>(), ["staying"]);
    assert_eq!(bench.manager.snapshot().node.held(), 0, "its permits are returned");
    // News for what is gone reach nobody.
    driving.handle.available("in", Partition(0), Offset(9));
    staying.log().events.push(("a", "ok"));
    driving.handle.available("in", Partition(0), Offset(1));
    bench.until(&driving, |status| status.acknowledged == 1).await;
    driving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_binding_comes_back_under_its_id_with_what_its_source_remembers() {
    let bench = Bench::new(2, &["acme"]);
    let events = source(&[("a", "trap"), ("b", "ok")]);
    let policy = DeliveryPolicy { deliveries_max: 5, retry_delay_millis: 60_000, ..DeliveryPolicy::default() };
    let driving = bench.drive(vec![bench.binding("t", "acme", policy, &events)]);
    bench.until(&driving, |status| status.delayed == 1 && status.acknowledged == 1).await;
    let id = BindingId::parse("t").unwrap();
    assert_eq!(driving.handle.remove([id].into()).await, Changed::Done);
    assert!(driving.handle.statuses().await.is_empty());
    let again = bench.binding("t", "acme", DeliveryPolicy { retry_delay_millis: 1, ..policy }, &events);
    assert_eq!(driving.handle.add(vec![again]).await, Changed::Done);
    // The settled one does not run again; the other goes on where it was.
    bench.until(&driving, |status| status.exhausted == 1).await;
    assert_eq!(bench.backend.started(), ["acme/0#1", "acme/1#1", "acme/0#2", "acme/0#3", "acme/0#4", "acme/0#5"]);
    driving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_has_ended_changes_nothing_and_says_so() {
    let bench = Bench::new(2, &["acme"]);
    let hanging = source(&[("a", "hang")]);
    let driving = bench.drive(vec![bench.binding("t", "acme", DeliveryPolicy::default(), &hanging)]);
    while bench.backend.started().is_empty() {
        tokio::task::yield_now().await;
    }
    let handle = driving.handle.clone();
    // Under way when the driver stops, which waits for the same.
    let removed = handle.remove([BindingId::parse("t").unwrap()].into());
    driving.tell_to_stop();
    bench.manager.shutdown().await;
    driving.stop().await;
    assert!(matches!(removed.await, Changed::Done | Changed::DriverEnded));
    assert_eq!(handle.add(Vec::new()).await, Changed::DriverEnded);
    assert_eq!(handle.remove(Default::default()).await, Changed::DriverEnded);
}
