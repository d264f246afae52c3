//! Rotated keys and full disks on a broker, of topics that are archived event by event and in segments: nothing is sent, archived or taken
//! back by halves, and what waited is finished once the key or the room is there again.

use std::sync::Arc;

use latent_bridge::cold::ControlKeys;
use latent_bridge::cold::segment::SegmentSizes;
use latent_bridge::cold::verify::{FindingKind, Known, Verification};
use latent_bridge::{BusError, EventBus, NatsBus};
use latent_core::UnixMillis;
use latent_testkit::{require_broker, wait_until};

use crate::cold::{KEY, LATER, Site, archived, in_a_while};
use crate::cold_segments::{due, heads, publish, segmented, verified};
use crate::live::record;
use crate::storage::{self, Op, TestStorage};

const NEW_KEY: [u8; 32] = [8; 32];
/// After which an archive that somebody had to look at is looked at again, and more.
const HOURS: u64 = 2 * 3_600_000;

/// A bus on the site, archived in segments or not, with these keys and this storage below its outbox.
fn bus_with(site: &Site, in_segments: bool, keys: &[[u8; 32]], storage: &Arc<TestStorage>) -> NatsBus {
    let mut options = site.options();
    let archive = options.archive.as_mut().unwrap();
    archive.control_keys = keys.to_vec();
    archive.storage = Arc::clone(storage) as _;
    archive.segment_sizes = SegmentSizes { items: 8, ..SegmentSizes::default() };
    NatsBus::provision_with(options, &if in_segments { segmented() } else { archived(2) }).unwrap()
}

fn temporary_files(site: &Site) -> Vec<String> {
    fn below(folder: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                below(&entry.path(), found);
            } else if entry.path().extension().is_some_and(|ending| ending == "tmp") {
                found.push(entry.path().display().to_string());
            }
        }
    }
    let mut found = Vec::new();
    below(site.folder.path(), &mut found);
    found
}

#[test]
fn intents_of_an_older_key_wait_for_a_ring_that_has_it_and_are_finished_once() {
    require_broker!();
    let (site, storage) = (Site::start(), TestStorage::new());
    let bus = bus_with(&site, false, &[KEY], &storage);
    site.store.set_down(true);
    let acks: Vec<_> = (0..10).map(|n| bus.publish_record("t", &record(&format!("u{n}"), "k", "x")).unwrap()).collect();
    wait_until("nothing is uploading any more", || site.intents() == 10);
    drop(bus);
    site.store.set_down(false);

    let bus = bus_with(&site, false, &[NEW_KEY], &storage);
    let report = bus.maintain(in_a_while()).unwrap();
    assert_eq!((report.intents_completed, report.intents_quarantined, report.intents_pending), (0, 10, 10), "{report:?}");
    // An event whose intent cannot be read is neither published past it nor staged over it; others go on under the new key.
    let refused = bus.publish_record("t", &record("u0", "k", "x")).unwrap_err();
    assert!(!refused.is_uncertain(), "{refused:?}");
    let young = bus.publish_record("t", &record("young", "k", "x")).unwrap();
    wait_until("it is archived", || site.objects() == 1);
    assert_eq!((site.intents(), site.messages()), (10, 11));

    bus.set_control_keys(&[NEW_KEY, KEY]).unwrap();
    let report = bus.maintain(UnixMillis(in_a_while().0 + HOURS)).unwrap();
    assert_eq!((report.intents_completed, report.intents_quarantined, report.intents_pending), (10, 0, 0), "{report:?}");
    assert_eq!((site.intents(), site.objects(), site.messages()), (0, 11, 11));
    acks.iter().chain([&young]).for_each(|ack| assert_eq!(site.object(ack)["uid"], ack.uid));
    let again = bus.publish_record("t", &record("u0", "k", "x")).unwrap();
    assert_eq!((again.offset, again.duplicate), (acks[0].offset, true));
}

