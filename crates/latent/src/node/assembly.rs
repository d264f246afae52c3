//! The parts of a node, made from its configuration: components into the catalog, grants into the plan, triggers into the driver.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use latent_bridge::{AppendWatcher, EmbeddedBroker, EventBus};
use latent_capabilities::{AuditRing, EventBinding, Plan, PlanBook, ProviderRef, Providers, ServicePlan};
use latent_core::{
    Clock, ComponentDigest, ContractName, CoreError, Epoch, FunctionName, Offset, Partition, ProviderId, PublicationId, SystemClock,
    length_delimited_sha256,
};
use latent_node::delivery::{BindingSpec, DeliveryDriver, DeliveryHandle, DeliveryPolicy, Intake, PartitionSpec};
use latent_node::{
    Catalog, InboundTarget, LocalActivationManager, ManagerOptions, NewPublication, NodeLimits, Principal, RouteKey, WasmBackend,
};
use latent_topics::{DeliveryStore, PROFILE, StartAt, TopicPublisher, TopicSource, UnitKey};
use latent_wasmtime::{EngineOptions, HANDLER_CONTRACT, WasmEngine};
use tokio::runtime::Handle;

use super::maintenance::Schedule;
use super::reports::Reports;
use crate::config::settings::{ServiceConfig, StartPosition, TriggerConfig};
use crate::config::{Config, EngineConfig};
use crate::error::CliError;
use crate::maintenance::Maintainer;

/// The capability that `latent-topic-publish-v1` provides.
const PUBLISHER: &str = "latent:events/publisher@0.2.0";
/// The function of the handler contract.
const HANDLE: &str = "handle";
/// The logical id of the provider for topics.
const TOPICS_PROVIDER: &str = "topics";

/// A node that is ready to run.
pub(super) struct Assembly {
    pub(super) driver: DeliveryDriver,
    pub(super) manager: Arc<LocalActivationManager>,
    pub(super) reports: Arc<Reports>,
    /// When the log's own maintenance is due, its work and the clock of both.
    pub(super) maintenance: (Schedule, Arc<Maintainer>, Arc<dyn Clock>),
}

impl Assembly {
    pub(super) fn name(&self) -> &str {
        self.reports.name()
    }
}

/// Makes all parts. Compiles the components, so it takes a while.
///
/// # Errors
/// [`CliError::Node`] naming the service, trigger or part.
pub(super) fn assemble(config: Config, log: Arc<EmbeddedBroker>, runtime: &Handle) -> Result<Assembly, CliError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let bus = Arc::clone(&log) as Arc<dyn EventBus>;
    let EngineConfig::Embedded { manifest, maintenance_interval_seconds, .. } = &config.engine;
    let schedule = Schedule::begin(clock.mono(), *maintenance_interval_seconds);
    let maintainer = Arc::new(Maintainer::new(Arc::clone(&bus), Arc::clone(&clock)));
    let publisher = Arc::new(TopicPublisher::new(Arc::clone(&bus), &manifest.name, Arc::clone(&clock)));
    let provider = topics_provider(&manifest.name).map_err(|error| part("the provider for topics", &error))?;
    let providers = Arc::new(Providers::default());
    providers.install(provider.clone(), None, Arc::clone(&publisher) as _).map_err(|error| part("the provider for topics", &error))?;

    let limits = node_limits(&config);
    let backend = Arc::new(WasmBackend::new(engine(&config, &limits)?));
    let catalog = Arc::new(Catalog::default());
    let mut plan = Plan::default();
    for service in &config.services {
        let digest = load(&backend, service)?;
        let publication = publish(&catalog, service, digest)?;
        plan = plan.with(publication, service.tenant.clone(), service_plan(service, &provider));
    }
    let manager = LocalActivationManager::new(ManagerOptions {
        backend,
        catalog,
        plans: Arc::new(PlanBook::new(plan)),
        providers,
        audit: Arc::new(AuditRing::default()),
        clock: Arc::clone(&clock),
        ids: Arc::new(Ids),
        limits,
        runtime: runtime.clone(),
    })
    .map_err(|error| part("the activation manager", &error))?;

    let bindings = bindings(&config, &log, clock.as_ref(), runtime)?;
    let (driver, handle) =
        DeliveryDriver::new(Arc::clone(&manager), Arc::clone(&clock), bindings).map_err(|error| part("the delivery driver", &error))?;
    log.watch_appends(Arc::new(Wake(handle.clone())));
    let reports = Arc::new(Reports { config, log, deliveries: handle, publisher, maintainer: Arc::clone(&maintainer) });
    Ok(Assembly { driver, manager, reports, maintenance: (schedule, maintainer, clock) })
}

