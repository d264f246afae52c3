//! `[[trigger]]` on a topic, and on a stream what it has in common with that; and the budget that every trigger has.

use latent_core::{BindingId, Budget, ContractName, FunctionName, Limit, ServiceName, TenantId, TopicName, limits as core_limits};
use latent_nats::triggers::limits as pull_limits;
use latent_node::delivery::limits;

use super::draft::TriggerDraft;
use super::problem::Fault;
use super::profile::Profile;
use super::section::{Report, Section, Spanned, nearest};
use super::settings::StartPosition;

const CONTRACT: &str = "latent:events/handler@0.2.0";
const FUNCTION: &str = "handle";
const STARTS: &[&str] = &["earliest", "latest"];
const INPUTS: &[&str] = &["event", "wit-values", "raw-event"];

/// The profiles of triggers on topics.
const PROFILES: &[&str] = &[PULL_V2, latent_nats::triggers::PROFILE];
/// What triggers on topics follow unless they ask for another one.
pub(super) const PULL_V2: &str = "nats-jetstream-pull-v2";
const LATER: &[(&str, &str)] =
    &[("route", "remove it; the service's one component is run"), ("principal", "remove it; the principal is trigger:<id>")];
const LATER_IN_BUDGET: &[(&str, &str)] =
    &[("child_calls", "remove it; nothing offers calls to other services yet"), ("effect_count", "remove it; it is reserved")];

/// A trigger on a topic. Its keys are the same on either engine, so that a topic can move.
pub(super) fn read(report: &mut Report<'_>, mut section: Section<'_>) -> TriggerDraft {
    let names = Names::read(report, &mut section);
    let topic = section.required_name(report, "topic", "topic = \"github.events\"", TopicName::parse);
    read_input(report, &mut section);
    let profile = read_profile(report, &mut section);
    read_common(report, section, (names, topic), profile)
}

/// What every trigger has first.
pub(super) struct Names {
    id: Option<Spanned<BindingId>>,
    tenant: Option<Spanned<TenantId>>,
    service: Option<Spanned<ServiceName>>,
}

impl Names {
    pub(super) fn read(report: &mut Report<'_>, section: &mut Section<'_>) -> Self {
        Self {
            id: section.required_name(report, "id", "id = \"triage-github\"", BindingId::parse),
            tenant: section.required_name(report, "tenant", "tenant = \"acme\"", TenantId::parse),
            service: section.required_name(report, "service", "service = \"triage\"", ServiceName::parse),
        }
    }
}

/// What every trigger has that the delivery cycle runs, with the topic that its events are given with.
pub(super) fn read_common(
    report: &mut Report<'_>,
    mut section: Section<'_>,
    (Names { id, tenant, service }, topic): (Names, Option<Spanned<TopicName>>),
    profile: Profile,
) -> TriggerDraft {
    let dead_letter = section.name(report, "dead_letter", TopicName::parse);
    let contract = name_or(report, &mut section, "contract", CONTRACT, ContractName::parse);
    let function = name_or(report, &mut section, "function", FUNCTION, FunctionName::parse);
    let max_deliveries = small(section.integer_or_default(report, "max_deliveries", &limits::DELIVERIES));
    let max_in_flight = small(section.integer_or_default(report, "max_in_flight", &limits::IN_FLIGHT));
    let retry_delay_millis = section.integer_or_default(report, "retry_delay_millis", &limits::RETRY_DELAY_MILLIS);
    let retry_delay_max_millis = longest_delay(report, &mut section, retry_delay_millis.value);
    let operation_timeout_millis = section.integer_or_default(report, "operation_timeout_millis", &limits::OPERATION_TIMEOUT_MILLIS);
    let beside_pull_v1 = ["max_in_flight", "retry_delay_max_millis", "start"].into_iter().filter(|key| section.is_present(key));
    let beside_pull_v1 = beside_pull_v1.map(|key| (key, section.place_of(key))).collect();
    let start = read_start(report, &mut section);
    let of_consumer = consumer_limits(profile);
    let ack_wait_millis = section.integer_or_default(report, "ack_wait_millis", of_consumer.0);
    let payload_ceiling_bytes = section.integer_or_default(report, "payload_ceiling_bytes", of_consumer.1).value;
    let budget_stands = section.is_present("budget");
    let (budget, wall_time_at) = read_budget(report, &mut section);
    section.refuse_later(report, LATER);
    let label = section.label().to_owned();
    section.finish(report, LATER);
    TriggerDraft {
        label,
        id,
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
        wall_time_at,
        profile,
        beside_pull_v1,
        ack_wait_millis,
        payload_ceiling_bytes,
        budget_stands,
    }
}

