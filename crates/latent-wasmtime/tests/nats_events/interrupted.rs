//! Guests that are ended while the broker has not answered: what they are told, and what the audit knows (P-002, P-055, P-056, X-032).

use std::sync::Arc;

use latent_capabilities::ProviderOutcome;
use latent_core::{ActivationOutcome, Budget};
use latent_testkit::require_broker;

use crate::host::{budget, run, seen};
use crate::nats::{Bench, STREAM, Setup};

#[tokio::test]
async fn a_cancelled_activation_leaves_an_uncertain_publication_and_a_closed_socket() {
    require_broker!();
    let bench = Arc::new(Bench::start(Setup::default()));
    assert!(seen(bench.session("shop", 30_000), "publish:out:k:i-1").await.starts_with("Ok("));
    bench.broker.pause();
    let running = tokio::spawn(run(bench.session("shop", 30_000), budget(), "publish:out:k:i-2"));
    bench.until(|snapshot| snapshot.running == 1).await;
    bench.until_written(2).await;
    running.abort();
    let _ = running.await;
    assert_eq!(bench.pools.pools.snapshot().connections, 0, "the socket is closed and its charge is back");
    assert_eq!(bench.publisher.snapshot().uncertain, 1);
    assert_eq!(bench.audit.records()[1].observed, ProviderOutcome::Unknown { cause: "cancelled" });
    bench.broker.resume();
    // It had left, so it is stored; nothing takes it back. The caller's own retry finds it.
    let told = seen(bench.session("shop", 30_000), "publish:out:k:i-2").await;
    assert!(told.contains("duplicate: true") && told.contains("sequence: 2,"), "{told}");
    assert_eq!(bench.broker.admin().await.count(STREAM).await, 2);
}

#[tokio::test]
async fn a_guest_whose_time_is_over_while_the_answer_is_out_is_told_uncertain_or_ended_and_the_audit_is_right() {
    require_broker!();
    let bench = Arc::new(Bench::start(Setup::default()));
    assert!(seen(bench.session("shop", 30_000), "publish:out:k:i-1").await.starts_with("Ok("));
    bench.broker.pause();
    let short = Budget { wall_time_millis: 300, ..budget() };
    let by_time = run(bench.session("shop", 30_000), short, "publish:out:k:i-2").await;
    assert_eq!(by_time.outcome, ActivationOutcome::Timeout);
    // The deadline of the session comes first: the typed value arrives.
    let by_deadline = run(bench.session("shop", 300), budget(), "publish:out:k:i-3").await;
    let told = format!("{:?}", by_deadline.outcome);
    assert!(told.contains("Err(Uncertain)") || told.contains("Err(DeadlineExceeded)") || told.contains("Timeout"), "{told}");
    bench.broker.resume();
    let observed: Vec<_> = bench.audit.records().iter().map(|record| (record.observed, record.told)).collect();
    assert_eq!(observed[1], (ProviderOutcome::Unknown { cause: "cancelled" }, None));
    assert_ne!(observed[2].0, ProviderOutcome::Acknowledged { duplicate: false });
}

/// One thread runs the guests; one of them waits for an answer that does not come, and the others go on.
#[tokio::test(flavor = "current_thread")]
async fn another_activation_goes_on_while_an_answer_is_out() {
    require_broker!();
    let bench = Arc::new(Bench::start(Setup::default()));
    assert!(seen(bench.session("shop", 30_000), "publish:out:k:i-1").await.starts_with("Ok("));
    bench.broker.pause();
    let waiting = tokio::spawn(run(bench.session("shop", 30_000), budget(), "publish:out:k:i-2"));
    bench.until(|snapshot| snapshot.running == 1).await;
    assert_eq!(run(bench.session("bank", 30_000), budget(), "ok").await.outcome, ActivationOutcome::Success);
    assert!(!waiting.is_finished());
    bench.broker.resume();
    assert!(format!("{:?}", waiting.await.unwrap().outcome).contains("sequence: 2,"));
}
