use super::*;
use crate::testing::{INFO, PASSWORD, inbox, instance, message, message_with_headers, take};
use crate::{Checkout, Connection, Ended, Evidence, Exchange, FailureCause, Handshake, Link, UncertainCause, Want};

const PROFILE: ConsumerProfile<'static> = ConsumerProfile {
    stream: "ORD",
    consumer: "c1",
    filter_subject: "orders.new",
    ack_wait_nanos: 11_000_000_000,
    max_deliver: 5,
    payload_bytes_max: 32_768,
};
const ACK: &str = "$JS.ACK.ORD.c1.1.22.3.1700000000000000000.0";
const BATCH_COMPLETED: &str = "NATS/1.0 409 Batch Completed\r\nNats-Pending-Messages: 0\r\nNats-Pending-Bytes: 41000\r\n\r\n";

fn established() -> Link {
    let mut link = Link::for_triggers(&instance(), 3, PROFILE.payload_bytes_max);
    let mut handshake = Handshake::begin(&mut link, PASSWORD);
    handshake.received(INFO);
    take(&mut handshake);
    handshake.received(b"PONG\r\n");
    assert_eq!(handshake.finish(), Ok(()));
    link
}

fn delivered(subject: &str, subscription: &str, reply: &str, block: &str, payload: &str) -> Vec<u8> {
    let bytes = block.len() + payload.len();
    format!("HMSG {subject} {subscription} {reply} {} {bytes}\r\n{block}{payload}\r\n", block.len()).into()
}

fn good() -> Vec<u8> {
    delivered("orders.new", "1", ACK, "NATS/1.0\r\nLsf-Attr-a: b\r\n\r\n", "payload")
}

fn pull(link: &mut Link, reply: &[u8]) -> PullEnd {
    let mut pull = Pull::begin(link, &PROFILE).unwrap();
    take(&mut pull);
    pull.received(reply);
    take(&mut pull);
    pull.ended(Ended::DeadlineExceeded);
    pull.finish()
}

fn settle(link: &mut Link, reply: &[u8]) -> SettleEnd {
    let mut settle = Settle::begin(link, Settlement::Acknowledge).unwrap();
    take(&mut settle);
    settle.received(reply);
    settle.ended(Ended::DeadlineExceeded);
    settle.finish()
}

#[test]
fn one_message_is_pulled_kept_and_settled_whenever_the_late_status_comes() {
    let status = message_with_headers(1, BATCH_COMPLETED, "");
    let confirmed = SettleEnd { answer: SettleAnswer::Confirmed, connection: Connection::Keep };
    for place in 0..4 {
        let mut link = established();
        let mut pull = Pull::begin(&mut link, &PROFILE).unwrap();
        let written = String::from_utf8(take(&mut pull)).unwrap();
        let body = r#"{"batch":1,"no_wait":true,"expires":100000000,"max_bytes":41984}"#;
        assert_eq!(written, format!("PUB $JS.API.CONSUMER.MSG.NEXT.ORD.c1 {} {}\r\n{body}\r\n", inbox(1), body.len()));
        let mut reply = good();
        if place == 0 {
            reply.extend(&status);
        }
        reply.chunks(3).for_each(|piece| pull.received(piece));
        let end = pull.finish();
        assert!(matches!(end.result, Ok(Pulled::Message(numbers)) if numbers.stream_sequence == 22 && numbers.deliveries == 1));
        let delivery = link.delivery().unwrap();
        assert_eq!((delivery.payload, delivery.headers), (&b"payload"[..], &b"NATS/1.0\r\nLsf-Attr-a: b\r\n\r\n"[..]));

        let mut settle = Settle::begin(&mut link, Settlement::RetryAfter { nanos: 250_000_000 }).unwrap();
        let written = String::from_utf8(take(&mut settle)).unwrap();
        assert_eq!(written, format!("PUB {ACK} {} 24\r\n-NAK {{\"delay\":250000000}}\r\n", inbox(2)));
        let confirmation = message(2, "");
        match place {
            1 => settle.received(&[&*status, &confirmation].concat()),
            2 => settle.received(&[&*confirmation, &status].concat()),
            _ => settle.received(&confirmation),
        }
        assert_eq!((settle.want(), settle.finish()), (Want::Done, confirmed));
        assert!(link.delivery().is_none());

        let mut checkout = Checkout::begin(&mut link);
        take(&mut checkout);
        if place == 3 {
            checkout.received(&status);
        }
        checkout.received(b"PONG\r\n");
        assert_eq!(checkout.finish(), Ok(()), "{place}");
        // It comes once.
        let mut checkout = Checkout::begin(&mut link);
        take(&mut checkout);
        checkout.received(&status);
        assert!(checkout.finish().is_err(), "{place}");
    }
}

