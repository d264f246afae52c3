//! What goes in comes out, and what must not go in does not.

use bytes::Bytes;
use latent_bridge::{BusError, HeadContent};
use latent_core::{Attributes, MediaType, NewRecord, Offset, Partition, Uid, partition_for};
use serde_json::json;

use super::Engine;
use super::stored::{page, stored};
use crate::support::fixtures::{manifest, record};

pub(crate) fn five_events_of_one_key_come_back_in_order<E: Engine>() {
    let engine = E::provision(&manifest(&[("other", 1), ("github.events", 8)]));
    let bus = engine.bus();
    assert_eq!(bus.topics(), ["github.events", "other"], "sorted");
    assert_eq!(bus.partitions("github.events"), Ok(8));
    let publish = |n: u64| {
        bus.publish("github.events", "session-abc", &json!("elsewhere")).unwrap();
        bus.publish_idempotent("github.events", "agent-inst-1", &json!({ "n": n }), &format!("probe-{n}")).unwrap()
    };
    let acks: Vec<_> = (0..5).map(publish).collect();
    assert!(acks.iter().all(|ack| ack.partition == 3 && !ack.duplicate && ack.topic == "github.events"));
    assert!(acks.is_sorted_by(|a, b| a.offset < b.offset));
    let all = bus.fetch("github.events", 3, acks[0].offset, 100).unwrap();
    assert_eq!(all.iter().map(|event| event.value["n"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert!(all.iter().zip(&acks).all(|(event, ack)| (event.offset, &event.uid) == (ack.offset, &ack.uid)));
    assert!(all.iter().all(|event| event.key == "agent-inst-1" && event.partition == 3), "the other partition's key does not leak");
    assert_eq!(bus.fetch("github.events", 3, acks[3].offset, 100).unwrap().len(), 2);
    let found = bus.find_event_by_uid("github.events", "agent-inst-1", "probe-2").unwrap().unwrap();
    assert_eq!((found.topic.as_str(), found.partition, found.offset, found.uid.as_str()), ("github.events", 3, acks[2].offset, "probe-2"));
    assert_eq!(bus.find_event_by_uid("github.events", "agent-inst-1", "no-such-uid"), Ok(None));
    assert_eq!(bus.find_event_by_uid("other", "agent-inst-1", "probe-2"), Ok(None));
    assert_eq!(bus.fetch("nope", 3, 0, 100), Err(BusError::UnknownTopic { topic: "nope".to_owned() }));
}

pub(crate) fn what_is_not_declared_is_unknown_and_nothing_is_created<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 1)]));
    let bus = engine.bus();
    let unknown = BusError::UnknownTopic { topic: "nope".to_owned() };
    assert!(unknown.to_string().contains("\"nope\"") && unknown.to_string().contains("manifest") && unknown.is_permanent());
    assert_eq!(bus.publish("nope", "k", &json!(1)), Err(unknown.clone()));
    assert_eq!(bus.publish_record("nope", &record("u", "k", "x")), Err(unknown.clone()));
    assert_eq!(bus.fetch("nope", 0, 0, 1), Err(unknown.clone()));
    assert_eq!(bus.partitions("nope"), Err(unknown.clone()));
    assert_eq!(bus.bounds("nope", Partition(0)), Err(unknown.clone()));
    assert_eq!(bus.submit_heads("nope", Partition(0), Offset(0), 1).wait(), Err(unknown.clone()));
    assert_eq!(bus.find_event_by_uid("nope", "k", "u"), Err(unknown.clone()));
    assert_eq!(bus.topics(), ["t"]);
    assert!(stored(&engine, "t").is_empty());
    let engine = engine.reopen();
    assert_eq!((engine.bus().topics(), engine.bus().partitions("nope")), (vec!["t".to_owned()], Err(unknown)));
}

pub(crate) fn keys_choose_their_pinned_partitions<E: Engine>() {
    let engine = E::provision(&manifest(&[("eight", 8), ("one", 1)]));
    for (key, partition) in [("agent-inst-1", 3), ("agent-inst-2", 6), ("session-abc", 2), ("", 5)] {
        assert_eq!(engine.bus().publish("eight", key, &json!(key)).unwrap().partition, partition, "{key:?}");
        assert_eq!(engine.bus().publish("one", key, &json!(key)).unwrap().partition, 0);
    }
}

