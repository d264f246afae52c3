//! `[broker]`: the broker whose streams wake functions, and from it and the triggers of streams the configuration that is installed.
//!
//! Without `[broker]` the streams are those of the broker behind the topics, where that is one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use latent_core::TenantId;
use latent_nats::triggers::{BindingProblem, TriggerConfig, TriggerDraft, limits};
use latent_nats::{ConfigError, EndpointDraft, Peer, RootsDraft};

use super::draft::{CredentialDraft, Draft, StreamsDraft};
use super::lanes;
use super::problem::Fault;
use super::profile::{self, Profile};
use super::provider::{key_of, read_bounded, read_credential, read_root, told};
use super::section::{Report, Section};
use super::settings::{BrokerConfig, BrokerUser, CredentialConfig, StreamsConfig};

/// What stands in the table or in the file that `settings` names, and not in both.
const SETTINGS: &[&str] = &["address", "allow_non_public_peer", "server_name", "public_roots", "roots", "poll_interval_millis"];

/// Reads the table and the files it names.
pub(super) fn read(report: &mut Report<'_>, section: Option<Section<'_>>, folder: &Path) -> Option<StreamsDraft> {
    let mut section = section?;
    let at = section.place_of("address");
    let credentials = section.tables(report, "credentials").into_iter().map(|section| read_credential(report, section)).collect();
    let interval = &limits::POLL_INTERVAL_MILLIS;
    let mut draft = StreamsDraft { broker: None, poll_interval_millis: interval.default, credentials, file: None, at };
    match section.text(report, "settings") {
        Some(file) => {
            if let Some(key) = SETTINGS.iter().find(|key| section.is_present(key)) {
                let fault = Fault::Exclusive { table: section.label().to_owned(), first: "settings", second: key };
                report.push(section.place_of(key), fault);
            }
            section.pass_over(SETTINGS.iter().copied());
            draft.at = file.at;
            draft.file = Some(from_file(&folder.join(file.value)).map_err(|problem| {
                report.push(file.at, Fault::Streams { what: folder.join(file.value).display().to_string(), problem });
            }));
        }
        None => {
            draft.poll_interval_millis = section.integer_or_default(report, "poll_interval_millis", interval).value;
            draft.broker = read_peer(report, &mut section, folder);
        }
    }
    section.finish(report, &[]);
    Some(draft)
}

fn from_file(path: &Path) -> Result<TriggerConfig, String> {
    let json = read_bounded(path, limits::CONFIG_BYTES.max).map_err(|error| error.to_string())?;
    TriggerConfig::from_json(&json).map_err(|error| error.to_string())
}

fn read_peer(report: &mut Report<'_>, section: &mut Section<'_>, folder: &Path) -> Option<(EndpointDraft, RootsDraft)> {
    let before = report.problems.len();
    let endpoint = EndpointDraft {
        address: section.required_text(report, "address", "address = \"192.0.2.10:4222\"").map(|text| text.value.to_owned()),
        allow_non_public_peer: section.text(report, "allow_non_public_peer").map(|text| text.value.to_owned()),
        server_name: section.required_text(report, "server_name", "server_name = \"nats.example.net\"").map(|text| text.value.to_owned()),
    };
    let public = section.boolean(report, "public_roots").unwrap_or(false);
    let roots = section.texts(report, "roots");
    let der = roots.iter().filter_map(|root| read_root(report, root, folder, |what, problem| Fault::Streams { what, problem })).collect();
    let roots_draft = RootsDraft { public, der };
    if report.problems.len() > before {
        return None;
    }
    match endpoint.check(&roots_draft) {
        Ok(_) => Some((endpoint, roots_draft)),
        Err(error) => {
            let file = if let ConfigError::Root { index } = &error { roots.get(*index) } else { None };
            let what = file.map_or_else(|| section.label().to_owned(), |root| folder.join(root.value).display().to_string());
            report.push(section.place_of(key_of(&error)), Fault::Streams { what, problem: told(&error) });
            None
        }
    }
}

