//! One folder for either engine: its configuration, its broker where it has one, and the questions that are asked of it.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::LazyLock;

use latent_test_guests::BEHAVE;
use latent_testkit::broker::{Admin, Broker, BrokerSpec, BrokerUser, TestCa};

use super::*;

/// What keeps the topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    Embedded,
    Nats,
}

impl Engine {
    /// As documents name it.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Nats => "nats",
        }
    }
}

const OPERATOR: &str = "ops";
/// Of every user.
const PASSWORD: &str = "MARKER-51ce";
const SERVER_NAME: &str = "broker.latent.test";

pub(super) const TOPICS: [(&str, u32); 3] = [("in", 2), ("out", 1), ("dead", 1)];

const EMBEDDED: &str = "[engine]\nkind = \"embedded\"\nmanifest = \"bridge.yaml\"\n";

/// The one table that differs. Its users' passwords are in the store of secrets.
fn nats(address: &str) -> String {
    format!(
        "[engine]\nkind = \"nats\"\nmanifest = \"bridge.yaml\"\naddress = \"{address}\"\nallow_non_public_peer = \"{address}\"\n\
         server_name = \"{SERVER_NAME}\"\nroots = [\"ca.der\"]\nbus_credential = \"bus\"\ntrigger_credentials = {{ acme = \"acme-in\" }}\n"
    )
}

/// A trigger `work` of `in`, with what else `trigger` says of it. Leases are short, for those who wait for a killed node's to end.
fn config(engine: &str, trigger: &str) -> String {
    let mut config = format!("[node]\nname = \"edge\"\ndata_dir = \"data\"\n{engine}[secrets]\nkey_file = \"secrets.key\"\n");
    for (topic, _) in TOPICS {
        config.push_str(&format!("[[topic]]\nname = \"{topic}\"\ntenant = \"acme\"\n"));
    }
    config.push_str("[limits]\ncells = 4\ndrain_millis = 100\n");
    config.push_str("[[service]]\nname = \"work\"\ntenant = \"acme\"\ncomponent = \"work.wasm\"\n");
    config.push_str("grants = [{ capability = \"latent:events/publisher@0.2.0\", topics = [\"out\"] }]\n");
    config.push_str("[[trigger]]\nid = \"work\"\ntenant = \"acme\"\nservice = \"work\"\ntopic = \"in\"\nack_wait_millis = 3000\n");
    config + trigger
}

fn folder(config: &str, root: &[u8]) -> CliEnv {
    let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
    let topic =
        |(name, partitions): &(&str, u32)| format!("  - {{ name: {name}, partitions: {partitions}, retention: {{ hot_hours: 2 }} }}\n");
    let topics: String = TOPICS.iter().map(topic).collect();
    env.write("bridge.yaml", format!("manifest_version: 1\nname: demo\ntopics:\n{topics}"));
    env.write("work.wasm", BEHAVE.component);
    env.write("ca.der", root);
    std::fs::set_permissions(env.write("secrets.key", [7; 32]), std::fs::Permissions::from_mode(0o600)).unwrap();
    env.write("latent.toml", config);
    env
}

/// What `latent broker permissions` prints; what the trigger is like says nothing of it.
static PRINTED: LazyLock<Value> = LazyLock::new(|| {
    let env = folder(&config(&nats("127.0.0.1:4222"), ""), &TestCa::new().root_der());
    documents(&env.run(["broker", "permissions", "--operator", OPERATOR, "--json"]).with_status(0)).remove(0)
});

fn broker(ca: TestCa) -> Broker {
    let subjects = |of: &Value| serde_json::from_value(of.clone()).unwrap();
    let user = |user: &Value| BrokerUser {
        name: user["user"].as_str().unwrap().to_owned(),
        password: PASSWORD.to_owned(),
        publish: subjects(&user["publish"]),
        subscribe: subjects(&user["subscribe"]),
    };
    let users = PRINTED["brokers"][0]["users"].as_array().unwrap();
    let spec = BrokerSpec { server_name: SERVER_NAME.to_owned(), ..BrokerSpec::with_users(users.iter().map(user)) };
    Broker::start_with_ca(spec.disk(64 << 20), ca)
}

