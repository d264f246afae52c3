//! A scripted exchange of six operations: each byte of the broker's part is cut off, stalled or garbled, each byte of ours may be the last that
//! left, and what comes out is compared with a reading of the same bytes that shares no code with the session.

mod reference;

use std::sync::LazyLock;

use super::*;
use crate::UncertainCause;
use crate::testing::message;
use crate::triggers::{InspectError, PullError, SettleAnswer};
use reference::{Reading, Told};

/// One bit, a letter's case, the sign bit, a digit into another, and everything.
const MASKS: [u8; 6] = [0x01, 0x02, 0x20, 0x04, 0x80, 0xff];
const INSPECT: u64 = 1;
const FIRST_PULL: u64 = 2;
const SETTLEMENTS: [u64; 3] = [3, 4, 5];
const SECOND_PULL: u64 = 6;
const OPERATIONS: u64 = 6;

const INFO: &str = r#"{"stream_name":"ORD","name":"latent_a_p0","config":{"durable_name":"latent_a_p0","deliver_policy":"all",
"ack_policy":"explicit","ack_wait":30000000000,"max_deliver":13,"filter_subject":"orders.p0","replay_policy":"instant","max_waiting":512,
"max_ack_pending":8,"priority_groups":["latent"],"priority_policy":"pinned_client"},"delivered":{"stream_seq":22},
"ack_floor":{"stream_seq":19},"num_ack_pending":3,"num_pending":7,"priority_groups":[{"pinned_client_id":"Ab3"}]}"#;

static TO_SETTLE: LazyLock<Vec<AckSubject>> = LazyLock::new(|| (90..93).map(|sequence| settled_elsewhere(0, sequence)).collect());

/// The six operations, begun and not written.
fn begun() -> Session {
    let mut session = session();
    session.begin_inspect(&consumer()).unwrap();
    session.begin_pull(&consumer(), &pull_of(3)).unwrap();
    let settlements = [SessionSettlement::Acknowledge, SessionSettlement::RetryAfter { nanos: 5 }, SessionSettlement::InProgress];
    for (message, settlement) in TO_SETTLE.iter().zip(settlements) {
        session.begin_settle(message, settlement).unwrap();
    }
    session.begin_pull(&partition(1), &pull_of(1)).unwrap();
    session
}

/// What the broker says of them, frame by frame.
fn answers() -> Vec<Vec<u8>> {
    let of = |number| OperationId(number);
    vec![
        message(INSPECT, INFO),
        delivery(0, 21, "Content-Type: a/b\r\n", "pay\r\nload"),
        confirmation(of(4)),
        b"PING\r\n".to_vec(),
        confirmation(of(3)),
        status(of(FIRST_PULL), "100 Idle Heartbeat"),
        // Before the last message that it counts, as a broker with replicas does it.
        status(of(FIRST_PULL), "408 Request Timeout\r\nNats-Pending-Messages: 1\r\nNats-Pending-Bytes: 9"),
        delivery(0, 22, "", ""),
        delivery(1, 5, "", "y"),
        status(of(SECOND_PULL), "409 Batch Completed"),
        format!("-ERR 'Permissions Violation for Publish to \"{}\"'\r\n", ack(0, 92)).into(),
    ]
}

/// What an event says, without what only one of both readings could know.
fn told(event: Event) -> Told {
    match event {
        Event::Inspected { operation, result: Ok(info) } => {
            let floor = info.state.ack_floor_stream_sequence;
            Told::Inspected(operation.0, Some((info.state.pending, info.state.delivered_stream_sequence, floor)))
        }
        Event::Inspected { operation, result: Err(InspectError::Failed { evidence, .. }) } => Told::Failed(operation.0, evidence),
        Event::Inspected { operation, .. } => Told::Inspected(operation.0, None),
        Event::Delivered { pull, message } => {
            let content = message.content.unwrap();
            Told::Delivered(pull.0, message.numbers.stream_sequence, content.headers.to_vec(), content.payload.to_vec())
        }
        Event::Heartbeat { pull } => Told::Heartbeat(pull.0),
        Event::PullEnded { operation, end } => match end.how {
            PullClose::Failed(PullError { evidence, possible_write }) => {
                assert!(possible_write);
                Told::Failed(operation.0, evidence)
            }
            PullClose::Complete => Told::Ended(operation.0, end.delivered, None),
            PullClose::Status { status, .. } => Told::Ended(operation.0, end.delivered, Some(status)),
        },
        Event::Settled { operation, answer: SettleAnswer::Confirmed } => Told::Settled(operation.0),
        Event::Settled { operation, answer: SettleAnswer::NotSent(_) } => Told::Failed(operation.0, Evidence::PublishRefused),
        Event::Settled { operation, answer: SettleAnswer::Uncertain(cause) } => Told::Uncertain(operation.0, cause),
        Event::Closed(evidence) => Told::Closed(evidence),
    }
}

/// The exchange with a broker that says this, in pieces of so many bytes, and then ends so.
fn play(bytes: &[u8], piece: usize, how: Ended) -> Vec<Told> {
    let mut session = begun();
    write(&mut session);
    for piece in bytes.chunks(piece.max(1)) {
        session.received(piece);
        session.offering();
        session.wrote(session.outgoing().len());
    }
    session.ended(how);
    assert_eq!((session.operations.reserved().0, session.under_way()), (session.operations.messages_among_events(), 0));
    events(&mut session).into_iter().map(told).collect()
}

