//! What becomes of a call: typed, one for each record, with its permanence.

use latent_bridge::{BusError, EventBus, PublishResult};
use latent_core::UnixMillis;
use serde_json::json;

use super::Engine;
use super::stored::stored;
use crate::support::fixtures::{manifest, record};

pub(crate) fn each_refusal_says_whether_the_same_call_can_ever_succeed<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 2)]));
    engine.bus().publish_record("t", &record("taken", "k", "x")).unwrap();
    type Call = fn(&dyn EventBus) -> BusError;
    let cases: [(Call, &str, &str); 9] = [
        (|bus| bus.publish("nope", "k", &json!(1)).unwrap_err(), "unknown-topic", "\"nope\""),
        (|bus| bus.find_event_by_uid("nope", "k", "u").unwrap_err(), "unknown-topic", "manifest"),
        (|bus| bus.publish_record("t", &record("taken", "k", "y")).unwrap_err(), "conflict", "taken"),
        (|bus| bus.publish_idempotent("t", "k", &json!(1), "a b").unwrap_err(), "rejected", "uid"),
        (|bus| bus.publish_idempotent("t", "k", &json!({ "metadata": { "uid": "a" } }), "b").unwrap_err(), "rejected", "\"b\""),
        (|bus| bus.publish("t", "k", &json!("x".repeat(600_000))).unwrap_err(), "rejected", "524288"),
        (|bus| bus.publish("t", &"k".repeat(1_025), &json!(1)).unwrap_err(), "rejected", "key"),
        (|bus| bus.fetch("t", 2, 0, 1).unwrap_err(), "out-of-range", "partition 2 out of range"),
        (|bus| bus.fetch("t", u32::MAX, u64::MAX, usize::MAX).unwrap_err(), "out-of-range", "partition 4294967295 out of range"),
    ];
    for (call, kind, text) in cases {
        let refused = call(engine.bus());
        assert!(refused.is_permanent() && !refused.is_uncertain(), "{refused:?}");
        assert_eq!(refused.kind(), kind, "{refused}");
        assert!(refused.to_string().contains(text), "{refused}");
        assert_eq!(call(engine.bus()), refused, "the same call is refused the same way");
    }
    assert_eq!(stored(&engine, "t").len(), 1);
}

pub(crate) fn a_batch_answers_each_record_whatever_becomes_of_the_others<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 4)]));
    let bus = engine.bus();
    let earlier = bus.publish_record("t", &record("earlier", "k", "x")).unwrap();
    let mut without_uid = record("given-up", "k", "x");
    without_uid.uid = None;
    let batch = [
        record("a", "k", "x"),
        record("earlier", "k", "x"),
        record("a", "k", "x"),
        record("a", "k", "y"),
        record("b", "other", "x"),
        record("earlier", "other", "x"),
        without_uid,
        record("c", "k", "x"),
    ];
    let outcomes = |results: Vec<PublishResult>| -> Vec<String> {
        let outcome = |result: PublishResult| match result {
            Ok(ack) if ack.duplicate => format!("{} again", ack.uid),
            Ok(ack) => ack.uid,
            Err(error) => error.kind().to_owned(),
        };
        results.into_iter().map(outcome).collect()
    };
    let results = bus.publish_batch("t", &batch);
    let acks: Vec<_> = results.iter().map(|result| result.as_ref().ok().cloned()).collect();
    let offset = |at: usize| acks[at].as_ref().unwrap().offset;
    assert_eq!((offset(1), offset(2)), (earlier.offset, offset(0)), "duplicates have the offset of the first");
    assert!(earlier.offset < offset(0) && offset(0) < offset(6) && offset(6) < offset(7), "of one key, in order");
    let minted = acks[6].as_ref().unwrap().uid.clone();
    assert_eq!(outcomes(results), ["a", "earlier again", "a again", "conflict", "b", "conflict", &minted, "c"]);
    assert_eq!(outcomes(bus.publish_batch("nope", &batch)), ["unknown-topic"; 8]);
    assert_eq!(stored(&engine, "t").len(), 5);
}

pub(crate) fn a_batch_of_more_bytes_than_may_be_in_flight_is_stored_whole<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 1)]));
    let payload = bytes::Bytes::from(vec![1; 524_288]);
    let batch: Vec<_> = (0..20).map(|n| record(&format!("u{n}"), "k", payload.clone())).collect();
    let results = engine.bus().publish_batch("t", &batch);
    assert!(results.iter().map(|result| result.as_ref().unwrap().uid.clone()).eq((0..20).map(|n| format!("u{n}"))));
    let stored = stored(&engine, "t");
    assert!(stored.len() == 20 && stored.iter().zip(&batch).all(|(stored, new)| stored.record.same_content(new)));
}

pub(crate) fn maintenance_with_a_time_in_the_past_expires_nothing<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 2)]));
    (0..20).for_each(|n| drop(engine.bus().publish("t", &format!("k{n}"), &json!(n)).unwrap()));
    let before = stored(&engine, "t");
    assert_eq!(engine.bus().maintenance(0), Ok(0));
    let report = engine.bus().maintain(UnixMillis(1)).unwrap();
    assert_eq!((report.expired_records, report.expired_segments, report.skipped_topics.len()), (0, 0, 0));
    assert_eq!(stored(&engine, "t"), before);
}
