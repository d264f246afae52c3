//! The machine-readable forms, the exit statuses, and the three lines of an error.

use serde_json::json;

use super::*;

#[test]
fn the_forms_of_the_bus_commands_are_the_documented_ones() {
    let env = fresh();
    let output = env.run(["bus", "provision", "--engine", "embedded:data", "--manifest", "bridge.yaml", "--json"]).with_status(0);
    assert_eq!(documents(&output), [json!({ "name": "demo", "topics": 2, "partitions": 4 })]);

    let acks = publish(&env, &["one", "--key", "k", "--uid-pointer", "/id"], b"{\"id\":\"u1\",\"n\":1}\n{\"id\":\"u2\"}\n", 0);
    let ack = |offset: u64, uid: &str| json!({ "topic": "one", "partition": 0, "offset": offset, "uid": uid, "duplicate": false });
    assert_eq!(acks, [ack(0, "u1"), ack(1, "u2")]);

    let topics = documents(&env.run(["bus", "topics", "--json"]).with_status(0));
    assert_eq!(topics, [json!({ "topic": "in", "partitions": 3, "events": 0 }), json!({ "topic": "one", "partitions": 1, "events": 2 })]);

    let events = fetched(&env, "one", 0);
    let stored_at = events[0]["stored_at"].as_u64().unwrap();
    assert!(stored_at > 1_600_000_000_000, "milliseconds since 1970: {stored_at}");
    let first = json!({
        "topic": "one", "partition": 0, "offset": 0, "uid": "u1", "key": "k", "stored_at": stored_at, "value": { "id": "u1", "n": 1 },
        "media_type": "application/json", "attributes": {},
    });
    assert_eq!(events[0], first);
    let found = documents(&env.run(["bus", "find", "one", "u1", "--json"]).with_status(0));
    assert_eq!(found, [first]);
}

#[test]
fn each_way_to_fail_has_its_status_and_its_kind() {
    let env = provisioned();
    env.write("bad.toml", "[node]\n");
    env.write("bad.yaml", "topics: 1\n");
    let cases: &[(&[&str], i32, &str)] = &[
        (&["bus", "frobnicate"], 2, "usage"),
        (&["bus", "fetch"], 2, "usage"),
        (&["bus", "fetch", "one", "--max", "many"], 2, "usage"),
        (&["bus", "topics", "-c", "latent.toml", "--engine", "embedded:data"], 2, "usage"),
        (&["bus", "topics", "-c", "bad.toml"], 2, "config-invalid"),
        (&["bus", "topics", "-c", "nowhere.toml"], 2, "config-invalid"),
        (&["bus", "topics", "--engine", "nats"], 2, "value"),
        (&["bus", "topics", "--engine", "nats", "--manifest", "bridge.yaml"], 2, "environment"),
        (&["bus", "topics", "--engine", "nats:x"], 2, "value"),
        (&["bus", "topics", "--manifest", "bridge.yaml"], 2, "value"),
        (&["bus", "provision", "--plan"], 2, "value"),
        (&["bus", "topics", "--engine", "data"], 2, "value"),
        (&["bus", "topics", "--engine", "embedded:"], 2, "value"),
        (&["bus", "topics", "--engine", "embedded:nowhere"], 1, "not-provisioned"),
        (&["bus", "tail", "one", "--engine", "embedded:nowhere"], 1, "not-provisioned"),
        (&["bus", "provision", "--engine", "embedded:new"], 2, "value"),
        (&["bus", "provision", "--engine", "embedded:new", "--manifest", "bad.yaml"], 2, "manifest"),
        (&["bus", "provision", "--engine", "embedded:new", "--manifest", "nowhere.yaml"], 2, "manifest"),
        (&["bus", "provision"], 1, "config"),
        (&["bus", "migrate", "--whatever"], 2, "usage"),
        (&["bus", "migrate", "--from", "data", "--to", "embedded:new"], 2, "value"),
        (&["bus", "migrate", "--from", "embedded:nowhere", "--to", "embedded:new"], 1, "not-provisioned"),
        (&["bus", "stats", "nowhere"], 1, "unknown-topic"),
        (&["bus", "stats", "--engine", "embedded:nowhere"], 1, "not-provisioned"),
        (&["bus", "maintain", "--engine", "embedded:nowhere"], 1, "not-provisioned"),
        (&["bus", "fetch", "nowhere"], 1, "unknown-topic"),
        (&["bus", "fetch", "one", "--partition", "1"], 1, "out-of-range"),
        (&["bus", "find", "one", "absent"], 1, "not-found"),
        (&["bus", "find", "one", "a b"], 1, "rejected"),
        (&["bus", "tail", "nowhere"], 1, "unknown-topic"),
        (&["bus", "publish", "nowhere", "--file", "bridge.yaml"], 1, "unknown-topic"),
        (&["bus", "publish", "one", "--file", "nowhere.jsonl"], 1, "input"),
        (&["bus", "publish", "one", "--file", "data"], 1, "input"),
        (&["bus", "publish", "one", "--file", "-", "--key-pointer", "id"], 2, "value"),
        (&["bus", "publish", "one", "--file", "-", "--raw-lines", "--media-type", "a b"], 2, "value"),
        (&["bus", "publish", "one", "--file", "-", "--media-type", "a/b"], 2, "usage"),
        (&["bus", "publish", "one", "--file", "-", "--key", "k", "--key-pointer", "/k"], 2, "usage"),
        (&["bus", "publish", "one", "--file", "-", "--fresh-uids", "--uid-pointer", "/u"], 2, "usage"),
        (&["dev", "somewhere", "--fast"], 2, "usage"),
        (&["dev", "somewhere"], 2, "config-invalid"),
        (&["dev", "home"], 2, "config-invalid"),
        (&["bench", "publish"], 2, "value"),
        (&["bench", "activation", "--rows", "Q-03"], 2, "usage"),
        (&["bench", "activation", "--dir", "nowhere"], 2, "value"),
        (&["bench", "bus", "--rows", "Q-99"], 2, "usage"),
        (&["bench", "bus", "--records", "999"], 2, "usage"),
        (&["bench", "bus", "--dir", "nowhere"], 2, "value"),
        (&["new", "a", "--lang", "js"], 2, "not-built"),
        (&["new", "a", "--lang", "cobol"], 2, "usage"),
        (&["new", "a/b"], 2, "project-name"),
        (&["new", "data"], 2, "project-not-empty"),
        (&["check", "-c", "bad.toml"], 2, "config-invalid"),
        (&["run", "-c", "bad.toml"], 2, "config-invalid"),
        (&["completions", "tcsh"], 2, "usage"),
    ];
    for (arguments, status, kind) in cases {
        let machine = env.run(arguments.iter().copied().chain(["--json"])).with_status(*status);
        let error = error_of(&machine);
        assert_eq!((&error["kind"], &error["status"]), (&json!(kind), &json!(status)), "{arguments:?}");
        for field in ["what", "why", "next"] {
            assert!(error[field].as_str().is_some_and(|text| !text.is_empty()), "{arguments:?}: {field} of {error}");
        }
        let human = env.run(*arguments).with_status(*status);
        assert!(
            human.stderr.starts_with("error: ") && human.stderr.contains("\n  why: ") && human.stderr.contains("\n next: "),
            "{}",
            human.stderr
        );
        assert!(!human.stderr.contains('\u{1b}'), "no colours without a terminal");
    }
}

