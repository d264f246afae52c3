//! What becomes of an event for each end of its run: success, attempts, delays, rejection, exhaustion.

use super::told::assert_told;
use super::*;
use crate::cli::outcomes::Logging;

const TRIGGER: &str = "dead_letter = \"dead\"\nmax_deliveries = 2\nretry_delay_millis = 10\noperation_timeout_millis = 1000\n\
                       budget = { cpu_fuel = 20_000_000, memory_bytes = 33_554_432, wall_time_millis = 300 }\n";

/// What the function is told to do, each under a key of its own.
const ENDS: &[&str] = &[
    "ok",
    "emit:out:hello",
    "reject:no",
    "retry:20:later",
    "retry:later",
    "trap",
    "panic:oh",
    "loop",
    "sleep:600000",
    "alloc:60000000",
    "turns|trap|retry:10:not yet",
    "turns|retry:10:not yet|ok",
    "publish-then-trap:out",
];

pub(super) fn each_end_of_a_run_is_told_alike(engine: Engine) {
    let world = World::new(engine, TRIGGER);
    let node = Logging::start(&world.env);
    let uids: Vec<_> = ENDS.iter().map(|verb| publish_text(&world, verb, verb)).collect();
    wait_until_settled(&world, ENDS.len() as u64);
    let mut listed = letters(&world, ENDS.len() - 3);
    // Partitions and keys run side by side: letters are in no order of their own.
    listed.sort_by_key(|letter| letter["key"].as_str().unwrap().to_owned());
    let show = |letter: &Value| documents(&world.env.run(["deadletter", "show", place_of(letter), "--json"]).with_status(0)).remove(0);
    let shown: Vec<_> = listed.iter().map(show).collect();
    let stories: Vec<_> = uids.iter().map(|uid| story(&world, uid)).collect();
    let told = world.told();
    let by_key = |mut document: Value| {
        // Where they came to lie in their one topic depends on who was first.
        for place in ["place", "offset"] {
            document[place] = json!(place);
        }
        document
    };
    let by_key = |documents: Vec<Value>| documents.into_iter().map(by_key).collect();
    let mut document = json!({
        "status": told.of_value(status(&world)),
        "list": told.of_all(by_key(listed)),
        "show": told.of_all(by_key(shown)),
        "why": told.of_all(stories),
    });
    anywhere_in(&mut document, &["dead", "out"]);
    // Of several that were last at once, any may be.
    document["status"]["last_outcome"] = json!("last_outcome");
    document["status"]["last_error"] = json!("last_error");
    assert_told(engine, "outcomes", &document);
    node.stop();
}

/// Leaves out where in these topics something is.
fn anywhere_in(document: &mut Value, topics: &[&str]) {
    match document {
        Value::Object(fields) => {
            let is_one = fields.get("topic").and_then(Value::as_str).is_some_and(|topic| topics.contains(&topic));
            for (name, value) in fields.iter_mut() {
                let is_place = is_one && name == "offset" && value.is_number();
                let starts = value.as_str().is_some_and(|text| topics.iter().any(|topic| text.starts_with(&format!("{topic}/0/"))));
                if is_place || starts {
                    *value = json!(name);
                } else {
                    anywhere_in(value, topics);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| anywhere_in(value, topics)),
        _ => {}
    }
}

/// The number that the function itself is given (`delivery-count`) is that of the attempt.
pub(super) fn an_event_says_which_delivery_it_is(engine: Engine) {
    let world = World::new(engine, "dead_letter = \"dead\"\nmax_deliveries = 4\nretry_delay_millis = 10\n");
    let node = Logging::start(&world.env);
    let uid = publish_text(&world, "k", "turns|retry:10:one|trap|see-event");
    let letter = letters(&world, 1).remove(0);
    assert_eq!((&letter["reason"], &letter["attempts"]), (&json!("rejected"), &json!(3)));
    let seen = letter["detail"].as_str().unwrap();
    assert!(seen.contains("delivery_count: 3"), "{seen}");
    let attempts: Vec<_> = story(&world, &uid)["runs"].as_array().unwrap().iter().map(|run| run["attempt"].clone()).collect();
    assert_eq!(attempts, [1, 2, 3]);
    let log: Vec<_> = node.ends().iter().map(|line| line["attempt"].clone()).collect();
    assert_eq!(log, ["1", "2", "3"]);
    node.stop();
}

/// The function's own wish, and the trigger's delay that doubles.
pub(super) fn delays_are_waited_for(engine: Engine) {
    let world = World::new(engine, "dead_letter = \"dead\"\nmax_deliveries = 3\nretry_delay_millis = 150\n");
    let node = Logging::start(&world.env);
    let wished = publish_text(&world, "a", "turns|retry:400:wait|retry:20:soon|ok");
    let usual = publish_text(&world, "b", "trap");
    letters(&world, 1);
    wait_until_settled(&world, 2);
    let gaps = |uid: &str| {
        let story = story(&world, uid);
        let queued = |run: &Value| run["queued_at"].as_u64().unwrap();
        let queued: Vec<_> = story["runs"].as_array().unwrap().iter().map(queued).collect();
        assert_eq!(queued.len(), 3, "{story}");
        [queued[1] - queued[0], queued[2] - queued[1]]
    };
    // Times are told in whole milliseconds.
    let least = |uid: &str, least: [u64; 2]| {
        let gaps = gaps(uid);
        assert!(gaps.iter().zip(least).all(|(gap, least)| gap + 1 >= least), "{gaps:?} {least:?}");
    };
    least(&wished, [400, 20]);
    least(&usual, [150, 300]);
    let delays = |uid: &str| {
        let story = story(&world, uid);
        let is_its = |line: &std::collections::BTreeMap<String, String>| {
            let same = |name: &str| line.get(name) == Some(&story[name].as_u64().unwrap().to_string());
            same("partition") && same("offset")
        };
        node.ends().into_iter().filter(is_its).filter_map(|line| line.get("delay_millis")?.parse().ok()).collect::<Vec<u64>>()
    };
    assert_eq!(delays(&wished), [400, 20]);
    assert_eq!(delays(&usual), [150, 300]);
    node.stop();
}
