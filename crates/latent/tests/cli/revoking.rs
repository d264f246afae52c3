//! What a revocation stops and what it does not, with a real function on a real node that is stopped and killed.

use latent_test_guests::BEHAVE;
use serde_json::json;

use super::*;

/// A folder with services, each with a component file of its name and a trigger `<name>` on a topic `<name>` of one partition.
pub(crate) fn with_services(services: &[(&str, &str)]) -> CliEnv {
    let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
    let (mut manifest, mut config) = ("manifest_version: 1\nname: demo\ntopics:\n".to_owned(), String::new());
    config.push_str("[node]\nname = \"edge\"\ndata_dir = \"data\"\n[engine]\nkind = \"embedded\"\nmanifest = \"bridge.yaml\"\n");
    for (name, tenant) in services {
        manifest.push_str(&format!("  - {{ name: {name}, partitions: 1 }}\n"));
        config.push_str(&format!("[[topic]]\nname = \"{name}\"\ntenant = \"{tenant}\"\n"));
        config.push_str(&format!("[[service]]\nname = \"{name}\"\ntenant = \"{tenant}\"\ncomponent = \"{name}.wasm\"\n"));
        config.push_str(&format!("[[trigger]]\nid = \"{name}\"\ntenant = \"{tenant}\"\nservice = \"{name}\"\ntopic = \"{name}\"\n"));
        env.write(format!("{name}.wasm"), BEHAVE.component);
    }
    env.write("bridge.yaml", manifest);
    env.write("latent.toml", config);
    let _ = env.run(["bus", "provision"]).with_status(0);
    env
}

/// Digest of a service's component as `service list` says it.
pub(crate) fn digest_of(env: &CliEnv, service: &str) -> String {
    let listed = documents(&env.run(["service", "list", "--json"]).with_status(0));
    let info = listed.iter().find(|info| info["service"] == json!(service)).unwrap();
    info["digest"].as_str().unwrap().to_owned()
}

/// The same component with a note in it: another digest.
fn rebuild(env: &CliEnv, service: &str) {
    let custom_section = [0, 5, 4, b'n', b'o', b't', b'e'];
    env.write(format!("{service}.wasm"), [BEHAVE.component, &custom_section].concat());
}

fn status(env: &CliEnv, trigger: &str) -> Value {
    let statuses = documents(&env.run(["trigger", "status", "--json"]).with_status(0));
    statuses.into_iter().find(|status| status["id"] == json!(trigger)).unwrap()
}

fn count(status: &Value, field: &str) -> u64 {
    status[field].as_u64().unwrap_or_else(|| panic!("{field} in {status}"))
}

/// Publishes events of which each lets the function say yes.
fn publish_ok(env: &CliEnv, topic: &str, events: usize) {
    let arguments = [topic, "--raw-lines", "--media-type", "text/plain", "--fresh-uids"];
    assert_eq!(publish(env, &arguments, "ok\n".repeat(events).as_bytes(), 0).len(), events);
}

fn wait_until_handled(env: &CliEnv, trigger: &str, settled: u64) {
    wait_until("every event handled", || {
        let status = status(env, trigger);
        count(&status, "pending") == 0 && count(&status, "settled") == settled
    });
}

/// Waits until the trigger stands still with so many events, and says that it is because of a revocation.
fn wait_until_refused(env: &CliEnv, trigger: &str, pending: u64) -> Value {
    let mut last = Value::Null;
    wait_until("events that wait for good", || {
        last = status(env, trigger);
        let says_why = last["last_error"].as_str().is_some_and(|error| error.contains("was revoked"));
        last["state"] == json!("stalled") && says_why && count(&last, "unacknowledged") == 0 && count(&last, "pending") == pending
    });
    last
}

#[test]
fn after_a_revocation_nothing_starts_and_nothing_is_lost_whatever_is_killed_or_started() {
    let env = with_services(&[("triage", "acme")]);
    let mut first = node(&env);
    let revoked = json!({ "service": "triage", "digest": digest_of(&env, "triage"), "tenant": null });
    let total = 3_000;
    let arguments = ["bus", "publish", "triage", "--file", "-", "--raw-lines", "--media-type", "text/plain", "--fresh-uids", "--json"];
    let mut publishing = Running::start(&env, &arguments);
    publishing.write("ok\n".repeat(total / 2).as_bytes());
    wait_until("events that flow", || count(&status(&env, "triage"), "settled") >= 10);
    assert_eq!(documents(&env.run(["service", "revoke", "triage", "--json"]).with_status(0)), [revoked]);
    // What is answered is in force: only what ran at that moment can still be settled.
    publishing.write("ok\n".repeat(total / 2).as_bytes());
    drop(publishing.stdin.take());
    let mut published = 0;
    while std::io::BufRead::read_line(&mut publishing.stdout, &mut String::new()).unwrap() > 0 {
        published += 1;
    }
    assert_eq!(published, total);
    wait_until("nothing running", || count(&status(&env, "triage"), "unacknowledged") == 0);
    let settled = count(&status(&env, "triage"), "settled");
    let waiting = total as u64 - settled;
    assert!(waiting >= total as u64 / 2 - 1, "{settled} of {total} were settled");
    let refused = wait_until_refused(&env, "triage", waiting);
    assert_eq!((count(&refused, "settled"), count(&refused, "terminated")), (settled, 0));

    first.child.kill().unwrap();
    let mut second = node(&env);
    let refused = wait_until_refused(&env, "triage", waiting);
    assert_eq!(count(&refused, "settled"), 0, "the configuration still names the component, and it stays revoked");
    assert_eq!(documents(&env.run(["service", "list", "--json"]).with_status(0))[0]["state"], json!("revoked"));
    second.child.kill().unwrap();

    rebuild(&env, "triage");
    let third = node(&env);
    wait_until_handled(&env, "triage", waiting);
    assert_eq!(count(&status(&env, "triage"), "terminated"), 0);
    let states: Vec<_> =
        documents(&env.run(["service", "list", "--json"]).with_status(0)).iter().map(|info| info["state"].clone()).collect();
    assert_eq!(states, [json!("live"), json!("revoked")], "the old component is remembered");
    assert_eq!(third.stop(), Some(0));
}

