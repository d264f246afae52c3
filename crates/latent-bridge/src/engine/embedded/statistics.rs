//! What the engine tells about itself, as plain numbers.

use latent_core::Offset;

use super::topic::Topic;

/// One topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicStatistics {
    /// Its name.
    pub topic: String,
    /// Segment files.
    pub segments: u64,
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
    /// Bytes of readable records with their frames.
    pub bytes: u64,
    /// Offsets that cannot be read.
    pub damaged: u64,
}

pub(super) fn of_topic(topic: &Topic) -> TopicStatistics {
    let contents = topic.read();
    let partitions = contents.positions.iter().map(|positions| PartitionStatistics {
        first: positions.first(),
        next: positions.next(),
        bytes: positions.bytes(),
        damaged: positions.damaged(),
    });
    TopicStatistics {
        topic: topic.name.clone(),
        segments: contents.segments.len() as u64,
        poisoned: topic.is_poisoned(),
        partitions: partitions.collect(),
    }
}
