//! What is remembered of triggers that are gone, and that it is forgotten only when asked for.

use serde_json::json;

use super::deadletter::{folder, publish_text, wait_until_settled};
use super::*;

/// The configuration of [`folder`] without its trigger.
fn without_trigger(env: &CliEnv) -> (String, String) {
    let with = std::fs::read_to_string(env.folder().join("latent.toml")).unwrap();
    let without = with.split("[[trigger]]").next().unwrap().to_owned();
    (with, without)
}

fn removed(env: &CliEnv) -> Vec<Value> {
    documents(&env.run(["trigger", "status", "--removed", "--json"]).with_status(0))
}

fn refused(env: &CliEnv, id: &str) -> Value {
    error_of(&env.run(["trigger", "forget", id, "--json"]).with_status(1))
}

/// What the trigger has left to do, on a stopped node's directory.
fn pending(env: &CliEnv) -> Value {
    documents(&env.run(["trigger", "status", "--json"]).with_status(0))[0]["pending"].clone()
}

#[test]
fn a_removed_trigger_is_forgotten_on_a_running_node_and_starts_anew_when_it_comes_back() {
    let env = folder();
    let (with, without) = without_trigger(&env);
    let node = node(&env);
    publish_text(&env, "k", "ok");
    wait_until_settled(&env);
    let error = refused(&env, "work");
    assert_eq!(error["kind"], json!("trigger-configured"));
    assert!(error["why"].as_str().unwrap().contains("run `latent reload` first"), "{error}");
    env.write("latent.toml", without);
    assert_eq!(refused(&env, "work")["kind"], json!("trigger-configured"), "the node still has it");
    let _ = env.run(["reload"]).with_status(0);
    assert_eq!(removed(&env), [json!({ "id": "work", "topic": "in" })]);
    let note = env.run(["trigger", "status"]).with_status(0).stderr;
    assert!(note.contains("is kept: work; `latent trigger forget ID`"), "{note}");
    let error = refused(&env, "wrok");
    assert_eq!((&error["kind"], &error["next"]), (&json!("unknown-trigger"), &json!("did you mean work?")));
    assert_eq!(error["why"], json!("it could be: work"));

    let forgotten = documents(&env.run(["trigger", "forget", "work", "--json"]).with_status(0));
    assert_eq!(forgotten, [json!({ "id": "work", "topic": "in", "partitions": 1 })]);
    assert_eq!(removed(&env), [json!(null); 0]);
    assert_eq!(refused(&env, "work")["kind"], json!("unknown-trigger"));
    assert_eq!(node.stop(), Some(0));
    env.write("latent.toml", with);
    assert_eq!(pending(&env), json!(1), "it would begin with the oldest event");
}

#[test]
fn a_removed_trigger_is_forgotten_on_a_stopped_node_s_directory() {
    let env = folder();
    let (with, without) = without_trigger(&env);
    assert_eq!(refused(&env, "work")["kind"], json!("trigger-configured"), "it is configured, whether it ever ran or not");
    let node = node(&env);
    publish_text(&env, "k", "ok");
    wait_until_settled(&env);
    assert_eq!(node.stop(), Some(0));
    assert!(refused(&env, "work")["why"].as_str().unwrap().contains("remove it from the configuration first"));
    assert_eq!(pending(&env), json!(0));
    env.write("latent.toml", without);
    let told = env.run(["trigger", "forget", "work"]).with_status(0).stdout;
    assert_eq!(told, "forgotten: trigger work and what it had done in 1 partition of in\n");
    assert_eq!(removed(&env), [json!(null); 0]);
    env.write("latent.toml", with);
    assert_eq!(pending(&env), json!(1), "it would begin with the oldest event");
}
