//! Dead letters on real nodes: what is parked, what is shown of it, and that a replay happens once, whatever is run again.

use latent_test_guests::{BEHAVE, FORWARD};
use serde_json::json;

use super::*;

/// A folder with one service `work` that a trigger wakes for `in`, whose dead letters go to `dead`; `out` is open to it.
pub(crate) fn folder() -> CliEnv {
    let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
    let topics: Vec<_> = ["in", "out", "dead"].iter().map(|name| format!("  - {{ name: {name}, partitions: 1 }}\n")).collect();
    env.write("bridge.yaml", format!("manifest_version: 1\nname: demo\ntopics:\n{}", topics.concat()));
    let mut config = "[node]\nname = \"edge\"\ndata_dir = \"data\"\n[engine]\nkind = \"embedded\"\nmanifest = \"bridge.yaml\"\n".to_owned();
    for topic in ["in", "out", "dead"] {
        config.push_str(&format!("[[topic]]\nname = \"{topic}\"\ntenant = \"acme\"\n"));
    }
    config.push_str("[[service]]\nname = \"work\"\ntenant = \"acme\"\ncomponent = \"work.wasm\"\n");
    config.push_str("grants = [{ capability = \"latent:events/publisher@0.2.0\", topics = [\"out\"] }]\n");
    config.push_str("[[trigger]]\nid = \"work\"\ntenant = \"acme\"\nservice = \"work\"\ntopic = \"in\"\ndead_letter = \"dead\"\n");
    config.push_str("max_deliveries = 2\nretry_delay_millis = 10\n");
    env.write("latent.toml", config);
    env.write("work.wasm", BEHAVE.component);
    let _ = env.run(["bus", "provision"]).with_status(0);
    env
}

/// Publishes one line under a key; gives its uid.
pub(crate) fn publish_text(env: &CliEnv, key: &str, text: &str) -> String {
    let arguments = ["in", "--raw-lines", "--media-type", "text/plain", "--key", key];
    let stored = publish(env, &arguments, format!("{text}\n").as_bytes(), 0);
    stored[0]["uid"].as_str().unwrap().to_owned()
}

fn listed(env: &CliEnv, arguments: &[&str]) -> Vec<Value> {
    documents(&env.run(["deadletter", "list", "--json"].iter().chain(arguments)).with_status(0))
}

/// Waits for so many dead letters and gives them.
pub(crate) fn letters(env: &CliEnv, count: usize) -> Vec<Value> {
    let mut found = Vec::new();
    wait_until("dead letters", || {
        found = listed(env, &[]);
        found.len() >= count
    });
    assert_eq!(found.len(), count, "{found:?}");
    found
}

pub(crate) fn wait_until_settled(env: &CliEnv) {
    wait_until("nothing pending", || documents(&env.run(["trigger", "status", "--json"]).with_status(0))[0]["pending"] == json!(0));
}

fn replay(env: &CliEnv, arguments: &[&str], status: i32) -> Vec<Value> {
    documents(&env.run(["deadletter", "replay", "--json"].iter().chain(arguments)).with_status(status))
}

fn shown(env: &CliEnv, place: &str) -> Value {
    documents(&env.run(["deadletter", "show", place, "--json"]).with_status(0)).remove(0)
}

