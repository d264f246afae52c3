//! `latent clock`, in a directory and through a node. No test sets the machine's clock: what an earlier process believed is written
//! instead, so that this clock is the one that went back.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use latent_bridge::cold::ArchiveOptions;
use latent_bridge::embedded::EngineOptions;
use latent_bridge::{BridgeManifest, EmbeddedBroker, EventBus};
use latent_core::{Attributes, MediaType, NewRecord, UnixMillis};
use latent_testkit::ManualClock;
use serde_json::json;

use super::*;

const DAY: u64 = 86_400_000;

fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// A record of a process that believed `days` from now, on another boot of the machine.
fn believe_in(env: &CliEnv, days: u64) {
    let then = now() + days * DAY;
    let lines = [format!("believed-from {then}"), format!("believed-to {then}"), format!("seen {then}")];
    let checked = lines.map(|line| format!("{:08x} {line}\n", crc32fast::hash(line.as_bytes())));
    env.write("data/host/clock", format!("latent-clock 1\n{}end\n", checked.concat()));
}

fn status(env: &CliEnv) -> Value {
    documents(&env.run(["clock", "status", "--json"]).with_status(0)).remove(0)
}

fn maintained(env: &CliEnv, exit: i32) -> CliOutput {
    env.run(["bus", "maintain", "--json"]).with_status(exit)
}

#[test]
fn a_clock_that_goes_on_is_believed() {
    let env = provisioned();
    for _ in 0..2 {
        let clock = status(&env);
        assert_eq!((&clock["state"], &clock["jump_ms"], &clock["reason"]), (&json!("sound"), &json!(null), &json!(null)));
    }
    assert!(env.run(["clock", "status"]).with_status(0).stdout.starts_with("sound: it is 2"));
    let _ = maintained(&env, 0);
    let node = node(&env);
    assert_eq!(status(&env)["state"], json!("sound"));
    assert_eq!(node.stop(), Some(0));
    assert_eq!(status(&env)["state"], json!("sound"), "a restart is no jump");
}

#[test]
fn a_directory_is_not_maintained_by_a_clock_that_went_back_until_an_operator_confirms_it() {
    let env = provisioned();
    believe_in(&env, 10);
    for _ in 0..2 {
        let clock = status(&env);
        assert_eq!(clock["state"], json!("held"));
        let behind = clock["jump_ms"].as_i64().unwrap() + i64::try_from(10 * DAY).unwrap();
        assert!((0..600_000).contains(&behind), "{clock}");
        let error = error_of(&maintained(&env, 1));
        assert_eq!(error["kind"], json!("clock-held"));
        let (why, next) = (error["why"].as_str().unwrap(), error["next"].as_str().unwrap());
        assert!(why.starts_with("retention is held: the wall clock is 9 days behind") && next.contains("latent clock confirm"), "{error}");
    }
    let human = env.run(["clock", "status"]).with_status(0).stdout;
    assert!(human.starts_with("held: it is 2") && human.ends_with("retention waits\n"), "{human}");
    let confirmed = env.run(["clock", "confirm"]).with_status(0).stdout;
    assert!(confirmed.starts_with("confirmed: it is 2"), "{confirmed}");
    let _ = maintained(&env, 0);
    assert_eq!(status(&env)["state"], json!("sound"), "the word outlives the command");
}

#[test]
fn a_node_holds_its_maintenance_and_nothing_else_and_a_kill_does_not_make_it_forget() {
    let env = provisioned();
    believe_in(&env, 10);
    let mut first = node(&env);
    assert_eq!(publish(&env, &["one"], b"{\"n\":1}\n", 0).len(), 1);
    assert_eq!(fetched(&env, "one", 0).len(), 1, "the log is read and written as ever");
    assert_eq!(error_of(&maintained(&env, 1))["kind"], json!("clock-held"));
    first.child.kill().unwrap();
    let mut second = node(&env);
    assert_eq!(status(&env)["state"], json!("held"));
    assert_eq!(documents(&env.run(["clock", "confirm", "--json"]).with_status(0))[0]["state"], json!("sound"));
    let _ = maintained(&env, 0);
    second.child.kill().unwrap();
    let third = node(&env);
    assert_eq!(status(&env)["state"], json!("sound"));
    assert_eq!(third.stop(), Some(0));
}

