//! `latent archive`: verified offline and beside the log, and back into a topic, in a directory and through a node.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use latent_bridge::cold::export::{BusItems, ExportTo, Goal, SegmentExporter};
use latent_bridge::cold::segment::SegmentSizes;
use latent_bridge::cold::{ControlKeys, open_archive};
use latent_bridge::embedded::OsStorage;
use latent_bridge::{BridgeManifest, EmbeddedBroker, EventBus};
use latent_core::{Attributes, MediaType, NewRecord, Offset, Partition, Uid, UnixMillis};
use latent_testkit::require_broker;

use super::*;

const EVENTS: usize = 60;

/// A provisioned folder, with an archive of events of the topic `in` in `archive`, its heads, and the key that proves it.
pub(super) fn archived() -> CliEnv {
    let env = provisioned();
    let manifest = BridgeManifest::from_yaml(MANIFEST).unwrap();
    let from = EmbeddedBroker::provision(&env.folder().join("from"), &manifest).unwrap();
    let record = |n: usize| {
        let uid = Some(Uid::parse(&format!("order-{n}")).unwrap());
        NewRecord::new(uid, &format!("key-{}", n % 5), MediaType::json(), Attributes::default(), format!("{{\"n\":{n}}}").into()).unwrap()
    };
    let records: Vec<_> = (0..EVENTS).map(record).collect();
    from.publish_batch("in", &records).into_iter().for_each(|ack| drop(ack.unwrap()));
    std::fs::create_dir(env.folder().join("archive")).unwrap();
    let store = open_archive(env.folder().join("archive").to_str().unwrap()).unwrap();
    let sizes = SegmentSizes { items: 10, ..SegmentSizes::default() };
    let exporter = SegmentExporter::new(Arc::new(OsStorage), env.folder().join("heads"), "demo", sizes);
    let keys = ControlKeys::new(&[[7; 32]]).unwrap();
    let mut heads = String::new();
    for partition in (0..3).map(Partition) {
        let items = BusItems { bus: &from, topic: "in".to_owned(), partition };
        let goal = Goal { must: Some(Offset(u64::MAX)), ..Goal::from(UnixMillis(0)) };
        exporter.export("in", partition, ExportTo { store: &*store, keys: &keys }, &items, goal).unwrap();
        if let Some(head) = exporter.head("in", partition, &keys).unwrap() {
            heads.push_str(&format!("{}\n", json!({ "document": head.to_json(&keys).unwrap() })));
        }
    }
    env.write("heads.jsonl", heads);
    key(&env, "control.key", &"07".repeat(32));
    env
}

/// A file that is its owner's alone.
pub(super) fn key(env: &CliEnv, name: &str, content: &str) {
    let file = env.write(name, content);
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// The segments of the archive, in order.
pub(super) fn segments(env: &CliEnv) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for partition in 0..3 {
        let folder = env.folder().join(format!("archive/in/p{partition}"));
        paths.extend(std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()));
    }
    paths.sort();
    paths
}

pub(super) const PROOF: [&str; 6] = ["--archive", "archive", "--key", "control.key", "--head", "heads.jsonl"];

pub(super) fn verify(env: &CliEnv, arguments: &[&str], status: i32) -> CliOutput {
    env.run(["archive", "verify"].iter().chain(arguments)).with_status(status)
}

#[test]
fn a_copy_of_an_archive_is_verified_without_a_node_and_says_what_it_was_compared_with() {
    let env = archived();
    let sound = verify(&env, &PROOF, 0);
    assert!(sound.stdout.contains(&format!("with {EVENTS} records; nothing is wrong")) && sound.stderr.is_empty(), "{sound:?}");
    let alone = verify(&env, &["--archive", "archive"], 0);
    assert!(alone.stderr.contains("--key names the control keys") && alone.stderr.contains("is not attested"), "{}", alone.stderr);
    let documents = documents(&verify(&env, &[&PROOF[..], &["--json"]].concat(), 0));
    let report = &documents[0]["verified"]["report"];
    assert_eq!((&report["records"], &report["findings"], &report["unattested_ends"]), (&json!(EVENTS), &json!(0), &json!(0)));
    assert_eq!(report["segments"], report["proven_segments"]);
}

