//! `latent broker`: streams and permissions of a broker, with an operator's own user. That the example runs on a broker which was set up
//! with it alone is shown in `tests/webhooks/broker.rs`.

use std::os::unix::fs::PermissionsExt as _;

use latent_test_guests::PLAIN;
use latent_testkit::broker::{Admin, Broker, BrokerSpec, BrokerUser, StreamSpec};
use latent_testkit::require_broker;

use super::*;

const OPERATOR: &str = "ops";
/// Of every user; it must be in nothing that is printed.
const PASSWORD: &str = "MARKER-77c1";

const TOPICS: &str = "\
manifest_version: 1
name: demo
topics:
  - { name: in.raw, partitions: 2, retention: { hot_hours: 2 } }
  - { name: out, partitions: 1, retention: { hot_hours: 2 } }
";

fn config(address: &str, elsewhere: &str) -> String {
    let endpoint = |address: &str| {
        format!(
            "address = \"{address}\"\nallow_non_public_peer = \"{address}\"\nserver_name = \"broker.latent.test\"\nroots = [\"ca.der\"]\n"
        )
    };
    let provider = |id: &str, address: &str, mappings: &str, credentials: &str| {
        format!(
            "[[provider]]\nid = \"{id}\"\nprofile = \"nats-jetstream-publish-v1\"\n{}idempotency_namespace = \"edge\"\n\
             payload_ceiling_bytes = 65536\noperation_timeout_millis = 5000\nduplicate_window_millis = 120000\n\
             mappings = [{mappings}]\ncredentials = [{credentials}]\n",
            endpoint(address)
        )
    };
    let shop = provider(
        "shop",
        address,
        "{ tenant = \"acme\", topic = \"orders\", subject = \"orders.new\", stream = \"ORDERS\" }, \
         { tenant = \"bolt\", topic = \"bills\", subject = \"bills.new\", stream = \"BILLS\" }",
        "{ tenant = \"acme\", user = \"acme\", secret = \"acme-nats\" }, { tenant = \"bolt\", user = \"bolt\", secret = \"bolt-nats\" }",
    );
    let far = provider(
        "far",
        elsewhere,
        "{ tenant = \"acme\", topic = \"calls\", subject = \"calls\", stream = \"CALLS\" }",
        "{ tenant = \"acme\", user = \"acme\", secret = \"far-nats\" }",
    );
    format!(
        "[node]\nname = \"edge-1\"\ndata_dir = \"data\"\n[engine]\nkind = \"nats\"\nmanifest = \"bridge.yaml\"\n{}bus_credential = \"edge-1-bus\"\n\
         [secrets]\nkey_file = \"secrets.key\"\n{shop}{far}\
         [[topic]]\nname = \"in.raw\"\ntenant = \"acme\"\n[[topic]]\nname = \"out\"\ntenant = \"acme\"\n\
         [[service]]\nname = \"plain\"\ntenant = \"acme\"\ncomponent = \"plain.wasm\"\n\
         grants = [{{ capability = \"latent:events/publisher@0.2.0\", topics = [\"orders\", \"out\"] }}]\n",
        endpoint(address)
    )
}

const ELSEWHERE: &str = "127.0.0.1:4223";

/// A folder with a configuration for a broker there.
fn with_config(address: &str, root: &[u8]) -> CliEnv {
    let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
    env.write("bridge.yaml", TOPICS);
    env.write("plain.wasm", PLAIN.component);
    env.write("ca.der", root);
    let key = env.write("secrets.key", [7; 32]);
    std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600)).unwrap();
    env.write("latent.toml", config(address, ELSEWHERE));
    env
}

fn without_broker() -> CliEnv {
    with_config("127.0.0.1:4222", &latent_testkit::broker::TestCa::new().root_der())
}

/// Runs it with these variables. The marker must be in nothing that it says.
fn run_with(env: &CliEnv, variables: &[(&str, &str)], words: &[&str], status: i32) -> (String, String) {
    let output = env.command(words).envs(variables.iter().copied()).output().unwrap();
    let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(status), "{words:?}: {out}{error}");
    assert!(!out.contains(PASSWORD) && !error.contains(PASSWORD), "{out}{error}");
    (out, error)
}

