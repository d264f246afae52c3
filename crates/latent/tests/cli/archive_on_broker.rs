//! The archive of topics on a broker, as the command line sees it: what must be there, and that looking leaves nothing behind.

use latent_testkit::require_broker;

use super::archive::key;
use super::cluster::{TOPICS, broker, make_streams, with_node};
use super::*;

#[test]
fn what_a_broker_acknowledged_must_be_in_the_archive_and_looking_makes_none() {
    require_broker!();
    let broker = broker("broker.latent.test");
    let env = with_node(&broker);
    key(&env, "control.key", &"07".repeat(32));
    let manifest =
        TOPICS.replace("partitions: 1, retention: { hot_hours: 2 }", "partitions: 1, retention: { hot_hours: 2, cold_uri: cold }");
    assert_ne!(manifest, TOPICS);
    env.write("bridge.yaml", manifest);
    let config = std::fs::read_to_string(env.folder().join("latent.toml")).unwrap();
    env.write("latent.toml", format!("{config}\n[archive]\ncontrol_key_files = [\"control.key\"]\n"));
    make_streams(&broker, &json!({}));
    let elsewhere = env.folder().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    for words in [
        &["archive", "verify", "-c", "../latent.toml"][..],
        &["bus", "topics", "-c", "../latent.toml"],
        &["bus", "migrate", "--from", "config:../latent.toml", "--to", "embedded:../to", "--progress", "../progress"],
    ] {
        let output = env.command(words).current_dir(&elsewhere).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        // There is no directory to migrate to, which is found when the source was opened.
        assert!(output.status.success() || words[1] == "migrate", "{words:?}: {told}");
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0, "{words:?}");
        assert!(!env.folder().join("cold").exists(), "{words:?} made a folder: {told}");
    }

    let node = node(&env);
    assert_eq!(publish(&env, &["out"], b"{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n", 0).len(), 3);
    let objects = || {
        std::fs::read_dir(env.folder().join("cold/out/p0"))
            .map_or(0, |there| there.flatten().filter(|one| one.path().extension().is_some_and(|ending| ending == "json")).count())
    };
    wait_until("everything is archived", || objects() == 3);
    wait_until("no intent waits", || env.run(["archive", "verify"]).status == Some(0));
    std::fs::remove_dir_all(env.folder().join("cold/out")).unwrap();
    let lost = env.run(["archive", "verify", "--json"]).with_status(1);
    let found = &documents(&lost)[0]["finding"];
    assert_eq!(
        (&found["kind"], &found["topic"], &found["first"], &found["last"]),
        (&json!("missing"), &json!("out"), &json!(1), &json!(3))
    );
    assert_eq!(node.stop(), Some(0));
}
