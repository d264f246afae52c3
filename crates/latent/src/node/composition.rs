//! The host of a node without its triggers: engine, components, catalog, grants, provider, activation manager. What `latent run` delivers
//! events to, and what one call of `latent invoke` on a stopped node needs.
//!
//! Services come in through [`Composition::admit`] and [`Composition::publish`], at the start and at each reload: first everything that
//! can be refused, then everything that changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use latent_bridge::EventBus;
use latent_capabilities::{ActivationCapabilityRuntime, CompletionAccount, EVENT_PUBLISHER, EventBinding, ProviderRef};
use latent_core::{
    Budget, Clock, ComponentDigest, ContractName, CoreError, Epoch, LogicalTopic, ProviderId, PublicationId, ServiceName, TenantId,
    length_delimited_sha256,
};
use latent_node::{
    AuditFile, AuditFileLimits, Catalog, LocalActivationManager, ManagerOptions, NewPublication, NodeLimits, RouteKey, WasmBackend,
    WasmBackendOptions,
};
use latent_topics::{PROFILE, StreamTopics, TopicPublisher};
use latent_wasmtime::{CompiledCache, CompiledCacheOptions, EngineOptions, WasmEngine};
use tokio::runtime::Handle;

use super::providers::BrokerProviders;
use super::shelf::{Facts, Shelf};
use crate::config::settings::ServiceConfig;
use crate::config::{Config, EngineConfig};
use crate::control::Difference;
use crate::data_dir::DataDir;
use crate::error::CliError;
use crate::host::{HostFiles, RevocationFile, read_revocations};
use crate::limits::TOPICS_PROVIDER;

/// What a composition is made with.
pub(super) struct Foundation<'a> {
    pub(super) config: &'a Config,
    pub(super) bus: Arc<dyn EventBus>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) runtime: Handle,
}

/// See the module.
pub(super) struct Composition {
    pub(super) manager: Arc<LocalActivationManager>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) backend: Arc<WasmBackend>,
    pub(super) capabilities: Arc<ActivationCapabilityRuntime>,
    pub(super) publisher: Arc<TopicPublisher>,
    pub(super) audit: Arc<AuditFile>,
    pub(super) limits: NodeLimits,
    memory_bytes_max: u64,
    resident_bytes_max: u64,
    provider: ProviderRef,
    pub(super) providers: BrokerProviders,
    shelf: Mutex<Shelf>,
    published: Mutex<BTreeMap<ServiceName, Published>>,
}

/// A service whose component was looked at and may be published.
pub(super) struct Admitted {
    pub(super) service: ServiceConfig,
    pub(super) facts: Facts,
    digest: ComponentDigest,
}

/// What stands in the catalog for a service.
#[derive(Debug, Clone)]
struct Published {
    digest: ComponentDigest,
    /// The one that stands for it, behind the one before it: work that was reserved on that still runs.
    publications: Vec<PublicationId>,
    tenant: TenantId,
    /// Topics it may publish to.
    topics: BTreeSet<LogicalTopic>,
}

