//! What one table says of another: duplicates, dangling names, ownership, sums. Cautions are found here too.

use std::collections::BTreeMap;

use latent_bridge::TopicSpec;
use latent_bridge::nats_bus::{stream_name, subject};
use latent_core::{LogicalTopic, ServiceName, TenantId, TopicName, settle_margin};
use latent_nats::{Mapped, NatsConfig};

use super::archive;
use super::draft::{Draft, ProviderDraft, TopicDraft, TriggerDraft};
use super::problem::{Caution, Fault};
use super::section::{Report, Spanned, nearest};
use super::settings::SharePermission;
use super::{lanes, streams};
use crate::limits;

/// A caution and the byte it is about.
pub(super) type PlacedCaution = (usize, Caution);

/// Checks every reference and finds every caution.
pub(super) fn check(report: &mut Report<'_>, draft: &Draft) -> Vec<PlacedCaution> {
    check_duplicates(report, draft);
    check_broker(report, draft);
    check_topics(report, draft);
    check_providers(report, draft);
    check_grants(report, draft);
    check_triggers(report, draft);
    streams::check(report, draft);
    lanes::check(report, draft);
    check_bindings_sum(report, draft);
    cautions(draft)
}

fn check_duplicates(report: &mut Report<'_>, draft: &Draft) {
    let topics = draft.topics.iter().filter_map(|topic| topic.name.as_ref()).map(|name| (name.value.as_str(), name.at));
    report.push_duplicates("topic", topics);
    let services = draft.services.iter().filter_map(|service| service.name.as_ref()).map(|name| (name.value.as_str(), name.at));
    report.push_duplicates("service", services);
    let of_streams = draft.stream_triggers.iter().filter_map(|trigger| trigger.id.as_ref());
    let of_streams = of_streams.chain(draft.raw_triggers.iter().filter_map(|raw| raw.trigger.id.as_ref()));
    let triggers = draft.triggers.iter().filter_map(|trigger| trigger.id.as_ref()).chain(of_streams);
    let triggers = triggers.map(|id| (id.value.as_str(), id.at));
    report.push_duplicates("trigger", triggers);
    let providers = draft.providers.iter().filter_map(|provider| provider.id.as_ref()).map(|id| (id.value.as_str(), id.at));
    report.push_duplicates("provider", providers);
    for provider in &draft.providers {
        let tenants = provider.credentials.iter().filter_map(|credential| credential.tenant.as_ref());
        report.push_duplicates("credential of tenant", tenants.map(|tenant| (tenant.value.as_str(), tenant.at)));
    }
    for topic in &draft.topics {
        let tenants = topic.shares.iter().filter_map(|share| share.tenant.as_ref()).map(|tenant| (tenant.value.as_str(), tenant.at));
        report.push_duplicates("share with tenant", tenants);
    }
}

impl Report<'_> {
    /// Reports every name that was seen before.
    fn push_duplicates<'n>(&mut self, what: &'static str, names: impl Iterator<Item = (&'n str, usize)>) {
        let mut first_of = BTreeMap::new();
        for (name, at) in names {
            match first_of.get(name) {
                Some(first) => self.push_duplicate(what, name, *first, at),
                None => {
                    first_of.insert(name, at);
                }
            }
        }
    }

    /// Reports one name whose first use stands at byte `first`.
    pub(super) fn push_duplicate(&mut self, what: &'static str, name: &str, first: usize, at: usize) {
        let first_line = self.line_of(first);
        self.push(at, Fault::Duplicate { what, name: name.to_owned(), first_line });
    }
}

/// What the engine on a broker does not do (25-joins), and what it needs.
fn check_broker(report: &mut Report<'_>, draft: &Draft) {
    archive::check(report, draft);
    if !draft.is_on_nats {
        return;
    }
    if let Some(engine) = draft.engine.as_ref().filter(|_| !draft.secrets_stand) {
        report.push(engine.at, Fault::NoSecrets { who: "[engine]".to_owned() });
    }
    for topic in draft.topics.iter().filter(|topic| !topic.shares.is_empty()) {
        if let Some(name) = &topic.name {
            report.push(name.at, Fault::ShareOnNats { topic: name.value.as_str().to_owned() });
        }
    }
}

