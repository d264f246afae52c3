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

/// A cycle whose events, all of one key, are listed, and whose first one runs.
fn running(deliveries_max: u32, events: u64) -> Cycle {
    let mut cycle = Cycle::new(options(deliveries_max), Remembered::default(), Offset(events));
    assert!(matches!(cycle.poll(NOW), Some(Command::Pull { from: Offset(0), .. })));
    let heads = (0..events).map(|offset| Head { offset: Offset(offset), content: HeadContent::Event(KeyId(1)) });
    cycle.handle_pulled(NOW, Ok(heads.collect()));
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
    cycle.handle_pulled(NOW, Ok(vec![Head { offset: Offset(0), content: HeadContent::Event(KeyId(1)) }]));
    assert!(matches!(cycle.poll(NOW), Some(Command::Pull { from: Offset(1), .. })));
}

#[test]
fn much_settled_behind_the_first_unsettled_event_does_not_keep_it_from_being_listed() {
    let mut settled = SettledSet::default();
    settled.insert_range(Offset(1), Offset(3_000));
    let mut cycle = Cycle::new(options(1), Remembered { settled, attempts: Vec::new() }, Offset(3_000));
    assert_eq!(cycle.poll(NOW), Some(Command::Pull { from: Offset(0), heads_max: 8 }));
    cycle.handle_pulled(NOW, Ok((0..8).map(|offset| Head { offset: Offset(offset), content: HeadContent::Event(KeyId(1)) }).collect()));
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
    let heads = [40, 70].map(|offset| Head { offset: Offset(offset), content: HeadContent::Event(KeyId(offset)) });
    cycle.handle_pulled(NOW, Ok(heads.to_vec()));
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
