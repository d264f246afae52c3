//! Configuration as people write it: the whole example, and every mistake with its line.

use std::path::{Path, PathBuf};

use latent_core::Budget;

use super::load::parse;
use super::problem::PlacedProblem;
use super::settings::{EngineKind, KeySource, SecretsConfig, SharePermission, StartPosition};
use super::*;

mod broker;
mod lanes;

const MANIFEST: &str = "\
manifest_version: 1
name: demo
topics:
  - { name: github.events, partitions: 4 }
  - { name: triage.results, partitions: 2 }
  - { name: wide, partitions: 1024 }
";

/// The example of the documentation, less what is not built yet.
const EXAMPLE: &str = r#"[node]
name = "edge-1"
data_dir = "data"

[engine]                      # the log behind topics
kind = "embedded"
manifest = "bridge.yaml"

[[topic]]
name = "github.events"
tenant = "acme"

[[topic]]
name = "triage.results"
tenant = "acme"

[[service]]
name = "triage"
tenant = "acme"
component = "triage.wasm"
grants = [{ capability = "latent:events/publisher@0.2.0", topics = ["triage.results"] }]

[[trigger]]
id = "triage-github"
tenant = "acme"
service = "triage"
topic = "github.events"
max_deliveries = 5
budget = { cpu_fuel = 50_000_000, memory_bytes = 33_554_432, wall_time_millis = 2_000, outbound_requests = 4, log_bytes = 65_536 }
"#;

struct Folder {
    _temp: tempfile::TempDir,
    path: PathBuf,
}

/// A folder with the example's manifest and a component.
fn folder() -> Folder {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("bridge.yaml"), MANIFEST).unwrap();
    std::fs::write(temp.path().join("triage.wasm"), b"\0asm\x0d\0\x01\0").unwrap();
    std::fs::write(temp.path().join("module.wasm"), b"\0asm\x01\0\0\0").unwrap();
    std::fs::write(temp.path().join("newer.wasm"), b"\0asm\x0e\0\x01\0").unwrap();
    std::fs::write(temp.path().join("text.wasm"), "(component)").unwrap();
    std::fs::write(temp.path().join("broken.yaml"), MANIFEST.replace("{ name: wide", "{ nme: wide")).unwrap();
    let path = temp.path().join("latent.toml");
    Folder { _temp: temp, path }
}

fn problems_of(text: &str) -> Vec<PlacedProblem> {
    let folder = folder();
    match parse(&folder.path, text, NamedFiles::MustExist) {
        Ok(_) => Vec::new(),
        Err(error) => error.problems,
    }
}

/// Every problem as `line kind`, and the texts of all of them.
fn seen(text: &str) -> (Vec<String>, String) {
    let problems = problems_of(text);
    let placed = problems.iter().map(|problem| format!("{} {}", problem.line.unwrap_or_default(), problem.kind)).collect();
    (placed, problems.iter().map(|problem| format!("{problem}\n")).collect())
}

fn line_of(text: &str, needle: &str) -> usize {
    text.lines().position(|line| line.contains(needle)).map_or(0, |index| index + 1)
}

