//! A log that removes events whether they are archived or not: what is gone before it was archived is a hole with a name, found once, kept in
//! head and chain, and told by whoever verifies.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use latent_bridge::BusError;
use latent_bridge::cold::export::{ArchiveHead, Holes, ItemSource, LogSpan};
use latent_bridge::cold::restore::{Progress, Restoration};
use latent_bridge::cold::verify::{FindingKind, Known, Verification};
use latent_core::{Attributes, MediaType, Record, Uid};

use super::doubles::Fault;
use super::*;
use crate::support::storage::Failing;

const PARTITION: Partition = Partition(0);

/// A partition of a stream: every offset but the odd ones, which are those of another partition.
#[derive(Default)]
struct Stream(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    items: BTreeMap<u64, Item>,
    first: u64,
    last: u64,
    /// Removes everything when so many pages were read.
    removes_after: Option<u64>,
}

impl Stream {
    /// With offsets from 1 on.
    fn new() -> Self {
        Self(Mutex::new(Kept { first: 1, ..Kept::default() }))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap()
    }

    /// So many offsets more, of which every second one is this partition's.
    fn publish(&self, count: u64) {
        let mut kept = self.kept();
        for offset in kept.last + 1..=kept.last + count {
            if offset.is_multiple_of(2) {
                kept.items.insert(offset, item(offset));
            }
        }
        kept.last += count;
    }

    /// Nothing before `first` stays.
    fn purge(&self, first: u64) {
        self.kept().purge(first);
    }

    fn purge_all(&self) {
        let first = self.kept().last + 1;
        self.purge(first);
    }

    fn delete(&self, offset: u64) {
        self.kept().items.remove(&offset).unwrap();
    }

    fn offsets(&self) -> Vec<u64> {
        self.kept().items.keys().copied().collect()
    }
}

impl Kept {
    fn purge(&mut self, first: u64) {
        self.items.retain(|offset, _| *offset >= first);
        self.first = first;
    }
}

fn item(offset: u64) -> Item {
    let record = Record {
        uid: Uid::parse(&format!("u-{offset}")).unwrap(),
        key: "k".to_owned(),
        media_type: MediaType::json(),
        attributes: Attributes::default(),
        payload: format!("{{\"n\":{offset}}}").into(),
        stored_at: UnixMillis(1_000 + offset),
    };
    Item::Record { offset: Offset(offset), record }
}

impl ItemSource for Stream {
    fn bounds(&self) -> Result<(Offset, Offset), BusError> {
        let kept = self.kept();
        let ends = kept.items.keys().next().zip(kept.items.keys().last());
        Ok(ends.map_or((Offset(kept.last + 1), Offset(kept.last + 1)), |(first, last)| (Offset(*first), Offset(*last + 1))))
    }

    fn page(&self, from: Offset) -> Result<Vec<Item>, BusError> {
        let mut kept = self.kept();
        let page = kept.items.range(from.0..).take(4).map(|(_, item)| item.clone()).collect();
        if let Some(left) = kept.removes_after {
            kept.removes_after = left.checked_sub(1);
            if left == 0 {
                let first = kept.last + 1;
                kept.purge(first);
            }
        }
        Ok(page)
    }

    fn span(&self) -> Result<Option<LogSpan>, BusError> {
        let kept = self.kept();
        Ok(Some(LogSpan { first: Offset(kept.first), next: Offset(kept.last + 1) }))
    }
}

/// A stream, its archive and what is kept between passes.
struct Site {
    stream: Stream,
    outbox: tempfile::TempDir,
    storage: Arc<TestStorage>,
    store: MemoryStore,
    exporter: SegmentExporter,
}

/// Nothing has waited long enough.
const YOUNG: UnixMillis = UnixMillis(2_000);
/// Everything has.
const OLD: UnixMillis = UnixMillis(1 << 40);

impl Site {
    fn start() -> Self {
        let (outbox, storage) = (scratch(), TestStorage::without_syncs());
        let exporter = exporter(&storage, outbox.path(), ten());
        Self { stream: Stream::new(), outbox, storage, store: MemoryStore::new(), exporter }
    }

    /// Another process.
    fn restart(&mut self) {
        self.exporter = exporter(&self.storage, self.outbox.path(), ten());
    }

