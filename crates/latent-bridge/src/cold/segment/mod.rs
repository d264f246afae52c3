//! A cold segment: many records of one partition in one object, compressed, with an index, a digest that the next segment repeats, and a
//! proof that only who has the control key can make (`docs/formats/cold-segment.md`).
//!
//! Bytes in, bytes out; no store and no file is known here. Invariants: the same records after the same segment give the same bytes; what
//! is read allocates no more than `limits` say, whatever the bytes claim; an item is only handed out in the order and with the numbers that
//! the header promised.

mod attest;
mod builder;
mod cursor;
#[cfg(test)]
pub(crate) mod doubles;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz_bodies;
mod header;
mod hole;
mod index;
mod item;
mod reader;
#[cfg(test)]
pub(crate) mod tests;
mod trailer;

pub use attest::{Attest, Attestation};
pub use builder::{FinishedSegment, Pushed, SegmentBuilder, SegmentSizes};
pub use error::SegmentError;
pub use header::{PreviousSegment, SegmentHeader, SegmentPlace};
pub use hole::{Hole, HoleReason};
pub use item::Item;
pub use reader::{Items, Segment};

/// SHA-256 of a segment: of everything in it but this digest and the proof behind it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentDigest(pub [u8; 32]);

impl std::fmt::Display for SegmentDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for SegmentDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
