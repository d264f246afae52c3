//! Messages: whose they are, what of them is handed out, and when a pull has had its batch.

use super::*;
use crate::limits::DELIVERED_HEADER_BYTES;
use crate::triggers::{AckNumbers, PullStatus, SettleAnswer};

/// Two consumers of one subject, as two bindings of one topic have them, and a third of another partition.
fn three() -> (Session, [OperationId; 3]) {
    let mut session = session();
    let twin = Arc::new(PullConsumer::new(PullProfile { consumer: "latent_b_p0".to_owned(), ..profile() }).unwrap());
    let pulls = [consumer(), twin, partition(1)].map(|consumer| session.begin_pull(&consumer, &pull_of(2)).unwrap());
    write(&mut session);
    (session, pulls)
}

fn delivered(session: &mut Session) -> Vec<(OperationId, u64)> {
    let of = |event| match event {
        Event::Delivered { pull, message } => Some((pull, message.numbers.stream_sequence)),
        _ => None,
    };
    events(session).into_iter().filter_map(of).collect()
}

#[test]
fn messages_of_several_consumers_go_to_their_own_pulls() {
    let (mut session, [first, twin, other]) = three();
    let of_twin = String::from_utf8(delivery(0, 22, "", "x")).unwrap().replacen("latent_a_p0", "latent_b_p0", 1);
    session.received(&[delivery(1, 5, "", "y"), of_twin.clone().into(), delivery(0, 22, "", "x"), of_twin.into()].concat());
    let expected = [(other, 5), (twin, 22), (first, 22), (twin, 22)];
    assert_eq!(delivered(&mut session), expected);
    assert_eq!(session.under_way(), 2);
}

#[test]
fn a_pull_ends_with_its_batch_and_one_status_may_follow() {
    let completed = "409 Batch Completed\r\nNats-Pending-Messages: 0\r\nNats-Pending-Bytes: 9";
    for follows in [0, 1, 2] {
        let (mut session, [pull, ..]) = three();
        session.received(&[delivery(0, 1, "", "a"), delivery(0, 2, "", "b")].concat());
        let seen = events(&mut session);
        let end = PullEnd { delivered: 2, how: PullClose::Complete };
        assert_eq!(seen.last(), Some(&Event::PullEnded { operation: pull, end }));
        // The next one may be open already when the status comes.
        let next = session.begin_pull(&consumer(), &pull_of(1)).unwrap();
        write(&mut session);
        session.received(&status(pull, "100 Idle Heartbeat"));
        for _ in 0..follows {
            session.received(&status(pull, completed));
        }
        assert_eq!(session.closed(), (follows == 2).then_some(Evidence::ForeignReply), "{follows}");
        if follows < 2 {
            session.received(&delivery(0, 3, "", "c"));
            assert_eq!(delivered(&mut session), [(next, 3)]);
        }
    }
}

#[test]
fn a_status_after_some_messages_ends_the_pull_and_says_how_many_came() {
    let (mut session, [pull, ..]) = three();
    session.received(&[delivery(0, 1, "", "a"), status(pull, "408 Request Timeout")].concat());
    let end = PullEnd { delivered: 1, how: PullClose::Status { status: PullStatus::Expired, pending: None } };
    assert_eq!(events(&mut session).last(), Some(&Event::PullEnded { operation: pull, end }));
    session.received(&delivery(0, 2, "", "b"));
    assert_eq!(session.closed(), Some(Evidence::ForeignReply));
}

