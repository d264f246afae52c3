//! The faults of a bus, as data that can be decided on.

use latent_core::{CoreError, Uid, UncertainCause};

/// What went wrong, whose fault it is and whether the same call can ever succeed ([`BusError::is_permanent`]).
///
/// Texts name files by their base name, never by their path in the deployment (B-044).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BusError {
    /// The topic is not in the manifest.
    #[error("topic {topic:?} is not declared; add it to the manifest and provision it")]
    UnknownTopic {
        /// The name given.
        topic: String,
    },
    /// A rule refuses the event.
    #[error("rejected: {rule}")]
    Rejected {
        /// The rule.
        rule: String,
        /// True when the same event can never be accepted.
        permanent: bool,
    },
    /// The uid already belongs to an event of the topic with other content.
    #[error("conflict: uid {uid} of topic {topic:?} belongs to an event with another key or other content; use another uid")]
    Conflict {
        /// The topic.
        topic: String,
        /// The uid.
        uid: Uid,
    },
    /// The manifest, the directory or an option is wrong. Nothing was changed.
    #[error("configuration: {problem}")]
    Config {
        /// What is wrong and what to do.
        problem: String,
    },
    /// A number of the call lies outside what exists, or what it asks for outside a bound.
    #[error("{what} out of range: {problem}")]
    OutOfRange {
        /// Which object, for instance `partition 9`.
        what: String,
        /// The range, and what to do.
        problem: String,
    },
    /// The record at this place is damaged. It is kept as evidence; reading can go on after it.
    #[error("record {topic}/p{partition}/{offset} is damaged and kept as evidence; continue at offset {next} to read on", next = offset.saturating_add(1))]
    Unreadable {
        /// The topic.
        topic: String,
        /// The partition.
        partition: u32,
        /// The offset.
        offset: u64,
    },
    /// An engine answered a read with an offset that was not asked for. Its fault, not the caller's; nothing it answered was used.
    #[error("{topic}/p{partition}: the engine answered offset {answered} where {asked} was the lowest asked for; report this")]
    Disordered {
        /// The topic.
        topic: String,
        /// The partition.
        partition: u32,
        /// The lowest offset that could be answered.
        asked: u64,
        /// The offset answered.
        answered: u64,
    },
    /// It was certainly not handed over; sending it again is safe.
    #[error("not sent: {reason}")]
    NotSent {
        /// Why.
        reason: String,
    },
    /// It may be stored. Publishing again with the same uid is safe and tells.
    #[error("uncertain: the event with uid {uid} may be stored ({}: {}); publish it again with the same uid to learn", cause.kind(), hidden_by(*cause))]
    Uncertain {
        /// The uid to publish again with, or to look up.
        uid: Uid,
        /// What hid the answer.
        cause: UncertainCause,
    },
    /// The stream behind a topic is another one than before: it was made anew, or its store was brought back from a copy. Offsets that
    /// were remembered may now be of other events. Told to whoever notices it, and to each reader that goes on at an offset which this bus
    /// gave before; the bus goes on with the stream as it is now. An offset does not say of which history it is: one that was kept from
    /// another process, or made up, cannot be told from an offset of now.
    #[error(
        "the history of topic {topic:?} has changed: {problem}; do not rely on offsets from before, and publish again what must be there"
    )]
    HistoryChanged {
        /// The topic.
        topic: String,
        /// What was known before and what is there now.
        problem: String,
    },
    /// Another process has the directory. It comes free when that process ends.
    #[error("directory {directory:?} is in use by {holder}; stop it or talk to it")]
    InUse {
        /// Base name of the directory.
        directory: String,
        /// The holder as it named itself, for instance `process 123 (latent run)`.
        holder: String,
    },
    /// Another bus has the archive's outbox; nothing in it was touched. It comes free when that bus ends.
    #[error(
        "the archive's outbox {outbox:?} is held by {holder}, and two buses on one outbox would publish each other's events; stop that one, or give each an outbox of its own"
    )]
    OutboxInUse {
        /// Base name of the outbox's directory.
        outbox: String,
        /// The holder as it named itself, for instance `process 123 (the bus demo on NATS)`.
        holder: String,
    },
    /// A sync failed or a failed write could not be undone, so what this log holds is known only after it is opened again.
    #[error("{log} refuses writes since a write or sync of it failed; restart to recover it")]
    Poisoned {
        /// The log, for instance `topic "a"`.
        log: String,
    },
    /// A queue is full; nothing was taken.
    #[error("busy: {limit} is used up; try again later")]
    Busy {
        /// The limit that is reached.
        limit: &'static str,
    },
    /// A read, or something never handed over, took too long.
    #[error("timeout: {operation} took too long; nothing was changed")]
    Timeout {
        /// What was being done.
        operation: String,
    },
    /// A file operation failed.
    #[error("{operation} of {file} failed: {reason}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// Base name of the file.
        file: String,
        /// Kind of the failure.
        kind: std::io::ErrorKind,
        /// The system's words.
        reason: String,
    },
    /// A value could not be encoded or decoded.
    #[error("encoding: {problem}")]
    Serde {
        /// What could not be, and where.
        problem: String,
    },
    /// Something the engine below says that has no other name here.
    #[error("{0}")]
    Backend(String),
}

