//! One binding: which consumer wakes which function, as whom and with what. Checked; nothing here can be changed by a message (T-003).

use latent_core::{
    BindingId, Budget, ConsumerName, ContractName, FunctionName, Partition, RouteName, ServiceName, StreamName, Subject, TenantId,
    TopicName,
};
use latent_nats_proto::triggers::ConsumerProfile;
use latent_node::delivery::VisitPolicy;
use latent_node::{InboundTarget, Principal};

use super::config::{BindingDraft, BudgetDraft};
use super::fault::BindingProblem;
use super::limits;

const CONTRACT_ADVICE: &str = "name the interface, such as acme:orders/intake@1.0.0";
const BUDGET_ADVICE: &str = "give cpuFuel, memoryBytes, wallTimeMillis, outboundRequests and logBytes";

/// What a binding's function is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindingInput {
    /// The payload as its arguments (T-006).
    Values,
    /// The event that the message is: a record of this partition of a topic. The function is a handler.
    Event {
        /// The topic.
        topic: TopicName,
        /// Its partition.
        partition: Partition,
    },
}

/// A checked binding (T-003): everything about its activations that an operator decides and a message does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriggerBinding {
    id: BindingId,
    trigger: BindingId,
    input: BindingInput,
    dead_letter: Option<TopicName>,
    target: InboundTarget,
    stream: StreamName,
    consumer: ConsumerName,
    filter: Subject,
    payload_ceiling_bytes: u32,
    ack_wait_millis: u64,
    policy: VisitPolicy,
}

impl TriggerBinding {
    /// Its id.
    pub const fn id(&self) -> &BindingId {
        &self.id
    }

    /// The trigger that it is a part of: what keys are derived from, and who a dead letter's binding is. Its id, unless said otherwise.
    pub const fn trigger(&self) -> &BindingId {
        &self.trigger
    }

    /// What its function is given.
    pub const fn input(&self) -> &BindingInput {
        &self.input
    }

    /// The topic that keeps what never runs (again) before it is terminated.
    pub const fn dead_letter(&self) -> Option<&TopicName> {
        self.dead_letter.as_ref()
    }

    /// True when it needs somebody who knows topics.
    pub(super) const fn needs_topics(&self) -> bool {
        self.dead_letter.is_some() || matches!(self.input, BindingInput::Event { .. })
    }

    /// For whom its function runs.
    pub const fn tenant(&self) -> &TenantId {
        &self.target.tenant
    }

    /// Whom it calls, as whom, with what budget.
    pub const fn target(&self) -> &InboundTarget {
        &self.target
    }

    /// The stream.
    pub const fn stream(&self) -> &StreamName {
        &self.stream
    }

    /// The durable consumer of it.
    pub const fn consumer(&self) -> &ConsumerName {
        &self.consumer
    }

    /// The consumer's one filter, a literal subject.
    pub const fn filter(&self) -> &Subject {
        &self.filter
    }

    /// The largest payload, in bytes.
    pub const fn payload_ceiling_bytes(&self) -> u32 {
        self.payload_ceiling_bytes
    }

    /// How long the broker waits for a settlement, in milliseconds.
    pub const fn ack_wait_millis(&self) -> u64 {
        self.ack_wait_millis
    }

    /// How its messages are tried.
    pub const fn policy(&self) -> VisitPolicy {
        self.policy
    }

