use latent_core::TrapCode;

use super::*;
use crate::delivery::DeliveryPolicy;

const NOW: MonoTime = MonoTime::ZERO;

fn options(deliveries_max: u32) -> CycleOptions {
    let policy = DeliveryPolicy { deliveries_max, retry_delay_millis: 100, ..DeliveryPolicy::default() };
    CycleOptions { policy, intake: Intake::LookAhead, window_max: 8 }
}

fn trap() -> ActivationOutcome {
    ActivationOutcome::Trap { code: TrapCode::Unreachable, detail: String::new() }
}

fn event(offset: u64, key: u64) -> Head {
    Head { offset: Offset(offset), content: HeadContent::Event(KeyId(key)) }
}

/// Of a log in which nothing has expired.
fn listing(heads: impl IntoIterator<Item = Head>) -> Listing {
    Listing { heads: heads.into_iter().collect(), first: Offset(0) }
}

/// A cycle whose events, all of one key, are listed, and whose first one runs.
fn running(deliveries_max: u32, events: u64) -> Cycle {
    let mut cycle = Cycle::new(options(deliveries_max), Remembered::default(), Offset(events));
    assert!(matches!(cycle.poll(NOW), Some(Command::Pull { from: Offset(0), .. })));
    let heads = (0..events).map(|offset| event(offset, 1));
    cycle.handle_pulled(NOW, Ok(listing(heads)));
    assert_eq!(cycle.permits_missing(), 1);
    cycle.grant();
    assert_eq!(cycle.poll(NOW), Some(Command::Begin { offset: Offset(0), attempt: 1 }));
    cycle.handle_begun(NOW, Offset(0), Ok(()));
    cycle
}

#[test]
fn what_never_started_is_no_attempt_and_waits_for_the_first_delay() {
    let mut cycle = running(1, 2);
    cycle.handle_not_started(NOW, Offset(0));
    assert_eq!(cycle.poll(NOW), Some(Command::Postpone { offset: Offset(0), attempts: 0, delay_millis: 100 }));
    assert_eq!((cycle.poll(NOW), cycle.next_deadline()), (None, Some(MonoTime::from_millis(100))));
    cycle.grant();
    let later = MonoTime::from_millis(100);
    assert_eq!(cycle.poll(later), Some(Command::Begin { offset: Offset(0), attempt: 1 }));
}

#[test]
fn an_activation_cancelled_by_stopping_is_un_noted_and_left_to_the_next_process() {
    let mut cycle = running(1, 2);
    cycle.stop();
    cycle.handle_finished(NOW, Offset(0), &ActivationOutcome::Cancelled);
    assert_eq!(cycle.poll(NOW), Some(Command::Postpone { offset: Offset(0), attempts: 0, delay_millis: 0 }));
    assert_eq!((cycle.poll(NOW), cycle.next_deadline()), (None, None));
    assert!(cycle.is_quiet());
    assert_eq!(cycle.snapshot().state, CycleState::Stopped);
}

#[test]
fn a_cancellation_that_is_not_a_stop_is_an_attempt() {
    let mut cycle = running(1, 1);
    cycle.handle_finished(NOW, Offset(0), &ActivationOutcome::Cancelled);
    let settlement = Settlement::Terminated(TerminationReason::Exhausted);
    assert_eq!(cycle.poll(NOW), Some(Command::Settle { offset: Offset(0), settlement }));
}

#[test]
fn a_key_moves_on_only_when_its_settlement_is_durable() {
    let mut cycle = running(5, 2);
    cycle.handle_finished(NOW, Offset(0), &ActivationOutcome::Success);
    assert_eq!(cycle.poll(NOW), Some(Command::Settle { offset: Offset(0), settlement: Settlement::Acknowledged }));
    assert_eq!(cycle.permits_missing(), 0);
    cycle.handle_settled(NOW, Offset(0), Err(SourceError::Unavailable { reason: String::new() }));
    assert_eq!((cycle.poll(NOW), cycle.permits_missing(), cycle.snapshot().state), (None, 0, CycleState::Stalled));
    let later = cycle.next_deadline().unwrap();
    assert_eq!(cycle.poll(later), Some(Command::Settle { offset: Offset(0), settlement: Settlement::Acknowledged }));
    cycle.handle_settled(later, Offset(0), Ok(()));
    assert_eq!(cycle.permits_missing(), 1);
}

