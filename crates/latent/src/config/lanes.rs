//! From the triggers that follow `nats-jetstream-pull-v2` what is installed: on the broker of `[engine]` those on topics, on that of `[broker]`,
//! or without one there as well, those on streams.

use std::collections::BTreeMap;

use latent_bridge::nats_bus::{stream_name, subject};
use latent_core::{BindingId, ConsumerName, Partition, StreamName, Subject, TenantId, limits as core_limits};
use latent_nats::lanes::limits::HOT;
use latent_nats::lanes::{LaneDraft, LaneInput, LanesConfig as InstalledLanes, LanesDraft};
use latent_nats::{ConfigError, EndpointDraft, RootsDraft};

use super::draft::{Draft, RawTriggerDraft, TriggerDraft};
use super::problem::Fault;
use super::profile::{self, Profile, consumer_of, partitions_of};
use super::provider::told;
use super::section::Report;
use super::settings::{CredentialConfig, LaneTrigger, LanesConfig};
use super::streams;

/// The triggers on topics that follow the profile: all on a broker, unless they ask for another one.
pub(super) fn on_topics(draft: &Draft) -> impl Iterator<Item = &TriggerDraft> {
    draft.triggers.iter().filter(|trigger| draft.is_on_nats && trigger.profile == Profile::PullV2)
}

/// Everything that one trigger says of another, and their sum.
pub(super) fn check(report: &mut Report<'_>, draft: &Draft) {
    check_consumers(report, draft);
    check_tenants(report, draft);
    check_topics(report, draft);
    let before = report.problems.len();
    check_sum(report, draft);
    if report.problems.len() == before {
        check_profile(report, draft);
    }
}

/// Each consumer wakes one trigger.
fn check_consumers(report: &mut Report<'_>, draft: &Draft) {
    let mut taken = BTreeMap::new();
    for (trigger, binding) in profile::bindings(draft) {
        taken.extend(binding.stream.zip(binding.consumer).map(|pair| (pair, trigger.called())));
    }
    for trigger in &draft.stream_triggers {
        let binding = trigger.binding.clone().unwrap_or_default();
        taken.extend(binding.stream.zip(binding.consumer).map(|pair| (pair, trigger.called())));
    }
    for trigger in on_topics(draft) {
        for LaneNames { stream, consumer, .. } in consumers_of_topic(draft, trigger) {
            taken.insert((stream, consumer), trigger.called());
        }
    }
    for RawTriggerDraft { trigger, consumer, at } in &draft.raw_triggers {
        let Some(consumer) = consumer else { continue };
        let pair = (consumer.stream.to_string(), consumer.consumer.to_string());
        let (stream, name) = pair.clone();
        if let Some(first) = taken.insert(pair, trigger.called()) {
            let problem = format!("{first} has consumer {name} of stream {stream} already; each trigger needs a consumer of its own");
            report.push(*at, Fault::Streams { what: trigger.called(), problem });
        }
    }
}

/// A raw event names its subject as its topic: it must not be taken for another's event.
fn check_topics(report: &mut Report<'_>, draft: &Draft) {
    let names: Vec<_> = draft.engine.iter().flat_map(|engine| &engine.manifest.topics).map(|spec| &spec.name).collect();
    for RawTriggerDraft { trigger, at, .. } in &draft.raw_triggers {
        let Some(filter) = trigger.topic.as_ref().filter(|filter| names.iter().any(|name| **name == filter.value.as_str())) else {
            continue;
        };
        let problem = format!(
            "its filter {} is also the name of a topic of the manifest, and its events would be taken for that one's",
            filter.value
        );
        report.push(*at, Fault::Streams { what: trigger.called(), problem });
    }
}

/// What one tenant reads no other one reads, too (T-009).
fn check_tenants(report: &mut Report<'_>, draft: &Draft) {
    let mut owners: BTreeMap<&str, (&TenantId, String)> = BTreeMap::new();
    for trigger in &draft.stream_triggers {
        let filter = trigger.binding.as_ref().and_then(|binding| binding.filter.as_deref());
        owners.extend(filter.zip(trigger.tenant.as_ref()).map(|(filter, tenant)| (filter, (&tenant.value, trigger.called()))));
    }
    for RawTriggerDraft { trigger, at, .. } in &draft.raw_triggers {
        let Some((filter, tenant)) = trigger.topic.as_ref().zip(trigger.tenant.as_ref()) else { continue };
        let (owner, first) = owners.entry(filter.value.as_str()).or_insert_with(|| (&tenant.value, trigger.called()));
        if *owner != &tenant.value {
            let problem = format!("{first} of tenant {owner} reads {} already, and what one tenant reads no other one may", filter.value);
            report.push(*at, Fault::Streams { what: trigger.called(), problem });
        }
    }
}

