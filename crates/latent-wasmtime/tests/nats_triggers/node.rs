//! A node without its shell: what `latent run` puts together, from a trigger's configuration and a publisher's. A test has it in its own
//! process or, to kill it, in another.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use latent_capabilities::{ActivationCapabilityRuntime, AuditRing, CompletionAccount, EventBinding, PoolSettings, ProviderPools};
use latent_core::{Clock, ComponentDigest, Epoch, LogicalTopic, ProviderId, PublicationId, RouteName, ServiceName, SystemClock, TenantId};
use latent_nats::triggers::{NatsTriggers, RunEnd, TriggerConfig, TriggerMonitor};
use latent_nats::{NatsConfig, NatsCredential, NatsPools, NatsPublisher};
use latent_node::{Catalog, LocalActivationManager, ManagerOptions, NewPublication, NodeLimits, RouteKey, WasmBackend, WasmBackendOptions};
use latent_secrets::{LocalSecretStore, NewSecret, SealingKey, SecretName, TlsBinding};
use latent_test_guests::PLAIN;
use latent_wasmtime::{CompiledCache, CompiledCacheOptions, EngineOptions, PreparedComponent, WasmEngine};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) const TENANTS: [&str; 2] = ["shop", "bank"];
/// The one topic that guests may publish to.
pub(crate) const TOPIC: &str = "out";
const SERVICE: &str = "work";

/// Loads components; the nodes of this process share one, because compiling is slow.
static BACKEND: LazyLock<Arc<WasmBackend>> = LazyLock::new(|| backend(None));

/// What a node is told.
#[derive(Clone)]
pub(crate) struct Orders {
    pub(crate) triggers: TriggerConfig,
    pub(crate) publisher: NatsConfig,
    pub(crate) limits: NodeLimits,
    pub(crate) settings: PoolSettings,
}

/// See the module.
pub(crate) struct Node {
    pub(crate) manager: Arc<LocalActivationManager>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) publication: PublicationId,
    pub(crate) audit: Arc<AuditRing>,
    pub(crate) pools: NatsPools,
    pub(crate) publisher: NatsPublisher,
    pub(crate) triggers: NatsTriggers,
    pub(crate) monitor: TriggerMonitor,
    backend: Arc<WasmBackend>,
    _folder: tempfile::TempDir,
}

/// Triggers that run, and how to stop them.
pub(crate) struct Running {
    stop: watch::Sender<bool>,
    run: JoinHandle<(RunEnd, NatsTriggers)>,
}

impl Running {
    pub(crate) fn signal(&self) {
        self.stop.send_replace(true);
    }

    /// Signals, and waits for the clean end.
    pub(crate) async fn stop(self) -> NatsTriggers {
        self.signal();
        let (end, triggers) = self.run.await.unwrap();
        assert_eq!(end, RunEnd::Stopped);
        triggers
    }
}

impl Node {
    /// Everything installed, nothing dialled.
    pub(crate) fn start(orders: Orders) -> Self {
        Self::on(Arc::clone(&BACKEND), orders)
    }

