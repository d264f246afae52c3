//! Chance and the time of day for functions that can derive keys: all that a rerun on the same event would otherwise find different.
//!
//! Under a derived key other content is a conflict, so a function that puts a random number or the time into what it publishes must find
//! the same ones when the event is handled again. They follow from the delivery alone, so they are no secret and must not become one.
//! What may differ: the activation's id, the number of the delivery, what is left of the budget, and steady time.
//!
//! ```text
//! origin ─ seed ─▶ ChaCha20: stream 0 `random`, 1 `insecure`, 2 `insecure-seed`
//!        └ stored_at ─▶ wall clock: that moment at the first reading, one microsecond more at each further one
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng as _};
use latent_capabilities::Origin;
use latent_core::UnixMillis;
use wasmtime_wasi::{HostWallClock, WasiCtxBuilder};

const RANDOM_STREAM: u64 = 0;
const INSECURE_STREAM: u64 = 1;
const INSECURE_SEED_STREAM: u64 = 2;

/// Lets a guest find what follows from `origin`. Of a direct call, which has no event, the wall clock stays what it is.
pub(crate) fn from_origin(context: &mut WasiCtxBuilder, origin: &Origin) {
    let seed = origin.seed();
    context
        .secure_random(stream(seed, RANDOM_STREAM))
        .insecure_random(stream(seed, INSECURE_STREAM))
        .insecure_random_seed(insecure_seed(seed));
    if let Some(stored_at) = origin.stored_at {
        context.wall_clock(EventClock::at(stored_at));
    }
}

/// ChaCha20 with the seed as its key: what it yields is the cipher's definition and not a choice of the library.
fn stream(seed: [u8; 32], stream: u64) -> ChaCha20Rng {
    let mut generator = ChaCha20Rng::from_seed(seed);
    generator.set_stream(stream);
    generator
}

fn insecure_seed(seed: [u8; 32]) -> u128 {
    let mut bytes = [0; 16];
    stream(seed, INSECURE_SEED_STREAM).fill_bytes(&mut bytes);
    u128::from_le_bytes(bytes)
}

/// A clock that stands at an event and goes on with each reading, so that two readings in a row differ and durations are not negative.
struct EventClock {
    stored_at: Duration,
    readings: AtomicU64,
}

impl EventClock {
    const fn at(stored_at: UnixMillis) -> Self {
        Self { stored_at: Duration::from_millis(stored_at.0), readings: AtomicU64::new(0) }
    }
}

impl HostWallClock for EventClock {
    fn resolution(&self) -> Duration {
        Duration::from_micros(1)
    }

    fn now(&self) -> Duration {
        self.stored_at.saturating_add(Duration::from_micros(self.readings.fetch_add(1, Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(mut generator: ChaCha20Rng) -> [u8; N] {
        let mut bytes = [0; N];
        generator.fill_bytes(&mut bytes);
        bytes
    }

    /// The first block of the cipher under the key of zeros, as RFC 8439 gives it (A.1, test vector 1).
    #[test]
    fn the_generator_is_the_cipher_of_the_standard() {
        let keystream = [
            0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90, 0x40, 0x5d, 0x6a, 0xe5, 0x53, 0x86, 0xbd, 0x28, 0xbd, 0xd2, 0x19, 0xb8, 0xa0,
            0x8d, 0xed, 0x1a, 0xa8, 0x36, 0xef, 0xcc, 0x8b, 0x77, 0x0d, 0xc7,
        ];
        assert_eq!(bytes(stream([0; 32], 0)), keystream);
    }

    #[test]
    fn the_three_streams_of_a_seed_are_pinned_and_differ() {
        let seed = [7; 32];
        assert_eq!(bytes(stream(seed, RANDOM_STREAM)), [0xf4, 0x00, 0x92, 0x78, 0x57, 0xaa, 0xf6, 0x41]);
        assert_eq!(bytes(stream(seed, INSECURE_STREAM)), [0x6d, 0x7c, 0x73, 0x09, 0x99, 0xba, 0x65, 0xef]);
        assert_eq!(insecure_seed(seed), 18_701_919_550_594_343_680_679_012_102_966_614_469);
    }

    #[test]
    fn the_clock_of_an_event_stands_at_it_and_goes_on_by_a_microsecond_each_reading() {
        let clock = EventClock::at(UnixMillis(1_000));
        assert_eq!([clock.now(), clock.now(), clock.now()].map(|now| now.as_micros()), [1_000_000, 1_000_001, 1_000_002]);
        let late = EventClock::at(UnixMillis(u64::MAX));
        assert!(late.now() <= late.now());
    }
}
