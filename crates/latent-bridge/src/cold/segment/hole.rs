//! Offsets that a log lost before they were archived: part of what a segment says of itself, so that whoever has the chain knows of them.

use latent_core::{Offset, UnixMillis};

use super::cursor::Cursor;

/// Events of a partition that left the log before they were archived, or may have. It is between these offsets, the first and the last
/// included; what the archive has between them was read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// The first offset of which nothing is known.
    pub first: Offset,
    /// The last one.
    pub last: Offset,
    /// How many events are lost for certain: they had been seen. There may be more.
    pub events: u64,
    /// When it was found.
    pub found_at: UnixMillis,
    /// What is known of why.
    pub reason: HoleReason,
}

/// What is known of why events are not in the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoleReason {
    /// The log removed them first: somebody purged the stream or deleted messages, or their time was up while nothing was archived.
    RemovedBeforeArchived,
}

impl HoleReason {
    /// The name used in documents.
    pub const fn word(self) -> &'static str {
        match self {
            Self::RemovedBeforeArchived => "removed-before-archived",
        }
    }

    pub(crate) fn of_word(word: &str) -> Option<Self> {
        (word == Self::RemovedBeforeArchived.word()).then_some(Self::RemovedBeforeArchived)
    }

    const fn code(self) -> u8 {
        match self {
            Self::RemovedBeforeArchived => 1,
        }
    }
}

impl Hole {
    /// In words.
    pub fn problem(&self) -> String {
        let events = match self.events {
            0 => "events may have been".to_owned(),
            1 => "at least 1 event was".to_owned(),
            count => format!("at least {count} events were"),
        };
        format!("{events} removed from the log before anything archived them ({})", self.reason.word())
    }

    /// Whether its numbers can be those of a hole.
    pub(crate) fn is_one(&self) -> bool {
        self.last.0.checked_sub(self.first.0).is_some_and(|span| self.events <= span.saturating_add(1))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.reason.code());
        for number in [self.first.0, self.last.0, self.events, self.found_at.0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    pub(super) fn decode(body: &mut Cursor<'_>) -> Option<Self> {
        let reason = (body.u8()? == HoleReason::RemovedBeforeArchived.code()).then_some(HoleReason::RemovedBeforeArchived)?;
        let [first, last, events, found_at] = [body.u64()?, body.u64()?, body.u64()?, body.u64()?];
        Some(Self { first: Offset(first), last: Offset(last), events, found_at: UnixMillis(found_at), reason })
    }
}
