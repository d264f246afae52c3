//! Reading and looking up beside what other programs left in the stream, and what the broker sees of it (B-059 to B-066).

use std::time::Duration;

use async_nats::jetstream::consumer;
use futures_util::TryStreamExt as _;
use latent_bridge::{BusError, EventBus, HeadContent};
use latent_core::{Offset, Partition};
use latent_testkit::require_broker;
use serde_json::json;

use crate::live::{STREAM, beside, connection, plant, record, spec, stored_in, with_topic};

const P0: Partition = Partition(0);

/// B-059: a lookup reads what came since the last one. B-060: of that the headers alone.
#[test]
fn a_warm_lookup_reads_what_came_since_the_last_one_and_no_bodies() {
    require_broker!();
    const OLD: u64 = 2_000;
    const BODY: usize = 4_096;
    let (broker, bus) = with_topic(spec(), 1);
    let publish = |from: u64, count: u64| {
        let records: Vec<_> = (from..from + count).map(|n| record(&format!("u{n}"), "k", vec![b'x'; BODY])).collect();
        assert!(bus.publish_batch("t", &records).iter().all(Result::is_ok));
    };
    let read_by = |uid: &str, found: bool| {
        let before = connection(&broker);
        assert_eq!(bus.find_event_by_uid("t", "k", uid).unwrap().is_some(), found, "{uid}");
        let after = connection(&broker);
        (after.messages_out - before.messages_out, after.bytes_out - before.bytes_out)
    };
    publish(0, OLD);
    let (messages, bytes) = read_by("absent", false);
    assert!(messages >= OLD && bytes < OLD * BODY as u64 / 4, "cold: {messages} messages of {bytes} bytes");
    publish(OLD, 10);
    for (uid, found) in [("absent", false), ("u2009", true), ("u7", true), ("absent-too", false)] {
        let (messages, _) = read_by(uid, found);
        assert!(messages < 10 + 20, "{uid}: {messages} messages");
    }
}

/// B-060, B-063, B-066: messages of other programs. A lookup passes them over; a read names them and can go on after them.
#[test]
fn a_foreign_message_blocks_no_lookup_and_is_named_by_reads_which_can_go_on_after_it() {
    require_broker!();
    let (broker, bus) = with_topic(spec(), 1);
    bus.publish_record("t", &record("first", "k", "x")).unwrap();
    let planted = beside(&broker, async |admin| {
        let body =
            json!({ "partition": 0, "offset": 0, "key": "k", "stored_at": 1, "value": { "metadata": { "uid": "inner" } } }).to_string();
        [
            plant(&admin, "t.p0", &[], "no JSON").await,
            plant(&admin, "t.p0", &[("Nats-Msg-Id", "broken")], "{").await,
            plant(&admin, "t.p0", &[], "").await,
            plant(&admin, "t.p0", &[], &body).await,
        ]
    });
    bus.publish_record("t", &record("last", "k", "x")).unwrap();
    let found = |uid: &str| bus.find_event_by_uid("t", "k", uid).unwrap().map(|ack| ack.offset);
    assert_eq!(["last", "first", "broken", "inner", "absent"].map(found), [Some(6), Some(1), Some(planted[1]), Some(planted[3]), None]);

    let unreadable = |offset| BusError::Unreadable { topic: "t".to_owned(), partition: 0, offset };
    assert_eq!(bus.fetch("t", 0, 0, 100), Err(unreadable(2)), "no list that is silently shorter");
    assert_eq!(bus.fetch("t", 0, 0, 1).unwrap().len(), 1, "what comes before it is had");
    let before: Vec<_> = bus.submit_fetch("t", P0, Offset(0), 100).wait().unwrap().into_iter().map(|stored| stored.offset.0).collect();
    assert_eq!(before, [1]);
    for damaged in &planted[..3] {
        assert_eq!(bus.submit_fetch("t", P0, Offset(*damaged), 100).wait(), Err(unreadable(*damaged)));
    }
    let after: Vec<_> = bus.fetch("t", 0, planted[2] + 1, 100).unwrap().into_iter().map(|event| (event.offset, event.uid)).collect();
    assert_eq!(after, [(5, "inner".to_owned()), (6, "last".to_owned())]);
    let heads = bus.submit_heads("t", P0, Offset(0), 100).wait().unwrap();
    let damaged: Vec<_> = heads.iter().filter(|head| head.content == HeadContent::Damaged).map(|head| head.offset.0).collect();
    assert_eq!((heads.len(), damaged.as_slice()), (6, &planted[..3]));
    assert_eq!(beside(&broker, async |admin| admin.count(STREAM).await), 6, "they stay as evidence");
}

/// B-064: what is wrong with a call is found without the broker.
#[test]
fn calls_that_ask_for_nothing_or_for_what_there_is_not_reach_no_broker() {
    require_broker!();
    let (broker, bus) = with_topic(spec(), 2);
    bus.publish_record("t", &record("u", "k", "x")).unwrap();
    let before = connection(&broker).messages_in;
    assert_eq!(bus.fetch("nope", 0, 0, 1), Err(BusError::UnknownTopic { topic: "nope".to_owned() }));
    let out_of_range = bus.fetch("t", 2, 0, 1).unwrap_err();
    assert!(out_of_range.is_permanent() && out_of_range.to_string().contains("partition 2 out of range"), "{out_of_range}");
    assert_eq!(bus.fetch("t", 1, 0, 0), Ok(Vec::new()));
    assert_eq!(bus.submit_fetch("t", P0, Offset(7), 0).wait(), Ok(Vec::new()));
    assert!(bus.find_event_by_uid("nope", "k", "u").is_err() && bus.find_event_by_uid("t", "k", "no uid").is_err());
    assert_eq!(connection(&broker).messages_in, before);
}