fn check_sum(report: &mut Report<'_>, draft: &Draft) {
    let limit = &latent_nats::lanes::limits::LANES;
    let of_topics = on_topics(draft).map(|trigger| {
        let partitions = trigger.topic.as_ref().map_or(0, |topic| partitions_of(draft, &topic.value));
        (trigger.at(), u64::from(partitions))
    });
    let mut total = 0;
    for (at, bindings) in of_topics.chain(draft.raw_triggers.iter().map(|raw| (raw.at, 1))) {
        let before = total;
        total += bindings;
        // Named once, where the sum first goes above.
        if before <= limit.max && total > limit.max {
            report.push(at, Fault::TooManyBindings { total, most: limit.max });
        }
    }
}

/// The tenants that have such triggers at the broker of `[broker]` (`true`) or of `[engine]`, with where the first of each stands.
pub(super) fn tenants(draft: &Draft, of_streams: bool) -> BTreeMap<&TenantId, usize> {
    let raw = draft.raw_triggers.iter().map(|raw| &raw.trigger).filter(|_| draft.streams.is_some() == of_streams);
    let mut tenants = BTreeMap::new();
    for trigger in on_topics(draft).filter(|_| !of_streams).chain(raw) {
        if let Some(tenant) = &trigger.tenant {
            tenants.entry(&tenant.value).or_insert_with(|| trigger.at());
        }
    }
    tenants
}

/// Names of the lanes of a trigger, one for each partition.
fn consumers_of_topic(draft: &Draft, trigger: &TriggerDraft) -> Vec<LaneNames> {
    let Some((id, topic)) = trigger.id.as_ref().zip(trigger.topic.as_ref()) else { return Vec::new() };
    let topic = &topic.value;
    let names = |partition| LaneNames {
        input: LaneInput::Event { topic: topic.clone(), partition: Partition(partition) },
        stream: stream_name(topic.as_str()),
        consumer: consumer_of(&id.value, partition),
        filter: subject(topic.as_str(), partition),
    };
    (0..partitions_of(draft, topic)).map(names).collect()
}

/// Where one lane is on its broker.
struct LaneNames {
    input: LaneInput,
    stream: String,
    consumer: String,
    filter: String,
}

/// Everything that is installed on one broker, still to be checked as a whole.
struct Plan {
    endpoint: EndpointDraft,
    roots: RootsDraft,
    /// Each with where it stands.
    triggers: Vec<(LaneTrigger, usize)>,
    lanes: Vec<LaneDraft>,
    credentials: Vec<CredentialConfig>,
}

impl Plan {
    fn new((endpoint, roots): (EndpointDraft, RootsDraft)) -> Self {
        Self { endpoint, roots, triggers: Vec::new(), lanes: Vec::new(), credentials: Vec::new() }
    }

    /// `None` when something of the trigger could not be read, which was reported.
    fn add(&mut self, trigger: &TriggerDraft, names: Vec<LaneNames>, at: usize) -> Option<()> {
        let config = trigger.clone().complete()?;
        let (ack_wait_millis, payload_ceiling_bytes) = (trigger.ack_wait_millis.value, trigger.payload_ceiling_bytes);
        let partitions = u32::try_from(names.len()).ok()?;
        for (partition, LaneNames { input, stream, consumer, filter }) in names.into_iter().enumerate() {
            let lane = LaneDraft {
                id: BindingId::parse(&format!("{}_p{partition}", config.id)).ok()?,
                trigger: config.id.clone(),
                tenant: config.tenant.clone(),
                input,
                stream: StreamName::parse(&stream).ok()?,
                consumer: ConsumerName::parse(&consumer).ok()?,
                filter: Subject::parse(&filter).ok()?,
                group: Some(GROUP.to_owned()),
                max_in_flight: config.max_in_flight,
                max_deliveries: config.max_deliveries,
                payload_ceiling_bytes: u32::try_from(payload_ceiling_bytes).ok()?,
                ack_wait_millis,
                operation_timeout_millis: config.operation_timeout_millis,
                dead_letter: config.dead_letter.clone(),
            };
            self.lanes.push(lane);
        }
        self.triggers.push((LaneTrigger { trigger: config, payload_ceiling_bytes, partitions }, at));
        Some(())
    }

