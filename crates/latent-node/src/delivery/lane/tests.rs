use super::*;
use crate::delivery::limits;
use crate::delivery::source::{Arrival, KeyId};
use crate::delivery::{Head, Settlement};

const NOW: MonoTime = MonoTime::ZERO;
const WAIT: u64 = 10_000;

fn at(millis: u64) -> MonoTime {
    MonoTime::from_millis(millis)
}

/// A lane that asked for messages at the start of time.
fn pulling(heads_max: u32) -> Lane {
    let mut lane = Lane::new(LaneOptions::of_ack_wait(WAIT));
    lane.want(heads_max);
    assert_eq!(lane.poll(NOW), Some(LaneCommand::Inspect { question: 1 }));
    let expires_millis = WAIT * limits::RENEW_PERCENT.default / 100;
    assert_eq!(lane.poll(NOW), Some(LaneCommand::Pull { pin: None, batch_max: heads_max, expires_millis }));
    assert_eq!(lane.poll(NOW), None);
    lane
}

fn message(sequence: u64, deliveries: u32, order: u64) -> Delivery {
    let content = HeadContent::Event(KeyId(sequence % 2));
    Delivery { sequence, deliveries, order, reply: ReplyId(order), content, pin: PinId(1) }
}

fn seen(unacknowledged: u64, deliveries: u64) -> Inspected {
    Inspected { pending: 0, unacknowledged, deliveries, settled_up_to: 0, pin: Some(PinId(1)) }
}

fn listed(sequence: u64, deliveries: u32) -> LaneCommand {
    let head = Head { offset: Offset(sequence), content: HeadContent::Event(KeyId(sequence % 2)) };
    LaneCommand::List(Arrival { head, deliveries })
}

fn commands(lane: &mut Lane, now: MonoTime) -> Vec<LaneCommand> {
    std::iter::from_fn(|| lane.poll(now)).collect()
}

/// A lane with one message that runs, delivered for the first time.
fn running() -> Lane {
    let mut lane = pulling(1);
    lane.handle_inspected(NOW, 1, Some(Inspected { pin: None, ..seen(0, 0) }));
    assert!(lane.handle_message(NOW, message(7, 1, 1)));
    lane.handle_pull_ended(NOW, PullEnd::Over);
    assert_eq!(commands(&mut lane, NOW), [LaneCommand::Inspect { question: 2 }]);
    lane.handle_inspected(NOW, 2, Some(seen(1, 1)));
    assert_eq!(commands(&mut lane, NOW), [listed(7, 1), LaneCommand::PullOver { refused: false }]);
    lane.begin(NOW, 7).unwrap();
    lane
}

/// A lane whose message succeeded and whose acknowledgement got no answer.
fn uncertain() -> Lane {
    let mut lane = running();
    lane.ended(7);
    lane.settle(7, Settlement::Acknowledged);
    let settle = LaneCommand::Settle { sequence: 7, reply: ReplyId(1), settlement: Settlement::Acknowledged };
    assert_eq!(commands(&mut lane, NOW), [settle]);
    lane.handle_settled(NOW, 7, Confirmation::Uncertain);
    lane
}

#[test]
fn each_option_is_checked_at_its_edge() {
    type Set = fn(&mut LaneOptions, u64);
    let fields: [(Set, latent_core::Limit); 5] = [
        (|options, value| options.ack_wait_millis = value, limits::ACK_WAIT_MILLIS),
        (|options, value| options.renew_percent = value, limits::RENEW_PERCENT),
        (|options, value| options.lapse_percent = value, limits::LAPSE_PERCENT),
        (|options, value| options.gate_inspect_percent = value, limits::GATE_INSPECT_PERCENT),
        (|options, value| options.held_max = value, limits::LANE_HELD),
    ];
    for (set, limit) in fields {
        let with = |value| {
            let mut options = LaneOptions::of_ack_wait(WAIT);
            set(&mut options, value);
            options.checked().is_ok()
        };
        let edges = [limit.min, limit.max, limit.min - 1, limit.max + 1].map(with);
        assert_eq!(edges, [true, true, false, false], "{}", limit.name);
    }
}

#[test]
fn nothing_is_pulled_that_is_not_reserved_and_the_rest_returns_when_the_pull_is_over() {
    let mut lane = Lane::new(LaneOptions::of_ack_wait(WAIT));
    assert_eq!(commands(&mut lane, NOW), []);
    let mut lane = pulling(3);
    lane.handle_pull_ended(NOW, PullEnd::Over);
    assert_eq!(commands(&mut lane, NOW), [LaneCommand::PullOver { refused: false }]);
    assert_eq!(commands(&mut lane, at(5_000)), []);
}

#[test]
fn no_more_than_messages_held_are_kept() {
    let held = |count: u64| {
        let mut lane = Lane::new(LaneOptions { held_max: 3, ..LaneOptions::of_ack_wait(WAIT) });
        lane.want(8);
        commands(&mut lane, NOW);
        (1..=count).map(|sequence| lane.handle_message(NOW, message(sequence, 1, sequence))).collect::<Vec<_>>()
    };
    assert_eq!([2, 3, 4].map(|count| held(count).into_iter().all(|kept| kept)), [true, true, false]);
}

