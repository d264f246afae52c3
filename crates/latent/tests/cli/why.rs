//! The story of one event, told by a running node and by a stopped one's directory.

use latent_test_guests::FORWARD;
use serde_json::json;

use super::deadletter::{folder, letters, publish_text, wait_until_settled};
use super::*;

fn why(env: &CliEnv, topic: &str, uid: &str) -> Value {
    documents(&env.run(["why", topic, uid, "--json"]).with_status(0)).remove(0)
}

fn told(env: &CliEnv, uid: &str) -> String {
    env.run(["why", "in", uid]).with_status(0).stdout
}

fn states(story: &Value) -> Vec<Value> {
    story["triggers"].as_array().unwrap().iter().map(|trigger| trigger["state"].clone()).collect()
}

fn outcomes(story: &Value) -> Vec<Value> {
    story["runs"].as_array().unwrap().iter().map(|run| run["outcome"].clone()).collect()
}

#[test]
fn the_story_of_an_event_that_succeeded_has_its_run_with_what_it_wrote() {
    let env = folder();
    let node = node(&env);
    let uid = publish_text(&env, "k", "log");
    wait_until_settled(&env);
    let story = why(&env, "in", &uid);
    assert_eq!((&story["topic"], &story["uid"], &story["partition"], &story["offset"]), (&json!("in"), &json!(uid), &json!(0), &json!(0)));
    let event = &story["event"];
    assert_eq!((&event["key"], &event["media_type"], &event["payload_bytes"]), (&json!("k"), &json!("text/plain"), &json!(3)));
    assert_eq!((states(&story), outcomes(&story)), (vec![json!("settled")], vec![json!("success")]));
    let run = &story["runs"][0];
    assert_eq!((&run["trigger"], &run["attempt"], &run["service"]), (&json!("work"), &json!(1), &json!("work")));
    assert!(run["fuel"].as_u64().unwrap() > 0 && run["component"].as_str().unwrap().starts_with("sha256:"), "{run}");
    assert!(run["log"].as_array().unwrap().iter().any(|line| line[1] == json!("two")), "{run}");
    assert_eq!(story["journal"]["entries"], json!(1));
    for (part, value) in [("replay_of", json!(null)), ("parked_from", json!(null)), ("replays", json!([]))] {
        assert_eq!(story[part], value, "{part}");
    }
    let text = told(&env, &uid);
    assert!(text.contains("trigger   work: done: success at attempt 1\n") && text.contains(": two\n"), "{text}");
    assert_eq!(error_of(&env.run(["why", "in", "absent", "--json"]).with_status(1))["kind"], json!("not-found"));
    assert_eq!(error_of(&env.run(["why", "inn", "absent", "--json"]).with_status(1))["kind"], json!("unknown-topic"));

    assert_eq!(node.stop(), Some(0));
    let story = why(&env, "in", &uid);
    assert_eq!((states(&story), outcomes(&story), &story["journal"]), (vec![json!("settled")], vec![], &json!(null)));
    let text = told(&env, &uid);
    assert!(text.contains("work: done; no run of it is remembered") && text.contains("the node is stopped"), "{text}");
}