/// Everything that one table says of another about triggers of streams.
pub(super) fn check(report: &mut Report<'_>, draft: &Draft) {
    check_profiles(report, draft);
    if let Some(streams) = draft.streams.as_ref().filter(|streams| streams.file.is_some()) {
        let raw = draft.raw_triggers.iter().map(|raw| (raw.at, raw.trigger.called()));
        for (at, table) in draft.stream_triggers.iter().map(|trigger| (trigger.at, trigger.called())).chain(raw) {
            report.push(at, Fault::Exclusive { table, first: "settings of [broker]", second: "stream" });
        }
        check_names(report, draft, streams);
    }
    let raw = draft.raw_triggers.first().map(|raw| (raw.at, raw.trigger.called()));
    let first = draft.stream_triggers.first().map(|trigger| (trigger.at, trigger.called())).or(raw);
    if let (Some((at, by)), false, None) = (&first, draft.is_on_nats, &draft.streams) {
        report.push(*at, Fault::NoBroker { by: by.clone() });
    }
    let wakes = first.is_some() || draft.streams.as_ref().is_some_and(|streams| streams.file.is_some());
    // Who has no broker has no credentials either; of the engine's broker its own table says it.
    if let Some(at) = draft.streams.as_ref().map(|streams| streams.at).filter(|_| wakes && !draft.secrets_stand) {
        report.push(at, Fault::NoSecrets { who: "[broker]".to_owned() });
    }
    check_filters(report, draft);
    if let Err(refused) = build(draft) {
        report.push(refused.at, refused.fault);
    }
    check_credentials(report, draft);
}

/// A trigger on a topic that asks for `nats-jetstream-pull-v1`: of a topic on the broker of `[engine]`, and with what the profile has.
fn check_profiles(report: &mut Report<'_>, draft: &Draft) {
    for trigger in draft.triggers.iter().filter(|trigger| trigger.profile == Profile::PullV1) {
        let at = trigger.at();
        let wrong = |problem: &str| Fault::Streams { what: trigger.called(), problem: problem.to_owned() };
        if !draft.is_on_nats {
            report.push(at, wrong("this profile is for topics on a broker; with kind = \"embedded\" leave it out"));
        } else if draft.streams.is_some() {
            report.push(
                at,
                wrong(
                    "a trigger with profile on a topic uses the broker of [engine], and [broker] names one for streams; have one of them",
                ),
            );
        }
        for (key, at) in &trigger.beside_pull_v1 {
            report.push(
                *at,
                wrong(&format!("{key} is nothing of this profile, which handles one event at a time from the earliest on; remove it")),
            );
        }
    }
}

/// The services of a settings file are those of this one.
fn check_names(report: &mut Report<'_>, draft: &Draft, streams: &StreamsDraft) {
    let Some(Ok(config)) = &streams.file else { return };
    for binding in config.bindings() {
        let named =
            |service: &&super::draft::ServiceDraft| service.name.as_ref().is_some_and(|name| name.value == binding.target().service);
        let by = format!("trigger {:?}", binding.id());
        match draft.services.iter().find(named) {
            None => {
                let service = binding.target().service.to_string();
                report.push(streams.at, Fault::UnknownService { by, service, nearest: None });
            }
            Some(service) => {
                if let Some(owner) = service.tenant.as_ref().filter(|owner| owner.value != *binding.tenant()) {
                    let (service, tenant) = (binding.target().service.to_string(), binding.tenant().to_string());
                    report.push(streams.at, Fault::ForeignService { by, service, owner: owner.value.to_string(), tenant });
                }
            }
        }
    }
}

/// A topic of the bridge has an owner and records of its own form: what reads it names the topic.
fn check_filters(report: &mut Report<'_>, draft: &Draft) {
    let Some(engine) = draft.engine.as_ref().filter(|_| draft.is_on_nats) else { return };
    let is_of = |spec: &latent_bridge::TopicSpec, filter: &str| {
        (0..spec.partitions).any(|partition| filter == latent_bridge::nats_bus::subject(&spec.name, partition))
    };
    let of_values = draft.stream_triggers.iter().filter_map(|trigger| {
        let filter = trigger.binding.as_ref()?.filter.as_deref()?;
        Some((filter, trigger.at, trigger.called()))
    });
    let raw = draft.raw_triggers.iter().filter_map(|raw| Some((raw.trigger.topic.as_ref()?.value.as_str(), raw.at, raw.trigger.called())));
    for (filter, at, by) in of_values.chain(raw) {
        if let Some(spec) = engine.manifest.topics.iter().find(|spec| is_of(spec, filter)) {
            report.push(at, Fault::StreamOfTopic { by, topic: spec.name.to_string() });
        }
    }
}

