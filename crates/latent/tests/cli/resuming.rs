//! `latent bus publish` killed in the middle, or its node: running it again doubles nothing and leaves nothing out.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;

const LINES: usize = 3_000;
/// Those that are written before the kill.
const BEFORE: usize = 1_500;

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Killed {
    /// The command, which has the directory to itself.
    Alone,
    /// The command, which publishes through a node.
    Client,
    /// The node that it publishes through.
    Node,
}

/// Ways in which the events of a file get their uids and keys.
const WAYS: [&[&str]; 4] = [
    &["--key-pointer", "/n"],
    &["--key-pointer", "/k", "--uid-pointer", "/id"],
    &["--raw-lines", "--media-type", "text/plain"],
    &["--raw-lines", "--media-type", "application/x-ndjson", "--uid-pointer", "/id", "--key-pointer", "/k"],
];

fn lines() -> Vec<String> {
    (0..LINES).map(|n| format!("{{\"n\":{n},\"k\":\"k{}\",\"id\":\"id-{n}\"}}\n", n % 7)).collect()
}

/// Publishes and kills once at least one line is acknowledged; hands back the documents that were seen.
fn publish_and_kill(env: &CliEnv, way: &[&str], killed: Killed) -> Vec<Value> {
    let mut node = (killed != Killed::Alone).then(|| node(env));
    let mut client = Running::start(env, &[&["bus", "publish", "in", "--file", "-", "--json"], way].concat());
    let lines = lines();
    client.write(lines[..BEFORE].concat().as_bytes());
    // Its input has not ended, so an acknowledged line proves that it is in the middle of its work.
    let mut seen = vec![client.document()];
    match (killed, &mut node) {
        (Killed::Node, Some(node)) => {
            node.child.kill().unwrap();
            // It may have ended by itself already.
            let _ = client.stdin.take().unwrap().write_all(lines[BEFORE..].concat().as_bytes());
            let mut rest = String::new();
            std::io::Read::read_to_string(&mut client.stdout, &mut rest).unwrap();
            seen.extend(rest.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
            let status = client.child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code();
            let uncertain = seen.iter().any(|document| document["error"]["uncertain"] == json!(true));
            assert_eq!(status, Some(if uncertain { 3 } else { 1 }), "{:?}", seen.last());
        }
        _ => drop(client.child.kill().unwrap()),
    }
    if let (Killed::Client, Some(node)) = (killed, node) {
        assert_eq!(node.stop(), Some(0));
    }
    seen
}

#[test]
fn a_publication_that_was_cut_off_is_finished_by_running_it_again() {
    for killed in [Killed::Alone, Killed::Client, Killed::Node] {
        for way in WAYS {
            let env = provisioned();
            let seen = publish_and_kill(&env, way, killed);
            let again = publish(&env, &[&["in"], way].concat(), lines().concat().as_bytes(), 0);
            assert_eq!(again.len(), LINES, "{killed:?} {way:?}");
            // What was acknowledged is recognised at its place.
            for ack in seen.iter().filter(|document| document.get("error").is_none()) {
                let same = again.iter().find(|again| again["uid"] == ack["uid"]).unwrap();
                assert_eq!((&same["partition"], &same["offset"]), (&ack["partition"], &ack["offset"]), "{killed:?} {way:?}");
                assert_eq!(same["duplicate"], json!(true), "{killed:?} {way:?}");
            }
            let stored: Vec<_> = (0..3).flat_map(|partition| fetched(&env, "in", partition)).collect();
            let uids: BTreeSet<_> = stored.iter().map(|event| event["uid"].as_str().unwrap()).collect();
            assert_eq!((stored.len(), uids.len()), (LINES, LINES), "{killed:?} {way:?}");
            if way.contains(&"--uid-pointer") {
                assert!(uids.contains("id-0") && uids.contains("id-2999"), "{killed:?} {way:?}");
            }
        }
    }
}
