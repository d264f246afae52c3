//! Sizes of the log and the result of a maintenance, as they cross the socket and as machines read them.

use latent_bridge::{MaintenanceReport, PartitionStatistics, TopicStatistics};
use serde::{Deserialize, Serialize};

use super::protocol::TopicInfo;
use crate::engine::Engine;
use crate::limits;

/// One partition: also the document that `latent bus stats --json` prints. The first seven fields are stable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartitionInfo {
    /// Topic.
    pub(crate) topic: String,
    /// Partition.
    pub(crate) partition: u32,
    /// First offset that is kept.
    pub(crate) first: u64,
    /// The offset the next event will get.
    pub(crate) next: u64,
    /// Events that can be read.
    pub(crate) records: u64,
    /// Offsets that are kept and cannot be read.
    pub(crate) damaged: u64,
    /// Bytes of the events that can be read, with their frames; `None` on a broker, which counts them for a whole stream only.
    pub(crate) bytes: Option<u64>,
    /// True when the topic takes nothing until the log is opened again.
    pub(crate) poisoned: bool,
    /// Segment files of the topic, which its partitions share.
    pub(crate) topic_segments: u64,
    /// Files of the topic's uid index.
    pub(crate) topic_uid_runs: u64,
    /// Earliest `stored_at` of the topic's events, when it has any.
    pub(crate) topic_oldest: Option<u64>,
}

/// A partition by its name: where a page ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartitionPlace {
    /// Topic.
    pub(crate) topic: String,
    /// Partition.
    pub(crate) partition: u32,
}

impl PartitionInfo {
    fn of(engine: Engine, topic: &TopicStatistics, partition: u32, numbers: &PartitionStatistics) -> Self {
        Self {
            topic: topic.topic.clone(),
            partition,
            first: numbers.first.0,
            next: numbers.next.0,
            records: numbers.records,
            damaged: numbers.damaged,
            bytes: (engine == Engine::Embedded).then_some(numbers.bytes),
            poisoned: topic.poisoned,
            topic_segments: topic.segments,
            topic_uid_runs: topic.uid_runs,
            topic_oldest: topic.oldest.map(|oldest| oldest.0),
        }
    }

    /// Its name.
    pub(crate) fn place(&self) -> PartitionPlace {
        PartitionPlace { topic: self.topic.clone(), partition: self.partition }
    }
}

impl From<TopicStatistics> for TopicInfo {
    /// Events are counted and not computed from offsets, which have gaps on a broker.
    fn from(topic: TopicStatistics) -> Self {
        let kept = |numbers: &PartitionStatistics| numbers.records.saturating_add(numbers.damaged);
        let events = topic.partitions.iter().map(kept).fold(0, u64::saturating_add);
        let partitions = u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX);
        Self { topic: topic.topic, partitions, events }
    }
}

/// A page of partitions, ordered by topic and number, and whether there are more. `topics` are sorted by name.
pub(super) fn page_of_partitions(engine: Engine, topics: &[TopicStatistics], after: Option<&PartitionPlace>) -> (Vec<PartitionInfo>, bool) {
    let is_after = |topic: &TopicStatistics, partition: u32| {
        after.is_none_or(|after| (topic.topic.as_str(), partition) > (after.topic.as_str(), after.partition))
    };
    let numbered =
        topics.iter().flat_map(|topic| (0..).zip(&topic.partitions).map(move |(partition, numbers)| (topic, partition, numbers)));
    let mut rest = numbered.filter(|(topic, partition, _)| is_after(topic, *partition));
    let page = rest.by_ref().take(limits::STATISTICS_PAGE.max_usize());
    let page: Vec<_> = page.map(|(topic, partition, numbers)| PartitionInfo::of(engine, topic, partition, numbers)).collect();
    (page, rest.next().is_some())
}

