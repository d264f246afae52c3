//! Messages that another program put into a partition and whose headers no client can read: each would end the connection whenever it is
//! delivered (B-063, B-066).

use latent_bridge::{BusError, EventBus, HeadContent, NatsBus};
use latent_core::{Offset, Partition, partition_for};
use latent_testkit::broker::Broker;
use latent_testkit::{require_broker, wait_until};

use crate::live::{STREAM, acknowledged, beside, connection, manifest, options, record, spec, stored_in, with_topic};
use crate::raw::Raw;

const P0: Partition = Partition(0);
const P1: Partition = Partition(1);
/// A body that would be an event.
const BODY: &[u8] = br#"{"partition":0,"offset":0,"key":"k","stored_at":1,"value":1}"#;

/// A key of this partition, of two.
fn key_of(partition: Partition) -> String {
    (0..).map(|n| format!("key-{n}")).find(|key| partition_for(key, 2) == partition).unwrap()
}

/// Two partitions, with an event before and one behind what is planted in the first.
fn planted(blocks: &[&[u8]]) -> (Broker, NatsBus, Vec<u64>) {
    let (broker, bus) = with_topic(spec(), 2);
    bus.publish_record("t", &record("before", &key_of(P0), "x")).unwrap();
    bus.publish_record("t", &record("other", &key_of(P1), "x")).unwrap();
    let mut raw = Raw::connect(&broker);
    let places = blocks.iter().map(|block| raw.plant("t.p0", block, BODY)).collect();
    bus.publish_record("t", &record("behind", &key_of(P0), "x")).unwrap();
    (broker, bus, places)
}

fn found(bus: &NatsBus, uid: &str) -> Option<u64> {
    bus.find_event_by_uid("t", &key_of(P0), uid).unwrap().map(|ack| ack.offset)
}

