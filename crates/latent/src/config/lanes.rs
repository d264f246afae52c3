//! From the triggers that follow `nats-jetstream-pull-v2` what is installed: on the broker of `[engine]` those on topics, on that of `[broker]`,
//! or without one there as well, those on streams.

use std::collections::BTreeMap;

use latent_bridge::nats_bus::{stream_name, subject};
use latent_core::TenantId;

use super::draft::{Draft, RawTriggerDraft, TriggerDraft};
use super::problem::Fault;
use super::profile::{self, Profile, consumer_of, partitions_of};
use super::section::Report;
use super::settings::{CredentialConfig, LaneConsumer, LaneInput, LaneTrigger, LanesConfig};
use super::streams;
use crate::limits;

/// The triggers on topics that follow the profile: all on a broker, unless they ask for another one.
pub(super) fn on_topics(draft: &Draft) -> impl Iterator<Item = &TriggerDraft> {
    draft.triggers.iter().filter(|trigger| draft.is_on_nats && trigger.profile == Profile::PullV2)
}

/// Everything that one trigger says of another, and their sum.
pub(super) fn check(report: &mut Report<'_>, draft: &Draft) {
    check_consumers(report, draft);
    check_tenants(report, draft);
    check_sum(report, draft);
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
        for LaneConsumer { stream, consumer, .. } in consumers_of_topic(draft, trigger) {
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
    let limit = &limits::LANE_BINDINGS;
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

fn consumers_of_topic(draft: &Draft, trigger: &TriggerDraft) -> Vec<LaneConsumer> {
    let Some((id, topic)) = trigger.id.as_ref().zip(trigger.topic.as_ref()) else { return Vec::new() };
    let topic = &topic.value;
    let consumer = |partition| LaneConsumer {
        partition,
        stream: stream_name(topic.as_str()),
        consumer: consumer_of(&id.value, partition),
        filter: subject(topic.as_str(), partition),
    };
    (0..partitions_of(draft, topic)).map(consumer).collect()
}

/// The settings. `None` only after a problem was reported.
pub(super) fn complete(draft: &Draft) -> Option<Vec<LanesConfig>> {
    let on_topics = on_topics(draft).map(|trigger| lane(trigger, LaneInput::Event, consumers_of_topic(draft, trigger)));
    let mut of_engine = on_topics.collect::<Option<Vec<_>>>()?;
    let raw = draft.raw_triggers.iter().map(of_stream).collect::<Option<Vec<_>>>()?;
    let mut all = Vec::new();
    match &draft.streams {
        Some(streams) if !raw.is_empty() => {
            let (endpoint, roots) = streams.broker.as_ref()?;
            let (peer, public_roots) = (endpoint.check(roots).ok()?, roots.public);
            let credentials = used(streams.credentials.iter().filter_map(streams::credential_of), &raw);
            all.push(LanesConfig { peer, public_roots, triggers: raw, credentials });
        }
        _ => of_engine.extend(raw),
    }
    if !of_engine.is_empty() {
        let broker = draft.broker()?;
        let credentials = used(streams::credentials_of_engine(broker), &of_engine);
        all.insert(0, LanesConfig { peer: broker.peer.clone(), public_roots: false, triggers: of_engine, credentials });
    }
    Some(all)
}

fn lane(trigger: &TriggerDraft, input: LaneInput, consumers: Vec<LaneConsumer>) -> Option<LaneTrigger> {
    let (ack_wait_millis, payload_ceiling_bytes) = (trigger.ack_wait_millis.value, trigger.payload_ceiling_bytes);
    Some(LaneTrigger { trigger: trigger.clone().complete()?, input, ack_wait_millis, payload_ceiling_bytes, consumers })
}

fn of_stream(raw: &RawTriggerDraft) -> Option<LaneTrigger> {
    let named = raw.consumer.as_ref()?;
    let filter = raw.trigger.topic.as_ref()?.value.to_string();
    let consumer = LaneConsumer { partition: 0, stream: named.stream.to_string(), consumer: named.consumer.to_string(), filter };
    lane(&raw.trigger, LaneInput::Raw, vec![consumer])
}

/// Those of tenants that have triggers there.
fn used(credentials: impl Iterator<Item = CredentialConfig>, triggers: &[LaneTrigger]) -> Vec<CredentialConfig> {
    credentials.filter(|credential| triggers.iter().any(|lane| lane.trigger.tenant == credential.tenant)).collect()
}
