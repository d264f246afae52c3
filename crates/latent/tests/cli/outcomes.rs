//! What becomes of an event for each way in which its run can end, as the node's log, `trigger status`, `why` and the dead letters tell it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use serde_json::json;

use super::deadletter::{folder, letters, publish_text, wait_until_settled};
use super::*;

const BUDGET: &str = "budget = { cpu_fuel = 20_000_000, memory_bytes = 33_554_432, wall_time_millis = 300 }\n";

/// Much less than the ten minutes of the delay that is looked at.
const NEAR_MILLIS: u64 = 60_000;

/// What the function is told to do; the outcome of each run; why the event was parked, if it was; runs.
const ENDS: &[(&str, &str, Option<&str>, usize)] = &[
    ("ok", "success", None, 1),
    ("reject:no", "rejected", Some("rejected"), 1),
    ("retry:20:later", "retry", Some("exhausted"), 2),
    ("retry:later", "retry", Some("exhausted"), 2),
    ("trap", "trap", Some("exhausted"), 2),
    ("panic:oh", "trap", Some("exhausted"), 2),
    ("loop", "fuel-exhausted", Some("exhausted"), 2),
    ("sleep:600000", "timeout", Some("exhausted"), 2),
    ("alloc:60000000", "memory-exhausted", Some("exhausted"), 2),
];

/// A node whose standard error is a file.
pub(crate) struct Logging {
    pub(crate) child: ChildGuard,
    pub(crate) log: PathBuf,
}