/// As brokers with replicas do it: the status leaves at once, a message when a majority knows of its delivery.
#[test]
fn a_status_that_comes_before_its_pull_s_messages_ends_it_behind_them() {
    let completed = |unused: u32| format!("409 Batch Completed\r\nNats-Pending-Messages: {unused}\r\nNats-Pending-Bytes: 9");
    let ended_by =
        |unused: u64| PullClose::Status { status: PullStatus::BatchCompleted, pending: Some(Pending { messages: unused, bytes: 9 }) };
    // How many come before the status, behind it, and never.
    for (before, behind, unused) in [(0, 2, 0), (1, 1, 0), (0, 1, 1), (0, 1, 2), (2, 1, 4)] {
        let mut session = session();
        let pull = session.begin_pull(&partition(0), &pull_of(before + behind + unused)).unwrap();
        write(&mut session);
        (1..=before).for_each(|sequence| session.received(&delivery(0, u64::from(sequence), "", "a")));
        session.received(&status(pull, &completed(unused)));
        assert_eq!(delivered(&mut session).len(), before as usize);
        assert_eq!((session.under_way(), session.operations.reserved().0), (1, behind as usize), "what cannot come is free");
        assert_eq!(session.begin_pull(&partition(0), &pull_of(1)), Err(SessionRefused::PullOpen));
        (1..=behind).for_each(|sequence| session.received(&delivery(0, u64::from(before + sequence), "", "a")));
        let end = PullEnd { delivered: before + behind, how: ended_by(u64::from(unused)) };
        assert_eq!(events(&mut session).last(), Some(&Event::PullEnded { operation: pull, end }));
        assert_eq!((session.under_way(), session.operations.reserved()), (0, (0, 0)));
        // Its status was here: there is no other, and nothing more of it.
        session.received(&status(pull, &completed(unused)));
        assert_eq!(session.closed(), Some(Evidence::ForeignReply));
    }
    let mut session = session();
    let pull = session.begin_pull(&partition(0), &pull_of(2)).unwrap();
    write(&mut session);
    session.received(&status(pull, &completed(1)).repeat(2));
    assert_eq!(session.closed(), Some(Evidence::ForeignReply));
    assert!(events(&mut session).iter().any(|event| matches!(event, Event::PullEnded { .. })), "lost with its connection");
}

#[test]
fn a_message_is_handed_out_with_its_own_fields_and_the_broker_s_pin() {
    let fields = "Content-Type: application/json\r\nNats-Msg-Id:u1\r\nLsf-Attr-a:  b c \r\nNats-Pin-Id: spoofed\r\nno colon\r\nlsf-attr-a: second\r\n";
    let (mut session, [pull, ..]) = three();
    session.received(&delivery(0, 22, fields, "pay\r\nload"));
    let Some(Event::Delivered { pull: of, message }) = session.poll_event() else { panic!("no message") };
    let numbers =
        AckNumbers { deliveries: 1, stream_sequence: 22, consumer_sequence: 22, stored_unix_nanos: 1_700_000_000_000_000_000, pending: 0 };
    assert_eq!((of, message.numbers), (pull, numbers));
    assert_eq!(message.content.as_ref().unwrap().payload, &b"pay\r\nload"[..]);
    let table = [
        ("content-type", Some("application/json")),
        ("Nats-Msg-Id", Some("u1")),
        ("Lsf-Attr-A", Some("b c")),
        ("Nats-Pin-Id", Some("spoofed")),
        ("no colon", None),
        ("NATS/1.0", None),
    ];
    for (name, value) in table {
        assert_eq!(message.header(name), value.map(str::as_bytes), "{name}");
    }
    assert_eq!(message.header_fields().count(), 6);
    assert_eq!(message.pin().unwrap().text(), PIN);
    session.begin_settle(&message.ack, SessionSettlement::Acknowledge).unwrap();
    assert!(write(&mut session).starts_with(&format!("PUB {} ", ack(0, 22))));
}

#[test]
fn a_pin_that_a_publisher_wrote_is_none_where_the_broker_gives_none() {
    let raw = Arc::new(PullConsumer::new(PullProfile { group: None, ..profile() }).unwrap());
    let mut session = session();
    session.begin_pull(&raw, &pull_of(1)).unwrap();
    write(&mut session);
    session.received(&delivery(0, 22, "", "x"));
    let Some(Event::Delivered { message, .. }) = session.poll_event() else { panic!("no message") };
    assert_eq!((message.pin(), message.header("Nats-Pin-Id")), (None, Some(PIN.as_bytes())));
}

