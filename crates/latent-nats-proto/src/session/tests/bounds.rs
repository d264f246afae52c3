//! Bounds at their edges: what is kept is reserved before it is asked for, and refused beyond.

use super::*;
use crate::testing::message_with_headers;
use crate::triggers::SettleAnswer;

fn bounds(change: impl FnOnce(&mut SessionBounds)) -> SessionBounds {
    let mut bounds = SessionBounds::default();
    change(&mut bounds);
    bounds
}

#[test]
fn a_session_begins_on_an_established_link_made_for_it_within_its_limits() {
    assert_eq!(Session::begin(crate::testing::established(), SessionBounds::default()).err(), Some(SessionError::Link));
    let fresh = Link::for_sessions(&instance(), 3, 1_024);
    assert_eq!(Session::begin(fresh, SessionBounds::default()).err(), Some(SessionError::Link));
    type Change = fn(&mut SessionBounds, usize);
    let fields: [(latent_core::Limit, Change); 4] = [
        (SESSION_OPERATIONS, |bounds, value| bounds.operations = value),
        (SESSION_OUTGOING_BYTES, |bounds, value| bounds.outgoing_bytes = value),
        (SESSION_MESSAGES, |bounds, value| bounds.messages = value),
        (SESSION_MESSAGE_BYTES, |bounds, value| bounds.message_bytes = value),
    ];
    for (limit, change) in fields {
        let begin = |value: u64| Session::begin(link(), bounds(|bounds| change(bounds, usize::try_from(value).unwrap())));
        assert!(begin(limit.min).is_ok() && begin(limit.max).is_ok(), "{}", limit.name);
        for value in [limit.min - 1, limit.max + 1] {
            assert!(matches!(begin(value), Err(SessionError::Bound(error)) if error.name == limit.name), "{} {value}", limit.name);
        }
    }
}

#[test]
fn what_came_behind_the_handshake_is_read_first() {
    let mut link = Link::for_sessions(&instance(), 3, 1_024);
    let mut handshake = Handshake::begin(&mut link, PASSWORD);
    handshake.received(INFO);
    take(&mut handshake);
    handshake.received(b"PONG\r\nINFO {\"headers\":true,\"max_payload\":9}\r\nPING\r\nPI");
    assert_eq!(handshake.finish(), Ok(()));
    let mut session = Session::begin(link, SessionBounds::default()).unwrap();
    assert_eq!((session.outgoing(), session.server().unwrap().max_payload_bytes), (&b"PONG\r\n"[..], 9));
    session.received(b"NG\r\n");
    assert_eq!((session.outgoing(), session.closed()), (&b"PONG\r\nPONG\r\n"[..], None));
}

#[test]
fn the_memory_of_a_connection_is_what_it_says() {
    for body_bytes_max in [1_024, 32_768, 715_435, u32::MAX] {
        let mut session =
            Session::begin(crate::testing::established_for(Link::for_sessions(&instance(), 3, body_bytes_max)), SessionBounds::default())
                .unwrap();
        for _ in 0..256 {
            session.begin_inspect(&consumer()).unwrap();
        }
        let bytes = session.decoder.capacity() + session.operations.outgoing.capacity();
        let said = SessionBounds::default().connection_bytes(body_bytes_max);
        assert!(bytes <= said && said <= bytes + 32_768, "{bytes} {said}");
    }
}

#[test]
fn an_operation_keeps_its_place_until_its_end_is_taken() {
    let (mut session, message) = (session_with(bounds(|bounds| bounds.operations = 3)), settled_elsewhere(0, 7));
    let begin = |session: &mut Session| session.begin_settle(&message, SessionSettlement::Acknowledge);
    let operations: Vec<_> = (0..3).map(|_| begin(&mut session).unwrap()).collect();
    let refused = Err(SessionRefused::Operations { operations_max: 3 });
    assert_eq!(begin(&mut session), refused);
    write(&mut session);
    session.received(&confirmation(operations[1]));
    assert_eq!((session.under_way(), begin(&mut session)), (2, refused));
    assert_eq!(session.poll_event(), Some(Event::Settled { operation: operations[1], answer: SettleAnswer::Confirmed }));
    assert!(begin(&mut session).is_ok());
    assert_eq!(begin(&mut session), refused);
}

