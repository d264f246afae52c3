//! What each kind of frame does to the operations that are under way.

use super::*;
use crate::testing::message_with_headers;
use crate::triggers::{InspectError, PullError, PullStatus, SettleAnswer};
use crate::{FailureCause, UncertainCause};

/// An inspection, a pull and two settlements, all written.
struct Four {
    session: Session,
    inspect: OperationId,
    pull: OperationId,
    first: OperationId,
    second: OperationId,
}

fn four() -> Four {
    let mut session = session();
    let inspect = session.begin_inspect(&consumer()).unwrap();
    let pull = session.begin_pull(&consumer(), &pull_of(2)).unwrap();
    let first = session.begin_settle(&settled_elsewhere(0, 7), SessionSettlement::Acknowledge).unwrap();
    let second = session.begin_settle(&settled_elsewhere(0, 8), SessionSettlement::InProgress).unwrap();
    write(&mut session);
    Four { session, inspect, pull, first, second }
}

fn ended_by(status: PullStatus, pending: Option<Pending>) -> PullEnd {
    PullEnd { delivered: 0, how: PullClose::Status { status, pending } }
}

#[test]
fn confirmations_may_come_in_any_order() {
    let Four { mut session, first, second, .. } = four();
    session.received(&[confirmation(second), confirmation(first)].concat());
    let settled = [second, first].map(|operation| Event::Settled { operation, answer: SettleAnswer::Confirmed });
    assert_eq!(events(&mut session), settled);
    assert_eq!(session.under_way(), 2);
}

#[test]
fn each_status_ends_its_pull_and_only_an_unknown_one_the_session() {
    let table = [
        ("404 No Messages", PullStatus::Empty),
        ("408 Request Timeout", PullStatus::Expired),
        ("408 Requests Pending", PullStatus::Expired),
        ("409 Exceeded MaxWaiting", PullStatus::AtCapacity),
        ("409 Exceeded MaxAckPending", PullStatus::AtCapacity),
        ("409 Batch Completed", PullStatus::BatchCompleted),
        ("409 Message Size Exceeds MaxBytes", PullStatus::MessageTooLarge),
        ("409 Exceeded MaxRequestBatch of 4", PullStatus::RequestTooLarge),
        ("409 Consumer Deleted", PullStatus::ConsumerDeleted),
        ("409 Consumer is push based", PullStatus::PushBased),
        ("409 Leadership Change", PullStatus::LeadershipChange),
        ("409 Server Shutdown", PullStatus::ServerShutdown),
        ("412 x", PullStatus::Precondition),
        ("423 Nats-Pin-Id mismatch", PullStatus::PinLost),
        ("423 Nats-Wrong-Pin-Id", PullStatus::PinLost),
        ("429 x", PullStatus::TooManyRequests),
        ("503", PullStatus::NoResponders),
        ("400 Bad Request - Priority Group missing", PullStatus::Unknown(400)),
        ("409 Something Else", PullStatus::Unknown(409)),
        ("200 x", PullStatus::Unknown(200)),
    ];
    for (line, expected) in table {
        let Four { mut session, pull, .. } = four();
        session.received(&status(pull, line));
        assert_eq!(session.poll_event(), Some(Event::PullEnded { operation: pull, end: ended_by(expected, None) }), "{line}");
        let is_known = !matches!(expected, PullStatus::Unknown(_));
        assert_eq!(session.closed(), (!is_known).then_some(Evidence::UnexpectedStatus), "{line}");
        assert_eq!(session.under_way(), if is_known { 3 } else { 0 }, "{line}");
        // An ended pull is over: another may begin, and its inbox is nobody's.
        if is_known {
            assert!(session.begin_pull(&consumer(), &pull_of(1)).is_ok());
            session.received(&status(pull, line));
            assert_eq!(session.closed(), Some(Evidence::ForeignReply), "{line}");
        }
    }
}

