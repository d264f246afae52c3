//! Configurations of the tests, an activation manager whose functions do what the test says, and the scripted peer that is pulled from.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use latent_capabilities::{ActivationCapabilityRuntime, AuditRing, CompletionAccount, PoolSettings, ProviderPools};
use latent_core::{
    ActivationOutcome, Clock, ComponentDigest, ContractName, Epoch, FunctionName, MonoTime, ProviderId, PublicationId, ServiceName,
    TenantId, UnixMillis,
};
use latent_node::{
    BackendFuture, Catalog, ExecutionBackend, Input, LocalActivationManager, ManagerOptions, NewPublication, NodeLimits, RouteKey,
    StartOrder,
};
use latent_secrets::{LocalSecretStore, NewSecret, SealingKey, SecretName, TlsBinding};
use latent_testkit::broker::{SERVER_NAME, TestCa};
use latent_testkit::fake_peer::{FakePeer, INFO, Step, reply_inbox};
use latent_wasmtime::ActivationReport;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::triggers::{
    BindingDraft, BudgetDraft, LastStep, NatsTriggers, StepEnd, StepFault, StepOutcome, TriggerConfig, TriggerDraft, TriggerMonitor,
};
use crate::{EndpointDraft, InstallError, NatsCredential, NatsPools, RootsDraft};

const ADDRESS: &str = "127.0.0.1:4222";
pub(super) const CONTRACT: &str = "demo:plain/work@1.0.0";
pub(super) const PASSWORD: &str = "pw \"quoted\"";

/// A certificate takes a key, so the tests share one.
pub(super) fn ca() -> &'static TestCa {
    static CA: std::sync::OnceLock<TestCa> = std::sync::OnceLock::new();
    CA.get_or_init(TestCa::new)
}

pub(super) fn root() -> Vec<u8> {
    ca().root_der()
}

pub(super) fn binding(tenant: &str, name: &str) -> BindingDraft {
    let some = |text: &str| Some(text.to_owned());
    BindingDraft {
        id: some(name),
        tenant: some(tenant),
        service: some("work"),
        contract: some(CONTRACT),
        function: some("run"),
        stream: some("IN"),
        consumer: some(name),
        filter: Some(format!("in.{name}")),
        payload_ceiling_bytes: Some(1_024),
        operation_timeout_millis: Some(1_000),
        max_deliver: Some(3),
        ack_wait_millis: Some(2_000),
        nak_delay_millis: Some(200),
        budget: Some(BudgetDraft {
            cpu_fuel: Some(1_000),
            memory_bytes: Some(1 << 20),
            wall_time_millis: Some(500),
            outbound_requests: Some(0),
            log_bytes: Some(1_024),
        }),
        ..BindingDraft::default()
    }
}

/// Two bindings of two tenants.
pub(super) fn draft() -> TriggerDraft {
    TriggerDraft {
        format_version: Some(1),
        endpoint: Some(EndpointDraft {
            address: Some(ADDRESS.to_owned()),
            allow_non_public_peer: Some(ADDRESS.to_owned()),
            server_name: Some(SERVER_NAME.to_owned()),
        }),
        roots: Some(RootsDraft::only(&root())),
        poll_interval_millis: Some(10),
        bindings: Some(vec![binding("shop", "a"), binding("bank", "b")]),
    }
}

/// Time of the runtime, with jumps beside it that no timer sees: a process that was stopped.
#[derive(Debug)]
pub(super) struct TestClock {
    start: Instant,
    skipped_millis: AtomicU64,
    unix: AtomicU64,
}

impl TestClock {
    fn start() -> Self {
        Self { start: Instant::now(), skipped_millis: AtomicU64::new(0), unix: AtomicU64::new(1_700_000_000_000) }
    }

    /// Lets connections age and deadlines pass, at once.
    pub(super) fn skip(&self, millis: u64) {
        self.skipped_millis.fetch_add(millis, Ordering::SeqCst);
    }

