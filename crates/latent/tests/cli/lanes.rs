//! Nodes whose functions a broker wakes by `nats-jetstream-pull-v2`: topics and raw streams, set up with the operator's commands alone.

use std::os::unix::fs::PermissionsExt as _;

use latent_test_guests::{BEHAVE, FORWARD, Guest};
use latent_testkit::broker::{Admin, Broker, BrokerSpec, BrokerUser, StreamSpec, TestCa};
use latent_testkit::require_broker;

use super::*;

const OPERATOR: &str = "ops";
/// Of every user.
const PASSWORD: &str = "MARKER-9e02";

const TOPICS: &str = "\
manifest_version: 1
name: demo
topics:
  - { name: in, partitions: 2, retention: { hot_hours: 2 } }
  - { name: out, partitions: 1, retention: { hot_hours: 2 } }
  - { name: dead, partitions: 1, retention: { hot_hours: 2 } }
";

/// What a topic's trigger is like in these tests: leases and pins are short, so that another node gets on soon.
const SHORT: &str = "max_deliveries = 2\nretry_delay_millis = 10\noperation_timeout_millis = 1000\nack_wait_millis = 3000\n";

fn config(address: &str, node: &str, triggers: &str) -> String {
    let mut config = format!(
        "[node]\nname = \"{node}\"\ndata_dir = \"data\"\n[engine]\nkind = \"nats\"\nmanifest = \"bridge.yaml\"\naddress = \"{address}\"\n\
         allow_non_public_peer = \"{address}\"\nserver_name = \"broker.latent.test\"\nroots = [\"ca.der\"]\nbus_credential = \"bus\"\n\
         trigger_credentials = {{ acme = \"acme-in\" }}\n[secrets]\nkey_file = \"secrets.key\"\n"
    );
    for topic in ["in", "out", "dead"] {
        config.push_str(&format!("[[topic]]\nname = \"{topic}\"\ntenant = \"acme\"\n"));
    }
    config.push_str("[[service]]\nname = \"work\"\ntenant = \"acme\"\ncomponent = \"work.wasm\"\n");
    config.push_str("grants = [{ capability = \"latent:events/publisher@0.2.0\", topics = [\"out\"] }]\n");
    config.push_str(&triggers.replace("[[trigger]]\n", "[[trigger]]\ntenant = \"acme\"\nservice = \"work\"\n"));
    config
}

fn on_topic() -> String {
    format!("[[trigger]]\nid = \"work\"\ntopic = \"in\"\ndead_letter = \"dead\"\n{SHORT}")
}

const ON_STREAM: &str = "[[trigger]]\nid = \"intake\"\nstream = \"ORDERS\"\nconsumer = \"intake\"\nfilter = \"orders.new\"\n\
                         profile = \"nats-jetstream-pull-v2\"\ninput = \"raw-event\"\ndead_letter = \"dead\"\nmax_in_flight = 4\n\
                         operation_timeout_millis = 1000\nack_wait_millis = 3000\npayload_ceiling_bytes = 65536\n";

/// A folder with a node's configuration for a broker there.
fn folder(node: &str, address: &str, root: &[u8], (guest, triggers): (Guest, &str)) -> CliEnv {
    let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
    env.write("bridge.yaml", TOPICS);
    env.write("work.wasm", guest.component);
    env.write("ca.der", root);
    std::fs::set_permissions(env.write("secrets.key", [7; 32]), std::fs::Permissions::from_mode(0o600)).unwrap();
    env.write("latent.toml", config(address, node, triggers));
    env
}

/// A broker that knows what `latent broker` said and no more, and what nodes on it are made of.
struct World {
    broker: Broker,
    root: Vec<u8>,
    guest: Guest,
    triggers: String,
}

