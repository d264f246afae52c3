//! Handshake and publication on the real broker, with one fault at one plaintext byte. Afterwards the stream is read: no receipt without
//! its stored message, no known failure with one, and never two.
//!
//! A cut happens at every byte of both directions. Stalls and changed bytes are at the borders of frames and at seeded places; with
//! `LATENT_BYTES` they are at every byte, the changed ones in so many ways (`cargo xtask campaign bytes`).
//!
//! A byte that is changed on its way *to* the broker is a byte that the broker was really told: it may store another payload under another
//! id, on which both sides agree. A case is found again by its id or its payload, whichever is left, so the same three rules hold. A byte
//! changed on its way back can make a digit of the sequence another one, which only TLS prevents; there the number is not compared.

mod positions;
mod run;

use std::collections::BTreeMap;

use latent_core::PublicationOutcome;
use latent_testkit::broker::{Broker, StoredMessage};
use latent_testkit::proxy::{Direction, Fault};
use latent_testkit::require_broker;

use crate::bench::spec;
use positions::Case;
use run::Ended;

/// Makes the run long: at every byte, and so many kinds of changed bytes.
const LENGTH: &str = "LATENT_BYTES";
/// Cases whose messages are read together.
const ROUND: usize = 4_000;

#[derive(Debug, Default)]
struct Tally {
    cases: u64,
    receipts: u64,
    failures: u64,
    uncertain_stored: u64,
    uncertain_not_stored: u64,
}

#[test]
fn a_fault_at_any_byte_leaves_no_false_answer() {
    require_broker!();
    let masks: Option<usize> = std::env::var(LENGTH).ok().map(|text| text.parse().unwrap());
    let broker = Broker::start(spec());
    let lengths = run::plain(&broker);
    let cases = positions::cases(&lengths, masks);
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    let mut contradictions = Vec::new();
    for round in cases.chunks(ROUND) {
        let ended = run::all(&broker, round);
        let stored = run::settled(&broker);
        for (case, ended) in &ended {
            let tally = tallies.entry(case.kind()).or_default();
            tally.cases += 1;
            if let Some(problem) = contradiction(case, ended, &stored, tally) {
                contradictions.push(format!("{problem}: {case:?}: {ended:?}"));
            }
        }
    }
    assert!(contradictions.is_empty(), "{}:\n{}", contradictions.len(), contradictions.join("\n"));
    for (kind, tally) in &tallies {
        assert!(tally.receipts > 0 && tally.failures > 0, "{kind}: {tally:?}");
        assert!(tally.uncertain_not_stored > 0 && tally.uncertain_stored > 0, "{kind}: {tally:?}");
    }
    println!("{} faults at a byte of handshake and publication: {tallies:?}; answers that the stream contradicts: 0", cases.len());
}

/// What an answer says that the stream or the bytes that passed contradict.
fn contradiction(case: &Case, ended: &Ended, stored: &[StoredMessage], tally: &mut Tally) -> Option<&'static str> {
    let ours: Vec<&StoredMessage> = stored.iter().filter(|message| ended.is_of(message)).collect();
    let is_garbled = matches!(case.fault, Fault::Garble(_));
    if ours.len() > 1 {
        return Some("stored more than once");
    }
    match (&ended.outcome, ours.first()) {
        (PublicationOutcome::Receipt(_), None) => return Some("a receipt without its message"),
        (PublicationOutcome::KnownFailure(_), Some(_)) => return Some("a known failure, and it is stored"),
        (PublicationOutcome::Receipt(receipt), Some(message)) => {
            let may_differ = is_garbled && case.direction == Direction::ToClient;
            if !may_differ && (receipt.sequence != message.sequence || receipt.duplicate) {
                return Some("a receipt of another message");
            }
            tally.receipts += 1;
        }
        (PublicationOutcome::KnownFailure(_), None) => tally.failures += 1,
        (PublicationOutcome::Uncertain(_), None) => tally.uncertain_not_stored += 1,
        (PublicationOutcome::Uncertain(_), Some(_)) => tally.uncertain_stored += 1,
    }
    if is_garbled || !ended.is_reached {
        return None;
    }
    // Cut or stalled: what passed decides what can have been said.
    match &ended.outcome {
        PublicationOutcome::Receipt(_) if !ended.answer_complete => Some("a receipt without a whole answer"),
        PublicationOutcome::Uncertain(_) if !ended.session_proved => Some("uncertain, and no session was proved"),
        _ if !ended.publication_complete && !ours.is_empty() => Some("stored, and not all of it was sent"),
        _ => None,
    }
}
