//! `latent reload`: a running node takes in what changed, all of it or nothing, and no event is lost on the way.

use latent_test_guests::{BEHAVE, COMMAND};
use serde_json::json;

use super::revoking::with_services;
use super::*;

fn reload(env: &CliEnv, more: &[&str], status: i32) -> CliOutput {
    env.run(["reload", "--json"].iter().chain(more)).with_status(status)
}

fn document(output: &CliOutput) -> Value {
    documents(output).remove(0)
}

/// What a reload says of its changes: object, name and change.
fn changes(reloaded: &Value) -> Vec<String> {
    let of = |change: &Value| ["object", "name", "change"].map(|field| change[field].as_str().unwrap().to_owned()).join(" ");
    reloaded["changes"].as_array().unwrap().iter().map(of).collect()
}

fn rebuild(env: &CliEnv, service: &str, note: u8) {
    let custom_section = [0, 3, 1, b'n', note];
    env.write(format!("{service}.wasm"), [BEHAVE.component, &custom_section].concat());
}

fn edit(env: &CliEnv, from: &str, to: &str) {
    let config = std::fs::read_to_string(env.folder().join("latent.toml")).unwrap();
    assert!(config.contains(from), "{from} in {config}");
    env.write("latent.toml", config.replacen(from, to, 1));
}

fn status(env: &CliEnv, trigger: &str) -> Value {
    let statuses = documents(&env.run(["trigger", "status", "--json"]).with_status(0));
    statuses.into_iter().find(|status| status["id"] == json!(trigger)).unwrap_or(Value::Null)
}

fn publish_ok(env: &CliEnv, topic: &str, events: usize) {
    let arguments = [topic, "--raw-lines", "--media-type", "text/plain", "--fresh-uids"];
    assert_eq!(publish(env, &arguments, "ok\n".repeat(events).as_bytes(), 0).len(), events);
}

fn wait_until_handled(env: &CliEnv, trigger: &str, settled: u64) {
    wait_until("every event handled", || status(env, trigger)["pending"] == json!(0) && status(env, trigger)["settled"] == json!(settled));
}