#[test]
fn after_a_takeover_nothing_is_listed_until_what_the_holder_before_had_has_come() {
    let mut lane = pulling(3);
    // Two are with the holder before; nothing happens to them between this answer and their coming.
    lane.handle_inspected(NOW, 1, Some(Inspected { pin: None, ..seen(2, 10) }));
    assert!(lane.handle_message(NOW, message(9, 1, 11)));
    assert_eq!(commands(&mut lane, NOW), [LaneCommand::Inspect { question: 2 }]);
    lane.handle_inspected(NOW, 2, Some(seen(3, 11)));
    assert_eq!(commands(&mut lane, NOW), []);
    assert!(lane.handle_message(NOW, message(4, 2, 12)) && lane.handle_message(NOW, message(6, 2, 13)));
    assert_eq!(commands(&mut lane, NOW), [LaneCommand::Inspect { question: 3 }]);
    lane.handle_inspected(NOW, 3, Some(seen(3, 13)));
    assert_eq!(commands(&mut lane, NOW)[..3], [listed(4, 2), listed(6, 2), listed(9, 1)]);
}

#[test]
fn a_number_that_fits_opens_nothing_while_somebody_may_have_settled_what_is_held() {
    let mut lane = pulling(3);
    lane.handle_inspected(NOW, 1, Some(Inspected { pin: None, ..seen(2, 10) }));
    // One of the two comes; then its former holder settles it late, and still has the other.
    assert!(lane.handle_message(NOW, message(4, 2, 11)));
    assert_eq!(commands(&mut lane, NOW), [LaneCommand::Inspect { question: 2 }]);
    lane.handle_inspected(NOW, 2, Some(seen(1, 11)));
    assert_eq!((commands(&mut lane, NOW), lane.is_gate_open()), (vec![], false));
    // It is not renewed, so it would come again if it were not settled.
    let renews = |lane: &mut Lane| commands(lane, at(3_400)).iter().any(|command| matches!(command, LaneCommand::Renew { .. }));
    assert!(!renews(&mut lane));
    commands(&mut lane, at(9_000));
    assert_eq!(lane.held(), 0);
}

#[test]
fn an_answer_to_an_older_question_and_one_from_before_the_pin_open_nothing() {
    let mut lane = pulling(1);
    assert!(lane.handle_message(NOW, message(9, 1, 11)));
    lane.handle_inspected(NOW, 1, Some(seen(1, 10)));
    assert!(!lane.is_gate_open());
    assert_eq!(commands(&mut lane, NOW), [LaneCommand::Inspect { question: 2 }]);
    lane.handle_inspected(NOW, 1, Some(seen(1, 11)));
    assert!(!lane.is_gate_open());
    lane.handle_inspected(NOW, 2, Some(seen(1, 11)));
    assert!(lane.is_gate_open());
}

#[test]
fn a_lease_counts_from_the_question_is_renewed_and_stops_its_run_a_tenth_before_its_end() {
    let mut lane = running();
    assert_eq!(lane.next_deadline(), Some(at(3_300)));
    assert_eq!(commands(&mut lane, at(3_300)), [LaneCommand::Renew { sequence: 7, reply: ReplyId(1) }]);
    lane.handle_renewed(at(4_000), 7, ReplyId(1), Confirmation::Confirmed);
    // From when it was sent: the broker cannot have had it earlier.
    assert_eq!(commands(&mut lane, at(12_299)), [LaneCommand::Renew { sequence: 7, reply: ReplyId(1) }]);
    assert_eq!(commands(&mut lane, at(12_300)), [LaneCommand::Lapsed { sequence: 7 }]);
    // A confirmation that is late proves nothing: somebody else may have had it meanwhile.
    lane.handle_renewed(at(12_301), 7, ReplyId(1), Confirmation::Confirmed);
    lane.ended(7);
    assert!(lane.begin(at(12_301), 7).is_err());
    lane.settle(7, Settlement::Acknowledged);
    assert!(commands(&mut lane, at(12_302)).iter().all(|command| !matches!(command, LaneCommand::Settle { .. })));
}

#[test]
fn an_uncertain_settlement_is_over_when_the_floor_has_passed_it_or_nothing_else_is_unsettled() {
    for answer in [Inspected { settled_up_to: 7, ..seen(1, 2) }, seen(0, 1)] {
        let mut lane = uncertain();
        assert_eq!(commands(&mut lane, NOW), [LaneCommand::Lapsed { sequence: 7 }, LaneCommand::Inspect { question: 3 }]);
        lane.handle_inspected(NOW, 3, Some(seen(1, 1)));
        assert_eq!(commands(&mut lane, at(1_000)), []);
        assert_eq!(commands(&mut lane, at(2_000)), [LaneCommand::Inspect { question: 4 }]);
        lane.handle_inspected(at(2_000), 4, Some(answer));
        let confirmation = Confirmation::Confirmed;
        assert_eq!(commands(&mut lane, at(2_000)), [LaneCommand::Settled { sequence: 7, confirmation }]);
    }
}

