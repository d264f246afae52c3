//! The process is killed. A child is this test binary run again with an environment variable.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use latent_bridge::embedded::{Durability, EngineLimits, EngineOptions};
use latent_bridge::{BusError, EmbeddedBroker, EventBus};
use latent_core::Partition;

use crate::support::fixtures::{Seeded, manifest, record, scratch};
use crate::support::history::readable;

/// Small segments, so that a child seals, prepares, merges and expires all the time.
fn small() -> EngineOptions {
    let limits = EngineLimits { segment_bytes: 16_384, segment_records: 60, preallocation_bytes: 2_048, ..EngineLimits::default() };
    EngineOptions { limits, ..EngineOptions::default() }
}

/// Set in a child to the data directory.
const CHILD: &str = "LATENT_BRIDGE_TEST_CHILD_DIRECTORY";

fn spawn_child(directory: &Path) -> Child {
    let binary = std::env::current_exe().unwrap();
    let arguments = ["embedded::kill::child_publishes_until_it_is_killed", "--exact", "--nocapture", "--test-threads=1"];
    Command::new(binary).args(arguments).env(CHILD, directory).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// Not a test of its own: without the variable it has nothing to do.
#[test]
fn child_publishes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let broker = EmbeddedBroker::open_with(Path::new(&directory), small()).unwrap();
    let log = broker.state_log("deliveries").unwrap();
    for n in 0.. {
        if n % 40 == 39 {
            // Of topic `old` everything expires; of `t` nothing does.
            broker.publish_record("old", &record(&format!("{}-{n}", std::process::id()), "k", vec![b'o'; 2_000])).unwrap();
            broker.enforce_retention(EngineOptions::default().clock.unix().0 + 2 * 3_600_000).unwrap();
        }
        let uid = format!("{}-{n}", std::process::id());
        let batch: Vec<_> = (0..5).map(|part| record(&format!("{uid}-{part}"), &format!("key-{part}"), vec![b'x'; 300 * part])).collect();
        let acks = broker.publish_batch("t", &batch);
        log.append(uid.clone().into_bytes().into(), Durability::Written).wait().unwrap();
        for ack in acks {
            let ack = ack.unwrap();
            println!("\nacknowledged {} {} {}", ack.uid, ack.partition, ack.offset);
        }
        println!("\nwritten {uid}");
    }
}

/// Lets a child run until it reported `lines` lines, kills it, and returns everything it had reported by then.
fn run_and_kill(directory: &Path, lines: usize) -> Vec<String> {
    let mut child = spawn_child(directory);
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let reported = |line: &String| line.starts_with("acknowledged ") || line.starts_with("written ");
    let mut seen: Vec<_> = output.by_ref().filter(reported).take(lines).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    // The last line may have been cut by the kill; whole ones end where three or one fields are complete.
    seen.extend(output.filter(reported));
    let whole = |line: &String| line.split(' ').count() == if line.starts_with("written") { 2 } else { 4 };
    seen.pop();
    seen.retain(whole);
    assert!(seen.len() + 1 >= lines, "the child ended early: {seen:?}");
    seen
}

/// A topic that keeps everything and one that keeps an hour.
fn provisioned(directory: &Path) {
    let mut manifest = manifest(&[("t", 4), ("old", 1)]);
    manifest.topics[1].retention.hot_hours = 1;
    drop(EmbeddedBroker::provision_with(directory, &manifest, small()).unwrap());
}

/// Everything reported is there: found, at its place, once, and in the order in which it was acknowledged.
fn check(directory: &Path, reported: &[String]) {
    let broker = EmbeddedBroker::open_with(directory, small()).unwrap();
    let mut entries = BTreeSet::new();
    let report = broker.state_log("deliveries").unwrap().replay(|entry| entries.extend(String::from_utf8(entry.to_vec()))).unwrap();
    assert_eq!(report.damaged, 0);
    let mut places = BTreeMap::new();
    for partition in 0..4 {
        let records = readable(&broker, "t", partition, "after a kill");
        let (first, next) = broker.bounds("t", Partition(partition)).unwrap();
        assert_eq!((first.0, next.0), (0, records.len() as u64), "dense");
        for record in records {
            let place = (partition, record.offset.0);
            assert_eq!(places.insert(record.record.uid.as_str().to_owned(), place), None, "twice");
        }
    }
    let mut next_of = [0; 4];
    for line in reported {
        let fields: Vec<_> = line.split(' ').collect();
        if let ["acknowledged", uid, partition, offset] = fields[..] {
            let (partition, offset): (u32, u64) = (partition.parse().unwrap(), offset.parse().unwrap());
            assert_eq!(places.get(uid), Some(&(partition, offset)), "{line}");
            let next = &mut next_of[partition as usize];
            assert!(offset >= *next, "{line} after {next}");
            *next = offset + 1;
        } else {
            assert!(entries.contains(fields[1]), "{line}");
        }
    }
    for line in reported.iter().rev().filter(|line| line.starts_with("acknowledged")).take(100) {
        let fields: Vec<_> = line.split(' ').collect();
        let found = broker.find_event_by_uid("t", "", fields[1]).unwrap().unwrap();
        assert_eq!((found.partition.to_string(), found.offset.to_string()), (fields[2].to_owned(), fields[3].to_owned()));
    }
}

#[test]
fn everything_that_processes_acknowledged_before_each_was_killed_is_there_once_and_in_order() {
    let directory = scratch();
    provisioned(directory.path());
    let mut seeded = Seeded(4_711);
    let mut reported = Vec::new();
    for _ in 0..22 {
        reported.extend(run_and_kill(directory.path(), 2 + seeded.below(400)));
        check(directory.path(), &reported);
    }
    let folder = |topic: &str| std::fs::read_dir(directory.path().join("topics").join(topic)).unwrap().count();
    assert!(folder("t") > 20 && folder("old") < 8, "{} {}", folder("t"), folder("old"));
}

#[test]
fn another_process_that_has_the_directory_is_named_and_its_kill_frees_it() {
    let directory = tempfile::tempdir().unwrap();
    provisioned(directory.path());
    let mut child = spawn_child(directory.path());
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(output.any(|line| line.starts_with("acknowledged ")));
    let refused = EmbeddedBroker::open(directory.path()).map(|_| ()).unwrap_err();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        matches!(&refused, BusError::InUse { holder, .. } if *holder == format!("process {} (latent-bridge)", child.id())),
        "{refused}"
    );
    assert!(EmbeddedBroker::open(directory.path()).is_ok());
}