/// As brokers with replicas do it.
#[test]
fn a_status_that_says_that_the_message_was_given_may_come_before_it() {
    let early = message_with_headers(1, BATCH_COMPLETED, "");
    let mut link = established();
    let mut asked = Pull::begin(&mut link, &PROFILE).unwrap();
    take(&mut asked);
    asked.received(&early);
    assert_eq!(asked.want(), Want::Read, "its message is still to come");
    asked.received(&good());
    let end = asked.finish();
    assert!(matches!(end.result, Ok(Pulled::Message(_))) && end.connection == Connection::Keep, "{end:?}");
    // Then none follows it.
    let mut settle = Settle::begin(&mut link, Settlement::Acknowledge).unwrap();
    take(&mut settle);
    settle.received(&early);
    assert_eq!(settle.finish().connection, Connection::Close);
    // Twice is once too often, without its message the deadline ends it, and one that leaves the request unused ends it at once.
    let mut link = established();
    assert_eq!(pull(&mut link, &early.repeat(2)).result, Ok(Pulled::Status(PullStatus::BatchCompleted)));
    let mut link = established();
    let end = pull(&mut link, &early);
    assert!(matches!(end.result, Err(PullError { evidence: Evidence::Deadline { .. }, .. })) && end.connection == Connection::Close);
    let mut link = established();
    let unused = BATCH_COMPLETED.replace("Messages: 0", "Messages: 1");
    assert_eq!(pull(&mut link, &message_with_headers(1, &unused, "")).result, Ok(Pulled::Status(PullStatus::BatchCompleted)));
}

/// The status behind a message may be cut anywhere, between any two of the operations that follow.
#[test]
fn a_status_that_is_half_read_keeps_no_message_from_being_settled() {
    let status = message_with_headers(1, BATCH_COMPLETED, "");
    let confirmed = SettleEnd { answer: SettleAnswer::Confirmed, connection: Connection::Keep };
    for first in 0..=status.len() {
        for second in first..=status.len() {
            let mut link = established();
            let mut asked = Pull::begin(&mut link, &PROFILE).unwrap();
            take(&mut asked);
            asked.received(&[&*good(), &status[..first]].concat());
            assert!(matches!(asked.finish().result, Ok(Pulled::Message(_))), "{first}");
            let mut settle = Settle::begin(&mut link, Settlement::Acknowledge).unwrap();
            take(&mut settle);
            // The rest of the status comes before the receipt, or both come together later: a receipt is never inside of another frame.
            settle.received(&status[first..second]);
            settle.received(&[&status[second..], &*message(2, "")].concat());
            assert_eq!(settle.finish(), confirmed, "{first} {second}");
            let mut inspect = Inspect::begin(&mut link, &PROFILE).unwrap();
            take(&mut inspect);
            inspect.received(&message(3, &info()));
            assert!(inspect.finish().result.is_ok());
        }
    }
}

#[test]
fn a_message_is_settled_once_and_only_when_there_is_one() {
    let mut link = established();
    assert!(matches!(Settle::begin(&mut link, Settlement::Acknowledge), Err(RequestRefused::Text)));
    pull(&mut link, &good()).result.unwrap();
    assert_eq!(settle(&mut link, &message(2, "")).answer, SettleAnswer::Confirmed);
    assert!(matches!(Settle::begin(&mut link, Settlement::Acknowledge), Err(RequestRefused::Text)));
    for (settlement, body) in [(Settlement::Acknowledge, "+ACK"), (Settlement::Terminate, "+TERM")] {
        let mut link = established();
        pull(&mut link, &good()).result.unwrap();
        let written = take(&mut Settle::begin(&mut link, settlement).unwrap());
        assert!(written.ends_with(format!(" {}\r\n{body}\r\n", body.len()).as_bytes()));
    }
}

