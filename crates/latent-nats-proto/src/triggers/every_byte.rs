//! A scripted peer plays inspection, pull and settlement; each byte in both directions is cut off, stalled or garbled, and what comes out is
//! compared with a reading of the same bytes that shares no code with the machines.
//!
//! What may never be: a pull from a consumer that is not as it must be, a message that is not this consumer's, a settlement to another
//! subject than the message's own, a confirmation without the receipt.

mod reference;

use serde_json::{Value, json};

use super::*;
use crate::testing::{INFO, PASSWORD, inbox, instance, message, message_with_headers, take};
use crate::{Connection, Ended, Evidence, Exchange, Handshake, Link, UncertainCause, Want};

const PROFILE: ConsumerProfile<'static> = ConsumerProfile {
    stream: "ORD",
    consumer: "c1",
    filter_subject: "orders.new",
    ack_wait_nanos: 11_000_000_000,
    max_deliver: 5,
    payload_bytes_max: 1_024,
};
const ACK: &str = "$JS.ACK.ORD.c1.1.22.3.1700000000000000000.0";
const ENDS: [Ended; 4] = [Ended::PeerClosed, Ended::TransportFailed, Ended::DeadlineExceeded, Ended::Cancelled];

fn established() -> Link {
    let mut link = Link::for_triggers(&instance(), 3, PROFILE.payload_bytes_max);
    let mut handshake = Handshake::begin(&mut link, PASSWORD);
    handshake.received(INFO);
    take(&mut handshake);
    handshake.received(b"PONG\r\n");
    assert_eq!(handshake.finish(), Ok(()));
    link
}

/// Gives the bytes in two pieces, or one by one when there is no place to split at.
fn give(exchange: &mut impl Exchange, bytes: &[u8], split: Option<usize>) {
    match split {
        Some(at) => {
            let (first, second) = bytes.split_at(at.min(bytes.len()));
            exchange.received(first);
            exchange.received(second);
        }
        None => bytes.chunks(1).for_each(|byte| exchange.received(byte)),
    }
}

fn splits(bytes: usize) -> impl Iterator<Item = Option<usize>> {
    (0..=bytes).map(Some).chain([None])
}

fn garbled(bytes: &[u8], at: usize, mask: u8) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= mask;
    bytes
}

fn config() -> Value {
    json!({
        "durable_name": "c1", "filter_subject": "orders.new", "ack_policy": "explicit", "replay_policy": "instant", "deliver_policy": "all",
        "max_waiting": 1, "max_ack_pending": 1, "max_batch": 1, "max_expires": 100_000_000, "max_bytes": 10_240,
        "ack_wait": 11_000_000_000_u64, "max_deliver": 5
    })
}

fn info() -> String {
    json!({
        "stream_name": "ORD", "name": "c1", "config": config(), "delivered": {"consumer_seq": 3, "stream_seq": 22},
        "ack_floor": {"consumer_seq": 2, "stream_seq": 21}, "num_ack_pending": 1, "num_redelivered": 0, "num_waiting": 0, "num_pending": 7
    })
    .to_string()
}

fn inspect(link: &mut Link, reply: &[u8], split: Option<usize>, end: Ended) -> InspectEnd {
    let mut inspect = Inspect::begin(link, &PROFILE).unwrap();
    take(&mut inspect);
    give(&mut inspect, reply, split);
    inspect.ended(end);
    inspect.finish()
}

fn pull(link: &mut Link, reply: &[u8], split: Option<usize>, end: Ended) -> PullEnd {
    let mut pull = Pull::begin(link, &PROFILE).unwrap();
    take(&mut pull);
    give(&mut pull, reply, split);
    pull.ended(end);
    pull.finish()
}

/// A link that holds a message.
fn delivered() -> Link {
    let mut link = established();
    assert!(matches!(pull(&mut link, &replies_to_a_pull()[0], Some(0), Ended::Cancelled).result, Ok(Pulled::Message(_))));
    link
}

fn settle(link: &mut Link, reply: &[u8], split: Option<usize>, end: Ended) -> SettleEnd {
    let mut settle = Settle::begin(link, Settlement::Acknowledge).unwrap();
    take(&mut settle);
    give(&mut settle, reply, split);
    settle.ended(end);
    settle.finish()
}