#[test]
fn a_record_that_cannot_be_read_holds_and_is_replaced_by_a_confirmation() {
    let env = provisioned();
    env.write("data/host/clock", "latent-clock 1\n00000000 believed-from 1\nend\n");
    let clock = status(&env);
    assert_eq!((&clock["state"], &clock["jump_ms"]), (&json!("held"), &json!(null)));
    assert_eq!(error_of(&maintained(&env, 1))["kind"], json!("clock-held"));
    let _ = env.run(["clock", "confirm"]).with_status(0);
    let _ = maintained(&env, 0);
}

#[test]
fn a_confirmation_that_cannot_be_written_down_is_uncertain() {
    let env = provisioned();
    let node = node(&env);
    wait_until("the node's own first file there", || env.folder().join("data/host/clock").exists());
    // A file where the directory was: nothing can be written in it.
    std::fs::remove_dir_all(env.folder().join("data/host")).unwrap();
    env.write("data/host", "");
    let error = error_of(&env.run(["clock", "confirm", "--json"]).with_status(3));
    assert_eq!(error["kind"], json!("clock-not-durable"));
    assert!(error["next"].as_str().unwrap().contains("before the node stops"), "{error}");
    assert_eq!(node.stop(), Some(0), "and the node stops as ever");
}

#[test]
fn a_confirmation_without_an_answer_is_uncertain() {
    let env = provisioned();
    scripted_node(&env, |_| None);
    assert_eq!(error_of(&env.run(["clock", "confirm", "--json"]).with_status(3))["kind"], json!("control-closed"));
}

/// Events of three hours ago that have expired, of a topic in objects and of one in segments.
fn with_expired_events() -> CliEnv {
    let env = fresh();
    let cold = env.folder().join("cold");
    let kept = |format: &str| format!("retention: {{ hot_hours: 1, cold_uri: {cold:?}, cold_format: {format} }}");
    let (objects, segments) = (kept("objects"), kept("segments"));
    let topics = format!("  - {{ name: in, partitions: 3, {segments} }}\n  - {{ name: one, partitions: 1, {objects} }}\n");
    let manifest = format!("manifest_version: 1\nname: demo\ntopics:\n{topics}");
    env.write("bridge.yaml", &manifest);
    let key = env.write("control.key", "07".repeat(32));
    std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600)).unwrap();
    env.write("latent.toml", format!("{CONFIG}[archive]\ncontrol_key_files = [\"control.key\"]\n"));
    let clock = Arc::new(ManualClock::starting_at(UnixMillis(now() - 3 * 3_600_000)));
    let archive = ArchiveOptions { control_keys: vec![[7; 32]], ..ArchiveOptions::default() };
    let options = EngineOptions { clock, archive, ..EngineOptions::default() };
    let log = EmbeddedBroker::provision_with(&env.folder().join("data"), &BridgeManifest::from_yaml(&manifest).unwrap(), options).unwrap();
    for topic in ["in", "one"] {
        let record = NewRecord::new(None, "", MediaType::json(), Attributes::default(), "{}".into()).unwrap();
        log.submit_record(topic, record).wait().unwrap();
    }
    drop(log);
    env
}

/// What is archived and what is hot, as numbers of objects and events.
fn archived_and_hot(env: &CliEnv) -> (usize, usize) {
    let files = |folder: String| std::fs::read_dir(env.folder().join("cold").join(folder)).map_or(0, Iterator::count);
    let archived = (0..3).map(|partition| files(format!("in/p{partition}"))).sum::<usize>() + files("one/p0".to_owned());
    let hot = (0..3).map(|partition| fetched(env, "in", partition).len()).sum::<usize>() + fetched(env, "one", 0).len();
    (archived, hot)
}

#[test]
fn what_is_to_be_archived_waits_through_a_kill_until_an_operator_confirms_the_clock() {
    let env = with_expired_events();
    believe_in(&env, 10);
    let mut first = node(&env);
    assert_eq!(error_of(&maintained(&env, 1))["kind"], json!("clock-held"));
    assert_eq!(archived_and_hot(&env), (0, 2));
    first.child.kill().unwrap();
    let second = node(&env);
    assert_eq!(status(&env)["state"], json!("held"));
    assert_eq!(error_of(&maintained(&env, 1))["kind"], json!("clock-held"));
    assert_eq!(archived_and_hot(&env), (0, 2));
    let confirmed = env.run(["clock", "confirm"]).with_status(0).stdout;
    assert!(confirmed.starts_with("confirmed: it is 2"), "{confirmed}");
    let _ = maintained(&env, 0);
    assert_eq!(archived_and_hot(&env), (2, 0));
    assert_eq!(second.stop(), Some(0));
}
