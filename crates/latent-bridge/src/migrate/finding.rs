//! What keeps a partition from being the same on both sides.

use std::fmt;

use latent_core::{Offset, Record, Uid};

use crate::BusError;

/// One of the two logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// That which is read.
    Source,
    /// That which is written.
    Destination,
}

impl fmt::Display for Side {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Source => "source",
            Self::Destination => "destination",
        })
    }
}

/// What of two records differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Identity.
    Uid,
    /// Key.
    Key,
    /// Media type.
    MediaType,
    /// Attributes, those of the host included.
    Attributes,
    /// Payload.
    Payload,
}

impl Part {
    /// The first part in which two records differ.
    pub fn different(one: &Record, other: &Record) -> Option<Self> {
        let parts = [
            (one.uid == other.uid, Self::Uid),
            (one.key == other.key, Self::Key),
            (one.media_type == other.media_type, Self::MediaType),
            (one.attributes == other.attributes, Self::Attributes),
            (one.payload == other.payload, Self::Payload),
        ];
        parts.into_iter().find(|(is_same, _)| !is_same).map(|(_, part)| part)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Uid => "uid",
            Self::Key => "key",
            Self::MediaType => "media type",
            Self::Attributes => "attributes",
            Self::Payload => "payload",
        })
    }
}

/// Why a partition is not the same on both sides. Nothing more is published to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    /// At the same place in the order lie two different records.
    #[error(
        "the events at source offset {at_source} (uid {source_uid}) and destination offset {at_destination} (uid {destination_uid}) differ in {part}"
    )]
    Different {
        /// Where, in the source.
        at_source: Offset,
        /// Whose.
        source_uid: Uid,
        /// Where, in the destination.
        at_destination: Offset,
        /// Whose.
        destination_uid: Uid,
        /// In what first.
        part: Part,
    },
    /// The destination goes on where the source ends.
    #[error("the destination has an event at offset {at} (uid {uid}), behind everything that the source has")]
    Extra {
        /// The first of them.
        at: Offset,
        /// Its uid.
        uid: Uid,
    },
    /// The source goes on where the destination ends.
    #[error("the destination ends before the event at source offset {at} (uid {uid})")]
    Missing {
        /// The first that is missing.
        at: Offset,
        /// Its uid.
        uid: Uid,
    },
    /// A record cannot be read: it is damaged, or a message of somebody else.
    #[error("what lies at {side} offset {at} cannot be read as an event")]
    Unreadable {
        /// On which side.
        side: Side,
        /// Where.
        at: Offset,
    },
    /// The destination does not take a record, and never will.
    #[error("the destination refuses the event at source offset {at} (uid {uid}): {error}")]
    Refused {
        /// Where it lies in the source.
        at: Offset,
        /// Its uid.
        uid: Uid,
        /// Its words.
        error: BusError,
    },
    /// The destination has the record elsewhere: its uid is twice in the source.
    #[error(
        "the event at source offset {at} (uid {uid}) lies in the destination already, in partition {partition} at offset {first}: its uid is there twice in the source"
    )]
    Doubled {
        /// Where it lies in the source.
        at: Offset,
        /// Its uid.
        uid: Uid,
        /// Where the first one of its uid lies.
        partition: u32,
        /// At which offset there.
        first: Offset,
    },
    /// It failed as often as may be, or in a way that no further try would mend.
    #[error("the {side} could not be used any further: {error}")]
    GaveUp {
        /// Which side.
        side: Side,
        /// Its words, the last time.
        error: BusError,
    },
}

impl Finding {
    /// The name used in machine-readable output and the documentation.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Different { .. } => "different",
            Self::Extra { .. } => "extra",
            Self::Missing { .. } => "missing",
            Self::Unreadable { .. } => "unreadable",
            Self::Refused { .. } => "refused",
            Self::Doubled { .. } => "doubled",
            Self::GaveUp { .. } => "gave-up",
        }
    }

    /// Whether records may be in the destination of which this run does not know.
    pub const fn is_uncertain(&self) -> bool {
        matches!(self, Self::GaveUp { error: BusError::Uncertain { .. }, .. })
    }

    /// Whether the same would be met in the other partitions.
    pub const fn is_of_a_side(&self) -> bool {
        matches!(self, Self::GaveUp { .. })
    }
}