#[test]
fn the_example_is_read_with_every_default() {
    let folder = folder();
    let loaded = parse(&folder.path, EXAMPLE, NamedFiles::MustExist).unwrap();
    assert_eq!(loaded.warnings, []);
    let Config { path, node, engine, secrets, archive, pools, providers, topics, services, triggers, streams, lanes } = loaded.config;
    assert!(archive.control_key_files.is_empty());
    assert!(streams.is_none() && lanes.is_empty());
    assert_eq!((secrets, pools, providers), (None, latent_capabilities::PoolSettings::default(), Vec::new()));
    let base = folder.path.parent().unwrap();
    assert_eq!(path, folder.path);
    assert_eq!((&*node.name, node.data_dir, node.cells, node.drain_millis), ("edge-1", base.join("data"), None, 10_000));
    let EngineConfig { manifest, manifest_path, kind } = engine;
    assert_eq!((manifest.topics.len(), manifest_path), (3, base.join("bridge.yaml")));
    assert_eq!(kind, EngineKind::Embedded { maintenance_interval_seconds: 60 });
    assert_eq!(topics.iter().map(|topic| topic.name.as_str()).collect::<Vec<_>>(), ["github.events", "triage.results"]);
    assert_eq!(services[0].component, base.join("triage.wasm"));
    assert_eq!(services[0].grants[0].topics[0].as_str(), "triage.results");
    let trigger = &triggers[0];
    assert_eq!((trigger.contract.as_str(), trigger.function.as_str()), ("latent:events/handler@0.2.0", "handle"));
    assert_eq!((trigger.max_deliveries, trigger.max_in_flight), (5, 8));
    assert_eq!((trigger.retry_delay_millis, trigger.retry_delay_max_millis, trigger.operation_timeout_millis), (1_000, 60_000, 10_000));
    assert_eq!((trigger.start, trigger.budget), (StartPosition::Earliest, Budget::default()));
}

#[test]
fn every_setting_can_be_given() {
    let folder = folder();
    let text = EXAMPLE.replace(
        "max_deliveries = 5",
        "max_deliveries = 100\nmax_in_flight = 1\nretry_delay_millis = 10\nretry_delay_max_millis = 20\noperation_timeout_millis = 5000\n\
         start = \"latest\"\ninput = \"event\"\ncontract = \"demo:a/b@1.0.0\"\nfunction = \"run\"",
    ) + "[limits]\ncells = 3\ndrain_millis = 0\n";
    let config = parse(&folder.path, &text, NamedFiles::NotNeeded).unwrap().config;
    let trigger = &config.triggers[0];
    assert_eq!((config.node.cells, config.node.drain_millis), (Some(3), 0));
    assert_eq!((trigger.max_deliveries, trigger.max_in_flight, trigger.start), (100, 1, StartPosition::Latest));
    assert_eq!((trigger.retry_delay_millis, trigger.retry_delay_max_millis, trigger.operation_timeout_millis), (10, 20, 5_000));
    assert_eq!((trigger.contract.as_str(), trigger.function.as_str()), ("demo:a/b@1.0.0", "run"));
}

#[test]
fn the_secrets_of_a_node_have_a_directory_and_one_key() {
    let folder = folder();
    let base = folder.path.parent().unwrap();
    let read =
        |table: &str| parse(&folder.path, &format!("{EXAMPLE}[secrets]\n{table}"), NamedFiles::NotNeeded).unwrap().config.secrets.unwrap();
    let by_file = SecretsConfig { directory: base.join("data/secrets"), key: KeySource::File(base.join("k")) };
    assert_eq!(read("key_file = \"k\""), by_file);
    let elsewhere = SecretsConfig { directory: "/var/lib/secrets".into(), key: KeySource::Credential("latent-key".to_owned()) };
    assert_eq!(read("directory = \"/var/lib/secrets\"\nkey_credential = \"latent-key\""), elsewhere);
    for (table, kind, told) in [
        ("", "config-missing-key", "key_credential"),
        ("directory = \"d\"", "config-missing-key", "key_file"),
        ("key_file = \"\"", "config-empty", "key_file"),
        ("key_file = \"k\"\ndirectory = \"\"", "config-empty", "directory"),
        ("key_file = 7", "config-wrong-type", "key_file"),
        ("key_file = \"k\"\nkey_credential = \"c\"", "config-exclusive", "keep key_file or key_credential"),
        ("key_file = \"k\"\nkey = \"c\"", "config-unknown-key", "key"),
    ] {
        let (placed, text) = seen(&format!("{EXAMPLE}[secrets]\n{table}"));
        assert_eq!(placed.len(), 1, "{text}");
        assert!(placed[0].ends_with(kind) && text.contains(told), "{text}");
    }
}

