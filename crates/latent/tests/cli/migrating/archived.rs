//! Topics that are archived, on either side: what would harm an archive is refused before an event is copied.

use super::*;

fn provision_archived(env: &CliEnv, directory: &str, archive: &str) {
    let manifest = format!("{directory}.yaml");
    env.write(
        &manifest,
        MANIFEST.replace("partitions: 3 }", &format!("partitions: 3, retention: {{ hot_hours: 1, cold_uri: {archive} }} }}")),
    );
    let engine = format!("embedded:{directory}");
    let _ = env.run(["bus", "provision", "--engine", &engine, "--manifest", &manifest]).with_status(0);
}

#[test]
fn a_destination_with_the_archive_of_the_source_is_refused_and_with_another_one_is_not() {
    let env = fresh();
    provision_archived(&env, "data", "cold");
    provision_archived(&env, "other", "./cold/");
    publish(&env, &["in", "--engine", "embedded:data"], b"{\"n\":0}\n", 0);
    let error = error_of(&migrated(&env, &BOTH, 2).1);
    assert_eq!(error["kind"], json!("migration-unfit"), "{error}");
    let (why, next) = (error["why"].as_str().unwrap(), error["next"].as_str().unwrap());
    assert!(why.contains("topic \"in\"") && why.contains("/cold by the source") && why.contains("/./cold/ by the destination"), "{why}");
    assert!(next.starts_with("give the topic another cold_uri at the destination"), "{next}");
    assert!((0..3).all(|partition| content(&env, &["--engine", "embedded:other"], "in", partition).is_empty()), "nothing was copied");
    // A topic that is not archived may go, and a comparison harms nothing.
    let _ = migrated(&env, &[&["one"], &BOTH[..]].concat(), 0);
    assert_eq!(error_of(&migrated(&env, &[&BOTH[..], &["--verify-only"]].concat(), 1).1)["kind"], json!("migration-incomplete"));
    // Of a directory that is provisioned already, what its configuration says is in force before anything is archived.
    env.write("latent.toml", CONFIG.replace("data_dir = \"data\"", "data_dir = \"other\""));
    env.write("bridge.yaml", std::fs::read_to_string(env.folder().join("data.yaml")).unwrap());
    let to_configured = ["--from", "embedded:data", "--to", "config:latent.toml", "--progress", "configured.progress"];
    let _ = migrated(&env, &to_configured, 2);
    env.write("bridge.yaml", MANIFEST);
    let (told, _) = migrated(&env, &to_configured, 0);
    assert_eq!(counts(&told)["copied"], json!(1));
    provision_archived(&env, "third", "cold-of-the-third");
    let (told, _) = migrated(&env, &["--from", "embedded:data", "--to", "embedded:third"], 0);
    assert_eq!(counts(&told)["copied"], json!(1));
}

#[test]
fn without_a_control_key_an_archived_topic_is_refused_before_any_topic_is_copied() {
    // Nobody listens there: it is refused before anybody is asked.
    let env = provisioned().with_variable("AV_NATS_URL", "nats://127.0.0.1:1");
    env.write("bridge.yaml", MANIFEST.replace("partitions: 3 }", "partitions: 3, retention: { cold_uri: cold } }"));
    let error = error_of(&migrated(&env, &["--from", "embedded:data", "--to", "nats", "--manifest", "bridge.yaml"], 2).1);
    assert!(error["why"].as_str().unwrap().contains("topic \"in\" of the destination has a cold_uri"), "{error}");
    assert!(error["next"].as_str().unwrap().contains("--to config:FILE"), "{error}");
}
