//! What the engine tells about itself, as plain numbers.

use latent_core::{Offset, UnixMillis};

use super::topic::{Contents, Topic};
use crate::{PartitionStatistics, TopicStatistics};

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
