//! A node whose functions are woken by raw streams of a broker: from the file's tables to the consumer's state.

use std::os::unix::fs::PermissionsExt as _;

use latent_test_guests::PLAIN;
use latent_testkit::broker::{Broker, BrokerSpec, BrokerUser, StreamSpec};
use latent_testkit::require_broker;
use serde_json::json;

use super::*;

const PASSWORD: &str = "pw of acme";

fn broker() -> Broker {
    let user = BrokerUser::trigger("acme-in", PASSWORD, [("ORDERS", "divide")]);
    Broker::start(BrokerSpec::with_users([user]).stream(StreamSpec::new("ORDERS", ["orders.>"])))
}

fn consumer() -> Value {
    json!({
        "durable_name": "divide",
        "filter_subject": "orders.divide",
        "ack_policy": "explicit",
        "replay_policy": "instant",
        "deliver_policy": "all",
        "max_waiting": 1,
        "max_ack_pending": 1,
        "max_batch": 1,
        "max_expires": 100_000_000,
        "max_bytes": 1_024 + 9_216,
        "ack_wait": 5_000_000_000_u64,
        "max_deliver": 2,
    })
}

fn config(broker: &Broker) -> String {
    config_at(&broker.address().to_string(), &broker.server_name())
}

fn config_at(address: &str, server_name: &str) -> String {
    format!(
        r#"
[node]
name = "edge"
data_dir = "data"
[engine]
kind = "embedded"
manifest = "bridge.yaml"
[secrets]
key_file = "secrets.key"
[broker]
address = "{address}"
allow_non_public_peer = "{address}"
server_name = "{server_name}"
roots = ["ca.der"]
poll_interval_millis = 20
credentials = [{{ tenant = "acme", user = "acme-in", secret = "acme-streams" }}]
[[service]]
name = "plain"
tenant = "acme"
component = "plain.wasm"
[[trigger]]
id = "divide"
tenant = "acme"
service = "plain"
contract = "demo:plain/work@1.0.0"
function = "divide"
stream = "ORDERS"
consumer = "divide"
filter = "orders.divide"
max_deliveries = 2
retry_delay_millis = 100
operation_timeout_millis = 2000
ack_wait_millis = 5000
payload_ceiling_bytes = 1024
"#
    )
}

/// A folder with a configuration for a broker there.
fn folder(config: &str, root: &[u8]) -> CliEnv {
    let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
    env.write("bridge.yaml", "manifest_version: 1\nname: demo\ntopics: [{ name: out, partitions: 1 }]\n");
    env.write("plain.wasm", PLAIN.component);
    env.write("ca.der", root);
    let key = env.write("secrets.key", [7; 32]);
    std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600)).unwrap();
    env.write("latent.toml", config);
    env
}

fn environment(broker: &Broker) -> CliEnv {
    let env = folder(&config(broker), &broker.ca().root_der());
    let (name, port) = (broker.server_name(), broker.address().port().to_string());
    let words = ["secret", "put", "acme-streams", "--tenant", "acme", "--provider", "triggers", "--server-name", &name, "--port", &port];
    let _ = env.run_with_input(words, PASSWORD.as_bytes().to_vec()).with_status(0);
    env
}

fn status(env: &CliEnv) -> Value {
    documents(&env.run(["trigger", "status", "--json"]).with_status(0)).remove(0)
}

fn on_broker<T>(broker: &Broker, what: impl AsyncFnOnce(&latent_testkit::broker::Admin) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { what(&broker.admin().await).await })
}

