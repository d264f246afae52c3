//! What provisioning makes, changes, leaves alone and refuses on a broker (B-050 to B-053), and what opening says of it.

use std::time::Duration;

use latent_bridge::nats_bus::PlannedAction;
use latent_bridge::{BridgeManifest, BusError, EventBus, NatsBus, RetentionSpec, TopicSpec};
use latent_testkit::broker::{Admin, Broker};
use latent_testkit::proxy::{At, Direction, Fault, FaultProxy};
use latent_testkit::{require_broker, wait_until};
use serde_json::{Map, Value, json};

use crate::live::{beside, options, record, spec};

const HOUR: u64 = 3_600_000_000_000;

fn topic(name: &str, partitions: u32) -> TopicSpec {
    let retention = RetentionSpec { hot_hours: 5, dedup_hours: Some(2), ..RetentionSpec::default() };
    TopicSpec { name: name.to_owned(), partitions, retention, schema_ref: None }
}

fn manifest<const N: usize>(topics: [TopicSpec; N]) -> BridgeManifest {
    BridgeManifest { manifest_version: 1, name: "test".to_owned(), replication_factor: 1, topics: topics.into() }
}

fn provision(broker: &Broker, manifest: &BridgeManifest) -> Result<NatsBus, BusError> {
    NatsBus::provision_with(options(broker), manifest)
}

fn plan(broker: &Broker, manifest: &BridgeManifest) -> latent_bridge::nats_bus::Plan {
    NatsBus::plan(options(broker), manifest).unwrap()
}

/// The text of a permanent refusal.
fn refused(result: Result<NatsBus, BusError>) -> String {
    match result.map(drop).unwrap_err() {
        BusError::Config { problem } => problem,
        other => panic!("{other:?}"),
    }
}

async fn ask(admin: &Admin, subject: &str, request: &Value) -> Value {
    let reply = admin.client().request(format!("$JS.API.{subject}"), request.to_string().into()).await.unwrap();
    serde_json::from_slice(&reply.payload).unwrap()
}

async fn create(admin: &Admin, config: &Value) {
    let reply = ask(admin, &format!("STREAM.CREATE.{}", config["name"].as_str().unwrap()), config).await;
    assert!(reply.get("error").is_none(), "{reply}");
}

/// The configuration of a stream, without what the broker says of itself there.
async fn config_of(admin: &Admin, stream: &str) -> Map<String, Value> {
    let mut reply = ask(admin, &format!("STREAM.INFO.{stream}"), &json!({})).await;
    let Value::Object(mut config) = reply["config"].take() else { panic!("{reply}") };
    if let Some(Value::Object(metadata)) = config.get_mut("metadata") {
        metadata.retain(|name, _| !name.starts_with("_nats."));
        if metadata.is_empty() {
            config.remove("metadata");
        }
    }
    config
}

fn config(broker: &Broker, stream: &str) -> Map<String, Value> {
    beside(broker, async |admin| config_of(&admin, stream).await)
}

async fn streams(admin: &Admin) -> Vec<String> {
    let reply = ask(admin, "STREAM.NAMES", &json!({})).await;
    serde_json::from_value(reply["streams"].clone()).unwrap_or_default()
}

/// The replicas of the topic `a` that have everything, its leader among them. 0: there is no leader.
async fn current_replicas(admin: &Admin) -> u64 {
    let reply = ask(admin, "STREAM.INFO.av_a", &json!({})).await;
    let followers = reply["cluster"]["replicas"].as_array().into_iter().flatten();
    let current = followers.filter(|replica| replica["current"] == true).count();
    if reply["cluster"]["leader"].is_string() { 1 + u64::try_from(current).unwrap() } else { 0 }
}