impl Composition {
    /// Makes the parts. Nothing is published and nothing granted yet.
    ///
    /// # Errors
    /// [`CliError::Node`] naming the part.
    pub(super) fn new(foundation: Foundation<'_>) -> Result<Self, CliError> {
        let Foundation { config, bus, clock, runtime } = foundation;
        // The namespace of derived uids is the manifest's name, whatever the engine.
        let EngineConfig { manifest, .. } = &config.engine;
        let topics = Arc::new(StreamTopics::new(Arc::clone(&bus), runtime.clone()));
        let publisher = Arc::new(TopicPublisher::new(bus, &manifest.name, Arc::clone(&clock)));
        let provider = topics_provider(&manifest.name).map_err(|error| part("the provider for topics", &error))?;
        let dir = DataDir::new(&config.node.data_dir);
        let audit = AuditFile::start(dir.audit(), AuditFileLimits::default()).map_err(|error| part("the audit file", &error))?;
        let capabilities = Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::clone(&audit) as _));
        let installed = capabilities.providers().install(provider.clone(), None, Arc::clone(&publisher) as _);
        installed.map_err(|error| part("the provider for topics", &error))?;
        let providers = BrokerProviders::install(config, &capabilities, &clock, &topics)?;

        let shelf = Shelf::open(&dir.components()).map_err(|error| part("the folder of components", &error))?;
        let cache = CompiledCache::open(&dir.compiled(), CompiledCacheOptions::default())
            .map_err(|error| part("the folder of compiled components", &error))?;
        let limits = node_limits(config);
        let engine = engine(config, &limits)?;
        let (memory_bytes_max, resident_bytes_max) = (engine.memory_bytes_max(), engine.resident_bytes_bound());
        let backend = WasmBackend::with_options(WasmBackendOptions {
            engine,
            loaded_bytes_max: latent_node::limits::LOADED_COMPONENT_BYTES.default,
            cache: Some(Arc::new(cache)),
            source: Some(Arc::new(shelf.shelved())),
        });
        let backend = Arc::new(backend.map_err(|error| part("the WebAssembly engine", &error))?);
        let catalog = Arc::new(remembering_catalog(HostFiles::below(&config.node.data_dir))?);
        let manager = LocalActivationManager::new(ManagerOptions {
            backend: Arc::clone(&backend) as _,
            catalog: Arc::clone(&catalog),
            capabilities: Arc::clone(&capabilities),
            clock,
            ids: Arc::new(Ids::default()),
            limits,
            runtime,
        })
        .map_err(|error| part("the activation manager", &error))?;
        let (shelf, published) = (Mutex::new(shelf), Mutex::default());
        Ok(Self {
            manager,
            catalog,
            backend,
            capabilities,
            publisher,
            audit,
            limits,
            memory_bytes_max,
            resident_bytes_max,
            provider,
            providers,
            shelf,
            published,
        })
    }

    /// The epoch of the configuration in force; it grows with each [`Composition::publish`].
    pub(super) fn epoch(&self) -> u64 {
        self.capabilities.plan_epoch().0
    }

    /// Linear memory that one activation can be given at most.
    pub(super) fn memory_bytes_max(&self) -> u64 {
        self.memory_bytes_max
    }

    /// Memory that the pool keeps between activations.
    pub(super) fn resident_bytes_max(&self) -> u64 {
        self.resident_bytes_max
    }

    /// Services that are published now, and whose component is another one in `services`.
    pub(super) fn other_components(&self, services: &[Admitted]) -> Vec<Difference> {
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = services.iter().filter_map(|admitted| {
            let before = published.get(&admitted.service.name).filter(|before| before.digest != admitted.digest)?;
            Some(Difference {
                object: "service".to_owned(),
                name: admitted.service.name.to_string(),
                change: "component".to_owned(),
                from: before.digest.to_string(),
                to: admitted.digest.to_string(),
            })
        });
        changed.collect()
    }

    /// Services whose default route an operator pointed elsewhere than the configuration does, in words.
    pub(super) fn routed_elsewhere(&self) -> Vec<String> {
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let elsewhere = published.iter().filter_map(|(name, service)| {
            let route = RouteKey { tenant: service.tenant.clone(), service: name.clone(), route: None };
            let (leads_to, configured) = (self.catalog.route(&route)?.0, *service.publications.last()?);
            (leads_to != configured).then(|| {
                format!("the default route of service {name} leads to publication {leads_to}; `latent service route {name} --to {configured}` points it at the configured one")
            })
        });
        elsewhere.collect()
    }

    /// Looks at the components of services. Compiles those that are new, so it may take a while; changes nothing that runs.
    ///
    /// # Errors
    /// [`CliError::Node`] naming the first service whose component cannot be used.
    pub(super) fn admit(&self, services: &[ServiceConfig]) -> Result<Vec<Admitted>, CliError> {
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        services.iter().map(|service| self.admit_one(&mut shelf, service)).collect()
    }

    fn admit_one(&self, shelf: &mut Shelf, service: &ServiceConfig) -> Result<Admitted, CliError> {
        let failed = |why: String| CliError::Node {
            what: format!("service {} cannot be loaded from {}", service.name, service.component.display()),
            why,
            next: "build the component for this host, or correct `component` in the configuration".to_owned(),
        };
        let facts = shelf.take_in(&service.component, &self.backend).map_err(|error| failed(error.to_string()))?;
        let digest = facts.digest().ok_or_else(|| failed("its digest is unreadable".to_owned()))?;
        Ok(Admitted { service: service.clone(), facts, digest })
    }

    /// Publishes services and grants them what their configuration says, these and no others: a service that is not among them loses its
    /// grants and its route. One whose component and tenant are the same keeps its publication. Of what stood for a service before, the
    /// last one stays, so that a route can be pointed back to it.
    ///
    /// # Errors
    /// [`CliError::Node`]; then nothing has changed.
    pub(super) fn publish(&self, services: Vec<Admitted>) -> Result<Epoch, CliError> {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fresh = Vec::new();
        let prepared = self.prepare(&published, services, &mut fresh).and_then(|next| Ok((self.grant(&next)?, next)));
        let (epoch, next) = prepared.inspect_err(|_| self.catalog.withdraw(fresh.iter().copied()))?;
        for publication in fresh {
            // Its routes were counted when it was added; what could refuse here are other administrators at the same moment.
            self.catalog.point_default_routes(publication).map_err(|error| part("the routes of the services", &error))?;
        }
        for (name, gone) in published.iter().filter(|(name, _)| !next.contains_key(*name)) {
            let route = RouteKey { tenant: gone.tenant.clone(), service: name.clone(), route: None };
            // An error means that no route was ever pointed there.
            let _ = self.catalog.revoke_route(&route);
        }
        let kept: BTreeSet<_> = next.values().flat_map(|service| service.publications.iter().copied()).collect();
        let before = published.values().flat_map(|service| service.publications.iter().copied());
        self.catalog.withdraw(before.filter(|publication| !kept.contains(publication)));
        *published = next;
        Ok(epoch)
    }

    /// What is to be published; what is new of it is in the catalog and in `fresh`, and no route leads there yet.
    fn prepare(
        &self,
        published: &BTreeMap<ServiceName, Published>,
        services: Vec<Admitted>,
        fresh: &mut Vec<PublicationId>,
    ) -> Result<BTreeMap<ServiceName, Published>, CliError> {
        let mut next = BTreeMap::new();
        for Admitted { service, facts, digest } in services {
            let before = published.get(&service.name);
            let same = before.filter(|before| before.digest == digest && before.tenant == service.tenant);
            let publications = match same {
                Some(same) => same.publications.clone(),
                None => {
                    let id = self.add(&service, &facts, digest)?;
                    fresh.push(id);
                    before.and_then(|before| before.publications.last().copied()).into_iter().chain([id]).collect()
                }
            };
            let topics = granted_topics(&service).cloned().collect();
            next.insert(service.name, Published { digest, publications, tenant: service.tenant, topics });
        }
        Ok(next)
    }

    fn grant(&self, services: &BTreeMap<ServiceName, Published>) -> Result<Epoch, CliError> {
        let refused = |error: &dyn std::fmt::Display| part("the grants of the services", error);
        let bindings = services.values().flat_map(|service| self.event_bindings(service));
        let compiled = self.capabilities.compile_events(bindings).map_err(|error| refused(&error))?;
        self.capabilities.install_events(compiled).map_err(|error| refused(&error))
    }

    fn add(&self, service: &ServiceConfig, facts: &Facts, digest: ComponentDigest) -> Result<PublicationId, CliError> {
        let tenants = BTreeSet::from([service.tenant.clone()]);
        let content =
            NewPublication { service: service.name.clone(), tenants: tenants.into(), contracts: facts.contracts().into(), digest };
        let publication = self.catalog.add(content).map_err(|error| part(&format!("service {}", service.name), &error))?;
        tracing::info!(service = %service.name, tenant = %service.tenant, %digest, %publication, "component published");
        if let Some(Err(refused)) = self.catalog.publication(publication).map(|published| published.callable_by(&service.tenant)) {
            tracing::warn!(service = %service.name, tenant = %service.tenant, %digest, "{refused}, whatever the configuration says; its events wait");
        }
        let publishes = facts.imports.contains(EVENT_PUBLISHER);
        if publishes && !grants_topics(service) {
            tracing::warn!(service = %service.name, "its component can publish and no topic is granted; each of its publications is refused");
        }
        Ok(publication)
    }

    /// What the configuration grants a service, by the provider of each topic: the same for each of its publications.
    fn event_bindings(&self, service: &Published) -> Vec<EventBinding> {
        let mut by_provider: BTreeMap<&ProviderRef, BTreeSet<LogicalTopic>> = BTreeMap::new();
        for topic in &service.topics {
            let provider = self.providers.serving(&service.tenant, topic).unwrap_or(&self.provider);
            by_provider.entry(provider).or_default().insert(topic.clone());
        }
        let bindings = by_provider.into_iter().flat_map(|(provider, topics)| {
            service.publications.iter().map(move |publication| EventBinding {
                publication: *publication,
                tenant: service.tenant.clone(),
                provider: provider.clone(),
                topics: topics.clone(),
            })
        });
        bindings.collect()
    }

    /// Removes what no service names from disk. To be called once, before anything runs.
    pub(super) fn tidy(&self, services: &[ServiceConfig]) {
        let used = services.iter().map(|service| service.component.clone()).collect();
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner).tidy(&used);
    }

    /// Writes down what was learned of components.
    pub(super) fn write_down(&self) {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner).write_down();
    }
}

