//! One partition of an archive, object by object in the order of their names. No store is known here. What is of single events, and of what is
//! not there, is in `single`.

mod single;

use std::collections::BTreeMap;

use latent_core::{Offset, Partition, StoredRecord};
use sha2::{Digest as _, Sha256};

use super::expected::{Coverage, Expectation};
use super::finding::{Finding, FindingKind};
use super::hot::{Hot, Passed};
use super::unproven::UnprovenEvents;
use super::{VerifyReport, before};
use crate::cold::export::ArchiveHead;
use crate::cold::object;
use crate::cold::segment::{Attest, Attestation, Hole, Item, Segment, SegmentDigest, SegmentError};
use crate::limits;

/// What became of opening a segment.
pub(super) enum Opened {
    Whole(Box<Segment>),
    Broken {
        error: SegmentError,
        /// Its last offset, as far as its beginning says one.
        claims: Option<Offset>,
    },
    /// It was listed and is not there.
    Gone,
}

/// The last segment that fits the chain.
struct Link {
    path: String,
    bus: String,
    number: u64,
    digest: SegmentDigest,
    first: Offset,
    last: Offset,
}

/// A segment that cannot be used; up to where it went is known from the one behind it.
struct Broken {
    path: String,
    kind: FindingKind,
    first: Offset,
    claims: Option<Offset>,
    problem: String,
}

/// What a partition is compared with.
pub(super) struct Beside<'c> {
    pub(super) keys: Option<&'c dyn Attest>,
    pub(super) head: Option<&'c ArchiveHead>,
    pub(super) hot: Option<Hot<'c>>,
    pub(super) dense: bool,
    pub(super) expected: Option<&'c Expectation>,
    pub(super) needs_proof: bool,
    /// So many events may be on their way.
    pub(super) waiting: u64,
}

/// See the module.
pub(super) struct PartitionCheck<'c> {
    topic: String,
    partition: Partition,
    keys: Option<&'c dyn Attest>,
    head: Option<&'c ArchiveHead>,
    hot: Option<Hot<'c>>,
    dense: bool,
    expected: Option<&'c Expectation>,
    coverage: Coverage,
    needs_proof: bool,
    unproven: UnprovenEvents,
    waiting: u64,
    chain: Option<Link>,
    broken: Vec<Broken>,
    /// Content of the last segment, by offset.
    current: Vec<(Offset, [u8; 32])>,
    /// The last single event before a segment, whose name comes before that of a segment that begins with it.
    object: Option<(Offset, [u8; 32])>,
    /// Whether the head's own segment was seen as it says.
    head_seen: bool,
    has_segments: bool,
    /// By first offset, those that segments name.
    holes: BTreeMap<Offset, Hole>,
}

impl<'c> PartitionCheck<'c> {
    pub(super) fn new(topic: &str, partition: Partition, beside: Beside<'c>) -> Self {
        let Beside { keys, head, hot, dense, expected, needs_proof, waiting } = beside;
        Self {
            topic: topic.to_owned(),
            partition,
            keys,
            head,
            hot,
            dense,
            expected,
            coverage: Coverage::new(expected.filter(|_| dense)),
            needs_proof,
            unproven: UnprovenEvents::default(),
            waiting,
            chain: None,
            broken: Vec::new(),
            current: Vec::new(),
            object: None,
            head_seen: false,
            has_segments: false,
            holes: BTreeMap::new(),
        }
    }

    pub(super) fn is_of(&self, topic: &str, partition: Partition) -> bool {
        self.topic == topic && self.partition == partition
    }

    fn finding(&self, kind: FindingKind, first: Offset, last: Option<Offset>, problem: impl Into<String>) -> Finding {
        Finding::of(kind, (&self.topic, self.partition), first, last, problem.into())
    }

    /// A segment under the name of `first`.
    pub(super) fn segment(&mut self, path: &str, first: Offset, opened: Opened, report: &mut VerifyReport) {
        self.has_segments = true;
        // One from the middle of a chain says itself what is missing before it.
        if !matches!(&opened, Opened::Whole(segment) if segment.header().number > 0) {
            self.begin(first, report);
        }
        let broken = |kind, claims, problem| Broken { path: path.to_owned(), kind, first, claims, problem };
        match opened {
            Opened::Gone => self.broken.push(broken(FindingKind::Missing, None, "it was listed and is not there".to_owned())),
            Opened::Broken { error, claims } => {
                let kind = match error {
                    SegmentError::NotWhole { .. } => FindingKind::Truncated,
                    _ => FindingKind::Changed,
                };
                self.broken.push(broken(kind, claims.filter(|claims| *claims >= first), error.to_string()));
            }
            Opened::Whole(segment) => match self.misplaced(&segment, first) {
                Some(problem) => self.broken.push(broken(FindingKind::Misplaced, None, problem)),
                None => match self.unproven(&segment, report) {
                    Some((kind, problem)) => self.broken.push(broken(kind, Some(segment.header().last), problem)),
                    None => self.link(path, &segment, report),
                },
            },
        }
        if self.broken.len() > limits::ARCHIVE_FINDINGS.default_usize() {
            self.tell_broken(None, report);
        }
    }

