//! `[engine]` on a broker: what it says, and every mistake with its line.

use latent_core::TenantId;
use latent_testkit::broker::TestCa;

use super::super::settings::BrokerUser;
use super::*;

pub(super) const ON_NATS: &str = r#"[node]
name = "edge-1"
data_dir = "data"

[engine]
kind = "nats"
manifest = "bridge.yaml"
address = "192.0.2.10:4222"
allow_non_public_peer = "192.0.2.10:4222"
server_name = "nats.example.net"
roots = ["ca.der"]
bus_credential = "edge-1-bus"
trigger_credentials = { acme = "acme-trigger", bolt = { user = "bolt", secret = "bolt-trigger" } }

[secrets]
key_file = "secrets.key"

[[topic]]
name = "github.events"
tenant = "acme"
"#;

pub(super) fn with_root() -> Folder {
    let folder = folder();
    std::fs::write(folder.path.with_file_name("ca.der"), TestCa::new().root_der()).unwrap();
    std::fs::write(
        folder.path.with_file_name("cold.yaml"),
        MANIFEST.replace("partitions: 4", "partitions: 4, retention: { cold_uri: cold }"),
    )
    .unwrap();
    folder
}

/// Every problem as `line kind`, and the texts of all of them.
pub(super) fn seen(text: &str) -> (Vec<String>, String) {
    let problems = match parse(&with_root().path, text, NamedFiles::MustExist) {
        Ok(_) => Vec::new(),
        Err(error) => error.problems,
    };
    let placed = problems.iter().map(|problem| format!("{} {}", problem.line.unwrap_or_default(), problem.kind)).collect();
    (placed, problems.iter().map(|problem| format!("{problem}\n")).collect())
}

fn user(user: &str, secret: &str) -> BrokerUser {
    BrokerUser { user: user.to_owned(), secret: latent_secrets::SecretName::parse(secret).unwrap() }
}

#[test]
fn a_broker_is_read_with_its_defaults_and_each_form_of_a_credential() {
    let folder = with_root();
    let loaded = parse(&folder.path, ON_NATS, NamedFiles::MustExist).unwrap();
    let engine = loaded.config.engine;
    assert_eq!((engine.manifest.topics.len(), engine.maintenance_interval_seconds()), (3, 60));
    let broker = engine.broker().unwrap();
    assert_eq!((broker.peer.address().to_string().as_str(), broker.peer.server_name()), ("192.0.2.10:4222", "nats.example.net"));
    let root = std::fs::read(folder.path.with_file_name("ca.der")).unwrap();
    assert_eq!(broker.peer.roots().collect::<Vec<_>>(), [root.as_slice()]);
    assert!(broker.tls_first, "unless said otherwise");
    assert_eq!(broker.bus_credential, user("edge-1-bus", "edge-1-bus"));
    let of = |tenant: &str| broker.trigger_credentials.get(&TenantId::parse(tenant).unwrap()).cloned();
    assert_eq!((of("acme"), of("bolt")), (Some(user("acme-trigger", "acme-trigger")), Some(user("bolt", "bolt-trigger"))));
    let other = ON_NATS
        .replace("bus_credential = \"edge-1-bus\"", "tls_first = false\nbus_credential = { user = \"edge\", secret = \"bus\" }")
        .replace("trigger_credentials = {", "# {");
    let loaded = parse(&folder.path, &other, NamedFiles::MustExist).unwrap();
    let broker = loaded.config.engine.broker().unwrap().clone();
    assert_eq!((broker.tls_first, broker.bus_credential, broker.trigger_credentials.len()), (false, user("edge", "bus"), 0));
}

pub(super) const TRIGGER: &str = "\n[[service]]\nname = \"triage\"\ntenant = \"acme\"\ncomponent = \"triage.wasm\"\n\n[[trigger]]\nid = \"t\"\n\
                       tenant = \"acme\"\nservice = \"triage\"\ntopic = \"github.events\" # woken\n";

