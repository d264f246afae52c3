//! The body of the fuzz target for exchanges: a script of what peer, writer and caller do, played against every machine.

use crate::limits::{CONTROL_FRAMES, LINK_BYTES};
use crate::testing::{INFO, PASSWORD, STREAM, SUBJECT, fresh, instance, message, message_with_headers, publication};
use crate::triggers::{ConsumerProfile, Inspect, Pull, Pulled, Settle, SettleAnswer, Settlement};
use crate::{Answer, Checkout, Connection, Ended, Exchange, Handshake, Link, Publish, Want};

const PAYLOAD: &[u8] = b"payload";
/// Exchanges of one script.
const EXCHANGES_MAX: u64 = 64;

/// What the script has left.
pub(super) struct Script<'a>(pub(super) &'a [u8]);

impl<'a> Script<'a> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

/// What happened to one exchange.
#[derive(Default)]
struct Seen {
    offered: bool,
    written: usize,
}

/// Plays a script: the handshake, then whatever each byte asks for, until it is used up or the link is.
pub(super) fn exchanges(input: &[u8]) {
    let (mut link, mut script) = (fresh(), Script(input));
    let mut handshake = Handshake::begin(&mut link, PASSWORD);
    play(&mut handshake, &mut script, 0);
    let is_open = handshake.finish().is_ok();
    assert!(is_open || !link.is_reusable(), "a link without a session is reusable");
    for operation in 1..=EXCHANGES_MAX {
        let Some(choice) = script.byte() else { return };
        if !link.is_reusable() {
            return;
        }
        if choice % 4 == 0 {
            let mut checkout = Checkout::begin(&mut link);
            play(&mut checkout, &mut script, operation);
            let is_good = checkout.finish().is_ok();
            assert!(is_good || !link.is_reusable(), "a link whose check failed is reusable");
        } else {
            publish(&mut link, &mut script, operation);
        }
        assert!(link.head.capacity() <= LINK_BYTES.max_usize(), "a link grows");
    }
}

fn publish(link: &mut Link, script: &mut Script<'_>, operation: u64) {
    let publication = publication(PAYLOAD);
    let Ok(mut publish) = Publish::begin(link, &publication) else { return };
    let bytes: usize = publish.outgoing().iter().map(|part| part.len()).sum();
    let seen = play(&mut publish, script, operation);
    let end = publish.finish();
    assert_eq!(end.possible_write, seen.offered, "the border is somewhere else");
    match end.outcome {
        Answer::Receipt { sequence, .. } => assert!(sequence > 0 && seen.written >= bytes, "a receipt for what was not written"),
        Answer::Uncertain(_) => assert!(seen.offered, "uncertain before the write"),
        Answer::KnownFailure { .. } => (),
    }
    assert!(end.connection == Connection::Keep || !link.is_reusable(), "a link that must be closed is reusable");
}

/// The consumer of the scripts.
pub(super) const PROFILE: ConsumerProfile<'static> = ConsumerProfile {
    stream: STREAM,
    consumer: "c1",
    filter_subject: SUBJECT,
    ack_wait_nanos: 11_000_000_000,
    max_deliver: 5,
    payload_bytes_max: 64,
};

/// Plays a script on a link that pulls: after the handshake each byte begins one of the three operations.
pub(super) fn triggers(input: &[u8]) {
    let (mut link, mut script) = (Link::for_triggers(&instance(), 3, PROFILE.payload_bytes_max), Script(input));
    let mut handshake = Handshake::begin(&mut link, PASSWORD);
    play(&mut handshake, &mut script, 0);
    let _ = handshake.finish();
    for operation in 1..=EXCHANGES_MAX {
        let Some(choice) = script.byte() else { return };
        if !link.is_reusable() {
            return;
        }
        let connection = match choice % 4 {
            0 => {
                let Ok(mut inspect) = Inspect::begin(&mut link, &PROFILE) else { return };
                play(&mut inspect, &mut script, operation);
                inspect.finish().connection
            }
            1 => pull(&mut link, &mut script, operation),
            2 => settle(&mut link, &mut script, operation),
            _ => {
                let mut checkout = Checkout::begin(&mut link);
                play(&mut checkout, &mut script, operation);
                if checkout.finish().is_ok() { Connection::Keep } else { Connection::Close }
            }
        };
        assert!(connection == Connection::Keep || !link.is_reusable(), "a link that must be closed is reusable");
    }
}

