//! `latent invoke`: one function with values, on a running node and on a stopped one.

use latent_test_guests::{BEHAVE, PLAIN};
use serde_json::json;

use super::*;

/// A service `plain` of functions that may publish to `out`, and no trigger.
pub(crate) fn with_functions() -> CliEnv {
    let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
    env.write("bridge.yaml", "manifest_version: 1\nname: demo\ntopics: [{ name: out, partitions: 1 }]\n");
    env.write("plain.wasm", PLAIN.component);
    env.write("behave.wasm", BEHAVE.component);
    env.write(
        "latent.toml",
        r#"
[node]
name = "edge"
data_dir = "data"
[engine]
kind = "embedded"
manifest = "bridge.yaml"
[[topic]]
name = "out"
tenant = "acme"
[[service]]
name = "plain"
tenant = "acme"
component = "plain.wasm"
grants = [{ capability = "latent:events/publisher@0.2.0", topics = ["out"] }]
[[service]]
name = "behave"
tenant = "acme"
component = "behave.wasm"
"#,
    );
    env
}

const WORK: &str = "demo:plain/work@1.0.0";

fn invoke(env: &CliEnv, function: &str, arguments: &str, more: &[&str]) -> CliOutput {
    let named = format!("{WORK}#{function}");
    let words = ["invoke", "plain", &named, "--args", arguments];
    env.run(words.iter().chain(more))
}

fn document(output: &CliOutput) -> Value {
    documents(output).remove(0)
}

/// Everything that holds for a node, running or stopped.
fn check_calls(env: &CliEnv) {
    let done = document(&invoke(env, "divide", "[7, 2]", &["--json"]).with_status(0));
    assert_eq!((&done["outcome"], &done["result"]), (&json!("success"), &json!([{ "ok": 3 }])));
    assert!(done["fuel"].as_u64().unwrap() > 0 && done["memory_bytes"].as_u64().unwrap() > 0 && done["wall_micros"].is_u64(), "{done}");
    assert_eq!(done["activation"].as_str().unwrap().len(), 32);
    assert_eq!(invoke(env, "divide", "[7, 2]", &[]).with_status(0).stdout, "[{\"ok\":3}]\n");

    let failed = invoke(env, "divide", "[1, 0]", &["--json"]).with_status(1);
    assert_eq!(document(&failed)["result"], json!([{ "err": "1 / 0" }]));
    assert_eq!(error_of(&failed)["kind"], json!("declared-failure"));
    let wrong = invoke(env, "divide", "[1]", &["--json"]).with_status(1);
    assert_eq!((&document(&wrong)["outcome"], &document(&wrong)["result"]), (&json!("invalid-arguments"), &Value::Null));
    let spun = invoke(env, "spin", "[]", &["--cpu-fuel", "100000", "--json"]).with_status(1);
    assert_eq!(document(&spun)["outcome"], json!("fuel-exhausted"));
    let trapped = invoke(env, "fail", "[\"told why\"]", &[]).with_status(1);
    assert!(trapped.stderr.contains("told why") && trapped.stderr.contains("unreachable"), "{}", trapped.stderr);

    let unknown = env.run(["invoke", "elsewhere", "a:b/c@1.0.0#f", "--json"]).with_status(1);
    assert_eq!(error_of(&unknown)["kind"], json!("unknown-service"));
    assert_eq!(error_of(&invoke(env, "multiply", "[]", &["--json"]).with_status(1))["kind"], json!("not-callable"));
}