    pub(crate) fn on(backend: Arc<WasmBackend>, Orders { triggers, publisher, limits, settings }: Orders) -> Self {
        let clock = Arc::new(SystemClock::start());
        let audit = Arc::new(AuditRing::default());
        let capabilities = Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::clone(&audit) as _));
        let catalog = Arc::new(Catalog::default());
        let publication = publish(&backend, &catalog, PLAIN.component);
        let next = AtomicU64::new(1);
        let manager = LocalActivationManager::new(ManagerOptions {
            backend: Arc::clone(&backend) as _,
            catalog: Arc::clone(&catalog),
            capabilities: Arc::clone(&capabilities),
            clock: Arc::clone(&clock) as _,
            ids: Arc::new(move || u128::from(next.fetch_add(1, Ordering::Relaxed)).to_be_bytes()),
            limits,
            runtime: tokio::runtime::Handle::current(),
        });
        let pools = ProviderPools::new(settings, Arc::clone(&clock) as Arc<dyn Clock>);
        let pools = NatsPools { capabilities, pools, clock: clock as _ };
        let (secrets, folder) = store();
        let ids = ["orders", "intake"].map(|id| ProviderId::parse(id).unwrap());
        let [out, into] = &ids;
        let sealed =
            credentials(&secrets, &pools, out, (publisher.server_name(), publisher.address()), publisher.tenants(), publishing_user);
        let publisher = NatsPublisher::install(&pools, out.clone(), Epoch(1), None, publisher, sealed).unwrap();
        let sealed = credentials(
            &secrets,
            &pools,
            into,
            (triggers.peer().server_name(), triggers.peer().address()),
            triggers.tenants(),
            str::to_owned,
        );
        let (triggers, monitor) = NatsTriggers::install(&pools, into.clone(), Epoch(1), None, triggers, sealed).unwrap();
        let manager = manager.unwrap();
        let node = Self { manager, catalog, publication, audit, pools, publisher, triggers, monitor, backend, _folder: folder };
        node.point(None, publication);
        node.grant(&[publication]);
        node
    }

    /// Adds a component that is the guest in everything but its digest.
    pub(crate) fn publish_variant(&self, name: &str) -> (PublicationId, ComponentDigest) {
        let mut component = PLAIN.component.to_vec();
        // A custom section of a component, which means nothing.
        let length = u8::try_from(name.len()).unwrap();
        component.extend([0, length + 1, length]);
        component.extend(name.as_bytes());
        (publish(&self.backend, &self.catalog, &component), ComponentDigest::of(&component))
    }

    /// Points a route of every tenant to a publication.
    pub(crate) fn point(&self, route: Option<&str>, publication: PublicationId) {
        for tenant in TENANTS {
            let route = route.map(|name| RouteName::parse(name).unwrap());
            let key = RouteKey { tenant: parsed(tenant), service: ServiceName::parse(SERVICE).unwrap(), route };
            self.catalog.point_route(key, publication).unwrap();
        }
    }

    /// Lets these publications, and no other, publish to the topic.
    pub(crate) fn grant(&self, publications: &[PublicationId]) {
        let binding = |publication: &PublicationId| {
            TENANTS.map(|tenant| EventBinding {
                publication: *publication,
                tenant: parsed(tenant),
                provider: self.publisher.reference().clone(),
                topics: BTreeSet::from([LogicalTopic::parse(TOPIC).unwrap()]),
            })
        };
        let capabilities = &self.pools.capabilities;
        capabilities.install_events(capabilities.compile_events(publications.iter().flat_map(binding)).unwrap()).unwrap();
    }

    /// Drives the triggers in a task of their own; what is left of the node stays here.
    pub(crate) fn run(triggers: NatsTriggers, manager: &Arc<LocalActivationManager>) -> Running {
        let (stop, stopped) = watch::channel(false);
        let (mut triggers, manager) = (triggers, Arc::clone(manager));
        let run = tokio::spawn(async move {
            let end = triggers.run(&manager, stopped).await;
            (end, triggers)
        });
        Running { stop, run }
    }
}

/// Runs guests; with compiled code kept in `folder`, if one is given.
pub(crate) fn backend(folder: Option<&Path>) -> Arc<WasmBackend> {
    let engine = WasmEngine::new(EngineOptions { cells: 32, ..EngineOptions::default() }).unwrap();
    let cache = folder.map(|folder| Arc::new(CompiledCache::open(folder, CompiledCacheOptions::default()).unwrap()));
    let loaded_bytes_max = latent_node::limits::LOADED_COMPONENT_BYTES.default;
    let backend = WasmBackend::with_options(WasmBackendOptions { engine, loaded_bytes_max, cache, source: None }).unwrap();
    backend.load(PLAIN.component).unwrap();
    Arc::new(backend)
}

fn publish(backend: &WasmBackend, catalog: &Catalog, component: &[u8]) -> PublicationId {
    let prepared: PreparedComponent = backend.load(component).unwrap();
    let content = NewPublication {
        service: ServiceName::parse(SERVICE).unwrap(),
        tenants: TENANTS.map(parsed).into_iter().collect::<BTreeSet<_>>().into(),
        contracts: prepared.contracts().clone().into(),
        digest: prepared.digest(),
    };
    catalog.add(content).unwrap()
}

pub(crate) fn parsed(tenant: &str) -> TenantId {
    TenantId::parse(tenant).unwrap()
}

/// The broker's user as which a tenant's functions publish; its triggers have another.
pub(crate) fn publishing_user(tenant: &str) -> String {
    format!("{tenant}-out")
}

pub(crate) fn password(user: &str) -> String {
    format!("pw of {user} \"quoted\"")
}

fn store() -> (Arc<LocalSecretStore>, tempfile::TempDir) {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    (Arc::new(LocalSecretStore::open(folder.path(), SealingKey::from_bytes(&[7; 32])).unwrap()), folder)
}

/// Seals each tenant's password for one provider and binds it.
fn credentials(
    secrets: &Arc<LocalSecretStore>,
    pools: &NatsPools,
    provider: &ProviderId,
    (server_name, address): (&str, SocketAddrV4),
    tenants: &[TenantId],
    user: impl Fn(&str) -> String,
) -> Vec<NatsCredential> {
    let of = |tenant: &TenantId| {
        let (user, now) = (user(tenant.as_str()), pools.clock.unix());
        let name = SecretName::parse(&user).unwrap();
        let (server_name, port) = (server_name.to_owned(), address.port());
        let binding = TlsBinding { tenant: tenant.clone(), provider: provider.clone(), server_name, port };
        secrets.put(NewSecret::tls(&name, &binding, password(&user).as_bytes(), None), now).unwrap();
        NatsCredential::password(tenant.clone(), &user, secrets.bind_tls_credential(&name, &binding, now).unwrap())
    };
    tenants.iter().map(of).collect()
}