#[test]
fn a_status_tells_what_was_not_used_when_it_says_so_in_plain_numbers() {
    let table = [
        ("Nats-Pending-Messages: 2\r\nNats-Pending-Bytes: 99948\r\n", Some(Pending { messages: 2, bytes: 99_948 })),
        ("Nats-Pending-Bytes: 0\r\nX: y\r\nNats-Pending-Messages:3\r\n", Some(Pending { messages: 3, bytes: 0 })),
        ("Nats-Pending-Messages: 2\r\n", None),
        ("Nats-Pending-Messages: -2\r\nNats-Pending-Bytes: 1\r\n", None),
        ("Nats-Pending-Messages: \r\nNats-Pending-Bytes: 1\r\n", None),
        ("Nats-Pending-Messages: 18446744073709551616\r\nNats-Pending-Bytes: 1\r\n", None),
        ("no colon\r\n", None),
    ];
    for (fields, pending) in table {
        let Four { mut session, pull, .. } = four();
        session.received(&message_with_headers(pull.0, &format!("NATS/1.0 423 Nats-Wrong-Pin-Id\r\n{fields}\r\n"), ""));
        let end = ended_by(PullStatus::PinLost, pending);
        assert_eq!(session.poll_event(), Some(Event::PullEnded { operation: pull, end }), "{fields}");
    }
}

#[test]
fn heartbeats_are_told_once_until_they_are_taken_and_end_nothing() {
    let Four { mut session, pull, .. } = four();
    let beat = message_with_headers(pull.0, "NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n", "");
    for _ in 0..2 {
        session.received(&beat.repeat(20));
        assert_eq!(events(&mut session), [Event::Heartbeat { pull }]);
    }
    assert_eq!((session.under_way(), session.closed()), (4, None));
}

#[test]
fn nobody_who_listens_is_a_known_end_of_one_operation() {
    let Four { mut session, inspect, pull, first, second } = four();
    for operation in [inspect, pull, first] {
        session.received(&message_with_headers(operation.0, "NATS/1.0 503\r\nNats-Subject: x\r\n\r\n", ""));
    }
    let failed = InspectError::Failed { evidence: Evidence::NoResponders, possible_write: true };
    let expected = [
        Event::Inspected { operation: inspect, result: Err(failed) },
        Event::PullEnded { operation: pull, end: ended_by(PullStatus::NoResponders, None) },
        Event::Settled { operation: first, answer: SettleAnswer::NotSent(FailureCause::NoResponders) },
    ];
    assert_eq!(events(&mut session), expected);
    session.received(&confirmation(second));
    assert_eq!(session.closed(), None);
}

#[test]
fn a_refused_permission_ends_the_oldest_operation_with_that_subject_alone() {
    let refusal = |subject: &str| format!("-ERR 'Permissions Violation for Publish to \"{subject}\"'\r\n").into_bytes();
    let Four { mut session, inspect, pull, first, second } = four();
    let again = session.begin_settle(&settled_elsewhere(0, 7), SessionSettlement::InProgress).unwrap();
    write(&mut session);
    let (evidence, possible_write) = (Evidence::PublishRefused, true);
    let not_taken = SettleAnswer::NotSent(FailureCause::PublishRefused);
    let steps = [
        (ack(0, 7), Event::Settled { operation: first, answer: not_taken }),
        (ack(0, 7), Event::Settled { operation: again, answer: not_taken }),
        (
            "$JS.API.CONSUMER.MSG.NEXT.ORD.latent_a_p0".to_owned(),
            Event::PullEnded {
                operation: pull,
                end: PullEnd { delivered: 0, how: PullClose::Failed(PullError { evidence, possible_write }) },
            },
        ),
        (
            "$JS.API.CONSUMER.INFO.ORD.latent_a_p0".to_owned(),
            Event::Inspected { operation: inspect, result: Err(InspectError::Failed { evidence, possible_write }) },
        ),
    ];
    for (subject, event) in steps {
        session.received(&refusal(&subject));
        assert_eq!(events(&mut session), [event], "{subject}");
    }
    // The last one is still under way, and what nobody asked for is about something else.
    session.received(&refusal("orders.p0"));
    let uncertain = SettleAnswer::Uncertain(UncertainCause::PermissionOfAnother);
    let expected = [Event::Settled { operation: second, answer: uncertain }, Event::Closed(Evidence::PermissionOfAnother)];
    assert_eq!(events(&mut session), expected);
}