    fn pass(&self, now: UnixMillis) -> Result<Exported, ExportError> {
        self.exporter.export("t", PARTITION, ExportTo { store: &self.store, keys: &Keys::one() }, &self.stream, now.into())
    }

    fn head(&self) -> ArchiveHead {
        self.exporter.head("t", PARTITION, &Keys::one()).unwrap().unwrap()
    }

    /// First and last offset of each hole, and how many events are lost for certain.
    fn holes(&self) -> Vec<(u64, u64, u64)> {
        let head = self.head();
        assert_eq!(head.holes.total(), head.holes.kept().len() as u64);
        head.holes.kept().iter().map(|kept| (kept.hole.first.0, kept.hole.last.0, kept.hole.events)).collect()
    }

    /// What verification finds, with and without the head: holes and nothing else, as first and last offset and whether a segment names it.
    fn found(&self, with_head: bool) -> Vec<(u64, u64, bool)> {
        let (keys, heads) = (Keys::one(), [self.head()]);
        let heads = if with_head { &heads[..] } else { &[] };
        let verification = Verification {
            store: &self.store,
            topic: None,
            partition: None,
            keys: Some(&keys),
            heads,
            log: None,
            dense: false,
            known: Known::default(),
        };
        let report = verification.run(&mut |_| {}).unwrap();
        assert_eq!(report.findings.holes(), report.findings.total());
        let one = |finding: &latent_bridge::cold::verify::Finding| {
            assert_eq!(finding.kind, FindingKind::Hole);
            assert!(finding.to_string().starts_with("hole: t/p0 offset ") && finding.problem.contains("removed-before-archived"));
            (finding.first.unwrap(), finding.last.unwrap(), finding.object.is_some())
        };
        report.findings.kept().iter().map(one).collect()
    }

    fn archived(&self) -> Vec<u64> {
        archived(&self.store, 0).iter().map(|item| item.offset().0).collect()
    }
}

fn evens(first: u64, last: u64) -> Vec<u64> {
    (first..=last).filter(|offset| offset.is_multiple_of(2)).collect()
}

#[test]
fn what_is_purged_before_it_was_archived_is_a_hole_that_is_found_once_and_what_comes_later_is_archived() {
    let mut site = Site::start();
    site.stream.publish(40);
    assert_eq!(site.pass(OLD).unwrap().holes, 0);
    site.stream.publish(12);
    assert_eq!((site.pass(YOUNG).unwrap(), site.holes()), (Exported { cold_up_to: Some(Offset(40)), ..Exported::default() }, vec![]));
    site.stream.publish(8);
    site.stream.purge_all();
    site.restart();
    assert_eq!(site.pass(YOUNG).unwrap().holes, 1);
    // It goes behind what is archived; the six that had been seen are lost for certain.
    assert_eq!((site.holes(), site.found(true), site.found(false)), (vec![(42, 60, 6)], vec![(42, 60, false)], vec![]));
    for _ in 0..2 {
        assert_eq!(site.pass(OLD).unwrap().holes, 0);
        site.restart();
    }
    site.stream.publish(10);
    let report = site.pass(OLD).unwrap();
    assert_eq!((report.holes, report.items, site.archived()), (0, 5, [evens(2, 40), evens(62, 70)].concat()));
    // Now the chain says so, to whoever has a copy of it and nothing else.
    assert_eq!((site.found(true), site.found(false), site.holes()), (vec![(42, 60, true)], vec![(42, 60, true)], vec![(42, 60, 6)]));
    site.stream.publish(10);
    assert_eq!(site.pass(OLD).unwrap().holes, 0);
    assert_eq!((site.holes(), site.found(false)), (vec![(42, 60, 6)], vec![(42, 60, true)]), "no second segment names it");
}

#[test]
fn what_is_archived_or_was_looked_through_may_be_removed() {
    let mut site = Site::start();
    for _ in 0..4 {
        // Offsets of the other partition behind its own ones, and then of the other one alone.
        site.stream.publish(21);
        site.pass(OLD).unwrap();
        site.stream.kept().last += 7;
        site.pass(OLD).unwrap();
        site.restart();
        site.stream.purge_all();
        assert_eq!((site.pass(YOUNG).unwrap().holes, site.holes()), (0, vec![]));
    }
    assert_eq!(site.found(true), []);
}

