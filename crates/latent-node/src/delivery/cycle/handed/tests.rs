use super::*;
use crate::delivery::source::{KeyId, Listing, Remembered, Settlement, SourceError, TerminationReason};
use crate::delivery::{Command, CycleOptions, CycleState, DeliveryPolicy, Termination};
use latent_core::{ActivationOutcome, TrapCode};

const NOW: MonoTime = MonoTime::ZERO;

fn cycle(deliveries_max: u32, in_flight_max: u32) -> Cycle {
    let policy = DeliveryPolicy { deliveries_max, in_flight_max, retry_delay_millis: 100, ..DeliveryPolicy::default() };
    let options = CycleOptions { policy, intake: Intake::HandedOut, window_max: 64, termination: Termination::Plain };
    let mut cycle = Cycle::new(options, Remembered::default(), Offset(0));
    cycle.handle_news(NOW, SourceNews::Available(Offset(1_000)));
    grant(&mut cycle);
    cycle
}

fn grant(cycle: &mut Cycle) {
    while cycle.permits_missing() > 0 {
        cycle.grant();
    }
}

fn arrival(offset: u64, key: u64, deliveries: u32) -> Arrival {
    Arrival { head: Head { offset: Offset(offset), content: HeadContent::Event(KeyId(key)) }, deliveries }
}

fn hand(cycle: &mut Cycle, offset: u64, key: u64, deliveries: u32) {
    cycle.handle_news(NOW, SourceNews::Handed(arrival(offset, key, deliveries)));
}

/// What is begun now, which runs from here on.
fn begun(cycle: &mut Cycle) -> Vec<(u64, u32)> {
    grant(cycle);
    let mut begun = Vec::new();
    while let Some(command) = cycle.poll(NOW) {
        if let Command::Begin { offset, attempt } = command {
            cycle.handle_begun(NOW, offset, Ok(()));
            begun.push((offset.0, attempt));
        }
    }
    begun
}

fn succeed(cycle: &mut Cycle, offset: u64) {
    cycle.handle_finished(NOW, Offset(offset), &ActivationOutcome::Success);
    let settlement = Settlement::Acknowledged;
    assert_eq!(cycle.poll(NOW), Some(Command::Settle { offset: Offset(offset), settlement }));
}

fn trap() -> ActivationOutcome {
    ActivationOutcome::Trap { code: TrapCode::Unreachable, detail: String::new() }
}

/// A settlement that failed is nothing to be told any more once another process has the event.
#[test]
fn a_source_that_failed_for_an_event_of_somebody_else_stalls_nothing() {
    let mut cycle = cycle(5, 1);
    assert!(matches!(cycle.poll(NOW), Some(Command::Pull { .. })));
    hand(&mut cycle, 999, 0, 1);
    cycle.handle_pulled(NOW, Ok(Listing::default()));
    assert_eq!(begun(&mut cycle), [(999, 1)]);
    succeed(&mut cycle, 999);
    cycle.handle_settled(NOW, Offset(999), Err(SourceError::Unavailable { reason: "no answer".to_owned() }));
    assert_eq!(cycle.snapshot().state, CycleState::Stalled);
    cycle.handle_news(NOW, SourceNews::Over(Offset(999)));
    let seen = cycle.snapshot();
    assert_eq!((seen.state, seen.pending), (CycleState::Idle, 0));
}

#[test]
fn events_of_one_key_run_in_order_and_of_different_keys_at_once_within_what_is_reserved() {
    let mut cycle = cycle(5, 3);
    assert_eq!(cycle.poll(NOW), Some(Command::Pull { from: Offset(0), heads_max: 3 }));
    [(1, 0), (2, 0), (3, 1)].into_iter().for_each(|(offset, key)| hand(&mut cycle, offset, key, 1));
    cycle.handle_pulled(NOW, Ok(Listing::default()));
    assert_eq!(begun(&mut cycle), [(1, 1), (3, 1)]);
    // The broker counts what is not settled, whether it runs or not: nothing more may come.
    assert_eq!((cycle.poll(NOW), cycle.permits_missing()), (None, 0));
    succeed(&mut cycle, 1);
    assert_eq!(begun(&mut cycle), []);
    cycle.handle_settled(NOW, Offset(1), Ok(()));
    assert_eq!(begun(&mut cycle), [(2, 1)]);
}

