//! Topics that are archived in segments: maintenance reads the streams and writes what is due, oldest first, long before the broker removes
//! it. Nothing is done for a single publication.

use latent_core::{Partition, UnixMillis};

use super::NatsBus;
use crate::cold::archive::{Archive, Pass};
use crate::cold::export::{BusItems, Goal};
use crate::{MaintenanceReport, TopicSpec, limits};

const HOUR_MILLIS: u64 = 3_600_000;

impl NatsBus {
    /// Exports what is due of every topic in segments. A topic whose archive fails is named in the report, and its events stay where they
    /// are; the others go on.
    pub(super) fn export_segments(&self, archive: &Archive, pass: &Pass, now: UnixMillis, report: &mut MaintenanceReport) {
        for topic in self.manifest.topics.iter().filter(|topic| archive.is_segmented(&topic.name)) {
            for number in 0..topic.partitions {
                let partition = Partition(number);
                let items = BusItems { bus: self, topic: topic.name.clone(), partition };
                match archive.export_segments(pass, &topic.name, partition, &items, goal(topic, now)) {
                    Ok(exported) => report.archived_records = report.archived_records.saturating_add(exported.items),
                    Err(error) => {
                        tracing::warn!(topic = topic.name, partition = number, %error, "what is due was not archived; it is tried again");
                        report.unarchived_topics.push(topic.name.clone());
                        break;
                    }
                }
            }
        }
    }
}

/// An event waits for its segment no longer than a quarter of the time that the broker keeps it.
fn goal(topic: &TopicSpec, now: UnixMillis) -> Goal {
    let kept_millis = u64::from(topic.retention.hot_hours).saturating_mul(HOUR_MILLIS);
    let age_millis = limits::ARCHIVE_SEGMENT_AGE_MILLIS.default.min(kept_millis / 4);
    Goal { age_millis, ..Goal::from(now) }
}