#[test]
fn each_mistake_of_a_broker_has_its_line_and_says_what_to_do() {
    let address = "address = \"192.0.2.10:4222\"";
    let cases: &[Case] = &[
        ("\naddress = \"192.0.2.10:4222\"", "", &[("[engine]", "config-missing-key", "address is missing in [engine]")]),
        (address, "address = \"nats.example.net:4222\"", &[("address", "config-broker", "IPv4 address with a port")]),
        (address, "address = \"[::1]:4222\"", &[("address", "config-broker", "IPv4 address with a port")]),
        (
            "allow_non_public_peer = \"192.0.2.10:4222\"\n",
            "",
            &[("address", "config-broker", "write allow_non_public_peer = \"192.0.2.10:4222\"")],
        ),
        (
            "allow_non_public_peer = \"192.0.2.10:4222\"",
            "allow_non_public_peer = \"192.0.2.10:4223\"",
            &[("allow_non_public_peer", "config-broker", "identical address")],
        ),
        ("server_name = \"nats.example.net\"", "server_name = \"192.0.2.10\"", &[("server_name", "config-broker", "not a DNS name")]),
        ("server_name = \"nats.example.net\"", "", &[("[engine]", "config-missing-key", "server_name is missing")]),
        ("roots = [\"ca.der\"]", "roots = []", &[("roots", "config-empty", "roots = [\"ca.der\"]")]),
        ("roots = [\"ca.der\"]", "", &[("[engine]", "config-missing-key", "roots is missing")]),
        ("roots = [\"ca.der\"]", "roots = [\"gone.der\"]", &[("roots", "config-broker", "gone.der")]),
        ("roots = [\"ca.der\"]", "roots = [\"bridge.yaml\"]", &[("roots", "config-broker", "not a certificate in DER form")]),
        ("bus_credential = \"edge-1-bus\"", "", &[("[engine]", "config-missing-key", "bus_credential is missing")]),
        ("bus_credential = \"edge-1-bus\"", "bus_credential = 7", &[("bus_credential", "config-wrong-type", "a string or a table")]),
        ("bus_credential = \"edge-1-bus\"", "bus_credential = \"edge 1\"", &[("bus_credential", "config-secret-name", "secret list")]),
        (
            "bus_credential = \"edge-1-bus\"",
            "bus_credential = { user = \"edge 1\", secert = \"bus\" }",
            &[
                ("bus_credential", "config-missing-key", "secret is missing in bus_credential of [engine]"),
                ("bus_credential", "config-broker", "printable ASCII without spaces"),
                ("bus_credential", "config-unknown-key", "did you mean \"secret\"?"),
            ],
        ),
        ("acme = \"acme-trigger\"", "\"a b\" = \"acme-trigger\"", &[("trigger_credentials", "config-name", "tenant")]),
        ("acme = \"acme-trigger\"", "acme = true", &[("trigger_credentials", "config-wrong-type", "a string or a table")]),
        ("acme = \"acme-trigger\"", "acme = \"\"", &[("trigger_credentials", "config-secret-name", "secret list")]),
        ("bus_credential =", "tls_first = \"yes\"\nbus_credential =", &[("tls_first", "config-wrong-type", "true or false")]),
        (
            "bus_credential =",
            "maintenance_interval_seconds = 60\nbus_credential =",
            &[("maintenance", "config-other-engine", "is no setting of kind = \"nats\"; remove it, or use kind = \"embedded\"")],
        ),
        (
            "server_name =",
            "sever_name =",
            &[
                ("[engine]", "config-missing-key", "server_name is missing"),
                ("sever_name", "config-unknown-key", "did you mean \"server_name\"?"),
            ],
        ),
        ("[secrets]\nkey_file = \"secrets.key\"\n", "", &[("bus_credential", "config-no-secrets", "[engine] has credentials")]),
        ("bridge.yaml", "cold.yaml", &[("manifest", "config-no-control-key", "add [archive]")]),
        (
            "name = \"github.events\"\n",
            "name = \"github.events\"\nshare = [{ tenant = \"b\", may = [\"publish\"] }]\n",
            &[("name = \"github.events\"", "config-share-on-nats", "a topic of its own")],
        ),
    ];
    for (replaced, by, expected) in cases {
        assert!(ON_NATS.contains(replaced), "{replaced}");
        let text = ON_NATS.replacen(replaced, by, 1);
        let (placed, texts) = seen(&text);
        let lines: Vec<_> = expected.iter().map(|(needle, kind, _)| format!("{} {kind}", line_of(&text, needle))).collect();
        let mut sorted = placed.clone();
        sorted.sort();
        let mut wanted = lines.clone();
        wanted.sort();
        assert_eq!(sorted, wanted, "{by}: {texts}");
        for (_, _, words) in *expected {
            assert!(texts.contains(words), "{by}: {texts} lacks {words}");
        }
    }
    assert_eq!(seen(ON_NATS).0, Vec::<String>::new());
}

#[test]
fn several_mistakes_are_told_at_once_whatever_the_manifest_is_like() {
    let text = format!("{}{TRIGGER}", ON_NATS.replace("bridge.yaml", "gone.yaml").replace("roots = [\"ca.der\"]\n", ""));
    let kinds: Vec<_> = seen(&text).0.into_iter().map(|placed| placed.split_once(' ').unwrap().1.to_owned()).collect();
    assert_eq!(kinds, ["config-missing-key", "config-manifest"]);
}

#[test]
fn a_provider_may_not_put_raw_messages_into_a_topic_of_the_bridge() {
    let with_mapping = |subject: &str, stream: &str| {
        let provider = format!(
            r#"
[[provider]]
id = "shop"
profile = "nats-jetstream-publish-v1"
address = "192.0.2.10:4222"
allow_non_public_peer = "192.0.2.10:4222"
server_name = "nats.example.net"
roots = ["ca.der"]
idempotency_namespace = "edge"
payload_ceiling_bytes = 65536
operation_timeout_millis = 5000
duplicate_window_millis = 120000
mappings = [{{ tenant = "acme", topic = "orders", subject = "{subject}", stream = "{stream}" }}]
credentials = [{{ tenant = "acme", user = "acme", secret = "acme-nats" }}]
"#
        );
        seen(&format!("{ON_NATS}{provider}"))
    };
    assert_eq!(with_mapping("orders.new", "ORDERS"), (Vec::new(), String::new()));
    for (subject, stream) in [("github.events.p3", "ORDERS"), ("orders.new", "av_github_events")] {
        let (placed, told) = with_mapping(subject, stream);
        assert_eq!(placed, ["23 config-provider"], "{told}");
        assert!(told.contains("github.events") && told.contains("stream of its own"), "{told}");
    }
    assert_eq!(with_mapping("github.events.p4", "ORDERS").0, Vec::<String>::new(), "the topic has four partitions");
}