#[test]
fn the_usual_number_of_operations_is_two_hundred_and_fifty_six() {
    let (mut session, message) = (session(), settled_elsewhere(0, 7));
    for _ in 0..256 {
        session.begin_settle(&message, SessionSettlement::InProgress).unwrap();
    }
    let refused = Err(SessionRefused::Operations { operations_max: 256 });
    assert_eq!(session.begin_settle(&message, SessionSettlement::InProgress), refused);
    assert_eq!(session.begin_inspect(&consumer()), refused);
    assert_eq!(session.begin_pull(&consumer(), &pull_of(1)), refused);
    write(&mut session);
    let all: Vec<u8> = (1..=256).flat_map(|operation| confirmation(OperationId(operation))).collect();
    session.received(&all);
    assert_eq!(events(&mut session).len(), 256);
    assert!(session.begin_inspect(&consumer()).is_ok());
}

#[test]
fn commands_wait_in_bounded_memory_and_what_has_no_room_is_not_begun() {
    let (mut session, message) = (session_with(bounds(|bounds| bounds.outgoing_bytes = 4_096)), settled_elsewhere(0, 7));
    let mut begun = 0;
    let refused = loop {
        match session.begin_settle(&message, SessionSettlement::Acknowledge) {
            Ok(_) => begun += 1,
            Err(refused) => break refused,
        }
    };
    let waiting = session.outgoing().len();
    let bytes = waiting / begun;
    assert!(waiting <= 4_096 && waiting + bytes > 4_096, "{waiting}");
    assert!(matches!(refused, SessionRefused::Outgoing { bytes_max: 4_096, .. }));
    assert_eq!(session.under_way(), begun);
    session.offering();
    session.wrote(bytes + 20);
    assert!(session.begin_settle(&message, SessionSettlement::Acknowledge).is_ok());
    assert!(session.begin_settle(&message, SessionSettlement::Acknowledge).is_err());
}

#[test]
fn one_pull_is_open_for_each_consumer() {
    let mut session = session();
    let first = session.begin_pull(&consumer(), &pull_of(1)).unwrap();
    assert_eq!(session.begin_pull(&consumer(), &pull_of(1)), Err(SessionRefused::PullOpen));
    assert!(session.begin_pull(&partition(1), &pull_of(1)).is_ok());
    write(&mut session);
    assert_eq!(session.begin_pull(&consumer(), &pull_of(1)), Err(SessionRefused::PullOpen));
    session.received(&status(first, "404 No Messages"));
    assert!(session.begin_pull(&consumer(), &pull_of(1)).is_ok());
}

#[test]
fn messages_are_reserved_by_their_pull_and_free_when_they_are_taken_or_cannot_come() {
    let mut session = session_with(bounds(|bounds| bounds.messages = 10));
    let first = session.begin_pull(&consumer(), &pull_of(8)).unwrap();
    assert_eq!(session.begin_pull(&partition(1), &pull_of(3)), Err(SessionRefused::Messages { asked: 3, free: 2 }));
    session.begin_pull(&partition(1), &pull_of(2)).unwrap();
    assert_eq!(session.begin_pull(&partition(2), &pull_of(1)), Err(SessionRefused::Messages { asked: 1, free: 0 }));
    write(&mut session);
    session.received(&delivery(0, 1, "", "a").repeat(3));
    assert_eq!(session.begin_pull(&partition(2), &pull_of(1)), Err(SessionRefused::Messages { asked: 1, free: 0 }));
    session.received(&status(first, "408 Request Timeout"));
    assert_eq!(session.begin_pull(&partition(2), &pull_of(6)), Err(SessionRefused::Messages { asked: 6, free: 5 }));
    assert_eq!(events(&mut session).len(), 4);
    assert!(session.begin_pull(&partition(2), &pull_of(8)).is_ok());
    assert!(session.begin_pull(&partition(3), &pull_of(1)).is_err());
}

