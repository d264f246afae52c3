//! Why records are not in the archive yet.

use latent_core::Offset;

use crate::BusError;
use crate::cold::segment::SegmentError;
use crate::cold::store::ColdError;

/// How [`ExportError::UnknownKey`] ends, for whoever has only its words and knows what to do.
pub const NO_SUCH_KEY: &str = "which is not in `[archive] control_key_files`";

/// See the module. Whatever it is, nothing left hot storage because of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The store failed; tried again.
    #[error(transparent)]
    Store(#[from] ColdError),
    /// The log or a file of the outbox failed.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// A segment could not be made.
    #[error("cold segment: {0}")]
    Segment(#[from] SegmentError),
    /// Another object lies where a segment should.
    #[error(
        "cold store: {object:?} already exists with different content ({problem}); it was not overwritten, compare both and move one away"
    )]
    Different {
        /// The object's path.
        object: String,
        /// How it differs.
        problem: String,
    },
    /// The last segment of the archive is not one to go on behind.
    #[error("cold store: the archive cannot go on behind {object:?}: {problem}; run `latent archive verify`")]
    Foreign {
        /// The object's path.
        object: String,
        /// Why.
        problem: String,
    },
    /// The store says that it is there, and it cannot be found. Tried again.
    #[error("cold store: {object:?} is said to exist and is not there; it is tried again")]
    Absent {
        /// The object's path.
        object: String,
    },
    /// What says up to where the archive goes is not what was written.
    #[error("cold outbox authentication failed")]
    Unproven,
    /// The same, with a key that is not among those that are checked with.
    #[error("it is proven with the control key {key_id}, {NO_SUCH_KEY}")]
    UnknownKey {
        /// The key's name.
        key_id: String,
    },
    /// The store has fewer segments than were written to it.
    #[error(
        "cold store: {place} has {found} of the {written} segments that were written to it: it was set back to an older state, or segments were taken out; put them back from another copy (docs/archive.md says what to do without one)"
    )]
    SetBack {
        /// Topic and partition.
        place: String,
        /// How many there are.
        found: u64,
        /// How many the head says.
        written: u64,
    },
    /// The log is another one than the archive is of.
    #[error(
        "the archive of {place} ends at offset {last}, and the log {problem}; its history has changed: keep the archive, and give the topic another cold_uri"
    )]
    HistoryChanged {
        /// Topic and partition.
        place: String,
        /// Where the archive ends.
        last: Offset,
        /// What the log has instead.
        problem: String,
    },
    /// The log answered with an offset that was not asked for.
    #[error("the log answered offset {answered} where {asked} was the lowest asked for; report this")]
    Disordered {
        /// The lowest asked for.
        asked: Offset,
        /// The one answered.
        answered: Offset,
    },
}

impl ExportError {
    /// Whether another attempt may end otherwise without anybody doing something.
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Store(ColdError::Timeout { .. } | ColdError::Failed { .. }) | Self::Bus(_) | Self::Absent { .. })
    }
}

impl From<ExportError> for BusError {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Bus(error) => error,
            other => Self::Backend(other.to_string()),
        }
    }
}
