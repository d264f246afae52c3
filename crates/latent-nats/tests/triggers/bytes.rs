//! One delivery on the real broker, from handshake to settlement, with one fault at one plaintext byte. Afterwards the broker is asked: no
//! message is lost, none is settled whose function did not end, and none is told as settled that is not.
//!
//! Faults are at the borders of frames and at seeded places; with `LATENT_BYTES` at every byte, the changed ones in so many ways
//! (`cargo xtask campaign bytes`).
//!
//! A byte that is changed on its way *to* the broker is a byte that the broker was really told: it answers a command that it does not know
//! like one that it does, and one for another sequence, which a byte changed on its way back asks for. TLS makes both impossible; there it
//! is only asked that nothing is lost, and nothing settled that did not run.

mod positions;
mod run;

use std::collections::BTreeMap;

use latent_nats::triggers::StepEnd;
use latent_node::delivery::{Confirmation, VisitSettlement};
use latent_testkit::broker::Broker;
use latent_testkit::proxy::Fault;
use latent_testkit::require_broker;

use positions::Case;
use run::{At, Ended};

/// Makes the run long: at every byte, and so many kinds of changed bytes.
const LENGTH: &str = "LATENT_BYTES";
/// Cases whose consumers exist together.
const ROUND: usize = 512;

#[derive(Debug, Default)]
struct Tally {
    cases: u64,
    settled: u64,
    uncertain_settled: u64,
    uncertain_pending: u64,
    left: u64,
    put_off: u64,
    not_delivered: u64,
}

#[test]
fn a_fault_at_any_byte_loses_no_message_and_settles_none_that_did_not_run() {
    require_broker!();
    let masks: Option<usize> = std::env::var(LENGTH).ok().map(|text| text.parse().unwrap());
    let broker = Broker::start(run::spec());
    let plain = run::plain(&broker);
    let cases = positions::cases(&plain, masks);
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    let mut contradictions = Vec::new();
    for round in cases.chunks(ROUND) {
        for (case, ended) in run::all(&broker, round) {
            let tally = tallies.entry(case.kind()).or_default();
            tally.cases += 1;
            if let Some(problem) = contradiction(&case, &ended, tally) {
                contradictions.push(format!("{problem}: {case:?}: {ended:?}"));
            }
        }
    }
    assert!(contradictions.is_empty(), "{}:\n{}", contradictions.len(), contradictions.join("\n"));
    for (kind, tally) in &tallies {
        assert!(tally.not_delivered > 0 && tally.uncertain_settled > 0 && tally.uncertain_pending > 0, "{kind}: {tally:?}");
    }
    assert!(tallies.values().any(|tally| tally.settled > 0), "{tallies:?}");
    println!("{} faults at a byte of a delivery: {tallies:?}; messages lost 0, ends that the broker contradicts: 0", cases.len());
}

/// What an end says that the broker, or the bytes that passed, contradict.
fn contradiction(case: &Case, ended: &Ended, tally: &mut Tally) -> Option<&'static str> {
    let is_settled = ended.at == At::Settled;
    let is_garbled = matches!(case.fault, Fault::Garble(_));
    if ended.at == At::Gone {
        return Some("the message is neither pending nor settled");
    }
    if ended.runs > 1 {
        return Some("its function ran twice");
    }
    if is_settled && ended.runs == 0 {
        return Some("settled, and its function never ran");
    }
    let puts_off = matches!(ended.end, StepEnd::Settled { settlement: VisitSettlement::RetryAfter { .. }, .. });
    let terminates = matches!(ended.end, StepEnd::Settled { settlement: VisitSettlement::Terminate(_), .. });
    match ended.end {
        // Its time was over before it could begin, on a machine that is busy.
        StepEnd::Settled { .. } if puts_off => tally.put_off += 1,
        StepEnd::Settled { confirmation: Confirmation::Confirmed, .. } => tally.settled += 1,
        StepEnd::Settled { .. } if is_settled => tally.uncertain_settled += 1,
        StepEnd::Settled { .. } => tally.uncertain_pending += 1,
        StepEnd::Unsettled(_) => tally.left += 1,
        StepEnd::Failed(_) => tally.not_delivered += 1,
    }
    match ended.end {
        StepEnd::Unsettled(_) | StepEnd::Failed(_) if is_settled => return Some("settled, and told as left"),
        StepEnd::Settled { .. } if !puts_off && ended.runs == 0 => return Some("a settlement of what did not run"),
        StepEnd::Settled { .. } if puts_off && is_settled && !is_garbled => return Some("put off, and settled"),
        // Another payload is another message, which may be none.
        StepEnd::Settled { .. } if terminates && !is_garbled => return Some("terminated, and nothing was wrong with it"),
        StepEnd::Settled { confirmation: Confirmation::Confirmed, .. } if !puts_off && !is_settled && !is_garbled => {
            return Some("told as settled, and it is not");
        }
        _ => {}
    }
    // Cut or stalled: what passed decides what can have been said.
    if !ended.is_reached || is_garbled {
        return None;
    }
    match ended.end {
        _ if is_settled != ended.command_passed => Some("settled without the whole command, or the other way round"),
        StepEnd::Settled { confirmation: Confirmation::Confirmed, .. } if !ended.receipt_passed => {
            Some("confirmed without a whole receipt")
        }
        StepEnd::Settled { .. } if !ended.message_passed => Some("a settlement without a whole message"),
        _ => None,
    }
}