#[test]
fn a_stream_wakes_a_function_through_the_nodes_configuration() {
    require_broker!();
    let broker = broker();
    let env = environment(&broker);
    let _ = env.run(["check"]).with_status(0);
    let _ = env.run(["bus", "provision"]).with_status(0);
    let stopped = status(&env);
    assert_eq!(
        (&stopped["id"], &stopped["engine"], &stopped["state"], &stopped["topic"]),
        (&json!("divide"), &json!("nats"), &json!("stopped"), &json!("orders.divide"))
    );
    let mut running = env.command(["run"]);
    running.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(env.folder().join("node.log")).unwrap());
    let mut running = ChildGuard::spawn(&mut running).unwrap();
    wait_until("the node's answer on its control socket", || answers(&env.folder().join("data/control.sock")));
    // Nobody has made the consumer: the trigger says so, makes nothing, and goes on once it is there (T-011).
    wait_until("the trigger misses its consumer", || status(&env)["state"] == json!("stalled"));
    let missing = status(&env)["last_error"].as_str().unwrap().to_owned();
    assert!(missing.starts_with("consumer-missing") && missing.contains("latent broker provision"), "{missing}");
    on_broker(&broker, async |admin| {
        assert_eq!(admin.consumers(), 0);
        admin.add_consumer("ORDERS", &consumer()).await;
        for payload in ["[6, 3]", "[1, 0]", "no values", "[8, 2]"] {
            admin.publish("orders.divide", payload.as_bytes()).await;
        }
    });
    wait_until("every message is settled", || status(&env)["settled"] == json!(4));
    let settled = status(&env);
    assert_eq!((&settled["state"], &settled["pending"], &settled["terminated"]), (&json!("idle"), &json!(0), &json!(2)));
    assert_eq!((&settled["last_outcome"], &settled["exhausted"]), (&json!("success"), &json!(0)));
    let info = on_broker(&broker, async |admin| admin.consumer("ORDERS", "divide").await);
    assert_eq!((&info["num_pending"], &info["num_ack_pending"]), (&json!(0), &json!(0)));
    running.interrupt().unwrap();
    assert!(running.wait_at_most(HANG_LIMIT).unwrap().unwrap().success());
    assert!(!std::fs::read_to_string(env.folder().join("node.log")).unwrap().contains(PASSWORD));
    assert_eq!(on_broker(&broker, async |admin| admin.connections_of("acme-in")), 0);
}

#[test]
fn what_a_stream_s_trigger_cannot_be_is_told_with_its_line() {
    let ca = latent_testkit::broker::TestCa::new();
    let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
    env.write("bridge.yaml", "manifest_version: 1\nname: demo\ntopics: [{ name: out, partitions: 1 }]\n");
    env.write("plain.wasm", PLAIN.component);
    env.write("ca.der", ca.root_der());
    env.write("secrets.key", [7; 32]);
    let good = r#"
[node]
name = "edge"
data_dir = "data"
[engine]
kind = "embedded"
manifest = "bridge.yaml"
[secrets]
key_file = "secrets.key"
[broker]
address = "127.0.0.1:4222"
allow_non_public_peer = "127.0.0.1:4222"
server_name = "nats.example.net"
roots = ["ca.der"]
credentials = [{ tenant = "acme", user = "u", secret = "s" }]
[[service]]
name = "plain"
tenant = "acme"
component = "plain.wasm"
[[trigger]]
id = "divide"
tenant = "acme"
service = "plain"
contract = "demo:plain/work@1.0.0"
function = "divide"
stream = "ORDERS"
consumer = "divide"
filter = "orders.divide"
"#;
    env.write("latent.toml", good);
    let _ = env.run(["check"]).with_status(0);
    let cases = [
        ("filter = \"orders.divide\"", "filter = \"orders.*\"", "config-streams", "filter"),
        ("consumer = \"divide\"", "", "config-missing-key", "consumer is missing"),
        ("function = \"divide\"", "function = \"divide\"\ntopic = \"out\"", "config-exclusive", "stream and topic"),
        ("function = \"divide\"", "function = \"divide\"\ndead_letter = \"out\"", "config-unknown-topic", "has no [[topic]]"),
        ("function = \"divide\"", "function = \"divide\"\nmax_in_flight = 2", "config-exclusive", "max_in_flight"),
        ("function = \"divide\"", "function = \"divide\"\ninput = \"raw-event\"", "config-streams", "nats-jetstream-pull-v2"),
        ("function = \"divide\"", "function = \"divide\"\nack_wait_millis = 10999", "config-streams", "at least 11000"),
        ("function = \"divide\"", "function = \"divide\"\nmax_deliveries = 17", "config-out-of-range", "1 to 16"),
        ("service = \"plain\"", "service = \"plan\"", "config-unknown-service", "did you mean"),
        ("tenant = \"acme\"\nservice", "tenant = \"bolt\"\nservice", "config-foreign-service", "bolt"),
        ("tenant = \"acme\", user", "tenant = \"bolt\", user", "config-no-credential", "acme"),
        ("user = \"u\"", "user = \"\"", "config-provider", "visible ASCII"),
        ("secret = \"s\" }]", "secret = \"s\" }, { tenant = \"acme\", secret = \"t\" }]", "config-provider", "a tenant has one"),
        ("server_name = \"nats.example.net\"\n", "", "config-missing-key", "server_name"),
        ("allow_non_public_peer = \"127.0.0.1:4222\"\n", "", "config-streams", "allow_non_public_peer"),
        ("[secrets]\nkey_file = \"secrets.key\"\n", "", "config-no-secrets", "[secrets]"),
    ];
    for (replaced, by, kind, words) in cases {
        assert!(good.contains(replaced), "{replaced}");
        env.write("latent.toml", good.replacen(replaced, by, 1));
        let problems = env.run(["check", "--json"]).with_status(2);
        let text = format!("{}{}", problems.stdout, problems.stderr);
        assert!(text.contains(kind) && text.contains(words), "{by}: {text}");
    }
    let without = good.find("[broker]").unwrap()..good.find("[[service]]").unwrap();
    env.write("latent.toml", format!("{}{}", &good[..without.start], &good[without.end..]));
    let text = env.run(["check", "--json"]).with_status(2).stderr;
    assert!(text.contains("config-no-broker"), "{text}");
}

