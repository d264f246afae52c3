//! Bodies of the fuzz targets (D-32): plain functions of bytes, which return for every input and fail only where a promise is broken.
//!
//! Compiled for tests and behind the feature `fuzzing` alone. The tests here replay `fuzz-corpus/` and seeded mutations of it on a stable
//! compiler; the workspace `fuzz/` hands the same functions to a fuzzer.

mod exchanges;
mod sessions;
#[cfg(test)]
mod tests;

use crate::decoder::Decoder;
use crate::frame::{Frame, FrameError, Message};
use crate::limits::{CONTROL_LINE_BYTES, RECEIPT_BYTES};
use crate::outcome::Evidence;
use crate::testing::STREAM;

/// A body and the folder of `fuzz-corpus/` that its inputs lie in.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The folder's name, and the fuzz target's.
    pub name: &'static str,
    /// Takes any bytes.
    pub body: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "nats_frames", body: frames },
    Target { name: "nats_headers", body: headers },
    Target { name: "nats_info", body: info },
    Target { name: "nats_receipt", body: receipt },
    Target { name: "nats_exchanges", body: exchanges::exchanges },
    Target { name: "nats_triggers", body: exchanges::triggers },
    Target { name: "nats_ack_subject", body: ack_subject },
    Target { name: "nats_consumer", body: consumer },
    Target { name: "nats_sessions", body: sessions::sessions },
    Target { name: "nats_pull_consumer", body: pull_consumer },
];

/// Runs the body of this name.
///
/// # Panics
/// When there is none, or when its promise is broken.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    assert!(target.is_some(), "there is no fuzz target {name:?}");
    if let Some(target) = target {
        (target.body)(input);
    }
}

/// How far a decoder came: frames, the bytes in them, and what ended them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Decoded {
    frames: usize,
    bytes: Vec<u8>,
    error: Option<FrameError>,
}

/// A stream of frames, its first byte the size of the pieces, makes the same frames in pieces as at once.
fn frames(input: &[u8]) {
    let Some((first, stream)) = input.split_first() else { return };
    for decoder in [Decoder::for_receipts, || Decoder::skipping(RECEIPT_BYTES.max_usize())] {
        let whole = decode(decoder(), stream.chunks(stream.len().max(1)));
        let pieces = decode(decoder(), stream.chunks(usize::from(*first).max(1)));
        assert_eq!(whole, pieces, "pieces of {first} bytes make other frames");
    }
}

fn decode<'a>(mut decoder: Decoder, pieces: impl Iterator<Item = &'a [u8]>) -> Decoded {
    let mut decoded = Decoded::default();
    for mut piece in pieces {
        while !piece.is_empty() {
            let taken = decoder.fill(piece);
            assert!(taken > 0, "a full buffer without a frame or an error");
            piece = piece.get(taken..).unwrap_or_default();
            while decoded.error.is_none() {
                match decoder.next() {
                    Ok(Some(frame)) => decoded.take(frame),
                    Ok(None) => break,
                    Err(error) => decoded.error = Some(error),
                }
            }
            if decoded.error.is_some() {
                return decoded;
            }
        }
    }
    decoded
}

impl Decoded {
    fn take(&mut self, frame: Frame<'_>) {
        self.frames += 1;
        match frame {
            Frame::Info(text) | Frame::Error(text) => {
                assert!(text.len() <= CONTROL_LINE_BYTES.max_usize(), "a line of {} bytes", text.len());
                self.bytes.extend_from_slice(text);
            }
            Frame::Message(Message { subject, subscription, headers, payload, .. }) => {
                let headers = headers.unwrap_or_default();
                assert!(headers.len() + payload.len() <= RECEIPT_BYTES.max_usize(), "a message above its bound");
                [subject, subscription, headers, payload].into_iter().for_each(|part| self.bytes.extend_from_slice(part));
            }
            Frame::Skipped(message) => {
                assert!(message.header_bytes + message.payload_bytes > RECEIPT_BYTES.max_usize(), "a message that fits is let go by");
                [message.subject, message.subscription].into_iter().for_each(|part| self.bytes.extend_from_slice(part));
            }
            Frame::Ping | Frame::Pong | Frame::Ok => (),
        }
    }
}

/// A status has three digits and stands in the first line.
fn headers(input: &[u8]) {
    if let Ok(status) = crate::headers::status(input) {
        let first = status.map_or_else(|| "NATS/1.0\r\n".to_owned(), |code| format!("NATS/1.0 {code}"));
        assert!(input.starts_with(first.as_bytes()) && input.ends_with(b"\r\n\r\n"), "a status that is not there");
        assert!(status.is_none_or(|code| (100..1_000).contains(&code)), "{status:?}");
    }
}

/// Facts are usable, and space around them changes nothing.
fn info(input: &[u8]) {
    let facts = crate::info::read(input);
    assert!(facts.is_ok_and(|facts| facts.max_payload_bytes > 0) || facts.is_err(), "{facts:?}");
    let spaced = [b" ", input, b"\t"].concat();
    assert_eq!(crate::info::read(&spaced), facts, "space around an INFO changes it");
}

/// A receipt has a positive sequence; space around it changes nothing and a byte behind it everything.
fn receipt(input: &[u8]) {
    let evidence = crate::receipt::read(input, STREAM);
    let known = matches!(
        evidence,
        Evidence::Stored { sequence: 1.., .. } | Evidence::Rejected { .. } | Evidence::MalformedReceipt | Evidence::WrongStream
    );
    assert!(known, "{evidence:?}");
    assert_eq!(crate::receipt::read(&[b" ", input, b"\n"].concat(), STREAM), evidence, "space around a receipt changes it");
    if evidence == Evidence::MalformedReceipt {
        return;
    }
    for behind in [b"}", b"0", b"\0", b","] {
        assert_eq!(crate::receipt::read(&[input, behind].concat(), STREAM), Evidence::MalformedReceipt, "a byte behind a receipt is taken");
    }
}

/// What is read begins as it must, and every number that must be positive is.
fn ack_subject(input: &[u8]) {
    if let Ok(numbers) = crate::triggers::read_ack_subject(input, STREAM, "c1") {
        assert!(input.starts_with(b"$JS.ACK.") && !input.iter().any(u8::is_ascii_whitespace), "a subject of something else");
        assert!(numbers.deliveries > 0 && numbers.stream_sequence > 0 && numbers.consumer_sequence > 0, "{numbers:?}");
    }
}

/// Space around a consumer's info changes nothing.
fn consumer(input: &[u8]) {
    let state = crate::triggers::read_consumer(input, &exchanges::PROFILE);
    let spaced = crate::triggers::read_consumer(&[b" ", input, b"\n"].concat(), &exchanges::PROFILE);
    assert_eq!(spaced, state, "space around a consumer's info changes it");
}

/// The same by the rules of the second profile; what it tells can be sent back as it is.
fn pull_consumer(input: &[u8]) {
    let Some(consumer) = sessions::consumer(1) else { return };
    let info = crate::session::read_info(input, &consumer);
    let spaced = crate::session::read_info(&[b" ", input, b"\n"].concat(), &consumer);
    assert_eq!(spaced, info, "space around a consumer's info changes it");
    if let Ok(info) = info {
        assert!(info.max_deliver.is_none_or(|most| most == 0 || most >= consumer.max_deliver_min()), "{info:?}");
    }
}