fn as_operator(env: &CliEnv, words: &[&str], status: i32) -> (String, String) {
    run_with(env, &[("AV_NATS_USER", OPERATOR), ("AV_NATS_PASSWORD", PASSWORD)], words, status)
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text.lines().next().unwrap()).unwrap_or_else(|_| panic!("{text}"))
}

/// The users of the printed document that belong to the first broker, with the operator's name.
fn printed_users(env: &CliEnv) -> Vec<BrokerUser> {
    let (document, _) = as_operator(env, &["broker", "permissions", "--json"], 0);
    let subjects = |of: &Value| serde_json::from_value(of.clone()).unwrap();
    let users = json_of(&document)["brokers"][0]["users"].as_array().unwrap().clone();
    let user = |user: &Value| BrokerUser {
        name: user["user"].as_str().unwrap().to_owned(),
        password: PASSWORD.to_owned(),
        publish: subjects(&user["publish"]),
        subscribe: subjects(&user["subscribe"]),
    };
    users.iter().map(user).collect()
}

/// A broker with the printed users after `change`, with or without the streams of raw subjects, and a folder for it.
fn with_broker(streams: &[StreamSpec], change: impl FnOnce(&mut Vec<BrokerUser>)) -> (Broker, CliEnv) {
    let ca = latent_testkit::broker::TestCa::new();
    let root = ca.root_der();
    let mut users = printed_users(&with_config("127.0.0.1:4222", &root));
    change(&mut users);
    let spec = BrokerSpec { streams: streams.to_vec(), ..BrokerSpec::with_users(users) };
    let broker = Broker::start_with_ca(spec.disk(64 << 20), ca);
    let env = with_config(&broker.address().to_string(), &root);
    (broker, env)
}

fn raw_streams() -> [StreamSpec; 2] {
    [StreamSpec::new("ORDERS", ["orders.>"]), StreamSpec::new("BILLS", ["bills.new"])]
}

fn put_secrets(env: &CliEnv, broker: &Broker) {
    let (name, port) = (broker.server_name(), broker.address().port().to_string());
    let at = ["--server-name", &name, "--port", &port];
    let put = |words: &[&str]| {
        let words = [&["secret", "put"], words, &at].concat();
        let _ = env.run_with_input(words, PASSWORD.as_bytes().to_vec()).with_status(0);
    };
    put(&["edge-1-bus", "--bus"]);
    put(&["acme-nats", "--tenant", "acme", "--provider", "shop"]);
}

fn with_admin<T>(broker: &Broker, ask: impl AsyncFnOnce(Admin) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { ask(broker.admin().await).await })
}

fn stream_names(broker: &Broker) -> Vec<String> {
    with_admin(broker, async |admin| {
        let reply = admin.client().request("$JS.API.STREAM.NAMES", "".into()).await.unwrap();
        serde_json::from_value(serde_json::from_slice::<Value>(&reply.payload).unwrap()["streams"].clone()).unwrap_or_default()
    })
}

#[test]
fn the_block_has_one_user_for_each_purpose_and_tenant_and_no_password() {
    let env = without_broker();
    let (text, _) = run_with(&env, &[], &["broker", "permissions"], 0);
    assert_eq!(text.matches("authorization {").count(), 2, "one for each broker: {text}");
    let (first, second) = text.split_once("\n# The broker 127.0.0.1:4223").unwrap();
    for (user, variable) in [
        ("edge-1-bus", "LATENT_EDGE_1_BUS_PASSWORD"),
        ("acme", "LATENT_ACME_PASSWORD"),
        ("bolt", "LATENT_BOLT_PASSWORD"),
        ("latent-operator", "LATENT_LATENT_OPERATOR_PASSWORD"),
    ] {
        assert!(first.contains(&format!("      user: \"{user}\"\n      password: ${variable}\n")), "{first}");
    }
    assert!(!second.contains("edge-1-bus") && second.contains("\"calls\"") && second.contains("looks at streams"), "{second}");
    let of = |user: &str| first.split_once(&format!("user: \"{user}\"")).unwrap().1.split_once("\n    }\n").unwrap().0.to_owned();
    let subjects = |user: &str| of(user).lines().filter(|line| line.trim_start().starts_with('"')).count();
    assert_eq!((subjects("acme"), subjects("bolt")), (2, 2), "its subject, its inboxes");
    assert!(of("acme").contains("\"orders.new\"") && of("bolt").contains("\"bills.new\"") && !of("bolt").contains("orders"));
    // Two topics of two partitions and one: 3 subjects, 3 readers, 4 requests of each stream; and the inboxes.
    assert_eq!(subjects("edge-1-bus"), 3 + 3 + 2 * 4 + 1);
    assert!(of("latent-operator").contains("STREAM.CREATE.av_in_raw") && !of("latent-operator").contains("DELETE"));
}

