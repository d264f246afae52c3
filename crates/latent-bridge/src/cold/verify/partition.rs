//! One partition of an archive, object by object in the order of their names. No store is known here.

use std::collections::BTreeMap;

use latent_core::{Offset, Partition, StoredRecord};
use sha2::{Digest as _, Sha256};

use super::finding::{Finding, FindingKind};
use super::hot::Hot;
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

/// See the module.
pub(super) struct PartitionCheck<'c> {
    topic: String,
    partition: Partition,
    keys: Option<&'c dyn Attest>,
    head: Option<&'c ArchiveHead>,
    hot: Option<Hot<'c>>,
    dense: bool,
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
    pub(super) fn new(
        topic: &str,
        partition: Partition,
        keys: Option<&'c dyn Attest>,
        head: Option<&'c ArchiveHead>,
        hot: Option<Hot<'c>>,
        dense: bool,
    ) -> Self {
        Self {
            topic: topic.to_owned(),
            partition,
            keys,
            head,
            hot,
            dense,
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
        match item.record() {
            Some(_) => report.records += 1,
            None => report.damaged += 1,
        }
        if self.object.take_if(|(offset, _)| *offset == item.offset()).is_some_and(|(_, object)| object != digest) {
            let problem = "it differs from the single event at the same offset";
            report.findings.push(self.finding(FindingKind::Different, item.offset(), Some(item.offset()), problem).in_object(path));
        }
        if let Some(finding) = self.hot.as_mut().and_then(|hot| hot.compare(item, &mut report.compared)) {
            report.findings.push(finding.in_object(path));
        }
    }

    /// A single event under the name of `offset`.
    pub(super) fn object(&mut self, path: &str, offset: Offset, read: Result<StoredRecord, String>, report: &mut VerifyReport) {
        let stored = match read {
            Ok(stored) if (stored.partition, stored.offset) == (self.partition, offset) => stored,
            Ok(stored) => {
                let problem = format!("it holds partition {} offset {}", stored.partition, stored.offset);
                report.findings.push(self.finding(FindingKind::Misplaced, offset, Some(offset), problem).in_object(path));
                self.object = Some((offset, [0; 32]));
                return;
            }
            Err(problem) => {
                report.findings.push(self.finding(FindingKind::Changed, offset, Some(offset), problem).in_object(path));
                self.object = Some((offset, [0; 32]));
                return;
            }
        };
        report.objects += 1;
        let item = Item::from(stored);
        let digest = content(&item, self.partition);
        let is_inside = self.chain.as_ref().is_some_and(|chain| offset <= chain.last);
        if is_inside {
            match self.current.binary_search_by_key(&offset, |(known, _)| *known).ok().and_then(|at| self.current.get(at)) {
                Some((_, known)) if *known != digest => {
                    let problem = "it differs from what the segment has at this offset";
                    report.findings.push(self.finding(FindingKind::Different, offset, Some(offset), problem).in_object(path));
                }
                Some(_) => {}
                None => {
                    report.records += 1;
                    let late = self.hot.as_mut().and_then(|hot| hot.compare_late(&item, &mut report.compared));
                    late.map(|finding| finding.in_object(path)).into_iter().for_each(|finding| report.findings.push(finding));
                }
            }
            return self.tell_failed_log(report);
        }
        report.records += 1;
        self.check_gap(offset, report);
        self.object = Some((offset, digest));
        if let Some(finding) = self.hot.as_mut().and_then(|hot| hot.compare(&item, &mut report.compared)) {
            report.findings.push(finding.in_object(path));
        }
        self.tell_failed_log(report);
    }

    /// Single events, one after the other, where nobody else has offsets.
    fn check_gap(&mut self, offset: Offset, report: &mut VerifyReport) {
        if self.has_segments {
            return;
        }
        match self.object {
            None => {
                // What was stored before there was an archive is nowhere, and nobody promised it.
                if let Some(hot) = &mut self.hot {
                    hot.begin_at(offset);
                }
            }
            Some((last, _)) if self.dense && offset.0 > last.0.saturating_add(1) => {
                let (from, to) = (Offset(last.0 + 1), before(offset));
                let is_hot = self.hot.as_ref().is_some_and(|hot| (hot.bounds().0..hot.bounds().1).contains(&from));
                if !is_hot {
                    let problem = "there are events before and after it; it was lost, or could not be read when it was archived";
                    report.findings.push(self.finding(FindingKind::Missing, from, Some(to), problem));
                }
            }
            Some(_) => {}
        }
    }

    fn flush_missing(&mut self, next: Offset, report: &mut VerifyReport) {
        if let Some(hot) = self.hot.as_mut().filter(|_| next.0 > 0) {
            hot.missing(before(next)).into_iter().for_each(|finding| report.findings.push(finding));
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
        }
        self.tell_broken(None, report);
        self.tell_holes_of_head(report);
        if self.has_segments && self.head.is_none_or(|head| head.segments == 0) {
            report.unattested_ends += 1;
        }
        let object_last = self.object.map(|(offset, _)| offset);
        if let Some(end) = chain_last.max(object_last) {
            self.flush_missing(Offset(end.0.saturating_add(1)), report);
        }
        self.tell_failed_log(report);
    }
}

/// What two copies of one event agree in.
fn content(item: &Item, partition: Partition) -> [u8; 32] {
    let Some(record) = item.record() else { return [0; 32] };
    let stored = StoredRecord { partition, offset: item.offset(), record: record.clone() };
    Sha256::digest(object::encode(&stored)).into()
}