#[test]
fn what_is_wrong_is_a_line_with_topic_partition_and_offsets_and_status_1() {
    let env = archived();
    let segments = segments(&env);
    let mut bytes = std::fs::read(&segments[0]).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&segments[0], bytes).unwrap();
    let last = segments.last().unwrap();
    std::fs::remove_file(last).unwrap();
    let human = verify(&env, &PROOF, 1);
    let lines: Vec<_> = human.stdout.lines().collect();
    assert!(lines[0].starts_with("changed: in/p") && lines[0].contains(" offset 0 to 9: in/p"), "{lines:?}");
    assert!(lines[1].starts_with("missing: in/p"), "{lines:?}");
    assert!(human.stderr.starts_with("error: 2 things are wrong with the archive"), "{}", human.stderr);
    let machine = verify(&env, &[&PROOF[..], &["--json"]].concat(), 1);
    let found = &documents(&machine)[0]["finding"];
    assert_eq!((&found["kind"], &found["topic"], &found["first"], &found["last"]), (&json!("changed"), &json!("in"), &json!(0), &json!(9)));
    assert_eq!(error_of(&machine)["kind"], json!("archive-unsound"));
}

#[test]
fn an_archive_or_a_key_that_is_not_there_is_said_so() {
    let env = archived();
    assert_eq!(error_of(&verify(&env, &["--archive", "nowhere", "--json"], 1))["kind"], json!("config"));
    key(&env, "short.key", "07");
    assert_eq!(error_of(&verify(&env, &["--archive", "archive", "--key", "short.key", "--json"], 2))["kind"], json!("value"));
    key(&env, "other.key", &"08".repeat(32));
    let other = verify(&env, &["--archive", "archive", "--key", "other.key", "--json"], 1);
    assert_eq!(documents(&other)[0]["finding"]["kind"], json!("unknown-key"));
    let unproven = verify(&env, &["--archive", "archive", "--key", "other.key", "--head", "heads.jsonl", "--json"], 2);
    assert!(error_of(&unproven)["next"].as_str().unwrap().contains("--key"), "{unproven:?}");
    let nohead = verify(&env, &["--archive", "archive", "--key", "control.key", "--head", "nohead", "--json"], 2);
    assert_eq!(error_of(&nohead)["next"], json!("name a file that `latent archive status --json` printed"), "{nohead:?}");
    std::fs::create_dir(env.folder().join("empty")).unwrap();
    let empty = verify(&env, &["--archive", "empty", "--json"], 1);
    assert!(error_of(&empty)["why"].as_str().unwrap().starts_with("there is no archive at"), "{empty:?}");
    let restored = env.run(["archive", "restore", "--archive", "empty", "--json"]).with_status(1);
    assert!(error_of(&restored)["why"].as_str().unwrap().starts_with("there is no archive at"), "{restored:?}");
}

/// One file of heads of two archives: those of the other one are not missing in the copy that is verified.
#[test]
fn heads_of_several_archives_need_a_topic() {
    let env = archived();
    let heads = std::fs::read_to_string(env.folder().join("heads.jsonl")).unwrap();
    let line = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        (line["topic"], line["archive"]) = (json!("in"), json!("archive"));
        format!("{line}\n")
    };
    let of_one: String = heads.lines().map(line).collect();
    env.write("heads.jsonl", format!("{of_one}{}\n", json!({ "topic": "other", "format": "objects", "archive": "elsewhere" })));
    let refused = verify(&env, &[&PROOF[..], &["--json"]].concat(), 2);
    assert!(error_of(&refused)["why"].as_str().unwrap().contains("\"archive\", \"elsewhere\""), "{refused:?}");
    assert!(error_of(&refused)["next"].as_str().unwrap().contains("--topic"), "{refused:?}");
    let _ = restore(&env, &["--head", "heads.jsonl"], 2);
    let _ = verify(&env, &[&PROOF[..], &["--topic", "in"]].concat(), 0);
    env.write("heads.jsonl", of_one);
    let _ = verify(&env, &PROOF, 0);
}

