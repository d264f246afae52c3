//! Each way in which an archive of segments can be wrong is found, and named with topic, partition and offsets.

use latent_bridge::cold::ColdStore as _;
use latent_bridge::cold::export::{ArchiveHead, ItemSource};
use latent_bridge::cold::segment::{FinishedSegment, PreviousSegment, Pushed, SegmentBuilder, SegmentPlace};
use latent_bridge::cold::verify::{FindingKind, Known, Verification, VerifyReport};
use latent_bridge::{BusError, EventBus};
use latent_core::Record;

use super::*;

/// An archive of a log, with its heads.
struct Archived {
    _log: tempfile::TempDir,
    broker: EmbeddedBroker,
    store: MemoryStore,
    heads: Vec<ArchiveHead>,
    /// Path, first and last offset of each segment of partition 0.
    segments: Vec<(String, u64, u64)>,
}

fn archive() -> Archived {
    let (directory, broker) = log(120);
    let (storage, store) = (TestStorage::without_syncs(), MemoryStore::new());
    let exporter = exporter(&storage, directory.path(), ten());
    for partition in 0..2 {
        export(&exporter, &store, &broker, partition, all()).unwrap();
    }
    let heads = (0..2).map(|partition| exporter.head("t", Partition(partition), &Keys::one()).unwrap().unwrap()).collect();
    let of_first = store.objects().into_iter().filter(|(path, _)| path.starts_with("t/p0/"));
    let segments = of_first.map(|(path, bytes)| {
        let segment = Segment::open(bytes).unwrap();
        (path, segment.header().first.0, segment.header().last.0)
    });
    let segments: Vec<_> = segments.collect();
    assert!(segments.len() >= 5, "{}", segments.len());
    Archived { _log: directory, broker, store, heads, segments }
}

#[derive(Clone, Copy, PartialEq)]
enum With {
    Nothing,
    Keys,
    KeysAndHeads,
    Everything,
}

impl Archived {
    fn verify(&self, with: With) -> VerifyReport {
        let keys = Keys::one();
        let verification = Verification {
            store: &self.store,
            topic: None,
            partition: None,
            keys: (with != With::Nothing).then_some(&keys as _),
            heads: if matches!(with, With::KeysAndHeads | With::Everything) { &self.heads } else { &[] },
            log: (with == With::Everything).then_some(&self.broker as _),
            dense: true,
            known: Known::default(),
        };
        verification.run(&mut |_| {}).unwrap()
    }

    /// What is found, as kind, first and last offset; all of it in partition 0 of the topic.
    fn found(&self, with: With) -> Vec<(FindingKind, u64, Option<u64>)> {
        let report = self.verify(with);
        let one = |finding: &latent_bridge::cold::verify::Finding| {
            assert_eq!((finding.topic.as_deref(), finding.partition), (Some("t"), Some(0)), "{finding}");
            assert!(finding.to_string().contains("t/p0 offset "), "{finding}");
            (finding.kind, finding.first.unwrap(), finding.last)
        };
        report.findings.kept().iter().map(one).collect()
    }

    /// A segment made of the items of another one, at its place in the chain.
    fn remade(&self, at: usize, keys: &Keys, change: impl Fn(&mut Vec<Item>)) -> FinishedSegment {
        let segment = Segment::open(self.store.objects()[&self.segments[at].0].clone()).unwrap();
        let mut items: Vec<_> = segment.items().map(Result::unwrap).collect();
        change(&mut items);
        let mut builder = SegmentBuilder::new(ten()).unwrap();
        items.iter().for_each(|item| assert_eq!(builder.push(item), Ok(Pushed::Taken)));
        builder.finish(segment.header().place.clone(), segment.header().number, segment.header().previous, keys).unwrap()
    }
}

const ALL: [With; 4] = [With::Nothing, With::Keys, With::KeysAndHeads, With::Everything];

#[test]
fn a_sound_archive_has_no_findings_and_the_report_says_what_was_compared() {
    let archived = archive();
    for with in ALL {
        assert_eq!(archived.verify(with).findings.total(), 0);
    }
    let (alone, all) = (archived.verify(With::Nothing), archived.verify(With::Everything));
    assert_eq!((alone.proven_segments, alone.unattested_ends, alone.compared), (0, 2, 0));
    assert_eq!((all.proven_segments, all.unattested_ends, all.compared), (all.segments, 0, 120));
    assert_eq!((all.partitions, all.records, all.damaged), (2, 120, 0));
}