/// Runs `act` and gives the subjects of all requests to the JetStream API meanwhile that are more than looking.
fn writes_during(broker: &Broker, act: impl FnOnce()) -> Vec<String> {
    use futures_util::StreamExt;
    beside(broker, async |admin| {
        let mut advisories = admin.client().subscribe("$JS.EVENT.ADVISORY.API").await.unwrap();
        admin.client().flush().await.unwrap();
        act();
        let end = "STREAM.INFO.end_of_this_test";
        ask(&admin, end, &json!({})).await;
        let mut subjects = Vec::new();
        loop {
            let advisory = tokio::time::timeout(Duration::from_secs(60), advisories.next()).await.unwrap().unwrap();
            let advisory: Value = serde_json::from_slice(&advisory.payload).unwrap();
            let subject = advisory["subject"].as_str().unwrap().trim_start_matches("$JS.API.").to_owned();
            if subject == end {
                return subjects;
            }
            if subject.starts_with("STREAM.")
                && !["STREAM.INFO.", "STREAM.NAMES", "STREAM.MSG.GET."].iter().any(|read| subject.starts_with(read))
            {
                subjects.push(subject);
            }
        }
    })
}

/// B-050, B-051.
#[test]
fn each_topic_gets_one_stream_with_the_manifests_settings_and_the_brokers_defaults() {
    require_broker!();
    let broker = Broker::start(spec());
    let keeps_ids_as_long_as_records =
        TopicSpec { retention: RetentionSpec { hot_hours: 720, ..RetentionSpec::default() }, ..topic("c", 1) };
    let bus = provision(&broker, &manifest([topic("a.b", 3), keeps_ids_as_long_as_records])).unwrap();
    assert_eq!((bus.topics(), bus.partitions("a.b").unwrap()), (vec!["a.b".to_owned(), "c".to_owned()], 3));
    let (made, other, plain) = beside(&broker, async |admin| {
        create(&admin, &json!({ "name": "PLAIN", "subjects": ["plain"] })).await;
        (config_of(&admin, "av_a_b").await, config_of(&admin, "av_c").await, config_of(&admin, "PLAIN").await)
    });
    let owned = json!({
        "name": "av_a_b", "subjects": ["a.b.p0", "a.b.p1", "a.b.p2"], "max_age": 5 * HOUR, "duplicate_window": 2 * HOUR, "num_replicas": 1,
        "storage": "file", "allow_direct": true,
    });
    let mut expected = plain;
    expected.extend(owned.as_object().unwrap().clone());
    assert_eq!(made, expected);
    assert_eq!(
        (&other["subjects"], &other["max_age"], &other["duplicate_window"]),
        (&json!(["c.p0"]), &json!(720 * HOUR), &json!(720 * HOUR))
    );
}

/// B-053.
#[test]
fn provisioning_again_writes_nothing_and_keeps_messages() {
    require_broker!();
    let broker = Broker::start(spec());
    let manifest = manifest([topic("a", 2), topic("b", 1)]);
    let first = writes_during(&broker, || drop(provision(&broker, &manifest).unwrap()));
    assert_eq!(first, ["STREAM.CREATE.av_a", "STREAM.CREATE.av_b"]);
    let bus = provision(&broker, &manifest).unwrap();
    bus.publish_record("a", &record("u-1", "k", "x")).unwrap();
    let again = writes_during(&broker, || drop(provision(&broker, &manifest).unwrap()));
    assert_eq!(again, Vec::<String>::new());
    assert!(plan(&broker, &manifest).topics.iter().all(|topic| topic.action == PlannedAction::Keep));
    let messages = beside(&broker, async |admin| admin.messages("av_a").await);
    assert_eq!(messages.iter().map(|message| message.header("Nats-Msg-Id")).collect::<Vec<_>>(), [Some("u-1")]);
}