#[test]
fn events_that_wait_for_a_delay_are_delayed_and_take_all_there_is_when_no_place_is_left() {
    for (in_flight_max, expected) in [(3, CycleState::Delayed), (2, CycleState::Saturated)] {
        let mut cycle = cycle(5, in_flight_max);
        cycle.poll(NOW);
        hand(&mut cycle, 1, 0, 1);
        hand(&mut cycle, 2, 0, 1);
        assert_eq!(begun(&mut cycle), [(1, 1)]);
        assert_eq!(cycle.snapshot().state, CycleState::Busy);
        cycle.handle_finished(NOW, Offset(1), &trap());
        while cycle.poll(NOW).is_some() {}
        // The pull for what may still come stands open.
        assert_eq!(cycle.snapshot().state, expected);
    }
}

#[test]
fn a_retry_is_local_and_holds_back_its_key_and_its_place() {
    let mut cycle = cycle(5, 2);
    cycle.poll(NOW);
    hand(&mut cycle, 1, 0, 1);
    hand(&mut cycle, 2, 0, 1);
    assert_eq!(begun(&mut cycle), [(1, 1)]);
    cycle.handle_finished(NOW, Offset(1), &trap());
    assert_eq!(cycle.poll(NOW), Some(Command::Postpone { offset: Offset(1), attempts: 1, delay_millis: 100 }));
    assert_eq!(begun(&mut cycle), []);
    let later = MonoTime::from_millis(100);
    assert_eq!(cycle.poll(later), Some(Command::Begin { offset: Offset(1), attempt: 2 }));
}

#[test]
fn an_empty_answer_says_that_there_is_nothing_now_and_attests_nothing() {
    let mut cycle = cycle(5, 4);
    cycle.poll(NOW);
    hand(&mut cycle, 9, 0, 1);
    cycle.handle_pulled(NOW, Ok(Listing::default()));
    grant(&mut cycle);
    // Where one came from there may be more.
    assert!(matches!(cycle.poll(NOW), Some(Command::Begin { .. })));
    assert!(matches!(cycle.poll(NOW), Some(Command::Pull { .. })));
    cycle.handle_pulled(NOW, Ok(Listing::default()));
    assert!(matches!(cycle.poll(NOW), None | Some(Command::Pull { .. })));
    cycle.handle_pulled(NOW, Ok(Listing::default()));
    assert_eq!((cycle.poll(NOW), cycle.permits_missing()), (None, 0));
    assert_eq!(cycle.take_surplus_permits(), 3);
    // What was passed over may come later, and is taken in its place.
    cycle.handle_news(NOW, SourceNews::Available(Offset(20)));
    grant(&mut cycle);
    assert!(matches!(cycle.poll(NOW), Some(Command::Pull { .. })));
    hand(&mut cycle, 4, 1, 1);
    assert!(cycle.has(Offset(4)));
}

#[test]
fn an_earlier_event_of_a_key_takes_its_place_before_what_has_not_begun() {
    let mut cycle = cycle(5, 4);
    cycle.poll(NOW);
    hand(&mut cycle, 5, 0, 1);
    hand(&mut cycle, 3, 0, 2);
    hand(&mut cycle, 4, 0, 1);
    assert_eq!(begun(&mut cycle), [(3, 2)]);
    succeed(&mut cycle, 3);
    cycle.handle_settled(NOW, Offset(3), Ok(()));
    assert_eq!(begun(&mut cycle), [(4, 1)]);
}

