//! Which events run when: one after the other within a key, side by side otherwise, as many as may be in flight.

use super::*;
use crate::cli::outcomes::Logging;

/// Never in a test.
const LATER: &str = "dead_letter = \"dead\"\nmax_deliveries = 5\nretry_delay_millis = 10\nretry_delay_max_millis = 600_000\n";

fn states(world: &World, uids: &[String]) -> Vec<Value> {
    uids.iter().map(|uid| story(world, uid)["triggers"][0]["state"].clone()).collect()
}

pub(super) fn events_of_a_key_wait_for_a_delayed_one_and_others_go_on(engine: Engine) {
    let world = World::new(engine, LATER);
    let node = Logging::start(&world.env);
    for (key, text) in [
        ("a", "emit:out:a1"),
        ("a", "turns|retry:50:not yet|retry:50:not yet|emit:out:a2"),
        ("b", "emit:out:b1"),
        ("a", "emit:out:a3"),
        ("b", "turns|retry:50:not yet|emit:out:b2"),
        ("b", "emit:out:b3"),
    ] {
        publish_text(&world, key, text);
    }
    wait_until_settled(&world, 6);
    let expected = |key: &str| (key.to_owned(), (1..=3).map(|number| format!("{key}{number}")).collect::<Vec<_>>());
    assert_eq!(world.came_out(), ["a", "b"].map(expected).into());
    // One whose delay is not waited for here.
    let waiting = [publish_text(&world, "a", "retry:600000:never"), publish_text(&world, "a", "emit:out:a4")];
    wait_until("a delayed event", || states(&world, &waiting) == ["delayed", "behind-its-key"]);
    publish_text(&world, "c", "emit:out:c1");
    wait_until("another key's event", || status(&world)["settled"] == json!(7));
    let delayed = story(&world, &waiting[0])["triggers"][0].clone();
    assert_eq!((&delayed["attempts"], &delayed["attempts_max"]), (&json!(1), &json!(5)), "{delayed}");
    assert!(delayed["next_attempt_at"].is_u64(), "{delayed}");
    assert_eq!(world.came_out()["a"].len(), 3);
    node.stop();
}

pub(super) fn so_many_run_at_once_as_may_be_in_flight(engine: Engine) {
    let trigger = "max_in_flight = 2\nmax_deliveries = 1\noperation_timeout_millis = 2000\nbudget = { wall_time_millis = 200 }\n";
    let world = World::new(engine, trigger);
    let node = Logging::start(&world.env);
    // Keys of one partition: that is what may be in flight counts for.
    let mut uids = Vec::new();
    let mut key = 0;
    while uids.len() < 5 {
        let words = ["in", "--raw-lines", "--media-type", "text/plain", "--fresh-uids", "--key", &key.to_string()];
        let stored = publish(&world.env, &words, b"sleep:600000\n", 0);
        key += 1;
        if stored[0]["partition"] == json!(0) {
            uids.push(stored[0]["uid"].as_str().unwrap().to_owned());
        }
    }
    wait_until("every event is settled", || status(&world)["pending"] == json!(0) && status(&world)["state"] == json!("idle"));
    let span = |uid: &String| {
        let run = &story(&world, uid)["runs"][0];
        let number = |name: &str| run[name].as_u64().unwrap();
        (number("started_at"), number("started_at") + number("run_micros") / 1_000)
    };
    let spans: Vec<_> = uids.iter().map(span).collect();
    let at_once = |at: u64| spans.iter().filter(|(begin, end)| *begin <= at && at < *end).count();
    assert_eq!(spans.iter().map(|(begin, _)| at_once(*begin)).max(), Some(2), "{spans:?}");
    node.stop();
}

/// How far a partition looks behind what is not settled: on a broker that is what may be in flight.
const fn window(engine: Engine) -> u64 {
    match engine {
        Engine::Embedded => 1_024,
        Engine::Nats => 8,
    }
}

pub(super) fn a_poisoned_key_is_delayed_and_then_the_trigger_is_saturated(engine: Engine) {
    let world = World::new(engine, LATER);
    let node = Logging::start(&world.env);
    publish_text(&world, "poisoned", "retry:600000:never");
    publish_text(&world, "poisoned", "ok");
    // Other keys go on.
    let others: String = (0..50).map(|key| format!("{{\"key\":\"{key}\",\"do\":1}}\n")).collect();
    publish(&world.env, &["in", "--key-pointer", "/key"], others.as_bytes(), 0);
    wait_until("settled events and a delayed one", || {
        let status = status(&world);
        (&status["settled"], &status["state"], &status["pending"], &status["delayed"])
            == (&json!(50), &json!("delayed"), &json!(2), &json!(1))
    });
    // Behind the window nothing is looked at any more, until the key goes on.
    let behind: String = (0..window(engine) - 2).map(|_| "ok\n").collect();
    let words = ["in", "--raw-lines", "--media-type", "text/plain", "--key", "poisoned", "--fresh-uids"];
    publish(&world.env, &words, behind.as_bytes(), 0);
    publish(&world.env, &words, b"ok\n", 0);
    wait_until("a full window", || status(&world)["state"] == json!("saturated"));
    let told = status(&world);
    assert_eq!((&told["settled"], &told["pending"], &told["delayed"]), (&json!(50), &json!(window(engine) + 1), &json!(1)), "{told}");
    node.stop();
}
