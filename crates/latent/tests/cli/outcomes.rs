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
struct Logging {
    child: ChildGuard,
    log: PathBuf,
}

impl Logging {
    fn start(env: &CliEnv) -> Self {
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
    fn ends(&self) -> Vec<BTreeMap<String, String>> {
        let log = std::fs::read_to_string(&self.log).unwrap();
        let lines = log.lines().filter(|line| line.contains("activation ended"));
        let fields = |line: &str| line.split_whitespace().filter_map(|word| word.split_once('=')).map(owned).collect();
        lines.map(fields).collect()
    }

    fn stop(mut self) {
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
            let told =
                (line["outcome"].as_str(), number(line, "attempt"), number(line, "attempts_max"), line.contains_key("next_attempt_at"));
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
    let env = folder();
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
    let env = folder();
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