fn check_topics(report: &mut Report<'_>, draft: &Draft) {
    for topic in &draft.topics {
        let Some(name) = &topic.name else { continue };
        if let Some(engine) = &draft.engine
            && !engine.manifest.topics.iter().any(|spec| spec.name == name.value.as_str())
        {
            let declared = engine.manifest.topics.iter().map(|spec| &*spec.name);
            let fault = Fault::TopicNotInManifest {
                topic: name.value.as_str().to_owned(),
                manifest: engine.manifest_path.display().to_string(),
                nearest: nearest(name.value.as_str(), declared).map(str::to_owned),
            };
            report.push(name.at, fault);
        }
        for tenant in topic.shares.iter().filter_map(|share| share.tenant.as_ref()) {
            if topic.tenant.as_ref().is_some_and(|owner| owner.value == tenant.value) {
                let fault = Fault::SharedWithOwner { topic: name.value.as_str().to_owned(), tenant: tenant.value.as_str().to_owned() };
                report.push(tenant.at, fault);
            }
        }
    }
}

/// Who uses a topic, and how.
struct TopicUse<'u> {
    by: String,
    tenant: Option<&'u Spanned<TenantId>>,
    topic: &'u str,
    at: usize,
    right: SharePermission,
}

fn find_topic<'d>(draft: &'d Draft, name: &str) -> Option<&'d TopicDraft> {
    draft.topics.iter().find(|topic| topic.name.as_ref().is_some_and(|declared| declared.value.as_str() == name))
}

fn check_topic_use(report: &mut Report<'_>, draft: &Draft, usage: TopicUse<'_>) {
    let Some(topic) = find_topic(draft, usage.topic) else {
        // A provider that could not be read may map it.
        if usage.right == SharePermission::Publish && draft.providers.iter().any(|provider| provider.nats.is_none()) {
            return;
        }
        let declared = draft.topics.iter().filter_map(|topic| topic.name.as_ref()).map(|name| name.value.as_str());
        let tenant = usage.tenant.map(|tenant| &tenant.value);
        let providers = draft.providers.iter().filter_map(|provider| provider.nats.as_ref());
        let mapped = providers.flat_map(|nats| tenant.into_iter().flat_map(|tenant| nats.topics_of(tenant))).map(LogicalTopic::as_str);
        let nearest = nearest(usage.topic, declared.chain(mapped)).map(str::to_owned);
        report.push(usage.at, Fault::UnknownTopic { by: usage.by, topic: usage.topic.to_owned(), nearest });
        return;
    };
    if let (Some(tenant), Some(owner)) = (usage.tenant, &topic.tenant)
        && !topic.permits(&tenant.value, usage.right)
    {
        let fault = Fault::NotShared {
            by: usage.by,
            topic: usage.topic.to_owned(),
            owner: owner.value.as_str().to_owned(),
            tenant: tenant.value.as_str().to_owned(),
            right: usage.right.word(),
        };
        report.push(usage.at, fault);
    }
}

/// Each tenant of a provider's mappings has one credential, and nobody else; all providers together fit the pools.
fn check_providers(report: &mut Report<'_>, draft: &Draft) {
    let clients_max = draft.pools.get(&latent_capabilities::limits::POOL_CLIENTS);
    let mut clients = 0;
    for provider in &draft.providers {
        let (Some(id), Some(nats)) = (&provider.id, &provider.nats) else { continue };
        let name = id.value.to_string();
        let before = clients;
        clients += nats.tenants().len() as u64;
        // Named once, where the sum first goes above.
        if before <= clients_max && clients > clients_max {
            let problem =
                format!("with it the pairs of provider and tenant are {clients}, and clients of [pools] is {clients_max}; raise that");
            report.push(provider.at, Fault::Provider { what: format!("provider {name:?}"), problem });
        }
        let (ceiling, chunk) = (nats.payload_ceiling_bytes(), draft.pools.get(&latent_capabilities::limits::POOL_CHUNK_BYTES));
        if ceiling > chunk {
            let problem =
                format!("payload_ceiling_bytes is {ceiling} and chunk_bytes of [pools] is {chunk}; raise that one, or lower this one");
            report.push(provider.at, Fault::Provider { what: format!("provider {name:?}"), problem });
        }
        if !draft.secrets_stand {
            report.push(provider.at, Fault::NoSecrets { who: format!("provider {name:?}") });
        }
        for problem in mappings_into_topics(draft, nats) {
            report.push(provider.at, Fault::Provider { what: format!("provider {name:?}"), problem });
        }
        let given: Vec<_> = provider.credentials.iter().filter_map(|credential| credential.tenant.as_ref()).collect();
        for tenant in nats.tenants().iter().filter(|tenant| given.iter().all(|given| given.value != **tenant)) {
            report.push(provider.at, Fault::NoCredential { provider: name.clone(), tenant: tenant.to_string() });
        }
        for unused in given.into_iter().filter(|given| !nats.tenants().contains(&given.value)) {
            report.push(unused.at, Fault::UnusedCredential { provider: name.clone(), tenant: unused.value.to_string() });
        }
    }
}