impl Logging {
    pub(crate) fn start(env: &CliEnv) -> Self {
        let log = env.folder().join("node.log");
        let mut command = env.command(["run", "-c", "latent.toml"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        let mut child = ChildGuard::spawn(&mut command).unwrap();
        let mut line = String::new();
        BufReader::new(child.take_stdout().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("is running"), "{line:?}");
        Self { child, log }
    }

    /// The fields of each line about a run that did not succeed: `offset` of an event of `in`, and what else it says.
    pub(crate) fn ends(&self) -> Vec<BTreeMap<String, String>> {
        let log = std::fs::read_to_string(&self.log).unwrap();
        let lines = log.lines().filter(|line| line.contains("activation ended"));
        let fields = |line: &str| line.split_whitespace().filter_map(|word| word.split_once('=')).map(owned).collect();
        lines.map(fields).collect()
    }

    pub(crate) fn stop(mut self) {
        self.child.terminate().unwrap();
        assert_eq!(self.child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(0));
    }
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.trim_matches('"').to_owned())
}

/// The text that names a number in a field of the log; none where the field says that there is none.
fn number(fields: &BTreeMap<String, String>, name: &str) -> Option<u64> {
    fields.get(name).and_then(|value| value.parse().ok())
}

fn edit(env: &CliEnv, from: &str, to: &str) {
    let config = std::fs::read_to_string(env.folder().join("latent.toml")).unwrap();
    assert!(config.contains(from), "{from}");
    env.write("latent.toml", config.replace(from, to));
}

/// A folder whose trigger lets its function ask for ten minutes, which nobody here waits for.
fn patient() -> CliEnv {
    let env = folder();
    edit(&env, "retry_delay_millis = 10\n", "retry_delay_millis = 10\nretry_delay_max_millis = 600_000\n");
    env
}

fn status(env: &CliEnv) -> Value {
    documents(&env.run(["trigger", "status", "--json"]).with_status(0)).remove(0)
}

#[test]
fn each_end_of_a_run_settles_or_repeats_or_parks_and_all_views_say_so() {
    let env = folder();
    edit(&env, "retry_delay_millis = 10\n", &format!("retry_delay_millis = 10\n{BUDGET}"));
    let node = Logging::start(&env);
    let uids: Vec<_> = ENDS.iter().map(|(verb, ..)| publish_text(&env, verb, verb)).collect();
    wait_until_settled(&env);
    let parked = ENDS.iter().filter(|(_, _, reason, _)| reason.is_some()).count();
    let letters: BTreeMap<_, _> =
        letters(&env, parked).into_iter().map(|letter| (letter["key"].as_str().unwrap().to_owned(), letter)).collect();
    let log = node.ends();
    for ((verb, outcome, reason, runs), uid) in ENDS.iter().zip(&uids) {
        let story = documents(&env.run(["why", "in", uid, "--json"]).with_status(0)).remove(0);
        let run_ends: Vec<_> =
            story["runs"].as_array().unwrap().iter().map(|run| (run["outcome"].clone(), run["attempt"].clone())).collect();
        let expected: Vec<_> = (1..=*runs).map(|attempt| (json!(outcome), json!(attempt))).collect();
        assert_eq!(run_ends, expected, "{verb}: {story}");
        match (reason, letters.get(*verb)) {
            (Some(reason), Some(letter)) => {
                assert_eq!((&letter["reason"], &letter["attempts"]), (&json!(reason), &json!(runs)), "{verb}");
                assert_eq!(letter["event"]["uid"], json!(uid), "{verb}");
            }
            (None, None) => {}
            (reason, letter) => panic!("{verb}: {reason:?}, {letter:?}"),
        }
        // Successes are not for the operator's log.
        let offset = story["offset"].as_u64();
        let lines: Vec<_> = log.iter().filter(|fields| number(fields, "offset") == offset).collect();
        assert_eq!(lines.len(), if *outcome == "success" { 0 } else { *runs }, "{verb}: {lines:?}");
        for (line, attempt) in lines.iter().zip(1..) {
            let told = (
                line["outcome"].as_str(),
                number(line, "attempt"),
                number(line, "attempts_max"),
                line.contains_key("next_attempt_at") && line.contains_key("delay_millis"),
            );
            assert_eq!(told, (*outcome, Some(attempt), Some(2), attempt < *runs as u64), "{verb}: {line:?}");
        }
    }
    let status = status(&env);
    let counts = ["settled", "terminated", "exhausted", "dead_lettered"].map(|name| status[name].as_u64().unwrap());
    assert_eq!(counts, [9, 8, 7, 8]);
    node.stop();
}

#[test]
fn a_delayed_event_is_due_when_the_log_and_the_status_say_also_after_a_restart() {
    let env = patient();
    let node = Logging::start(&env);
    publish_text(&env, "k", "retry:600000:not yet");
    wait_until("a delayed event", || status(&env)["delayed"] == json!(1));
    let told = status(&env);
    let line = node.ends().remove(0);
    // The delay is waited for on steady time, so what the wall clock will say then is computed anew each time.
    let due = |status: &Value| status["next_attempt_at"].as_u64().unwrap();
    assert!(due(&told).abs_diff(number(&line, "next_attempt_at").unwrap()) <= NEAR_MILLIS, "{told} {line:?}");
    assert_eq!((&told["state"], &told["pending"]), (&json!("delayed"), &json!(1)));
    node.stop();
    let stopped = status(&env);
    assert_eq!(stopped["delayed"], json!(1));
    assert!(due(&stopped).abs_diff(due(&told)) <= NEAR_MILLIS, "{told} {stopped}");
    let node = Logging::start(&env);
    wait_until("a delayed event", || status(&env)["delayed"] == json!(1));
    assert!(due(&status(&env)).abs_diff(due(&told)) <= NEAR_MILLIS, "{told}");
    assert!(node.ends().is_empty(), "it does not run before");
    node.stop();
}

#[test]
fn a_poisoned_key_holds_back_its_own_events_until_the_window_behind_it_is_full() {
    let env = patient();
    let node = Logging::start(&env);
    publish_text(&env, "poisoned", "retry:600000:never");
    publish_text(&env, "poisoned", "ok");
    let lines: String = (0..1_022).map(|key| format!("{{\"key\":\"{key}\",\"do\":1}}\n")).collect();
    let pointer = ["in", "--key-pointer", "/key"];
    // The function does not know these words and rejects them: that settles them too.
    let settled = |count: u64| wait_until("settled events", || status(&env)["settled"] == json!(count));
    publish(&env, &pointer, lines.as_bytes(), 0);
    settled(1_022);
    assert_eq!(status(&env)["state"], json!("delayed"), "all within the window");
    let last = "{\"key\":\"one more\"}\n".as_bytes();
    publish(&env, &pointer, last, 0);
    wait_until("a full window", || status(&env)["state"] == json!("saturated"));
    let told = status(&env);
    assert_eq!((&told["settled"], &told["pending"]), (&json!(1_022), &json!(3)));
    node.stop();
}

/// What a function is given at most.
const EVENT_BYTES_MAX: usize = 524_288;

#[test]
fn lowering_max_deliveries_ends_at_once_what_had_as_many_runs_and_says_how_many_events_those_are() {
    let env = patient();
    edit(&env, "max_deliveries = 2", "max_deliveries = 5");
    let node = Logging::start(&env);
    let delayed = |count: u64| wait_until("delayed events", || status(&env)["delayed"] == json!(count));
    let reloaded = |more: &[&str]| documents(&env.run(["reload", "--json"].iter().chain(more)).with_status(0)).remove(0);
    for key in ["a", "b"] {
        publish_text(&env, key, &format!("retry:600000:later {key}"));
        publish_text(&env, key, &format!("ok:{key}"));
    }
    delayed(2);
    edit(&env, "max_deliveries = 5", "max_deliveries = 1");
    let told = "trigger work: 2 events had as many runs as max_deliveries (1) gives or more, to be parked in dead without another run";
    let shown = reloaded(&["--dry-run"]);
    assert_eq!((&shown["applied"], &shown["notes"]), (&json!(false), &json!([told])));
    assert_eq!(status(&env)["delayed"], json!(2), "a dry run changes nothing");
    let taken_in = reloaded(&[]);
    assert_eq!((&taken_in["applied"], &taken_in["notes"]), (&json!(true), &json!([told])));
    // Their delays of ten minutes are not waited for, and their keys go on.
    let ends: Vec<_> = letters(&env, 2).iter().map(|letter| (letter["reason"].clone(), letter["attempts"].clone())).collect();
    assert_eq!(ends, vec![(json!("exhausted"), json!(1)); 2]);
    wait_until_settled(&env);
    assert_eq!(node.ends().len(), 2, "each ran once");
    assert_eq!(reloaded(&[]).get("notes"), None);

    // The same at a start.
    edit(&env, "max_deliveries = 1", "max_deliveries = 5");
    assert_eq!(reloaded(&[])["applied"], json!(true));
    publish_text(&env, "c", "retry:600000:later c");
    delayed(1);
    node.stop();
    edit(&env, "max_deliveries = 5", "max_deliveries = 1");
    let node = Logging::start(&env);
    assert_eq!(letters(&env, 3)[2]["attempts"], json!(1));
    assert!(node.ends().is_empty());
    let log = std::fs::read_to_string(&node.log).unwrap();
    assert!(log.contains("trigger work: 1 event had as many runs"), "{log}");
    node.stop();
}

#[test]
fn a_kill_during_the_last_run_parks_the_event_and_its_key_goes_on() {
    let env = folder();
    edit(&env, "max_deliveries = 2\n", "max_deliveries = 1\noperation_timeout_millis = 30000\nbudget = { wall_time_millis = 20_000 }\n");
    let mut node = Logging::start(&env);
    let uid = publish_text(&env, "k", "sleep:600000");
    let behind = publish_text(&env, "k", "ok");
    let state = |uid: &str| documents(&env.run(["why", "in", uid, "--json"]).with_status(0)).remove(0)["triggers"][0]["state"].clone();
    wait_until("the run", || state(&uid) == json!("running"));
    node.child.kill().unwrap();
    let node = Logging::start(&env);
    let letter = letters(&env, 1).remove(0);
    assert_eq!((&letter["reason"], &letter["attempts"]), (&json!("exhausted"), &json!(1)));
    assert_eq!(letter["event"]["uid"], json!(uid));
    wait_until_settled(&env);
    assert_eq!((state(&uid), state(&behind)), (json!("settled"), json!("settled")));
    assert!(node.ends().is_empty(), "it did not run again");
    node.stop();
}

#[test]
fn the_largest_event_is_run_tried_again_and_parked_and_holds_up_no_small_one() {
    let env = folder();
    let node = Logging::start(&env);
    let large = |verb: &str| format!("{verb}{}", "x".repeat(EVENT_BYTES_MAX - verb.len()));
    publish_text(&env, "k", &large("reject:"));
    publish_text(&env, "k", &large("retry:20:"));
    publish_text(&env, "k", "ok");
    wait_until_settled(&env);
    let told: Vec<_> = letters(&env, 2).iter().map(|letter| (letter["reason"].clone(), letter["attempts"].clone())).collect();
    assert_eq!(told, [(json!("rejected"), json!(1)), (json!("exhausted"), json!(2))]);
    for (place, verb) in [("dead/0/0", "reject:"), ("dead/0/1", "retry:20:")] {
        let shown = documents(&env.run(["deadletter", "show", place, "--json"]).with_status(0)).remove(0);
        assert_eq!((&shown["payload_bytes"], verb), (&json!(EVENT_BYTES_MAX), verb));
    }
    // What a function gives as its reason is the function's; what is kept and shown of it is bounded.
    let log = std::fs::metadata(&node.log).unwrap().len();
    assert!(log < EVENT_BYTES_MAX as u64 / 4, "{log} bytes of log");
    node.stop();
}