/// Everything that a broker answers a pull with.
fn replies_to_a_pull() -> Vec<Vec<u8>> {
    let delivery = |reply: &str, block: &str, payload: &str| {
        let (headers, total) = (block.len(), block.len() + payload.len());
        format!("HMSG orders.new 1 {reply} {headers} {total}\r\n{block}{payload}\r\n").into_bytes()
    };
    let status = |line: &str| message_with_headers(1, &format!("NATS/1.0 {line}\r\nNats-Pending-Messages: 1\r\n\r\n"), "");
    vec![
        delivery(ACK, "NATS/1.0\r\nA: b\r\n\r\n", "pay\r\nload"),
        format!("MSG orders.new 1 {ACK} 9\r\npay\r\nload\r\n").into_bytes(),
        b"MSG orders.new 1 $JS.ACK._.h.ORD.c1.5.2.3.1.0.x 2\r\nok\r\n".to_vec(),
        status("404 No Messages"),
        status("408 Request Timeout"),
        status("409 Batch Completed"),
        status("409 Consumer Deleted"),
        message_with_headers(1, "NATS/1.0 503\r\n\r\n", ""),
    ]
}

fn cause_of(end: Ended, within_reply: bool) -> UncertainCause {
    match (end, within_reply) {
        (Ended::PeerClosed | Ended::TransportFailed, false) => UncertainCause::ConnectionLost,
        (Ended::PeerClosed | Ended::TransportFailed, true) => UncertainCause::ReplyTruncated,
        (Ended::DeadlineExceeded, false) => UncertainCause::Deadline,
        (Ended::DeadlineExceeded, true) => UncertainCause::ReplyStalled,
        (Ended::Cancelled, _) => UncertainCause::Cancelled,
    }
}

fn evidence_of(end: Ended, within_reply: bool) -> Evidence {
    match end {
        Ended::PeerClosed | Ended::TransportFailed => Evidence::ConnectionLost { within_reply },
        Ended::DeadlineExceeded => Evidence::Deadline { within_reply },
        Ended::Cancelled => Evidence::Cancelled,
    }
}

#[test]
fn an_inspection_cut_stalled_or_split_at_any_byte_is_an_error_or_the_whole_answer() {
    let reply = message(1, &info());
    let whole = inspect(&mut established(), &reply, Some(0), Ended::Cancelled);
    assert!(whole.result.is_ok());
    for split in splits(reply.len()) {
        assert_eq!(inspect(&mut established(), &reply, split, Ended::PeerClosed), whole, "{split:?}");
    }
    for cut in 0..reply.len() {
        for end in ENDS {
            let mut link = established();
            let outcome = inspect(&mut link, &reply[..cut], Some(cut / 2), end);
            let failed = InspectError::Failed { evidence: evidence_of(end, cut > 0), possible_write: true };
            assert_eq!(outcome, InspectEnd { result: Err(failed), connection: Connection::Close }, "{cut}");
            assert!(!link.is_reusable());
        }
    }
}

/// No garbled byte makes another consumer pass, or another backlog be believed.
#[test]
fn an_inspection_garbled_at_any_byte_is_what_its_bytes_say_or_an_error() {
    let reply = message(1, &info());
    let mut taken = 0;
    for at in 0..reply.len() {
        for mask in (0..8).map(|bit| 1 << bit).chain([0x03, 0x09, 0x0f, 0x11, 0x24, 0x42, 0x55, 0xff]) {
            let bytes = garbled(&reply, at, mask);
            let read = reference::message(&bytes).filter(|(message, rest)| {
                message.subject == inbox(1).as_bytes() && message.subscription == b"1" && message.headers.is_none() && rest.is_empty()
            });
            let expected = read.and_then(|(message, _)| reference::state(message.payload, &config()));
            for split in [Some(0), Some(at + 1), None] {
                let end = inspect(&mut established(), &bytes, split, Ended::DeadlineExceeded);
                assert_eq!(end.result.as_ref().ok(), expected.as_ref(), "{} at {at} with {mask:#x}", String::from_utf8_lossy(&bytes));
            }
            taken += usize::from(expected.is_some());
        }
    }
    assert!(taken > 100, "digits of the backlog, names of what is not looked at: {taken}");
}

#[test]
fn a_pull_cut_stalled_or_split_at_any_byte_is_an_error_or_the_whole_answer() {
    for reply in replies_to_a_pull() {
        let whole = pull(&mut established(), &reply, Some(0), Ended::Cancelled);
        assert!(whole.result.is_ok());
        for split in splits(reply.len()) {
            let mut link = established();
            assert_eq!(pull(&mut link, &reply, split, Ended::PeerClosed), whole, "{split:?}");
            assert_eq!(link.delivery().is_some(), matches!(whole.result, Ok(Pulled::Message(_))));
        }
        for cut in 0..reply.len() {
            for end in ENDS {
                let mut link = established();
                let outcome = pull(&mut link, &reply[..cut], Some(cut / 2), end);
                let failed = PullError { evidence: evidence_of(end, cut > 0), possible_write: true };
                assert_eq!(outcome, PullEnd { result: Err(failed), connection: Connection::Close }, "{cut}");
                assert!(link.delivery().is_none() && !link.is_reusable());
            }
        }
    }
}

