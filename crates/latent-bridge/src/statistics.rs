//! What an engine tells about itself, as plain numbers.

use latent_core::{Offset, UnixMillis};

/// One topic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopicStatistics {
    /// Its name.
    pub topic: String,
    /// Segment files; none on an engine whose files are not here.
    pub segments: u64,
    /// Files of the uid index.
    pub uid_runs: u64,
    /// Memory that filters of the uid index take.
    pub uid_filter_bytes: u64,
    /// Smallest `stored_at` of its records, when it has any.
    pub oldest: Option<UnixMillis>,
    /// Records that are kept and not shown because their numbers repeat or fall, which only damage or foreign files cause.
    pub displaced: u64,
    /// True when it takes nothing until the directory is opened again.
    pub poisoned: bool,
    /// Its partitions, counted from 0.
    pub partitions: Vec<PartitionStatistics>,
}

/// One partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionStatistics {
    /// The first offset.
    pub first: Offset,
    /// The offset after the last one.
    pub next: Offset,
    /// Readable records.
    pub records: u64,
    /// Bytes of readable records with their frames; 0 on a broker, which counts them for a whole stream only.
    pub bytes: u64,
    /// Offsets that cannot be read.
    pub damaged: u64,
}
