//! What expires is archived before it expires (B-041, B-043, B-080). Reads on the caller's thread and holds nothing while it uploads, so that
//! publishers, readers and the writer go on.
//!
//! Which segments have expired is asked as readers ask; their records go to the archive in batches; only what is archived to its end may
//! leave hot storage. How far that went is remembered, so that the next pass goes on there; after a crash it begins again, and finds what
//! is archived to be the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use latent_core::{Offset, Partition, StoredRecord, Uid, UnixMillis};

use super::Shared;
use super::body;
use super::reader::{self, Range};
use super::retention_pass;
use super::segment::Segment;
use super::topic::Topic;
use crate::cold::archive::{Archive, Pass, Resolver};
use crate::cold::export::{Goal, ItemSource};
use crate::cold::intent::Intent;
use crate::cold::segment::Item;
use crate::cold::trouble::Trouble;
use crate::{BusError, MaintenanceReport, limits};

/// The archive of this engine, and how far its exports went.
pub(super) struct Cold {
    pub(super) archive: Archive,
    /// By number of the topic. Held while a pass exports and drains: two at once would do everything twice.
    progress: Mutex<BTreeMap<usize, Progress>>,
}

/// How far the export of a topic went.
#[derive(Default)]
struct Progress {
    /// First sequence of the segment that is being exported.
    segment: u64,
    partition: u32,
    offset: u64,
    /// Why it stands.
    trouble: Option<Standing>,
}

/// What holds a topic back.
struct Standing {
    trouble: Trouble,
    /// In words. Said again in each pass until it is tried again, as the events stay in each of them.
    why: String,
}

/// Below which sequence a topic's segments may leave hot storage. Topics that are not archived have no such bound.
pub(super) type Exported = BTreeMap<usize, u64>;

/// A segment that has expired, and the offsets after its last ones.
struct Expiring {
    segment: Arc<Segment>,
    ends: Vec<u64>,
}

impl Cold {
    pub(super) const fn new(archive: Archive) -> Self {
        Self { archive, progress: Mutex::new(BTreeMap::new()) }
    }

    /// Archives what has expired at `now`, topic by topic.
    pub(super) fn export(&self, shared: &Shared, pass: &Pass, now: UnixMillis, report: &mut MaintenanceReport) -> Exported {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let mut exported = Exported::new();
        let mut left = limits::COLD_PASS_INTENTS.default;
        for (number, topic) in shared.topics.iter().enumerate().filter(|(_, topic)| self.archive.has(&topic.name)) {
            let progress = progress.entry(number).or_default();
            let (upto, ended) = self.export_topic(shared, pass, Exporting { topic, now, progress, left: &mut left });
            exported.insert(number, upto);
            if let Err(error) = ended {
                let why = pass.tell(&format!("topic {:?}", topic.name), &error);
                tracing::warn!(topic = topic.name, %error, "what has expired stays: it could not be archived");
                let is_passing = !error.is_permanent() && !matches!(error, BusError::Backend(_));
                let earlier = progress.trouble.as_ref().map(|standing| &standing.trouble);
                progress.trouble = Some(Standing { trouble: Trouble::after(earlier, now, !is_passing), why });
            }
            if let Some(standing) = &progress.trouble {
                pass.keep_problem(standing.why.clone());
                report.unarchived_topics.push(topic.name.clone());
            }
        }
        report.archived_records += limits::COLD_PASS_INTENTS.default - left;
        exported
    }

    fn export_topic(&self, shared: &Shared, pass: &Pass, exporting: Exporting<'_>) -> (u64, Result<(), BusError>) {
        let Exporting { topic, now, progress, left } = exporting;
        let mut upto = 0;
        if topic.is_poisoned() || progress.trouble.as_ref().is_some_and(|standing| !standing.trouble.is_due(now)) {
            return (upto, Ok(()));
        }
        for expiring in expiring(topic, now) {
            let start = expiring.segment.start.sequence;
            if progress.segment != start {
                *progress = Progress { segment: start, partition: 0, offset: 0, trouble: progress.trouble.take() };
            }
            match self.export_segment(shared, pass, &expiring, &mut Exporting { topic, now, progress, left }) {
                Ok(true) => upto = expiring.segment.next_sequence,
                Ok(false) => return (upto, Ok(())),
                Err(error) => return (upto, Err(error)),
            }
        }
        progress.trouble = None;
        (upto, Ok(()))
    }

    /// True when all of it is archived; false when this pass has done enough.
    fn export_segment(&self, shared: &Shared, pass: &Pass, expiring: &Expiring, exporting: &mut Exporting<'_>) -> Result<bool, BusError> {
        let topic = exporting.topic;
        if self.archive.is_segmented(&topic.name) {
            return self.export_in_segments(shared, pass, expiring, exporting);
        }
        for (number, end) in (0..topic.partitions).zip(&expiring.ends).skip(exporting.progress.partition as usize) {
            let start = expiring.segment.start.offsets.get(number as usize).copied().unwrap_or_default();
            if exporting.progress.partition != number {
                (exporting.progress.partition, exporting.progress.offset) = (number, start);
            }
            exporting.progress.offset = exporting.progress.offset.max(start);
            while exporting.progress.offset < *end {
                if *exporting.left == 0 {
                    return Ok(false);
                }
                let records = batch(shared, topic, Partition(number), exporting.progress.offset, *end)?;
                let Some(last) = records.last() else {
                    tracing::warn!(
                        topic = topic.name,
                        partition = number,
                        offset = exporting.progress.offset,
                        "a damaged record expires unarchived"
                    );
                    exporting.progress.offset += 1;
                    continue;
                };
                let (next, count) = (last.offset.0 + 1, records.len() as u64);
                self.archive.export(pass, &topic.name, records, exporting.now)?;
                exporting.progress.offset = next;
                *exporting.left = exporting.left.saturating_sub(count);
            }
        }
        Ok(true)
    }
}

