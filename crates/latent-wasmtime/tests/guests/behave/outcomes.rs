//! Every way in which a handler can end, and that none of them reaches the next activation.

use latent_core::{ActivationOutcome, BudgetKind, TrapCode};

use crate::bench::Bench;

async fn outcome(bench: Bench, payload: &str) -> ActivationOutcome {
    let report = bench.run(payload).await;
    bench.assert_healthy().await;
    report.outcome
}

async fn trap(payload: &str) -> (TrapCode, String) {
    match outcome(Bench::behave(), payload).await {
        ActivationOutcome::Trap { code, detail } => (code, detail),
        other => panic!("{payload} ended as {other:?}"),
    }
}

#[tokio::test]
async fn a_handled_event_is_a_success_and_says_what_it_used() {
    let bench = Bench::behave();
    let report = bench.run("ok").await;
    assert_eq!(report.outcome, ActivationOutcome::Success);
    assert!(report.fuel_used > 0 && report.fuel_used < bench.budget.cpu_fuel);
    assert!(report.memory_bytes_peak > 0 && report.memory_bytes_peak <= bench.budget.memory_bytes);
}

#[tokio::test]
async fn a_fresh_store_makes_equal_runs_equal() {
    let bench = Bench::behave();
    let first = bench.run("ok").await;
    assert_eq!(bench.run("alloc:8000000").await.outcome, ActivationOutcome::Success);
    assert_eq!(bench.run("ok").await, first);
}

#[tokio::test]
async fn a_rejection_keeps_its_reason() {
    assert_eq!(outcome(Bench::behave(), "reject:not for me").await, ActivationOutcome::Rejected { reason: "not for me".to_owned() });
}

#[tokio::test]
async fn a_wish_to_retry_keeps_its_reason_and_its_delay() {
    for (payload, delay_millis) in [("retry:500:busy", Some(500)), ("retry:busy", None)] {
        let expected = ActivationOutcome::RetryRequested { reason: "busy".to_owned(), delay_millis };
        assert_eq!(outcome(Bench::behave(), payload).await, expected, "{payload}");
    }
}

#[tokio::test]
async fn the_event_arrives_as_it_was_stored() {
    let seen = Bench::behave().seen("see-event").await;
    let payload = format!("payload: {:?}", b"see-event");
    let fields = [
        "topic: \"in\"",
        "partition: 3",
        "offset: 41",
        "uid: Some(\"u-1\")",
        "key: Some(\"k\")",
        "media_type: \"application/octet-stream\"",
        "attributes: [(\"A\", \"b\")]",
        &payload,
        "delivery_count: 2",
        "stored_at_unix_millis: 1000",
    ];
    for field in fields {
        assert!(seen.contains(field), "{field} in {seen}");
    }
}

#[tokio::test]
async fn a_panic_is_a_trap_that_names_the_place_and_leaves_its_message_in_the_log() {
    let bench = Bench::behave();
    let report = bench.run("panic:this is wrong").await;
    let ActivationOutcome::Trap { code: TrapCode::Unreachable, detail } = &report.outcome else { panic!("{:?}", report.outcome) };
    assert!(detail.contains("unreachable") && detail.ends_with("panic_fmt < behave::act < latent:events/handler@0.2.0#handle"), "{detail}");
    assert!(report.log.iter().any(|line| line.text.contains("this is wrong")), "{:?}", report.log);
}

#[tokio::test]
async fn an_abort_is_a_trap() {
    assert_eq!(trap("trap").await.0, TrapCode::Unreachable);
}

#[tokio::test]
async fn endless_recursion_is_a_trap_with_a_bounded_description() {
    let (code, detail) = trap("recurse").await;
    // The guest's own stack in its memory overflows before the engine's does; `written.rs` has the other case.
    assert_eq!(code, TrapCode::MemoryOutOfBounds);
    assert!(detail.contains("recurse") && detail.len() <= 2_048, "{detail}");
}

