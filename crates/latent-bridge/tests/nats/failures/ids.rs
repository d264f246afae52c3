//! Ids and the broker's memory of them.

use latent_bridge::{BusError, EventBus, NatsBus, PublishAck};
use latent_core::limits::MEDIA_TYPE_BYTES;
use latent_core::{Attributes, MediaType, NewRecord, Offset, Partition, Uid};
use latent_testkit::broker::Admin;
use latent_testkit::require_broker;
use serde_json::json;
use std::time::Duration;

use crate::live::{STREAM, acknowledged, beside, manifest, options, plant, record, spec, stored_in, with_topic};

/// Lets the broker's memory of ids be this long from now on.
async fn set_window(admin: &Admin, window: Duration) {
    let mut stream = admin.jetstream().get_stream(STREAM).await.unwrap();
    let mut config = stream.info().await.unwrap().config.clone();
    config.duplicate_window = window;
    admin.jetstream().update_stream(config).await.unwrap();
}

/// Waits until the broker has forgotten every id that it had when this was called.
async fn forgotten(admin: &Admin) {
    // The one that is planted now is forgotten after all earlier ones.
    let headers = [("Nats-Msg-Id", "probe")];
    let first = plant(admin, "t.p0", &headers, &body("probe")).await;
    while plant(admin, "t.p0", &headers, &body("probe")).await == first {}
}

/// A body as the bus would write it.
fn body(uid: &str) -> String {
    json!({ "partition": 0, "offset": 0, "key": "k", "stored_at": 1, "value": { "metadata": { "uid": uid } } }).to_string()
}

/// BUG-14, the half about the bus, without an archive. Inside the window, also over a restart of the broker, a uid is the first
/// acknowledgement; after it a second record is possible, and the first one is what is found every time.
#[test]
fn bug_14_a_uid_is_known_inside_the_window_and_found_at_its_first_place_ever_after() {
    require_broker!();
    let (broker, bus) = with_topic(spec(), 1);
    let event = record("u", "k", "x");
    let first = bus.publish_record("t", &event).unwrap();
    let again = PublishAck { duplicate: true, ..first.clone() };
    assert_eq!(bus.publish_record("t", &event), Ok(again.clone()));
    broker.restart();
    assert_eq!(acknowledged(&bus, &event), again, "the broker knows the ids of what it stored");
    let window = Duration::from_secs(30 * 24 * 3_600);
    beside(&broker, async |admin| set_window(&admin, Duration::from_secs(1)).await);
    // The timer that forgets ids may still run for the old window; a restart begins anew.
    broker.restart();
    beside(&broker, async |admin| forgotten(&admin).await);
    let late = acknowledged(&bus, &event);
    assert!(late.offset > first.offset && !late.duplicate, "after the window it is stored again: {late:?}");
    beside(&broker, async |admin| set_window(&admin, window).await);
    let fresh = NatsBus::open_with(options(&broker), &manifest(1)).unwrap();
    for bus in [&bus, &fresh, &bus, &fresh] {
        assert_eq!(bus.find_event_by_uid("t", "k", "u"), Ok(Some(first.clone())), "the lowest sequence, every time");
    }
}

/// BUG-20, the half about the bus: an unfit uid is refused before anything reaches the broker, nothing dies of it, and what is legal comes
/// back as it was given.
#[test]
fn bug_20_an_unfit_uid_reaches_nobody_and_what_is_legal_comes_back_byte_for_byte() {
    require_broker!();
    let (broker, bus) = with_topic(spec(), 1);
    let seen = beside(&broker, async |admin| admin.connections().iter().map(|connection| connection.id).collect::<Vec<_>>());
    let huge = "u".repeat(100 * 1_024);
    for uid in ["a\rb", "a\nb", "a\r\nNats-Msg-Id: forged", "a\0b", "😀", "", &huge] {
        let answers = [bus.publish_idempotent("t", "k", &json!({}), uid), bus.publish("t", "k", &json!({ "metadata": { "uid": uid } }))];
        for answer in answers {
            assert!(matches!(answer, Err(BusError::Rejected { permanent: true, .. })), "{uid:.20?}: {answer:?}");
        }
    }
    assert!(bus.statistics().unwrap().iter().all(|topic| topic.partitions.iter().all(|partition| partition.records == 0)));
    for media_type in ["", "a\rb/c", "text/plain\nX: y", "text/plain\r\nNats-Msg-Id: forged", "text/plain\0", "téxt/plain"] {
        assert!(MediaType::parse(media_type).is_err(), "{media_type:?} makes no record");
    }
    let attributes = [("a", "with: colon"), ("B", "in  ner"), ("c-1", ""), ("d", "~!@#$%^&*()")];
    let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let longest = format!("text/{}", "x".repeat(MEDIA_TYPE_BYTES.default_usize() - "text/".len()));
    assert!(MediaType::parse(&format!("{longest}x")).is_err());
    let media_types = ["text/plain;charset=\"utf-8\"", "application/vnd.a+json;v=1", &longest].map(MediaType::parse);
    for (n, media_type) in media_types.into_iter().enumerate() {
        let (uid, media_type) = (format!("m{n}"), media_type.unwrap());
        let event = NewRecord::new(Some(Uid::parse(&uid).unwrap()), "k", media_type.clone(), Attributes::default(), "1".into()).unwrap();
        let ack = bus.publish_record("t", &event).unwrap();
        let read = bus.submit_fetch("t", Partition(0), Offset(ack.offset), 1).wait().unwrap().remove(0).record;
        assert!(read.media_type == media_type && read.same_content(&event), "{read:?}");
    }
    beside(&broker, async |admin| admin.purge_stream(STREAM).await);
    let media_type = MediaType::parse("text/plain").unwrap();
    let key = "\r\nNats-Msg-Id: forged\r\n\0 schlüssel 😀";
    let uid = Some(Uid::parse("legal").unwrap());
    let event = NewRecord::new(uid, key, media_type, Attributes::parse(attributes).unwrap(), "x".into()).unwrap();
    bus.publish_record("t", &event).unwrap();
    let read = stored_in(&bus, Partition(0)).remove(0).record;
    assert!(read.same_content(&event) && read.key == key && read.uid.as_str() == "legal", "{read:?}");
    let (messages, connections) = beside(&broker, async |admin| {
        (admin.messages(STREAM).await, admin.connections().iter().map(|connection| connection.id).collect::<Vec<_>>())
    });
    assert_eq!(
        (messages.len(), messages[0].header("Nats-Msg-Id"), messages[0].header("Lsf-Attr-a")),
        (1, Some("legal"), Some("with: colon"))
    );
    assert_eq!(messages[0].header("Lsf-Event-Key"), None, "a key that is no header text stands in the body alone");
    assert_eq!(connections, seen, "the connection is the first one still");
}