#[test]
fn a_retried_event_holds_back_its_key_and_says_when_it_is_due() {
    let mut cycle = running(5, 2);
    cycle.handle_finished(NOW, Offset(0), &trap());
    assert_eq!(cycle.poll(NOW), Some(Command::Postpone { offset: Offset(0), attempts: 1, delay_millis: 100 }));
    assert_eq!((cycle.permits_missing(), cycle.next_attempt_of(Offset(0))), (0, Some(MonoTime::from_millis(100))));
    let snapshot = cycle.snapshot();
    assert_eq!((snapshot.state, snapshot.delayed, snapshot.pending), (CycleState::Delayed, 1, 2));
}

#[test]
fn a_short_answer_says_nothing_about_what_came_after_the_question() {
    let mut cycle = Cycle::new(options(1), Remembered::default(), Offset(1));
    assert!(matches!(cycle.poll(NOW), Some(Command::Pull { from: Offset(0), .. })));
    cycle.handle_available(Offset(3));
    cycle.handle_pulled(NOW, Ok(listing([event(0, 1)])));
    assert!(matches!(cycle.poll(NOW), Some(Command::Pull { from: Offset(1), .. })));
}

#[test]
fn much_settled_behind_the_first_unsettled_event_does_not_keep_it_from_being_listed() {
    let mut settled = SettledSet::default();
    settled.insert_range(Offset(1), Offset(3_000));
    let mut cycle = Cycle::new(options(1), Remembered { settled, attempts: Vec::new() }, Offset(3_000));
    assert_eq!(cycle.poll(NOW), Some(Command::Pull { from: Offset(0), heads_max: 8 }));
    cycle.handle_pulled(NOW, Ok(listing((0..8).map(|offset| event(offset, 1)))));
    cycle.grant();
    assert_eq!(cycle.poll(NOW), Some(Command::Begin { offset: Offset(0), attempt: 1 }));
    cycle.handle_begun(NOW, Offset(0), Ok(()));
    cycle.handle_finished(NOW, Offset(0), &ActivationOutcome::Success);
    assert!(matches!(cycle.poll(NOW), Some(Command::Settle { .. })));
    cycle.handle_settled(NOW, Offset(0), Ok(()));
    assert_eq!((cycle.poll(NOW), cycle.snapshot().state, cycle.snapshot().pending), (None, CycleState::Idle, 0));
}

#[test]
fn offsets_that_do_not_exist_take_no_room_and_hold_up_nothing() {
    let mut cycle = Cycle::new(options(1), Remembered::default(), Offset(100));
    assert!(matches!(cycle.poll(NOW), Some(Command::Pull { .. })));
    cycle.handle_pulled(NOW, Ok(listing([40, 70].map(|offset| event(offset, offset)))));
    for offset in [40, 70] {
        cycle.grant();
        assert_eq!(cycle.poll(NOW), Some(Command::Begin { offset: Offset(offset), attempt: 1 }));
        cycle.handle_begun(NOW, Offset(offset), Ok(()));
        cycle.handle_finished(NOW, Offset(offset), &ActivationOutcome::Success);
        assert!(matches!(cycle.poll(NOW), Some(Command::Settle { .. })));
        cycle.handle_settled(NOW, Offset(offset), Ok(()));
    }
    assert_eq!((cycle.snapshot().state, cycle.snapshot().pending), (CycleState::Idle, 0));
}