#[tokio::test]
async fn an_exit_is_a_trap_with_its_status() {
    for status in [0, 1] {
        let (code, detail) = trap(&format!("exit:{status}")).await;
        assert_eq!((code, detail.ends_with(&format!("status {status}"))), (TrapCode::Exit, true), "{detail}");
    }
}

#[tokio::test]
async fn an_endless_computation_ends_with_its_fuel() {
    let bench = Bench::behave().with_budget(|budget| budget.cpu_fuel = 1_000_000);
    let report = bench.run("loop").await;
    assert_eq!((report.outcome, report.fuel_used), (ActivationOutcome::BudgetExhausted(BudgetKind::Fuel), 1_000_000));
    bench.assert_healthy().await;
}

#[tokio::test]
async fn an_endless_computation_with_fuel_left_ends_with_its_time() {
    let bench = Bench::behave().with_budget(|budget| (budget.cpu_fuel, budget.wall_time_millis) = (1_000_000_000_000, 50));
    assert_eq!(outcome(bench, "loop").await, ActivationOutcome::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_waits_in_the_host_ends_with_its_time() {
    assert_eq!(outcome(Bench::behave(), "sleep:600000").await, ActivationOutcome::Timeout);
}

#[tokio::test]
async fn the_deadline_ends_it_before_its_wall_time_does() {
    let mut bench = Bench::behave().with_budget(|budget| budget.cpu_fuel = 1_000_000_000_000);
    bench.timeout_millis = 50;
    assert_eq!(outcome(bench, "loop").await, ActivationOutcome::Timeout);
}

#[tokio::test]
async fn with_its_deadline_behind_it_an_activation_does_not_start() {
    let mut bench = Bench::behave();
    bench.timeout_millis = 0;
    let report = bench.run("ok").await;
    assert_eq!((report.outcome, report.fuel_used), (ActivationOutcome::Timeout, 0));
}

#[tokio::test]
async fn more_memory_than_the_budget_is_memory_exhaustion() {
    let bench = Bench::behave().with_budget(|budget| budget.memory_bytes = 4 << 20);
    let report = bench.run("alloc:5000000").await;
    assert_eq!(report.outcome, ActivationOutcome::BudgetExhausted(BudgetKind::Memory));
    assert!(report.memory_bytes_peak <= 4 << 20);
    bench.assert_healthy().await;
    let fits = bench.run("alloc:2000000").await;
    assert_eq!(fits.outcome, ActivationOutcome::Success);
    assert!(fits.memory_bytes_peak > 2_000_000);
}

#[tokio::test]
async fn a_budget_below_what_the_component_starts_with_is_memory_exhaustion_too() {
    let bench = Bench::behave().with_budget(|budget| budget.memory_bytes = 65_536);
    assert_eq!(outcome(bench, "ok").await, ActivationOutcome::BudgetExhausted(BudgetKind::Memory));
}

#[tokio::test]
async fn a_guest_that_lived_with_a_refused_growth_is_not_blamed_for_it_later() {
    assert_eq!(trap("alloc-and-recover").await.0, TrapCode::Unreachable);
}

#[tokio::test]
async fn host_resources_are_bounded() {
    assert_eq!(outcome(Bench::behave(), "streams:400").await, ActivationOutcome::Success);
    let (code, detail) = trap("streams:600").await;
    assert_eq!(code, TrapCode::Unlisted, "{detail}");
}

#[tokio::test]
async fn random_bytes_are_bounded_at_their_edge() {
    for bytes in [65_535, 65_536] {
        assert_eq!(outcome(Bench::behave(), &format!("random-bytes:{bytes}")).await, ActivationOutcome::Success, "{bytes}");
    }
    assert_eq!(trap("random-bytes:65537").await.0, TrapCode::Unlisted);
}

#[tokio::test]
async fn a_call_that_hands_over_more_than_its_bound_is_a_trap() {
    let (code, detail) = trap("publish-bytes:out:4000000").await;
    assert_eq!(code, TrapCode::Unlisted, "{detail}");
}
