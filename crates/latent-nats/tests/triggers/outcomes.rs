//! Every end of an activation and what the broker is told of it (T-043 to T-047).

use latent_nats::triggers::{StepEnd, StepOutcome};
use latent_node::delivery::{Confirmation, Handed, TerminationReason, VisitSettlement};
use latent_testkit::require_broker;

use crate::bench::{Bench, Setup};

#[tokio::test]
async fn a_success_is_acknowledged_and_the_next_visit_finds_nothing() {
    require_broker!();
    let mut bench = Bench::start(Setup::default()).await;
    assert_eq!(bench.step().await, StepOutcome::Idle { binding: 0 });
    bench.publish("one", r#"["ok"]"#).await;
    let step = bench.step_until_reported().await;
    let acknowledged = StepEnd::Settled { settlement: VisitSettlement::Acknowledge, confirmation: Confirmation::Confirmed };
    assert_eq!((step.end, step.handed), (acknowledged, Some(Handed { sequence: 1, delivery: 1 })));
    assert_eq!(bench.half.scripted.runs(), [r#"["ok"]"#]);
    assert_eq!(bench.backlog("one").await, (0, 0));
    assert_eq!(bench.step().await, StepOutcome::Idle { binding: 0 });
}

#[tokio::test]
async fn what_can_never_run_is_terminated_and_what_failed_comes_again_until_its_last_run() {
    require_broker!();
    let mut bench = Bench::start(Setup::default()).await;
    for payload in [r#"["fail"]"#, r#"["incompatible"]"#, r#"["refused"]"#, "no values"] {
        bench.publish("one", payload).await;
        let step = bench.step_until_reported().await;
        let terminated = VisitSettlement::Terminate(TerminationReason::Rejected);
        assert_eq!(step.end, StepEnd::Settled { settlement: terminated, confirmation: Confirmation::Confirmed }, "{payload}");
    }
    bench.publish("one", r#"["trap"]"#).await;
    for delivery in 1..=3 {
        let step = bench.step_until_reported().await;
        let settlement = match delivery {
            3 => VisitSettlement::Terminate(TerminationReason::Exhausted),
            _ => VisitSettlement::RetryAfter { millis: 100 },
        };
        assert_eq!(step.end, StepEnd::Settled { settlement, confirmation: Confirmation::Confirmed });
        assert_eq!(step.handed, Some(Handed { sequence: 5, delivery }));
    }
    assert_eq!(bench.backlog("one").await, (0, 0));
    assert_eq!(bench.half.scripted.runs().len(), 7);
}
