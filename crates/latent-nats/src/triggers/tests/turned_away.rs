//! Peers that do not let anybody in: few dials, a reason that can be read, and others that are served (BUG-25, D-14, T-054).
//! Time stands, so that a backoff ends when the test says so.

use latent_capabilities::PoolSettings;
use latent_testkit::StandingTime;
use latent_testkit::broker::SERVER_NAME;
use latent_testkit::fake_peer::{FakePeer, INFO, Step};

use super::bench::{Bench, Half, at, binding, ca, draft, small_node};
use crate::triggers::{StepEnd, StepFault, StepOutcome, TriggerDraft, TriggerState};

/// BUG-25: ten bindings of one tenant and a peer that turns everybody away: one dial for each backoff, not one for each visit.
#[tokio::test(start_paused = true)]
async fn refused_credentials_never_become_a_loop_of_connections() {
    let _standing = StandingTime::hold();
    let answers = [
        (vec![Step::send("-ERR 'Authorization Violation'\r\n"), Step::Close], StepFault::AuthenticationRefused),
        (vec![Step::Close], StepFault::Unreachable),
        (vec![Step::send("-ERR 'maximum connections exceeded'\r\n"), Step::Close], StepFault::Unreachable),
        (vec![Step::send("-ERR 'maximum account active connections exceeded'\r\n"), Step::Close], StepFault::Unreachable),
    ];
    for (answer, fault) in answers {
        let script: Vec<_> = [Step::send(INFO), Step::ExpectUntil(b"PING\r\n".to_vec())].into_iter().chain(answer).collect();
        let bindings = (0..10).map(|n| binding("shop", &format!("b{n}"))).collect();
        let mut bench = Bench::start_with(vec![script], bindings);
        assert_eq!(bench.fault().await, fault);
        for _ in 1..100 {
            assert_eq!(bench.fault().await, StepFault::Backoff);
        }
        assert_eq!(bench.peer.accepted(), 1, "{fault:?}");
        let reports = bench.monitor.bindings();
        assert_eq!(reports[0].problem.as_ref().map(|(fault, _)| *fault), Some(fault), "why it waits stays told");
        assert!(reports.iter().all(|report| report.state == TriggerState::Stalled));
        // Each backoff allows one more dial.
        for dials in 2..5 {
            bench.half.clock.skip(60_000);
            for _ in 0..10 {
                bench.fault().await;
            }
            assert_eq!(bench.peer.accepted(), dials, "{fault:?}");
        }
        bench.half.assert_nothing_is_held();
    }
}

/// T-054: the tenant beside it is visited as before.
#[tokio::test(start_paused = true)]
async fn a_tenant_that_is_turned_away_keeps_no_other_out() {
    let _standing = StandingTime::hold();
    let refused =
        vec![Step::send(INFO), Step::ExpectUntil(b"PING\r\n".to_vec()), Step::send("-ERR 'Authorization Violation'\r\n"), Step::Close];
    let served = super::bench::open_then((0..5).flat_map(|_| super::bench::inspected(0)).chain([Step::Hold]));
    let peer = FakePeer::start(&ca().issue(SERVER_NAME), vec![refused, served]);
    let half = Half::new(PoolSettings::default(), small_node());
    let bindings = Some(vec![binding("shop", "z"), binding("bank", "a")]);
    let (mut triggers, monitor) = half.install_all(at(TriggerDraft { bindings, ..draft() }, peer.address()));
    for _ in 0..5 {
        let step = triggers.step(&half.manager).await;
        assert!(matches!(step, StepOutcome::Reported(step) if step.binding == 0 && matches!(step.end, StepEnd::Failed(_))));
        assert_eq!(triggers.step(&half.manager).await, StepOutcome::Idle { binding: 1 });
    }
    assert_eq!((peer.accepted(), monitor.snapshot().connects_failed, monitor.snapshot().failed), (2, 1, 5));
    triggers.close_idle();
    half.assert_nothing_is_held();
    assert!(monitor.bindings().iter().all(|report| report.state == TriggerState::Stopped));
}