#[test]
fn the_story_of_a_parked_event_has_its_runs_outputs_dead_letter_and_replay() {
    let env = folder();
    let running = node(&env);
    let uid = publish_text(&env, "k", "publish-then-trap:out");
    letters(&env, 1);
    let _ = env.run(["deadletter", "replay", "dead/0/0"]).with_status(0);
    letters(&env, 2);
    wait_until_settled(&env);

    let story = why(&env, "in", &uid);
    assert_eq!(outcomes(&story), ["trap", "trap"]);
    let output = |run: usize| story["runs"][run]["outputs"][0].clone();
    assert_eq!((output(0)["outcome"].clone(), output(1)["outcome"].clone()), (json!("receipt"), json!("duplicate")));
    let out = fetched(&env, "out", 0);
    for output in [output(0), output(1)] {
        assert_eq!((&output["topic"], &output["uid"], &output["in_log"]), (&json!("out"), &out[0]["uid"], &json!(true)));
        assert_eq!((&output["partition"], &output["offset"]), (&json!(0), &json!(0)));
    }
    let letter = &story["triggers"][0]["dead_letter"];
    assert_eq!((&letter["place"], &letter["reason"], &letter["attempts"]), (&json!("dead/0/0"), &json!("exhausted"), &json!(2)));
    let replay = &story["replays"][0];
    assert_eq!((&replay["uid"], &replay["offset"], &replay["letter"]), (&json!(format!("{uid}#1")), &json!(1), &json!("dead/0/0")));
    let text = told(&env, &uid);
    for part in
        ["parked in dead/0/0 at ", "exhausted after 2 attempts: ", "published out/0/0, uid ", ": duplicate\n", "replay    in/0/1, uid "]
    {
        assert!(text.contains(part), "{part} is not in {text}");
    }

    // The replay has a story of its own, and its dead letter has one, too.
    let story = why(&env, "in", &format!("{uid}#1"));
    assert_eq!((&story["replay_of"]["uid"], &story["replay_of"]["letter"]), (&json!(uid), &json!("dead/0/0")));
    assert_eq!((outcomes(&story), &story["triggers"][0]["dead_letter"]["place"]), (vec![json!("trap"); 2], &json!("dead/0/1")));
    assert_eq!(story["runs"][0]["outputs"][0]["outcome"], json!("duplicate"), "it publishes under the first one's keys");
    let letter_uid = fetched(&env, "dead", 0)[0]["uid"].as_str().unwrap().to_owned();
    assert_eq!(why(&env, "dead", &letter_uid)["parked_from"]["event"]["uid"], json!(uid));

    assert_eq!(running.stop(), Some(0));
    let stopped = why(&env, "in", &uid);
    assert_eq!(
        (&stopped["triggers"][0]["dead_letter"]["place"], &stopped["replays"]),
        (&json!("dead/0/0"), &why(&env, "in", &uid)["replays"])
    );
    assert!(told(&env, &uid).contains("parked in dead/0/0"));
}

#[test]
fn the_story_of_an_event_that_waits_says_for_what() {
    let env = folder();
    let config = std::fs::read_to_string(env.folder().join("latent.toml")).unwrap();
    env.write("latent.toml", config.replace("max_deliveries = 2", "max_deliveries = 5"));
    let running = node(&env);
    let delayed = publish_text(&env, "k", "retry:600000:not yet");
    let behind = publish_text(&env, "k", "ok");
    let mut story = Value::Null;
    wait_until("a delayed event", || {
        story = why(&env, "in", &delayed);
        states(&story) == ["delayed"]
    });
    let trigger = &story["triggers"][0];
    assert_eq!((&trigger["attempts"], &trigger["attempts_max"]), (&json!(1), &json!(5)));
    assert!(trigger["next_attempt_at"].is_u64(), "{trigger}");
    assert_eq!(outcomes(&story), ["retry"]);
    assert_eq!(story["runs"][0]["detail"], json!("not yet"));
    let text = told(&env, &delayed);
    assert!(text.contains("trigger   work: attempt 2 of 5 is due in "), "{text}");
    wait_until("an event behind its key", || states(&why(&env, "in", &behind)) == ["behind-its-key"]);
    assert!(told(&env, &behind).contains("waits until an earlier event of its key is done"));
    assert_eq!(running.stop(), Some(0));

    let story = why(&env, "in", &delayed);
    assert_eq!((states(&story), &story["triggers"][0]["attempts"]), (vec![json!("delayed")], &json!(1)));
    assert_eq!(states(&why(&env, "in", &behind)), ["pending"]);
    // Without its trigger, it is known that there was one.
    let config = std::fs::read_to_string(env.folder().join("latent.toml")).unwrap();
    env.write("latent.toml", config.split("[[trigger]]").next().unwrap());
    assert_eq!(states(&why(&env, "in", &delayed)), ["removed"]);
}

#[test]
fn the_story_of_an_event_names_a_publication_that_was_a_conflict() {
    let env = folder();
    let running = node(&env);
    let uid = publish_text(&env, "k", "publish-then-trap:out");
    letters(&env, 1);
    // Another function publishes other content under the same derived key.
    env.write("work.wasm", FORWARD.component);
    let _ = env.run(["reload"]).with_status(0);
    let _ = env.run(["deadletter", "replay", "dead/0/0"]).with_status(0);
    letters(&env, 2);
    let replay = format!("{uid}#1");
    let story = why(&env, "in", &replay);
    let outputs: Vec<_> = story["runs"].as_array().unwrap().iter().map(|run| run["outputs"][0]["outcome"].clone()).collect();
    assert!(!outputs.is_empty() && outputs.iter().all(|outcome| *outcome == json!("conflict")), "{story}");
    assert!(told(&env, &replay).contains("published out, uid ") && told(&env, &replay).contains(": conflict\n"), "{}", told(&env, &replay));
    assert_eq!(fetched(&env, "out", 0).len(), 1);
    assert_eq!(running.stop(), Some(0));
}