/// BUG-22, the half about the bus. The rule for planted headers: of several ids the first one counts, as for the broker; a header of another
/// case or with more before it is no id, and then the body's `metadata.uid` counts. B-060.
#[test]
fn bug_22_only_the_first_header_of_exactly_that_name_is_an_id() {
    require_broker!();
    let (broker, bus) = with_topic(spec(), 1);
    let planted = beside(&broker, async |admin| {
        let cases: [&[(&str, &str)]; 5] = [
            &[("nats-msg-id", "lower"), ("Other", "x")],
            &[("X-Nats-Msg-Id", "suffix")],
            &[("Nats-Msg-Id", "first"), ("Nats-Msg-Id", "second")],
            &[("Nats-Msg-Id", "upper"), ("nats-msg-id", "both")],
            &[],
        ];
        let mut sequences = Vec::new();
        for (n, headers) in cases.into_iter().enumerate() {
            sequences.push(plant(&admin, "t.p0", headers, &body(&format!("inner-{n}"))).await);
        }
        sequences
    });
    let known = [("inner-0", 0), ("inner-1", 1), ("first", 2), ("upper", 3), ("inner-4", 4)];
    let found = |uid: &str| bus.find_event_by_uid("t", "k", uid).unwrap().map(|ack| ack.offset);
    for (uid, at) in known {
        assert_eq!(found(uid), Some(planted[at]), "{uid}");
    }
    for uid in ["lower", "suffix", "second", "both", "inner-2", "inner-3"] {
        assert_eq!(found(uid), None, "{uid}");
    }
    let read: Vec<_> = stored_in(&bus, Partition(0)).into_iter().map(|stored| stored.record.uid.as_str().to_owned()).collect();
    assert_eq!(read, known.map(|(uid, _)| uid), "reading and looking up agree");
    // Of what the bus writes itself there is one of each, and names of attributes are its own.
    let attributes = ["Nats-Msg-Id", "X-Nats-Msg-Id", "Nats-Expected-Stream"].map(|name| (name.to_owned(), "theirs".to_owned()));
    let event = NewRecord::new(
        Some(Uid::parse("ours").unwrap()),
        "k",
        MediaType::octet_stream(),
        Attributes::parse(attributes.to_vec()).unwrap(),
        "x".into(),
    );
    bus.publish_record("t", &event.unwrap()).unwrap();
    let written = beside(&broker, async |admin| admin.messages(STREAM).await.pop().unwrap());
    let values =
        |name: &str| written.headers.iter().filter(|(header, _)| header == name).map(|(_, value)| value.clone()).collect::<Vec<_>>();
    assert_eq!((values("Nats-Msg-Id"), values("Nats-Expected-Stream")), (vec!["ours".to_owned()], vec![STREAM.to_owned()]));
    assert_eq!(values("Lsf-Attr-Nats-Msg-Id"), ["theirs"]);
    // Two that differ in case alone are refused, and where another program wrote both neither is merged into the other.
    let pair = |a: &str, b: &str| Attributes::parse(vec![(a.to_owned(), "1".to_owned()), (b.to_owned(), "2".to_owned())]);
    assert!(pair("a", "A").is_err() && pair("Aa", "aA").is_err() && pair("a", "b").is_ok());
    let both = [("Nats-Msg-Id", "cases"), ("Lsf-Attr-a", "1"), ("Lsf-Attr-A", "2")];
    let place = beside(&broker, async |admin| plant(&admin, "t.p0", &both, &body("cases")).await);
    let read = bus.submit_fetch("t", Partition(0), Offset(place), 1).wait();
    assert_eq!(read, Err(BusError::Unreadable { topic: "t".to_owned(), partition: 0, offset: place }));
    assert_eq!(found("cases"), Some(place));
}
