//! What a guest is told about itself.

use crate::bench::Bench;

#[tokio::test]
async fn ids_trace_and_tenant_are_those_of_the_session() {
    let (activation, trace) = ("cd".repeat(16), "ab".repeat(16));
    let expected = format!("(\"{activation}\", \"00-{trace}-{}-01\", \"acme\")", &activation[..16]);
    assert_eq!(Bench::behave().seen("context").await, expected);
}

#[tokio::test]
async fn what_remains_is_less_than_the_budget_by_what_was_used() {
    let bench = Bench::behave().with_budget(|budget| (budget.log_bytes, budget.outbound_requests) = (100, 3));
    let report = bench.run("remaining").await;
    let latent_core::ActivationOutcome::Rejected { reason } = &report.outcome else { panic!("{report:?}") };
    let numbers: Vec<u64> = reason.trim_matches(['(', ')']).split(", ").map(|number| number.parse().unwrap()).collect();
    let [fuel, wall_millis, requests, log_bytes] = numbers[..] else { panic!("{reason}") };
    assert!(fuel < bench.budget.cpu_fuel && fuel > bench.budget.cpu_fuel - report.fuel_used, "{fuel}");
    assert!(wall_millis <= bench.budget.wall_time_millis);
    // One line of ten bytes was logged.
    assert_eq!((requests, log_bytes), (3, 100 - 11));
}

#[tokio::test]
async fn derived_keys_repeat_with_the_event_and_differ_within_it() {
    let bench = Bench::behave();
    let seen = bench.seen("derive").await;
    assert_eq!(bench.seen("derive").await, seen);
    let keys: Vec<_> = seen.split('"').filter(|part| part.starts_with("derived-")).collect();
    assert_eq!(keys.len(), 3, "{seen}");
    assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
    assert!(seen.ends_with("Err(InvalidLabel)]"), "{seen}");
}