#[test]
fn segments_of_an_older_key_are_continued_by_a_ring_that_has_it_and_by_no_other() {
    require_broker!();
    let (site, storage) = (Site::start(), TestStorage::new());
    let bus = bus_with(&site, true, &[KEY], &storage);
    publish(&bus, "a", 40);
    assert_eq!(bus.maintain(due()).unwrap().archived_records, 40);
    publish(&bus, "b", 40);
    drop(bus);
    let objects = site.store.objects();

    let bus = bus_with(&site, true, &[NEW_KEY], &storage);
    let report = bus.maintain(due()).unwrap();
    assert_eq!((report.archived_records, &*report.unarchived_topics), (0, &["t".to_owned()][..]), "{report:?}");
    assert_eq!((site.store.objects(), site.messages()), (objects, 80));
    drop(bus);

    let bus = bus_with(&site, true, &[NEW_KEY, KEY], &storage);
    let report = bus.maintain(UnixMillis(due().0 + HOURS)).unwrap();
    assert_eq!((report.archived_records, report.unarchived_topics.len()), (40, 0), "{report:?}");
    // The heads are the new key's now, so the node needs the old one no longer; who verifies all of it does.
    drop(bus);
    let bus = bus_with(&site, true, &[NEW_KEY], &storage);
    publish(&bus, "c", 40);
    assert_eq!(bus.maintain(due()).unwrap().archived_records, 40);
    let (heads, of) = (heads(&bus), |keys: &[[u8; 32]]| ControlKeys::new(keys).unwrap());
    let findings = |keys: &ControlKeys| {
        let verification = Verification {
            store: &*site.store,
            topic: None,
            partition: None,
            keys: Some(keys),
            heads: &heads,
            log: Some(&bus as &dyn EventBus),
            dense: false,
            known: Known::default(),
        };
        let report = verification.run(&mut |_| {}).unwrap();
        report.findings.kept().iter().map(|finding| finding.kind).collect::<Vec<_>>()
    };
    assert_eq!(findings(&of(&[NEW_KEY, KEY])), []);
    let unknown = findings(&of(&[NEW_KEY]));
    assert!(!unknown.is_empty() && unknown.iter().all(|kind| *kind == FindingKind::UnknownKey), "{unknown:?}");
}

/// BUG-59, B-072: while there is no room for an intent nothing is sent, whichever event it is that finds none; then the same events go on.
#[test]
fn while_the_disk_of_the_outbox_is_full_nothing_is_sent_and_afterwards_every_event_is_there_once() {
    require_broker!();
    for first_failing in [0, 1, 7] {
        let (site, storage) = (Site::start(), TestStorage::new());
        let bus = bus_with(&site, false, &[KEY], &storage);
        site.store.set_down(true);
        storage.inject(&[storage::Fault::full_from(Op::Write, ".json.tmp", first_failing)]);
        let events: Vec<_> = (0..10).map(|n| record(&format!("u{n}"), "k", "x")).collect();
        let (mut acknowledged, mut uncertain) = (0, 0);
        for event in &events {
            match bus.publish_record("t", event) {
                Ok(_) => acknowledged += 1,
                // Its intent is there and cannot be told the offset.
                Err(error) if error.is_uncertain() => uncertain += 1,
                Err(error) => assert!(matches!(error, BusError::Io { .. }), "{error:?}"),
            }
        }
        let context = format!("from write {first_failing}: {acknowledged} acknowledged, {uncertain} uncertain");
        assert!(storage.failed() > 0 && acknowledged < 10, "{context}");
        assert_eq!((site.messages(), site.intents() as u64), (acknowledged + uncertain, acknowledged + uncertain), "{context}");
        assert_eq!(temporary_files(&site), [""; 0], "{context}");

        storage.inject(&[]);
        site.store.set_down(false);
        for event in &events {
            bus.publish_record("t", event).unwrap();
        }
        // What is being uploaded at the moment is nobody else's.
        wait_until("every intent is finished", || bus.maintain(UnixMillis(in_a_while().0 + LATER)).unwrap().intents_pending == 0);
        assert_eq!((site.messages(), site.objects(), site.intents()), (10, 10, 0), "{context}");
    }
}

/// The same of segments, which are staged by maintenance: publication does not need that room, and the broker keeps what has none.
#[test]
fn while_the_disk_of_the_outbox_is_full_segments_wait_on_the_broker_and_are_written_once_there_is_room() {
    require_broker!();
    for (op, ending) in [(Op::Create, ".seg.tmp"), (Op::Write, ".seg.tmp"), (Op::Write, ".head.tmp"), (Op::Rename, ".head")] {
        for number in [0, 1] {
            let (site, storage, context) = (Site::start(), TestStorage::new(), format!("{op:?} {ending} {number}"));
            let bus = bus_with(&site, true, &[KEY], &storage);
            publish(&bus, "a", 40);
            storage.inject(&[storage::Fault::full_from(op, ending, number)]);
            let report = bus.maintain(due()).unwrap();
            assert!(storage.failed() > 0 && report.unarchived_topics == ["t"] && report.archived_records < 40, "{context}: {report:?}");
            publish(&bus, "b", 10);
            assert_eq!(site.messages(), 50, "{context}");
            assert_eq!(temporary_files(&site), [""; 0], "{context}");
            storage.inject(&[]);
            let report = bus.maintain(UnixMillis(due().0 + HOURS)).unwrap();
            assert!(report.unarchived_topics.is_empty(), "{context}: {report:?}");
            let seen = verified(&site, &bus);
            assert_eq!((seen.findings.kept(), seen.records, seen.compared, seen.unattested_ends), (&[][..], 50, 50, 0), "{context}");
        }
    }
}