impl BusError {
    /// True when the same call can never succeed: unknown topic, encoding, permanent rejection, conflict, configuration, range.
    pub const fn is_permanent(&self) -> bool {
        match self {
            Self::UnknownTopic { .. } | Self::Conflict { .. } | Self::Config { .. } | Self::OutOfRange { .. } | Self::Serde { .. } => true,
            Self::Rejected { permanent, .. } => *permanent,
            Self::Unreadable { .. }
            | Self::Disordered { .. }
            | Self::NotSent { .. }
            | Self::Uncertain { .. }
            | Self::HistoryChanged { .. }
            | Self::InUse { .. }
            | Self::OutboxInUse { .. }
            | Self::Poisoned { .. }
            | Self::Busy { .. }
            | Self::Timeout { .. }
            | Self::Io { .. }
            | Self::Backend(_) => false,
        }
    }

    /// The name used in machine-readable output and `docs/errors.md`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::UnknownTopic { .. } => "unknown-topic",
            Self::Rejected { .. } => "rejected",
            Self::Conflict { .. } => "conflict",
            Self::Config { .. } => "config",
            Self::OutOfRange { .. } => "out-of-range",
            Self::Unreadable { .. } => "unreadable",
            Self::Disordered { .. } => "disordered",
            Self::NotSent { .. } => "not-sent",
            Self::Uncertain { .. } => "uncertain",
            Self::HistoryChanged { .. } => "history-changed",
            Self::InUse { .. } => "in-use",
            Self::OutboxInUse { .. } => "outbox-in-use",
            Self::Poisoned { .. } => "poisoned",
            Self::Busy { .. } => "busy",
            Self::Timeout { .. } => "timeout",
            Self::Io { .. } => "io",
            Self::Serde { .. } => "serde",
            Self::Backend(_) => "backend",
        }
    }

    /// True when the operation may have happened.
    pub const fn is_uncertain(&self) -> bool {
        matches!(self, Self::Uncertain { .. })
    }

    /// A failed file operation, named by the file's base name.
    pub(crate) fn io(operation: &'static str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::Io { operation, file: base_name(path), kind: error.kind(), reason: error.to_string() }
    }
}

/// What hid the answer, in words; of a connector its own (B-082).
const fn hidden_by(cause: UncertainCause) -> &'static str {
    match cause {
        UncertainCause::Deadline => "connector operation timed out",
        UncertainCause::Cancelled => "connector operation was interrupted",
        UncertainCause::Storage => "a write or a sync failed after it began",
        UncertainCause::StorageLimit => "the stream or the broker is full, which does not tell whether it was stored",
        UncertainCause::Closed => "the log ended before it answered, or the connector runtime is closed",
        UncertainCause::Unusable => "the answer cannot be used",
    }
}

/// The last part of a path, which is all that errors and logs show of it (B-044).
pub(crate) fn base_name(path: &std::path::Path) -> String {
    path.file_name().map_or_else(|| "?".to_owned(), |name| name.to_string_lossy().into_owned())
}

impl From<CoreError> for BusError {
    /// A value that breaks its rule will break it next time too.
    fn from(error: CoreError) -> Self {
        Self::Rejected { rule: error.to_string(), permanent: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_a_kind_of_its_own_and_says_whether_the_call_can_ever_succeed() {
        let (text, uid) = (|| "x".to_owned(), Uid::parse("u").unwrap());
        let rejected = |permanent| BusError::Rejected { rule: text(), permanent };
        let io = BusError::io("read", std::path::Path::new("/deep/inside/file"), &std::io::Error::other("x"));
        let table = [
            (BusError::UnknownTopic { topic: text() }, true),
            (rejected(true), true),
            (BusError::Conflict { topic: text(), uid: uid.clone() }, true),
            (BusError::Config { problem: text() }, true),
            (BusError::OutOfRange { what: text(), problem: text() }, true),
            (BusError::Serde { problem: text() }, true),
            (BusError::Unreadable { topic: text(), partition: 0, offset: 0 }, false),
            (BusError::Disordered { topic: text(), partition: 0, asked: 1, answered: 0 }, false),
            (BusError::NotSent { reason: text() }, false),
            (BusError::Uncertain { uid, cause: UncertainCause::Storage }, false),
            (BusError::HistoryChanged { topic: text(), problem: text() }, false),
            (BusError::InUse { directory: text(), holder: text() }, false),
            (BusError::OutboxInUse { outbox: text(), holder: text() }, false),
            (BusError::Poisoned { log: text() }, false),
            (BusError::Busy { limit: "x" }, false),
            (BusError::Timeout { operation: text() }, false),
            (io, false),
            (BusError::Backend(text()), false),
        ];
        let mut kinds = std::collections::BTreeSet::new();
        for (error, permanent) in table {
            assert_eq!(error.is_permanent(), permanent, "{error:?}");
            assert_eq!(error.is_uncertain(), error.kind() == "uncertain");
            let names_a_place = matches!(error, BusError::Unreadable { .. } | BusError::Disordered { .. });
            assert!(names_a_place || !error.to_string().contains('/'), "{error}");
            assert!(kinds.insert(error.kind()), "{} stands for two faults", error.kind());
        }
        assert!(!rejected(false).is_permanent());
    }
}
