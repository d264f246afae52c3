use latent_core::{TrapCode, Verdict};

use super::*;
use crate::delivery::DeliveryPolicy;

const NOW: MonoTime = MonoTime::ZERO;

fn options(deliveries_max: u32) -> CycleOptions {
    let policy = DeliveryPolicy { deliveries_max, retry_delay_millis: 100, ..DeliveryPolicy::default() };
    CycleOptions { policy, intake: Intake::LookAhead, window_max: 8, termination: Termination::Plain }
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
    let mut cycle = Cycle::new(options(1), Remembered { settled, ..Remembered::default() }, Offset(3_000));
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
    let mut cycle =
        Cycle::new(options(1), Remembered { settled, attempts: vec![(Offset(3), 1, NOW)], ..Remembered::default() }, Offset(12));
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

fn parking(deliveries_max: u32) -> CycleOptions {
    CycleOptions { termination: Termination::Parked, ..options(deliveries_max) }
}

fn rejected() -> ActivationOutcome {
    ActivationOutcome::Rejected { reason: String::new() }
}

fn unavailable() -> Result<(), SourceError> {
    Err(SourceError::Unavailable { reason: "scripted".to_owned() })
}

/// A cycle with one event for each key, all of which ran once and were rejected.
fn all_rejected(keys: u64) -> Cycle {
    let mut cycle = Cycle::new(parking(3), Remembered::default(), Offset(keys));
    cycle.poll(NOW);
    cycle.handle_pulled(NOW, Ok(listing((0..keys).map(|offset| event(offset, offset)))));
    for offset in (0..keys).map(Offset) {
        cycle.grant();
        assert_eq!(cycle.poll(NOW), Some(Command::Begin { offset, attempt: 1 }));
        cycle.handle_begun(NOW, offset, Ok(()));
        cycle.handle_finished(NOW, offset, &rejected());
        assert_eq!(cycle.poll(NOW), Some(Command::Condemn { offset, reason: TerminationReason::Rejected, attempts: 1 }));
    }
    cycle
}

#[test]
fn a_refused_event_is_noted_then_parked_then_settled() {
    let mut cycle = all_rejected(1);
    let offset = Offset(0);
    // Not before the note is there.
    assert_eq!((cycle.poll(NOW), cycle.is_quiet()), (None, false));
    cycle.handle_condemned(NOW, offset, Ok(()));
    assert_eq!(cycle.poll(NOW), Some(Command::Park { offset, reason: TerminationReason::Rejected, attempts: 1 }));
    assert_eq!((cycle.poll(NOW), cycle.condemned(offset)), (None, Some(TerminationReason::Rejected)));
    cycle.handle_parked(NOW, offset, Ok(()));
    let settlement = Settlement::Terminated(TerminationReason::Rejected);
    assert_eq!(cycle.poll(NOW), Some(Command::Settle { offset, settlement }));
    cycle.handle_settled(NOW, offset, Ok(()));
    assert_eq!(cycle.snapshot().state, CycleState::Idle);
}

#[test]
fn a_note_that_cannot_be_written_is_tried_again_and_nothing_is_parked_before() {
    let mut cycle = all_rejected(1);
    cycle.handle_condemned(NOW, Offset(0), unavailable());
    assert_eq!(cycle.poll(NOW), None);
    let at = cycle.next_deadline().unwrap();
    assert!(matches!(cycle.poll(at), Some(Command::Condemn { .. })));
    cycle.handle_condemned(at, Offset(0), Ok(()));
    assert!(matches!(cycle.poll(at), Some(Command::Park { .. })));
}

#[test]
fn a_dead_letter_topic_that_is_away_is_asked_ever_less_often_and_by_one_event_at_a_time() {
    let mut cycle = all_rejected(5);
    (0..5).for_each(|offset| cycle.handle_condemned(NOW, Offset(offset), Ok(())));
    let park = |cycle: &mut Cycle, now| match cycle.poll(now) {
        Some(Command::Park { offset, .. }) => Some(offset),
        None => None,
        other => panic!("{other:?}"),
    };
    let first: Vec<_> = (0..5).map(|_| park(&mut cycle, NOW).unwrap()).collect();
    first.into_iter().for_each(|offset| cycle.handle_parked(NOW, offset, unavailable()));
    let (mut now, mut waits) = (NOW, Vec::new());
    for _ in 0..8 {
        assert_eq!((park(&mut cycle, now), cycle.snapshot().state), (None, CycleState::Stalled));
        let at = cycle.next_deadline().unwrap();
        waits.push(at.since(now).as_millis());
        now = at;
        let offset = park(&mut cycle, now).unwrap();
        assert_eq!(park(&mut cycle, now), None);
        cycle.handle_parked(now, offset, unavailable());
    }
    // Five failures came before the first wait.
    assert_eq!(waits, [8_000, 16_000, 32_000, 60_000, 60_000, 60_000, 60_000, 60_000]);
    // Nothing was settled and nothing ran again; when it is back, all of them are parked.
    now = cycle.next_deadline().unwrap();
    for _ in 0..5 {
        let offset = park(&mut cycle, now).unwrap();
        cycle.handle_parked(now, offset, Ok(()));
        assert!(matches!(cycle.poll(now), Some(Command::Settle { .. })));
        cycle.handle_settled(now, offset, Ok(()));
    }
    assert_eq!(cycle.snapshot().state, CycleState::Idle);
}

#[test]
fn an_event_that_can_never_be_parked_keeps_no_other_waiting() {
    let keys = limits::PARKS_OPEN.default * 3;
    let mut cycle = all_rejected_in_turns(keys);
    let (mut now, mut parked) = (NOW, 0);
    // The first one fails each time; the others are asked for once each.
    for _ in 0..keys * 3 {
        match cycle.poll(now) {
            Some(Command::Park { offset: Offset(0), .. }) => cycle.handle_parked(now, Offset(0), unavailable()),
            Some(Command::Park { offset, .. }) => {
                cycle.handle_parked(now, offset, Ok(()));
                parked += 1;
            }
            Some(Command::Settle { offset, .. }) => cycle.handle_settled(now, offset, Ok(())),
            Some(other) => panic!("{other:?}"),
            None => now = cycle.next_deadline().unwrap(),
        }
    }
    assert_eq!((parked, cycle.snapshot().pending), (keys - 1, 1));
    assert!(now.since(NOW).as_millis() < u128::from(limits::PARK_BACKOFF_MAX_MILLIS.default) * 20, "{now:?}");
}

#[test]
fn at_most_parks_open_events_are_parked_at_once() {
    let parks_max = limits::PARKS_OPEN.default;
    let keys = parks_max + 2;
    let mut cycle = all_rejected_in_turns(keys);
    let mut parked = 0;
    while let Some(command) = cycle.poll(NOW) {
        assert!(matches!(command, Command::Park { .. }), "{command:?}");
        parked += 1;
    }
    assert_eq!(parked, parks_max);
    cycle.handle_parked(NOW, Offset(0), Ok(()));
    assert!(matches!(cycle.poll(NOW), Some(Command::Settle { .. })));
    assert!(matches!(cycle.poll(NOW), Some(Command::Park { .. })));
    assert_eq!(cycle.poll(NOW), None);
}

/// As [`all_rejected`] and noted, with a window that holds all of them.
fn all_rejected_in_turns(keys: u64) -> Cycle {
    let window_max = u32::try_from(keys).unwrap();
    let mut cycle = Cycle::new(CycleOptions { window_max, ..parking(3) }, Remembered::default(), Offset(keys));
    cycle.poll(NOW);
    cycle.handle_pulled(NOW, Ok(listing((0..keys).map(|offset| event(offset, offset)))));
    for offset in (0..keys).map(Offset) {
        cycle.grant();
        while !matches!(cycle.poll(NOW), Some(Command::Begin { .. })) {}
        cycle.handle_begun(NOW, offset, Ok(()));
        cycle.handle_finished(NOW, offset, &rejected());
        assert!(matches!(cycle.poll(NOW), Some(Command::Condemn { .. })));
    }
    (0..keys).for_each(|offset| cycle.handle_condemned(NOW, Offset(offset), Ok(())));
    cycle
}

#[test]
fn what_an_earlier_process_condemned_is_parked_without_running_however_many_attempts_are_left() {
    let verdict = Verdict::new(TerminationReason::Rejected, 1, None, "no");
    let remembered = Remembered { attempts: vec![(Offset(0), 1, NOW)], verdicts: vec![(Offset(0), verdict)], ..Remembered::default() };
    let mut cycle = Cycle::new(parking(5), remembered, Offset(1));
    cycle.poll(NOW);
    cycle.handle_pulled(NOW, Ok(listing([event(0, 1)])));
    assert_eq!(cycle.permits_missing(), 0);
    assert_eq!(cycle.poll(NOW), Some(Command::Park { offset: Offset(0), reason: TerminationReason::Rejected, attempts: 1 }));
}

#[test]
fn what_had_as_many_runs_as_its_binding_gives_now_ends_at_once_whatever_delay_was_noted() {
    let due = MonoTime::from_millis(60_000);
    let remembered = Remembered { attempts: vec![(Offset(0), 3, due), (Offset(1), 1, due)], ..Remembered::default() };
    let mut cycle = Cycle::new(parking(2), remembered, Offset(2));
    cycle.poll(NOW);
    cycle.handle_pulled(NOW, Ok(listing([event(0, 1), event(1, 2)])));
    assert_eq!(cycle.permits_missing(), 0);
    assert_eq!(cycle.poll(NOW), Some(Command::Condemn { offset: Offset(0), reason: TerminationReason::Exhausted, attempts: 3 }));
    assert_eq!((cycle.poll(NOW), cycle.next_attempt_of(Offset(1))), (None, Some(due)), "the other has a run left and waits for it");
}

#[test]
fn a_condemned_event_holds_back_its_own_key_only_until_the_window_is_full() {
    let mut cycle = Cycle::new(parking(1), Remembered::default(), Offset(20));
    cycle.poll(NOW);
    // One poisoned key, offsets 0 and 1; the others have keys of their own.
    cycle.handle_pulled(NOW, Ok(listing((0..8).map(|offset| event(offset, offset.max(1))))));
    let mut ran = Vec::new();
    loop {
        for _ in 0..cycle.permits_missing() {
            cycle.grant();
        }
        match cycle.poll(NOW) {
            Some(Command::Begin { offset, .. }) => {
                ran.push(offset.0);
                cycle.handle_begun(NOW, offset, Ok(()));
                let outcome = if offset == Offset(0) { rejected() } else { ActivationOutcome::Success };
                cycle.handle_finished(NOW, offset, &outcome);
            }
            Some(Command::Condemn { offset, .. }) => cycle.handle_condemned(NOW, offset, Ok(())),
            Some(Command::Park { offset, .. }) => cycle.handle_parked(NOW, offset, unavailable()),
            Some(Command::Settle { offset, .. }) => cycle.handle_settled(NOW, offset, Ok(())),
            Some(other) => panic!("{other:?}"),
            None => break,
        }
    }
    assert_eq!(ran, [0, 2, 3, 4, 5, 6, 7]);
    // Eight events after the first unsettled one are looked at, and no more.
    assert_eq!((cycle.next_deadline(), cycle.snapshot().pending), (Some(MonoTime::from_millis(500)), 14));
}

#[test]
fn a_condemned_event_that_expires_is_dropped_and_counted() {
    let mut cycle = all_rejected(2);
    (0..2).for_each(|offset| cycle.handle_condemned(NOW, Offset(offset), Ok(())));
    assert!(matches!(cycle.poll(NOW), Some(Command::Park { offset: Offset(0), .. })));
    assert!(matches!(cycle.poll(NOW), Some(Command::Park { offset: Offset(1), .. })));
    cycle.handle_parked(NOW, Offset(0), Err(SourceError::Expired { first: Offset(2) }));
    // What is being parked may still arrive.
    cycle.handle_parked(NOW, Offset(1), Ok(()));
    assert!(matches!(cycle.poll(NOW), Some(Command::Settle { offset: Offset(1), .. })));
    cycle.handle_settled(NOW, Offset(1), Ok(()));
    let snapshot = cycle.snapshot();
    assert_eq!((snapshot.state, snapshot.pending, snapshot.expired_unread), (CycleState::Idle, 0, 1));
}

#[test]
fn nothing_is_parked_while_stopping_and_what_is_open_is_waited_for() {
    let mut cycle = all_rejected(2);
    cycle.handle_condemned(NOW, Offset(0), Ok(()));
    assert!(matches!(cycle.poll(NOW), Some(Command::Park { offset: Offset(0), .. })));
    cycle.stop();
    cycle.handle_condemned(NOW, Offset(1), Ok(()));
    assert_eq!((cycle.poll(NOW), cycle.is_quiet()), (None, false));
    cycle.handle_parked(NOW, Offset(0), Ok(()));
    assert!(matches!(cycle.poll(NOW), Some(Command::Settle { .. })));
    cycle.handle_settled(NOW, Offset(0), Ok(()));
    assert_eq!((cycle.poll(NOW), cycle.is_quiet()), (None, true));
}

#[test]
fn one_event_is_followed_from_before_it_is_seen_until_it_has_expired() {
    let mut cycle = running(2, 2);
    let (first, second) = (Offset(0), Offset(1));
    assert_eq!(
        [0, 1, 2].map(|offset| cycle.event(Offset(offset))),
        [(EventState::Running, 1), (EventState::BehindItsKey, 0), (EventState::Unseen, 0)]
    );
    cycle.handle_finished(NOW, first, &trap());
    let due = MonoTime::from_millis(100);
    assert_eq!(cycle.event(first), (EventState::Delayed(due), 1));
    assert!(matches!(cycle.poll(NOW), Some(Command::Postpone { .. })));
    assert_eq!(cycle.poll(due), None);
    assert_eq!(cycle.event(first), (EventState::Ready, 1));
    cycle.grant();
    assert_eq!(cycle.poll(due), Some(Command::Begin { offset: first, attempt: 2 }));
    cycle.handle_begun(due, first, Ok(()));
    cycle.handle_finished(due, first, &trap());
    assert_eq!(cycle.event(first), (EventState::Settling(Some(TerminationReason::Exhausted)), 2));
    assert!(matches!(cycle.poll(due), Some(Command::Settle { .. })));
    cycle.handle_settled(due, first, Ok(()));
    assert_eq!((cycle.event(first), cycle.event(second)), ((EventState::Settled, 0), (EventState::Ready, 0)));
    cycle.handle_available(Offset(3));
    assert!(matches!(cycle.poll(due), Some(Command::Pull { .. })));
    cycle.handle_pulled(due, Ok(Listing { heads: Vec::new(), first: Offset(3) }));
    assert_eq!((cycle.event(first), cycle.event(second)), ((EventState::Expired, 0), (EventState::Expired, 0)));
}

#[test]
fn what_an_earlier_process_knew_of_an_event_is_told_before_its_turn() {
    let verdict = Verdict::new(TerminationReason::Rejected, 3, None, "no");
    let due = MonoTime::from_millis(70);
    let mut settled = SettledSet::default();
    settled.insert(Offset(0));
    let remembered = Remembered { settled, attempts: vec![(Offset(1), 2, due)], verdicts: vec![(Offset(2), verdict)] };
    let cycle = Cycle::new(CycleOptions { termination: Termination::Parked, ..options(5) }, remembered, Offset(4));
    assert_eq!(
        [0, 1, 2, 3].map(|offset| cycle.event(Offset(offset))),
        [
            (EventState::Settled, 0),
            (EventState::Delayed(due), 2),
            (EventState::Condemned(TerminationReason::Rejected), 3),
            (EventState::Unseen, 0),
        ]
    );
}