#[test]
fn statuses_end_a_pull_and_only_unknown_ones_the_connection() {
    let table = [
        ("404 No Messages", PullStatus::Empty, Connection::Keep),
        ("408 Request Timeout", PullStatus::Expired, Connection::Keep),
        ("409 Batch Completed", PullStatus::BatchCompleted, Connection::Keep),
        ("409 Consumer Deleted", PullStatus::ConsumerDeleted, Connection::Keep),
        ("503", PullStatus::NoResponders, Connection::Keep),
        ("499 x", PullStatus::Unknown(499), Connection::Close),
    ];
    for (line, status, connection) in table {
        let mut link = established();
        let end = pull(&mut link, &message_with_headers(1, &format!("NATS/1.0 {line}\r\n\r\n"), ""));
        assert_eq!(end, PullEnd { result: Ok(Pulled::Status(status)), connection }, "{line}");
        assert!(link.delivery().is_none());
    }
}

#[test]
fn a_message_that_is_not_this_consumer_s_is_refused_and_not_kept() {
    let none = "NATS/1.0\r\n\r\n";
    let (large, long) = ("p".repeat(32_769), format!("NATS/1.0\r\nA: {}\r\n\r\n", "v".repeat(8_192)));
    let table = [
        (delivered("orders.old", "1", ACK, none, "x"), Evidence::ForeignReply),
        (delivered("orders.new", "2", ACK, none, "x"), Evidence::ForeignReply),
        (delivered("orders.new", "1", "$JS.ACK.ORD.c2.1.22.3.1.0", none, "x"), Evidence::ForeignReply),
        (delivered("orders.new", "1", "$JS.ACK.ORD.c1.0.22.3.1.0", none, "x"), Evidence::ForeignReply),
        (delivered("orders.new", "1", "orders.new", none, "x"), Evidence::ForeignReply),
        (delivered("orders.new", "1", "", none, "x"), Evidence::ForeignReply),
        (delivered("orders.new", "1", ACK, "NATS/1.0 100\r\n\r\n", "x"), Evidence::ForeignReply),
        (delivered("orders.new", "1", ACK, none, &large), Evidence::OversizedReply),
        (delivered("orders.new", "1", ACK, &long, "x"), Evidence::OversizedReply),
        (delivered("orders.new", "1", ACK, "NATS/1.0\r\n", "x"), Evidence::MalformedFrame),
        (message(1, "x"), Evidence::UnexpectedFrame),
        (message_with_headers(2, BATCH_COMPLETED, ""), Evidence::ForeignReply),
        (b"HMSG orders.new 1 r 12 100000\r\n".to_vec(), Evidence::OversizedReply),
        (b"-ERR 'x'\r\n".to_vec(), Evidence::BrokerError),
        (b"PONG\r\n".to_vec(), Evidence::UnexpectedFrame),
        (b"PING\r\n".repeat(9), Evidence::ControlFlood),
        (good()[..30].to_vec(), Evidence::Deadline { within_reply: true }),
        (Vec::new(), Evidence::Deadline { within_reply: false }),
    ];
    for (reply, evidence) in table {
        let mut link = established();
        let end = pull(&mut link, &reply);
        let expected = PullEnd { result: Err(PullError { evidence, possible_write: true }), connection: Connection::Close };
        assert_eq!(end, expected, "{:.80}", String::from_utf8_lossy(&reply));
        assert!(link.delivery().is_none() && !link.is_reusable());
    }
}

#[test]
fn the_largest_message_fits() {
    let block = format!("NATS/1.0\r\nA: {}\r\n\r\n", "v".repeat(8_192 - 17));
    assert_eq!(block.len(), 8_192);
    let mut link = established();
    let capacity = link.delivery.capacity();
    let payload = "p".repeat(32_768);
    let end = pull(&mut link, &delivered("orders.new", "1", ACK, &block, &payload));
    assert!(matches!(end.result, Ok(Pulled::Message(_))));
    assert_eq!(link.delivery().unwrap().payload.len(), 32_768);
    assert_eq!(link.delivery.capacity(), capacity);
}

