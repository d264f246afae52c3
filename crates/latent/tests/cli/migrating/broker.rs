//! Between a directory and a broker, as the user who has the least rights that it takes.

use latent_testkit::broker::{Admin, Broker};
use latent_testkit::require_broker;

use super::super::cluster::{as_operator, broker, with_admin, with_node, without_node};
use super::*;

pub(super) const IN: [&str; 5] = ["in.raw", "--from", "embedded:data", "--to", "nats"];
pub(super) const BY: [&str; 2] = ["--manifest", "bridge.yaml"];
pub(super) const ON_NATS: [&str; 4] = ["--engine", "nats", "--manifest", "bridge.yaml"];
const STREAMS: [&str; 2] = ["av_in_raw", "av_out"];

/// A broker with the streams, and a directory with some events of the same topics.
pub(super) fn both(broker: &Broker, lines: &str) -> CliEnv {
    let env = without_node(broker);
    as_operator(&env, &["bus", "provision"]);
    provision(&env, "data");
    env.write("events.jsonl", lines);
    let words = [
        "bus",
        "publish",
        "in.raw",
        "--engine",
        "embedded:data",
        "--file",
        "events.jsonl",
        "--key-pointer",
        "/key",
        "--uid-pointer",
        "/id",
    ];
    let _ = env.run(words).with_status(0);
    env
}

/// Lines of many keys, each with its number.
pub(super) fn lines(from: u64, to: u64) -> String {
    (from..to).map(|n| format!("{{\"id\":\"u{n}\",\"key\":\"k{}\",\"n\":{n}, \"x\":[ 1.50 ]}}\n", n % 97)).collect()
}

pub(super) fn sides_are_equal(env: &CliEnv, directory: &str) {
    let engine = format!("embedded:{directory}");
    for partition in 0..3 {
        let there = content(env, &ON_NATS, "in.raw", partition);
        assert!(content(env, &["--engine", &engine], "in.raw", partition) == there && !there.is_empty(), "partition {partition}");
    }
}

/// The broker forgets every uid that it knew, as after `dedup_hours`: started again, it remembers those of the window that it has when it is
/// asked first.
pub(super) fn forget_uids(broker: &Broker) {
    let probe = [("Nats-Msg-Id", "probe")];
    with_admin(broker, async |admin| {
        admin.publish_with("out.p0", &probe, b"x").await;
        set_window(&admin, 100_000_000).await;
    });
    broker.stop();
    broker.restart();
    with_admin(broker, async |admin| {
        let known = admin.count("av_out").await;
        let begun = std::time::Instant::now();
        while admin.count("av_out").await == known {
            assert!(begun.elapsed() < HANG_LIMIT, "it is stored a second time when the window has passed");
            // The one is only asked about, since it is not stored there.
            admin.publish_with("in.raw.p0", &[("Nats-Msg-Id", "probe"), ("Nats-Expected-Last-Sequence", "987654321")], b"x").await;
            admin.publish_with("out.p0", &probe, b"x").await;
        }
        set_window(&admin, 7_200_000_000_000).await;
    });
}

async fn set_window(admin: &Admin, nanos: u64) {
    for stream in STREAMS {
        let info = admin.client().request(format!("$JS.API.STREAM.INFO.{stream}"), "".into()).await.unwrap();
        let mut config = serde_json::from_slice::<Value>(&info.payload).unwrap()["config"].clone();
        config["duplicate_window"] = json!(nanos);
        let reply = admin.client().request(format!("$JS.API.STREAM.UPDATE.{stream}"), config.to_string().into()).await.unwrap();
        assert!(!String::from_utf8_lossy(&reply.payload).contains("\"error\""), "{:?}", reply.payload);
    }
}

#[test]
fn topics_go_to_a_broker_and_come_back_with_their_order_and_uids() {
    require_broker!();
    let broker = broker("127.0.0.1");
    let env = both(&broker, &lines(0, 3_000));
    let (told, _) = migrated(&env, &[&IN[..], &BY].concat(), 0);
    assert_eq!((&counts(&told)["copied"], &counts(&told)["same"]), (&json!(3_000), &json!(3)));
    sides_are_equal(&env, "data");
    provision(&env, "back");
    let (back, _) = migrated(&env, &[&["in.raw", "--from", "nats", "--to", "embedded:back"], &BY[..]].concat(), 0);
    assert_eq!(of(&told, "sha256"), of(&back, "sha256"), "and the digests do not depend on the engine");
    sides_are_equal(&env, "back");
    let consumers = with_admin(&broker, async |admin| {
        wait_until("the broker forgets connections that ended", || admin.connections_of("edge-1-bus") == 0);
        admin.consumers()
    });
    assert_eq!(consumers, 0);
}

fn of(told: &[Value], field: &str) -> Vec<Value> {
    told.iter().map(|document| document["destination"][field].clone()).collect()
}

#[test]
fn without_what_was_noted_and_with_uids_that_the_broker_forgot_nothing_is_doubled() {
    require_broker!();
    let broker = broker("127.0.0.1");
    let env = both(&broker, &lines(0, 500));
    let words = [&IN[..], &BY, &["--progress", "p"]].concat();
    let _ = migrated(&env, &words, 0);
    std::fs::remove_file(env.folder().join("p")).unwrap();
    forget_uids(&broker);
    env.write("events.jsonl", lines(500, 700));
    let publish = [
        "bus",
        "publish",
        "in.raw",
        "--engine",
        "embedded:data",
        "--file",
        "events.jsonl",
        "--key-pointer",
        "/key",
        "--uid-pointer",
        "/id",
    ];
    let _ = env.run(publish).with_status(0);
    let (told, _) = migrated(&env, &words, 0);
    assert_eq!((&counts(&told)["copied"], &counts(&told)["already_there"]), (&json!(200), &json!(500)));
    assert_eq!(with_admin(&broker, async |admin| admin.count("av_in_raw").await), 700);
    sides_are_equal(&env, "data");
}