/// How long a broker waits for a settlement, and how large a message may be.
const fn consumer_limits(profile: Profile) -> (&'static Limit, &'static Limit) {
    match profile {
        Profile::PullV1 => (&pull_limits::ACK_WAIT_MILLIS, &pull_limits::PAYLOAD_CEILING_BYTES),
        Profile::PullV2 => (&limits::ACK_WAIT_MILLIS, &core_limits::EVENT_BYTES),
    }
}

fn read_profile(report: &mut Report<'_>, section: &mut Section<'_>) -> Profile {
    let Some(profile) = section.text(report, "profile") else { return Profile::PullV2 };
    match profile.value {
        PULL_V2 => {}
        latent_nats::triggers::PROFILE => return Profile::PullV1,
        _ => choice(report, section, "profile", &profile, PROFILES),
    }
    Profile::PullV2
}

/// The longest delay: as configured, else its default, raised to the first delay where that alone was configured longer.
fn longest_delay(report: &mut Report<'_>, section: &mut Section<'_>, first: u64) -> Spanned<u64> {
    let configured = section.is_present("retry_delay_max_millis");
    let longest = section.integer_or_default(report, "retry_delay_max_millis", &limits::RETRY_DELAY_MAX_MILLIS);
    if longest.value >= first {
        return longest;
    }
    if configured {
        report.push(longest.at, Fault::RetryDelays { first, longest: longest.value });
    }
    Spanned { value: first, ..longest }
}

fn name_or<T>(
    report: &mut Report<'_>,
    section: &mut Section<'_>,
    key: &'static str,
    default: &str,
    parse: impl Fn(&str) -> Result<T, latent_core::CoreError>,
) -> Option<T> {
    if section.is_present(key) { section.name(report, key, parse).map(|name| name.value) } else { parse(default).ok() }
}

pub(super) fn choice(
    report: &mut Report<'_>,
    section: &Section<'_>,
    key: &'static str,
    found: &Spanned<&str>,
    allowed: &'static [&'static str],
) {
    let nearest = nearest(found.value, allowed.iter().copied());
    let fault = Fault::Choice { table: section.label().to_owned(), key, found: found.value.to_owned(), allowed, nearest };
    report.push(found.at, fault);
}

fn read_input(report: &mut Report<'_>, section: &mut Section<'_>) {
    let Some(input) = section.text(report, "input") else { return };
    match input.value {
        "event" => {}
        "wit-values" | "raw-event" => {
            let fault = Fault::NotBuilt {
                table: section.label().to_owned(),
                setting: format!("input = {:?}", input.value),
                instead: "remove it, or use input = \"event\"; only a trigger on a stream is given something else",
            };
            report.push(input.at, fault);
        }
        _ => choice(report, section, "input", &input, INPUTS),
    }
}

fn read_start(report: &mut Report<'_>, section: &mut Section<'_>) -> StartPosition {
    let Some(start) = section.text(report, "start") else { return StartPosition::default() };
    match start.value {
        "earliest" => return StartPosition::Earliest,
        "latest" => return StartPosition::Latest,
        _ => choice(report, section, "start", &start, STARTS),
    }
    StartPosition::default()
}

/// The budget, and where its wall time stands.
pub(super) fn read_budget(report: &mut Report<'_>, section: &mut Section<'_>) -> (Budget, usize) {
    let at = section.place_of("budget");
    let Some(mut table) = section.table(report, "budget") else { return (Budget::default(), at) };
    let wall_time = table.integer_or_default(report, "wall_time_millis", &core_limits::BUDGET_WALL_TIME_MILLIS);
    let mut field = |key, limit| table.integer_or_default(report, key, limit).value;
    let budget = Budget {
        cpu_fuel: field("cpu_fuel", &core_limits::BUDGET_FUEL),
        memory_bytes: field("memory_bytes", &core_limits::BUDGET_MEMORY_BYTES),
        wall_time_millis: wall_time.value,
        outbound_requests: field("outbound_requests", &core_limits::BUDGET_OUTBOUND_REQUESTS),
        log_bytes: field("log_bytes", &core_limits::BUDGET_LOG_BYTES),
        ..Budget::default()
    };
    table.refuse_later(report, LATER_IN_BUDGET);
    table.finish(report, LATER_IN_BUDGET);
    (budget, wall_time.at)
}

/// Limits of at most 100 fit 32 bits.
fn small(value: Spanned<u64>) -> u32 {
    u32::try_from(value.value).unwrap_or(u32::MAX)
}
