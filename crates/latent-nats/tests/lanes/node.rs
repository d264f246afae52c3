//! One node of a test: a manager, the delivery driver, and lanes on a connection of its own.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use latent_capabilities::{ActivationCapabilityRuntime, AuditRing, CompletionAccount, PoolSettings, ProviderPools};
use latent_core::{
    Attributes, Budget, Clock, ComponentDigest, ContractName, DeliveredEvent, Epoch, FunctionName, MediaType, Offset, Partition,
    ProviderId, ServiceName, SystemClock, TenantId, Ticket, TopicName, Verdict,
};
use latent_nats::lanes::{LaneBinding, LaneInput, LaneMessage, LaneMonitor, LaneTopics, LanesDraft, NatsLanes, Unplaced};
use latent_nats::{NatsCredential, NatsPools};
use latent_node::delivery::{BindingSpec, DeliveryDriver, DeliveryHandle, DeliveryPolicy, Intake, PartitionSpec, Remembered, SourceError};
use latent_node::{
    Catalog, Contracts, InboundTarget, LocalActivationManager, ManagerOptions, NewPublication, NodeLimits, Principal, RouteKey,
};
use latent_secrets::{LocalSecretStore, NewSecret, SealingKey, SecretName, TlsBinding};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::handler::{Backend, Handler};
use crate::world::{PASSWORD, TENANT};

const CONTRACT: &str = "latent:events/handler@0.2.0";

/// What was parked: the place of each letter, and what it holds.
#[derive(Default)]
pub(crate) struct Parked(pub(crate) std::sync::Mutex<Vec<(u64, String, String)>>);

/// Messages of the tests: a body of `key|text` is an event.
pub(crate) struct TestTopics(pub(crate) Arc<Parked>);

impl LaneTopics for TestTopics {
    fn event(&self, message: LaneMessage<'_>) -> Result<DeliveredEvent, String> {
        let LaneInput::Event { topic, partition } = &message.binding.draft().input else { return Err("no topic".to_owned()) };
        let text = std::str::from_utf8(message.payload).map_err(|error| error.to_string())?;
        let (key, text) = text.split_once('|').ok_or("no key")?;
        Ok(DeliveredEvent {
            topic: topic.clone(),
            partition: *partition,
            offset: message.offset,
            uid: None,
            key: key.to_owned(),
            media_type: MediaType::octet_stream(),
            attributes: Attributes::default(),
            payload: Bytes::copy_from_slice(text.as_bytes()),
            delivery: message.deliveries,
            stored_at: message.stored_at,
        })
    }

    fn park(&self, _: &LaneBinding, letter: Unplaced, verdict: Verdict) -> Ticket<Result<(), SourceError>> {
        let (offset, text) = match letter {
            Unplaced::Event(event) => (event.offset, String::from_utf8_lossy(&event.payload).into_owned()),
            Unplaced::Remains { offset, bytes } => (offset, String::from_utf8_lossy(&bytes).into_owned()),
        };
        self.0.0.lock().unwrap().push((offset.0, text, verdict.reason.kind().to_owned()));
        Ticket::ready(Ok(()))
    }
}

/// A node that runs.
pub(crate) struct Node {
    pub(crate) manager: Arc<LocalActivationManager>,
    pub(crate) monitor: LaneMonitor,
    pub(crate) deliveries: DeliveryHandle,
    pub(crate) pools: NatsPools,
    kill: watch::Sender<bool>,
    stop_driver: watch::Sender<bool>,
    stop_lanes: watch::Sender<bool>,
    driver: JoinHandle<()>,
    lanes: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Node {
    pub(crate) fn start(
        name: &'static str,
        handler: &Arc<Handler>,
        parked: &Arc<Parked>,
        draft: LanesDraft,
        policy: DeliveryPolicy,
        limits: NodeLimits,
    ) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let capabilities = Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::new(AuditRing::default())));
        let next = AtomicU64::new(1);
        let (kill, dead) = watch::channel(false);
        let manager = LocalActivationManager::new(ManagerOptions {
            backend: Arc::new(Backend { node: name, dead, handler: Arc::clone(handler) }),
            catalog: catalog(),
            capabilities: Arc::clone(&capabilities),
            clock: Arc::clone(&clock),
            ids: Arc::new(move || u128::from(next.fetch_add(1, Ordering::Relaxed)).to_be_bytes()),
            limits,
            runtime: tokio::runtime::Handle::current(),
        });
        let manager = manager.unwrap();
        let pools =
            NatsPools { capabilities, pools: ProviderPools::new(PoolSettings::default(), Arc::clone(&clock)), clock: Arc::clone(&clock) };
        let folder = tempfile::tempdir().unwrap();
        let config = draft.check().unwrap();
        let credential = credential(folder.path(), config.peer().address(), config.peer().server_name(), &*clock);
        let topics = Arc::new(TestTopics(Arc::clone(parked)));
        let bindings = bindings(&config, policy);
        let (lanes, monitor) =
            NatsLanes::install(&pools, (&provider(), &provider()), (Epoch(1), None), config, vec![credential], topics).unwrap();
        let bindings = bindings.into_iter().enumerate().map(|(place, spec)| spec.with(lanes.source(place).unwrap())).collect();
        let (driver, deliveries) = DeliveryDriver::new(Arc::clone(&manager), clock, bindings).unwrap();
        let (stop_driver, driver_stopped) = watch::channel(false);
        let (stop_lanes, lanes_stopped) = watch::channel(false);
        let driver = tokio::spawn(driver.run(driver_stopped));
        let lanes = tokio::spawn(lanes.run(lanes_stopped));
        Self { manager, monitor, deliveries, pools, kill, stop_driver, stop_lanes, driver, lanes, _folder: folder }
    }

    /// Drains and ends, and looks that nothing is held.
    pub(crate) async fn stop(self) {
        self.stop_driver.send(true).unwrap();
        self.driver.await.unwrap();
        self.stop_lanes.send(true).unwrap();
        self.lanes.await.unwrap();
        let all = self.pools.pools.snapshot();
        assert_eq!((all.queued, all.running, all.connections, all.bytes), (0, 0, 0, 0));
        assert_eq!(self.manager.snapshot().node.held(), 0);
        assert!(self.monitor.lanes().iter().all(|lane| lane.is_stopped && lane.held == 0));
    }

    /// Ends where it stands, as the end of its process would.
    pub(crate) async fn kill(self) {
        self.lanes.abort();
        self.driver.abort();
        assert!(self.lanes.await.is_err() && self.driver.await.is_err());
        // What still runs ends with its process.
        self.kill.send(true).unwrap();
    }
}

