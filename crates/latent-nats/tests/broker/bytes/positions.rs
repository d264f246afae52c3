//! Which fault at which byte.

use latent_testkit::proxy::{Direction, Fault};

/// One bit, a letter's case, a digit into another, the sign bit, and everything.
const MASKS: [u8; 6] = [0x01, 0x20, 0x80, 0x02, 0x04, 0xff];
/// Kinds of changed bytes where the run is short.
const MASKS_OF_A_SAMPLE: usize = 2;
const SEEDED: usize = 64;
/// How much longer numbers of the broker (its client ids, its sequences) can make what it says.
const GROWTH: u64 = 12;

/// What was said without a fault.
pub(super) struct Plain {
    pub(super) to_broker: Vec<u8>,
    pub(super) to_client: Vec<u8>,
}

#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) number: usize,
    pub(super) direction: Direction,
    pub(super) byte: u64,
    pub(super) fault: Fault,
}

impl Case {
    pub(super) fn kind(&self) -> &'static str {
        match self.fault {
            Fault::Stall => "stalled",
            Fault::Garble(_) => "changed",
            _ => "cut",
        }
    }
}

/// All cases of a run. With `masks` stalls and changes are at every byte too, in so many kinds.
pub(super) fn cases(plain: &Plain, masks: Option<usize>) -> Vec<Case> {
    let mut cases = Vec::new();
    for (direction, said) in [(Direction::ToBroker, &plain.to_broker), (Direction::ToClient, &plain.to_client)] {
        let every: Vec<u64> = (0..=said.len() as u64 + GROWTH).collect();
        let some = if masks.is_some() { every.clone() } else { sample(said) };
        let mut add = |bytes: &[u64], fault| {
            for byte in bytes {
                cases.push(Case { number: cases.len(), direction, byte: *byte, fault });
            }
        };
        add(&every, Fault::Cut);
        add(&some, Fault::Stall);
        for mask in &MASKS[..masks.unwrap_or(MASKS_OF_A_SAMPLE).min(MASKS.len())] {
            add(&some, Fault::Garble(*mask));
        }
    }
    cases
}

/// The borders of frames and the bytes beside them, and places that a seed chooses.
fn sample(said: &[u8]) -> Vec<u64> {
    let ends = said.windows(2).enumerate().filter(|(_, pair)| pair == b"\r\n").map(|(at, _)| at as u64 + 2);
    let mut places: Vec<u64> = std::iter::once(0).chain(ends).flat_map(|end| [end.saturating_sub(1), end, end + 1]).collect();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..SEEDED {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        places.push((seed >> 33) % said.len() as u64);
    }
    // Behind everything, however long the broker's numbers made it: there the answer arrives whole.
    places.push(said.len() as u64 + GROWTH);
    places.sort_unstable();
    places.dedup();
    places
}