pub(super) fn restore(env: &CliEnv, arguments: &[&str], status: i32) -> CliOutput {
    env.run(["archive", "restore", "--archive", "archive", "--key", "control.key", "--json"].iter().chain(arguments)).with_status(status)
}

/// Sums a number over the partitions that were restored.
fn sum(output: &CliOutput, number: &str) -> u64 {
    documents(output).iter().map(|line| line["restored"][number].as_u64().unwrap()).sum()
}

fn assert_restored(env: &CliEnv, topic: &str) {
    let mut all = Vec::new();
    for partition in 0..3 {
        let events = fetched(env, topic, partition);
        for key in (0..5).map(|n| format!("key-{n}")) {
            let of_key: Vec<_> = events.iter().filter(|event| event["key"] == *key).map(|event| event["value"]["n"].as_u64()).collect();
            assert!(of_key.is_sorted(), "{key}: {of_key:?}");
        }
        all.extend(events.iter().map(|event| event["uid"].as_str().unwrap().to_owned()));
    }
    all.sort();
    let mut expected: Vec<_> = (0..EVENTS).map(|n| format!("order-{n}")).collect();
    expected.sort();
    assert_eq!(all, expected);
}

#[test]
fn an_archive_comes_back_into_a_directory_and_again_changes_nothing() {
    let env = archived();
    let first = restore(&env, &["--progress", "restore.json"], 0);
    assert_eq!([sum(&first, "records"), sum(&first, "compared"), sum(&first, "already_there")], [60, 60, 0]);
    assert_restored(&env, "in");
    let again = restore(&env, &["--progress", "restore.json"], 0);
    assert_eq!([sum(&again, "records"), sum(&again, "already_there")], [60, 0], "nothing was published again");
    let without = restore(&env, &[], 0);
    assert_eq!([sum(&without, "records"), sum(&without, "already_there")], [60, 60]);
    assert_restored(&env, "in");
    let other = restore(&env, &["--progress", "restore.json", "--topic", "in"], 2);
    assert!(error_of(&other)["why"].as_str().unwrap().contains("another restoration"), "{other:?}");
}

#[test]
fn an_archive_comes_back_through_a_running_node() {
    let env = archived();
    let node = node(&env);
    let restored = restore(&env, &[], 0);
    assert_eq!([sum(&restored, "records"), sum(&restored, "compared")], [60, 60]);
    assert_restored(&env, "in");
    assert_eq!(sum(&restore(&env, &["--into", "one"], 0), "records"), 60);
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn of_an_archive_that_is_not_sound_nothing_is_published() {
    let env = archived();
    let segments = segments(&env);
    let mut bytes = std::fs::read(&segments[1]).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&segments[1], bytes).unwrap();
    let refused = restore(&env, &[], 1);
    assert_eq!(error_of(&refused)["kind"], json!("archive-unsound"));
    assert!((0..3).all(|partition| fetched(&env, "in", partition).is_empty()));
}

#[test]
fn the_archives_of_a_configuration_are_verified_beside_its_log_and_their_status_is_shown() {
    let env = archived();
    assert_eq!(sum(&restore(&env, &[], 0), "records"), 60);
    let manifest = MANIFEST.replace("partitions: 3 }", "partitions: 3, retention: { cold_uri: archive, cold_format: segments } }");
    env.write("bridge.yaml", manifest);
    env.write("latent.toml", format!("{CONFIG}\n[archive]\ncontrol_key_files = [\"control.key\"]\n"));
    let verified = verify(&env, &["--json"], 0);
    assert_eq!(documents(&verified)[0]["verified"]["report"]["compared_with_log"], json!(EVENTS), "{verified:?}");
    let status = env.run(["archive", "status"]).with_status(0).stdout;
    assert!(status.contains("TOPIC") && status.contains("segments") && status.contains("archive"), "{status}");
}