#[test]
fn a_stream_that_was_there_before_its_archive_begins_without_a_hole() {
    let site = Site::start();
    site.stream.publish(100);
    site.stream.purge(71);
    assert_eq!((site.pass(OLD).unwrap().holes, site.archived()), (0, evens(71, 100)));
    // Also one of which nothing is there at first.
    let site = Site::start();
    site.stream.publish(100);
    site.stream.purge_all();
    assert_eq!((site.pass(OLD).unwrap().holes, site.head().end()), (0, None));
    site.stream.publish(4);
    site.stream.purge(103);
    assert_eq!((site.pass(OLD).unwrap().holes, site.holes(), site.archived()), (1, vec![(101, 102, 0)], vec![104]));
    assert_eq!((site.found(true), site.found(false)), (vec![(101, 102, true)], vec![(101, 102, true)]), "the first segment names it");
}

#[test]
fn what_is_deleted_out_of_the_middle_is_a_hole_when_it_had_been_seen() {
    for restarts in [false, true] {
        let mut site = Site::start();
        site.stream.publish(18);
        site.pass(YOUNG).unwrap();
        [6, 8, 18].into_iter().for_each(|offset| site.stream.delete(offset));
        if restarts {
            site.restart();
        }
        assert_eq!((site.pass(OLD).unwrap().holes, site.holes(), site.archived()), (1, vec![(2, 18, 3)], vec![2, 4, 10, 12, 14, 16]));
        assert_eq!((site.pass(OLD).unwrap().holes, site.found(false)), (0, vec![(2, 18, true)]));
    }
    // All of it, while other partitions keep the stream from beginning later; and over several segments.
    let site = Site::start();
    site.stream.publish(10);
    site.pass(YOUNG).unwrap();
    evens(1, 10).into_iter().for_each(|offset| site.stream.delete(offset));
    site.stream.kept().last += 1;
    assert_eq!((site.pass(YOUNG).unwrap().holes, site.holes()), (1, vec![(2, 10, 5)]));
    let site = Site::start();
    site.stream.publish(18);
    site.pass(YOUNG).unwrap();
    site.stream.publish(40);
    site.stream.delete(4);
    assert_eq!((site.pass(OLD).unwrap().holes, site.holes()), (1, vec![(2, 18, 1)]));
    assert_eq!(site.archived(), [vec![2], evens(6, 58)].concat());
}

#[test]
fn what_had_been_seen_may_go_into_several_segments() {
    for deleted in [None, Some(14)] {
        let mut site = Site::start();
        site.stream.publish(18);
        site.pass(YOUNG).unwrap();
        deleted.into_iter().for_each(|offset| site.stream.delete(offset));
        site.exporter = exporter(&site.storage, site.outbox.path(), SegmentSizes { items: 4, ..ten() });
        let report = site.pass(OLD).unwrap();
        let (lost, segments) = if deleted.is_some() { (vec![(9, 18, 1)], 2) } else { (vec![], 3) };
        assert_eq!((report.segments, site.holes(), site.archived().len()), (segments, lost, 9 - usize::from(deleted.is_some())));
    }
}

#[test]
fn what_may_have_gone_while_it_was_read_is_a_hole_and_what_was_read_is_archived() {
    for pages in 0..4 {
        let site = Site::start();
        site.stream.publish(18);
        site.pass(YOUNG).unwrap();
        site.stream.kept().removes_after = Some(pages);
        let report = site.pass(OLD).unwrap();
        let archived = site.archived();
        assert_eq!(archived, evens(1, 18)[..archived.len()], "{pages}");
        let lost = (9 - archived.len()) as u64;
        let holes = site.holes();
        // Of what was read nothing is lost; that the rest is, is told in any case.
        assert_eq!((report.holes > 0, holes.len()), (true, 1), "{pages}: {holes:?}");
        assert!(holes[0].2 <= lost && holes[0].1 == 18, "{pages}: {holes:?}, {lost} lost");
    }
}

