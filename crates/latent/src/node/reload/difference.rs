//! What differs between the configuration in force and another one. Pure: two configurations in, differences out.
//!
//! Every field is looked at by name: a new one does not compile until somebody decides whether a running node can take it in.

use std::collections::BTreeMap;

use latent_core::{BindingId, LogicalTopic};

use crate::config::settings::{EngineKind, Grant, NodeConfig, ServiceConfig, Share, SharePermission, TopicConfig, TriggerConfig};
use crate::config::{Config, EngineConfig};
use crate::control::Difference;

/// What differs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Differences {
    /// What a running node can take in, components apart: those are compared by content.
    pub(super) changes: Vec<Difference>,
    /// What only a start can take in.
    pub(super) for_restart: Vec<String>,
    /// Triggers that are gone or changed.
    pub(super) leaving: Vec<BindingId>,
    /// Triggers that are new or changed.
    pub(super) coming: Vec<TriggerConfig>,
}

pub(super) fn differences(now: &Config, next: &Config) -> Differences {
    let mut found = Differences { for_restart: for_restart(now, next), ..Differences::default() };
    compare(&now.topics, &next.topics, "topic", |topic| topic.name.as_str(), topic_parts, &mut found.changes);
    compare(&now.services, &next.services, "service", |service| service.name.as_str(), service_parts, &mut found.changes);
    compare(&now.triggers, &next.triggers, "trigger", |trigger| trigger.id.as_str(), trigger_parts, &mut found.changes);
    let kept = |trigger: &TriggerConfig, others: &[TriggerConfig]| others.contains(trigger);
    found.leaving = now.triggers.iter().filter(|trigger| !kept(trigger, &next.triggers)).map(|trigger| trigger.id.clone()).collect();
    found.coming = next.triggers.iter().filter(|trigger| !kept(trigger, &now.triggers)).cloned().collect();
    found
}

fn for_restart(now: &Config, next: &Config) -> Vec<String> {
    let NodeConfig { name, data_dir, cells, cell_memory_bytes, drain_millis } = &next.node;
    let EngineConfig { manifest, manifest_path, kind } = &next.engine;
    let EngineConfig { manifest: manifest_now, manifest_path: manifest_path_now, kind: kind_now } = &now.engine;
    let engine = match (kind, kind_now) {
        (EngineKind::Embedded { maintenance_interval_seconds: next }, EngineKind::Embedded { maintenance_interval_seconds: now }) => {
            ("[engine] maintenance_interval_seconds", next != now)
        }
        (EngineKind::Nats(next), EngineKind::Nats(now)) => ("[engine]", next != now),
        (EngineKind::Embedded { .. }, EngineKind::Nats(_)) | (EngineKind::Nats(_), EngineKind::Embedded { .. }) => ("[engine] kind", true),
    };
    let Config { path: _, node: _, engine: _, secrets, archive, pools, providers, topics: _, services: _, triggers: _, streams, lanes } =
        next;
    let parts = [
        ("[secrets]", *secrets != now.secrets),
        ("[archive]", *archive != now.archive),
        ("[pools]", *pools != now.pools),
        ("[[provider]]", *providers != now.providers),
        ("[broker] or a [[trigger]] of a stream", *streams != now.streams),
        ("a [[trigger]] that a broker wakes", *lanes != now.lanes),
        ("[node] name", *name != now.node.name),
        ("[node] data_dir", *data_dir != now.node.data_dir),
        ("[limits] cells", *cells != now.node.cells),
        ("[limits] cell_memory_bytes", *cell_memory_bytes != now.node.cell_memory_bytes),
        ("[limits] drain_millis", *drain_millis != now.node.drain_millis),
        ("[engine] manifest", manifest_path != manifest_path_now),
        ("the manifest's content", manifest != manifest_now),
        engine,
    ];
    parts.into_iter().filter(|(_, differs)| *differs).map(|(part, _)| part.to_owned()).collect()
}