#[test]
fn the_interval_of_maintenance_is_accepted_in_its_range_alone() {
    let folder = folder();
    for (seconds, accepted) in
        [("-1", false), ("0", false), ("1", true), ("2", true), ("86_399", true), ("86_400", true), ("86_401", false)]
    {
        let text = EXAMPLE.replace("kind = \"embedded\"", &format!("kind = \"embedded\"\nmaintenance_interval_seconds = {seconds}"));
        match parse(&folder.path, &text, NamedFiles::NotNeeded) {
            Ok(loaded) => {
                let EngineKind::Embedded { maintenance_interval_seconds } = loaded.config.engine.kind else { panic!("{seconds}") };
                assert!(accepted && maintenance_interval_seconds.to_string() == seconds.replace('_', ""), "{seconds}");
            }
            Err(error) => {
                assert!(!accepted, "{seconds}");
                let [problem] = &error.problems[..] else { panic!("{error:?}") };
                assert_eq!((problem.kind, problem.line), ("config-out-of-range", Some(7)), "{seconds}");
            }
        }
    }
}

/// What is replaced in the example, by what, and then: needle of the line, kind of the problem, words of its text.
type Case = (&'static str, &'static str, &'static [(&'static str, &'static str, &'static str)]);

const CASES: &[Case] = &[
    (
        "data_dir = \"data\"",
        "data_dri = \"data\"",
        &[("[node]", "config-missing-key", "data_dir"), ("data_dri", "config-unknown-key", "\"data_dir\"?")],
    ),
    ("name = \"edge-1\"", "name = 7", &[("name = 7", "config-wrong-type", "must be a string, not integer")]),
    ("name = \"edge-1\"", "name = \"\"", &[("name = \"\"", "config-empty", "add name")]),
    ("name = \"edge-1\"", "name = \"a b\"", &[("name = \"a b\"", "config-name", "node name \"a b\" is not acceptable: ' ' at byte 1")]),
    ("[node]", "[noed]", &[("[noed]", "config-missing-key", "node is missing"), ("[noed]", "config-unknown-key", "\"node\"?")]),
    ("data_dir = \"data\"", "data_dir = \"data\"\nadmin = \"127.0.0.1:1\"", &[("admin", "config-not-built", "admin in [node]")]),
    (
        "kind = \"embedded\"",
        "kind = \"embedded\"\ntls_first = true",
        &[("tls_first", "config-other-engine", "kind = \"embedded\"; remove it")],
    ),
    ("kind = \"embedded\"", "kind = \"embeded\"", &[("kind", "config-choice", "did you mean \"embedded\"?")]),
    ("kind = \"embedded\"", "kind = \"redis\"", &[("kind", "config-choice", "use one of: embedded, nats")]),
    ("bridge.yaml", "nowhere.yaml", &[("nowhere", "config-manifest", "nowhere.yaml")]),
    ("bridge.yaml", "triage.wasm", &[("triage.wasm", "config-manifest", "manifest")]),
    ("bridge.yaml", "broken.yaml", &[("broken", "config-manifest", "broken.yaml:6:7: unknown field `nme`")]),
    ("triage.wasm", "missing.wasm", &[("component", "config-component", "cargo build --release --target wasm32-wasip2")]),
    ("triage.wasm", "module.wasm", &[("component", "config-component-core-module", "cargo build --release --target wasm32-wasip2")]),
    ("triage.wasm", "newer.wasm", &[("component", "config-component-version", "cargo build --release --target wasm32-wasip2")]),
    ("triage.wasm", "text.wasm", &[("component", "config-component-not-wasm", "cargo build --release --target wasm32-wasip2")]),
    ("[[service]]", "[service]", &[("[service]", "config-wrong-type", "write [[service]]")]),
    (
        "tenant = \"acme\"",
        "tenant = \"acme\"\nshare = { tenant = \"bolt\", may = [\"publish\"] }",
        &[("share", "config-wrong-type", "write share = [")],
    ),
    (
        "name = \"triage.results\"",
        "name = \"triage.result\"",
        &[
            ("name = \"triage.result\"", "config-topic-not-in-manifest", "did you mean \"triage.results\"?"),
            ("grants", "config-unknown-topic", "did you mean \"triage.result\"?"),
        ],
    ),
    (
        "name = \"triage.results\"",
        "name = \"triage..results\"",
        &[("name = \"triage..results\"", "config-name", "single dots"), ("grants", "config-unknown-topic", "service \"triage\"")],
    ),
    (
        "name = \"triage.results\"",
        "name = \"github.events\"",
        &[
            // The second of the two is at fault, and the grant dangles.
            ("tenant = \"acme\"\n\n[[service]]", "config-duplicate", "line 10 has the first"),
            ("grants", "config-unknown-topic", "triage.results"),
        ],
    ),
    (
        "topic = \"github.events\"",
        "topic = \"github.event\"",
        &[("topic = \"github.event\"", "config-unknown-topic", "\"github.events\"?")],
    ),
    ("service = \"triage\"", "service = \"triag\"", &[("service = \"triag\"", "config-unknown-service", "did you mean \"triage\"?")]),
    (
        "tenant = \"acme\"\nservice",
        "tenant = \"bolt\"\nservice",
        &[("service = ", "config-foreign-service", "tenant \"bolt\""), ("topic = ", "config-not-shared", "may not subscribe")],
    ),
    (
        "tenant = \"acme\"\ncomponent",
        "tenant = \"bolt\"\ncomponent",
        &[
            ("grants", "config-not-shared", "may not publish to topic \"triage.results\" of tenant \"acme\""),
            ("service = ", "config-foreign-service", "of tenant \"bolt\""),
        ],
    ),
    ("publisher@0.2.0", "publisher@0.1.0", &[("grants", "config-choice", "did you mean \"latent:events/publisher@0.2.0\"?")]),
    ("[\"triage.results\"] }", "[] }", &[("grants", "config-empty", "grants nothing")]),
    ("[\"triage.results\"] }", "[\"triage.results\", \"triage.results\"] }", &[("grants", "config-duplicate", "granted topic")]),
    ("[\"triage.results\"] }", "[1] }", &[("grants", "config-wrong-type", "must be a string")]),
    ("max_deliveries = 5", "max_deliveries = 0", &[("max_deliveries", "config-out-of-range", "1 to 100")]),
    ("max_deliveries = 5", "max_deliveries = 101", &[("max_deliveries", "config-out-of-range", "the default is 5")]),
    ("max_deliveries = 5", "max_deliveries = -1", &[("max_deliveries", "config-out-of-range", "is -1")]),
    ("max_deliveries = 5", "max_deliveries = 5.0", &[("max_deliveries", "config-wrong-type", "a whole number, not float")]),
    ("max_deliveries = 5", "dead_letter = \"triage.dead\"", &[("dead_letter", "config-unknown-topic", "has no [[topic]]")]),
    (
        "max_deliveries = 5",
        "dead_letter = \"github.events\"",
        &[("dead_letter", "config-dead-letter-circle", "github.events → github.events")],
    ),
    ("max_deliveries = 5", "dead_letter = 7", &[("dead_letter", "config-wrong-type", "must be a string")]),
    ("max_deliveries = 5", "input = \"wit-values\"", &[("input", "config-not-built", "input = \"event\"")]),
    ("max_deliveries = 5", "input = \"evnt\"", &[("input", "config-choice", "did you mean \"event\"?")]),
    (
        "max_deliveries = 5",
        "stream = \"s\"\nconsumer = \"c\"\nfilter = \"f\"",
        &[
            ("[[trigger]]", "config-missing-key", "contract is missing"),
            ("[[trigger]]", "config-missing-key", "function is missing"),
            ("topic = \"github.events\"", "config-exclusive", "stream and topic"),
            ("stream", "config-no-broker", "add [broker]"),
        ],
    ),
    ("max_deliveries = 5", "start = \"newest\"", &[("start", "config-choice", "use one of: earliest, latest")]),
    (
        "max_deliveries = 5",
        "retry_delay_millis = 200\nretry_delay_max_millis = 100",
        &[("retry_delay_max", "config-retry-delays", "less than")],
    ),
    ("max_deliveries = 5", "contract = \"handler\"", &[("contract", "config-name", "namespace:package/interface")]),
    ("max_deliveries = 5", "max_deliveres = 5", &[("max_deliveres", "config-unknown-key", "did you mean \"max_deliveries\"?")]),
    ("max_deliveries = 5", "frobnicate = 5", &[("frobnicate", "config-unknown-key", "use one of: id, tenant, service")]),
    (
        "cpu_fuel = 50_000_000",
        "cpu_fule = 1",
        &[("budget", "config-unknown-key", "in budget of [[trigger]] 1; did you mean \"cpu_fuel\"?")],
    ),
    ("cpu_fuel = 50_000_000", "cpu_fuel = 0", &[("budget", "config-out-of-range", "cpu_fuel")]),
    ("cpu_fuel = 50_000_000", "effect_count = 0", &[("budget", "config-not-built", "reserved")]),
    ("id = \"triage-github\"", "id = \"a.b\"", &[("id = ", "config-name", "trigger id")]),
    ("[[trigger]]", "[trigger]", &[("[trigger]", "config-wrong-type", "a list of tables")]),
    ("[[trigger]]", "[[triggers]]", &[("[[triggers]]", "config-unknown-key", "did you mean \"trigger\"?")]),
    ("kind = \"embedded\"", "kind = \"embedded", &[("kind", "config-syntax", "not TOML")]),
    ("kind = \"embedded\"", "kind = \"embedded\"\nkind = \"embedded\"", &[("kind = \"embedded\"\nmanifest", "config-syntax", "duplicate")]),
];