/// The first pull of a cycle with this window over many events.
fn first_pull(window_max: u32) -> u32 {
    let options = CycleOptions { window_max, ..options(1) };
    match Cycle::new(options, Remembered::default(), Offset(10_000)).poll(NOW) {
        Some(Command::Pull { heads_max, .. }) => heads_max,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pull_asks_for_at_most_heads_per_pull() {
    let edge = u32::try_from(limits::HEADS_PER_PULL.default).unwrap();
    assert_eq!([edge - 1, edge, edge + 1, u32::MAX].map(first_pull), [edge - 1, edge, edge, edge]);
}

#[test]
fn no_event_beyond_the_delivery_window_is_listed_until_the_first_is_settled() {
    let window = limits::WINDOW.default;
    let options = CycleOptions { window_max: u32::try_from(window).unwrap(), ..options(1) };
    let mut cycle = Cycle::new(options, Remembered::default(), Offset(window + 1));
    while let Some(Command::Pull { from, heads_max }) = cycle.poll(NOW) {
        let heads = (from.0..from.0 + u64::from(heads_max)).map(|offset| event(offset, 0));
        cycle.handle_pulled(NOW, Ok(listing(heads)));
    }
    // The first event is ready, so the binding is busy; the event after the window is not listed.
    assert_eq!(cycle.snapshot().pending, window + 1);
    cycle.grant();
    assert_eq!(cycle.poll(NOW), Some(Command::Begin { offset: Offset(0), attempt: 1 }));
    cycle.handle_begun(NOW, Offset(0), Ok(()));
    assert_eq!((cycle.poll(NOW), cycle.snapshot().state), (None, CycleState::Saturated));
    cycle.handle_finished(NOW, Offset(0), &ActivationOutcome::Success);
    assert!(matches!(cycle.poll(NOW), Some(Command::Settle { .. })));
    cycle.handle_settled(NOW, Offset(0), Ok(()));
    assert_eq!(cycle.poll(NOW), Some(Command::Pull { from: Offset(window), heads_max: 1 }));
}

#[test]
fn waits_for_a_silent_source_double_up_to_the_longest_and_begin_anew_after_an_answer() {
    let mut cycle = Cycle::new(options(1), Remembered::default(), Offset(1));
    let mut now = NOW;
    let mut waits = Vec::new();
    for _ in 0..11 {
        assert!(matches!(cycle.poll(now), Some(Command::Pull { .. })));
        cycle.handle_pulled(now, Err(SourceError::Unavailable { reason: String::new() }));
        let at = cycle.next_deadline().unwrap();
        assert_eq!(cycle.poll(MonoTime::from_micros(at.as_micros() - 1)), None);
        waits.push(at.since(now).as_millis());
        now = at;
    }
    assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
    assert!(cycle.poll(now).is_some());
    cycle.handle_pulled(now, Ok(Listing::default()));
    cycle.handle_available(Offset(2));
    assert!(cycle.poll(now).is_some());
    cycle.handle_pulled(now, Err(SourceError::Unavailable { reason: String::new() }));
    assert_eq!(cycle.next_deadline(), Some(now.plus_millis(limits::SOURCE_BACKOFF_MILLIS.default)));
}

#[test]
fn a_position_below_the_first_event_goes_on_there_and_what_was_not_settled_is_counted() {
    let mut settled = SettledSet::up_to(Offset(2));
    settled.insert(Offset(5));
    let mut cycle = Cycle::new(options(1), Remembered { settled, attempts: vec![(Offset(3), 1, NOW)] }, Offset(12));
    assert!(matches!(cycle.poll(NOW), Some(Command::Pull { from: Offset(2), .. })));
    cycle.handle_pulled(NOW, Ok(Listing { heads: vec![event(10, 1), event(11, 1)], first: Offset(10) }));
    let snapshot = cycle.snapshot();
    assert_eq!((snapshot.expired_unread, snapshot.pending, snapshot.state), (7, 2, CycleState::Busy));
    cycle.grant();
    assert_eq!(cycle.poll(NOW), Some(Command::Begin { offset: Offset(10), attempt: 1 }));
}

#[test]
fn a_partition_that_was_emptied_has_nothing_pending() {
    let mut cycle = Cycle::new(options(1), Remembered::default(), Offset(9));
    assert!(matches!(cycle.poll(NOW), Some(Command::Pull { .. })));
    cycle.handle_pulled(NOW, Ok(Listing { heads: Vec::new(), first: Offset(9) }));
    let snapshot = cycle.snapshot();
    assert_eq!((snapshot.expired_unread, snapshot.pending, snapshot.state), (9, 0, CycleState::Idle));
    cycle.handle_available(Offset(10));
    assert!(matches!(cycle.poll(NOW), Some(Command::Pull { from: Offset(9), .. })));
}

#[test]
fn an_event_that_expires_before_it_begins_takes_every_expired_one_with_it_and_settles_none() {
    let mut cycle = Cycle::new(options(5), Remembered::default(), Offset(5));
    assert!(matches!(cycle.poll(NOW), Some(Command::Pull { .. })));
    cycle.handle_pulled(NOW, Ok(listing([event(0, 1), event(1, 2), event(2, 1), event(3, 1), event(4, 2)])));
    cycle.grant();
    assert_eq!(cycle.poll(NOW), Some(Command::Begin { offset: Offset(0), attempt: 1 }));
    cycle.handle_begun(NOW, Offset(0), Err(SourceError::Expired { first: Offset(3) }));
    let snapshot = cycle.snapshot();
    assert_eq!((snapshot.expired_unread, snapshot.pending, snapshot.unacknowledged), (3, 2, 0));
    assert_eq!((cycle.poll(NOW), cycle.permits_missing()), (None, 2));
    for offset in [3, 4] {
        cycle.grant();
        assert_eq!(cycle.poll(NOW), Some(Command::Begin { offset: Offset(offset), attempt: 1 }));
    }
}

#[test]
fn an_event_that_expires_while_it_runs_is_settled_by_its_success_and_not_tried_again_after_a_failure() {
    for (outcome, expired_unread) in [(ActivationOutcome::Success, 1), (trap(), 2)] {
        let mut cycle = running(5, 3);
        cycle.handle_available(Offset(4));
        assert!(matches!(cycle.poll(NOW), Some(Command::Pull { from: Offset(3), .. })));
        cycle.handle_pulled(NOW, Ok(Listing { heads: vec![event(3, 1)], first: Offset(2) }));
        assert_eq!(cycle.snapshot().expired_unread, 1, "the one that waits behind the running one");
        cycle.handle_finished(NOW, Offset(0), &outcome);
        if outcome == ActivationOutcome::Success {
            assert_eq!(cycle.poll(NOW), Some(Command::Settle { offset: Offset(0), settlement: Settlement::Acknowledged }));
            cycle.handle_settled(NOW, Offset(0), Ok(()));
        }
        assert_eq!((cycle.poll(NOW), cycle.has(Offset(0)), cycle.snapshot().expired_unread), (None, false, expired_unread));
        cycle.grant();
        assert_eq!(cycle.poll(NOW), Some(Command::Begin { offset: Offset(2), attempt: 1 }), "the key goes on");
    }
}

#[test]
fn a_delayed_event_that_expires_leaves_no_timer_behind() {
    let mut cycle = running(5, 1);
    cycle.handle_finished(NOW, Offset(0), &trap());
    assert!(matches!(cycle.poll(NOW), Some(Command::Postpone { .. })) && cycle.next_deadline().is_some());
    cycle.handle_available(Offset(2));
    assert!(matches!(cycle.poll(NOW), Some(Command::Pull { from: Offset(1), .. })));
    cycle.handle_pulled(NOW, Ok(Listing { heads: vec![event(1, 1)], first: Offset(1) }));
    assert_eq!((cycle.next_deadline(), cycle.permits_missing(), cycle.snapshot().delayed), (None, 1, 0));
}
