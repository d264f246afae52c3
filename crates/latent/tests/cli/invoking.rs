//! `latent invoke`: one function with values, on a running node and on a stopped one.

use latent_test_guests::{BEHAVE, PLAIN};
use serde_json::json;

use super::*;

/// A service `plain` of functions that may publish to `out`, and no trigger.
fn with_functions() -> CliEnv {
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

    let unknown = env.run(["invoke", "other", "a:b/c@1.0.0#f", "--json"]).with_status(1);
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
