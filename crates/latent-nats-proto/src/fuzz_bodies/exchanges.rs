//! The body of the fuzz target for exchanges: a script of what peer, writer and caller do, played against every machine.

use crate::limits::{CONTROL_FRAMES, LINK_BYTES};
use crate::testing::{INFO, PASSWORD, fresh, message, message_with_headers, publication};
use crate::{Answer, Checkout, Connection, Ended, Exchange, Handshake, Link, Publish, Want};

const PAYLOAD: &[u8] = b"payload";
/// Exchanges of one script.
const EXCHANGES_MAX: u64 = 64;

/// What the script has left.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes(&mut self, count: usize) -> &'a [u8] {
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
            11 => exchange.received(&vec![b'x'; argument * 100]),
            _ => exchange.received(script.bytes(argument)),
        }
    }
    seen
}