/// An empty catalog that remembers what was revoked on this data directory.
fn remembering_catalog(host: HostFiles) -> Result<Catalog, CliError> {
    let revocations = read_revocations(&host).map_err(|error| CliError::Node {
        what: "what was revoked cannot be read, and a node that forgot it must not start".to_owned(),
        why: error.to_string(),
        next: "put the file back as it was, from a backup, and start the node again; docs/services.md says what else can be done"
            .to_owned(),
    })?;
    Ok(Catalog::with_revocations(revocations, Box::new(RevocationFile(host))))
}

fn granted_topics(service: &ServiceConfig) -> impl Iterator<Item = &LogicalTopic> {
    service.grants.iter().filter(|grant| grant.capability.as_str() == EVENT_PUBLISHER).flat_map(|grant| &grant.topics)
}

fn grants_topics(service: &ServiceConfig) -> bool {
    granted_topics(service).next().is_some()
}

/// Ids that are drawn at a time: asking the system for each costs several per cent of a short activation.
const IDS_DRAWN: usize = 64;

/// Activation ids and traces from the system's random source.
#[derive(Default)]
pub(crate) struct Ids {
    drawn: Mutex<Vec<[u8; 16]>>,
}

impl latent_node::IdSource for Ids {
    fn next_id(&self) -> [u8; 16] {
        // Ids are only taken from the stock, so a poisoned lock still guards unused ones.
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        if drawn.is_empty() {
            let mut ids = [[0; 16]; IDS_DRAWN];
            if getrandom::fill(ids.as_flattened_mut()).is_err() {
                // No random source: still unique on this machine, by time and a counter.
                return *uuid::Uuid::now_v7().as_bytes();
            }
            drawn.extend(ids);
        }
        drawn.pop().unwrap_or_else(|| *uuid::Uuid::now_v7().as_bytes())
    }
}

