//! One uid, one event of a topic.

use std::collections::BTreeSet;

use bytes::Bytes;
use latent_bridge::{BusError, PublishAck};
use latent_core::{Attributes, MediaType, NewRecord, Uid};
use serde_json::json;

use super::Engine;
use super::stored::stored;
use crate::support::fixtures::{manifest, record};

pub(crate) fn the_same_uid_again_is_the_first_acknowledgement_also_after_a_restart<E: Engine>() {
    let (named, plain) = (json!({ "metadata": { "uid": "named" } }), json!({ "n": 1 }));
    let engine = E::provision(&manifest(&[("t", 8)]));
    let first = engine.bus().publish("t", "agent-inst-1", &named).unwrap();
    let second = engine.bus().publish_idempotent("t", "session-abc", &plain, "plain").unwrap();
    assert!(!first.duplicate && !second.duplicate);
    let again = |engine: &E| {
        let bus = engine.bus();
        let duplicate = |ack: &PublishAck| Ok(PublishAck { duplicate: true, ..ack.clone() });
        assert_eq!(bus.publish("t", "agent-inst-1", &named), duplicate(&first));
        assert_eq!(bus.publish_idempotent("t", "agent-inst-1", &named, "named"), duplicate(&first));
        assert_eq!(bus.publish_idempotent("t", "session-abc", &plain, "plain"), duplicate(&second));
        assert!(matches!(bus.publish_idempotent("t", "session-abc", &named, "named"), Err(BusError::Conflict { .. })), "another key");
        assert_eq!(bus.find_event_by_uid("t", "session-abc", "plain"), Ok(Some(second.clone())));
        assert_eq!(stored(engine, "t").len(), 2);
    };
    again(&engine);
    let engine = engine.reopen();
    again(&engine);
    let third = engine.bus().publish_idempotent("t", "session-abc", &plain, "third").unwrap();
    assert!(third.offset > second.offset && !third.duplicate);
}

pub(crate) fn every_part_of_the_content_counts<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 8)]));
    let new = |key: &str, media_type: &str, attributes: &[(&str, &str)], payload: &'static str| {
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (media_type, attributes) = (MediaType::parse(media_type).unwrap(), Attributes::parse(attributes).unwrap());
        NewRecord::new(Some(Uid::parse("u").unwrap()), key, media_type, attributes, Bytes::from_static(payload.as_bytes())).unwrap()
    };
    let first = new("k", "text/plain", &[("A", "1")], "payload");
    let ack = engine.bus().publish_record("t", &first).unwrap();
    let others = [
        new("K", "text/plain", &[("A", "1")], "payload"),
        new("", "text/plain", &[("A", "1")], "payload"),
        new("k", "text/csv", &[("A", "1")], "payload"),
        new("k", "text/plain", &[], "payload"),
        new("k", "text/plain", &[("A", "2")], "payload"),
        new("k", "text/plain", &[("B", "1")], "payload"),
        new("k", "text/plain", &[("A", "1"), ("B", "1")], "payload"),
        new("k", "text/plain", &[("A", "1")], "Payload"),
        new("k", "text/plain", &[("A", "1")], ""),
    ];
    for other in others {
        let refused = engine.bus().publish_record("t", &other);
        assert_eq!(refused, Err(BusError::Conflict { topic: "t".to_owned(), uid: Uid::parse("u").unwrap() }), "{other:?}");
    }
    assert_eq!(engine.bus().publish_record("t", &first), Ok(PublishAck { duplicate: true, ..ack }));
    let stored = stored(&engine, "t");
    assert!(stored.len() == 1 && stored[0].record.same_content(&first));
}

pub(crate) fn a_uid_belongs_to_every_partition_of_its_topic_and_to_no_other_topic<E: Engine>() {
    let engine = E::provision(&manifest(&[("s", 8), ("t", 8)]));
    let bus = engine.bus();
    let keys: Vec<_> = (0..100).map(|n| format!("inst-{n}")).collect();
    bus.publish_record("t", &record("u", &keys[0], "x")).unwrap();
    for key in &keys[1..] {
        assert!(matches!(bus.publish_record("t", &record("u", key, "x")), Err(BusError::Conflict { .. })), "{key}");
    }
    let partitions: BTreeSet<_> =
        keys.iter().map(|key| bus.publish_record("s", &record(&format!("u-{key}"), key, "x")).unwrap().partition).collect();
    assert!(partitions.len() >= 6, "the keys reach most partitions");
    assert!(!bus.publish_record("s", &record("u", "other", "content")).unwrap().duplicate);
    assert_eq!((stored(&engine, "t").len(), stored(&engine, "s").len()), (1, 101));
}

pub(crate) fn what_was_refused_leaves_its_uid_free<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 4)]));
    let bus = engine.bus();
    let too_large = json!("x".repeat(524_288));
    assert!(matches!(bus.publish_idempotent("t", "k", &too_large, "u"), Err(BusError::Rejected { permanent: true, .. })));
    assert!(bus.publish_idempotent("t", "k", &json!({ "metadata": { "uid": "other" } }), "u").is_err());
    assert!(bus.publish_idempotent("nope", "k", &json!(1), "u").is_err());
    assert_eq!(bus.find_event_by_uid("t", "k", "u"), Ok(None));
    assert!(!bus.publish_idempotent("t", "another key", &json!(1), "u").unwrap().duplicate);
}
