//! `latent new`: the project is what it says it is.

use std::process::Command;

use latent_testkit::{Missing, skip, wait_until};
use serde_json::json;

use super::*;

/// Set to run tests that compile a project of their own.
const SLOW: &str = "LATENT_SLOW_TESTS";

#[test]
fn a_new_project_is_complete_and_says_what_to_do() {
    let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
    let output = env.run(["new", "order-triage", "--lang", "rust"]).with_status(0);
    assert!(output.stdout.contains("cargo build --release --target wasm32-wasip2"), "{}", output.stdout);
    for file in
        ["Cargo.toml", "src/lib.rs", "latent.toml", "bridge.yaml", "events.jsonl", "README.md", "latent-sdk/src/lib.rs", ".gitignore"]
    {
        assert!(env.folder().join("order-triage").join(file).is_file(), "{file}");
    }
    let again = env.run(["new", "order-triage", "--json"]).with_status(2);
    assert_eq!(error_of(&again)["kind"], json!("project-not-empty"));
}

#[test]
fn a_new_project_builds_runs_and_answers_its_events() {
    if std::env::var_os(SLOW).is_none() {
        skip!(Missing::Input(SLOW));
    }
    let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
    let _ = env.run(["new", "order-triage"]).with_status(0);
    let project = env.folder().join("order-triage");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    // Where artefacts of this workspace go is no business of the project's.
    build.args(["build", "--release", "--target", "wasm32-wasip2"]).current_dir(&project).env_remove("CARGO_TARGET_DIR");
    let output = build.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let config = ["-c", "order-triage/latent.toml"];
    let _ = env.run(["check"].iter().chain(&config)).with_status(0);
    let node = node_of(&env, config[1]);
    let publish = ["bus", "publish", "order-triage.in", "--file", "order-triage/events.jsonl", "--key-pointer", "/user"];
    let _ = env.run(publish.iter().chain(&config)).with_status(0);
    let tail = ["bus", "tail", "order-triage.out", "--from-start", "--json", "-c", config[1]];
    let mut tail = Running::start(&env, &tail);
    let mut greeted: Vec<_> = (0..4).map(|_| tail.document()["value"]["greeting"].as_str().unwrap_or_default().to_owned()).collect();
    greeted.sort_unstable();
    assert_eq!(greeted, ["hello, ada", "hello, ada", "hello, alan", "hello, grace"]);
    let status = ["trigger", "status", "--json"];
    wait_until("the trigger to have settled every event", || {
        let statuses = documents(&env.run(status.iter().chain(&config)).with_status(0));
        (&statuses[0]["settled"], &statuses[0]["terminated"]) == (&json!(5), &json!(1))
    });
    assert_eq!((tail.stop(), node.stop()), (Some(0), Some(0)));
}