impl World {
    /// With the printed users; nothing is provisioned.
    fn start(guest: Guest, triggers: &str) -> Self {
        let ca = TestCa::new();
        let root = ca.root_der();
        let printing = folder("edge", "127.0.0.1:4222", &root, (guest, triggers));
        let printed = documents(&printing.run(["broker", "permissions", "--operator", OPERATOR, "--json"]).with_status(0)).remove(0);
        let subjects = |of: &Value| serde_json::from_value::<Vec<String>>(of.clone()).unwrap();
        let user = |user: &Value| BrokerUser {
            name: user["user"].as_str().unwrap().to_owned(),
            password: PASSWORD.to_owned(),
            publish: subjects(&user["publish"]),
            subscribe: subjects(&user["subscribe"]),
        };
        let users: Vec<_> = printed["brokers"][0]["users"].as_array().unwrap().iter().map(user).collect();
        assert_eq!(users.iter().map(|user| user.name.as_str()).collect::<Vec<_>>(), ["bus", "acme-in", OPERATOR]);
        let spec = BrokerSpec { server_name: "broker.latent.test".to_owned(), ..BrokerSpec::with_users(users) };
        let broker = Broker::start_with_ca(spec.stream(StreamSpec::new("ORDERS", ["orders.>"])).disk(64 << 20), ca);
        Self { broker, root, guest, triggers: triggers.to_owned() }
    }

    /// A node's folder, with its passwords.
    fn node(&self, name: &str) -> CliEnv {
        let env = folder(name, &self.broker.address().to_string(), &self.root, (self.guest, &self.triggers));
        let port = self.broker.address().port().to_string();
        let put = |words: &[&str]| {
            let place = ["--server-name", "broker.latent.test", "--port", &port];
            let words = [&["secret", "put"], words, &place].concat();
            let _ = env.run_with_input(words, PASSWORD.as_bytes().to_vec()).with_status(0);
        };
        put(&["bus", "--bus"]);
        put(&["acme-in", "--tenant", "acme", "--provider", "triggers"]);
        env
    }

    /// The same with everything provisioned.
    fn provisioned(&self, name: &str) -> CliEnv {
        let env = self.node(name);
        assert!(as_operator(&env, &["broker", "provision", "--apply"], 0).contains("done"));
        env
    }

    fn admin<T>(&self, ask: impl AsyncFnOnce(&Admin) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { ask(&self.broker.admin().await).await })
    }

    fn consumer(&self, stream: &str, name: &str) -> Value {
        self.admin(async |admin| admin.consumer(stream, name).await)
    }
}