#[test]
fn a_rejected_event_is_listed_shown_and_after_a_mended_function_replayed_once() {
    let env = folder();
    let first = node(&env);
    let uid = publish_text(&env, "k", "reject:not today");
    let letter = letters(&env, 1).remove(0);
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("no number in {letter}"));
    let (parked_at, stored_at) = (number(&letter["parked_at"]), number(&letter["event"]["stored_at"]));
    assert!(parked_at >= stored_at);
    let expected = json!({
        "place": "dead/0/0", "topic": "dead", "partition": 0, "offset": 0, "reason": "rejected", "trigger": "work", "attempts": 1,
        "detail": "not today", "key": "k", "parked_at": parked_at, "replay": 0,
        "event": { "topic": "in", "partition": 0, "offset": 0, "uid": uid, "stored_at": stored_at },
    });
    assert_eq!(letter, expected);
    let whole = shown(&env, "dead/0/0");
    expected.as_object().unwrap().iter().for_each(|(name, value)| assert_eq!(whole[name], *value, "{name}"));
    assert_eq!((&whole["media_type"], &whole["payload_bytes"]), (&json!("text/plain"), &json!("reject:not today".len())));
    assert_eq!((&whole["value"], &whole["attributes"]), (&base64("cmVqZWN0Om5vdCB0b2RheQ=="), &json!({})));
    assert_eq!((&whole["replayed"], &whole["first"]), (&json!(null), &json!(null)));
    assert!(whole["component"].as_str().unwrap().starts_with("sha256:") && whole["activation"].is_string(), "{whole}");

    let table = env.run(["deadletter", "list"]).with_status(0).stdout;
    assert!(table.starts_with("PLACE") && table.contains("dead/0/0  work     rejected  1         in/0/0  k"), "{table}");
    let text = env.run(["deadletter", "show", "dead/0/0"]).with_status(0).stdout;
    assert!(text.contains("detail       not today\n") && text.contains("payload      reject:not today\n"), "{text}");

    env.write("work.wasm", FORWARD.component);
    let _ = env.run(["reload"]).with_status(0);
    let replayed = |duplicate| json!({ "letter": "dead/0/0", "topic": "in", "partition": 0, "offset": 1, "uid": format!("{uid}#1"), "duplicate": duplicate });
    assert_eq!(replay(&env, &["dead/0/0"], 0), [replayed(false)]);
    assert_eq!(replay(&env, &["dead/0/0"], 0), [replayed(true)]);
    wait_until_settled(&env);
    assert_eq!(first.stop(), Some(0));

    // A stopped node's directory gives the same answers.
    assert_eq!(listed(&env, &[]), [expected]);
    assert_eq!(replay(&env, &["dead/0/0"], 0), [replayed(true)]);
    assert_eq!(
        shown(&env, "dead/0/0")["replayed"],
        json!({ "topic": "in", "partition": 0, "offset": 1, "uid": format!("{uid}#1"), "duplicate": true })
    );
    let again = env.run(["deadletter", "replay", "dead/0/0"]).with_status(0).stdout;
    assert_eq!(again, format!("dead/0/0: was replayed before, as in/0/1, uid {uid}#1\n"));
    let stored = fetched(&env, "in", 0);
    assert_eq!(stored.len(), 2, "published again once");
    assert_eq!((&stored[1]["key"], &stored[1]["value"]), (&stored[0]["key"], &stored[0]["value"]));
    assert_eq!(fetched(&env, "out", 0).len(), 1);
}

