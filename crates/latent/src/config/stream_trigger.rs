//! A `[[trigger]]` that is woken by a durable consumer of a stream, not by a topic: by `nats-jetstream-pull-v1`, whose function is given the
//! payload as its arguments, or by `nats-jetstream-pull-v2`, whose function is given raw events.

use latent_core::{BindingId, Budget, ServiceName, StreamName, TenantId, TopicName};
use latent_nats::triggers::{BindingDraft, BudgetDraft, limits};

use super::draft::{RawConsumer, RawTriggerDraft, StreamTriggerDraft};
use super::problem::Fault;
use super::profile::Profile;
use super::section::{Report, Section, nearest};
use super::trigger::{Names, PULL_V2, read_budget, read_common};

const PROFILES: &[&str] = &[latent_nats::triggers::PROFILE, PULL_V2];
const INPUTS: &[&str] = &["wit-values", "raw-event"];
/// Any of them makes a trigger one of a stream.
const OF_STREAMS: &[&str] = &["stream", "consumer", "filter"];
/// What only triggers of topics have.
const OF_TOPICS: &[&str] = &["topic", "max_in_flight", "retry_delay_max_millis", "start"];
/// Deliveries of the consumer for so many runs. With a dead-letter topic the rest is for parking again what could not be parked.
pub(super) const fn deliveries(runs: u64, parks: bool) -> u64 {
    if parks { limits::MAX_DELIVER.max } else { runs }
}

/// Whether the table means a stream.
pub(super) fn is_meant(section: &Section<'_>) -> bool {
    OF_STREAMS.iter().any(|key| section.is_present(key))
}

/// Whether such a table asks for raw events.
pub(super) fn is_raw(section: &Section<'_>) -> bool {
    section.says("profile", PULL_V2)
}

/// A trigger on a stream by `nats-jetstream-pull-v2`.
pub(super) fn read_raw(report: &mut Report<'_>, mut section: Section<'_>) -> RawTriggerDraft {
    if section.is_present("topic") {
        report.push(section.place_of("topic"), Fault::Exclusive { table: section.label().to_owned(), first: "stream", second: "topic" });
    }
    let names = Names::read(report, &mut section);
    section.pass_over(["topic", "profile"]);
    if let Some(input) = section.text(report, "input").filter(|input| input.value != "raw-event") {
        let (table, nearest) = (section.label().to_owned(), nearest(input.value, [RAW_INPUT]));
        report.push(input.at, Fault::Choice { table, key: "input", found: input.value.to_owned(), allowed: &[RAW_INPUT], nearest });
    }
    let at = section.place_of("stream");
    let stream = section.required_name(report, "stream", "stream = \"ORDERS\"", StreamName::parse);
    let consumer =
        section.required_name(report, "consumer", "consumer = \"intake\", the durable consumer of the stream", StreamName::parse);
    // What a function is given names its subject as a topic, and so does its dead letter.
    let filter = section.required_name(report, "filter", "filter = \"orders.new\", the consumer's one subject", TopicName::parse);
    let consumer = stream.zip(consumer).map(|(stream, consumer)| RawConsumer { stream: stream.value, consumer: consumer.value });
    RawTriggerDraft { trigger: read_common(report, section, (names, filter), Profile::PullV2), consumer, at }
}

const RAW_INPUT: &str = "raw-event";