#[test]
fn a_missing_segment_is_named_by_its_offsets() {
    for at in [0, 2] {
        let archived = archive();
        let (path, first, last) = archived.segments[at].clone();
        archived.store.lose(&path);
        assert_eq!(archived.found(With::Nothing), [(FindingKind::Missing, first, Some(last))]);
        assert_eq!(archived.found(With::KeysAndHeads), [(FindingKind::Missing, first, Some(last))]);
    }
    let archived = archive();
    for at in [1, 2] {
        archived.store.lose(&archived.segments[at].0);
    }
    let both = (FindingKind::Missing, archived.segments[1].1, Some(archived.segments[2].2));
    assert_eq!(archived.found(With::Keys), [both]);
}

/// Whoever keeps heads keeps old ones, too.
#[test]
fn an_older_head_beside_the_last_one_hides_no_cut_end() {
    let mut archived = archive();
    let (path, first, last) = archived.segments.last().unwrap().clone();
    let before = Segment::open(archived.store.objects()[&archived.segments[archived.segments.len() - 2].0].clone()).unwrap();
    let newest = archived.heads.iter().find(|head| head.place.partition == Partition(0)).unwrap().clone();
    let older =
        ArchiveHead { segments: newest.segments - 1, last: before.header().last, last_uid: None, digest: before.digest(), ..newest };
    archived.store.lose(&path);
    let newest_only = archived.found(With::KeysAndHeads);
    archived.heads.push(older);
    assert_eq!(archived.found(With::KeysAndHeads), newest_only);
    assert_eq!(newest_only.iter().map(|(kind, ..)| *kind).collect::<Vec<_>>(), [FindingKind::Missing], "{first} to {last}");
}

#[test]
fn a_missing_end_is_found_with_a_head_and_without_one_the_end_is_said_not_to_be_attested() {
    let archived = archive();
    let (path, first, last) = archived.segments.last().unwrap().clone();
    archived.store.lose(&path);
    assert_eq!(archived.found(With::KeysAndHeads), [(FindingKind::Missing, first, Some(last))]);
    let alone = archived.verify(With::Keys);
    assert_eq!((alone.findings.total(), alone.unattested_ends), (0, 2));
    // All of a partition.
    archived.segments.iter().for_each(|(path, ..)| drop(archived.store.lose(path)));
    assert_eq!(archived.found(With::KeysAndHeads), [(FindingKind::Missing, 0, Some(last))]);
}

#[test]
fn one_flipped_byte_anywhere_is_named_by_the_offsets_of_its_segment() {
    let archived = archive();
    for at in [0, 2, archived.segments.len() - 1] {
        let (path, first, last) = archived.segments[at].clone();
        let whole = archived.store.objects()[&path].clone();
        for byte in (0..whole.len()).step_by(13) {
            changed(&archived.store, &path, |bytes| bytes[byte] ^= 0x10);
            let found = archived.found(With::KeysAndHeads);
            let seal = byte >= whole.len() - 72;
            let kinds = if seal {
                vec![FindingKind::Replaced, FindingKind::UnknownKey, FindingKind::Truncated, FindingKind::Changed]
            } else {
                vec![FindingKind::Changed, FindingKind::Truncated]
            };
            assert!(
                matches!(&found[..], [(kind, f, l)] if kinds.contains(kind) && (*f, *l) == (first, Some(last))),
                "byte {byte} of {at}: {found:?}"
            );
            archived.store.plant(&path, whole.clone());
        }
    }
}

#[test]
fn a_swapped_pair_is_named_twice() {
    let archived = archive();
    let [one, other] = [1, 3].map(|at| archived.segments[at].clone());
    let bytes = [&one.0, &other.0].map(|path| archived.store.lose(path).unwrap());
    archived.store.plant(&one.0, bytes[1].clone());
    archived.store.plant(&other.0, bytes[0].clone());
    let found = archived.found(With::Nothing);
    assert_eq!(found, [(FindingKind::Misplaced, one.1, Some(one.2)), (FindingKind::Misplaced, other.1, Some(other.2))]);
    let report = archived.verify(With::Nothing);
    assert!(report.findings.kept()[0].problem.contains(&format!("offset {} to {}", other.1, other.2)), "{}", report.findings.kept()[0]);
}

#[test]
fn neighbours_that_are_swapped_or_in_another_partition_are_named() {
    let archived = archive();
    let [one, other] = [1, 2].map(|at| archived.segments[at].clone());
    let bytes = [&one.0, &other.0].map(|path| archived.store.lose(path).unwrap());
    archived.store.plant(&one.0, bytes[1].clone());
    archived.store.plant(&other.0, bytes[0].clone());
    assert_eq!(
        archived.found(With::Keys),
        [(FindingKind::Misplaced, one.1, Some(one.2)), (FindingKind::Misplaced, other.1, Some(other.2))]
    );

    let archived = archive();
    let (path, first, last) = archived.segments[1].clone();
    let elsewhere = archived.store.objects().into_iter().find(|(path, _)| path.starts_with("t/p1/")).unwrap().1;
    archived.store.plant(&path, elsewhere);
    assert_eq!(archived.found(With::Keys), [(FindingKind::Misplaced, first, Some(last))]);
}

