//! `latent archive verify -c`: what must be in an archive, as manifest and log say it, is missed wherever it is gone, and looking leaves
//! nothing behind.

use std::path::{Path, PathBuf};

use latent_bridge::cold::ArchiveOptions;
use latent_bridge::embedded::EngineOptions;
use latent_bridge::{EmbeddedBroker, EventBus};
use latent_core::{Attributes, Clock as _, MediaType, NewRecord, Partition, SystemClock, Uid, UnixMillis};

use super::archive::{key, verify};
use super::*;

/// A topic whose events have all expired into `cold`: partition and offsets of its objects.
fn expired() -> (CliEnv, Vec<(u32, u64)>) {
    let env = fresh();
    key(&env, "control.key", &"07".repeat(32));
    env.write("bridge.yaml", MANIFEST.replace("partitions: 3 }", "partitions: 3, retention: { hot_hours: 1, cold_uri: cold } }"));
    env.write("latent.toml", format!("{CONFIG}\n[archive]\ncontrol_key_files = [\"control.key\"]\n"));
    let _ = env.run(["bus", "provision"]).with_status(0);
    let archive = ArchiveOptions { control_keys: vec![[7; 32]], ..ArchiveOptions::default() };
    let log = EmbeddedBroker::open_with(&env.folder().join("data"), EngineOptions { archive, ..EngineOptions::default() }).unwrap();
    for n in 0..12 {
        let uid = Some(Uid::parse(&format!("order-{n}")).unwrap());
        let record = NewRecord::new(uid, &format!("key-{n}"), MediaType::json(), Attributes::default(), format!("{n}").into()).unwrap();
        log.publish_record("in", &record).unwrap();
    }
    log.maintain(UnixMillis(SystemClock::start().unix().0 + 100 * 3_600_000)).unwrap();
    let mut there = Vec::new();
    for partition in 0..3 {
        let (first, next) = log.bounds("in", Partition(partition)).unwrap();
        assert_eq!(first, next, "everything has expired");
        there.extend((0..first.0).map(|offset| (partition, offset)));
    }
    assert_eq!(there.len(), 12);
    (env, there)
}

fn object(env: &CliEnv, (partition, offset): (u32, u64)) -> PathBuf {
    env.folder().join(format!("cold/in/p{partition}/{offset:020}.json"))
}

/// Partition, first and last offset of what is missing.
fn missing(env: &CliEnv) -> Vec<(u64, u64, u64)> {
    let output = env.run(["archive", "verify", "--json"]);
    let found: Vec<_> = documents(&output).into_iter().filter(|line| line["finding"]["kind"] == "missing").collect();
    assert_eq!(output.status, Some(i32::from(!found.is_empty())), "{output:?}");
    let number = |line: &Value, name: &str| line["finding"][name].as_u64().unwrap();
    found.iter().map(|line| (number(line, "partition"), number(line, "first"), number(line, "last"))).collect()
}

/// Moves something away while it is looked at.
fn without<T>(env: &CliEnv, path: &Path, look: impl FnOnce() -> T) -> T {
    let aside = env.folder().join("aside");
    std::fs::rename(path, &aside).unwrap();
    let told = look();
    std::fs::rename(&aside, path).unwrap();
    told
}

#[test]
fn whatever_is_gone_of_an_archive_is_missed_by_topic_partition_and_offsets() {
    let (env, there) = expired();
    assert_eq!(missing(&env), []);
    let last = |partition| there.iter().filter(|(other, _)| *other == partition).map(|(_, offset)| *offset).max().unwrap();
    let of_partition = |partition: u32| (u64::from(partition), 0, last(partition));
    let partition = there[0].0;
    assert_eq!(without(&env, &object(&env, (partition, 0)), || missing(&env)), [(u64::from(partition), 0, 0)], "the first one");
    let end = last(partition);
    assert_eq!(without(&env, &object(&env, (partition, end)), || missing(&env)), [(u64::from(partition), end, end)], "the last one");
    let folder = env.folder().join(format!("cold/in/p{partition}"));
    assert_eq!(without(&env, &folder, || missing(&env)), [of_partition(partition)], "a partition");
    let all: Vec<_> = (0..3).filter(|partition| there.iter().any(|(other, _)| other == partition)).map(of_partition).collect();
    assert_eq!(without(&env, &env.folder().join("cold/in"), || missing(&env)), all, "a topic");
    let whole = env.folder().join("cold");
    let told = without(&env, &whole, || {
        let found = missing(&env);
        assert!(!whole.exists(), "looking makes no folder");
        let human = env.run(["archive", "verify"]).with_status(1);
        assert!(human.stderr.contains("there is no folder") && human.stderr.contains("cold"), "{}", human.stderr);
        found
    });
    assert_eq!(told, all, "the whole archive");
    assert_eq!(missing(&env), []);
}

#[test]
fn a_relative_archive_is_the_same_from_every_folder_and_looking_leaves_nothing_there() {
    let (env, _) = expired();
    std::fs::remove_dir_all(env.folder().join("cold/latent-probe")).unwrap_or_default();
    std::fs::create_dir(env.folder().join("elsewhere")).unwrap();
    let mut command = env.command(["archive", "verify", "-c", "../latent.toml"]);
    let output = command.current_dir(env.folder().join("elsewhere")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("12 single events"), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(std::fs::read_dir(env.folder().join("elsewhere")).unwrap().count(), 0);
    assert!(!env.folder().join("cold/latent-probe").exists(), "no probe was written");
}

#[test]
fn an_empty_log_beside_an_archive_that_has_events_is_a_difference() {
    let (env, there) = expired();
    std::fs::remove_dir_all(env.folder().join("data")).unwrap();
    let _ = env.run(["bus", "provision"]).with_status(0);
    let output = verify(&env, &["--json"], 1);
    let extra = documents(&output).iter().filter(|line| line["finding"]["kind"] == "extra").count();
    assert_eq!(extra, there.len(), "{output:?}");
}

#[test]
fn what_is_no_object_in_a_folder_is_told_and_not_waited_for() {
    let (env, there) = expired();
    let path = object(&env, there[0]);
    std::fs::remove_file(&path).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let told = verify(&env, &[], 1).stdout;
    let name = format!("in/p{}/{:020}.json", there[0].0, there[0].1);
    assert!(told.contains(&format!("extra: {name}: it is a link, a pipe")) && told.contains("missing: in/p"), "{told}");
    std::fs::write(env.folder().join("other.yaml"), MANIFEST).unwrap();
    let restored = env.run(["archive", "restore", "--archive", "cold", "--into", "one", "--json"]).with_status(1);
    assert_eq!(error_of(&restored)["kind"], json!("archive-unsound"));
    assert!(fetched(&env, "one", 0).is_empty());
}

#[test]
fn the_archive_of_a_running_node_is_expected_to_be_whole_as_well() {
    let (env, there) = expired();
    let node = node(&env);
    assert_eq!(missing(&env), []);
    let (partition, offset) = there[0];
    assert_eq!(without(&env, &object(&env, there[0]), || missing(&env)), [(u64::from(partition), offset, offset)]);
    assert_eq!(node.stop(), Some(0));
}