pub(super) fn read(report: &mut Report<'_>, mut section: Section<'_>) -> StreamTriggerDraft {
    let before = report.problems.len();
    for key in OF_TOPICS.iter().filter(|key| section.is_present(key)) {
        report.push(section.place_of(key), Fault::Exclusive { table: section.label().to_owned(), first: "stream", second: key });
    }
    section.pass_over(OF_TOPICS.iter().copied());
    let id = section.required_name(report, "id", "id = \"intake\"", BindingId::parse);
    let tenant = section.required_name(report, "tenant", "tenant = \"acme\"", TenantId::parse);
    let service = section.required_name(report, "service", "service = \"intake\"", ServiceName::parse);
    let mut text = |key, example| section.required_text(report, key, example).map(|text| text.value.to_owned());
    let stream = text("stream", "stream = \"ORDERS\"");
    let consumer = text("consumer", "consumer = \"intake\", the durable consumer of the stream");
    let filter = text("filter", "filter = \"orders.new\", the consumer's one subject");
    let contract = text("contract", "contract = \"acme:orders/intake@1.0.0\", the interface that the component exports");
    let function = text("function", "function = \"take\", the function of it");
    let (route, principal) = (section.text(report, "route"), section.text(report, "principal"));
    let (route, principal) = (route.map(|route| route.value.to_owned()), principal.map(|principal| principal.value.to_owned()));
    read_choice(report, &mut section, "profile", PROFILES);
    read_choice(report, &mut section, "input", INPUTS);
    let dead_letter = section.name(report, "dead_letter", TopicName::parse);
    let max_deliveries = section.integer_or_default(report, "max_deliveries", &limits::MAX_DELIVER);
    let nak_delay = section.integer_or_default(report, "retry_delay_millis", &limits::NAK_DELAY_MILLIS);
    let timeout = section.integer_or_default(report, "operation_timeout_millis", &limits::OPERATION_TIMEOUT_MILLIS);
    let ack_wait = section.integer_or_default(report, "ack_wait_millis", &limits::ACK_WAIT_MILLIS);
    let ceiling = section.integer_or_default(report, "payload_ceiling_bytes", &limits::PAYLOAD_CEILING_BYTES);
    let budget_stands = section.is_present("budget");
    let (mut budget, wall_time_at) = read_budget(report, &mut section);
    if !budget_stands {
        // What nobody has chosen fits.
        budget.wall_time_millis = budget.wall_time_millis.min(timeout.value);
    }
    let (label, at) = (section.label().to_owned(), section.place_of("stream"));
    section.finish(report, &[]);
    let binding = BindingDraft {
        id: id.as_ref().map(|id| id.value.to_string()),
        tenant: tenant.as_ref().map(|tenant| tenant.value.to_string()),
        principal,
        service: service.as_ref().map(|service| service.value.to_string()),
        contract,
        function,
        route,
        stream,
        consumer,
        filter,
        input: None,
        topic: None,
        partition: None,
        trigger: None,
        dead_letter: dead_letter.as_ref().map(|topic| topic.value.to_string()),
        max_deliveries: Some(max_deliveries.value),
        payload_ceiling_bytes: Some(ceiling.value),
        operation_timeout_millis: Some(timeout.value),
        max_deliver: Some(deliveries(max_deliveries.value, dead_letter.is_some())),
        ack_wait_millis: Some(ack_wait.value),
        nak_delay_millis: Some(nak_delay.value),
        budget: Some(budget_draft(&budget)),
    };
    let binding = Some(binding).filter(|_| report.problems.len() == before);
    StreamTriggerDraft { label, id, tenant, service, binding, dead_letter, operation_timeout_millis: timeout, budget, wall_time_at, at }
}

pub(super) fn budget_draft(budget: &Budget) -> BudgetDraft {
    BudgetDraft {
        cpu_fuel: Some(budget.cpu_fuel),
        memory_bytes: Some(budget.memory_bytes),
        wall_time_millis: Some(budget.wall_time_millis),
        outbound_requests: Some(budget.outbound_requests),
        log_bytes: Some(budget.log_bytes),
    }
}

/// A key that may say what is so anyway.
fn read_choice(report: &mut Report<'_>, section: &mut Section<'_>, key: &'static str, allowed: &'static [&'static str]) {
    let Some(found) = section.text(report, key) else { return };
    let table = section.label().to_owned();
    match found.value {
        "wit-values" | latent_nats::triggers::PROFILE if allowed.contains(&found.value) => {}
        RAW_INPUT if allowed.contains(&RAW_INPUT) => {
            let problem = format!("input = {RAW_INPUT:?} is given by profile = {PULL_V2:?}; add that");
            report.push(found.at, Fault::Streams { what: table, problem });
        }
        value => {
            let nearest = nearest(value, allowed.iter().copied());
            report.push(found.at, Fault::Choice { table, key, found: value.to_owned(), allowed, nearest });
        }
    }
}
