//! The records of a partition brought from one log into another, decided without I/O: `latent bus migrate` is the shell around it.
//!
//! ```text
//! Copying ── compare what is there already, in step ── publish what is missing, strictly in order ── again after a failure
//! Comparing ── read both sides again, in step ── a digest of each
//! ```
//!
//! Invariant: the destination holds a beginning of what can be read of the source, in its order and nothing else, or there is a
//! [`Finding`] and nothing more is published. A publication is conditional on the end that the destination had when it was compared, and on
//! the one before it ([`crate::InOrder`]), so one that comes late, of an earlier run too, is stored in its place or not at all. What is known of an earlier run
//! ([`Position`]) only saves reading: it is believed when the records that it names are there. Who migrates several partitions of a topic
//! goes on with the one that was being published when an earlier run ended ([`Progress::at_work`]): late publications of it then find their
//! places taken, by the same records.

mod comparing;
mod copying;
mod digest;
mod finding;
mod pairing;
mod patience;
mod progress;
#[cfg(test)]
mod tests;

use latent_core::{NewRecord, Offset, StoredRecord};

pub use comparing::{Compared, Comparing, Held};
pub use copying::{Copied, Copying};
pub use digest::RecordDigest;
pub use finding::{Finding, Part, Side};
pub use progress::{Position, Progress, ProgressError};

use crate::{BusError, Fence};

/// What becomes of records of the source that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnreadableRecords {
    /// The first one ends the partition.
    End,
    /// They are passed over, and each is told.
    PassOver,
}

/// What a machine asks for. Each is answered by the call that it names, or by `failed`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Where the destination's topic ends: answered by `fenced`.
    Fence,
    /// Records of the source from an offset on: answered by `read`.
    ReadSource(Offset),
    /// Records of the destination from an offset on: answered by `read`.
    ReadDestination(Offset),
    /// Publish to the destination: answered by `published`.
    Publish {
        /// Behind what.
        fence: Fence,
        /// In this order.
        records: Vec<NewRecord>,
    },
    /// Wait before the next step; needs no answer.
    Pause {
        /// How long.
        millis: u64,
    },
    /// Nothing more.
    Done,
}

/// The answer to a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Page {
    /// Records in ascending order, at least one.
    Records(Vec<StoredRecord>),
    /// The next record cannot be read.
    Unreadable(Offset),
    /// There are no more.
    End,
}

impl Page {
    /// What a bus answered to [`crate::EventBus::submit_fetch`].
    ///
    /// # Errors
    /// What keeps it from reading.
    pub fn of(answer: Result<Vec<StoredRecord>, BusError>) -> Result<Self, BusError> {
        match answer {
            Ok(records) if records.is_empty() => Ok(Self::End),
            Ok(records) => Ok(Self::Records(records)),
            Err(BusError::Unreadable { offset, .. }) => Ok(Self::Unreadable(Offset(offset))),
            Err(error) => Err(error),
        }
    }
}