/// Mappings that would put what is no event into a topic of the bridge on the broker: raw messages in its stream, or on its subjects.
fn mappings_into_topics(draft: &Draft, nats: &NatsConfig) -> Vec<String> {
    let Some(engine) = draft.engine.as_ref().filter(|_| draft.is_on_nats) else { return Vec::new() };
    let in_stream = |spec: &TopicSpec, stream: &str| stream == stream_name(&spec.name);
    let on_subject = |spec: &TopicSpec, published: &str| (0..spec.partitions).any(|partition| published == subject(&spec.name, partition));
    let problem = |mapped: Mapped<'_>| {
        let (stream, published) = (mapped.stream.as_str(), mapped.subject.as_str());
        let spec = engine.manifest.topics.iter().find(|spec| in_stream(spec, stream) || on_subject(spec, published))?;
        let (topic, of) = (mapped.topic, &spec.name);
        Some(format!(
            "topic {topic:?} is mapped to subject {published} of stream {stream}, where the topic {of:?} of the manifest lies: a raw message there is no event and cannot be read; map it to a stream of its own"
        ))
    };
    nats.mapped().filter_map(problem).collect()
}

/// Whether a provider maps a granted topic for the service's tenant. A topic has one provider (25-joins): whatever else could serve it
/// is reported.
fn is_served_by_a_provider(report: &mut Report<'_>, draft: &Draft, by: &str, tenant: &TenantId, topic: &Spanned<LogicalTopic>) -> bool {
    let name = topic.value.as_str();
    let called = |provider: &ProviderDraft| {
        provider.id.as_ref().map_or_else(|| "a [[provider]]".to_owned(), |id| format!("provider {:?}", id.value))
    };
    let of_providers = draft.providers.iter().filter(|provider| provider.maps(tenant, name)).map(called);
    let of_the_log = find_topic(draft, name).map(|_| format!("the [[topic]] {name:?}"));
    let serving: Vec<_> = of_providers.chain(of_the_log.clone()).collect();
    if let [first, second, ..] = &serving[..] {
        let (first, second) = (first.clone(), second.clone());
        report.push(topic.at, Fault::AmbiguousTopic { by: by.to_owned(), topic: name.to_owned(), first, second });
    }
    serving.len() > usize::from(of_the_log.is_some())
}

fn check_grants(report: &mut Report<'_>, draft: &Draft) {
    for service in &draft.services {
        let by = service.name.as_ref().map_or_else(|| "a service".to_owned(), |name| format!("service {:?}", name.value));
        for topic in service.grants.iter().flat_map(|grant| &grant.topics) {
            if let Some(tenant) = &service.tenant
                && is_served_by_a_provider(report, draft, &by, &tenant.value, topic)
            {
                continue;
            }
            let usage = TopicUse {
                by: by.clone(),
                tenant: service.tenant.as_ref(),
                topic: topic.value.as_str(),
                at: topic.at,
                right: SharePermission::Publish,
            };
            check_topic_use(report, draft, usage);
        }
        for grant in &service.grants {
            report.push_duplicates("granted topic", grant.topics.iter().map(|topic| (topic.value.as_str(), topic.at)));
        }
    }
}