fn pull(link: &mut Link, script: &mut Script<'_>, operation: u64) -> Connection {
    let Ok(mut pull) = Pull::begin(link, &PROFILE) else { return Connection::Close };
    let seen = play(&mut pull, script, operation);
    let end = pull.finish();
    assert!(end.result.is_err() || seen.offered, "an answer to what was not asked");
    let is_message = matches!(end.result, Ok(Pulled::Message(_)));
    assert_eq!(link.delivery().is_some(), is_message, "what is kept is not what was pulled");
    end.connection
}

fn settle(link: &mut Link, script: &mut Script<'_>, operation: u64) -> Connection {
    let had_message = link.delivery().is_some();
    let Ok(mut settle) = Settle::begin(link, Settlement::RetryAfter { nanos: u64::MAX }) else {
        return if link.is_reusable() { Connection::Keep } else { Connection::Close };
    };
    let seen = play(&mut settle, script, operation);
    let end = settle.finish();
    assert!(had_message && link.delivery().is_none(), "a message is settled once");
    assert_eq!(matches!(end.answer, SettleAnswer::NotSent(_)), !seen.offered, "the border is somewhere else");
    end.connection
}

fn play(exchange: &mut impl Exchange, script: &mut Script<'_>, operation: u64) -> Seen {
    let mut seen = Seen::default();
    while exchange.want() != Want::Done {
        let Some(choice) = script.byte() else { break };
        let argument = usize::from(script.byte().unwrap_or(0));
        let waiting: usize = exchange.outgoing().iter().map(|part| part.len()).sum();
        assert!(waiting <= PAYLOAD.len() + LINK_BYTES.max_usize(), "{waiting} bytes wait");
        match choice % 16 {
            0..=3 if waiting > 0 => {
                let count = if choice % 2 == 0 { waiting } else { argument.min(waiting) };
                exchange.offering();
                exchange.wrote(count);
                seen.offered = true;
                seen.written += count;
            }
            0 => exchange.received(INFO),
            1 => exchange.received(b"PONG\r\n"),
            2 => exchange.received(&b"PING\r\n".repeat(argument % (CONTROL_FRAMES.max_usize() + 2))),
            3 => exchange.received(&message(operation, r#"{"stream":"ORD","seq":1}"#)),
            4 => exchange.received(&message(operation, r#"{"error":{"code":400,"err_code":10060},"stream":"ORD","seq":0}"#)),
            5 => exchange.received(&message_with_headers(operation, "NATS/1.0 503\r\n\r\n", "")),
            6 => exchange.received(b"-ERR 'Permissions Violation for Publish to \"orders.new\"'\r\n"),
            7 => exchange.received(&message(operation.wrapping_sub(1), r#"{"stream":"ORD","seq":1}"#)),
            8 => exchange.received(b"INFO {\"headers\":true,\"max_payload\":10}\r\n"),
            9 => exchange.ended([Ended::PeerClosed, Ended::TransportFailed, Ended::DeadlineExceeded, Ended::Cancelled][argument % 4]),
            10 => break,
            13 => exchange.received(&message(operation, "")),
            14 => exchange.received(&delivered()),
            15 => exchange.received(&message_with_headers(operation, "NATS/1.0 409 Batch Completed\r\n\r\n", "")),
            11 => exchange.received(&vec![b'x'; argument * 100]),
            _ => exchange.received(script.bytes(argument)),
        }
    }
    seen
}

/// A message of the consumer.
fn delivered() -> Vec<u8> {
    let subject = "$JS.ACK.ORD.c1.1.22.3.1700000000000000000.0";
    format!("HMSG {SUBJECT} 1 {subject} 12 19\r\nNATS/1.0\r\n\r\npayload\r\n").into()
}