fn as_operator(env: &CliEnv, words: &[&str], status: i32) -> String {
    let output = env.command(words).envs([("AV_NATS_USER", OPERATOR), ("AV_NATS_PASSWORD", PASSWORD)]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{words:?}: {text}");
    assert!(!text.contains(PASSWORD), "{text}");
    text
}

fn status(env: &CliEnv, id: &str) -> Value {
    let all = documents(&env.run(["trigger", "status", "--json"]).with_status(0));
    all.into_iter().find(|status| status["id"] == json!(id)).unwrap()
}

/// Lines of so many keys in turns, each with its number.
fn numbered(numbers: std::ops::Range<u64>, keys: u64) -> String {
    numbers.map(|number| format!("{{\"key\":\"k{}\",\"n\":{number}}}\n", number % keys)).collect()
}

fn publish_numbered(env: &CliEnv, numbers: std::ops::Range<u64>, keys: u64) {
    let count = numbers.end - numbers.start;
    assert_eq!(publish(env, &["in", "--key-pointer", "/key"], numbered(numbers, keys).as_bytes(), 0).len() as u64, count);
}

/// Numbers that came out, by key, each in the order of the topic.
fn came_out(env: &CliEnv) -> std::collections::BTreeMap<String, Vec<u64>> {
    let mut by_key = std::collections::BTreeMap::<String, Vec<u64>>::new();
    for event in fetched(env, "out", 0) {
        let (key, number) = (event["key"].as_str().unwrap().to_owned(), event["value"]["n"].as_u64().unwrap());
        by_key.entry(key).or_default().push(number);
    }
    by_key
}

fn expected(count: u64, keys: u64) -> std::collections::BTreeMap<String, Vec<u64>> {
    (0..keys).map(|key| (format!("k{key}"), (0..count).filter(|number| number % keys == key).collect())).collect()
}

#[test]
fn consumers_are_made_as_the_profile_needs_them_and_every_difference_is_told_and_mended() {
    require_broker!();
    let world = World::start(FORWARD, &format!("{}{ON_STREAM}", on_topic()));
    let env = world.node("edge");
    assert!(as_operator(&env, &["broker", "check"], 1).contains("its trigger is not woken"));
    let planned = as_operator(&env, &["broker", "provision"], 0);
    for consumer in ["latent_work_p0 of stream av_in", "latent_work_p1 of stream av_in", "intake of stream ORDERS"] {
        assert!(planned.contains(&format!("create consumer {consumer}")), "{planned}");
    }
    assert!(as_operator(&env, &["broker", "provision", "--apply"], 0).contains("done"));
    assert!(as_operator(&env, &["broker", "provision", "--apply"], 0).contains("nothing to do"));
    let made = world.consumer("av_in", "latent_work_p1")["config"].clone();
    let second = 1_000_000_000_u64;
    for (field, value) in [
        ("filter_subject", json!("in.p1")),
        ("ack_policy", json!("explicit")),
        ("max_ack_pending", json!(8)),
        ("ack_wait", json!(3 * second)),
        ("max_deliver", json!(10)),
        ("priority_groups", json!(["latent"])),
        ("priority_policy", json!("pinned_client")),
    ] {
        assert_eq!(made[field], value, "{field}: {made}");
    }
    assert!((3 * second..=6 * second).contains(&made["priority_timeout"].as_u64().unwrap()), "{made}");
    assert!(made["max_waiting"].as_u64().unwrap() >= 8, "{made}");
    // The broker says itself that everybody may do what is needed, and nothing else (T-109).
    let verified = as_operator(&env, &["broker", "permissions", "--operator", OPERATOR, "--verify"], 0);
    assert!(verified.contains("acme-in at") && !verified.contains("not checked"), "{verified}");
    // What a node does not insist on is a risk, and what it does is told with both values.
    let changed = |field: &str, value: Value| {
        let mut settings = made.clone();
        settings[field] = value;
        world.admin(async |admin| admin.add_consumer("av_in", &settings).await);
    };
    changed("priority_timeout", json!(second / 2));
    let told = as_operator(&env, &["broker", "check"], 0);
    assert!(told.contains("risk: consumer latent_work_p1") && told.contains("priority_timeout is 500000000"), "{told}");
    changed("max_deliver", json!(9));
    let told = as_operator(&env, &["broker", "check"], 1);
    assert!(told.contains("does not pull from it") && told.contains("max_deliver: 9 → 10"), "{told}");
    assert!(as_operator(&env, &["broker", "provision", "--apply"], 0).contains("update consumer latent_work_p1"));
    assert_eq!(world.consumer("av_in", "latent_work_p1")["config"]["priority_timeout"], made["priority_timeout"]);
    // More than is needed is kept.
    changed("max_deliver", json!(100));
    assert!(as_operator(&env, &["broker", "provision"], 0).contains("nothing to do"));
}

/// A consumer of the first profile is another one: the way that the refusal tells goes on where it was.
#[test]
fn a_trigger_moves_from_the_first_profile_to_the_second_where_it_was() {
    require_broker!();
    let first = "[[trigger]]\nid = \"work\"\ntopic = \"in\"\nprofile = \"nats-jetstream-pull-v1\"\ndead_letter = \"dead\"\n\
                         operation_timeout_millis = 1000\nack_wait_millis = 3000\nmax_deliveries = 2\nbudget = { wall_time_millis = 900 }\n";
    let world = World::start(FORWARD, first);
    let env = world.provisioned("edge");
    let before = node(&env);
    publish_numbered(&env, 0..10, 2);
    wait_until("all settled", || status(&env, "work")["settled"] == json!(10));
    assert_eq!(before.stop(), Some(0));
    env.write("latent.toml", config(&world.broker.address().to_string(), "edge", &on_topic()));
    let refused = as_operator(&env, &["broker", "provision", "--apply"], 1);
    assert!(refused.contains("max_waiting is 1 and must be at least 8") && refused.contains("nothing was changed"), "{refused}");
    let mut begins = Vec::new();
    for partition in 0..2 {
        let name = format!("latent_work_p{partition}");
        let words = refused.split(&format!("--begin {name}=")).nth(1).unwrap();
        let sequence: String = words.chars().take_while(char::is_ascii_digit).collect();
        begins.extend(["--begin".to_owned(), format!("{name}={sequence}")]);
        world.admin(async |admin| admin.delete_consumer("av_in", &name).await);
    }
    let words: Vec<&str> = ["broker", "provision", "--apply"].into_iter().chain(begins.iter().map(String::as_str)).collect();
    assert!(as_operator(&env, &words, 0).contains("beginning with sequence"));
    assert!(
        as_operator(&env, &["broker", "provision", "--apply"], 0).contains("nothing to do"),
        "where it began is nobody's business any more"
    );
    let after = node(&env);
    publish_numbered(&env, 10..20, 2);
    wait_until("the rest is settled", || status(&env, "work")["settled"] == json!(10));
    assert_eq!(after.stop(), Some(0));
    assert_eq!(came_out(&env), expected(20, 2));
}

#[test]
fn what_a_stream_gives_is_an_event_with_its_subject_its_headers_and_its_bytes() {
    require_broker!();
    let world = World::start(BEHAVE, ON_STREAM);
    let env = world.provisioned("edge");
    let node = node(&env);
    let headers = [("Nats-Msg-Id", "u-1"), ("Content-Type", "text/plain"), ("Lsf-Event-Key", "k"), ("X-Shop", "7")];
    world.admin(async |admin| {
        admin.publish_with("orders.new", &headers, b"see-event").await;
        admin.publish("orders.new", b"ok").await;
        admin.publish("orders.new", b"reject:not today").await;
    });
    wait_until("every message is settled", || status(&env, "intake")["settled"] == json!(3));
    let told = status(&env, "intake");
    assert_eq!(
        (&told["engine"], &told["topic"], &told["terminated"], &told["dead_lettered"]),
        (&json!("nats"), &json!("orders.new"), &json!(2), &json!(2))
    );
    let letters = documents(&env.run(["deadletter", "list", "--json"]).with_status(0));
    let of =
        |sequence: u64| letters.iter().find(|letter| letter["event"]["offset"] == json!(sequence)).unwrap_or_else(|| panic!("{letters:?}"));
    assert_eq!((&of(3)["reason"], &of(3)["detail"], &of(3)["event"]["topic"]), (&json!("rejected"), &json!("not today"), &json!("ORDERS")));
    let seen = of(1)["detail"].as_str().unwrap();
    for words in ["orders.new", "u-1", "text/plain", "X-Shop", "delivery_count: 1", "offset: 1"] {
        assert!(seen.contains(words), "{words}: {seen}");
    }
    assert_eq!(node.stop(), Some(0));
    let info = world.consumer("ORDERS", "intake");
    assert_eq!((&info["num_pending"], &info["num_ack_pending"]), (&json!(0), &json!(0)));
}

/// What is told of an event is the same as on one machine, but for what only the broker knows.
#[test]
fn an_event_that_never_runs_again_is_parked_told_and_replayed() {
    require_broker!();
    let world = World::start(BEHAVE, &on_topic());
    let env = world.provisioned("edge");
    let first = node(&env);
    let uid = deadletter::publish_text(&env, "k", "trap");
    let letter = deadletter::letters(&env, 1).remove(0);
    assert_eq!((&letter["reason"], &letter["attempts"], &letter["trigger"]), (&json!("exhausted"), &json!(2), &json!("work")));
    wait_until("it is terminated", || status(&env, "work")["terminated"] == json!(1));
    let told = status(&env, "work");
    assert_eq!((&told["exhausted"], &told["dead_lettered"], &told["pending"]), (&json!(1), &json!(1), &json!(0)), "{told}");
    let story = documents(&env.run(["why", "in", &uid, "--json"]).with_status(0)).remove(0);
    let attempts: Vec<_> = story["runs"].as_array().unwrap().iter().map(|run| run["attempt"].clone()).collect();
    assert_eq!(attempts, [json!(1), json!(2)], "{story}");
    let text = env.run(["why", "in", &uid]).with_status(0).stdout;
    assert!(text.contains("work: parked in dead/0/") && text.contains("exhausted after 2 attempts"), "{text}");
    env.write("work.wasm", FORWARD.component);
    let _ = env.run(["reload"]).with_status(0);
    let place = letter["place"].as_str().unwrap();
    let replayed = documents(&env.run(["deadletter", "replay", place, "--json"]).with_status(0)).remove(0);
    assert_eq!((&replayed["topic"], &replayed["duplicate"]), (&json!("in"), &json!(false)));
    wait_until("the replay came out", || fetched(&env, "out", 0).len() == 1);
    assert_eq!(first.stop(), Some(0));
}

/// What a broker gave up is nobody's until somebody publishes it again: the trigger says so, and it happens once.
#[test]
fn what_the_broker_gave_up_is_told_and_published_again_once() {
    require_broker!();
    let world = World::start(FORWARD, &on_topic());
    let env = world.provisioned("edge");
    let stored = publish(&env, &["in", "--key-pointer", "/key"], numbered(0..1, 1).as_bytes(), 0).remove(0);
    let (partition, uid) = (stored["partition"].as_u64().unwrap(), stored["uid"].as_str().unwrap());
    let name = format!("latent_work_p{partition}");
    // Somebody has it once, which is as often as it may be, and does not settle it.
    let mut settings = world.consumer("av_in", &name)["config"].clone();
    (settings["max_deliver"], settings["ack_wait"]) = (json!(1), json!(50_000_000));
    world.admin(async |admin| {
        admin.delete_consumer("av_in", &name).await;
        admin.add_consumer("av_in", &settings).await;
        admin.pull_and_leave("av_in", &name, &json!({ "batch": 1, "expires": 500_000_000, "group": "latent" })).await;
    });
    wait_until("the broker gives it up", || world.consumer("av_in", &name)["num_ack_pending"] == json!(0));
    assert!(as_operator(&env, &["broker", "provision", "--apply"], 0).contains(&format!("update consumer {name}")));
    let node = node(&env);
    wait_until("the trigger is stranded", || status(&env, "work")["state"] == json!("stranded"));
    let offset = stored["offset"].as_u64().unwrap();
    let told = status(&env, "work");
    assert_eq!((&told["stranded"], &told["stranded_at"]), (&json!(1), &json!(offset)), "{told}");
    let again = |words: &[&str]| {
        let words = [&["trigger", "redrive", "work", "--json"], words].concat();
        let told = as_operator(&env, &words, 0);
        told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_default()).collect::<Vec<_>>()
    };
    let place = format!("in/{partition}/{offset}");
    let would = again(&["--dry-run"]).remove(0);
    assert_eq!((&would["event"], &would["uid"], &would["dry_run"]), (&json!(place), &json!(format!("{uid}#1")), &json!(true)));
    assert_eq!(again(&[])[0]["duplicate"], json!(false));
    wait_until("it came out", || came_out(&env) == expected(1, 1));
    wait_until("the broker has given up on nothing more", || status(&env, "work")["state"] == json!("idle"));
    assert!(as_operator(&env, &["trigger", "redrive", "work"], 0).contains("has given up on nothing"));
    let unknown =
        env.command(["trigger", "redrive", "wrok"]).envs([("AV_NATS_USER", OPERATOR), ("AV_NATS_PASSWORD", PASSWORD)]).output().unwrap();
    assert!(String::from_utf8(unknown.stderr).unwrap().contains("did you mean work?"));
    assert_eq!(node.stop(), Some(0));
}