fn topics_provider(namespace: &str) -> Result<ProviderRef, CoreError> {
    Ok(ProviderRef {
        logical_id: ProviderId::parse(TOPICS_PROVIDER)?,
        capability: ContractName::parse(EVENT_PUBLISHER)?,
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

/// An engine whose cells hold the largest memory budget of the configuration or of a call, and no more.
fn engine(config: &Config, limits: &NodeLimits) -> Result<WasmEngine, CliError> {
    let of_streams = config.streams.iter().flat_map(|streams| streams.triggers.bindings());
    let of_streams = of_streams.map(|binding| binding.target().budget.memory_bytes);
    let budgets = config.cycle_triggers().map(|trigger| trigger.budget.memory_bytes).chain(of_streams);
    let budgets = budgets.chain([config.node.cell_memory_bytes.unwrap_or(Budget::default().memory_bytes)]);
    let memory_bytes_max = budgets.max().unwrap_or_else(|| EngineOptions::default().memory_bytes_max);
    let options = EngineOptions { cells: limits.cells.into(), memory_bytes_max };
    WasmEngine::new(options).map_err(|error| part("the WebAssembly engine", &error))
}

pub(super) fn part(what: &str, why: &dyn std::fmt::Display) -> CliError {
    CliError::Node {
        what: format!("{what} cannot be started"),
        why: why.to_string(),
        next: "mend the reason and start the node again".to_owned(),
    }
}
