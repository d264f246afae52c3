//! Triggers on topics of a broker that ask for `nats-jetstream-pull-v1`: one binding for each partition of the topic.

use latent_bridge::nats_bus::{stream_name, subject};
use latent_nats::triggers::BindingDraft;

use super::draft::{Draft, TriggerDraft};
use super::stream_trigger::{budget_draft, deliveries};

/// What only this profile has of a trigger on a topic.
#[derive(Debug, Clone, Copy)]
pub(super) struct PullV1 {
    pub(super) ack_wait_millis: u64,
    pub(super) payload_ceiling_bytes: u64,
    /// Whether the table has a budget.
    pub(super) budget_stands: bool,
}

/// The bindings of every such trigger, each with its trigger; a trigger that could not be read whole has none.
pub(super) fn bindings(draft: &Draft) -> Vec<(&TriggerDraft, BindingDraft)> {
    draft.triggers.iter().flat_map(|trigger| of_trigger(draft, trigger).into_iter().map(move |binding| (trigger, binding))).collect()
}

fn of_trigger(draft: &Draft, trigger: &TriggerDraft) -> Vec<BindingDraft> {
    let named = trigger.profile.zip(trigger.id.as_ref()).zip(trigger.topic.as_ref()).zip(trigger.tenant.as_ref());
    let called = trigger.service.as_ref().zip(trigger.contract.as_ref()).zip(trigger.function.as_ref());
    let Some(((((profile, id), topic), tenant), ((service, contract), function))) = named.zip(called) else { return Vec::new() };
    let specs = draft.engine.iter().flat_map(|engine| &engine.manifest.topics);
    let partitions = specs.filter(|spec| spec.name == topic.value.as_str()).map(|spec| spec.partitions).sum::<u32>();
    let mut budget = trigger.budget;
    let timeout = trigger.operation_timeout_millis.value;
    if !profile.budget_stands {
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
        consumer: Some(format!("latent_{}_p{partition}", id.value)),
        filter: Some(subject(topic.value.as_str(), partition)),
        input: Some("event".to_owned()),
        topic: Some(topic.value.to_string()),
        partition: Some(u64::from(partition)),
        max_deliver: Some(deliveries(runs, dead_letter.is_some())),
        max_deliveries: Some(runs),
        dead_letter: dead_letter.clone(),
        payload_ceiling_bytes: Some(profile.payload_ceiling_bytes),
        operation_timeout_millis: Some(timeout),
        ack_wait_millis: Some(profile.ack_wait_millis),
        nak_delay_millis: Some(trigger.retry_delay_millis.value),
        budget: Some(budget_draft(&budget)),
    };
    (0..partitions).map(of_partition).collect()
}
