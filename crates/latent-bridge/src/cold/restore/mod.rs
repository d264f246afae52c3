//! Events back from an archive into a topic, on either engine: uid, key, media type, attributes and bytes as they were; order kept in each
//! partition; offsets and times those of the new log.
//!
//! ```text
//! verify all of it ── anything wrong? nothing is published
//!        │
//! partition by partition: read in order ── publish_batch ── progress ── … ── compare all of it with the log
//! ```
//!
//! It can end anywhere and be run again: progress says where to go on, and what was published behind it is known by its uid. An event that is
//! there with the same uid and other content ends it; nothing is replaced.

mod compare;
mod progress;
mod reader;

use std::collections::{BTreeMap, HashSet};

use latent_core::{NewRecord, Offset, Partition, Record};
use serde::Serialize;

pub use progress::Progress;
use reader::PartitionReader;

use super::export::ArchivedName;
use super::probe::PROBE_OBJECT;
use super::segment::SegmentError;
use super::store::ColdError;
use super::verify::{FindingKind, Verification, VerifyReport};
use crate::{BusError, EventBus, limits};

/// What is restored, and where to.
#[derive(Clone, Copy)]
pub struct Restoration<'r> {
    /// What it is read from, and what it is verified with. Its log is not looked at.
    pub archive: Verification<'r>,
    /// The bus that it goes to.
    pub bus: &'r dyn EventBus,
    /// Of one key, one event at a time is handed over: for an engine on which what is handed over together may overtake, as on a broker.
    pub key_by_key: bool,
    /// The topic that it goes to, where that is not the one it came from. Then one topic alone can be restored.
    pub into: Option<&'r str>,
}

/// What became of one partition of the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RestoredPartition {
    /// The topic it came from.
    pub topic: String,
    /// The partition it came from.
    pub partition: u32,
    /// Records that were published, by this run or one before it.
    pub records: u64,
    /// Those of them that this run found there already.
    pub already_there: u64,
    /// Offsets without a record: it was damaged before it was archived.
    pub damaged: u64,
    /// Records that were read back from the log and are the same.
    pub compared: u64,
    /// Those of them that lie behind a later one, because that one was in the topic before.
    pub out_of_order: u64,
    /// The topic that they are in now.
    pub into: String,
    /// By partition of that topic, the offsets that the first and the last of them have now.
    pub offsets: BTreeMap<u32, (u64, u64)>,
}

/// What a restoration did.
#[derive(Debug, Clone, Default)]
pub struct RestoreReport {
    /// By partition, in the order of the archive.
    pub partitions: Vec<RestoredPartition>,
    /// What the verification before it saw.
    pub verified: VerifyReport,
}

/// Why a restoration ended before it was done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The archive is not as it should be; nothing was published.
    #[error("the archive is not sound: {} things are wrong with it, the first: {}", report.findings.total() - report.findings.holes(), first_of(report))]
    Unsound {
        /// What is wrong.
        report: Box<VerifyReport>,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] ColdError),
    /// An object is no longer as it was when it was verified.
    #[error("{object} is no longer as it was verified: {problem}")]
    Changed {
        /// Its path.
        object: String,
        /// How.
        problem: String,
    },
    /// A record could not be published.
    #[error("offset {offset} of {topic}/p{partition} was not published: {cause}")]
    Publish {
        /// The topic it came from.
        topic: String,
        /// The partition it came from.
        partition: u32,
        /// The offset it had.
        offset: u64,
        /// Why.
        cause: BusError,
    },
    /// The log could not be read back.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// Read back, the log does not have it.
    #[error("offset {offset} of {topic}/p{partition} (uid {uid:?}) was published and is not in the log as it was: {problem}")]
    NotThere {
        /// The topic it came from.
        topic: String,
        /// The partition it came from.
        partition: u32,
        /// The offset it had.
        offset: u64,
        /// Its uid.
        uid: String,
        /// What is there.
        problem: String,
    },
    /// Two topics cannot become one. Nothing was done.
    #[error("the archive holds {one:?} and {other:?}, which cannot both become {into:?}; name one topic")]
    SeveralTopics {
        /// A topic of the archive.
        one: String,
        /// Another one.
        other: String,
        /// The topic that they should go to.
        into: String,
    },
    /// Progress could not be written down or is of something else.
    #[error("{problem}")]
    Progress {
        /// Why.
        problem: String,
    },
}

