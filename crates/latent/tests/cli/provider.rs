//! A node whose configuration maps topics to subjects of a broker: from the secret in its store to the message in its stream.

use std::os::unix::fs::PermissionsExt as _;

use latent_test_guests::PLAIN;
use latent_testkit::broker::{Broker, BrokerSpec, BrokerUser, StreamSpec};
use latent_testkit::require_broker;
use serde_json::json;

use super::*;

/// In the forms in which it could come to light: raw, base64, hex, escaped for JSON.
const MARKER: &str = "MARKER\"b4c1e0";
const FORMS: [&str; 4] = ["MARKER\"b4c1e0", "TUFSS0VSImI0YzFlM", "4d41524b45522262346331", "MARKER\\\"b4c1e0"];

fn broker() -> Broker {
    let user = BrokerUser::publisher("acme", MARKER, ["orders.new"]);
    Broker::start(BrokerSpec::with_users([user]).stream(StreamSpec::new("ORDERS", ["orders.new"])))
}

/// A node whose service `plain` may publish to `orders`, which is a subject of the broker.
fn with_provider(broker: &Broker) -> CliEnv {
    let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
    env.write("bridge.yaml", "manifest_version: 1\nname: demo\ntopics: [{ name: out, partitions: 1 }]\n");
    env.write("plain.wasm", PLAIN.component);
    env.write("ca.der", broker.ca().root_der());
    let key = env.write("secrets.key", [7; 32]);
    std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600)).unwrap();
    env.write("latent.toml", config(&broker.address().to_string(), &broker.server_name()));
    env
}

fn config(address: &str, server_name: &str) -> String {
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
[[provider]]
id = "shop"
profile = "nats-jetstream-publish-v1"
address = "{address}"
allow_non_public_peer = "{address}"
server_name = "{server_name}"
roots = ["ca.der"]
idempotency_namespace = "edge"
payload_ceiling_bytes = 65536
operation_timeout_millis = 5000
duplicate_window_millis = 120000
mappings = [{{ tenant = "acme", topic = "orders", subject = "orders.new", stream = "ORDERS" }}]
credentials = [{{ tenant = "acme", user = "acme", secret = "acme-nats" }}]
[[topic]]
name = "out"
tenant = "acme"
[[service]]
name = "plain"
tenant = "acme"
component = "plain.wasm"
grants = [{{ capability = "latent:events/publisher@0.2.0", topics = ["orders", "out"] }}]
"#
    )
}

fn put(env: &CliEnv, broker: &Broker, secret: &str) {
    let (name, port) = (broker.server_name(), broker.address().port().to_string());
    let words = ["secret", "put", secret, "--tenant", "acme", "--provider", "shop", "--server-name", &name, "--port", &port];
    let _ = env.run_with_input(words, MARKER.as_bytes().to_vec()).with_status(0);
}

fn invoke_publish(env: &CliEnv, topic: &str) -> Value {
    let arguments = json!([topic]).to_string();
    let output = env.run(["invoke", "plain", "demo:plain/work@1.0.0#announce", "--args", &arguments, "--json"]).with_status(0);
    documents(&output).remove(0)
}

fn messages(broker: &Broker) -> Vec<latent_testkit::broker::StoredMessage> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { broker.admin().await.messages("ORDERS").await })
}