    fn check(&self) -> Result<InstalledLanes, ConfigError> {
        let Self { endpoint, roots, lanes, .. } = self;
        LanesDraft { endpoint: endpoint.clone(), roots: roots.clone(), lanes: lanes.clone(), hot_max: HOT.default }.check()
    }

    /// Where what is wrong stands, and whose it is.
    fn place_of(&self, error: &ConfigError) -> (usize, String) {
        let (mut lanes_before, first) = (0, self.triggers.first());
        let index = if let ConfigError::Lane { index, .. } = error { *index } else { 0 };
        let whose = self.triggers.iter().find(|(lane, _)| {
            lanes_before += lane.partitions as usize;
            lanes_before > index
        });
        whose.or(first).map_or_else(Default::default, |(lane, at)| (*at, format!("trigger {:?}", lane.trigger.id)))
    }
}

/// The priority group of every consumer.
const GROUP: &str = "latent";

/// What is installed on each broker; `None` when something could not be read, which was reported.
fn plans(draft: &Draft) -> Option<Vec<Plan>> {
    let mut plans = Vec::new();
    let raw_elsewhere = draft.streams.is_some() && !draft.raw_triggers.is_empty();
    let here = on_topics(draft).next().is_some() || (!raw_elsewhere && !draft.raw_triggers.is_empty());
    if here {
        let broker = draft.broker()?;
        let mut plan = Plan::new(streams::drafts_of(&broker.peer));
        for trigger in on_topics(draft) {
            plan.add(trigger, consumers_of_topic(draft, trigger), trigger.at())?;
        }
        plan.credentials.extend(streams::credentials_of_engine(broker));
        plans.push(plan);
    }
    if raw_elsewhere {
        let streams = draft.streams.as_ref()?;
        let mut plan = Plan::new(streams.broker.clone()?);
        plan.credentials.extend(streams.credentials.iter().filter_map(streams::credential_of));
        plans.push(plan);
    }
    // They are with the last one: on `[broker]` where there is one, and else beside the topics.
    for RawTriggerDraft { trigger, consumer, at } in &draft.raw_triggers {
        let (consumer, filter) = (consumer.as_ref()?, trigger.topic.as_ref()?.value.to_string());
        let (stream, name) = (consumer.stream.to_string(), consumer.consumer.to_string());
        let names = LaneNames { input: LaneInput::Raw, stream, consumer: name, filter };
        plans.last_mut()?.add(trigger, vec![names], *at)?;
    }
    Some(plans)
}

/// What only the profile itself knows.
fn check_profile(report: &mut Report<'_>, draft: &Draft) {
    let before = report.problems.len();
    let longest = core_limits::NAME_BYTES.max_usize().saturating_sub(PARTITION_BYTES_MAX);
    let named = on_topics(draft).chain(draft.raw_triggers.iter().map(|raw| &raw.trigger)).filter_map(|trigger| trigger.id.as_ref());
    for id in named.filter(|id| id.value.as_str().len() > longest) {
        let problem = format!("its id is longer than {longest} bytes, and the number of a partition has to fit behind it");
        report.push(id.at, Fault::Streams { what: format!("trigger {:?}", id.value), problem });
    }
    if report.problems.len() > before {
        return;
    }
    for plan in plans(draft).unwrap_or_default() {
        if let Err(error) = plan.check() {
            let (at, what) = plan.place_of(&error);
            let problem = match error {
                ConfigError::Lane { problem, .. } => problem.to_string(),
                error => told(&error),
            };
            report.push(at, Fault::Streams { what, problem });
        }
    }
}

/// `_p` and the number of the last partition there can be.
const PARTITION_BYTES_MAX: usize = 6;

/// The settings. `None` only after a problem was reported.
pub(super) fn complete(draft: &Draft) -> Option<Vec<LanesConfig>> {
    let config = |plan: Plan| {
        let installed = plan.check().ok()?;
        let triggers: Vec<_> = plan.triggers.into_iter().map(|(lane, _)| lane).collect();
        let used = |credential: &CredentialConfig| installed.tenants().contains(&credential.tenant);
        let credentials = plan.credentials.into_iter().filter(used).collect();
        Some(LanesConfig { installed, triggers, credentials })
    };
    plans(draft)?.into_iter().map(config).collect()
}