#[test]
fn what_a_function_published_before_it_failed_is_there_once_after_any_number_of_replays() {
    let env = folder();
    let node = node(&env);
    let uid = publish_text(&env, "k", "publish-then-trap:out");
    let letter = letters(&env, 1).remove(0);
    assert_eq!((&letter["reason"], &letter["attempts"]), (&json!("exhausted"), &json!(2)));
    for number in 1..=2 {
        let place = format!("dead/0/{}", number - 1);
        let replayed = replay(&env, &[&place], 0);
        assert_eq!((&replayed[0]["uid"], &replayed[0]["duplicate"]), (&json!(format!("{uid}#{number}")), &json!(false)));
        let letters = letters(&env, number + 1);
        let whole = shown(&env, &format!("dead/0/{number}"));
        assert_eq!((&whole["replay"], &whole["event"]["uid"]), (&json!(number), &json!(format!("{uid}#{number}"))));
        let first = json!({ "topic": "in", "partition": 0, "offset": 0, "uid": uid, "stored_at": letters[0]["event"]["stored_at"] });
        assert_eq!(whole["first"], first, "it is known which event it was first");
    }
    assert_eq!(fetched(&env, "out", 0).len(), 1, "three times two runs and one output");
    // Asked again, each letter is answered with its own replay.
    let again = replay(&env, &["dead/0/1", "dead/0/0"], 0);
    assert_eq!(again.iter().map(|one| one["uid"].clone()).collect::<Vec<_>>(), [1, 2].map(|number| json!(format!("{uid}#{number}"))));
    assert!(again.iter().all(|one| one["duplicate"] == json!(true)), "{again:?}");
    let more = replay(&env, &["dead/0/0", "--again"], 0);
    assert_eq!((&more[0]["uid"], &more[0]["duplicate"]), (&json!(format!("{uid}#3")), &json!(false)));
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn all_of_a_trigger_are_replayed_by_reason_and_the_same_command_again_stores_nothing() {
    let env = folder();
    let running = node(&env);
    for (key, text) in [("a", "reject:one"), ("b", "trap"), ("a", "reject:two"), ("c", "ok")] {
        publish_text(&env, key, text);
    }
    letters(&env, 3);
    wait_until_settled(&env);
    assert_eq!(running.stop(), Some(0));
    let of = |arguments: &[&str]| listed(&env, arguments).iter().map(|letter| letter["detail"].clone()).collect::<Vec<_>>();
    assert_eq!(of(&["--reason", "rejected"]), ["one", "two"]);
    assert_eq!(of(&["--trigger", "work", "--topic", "dead", "--limit", "2"]).len(), 2);
    let last = listed(&env, &[]).remove(2);
    assert_eq!(listed(&env, &["--from", last["place"].as_str().unwrap()]), [last]);
    assert_eq!(of(&["--topic", "out"]), [json!(null); 0], "other records are no dead letters");

    let all = ["--all", "--trigger", "work", "--reason", "rejected"];
    let would = replay(&env, &[&all[..], &["--dry-run"]].concat(), 0);
    assert_eq!(would.len(), 2);
    assert!(would.iter().all(|one| one["dry_run"] == json!(true) && one["topic"] == json!("in")), "{would:?}");
    assert_eq!(fetched(&env, "in", 0).len(), 4, "nothing was stored");
    let replayed = replay(&env, &all, 0);
    assert_eq!(values(&fetched(&env, "in", 0)[4..]).len(), 2);
    assert_eq!(values(&fetched(&env, "in", 0)[4..]), [base64("cmVqZWN0Om9uZQ=="), base64("cmVqZWN0OnR3bw==")], "oldest first");
    let same = |one: &Value| {
        let mut one = one.clone();
        one["duplicate"] = json!(true);
        one
    };
    assert_eq!(replay(&env, &all, 0), replayed.iter().map(same).collect::<Vec<_>>());
    assert_eq!(fetched(&env, "in", 0).len(), 6);
}

#[test]
fn a_replay_of_all_that_a_kill_cuts_off_is_finished_by_running_it_again() {
    const EVENTS: usize = 60;
    let env = folder();
    let rejecting = node(&env);
    let lines: String = (0..EVENTS).map(|number| format!("reject:{number}\n")).collect();
    publish(&env, &["in", "--raw-lines", "--media-type", "text/plain", "--key", "k"], lines.as_bytes(), 0);
    letters(&env, EVENTS);
    assert_eq!(rejecting.stop(), Some(0));
    env.write("work.wasm", FORWARD.component);

    let mut killed = node(&env);
    let mut replaying = Running::start(&env, &["deadletter", "replay", "--all", "--trigger", "work", "--json"]);
    // Results come in blocks, so this says only that it has begun.
    wait_until("a replay", || fetched(&env, "in", 0).len() > EVENTS);
    killed.child.kill().unwrap();
    let status = replaying.child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code();
    assert!(matches!(status, Some(0 | 1 | 3)), "{status:?}");

    let finished = node(&env);
    let outcomes = replay(&env, &["--all", "--trigger", "work"], 0);
    assert_eq!(outcomes.len(), EVENTS);
    wait_until_settled(&env);
    let (stored, published) = (fetched(&env, "in", 0), fetched(&env, "out", 0));
    assert_eq!((stored.len(), published.len()), (2 * EVENTS, EVENTS), "each replayed once and handled once");
    assert_eq!(values(&stored[EVENTS..]), values(&stored[..EVENTS]), "in the order in which they were");
    assert_eq!(finished.stop(), Some(0));
}

#[test]
fn what_has_no_event_to_publish_is_refused_and_the_rest_goes_on() {
    let env = folder();
    // Longer than leaves room for a number; not text the function knows, so it is rejected.
    let long = "u".repeat(255);
    publish(
        &env,
        &["in", "--uid-pointer", "/id"],
        format!("{{\"id\":\"{long}\"}}\n{{\"id\":\"damaged\"}}\n{{\"id\":\"short\"}}\n").as_bytes(),
        0,
    );
    damage(&env, "in", b"\"damaged\"");
    let node = node(&env);
    let parked = letters(&env, 3);
    let reasons: Vec<_> = parked.iter().map(|letter| letter["reason"].clone()).collect();
    assert_eq!(reasons.iter().filter(|reason| **reason == json!("undecodable")).count(), 1, "{parked:?}");
    let outcomes = replay(&env, &["--all", "--trigger", "work"], 1);
    let refused: Vec<_> = outcomes.iter().filter(|one| one["error"]["kind"] == json!("not-replayable")).collect();
    assert_eq!((outcomes.len(), refused.len()), (3, 2), "{outcomes:?}");
    assert!(refused.iter().any(|one| one["error"]["message"].as_str().unwrap().contains("255 bytes")), "{outcomes:?}");
    assert!(refused.iter().any(|one| one["error"]["message"].as_str().unwrap().contains("could not be read")), "{outcomes:?}");
    let undecodable = parked.iter().find(|letter| letter["reason"] == json!("undecodable")).unwrap();
    let whole = shown(&env, undecodable["place"].as_str().unwrap());
    assert!(whole["not_replayable"].is_string() && whole["replayed"] == json!(null), "{whole}");

    let cases: &[(&[&str], i32, &str)] = &[
        (&["show", "dead/0/99"], 1, "no-dead-letter"),
        (&["show", "in/0/0"], 1, "no-dead-letter"),
        (&["show", "deaad/0/0"], 1, "unknown-topic"),
        (&["show", "dead/0"], 2, "usage"),
        (&["list", "--trigger", "wrk"], 1, "unknown-trigger"),
        (&["list", "--topic", "nowhere"], 1, "unknown-topic"),
        (&["list", "--reason", "tired"], 2, "usage"),
        (&["replay"], 2, "usage"),
        (&["replay", "--all"], 2, "usage"),
        (&["replay", "dead/0/0", "--all", "--trigger", "work"], 2, "usage"),
        (&["replay", "dead/0/0", "--trigger", "work"], 2, "usage"),
        (&["replay", "--all", "--trigger", "work", "--again"], 2, "usage"),
        (&["replay", "in/0/0"], 1, "replay-incomplete"),
    ];
    for (arguments, status, kind) in cases {
        let output = env.run(["deadletter"].iter().chain(*arguments).chain(&["--json"])).with_status(*status);
        assert_eq!(error_of(&output)["kind"], json!(kind), "{arguments:?}");
    }
    assert_eq!(node.stop(), Some(0));
}

/// A dead letter as a node tells it.
fn told(offset: u64, key: &str) -> Value {
    let host = [("Reason", "rejected"), ("Binding", "work"), ("Topic", "in"), ("Partition", "0"), ("Attempts", "1"), ("Uid", "u")];
    let mut attributes: Vec<_> = host.iter().map(|(name, value)| json!([format!("Latent-Dead-{name}"), value])).collect();
    attributes.push(json!(["Latent-Dead-Offset", offset.to_string()]));
    json!({
        "partition": 0, "offset": offset, "uid": format!("dead-{offset}"), "key": key, "media_type": "text/plain", "attributes": attributes,
        "payload": "", "stored_at": 1,
    })
}

#[test]
fn after_an_event_that_may_not_be_stored_no_later_one_of_its_key_is_tried() {
    let env = provisioned();
    scripted_node(&env, |request| {
        if let Some(offset) = request["fetch"]["offset"].as_u64() {
            return Some(json!({ "events": [told(offset, if offset == 2 { "other" } else { "same" })] }));
        }
        match request["replay"]["letter"].as_str()? {
            "one/0/0" => Some(json!({ "fault": { "kind": "uncertain", "permanent": false, "uncertain": true, "message": "lost" } })),
            "one/0/2" => {
                Some(json!({ "replayed": { "stored": { "topic": "in", "partition": 0, "offset": 7, "uid": "u#1", "duplicate": false } } }))
            }
            // Anything else ends the connection, and with it the command.
            _ => None,
        }
    });
    let output = env.run(["deadletter", "replay", "one/0/2", "one/0/1", "one/0/0", "--json"]).with_status(3);
    let kinds: Vec<_> = documents(&output).iter().map(|one| one["error"]["kind"].clone()).collect();
    assert_eq!(kinds, [json!("uncertain"), json!("held-back"), json!(null)]);
    let error = error_of(&output);
    assert_eq!(error["counts"], json!({ "replayed": 1, "duplicates": 0, "refused": 1, "uncertain": 1 }));
    assert!(error["next"].as_str().unwrap().contains("run the same command again"), "{error}");
}