#[test]
fn a_rebuilt_component_is_taken_in_while_events_flow_and_none_is_lost() {
    let env = with_services(&[("triage", "acme")]);
    let running = node(&env);
    let arguments = ["bus", "publish", "triage", "--file", "-", "--raw-lines", "--media-type", "text/plain", "--fresh-uids", "--json"];
    let mut publishing = Running::start(&env, &arguments);
    let (rounds, each) = (5, 300);
    let mut epochs = Vec::new();
    for round in 0..rounds {
        publishing.write("ok\n".repeat(each).as_bytes());
        rebuild(&env, "triage", round);
        let reloaded = document(&reload(&env, &[], 0));
        assert_eq!((&reloaded["applied"], changes(&reloaded)), (&json!(true), vec!["service triage component".to_owned()]));
        epochs.push(reloaded["epoch"].as_u64().unwrap());
    }
    assert!(epochs.is_sorted_by(|one, other| one < other), "{epochs:?}");
    drop(publishing.stdin.take());
    while std::io::BufRead::read_line(&mut publishing.stdout, &mut String::new()).unwrap() > 0 {}
    wait_until_handled(&env, "triage", u64::from(rounds) * each as u64);
    let settled = status(&env, "triage");
    assert_eq!((&settled["terminated"], &settled["exhausted"]), (&json!(0), &json!(0)));
    // The route leads to the last; the one before it is kept to go back to.
    let listed = documents(&env.run(["service", "list", "--json"]).with_status(0));
    assert_eq!(listed.len(), 2);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn triggers_and_services_come_change_and_go_and_others_stay() {
    let env = with_services(&[("triage", "acme"), ("mail", "beta")]);
    let running = node(&env);
    publish_ok(&env, "triage", 2);
    wait_until_handled(&env, "triage", 2);
    publish_ok(&env, "mail", 3);
    wait_until_handled(&env, "mail", 3);

    // A changed trigger goes on where it was: what is settled does not come again.
    edit(&env, "id = \"triage\"\n", "id = \"triage\"\nmax_in_flight = 2\nstart = \"latest\"\n");
    let changed = document(&reload(&env, &[], 0));
    assert_eq!(changes(&changed), ["trigger triage max_in_flight", "trigger triage start"]);
    assert!(changed["notes"][0].as_str().unwrap().starts_with("trigger triage goes on where it was"), "{changed}");
    publish_ok(&env, "triage", 4);
    wait_until_handled(&env, "triage", 4);
    assert_eq!(status(&env, "mail")["settled"], json!(3), "another trigger keeps its counters");

    // One more trigger on the same topic, which begins at its oldest event.
    let config = std::fs::read_to_string(env.folder().join("latent.toml")).unwrap();
    let added = format!("{config}[[trigger]]\nid = \"again\"\ntenant = \"acme\"\nservice = \"triage\"\ntopic = \"triage\"\n");
    env.write("latent.toml", &added);
    assert_eq!(changes(&document(&reload(&env, &[], 0))), ["trigger again added"]);
    wait_until_handled(&env, "again", 6);

    // And away: the node does not know it any more, and its service neither.
    let without_mail = &config[..config.find("[[topic]]\nname = \"mail\"").unwrap()];
    env.write("latent.toml", without_mail);
    let gone = changes(&document(&reload(&env, &[], 0)));
    assert_eq!(gone, ["topic mail removed", "service mail removed", "trigger again removed", "trigger mail removed"]);
    assert_eq!((status(&env, "again"), status(&env, "mail")), (Value::Null, Value::Null));
    publish_ok(&env, "triage", 1);
    wait_until_handled(&env, "triage", 5);

    // Back again: what was published meanwhile waits for it.
    publish_ok(&env, "mail", 2);
    env.write("latent.toml", &config);
    assert_eq!(document(&reload(&env, &[], 0))["applied"], json!(true));
    wait_until_handled(&env, "mail", 2);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_trigger_keeps_its_topic_and_goes_on_when_another_one_is_refused() {
    let env = with_services(&[("triage", "acme"), ("mail", "acme")]);
    let running = node(&env);
    publish_ok(&env, "triage", 2);
    wait_until_handled(&env, "triage", 2);
    edit(&env, "service = \"triage\"\ntopic = \"triage\"", "service = \"triage\"\ntopic = \"mail\"");
    let refused = reload(&env, &[], 1);
    let said = "trigger triage was bound to topic triage and is now bound to mail";
    assert!(refused.stderr.contains(said), "{}", refused.stderr);
    publish_ok(&env, "triage", 1);
    wait_until_handled(&env, "triage", 3);
    assert_eq!(running.stop(), Some(0));
    // Nor at a start: what it had done in the one topic says nothing of the other.
    let refused = env.run(["run"]).with_status(1);
    assert!(refused.stderr.contains(said), "{}", refused.stderr);
}

#[test]
fn what_cannot_be_taken_in_changes_nothing() {
    let env = with_services(&[("triage", "acme")]);
    let running = node(&env);
    let original = std::fs::read_to_string(env.folder().join("latent.toml")).unwrap();
    let epoch = document(&reload(&env, &[], 0))["epoch"].as_u64().unwrap();
    let refused = |status: i32, kind: &str| {
        let output = reload(&env, &[], status);
        assert_eq!(error_of(&output)["kind"], json!(kind), "{}", output.stderr);
        env.write("latent.toml", &original);
        env.write("triage.wasm", BEHAVE.component);
        let now = document(&reload(&env, &[], 0));
        assert_eq!((&now["epoch"], &now["applied"], changes(&now).len()), (&json!(epoch), &json!(false), 0));
        publish_ok(&env, "triage", 1);
        wait_until("the event handled", || status_pending(&env) == 0);
    };
    edit(&env, "name = \"edge\"", "name = \"other\"");
    refused(1, "needs-restart");
    edit(&env, "kind = \"embedded\"", "kind = \"embedded\"\nmaintenance_interval_seconds = 7");
    refused(1, "needs-restart");
    edit(&env, "id = \"triage\"\n", "id = \"triage\"\nbudget = { memory_bytes = 1_000_000_000 }\n");
    refused(1, "needs-restart");
    // A component that is none is seen by the command; one that no handler can be woken in, by the node.
    env.write("triage.wasm", "nothing");
    refused(2, "config-invalid");
    env.write("triage.wasm", COMMAND.component);
    refused(1, "node");
    edit(&env, "service = \"triage\"", "service = \"triag\"");
    refused(2, "config-invalid");
    // One good change beside a bad one is not taken in either.
    edit(&env, "id = \"triage\"\n", "id = \"triage\"\nmax_in_flight = 3\n");
    edit(&env, "name = \"edge\"", "name = \"other\"");
    refused(1, "needs-restart");
    assert_eq!(running.stop(), Some(0));
}

fn status_pending(env: &CliEnv) -> u64 {
    status(env, "triage")["pending"].as_u64().unwrap()
}

#[test]
fn a_dry_run_shows_and_an_epoch_is_compared() {
    let env = with_services(&[("triage", "acme")]);
    let nobody = env.run(["reload", "--json"]).with_status(1);
    assert_eq!(error_of(&nobody)["kind"], json!("node"));
    let running = node(&env);
    edit(&env, "id = \"triage\"\n", "id = \"triage\"\nmax_in_flight = 2\n");
    let shown = document(&reload(&env, &["--dry-run"], 0));
    assert_eq!((&shown["applied"], changes(&shown)), (&json!(false), vec!["trigger triage max_in_flight".to_owned()]));
    let epoch = shown["epoch"].as_u64().unwrap();
    let other = (epoch + 1).to_string();
    assert_eq!(error_of(&reload(&env, &["--expect-epoch", &other], 1))["kind"], json!("epoch-conflict"));
    let taken_in = document(&reload(&env, &["--expect-epoch", &epoch.to_string()], 0));
    assert_eq!((&taken_in["applied"], taken_in["epoch"].as_u64().unwrap() > epoch), (&json!(true), true));
    let said = env.run(["reload"]).with_status(0).stdout;
    assert!(said.contains("the node runs what") && said.contains("latent.toml"), "{said}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn grants_are_taken_in_at_once_and_another_file_is_not() {
    let env = super::invoking::with_functions();
    let running = node(&env);
    let announce = || {
        let words = ["invoke", "plain", "demo:plain/work@1.0.0#announce", "--args", "[\"out\"]", "--json"];
        document(&env.run(words))["result"][0].clone()
    };
    assert_eq!(announce(), json!({ "ok": "0" }));
    let granted = "grants = [{ capability = \"latent:events/publisher@0.2.0\", topics = [\"out\"] }]\n";
    edit(&env, granted, "");
    assert_eq!(changes(&document(&reload(&env, &[], 0))), ["service plain grants"]);
    assert!(announce()["err"].is_string(), "{}", announce());
    edit(&env, "component = \"plain.wasm\"\n", &format!("component = \"plain.wasm\"\n{granted}"));
    assert_eq!(changes(&document(&reload(&env, &[], 0))), ["service plain grants"]);
    assert_eq!(announce(), json!({ "ok": "0" }));
    env.write("other.toml", std::fs::read_to_string(env.folder().join("latent.toml")).unwrap());
    let other = env.run(["reload", "-c", "other.toml", "--json"]).with_status(1);
    assert_eq!(error_of(&other)["kind"], json!("other-file"));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn many_reloads_leave_the_last_two_components_and_a_route_that_was_pointed_by_hand_is_told() {
    let env = with_services(&[("triage", "acme")]);
    let running = node(&env);
    for note in 0..6 {
        rebuild(&env, "triage", note);
        assert_eq!(document(&reload(&env, &[], 0))["applied"], json!(true));
    }
    let listed = || documents(&env.run(["service", "list", "--json"]).with_status(0));
    let numbers: Vec<_> = listed().iter().map(|info| info["publication"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [6, 7]);
    let _ = env.run(["service", "route", "triage", "--to", "6"]).with_status(0);
    let told = document(&reload(&env, &[], 0));
    assert!(told["notes"][0].as_str().unwrap().contains("leads to publication 6"), "{told}");
    let said = env.run(["reload"]).with_status(0).stdout;
    assert_eq!(said.matches("leads to publication 6").count(), 1, "{said}");
    publish_ok(&env, "triage", 2);
    wait_until_handled(&env, "triage", 2);
    // The next component takes the route again, and the one that was pointed at by hand goes.
    rebuild(&env, "triage", 9);
    let taken = document(&reload(&env, &[], 0));
    assert_eq!(taken.get("notes"), None, "{taken}");
    assert_eq!(listed().iter().map(|info| info["publication"].as_u64().unwrap()).collect::<Vec<_>>(), [7, 8]);
    assert_eq!(running.stop(), Some(0));
}
