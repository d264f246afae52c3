use latent_core::{BudgetKind, TrapCode};

use super::*;

const POLICY: VisitPolicy = VisitPolicy {
    deliveries_max: 3,
    source_deliveries_max: 3,
    parks: false,
    retry_delay_millis: 700,
    retry_delay_max_millis: 10_000,
    operation_timeout_millis: 1_000,
};
const PARKING: VisitPolicy = VisitPolicy { source_deliveries_max: 5, parks: true, ..POLICY };
const BUSY: Backlog = Backlog { pending: 1, unacknowledged: 0, delivered_up_to: 4, deliveries: 4, settled_up_to: 4 };

fn at(millis: u64) -> MonoTime {
    MonoTime::from_millis(millis)
}

fn begun() -> Visit {
    Visit::begin(POLICY, Deadline::after(at(0), 1_000), Known::default())
}

fn handed(delivery: u64) -> Handed {
    Handed { sequence: 5, delivery }
}

fn running(delivery: u64) -> Visit {
    let mut visit = begun();
    visit.inspected(at(0), Some(BUSY));
    visit.pulled(Ok(Some(handed(delivery))));
    visit
}

/// T-043 to T-047: the closed table, on each delivery.
#[test]
fn every_outcome_has_its_settlement_on_every_delivery() {
    let reason = String::new;
    let retry = VisitSettlement::RetryAfter { millis: 700 };
    let (never, exhausted) =
        (VisitSettlement::Terminate(TerminationReason::Rejected), VisitSettlement::Terminate(TerminationReason::Exhausted));
    let table = [
        (ActivationOutcome::Success, VisitSettlement::Acknowledge, VisitSettlement::Acknowledge),
        (ActivationOutcome::DeclaredFailure, never, never),
        (ActivationOutcome::Rejected { reason: reason() }, never, never),
        (ActivationOutcome::InvalidArguments { reason: reason() }, never, never),
        (ActivationOutcome::IncompatibleContract { reason: reason() }, never, never),
        (ActivationOutcome::PermissionRefused { reason: reason() }, never, never),
        (ActivationOutcome::Timeout, retry, exhausted),
        (ActivationOutcome::Cancelled, retry, exhausted),
        (ActivationOutcome::Trap { code: TrapCode::Unreachable, detail: reason() }, retry, exhausted),
        (ActivationOutcome::BudgetExhausted(BudgetKind::Memory), retry, exhausted),
        (ActivationOutcome::HostFailure { reason: reason() }, retry, exhausted),
        (ActivationOutcome::RetryRequested { reason: reason(), delay_millis: None }, retry, exhausted),
    ];
    for (outcome, early, last) in &table {
        for delivery in 1..=3 {
            let mut visit = running(delivery);
            visit.finished(at(10), outcome);
            let expected = if delivery == 3 { last } else { early };
            assert_eq!(visit.next(), VisitNext::Settle(*expected), "{} on delivery {delivery}", outcome.kind());
        }
    }
}

#[test]
fn a_wished_delay_stays_within_the_binding_s_bounds() {
    for (wish, millis) in [(0, 700), (701, 701), (u64::MAX, 10_000)] {
        let mut visit = running(1);
        visit.finished(at(10), &ActivationOutcome::RetryRequested { reason: String::new(), delay_millis: Some(wish) });
        assert_eq!(visit.next(), VisitNext::Settle(VisitSettlement::RetryAfter { millis }));
    }
}

/// T-062, D-26: what has nothing, or only what was put off, is not pulled from.
#[test]
fn the_inspection_decides_whether_anything_is_pulled() {
    let off = PutOff { sequence: 4, until: at(500) };
    let delayed = Backlog { pending: 3, unacknowledged: 1, delivered_up_to: 4, deliveries: 4, settled_up_to: 3 };
    let table = [
        (None, Some(off), at(0), VisitNext::End(VisitEnd::Failed)),
        (Some(Backlog { pending: 0, ..BUSY }), None, at(0), VisitNext::End(VisitEnd::Idle)),
        (Some(BUSY), None, at(0), VisitNext::Pull),
        (Some(BUSY), Some(off), at(0), VisitNext::Pull),
        (Some(Backlog { pending: 0, ..delayed }), None, at(0), VisitNext::Pull),
        (Some(delayed), Some(off), at(499), VisitNext::End(VisitEnd::Delayed)),
        (Some(delayed), Some(off), at(500), VisitNext::Pull),
        // Somebody else has got on with it.
        (Some(Backlog { delivered_up_to: 5, ..delayed }), Some(off), at(0), VisitNext::Pull),
        (Some(BUSY), None, at(899), VisitNext::Pull),
        (Some(BUSY), None, at(900), VisitNext::End(VisitEnd::TooLate)),
    ];
    for (backlog, put_off, now, expected) in table {
        let mut visit = Visit::begin(POLICY, Deadline::after(at(0), 1_000), Known { put_off, condemned: None });
        visit.inspected(now, backlog);
        assert_eq!(visit.next(), expected, "{backlog:?} {put_off:?} {now:?}");
    }
}