/// Every tenant with triggers has a credential where they are, and on `[broker]` nobody else.
fn check_credentials(report: &mut Report<'_>, draft: &Draft) {
    // What is wrong with the configuration itself was reported.
    let Ok(built) = build(draft) else { return };
    let of_values: Vec<_> = built.iter().flat_map(TriggerConfig::tenants).collect();
    let needed = |of_streams: bool| {
        let of_values = of_values.iter().copied().filter(|_| draft.streams.is_some() == of_streams);
        let place = draft.place_of_streams().unwrap_or_default();
        let mut needed: BTreeMap<_, _> = of_values.map(|tenant| (tenant, place)).collect();
        lanes::tenants(draft, of_streams).into_iter().for_each(|(tenant, at)| _ = needed.entry(tenant).or_insert(at));
        needed
    };
    if let Some(broker) = draft.broker() {
        for (tenant, at) in needed(false).into_iter().filter(|(tenant, _)| !broker.trigger_credentials.contains_key(*tenant)) {
            report.push(at, Fault::NoTriggerCredential { tenant: tenant.to_string(), in_engine: true });
        }
    }
    let Some(streams) = &draft.streams else { return };
    let needed = needed(true);
    let given: Vec<&TenantId> = streams.credentials.iter().filter_map(|credential| Some(&credential.tenant.as_ref()?.value)).collect();
    for tenant in needed.keys().filter(|tenant| !given.contains(tenant)) {
        report.push(streams.at, Fault::NoTriggerCredential { tenant: tenant.to_string(), in_engine: false });
    }
    // A peer that could not be read keeps nobody's triggers from being known.
    let knows_all = built.is_some() || draft.stream_triggers.is_empty();
    let mut seen = BTreeSet::new();
    for credential in streams.credentials.iter().filter(|_| knows_all && !needed.is_empty()) {
        if let Some(tenant) = credential.tenant.as_ref().filter(|tenant| !seen.insert(&tenant.value)) {
            let problem = format!("tenant {} has another one above; a tenant has one", tenant.value);
            report.push(tenant.at, Fault::Provider { what: "this credential of [broker]".to_owned(), problem });
        }
        if let Some(unused) = credential.tenant.as_ref().filter(|tenant| !needed.contains_key(&tenant.value)) {
            report.push(unused.at, Fault::UnusedCredential { provider: "[broker]".to_owned(), tenant: unused.value.to_string() });
        }
    }
}

/// A configuration of streams that cannot be used.
struct Refused {
    at: usize,
    fault: Fault,
}

/// What is installed; `None` where no trigger is woken by a stream, or something else was reported already.
fn build(draft: &Draft) -> Result<Option<TriggerConfig>, Box<Refused>> {
    if let Some(file) = draft.streams.as_ref().and_then(|streams| streams.file.as_ref()) {
        return Ok(file.clone().ok());
    }
    let of_topics = profile::bindings(draft).into_iter().map(|(_, binding)| Some(binding));
    let bindings: Option<Vec<_>> = draft.stream_triggers.iter().map(|trigger| trigger.binding.clone()).chain(of_topics).collect();
    let Some((bindings, (endpoint, roots))) = bindings.filter(|bindings| !bindings.is_empty()).zip(endpoint_of(draft)) else {
        return Ok(None);
    };
    let interval = draft.streams.as_ref().map_or(limits::POLL_INTERVAL_MILLIS.default, |streams| streams.poll_interval_millis);
    let whole = TriggerDraft {
        format_version: Some(1),
        endpoint: Some(endpoint),
        roots: Some(roots),
        poll_interval_millis: Some(interval),
        bindings: Some(bindings),
    };
    whole.check().map(Some).map_err(|error| refused(draft, error))
}