/// Reads the partition as a consumer would that goes on after what it cannot read: uids, and places of what is unreadable.
fn read_on(bus: &NatsBus) -> (Vec<String>, Vec<u64>) {
    let (mut uids, mut unreadable, mut next) = (Vec::new(), Vec::new(), Offset(0));
    loop {
        match bus.submit_fetch("t", P0, next, 100).wait() {
            Ok(page) if page.is_empty() => return (uids, unreadable),
            Ok(page) => {
                next = Offset(page.last().unwrap().offset.0 + 1);
                uids.extend(page.into_iter().map(|stored| stored.record.uid.as_str().to_owned()));
            }
            Err(BusError::Unreadable { offset, .. }) => {
                next = Offset(offset + 1);
                unreadable.push(offset);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Each would end the connection when it is delivered; the last one the client itself.
const UNREADABLE: [&[u8]; 5] = [
    b"NATS/1.0\r\nNats-Msg-Id: planted\r\nno header\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: planted-1\r\nA: \xff\xfe\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: planted-2\r\na b: c\r\n\r\n",
    b"NATS/2.0\r\nNats-Msg-Id: planted-3\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: planted-4\r\nA: b\rc\r\n\r\n",
];

#[test]
fn a_message_whose_headers_no_client_can_read_is_named_and_passed_over() {
    require_broker!();
    for block in UNREADABLE {
        let (broker, bus, places) = planted(&[block]);
        let shown = block.escape_ascii();
        assert_eq!(bus.bounds("t", P0).map(|(first, next)| (first.0, next.0)), Ok((1, 5)), "{shown}");
        assert_eq!(read_on(&bus), (vec!["before".to_owned(), "behind".to_owned()], places.clone()), "{shown}");
        assert_eq!((found(&bus, "behind"), found(&bus, "planted"), found(&bus, "absent")), (Some(4), None, None), "{shown}");
        let heads = bus.submit_heads("t", P0, Offset(0), 100).wait().unwrap();
        let damaged: Vec<_> = heads.iter().filter(|head| head.content == HeadContent::Damaged).map(|head| head.offset.0).collect();
        assert_eq!((heads.len(), &damaged), (3, &places), "{shown}");
        assert_eq!(bus.submit_remains("t", P0, Offset(places[0])).wait().unwrap(), BODY, "{shown}");
        assert!(bus.statistics().is_ok() && stored_in(&bus, P1).len() == 1, "{shown}");
        assert_eq!(beside(&broker, async |admin| admin.count(STREAM).await), 4, "it stays as evidence");
    }
}

/// A uid whose copy on the broker is such a message belongs to something else: a conflict, and the connection stays.
#[test]
fn a_uid_that_such_a_message_took_is_a_conflict_and_ends_no_connection() {
    require_broker!();
    let (broker, bus, _) = planted(&UNREADABLE);
    let before = connection(&broker).id;
    for uid in ["planted", "planted-2", "planted-4"] {
        let refused = bus.publish_record("t", &record(uid, &key_of(P0), "x")).unwrap_err();
        assert!(matches!(&refused, BusError::Conflict { uid: taken, .. } if taken.as_str() == uid), "{refused:?}");
    }
    assert_eq!(connection(&broker).id, before, "each was read singly");
}

/// A lookup begins without knowing of them. Then they are known: neither lookups nor reads cost the connection again.
#[test]
fn each_place_costs_the_connection_once_and_is_known_from_then_on() {
    require_broker!();
    let (broker, _, places) = planted(&UNREADABLE);
    let bus = NatsBus::open_with(options(&broker), &manifest(2)).unwrap();
    assert_eq!((found(&bus, "behind"), found(&bus, "absent")), (Some(*places.last().unwrap() + 1), None));
    wait_until("the connection is back", || beside(&broker, async |admin| admin.connections()).len() == 1);
    let ids = || beside(&broker, async |admin| admin.connections().into_iter().map(|connection| connection.id).collect::<Vec<_>>());
    let before = ids();
    assert_eq!(read_on(&bus), (vec!["before".to_owned(), "behind".to_owned()], places));
    assert_eq!(found(&bus, "absent"), None);
    assert_eq!(ids(), before);
}

/// Whoever reads another partition at that time gets all of it, and publications go on.
#[test]
fn reads_of_other_partitions_and_publications_go_on_meanwhile() {
    require_broker!();
    let (broker, bus, places) = planted(&UNREADABLE);
    let events: Vec<_> = (0..300).map(|n| record(&format!("o{n}"), &key_of(P1), "x")).collect();
    assert!(bus.publish_batch("t", &events).iter().all(Result::is_ok));
    let bus = NatsBus::open_with(options(&broker), &manifest(2)).unwrap();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read_on(&bus));
        let other = scope.spawn(|| {
            let (mut read, mut next) = (0, Offset(0));
            while read < 301 {
                // Small pages, so that some are under way when the connection goes.
                match bus.submit_fetch("t", P1, next, 7).wait() {
                    Ok(page) => {
                        assert!(!page.is_empty(), "no end before the end");
                        read += page.len();
                        next = Offset(page.last().unwrap().offset.0 + 1);
                    }
                    // There is no connection at this moment, which was asked for before.
                    Err(BusError::NotSent { .. } | BusError::Timeout { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            read
        });
        assert_eq!(reading.join().unwrap().1, places);
        assert_eq!(other.join().unwrap(), 301);
    });
    let ack = acknowledged(&bus, &record("after", &key_of(P0), "x"));
    assert_eq!(found(&bus, "after"), Some(ack.offset));
}

/// A stored message may have a status in its first line, as the broker's own answers do. It is no answer.
#[test]
fn a_status_in_a_stored_message_is_no_word_of_the_broker() {
    require_broker!();
    let blocks: [&[u8]; 4] = [
        b"NATS/1.0 404 No Messages\r\nNats-Msg-Id: s0\r\n\r\n",
        b"NATS/1.0 408 Request Timeout\r\nNats-Msg-Id: s1\r\n\r\n",
        b"NATS/1.0 409 Consumer Deleted\r\nNats-Msg-Id: s2\r\n\r\n",
        b"NATS/1.0 503\r\nNats-Msg-Id: s3\r\n\r\n",
    ];
    let (broker, bus, places) = planted(&blocks);
    let before = connection(&broker).id;
    let expected = ["before", "s0", "s1", "s2", "s3", "behind"].map(str::to_owned);
    assert_eq!(read_on(&bus), (expected.to_vec(), Vec::new()));
    assert_eq!((found(&bus, "s3"), found(&bus, "absent")), (Some(places[3]), None));
    assert_eq!(connection(&broker).id, before);
}