/// Two nodes share every partition's consumer: one has it at a time, and another takes it over when that one is killed. Nothing is lost,
/// nothing comes out twice, and each key comes out in order.
#[test]
fn another_node_goes_on_where_one_was_killed() {
    require_broker!();
    const EVENTS: u64 = 400;
    let world = World::start(FORWARD, &on_topic());
    let (one, other) = (world.provisioned("one"), world.node("other"));
    let (mut first, second) = (node(&one), node(&other));
    let line = |env: &CliEnv| status(env, "work")["settled"].as_u64().unwrap();
    publish_numbered(&one, 0..EVENTS / 2, 5);
    wait_until("some are settled", || line(&one) + line(&other) > 20);
    first.child.kill().unwrap();
    publish_numbered(&other, EVENTS / 2..EVENTS, 5);
    wait_until("everything came out", || fetched(&other, "out", 0).len() as u64 >= EVENTS);
    wait_until("everything is settled", || status(&other, "work")["pending"] == json!(0));
    assert_eq!(second.stop(), Some(0));
    assert_eq!(came_out(&other), expected(EVENTS, 5));
    for partition in 0..2 {
        let info = world.consumer("av_in", &format!("latent_work_p{partition}"));
        assert_eq!((&info["num_pending"], &info["num_ack_pending"]), (&json!(0), &json!(0)), "{info}");
    }
}
