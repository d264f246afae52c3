//! Archives of single events, and of single events beside segments.

mod mutations;
mod promised;

use bytes::Bytes;
use latent_core::{Offset, Partition, StoredRecord, UnixMillis};

use super::*;
use crate::cold::doubles::MemoryStore;
use crate::cold::restore::{Progress, Restoration, RestoreError};
use crate::cold::segment::Item;
use crate::cold::segment::tests::{Keys, item, segment_of};
use crate::{BridgeManifest, EmbeddedBroker};

fn stored(offset: u64) -> StoredRecord {
    let Item::Record { offset, record } = item(offset, format!("{{\"n\":{offset}}}")) else { unreachable!() };
    StoredRecord { partition: Partition(3), offset, record }
}

fn path(offset: u64) -> String {
    object::object_path("orders.placed", Partition(3), Offset(offset))
}

/// Single events at these offsets.
fn archive(offsets: impl IntoIterator<Item = u64>) -> MemoryStore {
    let store = MemoryStore::new();
    offsets.into_iter().for_each(|offset| store.plant(&path(offset), object::encode(&stored(offset))));
    store
}

fn verification(store: &MemoryStore) -> Verification<'_> {
    Verification { store, topic: None, partition: None, keys: None, heads: &[], log: None, dense: true, known: Known::default() }
}

fn found(store: &MemoryStore) -> Vec<(FindingKind, u64, Option<u64>)> {
    let report = verification(store).run(&mut |_| {}).unwrap();
    report.findings.kept().iter().map(|finding| (finding.kind, finding.first.unwrap(), finding.last)).collect()
}

#[test]
fn sound_single_events_have_no_findings() {
    let store = archive(5..25);
    store.plant(PROBE_OBJECT, "{}");
    let report = verification(&store).run(&mut |_| {}).unwrap();
    assert_eq!((report.findings.total(), report.objects, report.records, report.unattested_ends), (0, 20, 20, 0));
}

#[test]
fn a_gap_between_dense_offsets_is_missing_and_one_between_those_of_a_broker_is_not() {
    let store = archive((5..25).filter(|offset| !(10..=12).contains(offset)));
    assert_eq!(found(&store), [(FindingKind::Missing, 10, Some(12))]);
    let sparse = Verification { dense: false, ..verification(&store) };
    assert_eq!(sparse.run(&mut |_| {}).unwrap().findings.total(), 0);
}

#[test]
fn a_swapped_pair_a_cut_object_and_one_in_another_form_are_named() {
    let store = archive(0..6);
    let [one, other] = [1, 2].map(|offset| store.lose(&path(offset)).unwrap());
    store.plant(&path(1), other);
    store.plant(&path(2), one);
    let cut = store.lose(&path(3)).unwrap();
    store.plant(&path(3), cut.slice(..cut.len() - 1));
    let pretty = String::from_utf8(store.lose(&path(4)).unwrap().to_vec()).unwrap().replace(',', ", ");
    store.plant(&path(4), Bytes::from(pretty));
    let expected = [
        (FindingKind::Misplaced, 1, Some(1)),
        (FindingKind::Misplaced, 2, Some(2)),
        (FindingKind::Changed, 3, Some(3)),
        (FindingKind::Changed, 4, Some(4)),
    ];
    assert_eq!(found(&store), expected);
}

#[test]
fn a_single_event_inside_of_a_segment_is_a_late_one_or_a_copy_and_never_another_event() {
    let store = MemoryStore::new();
    let items: Vec<_> = (0..10).filter(|offset| *offset != 4).map(|offset| Item::from(stored(offset))).collect();
    store.plant(&super::super::export::segment_path("orders.placed", Partition(3), Offset(0)), segment_of(&items, 0, None).bytes);
    for offset in [0, 4, 7] {
        store.plant(&path(offset), object::encode(&stored(offset)));
    }
    let report = verification(&store).run(&mut |_| {}).unwrap();
    assert_eq!((report.findings.total(), report.segments, report.objects), (0, 1, 3), "{:?}", report.findings);
    for offset in [0, 7] {
        let other = StoredRecord { offset: Offset(offset), ..stored(99) };
        let there = store.lose(&path(offset)).unwrap();
        store.plant(&path(offset), object::encode(&other));
        assert_eq!(found(&store), [(FindingKind::Different, offset, Some(offset))]);
        store.plant(&path(offset), there);
    }
    // What is restored is each of them once, in order.
    let directory = tempfile::tempdir().unwrap();
    let manifest = "{manifest_version: 1, name: x, topics: [{name: orders.placed, partitions: 1}]}";
    let broker = EmbeddedBroker::provision(directory.path(), &BridgeManifest::from_yaml(manifest).unwrap()).unwrap();
    let restoration = Restoration { archive: verification(&store), bus: &broker, key_by_key: false, into: None };
    let report = restoration.run(Progress::of(""), &mut |_| Ok(()), &mut |_| {}).unwrap();
    assert_eq!((report.partitions[0].records, report.partitions[0].compared), (10, 10));
    let uids: Vec<_> = crate::EventBus::fetch(&broker, "orders.placed", 0, 0, 100).unwrap().into_iter().map(|event| event.uid).collect();
    assert_eq!(uids, (0..10).map(|offset| format!("uid-{offset}")).collect::<Vec<_>>());
}

#[test]
fn findings_beyond_the_bound_are_counted_and_not_kept() {
    let max = limits::ARCHIVE_FINDINGS.default;
    let store = MemoryStore::new();
    for n in 0..=max {
        store.plant(&format!("{n}.txt"), "x");
    }
    let report = verification(&store).run(&mut |_| {}).unwrap();
    assert_eq!((report.findings.kept().len() as u64, report.findings.total()), (max, max + 1));
    assert_eq!(report.findings.counts().get(&FindingKind::Extra), Some(&(max + 1)));
}

#[test]
fn two_topics_do_not_become_one() {
    let store = archive(0..2);
    store.plant(&object::object_path("other", Partition(3), Offset(0)), object::encode(&stored(0)));
    let directory = tempfile::tempdir().unwrap();
    let manifest = "{manifest_version: 1, name: x, topics: [{name: both, partitions: 1}]}";
    let broker = EmbeddedBroker::provision(directory.path(), &BridgeManifest::from_yaml(manifest).unwrap()).unwrap();
    let restoration = Restoration { archive: verification(&store), bus: &broker, key_by_key: true, into: Some("both") };
    let refused = restoration.run(Progress::of(""), &mut |_| Ok(()), &mut |_| {}).unwrap_err();
    assert!(matches!(refused, RestoreError::SeveralTopics { .. }), "{refused}");
    let keys = Keys::one();
    let one = Verification { topic: Some("other"), keys: Some(&keys), ..verification(&store) };
    let report = Restoration { archive: one, ..restoration }.run(Progress::of(""), &mut |_| Ok(()), &mut |_| {}).unwrap();
    assert_eq!(report.partitions.len(), 1);
}
