//! The example's handler on a broker that knows nothing but what `latent broker …` said: its users are the block that `permissions` printed,
//! its streams what `provision` made.

use std::os::unix::fs::PermissionsExt as _;

use latent_testkit::broker::{Broker, BrokerSpec};
use latent_testkit::{CliEnv, CliOutput, require_broker};
use serde_json::{Value, json};

use crate::bench::Application;
use crate::{Expected, expected, own_events};

const SERVER_NAME: &str = "broker.latent.test";
const OPERATOR: &str = "latent-operator";
const OPERATOR_PASSWORD: &str = "of-the-operator";
const BUS_PASSWORD: &str = "of-the-bus";
const TRIGGER_PASSWORD: &str = "of-the-trigger";

/// What the example's configuration has on one machine, and what stands there on a broker: nothing else differs.
const ON_ONE_MACHINE: &str = "[engine]\nkind = \"embedded\"\nmanifest = \"bridge.yaml\"\n";

/// The example's configuration with its topics on a broker.
fn on_broker(config: &str, address: &str) -> String {
    let engine = format!(
        "[engine]\nkind = \"nats\"\naddress = \"{address}\"\nallow_non_public_peer = \"{address}\"\nserver_name = \"{SERVER_NAME}\"\n\
         roots = [\"ca.der\"]\nbus_credential = \"edge-1-bus\"\ntrigger_credentials = {{ acme = \"acme-trigger\" }}\nmanifest = \"bridge.yaml\"\n"
    );
    assert!(config.contains(ON_ONE_MACHINE));
    config.replace(ON_ONE_MACHINE, &engine)
}

/// The same for either engine: where passwords are is nothing of the engine's.
fn with_secrets(config: &str) -> String {
    format!("{config}\n[secrets]\nkey_file = \"secrets.key\"\n")
}

fn document(output: &CliOutput) -> Value {
    serde_json::from_str(output.stdout.lines().next().unwrap()).unwrap()
}

/// As the operator of the environment.
fn as_operator(env: &CliEnv, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = env.command(words);
    let output = command.env("AV_NATS_USER", OPERATOR).env("AV_NATS_PASSWORD", OPERATOR_PASSWORD).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The example and a broker that was set up with `latent broker …` and `latent secret …` alone.
fn set_up() -> (Application, Broker) {
    set_up_with(|config| on_broker(&config, "127.0.0.1:4222"))
}

/// The same with a configuration that is further from the example's.
fn set_up_with(edit: impl Fn(String) -> String) -> (Application, Broker) {
    let application = Application::edited(|config| edit(with_secrets(&config)));
    let env = application.env();
    let ca = latent_testkit::broker::TestCa::new();
    env.write("ca.der", ca.root_der());
    std::fs::set_permissions(env.write("secrets.key", [7; 32]), std::fs::Permissions::from_mode(0o600)).unwrap();
    // 1: who may do what. The block goes into the broker's configuration as it is; its variables are set before it.
    let block = env.run(["broker", "permissions"]).with_status(0).stdout;
    assert!(!block.contains(BUS_PASSWORD) && !block.contains("password: \""), "{block}");
    let variables = format!(
        "LATENT_EDGE_1_BUS_PASSWORD: \"{BUS_PASSWORD}\"\nLATENT_LATENT_OPERATOR_PASSWORD: \"{OPERATOR_PASSWORD}\"\n\
         LATENT_ACME_TRIGGER_PASSWORD: \"{TRIGGER_PASSWORD}\"\n"
    );
    let spec = BrokerSpec { server_name: SERVER_NAME.to_owned(), ..BrokerSpec::with_raw_users(variables + &block) };
    let broker = Broker::start_with_ca(spec.disk(64 << 20), ca);
    let config = std::fs::read_to_string(env.folder().join("latent.toml")).unwrap();
    env.write("latent.toml", config.replace("127.0.0.1:4222", &broker.address().to_string()));
    // 2: the streams.
    let (status, planned, error) = as_operator(env, &["broker", "provision"]);
    assert_eq!(status, Some(0), "{error}");
    assert!(planned.contains("create stream av_github_events") && planned.contains("--apply"), "{planned}");
    let (status, applied, error) = as_operator(env, &["broker", "provision", "--apply", "--json"]);
    let applied: Value = serde_json::from_str(&applied).unwrap_or_else(|_| panic!("{status:?} {error}"));
    assert_eq!((status, &applied["applied"], applied["topics"].as_array().map(Vec::len)), (Some(0), &json!(true), Some(3)), "{applied}");
    let (_, again, _) = as_operator(env, &["broker", "provision", "--apply"]);
    assert!(again.contains("keep stream av_triage_results") && again.ends_with("nothing to do\n"), "{again}");
    // 3: the node's password.
    let port = broker.address().port().to_string();
    let put = ["secret", "put", "edge-1-bus", "--bus", "--server-name", SERVER_NAME, "--port", &port];
    let _ = env.run_with_input(put, BUS_PASSWORD.as_bytes().to_vec()).with_status(0);
    let put =
        ["secret", "put", "acme-trigger", "--tenant", "acme", "--provider", "triggers", "--server-name", SERVER_NAME, "--port", &port];
    let _ = env.run_with_input(put, TRIGGER_PASSWORD.as_bytes().to_vec()).with_status(0);
    // The broker says itself that this is what everybody needs, and no more.
    let (status, verified, error) = as_operator(env, &["broker", "permissions", "--verify", "--json"]);
    assert_eq!(status, Some(0), "{verified} {error}");
    assert!(verified.lines().count() == 4 && !verified.contains("not_checked"), "{verified}");

    drop((planned, applied));
    (application, broker)
}

#[test]
fn the_example_publishes_on_a_broker_that_was_set_up_with_latent_broker_alone() {
    require_broker!();
    let (application, _broker) = set_up();
    let env = application.env();
    let webhook = std::fs::read_to_string(env.folder().join("events.jsonl")).unwrap().lines().next().unwrap().to_owned();
    let event = json!([{
        "topic": "github.events", "partition": 0, "offset": "1", "uid": { "none": null }, "key": { "none": null }, "media-type": "application/json",
        "attributes": [], "payload": webhook.bytes().collect::<Vec<_>>(), "delivery-count": 1, "stored-at-unix-millis": "0",
    }]);
    let invoke = ["invoke", "triage", "latent:events/handler@0.2.0#handle", "--args", &event.to_string(), "--json"];
    let invoked = document(&env.run(invoke).with_status(0));
    assert_eq!(invoked["outcome"], json!("success"), "{invoked}");
    let again = document(&env.run(invoke).with_status(0));
    assert_eq!(again["outcome"], json!("success"), "{again}");
    let results = env.run(["bus", "fetch", "triage.results", "--json"]).with_status(0).stdout;
    let results: Vec<Value> = results.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(results.len(), 1, "the same webhook is classified once: {results:?}");
    assert_eq!((&results[0]["value"]["event"], &results[0]["value"]["n"]), (&json!("issues"), &json!(0)), "{results:?}");
}

/// What came out of the broker for each repository, in the form that is counted from the input.
fn came_out(env: &CliEnv) -> Expected {
    let results = env.run(["bus", "fetch", "triage.results", "--max", "1000", "--json"]).with_status(0).stdout;
    let mut came_out = Expected::new();
    for record in results.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let (key, value) = (record["key"].as_str().unwrap().to_owned(), &record["value"]);
        let text = |name: &str| value[name].as_str().unwrap().to_owned();
        came_out.entry(key).or_default().push((text("event"), value["n"].clone(), text("class")));
    }
    came_out
}