/// No garbled byte makes a message another consumer's, or lets it be settled on another subject than its own.
#[test]
fn a_pull_garbled_at_any_byte_is_what_its_bytes_say_or_an_error() {
    for reply in replies_to_a_pull() {
        for at in 0..reply.len() {
            for mask in 1..=u8::MAX {
                let bytes = garbled(&reply, at, mask);
                let mut link = established();
                let end = pull(&mut link, &bytes, Some(at + 1), Ended::DeadlineExceeded);
                compare_with_the_reference(&bytes, end, &mut link);
            }
        }
    }
}

fn compare_with_the_reference(bytes: &[u8], end: PullEnd, link: &mut Link) {
    let told = || String::from_utf8_lossy(bytes).into_owned();
    let read = reference::message(bytes).filter(|(message, _)| message.subscription == b"1").map(|(message, _)| message);
    let status = read.and_then(|message| message.headers.map_or(Some(None), reference::status));
    let is_own = read.is_some_and(|message| message.subject == inbox(1).as_bytes());
    let is_status = is_own && matches!(status, Some(Some(_))) && read.is_some_and(|message| message.payload.is_empty());
    // It says that a message comes, and none does.
    let is_early = is_status && read.and_then(|message| message.headers).is_some_and(reference::promises_the_message);
    match end.result {
        Ok(Pulled::Status(_)) => assert!(is_status && !is_early, "{}", told()),
        Ok(Pulled::Message(numbers)) => {
            let message = read.unwrap();
            assert_eq!((message.subject, status), (&b"orders.new"[..], Some(None)), "{}", told());
            assert_eq!(reference::numbers(message.reply, "ORD", "c1"), Some(numbers), "{}", told());
            let delivery = link.delivery().unwrap();
            assert_eq!((delivery.payload, delivery.headers), (message.payload, message.headers.unwrap_or_default()));
            // What stands behind a shorter message is no frame, and nothing is written after that.
            let is_alone = reference::message(bytes).is_some_and(|(_, rest)| rest.is_empty());
            let begun = Settle::begin(link, Settlement::Terminate);
            assert!(begun.is_ok() || !is_alone, "{}", told());
            let Ok(mut settle) = begun else { return };
            let written = take(&mut settle);
            let expected = [b"PUB ", message.reply, b" ", inbox(2).as_bytes(), b" 5\r\n+TERM\r\n"].concat();
            assert_eq!(written, expected, "{}", told());
        }
        Err(error) => {
            assert!(error.possible_write && end.connection == Connection::Close && link.delivery().is_none());
            let is_message = read.is_some_and(|message| {
                message.subject == b"orders.new" && status == Some(None) && reference::numbers(message.reply, "ORD", "c1").is_some()
            });
            assert!((!is_status || is_early) && !is_message, "{}: {error:?}", told());
        }
    }
}

#[test]
fn a_receipt_cut_stalled_or_split_at_any_byte_is_uncertain_or_confirmed() {
    let receipt = message(2, "");
    for split in splits(receipt.len()) {
        let confirmed = SettleEnd { answer: SettleAnswer::Confirmed, connection: Connection::Keep };
        assert_eq!(settle(&mut delivered(), &receipt, split, Ended::PeerClosed), confirmed, "{split:?}");
    }
    for cut in 0..receipt.len() {
        for end in ENDS {
            let mut link = delivered();
            let answer = SettleAnswer::Uncertain(cause_of(end, cut > 0));
            assert_eq!(
                settle(&mut link, &receipt[..cut], Some(cut / 2), end),
                SettleEnd { answer, connection: Connection::Close },
                "{cut}"
            );
            assert!(link.delivery().is_none(), "it is settled once, whatever became of it");
        }
    }
}

