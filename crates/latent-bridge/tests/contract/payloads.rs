//! Bytes first, JSON as a view.

use bytes::Bytes;
use latent_bridge::{BusError, EventBus, PublishAck};
use latent_core::{Attributes, MediaType, NewRecord, Offset, Partition};
use serde_json::{Value, json};

use super::Engine;
use super::stored::{page, stored};
use crate::support::fixtures::{manifest, record};

fn publish(bus: &dyn EventBus, media_type: &str, payload: Bytes) -> PublishAck {
    let media_type = MediaType::parse(media_type).unwrap();
    bus.publish_record("t", &NewRecord::new(None, "k", media_type, Attributes::default(), payload).unwrap()).unwrap()
}

/// The stored bytes and the value shown for them.
fn read(bus: &dyn EventBus, ack: &PublishAck) -> (Bytes, Value) {
    let stored = page(bus, "t", Partition(ack.partition), Offset(ack.offset), 1).remove(0);
    let shown = bus.fetch("t", ack.partition, ack.offset, 1).unwrap().remove(0);
    assert_eq!((stored.offset.0, shown.offset, stored.record.uid.as_str()), (ack.offset, ack.offset, shown.uid.as_str()));
    (stored.record.payload, shown.value)
}

pub(crate) fn a_payload_may_have_up_to_512_kibibytes<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 1)]));
    let bus = engine.bus();
    for bytes in [0, 1, 524_287, 524_288] {
        let payload = Bytes::from(vec![b'x'; bytes]);
        let ack = publish(bus, "application/octet-stream", payload.clone());
        assert_eq!(read(bus, &ack).0, payload, "{bytes}");
    }
    // A string's quotes count.
    let string = |bytes: usize| json!("x".repeat(bytes - 2));
    let ack = bus.publish("t", "k", &string(524_288)).unwrap();
    assert_eq!(read(bus, &ack).1, string(524_288));
    let refused = bus.publish("t", "k", &string(524_289)).unwrap_err();
    assert!(matches!(refused, BusError::Rejected { permanent: true, .. }) && refused.to_string().contains("524288"), "{refused}");
    assert!(NewRecord::new(None, "k", MediaType::octet_stream(), Attributes::default(), vec![0; 524_289].into()).is_err());
    assert_eq!(stored(&engine, "t").len(), 5);
}

pub(crate) fn a_key_is_any_text_up_to_1024_bytes<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 8)]));
    let bus = engine.bus();
    let longest = "k".repeat(1_024);
    for (n, key) in ["", " ", "schlüssel", "😀", "a\0b\r\nc", "a.p0", longest.as_str()].into_iter().enumerate() {
        let ack = bus.publish("t", key, &json!(n)).unwrap();
        let read = page(bus, "t", Partition(ack.partition), Offset(ack.offset), 1).remove(0);
        assert_eq!(read.record.key, key);
        assert_eq!(bus.find_event_by_uid("t", key, &ack.uid), Ok(Some(ack)));
    }
    assert!(matches!(bus.publish("t", &"k".repeat(1_025), &json!(1)), Err(BusError::Rejected { permanent: true, .. })));
}

pub(crate) fn json_is_shown_as_a_value_and_kept_as_it_was_written<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 1)]));
    let cases = [
        (r#" { "b" : 1,"a":[ ] } "#, json!({ "a": [], "b": 1 })),
        (r#"{"a":1,"a":2}"#, json!({ "a": 2 })),
        ("9007199254740993", json!(9_007_199_254_740_993_u64)),
        ("18446744073709551615", json!(u64::MAX)),
        ("-9223372036854775808", json!(i64::MIN)),
        // Beyond 64 bits the view rounds; the bytes do not.
        ("18446744073709551616", json!(18_446_744_073_709_551_616.0)),
        (r#""\u0061\ud83d\ude00""#, json!("a😀")),
        ("null", Value::Null),
    ];
    for media_type in ["application/json", "application/cloudevents+json;v=1"] {
        for (text, value) in &cases {
            let ack = publish(engine.bus(), media_type, Bytes::from_static(text.as_bytes()));
            assert_eq!(read(engine.bus(), &ack), (Bytes::from_static(text.as_bytes()), value.clone()), "{text}");
        }
    }
}

pub(crate) fn what_is_not_json_is_shown_as_base64_and_kept_byte_for_byte<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 1)]));
    let cases: [(&str, &'static [u8], &str); 7] = [
        ("application/octet-stream", b"{}", "e30="),
        ("text/plain", b"", ""),
        ("text/plain", b"\r\n\0", "DQoA"),
        ("application/json", b"", ""),
        ("application/json", b"{\"a\":", "eyJhIjo="),
        ("application/json", b"\xff\x00", "/wA="),
        ("application/json", b"1e400", "MWU0MDA="),
    ];
    for (media_type, payload, encoded) in cases {
        let ack = publish(engine.bus(), media_type, Bytes::from_static(payload));
        assert_eq!(read(engine.bus(), &ack), (Bytes::from_static(payload), json!({ "data_base64": encoded })), "{media_type}");
    }
}

pub(crate) fn values_come_back_with_every_integer_of_64_bits<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 1)]));
    let exact = (1_u64 << 53) - 1;
    let integers = json!([exact, exact + 1, exact + 2, i64::MIN, i64::MAX, u64::MAX]);
    for value in [integers, json!(0.1), json!(1e300), json!({ "": { "ä\n\0": [null, true, ""] } }), json!([]), json!("")] {
        let ack = engine.bus().publish("t", "k", &value).unwrap();
        assert_eq!(read(engine.bus(), &ack).1, value);
    }
}

pub(crate) fn the_json_form_has_every_part_of_the_record<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 8)]));
    let ack = engine.bus().publish_record("t", &record("u", "agent-inst-1", "x")).unwrap();
    let stored = stored(&engine, "t").remove(0);
    let shown = engine.bus().fetch("t", 3, 0, 1).unwrap().remove(0);
    let expected = json!({
        "partition": 3,
        "offset": ack.offset,
        "uid": "u",
        "key": "agent-inst-1",
        "stored_at": stored.record.stored_at.0,
        "media_type": "application/octet-stream",
        "attributes": [["Source", "test"]],
        "value": { "data_base64": "eA==" },
    });
    assert_eq!(serde_json::to_value(shown).unwrap(), expected);
}