/// The operator's commands alone set a broker up for triggers: users with the least rights, consumers as the configuration needs them.
#[test]
fn a_broker_is_set_up_for_triggers_with_the_operators_commands_alone() {
    require_broker!();
    let ca = latent_testkit::broker::TestCa::new();
    let root = ca.root_der();
    let printing = folder(&config_at("127.0.0.1:4222", "broker.latent.test"), &root);
    let printed = documents(&printing.run(["broker", "permissions", "--operator", "ops", "--json"]).with_status(0)).remove(0);
    let users = printed["brokers"][0]["users"].as_array().unwrap();
    let subjects = |of: &Value| serde_json::from_value::<Vec<String>>(of.clone()).unwrap();
    let user = |user: &Value| BrokerUser {
        name: user["user"].as_str().unwrap().to_owned(),
        password: PASSWORD.to_owned(),
        publish: subjects(&user["publish"]),
        subscribe: subjects(&user["subscribe"]),
    };
    let users: Vec<_> = users.iter().map(user).collect();
    assert_eq!(users.iter().map(|user| user.name.as_str()).collect::<Vec<_>>(), ["acme-in", "ops"]);
    let spec = BrokerSpec::with_users(users).stream(StreamSpec::new("ORDERS", ["orders.>"]));
    let broker = Broker::start_with_ca(spec, ca);
    let env = environment(&broker);
    let as_operator = |words: &[&str], status: i32| {
        let output = env.command(words).envs([("AV_NATS_USER", "ops"), ("AV_NATS_PASSWORD", PASSWORD)]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{words:?}: {text}");
        assert!(!text.contains(PASSWORD), "{text}");
        text
    };
    assert!(as_operator(&["broker", "check"], 1).contains("its trigger is not woken"));
    let planned = as_operator(&["broker", "provision"], 0);
    assert!(planned.contains("create consumer divide of stream ORDERS") && planned.contains("--apply"), "{planned}");
    assert_eq!(on_broker(&broker, async |admin| admin.consumers()), 0, "a plan changes nothing");
    assert!(as_operator(&["broker", "provision", "--apply"], 0).contains("done"));
    assert!(as_operator(&["broker", "provision", "--apply"], 0).contains("nothing to do"));
    // What the broker was asked to be is what the trigger needs.
    let verified = as_operator(&["broker", "permissions", "--operator", "ops", "--verify"], 0);
    assert!(verified.contains("acme-in at") && verified.contains("ops at"), "{verified}");
    let mut running = env.command(["run"]);
    running.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = ChildGuard::spawn(&mut running).unwrap();
    wait_until("the node's answer on its control socket", || answers(&env.folder().join("data/control.sock")));
    on_broker(&broker, async |admin| admin.publish("orders.divide", b"[6, 3]").await);
    wait_until("the message is settled", || status(&env)["settled"] == json!(1));
    // Changed behind the node's back: seen at the next visit with both values, mended by the operator, and it goes on by itself.
    let changed = |field: &str, value: Value| {
        let mut settings = consumer();
        settings[field] = value;
        on_broker(&broker, async |admin| admin.add_consumer("ORDERS", &settings).await);
    };
    changed("max_deliver", json!(7));
    let is_stalled = || status(&env)["state"] == json!("stalled");
    wait_until("the trigger sees the change", is_stalled);
    let problem = status(&env)["last_error"].as_str().unwrap().to_owned();
    assert!(problem.contains("max_deliver is 7 and must be 2"), "{problem}");
    assert!(as_operator(&["broker", "check"], 1).contains("max_deliver: 7 → 2"));
    assert!(as_operator(&["broker", "provision", "--apply"], 0).contains("update consumer divide"));
    on_broker(&broker, async |admin| admin.publish("orders.divide", b"[8, 2]").await);
    wait_until("the message behind the change is settled", || status(&env)["settled"] == json!(2));
    changed("filter_subject", json!("orders.other"));
    let refused = as_operator(&["broker", "provision", "--apply"], 1);
    assert!(
        refused.contains("filter_subject is orders.other and must be orders.divide") && refused.contains("nothing was changed"),
        "{refused}"
    );
    running.terminate().unwrap();
    assert!(running.wait_at_most(HANG_LIMIT).unwrap().unwrap().success());
    on_broker(&broker, async |admin| admin.delete_stream("ORDERS").await);
    assert!(as_operator(&["broker", "provision"], 1).contains("its stream ORDERS is not there"));
}

/// D-22 on a raw stream: what never runs again is in the dead-letter topic before it is terminated, whole and with the reason, and a
/// dead-letter topic that cannot take it keeps it at the broker.
#[test]
fn what_never_runs_again_is_parked_before_it_is_terminated() {
    require_broker!();
    let broker = broker();
    let env = environment(&broker);
    env.write("bridge.yaml", "manifest_version: 1\nname: demo\ntopics: [{ name: out, partitions: 1 }, { name: dead, partitions: 1 }]\n");
    let with_dead_letters = config(&broker)
        .replace("[[service]]", "[[topic]]\nname = \"dead\"\ntenant = \"acme\"\n[[service]]")
        .replace("max_deliveries = 2", "dead_letter = \"dead\"\nmax_deliveries = 2");
    env.write("latent.toml", with_dead_letters);
    let mut settings = consumer();
    settings["max_deliver"] = json!(16);
    on_broker(&broker, async |admin| {
        admin.add_consumer("ORDERS", &settings).await;
        for payload in ["[6, 3]", "[1, 0]", "no values"] {
            admin.publish("orders.divide", payload.as_bytes()).await;
        }
    });
    let mut running = env.command(["run"]);
    running.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = ChildGuard::spawn(&mut running).unwrap();
    wait_until("the node's answer on its control socket", || answers(&env.folder().join("data/control.sock")));
    wait_until("every message is settled", || status(&env)["settled"] == json!(3));
    let settled = status(&env);
    assert_eq!((&settled["dead_lettered"], &settled["terminated"], &settled["state"]), (&json!(2), &json!(2), &json!("idle")));
    let letters = documents(&env.run(["deadletter", "list", "--json"]).with_status(0));
    let told: Vec<_> =
        letters.iter().map(|letter| (letter["reason"].clone(), letter["trigger"].clone(), letter["event"]["offset"].clone())).collect();
    assert_eq!(told, [(json!("rejected"), json!("divide"), json!(2)), (json!("rejected"), json!("divide"), json!(3))], "{letters:?}");
    let kept = documents(&env.run(["bus", "fetch", "dead", "--partition", "0", "--json"]).with_status(0));
    assert_eq!(kept[0]["value"]["data_base64"], json!("WzEsIDBd"), "the payload as it was: {kept:?}");
    running.terminate().unwrap();
    assert!(running.wait_at_most(HANG_LIMIT).unwrap().unwrap().success());
}