/// The parts of something with a name, each in words.
type Parts = Vec<(&'static str, String)>;

fn compare<T>(now: &[T], next: &[T], object: &str, name: impl Fn(&T) -> &str, parts: impl Fn(&T) -> Parts, changes: &mut Vec<Difference>) {
    let by_name = |all: &[T]| all.iter().map(|one| (name(one).to_owned(), parts(one))).collect::<BTreeMap<_, _>>();
    let (now, next) = (by_name(now), by_name(next));
    let change = |name: &str, change: &str, from: &str, to: &str| Difference {
        object: object.to_owned(),
        name: name.to_owned(),
        change: change.to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
    };
    for (name, parts_now) in &now {
        let Some(parts_next) = next.get(name) else {
            changes.push(change(name, "removed", "", ""));
            continue;
        };
        for ((part, from), (_, to)) in parts_now.iter().zip(parts_next).filter(|((_, from), (_, to))| from != to) {
            changes.push(change(name, part, from, to));
        }
    }
    // What is new is told whole: a dry run is read for what somebody will be allowed to do.
    let told = |parts: &Parts| {
        parts.iter().filter(|(_, value)| !value.is_empty()).map(|(part, value)| format!("{part} {value}")).collect::<Vec<_>>()
    };
    changes.extend(
        next.iter().filter(|(name, _)| !now.contains_key(*name)).map(|(name, parts)| change(name, "added", "", &told(parts).join("; "))),
    );
}

fn topic_parts(topic: &TopicConfig) -> Parts {
    let TopicConfig { name: _, tenant, shares } = topic;
    let right = |share: &Share| {
        let may = share.may.iter().map(|may| match may {
            SharePermission::Publish => "publish",
            SharePermission::Subscribe => "subscribe",
        });
        format!("{} may {}", share.tenant, may.collect::<Vec<_>>().join(" and "))
    };
    vec![("tenant", tenant.to_string()), ("shares", shares.iter().map(right).collect::<Vec<_>>().join(", "))]
}

fn service_parts(service: &ServiceConfig) -> Parts {
    let ServiceConfig { name: _, tenant, component, grants } = service;
    let granted = |grant: &Grant| {
        let topics = grant.topics.iter().map(LogicalTopic::as_str).collect::<Vec<_>>();
        format!("{} on {}", grant.capability, topics.join(", "))
    };
    vec![
        ("tenant", tenant.to_string()),
        ("component file", component.display().to_string()),
        ("grants", grants.iter().map(granted).collect::<Vec<_>>().join("; ")),
    ]
}

fn trigger_parts(trigger: &TriggerConfig) -> Parts {
    let TriggerConfig {
        id: _,
        tenant,
        service,
        topic,
        dead_letter,
        contract,
        function,
        max_deliveries,
        max_in_flight,
        retry_delay_millis,
        retry_delay_max_millis,
        operation_timeout_millis,
        start,
        budget,
    } = trigger;
    vec![
        ("tenant", tenant.to_string()),
        ("service", service.to_string()),
        ("topic", topic.to_string()),
        ("dead_letter", dead_letter.as_ref().map_or_else(String::new, ToString::to_string)),
        ("function", format!("{contract}#{function}")),
        ("max_deliveries", max_deliveries.to_string()),
        ("max_in_flight", max_in_flight.to_string()),
        ("retry_delay_millis", retry_delay_millis.to_string()),
        ("retry_delay_max_millis", retry_delay_max_millis.to_string()),
        ("operation_timeout_millis", operation_timeout_millis.to_string()),
        ("start", format!("{start:?}").to_lowercase()),
        ("budget cpu_fuel", budget.cpu_fuel.to_string()),
        ("budget memory_bytes", budget.memory_bytes.to_string()),
        ("budget wall_time_millis", budget.wall_time_millis.to_string()),
        ("budget outbound_requests", budget.outbound_requests.to_string()),
        ("budget log_bytes", budget.log_bytes.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{NamedFiles, load_text};

    const MANIFEST: &str = "manifest_version: 1\nname: demo\ntopics:\n  - { name: in, partitions: 2 }\n  - { name: out, partitions: 1 }\n";
    const BASE: &str = r#"
[node]
name = "n"
data_dir = "data"

[engine]
kind = "embedded"
manifest = "bridge.yaml"

[[topic]]
name = "in"
tenant = "acme"

[[topic]]
name = "out"
tenant = "acme"

[[service]]
name = "triage"
tenant = "acme"
component = "triage.wasm"
grants = [{ capability = "latent:events/publisher@0.2.0", topics = ["out"] }]

[[trigger]]
id = "t"
tenant = "acme"
service = "triage"
topic = "in"
max_deliveries = 5
"#;

    const ADDED: &str = "trigger u: added: tenant acme; service triage; topic out; function latent:events/handler@0.2.0#handle; \
                         max_deliveries 5; max_in_flight 8; retry_delay_millis 1000; retry_delay_max_millis 60000; \
                         operation_timeout_millis 10000; start earliest; budget cpu_fuel 50000000; budget memory_bytes 33554432; \
                         budget wall_time_millis 2000; budget outbound_requests 4; budget log_bytes 65536";

    fn config(text: &str) -> Config {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("bridge.yaml"), MANIFEST).unwrap();
        let loaded = load_text(&temp.path().join("latent.toml"), text, NamedFiles::NotNeeded);
        let mut config = loaded.unwrap_or_else(|error| panic!("{}", error.why())).config;
        // Where the test lies is no difference.
        let strip = |path: &mut std::path::PathBuf| *path = path.strip_prefix(temp.path()).unwrap_or(Path::new("")).to_owned();
        strip(&mut config.node.data_dir);
        config.services.iter_mut().for_each(|service| strip(&mut service.component));
        strip(&mut config.engine.manifest_path);
        config
    }

    fn lines(differences: &Differences) -> Vec<String> {
        differences.changes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_same_file_makes_no_difference() {
        assert_eq!(differences(&config(BASE), &config(BASE)), Differences::default());
    }

    #[test]
    fn each_change_is_named_and_moves_the_triggers_it_concerns() {
        let added = format!("{BASE}\n[[trigger]]\nid = \"u\"\ntenant = \"acme\"\nservice = \"triage\"\ntopic = \"out\"\n");
        /// A file, what is said of it, and which triggers leave and come.
        type Case = (String, &'static [&'static str], &'static [&'static str], &'static [&'static str]);
        let cases: [Case; 5] = [
            (BASE.replace("max_deliveries = 5", "max_deliveries = 7"), &["trigger t: max_deliveries: 5 → 7"], &["t"], &["t"]),
            (added, &[ADDED], &[], &["u"]),
            (BASE[..BASE.find("[[trigger]]").unwrap()].to_owned(), &["trigger t: removed"], &["t"], &[]),
            (
                BASE.replace("topics = [\"out\"] }]", "topics = [\"out\", \"in\"] }]"),
                &["service triage: grants: latent:events/publisher@0.2.0 on out → latent:events/publisher@0.2.0 on out, in"],
                &[],
                &[],
            ),
            (
                BASE.replace("component = \"triage.wasm\"", "component = \"other.wasm\""),
                &["service triage: component file: triage.wasm → other.wasm"],
                &[],
                &[],
            ),
        ];
        for (text, expected, leaving, coming) in cases {
            let found = differences(&config(BASE), &config(&text));
            assert_eq!(lines(&found), expected);
            let ids = |ids: Vec<&BindingId>| ids.into_iter().map(|id| id.as_str().to_owned()).collect::<Vec<_>>();
            assert_eq!(ids(found.leaving.iter().collect()), leaving, "{expected:?}");
            assert_eq!(ids(found.coming.iter().map(|trigger| &trigger.id).collect()), coming, "{expected:?}");
            assert!(found.for_restart.is_empty(), "{expected:?}");
        }
    }

    #[test]
    fn another_engine_or_another_broker_needs_a_start() {
        use latent_nats::{EndpointDraft, RootsDraft};

        use crate::config::settings::{BrokerConfig, BrokerUser};

        let root = latent_testkit::broker::TestCa::new().root_der();
        let on_nats = |address: &str| {
            let endpoint = EndpointDraft {
                address: Some(address.to_owned()),
                allow_non_public_peer: Some(address.to_owned()),
                server_name: Some("nats.example.net".to_owned()),
            };
            let bus_credential = BrokerUser { user: "u".to_owned(), secret: latent_secrets::SecretName::parse("s").unwrap() };
            let (peer, trigger_credentials) = (endpoint.check(&RootsDraft::only(&root)).unwrap(), BTreeMap::new());
            let mut config = config(BASE);
            config.engine.kind = EngineKind::Nats(BrokerConfig { peer, tls_first: true, bus_credential, trigger_credentials });
            config
        };
        let (embedded, one, other) = (config(BASE), on_nats("10.0.0.1:4222"), on_nats("10.0.0.2:4222"));
        for (now, next, expected) in [
            (&embedded, &one, Some("[engine] kind")),
            (&one, &embedded, Some("[engine] kind")),
            (&one, &other, Some("[engine]")),
            (&one, &one, None),
        ] {
            assert_eq!(differences(now, next).for_restart, expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_only_a_start_can_take_in_is_named() {
        let cases = [
            (BASE.replace("name = \"n\"", "name = \"m\""), "[node] name"),
            (BASE.replace("\"data\"", "\"other\""), "[node] data_dir"),
            (format!("{BASE}\n[limits]\ncells = 3\n"), "[limits] cells"),
            (format!("{BASE}\n[secrets]\nkey_file = \"k\"\n"), "[secrets]"),
            (format!("{BASE}\n[archive]\ncontrol_key_files = [\"k\"]\n"), "[archive]"),
            (format!("{BASE}\n[limits]\ndrain_millis = 3\n"), "[limits] drain_millis"),
            (format!("{BASE}\n[limits]\ncell_memory_bytes = 65536\n"), "[limits] cell_memory_bytes"),
            (
                BASE.replace("kind = \"embedded\"", "kind = \"embedded\"\nmaintenance_interval_seconds = 7"),
                "[engine] maintenance_interval_seconds",
            ),
        ];
        for (text, part) in cases {
            let found = differences(&config(BASE), &config(&text));
            assert_eq!(found.for_restart, [part]);
        }
    }
}