/// T-052.
#[test]
fn a_floor_that_stays_behind_with_nothing_pending_is_stranded() {
    let told = |unacknowledged, delivered_up_to, settled_up_to| {
        Backlog { pending: 0, unacknowledged, delivered_up_to, deliveries: delivered_up_to, settled_up_to }.is_stranded()
    };
    assert!(told(0, 5, 4) && !told(1, 5, 4) && !told(0, 5, 5) && !told(0, 0, 0));
    let passed_over = |unacknowledged, sequence| {
        let backlog = Backlog { pending: 2, unacknowledged, delivered_up_to: 5, deliveries: 5, settled_up_to: 4 };
        backlog.is_passed_over_by(Handed { sequence, delivery: 1 })
    };
    assert!(passed_over(1, 6) && passed_over(1, 9) && !passed_over(1, 5) && !passed_over(1, 4) && !passed_over(0, 6));
}

/// T-052: what another node may still settle is not given up, and each delivery of it is its own.
#[test]
fn an_unsettled_event_is_over_once_nobody_can_settle_its_last_delivery() {
    let backlog = |unacknowledged, deliveries| Backlog { unacknowledged, deliveries, delivered_up_to: 5, ..Backlog::default() };
    let first = Waiting::after(None, &backlog(1, 7), at(1_000)).unwrap();
    let same = Waiting::after(Some(first), &backlog(1, 7), at(3_000)).unwrap();
    assert_eq!((same, same.is_over(5_000, at(5_999)), same.is_over(5_000, at(6_000))), (first, false, true));
    let again = Waiting::after(Some(same), &backlog(1, 8), at(4_000)).unwrap();
    assert!(!again.is_over(5_000, at(8_999)) && again.is_over(5_000, at(9_000)));
    assert_eq!(Waiting::after(Some(again), &backlog(0, 8), at(9_000)), None);
}

/// D-12.
#[test]
fn a_delivery_beyond_the_last_is_neither_run_nor_settled() {
    let (three, four) = (running(3), running(4));
    assert!(matches!(three.next(), VisitNext::Run { .. }));
    assert_eq!(four.next(), VisitNext::End(VisitEnd::OutOfRange(handed(4))));
}

/// T-063, T-026.
#[test]
fn the_function_gets_the_deadline_less_the_margin_and_what_ends_later_is_left() {
    let mut visit = running(1);
    assert_eq!(visit.next(), VisitNext::Run { until: Deadline::after(at(0), 900) });
    visit.finished(at(999), &ActivationOutcome::Timeout);
    assert_eq!(visit.next(), VisitNext::Settle(VisitSettlement::RetryAfter { millis: 700 }));
    let mut visit = running(1);
    visit.finished(at(1_000), &ActivationOutcome::Success);
    assert_eq!(visit.next(), VisitNext::End(VisitEnd::Unsettled { handed: handed(1), why: Unsettled::TimeSpent }));
}

fn handed_out(policy: VisitPolicy, delivery: u64, condemned: Option<Condemned>) -> Visit {
    let mut visit = Visit::begin(policy, Deadline::after(at(0), 1_000), Known { put_off: None, condemned });
    visit.inspected(at(0), Some(BUSY));
    visit.pulled(Ok(Some(handed(delivery))));
    visit
}

/// D-22, D-12: what never runs again is parked first, and terminated only when it is there.
#[test]
fn what_never_runs_again_is_parked_before_it_is_terminated() {
    let exhausted = TerminationReason::Exhausted;
    let mut visit = handed_out(PARKING, 3, None);
    visit.finished(at(10), &ActivationOutcome::Timeout);
    assert_eq!(visit.next(), VisitNext::Park(exhausted));
    visit.parked(at(20), true);
    assert_eq!(visit.next(), VisitNext::Settle(VisitSettlement::Terminate(exhausted)));
    for (now, is_there) in [(20, false), (1_000, true)] {
        let mut visit = handed_out(PARKING, 3, None);
        visit.finished(at(10), &ActivationOutcome::DeclaredFailure);
        visit.parked(at(now), is_there);
        let why = Unsettled::NotParked(TerminationReason::Rejected);
        assert_eq!(visit.next(), VisitNext::End(VisitEnd::Unsettled { handed: handed(3), why }));
    }
    // It comes again: as many runs as it may have, or the verdict of this process, and it is only parked.
    assert_eq!(handed_out(PARKING, 4, None).next(), VisitNext::Park(exhausted));
    let condemned = |sequence| Some(Condemned { sequence, reason: TerminationReason::Rejected });
    assert_eq!(handed_out(PARKING, 2, condemned(5)).next(), VisitNext::Park(TerminationReason::Rejected));
    assert!(matches!(handed_out(PARKING, 2, condemned(4)).next(), VisitNext::Run { .. }));
    assert_eq!(handed_out(PARKING, 6, None).next(), VisitNext::End(VisitEnd::OutOfRange(handed(6))));
    let mut visit = handed_out(PARKING, 1, None);
    visit.undecodable();
    assert_eq!(visit.next(), VisitNext::Park(TerminationReason::Undecodable));
    visit.stop();
    let why = Unsettled::NotParked(TerminationReason::Undecodable);
    assert_eq!(visit.next(), VisitNext::End(VisitEnd::Unsettled { handed: handed(1), why }));
}