#[test]
fn a_revocation_for_one_tenant_leaves_others_with_the_same_component_alone() {
    let env = with_services(&[("triage", "acme"), ("mail", "beta")]);
    assert_eq!(digest_of(&env, "triage"), digest_of(&env, "mail"));
    let first = node(&env);
    let human = env.run(["service", "revoke", "triage", "--tenant", "acme"]).with_status(0).stdout;
    assert_eq!(human, format!("revoked for acme, for good: service triage, component {}\n", digest_of(&env, "triage")));
    let check = || {
        publish_ok(&env, "triage", 3);
        publish_ok(&env, "mail", 4);
        wait_until_handled(&env, "mail", 4);
    };
    check();
    wait_until_refused(&env, "triage", 3);
    let revoked_for: Vec<_> =
        documents(&env.run(["service", "list", "--json"]).with_status(0)).iter().map(|info| info["revoked_for"].clone()).collect();
    assert_eq!(revoked_for, [json!(["acme"]), json!([])]);
    assert_eq!(first.stop(), Some(0));
    let second = node(&env);
    check();
    wait_until_refused(&env, "triage", 6);
    assert_eq!(second.stop(), Some(0));
}

#[test]
fn what_is_revoked_on_a_stopped_node_s_directory_is_revoked_at_its_start() {
    let env = with_services(&[("triage", "acme")]);
    let digest = digest_of(&env, "triage");
    let revoked = documents(&env.run(["service", "revoke", "triage", "--digest", &digest[..14], "--json"]).with_status(0));
    assert_eq!(revoked, [json!({ "service": "triage", "digest": digest, "tenant": null })]);
    // Again, and for less: no error, and nothing comes back.
    let _ = env.run(["service", "revoke", "triage", "--tenant", "acme"]).with_status(0);
    let listed = || documents(&env.run(["service", "list", "--json"]).with_status(0))[0]["state"].clone();
    assert_eq!(listed(), json!("revoked"));
    publish_ok(&env, "triage", 2);
    let node = node(&env);
    wait_until_refused(&env, "triage", 2);
    assert_eq!(listed(), json!("revoked"));
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn a_node_does_not_start_when_it_would_forget_what_was_revoked() {
    let env = with_services(&[("triage", "acme")]);
    let _ = env.run(["service", "revoke", "triage"]).with_status(0);
    let file = env.folder().join("data/host/revocations");
    let whole = std::fs::read_to_string(&file).unwrap();
    for damaged in [whole.replace("triage", "triagf"), whole.replace("end\n", ""), String::new()] {
        env.write("data/host/revocations", &damaged);
        let error = error_of(&env.run(["run", "--json"]).with_status(1));
        assert_eq!(error["kind"], json!("node"));
        let (what, why) = (error["what"].as_str().unwrap(), error["why"].as_str().unwrap());
        assert!(what.contains("a node that forgot it must not start") && why.contains("revocations is damaged"), "{error}");
        let error = error_of(&env.run(["service", "list", "--json"]).with_status(1));
        assert_eq!(error["kind"], json!("host-file-damaged"));
        let _ = env.run(["service", "revoke", "triage"]).with_status(1);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), damaged, "and nobody writes over it");
    }
    // As the page on services says: a whole line may be taken out while no node runs.
    let without: String = whole.split_inclusive('\n').filter(|line| !line.contains("triage")).collect();
    env.write("data/host/revocations", without);
    publish_ok(&env, "triage", 1);
    let node = node(&env);
    wait_until_handled(&env, "triage", 1);
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn a_revocation_that_cannot_be_made_durable_is_in_force_and_uncertain_until_it_is_repeated() {
    let env = with_services(&[("triage", "acme")]);
    let mut first = node(&env);
    wait_until("the node's own first file there", || env.folder().join("data/host/clock").exists());
    // A file where the directory was: nothing can be written in it.
    std::fs::remove_dir_all(env.folder().join("data/host")).unwrap();
    env.write("data/host", "");
    for _ in 0..2 {
        let error = error_of(&env.run(["service", "revoke", "triage", "--json"]).with_status(3));
        assert_eq!(error["kind"], json!("revocation-not-durable"));
        assert!(error["next"].as_str().unwrap().contains("run the same command again before the node stops"), "{error}");
    }
    publish_ok(&env, "triage", 2);
    wait_until_refused(&env, "triage", 2);
    std::fs::remove_file(env.folder().join("data/host")).unwrap();
    let _ = env.run(["service", "revoke", "triage"]).with_status(0);
    first.child.kill().unwrap();
    let second = node(&env);
    wait_until_refused(&env, "triage", 2);
    assert_eq!(second.stop(), Some(0));
}
