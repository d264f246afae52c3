//! Records go into segments once, whatever fails and whenever the process ends.

use latent_bridge::BusError;
use latent_bridge::cold::segment::SegmentBuilder;
use latent_core::NewRecord;

use super::doubles::{Call, Fault};
use super::*;
use crate::support::storage::Failing;

#[test]
fn every_record_is_in_one_segment_and_a_segment_is_full_or_due() {
    let (directory, broker) = log(64);
    let (storage, store) = (TestStorage::without_syncs(), MemoryStore::new());
    let exporter = exporter(&storage, directory.path(), ten());
    let total = in_log(&broker, 0).len() as u64;
    let full = export(&exporter, &store, &broker, 0, UnixMillis(0).into()).unwrap();
    assert_eq!((full.segments, full.items), (total / 10, total / 10 * 10), "what does not fill a segment waits");
    assert_eq!(archived(&store, 0), in_log(&broker, 0)[..usize::try_from(full.items).unwrap()]);
    assert_eq!(export(&exporter, &store, &broker, 0, UnixMillis(0).into()).unwrap().segments, 0);
    let must = Goal { must: full.cold_up_to.and_then(Offset::next), ..Goal::from(UnixMillis(0)) };
    assert_eq!(export(&exporter, &store, &broker, 0, must).unwrap().items, total % 10);
    assert_eq!(archived(&store, 0), in_log(&broker, 0));
    assert!(archived(&store, 1).is_empty());

    publish(&broker, "b", 9);
    let old = UnixMillis(u64::MAX / 2);
    assert!(export(&exporter, &store, &broker, 0, old.into()).unwrap().items > 0, "what has waited long enough goes");
    assert_eq!(archived(&store, 0), in_log(&broker, 0));
    let head = exporter.head("t", Partition(0), &Keys::one()).unwrap().unwrap();
    assert_eq!(head.last, in_log(&broker, 0).last().unwrap().offset());
}

#[test]
fn a_log_in_which_nothing_is_due_is_not_read_again_and_a_store_not_asked() {
    let (directory, broker) = log(8);
    let (storage, store) = (TestStorage::without_syncs(), MemoryStore::new());
    let exporter = exporter(&storage, directory.path(), ten());
    for _ in 0..3 {
        assert_eq!(export(&exporter, &store, &broker, 0, UnixMillis(0).into()).unwrap(), Exported::default());
    }
    assert_eq!(store.calls(), [Call::List("t/p0/".to_owned())], "asked once for a head that nobody kept");
}

/// The process ends at every call of a file or of the store; the next one finishes.
#[test]
fn an_export_that_ends_at_any_call_is_finished_by_the_next_one_without_a_second_copy() {
    let (_log, broker) = log(64);
    let mut failures = 0;
    for at in 0.. {
        let outbox = scratch();
        let (storage, store) = (TestStorage::without_syncs(), MemoryStore::new());
        storage.fail(Failing::From(at));
        let ended = export(&exporter(&storage, outbox.path(), ten()), &store, &broker, 0, all());
        storage.fail(Failing::Never);
        failures += u64::from(ended.is_err());
        export(&exporter(&storage, outbox.path(), ten()), &store, &broker, 0, all()).unwrap();
        assert_eq!(archived(&store, 0), in_log(&broker, 0), "after the file call {at}");
        assert_eq!(left(outbox.path()), ["t.p0.head"], "after the file call {at}");
        if ended.is_ok() {
            break;
        }
    }
    assert!(failures > 20, "{failures}");
}

#[test]
fn a_store_that_fails_at_any_call_in_any_way_makes_no_second_copy() {
    let (_log, broker) = log(64);
    for fault in [Fault::Fail, Fault::DoneThenTimeout, Fault::SayExists, Fault::SayUnconditional, Fault::HalfRead] {
        for at in 0.. {
            let outbox = scratch();
            let (storage, store) = (TestStorage::without_syncs(), MemoryStore::new());
            store.plan((0..at).map(|_| None).chain([Some(fault)]));
            let first = exporter(&storage, outbox.path(), ten());
            let ended = export(&first, &store, &broker, 0, all());
            // The same process tries again, or the next one does.
            let second = if at % 2 == 0 { first } else { exporter(&storage, outbox.path(), ten()) };
            export(&second, &store, &broker, 0, all()).unwrap();
            assert_eq!(archived(&store, 0), in_log(&broker, 0), "{fault:?} at {at}");
            if store.calls().len() <= at || (ended.is_ok() && at > 10) {
                break;
            }
        }
    }
}