#[test]
fn a_lapsed_event_blocks_its_key_until_it_comes_again_and_that_run_is_stopped() {
    let mut cycle = cycle(5, 4);
    cycle.poll(NOW);
    hand(&mut cycle, 1, 0, 1);
    hand(&mut cycle, 2, 0, 1);
    assert_eq!(begun(&mut cycle), [(1, 1)]);
    cycle.handle_news(NOW, SourceNews::Lapsed(Offset(1)));
    assert!(cycle.is_to_stop(Offset(1)) && !cycle.may_start(Offset(1)));
    cycle.handle_finished(NOW, Offset(1), &ActivationOutcome::Cancelled);
    assert!(matches!(cycle.poll(NOW), Some(Command::Postpone { attempts: 0, .. })));
    cycle.fire_timers(MonoTime::from_millis(1_000));
    assert_eq!(begun(&mut cycle), []);
    cycle.handle_news(NOW, SourceNews::Again(arrival(1, 0, 2)));
    assert_eq!(begun(&mut cycle), [(1, 2)], "the broker has counted the one that was cut");
}

#[test]
fn an_event_that_is_over_elsewhere_lets_its_key_go_on_without_settling_anything() {
    for running in [false, true] {
        let mut cycle = cycle(5, 4);
        cycle.poll(NOW);
        hand(&mut cycle, 1, 0, 1);
        hand(&mut cycle, 2, 0, 1);
        if running {
            assert_eq!(begun(&mut cycle), [(1, 1)]);
        }
        cycle.handle_news(NOW, SourceNews::Over(Offset(1)));
        assert_eq!(cycle.is_to_stop(Offset(1)), running);
        if running {
            assert_eq!(begun(&mut cycle), [], "not before its run has ended");
            cycle.handle_finished(NOW, Offset(1), &ActivationOutcome::Success);
        }
        assert_eq!(begun(&mut cycle), [(2, 1)]);
    }
}

#[test]
fn a_settlement_that_stays_unanswered_keeps_its_key_and_one_that_fails_is_tried_again() {
    let mut cycle = cycle(5, 4);
    cycle.poll(NOW);
    hand(&mut cycle, 1, 0, 1);
    hand(&mut cycle, 2, 0, 1);
    assert_eq!(begun(&mut cycle), [(1, 1)]);
    succeed(&mut cycle, 1);
    assert_eq!(begun(&mut cycle), []);
    cycle.handle_settled(NOW, Offset(1), Err(SourceError::Unavailable { reason: String::new() }));
    let later = MonoTime::from_millis(30_000);
    assert!(matches!(cycle.poll(later), Some(Command::Settle { offset: Offset(1), .. })));
}

#[test]
fn a_delivery_above_the_number_of_runs_is_terminated_without_running() {
    let first = |deliveries| {
        let mut cycle = cycle(3, 4);
        cycle.poll(NOW);
        hand(&mut cycle, 1, 0, deliveries);
        cycle.poll(NOW)
    };
    let exhausted = Settlement::Terminated(TerminationReason::Exhausted);
    let (begins, settles) =
        (Some(Command::Begin { offset: Offset(1), attempt: 3 }), Some(Command::Settle { offset: Offset(1), settlement: exhausted }));
    assert_eq!([first(3), first(4)], [begins, settles]);
}

#[test]
fn a_cycle_whose_events_are_all_given_up_is_idle_and_quiet() {
    let mut cycle = cycle(5, 4);
    cycle.poll(NOW);
    hand(&mut cycle, 1, 0, 1);
    cycle.handle_news(NOW, SourceNews::Over(Offset(1)));
    cycle.handle_pulled(NOW, Ok(Listing::default()));
    cycle.poll(NOW);
    cycle.handle_pulled(NOW, Ok(Listing::default()));
    assert_eq!((cycle.snapshot().state, cycle.is_quiet()), (CycleState::Idle, true));
}