#[test]
fn a_head_of_the_first_format_is_gone_on_from_and_names_no_hole() {
    let mut site = Site::start();
    site.stream.publish(40);
    site.pass(OLD).unwrap();
    let old = ArchiveHead { lookout: None, holes: Holes::default(), ..site.head() };
    let file = site.outbox.path().join("segments/t.p0.head");
    std::fs::write(&file, old.to_json(&Keys::one()).unwrap()).unwrap();
    site.stream.publish(20);
    site.stream.purge(51);
    site.restart();
    assert_eq!(site.head(), old);
    let report = site.pass(OLD).unwrap();
    assert_eq!((report.holes, report.items), (0, 5), "what was lost before it was looked at is not known");
    site.stream.purge_all();
    assert_eq!(site.pass(OLD).unwrap().holes, 0);
    site.stream.publish(2);
    site.stream.purge_all();
    assert_eq!((site.pass(OLD).unwrap().holes, site.holes()), (1, vec![(61, 62, 0)]), "and from now on it is");
}

#[test]
fn a_stream_that_ends_before_it_was_looked_through_is_another_one() {
    let site = Site::start();
    site.stream.publish(40);
    site.pass(YOUNG).unwrap();
    site.stream.kept().last = 1;
    site.stream.kept().items.clear();
    let refused = site.pass(OLD).unwrap_err();
    assert!(matches!(&refused, ExportError::HistoryChanged { .. }) && refused.to_string().contains("looked through"), "{refused}");
}

/// The process ends at every call of a file, and the store fails at every call, while a hole is found and what is behind it is archived.
#[test]
fn whenever_the_process_ends_the_hole_is_told_and_kept_and_nothing_else_is_lost() {
    for of_store in [false, true] {
        let mut failures = 0;
        for at in 0.. {
            let mut site = Site::start();
            site.stream.publish(40);
            site.pass(YOUNG).unwrap();
            site.stream.publish(30);
            site.stream.purge(61);
            let at_calls = usize::try_from(at).unwrap();
            if of_store {
                site.store.plan((0..at_calls).map(|_| None).chain([Some(Fault::DoneThenTimeout)]));
            } else {
                site.storage.fail(Failing::From(at));
            }
            site.restart();
            let ended = site.pass(OLD);
            failures += u64::from(ended.is_err());
            site.storage.fail(Failing::Never);
            site.restart();
            site.pass(OLD).unwrap();
            let context = format!("of the store: {of_store}, call {at}: {ended:?}");
            assert_eq!(site.holes().iter().map(|(first, last, _)| (*first, *last)).collect::<Vec<_>>(), [(22, 60)], "{context}");
            assert_eq!(site.archived(), [evens(2, 20), evens(61, 70)].concat(), "{context}");
            assert_eq!((site.found(true), site.found(false)), (vec![(22, 60, true)], vec![(22, 60, true)]), "{context}");
            // A listing that fails late is asked again, so the first calls may fail nothing.
            if ended.is_ok() && failures > 0 {
                break;
            }
            assert!(at < 100, "nothing failed");
        }
    }
}

#[test]
fn a_hole_counts_though_the_export_that_found_it_failed() {
    let site = Site::start();
    site.stream.publish(40);
    site.pass(OLD).unwrap();
    site.stream.publish(40);
    site.stream.purge(61);
    site.store.set_down(true);
    assert!(site.pass(OLD).unwrap_err().is_passing());
    assert_eq!((site.exporter.take_holes(), site.exporter.take_holes(), site.holes()), (1, 0, vec![(41, 60, 0)]));
    site.store.set_down(false);
    assert_eq!((site.pass(OLD).unwrap().holes, site.exporter.take_holes()), (0, 0));
    assert_eq!(site.found(false), [(41, 60, true)], "the segment that was staged names it");
}

#[test]
fn an_archive_with_a_hole_is_restored_and_the_hole_is_in_the_report() {
    let site = Site::start();
    site.stream.publish(40);
    site.pass(OLD).unwrap();
    site.stream.publish(10);
    site.stream.purge(47);
    site.pass(OLD).unwrap();
    let (_directory, broker) = log(0);
    let keys = Keys::one();
    let archive = Verification {
        store: &site.store,
        topic: None,
        partition: None,
        keys: Some(&keys),
        heads: &[],
        log: None,
        dense: false,
        known: Known::default(),
    };
    let restoration = Restoration { archive, bus: &broker, key_by_key: false, into: None };
    let report = restoration.run(Progress::of(""), &mut |_| Ok(()), &mut |_| {}).unwrap();
    assert_eq!((report.partitions[0].records, report.verified.findings.holes()), (22, 1));
    assert_eq!(site.stream.offsets(), [48, 50]);
}
