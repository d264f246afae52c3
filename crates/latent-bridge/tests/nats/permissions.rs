//! What a user of the bus must be allowed, shown both ways: with exactly these permissions everything works, and without any one of them
//! something that is needed does not.

use latent_bridge::nats_bus::{NatsCredentials, NatsOptions, Permission, Permissions, Probe, ProbeAnswer, ProbedStream, Probes};
use latent_bridge::{BridgeManifest, EventBus, NatsBus, RetentionSpec, TopicSpec};
use latent_core::{Offset, Partition, Uid};
use latent_testkit::broker::{Broker, BrokerSpec, BrokerUser, Cluster};
use latent_testkit::{require_broker, wait_until};
use serde_json::{Value, json};

use crate::live::{PASSWORD, USER, beside, options, options_at, plant, record, runtime};

const DISK_BYTES_MAX: i64 = 512 << 20;

fn manifest(topics: &[String], replication_factor: u32) -> BridgeManifest {
    let of = |name: &String| TopicSpec { name: name.clone(), partitions: 2, retention: RetentionSpec::default(), schema_ref: None };
    BridgeManifest { manifest_version: 1, name: "test".to_owned(), replication_factor, topics: topics.iter().map(of).collect() }
}

fn user(name: &str, permissions: &Permissions) -> BrokerUser {
    let subjects = |of: &[Permission]| of.iter().map(|permission| permission.subject.clone()).collect();
    BrokerUser {
        name: name.to_owned(),
        password: PASSWORD.to_owned(),
        publish: subjects(&permissions.publish),
        subscribe: subjects(&permissions.subscribe),
    }
}

/// A topic, and a user of it who lacks one permission.
struct Case {
    topic: String,
    removed: Option<String>,
    user: BrokerUser,
}

/// A user with all permissions, and for each permission one without it; every one with a topic of its own.
fn cases(replication_factor: u32) -> Vec<Case> {
    let all = |topic: &String| Permissions::of_bus(&manifest(std::slice::from_ref(topic), replication_factor));
    let count = { all(&"t".to_owned()).publish.len() + 1 };
    let mut cases = Vec::new();
    for number in 0..=count {
        let topic = format!("x.t{number}");
        let mut permissions = all(&topic);
        let removed = match number {
            0 => None,
            last if last == count => permissions.subscribe.pop(),
            other => Some(permissions.publish.remove(other - 1)),
        };
        let user = user(&format!("u{number}"), &permissions);
        cases.push(Case { topic, removed: removed.map(|permission| permission.subject), user });
    }
    cases
}

fn as_user(options: &NatsOptions, user: &BrokerUser) -> NatsOptions {
    let credentials = NatsCredentials::UserPassword { user: user.name.clone(), password: user.password.clone() };
    NatsOptions { credentials: Some(credentials), ..options.clone() }
}

/// Everything that a bus is used for; the first thing that does not work.
fn use_everything(options: NatsOptions, manifest: &BridgeManifest, topic: &str) -> Result<(), String> {
    let failed = |what: &'static str| move |error: latent_bridge::BusError| format!("{what}: {error}");
    let bus = NatsBus::open_with(options, manifest).map_err(failed("open"))?;
    // One key for each partition.
    let keys = ["a", "b"];
    for key in keys {
        let uid = format!("uid-{key}");
        let event = record(&uid, key, "x");
        let first = bus.publish_record(topic, &event).map_err(failed("publish"))?;
        let again = bus.publish_record(topic, &event).map_err(failed("publish again"))?;
        assert!(!first.duplicate && again.duplicate && first.offset == again.offset);
        let found = bus.submit_find(topic, key, &Uid::parse(&uid).unwrap()).wait().map_err(failed("find"))?;
        assert_eq!(found.map(|found| found.offset), Some(first.offset));
        let absent = bus.submit_find(topic, key, &Uid::parse("nobody").unwrap()).wait().map_err(failed("find nothing"))?;
        assert_eq!(absent, None);
        let partition = Partition(first.partition);
        let page = bus.submit_fetch(topic, partition, Offset(0), 10).wait().map_err(failed("fetch"))?;
        assert_eq!(page.len(), 1);
        let end = bus.submit_fetch(topic, partition, Offset(first.offset + 1), 10).wait().map_err(failed("tail"))?;
        assert!(end.is_empty());
        let heads = bus.submit_heads(topic, partition, Offset(0), 10).wait().map_err(failed("heads"))?;
        assert_eq!(heads.len(), 1);
        let bounds = bus.bounds(topic, partition).map_err(failed("bounds"))?;
        assert_eq!(bounds, (Offset(first.offset), Offset(first.offset + 1)));
        let remains = bus.submit_remains(topic, partition, Offset(first.offset)).wait().map_err(failed("remains"))?;
        assert!(!remains.is_empty());
    }
    let numbers = bus.statistics().map_err(failed("statistics"))?;
    assert_eq!(numbers[0].partitions.iter().map(|partition| partition.records).collect::<Vec<_>>(), [1, 1]);
    Ok(())
}