#[test]
fn an_outage_in_the_middle_is_waited_out() {
    require_broker!();
    let broker = broker("127.0.0.1");
    let env = both(&broker, &lines(0, 20_000));
    let mut command = env.command([&["bus", "migrate"], &IN[..], &BY, &["--json"]].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = ChildGuard::spawn(&mut command).unwrap();
    // In the middle of a batch: what is in flight is lost, or stored without an answer.
    with_admin(&broker, async |admin| {
        while admin.count("av_in_raw").await <= 1_500 {
            assert_eq!(child.try_wait().unwrap(), None, "it ended before");
        }
    });
    broker.kill();
    broker.restart();
    let mut told = String::new();
    std::io::Read::read_to_string(&mut child.take_stdout().unwrap(), &mut told).unwrap();
    assert_eq!(child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(0), "{told}");
    assert_eq!(with_admin(&broker, async |admin| admin.count("av_in_raw").await), 20_000, "none is lost and none doubled");
}

#[test]
fn a_foreign_message_in_a_stream_is_named_and_passed_over_on_request_only() {
    require_broker!();
    let broker = broker("127.0.0.1");
    let env = both(&broker, &lines(0, 100));
    let _ = migrated(&env, &[&IN[..], &BY].concat(), 0);
    with_admin(&broker, async |admin| {
        admin.publish("in.raw.p1", b"no record").await;
        admin.publish_with("in.raw.p1", &[("Nats-Msg-Id", "raw")], b"no record either").await;
    });
    // As a destination, it is never one any more.
    let (_, output) = migrated(&env, &[&IN[..], &BY].concat(), 1);
    assert_eq!(error_of(&output)["findings"][0]["kind"], json!("unreadable"), "{}", output.stderr);
    provision(&env, "back");
    let words = [&["in.raw", "--from", "nats", "--to", "embedded:back"], &BY[..]].concat();
    let (_, output) = migrated(&env, &words, 1);
    let finding = &error_of(&output)["findings"][0];
    assert_eq!((&finding["kind"], &finding["partition"]), (&json!("unreadable"), &json!(1)));
    assert!(finding["message"].as_str().unwrap().contains("source offset 101"), "{finding}");
    let (told, output) = migrated(&env, &[&words[..], &["--skip-unreadable"]].concat(), 0);
    assert_eq!((&counts(&told)["passed_over"], output.stderr.matches("unreadable").count()), (&json!(2), 2));
}

#[test]
fn who_publishes_to_the_destination_spoils_it_and_that_is_told() {
    require_broker!();
    let broker = broker("127.0.0.1");
    let env = both(&broker, &lines(0, 100));
    let _ = migrated(&env, &[&IN[..], &BY].concat(), 0);
    let publish = [&["bus", "publish", "in.raw", "--file", "-", "--key", "k1", "--json"], &ON_NATS[..]].concat();
    let intruder = documents(&env.run_with_input(publish, b"{}\n".to_vec()).with_status(0))[0].clone();
    env.write("events.jsonl", lines(100, 200));
    let words = [
        "bus",
        "publish",
        "in.raw",
        "--engine",
        "embedded:data",
        "--file",
        "events.jsonl",
        "--key-pointer",
        "/key",
        "--uid-pointer",
        "/id",
    ];
    let _ = env.run(words).with_status(0);
    let (told, output) = migrated(&env, &[&IN[..], &BY].concat(), 1);
    let finding = &error_of(&output)["findings"][0];
    assert_eq!((&finding["kind"], &finding["partition"]), (&json!("different"), &intruder["partition"]), "{finding}");
    assert!(finding["message"].as_str().unwrap().contains(intruder["uid"].as_str().unwrap()), "{finding}");
    assert_eq!(counts(&told)["same"], json!(2), "the others are not concerned");
}

#[test]
fn a_nodes_configuration_names_its_broker() {
    require_broker!();
    let broker = broker("broker.latent.test");
    let operator = without_node(&broker);
    let env = with_node(&broker);
    provision(&env, "from");
    let publish = ["bus", "publish", "out", "--engine", "embedded:from", "--file", "-"];
    let _ = env.run_with_input(publish, b"{\"n\":1}\n{\"n\":2}\n".to_vec()).with_status(0);
    drop(operator);
    with_admin(&broker, async |admin| {
        for (stream, subjects) in [("av_in_raw", json!(["in.raw.p0", "in.raw.p1", "in.raw.p2"])), ("av_out", json!(["out.p0"]))] {
            let nanos = 7_200_000_000_000_u64;
            let config = json!({ "name": stream, "subjects": subjects, "max_age": nanos, "duplicate_window": nanos, "allow_direct": true });
            let reply = admin.client().request(format!("$JS.API.STREAM.CREATE.{stream}"), config.to_string().into()).await.unwrap();
            assert!(!String::from_utf8_lossy(&reply.payload).contains("\"error\""), "{:?}", reply.payload);
        }
    });
    let (told, _) = migrated(&env, &["--from", "embedded:from", "--to", "config:latent.toml"], 0);
    assert_eq!((&counts(&told)["copied"], &counts(&told)["partitions"]), (&json!(2), &json!(4)));
    let read = documents(&env.run(["bus", "fetch", "out", "--json"]).with_status(0));
    assert_eq!(read.iter().map(|event| event["value"]["n"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
}
