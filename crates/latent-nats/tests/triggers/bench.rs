//! A broker, a node's half with functions by script, and triggers installed between them.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use latent_capabilities::{ActivationCapabilityRuntime, AuditRing, CompletionAccount, PoolSettings, ProviderPools};
use latent_core::{
    ActivationOutcome, Clock, ComponentDigest, ContractName, Epoch, FunctionName, ProviderId, PublicationId, ServiceName, SystemClock,
    TenantId, TrapCode,
};
use latent_nats::triggers::{BindingDraft, BudgetDraft, NatsTriggers, StepOutcome, TriggerDraft, TriggerMonitor};
use latent_nats::{EndpointDraft, NatsCredential, NatsPools, RootsDraft};
use latent_node::{
    BackendFuture, Catalog, Contracts, ExecutionBackend, Input, LocalActivationManager, ManagerOptions, NewPublication, NodeLimits,
    RouteKey, StartOrder,
};
use latent_secrets::{LocalSecretStore, NewSecret, SealingKey, SecretName, TlsBinding};
use latent_testkit::broker::{Admin, Broker, BrokerSpec, BrokerUser, StreamSpec};
use latent_wasmtime::ActivationReport;
use serde_json::{Value, json};
use tokio::sync::Notify;

pub(crate) const TENANTS: [&str; 2] = ["shop", "bank"];
pub(crate) const STREAM: &str = "IN";
pub(crate) const CONTRACT: &str = "demo:plain/work@1.0.0";
/// What the consumers of the tests wait for a settlement, unless a test says otherwise.
pub(crate) const ACK_WAIT_MILLIS: u64 = 1_500;
const CEILING: u64 = 1_024;

/// A function of which every run does what its arguments say: `["ok"]`, `["fail"]`, `["invalid"]`, `["trap"]`, `["timeout"]`, and `["hang"]`,
/// which ends when the test says so or when it is stopped.
#[derive(Default)]
pub(crate) struct Scripted {
    runs: Mutex<Vec<String>>,
    running: AtomicU64,
    go_on: Notify,
}

struct Store(Arc<Scripted>);

impl Drop for Store {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Told apart from [`Scripted`] so that runs can share it.
struct Backend(Arc<Scripted>);

impl ExecutionBackend for Backend {
    fn run(&self, order: Box<StartOrder>) -> BackendFuture {
        let scripted = Arc::clone(&self.0);
        scripted.running.fetch_add(1, Ordering::SeqCst);
        let store = Store(Arc::clone(&scripted));
        Box::pin(async move {
            let _store = store;
            let start = match order.confirm() {
                Ok(start) => start,
                Err(refused) => return refused.into_report(),
            };
            let Input::Values(arguments) = start.input else { panic!("a raw stream gives values") };
            let text = String::from_utf8_lossy(&arguments).into_owned();
            scripted.runs.lock().unwrap().push(text.clone());
            let reason = || "as the test says".to_owned();
            let outcome = match text.split('"').nth(1).unwrap_or_default() {
                "ok" => ActivationOutcome::Success,
                "fail" => ActivationOutcome::DeclaredFailure,
                "incompatible" => ActivationOutcome::IncompatibleContract { reason: reason() },
                "trap" => ActivationOutcome::Trap { code: TrapCode::Unreachable, detail: reason() },
                "timeout" => ActivationOutcome::Timeout,
                "hang" => {
                    scripted.go_on.notified().await;
                    ActivationOutcome::Success
                }
                _ => ActivationOutcome::InvalidArguments { reason: reason() },
            };
            ActivationReport::without_guest(outcome)
        })
    }

    fn cells_max(&self) -> Option<usize> {
        None
    }
}

impl Scripted {
    /// The arguments of every run so far, in order.
    pub(crate) fn runs(&self) -> Vec<String> {
        self.runs.lock().unwrap().clone()
    }

    /// Stores that exist now.
    pub(crate) fn stores(&self) -> u64 {
        self.running.load(Ordering::SeqCst)
    }

    /// Lets one run of `hang` end.
    pub(crate) fn go_on(&self) {
        self.go_on.notify_one();
    }
}

/// What a bench is started with.
pub(crate) struct Setup {
    pub(crate) spec: BrokerSpec,
    pub(crate) settings: PoolSettings,
    pub(crate) limits: NodeLimits,
    /// The bindings, as tenant and name; consumer, filter and id are called like the binding.
    pub(crate) bindings: Vec<(&'static str, String)>,
    /// Changes each binding before it is checked.
    pub(crate) change: fn(&mut BindingDraft),
    /// Where the triggers go instead of to the broker itself.
    pub(crate) address: Option<SocketAddrV4>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            spec: spec(&[("shop", "one")]),
            settings: PoolSettings::default(),
            limits: NodeLimits { cells: 2, ..NodeLimits::for_cores(1) },
            bindings: vec![("shop", "one".to_owned())],
            change: |_| (),
            address: None,
        }
    }
}