    /// Lets the wall clock say something else from now on.
    pub(super) fn set_wall(&self, unix: u64) {
        self.unix.store(unix, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn mono(&self) -> MonoTime {
        let micros = u64::try_from(self.start.elapsed().as_micros()).unwrap();
        MonoTime::from_micros(micros).plus_millis(self.skipped_millis.load(Ordering::SeqCst))
    }

    fn unix(&self) -> UnixMillis {
        UnixMillis(self.unix.load(Ordering::SeqCst))
    }
}

/// A function of which every run does what its arguments say: `["ok"]`, `["fail"]`, `["trap"]`, and `["hang"]`, which ends when the test says
/// so.
#[derive(Default)]
pub(super) struct Scripted {
    runs: Mutex<Vec<String>>,
    pub(super) go_on: Notify,
    begun: Notify,
}

struct Backend(Arc<Scripted>);

impl ExecutionBackend for Backend {
    fn run(&self, order: Box<StartOrder>) -> BackendFuture {
        let scripted = Arc::clone(&self.0);
        Box::pin(async move {
            let start = match order.confirm() {
                Ok(start) => start,
                Err(refused) => return refused.into_report(),
            };
            let Input::Values(arguments) = start.input else { panic!("a raw stream gives values") };
            let text = String::from_utf8_lossy(&arguments).into_owned();
            scripted.runs.lock().unwrap().push(text.clone());
            scripted.begun.notify_one();
            ActivationReport::without_guest(match text.split('"').nth(1).unwrap_or_default() {
                "ok" => ActivationOutcome::Success,
                "fail" => ActivationOutcome::DeclaredFailure,
                "hang" => {
                    scripted.go_on.notified().await;
                    ActivationOutcome::Success
                }
                _ => ActivationOutcome::HostFailure { reason: "as the test says".to_owned() },
            })
        })
    }

    fn cells_max(&self) -> Option<usize> {
        None
    }
}

impl Scripted {
    pub(super) fn runs(&self) -> Vec<String> {
        self.runs.lock().unwrap().clone()
    }

    /// Waits until another run has begun.
    pub(super) async fn begun(&self) {
        self.begun.notified().await;
    }
}

/// A manager, pools and secrets, with nothing installed yet.
pub(super) struct Half {
    pub(super) manager: Arc<LocalActivationManager>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) publication: PublicationId,
    pub(super) scripted: Arc<Scripted>,
    pub(super) clock: Arc<TestClock>,
    pub(super) pools: NatsPools,
    pub(super) secrets: Arc<LocalSecretStore>,
    _folder: tempfile::TempDir,
}

impl Half {
    pub(super) fn new(settings: PoolSettings, limits: NodeLimits) -> Self {
        let clock = Arc::new(TestClock::start());
        let capabilities = Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::new(AuditRing::default())));
        let catalog = Arc::new(Catalog::default());
        let tenants = (0..8).map(|n| format!("t{n}")).chain(["shop".to_owned(), "bank".to_owned()]);
        let tenants: BTreeSet<_> = tenants.map(|name| TenantId::parse(&name).unwrap()).collect();
        let functions = BTreeSet::from([FunctionName::parse("run").unwrap()]);
        let publication = NewPublication {
            service: ServiceName::parse("work").unwrap(),
            tenants: tenants.clone().into(),
            contracts: latent_node::Contracts::from([(ContractName::parse(CONTRACT).unwrap(), functions)]).into(),
            digest: ComponentDigest::of(b"one"),
        };
        let publication = catalog.add(publication).unwrap();
        for tenant in tenants {
            let route = RouteKey { tenant, service: ServiceName::parse("work").unwrap(), route: None };
            catalog.point_route(route, publication).unwrap();
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

    pub(super) fn bound_to(&self, config: &TriggerConfig, tenant: &str) -> TlsBinding {
        let (server_name, port) = (config.peer().server_name().to_owned(), config.peer().address().port());
        TlsBinding { tenant: TenantId::parse(tenant).unwrap(), provider: provider(), server_name, port }
    }

    /// A credential for `tenant` whose secret is bound to this.
    pub(super) fn bound(&self, tenant: &str, binding: &TlsBinding) -> NatsCredential {
        let now = self.clock.unix();
        let name = SecretName::parse(&format!("s-{}", self.secrets.list().unwrap().len())).unwrap();
        self.secrets.put(NewSecret::tls(&name, binding, PASSWORD.as_bytes(), None), now).unwrap();
        NatsCredential::password(TenantId::parse(tenant).unwrap(), tenant, self.secrets.bind_tls_credential(&name, binding, now).unwrap())
    }

    pub(super) fn credential(&self, tenant: &str, config: &TriggerConfig) -> NatsCredential {
        self.bound(tenant, &self.bound_to(config, tenant))
    }

    pub(super) fn install(
        &self,
        epoch: u64,
        expected: Option<u64>,
        config: TriggerConfig,
        credentials: Vec<NatsCredential>,
    ) -> Result<(NatsTriggers, TriggerMonitor), InstallError> {
        NatsTriggers::install(&self.pools, provider(), Epoch(epoch), expected.map(Epoch), config, credentials)
    }

    /// With each tenant's own credential.
    pub(super) fn install_all(&self, config: TriggerConfig) -> (NatsTriggers, TriggerMonitor) {
        let credentials = config.tenants().iter().map(|tenant| self.credential(tenant.as_str(), &config)).collect();
        self.install(1, None, config, credentials).unwrap()
    }

    /// No reservation, no call, no connection, no byte charged for any.
    pub(super) fn assert_nothing_is_held(&self) {
        let all = self.pools.pools.snapshot();
        assert_eq!((all.queued, all.running, all.connections, all.parked, all.bytes), (0, 0, 0, 0, 0));
        assert_eq!(self.manager.snapshot().node, latent_node::AdmissionSnapshot::default().node);
    }
}

pub(super) fn provider() -> ProviderId {
    ProviderId::parse("triggers").unwrap()
}

fn store(folder: &std::path::Path) -> Arc<LocalSecretStore> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    Arc::new(LocalSecretStore::open(folder, SealingKey::from_bytes(&[7; 32])).unwrap())
}