/// A replay of `u` as a node tells it.
fn told_replay() -> Value {
    let host =
        [("Replay", "1"), ("Letter", "one/0/3"), ("Topic", "in"), ("Partition", "2"), ("Offset", "9"), ("Uid", "u"), ("Stored-At", "1")];
    let attributes: Vec<_> = host.iter().map(|(name, value)| json!([format!("Latent-Dead-{name}"), value])).collect();
    json!({
        "partition": 2, "offset": 11, "uid": "u#1", "key": "k", "media_type": "text/plain", "attributes": attributes, "payload": "",
        "stored_at": 5,
    })
}

#[test]
fn an_event_that_the_log_has_no_more_is_known_by_its_replay() {
    let env = provisioned();
    scripted_node(&env, |request| {
        if request.get("fetch").is_some() {
            return Some(json!({ "events": [told_replay()] }));
        }
        if request.get("event-history").is_some() {
            assert_eq!(request["event-history"], json!({ "topic": "in", "partition": 2, "offset": 9 }));
            return Some(
                json!({ "event-history": { "triggers": [], "triggers_left_out": 0, "runs": [], "runs_left_out": 0, "journal": null } }),
            );
        }
        let place = json!({ "topic": "in", "partition": 2, "offset": 11, "uid": "u#1", "duplicate": false });
        Some(json!({ "found": if request["find"]["uid"] == json!("u#1") { place } else { json!(null) } }))
    });
    let story = why(&env, "in", "u");
    assert_eq!((&story["event"], &story["partition"], &story["offset"]), (&json!(null), &json!(2), &json!(9)));
    assert_eq!(story["replays"], json!([{ "uid": "u#1", "partition": 2, "offset": 11, "stored_at": 5, "number": 1, "letter": "one/0/3" }]));
    assert!(told(&env, "u").starts_with("event     in/2/9, uid u; the log has it no more\n"));
}

#[test]
fn publications_are_looked_up_up_to_their_bound() {
    for (published, looked_up) in [(63, 63), (64, 64), (65, 64)] {
        let env = provisioned();
        let output =
            |number: usize| json!({ "topic": "out", "uid": format!("o{number}"), "outcome": "receipt", "cause": null, "offset": 1 });
        let run = json!({
            "activation": "a", "trigger": "t", "attempt": 1, "outcome": "success", "detail": "", "service": "s", "component": "sha256:0",
            "queued_at": 1, "started_at": 1, "wait_micros": 1, "run_micros": 1, "fuel": 1, "memory_bytes": 1,
            "outputs": (0..published).map(output).collect::<Vec<_>>(), "outputs_left_out": 0, "log": [], "log_bytes_cut": 0,
        });
        scripted_node(&env, move |request| {
            let place = |topic: &str| json!({ "found": { "topic": topic, "partition": 0, "offset": 4, "uid": "u", "duplicate": false } });
            match (request["find"]["topic"].as_str(), request["find"]["uid"].as_str()) {
                (Some("in"), Some("u")) => Some(place("in")),
                (Some("in"), _) => Some(json!({ "found": null })),
                (Some(topic), _) => Some(place(topic)),
                (None, _) if request.get("fetch").is_some() => {
                    let mut event = told_replay();
                    (event["uid"], event["offset"], event["attributes"]) = (json!("u"), json!(4), json!([]));
                    Some(json!({ "events": [event] }))
                }
                (None, _) => Some(
                    json!({ "event-history": { "triggers": [], "triggers_left_out": 0, "runs": [run], "runs_left_out": 0, "journal": null } }),
                ),
            }
        });
        let story = why(&env, "in", "u");
        let outputs = story["runs"][0]["outputs"].as_array().unwrap();
        assert_eq!((outputs.len(), outputs.iter().filter(|output| output["in_log"] == json!(true)).count()), (published, looked_up));
    }
}
