//! Topics of a broker that are archived in segments: what the stream has when maintenance looks is in one.

use std::sync::Arc;

use latent_bridge::cold::export::ArchiveHead;
use latent_bridge::cold::restore::{Progress, Restoration};
use latent_bridge::cold::segment::SegmentSizes;
use latent_bridge::cold::verify::{Known, Verification, VerifyReport};
use latent_bridge::cold::{ArchiveOptions, ControlKeys};
use latent_bridge::manifest::ColdFormat;
use latent_bridge::nats_bus::NatsOptions;
use latent_bridge::{BridgeManifest, EventBus, NatsBus};
use latent_core::{Partition, UnixMillis, partition_for};
use latent_testkit::require_broker;

use crate::cold::{KEY, Site, archived, in_a_while};
use crate::doubles::MemoryStore;
use crate::live::{STREAM, beside, record};

/// When everything that was published has waited long enough.
pub(crate) fn due() -> UnixMillis {
    UnixMillis(in_a_while().0 + 2 * 3_600_000)
}

pub(crate) fn segmented() -> BridgeManifest {
    let mut manifest = archived(2);
    manifest.topics[0].retention.cold_format = Some(ColdFormat::Segments);
    manifest
}

pub(crate) fn bus(site: &Site) -> NatsBus {
    bus_at(site, "place")
}

/// Archived at another place, which is the site's store all the same.
fn bus_at(site: &Site, place: &str) -> NatsBus {
    let segment_sizes = SegmentSizes { items: 8, ..SegmentSizes::default() };
    let options = site.options();
    let archive = ArchiveOptions { segment_sizes, ..options.archive.clone().unwrap() };
    let mut manifest = segmented();
    manifest.topics[0].retention.cold_uri = Some(place.to_owned());
    NatsBus::provision_with(NatsOptions { archive: Some(archive), ..options }, &manifest).unwrap()
}

pub(crate) fn publish(bus: &NatsBus, prefix: &str, count: usize) {
    let one = |n: usize| record(&format!("{prefix}-{n}"), &format!("key-{}", n % 5), format!("{prefix} {n}"));
    let records: Vec<_> = (0..count).map(one).collect();
    bus.publish_batch("t", &records).into_iter().for_each(|ack| drop(ack.unwrap()));
}

pub(crate) fn heads(bus: &NatsBus) -> Vec<ArchiveHead> {
    (0..2).filter_map(|partition| bus.archive_head("t", Partition(partition)).unwrap()).map(|attested| attested.head).collect()
}

pub(crate) fn verified(site: &Site, bus: &NatsBus) -> VerifyReport {
    let (keys, heads) = (ControlKeys::new(&[KEY]).unwrap(), heads(bus));
    let log = Some(bus as &dyn EventBus);
    let store = &*site.store;
    let verification =
        Verification { store, topic: None, partition: None, keys: Some(&keys), heads: &heads, log, dense: false, known: Known::default() };
    verification.run(&mut |_| {}).unwrap()
}

#[test]
fn what_the_stream_has_is_in_segments_once_and_the_archive_is_sound_beside_it() {
    require_broker!();
    let site = Site::start();
    let first = bus(&site);
    publish(&first, "a", 40);
    assert_eq!(site.intents(), 0, "nothing is staged for a publication");
    let young = first.maintain(in_a_while()).unwrap();
    assert!(young.archived_records >= 24, "full ones go at once: {young:?}");
    let report = first.maintain(due()).unwrap();
    assert_eq!((young.archived_records + report.archived_records, report.unarchived_topics.len()), (40, 0), "{report:?}");
    assert_eq!(first.maintain(due()).unwrap().archived_records, 0);
    let seen = verified(&site, &first);
    assert_eq!((seen.findings.kept(), seen.records, seen.compared, seen.unattested_ends), (&[][..], 40, 40, 0));
    drop(first);

    // Another process, and more of it; the store is away in between.
    let second = bus(&site);
    publish(&second, "b", 20);
    site.store.set_down(true);
    let away = second.maintain(due()).unwrap();
    assert_eq!((away.archived_records, &*away.unarchived_topics), (0, &["t".to_owned()][..]));
    site.store.set_down(false);
    assert_eq!(second.maintain(due()).unwrap().archived_records, 20);
    let seen = verified(&site, &second);
    assert_eq!((seen.findings.kept(), seen.records), (&[][..], 60));

    // The store is set back while it runs: nothing is written behind the gap before it is whole again.
    publish(&second, "c", 20);
    let last = |partition| site.store.objects().into_keys().rfind(|path| path.starts_with(&format!("t/p{partition}/"))).unwrap();
    let lost: Vec<_> = (0..2).map(last).map(|path| (site.store.lose(&path).unwrap(), path)).collect();
    let objects = site.store.objects();
    let gap = second.maintain(due()).unwrap();
    assert_eq!((gap.archived_records, &*gap.unarchived_topics), (0, &["t".to_owned()][..]));
    assert_eq!(site.store.objects(), objects);
    lost.into_iter().for_each(|(bytes, path)| site.store.plant(&path, bytes));
    assert_eq!(second.maintain(due()).unwrap().archived_records, 20);
    let seen = verified(&site, &second);
    assert_eq!((seen.findings.kept(), seen.records), (&[][..], 80));
}