#[test]
fn a_message_without_fields_is_one_too() {
    let (mut session, _) = three();
    session.received(format!("MSG orders.p0 1 {} 0\r\n\r\n", ack(0, 9)).as_bytes());
    let Some(Event::Delivered { message, .. }) = session.poll_event() else { panic!("no message") };
    assert_eq!((message.pin(), message.header_fields().count(), message.header("a")), (None, 0, None));
    assert_eq!(message.content, Ok(Content { headers: Default::default(), payload: Default::default() }));
}

#[test]
fn the_longer_form_of_an_acknowledgement_subject_is_one() {
    let (mut session, [pull, ..]) = three();
    let long = ack(0, 9).replacen("ACK.", "ACK._.Ab3.", 1) + ".x";
    session.received(&raw_delivery("orders.p0", "1", &long, "", "x"));
    assert_eq!(delivered(&mut session), [(pull, 9)]);
}

#[test]
fn a_message_that_is_nobody_s_ends_the_session_and_is_not_handed_out() {
    let good = ack(0, 9);
    let table = [
        (raw_delivery("orders.p1", "1", &good, "", "x"), Evidence::ForeignReply),
        (raw_delivery("orders.p0.x", "1", &good, "", "x"), Evidence::ForeignReply),
        (raw_delivery("orders.p0", "2", &good, "", "x"), Evidence::ForeignReply),
        (raw_delivery("orders.p0", "1", "", "", "x"), Evidence::ForeignReply),
        (raw_delivery("orders.p0", "1", "orders.p0", "", "x"), Evidence::ForeignReply),
        (raw_delivery("orders.p0", "1", &good.replace("ORD", "OTHER"), "", "x"), Evidence::ForeignReply),
        (raw_delivery("orders.p0", "1", &good.replace("_p0", "_p2"), "", "x"), Evidence::ForeignReply),
        (raw_delivery("orders.p0", "1", &good.replace(".1.9.", ".0.9."), "", "x"), Evidence::ForeignReply),
        (
            raw_delivery("orders.p0", "1", &format!("$JS.ACK._.{}.ORD.latent_a_p0.1.1.1.1.1", "a".repeat(500)), "", "x"),
            Evidence::ForeignReply,
        ),
        (b"HMSG orders.p0 1 r 16 16\r\nNATS/1.0 100\r\n\r\n\r\n".to_vec(), Evidence::ForeignReply),
        (format!("HMSG orders.p0 1 {good} 10 11\r\nNATS/1.0\r\nx\r\n").into(), Evidence::MalformedFrame),
        (format!("MSG orders.p0 1 {good} 67108865\r\n").into(), Evidence::OversizedReply),
    ];
    for (frame, evidence) in table {
        let (mut session, _) = three();
        session.received(&frame);
        assert_eq!(session.closed(), Some(evidence), "{:.120}", String::from_utf8_lossy(&frame));
        assert_eq!(delivered(&mut session), []);
    }
}

#[test]
fn a_message_of_a_pull_that_is_not_written_is_nobody_s() {
    let mut session = session();
    session.begin_pull(&consumer(), &pull_of(2)).unwrap();
    session.received(&delivery(0, 1, "", "a"));
    assert_eq!(session.closed(), Some(Evidence::ForeignReply));
}

/// The message that `frame` is, its size and that it ends nothing but itself.
fn one(frame: &[u8], split: usize) -> Result<Content, TooLarge> {
    let (mut session, _) = three();
    let settle = session.begin_settle(&settled_elsewhere(0, 7), SessionSettlement::Acknowledge).unwrap();
    write(&mut session);
    let bytes = [frame, &confirmation(settle)].concat();
    bytes.chunks(split).for_each(|piece| session.received(piece));
    let Some(Event::Delivered { message, .. }) = session.poll_event() else { panic!("no message: {:?}", session.closed()) };
    assert_eq!(events(&mut session), [Event::Settled { operation: settle, answer: SettleAnswer::Confirmed }]);
    message.content
}