#[test]
fn a_function_publishes_to_a_subject_of_the_broker_through_the_nodes_configuration() {
    require_broker!();
    let broker = broker();
    let env = with_provider(&broker);
    let _ = env.run(["check"]).with_status(0);
    let refused =
        || error_of(&env.run(["invoke", "plain", "demo:plain/work@1.0.0#announce", "--args", "[\"orders\"]", "--json"]).with_status(1));
    let no_store = refused().to_string();
    assert!(no_store.contains("data/secrets does not exist") && no_store.contains("latent secret put"), "{no_store}");
    put(&env, &broker, "another");
    let no_secret = refused().to_string();
    assert!(no_secret.contains("there is no secret acme-nats") && no_secret.contains("latent secret put"), "{no_secret}");
    put(&env, &broker, "acme-nats");
    // Of a stopped node, then of a running one: the same key, so the broker has it once.
    let first = invoke_publish(&env, "orders");
    assert_eq!(first["outcome"], json!("success"), "{first}");
    assert_eq!(first["result"], json!([{ "ok": "1" }]));
    let mut running = env.command(["run"]);
    running.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(env.folder().join("node.log")).unwrap());
    running.env("LATENT_LOG", "trace");
    let mut running = ChildGuard::spawn(&mut running).unwrap();
    wait_until("the node's answer on its control socket", || answers(&env.folder().join("data/control.sock")));
    let again = invoke_publish(&env, "orders");
    assert_eq!(again["result"], json!([{ "ok": "1" }]));
    let summary = summary(&env);
    let provider = &summary["providers"][0];
    assert_eq!(
        (&provider["id"], &provider["epoch"], &provider["mappings"], &provider["connected"]),
        (&json!("shop"), &json!(1), &json!(1), &json!(1))
    );
    assert_eq!((&provider["publications"]["receipts"], &provider["publications"]["duplicates"]), (&json!(1), &json!(1)));
    assert_eq!(summary["publications"]["receipts"], json!(1));
    let own = invoke_publish(&env, "out");
    assert_eq!(own["result"], json!([{ "ok": "0" }]), "a topic of the log goes to the log");

    // A revoked component publishes nothing more, although it is loaded.
    let revoked = env.run(["service", "revoke", "plain"]);
    assert!(revoked.status == Some(0), "{}", revoked.stderr);
    let refused = env.run(["invoke", "plain", "demo:plain/work@1.0.0#announce", "--args", "[\"orders\"]", "--json"]);
    assert_ne!(refused.status, Some(0), "{}", refused.stdout);

    let pid = running.pid();
    for file in ["cmdline", "environ"] {
        unmarked(&std::fs::read(format!("/proc/{pid}/{file}")).unwrap(), file);
    }
    running.terminate().unwrap();
    assert_eq!(running.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(0));
    assert!(std::fs::read_to_string(env.folder().join("node.log")).unwrap().contains("plain"), "the log is searched as well");
    let stored = messages(&broker);
    assert_eq!(stored.len(), 1);
    assert_eq!((stored[0].subject.as_str(), &stored[0].payload[..]), ("orders.new", &b"from plain"[..]));
    files_of(env.folder()).iter().for_each(|file| unmarked(&std::fs::read(file).unwrap(), &file.display().to_string()));
}

fn summary(env: &CliEnv) -> Value {
    let mut stream = UnixStream::connect(env.folder().join("data/control.sock")).unwrap();
    writeln!(stream, r#"{{"version":1,"request":"summary"}}"#).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    answer["answer"]["summary"].clone()
}

fn unmarked(bytes: &[u8], what: &str) {
    for form in FORMS {
        assert!(!bytes.windows(form.len()).any(|window| window == form.as_bytes()), "{form} is in {what}");
    }
}

fn files_of(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files_of(&path)
            } else if path.is_file() {
                vec![path]
            } else {
                Vec::new()
            }
        })
        .collect()
}

