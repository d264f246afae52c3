//! Is an archive complete and unaltered? Reads every object of it once, one at a time, and names what is wrong: topic, partition, offsets.
//!
//! What can be told depends on what there is to compare with, and the report says which of it there was:
//!
//! | given | finds |
//! |---|---|
//! | the archive alone | what is cut, changed, out of its place or missing from the middle of a chain of segments |
//! | control keys | also what was made by somebody without a key: a segment whose inner checksums are right |
//! | a head of the partition | also what is missing from the end |
//! | keys, and segments or heads | also single events that nothing proves |
//! | the log | also every difference to what is still in hot storage |
//! | what is expected (`expected`) | also what is missing altogether: objects at either end, partitions, topics, the whole archive |
//!
//! Events archived one by one have no chain: of them the archive alone tells only what is in no order. Decisions are in `partition`,
//! `expected` and `unproven`, which do no I/O.

mod expected;
mod finding;
mod hot;
mod partition;
#[cfg(test)]
mod tests;
mod unproven;

use std::collections::{BTreeMap, BTreeSet};

use latent_core::{Offset, Partition};

pub use expected::{Expectation, Known};
pub use finding::{Finding, FindingKind, Findings};
use hot::Hot;
use partition::{Beside, PartitionCheck};

use super::export::{ArchiveHead, ArchivedName};
use super::object;
use super::probe::PROBE_OBJECT;
use super::segment::{Attest, Segment};
use super::store::{ColdError, ColdStore, Listed, each_listed};
use crate::manifest::ColdFormat;
use crate::{EventBus, limits};

/// What is verified, and what there is to compare with.
#[derive(Clone, Copy)]
pub struct Verification<'v> {
    /// The archive.
    pub store: &'v dyn ColdStore,
    /// Only this topic.
    pub topic: Option<&'v str>,
    /// Only this partition of it.
    pub partition: Option<Partition>,
    /// The control keys that segments are proven with.
    pub keys: Option<&'v dyn Attest>,
    /// Up to where archives went when somebody looked.
    pub heads: &'v [ArchiveHead],
    /// The log that was archived.
    pub log: Option<&'v dyn EventBus>,
    /// Offsets of single events are dense, as on the embedded engine, so that a gap between them is a missing event.
    pub dense: bool,
    /// What is known of the archive from elsewhere.
    pub known: Known<'v>,
}

/// Of a partition, what must be there.
#[derive(Clone, Copy, Default)]
struct Promised<'c> {
    head: Option<&'c ArchiveHead>,
    expected: Option<&'c Expectation>,
}

/// Of each partition that was not seen yet.
type Unseen<'c> = BTreeMap<(String, u32), Promised<'c>>;

/// What was seen.
#[derive(Debug, Clone, Default)]
pub struct VerifyReport {
    /// What is wrong.
    pub findings: Findings,
    /// Partitions that have something in the archive, or should.
    pub partitions: u64,
    /// Segments that are as they were written.
    pub segments: u64,
    /// Single events that are in the form they were written in.
    pub objects: u64,
    /// Records in them.
    pub records: u64,
    /// Offsets whose record was damaged before it was archived.
    pub damaged: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Segments whose proof was checked and holds.
    pub proven_segments: u64,
    /// Partitions whose last segment no head speaks of: what is missing behind it would not be found.
    pub unattested_ends: u64,
    /// Records that were compared with the log.
    pub compared: u64,
    /// Events that are not in the archive and of which as many intents wait.
    pub waiting: u64,
}