fn first_of(report: &VerifyReport) -> String {
    report.findings.kept().iter().find(|finding| finding.kind != FindingKind::Hole).map_or_else(String::new, ToString::to_string)
}

/// What is told while it goes on.
#[derive(Debug, Clone, Copy)]
pub enum Step<'s> {
    /// Verifying, before anything is published.
    Verifying(&'s VerifyReport),
    /// Publishing.
    Publishing(&'s RestoredPartition),
    /// Reading back.
    Comparing(&'s RestoredPartition),
}

impl Restoration<'_> {
    /// Restores what `progress` does not have yet. `keep` writes progress down durably, `tell` shows it.
    ///
    /// # Errors
    /// [`RestoreError`]. Running it again with the progress kept goes on.
    pub fn run(
        &self,
        mut progress: Progress,
        keep: &mut dyn FnMut(&Progress) -> Result<(), String>,
        tell: &mut dyn FnMut(Step<'_>),
    ) -> Result<RestoreReport, RestoreError> {
        let partitions = self.partitions()?;
        let segmented = self.archive.segmented()?;
        let verification = Verification { log: None, ..self.archive };
        let verified = verification.run_beside(&segmented, &mut |report| tell(Step::Verifying(report)))?;
        if verified.findings.total() > verified.findings.holes() {
            return Err(RestoreError::Unsound { report: Box::new(verified) });
        }
        let mut report = RestoreReport { verified, ..RestoreReport::default() };
        for (topic, partition) in partitions {
            let is_proven = self.archive.asks_proof_of(&topic, &segmented);
            let restored = self.partition((&topic, partition), is_proven, &mut progress, keep, tell)?;
            report.partitions.push(restored);
        }
        self.check_whole(&report)?;
        Ok(report)
    }

    /// An archive that goes away on the way looks like one with less in it.
    fn check_whole(&self, report: &RestoreReport) -> Result<(), RestoreError> {
        let sum = |of: fn(&RestoredPartition) -> u64| report.partitions.iter().map(of).fold(0, u64::saturating_add);
        let (verified, restored, compared) = (report.verified.records, sum(|one| one.records), sum(|one| one.compared));
        if (verified, verified) == (restored, compared) {
            return Ok(());
        }
        let object = self.archive.topic.map_or_else(|| "the archive".to_owned(), |topic| format!("the archive of {topic}"));
        let problem =
            format!("it had {verified} events then; {restored} were read of it afterwards, and {compared} to compare them with the log");
        Err(RestoreError::Changed { object, problem })
    }

    /// The partitions of the archive, in its order: each is found by the first name behind the last one of the partition before it.
    fn partitions(&self) -> Result<Vec<(String, Partition)>, RestoreError> {
        let archive = &self.archive;
        let prefix = archive.topic.map_or_else(String::new, |topic| format!("{topic}/"));
        let mut found: Vec<(String, Partition)> = Vec::new();
        let mut after = String::new();
        while let Some(listed) = archive.store.list_after(&prefix, &after, 1)?.into_iter().next() {
            match ArchivedName::parse(&listed.path).filter(|_| listed.stray.is_none() && listed.path != PROBE_OBJECT) {
                Some(name) => {
                    let (topic, partition) = name.place();
                    if archive.partition.is_none_or(|wanted| wanted == partition) {
                        found.push((topic.to_owned(), partition));
                    }
                    // Behind every name that a partition's folder can have.
                    after = format!("{}~", super::export::partition_prefix(topic, partition));
                }
                None => after = listed.path,
            }
        }
        let two = found.iter().zip(found.iter().skip(1)).find(|((one, _), (other, _))| one != other);
        if let (Some(into), Some(((one, _), (other, _)))) = (self.into, two) {
            return Err(RestoreError::SeveralTopics { one: one.clone(), other: other.clone(), into: into.to_owned() });
        }
        Ok(found)
    }

    fn partition(
        &self,
        (topic, partition): (&str, Partition),
        is_proven: bool,
        progress: &mut Progress,
        keep: &mut dyn FnMut(&Progress) -> Result<(), String>,
        tell: &mut dyn FnMut(Step<'_>),
    ) -> Result<RestoredPartition, RestoreError> {
        let target = self.into.unwrap_or(topic);
        let mut restored = RestoredPartition {
            topic: topic.to_owned(),
            partition: partition.0,
            records: 0,
            already_there: 0,
            damaged: 0,
            compared: 0,
            out_of_order: 0,
            into: target.to_owned(),
            offsets: BTreeMap::new(),
        };
        let done = progress.done(topic, partition);
        let mut batch = Batch::default();
        let mut reader = PartitionReader::open(self.archive.store, self.archive.keys, (topic, partition), is_proven);
        while let Some(item) = reader.next()? {
            let offset = item.offset();
            let Some(record) = item.record() else {
                restored.damaged += 1;
                continue;
            };
            if done.is_some_and(|done| offset <= done) {
                restored.records += 1;
                continue;
            }
            if !batch.has_room(record) || (self.key_by_key && batch.has_key(&record.key)) {
                self.publish(target, &mut batch, &mut restored, progress, keep)?;
                tell(Step::Publishing(&restored));
            }
            batch.push(offset, record)?;
        }
        self.publish(target, &mut batch, &mut restored, progress, keep)?;
        tell(Step::Publishing(&restored));
        compare::run(self, (target, is_proven), &mut restored, tell)?;
        Ok(restored)
    }

    fn publish(
        &self,
        target: &str,
        batch: &mut Batch,
        restored: &mut RestoredPartition,
        progress: &mut Progress,
        keep: &mut dyn FnMut(&Progress) -> Result<(), String>,
    ) -> Result<(), RestoreError> {
        let Batch { offsets, records, .. } = std::mem::take(batch);
        let Some(last) = offsets.last().copied() else { return Ok(()) };
        for (offset, result) in offsets.into_iter().zip(self.bus.publish_batch(target, &records)) {
            let (topic, partition) = (restored.topic.clone(), restored.partition);
            let ack = result.map_err(|cause| RestoreError::Publish { topic, partition, offset: offset.0, cause })?;
            restored.records += 1;
            restored.already_there += u64::from(ack.duplicate);
        }
        progress.note(&restored.topic, Partition(restored.partition), last);
        keep(progress).map_err(|problem| RestoreError::Progress { problem })
    }
}

/// Records that are published together.
#[derive(Default)]
struct Batch {
    offsets: Vec<Offset>,
    records: Vec<NewRecord>,
    keys: HashSet<String>,
    bytes: usize,
}

impl Batch {
    fn has_room(&self, record: &Record) -> bool {
        self.records.len() < limits::RESTORE_BATCH_RECORDS.default_usize()
            && self.bytes + record.payload.len() <= limits::RESTORE_BATCH_BYTES.default_usize()
            || self.records.is_empty()
    }

    fn has_key(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    fn push(&mut self, offset: Offset, record: &Record) -> Result<(), RestoreError> {
        let (uid, attributes) = (record.uid.clone(), record.attributes.clone());
        let new = NewRecord::new(Some(uid), &record.key, record.media_type.clone(), attributes, record.payload.clone());
        let new = new.map_err(|error| RestoreError::Bus(error.into()))?;
        self.bytes += record.payload.len();
        self.offsets.push(offset);
        self.keys.insert(record.key.clone());
        self.records.push(new);
        Ok(())
    }
}

impl RestoreError {
    fn changed(object: &str, error: &SegmentError) -> Self {
        Self::Changed { object: object.to_owned(), problem: error.to_string() }
    }
}