impl Setup {
    /// With these bindings, on a broker that has users for them.
    pub(crate) fn of(bindings: &[(&'static str, &str)]) -> Self {
        let owned = bindings.iter().map(|(tenant, name)| (*tenant, (*name).to_owned())).collect();
        Self { spec: spec(bindings), bindings: owned, ..Self::default() }
    }
}

/// A broker with one stream for every subject below `in`, and for each tenant a user that may use its own consumers.
pub(crate) fn spec(bindings: &[(&str, &str)]) -> BrokerSpec {
    let of = |tenant: &str| {
        let consumers = bindings.iter().filter(|(owner, _)| *owner == tenant).map(|(_, name)| (STREAM, *name));
        BrokerUser::trigger(tenant, &password(tenant), consumers)
    };
    BrokerSpec::with_users(TENANTS.map(of)).stream(StreamSpec::new(STREAM, ["in.>"]))
}

pub(crate) fn password(tenant: &str) -> String {
    format!("pw of {tenant} \"quoted\"")
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

pub(crate) fn provider() -> ProviderId {
    ProviderId::parse("triggers").unwrap()
}

pub(crate) fn subject(name: &str) -> String {
    format!("in.{name}")
}

pub(crate) fn binding_draft(tenant: &str, name: &str) -> BindingDraft {
    BindingDraft {
        id: Some(name.to_owned()),
        tenant: Some(tenant.to_owned()),
        service: Some("work".to_owned()),
        contract: Some(CONTRACT.to_owned()),
        function: Some("run".to_owned()),
        stream: Some(STREAM.to_owned()),
        consumer: Some(name.to_owned()),
        filter: Some(subject(name)),
        payload_ceiling_bytes: Some(CEILING),
        operation_timeout_millis: Some(500),
        max_deliver: Some(3),
        ack_wait_millis: Some(ACK_WAIT_MILLIS),
        nak_delay_millis: Some(100),
        budget: Some(BudgetDraft {
            cpu_fuel: Some(1_000_000),
            memory_bytes: Some(1 << 20),
            wall_time_millis: Some(500),
            outbound_requests: Some(0),
            log_bytes: Some(1_024),
        }),
        ..BindingDraft::default()
    }
}

/// The consumer that a binding of the tests needs, in the broker's own form.
pub(crate) fn consumer_settings(binding: &BindingDraft) -> Value {
    json!({
        "durable_name": binding.consumer,
        "filter_subject": binding.filter,
        "ack_policy": "explicit",
        "replay_policy": "instant",
        "deliver_policy": "all",
        "max_waiting": 1,
        "max_ack_pending": 1,
        "max_batch": 1,
        "max_expires": 100_000_000,
        "max_bytes": binding.payload_ceiling_bytes.unwrap() + 9_216,
        "ack_wait": binding.ack_wait_millis.unwrap() * 1_000_000,
        "max_deliver": binding.max_deliver.unwrap(),
    })
}

/// A node's half: a manager whose one service `work` has one function `run`, for both tenants.
pub(crate) struct Half {
    pub(crate) manager: Arc<LocalActivationManager>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) publication: PublicationId,
    pub(crate) scripted: Arc<Scripted>,
    pub(crate) clock: Arc<SystemClock>,
    pub(crate) pools: NatsPools,
    pub(crate) secrets: Arc<LocalSecretStore>,
    _folder: tempfile::TempDir,
}

pub(crate) fn publication(component: &[u8]) -> NewPublication {
    NewPublication {
        service: ServiceName::parse("work").unwrap(),
        tenants: TENANTS.map(tenant).into_iter().collect::<BTreeSet<_>>().into(),
        contracts: Contracts::from([(ContractName::parse(CONTRACT).unwrap(), BTreeSet::from([FunctionName::parse("run").unwrap()]))])
            .into(),
        digest: ComponentDigest::of(component),
    }
}

pub(crate) fn route(of: &str) -> RouteKey {
    RouteKey { tenant: tenant(of), service: ServiceName::parse("work").unwrap(), route: None }
}

impl Half {
    pub(crate) fn new(settings: PoolSettings, limits: NodeLimits) -> Self {
        let clock = Arc::new(SystemClock::start());
        let capabilities = Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::new(AuditRing::default())));
        let catalog = Arc::new(Catalog::default());
        let publication = catalog.add(publication(b"one")).unwrap();
        for of in TENANTS {
            catalog.point_route(route(of), publication).unwrap();
        }
        let (scripted, next) = (Arc::new(Scripted::default()), AtomicU64::new(1));
        let manager = LocalActivationManager::new(ManagerOptions {
            backend: Arc::new(Backend(Arc::clone(&scripted))),
            catalog: Arc::clone(&catalog),
            capabilities: Arc::clone(&capabilities),
            clock: Arc::clone(&clock) as _,
            ids: Arc::new(move || u128::from(next.fetch_add(1, Ordering::Relaxed)).to_be_bytes()),
            limits,
            runtime: tokio::runtime::Handle::current(),
        });
        let pools = ProviderPools::new(settings, Arc::clone(&clock) as Arc<dyn Clock>);
        let pools = NatsPools { capabilities, pools, clock: Arc::clone(&clock) as _ };
        let folder = tempfile::tempdir().unwrap();
        let secrets = store(folder.path());
        Self { manager: manager.unwrap(), catalog, publication, scripted, clock, pools, secrets, _folder: folder }
    }