/// What a shell may do to a visit, in any order.
#[derive(Debug, Clone, Copy)]
enum Act {
    Inspected(bool),
    Idle,
    Pulled(Option<u64>),
    PullFailed,
    Succeeded,
    Trapped,
    Late,
    Settled(Confirmation),
    Withhold,
    Stop,
    Parked(bool),
    Undecodable,
}

const ACTS: [Act; 17] = [
    Act::Parked(true),
    Act::Parked(false),
    Act::Undecodable,
    Act::Inspected(true),
    Act::Inspected(false),
    Act::Idle,
    Act::Pulled(Some(1)),
    Act::Pulled(Some(3)),
    Act::Pulled(Some(4)),
    Act::Pulled(None),
    Act::PullFailed,
    Act::Succeeded,
    Act::Trapped,
    Act::Late,
    Act::Settled(Confirmation::Confirmed),
    Act::Withhold,
    Act::Stop,
];

fn act(visit: &mut Visit, act: Act) {
    match act {
        Act::Inspected(answered) => visit.inspected(at(1), answered.then_some(BUSY)),
        Act::Idle => visit.inspected(at(1), Some(Backlog::default())),
        Act::Pulled(delivery) => visit.pulled(Ok(delivery.map(handed))),
        Act::PullFailed => visit.pulled(Err(())),
        Act::Succeeded => visit.finished(at(2), &ActivationOutcome::Success),
        Act::Trapped => visit.finished(at(2), &ActivationOutcome::Timeout),
        Act::Late => visit.finished(at(5_000), &ActivationOutcome::Success),
        Act::Settled(confirmation) => visit.settled(confirmation),
        Act::Withhold => visit.withhold(Unsettled::CredentialChanged),
        Act::Stop => visit.stop(),
        Act::Parked(is_there) => visit.parked(at(3), is_there),
        Act::Undecodable => visit.undecodable(),
    }
}

/// Every sequence of six acts, also of those that make no sense: the order of the operations holds, an end is an end, and only a success
/// in time is acknowledged.
#[test]
fn no_order_of_answers_breaks_the_rules() {
    fn explore(visit: Visit, succeeded: bool, parked: bool, depth: u32, ends: &mut u64) {
        if let VisitNext::End(end) = visit.next() {
            *ends += 1;
            if let VisitEnd::Settled { settlement, .. } = end {
                assert!(settlement != VisitSettlement::Acknowledge || succeeded);
                assert!(!matches!(settlement, VisitSettlement::Terminate(_)) || parked);
            }
        }
        if depth == 0 {
            return;
        }
        for what in ACTS.into_iter().chain([Act::Settled(Confirmation::Uncertain), Act::Settled(Confirmation::NotSent)]) {
            let mut after = visit;
            act(&mut after, what);
            let rank = |next| match next {
                VisitNext::Inspect => 0,
                VisitNext::Pull => 1,
                VisitNext::Run { .. } => 2,
                VisitNext::Park(_) => 3,
                VisitNext::Settle(_) => 4,
                VisitNext::End(_) => 5,
            };
            let (from, to) = (rank(visit.next()), rank(after.next()));
            let skips = matches!((from, to), (2, 4) | (1, 3));
            assert!(to == from || to == 5 || to == from + 1 || skips, "{:?} after {what:?}", after.next());
            if let VisitNext::End(_) = visit.next() {
                assert_eq!(after.next(), visit.next(), "{what:?}");
            }
            let ran = from == 2 && matches!(what, Act::Succeeded);
            let is_parked = from == 3 && matches!(what, Act::Parked(true));
            explore(after, succeeded || ran, parked || is_parked, depth - 1, ends);
        }
    }
    let mut ends = 0;
    explore(Visit::begin(PARKING, Deadline::after(at(0), 1_000), Known::default()), false, false, 5, &mut ends);
    assert!(ends > 50_000, "{ends}");
}
