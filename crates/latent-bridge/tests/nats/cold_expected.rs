//! What must be in the archive of a topic on a broker: everything that was acknowledged since it is archived.

use latent_bridge::cold::ColdStore;
use latent_bridge::cold::verify::{Expectation, FindingKind, Known, Verification};
use latent_bridge::nats_bus::NatsOptions;
use latent_bridge::{EventBus, NatsBus};
use latent_core::{Offset, Partition};
use latent_testkit::require_broker;

use crate::cold::{Site, archived};
use crate::live::{manifest, options, record};

/// Kind, partition and offsets of what is wrong, and how many events are on their way.
fn verified(bus: &NatsBus, store: &dyn ColdStore) -> (Vec<(FindingKind, u32, u64)>, u64) {
    let expectation = |partition: u32| Expectation {
        topic: "t".to_owned(),
        partition: Partition(partition),
        since: bus.archived_since("t", Partition(partition)).unwrap().unwrap(),
        until: bus.bounds("t", Partition(partition)).unwrap().1,
    };
    let expected = [0, 1].map(expectation);
    let waiting = bus.archive_statistics().unwrap().intents;
    let known = Known { expected: &expected, waiting, ..Known::default() };
    let archive = Verification { store, topic: Some("t"), partition: None, keys: None, heads: &[], log: Some(bus), dense: false, known };
    let report = archive.run(&mut |_| {}).unwrap();
    let told = |finding: &latent_bridge::cold::verify::Finding| (finding.kind, finding.partition.unwrap(), finding.first.unwrap());
    (report.findings.kept().iter().map(told).collect(), report.waiting)
}

#[test]
fn what_is_acknowledged_since_a_topic_is_archived_must_be_there_and_nothing_before() {
    require_broker!();
    let site = Site::start();
    let plain = NatsBus::provision_with(NatsOptions { archive: None, ..options(&site.broker) }, &manifest(2)).unwrap();
    for n in 0..4 {
        plain.publish_record("t", &record(&format!("before{n}"), &format!("k{n}"), "x")).unwrap();
    }
    drop(plain);
    let bus = NatsBus::open_with(site.options(), &archived(2)).unwrap();
    assert_eq!(verified(&bus, &*site.store), (vec![], 0), "what was there before is promised by nobody");
    site.store.set_down(true);
    let first = bus.publish_record("t", &record("first", "k0", "x")).unwrap();
    site.store.set_down(false);
    let second = bus.publish_record("t", &record("second", "k0", "x")).unwrap();
    bus.maintain(crate::cold::in_a_while()).unwrap();
    site.uploaded();
    assert_eq!(verified(&bus, &*site.store), (vec![], 0));
    let path = |ack: &latent_bridge::PublishAck| format!("t/p{}/{:020}.json", ack.partition, ack.offset);
    for ack in [&first, &second] {
        let object = site.store.lose(&path(ack)).unwrap();
        assert_eq!(verified(&bus, &*site.store), (vec![(FindingKind::Missing, ack.partition, ack.offset)], 0));
        site.store.plant(&path(ack), object);
    }
    for ack in [&first, &second] {
        site.store.lose(&path(ack)).unwrap();
    }
    assert_eq!(
        verified(&bus, &*site.store).0,
        [(FindingKind::Missing, first.partition, first.offset)],
        "one range, of a partition with nothing"
    );
    let since = bus.archived_since("t", Partition(first.partition)).unwrap();
    drop(bus);
    let again = NatsBus::open_with(site.options(), &archived(2)).unwrap();
    assert_eq!(again.archived_since("t", Partition(first.partition)).unwrap(), since);
    assert!(since.is_some_and(|since| since <= Offset(first.offset)));
}