/// BUG-46: a stream that is there with other settings, most of which nobody here knows.
#[test]
fn a_stream_made_by_somebody_else_gets_the_manifests_settings_and_loses_none_of_its_own() {
    require_broker!();
    let broker = Broker::start(spec());
    let foreign = json!({
        "discard": "new", "max_bytes": 50_000_000, "max_msgs": 900, "max_msg_size": 65_536, "allow_direct": false, "description": "kept",
        "metadata": { "owner": "somebody" }, "compression": "s2", "deny_delete": true, "max_consumers": 77, "allow_rollup_hdrs": true,
        "republish": { "src": "a.p0", "dest": "copies.a" }, "consumer_limits": { "max_ack_pending": 500 }, "first_seq": 100,
    });
    let mut before = json!({
        "name": "av_a", "subjects": ["a.p1", "a.p0"], "storage": "file", "retention": "limits", "max_age": HOUR, "duplicate_window": HOUR / 2,
    });
    before.as_object_mut().unwrap().extend(foreign.as_object().unwrap().clone());
    let before = beside(&broker, async |admin| {
        create(&admin, &before).await;
        admin.jetstream().publish("a.p0", "kept".into()).await.unwrap().await.unwrap();
        config_of(&admin, "av_a").await
    });
    for (field, value) in foreign.as_object().unwrap() {
        assert_eq!(&before[field], value, "{field}: the broker took it");
    }
    let expect = |hot_hours: u64| {
        let mut expected = before.clone();
        expected.extend([("max_age".to_owned(), json!(hot_hours * HOUR)), ("duplicate_window".to_owned(), json!(2 * HOUR))]);
        expected
    };
    let wanted = manifest([topic("a", 2)]);
    drop(provision(&broker, &wanted).unwrap());
    assert_eq!(config(&broker, "av_a"), expect(5));
    assert_eq!(writes_during(&broker, || drop(provision(&broker, &wanted).unwrap())), Vec::<String>::new());
    assert_eq!(config(&broker, "av_a"), expect(5));
    for hot_hours in [9, 3] {
        let mut changed = wanted.clone();
        changed.topics[0].retention.hot_hours = hot_hours;
        let writes = writes_during(&broker, || drop(provision(&broker, &changed).unwrap()));
        assert_eq!(writes, ["STREAM.UPDATE.av_a"]);
        assert_eq!(config(&broker, "av_a"), expect(hot_hours.into()));
    }
    let kept = beside(&broker, async |admin| admin.messages("av_a").await);
    assert_eq!(kept.iter().map(|message| (message.sequence, &message.payload[..])).collect::<Vec<_>>(), [(100, &b"kept"[..])]);
}

/// BUG-46: what cannot be changed, or only with a loss. Also D-21. Nothing of any topic is changed, not even of those that fit.
#[test]
fn a_stream_that_cannot_become_the_topics_is_refused_with_both_values_before_anything_is_changed() {
    require_broker!();
    let broker = Broker::start(spec());
    let ours = json!({ "name": "av_a", "subjects": ["a.p0", "a.p1"], "storage": "file", "max_age": HOUR });
    let table = [
        (json!({ "storage": "memory" }), "has storage memory and the manifest wants file"),
        (json!({ "retention": "interest" }), "has retention interest and the manifest wants limits"),
        (json!({ "retention": "workqueue" }), "has retention workqueue and the manifest wants limits"),
        (json!({ "subjects": ["a.p0"] }), "the topic has 1 partitions and the manifest says 2, use 1"),
        (json!({ "subjects": ["a.p0", "a.p1", "a.p2"] }), "the topic has 3 partitions and the manifest says 2, use 3"),
        (json!({ "subjects": ["a.p0", "a.p1", "more"] }), "has subjects [a.p0, a.p1, more] and the manifest wants [a.p0, a.p1]"),
        (json!({ "subjects": ["somebody.>"] }), "has subjects [somebody.>] and the manifest wants [a.p0, a.p1]"),
        (json!({ "no_ack": true }), "has no_ack true and the manifest wants nothing"),
        (json!({ "sources": [{ "name": "X" }] }), "has sources"),
    ];
    let wanted = manifest([topic("new", 1), topic("other", 1), topic("a", 2)]);
    drop(provision(&broker, &manifest([topic("other", 1)])).unwrap());
    let mut changed = wanted.clone();
    changed.topics[1].retention.hot_hours = 50;
    for (unfit, told) in table {
        let mut config = ours.clone();
        config.as_object_mut().unwrap().extend(unfit.as_object().unwrap().clone());
        let before = beside(&broker, async |admin| {
            create(&admin, &config).await;
            config_of(&admin, "av_a").await
        });
        let writes = writes_during(&broker, || {
            let problem = refused(provision(&broker, &changed));
            assert!(problem.starts_with("nothing was changed: topic \"a\": stream \"av_a\""), "{problem}");
            assert!(problem.contains(told), "{problem}");
        });
        assert_eq!(writes, Vec::<String>::new());
        let plan = plan(&broker, &changed);
        assert!(plan.is_refused() && plan.refusals()[0].contains(told), "{plan}");
        let (after, names) = beside(&broker, async |admin| {
            let found = (config_of(&admin, "av_a").await, streams(&admin).await);
            admin.delete_stream("av_a").await;
            found
        });
        assert_eq!((after, names), (before, vec!["av_a".to_owned(), "av_other".to_owned()]));
    }
    assert_eq!(config(&broker, "av_other")["max_age"], json!(5 * HOUR));
}