#[test]
fn a_refusal_of_what_is_not_written_completely_is_about_something_else() {
    let mut session = session();
    let [written, partly] = [7, 7].map(|sequence| {
        let operation = session.begin_settle(&settled_elsewhere(0, sequence), SessionSettlement::Acknowledge).unwrap();
        session.offering();
        session.wrote(session.outgoing().len() - usize::from(session.under_way() == 2));
        operation
    });
    let refusal = format!("-ERR 'Permissions Violation for Publish to \"{}\"'\r\n", ack(0, 7));
    session.received(refusal.repeat(2).as_bytes());
    let expected = [
        Event::Settled { operation: written, answer: SettleAnswer::NotSent(FailureCause::PublishRefused) },
        Event::Settled { operation: partly, answer: SettleAnswer::Uncertain(UncertainCause::PermissionOfAnother) },
        Event::Closed(Evidence::PermissionOfAnother),
    ];
    assert_eq!(events(&mut session), expected);
}

#[test]
fn what_is_no_answer_of_anything_under_way_ends_the_session_and_everything_honestly() {
    let none = OperationId(99);
    type Frames = fn(&Four) -> Vec<u8>;
    let table: [(Frames, Evidence, UncertainCause); 21] = [
        (|_| b"-ERR 'Stale Connection'\r\n".to_vec(), Evidence::BrokerError, UncertainCause::BrokerError),
        (|_| b"-ERR 'Maximum Payload Violation'\r\n".to_vec(), Evidence::BrokerError, UncertainCause::BrokerError),
        (|_| b"-ERR 'User Authentication Expired'\r\n".to_vec(), Evidence::AuthenticationFailed, UncertainCause::BrokerError),
        (
            |_| b"-ERR 'Permissions Violation for Subscription to \"_INBOX.LSF.x.*\"'\r\n".to_vec(),
            Evidence::PermissionOfAnother,
            UncertainCause::PermissionOfAnother,
        ),
        (|_| b"PONG\r\n".to_vec(), Evidence::UnexpectedFrame, UncertainCause::ForeignReply),
        (|_| b"PING\r\n".repeat(9), Evidence::ControlFlood, UncertainCause::ControlFlood),
        (|_| b"+OK\r\n".repeat(9), Evidence::ControlFlood, UncertainCause::ControlFlood),
        (|_| b"WHAT\r\n".to_vec(), Evidence::MalformedFrame, UncertainCause::MalformedReply),
        (|_| vec![b'x'; 9_000], Evidence::LineTooLong, UncertainCause::LineTooLong),
        (|_| b"INFO {\"headers\":false}\r\n".to_vec(), Evidence::UnusableServer, UncertainCause::MalformedReply),
        (|_| b"INFO {\r\n".to_vec(), Evidence::MalformedFrame, UncertainCause::MalformedReply),
        (|four| crate::testing::message(four.first.0, "x"), Evidence::MalformedReceipt, UncertainCause::MalformedReply),
        (|four| status(four.first, "408 Request Timeout"), Evidence::UnexpectedStatus, UncertainCause::UnexpectedStatus),
        (|four| message_with_headers(four.first.0, "NATS/1.0\r\n\r\n", ""), Evidence::UnexpectedStatus, UncertainCause::UnexpectedStatus),
        (|four| message_with_headers(four.first.0, "NATS/1.0\r\n", ""), Evidence::MalformedFrame, UncertainCause::MalformedReply),
        (|four| crate::testing::message(four.pull.0, "x"), Evidence::UnexpectedFrame, UncertainCause::ForeignReply),
        (|four| status(four.inspect, "408 x"), Evidence::UnexpectedStatus, UncertainCause::UnexpectedStatus),
        (|_| crate::testing::message(0, ""), Evidence::ForeignReply, UncertainCause::ForeignReply),
        (|_| b"MSG _INBOX.LSF.other.3.1 1 0\r\n\r\n".to_vec(), Evidence::ForeignReply, UncertainCause::ForeignReply),
        (
            |four| String::from_utf8(confirmation(four.first)).unwrap().replacen(" 1 ", " 2 ", 1).into(),
            Evidence::ForeignReply,
            UncertainCause::ForeignReply,
        ),
        (|four| crate::testing::message(four.inspect.0, &"x".repeat(20_000)), Evidence::OversizedReply, UncertainCause::OversizedReply),
    ];
    for (index, (frames, evidence, cause)) in table.into_iter().enumerate() {
        let mut all = four();
        let bytes = frames(&all);
        all.session.received(&bytes);
        let seen = events(&mut all.session);
        let uncertain = SettleAnswer::Uncertain(cause);
        assert!(
            matches!(&seen[..], [
            Event::Inspected { operation: a, result: Err(InspectError::Failed { possible_write: true, .. }) },
            Event::PullEnded { operation: b, end: PullEnd { delivered: 0, how: PullClose::Failed(PullError { possible_write: true, .. }) } },
            Event::Settled { operation: c, answer: first },
            Event::Settled { operation: d, answer: second },
            Event::Closed(closed),
        ] if [*a, *b, *c, *d] == [all.inspect, all.pull, all.first, all.second]
            && *first == uncertain && *second == uncertain && *closed == evidence),
            "{index}: {seen:?}"
        );
        assert_eq!(all.session.wants(), Wants { write: false, read: false });
        assert!(all.session.outgoing().is_empty() && all.session.under_way() == 0);
        assert_eq!(all.session.begin_inspect(&consumer()), Err(SessionRefused::Closed));
        all.session.received(&confirmation(none));
        all.session.ended(Ended::PeerClosed);
        assert_eq!(events(&mut all.session), []);
    }
}