    fn misplaced(&self, segment: &Segment, first: Offset) -> Option<String> {
        let header = segment.header();
        let place = &header.place;
        let bus = self.head.map(|head| &head.place.bus).or(self.chain.as_ref().map(|chain| &chain.bus));
        if let Some(bus) = bus.filter(|bus| **bus != place.bus) {
            return Some(format!("it is of the bus {:?}, and the archive is of {bus:?}", place.bus));
        }
        if (&place.topic, place.partition, header.first) == (&self.topic, self.partition, first) {
            return None;
        }
        Some(format!("it holds {}/p{} offset {} to {}", place.topic, place.partition, header.first, header.last))
    }

    fn unproven(&self, segment: &Segment, report: &mut VerifyReport) -> Option<(FindingKind, String)> {
        match self.keys.map(|keys| segment.attested(keys))? {
            Attestation::Proven => {
                report.proven_segments += 1;
                None
            }
            Attestation::Wrong => {
                let problem = "its checksums are right and its proof is not: it was not made with the control key";
                Some((FindingKind::Replaced, problem.to_owned()))
            }
            Attestation::UnknownKey => {
                let problem = format!("it is proven with the key {:?}, which was not given", segment.key_id());
                Some((FindingKind::UnknownKey, problem))
            }
        }
    }

    /// A segment that is whole, in its place and proven: does it follow the last one?
    fn link(&mut self, path: &str, segment: &Segment, report: &mut VerifyReport) {
        let header = segment.header();
        let expected = self.chain.as_ref().map_or(0, |chain| chain.number.saturating_add(1));
        if header.number < expected {
            let problem = format!("it is number {} of the chain, and the one before it is number {}", header.number, expected - 1);
            let finding = self.finding(FindingKind::Extra, header.first, Some(header.last), problem).in_object(path);
            report.findings.push(finding);
            return;
        }
        let gap = header.number - expected;
        let end = header.previous.map(|previous| previous.last);
        if gap == 0 {
            let fits = self.chain.as_ref().map(|chain| (chain.digest, chain.last))
                == header.previous.map(|previous| (previous.digest, previous.last));
            if let Some(chain) = self.chain.as_ref().filter(|_| !fits) {
                let problem = "the segment behind it was written behind another one: this is not the one that was archived";
                report.findings.push(self.finding(FindingKind::Replaced, chain.first, Some(chain.last), problem).in_object(&chain.path));
            }
        } else if gap > self.broken.len() as u64 {
            let from = self.chain.as_ref().map_or(Offset(0), |chain| Offset(chain.last.0.saturating_add(1)));
            let gone = gap - self.broken.len() as u64;
            let problem = format!("{gone} of {gap} segments between are not there");
            report.findings.push(self.finding(FindingKind::Missing, from, end, problem));
        }
        self.tell_broken(if gap == 0 { None } else { end }, report);
        if let Some(hole) = header.hole {
            self.tell_hole(hole, Some(path), report);
        }
        self.coverage.saw(header.last);
        self.check_head(header.number, segment, path, report);
        self.read(path, segment, report);
        let (number, digest, first, last) = (header.number, segment.digest(), header.first, header.last);
        let bus = header.place.bus.clone();
        self.chain = Some(Link { path: path.to_owned(), bus, number, digest, first, last });
    }

    /// Names what could not be used, each up to the next of them or to `end`.
    fn tell_broken(&mut self, end: Option<Offset>, report: &mut VerifyReport) {
        let broken = std::mem::take(&mut self.broken);
        for (at, one) in broken.iter().enumerate() {
            let next = broken.get(at + 1).map(|next| before(next.first));
            let last = next.or(end).or(one.claims).filter(|last| *last >= one.first);
            self.coverage.saw(last.unwrap_or(one.first));
            // What the log has where this one lies is told with it, and not once more as missing.
            self.flush_missing(one.first, report);
            if let (Some(hot), Some(last)) = (&mut self.hot, last) {
                hot.begin_at(Offset(last.0.saturating_add(1)));
            }
            report.findings.push(self.finding(one.kind, one.first, last, one.problem.clone()).in_object(&one.path));
        }
    }

    fn check_head(&mut self, number: u64, segment: &Segment, path: &str, report: &mut VerifyReport) {
        let Some(head) = self.head.filter(|head| head.segments == number.saturating_add(1)) else { return };
        self.head_seen = true;
        if head.digest != segment.digest() {
            let problem = "the head that was kept of this archive is of another segment";
            let (first, last) = (segment.header().first, segment.header().last);
            report.findings.push(self.finding(FindingKind::Replaced, first, Some(last), problem).in_object(path));
        }
    }