#[test]
fn a_name_for_several_purposes_is_one_user_and_said_and_a_token_is_none() {
    let env = without_broker();
    let good = config("127.0.0.1:4222", ELSEWHERE);
    env.write("latent.toml", good.replace("user = \"bolt\", ", "").replacen("user = \"acme\"", "user = \"edge-1-bus\"", 1));
    let (text, _) = run_with(&env, &[], &["broker", "permissions"], 0);
    assert!(text.contains("# NOT IN HERE: tenant bolt of provider shop"), "{text}");
    assert_eq!(text.matches("user: \"edge-1-bus\"").count(), 1);
    assert!(text.contains("one name for all of these"), "{text}");
    let taken = [("AV_NATS_USER", "edge-1-bus"), ("AV_NATS_PASSWORD", PASSWORD)];
    let (_, refused) = run_with(&env, &taken, &["broker", "permissions"], 2);
    assert!(refused.contains("must not be able to make streams"), "{refused}");
    env.write("latent.toml", CONFIG);
    env.write("bridge.yaml", MANIFEST);
    for words in [&["broker", "permissions"][..], &["broker", "provision"]] {
        let (_, refused) = as_operator(&env, words, 2);
        assert!(refused.contains("has nothing on a broker"), "{refused}");
    }
}

#[test]
fn who_the_operator_is_must_be_said_and_is_never_the_node() {
    let env = without_broker();
    let user = |name: &'static str| [("AV_NATS_USER", name), ("AV_NATS_PASSWORD", PASSWORD)];
    let provision = ["broker", "provision", "--json"];
    let alone = ["broker", "provision", "--manifest", "bridge.yaml", "--json"];
    let with = |more: &[(&'static str, &'static str)]| [&user(OPERATOR)[..], more].concat();
    type Case<'c> = (Vec<(&'c str, &'c str)>, &'c [&'c str], &'c str);
    let cases: [Case<'_>; 6] = [
        (Vec::new(), &provision, "are not set"),
        (vec![("AV_NATS_USER", OPERATOR)], &provision, "must be set together"),
        (user("edge-1-bus").to_vec(), &provision, "the node's own user"),
        (with(&[("AV_NATS_CA_FILE", "ca.pem")]), &provision, "AV_NATS_CA_FILE is set and AV_NATS_URL is not"),
        (with(&[]), &alone, "AV_NATS_URL is not set"),
        (with(&[("AV_NATS_URL", "http://a")]), &provision, "cannot be dialled"),
    ];
    for (variables, words, told) in cases {
        let (_, refused) = run_with(&env, &variables, words, 2);
        assert!(refused.contains("\"environment\"") && refused.contains(told), "{variables:?}: {refused}");
        let is_of_address = told.starts_with("AV_NATS_URL") || told == "cannot be dialled";
        assert_eq!(refused.contains("set AV_NATS_URL to"), is_of_address, "what is advised is what is missing: {refused}");
    }
}