#[test]
fn a_stream_that_was_made_anew_is_not_archived_over_the_history_of_the_old_one() {
    require_broker!();
    let mut site = Site::start();
    let first = bus(&site);
    publish(&first, "a", 40);
    first.maintain(due()).unwrap();
    let objects = site.store.objects();
    drop(first);
    beside(&site.broker, async |admin| admin.jetstream().delete_stream(STREAM).await.map(drop).unwrap());
    let second = bus(&site);
    publish(&second, "z", 10);
    let report = second.maintain(due()).unwrap();
    assert_eq!((report.archived_records, &*report.unarchived_topics), (0, &["t".to_owned()][..]));
    // Longer than the old one, and where that had its last events it has others, of either partition.
    publish(&second, "y", 60);
    let report = second.maintain(due()).unwrap();
    assert_eq!((report.archived_records, &*report.unarchived_topics), (0, &["t".to_owned()][..]));
    assert_eq!(site.store.objects(), objects);
    drop(second);
    // The way on that the refusal names.
    site.store = Arc::new(MemoryStore::new());
    let third = bus_at(&site, "another place");
    let report = third.maintain(due()).unwrap();
    assert_eq!((report.archived_records, report.unarchived_topics.len()), (70, 0), "{report:?}");
    let seen = verified(&site, &third);
    assert_eq!((seen.findings.kept(), seen.records, seen.unattested_ends), (&[][..], 70, 0));
}

/// BUG-72: of the partitions beside one that cannot be archived the broker removes what is too old as well.
#[test]
fn a_partition_that_cannot_be_archived_stops_no_other_one() {
    require_broker!();
    let site = Site::start();
    let first = bus(&site);
    publish(&first, "a", 40);
    first.maintain(due()).unwrap();
    drop(first);
    std::fs::write(site.folder.path().join("outbox/segments/t.p0.head"), "{}").unwrap();
    let second = bus(&site);
    publish(&second, "b", 40);
    let report = second.maintain(due()).unwrap();
    let in_second = (0..40).map(|n| format!("key-{}", n % 5)).filter(|key| partition_for(key, 2) == Partition(1)).count();
    assert!((1..40).contains(&in_second), "{in_second}");
    assert_eq!((report.archived_records, &*report.unarchived_topics), (in_second as u64, &["t".to_owned()][..]), "{report:?}");
}

#[test]
fn an_archive_is_restored_onto_a_broker_in_its_order() {
    require_broker!();
    let (site, other) = (Site::start(), Site::start());
    let from = bus(&site);
    publish(&from, "a", 40);
    from.maintain(due()).unwrap();
    let to = bus(&other);
    let keys = ControlKeys::new(&[KEY]).unwrap();
    let store = &*site.store;
    let archive = Verification {
        store,
        topic: None,
        partition: None,
        keys: Some(&keys),
        heads: &[],
        log: None,
        dense: false,
        known: Known::default(),
    };
    let restoration = Restoration { archive, bus: &to, key_by_key: true, into: None };
    for already_there in [0, 40] {
        let report = restoration.run(Progress::of(""), &mut |_| Ok(()), &mut |_| {}).unwrap();
        let sum = |number: fn(&latent_bridge::cold::restore::RestoredPartition) -> u64| report.partitions.iter().map(number).sum::<u64>();
        assert_eq!((sum(|one| one.records), sum(|one| one.compared), sum(|one| one.already_there)), (40, 40, already_there));
        assert_eq!(sum(|one| one.out_of_order), 0);
    }
    let uids = |bus: &NatsBus, partition| bus.fetch("t", partition, 0, 100).unwrap().into_iter().map(|event| event.uid).collect::<Vec<_>>();
    for partition in 0..2 {
        assert_eq!(uids(&to, partition), uids(&from, partition));
    }
}