pub(super) fn small_node() -> NodeLimits {
    NodeLimits { cells: 2, ..NodeLimits::for_cores(1) }
}

/// At this address instead.
pub(super) fn at(mut draft: TriggerDraft, address: SocketAddrV4) -> TriggerConfig {
    let endpoint = draft.endpoint.as_mut().unwrap();
    endpoint.address = Some(address.to_string());
    endpoint.allow_non_public_peer = Some(address.to_string());
    draft.check().unwrap()
}

/// Triggers of one binding `a`, before a peer whose connections follow these scripts.
pub(super) struct Bench {
    pub(super) half: Half,
    pub(super) peer: FakePeer,
    pub(super) triggers: NatsTriggers,
    pub(super) monitor: TriggerMonitor,
}

impl Bench {
    pub(super) fn start(scripts: Vec<Vec<Step>>) -> Self {
        Self::start_with(scripts, vec![binding("shop", "a")])
    }

    pub(super) fn start_with(scripts: Vec<Vec<Step>>, bindings: Vec<BindingDraft>) -> Self {
        let peer = FakePeer::start(&ca().issue(SERVER_NAME), scripts);
        let half = Half::new(PoolSettings::default(), small_node());
        let config = at(TriggerDraft { bindings: Some(bindings), ..draft() }, peer.address());
        let (triggers, monitor) = half.install_all(config);
        Self { half, peer, triggers, monitor }
    }

    pub(super) async fn step(&mut self) -> StepOutcome {
        self.triggers.step(&self.half.manager).await
    }

    pub(super) async fn reported(&mut self) -> LastStep {
        match self.step().await {
            StepOutcome::Reported(step) => {
                assert_eq!(self.monitor.last_step(), Some(step));
                step
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn fault(&mut self) -> StepFault {
        match self.reported().await.end {
            StepEnd::Failed(fault) => fault,
            other => panic!("{other:?}"),
        }
    }

    /// How often the peer got these bytes, on all connections.
    pub(super) fn count(&self, pattern: &[u8]) -> usize {
        let of = |connection| {
            let received = self.peer.report(connection).received;
            received.windows(pattern.len()).filter(|window| *window == pattern).count()
        };
        (0..self.peer.accepted()).map(of).sum()
    }
}

/// What a client sends last when it inspects, pulls, and settles.
pub(super) const INSPECTION: &[u8] = b" 0\r\n\r\n";
pub(super) const PULL: &[u8] = b"\"max_bytes\":10240}\r\n";

/// What the broker says of the consumer of the binding `a`.
pub(super) fn info(pending: u64, unacknowledged: u64) -> String {
    format!(
        r#"{{"stream_name":"IN","name":"a","config":{{"durable_name":"a","filter_subject":"in.a","ack_policy":"explicit",
        "replay_policy":"instant","deliver_policy":"all","max_waiting":1,"max_ack_pending":1,"max_batch":1,"max_expires":100000000,
        "max_bytes":10240,"ack_wait":2000000000,"max_deliver":3}},"delivered":{{"consumer_seq":0,"stream_seq":0}},
        "ack_floor":{{"consumer_seq":0,"stream_seq":0}},"num_ack_pending":{unacknowledged},"num_redelivered":0,"num_waiting":0,
        "num_pending":{pending}}}"#
    )
}

/// A session that answers one inspection with what there is.
pub(super) fn open_then(steps: impl IntoIterator<Item = Step>) -> Vec<Step> {
    [Step::send(INFO)].into_iter().chain(steps).collect()
}

pub(super) fn inspected(pending: u64) -> [Step; 2] {
    [Step::ServeUntil(INSPECTION.to_vec()), Step::reply_message(info(pending, 0))]
}

/// Answers a pull with these frames; `{inbox}` in them is the pull's own.
pub(super) fn pulled(frames: &str) -> [Step; 2] {
    let frames = frames.to_owned();
    let answer = move |received: &[u8]| frames.replace("{inbox}", &reply_inbox(received).unwrap()).into_bytes();
    [Step::ServeUntil(PULL.to_vec()), Step::reply(answer)]
}

/// Waits for a settlement that ends so, and says that it is there.
pub(super) fn settled(body: &str) -> [Step; 2] {
    [Step::ServeUntil(format!("\r\n{body}\r\n").into_bytes()), Step::reply_message("")]
}

pub(super) const ACK: &str = "$JS.ACK.IN.a.1.7.3.1700000000000000000.0";

pub(super) fn message(payload: &str) -> String {
    format!("MSG in.a 1 {ACK} {}\r\n{payload}\r\n", payload.len())
}

pub(super) fn status(line: &str) -> String {
    let block = format!("NATS/1.0 {line}\r\nNats-Pending-Messages: 1\r\nNats-Pending-Bytes: 0\r\n\r\n");
    format!("HMSG {{inbox}} 1 {0} {0}\r\n{block}\r\n", block.len())
}

pub(super) async fn advance(millis: u64) {
    tokio::time::advance(Duration::from_millis(millis)).await;
}