#[test]
fn a_plan_changes_nothing_and_applying_it_makes_the_streams_of_the_topics_only() {
    require_broker!();
    let (broker, env) = with_broker(&raw_streams()[..1], |_| ());
    let (plan, refused) = as_operator(&env, &["broker", "provision"], 1);
    for told in [
        "create stream av_in_raw of topic in.raw",
        "run it with --apply",
        "fits: stream ORDERS of provider shop (subjects orders.new)",
        "does not fit: stream BILLS of provider shop",
        "provider far is on another broker, 127.0.0.1:4223",
    ] {
        assert!(plan.contains(told), "{plan}");
    }
    assert!(refused.contains("BILLS: it is not there; make it with the subjects bills.new"), "{refused}");
    assert_eq!(stream_names(&broker), ["ORDERS"], "nothing was made");
    let (applied, refused) = as_operator(&env, &["broker", "provision", "--apply", "--json"], 1);
    let applied = json_of(&applied);
    assert_eq!((&applied["applied"], &applied["topics"][0]["action"]), (&json!(true), &json!("create")), "{applied}");
    assert_eq!((&applied["streams"][0]["stream"], &applied["streams"][0]["problems"]), (&json!("ORDERS"), &json!([])), "{applied}");
    assert_eq!(json_of(&refused)["error"]["kind"], json!("unfit-streams"), "{refused}");
    assert_eq!(stream_names(&broker), ["ORDERS", "av_in_raw", "av_out"]);
    // What is there is kept; what cannot be is refused with both sides, and then nothing is done.
    with_admin(&broker, async |admin| admin.add_stream(&raw_streams()[1]).await);
    let (again, _) = as_operator(&env, &["broker", "provision", "--apply"], 0);
    assert!(again.contains("keep stream av_in_raw") && again.ends_with("nothing to do\n"), "{again}");
    env.write("bridge.yaml", TOPICS.replace("partitions: 2", "partitions: 3").replace("out, ", "new, "));
    let ca = env.write("ca.pem", broker.ca().root_pem());
    let url = format!("tls://{}", broker.address());
    let elsewhere = [("AV_NATS_URL", &*url), ("AV_NATS_TLS_FIRST", "true"), ("AV_NATS_CA_FILE", ca.to_str().unwrap())];
    let variables = [&[("AV_NATS_USER", OPERATOR), ("AV_NATS_PASSWORD", PASSWORD)], &elsewhere[..]].concat();
    // The certificate is of another name than the address, which is what the environment goes by.
    let (_, refused) = run_with(&env, &variables, &["broker", "provision", "--manifest", "bridge.yaml", "--apply"], 1);
    assert!(refused.contains("certificate"), "{refused}");
    env.write(
        "latent.toml",
        config(&broker.address().to_string(), ELSEWHERE).replace("name = \"out\"", "name = \"new\"").replace("\"out\"", "\"new\""),
    );
    let (plan, refused) = as_operator(&env, &["broker", "provision", "--apply"], 1);
    assert!(plan.contains("refused") && refused.contains("nothing was changed") && refused.contains("in.raw.p0"), "{plan}{refused}");
    assert_eq!(stream_names(&broker), ["BILLS", "ORDERS", "av_in_raw", "av_out"]);
}

