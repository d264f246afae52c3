//! What operators do to a trigger: revoke its service, take it out of the configuration and put it back.

use super::told::assert_told;
use super::*;
use crate::cli::outcomes::Logging;
use latent_test_guests::BEHAVE;

const TRIGGER: &str = "dead_letter = \"dead\"\nmax_deliveries = 2\nretry_delay_millis = 10\n";

pub(super) fn a_revoked_service_leaves_its_events_where_they_are(engine: Engine) {
    let world = World::new(engine, TRIGGER);
    let node = Logging::start(&world.env);
    publish_text(&world, "k", "emit:out:1");
    wait_until_settled(&world, 1);
    let _ = world.env.run(["service", "revoke", "work"]).with_status(0);
    let uids = ["emit:out:2", "emit:out:3"].map(|text| publish_text(&world, "k", text));
    let mut stalled = json!(null);
    wait_until("a trigger that says that its service is revoked", || {
        stalled = status(&world);
        let says_why = stalled["last_error"].as_str().is_some_and(|error| error.contains("was revoked"));
        says_why && (&stalled["state"], &stalled["pending"]) == (&json!("stalled"), &json!(2))
    });
    assert_eq!((&stalled["settled"], &stalled["terminated"], &stalled["dead_lettered"]), (&json!(1), &json!(0), &json!(0)), "{stalled}");
    for (uid, waits) in uids.iter().zip([["pending", "on-broker"], ["behind-its-key", "on-broker"]]) {
        let trigger = story(&world, uid)["triggers"][0].clone();
        // What was not pulled before the revocation stays with the broker.
        let known = if engine == Engine::Embedded { &waits[..1] } else { &waits[..] };
        assert!(known.iter().any(|state| trigger["state"] == *state), "{trigger}");
        let attempts = if trigger["state"] == "on-broker" { json!(null) } else { json!(0) };
        assert_eq!((&trigger["attempts"], &trigger["dead_letter"]), (&attempts, &json!(null)), "{trigger}");
    }
    node.stop();
    // The same function, built anew, takes over; nothing was counted as an attempt.
    world.env.write("work.wasm", [BEHAVE.component, &[0, 5, 4, b'n', b'o', b't', b'e']].concat());
    let node = Logging::start(&world.env);
    wait_until_settled(&world, 2);
    assert_eq!(world.came_out()["k"], ["1", "2", "3"]);
    // Where it was handed out before, the broker counts that.
    let first = if engine == Engine::Embedded { 1..=1 } else { 1..=2 };
    for uid in uids {
        let attempt = story(&world, &uid)["runs"][0]["attempt"].as_u64().unwrap();
        assert!(first.contains(&attempt), "{attempt}");
    }
    node.stop();
}

/// What a trigger did is kept: in the data directory, where it is listed and can be forgotten, or in its consumers on the broker, which are
/// the operator's.
pub(super) fn a_removed_trigger_goes_on_where_it_was_when_it_comes_back(engine: Engine) {
    let world = World::new(engine, TRIGGER);
    let node = Logging::start(&world.env);
    let uid = publish_text(&world, "k", "emit:out:1");
    wait_until_settled(&world, 1);
    node.stop();
    world.reconfigure(None);
    let node = Logging::start(&world.env);
    publish_text(&world, "k", "emit:out:2");
    let removed = documents(&world.env.run(["trigger", "status", "--removed", "--json"]).with_status(0));
    let told = world.told().of_value(story(&world, &uid));
    assert_told(engine, "removed", &json!({ "removed": removed, "why": told }));
    node.stop();
    world.reconfigure(Some(TRIGGER));
    let node = Logging::start(&world.env);
    wait_until_settled(&world, 1);
    assert_eq!(world.came_out()["k"], ["1", "2"]);
    node.stop();
    world.reconfigure(None);
    let forgotten = world.env.run(["trigger", "forget", "work", "--json"]);
    match engine {
        Engine::Embedded => assert_eq!(documents(&forgotten.with_status(0)), [json!({ "id": "work", "topic": "in", "partitions": 2 })]),
        Engine::Nats => assert_eq!(error_of(&forgotten.with_status(1))["kind"], json!("unknown-trigger")),
    }
}