#[test]
fn a_function_runs_on_a_stopped_node_and_on_a_running_one() {
    let env = with_functions();
    check_calls(&env);
    let running = node(&env);
    check_calls(&env);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn what_a_called_function_publishes_is_in_the_log() {
    let env = with_functions();
    let first = document(&invoke(&env, "announce", "[\"out\"]", &["--json"]).with_status(0));
    assert_eq!((&first["result"], &first["outbound_requests"]), (&json!([{ "ok": "0" }]), &json!(1)));
    let running = node(&env);
    // The same idempotency key: the log has it.
    let second = document(&invoke(&env, "announce", "[\"out\"]", &["--json"]).with_status(0));
    assert_eq!(second["result"], json!([{ "ok": "0" }]));
    assert_eq!(fetched(&env, "out", 0).len(), 1);
    // Without a request in the budget nothing is attempted.
    let spent = document(&invoke(&env, "announce", "[\"out\"]", &["--outbound-requests", "0", "--json"]).with_status(1));
    assert_eq!((&spent["outcome"], &spent["outbound_requests"]), (&json!("declared-failure"), &json!(0)));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn arguments_come_from_a_file_or_from_standard_input_as_well() {
    let env = with_functions();
    env.write("arguments.json", "[6, 3]");
    let named = format!("{WORK}#divide");
    let from_file = env.run(["invoke", "plain", &named, "--args-file", "arguments.json"]).with_status(0);
    let from_input = env.run_with_input(["invoke", "plain", &named, "--args-file", "-"], b"[6, 3]".to_vec()).with_status(0);
    assert_eq!((from_file.stdout.as_str(), from_input.stdout.as_str()), ("[{\"ok\":2}]\n", "[{\"ok\":2}]\n"));
    let missing = env.run(["invoke", "plain", &named, "--args-file", "missing.json", "--json"]).with_status(1);
    assert_eq!(error_of(&missing)["kind"], json!("input"));
    let large = env.run_with_input(["invoke", "plain", &named, "--args-file", "-", "--json"], vec![b' '; (1 << 20) + 1]).with_status(1);
    assert!(
        error_of(&large)["message"].as_str().is_some_and(|message| message.contains("values_document_bytes"))
            || large.stderr.contains("values_document_bytes")
    );
    let _ = env.run(["invoke", "plain", "divide", "--json"]).with_status(2);
    let _ = invoke(&env, "divide", "[1,1]", &["--wall-time-millis", "0", "--json"]).with_status(2);
}

#[test]
fn a_handler_is_called_with_an_event_as_a_value() {
    let env = with_functions();
    let payload: Vec<_> = "reject:no".bytes().collect();
    let event = json!([{
        "topic": "in", "partition": 0, "offset": "0", "uid": { "none": null }, "key": { "none": null }, "media-type": "text/plain",
        "attributes": [], "payload": payload, "delivery-count": 1, "stored-at-unix-millis": "0",
    }]);
    let words = ["invoke", "behave", "latent:events/handler@0.2.0#handle", "--args", &event.to_string(), "--json"];
    let rejected = env.run(words).with_status(1);
    assert_eq!(document(&rejected)["result"], json!([{ "err": { "case": "reject", "value": "no" } }]));
}

#[test]
fn a_call_whose_command_is_gone_is_stopped_and_its_cell_serves_the_next() {
    let env = with_functions();
    let running = node(&env);
    let cells = 2 * std::thread::available_parallelism().unwrap().get();
    let spin = format!("{WORK}#spin");
    let words = ["invoke", "plain", &spin, "--cpu-fuel", "1000000000000", "--wall-time-millis", "600000"];
    let mut calls: Vec<_> = (0..cells).map(|_| Running::start(&env, &words)).collect();
    // With every cell taken a short call waits beyond its own patience; the node itself answers.
    wait_until("every cell is taken", || calls.iter_mut().all(|call| call.child.try_wait().unwrap().is_none()));
    drop(calls);
    let done = document(&invoke(&env, "divide", "[6, 3]", &["--json"]).with_status(0));
    assert_eq!(done["result"], json!([{ "ok": 2 }]));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn keys_are_derived_for_a_call_and_are_the_same_under_the_same_name() {
    let env = with_functions();
    let derived = |more: &[&str]| {
        let words = [&["--json"], more].concat();
        document(&invoke(&env, "derived", "[]", &words).with_status(0))["result"][0]["ok"].as_str().unwrap().to_owned()
    };
    let [one, other] = [derived(&[]), derived(&[])];
    assert_ne!(one, other, "each call has its own");
    let [named, again, different] = [derived(&["--origin", "nightly"]), derived(&["--origin", "nightly"]), derived(&["--origin", "daily"])];
    assert!(named == again && named != different && named != one);
}

#[test]
fn what_cannot_be_called_says_what_can() {
    let env = with_functions();
    let unknown = invoke(&env, "divid", "[1,1]", &["--json"]).with_status(1);
    let error = error_of(&unknown);
    assert!(error["why"].as_str().unwrap().contains("demo:plain/work@1.0.0#divide"), "{error}");
    let service = error_of(&env.run(["invoke", "plainn", "a:b/c@1.0.0#f", "--json"]).with_status(1));
    assert!(service["why"].as_str().unwrap().contains("did you mean plain?"), "{service}");
    let memory = error_of(&invoke(&env, "nothing", "[]", &["--memory-bytes", "67108864", "--json"]).with_status(1));
    assert_eq!(memory["kind"], json!("out-of-range"));
    assert!(
        memory["why"].as_str().unwrap().contains("33554432") && memory["why"].as_str().unwrap().contains("cell_memory_bytes"),
        "{memory}"
    );
    let config = std::fs::read_to_string(env.folder().join("latent.toml")).unwrap();
    env.write("latent.toml", format!("{config}[limits]\ncell_memory_bytes = 67_108_864\n"));
    let _ = invoke(&env, "nothing", "[]", &["--memory-bytes", "67108864", "--json"]).with_status(0);
}

#[test]
fn a_flood_of_log_does_not_cost_the_answer() {
    let env = with_functions();
    let running = node(&env);
    let payload: Vec<_> = "stdout-flood:1000000".bytes().collect();
    let event = json!([{
        "topic": "in", "partition": 0, "offset": "0", "uid": { "none": null }, "key": { "none": null }, "media-type": "text/plain",
        "attributes": [], "payload": payload, "delivery-count": 1, "stored-at-unix-millis": "0",
    }]);
    let words =
        ["invoke", "behave", "latent:events/handler@0.2.0#handle", "--args", &event.to_string(), "--log-bytes", "1048576", "--json"];
    let done = document(&env.run(words).with_status(0));
    assert_eq!(done["outcome"], json!("success"));
    assert!(done["log_bytes_cut"].as_u64().unwrap() > 0, "{}", done["log_bytes_cut"]);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn audit_records_that_no_disk_takes_are_counted_and_told_while_work_goes_on() {
    let env = with_functions();
    // Where the audit's folder should be, a file stands.
    let _ = env.run(["bus", "provision"]).with_status(0);
    env.write("data/audit", "not a folder");
    let running = node(&env);
    assert_eq!(document(&invoke(&env, "announce", "[\"out\"]", &["--json"]).with_status(0))["result"], json!([{ "ok": "0" }]));
    wait_until("the warning of a lost record", || {
        env.run(["trigger", "status"]).with_status(0).stderr.contains("warning: 1 audit records are lost since the start")
    });
    assert_eq!(running.stop(), Some(0));
}