#[test]
fn each_mistake_is_named_with_its_line_and_what_to_do() {
    for (replaced, by, expected) in CASES {
        assert!(EXAMPLE.contains(replaced), "{replaced}");
        let text = EXAMPLE.replacen(replaced, by, 1);
        let (placed, texts) = seen(&text);
        let wanted: Vec<_> = expected.iter().map(|(needle, kind, _)| format!("{} {kind}", line_where(&text, needle))).collect();
        assert_eq!(placed, wanted, "{by}\n{texts}");
        for (problem, (_, _, words)) in texts.lines().zip(*expected) {
            assert!(problem.contains(words), "{by}\n{problem}\nlacks {words:?}");
        }
    }
}

/// The line on which `needle` begins; one that spans lines is meant at the line before its break.
fn line_where(text: &str, needle: &str) -> usize {
    let at = text.find(needle).unwrap_or_else(|| panic!("{needle:?} is not in the case"));
    let duplicate = if needle.ends_with("[[service]]") { 1 } else { 0 };
    text[..at].matches('\n').count() + 1 - duplicate
}

#[test]
fn all_problems_of_one_file_come_at_once_in_its_order() {
    let text = EXAMPLE
        .replace("name = \"edge-1\"", "nmae = \"edge-1\"")
        .replace("component = \"triage.wasm\"", "component = 3")
        .replace("max_deliveries = 5", "max_deliveries = 500\ndead_letter = \"x\"")
        .replace("topic = \"github.events\"", "topic = \"nowhere\"");
    let (placed, texts) = seen(&text);
    let lines = [("[node]", "config-missing-key"), ("nmae", "config-unknown-key"), ("component", "config-wrong-type")];
    let later =
        [("\"nowhere\"", "config-unknown-topic"), ("max_deliveries", "config-out-of-range"), ("dead_letter", "config-unknown-topic")];
    let wanted: Vec<_> = lines.iter().chain(&later).map(|(needle, kind)| format!("{} {kind}", line_of(&text, needle))).collect();
    assert_eq!(placed, wanted, "{texts}");
}