#[test]
fn a_broker_with_the_printed_permissions_is_proved_to_have_them_and_no_others() {
    require_broker!();
    let (broker, env) = with_broker(&raw_streams(), |_| ());
    let (_, nobody) = run_with(&env, &[], &["broker", "permissions", "--verify"], 1);
    assert!(nobody.contains("no user's password is at hand"), "{nobody}");
    as_operator(&env, &["broker", "provision", "--apply"], 0);
    put_secrets(&env, &broker);
    // Whoever is not asked about is a hole in the proof, and the end says so.
    let (verified, hole) = as_operator(&env, &["broker", "permissions", "--verify"], 1);
    assert!(hole.contains("user bolt at 127.0.0.1") && hole.contains("not checked: there is no secret bolt-nats"), "{hole}");
    assert!(!hole.contains("user ops at"), "the operator of another broker cannot be at hand: {hole}");
    for told in [
        "edge-1-bus at 127.0.0.1",
        ": what it needs: 15 of 15 permitted",
        "acme at 127.0.0.1",
        ": what it needs: 2 of 2 permitted",
        "bolt at 127.0.0.1",
        "not checked: there is no secret bolt-nats",
        "acme at 127.0.0.1:4223: not checked",
        "ops at 127.0.0.1",
        "ops at 127.0.0.1:4223: not checked",
        "(nobody) at 127.0.0.1",
        ": connecting without a user: 1 of 1 refused",
    ] {
        assert!(verified.contains(told), "{told} is not in {verified}");
    }
    // A password that the broker does not take is told, and the others are asked all the same.
    let _ = env.run_with_input(["secret", "rotate", "acme-nats"], b"other".to_vec()).with_status(0);
    let (verified, refused) = as_operator(&env, &["broker", "permissions", "--verify"], 1);
    assert!(refused.contains("refuses user \"acme\"") && verified.contains("ops at 127.0.0.1"), "{verified}{refused}");
    assert!(verified.contains(": could not be asked"), "{verified}");
    with_admin(&broker, async |admin| assert_eq!((admin.count("av_out").await, admin.count("ORDERS").await, admin.consumers()), (0, 0, 0)));
    // Behind other roots nobody is asked, and nobody was refused.
    env.write("ca.der", latent_testkit::broker::TestCa::new().root_der());
    let (verified, refused) = as_operator(&env, &["broker", "permissions", "--verify"], 1);
    assert!(verified.contains(&format!("(nobody) at {}: could not be asked", broker.address())), "{verified}");
    assert!(
        !verified.contains("1 of 1 refused") && refused.contains("user (nobody) at") && refused.contains("is not accepted"),
        "{refused}"
    );
}

#[test]
fn every_user_that_was_asked_and_is_as_it_should_be_is_status_0() {
    require_broker!();
    let (broker, env) = with_broker(&raw_streams(), |_| ());
    as_operator(&env, &["broker", "provision", "--apply"], 0);
    put_secrets(&env, &broker);
    let (name, port) = (broker.server_name(), broker.address().port().to_string());
    let words = ["secret", "put", "bolt-nats", "--tenant", "bolt", "--provider", "shop", "--server-name", &name, "--port", &port];
    let _ = env.run_with_input(words, PASSWORD.as_bytes().to_vec()).with_status(0);
    let config = std::fs::read_to_string(env.folder().join("latent.toml")).unwrap();
    let (before, far) = config.split_once("[[provider]]\nid = \"far\"").unwrap();
    let (_, after) = far.split_once("[[topic]]").unwrap();
    env.write("latent.toml", format!("{before}[[topic]]{after}"));
    let (verified, _) = as_operator(&env, &["broker", "permissions", "--verify"], 0);
    assert!(verified.contains("what it needs: 15 of 15 permitted") && verified.contains("1 of 1 refused"), "{verified}");
}

#[test]
fn each_permission_too_much_or_missing_is_named() {
    require_broker!();
    let (broker, env) = with_broker(&raw_streams(), |users| {
        let bus = &mut users[0];
        assert_eq!(bus.name, "edge-1-bus");
        bus.publish.retain(|subject| subject != "$JS.API.STREAM.MSG.GET.av_out");
        bus.publish.extend(["orders.*", "$JS.API.STREAM.DELETE.*"].map(str::to_owned));
        users[1].subscribe.push("in.raw.>".to_owned());
    });
    as_operator(&env, &["broker", "provision", "--apply"], 0);
    put_secrets(&env, &broker);
    let (out, error) = as_operator(&env, &["broker", "permissions", "--verify", "--json"], 1);
    let error = json_of(&error)["error"].clone();
    assert_eq!(error["kind"], json!("broker-permissions"), "{error}");
    let address = broker.address();
    for told in [
        format!("user edge-1-bus at {address}: missing: publish $JS.API.STREAM.MSG.GET.av_out"),
        format!("user edge-1-bus at {address}: too much: publish orders.new"),
        format!("user edge-1-bus at {address}: too much: publish $JS.API.STREAM.DELETE.av_in_raw"),
        format!("user acme at {address}: too much: subscribe in.raw.p0"),
    ] {
        assert!(error["why"].as_str().unwrap().contains(&told), "{told}: {error}");
    }
    let bus = json_of(&out);
    assert_eq!((&bus["missing"], &bus["unanswered"]), (&json!(["publish $JS.API.STREAM.MSG.GET.av_out"]), &json!([])), "{bus}");
    assert!(!stream_names(&broker).is_empty(), "what may be deleted is still there");
}