#[test]
fn each_mistake_of_a_provider_is_named_with_what_to_do() {
    let env = fresh();
    env.write("bridge.yaml", "manifest_version: 1\nname: demo\ntopics: [{ name: out, partitions: 1 }]\n");
    env.write("plain.wasm", PLAIN.component);
    env.write("ca.der", latent_testkit::broker::TestCa::new().root_der());
    let made = std::process::Command::new("mkfifo").arg(env.folder().join("pipe")).status().unwrap();
    assert!(made.success());
    let good = config("127.0.0.1:4222", "nats.example.net");
    let cases = [
        ("address = \"127.0.0.1:4222\"", "address = \"localhost:4222\"", "config-provider", "not an IPv4 address"),
        ("allow_non_public_peer = \"127.0.0.1:4222\"", "", "config-provider", "allow_non_public_peer = \\\"127.0.0.1:4222\\\""),
        ("roots = [\"ca.der\"]", "", "config-provider", "public_roots = true"),
        ("roots = [\"ca.der\"]", "roots = [\"gone.der\"]", "config-provider", "gone.der"),
        ("roots = [\"ca.der\"]", "roots = [\"bridge.yaml\"]", "config-provider", "bridge.yaml cannot be used"),
        ("payload_ceiling_bytes = 65536", "payload_ceiling_bytes = 262145", "config-out-of-range", "262144"),
        ("payload_ceiling_bytes = 65536", "", "config-missing-key", "payload_ceiling_bytes"),
        ("payload_ceiling_bytes = 65536", "payload_ceiling_bytes = 65537", "config-provider", "chunk_bytes"),
        ("topics = [\"orders\", \"out\"]", "topics = [\"ordres\"]", "config-unknown-topic", "did you mean \\\"orders\\\""),
        ("operation_timeout_millis = 5000", "operation_timeout_millis = 9", "config-out-of-range", "30000"),
        ("id = \"shop\"", "id = \"topics\"", "config-reserved-provider", "another id"),
        (
            "profile = \"nats-jetstream-publish-v1\"",
            "profile = \"nats-jetstream-publish-v2\"",
            "config-choice",
            "nats-jetstream-publish-v1",
        ),
        ("secret = \"acme-nats\"", "secret = \"no such name\"", "config-secret-name", "latent secret list"),
        ("credentials = [{ tenant = \"acme\"", "credentials = [{ tenant = \"bolt\"", "config-no-credential", "acme"),
        ("[secrets]\nkey_file = \"secrets.key\"\n", "", "config-no-secrets", "key_file"),
        ("topic = \"orders\"", "topic = \"out\"", "config-ambiguous-topic", "one provider"),
        ("topic = \"orders\"", "topic = \"_INBOX.x\"", "config-provider", "first not starting with"),
        ("roots = [\"ca.der\"]", "roots = [\"pipe\"]", "config-provider", "not a file"),
        ("[[provider]]", "[pools]\nclients = 0\n[[provider]]", "config-out-of-range", "4096"),
        ("server_name =", "server_nmae =", "config-unknown-key", "server_name"),
    ];
    for (replaced, by, kind, words) in cases {
        assert!(good.contains(replaced), "{replaced}");
        env.write("latent.toml", good.replacen(replaced, by, 1));
        let error = error_of(&env.run(["check", "--json"]).with_status(2));
        let problems = error["problems"].as_array().unwrap();
        let named = problems.iter().find(|problem| problem["kind"] == json!(kind));
        let named = named.unwrap_or_else(|| panic!("{by}: no {kind} in {error}"));
        assert!(named.to_string().contains(words), "{by}: {named} lacks {words}");
    }
}

#[test]
fn settings_of_a_provider_may_stand_in_a_file_of_their_own() {
    let env = fresh();
    env.write("bridge.yaml", "manifest_version: 1\nname: demo\ntopics: [{ name: out, partitions: 1 }]\n");
    env.write("plain.wasm", PLAIN.component);
    let root = latent_testkit::broker::TestCa::new().root_der();
    let document = json!({
        "formatVersion": 1,
        "endpoint": { "address": "127.0.0.1:4222", "allowNonPublicPeer": "127.0.0.1:4222", "serverName": "nats.example.net" },
        "roots": { "der": [base64_of(&root)] },
        "idempotencyNamespace": "edge",
        "payloadCeilingBytes": 65536,
        "operationTimeoutMillis": 5000,
        "duplicateWindowMillis": 120_000,
        "mappings": [{ "tenant": "acme", "topic": "orders", "subject": "orders.new", "stream": "ORDERS" }],
    });
    env.write("shop.json", document.to_string());
    let good = config("127.0.0.1:4222", "nats.example.net");
    let (start, end) = (good.find("address =").unwrap(), good.find("credentials").unwrap());
    let with_file = format!("{}settings = \"shop.json\"\n{}", &good[..start], &good[end..]);
    env.write("latent.toml", &with_file);
    let _ = env.run(["check"]).with_status(0);
    env.write("latent.toml", with_file.replace("settings =", "address = \"1.2.3.4:5\"\nsettings ="));
    assert!(error_of(&env.run(["check", "--json"]).with_status(2)).to_string().contains("settings"));
    env.write("latent.toml", &with_file);
    env.write("shop.json", document.to_string().replace("endpoint", "endpiont"));
    let error = error_of(&env.run(["check", "--json"]).with_status(2)).to_string();
    assert!(error.contains("shop.json") && error.contains("endpiont"), "{error}");
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