#[test]
fn a_settlement_without_its_receipt_is_uncertain_from_the_first_offer_on() {
    let table = [
        (message(2, "x"), UncertainCause::MalformedReply),
        (message(1, ""), UncertainCause::ForeignReply),
        (message_with_headers(2, "NATS/1.0 503\r\n\r\n", ""), UncertainCause::UnexpectedStatus),
        (b"-ERR 'Permissions Violation for Publish to \"x\"'\r\n".to_vec(), UncertainCause::PermissionOfAnother),
        (b"-ERR 'Maximum Payload Violation'\r\n".to_vec(), UncertainCause::BrokerError),
        (good(), UncertainCause::ForeignReply),
        (Vec::new(), UncertainCause::Deadline),
        (message(2, "")[..9].to_vec(), UncertainCause::ReplyStalled),
    ];
    for (reply, cause) in table {
        let mut link = established();
        pull(&mut link, &good()).result.unwrap();
        let expected = SettleEnd { answer: SettleAnswer::Uncertain(cause), connection: Connection::Close };
        assert_eq!(settle(&mut link, &reply), expected, "{}", String::from_utf8_lossy(&reply));
    }
    for (offered, end) in
        [(false, SettleAnswer::NotSent(FailureCause::Cancelled)), (true, SettleAnswer::Uncertain(UncertainCause::Cancelled))]
    {
        let mut link = established();
        pull(&mut link, &good()).result.unwrap();
        let mut settle = Settle::begin(&mut link, Settlement::Terminate).unwrap();
        if offered {
            settle.offering();
        }
        settle.ended(Ended::Cancelled);
        assert_eq!(settle.finish().answer, end);
    }
}

fn info() -> String {
    r#"{"type":"io.nats.jetstream.api.v1.consumer_info_response","stream_name":"ORD","name":"c1","created":"2026-01-01T00:00:00Z",
    "config":{"durable_name":"c1","deliver_policy":"all","ack_policy":"explicit","ack_wait":11000000000,"max_deliver":5,
    "filter_subject":"orders.new","replay_policy":"instant","max_waiting":1,"max_ack_pending":1,"max_batch":1,"max_expires":100000000,
    "max_bytes":41984,"num_replicas":0,"metadata":{"_nats.ver":"2.14.6"}},"delivered":{"consumer_seq":3,"stream_seq":22},
    "ack_floor":{"consumer_seq":2,"stream_seq":21},"num_ack_pending":1,"num_redelivered":0,"num_waiting":0,"num_pending":7}"#
        .replace('\n', "")
}

fn inspect(body: &str) -> InspectEnd {
    let mut link = established();
    let mut inspect = Inspect::begin(&mut link, &PROFILE).unwrap();
    assert_eq!(take(&mut inspect), format!("PUB $JS.API.CONSUMER.INFO.ORD.c1 {} 0\r\n\r\n", inbox(1)).into_bytes());
    inspect.received(&message(1, body));
    inspect.ended(Ended::PeerClosed);
    inspect.finish()
}

