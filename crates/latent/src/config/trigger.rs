//! `[[trigger]]` on a topic, and the budget that every trigger has.

use latent_core::{BindingId, Budget, ContractName, FunctionName, ServiceName, TenantId, TopicName, limits as core_limits};
use latent_nats::triggers::limits as pull_limits;
use latent_node::delivery::limits;

use super::draft::TriggerDraft;
use super::problem::Fault;
use super::profile::PullV1;
use super::section::{Report, Section, Spanned, nearest};
use super::settings::StartPosition;

const CONTRACT: &str = "latent:events/handler@0.2.0";
const FUNCTION: &str = "handle";
const STARTS: &[&str] = &["earliest", "latest"];
const INPUTS: &[&str] = &["event", "wit-values", "raw-event"];

/// The profiles of triggers on topics. Topics of the embedded engine need none.
const PROFILES: &[&str] = &[latent_nats::triggers::PROFILE];
/// What only that profile has.
const OF_PULL_V1: &[(&str, &str)] = &[("ack_wait_millis", ""), ("payload_ceiling_bytes", "")];
const LATER: &[(&str, &str)] =
    &[("route", "remove it; the service's one component is run"), ("principal", "remove it; the principal is trigger:<id>")];
const LATER_IN_BUDGET: &[(&str, &str)] =
    &[("child_calls", "remove it; nothing offers calls to other services yet"), ("effect_count", "remove it; it is reserved")];

pub(super) fn read(report: &mut Report<'_>, mut section: Section<'_>) -> TriggerDraft {
    let id = section.required_name(report, "id", "id = \"triage-github\"", BindingId::parse);
    let tenant = section.required_name(report, "tenant", "tenant = \"acme\"", TenantId::parse);
    let service = section.required_name(report, "service", "service = \"triage\"", ServiceName::parse);
    let topic = section.required_name(report, "topic", "topic = \"github.events\"", TopicName::parse);
    let dead_letter = section.name(report, "dead_letter", TopicName::parse);
    let contract = name_or(report, &mut section, "contract", CONTRACT, ContractName::parse);
    let function = name_or(report, &mut section, "function", FUNCTION, FunctionName::parse);
    read_input(report, &mut section);
    let max_deliveries = small(section.integer_or_default(report, "max_deliveries", &limits::DELIVERIES));
    let max_in_flight = small(section.integer_or_default(report, "max_in_flight", &limits::IN_FLIGHT));
    let retry_delay_millis = section.integer_or_default(report, "retry_delay_millis", &limits::RETRY_DELAY_MILLIS);
    let retry_delay_max_millis = longest_delay(report, &mut section, retry_delay_millis.value);
    let operation_timeout_millis = section.integer_or_default(report, "operation_timeout_millis", &limits::OPERATION_TIMEOUT_MILLIS);
    let beside_profile = ["max_in_flight", "retry_delay_max_millis", "start"].into_iter().filter(|key| section.is_present(key));
    let beside_profile = beside_profile.map(|key| (key, section.place_of(key))).collect();
    let start = read_start(report, &mut section);
    let profile = read_profile(report, &mut section);
    let (budget, wall_time_at) = read_budget(report, &mut section);
    section.refuse_later(report, LATER);
    let label = section.label().to_owned();
    section.finish(report, if profile.is_some() { LATER } else { OF_PULL_V1 });
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
        beside_profile,
    }
}

/// The profile, with the keys that it alone has.
fn read_profile(report: &mut Report<'_>, section: &mut Section<'_>) -> Option<PullV1> {
    let profile = section.text(report, "profile")?;
    match profile.value {
        latent_nats::triggers::PROFILE => {}
        "nats-jetstream-pull-v2" => {
            let (table, setting) = (section.label().to_owned(), format!("profile = {:?}", profile.value));
            let instead = "use profile = \"nats-jetstream-pull-v1\"";
            report.push(profile.at, Fault::NotBuilt { table, setting, instead });
            return None;
        }
        _ => {
            choice(report, section, "profile", &profile, PROFILES);
            return None;
        }
    }
    Some(PullV1 {
        ack_wait_millis: section.integer_or_default(report, "ack_wait_millis", &pull_limits::ACK_WAIT_MILLIS).value,
        payload_ceiling_bytes: section.integer_or_default(report, "payload_ceiling_bytes", &pull_limits::PAYLOAD_CEILING_BYTES).value,
        budget_stands: section.is_present("budget"),
    })
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

fn choice(report: &mut Report<'_>, section: &Section<'_>, key: &'static str, found: &Spanned<&str>, allowed: &'static [&'static str]) {
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
                instead: "remove it, or use input = \"event\"; a trigger on a stream gives wit-values",
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
