//! The example `webhook-triage` on the real node: its own events, a file of real webhooks, and kills in the middle.
//!
//! What must come out is counted here from the input and the table in the example's README, not with the example's code.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod bench;
mod broker;
mod generated;
mod kills;
mod page;
mod remains;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bench::{Application, example};
use kills::{Chance, kill_often};
use latent_testkit::{Missing, skip};
use remains::End;
use serde_json::Value;

/// Names a file of webhooks, one JSON object a line.
const WEBHOOKS_FILE: &str = "LATENT_WEBHOOKS_FILE";
/// How many kills: from 50 on with 20,000 generated events.
const KILLS: &str = "LATENT_KILLS";

/// Class of each kind of webhook, as the README says.
fn class_table() -> BTreeMap<String, String> {
    let readme = std::fs::read_to_string(example().join("README.md")).unwrap();
    let mut classes = BTreeMap::new();
    for row in readme.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        // Other tables of the page say other things.
        if let [class, kinds] = cells[..]
            && kinds.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_, ".contains(c))
        {
            kinds.split(", ").for_each(|kind| _ = classes.insert(kind.to_owned(), class.trim_matches('`').to_owned()));
        }
    }
    assert!(classes.len() > 50, "{classes:?}");
    classes
}

/// What should come out for one repository: event, n and class, in the order of the input.
type Expected = BTreeMap<String, Vec<(String, Value, String)>>;

/// Reads the input as the README describes it. Gives what should come out, and how many lines are no webhook.
fn expected(file: &Path) -> (Expected, u64) {
    let classes = class_table();
    let (mut expected, mut rejected) = (Expected::new(), 0);
    let mut seen = BTreeSet::new();
    for line in std::fs::read_to_string(file).unwrap().lines() {
        let webhook = serde_json::from_str::<Value>(line).ok().filter(|_| line.len() <= 65_536);
        let event = webhook.as_ref().and_then(|webhook| webhook["event"].as_str()).filter(|event| !event.is_empty());
        let payload = webhook.as_ref().map(|webhook| &webhook["payload"]).filter(|payload| payload.is_object());
        let (Some(webhook), Some(event), Some(payload)) = (webhook.as_ref(), event, payload) else {
            rejected += 1;
            continue;
        };
        // Lines are repeated exactly or not at all.
        if !seen.insert(line.to_owned()) {
            continue;
        }
        let repository = payload.pointer("/repository/full_name").and_then(Value::as_str).unwrap_or("none");
        let class = classes.get(event).cloned().unwrap_or_else(|| "other".to_owned());
        expected.entry(repository.to_owned()).or_default().push((event.to_owned(), webhook["n"].clone(), class));
    }
    (expected, rejected)
}

/// What came out, in the same form.
fn came_out(end: &End) -> Expected {
    let mut came_out = Expected::new();
    for (key, records) in &end.results {
        for (_, media_type, payload) in records {
            assert_eq!(media_type, "application/json");
            let value: Value = serde_json::from_slice(payload).unwrap();
            assert_eq!(value["repository"], key.as_str());
            let text = |name: &str| value[name].as_str().unwrap().to_owned();
            came_out.entry(key.clone()).or_default().push((text("event"), value["n"].clone(), text("class")));
        }
    }
    came_out
}

fn own_events() -> PathBuf {
    example().join("events.jsonl")
}

/// The webhooks that the environment names, or the example's own.
fn given_events() -> PathBuf {
    std::env::var_os(WEBHOOKS_FILE).map_or_else(own_events, PathBuf::from)
}

/// Runs the example on a file without any trouble.
fn run_on(file: &Path) -> (Application, End) {
    let application = Application::new();
    let node = application.start();
    application.publish(file);
    application.wait_until_handled();
    node.stop();
    let end = End::of(&application.data());
    (application, end)
}

/// What came out is what the input and the README say, and every event that is no webhook is a dead letter.
fn check(end: &End, file: &Path) {
    let (expected, rejected) = expected(file);
    let came_out = came_out(end);
    for (key, results) in &expected {
        assert_eq!(came_out.get(key), Some(results), "key {key}");
    }
    assert_eq!(came_out.len(), expected.len(), "keys");
    assert_eq!(end.letters.values().map(Vec::len).sum::<usize>() as u64, rejected);
}

#[test]
fn the_example_s_own_events_come_out_as_counted() {
    let (application, end) = run_on(&own_events());
    check(&end, &own_events());
    assert_eq!([&end.results, &end.letters].map(|records| records.values().map(Vec::len).sum::<usize>()), [233, 15]);
    // The node is gone; its directory still says that nothing is left.
    let status = application.status();
    assert_eq!((&status["state"], &status["pending"]), (&Value::from("stopped"), &Value::from(0)));
}

#[test]
fn real_webhooks_come_out_as_counted() {
    let Some(file) = std::env::var_os(WEBHOOKS_FILE) else { skip!(Missing::Input(WEBHOOKS_FILE)) };
    let (_, end) = run_on(Path::new(&file));
    check(&end, Path::new(&file));
}

/// Kills in all, for each input: a sample, or a campaign.
fn kills() -> u64 {
    std::env::var(KILLS).map_or(6, |kills| kills.parse().unwrap())
}

#[test]
fn kills_at_random_moments_lose_nothing_double_nothing_and_keep_every_order() {
    let file = given_events();
    let (end, report) = kill_often(&file, kills(), &mut Chance(5));
    println!("webhooks: {report}");
    check(&end, &file);
}

#[test]
fn kills_at_random_moments_among_many_generated_events_do_not_either() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("generated.jsonl");
    let count = if kills() < 50 { 1_000 } else { 20_000 };
    std::fs::write(&file, generated::webhooks(count, &mut Chance(20))).unwrap();
    let (end, report) = kill_often(&file, kills(), &mut Chance(6));
    println!("generated webhooks: {report}");
    check(&end, &file);
}