struct Spec {
    id: latent_core::BindingId,
    topic: TopicName,
    partition: Partition,
    policy: DeliveryPolicy,
    dead_letter: Option<TopicName>,
}

impl Spec {
    fn with(self, source: Box<dyn latent_node::delivery::Source>) -> BindingSpec {
        let partition = PartitionSpec {
            partition: self.partition,
            source,
            intake: Intake::HandedOut,
            remembered: Remembered::default(),
            known_end: Offset(0),
        };
        let target = InboundTarget {
            tenant: TenantId::parse(TENANT).unwrap(),
            principal: Principal::trigger(&self.id),
            service: ServiceName::parse("work").unwrap(),
            contract: ContractName::parse(CONTRACT).unwrap(),
            function: FunctionName::parse("handle").unwrap(),
            route: None,
            budget: Budget::default(),
            input_bytes_max: 1_000_000,
        };
        BindingSpec {
            id: self.id,
            topic: self.topic,
            target,
            policy: self.policy,
            dead_letter: self.dead_letter,
            partitions: vec![partition],
        }
    }
}

/// One for each lane: each is a binding of its own in these tests.
fn bindings(config: &latent_nats::lanes::LanesConfig, policy: DeliveryPolicy) -> Vec<Spec> {
    let spec = |lane: &LaneBinding| {
        let draft = lane.draft();
        let LaneInput::Event { topic, partition } = &draft.input else { panic!("topics alone") };
        Spec { id: draft.id.clone(), topic: topic.clone(), partition: *partition, policy, dead_letter: draft.dead_letter.clone() }
    };
    config.lanes().iter().map(spec).collect()
}

fn provider() -> ProviderId {
    ProviderId::parse("lanes").unwrap()
}

fn catalog() -> Arc<Catalog> {
    let catalog = Arc::new(Catalog::default());
    let tenant = TenantId::parse(TENANT).unwrap();
    let service = ServiceName::parse("work").unwrap();
    let functions = BTreeSet::from([FunctionName::parse("handle").unwrap()]);
    let publication = catalog.add(NewPublication {
        service: service.clone(),
        tenants: BTreeSet::from([tenant.clone()]).into(),
        contracts: Contracts::from([(ContractName::parse(CONTRACT).unwrap(), functions)]).into(),
        digest: ComponentDigest::of(b"handler"),
    });
    catalog.point_route(RouteKey { tenant, service, route: None }, publication.unwrap()).unwrap();
    catalog
}

fn credential(folder: &std::path::Path, address: SocketAddrV4, server_name: &str, clock: &dyn Clock) -> NatsCredential {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    let secrets = Arc::new(LocalSecretStore::open(folder, SealingKey::from_bytes(&[7; 32])).unwrap());
    let tenant = TenantId::parse(TENANT).unwrap();
    let binding = TlsBinding { tenant: tenant.clone(), provider: provider(), server_name: server_name.to_owned(), port: address.port() };
    let name = SecretName::parse("broker").unwrap();
    secrets.put(NewSecret::tls(&name, &binding, PASSWORD.as_bytes(), None), clock.unix()).unwrap();
    let handle = secrets.bind_tls_credential(&name, &binding, clock.unix()).unwrap();
    NatsCredential::password(tenant, TENANT, handle)
}