/// B-065: a reader's consumer is ephemeral, of the partition alone, in memory, and idle for 30 s at most; who reads on has the same one.
#[test]
fn a_reader_has_one_ephemeral_consumer_of_its_partition() {
    require_broker!();
    let (broker, bus) = with_topic(spec(), 2);
    for n in 0..20 {
        bus.publish_record("t", &record(&format!("u{n}"), &format!("k{n}"), "x")).unwrap();
    }
    let infos = || {
        beside(&broker, async |admin| {
            let stream = admin.jetstream().get_stream(STREAM).await.unwrap();
            stream.consumers().try_collect::<Vec<consumer::Info>>().await.unwrap()
        })
    };
    let mut next = Offset(0);
    let mut names = std::collections::BTreeSet::new();
    while let Some(last) = bus.submit_fetch("t", P0, next, 2).wait().unwrap().pop() {
        next = Offset(last.offset.0 + 1);
        names.extend(infos().into_iter().map(|info| info.name));
    }
    let infos = infos();
    assert_eq!((infos.len(), names.len()), (1, 1), "{infos:?}");
    let config = &infos[0].config;
    assert_eq!((config.filter_subject.as_str(), config.inactive_threshold), ("t.p0", Duration::from_secs(30)));
    assert_eq!((config.ack_policy, config.memory_storage), (consumer::AckPolicy::None, true));
    assert_eq!(config.durable_name, None);
}

/// As [`a_stream_made_anew_is_named_and_offsets_of_before_are_not_believed`], for those who did not notice it first.
#[test]
fn every_reader_that_holds_an_offset_of_before_is_told_and_no_other() {
    require_broker!();
    let (broker, bus) = with_topic(spec(), 4);
    for n in 0..100 {
        bus.publish_record("t", &record(&format!("old{n}"), &format!("k{n}"), "x")).unwrap();
    }
    // In each partition two readers at the end and one in the middle.
    let read = |partition: u32, from: u64, max: usize| bus.submit_fetch("t", Partition(partition), Offset(from), max).wait();
    let stand = |partition: u32, max: usize| read(partition, 0, max).unwrap().last().unwrap().offset.0 + 1;
    let readers: Vec<_> = (0..4).flat_map(|partition| [10, 1_000, 1_000].map(|max| (partition, stand(partition, max)))).collect();
    let heads = bus.submit_heads("t", P0, Offset(0), 3).wait().unwrap().pop().unwrap().offset.0 + 1;
    beside(&broker, async |admin| {
        let mut stream = admin.jetstream().get_stream(STREAM).await.unwrap();
        let config = stream.info().await.unwrap().config.clone();
        admin.delete_stream(STREAM).await;
        admin.jetstream().create_stream(config).await.unwrap();
    });
    // Whoever notices: here a lookup.
    let is_told = |error: BusError| assert!(matches!(&error, BusError::HistoryChanged { topic, .. } if topic == "t"), "{error:?}");
    is_told(bus.find_event_by_uid("t", "k", "old3").unwrap_err());
    for n in 0..200 {
        bus.publish_record("t", &record(&format!("new{n}"), &format!("k{n}"), "x")).unwrap();
    }
    for (partition, from) in readers {
        is_told(read(partition, from, 1_000).unwrap_err());
    }
    is_told(bus.submit_heads("t", P0, Offset(heads), 3).wait().unwrap_err());
    // From now on nobody is: each begins anew and reads on.
    let new: Vec<_> = (0..4).map(|partition| stored_in(&bus, Partition(partition)).len()).collect();
    assert_eq!(new.iter().sum::<usize>(), 200, "{new:?}");
}

/// A stream that was made anew, or brought back from a copy, is another history: it is named, once, and the bus goes on with it.
#[test]
fn a_stream_made_anew_is_named_and_offsets_of_before_are_not_believed() {
    require_broker!();
    let (broker, bus) = with_topic(spec(), 1);
    for n in 0..5 {
        bus.publish_record("t", &record(&format!("old{n}"), "k", "x")).unwrap();
    }
    assert!(bus.find_event_by_uid("t", "k", "old3").unwrap().is_some());
    beside(&broker, async |admin| {
        let mut stream = admin.jetstream().get_stream(STREAM).await.unwrap();
        let config = stream.info().await.unwrap().config.clone();
        admin.delete_stream(STREAM).await;
        admin.jetstream().create_stream(config).await.unwrap();
    });
    let told = bus.fetch("t", 0, 3, 10).unwrap_err();
    assert!(matches!(&told, BusError::HistoryChanged { topic, .. } if topic == "t") && !told.is_permanent(), "{told:?}");
    assert_eq!(bus.fetch("t", 0, 0, 10), Ok(Vec::new()));
    assert_eq!(bus.find_event_by_uid("t", "k", "old3"), Ok(None));
    let ack = bus.publish_record("t", &record("new", "k", "x")).unwrap();
    assert_eq!((ack.offset, bus.find_event_by_uid("t", "k", "new")), (1, Ok(Some(ack.clone()))));
}