fn check_triggers(report: &mut Report<'_>, draft: &Draft) {
    for trigger in &draft.triggers {
        if let Some(topic) = &trigger.topic {
            let usage = TopicUse {
                by: trigger.called(),
                tenant: trigger.tenant.as_ref(),
                topic: topic.value.as_str(),
                at: topic.at,
                right: SharePermission::Subscribe,
            };
            check_topic_use(report, draft, usage);
        }
        if let Some(topic) = &trigger.dead_letter {
            check_dead_letter(report, draft, trigger, topic);
        }
        check_service_of(report, draft, &trigger.called(), trigger.service.as_ref(), trigger.tenant.as_ref());
    }
    let of_values = draft.stream_triggers.iter();
    let of_values = of_values.map(|trigger| (trigger.called(), &trigger.tenant, &trigger.service, &trigger.dead_letter));
    let raw = draft.raw_triggers.iter().map(|raw| &raw.trigger);
    let raw = raw.map(|trigger| (trigger.called(), &trigger.tenant, &trigger.service, &trigger.dead_letter));
    for (by, tenant, service, dead_letter) in of_values.chain(raw) {
        if let Some(topic) = dead_letter {
            check_dead_letter_topic(report, draft, &by, tenant.as_ref(), topic);
        }
        check_service_of(report, draft, &by, service.as_ref(), tenant.as_ref());
    }
}

/// A dead-letter topic is one that the trigger's tenant may publish to, that takes whatever it is given, and from which no way leads
/// back to the trigger's own topic.
fn check_dead_letter(report: &mut Report<'_>, draft: &Draft, trigger: &TriggerDraft, topic: &Spanned<TopicName>) {
    let by = trigger.called();
    check_dead_letter_topic(report, draft, &by, trigger.tenant.as_ref(), topic);
    if let Some(circle) = trigger.topic.as_ref().and_then(|from| circle_through(draft, from.value.as_str(), topic.value.as_str())) {
        report.push(topic.at, Fault::DeadLetterCircle { by, circle });
    }
}

/// What holds of every dead-letter topic: the tenant may publish to it, and it takes whatever it is given.
fn check_dead_letter_topic(
    report: &mut Report<'_>,
    draft: &Draft,
    by: &str,
    tenant: Option<&Spanned<TenantId>>,
    topic: &Spanned<TopicName>,
) {
    let (by, right) = (by.to_owned(), SharePermission::Publish);
    check_topic_use(report, draft, TopicUse { by: by.clone(), tenant, topic: topic.value.as_str(), at: topic.at, right });
    let mut specs = draft.engine.iter().flat_map(|engine| &engine.manifest.topics);
    if specs.any(|spec| spec.name == topic.value.as_str() && spec.schema_ref.is_some()) {
        report.push(topic.at, Fault::DeadLetterSchema { by, topic: topic.value.as_str().to_owned() });
    }
}

/// The way from `from` to its dead-letter topic `to` and, by those of others, back to `from`.
fn circle_through(draft: &Draft, from: &str, to: &str) -> Option<Vec<String>> {
    // Each topic is entered once, so this ends however the triggers are tangled.
    let mut ways = BTreeMap::from([(to, vec![from.to_owned(), to.to_owned()])]);
    let mut open = vec![to];
    while let Some(at) = open.pop() {
        let way = ways.get(at).cloned().unwrap_or_default();
        if at == from {
            return Some(way);
        }
        let parked = draft.triggers.iter().filter(|trigger| trigger.topic.as_ref().is_some_and(|topic| topic.value.as_str() == at));
        for next in parked.filter_map(|trigger| trigger.dead_letter.as_ref()).map(|topic| topic.value.as_str()) {
            if !ways.contains_key(next) {
                ways.insert(next, way.iter().cloned().chain([next.to_owned()]).collect());
                open.push(next);
            }
        }
    }
    None
}

