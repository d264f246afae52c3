//! `latent bus stats` and `latent bus maintain`, in a directory and through a node.

use serde_json::json;

use super::*;

/// What `stats --json` says.
fn stats(env: &CliEnv, arguments: &[&str]) -> Vec<Value> {
    documents(&env.run(["bus", "stats", "--json"].iter().chain(arguments)).with_status(0))
}

#[test]
fn stats_are_the_same_from_the_directory_and_from_the_node() {
    let env = provisioned();
    let lines: String = (0..30).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    assert_eq!(publish(&env, &["in", "--key-pointer", "/n"], lines.as_bytes(), 0).len(), 30);
    let stopped = stats(&env, &[]);
    let names: Vec<_> = stopped.iter().map(|partition| (partition["topic"].clone(), partition["partition"].clone())).collect();
    assert_eq!(names, [(json!("in"), json!(0)), (json!("in"), json!(1)), (json!("in"), json!(2)), (json!("one"), json!(0))]);
    for partition in &stopped[..3] {
        let count = fetched(&env, "in", u32::try_from(partition["partition"].as_u64().unwrap()).unwrap()).len();
        assert_eq!((&partition["first"], &partition["next"], &partition["records"]), (&json!(0), &json!(count), &json!(count)));
        assert!(partition["bytes"].as_u64().unwrap() > count as u64, "{partition}");
        assert_eq!((&partition["damaged"], &partition["poisoned"]), (&json!(0), &json!(false)));
    }
    assert_eq!((&stopped[3]["records"], &stopped[3]["bytes"]), (&json!(0), &json!(0)));

    let human = env.run(["bus", "stats", "in"]).with_status(0).stdout;
    assert!(human.starts_with("TOPIC  PARTITION  FIRST  NEXT  RECORDS"), "{human}");
    let sum: Vec<_> = human.lines().last().unwrap().split_whitespace().collect();
    assert_eq!((&sum[..3], sum[5]), (&["in", "all", "3"][..], "30"), "{human}");

    let node = node(&env);
    assert_eq!(stats(&env, &[]), stopped);
    assert_eq!(stats(&env, &["one"]), stopped[3..]);
    assert_eq!(error_of(&env.run(["bus", "stats", "ones", "--json"]).with_status(1))["next"], json!("did you mean one?"));
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn stats_count_what_cannot_be_read() {
    let env = provisioned();
    assert_eq!(publish(&env, &["one", "--raw-lines"], b"first\nSECOND\nthird\n", 0).len(), 3);
    damage(&env, "one", b"SECOND");
    let partition = stats(&env, &["one"]).remove(0);
    assert_eq!((&partition["next"], &partition["records"], &partition["damaged"]), (&json!(3), &json!(2), &json!(1)));
}

#[test]
fn maintenance_with_nothing_to_do_says_so() {
    let env = provisioned();
    let nothing = json!({
        "expired_records": 0, "expired_segments": 0, "skipped_topics": [], "unremoved_files": 0, "intents_completed": 0, "intents_pending": 0,
        "archived_records": 0, "archive_holes": 0, "intents_failed": 0, "intents_quarantined": 0, "unarchived_topics": [], "unreachable_topics": [],
        "archive_problems": [],
    });
    let check = |env: &CliEnv| {
        assert_eq!(documents(&env.run(["bus", "maintain", "--json"]).with_status(0)), std::slice::from_ref(&nothing));
        assert_eq!(env.run(["bus", "maintain"]).with_status(0).stdout, "nothing has expired\n");
    };
    check(&env);
    let node = node(&env);
    check(&env);
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn what_a_maintenance_left_is_an_error_after_its_report() {
    let env = provisioned();
    let report = json!({
        "expired_records": 7, "expired_segments": 1, "skipped_topics": ["in"], "unremoved_files": 2, "intents_completed": 0, "intents_pending": 0,
    });
    scripted_node(&env, move |_| Some(json!({ "maintained": report })));
    let human = env.run(["bus", "maintain"]).with_status(1);
    assert_eq!(human.stdout, "7 events expired and removed with 1 segment file\n");
    let lines: Vec<_> = human.stderr.lines().collect();
    assert_eq!(
        lines,
        [
            "error: the maintenance is incomplete",
            "  why: topic \"in\" refuses writes since one of them failed; 2 files could not be removed",
            " next: look at the disk and the node's log, start the node again, then run it once more",
        ]
    );
}

#[test]
fn a_maintenance_without_an_answer_is_uncertain() {
    let env = provisioned();
    scripted_node(&env, |_| None);
    let error = error_of(&env.run(["bus", "maintain", "--json"]).with_status(3));
    assert_eq!((&error["kind"], &error["status"]), (&json!("control-closed"), &json!(3)));
    assert!(error["next"].as_str().unwrap().contains("is not done twice"), "{error}");
}

#[test]
fn a_node_that_maintains_often_stops_as_promptly_as_any() {
    let env = provisioned();
    env.write("latent.toml", CONFIG.replace("manifest =", "maintenance_interval_seconds = 1\nmanifest ="));
    let node = node(&env);
    assert_eq!(publish(&env, &["one"], b"{}\n", 0).len(), 1);
    let _ = env.run(["bus", "maintain"]).with_status(0);
    assert_eq!(node.stop(), Some(0));
    assert_eq!(fetched(&env, "one", 0).len(), 1);
}