    /// What the broker's consumer must be (T-037 to T-039).
    pub fn profile(&self) -> ConsumerProfile<'_> {
        ConsumerProfile {
            stream: self.stream.as_str(),
            consumer: self.consumer.as_str(),
            filter_subject: self.filter.as_str(),
            ack_wait_nanos: self.ack_wait_millis.saturating_mul(1_000_000),
            max_deliver: u64::from(self.policy.source_deliveries_max),
            payload_bytes_max: self.payload_ceiling_bytes,
        }
    }

    /// Memory that one visit is charged (T-034).
    pub const fn ingress_bytes(&self) -> u64 {
        limits::INGRESS_BYTES.default + 2 * self.payload_ceiling_bytes as u64
    }

    /// Checks a draft.
    pub(super) fn check(draft: &BindingDraft) -> Result<Self, BindingProblem> {
        let id = name(draft.id.as_deref(), "id", "choose a name", BindingId::parse)?;
        let tenant = name(draft.tenant.as_deref(), "tenant", "name the tenant", TenantId::parse)?;
        let service = name(draft.service.as_deref(), "service", "name the service that is called", ServiceName::parse)?;
        let contract = name(draft.contract.as_deref(), "contract", CONTRACT_ADVICE, ContractName::parse)?;
        let function = name(draft.function.as_deref(), "function", "name the function", FunctionName::parse)?;
        let route = draft.route.as_deref().map(|route| parsed("route", RouteName::parse(route))).transpose()?;
        let subject = draft.principal.as_deref().map(|subject| parsed("principal", BindingId::parse(subject))).transpose()?;
        let stream = name(draft.stream.as_deref(), "stream", "name the stream", StreamName::parse)?;
        let consumer = name(draft.consumer.as_deref(), "consumer", "name its durable consumer", ConsumerName::parse)?;
        let filter = name(draft.filter.as_deref(), "filter", "give the consumer's one subject, without wildcards", Subject::parse)?;
        let trigger = draft.trigger.as_deref().map(|trigger| parsed("trigger", BindingId::parse(trigger))).transpose()?;
        let input = input_of(draft)?;
        let dead_letter = dead_letter_of(draft, &input, &stream)?;
        let number = |value: Option<u64>, field, limit: &latent_core::Limit, advice| {
            let value = value.ok_or(BindingProblem::Missing { field, advice })?;
            limit.check(value).map_err(|error| BindingProblem::Limit { field, error })
        };
        let (ceiling, timeout) = (&limits::PAYLOAD_CEILING_BYTES, &limits::OPERATION_TIMEOUT_MILLIS);
        let ceiling = number(draft.payload_ceiling_bytes, "payloadCeilingBytes", ceiling, "choose at most 32768 bytes")?;
        let operation_timeout_millis = number(draft.operation_timeout_millis, "operationTimeoutMillis", timeout, "choose 100 to 10000 ms")?;
        let deliveries = number(draft.max_deliver, "maxDeliver", &limits::MAX_DELIVER, "write the consumer's max_deliver, 1 to 16")?;
        let runs = runs_of(draft, deliveries)?;
        let ack_wait = &limits::ACK_WAIT_MILLIS;
        let ack_wait_millis = number(draft.ack_wait_millis, "ackWaitMillis", ack_wait, "write the consumer's ack_wait in ms")?;
        let least = operation_timeout_millis + limits::ACK_WAIT_MARGIN_MILLIS.default;
        if ack_wait_millis < least {
            return Err(BindingProblem::AckWait { ack_wait_millis, least_millis: least });
        }
        let delay = &limits::NAK_DELAY_MILLIS;
        let retry_delay_millis = number(draft.nak_delay_millis, "nakDelayMillis", delay, "choose 100 to 10000 ms")?;
        let budget = draft.budget.as_ref().ok_or(BindingProblem::Missing { field: "budget", advice: BUDGET_ADVICE })?;
        let budget = budget_of(budget)?;
        if budget.wall_time_millis > operation_timeout_millis {
            return Err(BindingProblem::WallTime { wall_time_millis: budget.wall_time_millis, operation_timeout_millis });
        }
        Ok(Self {
            target: InboundTarget {
                tenant,
                principal: Principal::trigger(subject.as_ref().unwrap_or(&id)),
                service,
                contract,
                function,
                route,
                budget,
                // An event's names and attributes come beside its body.
                input_bytes_max: if matches!(input, BindingInput::Values) { ceiling } else { ceiling + HEADER_BYTES },
            },
            trigger: trigger.unwrap_or_else(|| id.clone()),
            id,
            input,
            dead_letter: dead_letter.clone(),
            stream,
            consumer,
            filter,
            // Both are within limits that fit.
            payload_ceiling_bytes: u32::try_from(ceiling).unwrap_or(u32::MAX),
            ack_wait_millis,
            policy: VisitPolicy {
                deliveries_max: u32::try_from(runs).unwrap_or(u32::MAX),
                source_deliveries_max: u32::try_from(deliveries).unwrap_or(u32::MAX),
                parks: dead_letter.is_some(),
                retry_delay_millis,
                retry_delay_max_millis: limits::NAK_DELAY_MILLIS.max,
                operation_timeout_millis,
            },
        })
    }
}

