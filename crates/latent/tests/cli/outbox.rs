//! One outbox of the archive and two who want it: a second node is refused and says why, who only reads does without it, and what a broker is
//! migrated from may be in use.

use std::os::unix::fs::PermissionsExt as _;

use latent_testkit::require_broker;

use super::cluster::{broker, make_streams, with_node};
use super::migrating::{counts, migrated};
use super::*;

const ARCHIVE: &str = "[archive]\ncontrol_key_files = [\"control.key\"]\n";

fn control_key(env: &CliEnv) {
    let key = env.write("control.key", "07".repeat(32));
    std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// How a node that must not start ends.
fn refused(env: &CliEnv, config: &str) -> String {
    let output = env.run(["run", "-c", config]).with_status(1);
    assert!(!output.stderr.contains("not reached"), "{}", output.stderr);
    output.stderr
}

#[test]
fn on_a_broker_a_second_node_on_one_outbox_is_refused_and_a_migration_reads_beside_the_first() {
    require_broker!();
    let broker = broker("broker.latent.test");
    let env = with_node(&broker);
    make_streams(&broker, &json!({}));
    control_key(&env);
    let manifest = std::fs::read_to_string(env.folder().join("bridge.yaml")).unwrap();
    let archived = manifest.replace("partitions: 1, retention: { hot_hours: 2", "partitions: 1, retention: { hot_hours: 2, cold_uri: cold");
    assert_ne!(manifest, archived);
    env.write("bridge.yaml", archived);
    let config = std::fs::read_to_string(env.folder().join("latent.toml")).unwrap() + ARCHIVE;
    env.write("latent.toml", &config);
    let second = config.replace("data_dir = \"data\"", "data_dir = \"data2\"");
    env.write("second.toml", second.replace("[secrets]", "[secrets]\ndirectory = \"data/secrets\""));
    let outbox = env.folder().join("outbox");
    let env = env.with_variable("AV_COLD_OUTBOX_DIR", outbox.to_str().unwrap());
    let first = node(&env);
    let published = env.run_with_input(["bus", "publish", "out", "--file", "-", "--json"], b"{\"n\":1}\n{\"n\":2}\n".to_vec());
    assert_eq!(documents(&published.with_status(0)).len(), 2);

    let told = refused(&env, "second.toml");
    let (path, pid) = (outbox.display().to_string(), format!("process {}", first.child.pid()));
    assert!(told.contains(&format!("the archive's outbox {path} is held by {pid}")), "{told}");
    assert!(told.contains("AV_COLD_OUTBOX_DIR"), "{told}");

    let elsewhere =
        std::fs::read_to_string(env.folder().join("bridge.yaml")).unwrap().replace("cold_uri: cold", "cold_uri: cold-elsewhere");
    env.write("elsewhere.yaml", elsewhere);
    let into = ["bus", "provision", "--engine", "embedded:to", "--manifest", "elsewhere.yaml"];
    let _ = env.run(into).with_status(0);
    let (told, _) = migrated(&env, &["out", "--from", "config:latent.toml", "--to", "embedded:to"], 0);
    assert_eq!((&counts(&told)["copied"], &counts(&told)["same"]), (&json!(2), &json!(1)));
    // So does every other command that only reads, where no node of its own answers.
    let read = documents(&env.run(["bus", "fetch", "out", "-c", "second.toml", "--json"]).with_status(0));
    assert_eq!(read.len(), 2);
    // Who writes needs it.
    let publish = ["bus", "publish", "out", "-c", "second.toml", "--file", "-", "--json"];
    let error = error_of(&env.run_with_input(publish, b"{}\n".to_vec()).with_status(1));
    assert_eq!(error["kind"], json!("outbox-in-use"), "{error}");
    let (_, output) = migrated(&env, &["out", "--from", "embedded:to", "--to", "config:latent.toml"], 1);
    let error = error_of(&output);
    assert_eq!(error["kind"], json!("outbox-in-use"), "{error}");
    assert!(error["why"].as_str().unwrap().contains(&path), "{error}");
    assert_eq!(first.stop(), Some(0));
}

#[test]
fn in_a_directory_a_second_node_whose_outbox_leads_to_that_of_the_first_is_refused() {
    let env = fresh();
    env.write("bridge.yaml", MANIFEST.replace("partitions: 1", "partitions: 1, retention: { hot_hours: 1, cold_uri: cold }"));
    control_key(&env);
    env.write("latent.toml", format!("{CONFIG}{ARCHIVE}"));
    env.write("second.toml", format!("{CONFIG}{ARCHIVE}").replace("data_dir = \"data\"", "data_dir = \"data2\""));
    let first = node(&env);
    std::fs::create_dir(env.folder().join("data2")).unwrap();
    std::os::unix::fs::symlink(env.folder().join("data/cold-outbox"), env.folder().join("data2/cold-outbox")).unwrap();
    let told = refused(&env, "second.toml");
    let pid = format!("process {}", first.child.pid());
    assert!(told.contains("data2") && told.contains(&format!("the archive's outbox \"cold-outbox\" is held by {pid}")), "{told}");
    assert!(told.contains("stop the process that holds it"), "{told}");
    assert_eq!(first.stop(), Some(0));
}