#[test]
fn a_truncated_segment_is_named_by_its_offsets() {
    let archived = archive();
    for at in [1, archived.segments.len() - 1] {
        let (path, first, last) = archived.segments[at].clone();
        let whole = archived.store.objects()[&path].clone();
        for length in (0..whole.len()).step_by(31) {
            archived.store.plant(&path, whole.slice(..length));
            assert_eq!(archived.found(With::KeysAndHeads), [(FindingKind::Truncated, first, Some(last))], "{length}");
        }
        archived.store.plant(&path, whole);
    }
}

fn falsified(items: &mut [Item]) {
    let Item::Record { record, .. } = &mut items[0] else { unreachable!() };
    *record = Record { payload: Bytes::from_static(b"falsified"), ..record.clone() };
}

#[test]
fn a_replaced_segment_with_its_checksums_made_again_is_found_by_its_proof_or_by_the_chain() {
    let archived = archive();
    let mut stranger = [7; 32];
    stranger[31] = 0;
    for at in [0, 2, archived.segments.len() - 1] {
        let (path, first, last) = archived.segments[at].clone();
        let whole = archived.store.lose(&path).unwrap();
        let forged = archived.remade_of(&whole, &Keys(vec![stranger]));
        archived.store.plant(&path, forged);
        let expected = [(FindingKind::Replaced, first, Some(last))];
        assert_eq!(archived.found(With::Keys), expected, "{at}");
        if at + 1 < archived.segments.len() {
            assert_eq!(archived.found(With::Nothing), expected, "the chain tells without a key");
        } else {
            assert_eq!(archived.found(With::Nothing), [], "nothing speaks of the last one");
        }
        archived.store.plant(&path, whole);
    }
}

#[test]
fn a_replaced_segment_by_somebody_who_has_the_key_is_found_by_the_chain_the_head_or_the_log() {
    let archived = archive();
    let end = archived.segments.len() - 1;
    for (at, with) in [(2, With::Nothing), (2, With::Keys), (end, With::KeysAndHeads)] {
        let (path, first, last) = archived.segments[at].clone();
        let whole = archived.store.objects()[&path].clone();
        archived.store.plant(&path, archived.remade(at, &Keys::one(), |items| falsified(items)).bytes);
        assert_eq!(archived.found(with), [(FindingKind::Replaced, first, Some(last))]);
        archived.store.plant(&path, whole);
    }
    let (path, ..) = archived.segments[end].clone();
    archived.store.plant(&path, archived.remade(end, &Keys::one(), |items| falsified(items)).bytes);
    let offset = archived.segments[end].1;
    assert!(archived.found(With::Everything).contains(&(FindingKind::Different, offset, Some(offset))));
}

impl Archived {
    fn remade_of(&self, bytes: &Bytes, keys: &Keys) -> Bytes {
        let segment = Segment::open(bytes.clone()).unwrap();
        let mut items: Vec<_> = segment.items().map(Result::unwrap).collect();
        falsified(&mut items);
        let mut builder = SegmentBuilder::new(ten()).unwrap();
        items.iter().for_each(|item| assert_eq!(builder.push(item), Ok(Pushed::Taken)));
        builder.finish(segment.header().place.clone(), segment.header().number, segment.header().previous, keys).unwrap().bytes
    }
}

#[test]
fn what_does_not_belong_there_is_extra() {
    let archived = archive();
    for path in ["t/p0/notes.txt", "README", "t/p0/00000000000000000001.seg.bak"] {
        archived.store.plant(path, Bytes::from_static(b"x"));
        let report = archived.verify(With::Keys);
        let [finding] = report.findings.kept() else { panic!("{:?}", report.findings) };
        assert_eq!((finding.kind, finding.object.as_deref()), (FindingKind::Extra, Some(path)));
        archived.store.lose(path);
    }
    // A second chain that goes on behind the first segment, made by somebody with the key.
    let (_, _, last) = archived.segments[0].clone();
    let first = Segment::open(archived.store.objects()[&archived.segments[0].0].clone()).unwrap();
    let mut builder = SegmentBuilder::new(ten()).unwrap();
    let offset = archived.segments[1].1 + 1;
    builder.push(&Item::Damaged { offset: Offset(offset) }).unwrap();
    let previous = PreviousSegment { digest: first.digest(), last: Offset(last) };
    let extra = builder.finish(first.header().place.clone(), 1, Some(previous), &Keys::one()).unwrap();
    archived.store.plant(&format!("t/p0/{offset:020}.seg"), extra.bytes);
    assert_eq!(archived.found(With::Keys), [(FindingKind::Extra, offset, Some(offset))]);
}

