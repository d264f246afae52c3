//! A scripted peer plays handshake, checkout and publication; each byte in both directions is cut off, stalled or garbled, and what comes
//! out is compared with a reading of the same bytes that shares no code with the machines.

mod reference;

use crate::testing::{INFO, PASSWORD, fresh, message, message_with_headers, publication, take};
use crate::{
    Answer, Checkout, CheckoutError, Ended, Evidence, Exchange, FailureKind, Handshake, HandshakeError, Link, Publish, PublishEnd, Stage,
    UncertainCause, Want, decide,
};
use reference::Expected;

const PONG: &[u8] = b"PONG\r\n";
const PAYLOAD: &[u8] = b"pay\r\nload";
/// One bit, a letter's case, the sign bit, a digit into another, and everything.
const MASKS: [u8; 6] = [0x01, 0x02, 0x20, 0x04, 0x80, 0xff];
const ENDS: [Ended; 4] = [Ended::PeerClosed, Ended::TransportFailed, Ended::DeadlineExceeded, Ended::Cancelled];

/// Everything that a broker answers a publication with.
fn replies() -> Vec<Vec<u8>> {
    let refusal = |code: u32, err_code: u32| {
        message(1, &format!(r#"{{"error":{{"code":{code},"err_code":{err_code},"description":"no"}},"stream":"ORD","seq":0}}"#))
    };
    vec![
        message(1, r#"{"stream":"ORD","seq":1}"#),
        message(1, r#"{"stream":"ORD","seq":20,"duplicate": true}"#),
        refusal(400, 10_060),
        message(1, r#"{"error":{"code":400,"err_code":10060,"description":"no"},"stream":"OTHER","seq":0}"#),
        refusal(400, 10_054),
        refusal(503, 10_077),
        message_with_headers(1, "NATS/1.0 503\r\nNats-Subject: orders.new\r\n\r\n", ""),
        b"-ERR 'Permissions Violation for Publish to \"orders.new\"'\r\n".to_vec(),
        b"-ERR 'Maximum Payload Violation'\r\n".to_vec(),
    ]
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

/// Every way to give so many bytes.
fn splits(bytes: usize) -> impl Iterator<Item = Option<usize>> {
    (0..=bytes).map(Some).chain([None])
}

fn garbled(bytes: &[u8], at: usize, mask: u8) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= mask;
    bytes
}

/// The handshake with a peer that says these two things, then falls silent until the deadline.
fn handshake(link: &mut Link, info: &[u8], pong: &[u8], split: Option<usize>, end: Ended) -> Result<(), HandshakeError> {
    let mut handshake = Handshake::begin(link, PASSWORD);
    give(&mut handshake, info, split);
    if !take(&mut handshake).is_empty() {
        give(&mut handshake, pong, split);
    }
    handshake.ended(end);
    handshake.finish()
}

fn checkout(link: &mut Link, pong: &[u8], split: Option<usize>, end: Ended) -> Result<(), CheckoutError> {
    let mut checkout = Checkout::begin(link);
    take(&mut checkout);
    give(&mut checkout, pong, split);
    checkout.ended(end);
    checkout.finish()
}

/// A publication that was written, whose peer says this and then ends so.
fn publish(link: &mut Link, reply: &[u8], split: Option<usize>, end: Ended) -> PublishEnd {
    let publication = publication(PAYLOAD);
    let mut publish = Publish::begin(link, &publication).unwrap();
    take(&mut publish);
    give(&mut publish, reply, split);
    publish.ended(end);
    publish.finish()
}

/// A link after a handshake and a checkout.
fn checked() -> Link {
    let mut link = fresh();
    assert_eq!(handshake(&mut link, INFO, PONG, Some(0), Ended::Cancelled), Ok(()));
    assert_eq!(checkout(&mut link, PONG, Some(0), Ended::Cancelled), Ok(()));
    link
}

fn known_before_the_write(evidence: Evidence) {
    assert!(matches!(decide(Stage::BeforeWrite, evidence), Answer::KnownFailure { .. }), "{evidence:?}");
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

#[test]
fn a_whole_reply_ends_the_same_however_it_is_split() {
    for reply in replies() {
        let Expected::Answer(expected) = reference::answer(&reply) else { panic!("a reply that ends nothing") };
        for split in splits(reply.len()) {
            for end in ENDS {
                let outcome = publish(&mut checked(), &reply, split, end).outcome;
                assert_eq!(outcome, expected, "{} {split:?}", String::from_utf8_lossy(&reply));
            }
        }
    }
}

#[test]
fn a_reply_cut_off_or_stalled_at_any_byte_is_uncertain_and_says_which() {
    for reply in replies() {
        for cut in 0..reply.len() {
            for split in splits(cut) {
                for how in [Ended::PeerClosed, Ended::DeadlineExceeded] {
                    let end = publish(&mut checked(), &reply[..cut], split, how);
                    assert_eq!(end.outcome, Answer::Uncertain(cause_of(how, cut > 0)), "{cut} {split:?}");
                    assert!(end.possible_write && end.connection == crate::Connection::Close);
                }
            }
        }
    }
}

#[test]
fn a_reply_garbled_at_any_byte_is_what_its_bytes_say_or_uncertain() {
    for reply in replies() {
        for at in 0..reply.len() {
            for mask in 1..=u8::MAX {
                let bytes = garbled(&reply, at, mask);
                let expected = reference::answer(&bytes);
                for split in [Some(0), Some(at + 1), None] {
                    let outcome = publish(&mut checked(), &bytes, split, Ended::DeadlineExceeded).outcome;
                    let is_right = match expected {
                        Expected::Answer(answer) => outcome == answer,
                        Expected::Unusable => matches!(outcome, Answer::Uncertain(_)),
                    };
                    assert!(is_right, "{} at {at} with {mask:#x}: {outcome:?}, not {expected:?}", String::from_utf8_lossy(&bytes));
                }
            }
        }
    }
}

#[test]
fn a_garbled_reply_ends_the_same_however_it_is_split() {
    for reply in [&replies()[1], &replies()[6]] {
        for at in 0..reply.len() {
            for mask in [0x01, 0x20] {
                let bytes = garbled(reply, at, mask);
                let whole = publish(&mut checked(), &bytes, Some(0), Ended::DeadlineExceeded);
                for split in splits(bytes.len()) {
                    assert_eq!(publish(&mut checked(), &bytes, split, Ended::DeadlineExceeded), whole, "{at} {split:?}");
                }
            }
        }
    }
}

#[test]
fn a_handshake_cut_stalled_or_garbled_at_any_byte_publishes_nothing_or_goes_on_rightly() {
    for (place, bytes) in [(0, INFO), (1, PONG)] {
        let script = |changed: &[u8], split, end| {
            let (info, pong) = if place == 0 { (changed, PONG) } else { (INFO, changed) };
            let mut link = fresh();
            (handshake(&mut link, info, pong, split, end), link)
        };
        for cut in 0..bytes.len() {
            for split in splits(cut) {
                for end in ENDS {
                    let (outcome, link) = script(&bytes[..cut], split, end);
                    known_before_the_write(outcome.unwrap_err().evidence());
                    assert!(!link.is_reusable());
                }
            }
        }
        for at in 0..bytes.len() {
            for mask in MASKS {
                let changed = garbled(bytes, at, mask);
                let expected = if place == 0 { reference::is_info(&changed) } else { reference::is_pong(&changed) };
                for split in splits(bytes.len()) {
                    let (outcome, mut link) = script(&changed, split, Ended::DeadlineExceeded);
                    assert_eq!(outcome.is_ok(), expected, "{} {split:?}: {outcome:?}", String::from_utf8_lossy(&changed));
                    match outcome {
                        Err(error) => known_before_the_write(error.evidence()),
                        Ok(()) => goes_on(&mut link),
                    }
                }
            }
        }
    }
}

/// What a changed INFO still allows ends with a receipt only when there is one.
fn goes_on(link: &mut Link) {
    let publication = publication(PAYLOAD);
    match Publish::begin(link, &publication) {
        Err(refused) => assert!(matches!(refused.answer(), Answer::KnownFailure { kind: FailureKind::InvalidEvent, .. })),
        Ok(mut publish) => {
            take(&mut publish);
            publish.received(&replies()[0]);
            assert_eq!(publish.finish().outcome, Answer::Receipt { sequence: 1, duplicate: false });
        }
    }
}

#[test]
fn a_checkout_cut_stalled_or_garbled_at_any_byte_publishes_nothing() {
    for end in ENDS {
        for cut in 0..PONG.len() {
            for split in splits(cut) {
                let mut link = checked();
                known_before_the_write(checkout(&mut link, &PONG[..cut], split, end).unwrap_err().evidence());
                assert!(!link.is_reusable());
            }
        }
    }
    for at in 0..PONG.len() {
        for mask in MASKS {
            let changed = garbled(PONG, at, mask);
            for split in splits(PONG.len()) {
                let mut link = checked();
                let outcome = checkout(&mut link, &changed, split, Ended::DeadlineExceeded);
                assert_eq!((outcome.is_ok(), link.is_reusable()), (reference::is_pong(&changed), reference::is_pong(&changed)));
            }
        }
    }
}

/// Writes until the writer has taken `count` bytes in all, `step` at a time. The attempt to write the next byte was made as well.
fn write_up_to(exchange: &mut impl Exchange, count: usize, step: usize) {
    let mut left = count;
    while exchange.want() == Want::Write {
        exchange.offering();
        let bytes: usize = exchange.outgoing().iter().map(|part| part.len()).sum();
        let taken = bytes.min(left).min(step);
        exchange.wrote(taken);
        left -= taken;
        if taken == 0 {
            return;
        }
    }
}

#[test]
fn a_handshake_or_checkout_that_is_not_written_completely_publishes_nothing() {
    let opening_bytes = take(&mut opened(&mut fresh())).len();
    for count in 0..opening_bytes {
        for end in ENDS {
            let mut link = fresh();
            let mut handshake = opened(&mut link);
            write_up_to(&mut handshake, count, 7);
            handshake.received(PONG);
            handshake.ended(end);
            known_before_the_write(handshake.finish().unwrap_err().evidence());
        }
    }
    for count in 0..PONG.len() {
        for end in ENDS {
            let mut link = checked();
            let mut checkout = Checkout::begin(&mut link);
            write_up_to(&mut checkout, count, 7);
            checkout.ended(end);
            known_before_the_write(checkout.finish().unwrap_err().evidence());
        }
    }
}

fn opened(link: &mut Link) -> Handshake<'_> {
    let mut handshake = Handshake::begin(link, PASSWORD);
    handshake.received(INFO);
    handshake
}

#[test]
fn a_publication_cut_or_stalled_at_any_byte_is_uncertain_from_the_first_offer_on() {
    let publication = publication(PAYLOAD);
    let bytes = take(&mut Publish::begin(&mut checked(), &publication).unwrap()).len();
    for count in 0..=bytes {
        for step in [1, 5, usize::MAX] {
            for end in ENDS {
                let mut link = checked();
                let mut publish = Publish::begin(&mut link, &publication).unwrap();
                write_up_to(&mut publish, count, step);
                publish.ended(end);
                let end = (publish.finish(), cause_of(end, false));
                assert_eq!((end.0.outcome, end.0.possible_write), (Answer::Uncertain(end.1), true), "{count} {step}");
            }
        }
    }
    for end in ENDS {
        let mut link = checked();
        let mut publish = Publish::begin(&mut link, &publication).unwrap();
        publish.ended(end);
        let end = publish.finish();
        assert!(matches!(end.outcome, Answer::KnownFailure { .. }) && !end.possible_write);
    }
}

#[test]
fn any_reply_at_any_byte_of_the_publication_is_uncertain_until_all_of_it_is_written() {
    let publication = publication(PAYLOAD);
    let bytes = take(&mut Publish::begin(&mut checked(), &publication).unwrap()).len();
    // What a broker says of a publication that was garbled on its way.
    let confused = b"-ERR 'Unknown Protocol Operation'\r\n".to_vec();
    let too_large = b"-ERR 'Maximum Payload Violation'\r\n".to_vec();
    for reply in replies().into_iter().chain([confused]) {
        for count in 0..=bytes {
            let mut link = checked();
            let mut publish = Publish::begin(&mut link, &publication).unwrap();
            write_up_to(&mut publish, count, usize::MAX);
            publish.received(&reply);
            publish.ended(Ended::PeerClosed);
            let outcome = publish.finish().outcome;
            match reference::answer(&reply) {
                Expected::Answer(expected) if count == bytes || reply == too_large => assert_eq!(outcome, expected, "{count}"),
                _ => assert!(matches!(outcome, Answer::Uncertain(_)), "{count} {outcome:?}"),
            }
        }
    }
}
