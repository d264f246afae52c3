//! What maintenance publishes again is what was staged, byte for byte and with its first time, and only what the broker does not have (B-067,
//! D-18): also long after the broker forgot the ids of what it has.

use std::sync::Arc;

use latent_bridge::nats_bus::NatsOptions;
use latent_bridge::{EventBus, NatsBus};
use latent_core::{Attributes, MediaType, NewRecord, Uid, UnixMillis};
use latent_testkit::broker::StoredMessage;
use latent_testkit::proxy::{Direction, FaultProxy};
use latent_testkit::{ManualClock, require_broker, wait_until};

use crate::cold::{Site, archived};
use crate::cold_crash::scenes::stage;
use crate::live::{STREAM, beside, options_at, stored};

const THEN: u64 = 1_800_000_000_000;
const DAY: u64 = 24 * 3_600_000;

/// Options with a clock that stands.
fn at(options: NatsOptions, unix: u64) -> NatsOptions {
    NatsOptions { clock: Arc::new(ManualClock::starting_at(UnixMillis(unix))), ..options }
}

/// A JSON value in a form of its own, a value of bytes, and attributes whose order counts.
fn records() -> [NewRecord; 2] {
    let attributes = |pairs: &[(&str, &str)]| {
        Attributes::parse(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()).unwrap()
    };
    let json = r#"{"b":1.50, "a":"\u00e9 é",  "nested":{"z":null,"y":[1e3]}}"#;
    let (first, second) = (attributes(&[("Source", "shop"), ("Alpha", "2"), ("Zeta", "1")]), attributes(&[]));
    [
        NewRecord::new(Some(Uid::parse("u-json").unwrap()), "a key ü", MediaType::json(), first, json.into()).unwrap(),
        NewRecord::new(Some(Uid::parse("u-bytes").unwrap()), "other", MediaType::octet_stream(), second, vec![0, 255, 10].into()).unwrap(),
    ]
}

/// What lies on the broker, as far as a publisher made it: subject, headers and payload of each message.
fn raw(site: &Site) -> Vec<String> {
    let messages = beside(&site.broker, async |admin| admin.messages(STREAM).await);
    let of = |StoredMessage { subject, mut headers, payload, .. }: StoredMessage| {
        headers.sort();
        format!("{subject} {headers:?} {}", payload.escape_ascii())
    };
    let mut all: Vec<_> = messages.into_iter().map(of).collect();
    all.sort();
    all
}

#[test]
fn maintenance_publishes_an_event_as_it_was_staged_byte_for_byte_with_its_first_time() {
    require_broker!();
    // What it looks like when it is published at once.
    let twin = Site::start();
    let direct = NatsBus::provision_with(at(twin.options(), THEN), &archived(2)).unwrap();
    direct.publish_batch("t", &records()).into_iter().for_each(|ack| drop(ack.unwrap()));
    twin.uploaded();

    let site = Site::start();
    drop(site.bus());
    let proxy = FaultProxy::start(&site.broker);
    let options = NatsOptions { archive: site.options().archive, ..options_at(&[proxy.address()], site.broker.ca()) };
    let bus = NatsBus::open_with(at(options, THEN), &archived(2)).unwrap();
    proxy.withhold(Direction::ToBroker);
    let lost = records().map(|record| bus.submit_record("t", record));
    wait_until("both are staged", || site.intents() == 2);
    drop((bus, proxy));
    lost.into_iter().for_each(|lost| drop(lost.wait().unwrap_err()));
    assert_eq!(site.messages(), 0);

    // The next process's clock is a day on, and so is the duplicate window.
    site.forget_ids();
    beside(&site.broker, async |admin| admin.purge_stream(STREAM).await);
    let bus = NatsBus::provision_with(at(site.options(), THEN + DAY), &archived(2)).unwrap();
    let report = bus.maintain(UnixMillis(THEN + DAY)).unwrap();
    assert_eq!((report.intents_completed, report.intents_pending, report.intents_failed), (2, 0, 0), "{report:?}");
    assert_eq!(raw(&site), raw(&twin));
    let stored = stored(&bus);
    assert!(stored.iter().all(|stored| stored.record.stored_at == UnixMillis(THEN)));
    for record in records() {
        let found = stored.iter().find(|stored| Some(&stored.record.uid) == record.uid.as_ref()).unwrap();
        assert_eq!((&found.record.payload, &*found.record.key), (record.payload(), record.key()));
        // One object, the one that was made where nothing went wrong, but for the offset.
        let object = |site: &Site| {
            let named = |object: &[u8]| serde_json::from_slice::<serde_json::Value>(object).unwrap();
            let objects = site.store.objects();
            let mut of_uid = objects.iter().filter(|(path, _)| path.starts_with("t/")).map(|(_, object)| named(object));
            let mut one = of_uid.find(|object| object["uid"] == found.record.uid.as_str()).unwrap();
            one["offset"] = 0.into();
            one
        };
        assert_eq!(object(&site), object(&twin));
    }
    assert_eq!(bus.maintain(UnixMillis(THEN + 2 * DAY)).unwrap().intents_completed, 0);
    assert_eq!((site.messages(), site.objects()), (2, 2));
}

/// BUG-14: the broker's memory of ids is over for both.
#[test]
fn bug_14_maintenance_looks_up_first_and_after_the_duplicate_window_stores_one_record_of_each_event() {
    require_broker!();
    let site = Site::start();
    drop(site.bus());
    stage(&site, &archived(2), "kept", "absent");
    site.forget_ids();
    let bus = site.bus();
    let before = site.messages();
    let now = crate::cold::in_a_while();
    let report = bus.maintain(now).unwrap();
    assert_eq!((report.intents_completed, report.intents_pending, report.intents_failed), (2, 0, 0), "{report:?}");
    assert_eq!((site.messages(), site.objects()), (before + 1, 2), "of the kept one no second record");
    let found = |uid: &str| bus.find_event_by_uid("t", "k", uid).unwrap().unwrap().offset;
    assert_eq!(found("kept"), 1);
    assert_eq!(found("absent"), before + 1);
    assert_eq!((bus.maintain(now).unwrap().intents_completed, site.messages()), (0, before + 1));
}
