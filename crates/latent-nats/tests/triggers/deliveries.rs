//! What a message can choose and what it cannot, whom it wakes, and what driving it keeps (T-004 to T-006, T-013 to T-018, T-020, T-059).

use std::collections::BTreeSet;

use latent_core::RouteGeneration;
use latent_nats::triggers::{RunEnd, StepEnd, StepFault, StepOutcome};
use latent_node::delivery::{Confirmation, Handed, TerminationReason, VisitSettlement};
use latent_testkit::require_broker;

use crate::bench::{ACKNOWLEDGED, Bench, Setup, publication, route};

/// T-004, T-005: whatever a publisher writes, the binding says as whom, whom, with what, until when.
#[tokio::test]
async fn a_message_chooses_no_authority_no_budget_no_route_and_no_time() {
    require_broker!();
    let mut bench = Bench::start(Setup::of(&[("shop", "one"), ("bank", "two")])).await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let traceparent = format!("00-{trace}-00f067aa0ba902b7-01");
    let headers = [
        ("Latent-Tenant", "bank"),
        ("Latent-Principal", "operator:root"),
        ("Latent-Service", "other"),
        ("Latent-Route", "blue"),
        ("Latent-Function", "destroy"),
        ("Latent-Budget-Fuel", "18446744073709551615"),
        ("Latent-Deadline", "9999999999"),
        ("Latent-Activation", "00000000000000000000000000000001"),
        ("Latent-Origin", "x"),
        ("Nats-Msg-Id", "lsf-x"),
        ("Authorization", "Bearer x"),
        ("traceparent", &traceparent),
        ("Status", "503"),
    ];
    bench.publish_with("one", &headers, r#"["ok"]"#).await;
    let step = bench.step_until_reported().await;
    assert_eq!((step.end, step.binding), (ACKNOWLEDGED, 0));
    let run = &bench.half.scripted.seen()[0];
    let config = bench.triggers().config().clone();
    assert_eq!((run.tenant.as_str(), run.budget), ("shop", config.bindings()[0].target().budget));
    assert!(run.left.as_millis() <= 4_500, "its part of the visit's one deadline: {:?}", run.left);
    assert_ne!(run.trace.to_string(), trace);
    let entry = bench.half.manager.journal_entry(run.activation).unwrap();
    assert_eq!((entry.principal.to_string(), entry.tenant.as_str(), entry.service.as_str()), ("trigger:one".into(), "shop", "work"));
    assert_eq!((entry.function.as_str(), entry.generation), ("run", RouteGeneration(1)));
}

/// T-004: one message, three deliveries, three activations.
#[tokio::test]
async fn each_delivery_is_an_activation_of_its_own() {
    require_broker!();
    let mut bench = Bench::start(Setup::default()).await;
    bench.publish("one", r#"["trap"]"#).await;
    for delivery in 1..=3 {
        assert_eq!(bench.step_until_reported().await.handed, Some(Handed { sequence: 1, delivery }));
    }
    let runs = bench.half.scripted.seen();
    let distinct: BTreeSet<_> = runs.iter().map(|run| run.activation).collect();
    let traces: BTreeSet<_> = runs.iter().map(|run| run.trace.to_string()).collect();
    assert_eq!((runs.len(), distinct.len(), traces.len()), (3, 3, 3));
}

/// T-006: a media type that its publisher set and that is another one runs nothing.
#[tokio::test]
async fn a_media_type_that_conflicts_is_terminated_and_one_that_fits_is_not_looked_at_further() {
    require_broker!();
    let mut bench = Bench::start(Setup::default()).await;
    let own = "application/vnd.latent.wit-values.v1+json";
    let (with_charset, upper) = (format!("{own}; charset=utf-8"), own.to_uppercase());
    for value in [own, with_charset.as_str(), upper.as_str()] {
        bench.publish_with("one", &[("Content-Type", value)], r#"["ok"]"#).await;
        assert_eq!(bench.step_until_reported().await.end, ACKNOWLEDGED, "{value}");
    }
    let runs = bench.half.scripted.runs().len();
    let terminated = VisitSettlement::Terminate(TerminationReason::Rejected);
    let conflicts: [&[(&str, &str)]; 4] = [
        &[("Content-Type", "application/json")],
        &[("content-type", "text/plain")],
        &[("Content-Type", own), ("Content-Type", "application/octet-stream")],
        &[("Content-Type", "")],
    ];
    for headers in conflicts {
        bench.publish_with("one", headers, r#"["ok"]"#).await;
        let step = bench.step_until_reported().await;
        let expected = StepEnd::Settled { settlement: terminated, confirmation: Confirmation::Confirmed };
        assert_eq!(step.end, expected, "{headers:?}");
        assert_eq!(bench.monitor.bindings()[0].last_outcome, Some("invalid-arguments"));
    }
    let snapshot = bench.monitor.snapshot();
    assert_eq!((bench.half.scripted.runs().len(), snapshot.activations, snapshot.delivered), (runs, 3, 7));
    assert_eq!((snapshot.terminated, bench.backlog("one").await), (4, (0, 0)), "none comes again");
}

/// T-013: what was accepted goes on with what it was accepted for.
#[tokio::test]
async fn a_route_replaced_meanwhile_is_for_the_next_message() {
    require_broker!();
    let mut bench = Bench::start(Setup::default()).await;
    bench.publish("one", r#"["hang"]"#).await;
    let driver = bench.drive();
    bench.half.scripted.until_runs(1).await;
    let second = bench.half.catalog.add(publication(b"two")).unwrap();
    bench.half.catalog.point_route(route("shop"), second).unwrap();
    bench.publish("one", r#"["ok"]"#).await;
    bench.half.scripted.go_on();
    let old = bench.until_step(|step| step.handed.is_some()).await;
    let new = bench.until_step(|step| step.handed.is_some_and(|handed| handed.sequence == 2)).await;
    assert!(old.handed.unwrap().sequence == 2 || old.generation == Some(RouteGeneration(1)));
    assert_eq!((new.generation, new.end), (Some(RouteGeneration(2)), ACKNOWLEDGED));
    bench.stop(driver).await;
    let runs = bench.half.scripted.seen();
    let publications: Vec<_> = runs.iter().map(|run| bench.half.manager.journal_entry(run.activation).unwrap().publication).collect();
    assert_eq!(publications, [bench.half.publication, second]);
}

/// T-014, T-016, T-017, X-021.
#[tokio::test]
async fn a_step_handles_one_message_and_what_it_parks_is_closed_on_request() {
    require_broker!();
    let mut bench = Bench::start(Setup::default()).await;
    assert!(bench.admin.connections().is_empty(), "an installation opens nothing");
    for _ in 0..3 {
        bench.publish("one", r#"["ok"]"#).await;
    }
    for left in [2, 1, 0] {
        assert_eq!(bench.step_until_reported().await.end, ACKNOWLEDGED);
        assert_eq!((bench.backlog("one").await, bench.half.scripted.runs().len() as u64), ((left, 0), 3 - left));
        assert_eq!((bench.admin.connections_of("shop"), bench.half.pools.pools.snapshot().parked), (1, 1));
    }
    bench.triggers().close_idle();
    bench.assert_nothing_is_held();
    latent_testkit::wait_until("the broker sees it closed", || bench.admin.connections_of("shop") == 0);
}

/// T-015, T-018: one future drives all of them; it returns when everything is back.
#[tokio::test]
async fn a_run_handles_what_comes_and_returns_with_nothing_held() {
    require_broker!();
    let mut bench = Bench::start(Setup::of(&[("shop", "one"), ("bank", "two")])).await;
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let driver = bench.drive();
    for number in 0..10 {
        bench.publish(["one", "two"][number % 2], r#"["ok"]"#).await;
    }
    bench.until(|snapshot| snapshot.acknowledged == 10).await;
    let idle = bench.monitor.snapshot().visits;
    bench.until(|snapshot| snapshot.visits > idle + 4).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), tasks + 1, "the driver itself");
    bench.stop(driver).await;
    assert_eq!((bench.backlog("one").await, bench.backlog("two").await), ((0, 0), (0, 0)));
}

/// T-020: nothing of this side is needed to go on.
#[tokio::test]
async fn a_node_with_an_empty_disk_goes_on_where_the_broker_stands() {
    require_broker!();
    let setup = Setup::default();
    let mut bench = Bench::start(Setup::default()).await;
    for number in 0..4 {
        bench.publish("one", &format!(r#"["ok",{number}]"#)).await;
    }
    for sequence in [1, 2] {
        assert_eq!(bench.step_until_reported().await.handed.unwrap().sequence, sequence);
    }
    bench.begin_anew(&setup);
    for sequence in [3, 4] {
        assert_eq!(bench.step_until_reported().await.handed, Some(Handed { sequence, delivery: 1 }));
    }
    assert_eq!(bench.step().await, StepOutcome::Idle { binding: 0 });
    assert_eq!(bench.half.scripted.runs(), [r#"["ok",2]"#, r#"["ok",3]"#]);
}

/// T-059, X-020: the one in force before finishes what it has begun and begins nothing more.
#[tokio::test]
async fn triggers_that_were_replaced_finish_what_runs_and_end() {
    require_broker!();
    let mut bench = Bench::start(Setup::default()).await;
    bench.publish("one", r#"["hang"]"#).await;
    let first = bench.monitor.clone();
    let driver = bench.drive();
    bench.half.scripted.until_runs(1).await;
    bench.replace(2, Some(1));
    bench.half.scripted.go_on();
    assert_eq!(driver.ended().await, RunEnd::Retired);
    let last = first.last_step().unwrap();
    assert_eq!((last.end, last.epoch.0), (ACKNOWLEDGED, 1));
    bench.publish("one", r#"["ok"]"#).await;
    let step = bench.step_until_reported().await;
    assert_eq!((step.end, step.epoch.0), (ACKNOWLEDGED, 2));
    assert_eq!((bench.monitor.snapshot().acknowledged, first.snapshot().acknowledged), (1, 1));
    assert_eq!(bench.half.scripted.runs().len(), 2);
}

/// T-024, T-025, D-10: the largest message there may be, with the largest headers, is brought by a pull and handled; one byte of headers more
/// is refused and told.
#[tokio::test]
async fn the_largest_message_with_the_largest_headers_is_handled() {
    require_broker!();
    let setup = Setup { change: |binding| binding.payload_ceiling_bytes = Some(32_768), ..Setup::default() };
    let mut bench = Bench::start(setup).await;
    let payload = format!(r#"["ok","{}"]"#, "x".repeat(32_768 - r#"["ok",""]"#.len()));
    let around = "NATS/1.0\r\nA: \r\n\r\n".len();
    for (headers, fits) in [(8_192, true), (8_193, false)] {
        bench.publish_with("one", &[("A", &"v".repeat(headers - around))], &payload).await;
        let step = bench.step_until_reported().await;
        let oversized = StepEnd::Failed(StepFault::Protocol(latent_nats_proto::Evidence::OversizedReply));
        assert_eq!(step.end, if fits { ACKNOWLEDGED } else { oversized }, "{headers}");
    }
    assert_eq!((bench.half.scripted.runs().len(), bench.backlog("one").await), (1, (0, 1)));
}