/// BUG-47: a foreign stream that already has the subjects.
#[test]
fn subjects_of_another_stream_are_an_error_that_names_it_and_nothing_is_half_made() {
    require_broker!();
    let broker = Broker::start(spec());
    let wanted = manifest([topic("first", 1), topic("a", 2)]);
    for (subjects, told) in [
        (json!(["a.p0"]), "has subjects [a.p0] and the manifest wants [a.p0]"),
        (json!(["x", "a.>"]), "has subjects [a.>] and the manifest wants [a.p0, a.p1]"),
        (json!(["b.>", "a.p1"]), "has subjects [a.p1] and the manifest wants [a.p1]"),
        (json!(["a.*"]), "has subjects [a.*] and the manifest wants [a.p0, a.p1]"),
    ] {
        let before = beside(&broker, async |admin| {
            create(&admin, &json!({ "name": "SOMEBODYS", "subjects": subjects })).await;
            config_of(&admin, "SOMEBODYS").await
        });
        let problem = refused(provision(&broker, &wanted));
        assert!(problem.contains("topic \"a\": stream \"SOMEBODYS\"") && problem.contains(told), "{problem}");
        assert!(plan(&broker, &wanted).refusals()[0].contains(told));
        let (after, names) = beside(&broker, async |admin| {
            let found = (config_of(&admin, "SOMEBODYS").await, streams(&admin).await);
            admin.delete_stream("SOMEBODYS").await;
            found
        });
        assert_eq!((after, names), (before, vec!["SOMEBODYS".to_owned()]), "nothing was made, nothing re-pointed");
    }
    // What only looks alike is in nobody's way.
    beside(&broker, async |admin| create(&admin, &json!({ "name": "SOMEBODYS", "subjects": ["a", "a.q", "a.p0.x", "A.p0"] })).await);
    drop(provision(&broker, &wanted).unwrap());
}

/// B-052: what the broker made is read again. Here the request is changed on its way.
#[test]
fn a_stream_that_the_broker_made_otherwise_fails_provisioning() {
    require_broker!();
    let broker = Broker::start(spec());
    let proxy = FaultProxy::start(&broker);
    // 18,000,000,000,000 ns become 19,000,000,000,000: the second digit's lowest bit.
    let change = proxy.inject(None, Direction::ToBroker, At::After(b"\"max_age\":1".to_vec()), Fault::Garble(1));
    let through_proxy = latent_bridge::nats_bus::NatsOptions { servers: vec![format!("tls://{}", proxy.address())], ..options(&broker) };
    let error = NatsBus::provision_with(through_proxy, &manifest([topic("a", 1)])).map(drop).unwrap_err();
    let text = error.to_string();
    assert!(change.is_reached() && text.contains("JetStream stream does not match Bridge manifest"), "{text}");
    assert!(text.contains("has max_age 19000 s and the manifest wants 5 h"), "{text}");
    let plan = plan(&broker, &manifest([topic("a", 1)]));
    assert_eq!(plan.topics[0].action, PlannedAction::Update, "{plan}");
    drop(provision(&broker, &manifest([topic("a", 1)])).unwrap());
}

#[test]
fn a_plan_shows_both_sides_and_changes_nothing() {
    require_broker!();
    let broker = Broker::start(spec());
    let mut wanted = manifest([topic("a", 1)]);
    drop(provision(&broker, &wanted).unwrap());
    wanted.topics[0].retention = RetentionSpec { hot_hours: 3, dedup_hours: Some(1), ..RetentionSpec::default() };
    wanted.topics.push(topic("new", 2));
    let mut text = String::new();
    let writes = writes_during(&broker, || text = plan(&broker, &wanted).to_string());
    assert_eq!(writes, Vec::<String>::new());
    let expected = "update stream av_a of topic a\n  max_age: 5 h -> 3 h (events older than this are removed at once)\n  \
                    duplicate_window: 2 h -> 1 h (uids older than this are taken again)\n\
                    create stream av_new of topic new\n  subjects: [new.p0, new.p1]\n  max_age: 5 h\n  duplicate_window: 2 h\n  num_replicas: 1\n";
    assert_eq!(text, expected);
    assert_eq!(beside(&broker, async |admin| streams(&admin).await), ["av_a"]);
}