impl Cold {
    /// As [`Cold::export_segment`], of a topic whose archive is in segments: those may hold younger records as well.
    fn export_in_segments(
        &self,
        shared: &Shared,
        pass: &Pass,
        expiring: &Expiring,
        exporting: &mut Exporting<'_>,
    ) -> Result<bool, BusError> {
        let topic = exporting.topic;
        for (number, end) in (0..topic.partitions).zip(&expiring.ends) {
            let start = expiring.segment.start.offsets.get(number as usize).copied().unwrap_or_default();
            let Some(last) = end.checked_sub(1).filter(|last| *last >= start) else { continue };
            if *exporting.left == 0 {
                return Ok(false);
            }
            let partition = Partition(number);
            let goal = Goal { must: Some(Offset(last)), ahead: false, ..Goal::from(exporting.now) };
            let items = TopicItems { shared, topic, partition };
            let exported = self.archive.export_segments(pass, &topic.name, partition, &items, goal)?;
            *exporting.left = exporting.left.saturating_sub(exported.items);
        }
        Ok(true)
    }
}

/// A partition of a topic as its archive reads it.
struct TopicItems<'t> {
    shared: &'t Shared,
    topic: &'t Topic,
    partition: Partition,
}

impl ItemSource for TopicItems<'_> {
    fn bounds(&self) -> Result<(Offset, Offset), BusError> {
        let contents = self.topic.read();
        let of = |offsets: &[u64]| Offset(offsets.get(self.partition.0 as usize).copied().unwrap_or_default());
        Ok((of(&contents.first.offsets), of(&contents.next.offsets)))
    }

    fn page(&self, from: Offset) -> Result<Vec<Item>, BusError> {
        let count_max = limits::COLD_BATCH_RECORDS.default_usize();
        let range = Range { partition: self.partition, offset: from, count_max, bytes_max: limits::COLD_BATCH_BYTES.default };
        match reader::fetch(&self.shared.disk(self.topic), self.topic, range) {
            Ok(records) => Ok(records.into_iter().map(Item::from).collect()),
            Err(BusError::Unreadable { offset, .. }) if offset >= from.0 => Ok(vec![Item::Damaged { offset: Offset(offset) }]),
            Err(error) => Err(error),
        }
    }
}

/// The export of one topic.
struct Exporting<'e> {
    topic: &'e Topic,
    now: UnixMillis,
    progress: &'e mut Progress,
    /// Records that this pass may still export.
    left: &'e mut u64,
}

/// Records from `offset` on, up to a damaged one; none when the first is damaged.
fn batch(shared: &Shared, topic: &Topic, partition: Partition, offset: u64, end: u64) -> Result<Vec<StoredRecord>, BusError> {
    let count_max = usize::try_from(end - offset).unwrap_or(usize::MAX).min(limits::COLD_BATCH_RECORDS.default_usize());
    let range = Range { partition, offset: Offset(offset), count_max, bytes_max: limits::COLD_BATCH_BYTES.default };
    let mut records = match reader::fetch(&shared.disk(topic), topic, range) {
        Err(BusError::Unreadable { .. }) => Vec::new(),
        fetched => fetched?,
    };
    records.retain(|stored| stored.offset.0 < end);
    Ok(records)
}

fn expiring(topic: &Topic, now: UnixMillis) -> Vec<Expiring> {
    let segments = retention_pass::expired_segments(topic, now.0);
    let contents = topic.read();
    let ends = |at: usize| {
        let after = contents.segments.get(at + 1).map(|segment| &segment.start.offsets);
        let after = after.or_else(|| contents.active.as_ref().map(|active| &active.start.offsets));
        after.unwrap_or(&contents.next.offsets).clone()
    };
    segments.into_iter().enumerate().map(|(at, segment)| Expiring { segment, ends: ends(at) }).collect()
}

/// Answers from the uid index; nothing is ever published again (B-043).
pub(super) struct FromIndex<'s>(pub(super) &'s Shared);

impl Resolver for FromIndex<'_> {
    fn resolve(&self, intent: &Intent) -> Result<Intent, BusError> {
        let (number, topic) = self.0.topic(&intent.topic)?;
        let uid: &Uid = &intent.record.uid;
        let found = self.0.look_up(number, topic, uid, topic.hasher.hash(uid.as_str()))?;
        let unresolved = || {
            BusError::Backend(format!(
                "the log has no event with uid {uid} of topic {:?}; the archive's intent is kept, move it away",
                intent.topic
            ))
        };
        let found = found.ok_or_else(unresolved)?;
        let partition = Partition(found.identity.partition.into());
        let range = Range { partition, offset: Offset(found.identity.offset), count_max: 1, bytes_max: u64::from(u32::MAX) };
        let stored = reader::fetch(&self.0.disk(topic), topic, range)?.into_iter().next();
        let stored =
            stored.filter(|stored| stored.offset.0 == found.identity.offset && body::decode_uid(&found.body) == Some(uid.as_str()));
        let StoredRecord { partition, offset, record } = stored.ok_or_else(unresolved)?;
        Ok(Intent { topic: intent.topic.clone(), partition, record, offset: Some(offset) })
    }
}
