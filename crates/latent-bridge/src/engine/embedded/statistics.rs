//! What the engine tells about itself, as plain numbers.

use latent_core::{Offset, UnixMillis};

use super::topic::{Contents, Topic};

/// One topic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopicStatistics {
    /// Its name.
    pub topic: String,
    /// Segment files.
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
    /// Bytes of readable records with their frames.
    pub bytes: u64,
    /// Offsets that cannot be read.
    pub damaged: u64,
}

pub(super) fn of_topic(topic: &Topic) -> TopicStatistics {
    let contents = topic.read();
    let bounds = contents.first.offsets.iter().zip(&contents.next.offsets);
    let partitions = bounds.enumerate().map(|(partition, (first, next))| {
        let (records, bytes) = contents.records_and_bytes(partition);
        let damaged = next.saturating_sub(*first).saturating_sub(records);
        PartitionStatistics { first: Offset(*first), next: Offset(*next), records, bytes, damaged }
    });
    TopicStatistics {
        topic: topic.name.clone(),
        segments: contents.segments.len() as u64 + u64::from(contents.active.is_some()),
        uid_runs: contents.runs.iter().count() as u64,
        uid_filter_bytes: contents.runs.iter().map(|run| run.resident_filter_bytes()).sum(),
        oldest: oldest(&contents).map(UnixMillis),
        displaced: contents.displaced,
        poisoned: topic.is_poisoned(),
        partitions: partitions.collect(),
    }
}

fn oldest(contents: &Contents) -> Option<u64> {
    let full = contents.segments.iter().filter(|segment| segment.records_in_all() > 0).map(|segment| segment.oldest);
    let active = contents.active.iter().filter(|active| active.positions.count() > 0).map(|active| active.oldest);
    full.chain(active).min()
}