    /// A hole that a segment names, or the head alone. Many of them are told by the segments, so only as many are remembered as are told.
    fn tell_hole(&mut self, hole: Hole, path: Option<&str>, report: &mut VerifyReport) {
        let finding = self.finding(FindingKind::Hole, hole.first, Some(hole.last), hole.problem());
        report.findings.push(match path {
            Some(path) => finding.in_object(path),
            None => finding,
        });
        self.holes.insert(hole.first, hole);
        if self.holes.len() > limits::ARCHIVE_HOLES.default_usize() {
            self.holes.pop_first();
        }
    }

    /// What the head knows of holes that no segment was seen to name: there is none behind yet, or it is gone.
    fn tell_holes_of_head(&mut self, report: &mut VerifyReport) {
        let Some(head) = self.head else { return };
        for kept in head.holes.kept() {
            if self.holes.get(&kept.hole.first) != Some(&kept.hole) {
                self.tell_hole(kept.hole, None, report);
            }
        }
    }

    /// Reads what is in it, and compares it with the log.
    fn read(&mut self, path: &str, segment: &Segment, report: &mut VerifyReport) {
        self.flush_missing(segment.header().first, report);
        self.current.clear();
        report.segments += 1;
        for item in segment.items() {
            match item {
                Ok(item) => self.item(path, &item, report),
                Err(error) => {
                    let from = self.current.last().map_or(segment.header().first, |(offset, _)| Offset(offset.0.saturating_add(1)));
                    let finding = self.finding(FindingKind::Changed, from, Some(segment.header().last), error.to_string());
                    report.findings.push(finding.in_object(path));
                    break;
                }
            }
        }
        self.tell_failed_log(report);
    }

    fn item(&mut self, path: &str, item: &Item, report: &mut VerifyReport) {
        let digest = content(item, self.partition);
        self.current.push((item.offset(), digest));
        let beside = self.object.take_if(|(offset, _)| *offset == item.offset());
        match item.record() {
            // An event that is there twice is one event.
            Some(_) => report.records += u64::from(beside.is_none()),
            None => report.damaged += 1,
        }
        if beside.is_some() {
            self.unproven.forget_last(item.offset());
        }
        if beside.is_some_and(|(_, object)| object != digest) {
            let problem = "it differs from the single event at the same offset";
            report.findings.push(self.finding(FindingKind::Different, item.offset(), Some(item.offset()), problem).in_object(path));
        }
        if let Some(finding) = self.hot.as_mut().and_then(|hot| hot.compare(item, &mut report.compared)) {
            report.findings.push(finding.in_object(path));
        }
    }

    fn flush_missing(&mut self, next: Offset, report: &mut VerifyReport) {
        let Some(hot) = self.hot.as_mut().filter(|_| next.0 > 0) else { return };
        for Passed { first, last, count } in hot.missing(before(next)) {
            self.absent(Offset(first), Offset(last), count, "the log has it, and the archive does not", report);
        }
    }

    fn tell_failed_log(&mut self, report: &mut VerifyReport) {
        if let Some(finding) = self.hot.as_mut().and_then(Hot::failure) {
            report.findings.push(finding);
        }
    }

    /// There are no more objects.
    pub(super) fn end(mut self, report: &mut VerifyReport) {
        let chain_last = self.chain.as_ref().map(|chain| chain.last);
        let broken = self.broken.len() as u64;
        let present = self.chain.as_ref().map_or(0, |chain| chain.number.saturating_add(1)) + broken;
        if let Some(head) = self.head.filter(|_| !self.head_seen) {
            if head.segments > present {
                let from = chain_last.map_or(Offset(0), |last| Offset(last.0.saturating_add(1)));
                let gone = head.segments - present;
                let problem = format!("the head that was kept of this archive ends there; {gone} segments at the end are not there");
                report.findings.push(self.finding(FindingKind::Missing, from, Some(head.last), problem));
            }
            let last = Some(head.last);
            self.tell_broken(last, report);
            self.coverage.saw(head.last);
        }
        self.tell_broken(None, report);
        self.tell_holes_of_head(report);
        if self.has_segments && self.head.is_none_or(|head| head.segments == 0) {
            report.unattested_ends += 1;
        }
        if let Some((from, to)) = self.coverage.end() {
            self.absent(from, to, to.0 - from.0 + 1, GONE, report);
        }
        let archived = chain_last.max(self.object.map(|(offset, _)| offset)).map(|last| Offset(last.0.saturating_add(1)));
        let expected = self.expected.filter(|_| !self.dense);
        if let (None, Some(expected), Some(hot)) = (archived, expected, &mut self.hot) {
            hot.begin_at(expected.since);
        }
        if let Some(end) = archived.max(expected.map(|expected| expected.until)) {
            self.flush_missing(end, report);
        }
        self.tell_failed_log(report);
        self.tell_unproven(report);
    }
}

/// In words, of what must be there and is not.
const GONE: &str = "the log no longer has it, and the archive does not";

/// What two copies of one event agree in.
fn content(item: &Item, partition: Partition) -> [u8; 32] {
    let Some(record) = item.record() else { return [0; 32] };
    let stored = StoredRecord { partition, offset: item.offset(), record: record.clone() };
    Sha256::digest(object::encode(&stored)).into()
}