/// Tells the driver what the log has got.
struct Wake(DeliveryHandle);

impl AppendWatcher for Wake {
    fn appended(&self, topic: &str, partition: Partition, next: Offset) {
        self.0.available(topic, partition, next);
    }
}

/// Activation ids and traces from the system's random source.
struct Ids;

impl latent_node::IdSource for Ids {
    fn next_id(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        if getrandom::fill(&mut bytes).is_err() {
            // No random source: still unique on this machine, by time and a counter.
            bytes = *uuid::Uuid::now_v7().as_bytes();
        }
        bytes
    }
}

fn topics_provider(namespace: &str) -> Result<ProviderRef, CoreError> {
    Ok(ProviderRef {
        logical_id: ProviderId::parse(TOPICS_PROVIDER)?,
        profile: PROFILE.into(),
        epoch: Epoch(1),
        digest: length_delimited_sha256(&[PROFILE.as_bytes(), namespace.as_bytes()]),
    })
}

fn node_limits(config: &Config) -> NodeLimits {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let limits = NodeLimits::for_cores(cores);
    match config.node.cells.and_then(|cells| u32::try_from(cells).ok()) {
        Some(cells) => NodeLimits { cells, admission_slots: limits.admission_slots.max(cells.saturating_mul(4)), ..limits },
        None => limits,
    }
}

/// An engine whose cells hold the largest memory budget of the configuration, and no more.
fn engine(config: &Config, limits: &NodeLimits) -> Result<WasmEngine, CliError> {
    let largest = config.triggers.iter().map(|trigger| trigger.budget.memory_bytes).max();
    let memory_bytes_max = largest.unwrap_or_else(|| EngineOptions::default().memory_bytes_max);
    let options = EngineOptions { cells: limits.cells.into(), memory_bytes_max };
    WasmEngine::new(options).map_err(|error| part("the WebAssembly engine", &error))
}

fn load(backend: &WasmBackend, service: &ServiceConfig) -> Result<ComponentDigest, CliError> {
    let failed = |why: String, next: String| CliError::Node {
        what: format!("service {} cannot be loaded from {}", service.name, service.component.display()),
        why,
        next,
    };
    let component = std::fs::read(&service.component).map_err(|error| {
        let next = "build the component, or correct `component` in the configuration";
        failed(error.to_string(), next.to_owned())
    })?;
    let digest = backend.load(&component).map_err(|error| failed(error.to_string(), "build it as a component for this host".to_owned()))?;
    if !backend.handles_events(digest) {
        let why = format!("it does not export {HANDLER_CONTRACT}");
        return Err(failed(why, "export a handler; `latent new` shows how".to_owned()));
    }
    tracing::info!(service = %service.name, tenant = %service.tenant, %digest, "component loaded");
    Ok(digest)
}

fn publish(catalog: &Catalog, service: &ServiceConfig, digest: ComponentDigest) -> Result<PublicationId, CliError> {
    let what = || format!("service {}", service.name);
    let contract = ContractName::parse(HANDLER_CONTRACT).map_err(|error| part(&what(), &error))?;
    let function = FunctionName::parse(HANDLE).map_err(|error| part(&what(), &error))?;
    let publication = catalog
        .add(NewPublication {
            service: service.name.clone(),
            tenants: BTreeSet::from([service.tenant.clone()]),
            contracts: BTreeMap::from([(contract, BTreeSet::from([function]))]),
            digest,
        })
        .map_err(|error| part(&what(), &error))?;
    let route = RouteKey { tenant: service.tenant.clone(), service: service.name.clone(), route: None };
    catalog.point_route(route, publication).map_err(|error| part(&what(), &error))?;
    Ok(publication)
}

fn service_plan(service: &ServiceConfig, provider: &ProviderRef) -> ServicePlan {
    let granted = service.grants.iter().filter(|grant| grant.capability.as_str() == PUBLISHER);
    let topics: BTreeMap<_, _> = granted.flat_map(|grant| &grant.topics).map(|topic| (topic.clone(), provider.clone())).collect();
    ServicePlan { events: (!topics.is_empty()).then_some(EventBinding { topics }) }
}