fn endpoint_of(draft: &Draft) -> Option<(EndpointDraft, RootsDraft)> {
    match &draft.streams {
        Some(streams) => streams.broker.clone(),
        None => draft.broker().map(|broker| drafts_of(&broker.peer)),
    }
}

/// The same peer as it is written. It was allowed where it was checked.
pub(super) fn drafts_of(peer: &Peer) -> (EndpointDraft, RootsDraft) {
    use base64::Engine as _;
    let address = peer.address().to_string();
    let endpoint = EndpointDraft {
        address: Some(address.clone()),
        allow_non_public_peer: Some(address),
        server_name: Some(peer.server_name().to_owned()),
    };
    let der = peer.roots().map(|root| base64::engine::general_purpose::STANDARD.encode(root)).collect();
    (endpoint, RootsDraft { public: false, der })
}

fn refused(draft: &Draft, error: ConfigError) -> Box<Refused> {
    let index = if let ConfigError::Binding { index, .. } = &error { Some(*index) } else { None };
    let (at, what) = index
        .and_then(|index| whose(draft, index))
        .unwrap_or_else(|| (draft.place_of_streams().unwrap_or_default(), "the triggers of streams".to_owned()));
    let problem = match error {
        ConfigError::Binding { problem, .. } => words(draft, &problem),
        error => told(&error),
    };
    Box::new(Refused { at, fault: Fault::Streams { what, problem } })
}

/// Where the trigger of a binding stands, and what it is called.
fn whose(draft: &Draft, index: usize) -> Option<(usize, String)> {
    if let Some(trigger) = draft.stream_triggers.get(index) {
        return Some((trigger.at, trigger.called()));
    }
    let of_topics = profile::bindings(draft);
    let (trigger, _) = of_topics.get(index.checked_sub(draft.stream_triggers.len())?)?;
    Some((trigger.at(), trigger.called()))
}

/// The problem in the words of this file's keys.
fn words(draft: &Draft, problem: &BindingProblem) -> String {
    let of = |first: &usize| whose(draft, *first).map_or_else(|| "another trigger".to_owned(), |(_, called)| called);
    match problem {
        BindingProblem::SameId { first } => format!("{} has the same id", of(first)),
        BindingProblem::SameConsumer { stream, consumer, first } => {
            format!("{} has consumer {consumer} of stream {stream} already; each trigger needs a consumer of its own", of(first))
        }
        problem => {
            let words = [
                ("ackWaitMillis", "ack_wait_millis"),
                ("operationTimeoutMillis", "operation_timeout_millis"),
                ("budget.wallTimeMillis", "wall_time_millis of budget"),
                ("payloadCeilingBytes", "payload_ceiling_bytes"),
                ("maxDeliver is 16 and maxDeliveries 16", "max_deliveries is 16 and may be 15"),
                ("maxDeliver", "max_deliveries"),
                ("nakDelayMillis", "retry_delay_millis"),
            ];
            words.iter().fold(problem.to_string(), |text, (json, toml)| text.replace(json, toml))
        }
    }
}

/// The settings. `None` where no trigger is woken by a stream.
pub(super) fn complete(draft: &Draft) -> Option<StreamsConfig> {
    let triggers = build(draft).ok()??;
    let credentials = match &draft.streams {
        Some(streams) => streams.credentials.iter().filter_map(credential_of).collect(),
        None => {
            let given = draft.broker().into_iter().flat_map(credentials_of_engine);
            given.filter(|credential| triggers.tenants().contains(&credential.tenant)).collect()
        }
    };
    Some(StreamsConfig { triggers, credentials })
}

/// Those of `[engine]`.
pub(super) fn credentials_of_engine(broker: &BrokerConfig) -> impl Iterator<Item = CredentialConfig> {
    broker.trigger_credentials.iter().map(|(tenant, BrokerUser { user, secret })| CredentialConfig {
        tenant: tenant.clone(),
        user: Some(user.clone()),
        secret: secret.clone(),
    })
}

pub(super) fn credential_of(draft: &CredentialDraft) -> Option<CredentialConfig> {
    let (tenant, secret) = (draft.tenant.as_ref()?, draft.secret.as_ref()?);
    Some(CredentialConfig { tenant: tenant.value.clone(), user: draft.user.clone(), secret: secret.value.clone() })
}