#[test]
fn opening_changes_nothing_and_names_every_difference_with_both_values() {
    require_broker!();
    let broker = Broker::start(spec());
    let provisioned = manifest([topic("a", 2), topic("b", 1)]);
    let open = |manifest: &BridgeManifest| NatsBus::open_with(options(&broker), manifest);
    let writes = writes_during(&broker, || {
        let problem = refused(open(&provisioned));
        assert!(problem.contains("topic \"a\" has no stream \"av_a\"") && problem.contains("topic \"b\" has no stream"), "{problem}");
    });
    assert_eq!(writes, Vec::<String>::new());
    drop(provision(&broker, &provisioned).unwrap());
    assert_eq!(open(&provisioned).unwrap().topics(), ["a", "b"]);
    let mut other = provisioned.clone();
    other.replication_factor = 3;
    other.topics[0].partitions = 3;
    other.topics[1].retention = RetentionSpec { hot_hours: 7, ..RetentionSpec::default() };
    let writes = writes_during(&broker, || {
        let problem = refused(open(&other));
        for difference in [
            "topic \"a\": stream \"av_a\" has subjects [a.p0, a.p1] and the manifest wants [a.p0, a.p1, a.p2]",
            "topic \"a\": stream \"av_a\" has num_replicas 1 and the manifest wants 3",
            "topic \"b\": stream \"av_b\" has max_age 5 h and the manifest wants 7 h",
            "topic \"b\": stream \"av_b\" has duplicate_window 2 h and the manifest wants 7 h",
            "topic \"b\": stream \"av_b\" has num_replicas 1 and the manifest wants 3",
        ] {
            assert!(problem.contains(difference), "{difference}\n{problem}");
        }
    });
    assert_eq!(writes, Vec::<String>::new());
}

#[test]
fn more_replicas_than_servers_are_the_brokers_refusal_and_leave_no_stream() {
    require_broker!();
    let broker = Broker::start(spec());
    let wanted = BridgeManifest { replication_factor: 3, ..manifest([topic("a", 1)]) };
    let error = provision(&broker, &wanted).map(drop).unwrap_err().to_string();
    assert!(error.contains("topic \"a\"") && error.contains("lower replication_factor"), "{error}");
    assert_eq!(beside(&broker, async |admin| streams(&admin).await), Vec::<String>::new());
}

/// BUG-46: replicas are the manifest's, in both directions. BUG-47, as a cluster answers.
#[test]
fn a_cluster_keeps_as_many_replicas_as_the_manifest_says_with_every_event() {
    require_broker!();
    let cluster = latent_testkit::broker::Cluster::start(&spec());
    let options = || crate::live::options_at(&cluster.addresses(), cluster.ca());
    let replicas = |count| BridgeManifest { replication_factor: count, ..manifest([topic("a", 1)]) };
    let bus = NatsBus::provision_with(options(), &replicas(1)).unwrap();
    bus.publish_record("a", &record("u-1", "k", "x")).unwrap();
    let of_another = manifest([topic("a", 1), topic("b", 1)]);
    beside(&cluster.members()[1], async |admin| create(&admin, &json!({ "name": "SOMEBODYS", "subjects": ["b.>"] })).await);
    let problem = refused(NatsBus::provision_with(options(), &of_another));
    assert!(problem.contains("topic \"b\": stream \"SOMEBODYS\" has subjects [b.>]"), "{problem}");
    for count in [3, 1, 3] {
        let plan = NatsBus::plan(options(), &replicas(count)).unwrap();
        let [change] = &plan.topics[0].changes[..] else { panic!("{plan}") };
        assert_eq!((change.field, change.to.as_u64()), ("num_replicas", Some(count.into())));
        drop(NatsBus::provision_with(options(), &replicas(count)).unwrap());
        wait_until("every replica has what there is", || {
            beside(&cluster.members()[0], async |admin| current_replicas(&admin).await) == u64::from(count)
        });
        let (config, messages) =
            beside(&cluster.members()[0], async |admin| (config_of(&admin, "av_a").await, admin.messages("av_a").await));
        assert_eq!((&config["num_replicas"], messages.len()), (&json!(count), 1));
    }
}