/// What a maintenance did: also the document that `latent bus maintain --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Maintained {
    /// Events that retention removed.
    pub(crate) expired_records: u64,
    /// Segment files removed with them.
    pub(crate) expired_segments: u64,
    /// Topics left alone because they refuse writes.
    pub(crate) skipped_topics: Vec<String>,
    /// Files that belong to nothing any more and could not be removed.
    pub(crate) unremoved_files: u64,
    /// Archive intents finished.
    pub(crate) intents_completed: u64,
    /// Archive intents that stay.
    pub(crate) intents_pending: u64,
    /// Events handed to the archive because their time was up.
    #[serde(default)]
    pub(crate) archived_records: u64,
    /// Ranges that the broker removed before they were archived.
    #[serde(default)]
    pub(crate) archive_holes: u64,
    /// Archive intents that failed in this pass and are tried again.
    #[serde(default)]
    pub(crate) intents_failed: u64,
    /// Archive intents that somebody has to look at.
    #[serde(default)]
    pub(crate) intents_quarantined: u64,
    /// Topics of which what has expired stays, because it could not be archived.
    #[serde(default)]
    pub(crate) unarchived_topics: Vec<String>,
    /// Topics whose cold store could not be reached.
    #[serde(default)]
    pub(crate) unreachable_topics: Vec<String>,
    /// What could not be archived, in words.
    #[serde(default)]
    pub(crate) archive_problems: Vec<String>,
}

impl From<MaintenanceReport> for Maintained {
    fn from(report: MaintenanceReport) -> Self {
        Self {
            expired_records: report.expired_records,
            expired_segments: report.expired_segments,
            skipped_topics: report.skipped_topics,
            unremoved_files: report.unremoved_files,
            intents_completed: report.intents_completed,
            intents_pending: report.intents_pending,
            archived_records: report.archived_records,
            archive_holes: report.archive_holes,
            intents_failed: report.intents_failed,
            intents_quarantined: report.intents_quarantined,
            unarchived_topics: report.unarchived_topics,
            unreachable_topics: report.unreachable_topics,
            archive_problems: report.archive_problems,
        }
    }
}

impl Maintained {
    /// True when nothing was skipped, no file stays that should not, and nothing that is to be archived is held up.
    pub(crate) fn is_complete(&self) -> bool {
        let is_archived = self.unarchived_topics.is_empty() && self.unreachable_topics.is_empty() && self.intents_quarantined == 0;
        self.skipped_topics.is_empty() && self.unremoved_files == 0 && is_archived
    }
}

#[cfg(test)]
mod tests {
    use latent_core::Offset;

    use super::*;

    fn topic(name: &str, partitions: usize) -> TopicStatistics {
        let numbers = PartitionStatistics { first: Offset(2), next: Offset(12), records: 7, bytes: 300, damaged: 3 };
        let partitions = vec![numbers; partitions];
        TopicStatistics { topic: name.to_owned(), segments: 4, poisoned: true, partitions, ..TopicStatistics::default() }
    }

    #[test]
    fn a_partition_counts_what_can_be_read() {
        let (page, more) = page_of_partitions(Engine::Embedded, &[topic("t", 1)], None);
        let document = serde_json::to_string(&page[0]).unwrap();
        let stable = r#"{"topic":"t","partition":0,"first":2,"next":12,"records":7,"damaged":3,"bytes":300,"#;
        assert!(document.starts_with(stable) && !more, "{document}");
        assert!(page[0].poisoned && page[0].topic_segments == 4);
        let (page, _) = page_of_partitions(Engine::Nats, &[topic("t", 1)], None);
        assert_eq!(page[0].bytes, None, "what a broker does not say is not nothing");
    }

    #[test]
    fn pages_follow_each_other_without_gap_or_overlap() {
        let page = limits::STATISTICS_PAGE.max_usize();
        for (count, pages) in [(0, 1), (page - 1, 1), (page, 1), (page + 1, 2), (2 * page + 1, 3)] {
            // Names that begin alike, and a page border inside a topic.
            let topics = [topic("a", count / 3), topic("a.b", count / 3), topic("b", count - 2 * (count / 3))];
            let (mut seen, mut turns) = (Vec::<PartitionPlace>::new(), 0);
            loop {
                let (partitions, more) = page_of_partitions(Engine::Embedded, &topics, seen.last().cloned().as_ref());
                seen.extend(partitions.iter().map(PartitionInfo::place));
                turns += 1;
                if !more {
                    break;
                }
            }
            assert_eq!((seen.len(), turns), (count, pages));
            assert!(seen.is_sorted_by(|one, next| one < next));
        }
    }

    #[test]
    fn only_what_was_left_makes_a_maintenance_incomplete() {
        let expired = Maintained { expired_records: 1, intents_pending: 2, ..Maintained::default() };
        assert!(expired.is_complete());
        assert!(!Maintained { skipped_topics: vec!["t".to_owned()], ..expired.clone() }.is_complete());
        assert!(!Maintained { unremoved_files: 1, ..expired }.is_complete());
    }
}