#[test]
fn what_is_unsafe_of_a_broker_is_said_in_plain_words_with_what_to_do() {
    require_broker!();
    let short = raw_streams().map(|stream| stream.duplicate_window(Duration::from_secs(1)));
    let (broker, env) = with_broker(&short[..1], |_| ());
    // Nothing is there yet; a raw stream has too short a window.
    let (found, error) = as_operator(&env, &["broker", "check"], 1);
    for told in [
        "unsafe: topic in.raw: its stream av_in_raw is not there",
        "unsafe: stream ORDERS: its duplicate window is 1s and the configuration says 120s",
        "risk: stream ORDERS: it is kept in memory",
        "unsafe: stream BILLS: it is not there",
        "risk: every topic: one replica",
        "unknown: the broker: sync_interval",
    ] {
        assert!(found.contains(told), "{told} is not in {found}");
    }
    assert!(error.contains("the broker is not safe"), "{error}");
    assert!(!found.contains("TLS") && !found.contains("without a user"), "{found}");
    with_admin(&broker, async |admin| {
        let hour = 3_600_000_000_000_u64;
        for (stream, subjects, more) in [
            ("av_in_raw", json!(["in.raw.p0", "in.raw.p1"]), json!({ "max_age": 2 * hour, "duplicate_window": hour, "max_msgs": 5 })),
            ("av_out", json!(["out.p0"]), json!({ "max_age": hour, "duplicate_window": hour, "storage": "memory" })),
        ] {
            let mut config = json!({ "name": stream, "subjects": subjects, "storage": "file", "num_replicas": 1, "allow_direct": true });
            config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let reply = admin.client().request(format!("$JS.API.STREAM.CREATE.{stream}"), config.to_string().into()).await.unwrap();
            assert!(!String::from_utf8_lossy(&reply.payload).contains("\"error\""), "{:?}", reply.payload);
        }
    });
    let (found, error) = as_operator(&env, &["broker", "check", "--json"], 1);
    assert_eq!(json_of(&error)["error"]["kind"], json!("broker-unsafe"), "{error}");
    let found: Vec<Value> = found.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let has = |level: &str, object: &str, words: &str| {
        found.iter().any(|of| of["level"] == level && of["object"] == object && of["finding"].as_str().unwrap().contains(words))
    };
    assert!(has("unsafe", "topic in.raw", "uids are forgotten after 3600s and the manifest says 7200s"), "{found:?}");
    assert!(has("risk", "topic in.raw", "max_msgs is 5"), "{found:?}");
    assert!(has("unsafe", "topic out", "storage") && has("unsafe", "topic out", "events are removed after 3600s"), "{found:?}");
    assert!(found.iter().all(|of| !of["next"].as_str().unwrap().is_empty()), "{found:?}");
}

#[test]
fn a_broker_that_speaks_before_tls_or_lets_anybody_in_is_unsafe() {
    require_broker!();
    let ca = latent_testkit::broker::TestCa::new();
    let root = ca.root_der();
    let open = format!(
        "authorization {{ users: [{{ user: {OPERATOR}, password: \"{PASSWORD}\" }}, {{ user: guest, password: x }}] }}\nno_auth_user: guest"
    );
    let spec = BrokerSpec { handshake_first_within: Some("300ms"), ..BrokerSpec::with_raw_users(open) };
    let broker = Broker::start_with_ca(spec.disk(64 << 20), ca);
    let env = with_config(&broker.address().to_string(), &root);
    as_operator(&env, &["broker", "provision", "--apply"], 1);
    let (found, _) = as_operator(&env, &["broker", "check"], 1);
    assert!(found.contains("unsafe: the broker: a client that does not begin with TLS is greeted outside it"), "{found}");
    assert!(found.contains("unsafe: the broker: a client without a user gets in"), "{found}");
}