#[test]
fn bytes_are_reserved_by_their_pull_and_free_when_they_are_taken_or_cannot_come() {
    let asked = consumer().reserved_bytes(1, 40_000);
    let pull = PullRequest { max_bytes: 40_000, ..pull_of(1) };
    let room = usize::try_from(2 * asked).unwrap();
    let mut session = session_with(bounds(|bounds| bounds.message_bytes = room));
    let pulls = [0, 1].map(|number| session.begin_pull(&partition(number), &pull).unwrap());
    let refused = |free| Err(SessionRefused::MessageBytes { asked, free });
    assert_eq!(session.begin_pull(&partition(2), &pull), refused(0));
    write(&mut session);
    session.received(&status(pulls[1], "408 Request Timeout"));
    let third = session.begin_pull(&partition(2), &pull).unwrap();
    write(&mut session);
    session.received(&delivery(0, 1, "", "a"));
    assert!(matches!(session.begin_pull(&partition(0), &pull), Err(SessionRefused::MessageBytes { free, .. }) if free < asked));
    assert_eq!(events(&mut session).len(), 3);
    session.begin_pull(&partition(0), &pull).unwrap();
    assert_eq!(session.begin_pull(&partition(3), &pull), refused(0));
    session.ended(Ended::Cancelled);
    assert!(events(&mut session).iter().any(|event| matches!(event, Event::PullEnded { operation, .. } if *operation == third)));
    assert_eq!(session.operations.reserved(), (0, 0));
}

#[test]
fn a_consumer_whose_messages_the_connection_was_not_made_for_is_not_pulled_from() {
    let with_ceiling = |payload_bytes_max| {
        let ceiling = Ceiling::Raw { payload_bytes_max };
        Arc::new(PullConsumer::new(PullProfile { ceiling, ..profile() }).unwrap())
    };
    let mut session = session();
    assert!(session.begin_pull(&with_ceiling(2_048), &PullRequest { max_bytes: 11_264, ..pull_of(1) }).is_ok());
    let refused = session.begin_pull(&with_ceiling(2_049), &PullRequest { max_bytes: 11_265, ..pull_of(1) });
    assert!(matches!(refused, Err(SessionRefused::Ceiling { bytes, bytes_max }) if bytes == bytes_max + 1), "{refused:?}");
}

#[test]
fn operations_of_a_connection_end_before_an_inbox_is_used_twice() {
    let mut session = session();
    session.inbox.skip_to(u64::MAX);
    assert_eq!(session.begin_inspect(&consumer()), Ok(OperationId(u64::MAX)));
    assert_eq!(session.begin_inspect(&consumer()), Err(SessionRefused::InboxExhausted));
}

#[test]
fn late_answers_are_remembered_for_as_many_operations_as_there_may_be() {
    let (mut session, message) = (session_with(bounds(|bounds| bounds.operations = 4)), settled_elsewhere(0, 7));
    let mut given_up = Vec::new();
    for _ in 0..6 {
        let operation = session.begin_settle(&message, SessionSettlement::InProgress).unwrap();
        write(&mut session);
        assert!(session.give_up(operation, GiveUp::Cancelled));
        events(&mut session);
        given_up.push(operation);
    }
    session.received(&given_up[2..].iter().flat_map(|operation| confirmation(*operation)).collect::<Vec<_>>());
    assert_eq!(session.closed(), None);
    session.received(&confirmation(given_up[1]));
    assert_eq!(session.closed(), Some(Evidence::ForeignReply));
}

#[test]
fn events_that_nobody_takes_do_not_grow() {
    let mut session = session_with(bounds(|bounds| (bounds.operations, bounds.messages) = (4, 8)));
    let pull = session.begin_pull(&consumer(), &pull_of(8)).unwrap();
    write(&mut session);
    let beat = message_with_headers(pull.0, "NATS/1.0 100 Idle Heartbeat\r\n\r\n", "");
    session.received(&beat.repeat(1_000));
    session.received(&delivery(0, 1, "", "a").repeat(8));
    session.received(&beat.repeat(1_000));
    for _ in 0..8 {
        let _ = session.begin_inspect(&consumer());
    }
    session.ended(Ended::PeerClosed);
    // A heartbeat, eight messages, four ends and the end of all.
    assert_eq!(events(&mut session).len(), 14);
}