#[test]
fn dead_letters_that_come_back_to_their_own_topic_are_refused_with_the_way() {
    let trigger = |id: &str, topic: &str, dead: &str| {
        let table = "\n[[trigger]]\ntenant = \"acme\"\nservice = \"triage\"\n";
        format!("{table}id = \"{id}\"\ntopic = \"{topic}\"\ndead_letter = \"{dead}\"\n")
    };
    let wide = "\n[[topic]]\nname = \"wide\"\ntenant = \"acme\"\n";
    let chain = format!("{EXAMPLE}{wide}{}{}", trigger("a", "github.events", "triage.results"), trigger("b", "triage.results", "wide"));
    assert_eq!(seen(&chain).0, Vec::<String>::new());
    let circle = format!("{chain}{}", trigger("c", "wide", "github.events"));
    let (placed, texts) = seen(&circle);
    assert_eq!(placed.len(), 3, "{texts}");
    assert!(texts.contains("github.events → triage.results → wide → github.events"), "{texts}");
    assert!(texts.contains("wide → github.events → triage.results → wide"), "{texts}");
}

#[test]
fn a_dead_letter_topic_is_one_that_the_tenant_may_publish_to() {
    let other = "\n[[topic]]\nname = \"wide\"\ntenant = \"bolt\"\n";
    let with = |topic: &str| format!("{}{topic}", EXAMPLE.replace("max_deliveries = 5", "dead_letter = \"wide\""));
    let (placed, texts) = seen(&with(other));
    assert_eq!(placed.len(), 1, "{texts}");
    assert!(texts.contains("may not publish to topic \"wide\" of tenant \"bolt\""), "{texts}");
    let shared = format!("{other}share = [{{ tenant = \"acme\", may = [\"publish\"] }}]\n");
    assert_eq!(seen(&with(&shared)).0, Vec::<String>::new());
}