/// A partition of a log with one event left out, or one more.
struct Altered<'b> {
    items: BusItems<'b>,
    without: u64,
    plus: Option<Item>,
}

impl ItemSource for Altered<'_> {
    fn bounds(&self) -> Result<(Offset, Offset), BusError> {
        self.items.bounds().map(|(first, next)| (first, Offset(next.0 + 5)))
    }

    fn page(&self, from: Offset) -> Result<Vec<Item>, BusError> {
        let page = self.items.page(from)?;
        let plus = self.plus.clone().filter(|plus| page.is_empty() && plus.offset() >= from);
        Ok(page.into_iter().chain(plus).filter(|item| item.offset().0 != self.without).collect())
    }
}

#[test]
fn beside_the_log_an_event_that_is_missing_or_extra_in_a_sound_chain_is_named() {
    let (directory, broker) = log(120);
    let (storage, store) = (TestStorage::without_syncs(), MemoryStore::new());
    let exporter = exporter(&storage, directory.path(), ten());
    let next = broker.bounds("t", Partition(0)).unwrap().1.0;
    let items = BusItems { bus: &broker, topic: "t".to_owned(), partition: Partition(0) };
    let Item::Record { record, .. } = items.page(Offset(0)).unwrap().remove(0) else { unreachable!() };
    let plus = Item::Record { offset: Offset(next + 1), record };
    exporter
        .export("t", Partition(0), ExportTo { store: &store, keys: &Keys::one() }, &Altered { items, without: 17, plus: Some(plus) }, all())
        .unwrap();
    let archived = Archived { _log: directory, broker, store, heads: Vec::new(), segments: Vec::new() };
    assert_eq!(archived.found(With::Keys), [], "the chain is sound");
    let extra = (FindingKind::Extra, next + 1, Some(next + 1));
    assert_eq!(archived.found(With::Everything), [(FindingKind::Missing, 17, Some(17)), extra]);
}

#[test]
fn an_unknown_key_is_told_as_that_and_one_topic_or_partition_can_be_looked_at_alone() {
    let archived = archive();
    let other = Keys(vec![[8; 32]]);
    let verification = |topic, partition, keys| Verification {
        store: &archived.store,
        topic,
        partition,
        keys: Some(keys),
        heads: &archived.heads,
        log: None,
        dense: true,
        known: Known::default(),
    };
    let report = verification(None, None, &other).run(&mut |_| {}).unwrap();
    assert_eq!(report.findings.counts().keys().copied().collect::<Vec<_>>(), [FindingKind::UnknownKey]);
    let keys = Keys::one();
    let one = verification(Some("t"), Some(Partition(1)), &keys).run(&mut |_| {}).unwrap();
    assert_eq!((one.partitions, one.findings.total()), (1, 0));
    let none = verification(Some("other"), None, &keys).run(&mut |_| {}).unwrap();
    assert_eq!((none.partitions, none.findings.total()), (0, 0));
}

#[test]
fn a_store_that_cannot_be_read_is_an_error_and_no_finding() {
    let archived = archive();
    archived.store.set_down(true);
    let verification = Verification {
        store: &archived.store,
        topic: None,
        partition: None,
        keys: None,
        heads: &[],
        log: None,
        dense: true,
        known: Known::default(),
    };
    assert!(verification.run(&mut |_| {}).is_err());
    archived.store.set_down(false);
    assert!(archived.store.get("t", 1).unwrap().is_none());
}

#[test]
fn a_segment_of_another_bus_is_no_part_of_the_chain() {
    let archived = archive();
    let (path, first, last) = archived.segments[1].clone();
    let segment = Segment::open(archived.store.objects()[&path].clone()).unwrap();
    let place = SegmentPlace { bus: "other".to_owned(), ..segment.header().place.clone() };
    let mut builder = SegmentBuilder::new(ten()).unwrap();
    segment.items().for_each(|item| assert_eq!(builder.push(&item.unwrap()), Ok(Pushed::Taken)));
    let header = segment.header();
    archived.store.plant(&path, builder.finish(place, header.number, header.previous, &Keys::one()).unwrap().bytes);
    assert_eq!(archived.found(With::Keys), [(FindingKind::Misplaced, first, Some(last))]);
}