#[test]
fn pings_are_answered_between_commands_and_an_info_is_taken() {
    let mut session = session();
    session.begin_inspect(&consumer()).unwrap();
    session.offering();
    session.wrote(10);
    session.received(b"PING\r\n+OK\r\nINFO {\"headers\":true,\"max_payload\":3}\r\nPING\r\n");
    assert_eq!(session.server().unwrap().max_payload_bytes, 3);
    let out = write(&mut session);
    assert!(out.ends_with(" 0\r\n\r\nPONG\r\nPONG\r\n"), "{out}");
    assert_eq!(session.begin_pull(&consumer(), &pull_of(1)), Err(SessionRefused::ServerMaximum));
    // Each batch of bytes has its own count, as long as the answers leave.
    for _ in 0..100 {
        session.received(&b"PING\r\n".repeat(8));
        write(&mut session);
    }
    session.received(&b"PING\r\n".repeat(8));
    session.received(b"PING\r\n");
    assert_eq!(session.closed(), Some(Evidence::ControlFlood));
}

#[test]
fn a_lost_connection_leaves_the_written_uncertain_and_the_rest_not_sent() {
    let causes = [
        (Ended::PeerClosed, UncertainCause::ConnectionLost, FailureCause::ConnectionLost),
        (Ended::TransportFailed, UncertainCause::ConnectionLost, FailureCause::ConnectionLost),
        (Ended::DeadlineExceeded, UncertainCause::Deadline, FailureCause::Deadline),
        (Ended::Cancelled, UncertainCause::Cancelled, FailureCause::Cancelled),
    ];
    for (how, uncertain, not_sent) in causes {
        let Four { mut session, inspect, pull, first, second } = four();
        session.received(&confirmation(first));
        let offered = session.begin_settle(&settled_elsewhere(0, 9), SessionSettlement::Acknowledge).unwrap();
        session.offering();
        let waiting = session.begin_settle(&settled_elsewhere(0, 10), SessionSettlement::Acknowledge).unwrap();
        session.ended(how);
        let seen = events(&mut session);
        let settled: Vec<_> = seen
            .iter()
            .filter_map(|event| match event {
                Event::Settled { operation, answer } => Some((*operation, *answer)),
                _ => None,
            })
            .collect();
        let expected = [
            (first, SettleAnswer::Confirmed),
            (second, SettleAnswer::Uncertain(uncertain)),
            (offered, SettleAnswer::Uncertain(uncertain)),
            (waiting, SettleAnswer::NotSent(not_sent)),
        ];
        assert_eq!(settled, expected, "{how:?}");
        assert_eq!(seen.len(), 7, "{inspect:?} {pull:?} {seen:?}");
        assert!(session.outgoing().is_empty());
    }
}