/// The whole example on the broker, with one table of its configuration changed: what comes out, in the order of each key, and what goes to
/// the dead letters is what comes out on one machine, through a restart of the node in between.
#[test]
fn the_example_comes_out_on_a_broker_as_on_one_machine() {
    require_broker!();
    let (application, _broker) = set_up();
    let env = application.env();
    let events = std::fs::read_to_string(env.folder().join("events.jsonl")).unwrap();
    let lines: Vec<&str> = events.lines().collect();
    for half in lines.chunks(140) {
        let node = application.start();
        let file = env.write("half.jsonl", half.join("\n") + "\n");
        assert_eq!(application.publish(&file).len(), half.len());
        application.wait_until_handled();
        node.stop();
    }
    let status = application.status();
    assert_eq!((&status["engine"], &status["state"], &status["partitions"]), (&json!("nats"), &json!("stopped"), &json!(4)));
    let (expected, rejected) = expected(&own_events());
    assert_eq!(came_out(env), expected);
    let count = |topic: &str| env.run(["bus", "fetch", topic, "--max", "1000", "--json"]).with_status(0).stdout.lines().count();
    assert_eq!((count("triage.results"), count("triage.dead") as u64), (233, rejected));
    let letters = env.run(["bus", "fetch", "triage.dead", "--max", "1000", "--json"]).with_status(0).stdout;
    let letter: Value = serde_json::from_str(letters.lines().next().unwrap()).unwrap();
    let listed = env.run(["deadletter", "list", "--json"]).with_status(0).stdout;
    assert_eq!(listed.lines().count() as u64, rejected);
    let first: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    let place = first["place"].as_str().unwrap_or_else(|| panic!("{first}")).to_owned();
    let told = document(&env.run(["deadletter", "show", &place, "--json"]).with_status(0));
    assert_eq!((&told["replayed"], &told["reason"]), (&Value::Null, &json!("rejected")), "{told}");
    let replayed = document(&env.run(["deadletter", "replay", &place, "--json"]).with_status(0));
    assert_eq!((&replayed["topic"], &replayed["duplicate"]), (&json!("github.events"), &json!(false)), "{replayed}");
    let again = document(&env.run(["deadletter", "replay", &place, "--json"]).with_status(0));
    assert_eq!((&again["offset"], &again["duplicate"]), (&replayed["offset"], &json!(true)), "{again}");
    let attributes = &letter["attributes"];
    assert_eq!(attributes["Latent-Dead-Binding"], json!("triage-github"), "{letter}");
    assert_eq!((&attributes["Latent-Dead-Reason"], &attributes["Latent-Dead-Topic"]), (&json!("rejected"), &json!("github.events")));
}