#[test]
fn what_was_staged_goes_as_it_is_though_there_are_more_records_now() {
    let (directory, broker) = log(20);
    let (storage, store) = (TestStorage::without_syncs(), MemoryStore::new());
    store.set_down(true);
    let list_failed = export(&exporter(&storage, directory.path(), ten()), &store, &broker, 0, all());
    assert!(list_failed.unwrap_err().is_passing());
    store.set_down(false);
    store.plan([None, Some(Fault::Fail)]);
    assert!(export(&exporter(&storage, directory.path(), ten()), &store, &broker, 0, all()).is_err());
    let staged = std::fs::read(directory.path().join("segments/t.p0.seg")).unwrap();
    publish(&broker, "b", 40);
    export(&exporter(&storage, directory.path(), ten()), &store, &broker, 0, all()).unwrap();
    assert_eq!(store.objects()["t/p0/00000000000000000000.seg"], staged);
    assert_eq!(archived(&store, 0), in_log(&broker, 0));
}

#[test]
fn two_exporters_that_cut_differently_end_in_one_chain() {
    let (_log, broker) = log(64);
    let (storage, store) = (TestStorage::without_syncs(), MemoryStore::new());
    let (one, other) = (scratch(), scratch());
    let (one, other) = (exporter(&storage, one.path(), ten()), exporter(&storage, other.path(), SegmentSizes { items: 7, ..ten() }));
    // Both know of no segment, then each writes where the other has written already.
    export(&other, &store, &broker, 0, UnixMillis(0).into()).unwrap();
    store.plan([Some(Fault::SayAbsent)]);
    export(&one, &store, &broker, 0, all()).unwrap();
    assert_eq!(archived(&store, 0), in_log(&broker, 0));
    publish(&broker, "b", 64);
    export(&other, &store, &broker, 0, all()).unwrap();
    export(&one, &store, &broker, 0, all()).unwrap();
    assert_eq!(archived(&store, 0), in_log(&broker, 0));
}

#[test]
fn a_head_that_was_lost_is_found_in_the_store_and_one_that_is_not_proven_is_refused() {
    let (directory, broker) = log(64);
    let (storage, store) = (TestStorage::without_syncs(), MemoryStore::new());
    export(&exporter(&storage, directory.path(), ten()), &store, &broker, 0, all()).unwrap();
    let head = directory.path().join("segments/t.p0.head");
    let kept = std::fs::read_to_string(&head).unwrap();
    std::fs::remove_file(&head).unwrap();
    publish(&broker, "b", 20);
    export(&exporter(&storage, directory.path(), ten()), &store, &broker, 0, all()).unwrap();
    assert_eq!(archived(&store, 0), in_log(&broker, 0));

    let of_another_key = ExportError::UnknownKey { key_id: "key-8".to_owned() };
    for (forged, expected) in [
        (kept.replace("\"segments\":", "\"segments\":1"), ExportError::Unproven),
        (kept.replace("key-7", "key-8"), of_another_key),
        ("{}".to_owned(), ExportError::Unproven),
        (String::new(), ExportError::Unproven),
    ] {
        std::fs::write(&head, forged).unwrap();
        let refused = export(&exporter(&storage, directory.path(), ten()), &store, &broker, 0, all());
        assert_eq!(refused, Err(expected));
    }
}

#[test]
fn nothing_is_written_over_what_is_not_ours_or_behind_it() {
    let (directory, broker) = log(64);
    let (storage, path) = (TestStorage::without_syncs(), "t/p0/00000000000000000000.seg");
    let other = {
        let mut builder = SegmentBuilder::new(ten()).unwrap();
        let item = Item::Damaged { offset: Offset(0) };
        builder.push(&item).unwrap();
        let place = latent_bridge::cold::segment::SegmentPlace { bus: "test".to_owned(), topic: "t".to_owned(), partition: Partition(0) };
        builder.finish(place, 0, None, &Keys::one()).unwrap().bytes
    };
    for planted in [Bytes::from_static(b"not ours"), Bytes::new(), other] {
        let store = MemoryStore::new();
        store.plant(path, planted.clone());
        store.plan([Some(Fault::SayAbsent)]);
        let outbox = tempfile::tempdir_in(directory.path()).unwrap();
        let refused = export(&exporter(&storage, outbox.path(), ten()), &store, &broker, 0, all()).unwrap_err();
        assert!(matches!(&refused, ExportError::Different { .. }) && !refused.is_passing(), "{refused}");
        assert!(refused.to_string().contains("already exists with different content"), "{refused}");
        assert_eq!(store.objects()[path], planted);
    }
    // A chain that ends in something that is not proven is not gone on with.
    let store = MemoryStore::new();
    store.plant(path, Bytes::from_static(b"not ours"));
    let outbox = tempfile::tempdir_in(directory.path()).unwrap();
    let refused = export(&exporter(&storage, outbox.path(), ten()), &store, &broker, 0, all()).unwrap_err();
    assert!(matches!(refused, ExportError::Foreign { .. }), "{refused}");
}