/// With and without the status that may come before it: nothing but the receipt confirms.
#[test]
fn a_receipt_garbled_at_any_byte_confirms_only_as_what_it_says() {
    let receipt = message(2, "");
    let status = message_with_headers(1, "NATS/1.0 409 Batch Completed\r\nNats-Pending-Messages: 0\r\n\r\n", "");
    for reply in [receipt.clone(), [status, receipt].concat()] {
        for at in 0..reply.len() {
            for mask in 1..=u8::MAX {
                let bytes = garbled(&reply, at, mask);
                let end = settle(&mut delivered(), &bytes, Some(at + 1), Ended::DeadlineExceeded);
                let is_confirmed = end.answer == SettleAnswer::Confirmed;
                assert_eq!(is_confirmed, confirms(&bytes), "{} with {mask:#x}", String::from_utf8_lossy(&bytes));
                assert!(is_confirmed || matches!(end.answer, SettleAnswer::Uncertain(_)) && end.connection == Connection::Close);
            }
        }
    }
}

/// The receipt, behind at most one status of an earlier operation of the connection.
fn confirms(bytes: &[u8]) -> bool {
    let connection = inbox(2);
    let connection = connection.trim_end_matches('2').as_bytes();
    let Some((first, rest)) = reference::message(bytes).filter(|(first, _)| first.subscription == b"1") else { return false };
    let is_receipt = |message: &reference::Message<'_>| {
        message.subject == inbox(2).as_bytes() && message.subscription == b"1" && message.headers.is_none() && message.payload.is_empty()
    };
    let has_status = first.headers.and_then(reference::status).flatten().is_some();
    let is_late = has_status && first.payload.is_empty() && first.subject.starts_with(connection) && first.subject != inbox(2).as_bytes();
    is_receipt(&first) || is_late && reference::message(rest).is_some_and(|(second, _)| is_receipt(&second))
}

/// Writes until the writer has taken `count` bytes in all. The attempt to write the next byte was made as well.
fn write_up_to(exchange: &mut impl Exchange, count: usize) {
    let mut left = count;
    while exchange.want() == Want::Write {
        exchange.offering();
        let bytes: usize = exchange.outgoing().iter().map(|part| part.len()).sum();
        let taken = bytes.min(left);
        exchange.wrote(taken);
        left -= taken;
        if taken == 0 {
            return;
        }
    }
}

/// What is not written completely is answered by nothing: no backlog is believed, no message taken, no settlement confirmed.
#[test]
fn an_operation_cut_or_stalled_at_any_byte_of_what_it_writes_has_no_answer() {
    let bytes = |exchange: &mut dyn FnMut() -> usize| exchange();
    let inspection_bytes = bytes(&mut || take(&mut Inspect::begin(&mut established(), &PROFILE).unwrap()).len());
    let pull_bytes = bytes(&mut || take(&mut Pull::begin(&mut established(), &PROFILE).unwrap()).len());
    let settle_bytes = bytes(&mut || take(&mut Settle::begin(&mut delivered(), Settlement::RetryAfter { nanos: 1 }).unwrap()).len());
    for end in ENDS {
        for count in 0..inspection_bytes {
            let mut link = established();
            let mut inspect = Inspect::begin(&mut link, &PROFILE).unwrap();
            write_up_to(&mut inspect, count);
            inspect.received(&message(1, &info()));
            inspect.ended(end);
            let outcome = inspect.finish();
            assert!(matches!(outcome.result, Err(InspectError::Failed { possible_write: true, .. })), "{count}: {outcome:?}");
            assert_eq!(outcome.connection, Connection::Close);
        }
        for count in 0..pull_bytes {
            let mut link = established();
            let mut pull = Pull::begin(&mut link, &PROFILE).unwrap();
            write_up_to(&mut pull, count);
            pull.received(&replies_to_a_pull()[count % 8]);
            pull.ended(end);
            let outcome = pull.finish();
            assert!(matches!(outcome.result, Err(PullError { possible_write: true, .. })), "{count}: {outcome:?}");
            assert!(link.delivery().is_none() && !link.is_reusable());
        }
        for count in 0..settle_bytes {
            let mut link = delivered();
            let mut settle = Settle::begin(&mut link, Settlement::RetryAfter { nanos: 1 }).unwrap();
            write_up_to(&mut settle, count);
            settle.received(&message(2, ""));
            settle.ended(end);
            let outcome = settle.finish();
            assert!(matches!(outcome.answer, SettleAnswer::Uncertain(_)), "{count}: {outcome:?}");
            assert_eq!(outcome.connection, Connection::Close);
        }
        // Nothing offered is nothing sent.
        let mut link = delivered();
        let mut settle = Settle::begin(&mut link, Settlement::Acknowledge).unwrap();
        settle.ended(end);
        assert!(matches!(settle.finish().answer, SettleAnswer::NotSent(_)));
    }
}
