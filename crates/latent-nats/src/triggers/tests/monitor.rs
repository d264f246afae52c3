//! What can be seen: counters that stop, the last step that says something, and the state of a binding (X-039, X-040, T-021).

use latent_core::{BindingId, Epoch, MonoTime, RouteGeneration, UnixMillis, Verdict};
use latent_node::delivery::{Backlog, Condemned, Confirmation, Handed, PutOff, TerminationReason, Unsettled, VisitSettlement};
use latent_testkit::fake_peer::Step;

use super::bench::{Bench, inspected, message, open_then, pulled, settled, status};
use crate::triggers::board::{Board, Sentence};
use crate::triggers::{LastStep, StepEnd, StepFault, StepOutcome, TriggerState};

const NOW: MonoTime = MonoTime::from_millis(1);

fn step(end: StepEnd) -> LastStep {
    LastStep { epoch: Epoch(3), binding: 0, handed: Some(Handed { sequence: 7, delivery: 2 }), generation: Some(RouteGeneration(5)), end }
}

/// X-040: a failure stays readable through any number of empty polls, and so does what ended well.
#[tokio::test]
async fn a_hundred_empty_polls_leave_the_last_report_in_place() {
    let mut script = vec![inspected(1), pulled(&message(r#"["trap"]"#)), settled(r#"-NAK {"delay":200000000}"#)];
    // What the broker says while the message waits for its delay is not asked for: nothing is put off for this sequence.
    for _ in 0..50 {
        script.extend([inspected(0), inspected(1), pulled(&status("404 No Messages"))]);
    }
    let mut bench = Bench::start(vec![open_then(script.into_iter().flatten().chain([Step::Hold]))]);
    let first = bench.reported().await;
    let settlement = VisitSettlement::RetryAfter { millis: 200 };
    assert_eq!(first.end, StepEnd::Settled { settlement, confirmation: Confirmation::Confirmed });
    assert_eq!((first.epoch, first.binding, first.handed), (Epoch(1), 0, Some(Handed { sequence: 7, delivery: 1 })));
    assert_eq!(first.generation, Some(RouteGeneration(1)));
    for _ in 0..50 {
        assert_eq!(bench.step().await, StepOutcome::Idle { binding: 0 });
        assert_eq!(bench.step().await, StepOutcome::Empty { binding: 0 });
    }
    assert_eq!(bench.monitor.last_step(), Some(first));
    let snapshot = bench.monitor.snapshot();
    assert_eq!((snapshot.visits, snapshot.inspections, snapshot.pulls, snapshot.delivered), (101, 101, 51, 1));
    assert_eq!((snapshot.activations, snapshot.delayed, snapshot.failed, snapshot.connected), (1, 1, 0, 1));
    let report = &bench.monitor.bindings()[0];
    assert_eq!((report.id.as_str(), report.last_outcome, report.last_delivery_at.is_some()), ("a", Some("host-failure"), true));
}

/// X-040: nothing of a message, of the broker or of a secret.
#[tokio::test]
async fn what_is_shown_has_no_text_of_anybody_else() {
    let script = vec![inspected(1), pulled(&message(r#"["marker"]"#)), settled(r#"-NAK {"delay":200000000}"#), inspected(1)];
    let script =
        script.into_iter().flatten().chain([Step::ServeUntil(super::bench::PULL.to_vec()), Step::send("-ERR 'marker'\r\n"), Step::Hold]);
    let mut bench = Bench::start(vec![open_then(script)]);
    bench.reported().await;
    assert!(matches!(bench.fault().await, StepFault::Protocol(_)));
    let shown = format!("{:?} {:?} {:?} {:?}", bench.monitor, bench.monitor.last_step(), bench.monitor.bindings(), bench.triggers);
    for secret in ["marker", "quoted", "MSG", "-ERR"] {
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
}

/// T-021: each state, by what is known.
#[tokio::test]
async fn a_binding_is_idle_busy_saturated_delayed_stalled_stranded_or_stopped() {
    let board = Board::new(Epoch(3), 1, 1);
    let state = || board.states()[0];
    let backlog = |pending, unacknowledged, delivered_up_to, settled_up_to| {
        let deliveries = delivered_up_to;
        Backlog { pending, unacknowledged, delivered_up_to, deliveries, settled_up_to }
    };
    assert_eq!(state(), TriggerState::Stopped);
    board.driven();
    assert_eq!(state(), TriggerState::Idle);
    assert!(!board.inspected(0, backlog(4, 0, 0, 0), NOW));
    assert_eq!(state(), TriggerState::Busy);
    board.handed(0, UnixMillis(9));
    board.failed(step(StepEnd::Failed(StepFault::Overloaded)), StepFault::Overloaded, "full");
    assert_eq!(state(), TriggerState::Saturated);
    board.failed(step(StepEnd::Failed(StepFault::Unreachable)), StepFault::Unreachable, "gone");
    assert_eq!(state(), TriggerState::Stalled);
    // The wait does not hide what is waited for.
    board.failed(step(StepEnd::Failed(StepFault::Backoff)), StepFault::Backoff, "waits");
    assert_eq!(board.problem(0).unwrap().0, StepFault::Unreachable);
    let delayed = StepEnd::Settled { settlement: VisitSettlement::RetryAfter { millis: 5 }, confirmation: Confirmation::Confirmed };
    let off = PutOff { sequence: 7, until: MonoTime::from_millis(5) };
    board.settled(step(delayed), Some((off, UnixMillis(14))));
    assert_eq!((state(), board.begin(0).put_off), (TriggerState::Delayed, Some(off)));
    board.inspected(0, backlog(0, 1, 7, 6), NOW);
    board.quiet(0, false);
    assert_eq!((state(), board.begin(0).put_off), (TriggerState::Busy, None));
    // A message that the broker gave up is told once, and once more for the next one.
    for (at, is_news) in [(7, true), (7, false), (9, true), (9, false)] {
        assert_eq!(board.inspected(0, backlog(0, 0, at, 6), NOW), is_news, "{at}");
        assert_eq!(state(), TriggerState::Stranded);
    }
    assert_eq!(board.counts().stranded, 2);
    board.inspected(0, backlog(0, 0, 9, 9), NOW);
    assert_eq!(state(), TriggerState::Idle);
    board.handed(0, UnixMillis(9));
    assert_eq!(state(), TriggerState::Busy);
    // A driver that is dropped leaves nothing that seems to run.
    board.undriven();
    assert_eq!(state(), TriggerState::Stopped);
    assert!(BindingId::parse("a").is_ok());
}

/// T-052: with nodes that share a consumer, the message in whose place another comes was settled by one of them, unless nobody could
/// settle it any more when the broker was asked.
#[tokio::test]
async fn what_another_node_may_have_settled_is_not_told_as_given_up() {
    let board = Board::new(Epoch(3), 1, 1);
    let next = Handed { sequence: 8, delivery: 1 };
    let at = MonoTime::from_millis;
    let unsettled = |deliveries| Backlog { pending: 1, unacknowledged: 1, delivered_up_to: 7, deliveries, settled_up_to: 6 };
    board.inspected(0, unsettled(7), at(100));
    assert_eq!(board.passed_over(0, next, 1_000, at(1_099)), None);
    // Each delivery has its time.
    board.inspected(0, unsettled(8), at(1_200));
    assert_eq!(board.passed_over(0, next, 1_000, at(2_199)), None);
    board.inspected(0, unsettled(8), at(2_201));
    assert_eq!(board.passed_over(0, Handed { sequence: 7, delivery: 2 }, 1_000, at(2_200)), None, "it came again");
    assert_eq!(board.passed_over(0, next, 1_000, at(2_200)), Some(7));
    assert_eq!(board.passed_over(0, next, 1_000, at(2_200)), None, "told once");
    assert_eq!(board.counts().stranded, 1);
}

/// D-22: a message that cannot be put into its dead-letter topic is told while it is there, with why.
#[tokio::test]
async fn a_dead_letter_that_cannot_be_kept_is_told() {
    let board = Board::new(Epoch(3), 1, 1);
    board.driven();
    assert!(board.troubled(0, StepFault::NotParked, "the topic is full"));
    assert!(!board.troubled(0, StepFault::NotParked, "the topic is full"), "told once");
    board.settled(step(StepEnd::Unsettled(Unsettled::NotParked(TerminationReason::Rejected))), None);
    board.inspected(0, Backlog { pending: 0, unacknowledged: 1, delivered_up_to: 7, deliveries: 7, settled_up_to: 6 }, NOW);
    board.quiet(0, false);
    let (fault, why) = board.problem(0).unwrap();
    assert_eq!((board.states()[0], fault.kind(), &*why), (TriggerState::Stalled, "not-parked", "the topic is full"));
    let ended =
        StepEnd::Settled { settlement: VisitSettlement::Terminate(TerminationReason::Rejected), confirmation: Confirmation::Confirmed };
    assert_eq!((board.settled(step(ended), None), board.problem(0)), (Some(StepFault::NotParked), None), "what is over is told");
}

/// What keeps a tenant from dialling is told at each of its bindings, whichever of them dialled.
#[tokio::test]
async fn the_cause_of_a_wait_is_told_at_every_binding_of_the_tenant() {
    let board = Board::new(Epoch(3), 3, 2);
    assert_eq!(board.cause_of_backoff(|_| true), None);
    board.failed(step(StepEnd::Failed(StepFault::AuthenticationRefused)), StepFault::AuthenticationRefused, "not taken");
    let (fault, why) = board.cause_of_backoff(|index| index < 2).unwrap();
    assert_eq!((fault, &*why), (StepFault::AuthenticationRefused, "not taken"));
    assert_eq!(board.cause_of_backoff(|index| index == 2), None);
}

/// D-22: what is only left to be parked is one message; the one at its place in a stream that was made anew is another.
#[tokio::test]
async fn a_sentence_is_for_one_message() {
    let board = Board::new(Epoch(3), 1, 1);
    let condemned = Condemned { sequence: 7, reason: TerminationReason::Rejected };
    let verdict = Verdict::new(TerminationReason::Rejected, 1, None, "why");
    board.condemn(0, Sentence { condemned, stored_unix_nanos: 5, verdict: verdict.clone() });
    assert_eq!(board.begin(0).condemned, Some(condemned));
    assert_eq!((board.verdict(0, 7, 5), board.verdict(0, 7, 6), board.verdict(0, 8, 5)), (Some(verdict), None, None));
}

/// BUG-33: what is wrong with the message at the head stays told while the broker waits for it, and no longer.
#[tokio::test]
async fn a_fault_of_the_message_stays_told_while_it_is_there() {
    let board = Board::new(Epoch(3), 1, 1);
    board.driven();
    let oversized = StepFault::Protocol(latent_nats_proto::Evidence::OversizedReply);
    board.failed(step(StepEnd::Failed(oversized)), oversized, "too large");
    board.inspected(0, Backlog { pending: 1, unacknowledged: 1, delivered_up_to: 7, deliveries: 7, settled_up_to: 6 }, NOW);
    board.quiet(0, false);
    assert_eq!(board.states()[0], TriggerState::Stalled);
    board.inspected(0, Backlog { pending: 0, unacknowledged: 0, delivered_up_to: 7, deliveries: 7, settled_up_to: 7 }, NOW);
    board.quiet(0, false);
    assert_eq!(board.states()[0], TriggerState::Idle);
}

/// X-039, X-038: each end has its counter, and none wraps.
#[tokio::test]
async fn every_end_is_counted_and_counters_stop_at_their_largest_value() {
    let board = Board::new(Epoch(3), 1, 1);
    let settled = |settlement, confirmation| StepEnd::Settled { settlement, confirmation };
    let ends = [
        settled(VisitSettlement::Acknowledge, Confirmation::Confirmed),
        settled(VisitSettlement::RetryAfter { millis: 1 }, Confirmation::Confirmed),
        settled(VisitSettlement::Terminate(TerminationReason::Rejected), Confirmation::Confirmed),
        settled(VisitSettlement::Terminate(TerminationReason::Exhausted), Confirmation::Confirmed),
        settled(VisitSettlement::Acknowledge, Confirmation::Uncertain),
        StepEnd::Unsettled(Unsettled::Stopped),
    ];
    for end in ends {
        board.settled(step(end), None);
    }
    for fault in [StepFault::Overloaded, StepFault::StreamMissing] {
        board.failed(step(StepEnd::Failed(fault)), fault, "x");
    }
    let counts = board.counts();
    let seen = [counts.acknowledged, counts.delayed, counts.terminated, counts.exhausted, counts.uncertain, counts.unsettled];
    assert_eq!((seen, counts.refused, counts.failed), ([1; 6], 1, 1));
    let mut almost = u64::MAX - 1;
    for _ in 0..3 {
        crate::triggers::board::add(&mut almost);
    }
    assert_eq!(almost, u64::MAX);
}
