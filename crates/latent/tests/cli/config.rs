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
fn a_topic_that_is_archived_needs_a_control_key_and_a_store_that_is_known() {
    let env = fresh();
    let manifest = |uri: &str| {
        let topic = format!("topics:\n  - name: in\n    partitions: 1\n    retention: {{ hot_hours: 1, cold_uri: \"{uri}\" }}\n");
        env.write("bridge.yaml", format!("manifest_version: 1\nname: demo\n{topic}"));
    };
    manifest("cold");
    let refused = env.run(["check", "--json"]).with_status(2);
    assert!(refused.stderr.contains("cold_uri") && refused.stderr.contains("[archive]"), "{}", refused.stderr);
    manifest("gs://bucket");
    let refused = env.run(["check", "--json"]).with_status(2);
    assert!(refused.stderr.contains("gs://bucket") && refused.stderr.contains("not known"), "{}", refused.stderr);
}

#[test]
fn every_schema_that_cannot_be_used_is_a_problem_of_the_configuration() {
    let env = fresh();
    let topics = "topics:\n  - { name: one, partitions: 1, schema_ref: one.json }\n  - { name: in, partitions: 1, schema_ref: in.json }\n";
    env.write("bridge.yaml", format!("manifest_version: 1\nname: demo\n{topics}"));
    env.write("in.json", "{ \"type\": 7 }");
    let machine = env.run(["check", "--json"]).with_status(2);
    let document = documents(&machine).remove(0);
    assert_eq!(document["valid"], json!(false));
    assert_eq!(error_of(&machine)["problems"], document["problems"]);
    let problems = document["problems"].as_array().unwrap();
    for (problem, file) in problems.iter().zip(["one.json", "in.json"]) {
        let place = (&problem["kind"], &problem["file"], &problem["line"]);
        assert_eq!(place, (&json!("config-manifest"), &json!("latent.toml"), &json!(6)), "{problem}");
        assert!(problem["message"].as_str().unwrap().contains(file), "{problem}");
        assert!(problem["next"].as_str().unwrap().contains("the copy that the data directory keeps"), "{problem}");
    }
    assert_eq!(problems.len(), 2);
}

#[test]
fn a_schema_is_looked_for_beside_the_manifest_and_its_absence_is_told() {
    let env = fresh();
    let topics = "topics:\n  - { name: one, partitions: 1, schema_ref: one.json }\n  - { name: in, partitions: 1 }\n";
    env.write("folder/bridge.yaml", format!("manifest_version: 1\nname: demo\n{topics}"));
    env.write("latent.toml", CONFIG.replace("bridge.yaml", "folder/bridge.yaml"));
    let refused = env.run(["check"]).with_status(2);
    assert!(refused.stderr.contains("one.json") && refused.stderr.contains("topic \"one\""), "{}", refused.stderr);
    env.write("folder/one.json", r#"{ "type": "object", "required": ["id"] }"#);
    let _ = env.run(["check"]).with_status(0);
    let _ = env.run(["bus", "provision"]).with_status(0);
    let documents = publish(&env, &["one"], b"{\"id\":1}\n{\"n\":1}\n", 1);
    assert_eq!(documents[1]["error"]["kind"], json!("rejected"), "{documents:?}");
    assert!(documents[1]["error"]["message"].as_str().unwrap().contains("rejected by schema one.json"), "{documents:?}");
    let documents = publish(&env, &["one", "--skip-invalid"], b"{\"n\":1}\n{\"id\":2}\n", 0);
    assert_eq!(fetched(&env, "one", 0).len(), 2, "{documents:?}");
}
