//! Topics that are archived in segments: maintenance reads the streams and writes what is due, oldest first, long before the broker removes
//! it. Nothing is done for a single publication. What the broker removed before that is told as a hole.

use std::sync::Arc;

use latent_core::{Offset, Partition, UnixMillis};

use super::reading::look;
use super::{NatsBus, operation_limit};
use crate::cold::archive::{Archive, Pass};
use crate::cold::export::{BusItems, Goal, ItemSource, LogSpan};
use crate::cold::segment::Item;
use crate::{BusError, MaintenanceReport, TopicSpec, limits};

const HOUR_MILLIS: u64 = 3_600_000;

impl NatsBus {
    /// Exports what is due of every partition in segments. A topic of which one fails is named in the report; all other partitions go on.
    pub(super) fn export_segments(&self, archive: &Archive, pass: &Pass, now: UnixMillis, report: &mut MaintenanceReport) {
        for topic in self.manifest.topics.iter().filter(|topic| archive.is_segmented(&topic.name)) {
            for number in 0..topic.partitions {
                let partition = Partition(number);
                let items = BusItems { bus: self, topic: topic.name.clone(), partition };
                let stream = StreamItems { bus: self, items };
                match archive.export_segments(pass, &topic.name, partition, &stream, goal(topic, now)) {
                    Ok(exported) => report.archived_records = report.archived_records.saturating_add(exported.items),
                    Err(error) => {
                        pass.tell(&format!("topic {:?}", topic.name), &error);
                        let left = self.left(archive, topic, partition, now);
                        let left = left.map_or_else(|| "unknown".to_owned(), |left| format!("{} minutes", left / 60_000));
                        tracing::warn!(
                            topic = topic.name, partition = number, %error, left,
                            "what is due was not archived; it is tried again until the broker removes it"
                        );
                        // The others go on: of those the broker removes what is too old as well.
                        if report.unarchived_topics.last() != Some(&topic.name) {
                            report.unarchived_topics.push(topic.name.clone());
                        }
                    }
                }
            }
        }
        report.archive_holes = archive.take_holes();
    }

    /// For how long the broker keeps the oldest event that is not archived.
    fn left(&self, archive: &Archive, topic: &TopicSpec, partition: Partition, now: UnixMillis) -> Option<u64> {
        let head = archive.head(&topic.name, partition).ok()?;
        let from = head.and_then(|attested| attested.head.end()).map_or(Offset(0), |end| Offset(end.0.saturating_add(1)));
        let items = BusItems { bus: self, topic: topic.name.clone(), partition }.page(from).ok()?;
        let oldest = items.iter().find_map(Item::record)?.stored_at;
        Some(oldest.0.saturating_add(kept_millis(topic)).saturating_sub(now.0))
    }
}

/// A partition of a stream, with where the stream begins: it forgets what is too old, archived or not.
struct StreamItems<'b> {
    bus: &'b NatsBus,
    items: BusItems<'b>,
}

impl ItemSource for StreamItems<'_> {
    fn bounds(&self) -> Result<(Offset, Offset), BusError> {
        self.items.bounds()
    }

    fn page(&self, from: Offset) -> Result<Vec<Item>, BusError> {
        self.items.page(from)
    }

    fn span(&self) -> Result<Option<LogSpan>, BusError> {
        let (number, _) = self.bus.shared.topic(&self.items.topic)?;
        let shared = Arc::clone(&self.bus.shared);
        self.bus.wait("reading where a stream begins and ends", operation_limit(), async move {
            let Some(topic) = shared.topics.get(number) else { return Ok(None) };
            let state = look(&shared, topic).await?.state;
            Ok(Some(LogSpan { first: Offset(state.first_seq.max(1)), next: Offset(state.last_seq.saturating_add(1)) }))
        })
    }
}

fn kept_millis(topic: &TopicSpec) -> u64 {
    u64::from(topic.retention.hot_hours).saturating_mul(HOUR_MILLIS)
}

/// An event waits for its segment no longer than a quarter of the time that the broker keeps it.
fn goal(topic: &TopicSpec, now: UnixMillis) -> Goal {
    let age_millis = limits::ARCHIVE_SEGMENT_AGE_MILLIS.default.min(kept_millis(topic) / 4);
    Goal { age_millis, ..Goal::from(now) }
}