/// What a broker removed before it was in a segment, as an operator sees it.
#[test]
fn a_hole_and_how_long_there_is_left_stand_in_the_status_and_a_hole_is_a_finding() {
    require_broker!();
    let broker = super::cluster::broker("broker.latent.test");
    let env = super::cluster::with_node(&broker);
    let retention = "hot_hours: 2, cold_uri: archive, cold_format: segments";
    let manifest = std::fs::read_to_string(env.folder().join("bridge.yaml")).unwrap();
    env.write("bridge.yaml", manifest.replacen("hot_hours: 2", retention, 1));
    let config = std::fs::read_to_string(env.folder().join("latent.toml")).unwrap();
    env.write("latent.toml", format!("{config}\n[archive]\ncontrol_key_files = [\"control.key\"]\n"));
    key(&env, "control.key", &"07".repeat(32));
    super::cluster::provision_for(&broker, &env);
    let node = node(&env);
    let maintain = || documents(&env.run(["bus", "maintain", "--json"]).with_status(0)).remove(0);
    let status = || documents(&env.run(["archive", "status", "--json"]).with_status(0));
    assert_eq!(maintain()["archive_holes"], json!(0));
    publish(&env, &["in.raw"], b"{\"n\":1}\n{\"n\":2}\n", 0);
    maintain();
    // The first line is about intents.
    let waiting: Vec<_> = status().iter().skip(1).filter_map(|line| line["left_seconds"].as_u64()).collect();
    assert!(!waiting.is_empty() && waiting.iter().all(|left| (3_600..=7_200).contains(left)), "{waiting:?}");
    super::cluster::with_admin(&broker, async |admin| admin.purge_stream("av_in_raw").await);
    let holes = maintain()["archive_holes"].as_u64().unwrap();
    assert!(holes > 0);
    assert_eq!(maintain()["archive_holes"], json!(0), "told once");
    let named: Vec<_> = status().iter().skip(1).flat_map(|line| line["holes_named"].as_array().cloned().unwrap()).collect();
    assert_eq!(named.len() as u64, holes, "{named:?}");
    assert_eq!(named.iter().map(|hole| hole["events"].as_u64().unwrap()).sum::<u64>(), 2);
    assert!(named.iter().all(|hole| hole["last"] == json!(2) && hole["reason"] == json!("removed-before-archived")), "{named:?}");
    let human = env.run(["archive", "status"]).with_status(0).stdout;
    assert!(human.contains("HOLES") && human.contains("LEFT"), "{human}");
    let verified = documents(&env.run(["archive", "verify", "--json"]).with_status(1));
    assert_eq!(verified[0]["finding"]["kind"], json!("hole"), "{verified:?}");
    let accepted = documents(&env.run(["archive", "verify", "--json", "--accept-holes"]).with_status(0));
    assert_eq!(accepted, verified, "told all the same");
    assert_eq!(node.stop(), Some(0));
}

/// Without `--key` the keys of the configuration prove an archive; where there are none, that is said.
#[test]
fn an_archive_that_another_key_made_is_not_restored_without_a_word() {
    let env = archived();
    let restored = |arguments: &[&str], status| {
        env.run(["archive", "restore", "--archive", "archive", "--into", "one"].iter().chain(arguments)).with_status(status)
    };
    let unproven = restored(&[], 0);
    assert!(unproven.stderr.contains("no control key was given or is configured"), "{}", unproven.stderr);
    key(&env, "other.key", &"08".repeat(32));
    let config = std::fs::read_to_string(env.folder().join("latent.toml")).unwrap();
    env.write("latent.toml", format!("{config}\n[archive]\ncontrol_key_files = [\"other.key\"]\n"));
    let refused = restored(&[], 1);
    assert!(refused.stdout.contains("unknown-key"), "{refused:?}");
    assert!(!restored(&["--key", "control.key"], 0).stderr.contains("no control key"));
}