#[test]
fn an_empty_file_lacks_its_two_tables() {
    assert_eq!(seen("").0, ["1 config-missing-key", "1 config-missing-key"]);
}

#[test]
fn a_topic_can_be_shared_and_a_share_is_warned_about() {
    let folder = folder();
    let shared = EXAMPLE
        .replacen("tenant = \"acme\"", "tenant = \"bolt\"\nshare = [{ tenant = \"acme\", may = [\"subscribe\"] }]", 1)
        .replace("grants =", "# grants =");
    let loaded = parse(&folder.path, &shared, NamedFiles::NotNeeded).unwrap();
    let kinds: Vec<_> = loaded.warnings.iter().map(|warning| (warning.line, warning.kind)).collect();
    assert_eq!(kinds, [(Some(10), "share-cannot-move")]);
    assert_eq!(loaded.config.topics[0].shares[0].may, [SharePermission::Subscribe]);

    let publish_only = shared.replace("\"subscribe\"", "\"publish\"");
    assert_eq!(seen(&publish_only).0, ["28 config-not-shared"]);
    for (may, kind) in [("may = []", "config-empty"), ("may = [\"read\"]", "config-choice"), ("", "config-missing-key")] {
        let text = shared.replace("may = [\"subscribe\"]", may);
        assert!(problems_of(&text).iter().any(|problem| problem.line == Some(12) && problem.kind == kind), "{may}: {}", seen(&text).1);
    }
    let with_itself = EXAMPLE.replacen("tenant = \"acme\"", "tenant = \"acme\"\nshare = [{ tenant = \"acme\", may = [\"publish\"] }]", 1);
    assert_eq!(seen(&with_itself).0, ["12 config-shared-with-owner"]);
}