#[test]
fn a_consumer_is_what_the_profile_needs_in_every_field() {
    let state = ConsumerState {
        pending: 7,
        ack_pending: 1,
        redelivered: 0,
        waiting: 0,
        delivered_stream_sequence: 22,
        delivered_consumer_sequence: 3,
        ack_floor_stream_sequence: 21,
    };
    assert_eq!(inspect(&info()), InspectEnd { result: Ok(state), connection: Connection::Keep });
    let changes = [
        (r#""stream_name":"ORD""#, r#""stream_name":"OTHER""#, ProfileField::Stream, "ORD", "OTHER"),
        (r#""name":"c1""#, r#""name":"c2""#, ProfileField::Consumer, "c1", "c2"),
        (r#""durable_name":"c1","#, "", ProfileField::Consumer, "c1", "absent"),
        (r#""filter_subject":"orders.new""#, r#""filter_subject":"orders.>""#, ProfileField::FilterSubject, "orders.new", "orders.>"),
        (r#""filter_subject":"orders.new""#, r#""filter_subjects":["orders.new","x"]"#, ProfileField::FilterSubjects, "absent", "a list"),
        (r#""filter_subject":"orders.new","#, "", ProfileField::FilterSubject, "orders.new", "absent"),
        (r#""ack_policy":"explicit""#, r#""ack_policy":"all""#, ProfileField::AckPolicy, "explicit", "all"),
        (r#""ack_policy":"explicit""#, r#""ack_policy":"\u001b[31mé""#, ProfileField::AckPolicy, "explicit", "?[31m?"),
        (r#""filter_subject":"orders.new""#, r#""filter_subject":"orders.\u003e""#, ProfileField::FilterSubject, "orders.new", "orders.>"),
        (r#""replay_policy":"instant""#, r#""replay_policy":"original""#, ProfileField::ReplayPolicy, "instant", "original"),
        (r#""deliver_policy":"all""#, r#""deliver_policy":"new""#, ProfileField::DeliverPolicy, "all", "new"),
        (r#""max_waiting":1"#, r#""max_waiting":512"#, ProfileField::MaxWaiting, "1", "512"),
        (r#""max_ack_pending":1"#, r#""max_ack_pending":2"#, ProfileField::MaxAckPending, "1", "2"),
        (r#""max_batch":1,"#, "", ProfileField::MaxBatch, "1", "absent"),
        (r#""max_expires":100000000"#, r#""max_expires":100000001"#, ProfileField::MaxExpires, "100000000", "100000001"),
        (r#""max_bytes":41984"#, r#""max_bytes":41985"#, ProfileField::MaxBytes, "41984", "41985"),
        (r#""ack_wait":11000000000"#, r#""ack_wait":11000000001"#, ProfileField::AckWait, "11000000000", "11000000001"),
        (r#""max_deliver":5"#, r#""max_deliver":6"#, ProfileField::MaxDeliver, "5", "6"),
        (r#""max_deliver":5"#, r#""max_deliver":-1"#, ProfileField::MaxDeliver, "5", "-1"),
        (r#""num_replicas":0"#, r#""deliver_subject":"x""#, ProfileField::DeliverSubject, "absent", "x"),
        (r#""num_replicas":0"#, r#""headers_only":true"#, ProfileField::HeadersOnly, "absent", "true"),
        (r#""num_replicas":0"#, r#""flow_control":true"#, ProfileField::FlowControl, "absent", "true"),
        (r#""num_replicas":0"#, r#""backoff":[1000000000]"#, ProfileField::Backoff, "absent", "a list"),
        (r#""num_replicas":0"#, r#""inactive_threshold":5000000000"#, ProfileField::InactiveThreshold, "absent", "5000000000"),
        (r#""num_replicas":0"#, r#""priority_groups":["a"]"#, ProfileField::PriorityGroups, "absent", "a list"),
    ];
    for (from, to, field, required, found) in changes {
        assert!(info().contains(from), "{from}");
        let mismatch = ProfileMismatch { field, required: required.into(), found: found.into() };
        let expected = InspectEnd { result: Err(InspectError::Profile(Box::new(mismatch))), connection: Connection::Keep };
        assert_eq!(inspect(&info().replacen(from, to, 1)), expected, "{to}");
    }
    let absent =
        info().replace(r#""num_replicas":0"#, r#""headers_only":false,"flow_control":false,"inactive_threshold":0,"deliver_subject":"""#);
    assert!(inspect(&absent).result.is_ok());
}

#[test]
fn an_inspection_without_a_usable_reply_is_an_error() {
    let refused = InspectError::Refused { code: Some(404), err_code: Some(10_014) };
    let end = inspect(r#"{"error":{"code":404,"err_code":10014,"description":"consumer not found"}}"#);
    assert_eq!(end, InspectEnd { result: Err(refused), connection: Connection::Keep });
    let malformed = InspectEnd { result: Err(InspectError::Malformed), connection: Connection::Close };
    let repeated = info().replacen(r#""max_waiting":1"#, r#""max_waiting":2,"max_waiting":1"#, 1);
    let text = info().replacen(r#""max_deliver":5"#, r#""max_deliver":"5""#, 1);
    for body in ["", "{", "[]", &repeated, &text] {
        assert_eq!(inspect(body), malformed, "{body:.60}");
    }
    let mut link = established();
    let mut inspect = Inspect::begin(&mut link, &PROFILE).unwrap();
    inspect.ended(Ended::Cancelled);
    let failed = InspectError::Failed { evidence: Evidence::Cancelled, possible_write: false };
    assert_eq!(inspect.finish(), InspectEnd { result: Err(failed), connection: Connection::Close });
}

#[test]
fn names_that_could_shift_a_field_are_not_sent() {
    for name in ["", "a b", "a.b", "*", ">", "a\r\nPUB x 0", "é", &"n".repeat(129)] {
        for profile in [ConsumerProfile { stream: name, ..PROFILE }, ConsumerProfile { consumer: name, ..PROFILE }] {
            let mut link = established();
            assert!(matches!(Inspect::begin(&mut link, &profile), Err(RequestRefused::Text)), "{name:?}");
            assert!(matches!(Pull::begin(&mut link, &profile), Err(RequestRefused::Text)), "{name:?}");
            assert!(link.is_reusable());
        }
    }
}

#[test]
fn a_delivery_does_not_show_itself() {
    let mut link = established();
    pull(&mut link, &delivered("orders.new", "1", ACK, "NATS/1.0\r\nmarker: x\r\n\r\n", "marker")).result.unwrap();
    let shown = format!("{:?} {link:?} {:?}", link.delivery(), Settle::begin(&mut established(), Settlement::Acknowledge));
    assert!(!shown.contains("marker"), "{shown}");
}
