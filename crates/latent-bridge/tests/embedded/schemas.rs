//! Schemas of topics: found, kept, enforced and changed.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use latent_bridge::embedded::{EngineLimits, EngineOptions};
use latent_bridge::{BridgeManifest, BusError, EmbeddedBroker, EventBus, TopicSpec};
use latent_core::{Attributes, MediaType, NewRecord, Partition, Uid};
use serde_json::json;

use crate::support::fixtures::{manifest, options, quick, scratch};
use crate::support::storage::{Failing, TestStorage};

const SCHEMA: &str = r#"{"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}"#;

/// Topics `orders`, with a schema, and `free`, without.
fn with_schema(reference: &str) -> BridgeManifest {
    let mut wanted = manifest(&[("orders", 2), ("free", 1)]);
    wanted.topics[0].schema_ref = Some(reference.to_owned());
    wanted
}

/// A folder with a manifest's schema file, and a data directory that does not exist yet.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: scratch() };
        std::fs::create_dir(place.manifest_folder()).unwrap();
        std::fs::create_dir(place.manifest_folder().join("schemas")).unwrap();
        place.write(SCHEMA);
        place
    }

    fn manifest_folder(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    fn source(&self) -> PathBuf {
        self.manifest_folder().join("schemas/order.json")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn write(&self, schema: &str) {
        std::fs::write(self.source(), schema).unwrap();
    }

    fn options(&self) -> EngineOptions {
        quick(EngineLimits::default()).with_manifest_folder(&self.manifest_folder())
    }

    fn apply(&self, wanted: &BridgeManifest) -> Result<EmbeddedBroker, BusError> {
        EmbeddedBroker::open_or_apply_with(&self.data(), wanted, self.options())
    }

    fn provisioned() -> Self {
        let place = Self::new();
        drop(EmbeddedBroker::provision_with(&place.data(), &with_schema("schemas/order.json"), place.options()).unwrap());
        place
    }

    /// Names in the folder of copies.
    fn copies(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.data().join("schemas")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn copy(&self) -> PathBuf {
        self.data().join("schemas").join(self.copies().remove(0))
    }
}

fn config(result: Result<EmbeddedBroker, BusError>) -> String {
    match result.map(|_| ()) {
        Err(BusError::Config { problem }) => problem,
        other => panic!("{other:?}"),
    }
}

fn rule<T: std::fmt::Debug>(result: Result<T, BusError>) -> String {
    match result {
        Err(BusError::Rejected { rule, permanent: true }) => rule,
        other => panic!("{other:?}"),
    }
}

fn typed(uid: &str, media_type: &str, payload: &'static [u8]) -> NewRecord {
    let (uid, media_type) = (Uid::parse(uid).unwrap(), MediaType::parse(media_type).unwrap());
    NewRecord::new(Some(uid), "k", media_type, Attributes::default(), Bytes::from_static(payload)).unwrap()
}

/// Whether the schema in force is the first one: it wants an integer.
fn wants_an_integer(broker: &EmbeddedBroker) -> bool {
    broker.publish("orders", "k", &json!({ "id": "text" })).is_err()
}

#[test]
fn an_event_is_taken_when_it_fits_its_topics_schema() {
    let place = Place::provisioned();
    let broker = EmbeddedBroker::open(&place.data()).unwrap();
    assert!(broker.publish("orders", "k", &json!({ "id": 1, "more": [true] })).is_ok());
    assert!(broker.publish_record("orders", &typed("u", "application/vnd.x+json", b"{\"id\": 2}")).is_ok());
    for (value, violation) in
        [(json!({}), "the payload: \"id\" is a required property"), (json!({ "id": "x" }), "/id: \"x\" is not of type \"integer\"")]
    {
        let rule = rule(broker.publish("orders", "k", &value));
        assert!(rule.starts_with("event rejected by schema schemas/order.json: ") && rule.contains(violation), "{rule}");
    }
    assert!(rule(broker.publish_record("orders", &typed("v", "text/plain", b"{\"id\": 2}"))).contains("is not JSON"));
    assert!(rule(broker.publish_record("orders", &typed("v", "application/json", b"{"))).contains("cannot be read as JSON"));
}

#[test]
fn topics_without_a_schema_take_any_json_and_any_bytes() {
    let place = Place::provisioned();
    let broker = EmbeddedBroker::open(&place.data()).unwrap();
    for value in [json!(null), json!([]), json!({ "id": "x" })] {
        assert!(broker.publish("free", "k", &value).is_ok());
    }
    for (uid, media_type) in [("a", "application/octet-stream"), ("b", "application/json")] {
        assert!(broker.publish_record("free", &typed(uid, media_type, b"\xff{")).is_ok());
    }
}

#[test]
fn at_most_three_violations_are_told() {
    let place = Place::new();
    place.write(r#"{"items": {"type": "string"}}"#);
    let broker = place.apply(&with_schema("schemas/order.json")).unwrap();
    let rule = rule(broker.publish("orders", "k", &json!([1, 2, 3, 4, 5])));
    assert!(rule.matches("is not of type").count() == 3 && rule.ends_with("; and 2 more"), "{rule}");
}

#[test]
fn a_refused_event_leaves_nothing_and_its_uid_stays_free() {
    let place = Place::provisioned();
    let broker = EmbeddedBroker::open(&place.data()).unwrap();
    let bounds = |broker: &EmbeddedBroker| [0, 1].map(|partition| broker.bounds("orders", Partition(partition)).unwrap());
    let before = bounds(&broker);
    assert!(broker.publish_idempotent("orders", "k", &json!({ "id": "x" }), "uid-1").is_err());
    assert_eq!((bounds(&broker), broker.find_event_by_uid("orders", "k", "uid-1")), (before, Ok(None)));
    let ack = broker.publish_idempotent("orders", "k", &json!({ "id": 1 }), "uid-1").unwrap();
    assert_eq!((ack.offset, ack.duplicate), (0, false));
    let records = [
        typed("a", "application/json", b"{\"id\": 1}"),
        typed("b", "application/json", b"{}"),
        typed("c", "application/json", b"{\"id\": 3}"),
    ];
    let results = broker.publish_batch("orders", &records);
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true], "one refusal does not stop the others");
}

#[test]
fn a_schema_that_cannot_be_used_stops_provisioning_before_anything_is_created() {
    let place = Place::new();
    let pipe = |path: &Path| assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    type Broken<'b> = (&'b str, &'b dyn Fn(&Path));
    let broken: [Broken<'_>; 10] = [
        ("names no file", &|_| {}),
        ("is not a regular file", &|path| std::fs::create_dir(path).unwrap()),
        ("is not a regular file", &|path| pipe(path)),
        ("is not a regular file", &|path| symlink("/etc/hostname", path).unwrap()),
        ("is not JSON", &|path| std::fs::write(path, "{").unwrap()),
        ("/required: ", &|path| std::fs::write(path, r#"{"required": "id"}"#).unwrap()),
        ("/type: ", &|path| std::fs::write(path, r#"{"type": "strin"}"#).unwrap()),
        ("leaves the document", &|path| std::fs::write(path, r#"{"$ref": "http://127.0.0.1:1/x.json"}"#).unwrap()),
        ("at most 1048576", &|path| std::fs::write(path, format!("{{}}{}", " ".repeat(1_048_575))).unwrap()),
        ("without end", &|path| std::fs::write(path, r##"{"$ref": "#"}"##).unwrap()),
    ];
    let (wanted, source) = (with_schema("schemas/order.json"), place.source());
    for (problem, break_it) in broken {
        if source.is_dir() {
            std::fs::remove_dir(&source).unwrap()
        } else {
            std::fs::remove_file(&source).unwrap_or_default()
        }
        break_it(&source);
        let provisioned = EmbeddedBroker::provision_with(&place.data(), &wanted, place.options());
        for refused in [provisioned, place.apply(&wanted)] {
            let text = config(refused);
            assert!(text.contains("topic \"orders\"") && text.contains("\"schemas/order.json\"") && text.contains(problem), "{text}");
            assert!(!text.contains(place.folder.path().to_str().unwrap()), "{text}");
        }
        assert!(EmbeddedBroker::check_schemas(&wanted, &place.options()).is_err());
        assert!(!place.data().exists(), "{problem}");
    }
    std::fs::remove_file(&source).unwrap();
    place.write(SCHEMA);
    assert!(EmbeddedBroker::check_schemas(&wanted, &place.options()).is_ok());
    assert!(place.apply(&wanted).is_ok());
}

#[test]
fn a_file_of_exactly_the_largest_size_is_taken() {
    let place = Place::new();
    place.write(&format!("{SCHEMA}{}", " ".repeat(1_048_576 - SCHEMA.len())));
    assert!(place.apply(&with_schema("schemas/order.json")).is_ok());
    assert!(EmbeddedBroker::open(&place.data()).is_ok());
}

#[test]
fn a_copy_that_is_too_large_is_refused_by_name_and_not_read() {
    let place = Place::provisioned();
    let (copy, name) = (place.copy(), place.copies().remove(0));
    // The last is larger than memory: what answers at all has not read it whole.
    for (bytes, too_large) in [(1_048_575, false), (1_048_576, false), (1_048_577, true), (1 << 40, true)] {
        std::fs::OpenOptions::new().write(true).open(&copy).unwrap().set_len(bytes).unwrap();
        let text = config(EmbeddedBroker::open(&place.data()));
        let says_both = text.contains("at most 1048576") && text.contains(&bytes.to_string());
        assert!(text.contains(&name) && says_both == too_large && text.contains("digest") != too_large, "{bytes} bytes: {text}");
        assert_eq!(std::fs::metadata(&copy).unwrap().len(), bytes, "nothing was touched");
    }
    std::fs::write(&copy, SCHEMA).unwrap();
    assert!(EmbeddedBroker::open(&place.data()).is_ok());
}

#[test]
fn a_schema_is_looked_for_in_the_manifests_folder_then_in_the_next() {
    let place = Place::new();
    let working = place.folder.path().join("working");
    std::fs::create_dir(&working).unwrap();
    std::fs::write(working.join("order.json"), SCHEMA).unwrap();
    let in_order =
        |first: &Path| EngineOptions { schema_roots: vec![working.clone()], ..quick(EngineLimits::default()) }.with_manifest_folder(first);
    // Not in the manifest's folder, where `schemas` is a file on the way.
    std::fs::write(place.folder.path().join("order.json"), "true").unwrap();
    for (name, first, integer) in [
        ("a", place.manifest_folder(), true),
        ("b", place.folder.path().to_owned(), false),
        ("c", place.folder.path().join("order.json"), true),
    ] {
        let data = place.folder.path().join(name);
        let broker = EmbeddedBroker::provision_with(&data, &with_schema("order.json"), in_order(&first)).unwrap();
        assert_eq!(wants_an_integer(&broker), integer, "{name}");
    }
    assert_eq!(EngineOptions::default().schema_roots, [Path::new(".")], "alone, the working directory");
}

#[test]
fn the_directory_keeps_its_own_copy_and_needs_no_other() {
    let place = Place::provisioned();
    std::fs::remove_dir_all(place.manifest_folder()).unwrap();
    let broker = EmbeddedBroker::open(&place.data()).unwrap();
    assert!(wants_an_integer(&broker));
    drop(broker);
    let broker = place.apply(&with_schema("schemas/order.json")).unwrap();
    assert!(wants_an_integer(&broker), "a manifest that says the same keeps the copy");
    drop(broker);
    let refused = config(place.apply(&with_schema("schemas/other.json")));
    assert!(refused.contains("\"schemas/other.json\" names no file"), "{refused}");
    assert!(wants_an_integer(&EmbeddedBroker::open(&place.data()).unwrap()));
}

#[test]
fn a_missing_or_changed_copy_is_named_and_nothing_is_opened() {
    let place = Place::provisioned();
    let (copy, sound) = (place.copy(), std::fs::read(place.copy()).unwrap());
    let name = copy.file_name().unwrap().to_str().unwrap().to_owned();
    std::fs::remove_file(&copy).unwrap();
    for refused in [EmbeddedBroker::open(&place.data()), place.apply(&with_schema("schemas/order.json"))] {
        let text = config(refused);
        assert!(text.contains(&name) && text.contains("\"orders\"") && text.contains("missing"), "{text}");
    }
    for bit in 0..sound.len() * 8 {
        let mut flipped = sound.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&copy, flipped).unwrap();
        let text = config(EmbeddedBroker::open(&place.data()));
        assert!(text.contains(&name) && text.contains("digest does not fit"), "{text}");
    }
    std::fs::remove_file(&copy).unwrap();
    std::fs::create_dir(&copy).unwrap();
    assert!(config(EmbeddedBroker::open(&place.data())).contains("not a regular file"));
    std::fs::remove_dir(&copy).unwrap();
    // The copy is the file as it was: putting that back is enough.
    std::fs::copy(place.source(), &copy).unwrap();
    assert!(wants_an_integer(&EmbeddedBroker::open(&place.data()).unwrap()));
}

#[test]
fn a_changed_schema_file_is_applied_to_what_is_published_from_then_on() {
    let place = Place::new();
    let wanted = with_schema("schemas/order.json");
    let broker = place.apply(&wanted).unwrap();
    broker.publish("orders", "k", &json!({ "id": 1 })).unwrap();
    drop(broker);
    place.write(r#"{"properties": {"id": {"type": "string"}}}"#);
    assert!(wants_an_integer(&EmbeddedBroker::open(&place.data()).unwrap()), "opening alone changes nothing");
    let broker = place.apply(&wanted).unwrap();
    assert!(!wants_an_integer(&broker) && broker.publish("orders", "k", &json!({ "id": 1 })).is_err());
    let stored: Vec<_> = (0..2).flat_map(|partition| broker.fetch("orders", partition, 0, 10).unwrap()).map(|event| event.value).collect();
    assert_eq!(stored, [json!({ "id": 1 }), json!({ "id": "text" })], "what was stored earlier is not checked again");
    drop(broker);
    assert_eq!(place.copies().len(), 1, "the earlier copy is gone");
    assert!(!wants_an_integer(&EmbeddedBroker::open(&place.data()).unwrap()));
    place.write("{");
    assert!(config(place.apply(&wanted)).contains("not JSON"));
    assert!(!wants_an_integer(&EmbeddedBroker::open(&place.data()).unwrap()), "a broken file changes nothing");
}

#[test]
fn a_schema_can_be_added_to_a_topic_and_taken_away() {
    let place = Place::new();
    let without = manifest(&[("orders", 2), ("free", 1)]);
    let broker = place.apply(&without).unwrap();
    assert!(!wants_an_integer(&broker));
    drop(broker);
    assert!(wants_an_integer(&place.apply(&with_schema("schemas/order.json")).unwrap()));
    std::fs::write(place.data().join("schemas/notes.json"), "mine").unwrap();
    std::fs::write(place.data().join("schemas/orders.0123.json"), "mine").unwrap();
    assert!(!wants_an_integer(&place.apply(&without).unwrap()));
    assert_eq!(place.copies(), ["notes.json", "orders.0123.json"], "what has no copy's name belongs to others");
}

#[test]
fn whichever_write_fails_while_a_schema_changes_the_old_or_the_new_one_is_in_force() {
    let changed = r#"{"properties": {"id": {"type": "string"}}}"#;
    for call in 0.. {
        let place = Place::provisioned();
        place.write(changed);
        let storage = TestStorage::without_syncs();
        storage.fail(Failing::From(call));
        let faulty = options(&storage, EngineLimits::default()).with_manifest_folder(&place.manifest_folder());
        let applied = EmbeddedBroker::open_or_apply_with(&place.data(), &with_schema("schemas/order.json"), faulty).is_ok();
        let (failed, broker) = (storage.failed(), EmbeddedBroker::open(&place.data()).unwrap());
        assert!(!applied || !wants_an_integer(&broker), "call {call}");
        drop(broker);
        assert_eq!(place.copies().len(), 1, "call {call}: what is left over is removed at the next opening");
        if failed == 0 {
            assert!(applied && call > 5, "call {call}");
            return;
        }
    }
}

#[test]
fn whichever_write_fails_while_provisioning_it_can_be_done_again() {
    for call in 0.. {
        let place = Place::new();
        let storage = TestStorage::without_syncs();
        storage.fail(Failing::Only(call));
        let faulty = options(&storage, EngineLimits::default()).with_manifest_folder(&place.manifest_folder());
        drop(EmbeddedBroker::provision_with(&place.data(), &with_schema("schemas/order.json"), faulty));
        let failed = storage.failed();
        let broker = place.apply(&with_schema("schemas/order.json")).unwrap();
        assert!(wants_an_integer(&broker), "call {call}");
        if failed == 0 {
            assert!(call > 10, "call {call}");
            return;
        }
    }
}

#[test]
fn topics_share_a_file_or_have_their_own_and_names_with_dots_stay_apart() {
    let place = Place::new();
    std::fs::write(place.manifest_folder().join("any.json"), "true").unwrap();
    let topic =
        |name: &str, reference: &str| TopicSpec { schema_ref: Some(reference.to_owned()), ..manifest(&[(name, 1)]).topics.remove(0) };
    let mut wanted = manifest(&[("free", 1)]);
    wanted.topics.extend([topic("a", "schemas/order.json"), topic("a.b", "schemas/order.json"), topic("a.b.c", "any.json")]);
    drop(place.apply(&wanted).unwrap());
    let broker = EmbeddedBroker::open(&place.data()).unwrap();
    let takes: Vec<_> = ["a", "a.b", "a.b.c", "free"].iter().map(|name| broker.publish(name, "k", &json!({})).is_ok()).collect();
    assert_eq!((takes, place.copies().len(), broker.manifest()), (vec![false, false, true, true], 3, &wanted));
}