#[test]
fn without_jetstream_provisioning_says_so() {
    require_broker!();
    let broker = Broker::start(latent_testkit::broker::BrokerSpec { jetstream: false, ..spec() });
    let error = provision(&broker, &manifest([topic("a", 1)])).map(drop).unwrap_err().to_string();
    assert!(error.to_lowercase().contains("jetstream"), "{error}");
}

/// B-024, B-028: what is wrong with a manifest never reaches a broker.
#[test]
fn a_manifest_that_cannot_be_used_is_refused_before_anything_is_dialled() {
    let options = || latent_bridge::nats_bus::NatsOptions::new("nats://127.0.0.1:1");
    let with = |change: fn(&mut TopicSpec)| {
        let mut manifest = manifest([topic("a", 1)]);
        change(&mut manifest.topics[0]);
        manifest
    };
    let table = [
        (with(|topic| topic.partitions = 0), "partitions"),
        (with(|topic| topic.retention.cold_uri = Some("gs://bucket".to_owned())), "stores of this kind are not known"),
        (with(|topic| topic.schema_ref = Some("schemas/none.json".to_owned())), "schema_ref \"schemas/none.json\" names no file"),
    ];
    for (manifest, told) in table {
        for result in [NatsBus::provision_with(options(), &manifest), NatsBus::open_with(options(), &manifest)] {
            let problem = refused(result);
            assert!(problem.contains(told), "{problem}");
        }
        assert!(NatsBus::plan(options(), &manifest).is_err_and(|error| error.to_string().contains(told)));
    }
}

/// B-024, B-025.
#[test]
fn the_schema_of_a_topic_is_found_beside_the_manifest_and_holds() {
    require_broker!();
    let broker = Broker::start(spec());
    let folder = tempfile::tempdir().unwrap();
    let mut wanted = manifest([topic("a", 1)]);
    wanted.topics[0].schema_ref = Some("a.json".to_owned());
    let provision = || NatsBus::provision_with(options(&broker).with_manifest_folder(folder.path()), &wanted);
    for (content, told) in [("{", "it is not JSON"), (r#"{ "$ref": "https://example.net/x" }"#, "a.json")] {
        std::fs::write(folder.path().join("a.json"), content).unwrap();
        let problem = refused(provision());
        assert!(problem.contains("topic \"a\"") && problem.contains(told), "{problem}");
    }
    assert_eq!(beside(&broker, async |admin| streams(&admin).await), Vec::<String>::new());
    std::fs::write(folder.path().join("a.json"), r#"{ "required": ["id"] }"#).unwrap();
    let bus = provision().unwrap();
    bus.publish("a", "k", &json!({ "id": 1 })).unwrap();
    let error = bus.publish("a", "k", &json!({ "no": 1 })).unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("event rejected by schema"), "{error}");
    assert_eq!(beside(&broker, async |admin| admin.count("av_a").await), 1);
}

/// BUG-47: topics whose names differ in case alone are two streams with subjects of their own.
#[test]
fn bug_47_names_that_differ_in_case_are_two_topics() {
    require_broker!();
    let broker = Broker::start(spec());
    let both = manifest([topic("A", 1), topic("a", 1)]);
    let bus = NatsBus::provision_with(options(&broker), &both).unwrap();
    for (topic, count) in [("A", 3), ("a", 1)] {
        for n in 0..count {
            // The same uids in both.
            assert!(!bus.publish_record(topic, &record(&format!("u{n}"), "k", topic.to_owned())).unwrap().duplicate);
        }
    }
    broker.kill();
    broker.restart();
    let bus = NatsBus::open_with(options(&broker), &both).unwrap();
    for (topic, count) in [("A", 3), ("a", 1)] {
        let read = bus.submit_fetch(topic, latent_core::Partition(0), latent_core::Offset(0), 10).wait().unwrap();
        assert!(read.len() == count && read.iter().all(|stored| stored.record.payload == topic), "{topic}: {read:?}");
    }
}