#[test]
fn provisioning_again_is_refused_and_told_how_a_changed_manifest_is_applied() {
    let env = provisioned();
    let error = error_of(&env.run(["bus", "provision", "--json"]).with_status(1));
    assert_eq!((&error["kind"], &error["what"]), (&json!("config"), &json!("the data directory data is already provisioned")));
    assert!(error["next"].as_str().unwrap().contains("`latent run` applies"), "{error}");
    // A schema that cannot be used is told as such where nothing is provisioned yet.
    env.write("bridge.yaml", MANIFEST.replace("partitions: 1", "partitions: 1, schema_ref: nowhere.json"));
    let error = error_of(&env.run(["bus", "provision", "--engine", "embedded:new", "--manifest", "bridge.yaml", "--json"]).with_status(1));
    assert!(error["why"].as_str().unwrap().contains("nowhere.json") && !error["next"].as_str().unwrap().contains("latent run"), "{error}");
}

#[test]
fn an_error_is_three_lines() {
    let env = provisioned();
    let output = env.run(["bus", "find", "one", "absent"]).with_status(1);
    let lines: Vec<_> = output.stderr.lines().collect();
    assert_eq!(
        lines,
        [
            "error: topic \"one\" has no event with uid \"absent\"",
            "  why: no event that can be read has this uid",
            " next: check topic and uid; `latent bus fetch` shows what is there, `latent bus stats` what is damaged; what has expired of a topic with a cold_uri is in its archive",
        ]
    );
    let mistyped = env.run(["bus", "fetch", "inn"]).with_status(1);
    let lines: Vec<_> = mistyped.stderr.lines().collect();
    assert_eq!(lines, ["error: there is no topic \"inn\"", "  why: the topics are: in, one", " next: did you mean in?"]);
    let usage = env.run(["bus", "fetch", "one", "--offest", "1"]).with_status(2);
    assert_eq!(usage.stderr.lines().count(), 3, "{}", usage.stderr);
    assert!(usage.stderr.contains("'--offset'"), "{}", usage.stderr);
}

#[test]
fn what_is_not_there_yet_is_told_with_the_way_to_it() {
    let env = fresh();
    for arguments in [&["bus", "fetch", "one"][..], &["bus", "tail", "one"], &["trigger", "status"]] {
        let told = env.run(arguments).with_status(1).stderr;
        assert!(told.contains("is not provisioned") && told.contains("`latent run -c FILE`") && told.contains("bus provision"), "{told}");
    }
    let told = env.run(["check", "-c", "nowhere.toml"]).with_status(2).stderr;
    assert!(told.contains("why: the file does not exist\n") && told.contains("`latent new NAME`"), "{told}");
    env.write("bad.yaml", MANIFEST.replace("- { name: one", "- { nme: one"));
    let told = env.run(["bus", "provision", "--engine", "embedded:new", "--manifest", "bad.yaml"]).with_status(2).stderr;
    assert!(told.contains("why: bad.yaml:5:7: unknown field `nme`") && !told.contains("line 5"), "{told}");
}

#[test]
fn help_and_version_are_answers_and_no_command_is_none() {
    let env = fresh();
    assert_eq!(env.run(["--version"]).with_status(0).stdout, format!("latent {}\n", env!("CARGO_PKG_VERSION")));
    for arguments in [&["--help"][..], &["bus", "--help"], &["bus", "publish", "--help"], &["run", "--help"]] {
        assert!(env.run(arguments).with_status(0).stdout.contains("Example"), "{arguments:?}");
    }
    let none: [&str; 0] = [];
    assert!(env.run(none).with_status(2).stderr.contains("Usage: latent"));
}

#[test]
fn completions_are_written_for_each_shell() {
    let env = fresh();
    for shell in ["bash", "zsh", "fish"] {
        assert!(env.run(["completions", shell]).with_status(0).stdout.contains("latent"), "{shell}");
    }
}