/// Uses everything as each user at once. What a missing permission breaks takes an operation's time to be known.
fn use_all(options: &NatsOptions, cases: &[Case], replication_factor: u32) -> Vec<Result<(), String>> {
    std::thread::scope(|scope| {
        let running: Vec<_> = cases
            .iter()
            .map(|Case { topic, user, .. }| {
                let options = as_user(options, user);
                scope.spawn(move || use_everything(options, &manifest(std::slice::from_ref(topic), replication_factor), topic))
            })
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Checks each case against how it went. A reader that could not be deleted is no failure of a call: it stays, and is counted.
fn check(cases: &[Case], results: Vec<Result<(), String>>, consumers: impl Fn(&str) -> u64) {
    let may_not_delete = |case: &&Case| case.removed.as_ref().is_some_and(|removed| removed.contains("CONSUMER.DELETE"));
    let left_behind = || consumers(&cases.iter().find(may_not_delete).unwrap().topic);
    for (case, result) in cases.iter().zip(results) {
        let Case { topic, removed, user } = case;
        match removed.as_deref() {
            None => {
                assert_eq!(result, Ok(()), "with everything on the list, everything works: {user:?}");
                // A server of a cluster can answer before the one that counts has heard of it. What is left to the broker stays for longer
                // than what is deleted, so that tells them apart.
                wait_until("its readers are gone", || consumers(topic) == 0 || left_behind() == 0);
                assert!(left_behind() > 0, "readers are gone because they are deleted, not because they are idle: {user:?}");
            }
            Some(removed) if may_not_delete(&case) => {
                assert!(result.is_ok() && left_behind() > 0, "without {removed} readers stay behind: {result:?}");
            }
            Some(removed) => {
                let told = result.expect_err(removed);
                // Of what was published nothing is said that is not known.
                let told = told.replace("publish again: uncertain", "publish again: may not publish to what tells");
                assert!(told.contains("may not publish to") || told.contains("may not subscribe to _INBOX.LSF."), "{removed}: {told}");
            }
        }
    }
}

fn consumers_of(admin: &latent_testkit::broker::Admin, topic: &str) -> impl Future<Output = u64> {
    let request = admin.client().request(format!("$JS.API.STREAM.INFO.av_{}", topic.replace('.', "_")), "".into());
    async move {
        let reply: Value = serde_json::from_slice(&request.await.unwrap().payload).unwrap();
        reply["state"]["consumer_count"].as_u64().unwrap()
    }
}

#[test]
fn a_bus_works_with_exactly_its_permissions_and_needs_each_of_them() {
    require_broker!();
    let cases = cases(1);
    let users = cases.iter().map(|case| case.user.clone()).chain([BrokerUser::unlimited(USER, PASSWORD)]);
    let broker = Broker::start(BrokerSpec::with_users(users).disk(DISK_BYTES_MAX));
    let topics: Vec<_> = cases.iter().map(|case| case.topic.clone()).collect();
    drop(NatsBus::provision_with(options(&broker), &manifest(&topics, 1)).unwrap());
    let results = use_all(&options(&broker), &cases, 1);
    check(&cases, results, |topic| beside(&broker, async |admin| consumers_of(&admin, topic).await));
}

#[test]
fn a_bus_on_replicas_asks_the_leader_too_and_needs_that_permission() {
    require_broker!();
    let wanted = |removed: &str| removed.contains("STREAM.MSG.GET") || removed.contains("CONSUMER.DELETE");
    let cases: Vec<_> = cases(3).into_iter().filter(|case| case.removed.as_deref().is_none_or(wanted)).collect();
    assert_eq!(cases.len(), 3);
    let users = cases.iter().map(|case| case.user.clone()).chain([BrokerUser::unlimited(USER, PASSWORD)]);
    let cluster = Cluster::start(&BrokerSpec::with_users(users).disk(DISK_BYTES_MAX));
    let options = options_at(&cluster.addresses(), cluster.ca());
    let topics: Vec<_> = cases.iter().map(|case| case.topic.clone()).collect();
    drop(NatsBus::provision_with(options.clone(), &manifest(&topics, 3)).unwrap());
    cluster.wait_until_ready();
    let results = use_all(&options, &cases, 3);
    check(&cases, results, |topic| runtime().block_on(async { consumers_of(&cluster.members()[0].admin().await, topic).await }));
}

/// B-050 to B-053, with the operator's own permissions; the user of the bus may not do it.
#[test]
fn an_operator_provisions_with_exactly_its_permissions_and_a_bus_cannot() {
    require_broker!();
    let topics = ["a.b".to_owned(), "c".to_owned()];
    let (before, after) = (manifest(&topics, 1), {
        let mut after = manifest(&topics, 1);
        after.topics[0].retention.hot_hours = 5;
        after
    });
    let all = Permissions::of_operator(Some(&before));
    let operator = user("operator", &all);
    // One without each permission that is needed to make a stream, and one without that for changing it.
    let lacking = |name: &str, removed: &str| {
        let mut permissions = all.clone();
        permissions.publish.retain(|permission| permission.subject != removed);
        assert_eq!(permissions.publish.len() + 1, all.publish.len());
        user(name, &permissions)
    };
    let no_create = ["$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.CREATE.av_a_b"];
    let makers: Vec<_> = no_create.iter().enumerate().map(|(number, removed)| lacking(&format!("m{number}"), removed)).collect();
    let changer = lacking("changer", "$JS.API.STREAM.UPDATE.av_a_b");
    let bus = user("edge", &Permissions::of_bus(&before));
    let users = makers.iter().chain([&operator, &changer, &bus]).cloned();
    let broker = Broker::start(BrokerSpec::with_users(users).disk(DISK_BYTES_MAX));
    let provision = |user: &BrokerUser, manifest: &BridgeManifest| NatsBus::provision_with(as_user(&options(&broker), user), manifest);
    std::thread::scope(|scope| {
        for user in makers.iter().chain([&bus]) {
            scope.spawn(|| assert!(provision(user, &before).is_err(), "{} may not", user.name));
        }
    });
    let streams = |broker: &Broker| {
        beside(broker, async |admin| {
            let reply = admin.client().request("$JS.API.STREAM.NAMES", json!({}).to_string().into()).await.unwrap();
            serde_json::from_slice::<Value>(&reply.payload).unwrap()["total"].clone()
        })
    };
    assert_eq!(streams(&broker), json!(0), "nothing was made by who may not");
    assert!(provision(&operator, &before).is_ok());
    assert!(provision(&changer, &after).is_err(), "who may not change a stream");
    assert!(provision(&operator, &after).is_ok());
    assert_eq!(streams(&broker), json!(2));
    assert!(
        use_everything(as_user(&options(&broker), &bus), &manifest(&topics[..1], 1), "a.b").is_err(),
        "the streams are of the new manifest"
    );
    let opened = NatsBus::open_with(as_user(&options(&broker), &bus), &after).unwrap();
    assert_eq!(opened.topics(), topics);
}

/// The whole configuration and state of the broker's streams and consumers, as the broker tells them.
async fn everything(admin: &latent_testkit::broker::Admin) -> Vec<Value> {
    let mut all = Vec::new();
    for subject in ["STREAM.LIST", "CONSUMER.LIST.av_t", "CONSUMER.LIST.RAW"] {
        let reply = admin.client().request(format!("$JS.API.{subject}"), "".into()).await.unwrap();
        let mut reply: Value = serde_json::from_slice(&reply.payload).unwrap();
        for list in ["streams", "consumers"] {
            for item in reply.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                item.as_object_mut().unwrap().remove("ts");
            }
        }
        all.push(reply);
    }
    all
}

#[test]
fn no_probe_changes_anything_even_where_everything_is_permitted() {
    require_broker!();
    let all_powerful = BrokerUser::unlimited(USER, PASSWORD);
    let spec = BrokerSpec::with_users([all_powerful]).stream(latent_testkit::broker::StreamSpec::new("RAW", ["raw.x"]));
    let broker = Broker::start(spec.disk(DISK_BYTES_MAX));
    let manifest = manifest(&["t".to_owned()], 1);
    let bus = NatsBus::provision_with(options(&broker), &manifest).unwrap();
    for number in 0..3 {
        bus.publish_record("t", &record(&number.to_string(), &number.to_string(), "x")).unwrap();
    }
    drop(bus);
    let before = beside(&broker, async |admin| {
        let request = json!({ "stream_name": "av_t", "config": { "durable_name": "kept", "ack_policy": "explicit" } });
        admin.client().request("$JS.API.CONSUMER.DURABLE.CREATE.av_t.kept", request.to_string().into()).await.unwrap();
        plant(&admin, "raw.x", &[], "raw").await;
        everything(&admin).await
    });
    assert_eq!((&before[0]["total"], &before[1]["total"]), (&json!(2), &json!(1)));
    let streams = [("av_t", &["t.p0", "t.p1"][..]), ("RAW", &["raw.x"])];
    let streams = streams
        .map(|(name, subjects)| ProbedStream { name: name.to_owned(), subjects: subjects.iter().map(|&of| of.to_owned()).collect() });
    // Also with the name of a consumer that is there, where the body alone keeps the request from being done.
    let Probes { needed, forbidden } = Permissions::of_bus(&manifest).probes(&streams);
    let of_kept = forbidden.iter().chain(&needed).filter_map(|probe| match probe {
        Probe::Publish(subject) if subject.contains(".av_t.latent_probe") && !subject.contains("ACK") => {
            Some(Probe::Publish(subject.replace("latent_probe", "kept")))
        }
        _ => None,
    });
    let probes: Vec<_> = needed.iter().chain(&forbidden).cloned().chain(of_kept).collect();
    let answers = latent_bridge::nats_bus::probe(options(&broker), probes.clone()).unwrap();
    for (probe, answer) in probes.iter().zip(&answers) {
        assert_eq!(*answer, ProbeAnswer::Permitted, "{probe:?}");
    }
    assert_eq!(beside(&broker, async |admin| everything(&admin).await), before);
}

/// Some requests are answered by the leader of the cluster or of a stream alone, after another check of their own.
#[test]
fn no_probe_changes_anything_on_a_cluster_either_and_each_is_answered() {
    require_broker!();
    let topics = ["t".to_owned()];
    let permissions = Permissions::of_bus(&manifest(&topics, 3));
    let edge = user("edge", &permissions);
    let users = [edge.clone(), BrokerUser::unlimited(USER, PASSWORD)];
    let cluster = Cluster::start(&BrokerSpec::with_users(users).disk(DISK_BYTES_MAX));
    let options = options_at(&cluster.addresses(), cluster.ca());
    let bus = NatsBus::provision_with(options.clone(), &manifest(&topics, 3)).unwrap();
    for number in 0..3 {
        bus.publish_record("t", &record(&number.to_string(), &number.to_string(), "x")).unwrap();
    }
    drop(bus);
    cluster.wait_until_ready();
    let messages = || {
        runtime().block_on(async {
            let admin = cluster.members()[0].admin().await;
            let reply = admin.client().request("$JS.API.STREAM.INFO.av_t", "".into()).await.unwrap();
            let reply: Value = serde_json::from_slice(&reply.payload).unwrap();
            (reply["created"].clone(), reply["config"].clone(), reply["state"].clone())
        })
    };
    let before = messages();
    let streams = [ProbedStream { name: "av_t".to_owned(), subjects: vec!["t.p0".to_owned(), "t.p1".to_owned()] }];
    let Probes { needed, forbidden } = permissions.probes(&streams);
    let all: Vec<_> = needed.iter().chain(&forbidden).cloned().collect();
    let answers = latent_bridge::nats_bus::probe(options.clone(), all.clone()).unwrap();
    let silent: Vec<_> = all.iter().zip(&answers).filter(|(_, answer)| **answer != ProbeAnswer::Permitted).collect();
    assert!(silent.is_empty(), "{silent:?}");
    assert_eq!(messages(), before);
    let answers = latent_bridge::nats_bus::probe(as_user(&options, &edge), all).unwrap();
    let (of_needed, of_forbidden) = answers.split_at(needed.len());
    assert!(
        of_needed.iter().all(|answer| *answer == ProbeAnswer::Permitted)
            && of_forbidden.iter().all(|answer| *answer == ProbeAnswer::Refused)
    );
}

#[test]
fn probes_tell_what_a_user_may_from_what_it_may_not() {
    require_broker!();
    let manifest = manifest(&["t".to_owned()], 1);
    let permissions = Permissions::of_bus(&manifest);
    let exact = user("exact", &permissions);
    let mut odd = user("odd", &permissions);
    odd.publish.retain(|subject| subject != "t.p1");
    odd.publish.push("$JS.API.STREAM.PURGE.*".to_owned());
    odd.subscribe.push("t.>".to_owned());
    let mut deaf = user("deaf", &permissions);
    deaf.subscribe.clear();
    let users = [exact.clone(), odd.clone(), deaf.clone(), BrokerUser::unlimited(USER, PASSWORD)];
    let broker = Broker::start(BrokerSpec::with_users(users).disk(DISK_BYTES_MAX));
    drop(NatsBus::provision_with(options(&broker), &manifest).unwrap());
    let streams = [ProbedStream { name: "av_t".to_owned(), subjects: vec!["t.p0".to_owned(), "t.p1".to_owned()] }];
    let Probes { needed, forbidden } = permissions.probes(&streams);
    let ask = |user: &BrokerUser, probes: &[Probe], expected: ProbeAnswer| -> Vec<Probe> {
        let answers = latent_bridge::nats_bus::probe(as_user(&options(&broker), user), probes.to_vec()).unwrap();
        assert!(!answers.contains(&ProbeAnswer::Nothing), "{answers:?}");
        probes.iter().zip(answers).filter(|(_, answer)| *answer != expected).map(|(probe, _)| probe.clone()).collect()
    };
    assert_eq!(ask(&exact, &needed, ProbeAnswer::Permitted), []);
    assert_eq!(ask(&exact, &forbidden, ProbeAnswer::Refused), []);
    let publish = |subject: &str| Probe::Publish(subject.to_owned());
    let subscribe = |subject: &str| Probe::Subscribe(subject.to_owned());
    assert_eq!(ask(&odd, &needed, ProbeAnswer::Permitted), [publish("t.p1")]);
    let mut surplus = ask(&odd, &forbidden, ProbeAnswer::Refused);
    surplus.sort_by_key(|probe| format!("{probe:?}"));
    let expected = [publish("$JS.API.STREAM.PURGE.av_t"), subscribe("t.*"), subscribe("t.p0"), subscribe("t.p1")];
    assert_eq!(surplus, expected);
    // Without its inbox a user hears nothing but refusals; what it may do is then not known.
    let answers = latent_bridge::nats_bus::probe(as_user(&options(&broker), &deaf), needed.clone()).unwrap();
    let (inbox, others) = answers.split_last().unwrap();
    assert!(*inbox == ProbeAnswer::Refused && others.iter().all(|answer| *answer == ProbeAnswer::Nothing), "{answers:?}");
    let answers = latent_bridge::nats_bus::probe(as_user(&options(&broker), &deaf), forbidden).unwrap();
    assert!(answers.iter().all(|answer| *answer == ProbeAnswer::Refused), "{answers:?}");
    let refused = latent_bridge::nats_bus::probe(as_user(&options(&broker), &BrokerUser { password: "other".to_owned(), ..exact }), needed);
    assert!(refused.unwrap_err().to_string().contains("refuses user"));
}

/// `docs/cluster.md`, "what permissions of NATS cannot say": a change here is a change there.
#[test]
fn what_permissions_cannot_say_is_as_the_page_on_clusters_says() {
    use futures_util::StreamExt as _;
    require_broker!();
    let manifest = manifest(&["t".to_owned()], 1);
    let edge = user("edge", &Permissions::of_bus(&manifest));
    let spec = BrokerSpec::with_users([edge.clone(), BrokerUser::unlimited(USER, PASSWORD)]).disk(DISK_BYTES_MAX);
    let broker = Broker::start(BrokerSpec { server_name: "127.0.0.1".to_owned(), ..spec });
    let options = NatsOptions { server_name: None, ..options(&broker) };
    let bus = NatsBus::provision_with(options, &manifest).unwrap();
    assert_eq!(bus.publish_record("t", &record("u", "a", "x")).unwrap().partition, 0);
    drop(bus);
    let folder = tempfile::tempdir().unwrap();
    let roots = folder.path().join("ca.pem");
    std::fs::write(&roots, broker.ca().root_pem()).unwrap();
    let filter = "t.p0";
    runtime().block_on(async {
        let admin = broker.admin().await;
        let connecting = async_nats::ConnectOptions::with_user_and_password(edge.name, edge.password);
        let connecting = connecting.tls_first().add_root_certificates(roots).custom_inbox_prefix("_INBOX.LSF.test");
        let client = connecting.connect(format!("tls://{}", broker.address())).await.unwrap();
        let create = async |name: &str, config: Value| {
            let request = json!({ "stream_name": "av_t", "config": config }).to_string();
            let reply = client.request(format!("$JS.API.CONSUMER.CREATE.av_t.{name}.{filter}"), request.into()).await.unwrap();
            serde_json::from_slice::<Value>(&reply.payload).unwrap()
        };
        // A reader of a partition may be given to any subject, which its maker may not publish to, and may last.
        let mut elsewhere = admin.client().subscribe("elsewhere").await.unwrap();
        admin.client().flush().await.unwrap();
        let pushing = json!({ "name": "push", "deliver_subject": "elsewhere", "filter_subject": filter, "ack_policy": "none" });
        assert!(create("push", pushing).await.get("error").is_none());
        assert!(tokio::time::timeout(std::time::Duration::from_secs(60), elsewhere.next()).await.unwrap().is_some());
        let lasting = json!({ "name": "last", "durable_name": "last", "filter_subject": filter, "ack_policy": "explicit" });
        assert!(create("last", lasting).await.get("error").is_none());
        // But it reads no other partition than that of the request.
        let other = json!({ "name": "other", "filter_subject": "t.p1", "ack_policy": "none" });
        assert!(create("other", other).await.get("error").is_some());
        // Every consumer of its streams may be deleted.
        let request = json!({ "stream_name": "av_t", "config": { "durable_name": "foreign", "ack_policy": "explicit" } }).to_string();
        admin.client().request("$JS.API.CONSUMER.DURABLE.CREATE.av_t.foreign", request.into()).await.unwrap();
        let deleted = client.request("$JS.API.CONSUMER.DELETE.av_t.foreign", "".into()).await.unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&deleted.payload).unwrap()["success"], json!(true));
    });
}
