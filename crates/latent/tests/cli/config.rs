//! `latent check`.

use serde_json::json;

use super::*;

#[test]
fn a_valid_file_is_said_to_be_valid() {
    let env = fresh();
    let human = env.run(["check"]).with_status(0);
    assert_eq!((&*human.stdout, &*human.stderr), ("latent.toml is valid (topics: 2, services: 0, triggers: 0, warnings: 0)\n", ""));
    let machine = env.run(["check", "-c", "latent.toml", "--json"]).with_status(0);
    assert_eq!(documents(&machine), [json!({ "valid": true, "problems": [], "warnings": [] })]);
}

#[test]
fn every_problem_comes_with_its_line() {
    let env = fresh();
    env.write("bad.toml", CONFIG.replace("kind", "knid").replace("name = \"one\"", "name = \"on e\"") + "dead_letter = 1\n");
    let human = env.run(["check", "-c", "bad.toml"]).with_status(2);
    let places: Vec<_> = human
        .stderr
        .lines()
        .filter_map(|line| line.split("bad.toml:").nth(1))
        .map(|rest| rest.split(": ").next().unwrap_or_default())
        .collect();
    assert_eq!(places, ["4:1", "5:1", "11:8", "13:1"], "{}", human.stderr);
    assert!(human.stderr.contains("did you mean \"kind\"?"), "{}", human.stderr);

    let machine = env.run(["check", "-c", "bad.toml", "--json"]).with_status(2);
    let document = documents(&machine).remove(0);
    assert_eq!((&document["valid"], document["problems"].as_array().map(Vec::len)), (&json!(false), Some(4)));
    assert_eq!(error_of(&machine)["problems"], document["problems"]);
    let problem = &document["problems"][1];
    assert_eq!(
        (&problem["file"], &problem["line"], &problem["column"], &problem["kind"]),
        (&json!("bad.toml"), &json!(5), &json!(1), &json!("config-unknown-key"))
    );
}

#[test]
fn warnings_are_told_and_stop_nothing() {
    let env = fresh();
    let shared = CONFIG.replace("name = \"one\"", "name = \"one\"\nshare = [{ tenant = \"bolt\", may = [\"publish\"] }]");
    env.write("latent.toml", shared);
    let human = env.run(["check"]).with_status(0);
    assert!(human.stderr.starts_with("warning: latent.toml:11:8: topic \"one\" is shared"), "{}", human.stderr);
    let machine = documents(&env.run(["check", "--json"]).with_status(0)).remove(0);
    assert_eq!((&machine["valid"], &machine["warnings"][0]["kind"]), (&json!(true), &json!("share-cannot-move")));
}

#[test]
fn what_the_engine_cannot_do_yet_is_told_by_the_check() {
    let env = fresh();
    for (line, field) in [("schema_ref: s.json", "schema_ref"), ("retention: { hot_hours: 1, cold_uri: cold }", "cold_uri")] {
        env.write("bridge.yaml", format!("manifest_version: 1\nname: demo\ntopics:\n  - name: in\n    partitions: 1\n    {line}\n"));
        let refused = env.run(["check", "--json"]).with_status(2);
        assert!(refused.stderr.contains(field) && refused.stderr.contains("not supported"), "{}", refused.stderr);
    }
}
