//! The process is killed. A child is this test binary run again with an environment variable.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use latent_bridge::embedded::Durability;
use latent_bridge::{BusError, EmbeddedBroker, EventBus};
use latent_core::{Offset, Partition};

use crate::support::fixtures::{manifest, record};

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
    let broker = EmbeddedBroker::open(Path::new(&directory)).unwrap();
    let log = broker.state_log("deliveries").unwrap();
    for n in 0.. {
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

#[test]
fn everything_a_killed_process_acknowledged_is_there() {
    let directory = tempfile::tempdir().unwrap();
    drop(EmbeddedBroker::provision(directory.path(), &manifest(&[("t", 4)])).unwrap());
    let mut reported = Vec::new();
    for lines in [10, 57, 200] {
        reported.extend(run_and_kill(directory.path(), lines));
        let broker = EmbeddedBroker::open(directory.path()).unwrap();
        let mut entries = std::collections::BTreeSet::new();
        let report = broker.state_log("deliveries").unwrap().replay(|entry| entries.extend(String::from_utf8(entry.to_vec()))).unwrap();
        assert_eq!(report.damaged, 0);
        for line in &reported {
            let fields: Vec<_> = line.split(' ').collect();
            if let ["acknowledged", uid, partition, offset] = fields[..] {
                let found = broker.find_event_by_uid("t", "", uid).unwrap().unwrap();
                assert_eq!((found.partition.to_string(), found.offset.to_string()), (partition.to_owned(), offset.to_owned()));
                let read = broker.submit_fetch("t", Partition(found.partition), Offset(found.offset), 1).wait().unwrap();
                assert_eq!(read[0].record.uid.as_str(), uid);
            } else {
                assert!(entries.contains(fields[1]), "{line}");
            }
        }
    }
}

#[test]
fn another_process_that_has_the_directory_is_named_and_its_kill_frees_it() {
    let directory = tempfile::tempdir().unwrap();
    drop(EmbeddedBroker::provision(directory.path(), &manifest(&[("t", 4)])).unwrap());
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
