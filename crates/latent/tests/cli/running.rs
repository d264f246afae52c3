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
