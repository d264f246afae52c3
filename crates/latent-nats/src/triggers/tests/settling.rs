//! What becomes of a settlement: one command, no replay, no other verb, and nothing said that was not seen (T-049, T-050, BUG-39), nothing
//! at all after the deadline (BUG-38).

use latent_node::delivery::{Confirmation, TerminationReason, Unsettled, VisitSettlement};
use latent_testkit::StandingTime;
use latent_testkit::fake_peer::{Step, message_for, reply_inbox};

use super::bench::{Bench, advance, inspected, message, open_then, pulled, settled};
use crate::triggers::{StepEnd, StepOutcome, TriggerState};

const VERBS: [(&str, &str, VisitSettlement); 3] = [
    (r#"["ok"]"#, "+ACK", VisitSettlement::Acknowledge),
    (r#"["trap"]"#, r#"-NAK {"delay":200000000}"#, VisitSettlement::RetryAfter { millis: 200 }),
    (r#"["fail"]"#, "+TERM", VisitSettlement::Terminate(TerminationReason::Rejected)),
];

/// BUG-39: every verb, every way in which its receipt does not come.
#[tokio::test]
async fn a_receipt_that_does_not_come_as_it_must_leaves_one_command_and_an_uncertain_end() {
    let wrong_subscription = Step::reply(|received| format!("MSG {} 2 0\r\n\r\n", reply_inbox(received).unwrap()).into_bytes());
    let with_body = Step::reply_message("{}");
    let refused = Step::reply(|received| {
        let block = "NATS/1.0 503\r\n\r\n";
        format!("HMSG {} 1 {1} {1}\r\n{block}\r\n", reply_inbox(received).unwrap(), block.len()).into_bytes()
    });
    let half = Step::reply(|received| message_for(received, b"")[..9].to_vec());
    let answers = vec![
        ("closed", vec![Step::Close]),
        ("cut", vec![Step::CloseAbruptly]),
        ("wrong subscription", vec![wrong_subscription, Step::Hold]),
        ("with a body", vec![with_body, Step::Hold]),
        ("503", vec![refused, Step::Hold]),
        ("half of it", vec![half, Step::Close]),
        ("an error", vec![Step::send("-ERR 'Permissions Violation for Publish to \"$JS.ACK.x\"'\r\n"), Step::Hold]),
    ];
    for (payload, body, settlement) in VERBS {
        for (told, answer) in &answers {
            let until = Step::ServeUntil(format!("\r\n{body}\r\n").into_bytes());
            let first = inspected(1).into_iter().chain(pulled(&message(payload))).chain([until]).chain(answer.clone());
            let second = [inspected(1), pulled(&message(r#"["ok"]"#)), settled("+ACK")].into_iter().flatten().chain([Step::Hold]);
            let mut bench = Bench::start(vec![open_then(first), open_then(second)]);
            let step = bench.reported().await;
            assert_eq!(step.end, StepEnd::Settled { settlement, confirmation: Confirmation::Uncertain }, "{body} {told}");
            assert_eq!(bench.monitor.snapshot().uncertain, 1);
            bench.half.assert_nothing_is_held();
            assert_eq!(bench.count(b"PUB $JS.ACK."), 1, "{body} {told}");
            // What was put off perhaps is not asked for meanwhile; otherwise the binding goes on at once.
            bench.half.clock.skip(200);
            assert!(matches!(bench.step().await, StepOutcome::Reported(step) if step.handed.is_some()), "{body} {told}");
            assert_eq!(bench.count(b"PUB $JS.ACK."), 2, "{body} {told}: the second one's own");
        }
    }
}

/// T-026, T-050: a broker that says nothing after the command is waited for until the one deadline, and no longer.
#[tokio::test(start_paused = true)]
async fn a_receipt_that_stalls_is_uncertain_at_the_deadline() {
    let _standing = StandingTime::hold();
    for half in [0, 9] {
        let stalled = Step::reply(move |received| message_for(received, b"")[..half].to_vec());
        let script = inspected(1).into_iter().chain(pulled(&message(r#"["ok"]"#)));
        let script = script.chain([Step::ServeUntil(b"\r\n+ACK\r\n".to_vec()), stalled, Step::Hold]);
        let mut bench = Bench::start(vec![open_then(script)]);
        let is_done = std::cell::Cell::new(false);
        let visit = async {
            let step = bench.triggers.step(&bench.half.manager).await;
            is_done.set(true);
            step
        };
        let time = async {
            bench.peer.until_received(0, b"+ACK\r\n").await;
            advance(999).await;
            assert!(!is_done.get(), "the one deadline of the visit has not passed");
            advance(1).await;
        };
        let (step, ()) = tokio::join!(visit, time);
        let uncertain = StepEnd::Settled { settlement: VisitSettlement::Acknowledge, confirmation: Confirmation::Uncertain };
        assert!(matches!(step, StepOutcome::Reported(step) if step.end == uncertain), "{step:?}");
        bench.peer.until_client_ended(0).await;
        bench.half.assert_nothing_is_held();
    }
}

/// BUG-38, T-026, T-063: a process that stood still while its function ran says nothing to the broker afterwards.
#[tokio::test]
async fn what_ends_after_the_deadline_is_not_settled_whatever_it_came_to() {
    let script = inspected(1).into_iter().chain(pulled(&message(r#"["hang"]"#))).chain([Step::Hold]);
    let mut bench = Bench::start(vec![open_then(script)]);
    let (scripted, clock) = (std::sync::Arc::clone(&bench.half.scripted), std::sync::Arc::clone(&bench.half.clock));
    let stood_still = async {
        scripted.begun().await;
        // Longer than the broker waits: by now somebody else has the message.
        clock.skip(60_000);
        scripted.go_on.notify_one();
    };
    let (step, ()) = tokio::join!(bench.triggers.step(&bench.half.manager), stood_still);
    let StepOutcome::Reported(step) = step else { panic!("{step:?}") };
    assert_eq!(step.end, StepEnd::Unsettled(Unsettled::TimeSpent));
    bench.peer.until_client_ended(0).await;
    assert_eq!(bench.count(b"PUB $JS.ACK."), 0);
    assert_eq!((bench.monitor.snapshot().unsettled, bench.monitor.snapshot().acknowledged), (1, 0));
    bench.half.assert_nothing_is_held();
}

/// BUG-55: the wall clock decides nothing.
#[tokio::test]
async fn steps_of_the_wall_clock_change_no_outcome() {
    for wall in [0, 1, u64::MAX, 1_700_000_000_000 - 3_600_000, 1_700_000_000_000 + 3_600_000] {
        let visits = VERBS.into_iter().flat_map(|(payload, body, _)| [inspected(1), pulled(&message(payload)), settled(body)]);
        let visits = visits.flatten().chain([Step::Hold]);
        let mut bench = Bench::start(vec![open_then(visits)]);
        for (payload, _, settlement) in VERBS {
            let step = bench.reported().await;
            assert_eq!(step.end, StepEnd::Settled { settlement, confirmation: Confirmation::Confirmed }, "{payload} {wall}");
            // Within the lifetime of the credential, which is none.
            bench.half.clock.set_wall(wall);
            bench.half.clock.skip(200);
        }
        assert_eq!(bench.peer.accepted(), 1, "{wall}");
        assert!(bench.monitor.bindings()[0].last_delivery_at.is_some());
    }
}

/// D-26: a message that was put off blocks its binding, which says so, and is asked for when its time has come.
#[tokio::test]
async fn a_message_that_waits_for_its_delay_is_told_as_delayed_and_not_asked_for() {
    let waiting = super::bench::info(3, 1).replace(r#""stream_seq":0"#, r#""stream_seq":7"#);
    let asked = || [Step::ServeUntil(super::bench::INSPECTION.to_vec()), Step::reply_message(waiting.clone())];
    let again = message(r#"["ok"]"#).replace(".a.1.7", ".a.2.7");
    let steps = [inspected(1), pulled(&message(r#"["trap"]"#)), settled(r#"-NAK {"delay":200000000}"#), asked(), asked(), asked()];
    let steps = steps.into_iter().chain([pulled(&again), settled("+ACK")]).flatten().chain([Step::Hold]);
    let mut bench = Bench::start(vec![open_then(steps)]);
    bench.reported().await;
    for _ in 0..2 {
        assert_eq!(bench.step().await, StepOutcome::Delayed { binding: 0 });
        let report = &bench.monitor.bindings()[0];
        assert_eq!((report.state, report.delayed, report.pending, report.unacknowledged), (TriggerState::Delayed, true, Some(3), Some(1)));
        assert!(report.next_attempt_at.is_some());
    }
    assert_eq!(bench.count(b"MSG.NEXT"), 1);
    bench.half.clock.skip(200);
    assert_eq!(bench.reported().await.handed.map(|handed| handed.delivery), Some(2));
    assert_eq!(bench.monitor.bindings()[0].next_attempt_at, None);
}

/// X-025: stages that are slow each for themselves share the one deadline, and nothing is pulled that could not run.
#[tokio::test(start_paused = true)]
async fn what_comes_too_late_for_a_run_is_not_pulled() {
    let _standing = StandingTime::hold();
    let script =
        [Step::ServeUntil(super::bench::INSPECTION.to_vec()), Step::Gate, Step::reply_message(super::bench::info(1, 0)), Step::Hold];
    let mut bench = Bench::start(vec![open_then(script)]);
    let late = async {
        bench.peer.until_received(0, super::bench::INSPECTION).await;
        // Of the second, a tenth is kept for settling.
        advance(900).await;
        bench.peer.open_gate();
    };
    let (step, ()) = tokio::join!(bench.triggers.step(&bench.half.manager), late);
    assert!(matches!(step, StepOutcome::Reported(step) if step.end == StepEnd::Failed(crate::triggers::StepFault::DeadlineExceeded)));
    assert_eq!(bench.count(b"MSG.NEXT"), 0);
}
