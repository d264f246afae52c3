//! A node that ends in the middle of an attempt, and another one after it.

use super::told::assert_told;
use super::*;
use crate::cli::outcomes::Logging;

const TRIGGER: &str = "dead_letter = \"dead\"\nmax_deliveries = 3\nretry_delay_millis = 10\noperation_timeout_millis = 30_000\n\
                       budget = { wall_time_millis = 20_000 }\n";

/// Two events of a key of which the first is in its first run when its node ends, and one of another key. Gives the uid of the first.
fn in_the_middle(world: &World, node: &Logging) -> String {
    let uid = publish_text(world, "k", "turns|sleep:600000|emit:out:1");
    publish_text(world, "k", "emit:out:2");
    publish_text(world, "other", "emit:out:3");
    wait_until("a run, and the other key's end", || {
        status(world)["settled"] == json!(1) && story(world, &uid)["triggers"][0]["state"] == json!("running")
    });
    assert!(node.ends().is_empty());
    uid
}

fn goes_on(engine: Engine, world: &World, uid: &str, name: &str) {
    let node = Logging::start(&world.env);
    wait_until_settled(world, 2);
    let expected = [("k", vec!["1", "2"]), ("other", vec!["3"])];
    let owned = |(key, texts): (&str, Vec<&str>)| (key.to_owned(), texts.into_iter().map(str::to_owned).collect());
    assert_eq!(world.came_out(), expected.map(owned).into());
    let told = world.told();
    assert_told(engine, name, &json!({ "status": told.of_value(status(world)), "why": told.of_value(story(world, uid)) }));
    node.stop();
}

pub(super) fn a_kill_in_a_run_loses_nothing_and_keeps_the_order(engine: Engine) {
    let world = World::new(engine, TRIGGER);
    let mut node = Logging::start(&world.env);
    let uid = in_the_middle(&world, &node);
    node.child.kill().unwrap();
    goes_on(engine, &world, &uid, "killed");
}

/// A stop waits for what runs as long as `drain_millis`, and then cuts it off. That is no attempt where the node itself keeps count, and a
/// delivery where a broker does.
pub(super) fn a_stop_in_a_run_loses_nothing_and_keeps_the_order(engine: Engine) {
    let world = World::new(engine, TRIGGER);
    let node = Logging::start(&world.env);
    let uid = in_the_middle(&world, &node);
    node.stop();
    let told = world.told();
    assert_told(
        engine,
        "stopped",
        &json!({ "status": told.of_value(status(&world)), "why": told.of_value(story(&world, &uid))["triggers"] }),
    );
    // Where it was not counted, it sleeps once more, and not for long.
    world.reconfigure(Some(&TRIGGER.replace("20_000", "300")));
    // A broker's event goes on as after a kill.
    let name = if engine == Engine::Embedded { "stopped_and_started" } else { "killed" };
    goes_on(engine, &world, &uid, name);
}