#[test]
fn what_is_given_up_ends_at_once_and_its_late_answer_is_let_go_by() {
    let Four { mut session, inspect, pull, first, second } = four();
    let waiting = session.begin_settle(&settled_elsewhere(0, 9), SessionSettlement::Acknowledge).unwrap();
    let behind = session.begin_settle(&settled_elsewhere(0, 10), SessionSettlement::Acknowledge).unwrap();
    let unsent_pull = session.begin_pull(&partition(1), &pull_of(8)).unwrap();
    assert!(!session.give_up(pull, GiveUp::Cancelled), "its messages could still come");
    assert!(!session.give_up(OperationId(99), GiveUp::Cancelled));
    for (operation, how) in [
        (inspect, GiveUp::DeadlineExceeded),
        (first, GiveUp::Cancelled),
        (waiting, GiveUp::DeadlineExceeded),
        (unsent_pull, GiveUp::Cancelled),
    ] {
        assert!(session.give_up(operation, how) && !session.give_up(operation, how));
    }
    let evidence = Evidence::Deadline { within_reply: false };
    let failed = PullClose::Failed(PullError { evidence: Evidence::Cancelled, possible_write: false });
    let expected = [
        Event::Inspected { operation: inspect, result: Err(InspectError::Failed { evidence, possible_write: true }) },
        Event::Settled { operation: first, answer: SettleAnswer::Uncertain(UncertainCause::Cancelled) },
        Event::Settled { operation: waiting, answer: SettleAnswer::NotSent(FailureCause::Deadline) },
        Event::PullEnded { operation: unsent_pull, end: PullEnd { delivered: 0, how: failed } },
    ];
    assert_eq!(events(&mut session), expected);
    let out = write(&mut session);
    assert!(out.starts_with(&format!("PUB {} ", ack(0, 10))) && out.matches("PUB").count() == 1, "{out}");
    session.received(&[crate::testing::message(inspect.0, "{}"), confirmation(first), confirmation(second), confirmation(behind)].concat());
    let confirmed = [second, behind].map(|operation| Event::Settled { operation, answer: SettleAnswer::Confirmed });
    assert_eq!(events(&mut session), confirmed);
    // It comes once.
    session.received(&confirmation(first));
    assert_eq!(session.closed(), Some(Evidence::ForeignReply));
}

#[test]
fn an_answer_to_what_is_not_written_completely_is_somebody_else_s() {
    let mut session = session();
    let operation = session.begin_settle(&settled_elsewhere(0, 7), SessionSettlement::Acknowledge).unwrap();
    session.offering();
    session.wrote(session.outgoing().len() - 1);
    session.received(&confirmation(operation));
    let uncertain = SettleAnswer::Uncertain(UncertainCause::ForeignReply);
    assert_eq!(events(&mut session), [Event::Settled { operation, answer: uncertain }, Event::Closed(Evidence::ForeignReply)]);
}