#[test]
fn a_log_with_another_history_than_its_archive_is_refused() {
    let (directory, broker) = log(64);
    let (storage, store) = (TestStorage::without_syncs(), MemoryStore::new());
    export(&exporter(&storage, directory.path(), ten()), &store, &broker, 0, all()).unwrap();
    let before = store.objects();
    for (prefix, count) in [("a", 10), ("z", 80)] {
        let (_directory, other) = log(0);
        publish(&other, prefix, count);
        let refused = export(&exporter(&storage, directory.path(), ten()), &store, &other, 0, all()).unwrap_err();
        assert!(matches!(refused, ExportError::HistoryChanged { .. }), "{refused}");
    }
    assert_eq!(store.objects(), before);
}

/// A log that was made anew and filled with the same uids has the archive's last uid where the archive ends. One corrected event of it is
/// nowhere else, and must not leave because another one of its uid is archived.
#[test]
fn a_log_with_the_same_uids_and_another_event_is_refused_where_its_archive_is_found() {
    let (directory, broker) = log(64);
    let (storage, store) = (TestStorage::without_syncs(), MemoryStore::new());
    export(&exporter(&storage, directory.path(), ten()), &store, &broker, 0, all()).unwrap();
    let (before, items) = (store.objects(), archived(&store, 0));
    for corrected in [None, Some(0), Some(6), Some(items.len() - 1)] {
        let ((outbox, other), anew) = (log(0), TestStorage::without_syncs());
        for (number, item) in items.iter().enumerate() {
            let record = item.record().unwrap();
            let payload = if corrected == Some(number) { Bytes::from_static(b"corrected") } else { record.payload.clone() };
            let (uid, attributes) = (Some(record.uid.clone()), record.attributes.clone());
            let again = NewRecord::new(uid, &record.key, record.media_type.clone(), attributes, payload).unwrap();
            other.publish_record("t", &again).unwrap();
        }
        let ended = export(&exporter(&anew, outbox.path(), ten()), &store, &other, 0, all());
        match corrected {
            None => assert_eq!(ended.unwrap().segments, 0, "the same events"),
            Some(_) => assert!(matches!(ended, Err(ExportError::HistoryChanged { .. })), "{corrected:?}: {ended:?}"),
        }
        assert_eq!(store.objects(), before);
    }
}

#[test]
fn a_damaged_record_keeps_its_offset_in_the_archive() {
    struct Damaged;
    impl latent_bridge::cold::export::ItemSource for Damaged {
        fn bounds(&self) -> Result<(Offset, Offset), BusError> {
            Ok((Offset(0), Offset(3)))
        }
        fn page(&self, from: Offset) -> Result<Vec<Item>, BusError> {
            Ok(if from.0 < 3 { vec![Item::Damaged { offset: from }] } else { Vec::new() })
        }
    }
    let (outbox, storage, store) = (scratch(), TestStorage::without_syncs(), MemoryStore::new());
    let exporter = exporter(&storage, outbox.path(), ten());
    let done = exporter.export("t", Partition(0), ExportTo { store: &store, keys: &Keys::one() }, &Damaged, all()).unwrap();
    assert_eq!((done.items, done.cold_up_to), (3, Some(Offset(2))));
    assert!(archived(&store, 0).iter().all(|item| item.record().is_none()));
    assert_eq!(exporter.export("t", Partition(0), ExportTo { store: &store, keys: &Keys::one() }, &Damaged, all()).unwrap().segments, 0);
}

/// Names in the folder of heads.
fn left(outbox: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(outbox.join("segments")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