#[test]
fn the_largest_message_fits_and_a_larger_one_comes_without_its_content() {
    let pin = format!("Nats-Pin-Id: {PIN}\r\n");
    let spare = DELIVERED_HEADER_BYTES.max_usize() - "NATS/1.0\r\nA: \r\n\r\n".len();
    for split in [1, 7, 4_096, usize::MAX] {
        let fields = format!("A: {}\r\n", "v".repeat(spare));
        let content = one(&delivery(0, 9, &fields, &"p".repeat(1_024)), split).unwrap();
        assert_eq!((content.headers.len(), content.payload.len()), (8_192 + pin.len(), 1_024));
        // One byte above the ceiling and within the connection's memory, and far above both.
        for payload_bytes in [1_025, 60_000] {
            let large = one(&delivery(0, 9, "", &"p".repeat(payload_bytes)), split);
            assert_eq!(large, Err(TooLarge { header_bytes: 12 + pin.len(), payload_bytes }));
        }
        let wide = format!("A: {}\r\n", "v".repeat(spare + 200));
        assert_eq!(one(&delivery(0, 9, &wide, "x"), split), Err(TooLarge { header_bytes: 8_392 + pin.len(), payload_bytes: 1 }));
    }
}

#[test]
fn a_message_above_its_ceiling_can_be_terminated() {
    let (mut session, _) = three();
    session.received(&delivery(0, 9, "", &"p".repeat(40_000)));
    let Some(Event::Delivered { message, .. }) = session.poll_event() else { panic!("no message") };
    let operation = session.begin_settle(&message.ack, SessionSettlement::Terminate { reason: Some("too large") }).unwrap();
    write(&mut session);
    session.received(&confirmation(operation));
    assert_eq!(events(&mut session), [Event::Settled { operation, answer: SettleAnswer::Confirmed }]);
}

#[test]
fn more_than_a_pull_asked_for_ends_the_session() {
    let smallest = profile().ceiling.message_bytes_max();
    let mut session = session();
    session.begin_pull(&consumer(), &PullRequest { max_bytes: smallest, ..pull_of(8) }).unwrap();
    write(&mut session);
    for sequence in 1..=20 {
        session.received(&delivery(0, sequence, &format!("A: {}\r\n", "v".repeat(4_000)), &"p".repeat(1_000)));
    }
    // Twice five thousand bytes are within ten thousand, the line of the pin apart, and the third message is not.
    assert_eq!((session.closed(), delivered(&mut session).len()), (Some(Evidence::OversizedReply), 2));
}

#[test]
fn the_line_of_a_pin_is_not_counted_against_a_pull() {
    let smallest = usize::try_from(profile().ceiling.message_bytes_max()).unwrap();
    let spare = crate::link::PIN_LINE_BYTES;
    let overhead = "NATS/1.0\r\nA: \r\n\r\n".len() + format!("Nats-Pin-Id: {PIN}\r\n").len();
    for beyond in [0, 1] {
        let mut session = session();
        session.begin_pull(&consumer(), &PullRequest { max_bytes: smallest as u64, ..pull_of(8) }).unwrap();
        write(&mut session);
        let first = delivery(0, 1, &format!("A: {}\r\n", "v".repeat(6_000 + spare - overhead)), "");
        let second = delivery(0, 2, &format!("A: {}\r\n", "v".repeat(smallest - 6_000 + spare + beyond - overhead)), "");
        session.received(&[first, second].concat());
        assert_eq!(session.closed().is_some(), beyond > 0, "{beyond}");
    }
}

#[test]
fn nothing_of_a_message_or_a_pin_shows_itself() {
    let (mut session, _) = three();
    session.received(&delivery(0, 9, "marker: x\r\n", "marker"));
    let event = session.poll_event().unwrap();
    let Event::Delivered { message, .. } = &event else { panic!("no message") };
    let shown = format!("{event:?} {message:?} {:?} {:?} {:?} {session:?}", message.ack, message.pin(), message.header_fields());
    assert!(!shown.contains("marker") && !shown.contains(PIN) && !shown.contains("JS.ACK"), "{shown}");
}