pub(crate) fn bytes_attributes_and_media_type_come_back_as_published<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 1)]));
    let bus = engine.bus();
    let attributes = Attributes::parse(vec![("B".to_owned(), "x y:z".to_owned()), ("a".to_owned(), String::new())]).unwrap();
    let media_type = MediaType::parse("text/plain;charset=utf-8").unwrap();
    for payload in [Bytes::new(), Bytes::from_static(b"\0\r\n\xff"), Bytes::from(vec![7; 524_288])] {
        let new = NewRecord::new(None, "schlüssel", media_type.clone(), attributes.clone(), payload).unwrap();
        let ack = bus.publish_record("t", &new).unwrap();
        let stored = page(bus, "t", Partition(0), Offset(ack.offset), 1).remove(0);
        assert!(stored.record.same_content(&new) && stored.record.uid.as_str() == ack.uid);
        let heads = bus.submit_heads("t", Partition(0), Offset(ack.offset), 1).wait().unwrap();
        let expected = HeadContent::Readable { key: "schlüssel".to_owned(), payload_bytes: new.payload().len() as u64 };
        assert_eq!((heads[0].offset, &heads[0].content), (Offset(ack.offset), &expected));
    }
    let shown = bus.fetch("t", 0, 0, 2).unwrap().remove(1);
    assert_eq!(shown.value, json!({ "data_base64": "AA0K/w==" }));
    assert_eq!((shown.key.as_str(), shown.media_type.as_str()), ("schlüssel", "text/plain;charset=utf-8"));
    assert_eq!(shown.attributes, [("B".to_owned(), "x y:z".to_owned()), ("a".to_owned(), String::new())]);
}

pub(crate) fn the_uid_comes_from_metadata_or_is_minted<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 4)]));
    let bus = engine.bus();
    let named = bus.publish("t", "k", &json!({ "metadata": { "uid": "mine" } })).unwrap();
    assert_eq!(named.uid, "mine");
    let again = bus.publish("t", "k", &json!({ "metadata": { "uid": "mine" } })).unwrap();
    assert_eq!((again.offset, again.duplicate), (named.offset, true));
    for value in [json!({ "metadata": { "uid": 7 } }), json!({}), json!([1]), json!(null)] {
        let minted = bus.publish("t", "k", &value).unwrap();
        let shape: Vec<_> = minted.uid.split('-').map(str::len).collect();
        assert_eq!((shape, &minted.uid[14..15]), (vec![8, 4, 4, 4, 12], "7"), "{value}");
    }
}

pub(crate) fn the_uid_of_the_call_and_of_the_value_must_agree<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 1)]));
    let bus = engine.bus();
    let refused = bus.publish_idempotent("t", "k", &json!({ "metadata": { "uid": "a" } }), "b").unwrap_err();
    assert!(refused.is_permanent() && matches!(refused, BusError::Rejected { .. }), "{refused}");
    assert!(stored(&engine, "t").is_empty(), "nothing was appended");
    for value in [json!({ "metadata": { "uid": "b" } }), json!({ "n": 1 }), json!({ "metadata": { "uid": 3 } })] {
        let uid = if value["metadata"]["uid"] == "b" { "b".to_owned() } else { format!("c{value}").replace(' ', "") };
        assert_eq!(bus.publish_idempotent("t", "k", &value, &uid).unwrap().uid, uid);
    }
}

pub(crate) fn unfit_uids_and_payloads_are_refused_and_later_calls_work<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 1)]));
    let bus = engine.bus();
    let long = [257, 102_400].map(|bytes| "u".repeat(bytes));
    let control = (0..=0x20).chain([0x7f, 0x80, 0xe4]).map(|byte| format!("a{}b", char::from(byte)));
    for uid in ["", "a\nNats-Msg-Id: x", "\0", "😀"].map(str::to_owned).into_iter().chain(long).chain(control) {
        for refused in [
            bus.publish_idempotent("t", "k", &json!({}), &uid),
            bus.publish("t", "k", &json!({ "metadata": { "uid": uid } })),
            bus.find_event_by_uid("t", "k", &uid).map(|_| unreachable!("{uid:?} was looked up")),
        ] {
            assert!(matches!(refused, Err(BusError::Rejected { permanent: true, .. })), "{uid:?}: {refused:?}");
        }
    }
    let large = json!("x".repeat(524_287));
    assert!(matches!(bus.publish("t", "k", &large), Err(BusError::Rejected { permanent: true, .. })));
    assert!(matches!(bus.publish("t", &"k".repeat(1_025), &json!(1)), Err(BusError::Rejected { permanent: true, .. })));
    assert!(stored(&engine, "t").is_empty());
    assert!(bus.publish_idempotent("t", "k", &json!({}), &"u".repeat(256)).is_ok());
}

