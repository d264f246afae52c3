//! What never runs again: parked, named where there is no dead-letter topic, replayed, and what its runs published.

use latent_test_guests::FORWARD;

use super::told::assert_told;
use super::*;
use crate::cli::outcomes::Logging;

const PARKED: &str = "dead_letter = \"dead\"\nmax_deliveries = 2\nretry_delay_millis = 10\n";

pub(super) fn what_never_runs_again_is_terminated_counted_and_named_without_a_dead_letter_topic(engine: Engine) {
    let world = World::new(engine, "max_deliveries = 2\nretry_delay_millis = 10\n");
    let node = Logging::start(&world.env);
    let uids = ["reject:no", "trap", "ok"].map(|verb| publish_text(&world, "k", verb));
    wait_until_settled(&world, 3);
    let stories: Vec<_> = uids.iter().map(|uid| story(&world, uid)).collect();
    let log = std::fs::read_to_string(&node.log).unwrap();
    let named = |story: &Value, words: [&str; 2]| {
        let place = format!("partition={} offset={} ", story["partition"], story["offset"]);
        log.lines().filter(|line| [&*place, words[0], words[1]].iter().all(|words| line.contains(words))).count()
    };
    // What the function itself rejects is told with its run.
    assert_eq!(named(&stories[0], ["activation ended", "outcome=\"rejected\""]), 1, "{log}");
    assert_eq!(named(&stories[1], ["event given up", "reason=\"exhausted\""]), 1, "{log}");
    let told = world.told();
    assert_told(engine, "given_up", &json!({ "status": told.of_value(status(&world)), "why": told.of_all(stories) }));
    assert_eq!(letters(&world, 0), [json!(null); 0]);
    node.stop();
}

/// A record that was damaged on the disk, or what somebody else put into the stream.
pub(super) fn what_is_no_event_is_parked_and_the_partition_goes_on(engine: Engine) {
    let world = World::new(engine, PARKED);
    // In the partition of the other events, before them.
    let first = publish(&world.env, &["in", "--key", "k"], b"{\"n\":1}\n", 0).remove(0);
    let partition = first["partition"].as_u64().unwrap();
    if engine == Engine::Embedded {
        publish(&world.env, &["in", "--key", "k"], b"{\"damaged\":1}\n", 0);
        damage(&world.env, "in", b"damaged");
    }
    let _ = world.at_broker(async |admin| admin.publish(&format!("in.p{partition}"), b"{\"damaged\":1}").await);
    publish_text(&world, "k", "ok");
    let node = Logging::start(&world.env);
    wait_until_settled(&world, 3);
    let parked = letters(&world, 2);
    let letter = parked.iter().find(|letter| letter["reason"] == json!("undecodable")).unwrap().clone();
    let shown = documents(&world.env.run(["deadletter", "show", place_of(&letter), "--json"]).with_status(0)).remove(0);
    let refused = documents(&world.env.run(["deadletter", "replay", place_of(&letter), "--json"]).with_status(1)).remove(0);
    let told = world.told();
    let document = json!({
        "status": told.of_value(status(&world)), "letter": told.of_value(letter), "shown": told.of_value(shown),
        "replay": refused["error"]["kind"],
    });
    assert_told(engine, "undecodable", &document);
    node.stop();
}

pub(super) fn a_dead_letter_is_replayed_with_its_way_back_and_publishes_nothing_twice(engine: Engine) {
    let world = World::new(engine, PARKED);
    let first = Logging::start(&world.env);
    let uid = publish_text(&world, "k", "publish-then-trap:out");
    let letter = letters(&world, 1).remove(0);
    let replay = |letter: &Value, more: &[&str]| {
        let words = [&["deadletter", "replay", place_of(letter), "--json"], more].concat();
        documents(&world.env.run(words).with_status(0)).remove(0)
    };
    let replayed = replay(&letter, &[]);
    let second = letters(&world, 2).remove(1);
    wait_until_settled(&world, 2);
    let uids = [uid.clone(), format!("{uid}#1")];
    let stories: Vec<_> = uids.iter().map(|uid| story(&world, uid)).collect();
    // A dead letter has a story, too.
    let of_letter = fetched(&world.env, "dead", 0)[0]["uid"].as_str().unwrap().to_owned();
    let of_letter = documents(&world.env.run(["why", "dead", &of_letter, "--json"]).with_status(0)).remove(0);
    let told = world.told();
    let mut document = json!({
        "letters": told.of_all(vec![letter.clone(), second.clone()]), "replayed": told.of_value(replayed), "why": told.of_all(stories),
        "letter": told.of_value(of_letter),
    });
    first.stop();
    // Of a stopped node the same is known, but for its runs. After a restart the derived keys are still the same.
    let stopped = told.of_value(story(&world, &uid));
    document["stopped"] = json!({ "triggers": stopped["triggers"], "runs": stopped["runs"], "replays": stopped["replays"] });
    let again = Logging::start(&world.env);
    let replayed = replay(&second, &[]);
    assert_eq!((&replayed["uid"], &replayed["duplicate"]), (&json!(format!("{uid}#2")), &json!(false)));
    assert_eq!(replay(&letter, &[])["duplicate"], json!(true), "asked again, nothing is stored");
    let third = letters(&world, 3).remove(2);
    assert_eq!((&third["replay"], &third["event"]["uid"]), (&json!(2), &json!(format!("{uid}#2"))));
    wait_until_settled(&world, 1);
    document["after_a_restart"] = world.told().of_value(story(&world, &format!("{uid}#2")));
    assert_eq!(fetched(&world.env, "out", 0).len(), 1, "three times two runs and one output");
    assert_told(engine, "replayed", &document);
    again.stop();
}

/// The journal, `why`, the log and the audit say so; the function is told that its event is invalid.
pub(super) fn other_content_under_the_same_derived_key_is_a_conflict(engine: Engine) {
    let world = World::new(engine, PARKED);
    let node = Logging::start(&world.env);
    let uid = publish_text(&world, "k", "publish-then-trap:out");
    let letter = letters(&world, 1).remove(0);
    world.env.write("work.wasm", FORWARD.component);
    let _ = world.env.run(["reload"]).with_status(0);
    let _ = world.env.run(["deadletter", "replay", place_of(&letter)]).with_status(0);
    letters(&world, 2);
    let told = world.told().of_value(story(&world, &format!("{uid}#1")));
    assert_told(engine, "conflict", &json!({ "runs": told["runs"] }));
    assert_eq!(fetched(&world.env, "out", 0).len(), 1, "the first publication stands");
    assert!(std::fs::read_to_string(&node.log).unwrap().contains("conflict"));
    node.stop();
    let audited = std::fs::read_dir(world.env.folder().join("data/audit"))
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    assert!(audited.collect::<String>().lines().any(|line| line.contains("\"conflict\"")));
}
