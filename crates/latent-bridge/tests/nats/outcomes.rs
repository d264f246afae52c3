//! What becomes of one publication (B-054 to B-056): what is written, and what is said of it when it is not, or may not be.

use std::sync::Arc;

use latent_bridge::limits::CONNECTOR_OPERATION_MILLIS;
use latent_bridge::nats_bus::NatsOptions;
use latent_bridge::{BridgeManifest, BusError, EventBus, NatsBus, PublishAck, TopicSpec};
use latent_core::{Attributes, MediaType, NewRecord, Partition, Uid, UncertainCause, UnixMillis, partition_for};
use latent_testkit::broker::Broker;
use latent_testkit::proxy::{At, Direction, Fault, FaultProxy};
use latent_testkit::{ManualClock, require_broker, wait_until};
use serde_json::{Value, json};

use crate::live::{
    STREAM, acknowledged, beside, manifest, options, options_as, options_at, record, restricted, spec, spec_with, stored, with_topic,
};

/// B-054, B-055: the subject is the partition's, the id is the uid, the body is the stored event with its value as it was written.
#[test]
fn a_record_is_one_message_of_its_partitions_subject_and_its_offset_is_the_sequence() {
    require_broker!();
    let (broker, bus) = with_topic(spec(), 8);
    let attributes = Attributes::parse(vec![("Source".to_owned(), "test".to_owned())]).unwrap();
    let payload = r#"{"b":1, "a":[ 1.0 ]}"#;
    let uid = Some(Uid::parse("u").unwrap());
    let ack =
        bus.publish_record("t", &NewRecord::new(uid, "agent-inst-1", MediaType::json(), attributes, payload.into()).unwrap()).unwrap();
    let bytes = bus.publish_record("t", &record("v", "agent-inst-1", &b"\0\xff"[..])).unwrap();
    assert_eq!((ack.partition, ack.offset, ack.duplicate, bytes.offset), (3, 1, false, 2));
    let messages = beside(&broker, async |admin| admin.messages(STREAM).await);
    let header = |name: &str| messages[0].header(name);
    assert_eq!((messages[0].subject.as_str(), messages[0].sequence), ("t.p3", 1));
    assert_eq!((header("Nats-Msg-Id"), header("Nats-Expected-Stream")), (Some("u"), Some(STREAM)));
    assert_eq!(
        (header("Content-Type"), header("Lsf-Event-Key"), header("Lsf-Attr-Source")),
        (Some("application/json"), Some("agent-inst-1"), Some("test"))
    );
    let body = String::from_utf8(messages[0].payload.clone()).unwrap();
    assert!(body.contains(payload), "as it was written: {body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&body["partition"], &body["offset"], &body["key"]), (&json!(3), &json!(0), &json!("agent-inst-1")));
    assert!(body["stored_at"].as_u64().unwrap() > 1_700_000_000_000);
    let body: Value = serde_json::from_slice(&messages[1].payload).unwrap();
    assert_eq!(body["data_base64"], json!("AP8="));
}

/// B-054, B-025: the schema is looked at before anything is sent.
#[test]
fn what_the_schema_refuses_is_never_sent() {
    require_broker!();
    let broker = Broker::start(spec());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.json"), r#"{ "type": "object", "required": ["n"] }"#).unwrap();
    let topic = TopicSpec { schema_ref: Some("t.json".to_owned()), ..manifest(1).topics.remove(0) };
    let mut options = options(&broker);
    options.schema_roots = vec![folder.path().to_owned()];
    let bus = NatsBus::provision_with(options, &BridgeManifest { topics: vec![topic], ..manifest(1) }).unwrap();
    let refused = bus.publish("t", "k", &json!({ "m": 1 })).unwrap_err();
    assert!(refused.is_permanent() && refused.to_string().contains("schema"), "{refused}");
    assert!(bus.publish_record("t", &record("u", "k", "no JSON")).unwrap_err().is_permanent());
    assert_eq!(beside(&broker, async |admin| admin.count(STREAM).await), 0);
    bus.publish("t", "k", &json!({ "n": 1 })).unwrap();
}

/// B-055: what the broker says it did not store is refused; without a connection nothing is sent.
#[test]
fn a_refusal_says_whether_it_lasts_and_nothing_is_sent_to_a_broker_that_is_away() {
    require_broker!();
    let (broker, bus) = with_topic(spec(), 1);
    beside(&broker, async |admin| {
        let mut stream = admin.jetstream().get_stream(STREAM).await.unwrap();
        let config = async_nats::jetstream::stream::Config { max_message_size: 1_000, ..stream.info().await.unwrap().config.clone() };
        admin.jetstream().update_stream(config).await.unwrap();
    });
    let refused = bus.publish_record("t", &record("large", "k", vec![b'x'; 2_000])).unwrap_err();
    assert!(matches!(refused, BusError::Rejected { permanent: true, .. }), "{refused:?}");
    let first = bus.publish_record("t", &record("small", "k", "x")).unwrap();
    broker.stop();
    let away = bus.publish_record("t", &record("away", "k", "x")).unwrap_err();
    assert!(matches!(away, BusError::NotSent { .. } | BusError::Uncertain { .. }), "{away:?}");
    let away = bus.publish_record("t", &record("away", "k", "x")).unwrap_err();
    assert!(matches!(away, BusError::NotSent { .. }) && !away.is_permanent(), "{away:?}");
    broker.restart();
    acknowledged(&bus, &record("away", "k", "x"));
    assert_eq!(stored(&bus).iter().map(|stored| stored.record.uid.as_str()).collect::<Vec<_>>(), ["small", "away"]);
    beside(&broker, async |admin| admin.delete_stream(STREAM).await);
    let gone = bus.publish_record("t", &record("gone", "k", "x")).unwrap_err();
    assert!(matches!(gone, BusError::Rejected { permanent: false, .. }), "{gone:?}");
    assert_eq!(first.offset, 1);
}

/// B-055, B-056: an acknowledgement that is lost on its way leaves the publication uncertain, with its uid; the same uid again tells.
#[test]
fn a_lost_acknowledgement_is_uncertain_and_the_same_uid_again_finds_the_first_record() {
    require_broker!();
    let (broker, direct) = with_topic(spec(), 1);
    let proxy = FaultProxy::start(&broker);
    let clock = Arc::new(ManualClock::starting_at(UnixMillis(1_800_000_000_000)));
    let options = NatsOptions { clock: Arc::clone(&clock) as _, ..options_at(&[proxy.address()], broker.ca()) };
    let bus = NatsBus::open_with(options, &manifest(1)).unwrap();
    let cut = proxy.inject(None, Direction::ToClient, At::Before(b"{\"stream\":\"av_t\",\"seq\"".to_vec()), Fault::Cut);
    let event = record("u", "k", "x");
    let publication = bus.submit_record("t", event.clone());
    wait_until("its acknowledgement is lost", || cut.is_reached());
    clock.advance_millis(CONNECTOR_OPERATION_MILLIS.default);
    let uncertain = publication.wait().unwrap_err();
    assert!(matches!(&uncertain, BusError::Uncertain { uid, .. } if uid.as_str() == "u"), "{uncertain:?}");
    assert!(!uncertain.is_permanent());
    let stored = stored(&direct);
    assert_eq!(stored.len(), 1, "it was stored");
    let again = PublishAck { topic: "t".to_owned(), partition: 0, offset: stored[0].offset.0, uid: "u".to_owned(), duplicate: true };
    assert_eq!(acknowledged(&bus, &event), again);
}

/// D-25, B-056: the broker's memory of ids outlives what it is about. A removed record is never acknowledged again.
#[test]
fn a_uid_whose_record_was_removed_stays_taken_and_is_not_acknowledged() {
    require_broker!();
    let (broker, bus) = with_topic(spec(), 1);
    let acks = ["deleted", "purged"].map(|uid| bus.publish_record("t", &record(uid, "k", "x")).unwrap());
    let held = |uid: &str| {
        let refused = bus.publish_record("t", &record(uid, "k", "x")).unwrap_err();
        assert!(matches!(refused, BusError::Rejected { permanent: false, .. }), "{refused:?}");
        assert!(refused.to_string().contains("id still held by the broker"), "{refused}");
        assert_eq!(bus.find_event_by_uid("t", "k", uid), Ok(None));
    };
    beside(&broker, async |admin| {
        admin.jetstream().get_stream(STREAM).await.unwrap().delete_message(acks[0].offset).await.unwrap();
    });
    held("deleted");
    beside(&broker, async |admin| admin.purge_stream(STREAM).await);
    ["deleted", "purged"].into_iter().for_each(held);
    assert!(stored(&bus).is_empty());
    assert_eq!(bus.publish_record("t", &record("new", "k", "x")).unwrap().offset, 3);
}

/// B-056: a hit that cannot be read is neither believed nor denied.
#[test]
fn a_duplicate_that_cannot_be_read_is_uncertain() {
    require_broker!();
    let (broker, bus) = with_topic(spec_with(restricted("blind", &["t.>", "$JS.API.STREAM.INFO.>"])), 1);
    let event = record("u", "k", "x");
    bus.publish_record("t", &event).unwrap();
    let blind = NatsBus::open_with(options_as(&broker, "blind"), &manifest(1)).unwrap();
    let uncertain = blind.publish_record("t", &event).unwrap_err();
    assert!(matches!(&uncertain, BusError::Uncertain { uid, .. } if uid.as_str() == "u"), "{uncertain:?}");
    assert!(blind.publish_record("t", &record("v", "k", "x")).is_ok());
    assert_eq!(bus.bounds("t", Partition(0)).unwrap().1.0, 3);
}

/// More refusals at once than the client tells of: what was not told is uncertain soon, nothing waits for its whole time, and nothing more
/// is handed over to a subject while it is refused. The other partition is not concerned.
#[test]
fn more_refusals_than_the_client_tells_of_leave_nothing_to_wait_for() {
    require_broker!();
    let user = restricted("half", &["t.p1", "$JS.API.STREAM.INFO.>", "$JS.API.STREAM.MSG.GET.>"]);
    let (broker, whole) = with_topic(spec_with(user), 2);
    let half = NatsBus::open_with(options_as(&broker, "half"), &manifest(2)).unwrap();
    let key_of = |partition| (0..).map(|n| format!("key-{n}")).find(|key| partition_for(key, 2) == Partition(partition)).unwrap();
    let (refused_key, key) = (key_of(0), key_of(1));
    let tickets: Vec<_> = (0..1_000).map(|n| half.submit_record("t", record(&format!("u{n}"), &refused_key, "x"))).collect();
    let other = half.publish_record("t", &record("other", &key, "x")).unwrap();
    let mut certain = 0;
    for ticket in tickets {
        match ticket.wait().unwrap_err() {
            BusError::Rejected { permanent: false, rule } => {
                assert!(rule.contains("may not publish to partition 0"), "{rule}");
                certain += 1;
            }
            BusError::Uncertain { cause, .. } => assert_eq!(cause, UncertainCause::Unusable, "not by its deadline"),
            error => panic!("{error}"),
        }
    }
    println!("{certain} of 1000 are certainly refused");
    // When all have ended the subject is tried again, and few refusals are told in full.
    for n in 0..3 {
        let refused = half.publish_record("t", &record(&format!("v{n}"), &refused_key, "x")).unwrap_err();
        assert!(matches!(refused, BusError::Rejected { permanent: false, .. }), "{refused:?}");
    }
    assert_eq!(stored(&whole).into_iter().map(|stored| stored.offset.0).collect::<Vec<_>>(), [other.offset]);
}