pub(crate) fn the_same_uid_with_other_content_is_a_conflict_in_any_partition<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 8), ("s", 8)]));
    let bus = engine.bus();
    let first = record("u", "agent-inst-1", "one");
    let ack = bus.publish_record("t", &first).unwrap();
    let conflict = BusError::Conflict { topic: "t".to_owned(), uid: Uid::parse("u").unwrap() };
    assert!(conflict.is_permanent());
    for other in [record("u", "agent-inst-1", "two"), record("u", "session-abc", "one"), record("u", "", "one")] {
        assert_eq!(bus.publish_record("t", &other), Err(conflict.clone()));
    }
    let media_type = MediaType::json();
    let other = NewRecord::new(first.uid.clone(), first.key(), media_type, first.attributes().clone(), first.payload().clone()).unwrap();
    assert_eq!(bus.publish_record("t", &other), Err(conflict));
    assert_eq!(bus.publish_record("t", &first).unwrap(), latent_bridge::PublishAck { duplicate: true, ..ack });
    assert!(!bus.publish_record("s", &record("u", "other", "content")).unwrap().duplicate, "a uid belongs to its topic");
}

pub(crate) fn ranges_are_bounded_and_partitions_checked<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 2)]));
    let bus = engine.bus();
    let key = (0..).map(|n| format!("k{n}")).find(|key| partition_for(key, 2) == Partition(1)).unwrap();
    (0..3).for_each(|n| drop(bus.publish("t", &key, &json!(n)).unwrap()));
    let offsets =
        |offset, max| bus.fetch("t", 1, offset, max).unwrap().iter().map(|event| event.value.as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(offsets(0, 100), [0, 1, 2]);
    assert_eq!(offsets(0, 2), [0, 1]);
    assert_eq!(offsets(0, usize::MAX), [0, 1, 2]);
    let (_, next) = bus.bounds("t", Partition(1)).unwrap();
    for (offset, max) in [(0, 0), (next.0, 10), (next.0 + 1, 10), (u64::MAX, 10), (u64::MAX, usize::MAX)] {
        assert!(bus.fetch("t", 1, offset, max).unwrap().is_empty(), "{offset} {max}");
        assert!(bus.submit_heads("t", Partition(1), Offset(offset), max).wait().unwrap().is_empty(), "{offset} {max}");
    }
    for partition in [2, u32::MAX] {
        let refused = bus.fetch("t", partition, 0, 1).unwrap_err();
        assert!(refused.to_string().contains(&format!("partition {partition} out of range")), "{refused}");
        assert!(refused.is_permanent());
        assert!(bus.bounds("t", Partition(partition)).is_err());
        assert!(bus.submit_heads("t", Partition(partition), Offset(0), 1).wait().is_err());
    }
}

pub(crate) fn uids_are_found_among_fifteen_hundred_records<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 1)]));
    let bus = engine.bus();
    let records: Vec<_> = (0..1_500).map(|n| record(&format!("uid-{n}"), "k", format!("{n}"))).collect();
    let acks = bus.publish_batch("t", &records);
    for index in [0, 1_023, 1_024, 1_400] {
        let ack = acks[index].as_ref().unwrap();
        let found = bus.find_event_by_uid("t", "k", &format!("uid-{index}")).unwrap().unwrap();
        assert_eq!((found.partition, found.offset), (ack.partition, ack.offset));
    }
    assert_eq!(bus.find_event_by_uid("t", "k", "uid-1500"), Ok(None));
}

pub(crate) fn a_batch_gives_one_result_for_each_record_in_order<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 4)]));
    let bus = engine.bus();
    let records: Vec<_> = (0..2_500)
        .map(|n| record(&format!("u{}", if n == 2_400 { 7 } else { n }), "k", format!("{}", if n == 9 { 7 } else { n })))
        .collect();
    let results = bus.publish_batch("t", &records);
    assert_eq!(results.len(), 2_500);
    for (n, result) in results.iter().enumerate() {
        match n {
            2_400 => assert!(matches!(result, Err(BusError::Conflict { .. })), "{result:?}"),
            _ => assert_eq!(result.as_ref().unwrap().uid, format!("u{n}")),
        }
    }
    assert!(bus.publish_batch("t", &[]).is_empty());
}