#[test]
fn a_message_that_comes_again_after_an_uncertain_settlement_is_settled_by_its_new_subject() {
    let mut lane = uncertain();
    commands(&mut lane, NOW);
    lane.want(1);
    commands(&mut lane, at(10_000));
    assert!(lane.handle_message(at(10_000), message(7, 2, 2)));
    let settle = LaneCommand::Settle { sequence: 7, reply: ReplyId(2), settlement: Settlement::Acknowledged };
    let given = commands(&mut lane, at(10_000));
    assert!(given.contains(&settle) && !given.iter().any(|command| matches!(command, LaneCommand::List(_))), "{given:?}");
}

#[test]
fn a_lost_pin_gives_up_what_waits_lets_what_runs_end_and_begins_anew() {
    let mut lane = running();
    lane.want(1);
    commands(&mut lane, NOW);
    lane.handle_pull_ended(NOW, PullEnd::PinLost);
    assert_eq!(commands(&mut lane, NOW), [LaneCommand::PullOver { refused: false }]);
    lane.want(1);
    assert_eq!(commands(&mut lane, NOW), [LaneCommand::PullOver { refused: true }]);
    lane.ended(7);
    lane.settle(7, Settlement::Acknowledged);
    assert!(matches!(commands(&mut lane, NOW)[..], [LaneCommand::Settle { sequence: 7, .. }]));
    lane.handle_settled(NOW, 7, Confirmation::Confirmed);
    assert_eq!(commands(&mut lane, NOW), [LaneCommand::Settled { sequence: 7, confirmation: Confirmation::Confirmed }]);
    lane.want(1);
    assert!(matches!(commands(&mut lane, NOW)[..], [LaneCommand::Inspect { .. }, LaneCommand::Pull { pin: None, .. }]));
}

/// Its lease was over when its run ended, so it waits to come again; with the pin gone it comes to somebody else.
#[test]
fn what_waits_to_come_again_for_its_settlement_is_given_up_with_the_pin_and_the_lane_begins_anew() {
    let loses: [fn(&mut Lane); 3] = [Lane::handle_connection_lost, Lane::stop, |lane| lane.handle_pull_ended(at(9_100), PullEnd::PinLost)];
    for (case, lose) in loses.into_iter().enumerate() {
        let mut lane = running();
        assert!(commands(&mut lane, at(9_000)).contains(&LaneCommand::Lapsed { sequence: 7 }));
        lane.ended(7);
        lane.settle(7, Settlement::Acknowledged);
        assert!(commands(&mut lane, at(9_100)).iter().all(|command| !matches!(command, LaneCommand::Settled { .. })));
        lose(&mut lane);
        let given_up = [LaneCommand::Over { sequence: 7 }, LaneCommand::Settled { sequence: 7, confirmation: Confirmation::NotSent }];
        assert_eq!(commands(&mut lane, at(9_100)), given_up, "{case}");
        lane.handle_connected();
        commands(&mut lane, at(9_100));
        lane.want(1);
        let asks = commands(&mut lane, at(9_100)).iter().any(|command| matches!(command, LaneCommand::Pull { pin: None, .. }));
        assert_eq!(asks, case != 1, "a stopped lane asks for nothing more");
    }
}

/// A broker that was killed hands out again what it forgot, as if for the first time: nothing of before is settled or renewed any more.
#[test]
fn what_a_broker_may_have_forgotten_is_stopped_and_neither_settled_nor_renewed() {
    let mut lane = running();
    lane.handle_connection_lost();
    lane.handle_broker_forgot(NOW);
    lane.handle_connected();
    assert_eq!(commands(&mut lane, NOW), [LaneCommand::Lapsed { sequence: 7 }]);
    // Nothing is asked for before the run has ended.
    assert!(commands(&mut lane, at(5_000)).is_empty());
    lane.ended(7);
    lane.settle(7, Settlement::Acknowledged);
    let given_up = [LaneCommand::Over { sequence: 7 }, LaneCommand::Settled { sequence: 7, confirmation: Confirmation::NotSent }];
    assert_eq!(commands(&mut lane, at(5_000)), given_up);
    lane.want(1);
    assert!(commands(&mut lane, at(5_000)).iter().any(|command| matches!(command, LaneCommand::Pull { pin: None, .. })));
}

#[test]
fn a_lane_that_stops_answers_everything_and_takes_nothing() {
    let mut lane = uncertain();
    lane.want(1);
    lane.stop();
    let given = commands(&mut lane, NOW);
    assert!(given.contains(&LaneCommand::PullOver { refused: false }), "{given:?}");
    assert!(given.contains(&LaneCommand::Settled { sequence: 7, confirmation: Confirmation::Uncertain }), "{given:?}");
    assert!(!lane.handle_message(NOW, message(9, 1, 3)));
    assert_eq!((commands(&mut lane, at(20_000)), lane.next_deadline()), (vec![], None));
}