/// What all bindings are made with.
struct BindingParts<'a> {
    log: &'a Arc<EmbeddedBroker>,
    store: Arc<DeliveryStore>,
    clock: &'a dyn Clock,
    runtime: &'a Handle,
}

fn bindings(config: &Config, log: &Arc<EmbeddedBroker>, clock: &dyn Clock, runtime: &Handle) -> Result<Vec<BindingSpec>, CliError> {
    let failed = |error: &dyn std::fmt::Display| part("the memory of deliveries", error);
    let store = DeliveryStore::open(log).map_err(|error| failed(&error))?;
    store.give_up_lost_offsets(log).map_err(|error| failed(&error))?;
    // All at once, so that a node with many new triggers waits for few syncs.
    let asked = config.triggers.iter().map(|trigger| lines_of(trigger, log)).collect::<Result<Vec<_>, _>>()?;
    let mut units = store.declare(&asked.concat()).map_err(|error| failed(&error))?.into_iter();
    let parts = BindingParts { log, store, clock, runtime };
    let specs = config.triggers.iter().zip(asked).map(|(trigger, lines)| {
        let units: Vec<u32> = units.by_ref().take(lines.len()).collect();
        binding(trigger, lines.into_iter().zip(units), &parts)
    });
    Ok(specs.collect())
}

/// One partition of a trigger's topic, where it starts if it is new, and its end.
type Line = (UnitKey, StartAt, Offset);

fn lines_of(trigger: &TriggerConfig, log: &EmbeddedBroker) -> Result<Vec<Line>, CliError> {
    let failed = |error| part(&format!("trigger {}", trigger.id), &error);
    let count = log.partitions(trigger.topic.as_str()).map_err(failed)?;
    let line = |partition| {
        let (first, end) = log.bounds(trigger.topic.as_str(), partition).map_err(failed)?;
        let start = match trigger.start {
            // What expired before the trigger was there is none of its events.
            StartPosition::Earliest => StartAt::At(first),
            StartPosition::Latest => StartAt::Latest,
        };
        Ok((UnitKey { binding: trigger.id.clone(), topic: trigger.topic.clone(), partition }, start, end))
    };
    (0..count).map(Partition).map(line).collect()
}

fn binding(trigger: &TriggerConfig, lines: impl Iterator<Item = (Line, u32)>, parts: &BindingParts<'_>) -> BindingSpec {
    let BindingParts { log, store, clock, runtime } = parts;
    let partitions = lines.map(|((key, _, known_end), unit)| PartitionSpec {
        partition: key.partition,
        remembered: store.remembered(unit, *clock, trigger.retry_delay_max_millis),
        known_end,
        intake: Intake::LookAhead,
        source: Box::new(TopicSource::new(Arc::clone(log) as _, Arc::clone(store), key, unit, (*runtime).clone())),
    });
    let partitions = partitions.collect();
    BindingSpec { id: trigger.id.clone(), topic: trigger.topic.clone(), target: target(trigger), policy: policy(trigger), partitions }
}

fn target(trigger: &TriggerConfig) -> InboundTarget {
    InboundTarget {
        tenant: trigger.tenant.clone(),
        principal: Principal::trigger(&trigger.id),
        service: trigger.service.clone(),
        contract: trigger.contract.clone(),
        function: trigger.function.clone(),
        route: None,
        budget: trigger.budget,
        input_bytes_max: latent_node::limits::INPUT_BYTES.default,
    }
}

fn policy(trigger: &TriggerConfig) -> DeliveryPolicy {
    DeliveryPolicy {
        deliveries_max: trigger.max_deliveries,
        in_flight_max: trigger.max_in_flight,
        retry_delay_millis: trigger.retry_delay_millis,
        retry_delay_max_millis: trigger.retry_delay_max_millis,
        operation_timeout_millis: trigger.operation_timeout_millis,
    }
}

fn part(what: &str, why: &dyn std::fmt::Display) -> CliError {
    CliError::Node {
        what: format!("{what} cannot be started"),
        why: why.to_string(),
        next: "mend the reason and start the node again".to_owned(),
    }
}