    pub(crate) fn put_secret(&self, tenant_name: &str, address: SocketAddrV4, server_name: &str, value: &str) {
        let name = SecretName::parse(tenant_name).unwrap();
        let binding = tls_binding(tenant_name, address, server_name);
        self.secrets.put(NewSecret::tls(&name, &binding, value.as_bytes(), None), self.clock.unix()).unwrap();
    }

    pub(crate) fn credential(&self, tenant_name: &str, address: SocketAddrV4, server_name: &str) -> NatsCredential {
        let (name, binding) = (SecretName::parse(tenant_name).unwrap(), tls_binding(tenant_name, address, server_name));
        let handle = self.secrets.bind_tls_credential(&name, &binding, self.clock.unix()).unwrap();
        NatsCredential::password(tenant(tenant_name), tenant_name, handle)
    }
}

fn store(folder: &std::path::Path) -> Arc<LocalSecretStore> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    Arc::new(LocalSecretStore::open(folder, SealingKey::from_bytes(&[7; 32])).unwrap())
}

fn tls_binding(tenant_name: &str, address: SocketAddrV4, server_name: &str) -> TlsBinding {
    TlsBinding { tenant: tenant(tenant_name), provider: provider(), server_name: server_name.to_owned(), port: address.port() }
}

/// Everything together.
pub(crate) struct Bench {
    pub(crate) broker: Broker,
    pub(crate) admin: Admin,
    pub(crate) half: Half,
    pub(crate) triggers: NatsTriggers,
    pub(crate) monitor: TriggerMonitor,
    pub(crate) draft: TriggerDraft,
}

impl Bench {
    pub(crate) async fn start(setup: Setup) -> Self {
        let broker = Broker::start(setup.spec.clone());
        Self::on(broker, setup).await
    }

    /// Before a broker that runs, with consumers made for every binding.
    pub(crate) async fn on(broker: Broker, setup: Setup) -> Self {
        let admin = broker.admin().await;
        let address = setup.address.unwrap_or(broker.address());
        let half = Half::new(setup.settings, setup.limits);
        let bindings: Vec<BindingDraft> = setup.bindings.iter().map(|(tenant, name)| binding_draft(tenant, name)).collect();
        let bindings: Vec<_> = bindings
            .into_iter()
            .map(|mut binding| {
                (setup.change)(&mut binding);
                binding
            })
            .collect();
        for binding in &bindings {
            admin.add_consumer(binding.stream.as_deref().unwrap(), &consumer_settings(binding)).await;
        }
        let draft = TriggerDraft {
            format_version: Some(1),
            endpoint: Some(EndpointDraft {
                address: Some(address.to_string()),
                allow_non_public_peer: Some(address.to_string()),
                server_name: Some(broker.server_name()),
            }),
            roots: Some(RootsDraft::only(&broker.ca().root_der())),
            poll_interval_millis: Some(10),
            bindings: Some(bindings),
        };
        let config = draft.clone().check().unwrap();
        let credentials = config.tenants().iter().map(|tenant| {
            half.put_secret(tenant.as_str(), address, &broker.server_name(), &password(tenant.as_str()));
            half.credential(tenant.as_str(), address, &broker.server_name())
        });
        let credentials = credentials.collect();
        let (triggers, monitor) = NatsTriggers::install(&half.pools, provider(), Epoch(1), None, config, credentials).unwrap();
        Self { broker, admin, half, triggers, monitor, draft }
    }

    /// Publishes one payload for a binding.
    pub(crate) async fn publish(&self, name: &str, payload: &str) {
        self.admin.publish(&subject(name), payload.as_bytes()).await;
    }

    pub(crate) async fn step(&mut self) -> StepOutcome {
        self.triggers.step(&self.half.manager).await
    }

    /// Steps until one says something; a delivery that waits at the broker is waited for.
    pub(crate) async fn step_until_reported(&mut self) -> latent_nats::triggers::LastStep {
        loop {
            match self.step().await {
                StepOutcome::Reported(step) => return step,
                StepOutcome::Idle { .. } | StepOutcome::Delayed { .. } | StepOutcome::Empty { .. } => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// What the broker says of a binding's consumer: never delivered, delivered and not settled.
    pub(crate) async fn backlog(&self, name: &str) -> (u64, u64) {
        let info = self.admin.consumer(STREAM, name).await;
        (info["num_pending"].as_u64().unwrap(), info["num_ack_pending"].as_u64().unwrap())
    }
}
