//! The example `webhook-triage` on the real node: its own events, a file of real webhooks, and kills in the middle.
//!
//! What must come out is counted here from the input and the table in the example's README, not with the example's code.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod bench;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bench::{Application, example};
use latent_testkit::{Missing, skip};
use serde_json::Value;

/// Names a file of webhooks, one JSON object a line.
const WEBHOOKS_FILE: &str = "LATENT_WEBHOOKS_FILE";

/// Class of each kind of webhook, as the README says.
fn class_table() -> BTreeMap<String, String> {
    let readme = std::fs::read_to_string(example().join("README.md")).unwrap();
    let mut classes = BTreeMap::new();
    for row in readme.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        if let [class, kinds] = cells[..] {
            kinds.split(", ").for_each(|kind| _ = classes.insert(kind.to_owned(), class.trim_matches('`').to_owned()));
        }
    }
    assert!(classes.len() > 60, "{classes:?}");
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
fn came_out(results: &[Vec<Value>]) -> Expected {
    let mut came_out = Expected::new();
    for result in results.iter().flatten() {
        let value = &result["value"];
        let text = |name: &str| value[name].as_str().unwrap().to_owned();
        assert_eq!(result["key"], value["repository"]);
        came_out.entry(text("repository")).or_default().push((text("event"), value["n"].clone(), text("class")));
    }
    came_out
}

/// Key, uid and value of each result: what must be the same in every run.
fn identities(results: &[Vec<Value>]) -> BTreeMap<String, Vec<(String, Value)>> {
    let mut by_key = BTreeMap::<String, Vec<_>>::new();
    for result in results.iter().flatten() {
        let text = |name: &str| result[name].as_str().unwrap().to_owned();
        by_key.entry(text("key")).or_default().push((text("uid"), result["value"].clone()));
    }
    by_key
}

fn own_events() -> PathBuf {
    example().join("events.jsonl")
}

/// Runs the example on a file without any trouble.
fn run_on(file: &Path) -> (Application, Vec<Vec<Value>>) {
    let application = Application::new();
    let node = application.start();
    application.publish(file);
    application.wait_until_handled();
    let results = application.results();
    node.stop();
    (application, results)
}

#[test]
fn the_example_s_own_events_come_out_as_counted() {
    let (application, results) = run_on(&own_events());
    let (expected, rejected) = expected(&own_events());
    assert_eq!(came_out(&results), expected);
    assert_eq!((expected.values().map(Vec::len).sum::<usize>(), rejected), (233, 15));
    // The node is gone; its directory still says that nothing is left.
    let status = application.status();
    assert_eq!((&status["state"], &status["pending"]), (&Value::from("stopped"), &Value::from(0)));
}

#[test]
fn real_webhooks_come_out_as_counted() {
    let Some(file) = std::env::var_os(WEBHOOKS_FILE) else { skip!(Missing::Input(WEBHOOKS_FILE)) };
    let file = PathBuf::from(file);
    let (_, results) = run_on(&file);
    let (expected, rejected) = expected(&file);
    assert_eq!(came_out(&results), expected);
    println!("{} results, {rejected} rejected", results.iter().flatten().count());
}

#[test]
fn four_kills_in_the_middle_lose_nothing_double_nothing_and_keep_every_order() {
    let (_, undisturbed) = run_on(&own_events());
    let application = Application::new();
    let mut acknowledged: Vec<Vec<Value>> = Vec::new();
    // Fewer kills than attempts: no event can be given up because of them.
    for settled in [1, 10, 20, 40] {
        let node = application.start();
        let mut publishing = application.publish_in_background(&own_events());
        application.wait_until_settled(settled, &mut publishing);
        node.kill();
        drop(publishing);
        let results = application.results();
        for (before, after) in acknowledged.iter().zip(&results) {
            assert_eq!(before[..], after[..before.len()], "what was acknowledged before the kill");
        }
        acknowledged = results;
    }
    let node = application.start();
    application.publish(&own_events());
    application.wait_until_handled();
    let results = application.results();
    assert_eq!(application.status()["exhausted"], 0);
    node.stop();
    assert_eq!(identities(&results), identities(&undisturbed));
}