/// See the module.
pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) env: CliEnv,
    broker: Option<Broker>,
    engine_table: String,
}

impl World {
    /// Everything is provisioned and nothing runs.
    pub(super) fn new(engine: Engine, trigger: &str) -> Self {
        let ca = TestCa::new();
        let root = ca.root_der();
        let broker = (engine == Engine::Nats).then(|| broker(ca));
        let engine_table = broker.as_ref().map_or_else(|| EMBEDDED.to_owned(), |broker| nats(&broker.address().to_string()));
        let env = folder(&config(&engine_table, trigger), &root);
        match &broker {
            None => _ = env.run(["bus", "provision"]).with_status(0),
            Some(broker) => {
                let port = broker.address().port().to_string();
                let put = |words: &[&str]| {
                    let words = [&["secret", "put"], words, &["--server-name", SERVER_NAME, "--port", &port]].concat();
                    let _ = env.run_with_input(words, PASSWORD.as_bytes().to_vec()).with_status(0);
                };
                put(&["bus", "--bus"]);
                put(&["acme-in", "--tenant", "acme", "--provider", "triggers"]);
                let as_operator = [("AV_NATS_USER", OPERATOR), ("AV_NATS_PASSWORD", PASSWORD)];
                let output = env.command(["broker", "provision", "--apply"]).envs(as_operator).output().unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            }
        }
        Self { engine, env, broker, engine_table }
    }

    /// Writes the configuration anew with another trigger; without one, none.
    pub(super) fn reconfigure(&self, trigger: Option<&str>) {
        let config = config(&self.engine_table, trigger.unwrap_or_default());
        let kept = if trigger.is_some() { &*config } else { config.split("[[trigger]]").next().unwrap() };
        self.env.write("latent.toml", kept);
    }

    /// At the broker, as its administrator; nothing on the embedded engine.
    pub(super) fn at_broker<T>(&self, ask: impl AsyncFnOnce(&Admin) -> T) -> Option<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        self.broker.as_ref().map(|broker| runtime.block_on(async { ask(&broker.admin().await).await }))
    }

    /// What came out, by key, each in the order of the topic.
    pub(super) fn came_out(&self) -> std::collections::BTreeMap<String, Vec<String>> {
        let mut by_key = std::collections::BTreeMap::<String, Vec<String>>::new();
        for event in fetched(&self.env, "out", 0) {
            by_key.entry(event["key"].as_str().unwrap().to_owned()).or_default().push(text_of(&event));
        }
        by_key
    }

    pub(super) fn told(&self) -> Told {
        Told::of(self)
    }
}

/// The payload of a printed event.
pub(super) fn text_of(event: &Value) -> String {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(event["value"]["data_base64"].as_str().unwrap()).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Publishes one text under a key; gives its uid.
pub(super) fn publish_text(world: &World, key: &str, text: &str) -> String {
    super::super::deadletter::publish_text(&world.env, key, text)
}

/// Waits for so many dead letters and gives them.
pub(super) fn letters(world: &World, count: usize) -> Vec<Value> {
    super::super::deadletter::letters(&world.env, count)
}

pub(super) fn status(world: &World) -> Value {
    documents(&world.env.run(["trigger", "status", "--json"]).with_status(0)).remove(0)
}

/// Waits until so many events are settled since the node started, and none is left.
pub(super) fn wait_until_settled(world: &World, count: u64) {
    wait_until("every event is settled", || {
        let status = status(world);
        (&status["settled"], &status["pending"], &status["state"]) == (&json!(count), &json!(0), &json!("idle"))
    });
}

/// What `why` tells of an event of `in`.
pub(super) fn story(world: &World, uid: &str) -> Value {
    documents(&world.env.run(["why", "in", uid, "--json"]).with_status(0)).remove(0)
}

/// Where a dead letter is, for `deadletter show` and `replay`.
pub(super) fn place_of(letter: &Value) -> &str {
    letter["place"].as_str().unwrap()
}