/// Compares with the reference; what is behind the last usable frame has to be uncertain and nothing else.
fn compare(bytes: &[u8], piece: usize, how: Ended) {
    let Reading { told: expected, open, is_broken, is_within_frame } = reference::read(bytes);
    let seen = play(bytes, piece, how);
    let shown = String::from_utf8_lossy(bytes);
    let behind = seen.strip_prefix(&*expected).unwrap_or_else(|| panic!("{seen:?} does not begin with {expected:?}: {shown}"));
    assert_eq!(behind.len(), open.len() + 1, "{behind:?} {open:?}: {shown}");
    let Some((Told::Closed(closed), ends)) = behind.split_last() else { panic!("{behind:?}: {shown}") };
    if !is_broken {
        assert_eq!(*closed, evidence_of(how, is_within_frame), "{shown}");
    }
    for (end, operation) in ends.iter().zip(open) {
        let is_right = match end {
            Told::Failed(of, evidence) => *of == operation && evidence == closed && !SETTLEMENTS.contains(of),
            Told::Uncertain(of, cause) => {
                *of == operation && SETTLEMENTS.contains(of) && (is_broken || *cause == cause_of(how, is_within_frame))
            }
            _ => false,
        };
        assert!(is_right, "{end:?} is no end of {operation}: {shown}");
    }
}

fn evidence_of(how: Ended, within_reply: bool) -> Evidence {
    match how {
        Ended::PeerClosed | Ended::TransportFailed => Evidence::ConnectionLost { within_reply },
        Ended::DeadlineExceeded => Evidence::Deadline { within_reply },
        Ended::Cancelled => Evidence::Cancelled,
    }
}

fn cause_of(how: Ended, within_reply: bool) -> UncertainCause {
    match (how, within_reply) {
        (Ended::PeerClosed | Ended::TransportFailed, false) => UncertainCause::ConnectionLost,
        (Ended::PeerClosed | Ended::TransportFailed, true) => UncertainCause::ReplyTruncated,
        (Ended::DeadlineExceeded, false) => UncertainCause::Deadline,
        (Ended::DeadlineExceeded, true) => UncertainCause::ReplyStalled,
        (Ended::Cancelled, _) => UncertainCause::Cancelled,
    }
}

#[test]
fn the_whole_exchange_ends_everything() {
    let bytes = answers().concat();
    let Reading { open, is_broken, is_within_frame, told } = reference::read(&bytes);
    assert!(open.is_empty() && !is_broken && !is_within_frame, "{told:?}");
    assert_eq!(told.iter().filter(|told| told.operation_ended().is_some()).count() as u64, OPERATIONS);
    for piece in [1, 2, 3, 100, usize::MAX] {
        compare(&bytes, piece, Ended::PeerClosed);
    }
}

#[test]
fn an_exchange_cut_off_or_stalled_at_any_byte_ends_with_what_was_answered_before() {
    let bytes = answers().concat();
    for cut in 0..bytes.len() {
        for how in [Ended::PeerClosed, Ended::DeadlineExceeded] {
            for piece in [1, usize::MAX] {
                compare(&bytes[..cut], piece, how);
            }
        }
    }
    for how in [Ended::TransportFailed, Ended::Cancelled] {
        compare(&bytes[..bytes.len() / 2], 7, how);
    }
}

#[test]
fn an_exchange_garbled_at_any_byte_is_what_its_bytes_say_or_over() {
    let bytes = answers().concat();
    for at in 0..bytes.len() {
        for mask in MASKS {
            let mut garbled = bytes.clone();
            garbled[at] ^= mask;
            compare(&garbled, usize::MAX, Ended::DeadlineExceeded);
        }
    }
}

#[test]
fn a_garbled_answer_is_the_same_however_it_is_split() {
    let bytes = answers()[1..].concat();
    for at in 0..bytes.len() {
        let mut garbled = bytes.clone();
        garbled[at] ^= 0x01;
        compare(&garbled, 1, Ended::DeadlineExceeded);
        compare(&garbled, at.max(1), Ended::DeadlineExceeded);
    }
}

/// Whatever was begun behind the last offer was not sent, and everything before it is uncertain, wherever the writer stopped.
#[test]
fn a_command_cut_or_stalled_at_any_byte_is_uncertain_from_the_first_offer_on() {
    let bytes = begun().outgoing().len();
    for count in 0..=bytes {
        let mut session = begun();
        session.offering();
        session.wrote(count);
        let behind = session.begin_settle(&TO_SETTLE[0], SessionSettlement::Acknowledge).unwrap();
        session.ended(Ended::TransportFailed);
        for event in events(&mut session) {
            match event {
                Event::Inspected { result: Err(InspectError::Failed { possible_write, .. }), .. } => assert!(possible_write, "{count}"),
                Event::PullEnded { end: PullEnd { how: PullClose::Failed(error), .. }, .. } => assert!(error.possible_write, "{count}"),
                Event::Settled { operation, answer: SettleAnswer::NotSent(_) } => assert_eq!(operation, behind, "{count}"),
                Event::Settled { operation, answer: SettleAnswer::Uncertain(_) } => assert_ne!(operation, behind, "{count}"),
                Event::Closed(_) => (),
                other => panic!("{count} {other:?}"),
            }
        }
    }
}

#[test]
fn an_answer_counts_only_once_all_of_its_command_was_written() {
    let out = String::from_utf8(begun().outgoing().to_vec()).unwrap();
    for number in SETTLEMENTS {
        let end = out.match_indices("PUB ").nth(usize::try_from(number).unwrap()).unwrap().0;
        for count in 0..=out.len() {
            let mut session = begun();
            session.offering();
            session.wrote(count);
            session.received(&confirmation(OperationId(number)));
            let confirmed =
                events(&mut session).contains(&Event::Settled { operation: OperationId(number), answer: SettleAnswer::Confirmed });
            assert_eq!((confirmed, session.closed().is_none()), (count >= end, count >= end), "{number} {count}");
        }
    }
}