impl Verification<'_> {
    /// Verifies. `progress` is told the report so far after each object.
    ///
    /// # Errors
    /// [`ColdError`] where the store cannot be read at all; what is wrong with the archive is in the report.
    pub fn run(&self, progress: &mut dyn FnMut(&VerifyReport)) -> Result<VerifyReport, ColdError> {
        self.run_beside(&self.segmented()?, progress)
    }

    /// As [`Verification::run`], with what [`Verification::segmented`] found.
    pub(super) fn run_beside(
        &self,
        segmented: &BTreeSet<String>,
        progress: &mut dyn FnMut(&VerifyReport),
    ) -> Result<VerifyReport, ColdError> {
        let mut report = VerifyReport::default();
        let mut unseen = self.promised();
        let mut current: Option<PartitionCheck<'_>> = None;
        each_listed(self.store, &self.prefix(), |listed| {
            self.one(&listed, segmented, (&mut current, &mut unseen), &mut report)?;
            progress(&report);
            Ok::<_, ColdError>(())
        })?;
        self.end(current, &mut report);
        for ((topic, partition), promised) in unseen {
            let check = self.open(&topic, Partition(partition), promised, segmented);
            self.end(Some(check), &mut report);
        }
        Ok(report)
    }

    /// What should be there, of each partition that is asked for.
    fn promised(&self) -> Unseen<'_> {
        let mut promised = Unseen::new();
        // One that was only looked through says nothing of what must be there.
        let is_of_something = |head: &&ArchiveHead| head.segments > 0 || head.holes.total() > 0;
        let wanted = |head: &&ArchiveHead| self.wants(&head.place.topic, head.place.partition);
        for head in self.heads.iter().filter(is_of_something).filter(wanted) {
            let kept = &mut promised.entry((head.place.topic.clone(), head.place.partition.0)).or_default().head;
            // Of several heads of a partition the one that goes furthest counts: an older one would hide a cut end.
            if kept.is_none_or(|kept| head.segments > kept.segments) {
                *kept = Some(head);
            }
        }
        let is_any = |expected: &&Expectation| expected.until > expected.since && self.wants(&expected.topic, expected.partition);
        for expected in self.known.expected.iter().filter(is_any) {
            promised.entry((expected.topic.clone(), expected.partition.0)).or_default().expected = Some(expected);
        }
        promised
    }

    fn prefix(&self) -> String {
        match (self.topic, self.partition) {
            (None, _) => String::new(),
            (Some(topic), None) => format!("{topic}/"),
            (Some(topic), Some(partition)) => super::export::partition_prefix(topic, partition),
        }
    }

    fn wants(&self, topic: &str, partition: Partition) -> bool {
        self.topic.is_none_or(|wanted| wanted == topic) && self.partition.is_none_or(|wanted| wanted == partition)
    }

    /// Topics of which there are segments, or a head says that there were: what is beside them needs a proof. Nobody asks without a key.
    pub(super) fn segmented(&self) -> Result<BTreeSet<String>, ColdError> {
        let mut topics = BTreeSet::new();
        if !self.asks_for_proofs() {
            return Ok(topics);
        }
        topics.extend(self.heads.iter().filter(|head| head.segments > 0).map(|head| head.place.topic.clone()));
        // Of the whole topic: a partition may have lost all of its own.
        let prefix = self.topic.map_or_else(String::new, |topic| format!("{topic}/"));
        each_listed(self.store, &prefix, |listed| {
            if let (None, Some(ArchivedName::Segment { topic, .. })) = (listed.stray, ArchivedName::parse(&listed.path)) {
                topics.insert(topic);
            }
            Ok::<_, ColdError>(())
        })?;
        Ok(topics)
    }

    const fn asks_for_proofs(&self) -> bool {
        self.keys.is_some() && !self.known.accepts_unproven
    }

    /// Whether single events of a topic need a proof, which only a segment that has them as well can give. A topic that has segments is one
    /// of segments whatever is said: a line of text must not switch its proofs off, nor must a partition whose own segments are all gone.
    pub(super) fn asks_proof_of(&self, topic: &str, segmented: &BTreeSet<String>) -> bool {
        let is_segmented = || match self.known.format(topic) {
            _ if segmented.contains(topic) => true,
            Some(format) => format == ColdFormat::Segments,
            // Who has heads has an archive of segments.
            None => !self.heads.is_empty(),
        };
        self.asks_for_proofs() && is_segmented()
    }

    fn open<'c>(&'c self, topic: &str, partition: Partition, promised: Promised<'c>, segmented: &BTreeSet<String>) -> PartitionCheck<'c> {
        let Promised { head, expected } = promised;
        let beside = Beside {
            keys: self.keys,
            head,
            hot: self.log.map(|log| Hot::open(log, topic, partition)),
            dense: self.dense,
            expected,
            needs_proof: self.asks_proof_of(topic, segmented),
            waiting: self.known.waiting,
        };
        PartitionCheck::new(topic, partition, beside)
    }

    fn end(&self, check: Option<PartitionCheck<'_>>, report: &mut VerifyReport) {
        if let Some(check) = check {
            report.partitions += 1;
            check.end(report);
        }
    }

    fn one<'c>(
        &'c self,
        listed: &Listed,
        segmented: &BTreeSet<String>,
        (current, unseen): (&mut Option<PartitionCheck<'c>>, &mut Unseen<'c>),
        report: &mut VerifyReport,
    ) -> Result<(), ColdError> {
        if let Some(what) = listed.stray {
            report.findings.push(Finding::of_stray(&listed.path, what));
            return Ok(());
        }
        if listed.path == PROBE_OBJECT {
            return Ok(());
        }
        let Some(name) = ArchivedName::parse(&listed.path) else {
            report.findings.push(Finding::of_unknown(&listed.path));
            return Ok(());
        };
        let (topic, partition) = name.place();
        if !self.wants(topic, partition) {
            return Ok(());
        }
        if !current.as_ref().is_some_and(|check| check.is_of(topic, partition)) {
            let promised = unseen.remove(&(topic.to_owned(), partition.0)).unwrap_or_default();
            let next = self.open(topic, partition, promised, segmented);
            self.end(current.replace(next), report);
        }
        let Some(check) = current else { return Ok(()) };
        match name {
            ArchivedName::Segment { first, .. } => {
                let opened = self.segment(listed, report)?;
                check.segment(&listed.path, first, opened, report);
            }
            ArchivedName::Object { offset, .. } => {
                let read = self.store.get(&listed.path, limits::COLD_OBJECT_BYTES.max);
                check.object(&listed.path, offset, object_of(read, report)?, report);
            }
        }
        Ok(())
    }

    fn segment(&self, listed: &Listed, report: &mut VerifyReport) -> Result<partition::Opened, ColdError> {
        match self.store.get(&listed.path, limits::ARCHIVE_SEGMENT_OBJECT_BYTES.default) {
            Ok(Some(bytes)) => {
                report.bytes += bytes.len() as u64;
                Ok(match Segment::open(bytes.clone()) {
                    Ok(segment) => partition::Opened::Whole(Box::new(segment)),
                    Err(error) => partition::Opened::Broken { error, claims: Segment::claims(&bytes).map(|header| header.last) },
                })
            }
            Ok(None) => Ok(partition::Opened::Gone),
            Err(ColdError::TooLarge { bytes, bytes_max, .. }) => {
                let error = super::segment::SegmentError::TooLarge { what: "it", bytes, max: bytes_max };
                Ok(partition::Opened::Broken { error, claims: None })
            }
            Err(error) => Err(error),
        }
    }
}

/// The record of an object; or what is wrong with it.
fn object_of(
    read: Result<Option<bytes::Bytes>, ColdError>,
    report: &mut VerifyReport,
) -> Result<Result<latent_core::StoredRecord, String>, ColdError> {
    match read {
        Ok(Some(bytes)) => {
            report.bytes += bytes.len() as u64;
            let decoded = object::decode(&bytes);
            Ok(decoded.and_then(|stored| {
                let same = object::encode(&stored) == bytes;
                if same { Ok(stored) } else { Err("it is not in the form that it is written in".to_owned()) }
            }))
        }
        Ok(None) => Ok(Err("it was listed and is not there".to_owned())),
        Err(ColdError::TooLarge { bytes, .. }) => Ok(Err(format!("it has {bytes} bytes, more than one event can have"))),
        Err(error) => Err(error),
    }
}

/// The offset before this one, for the end of a range that is not empty.
const fn before(offset: Offset) -> Offset {
    Offset(offset.0.saturating_sub(1))
}
