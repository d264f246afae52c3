//! What a running and a stopped node say of their triggers.

use serde_json::json;

use super::*;

const WITH_TRIGGER: &str = "\
[[service]]
name = \"triage\"
tenant = \"acme\"
component = \"triage.wasm\"
[[trigger]]
id = \"t1\"
tenant = \"acme\"
service = \"triage\"
topic = \"in\"
";

#[test]
fn the_triggers_of_a_stopped_node_are_stopped() {
    let env = provisioned();
    env.write("latent.toml", CONFIG.to_owned() + WITH_TRIGGER);
    let statuses = documents(&env.run(["trigger", "status", "--json"]).with_status(0));
    assert_eq!(statuses.len(), 1);
    let stable = [
        "id",
        "engine",
        "state",
        "pending",
        "unacknowledged",
        "delayed",
        "dead_lettered",
        "last_outcome",
        "last_delivery_at",
        "next_attempt_at",
    ];
    for field in stable {
        assert!(statuses[0].get(field).is_some(), "{field} is missing in {}", statuses[0]);
    }
    assert_eq!((&statuses[0]["id"], &statuses[0]["state"], &statuses[0]["engine"]), (&json!("t1"), &json!("stopped"), &json!("embedded")));
    for counted in ["settled", "terminated", "exhausted"] {
        assert_eq!(statuses[0][counted], json!(null), "{counted} is not known of a stopped node");
    }
    let table = env.run(["trigger", "status"]).with_status(0).stdout;
    assert!(table.starts_with("TRIGGER") && table.lines().count() == 2 && table.contains("stopped"), "{table}");
}

#[test]
fn a_node_needs_its_component() {
    let env = provisioned();
    env.write("latent.toml", CONFIG.to_owned() + WITH_TRIGGER);
    let error = error_of(&env.run(["run", "--json"]).with_status(2));
    assert_eq!(error["problems"][0]["kind"], json!("config-component"));
}

/// What a process may hold beyond what is accounted: the allocator's own pieces, stacks of threads, code that was written to.
const SLACK_BYTES: u64 = 64 << 20;

fn memory_bytes(node: &Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.child.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1_024
}

/// The bound that a node says of itself, as it says it on its socket.
fn accounting_bound(env: &CliEnv) -> u64 {
    let mut stream = UnixStream::connect(env.folder().join("data/control.sock")).unwrap();
    writeln!(stream, r#"{{"version":1,"request":"summary"}}"#).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    let summary: Value = serde_json::from_str(&line).unwrap();
    summary["answer"]["summary"]["accounting"]["bytes"].as_u64().unwrap()
}

#[test]
fn a_node_that_is_flooded_with_hostile_work_stays_within_its_accounting_bound() {
    let env = super::revoking::with_services(&[("hostile", "acme")]);
    // Events without a key form one line, in which a delay would hold back all others.
    let config = std::fs::read_to_string(env.folder().join("latent.toml")).unwrap();
    env.write("latent.toml", format!("{config}max_deliveries = 1\n"));
    let running = node(&env);
    let bound = accounting_bound(&env);
    // Empty lines cost a host most for a byte of a guest's budget.
    let verbs = ["log-flood:60000", "stdout-flood:60000", "empty-lines:65536", "alloc:30000000", "alloc:60000000", "recurse", "reject:no"];
    let lines: String = (0..700).map(|n| format!("{}\n", verbs[n % verbs.len()])).collect();
    let arguments = ["hostile", "--raw-lines", "--media-type", "text/plain", "--fresh-uids"];
    assert_eq!(publish(&env, &arguments, lines.as_bytes(), 0).len(), 700);
    wait_until("every event has run", || documents(&env.run(["trigger", "status", "--json"]).with_status(0))[0]["pending"] == json!(0));
    let held = memory_bytes(&running);
    assert!(held <= bound + SLACK_BYTES, "the node held {held} bytes and accounts for {bound}");
    // The bound is no excuse: what is held now is a fraction of it.
    assert!(held < bound, "{held} of {bound}");
    assert_eq!(running.stop(), Some(0));
}