#[test]
fn times_that_leave_no_room_are_warned_about() {
    let folder = folder();
    let text = EXAMPLE.replace("max_deliveries = 5", "operation_timeout_millis = 499");
    let warnings = parse(&folder.path, &text, NamedFiles::NotNeeded).unwrap().warnings;
    let kinds: Vec<_> = warnings.iter().map(|warning| (warning.line, warning.kind)).collect();
    assert_eq!(kinds, [(Some(28), "short-operation-timeout"), (Some(29), "wall-time-cut")]);
    assert!(warnings[1].message.contains("cut to 449"), "{}", warnings[1].message);

    let at_the_edge = EXAMPLE
        .replace("max_deliveries = 5", "operation_timeout_millis = 500")
        .replace("wall_time_millis = 2_000", "wall_time_millis = 450");
    assert_eq!(parse(&folder.path, &at_the_edge, NamedFiles::NotNeeded).unwrap().warnings, []);
}

#[test]
fn a_service_that_feeds_itself_is_warned_about() {
    let folder = folder();
    let text = EXAMPLE.replace("topics = [\"triage.results\"]", "topics = [\"github.events\"]");
    let kinds: Vec<_> = parse(&folder.path, &text, NamedFiles::NotNeeded).unwrap().warnings.iter().map(|warning| warning.kind).collect();
    assert_eq!(kinds, ["publishes-to-its-own-topic"]);
}

#[test]
fn limits_of_the_node_are_checked() {
    for (limits, kind) in
        [("cells = 0", "config-out-of-range"), ("drain_millis = 600_001", "config-out-of-range"), ("cell = 9", "config-unknown-key")]
    {
        let (placed, texts) = seen(&format!("{EXAMPLE}[limits]\n{limits}\n"));
        assert!(placed.len() == 1 && placed[0].ends_with(kind), "{limits}: {texts}");
    }
}

#[test]
fn bindings_count_once_for_each_partition() {
    let topic = "[[topic]]\nname = \"wide\"\ntenant = \"acme\"\n";
    let trigger = |number: usize| format!("[[trigger]]\nid = \"t{number}\"\ntenant = \"acme\"\nservice = \"triage\"\ntopic = \"wide\"\n");
    let with = |count: usize| {
        let mut text = EXAMPLE.split("[[trigger]]").next().unwrap_or_default().to_owned() + topic;
        text.extend((0..count).map(trigger));
        seen(&text)
    };
    // 64 × 1,024 is the bound exactly.
    assert!(with(63).0.is_empty() && with(64).0.is_empty());
    let (placed, texts) = with(65);
    assert!(placed.len() == 1 && placed[0].ends_with("config-too-many-bindings") && texts.contains("66560"), "{texts}");
}

#[test]
fn a_data_directory_whose_socket_would_not_fit_is_refused() {
    let text = EXAMPLE.replace("data_dir = \"data\"", &format!("data_dir = \"/{}\"", "d".repeat(100)));
    assert_eq!(seen(&text).0, ["3 config-socket-path"]);
}

#[test]
fn only_run_and_check_need_the_component() {
    let folder = folder();
    let text = EXAMPLE.replace("triage.wasm", "missing.wasm");
    assert!(parse(&folder.path, &text, NamedFiles::NotNeeded).is_ok());
    assert!(parse(&folder.path, &text, NamedFiles::MustExist).is_err());
}

#[test]
fn a_file_that_is_not_there_or_not_text_is_one_problem() {
    let folder = folder();
    let kind = |path: &Path| load(path, NamedFiles::NotNeeded).unwrap_err().problems.iter().map(|problem| problem.kind).collect::<Vec<_>>();
    assert_eq!(kind(&folder.path), ["config-no-file"]);
    assert_eq!(kind(folder.path.parent().unwrap()), ["config-unreadable"]);
    std::fs::write(&folder.path, b"\xff\xfe").unwrap();
    assert_eq!(kind(&folder.path), ["config-not-text"]);
}