fn check_service_of(
    report: &mut Report<'_>,
    draft: &Draft,
    by: &str,
    service: Option<&Spanned<ServiceName>>,
    tenant: Option<&Spanned<TenantId>>,
) {
    let Some(wanted) = service else { return };
    let declared = draft.services.iter().filter_map(|service| Some((service.name.as_ref()?, service)));
    let Some((_, service)) = declared.clone().find(|(name, _)| name.value == wanted.value) else {
        let nearest = nearest(wanted.value.as_str(), declared.map(|(name, _)| name.value.as_str())).map(str::to_owned);
        let fault = Fault::UnknownService { by: by.to_owned(), service: wanted.value.as_str().to_owned(), nearest };
        report.push(wanted.at, fault);
        return;
    };
    if let (Some(tenant), Some(owner)) = (tenant, &service.tenant)
        && tenant.value != owner.value
    {
        let fault = Fault::ForeignService {
            by: by.to_owned(),
            service: wanted.value.as_str().to_owned(),
            owner: owner.value.as_str().to_owned(),
            tenant: tenant.value.as_str().to_owned(),
        };
        report.push(wanted.at, fault);
    }
}

fn check_bindings_sum(report: &mut Report<'_>, draft: &Draft) {
    let partitions_of = |topic: &TopicName| {
        let specs = draft.engine.iter().flat_map(|engine| &engine.manifest.topics);
        specs.filter(|spec| spec.name == topic.as_str()).map(|spec| u64::from(spec.partitions)).sum::<u64>()
    };
    // On a broker the profiles have bounds of their own.
    let on_embedded = draft.triggers.iter().filter(|_| !draft.is_on_nats);
    let mut total = 0;
    for topic in on_embedded.filter_map(|trigger| trigger.topic.as_ref()) {
        let before = total;
        total += partitions_of(&topic.value);
        // Named once, where the sum first goes above.
        if before <= limits::BINDINGS.max && total > limits::BINDINGS.max {
            report.push(topic.at, Fault::TooManyBindings { total, most: limits::BINDINGS.max });
        }
    }
}

fn cautions(draft: &Draft) -> Vec<PlacedCaution> {
    let mut cautions = Vec::new();
    for topic in draft.topics.iter().filter(|topic| !topic.shares.is_empty()) {
        if let Some(name) = &topic.name {
            cautions.push((name.at, Caution::ShareCannotMove { topic: name.value.as_str().to_owned() }));
        }
    }
    for trigger in draft.triggers.iter().chain(draft.raw_triggers.iter().map(|raw| &raw.trigger)) {
        let Some(id) = &trigger.id else { continue };
        let times = Times { timeout: &trigger.operation_timeout_millis, wall: trigger.budget.wall_time_millis, at: trigger.wall_time_at };
        cautions.extend(time_cautions(id.value.as_str(), &times));
        cautions.extend(loop_caution(draft, trigger));
    }
    for trigger in &draft.stream_triggers {
        let Some(id) = &trigger.id else { continue };
        let times = Times { timeout: &trigger.operation_timeout_millis, wall: trigger.budget.wall_time_millis, at: trigger.wall_time_at };
        cautions.extend(time_cautions(id.value.as_str(), &times));
    }
    cautions
}

/// The times of one trigger, and where its wall time stands.
struct Times<'d> {
    timeout: &'d Spanned<u64>,
    wall: u64,
    at: usize,
}

fn time_cautions(trigger: &str, times: &Times<'_>) -> Vec<PlacedCaution> {
    let mut cautions = Vec::new();
    let timeout = times.timeout;
    if timeout.value < 500 {
        cautions.push((timeout.at, Caution::ShortOperation { trigger: trigger.to_owned(), millis: timeout.value }));
    }
    let (millis, cut_to) = (times.wall, timeout.value.saturating_sub(settle_margin(timeout.value)));
    if millis > cut_to {
        cautions.push((times.at, Caution::WallTimeCut { trigger: trigger.to_owned(), millis, cut_to }));
    }
    cautions
}

fn loop_caution(draft: &Draft, trigger: &TriggerDraft) -> Option<PlacedCaution> {
    let (wanted, topic) = (trigger.service.as_ref()?, trigger.topic.as_ref()?);
    let service = draft.services.iter().find(|service| service.name.as_ref().is_some_and(|name| name.value == wanted.value))?;
    let granted = service.grants.iter().flat_map(|grant| &grant.topics).any(|granted| granted.value.as_str() == topic.value.as_str());
    granted.then(|| (topic.at, Caution::Loop { service: wanted.value.as_str().to_owned(), topic: topic.value.as_str().to_owned() }))
}
