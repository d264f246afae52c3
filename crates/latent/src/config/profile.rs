//! What triggers on topics of a broker follow, and of those that ask for `nats-jetstream-pull-v1` one binding for each partition of the topic.

use latent_bridge::nats_bus::{stream_name, subject};
use latent_core::{BindingId, TopicName};
use latent_nats::triggers::BindingDraft;

use super::draft::{Draft, TriggerDraft};
use super::stream_trigger::{budget_draft, deliveries};

/// What a trigger on a topic of a broker follows. Topics of the embedded engine need none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    /// One event of a partition at a time.
    PullV1,
    /// Many, in the order of each key: what the embedded engine does, too.
    PullV2,
}

/// The bindings of every such trigger, each with its trigger; a trigger that could not be read whole has none.
pub(super) fn bindings(draft: &Draft) -> Vec<(&TriggerDraft, BindingDraft)> {
    draft.triggers.iter().flat_map(|trigger| of_trigger(draft, trigger).into_iter().map(move |binding| (trigger, binding))).collect()
}

/// As the manifest has it; none of a topic that is not there.
pub(super) fn partitions_of(draft: &Draft, topic: &TopicName) -> u32 {
    let specs = draft.engine.iter().flat_map(|engine| &engine.manifest.topics);
    specs.filter(|spec| spec.name == topic.as_str()).map(|spec| spec.partitions).sum()
}

/// The durable consumer of a trigger's partition, whatever profile it follows.
pub(super) fn consumer_of(trigger: &BindingId, partition: u32) -> String {
    format!("latent_{trigger}_p{partition}")
}

fn of_trigger(draft: &Draft, trigger: &TriggerDraft) -> Vec<BindingDraft> {
    if trigger.profile != Profile::PullV1 {
        return Vec::new();
    }
    let named = trigger.id.as_ref().zip(trigger.topic.as_ref()).zip(trigger.tenant.as_ref());
    let called = trigger.service.as_ref().zip(trigger.contract.as_ref()).zip(trigger.function.as_ref());
    let Some((((id, topic), tenant), ((service, contract), function))) = named.zip(called) else { return Vec::new() };
    let partitions = partitions_of(draft, &topic.value);
    let mut budget = trigger.budget;
    let timeout = trigger.operation_timeout_millis.value;
    if !trigger.budget_stands {
        budget.wall_time_millis = budget.wall_time_millis.min(timeout);
    }
    let runs = u64::from(trigger.max_deliveries);
    let dead_letter = trigger.dead_letter.as_ref().map(|topic| topic.value.to_string());
    let of_partition = |partition: u32| BindingDraft {
        id: Some(format!("{}_p{partition}", id.value)),
        trigger: Some(id.value.to_string()),
        tenant: Some(tenant.value.to_string()),
        principal: Some(id.value.to_string()),
        service: Some(service.value.to_string()),
        contract: Some(contract.to_string()),
        function: Some(function.to_string()),
        route: None,
        stream: Some(stream_name(topic.value.as_str())),
        consumer: Some(consumer_of(&id.value, partition)),
        filter: Some(subject(topic.value.as_str(), partition)),
        input: Some("event".to_owned()),
        topic: Some(topic.value.to_string()),
        partition: Some(u64::from(partition)),
        max_deliver: Some(deliveries(runs, dead_letter.is_some())),
        max_deliveries: Some(runs),
        dead_letter: dead_letter.clone(),
        payload_ceiling_bytes: Some(trigger.payload_ceiling_bytes),
        operation_timeout_millis: Some(timeout),
        ack_wait_millis: Some(trigger.ack_wait_millis.value),
        nak_delay_millis: Some(trigger.retry_delay_millis.value),
        budget: Some(budget_draft(&budget)),
    };
    (0..partitions).map(of_partition).collect()
}