/// Headers of a message, at most.
const HEADER_BYTES: u64 = latent_nats_proto::limits::DELIVERED_HEADER_BYTES.max;

/// The dead-letter topic. A letter tells where its event lay as the place in a topic.
fn dead_letter_of(draft: &BindingDraft, input: &BindingInput, stream: &StreamName) -> Result<Option<TopicName>, BindingProblem> {
    let topic = draft.dead_letter.as_deref().map(|topic| parsed("deadLetter", TopicName::parse(topic))).transpose()?;
    match (&topic, input, TopicName::parse(stream.as_str())) {
        (Some(_), BindingInput::Values, Err(error)) => Err(BindingProblem::DeadLetterOf { stream: stream.clone(), error: Box::new(error) }),
        _ => Ok(topic),
    }
}

fn input_of(draft: &BindingDraft) -> Result<BindingInput, BindingProblem> {
    match draft.input.as_deref() {
        None | Some("wit-values") => Ok(BindingInput::Values),
        Some("event") => {
            let topic = name(draft.topic.as_deref(), "topic", "name the topic whose records the stream keeps", TopicName::parse)?;
            let partition =
                draft.partition.ok_or(BindingProblem::Missing { field: "partition", advice: "number the topic's partition" })?;
            let partition = u32::try_from(partition).ok().filter(|partition| *partition < PARTITIONS_MAX);
            let partition = partition.ok_or(BindingProblem::Partition { most: PARTITIONS_MAX - 1 })?;
            Ok(BindingInput::Event { topic, partition: Partition(partition) })
        }
        Some(other) => Err(BindingProblem::Input { found: other.chars().take(40).collect() }),
    }
}

/// Partitions that a topic can have.
const PARTITIONS_MAX: u32 = 1_024;

/// Runs of one message within `deliveries`: as many, or, where what never runs again is parked first, at least one less.
fn runs_of(draft: &BindingDraft, deliveries: u64) -> Result<u64, BindingProblem> {
    let parks = draft.dead_letter.is_some();
    let runs = draft.max_deliveries.unwrap_or(if parks { deliveries.saturating_sub(1) } else { deliveries });
    let fits = if parks { runs < deliveries } else { runs == deliveries };
    if fits && runs > 0 {
        return Ok(runs);
    }
    Err(BindingProblem::Deliveries { max_deliver: deliveries, max_deliveries: runs, parks })
}

fn budget_of(draft: &BudgetDraft) -> Result<Budget, BindingProblem> {
    let field = |value: Option<u64>| value.ok_or(BindingProblem::Missing { field: "budget", advice: BUDGET_ADVICE });
    let budget = Budget {
        cpu_fuel: field(draft.cpu_fuel)?,
        memory_bytes: field(draft.memory_bytes)?,
        wall_time_millis: field(draft.wall_time_millis)?,
        outbound_requests: field(draft.outbound_requests)?,
        log_bytes: field(draft.log_bytes)?,
        ..Budget::default()
    };
    budget.checked().map_err(|error| BindingProblem::Name { field: "budget", error })
}

fn name<T>(
    value: Option<&str>,
    field: &'static str,
    advice: &'static str,
    parse: impl Fn(&str) -> Result<T, latent_core::CoreError>,
) -> Result<T, BindingProblem> {
    parsed(field, parse(value.ok_or(BindingProblem::Missing { field, advice })?))
}

fn parsed<T>(field: &'static str, parsed: Result<T, latent_core::CoreError>) -> Result<T, BindingProblem> {
    parsed.map_err(|error| BindingProblem::Name { field, error })
}
