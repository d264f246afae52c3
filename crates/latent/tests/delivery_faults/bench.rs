//! A node of the real engine, the real driver and a function that is a table: what it does with an event stands in the event's payload.
//! It forgets like a process that is killed: the driver's task is aborted, and everything it knew is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use latent_bridge::embedded::EngineOptions;
use latent_bridge::{AppendWatcher, BridgeManifest, EmbeddedBroker, EventBus};
use latent_capabilities::{ActivationCapabilityRuntime, AuditRing, CompletionAccount};
use latent_core::{
    ActivationOutcome, Attributes, BindingId, Budget, Clock, ComponentDigest, ContractName, DeliveredEvent, FunctionName, MediaType,
    NewRecord, Offset, Partition, ServiceName, StoredRecord, SystemClock, TenantId, Ticket, TopicName, TrapCode, Uid, Verdict,
    length_delimited_sha256,
};
use latent_node::delivery::{
    BindingSpec, BindingStatus, CycleState, DeliveryDriver, DeliveryHandle, DeliveryPolicy, Intake, Listing, PartitionSpec, Postponement,
    Settlement, Source, SourceError,
};
use latent_node::{
    BackendFuture, Catalog, ExecutionBackend, InboundTarget, Input, LocalActivationManager, ManagerOptions, NewPublication, NodeLimits,
    Principal, RouteKey, StartOrder, limits,
};
use latent_topics::{DeadLetters, DeliveryStore, StartAt, TopicSource, UnitKey};
use latent_wasmtime::ActivationReport;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::storage::TestStorage;

const MANIFEST: &str = "manifest_version: 1\nname: test\ntopics:\n  - { name: in, partitions: 2 }\n  - { name: out, partitions: 2 }\n  - { name: dead, partitions: 1 }\n";
const PARTITIONS: u32 = 2;

/// What became durable, as it was told to the node: the offsets of each partition.
pub(crate) type Told = Arc<Mutex<BTreeSet<(u32, u64)>>>;

/// One process.
pub(crate) struct Node {
    pub(crate) bus: Arc<EmbeddedBroker>,
    pub(crate) store: Arc<DeliveryStore>,
    handle: DeliveryHandle,
    /// Runs as long as this is held.
    _manager: Arc<LocalActivationManager>,
    /// A publication of the function failed, and it waits for the end.
    hangs: Arc<AtomicBool>,
    runtime: Option<Runtime>,
    _stop: watch::Sender<bool>,
}

fn options(storage: &Arc<TestStorage>) -> EngineOptions {
    EngineOptions { storage: Arc::clone(storage) as _, ..EngineOptions::default() }
}

/// Makes the directory and publishes `events`: key and payload.
pub(crate) fn prepare(directory: &Path, events: &[(&str, &str)]) {
    let manifest = BridgeManifest::from_yaml(MANIFEST).unwrap();
    let bus = EmbeddedBroker::open_or_apply_with(directory, &manifest, options(&TestStorage::without_syncs())).unwrap();
    let record = |(n, (key, payload)): (usize, &(&str, &str))| {
        let uid = Some(Uid::parse(&format!("in-{n}")).unwrap());
        let payload = Bytes::copy_from_slice(payload.as_bytes());
        NewRecord::new(uid, key, MediaType::octet_stream(), Attributes::default(), payload).unwrap()
    };
    let records: Vec<_> = events.iter().enumerate().map(record).collect();
    assert!(bus.publish_batch("in", &records).iter().all(Result::is_ok));
}

impl Node {
    /// Starts on the directory. `None` when the storage does not let it.
    pub(crate) fn start(directory: &Path, storage: &Arc<TestStorage>, told: &Told) -> Option<Self> {
        let bus = Arc::new(EmbeddedBroker::open_with(directory, options(storage)).ok()?);
        let store = DeliveryStore::open(&bus).ok()?;
        store.give_up_lost_offsets(&bus).ok()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let hangs = Arc::new(AtomicBool::new(false));
        let table = Table { bus: Arc::clone(&bus), hangs: Arc::clone(&hangs) };
        let manager = manager(table, &clock, &runtime);
        let binding = binding(&bus, &store, &clock, &runtime, told)?;
        let (driver, handle) = DeliveryDriver::new(Arc::clone(&manager), clock, vec![binding]).unwrap();
        bus.watch_appends(Arc::new(Wake(handle.clone())));
        let (stop, stopped) = watch::channel(false);
        runtime.spawn(driver.run(stopped));
        Some(Self { bus, store, handle, _manager: manager, hangs, runtime: Some(runtime), _stop: stop })
    }

    fn status(&self) -> BindingStatus {
        self.handle.statuses().wait().remove(0)
    }

    /// Runs until everything is settled (true), or until `failed` says that the storage let something down and the binding stands still.
    pub(crate) fn run(&self, failed: impl Fn() -> bool) -> bool {
        let mut is_done = false;
        latent_testkit::wait_until("the binding to end or to stand still", || {
            let status = self.status();
            is_done = status.pending == 0;
            is_done || (failed() && (status.state == CycleState::Stalled || self.hangs.load(Ordering::SeqCst)))
        });
        is_done
    }

    /// Ends it like a kill does: nothing is settled, nothing waited for.
    pub(crate) fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

struct Wake(DeliveryHandle);

impl AppendWatcher for Wake {
    fn appended(&self, topic: &str, partition: Partition, next: Offset) {
        self.0.available(topic, partition, next);
    }
}

/// Every record of a topic, partition by partition, in order.
pub(crate) fn records(bus: &EmbeddedBroker, topic: &str) -> Vec<StoredRecord> {
    let partitions = bus.partitions(topic).unwrap();
    (0..partitions).flat_map(|partition| bus.submit_fetch(topic, Partition(partition), Offset(0), 10_000).wait().unwrap()).collect()
}

fn manager(table: Table, clock: &Arc<dyn Clock>, runtime: &Runtime) -> Arc<LocalActivationManager> {
    let catalog = Arc::new(Catalog::default());
    let (service, tenant) = (ServiceName::parse("service").unwrap(), TenantId::parse("acme").unwrap());
    let publication = NewPublication {
        service: service.clone(),
        tenants: BTreeSet::from([tenant.clone()]).into(),
        contracts: BTreeMap::from([(contract(), BTreeSet::from([function()]))]).into(),
        digest: ComponentDigest::of(b"table"),
    };
    let publication = catalog.add(publication).unwrap();
    catalog.point_route(RouteKey { tenant, service, route: None }, publication).unwrap();
    let ids = AtomicU64::new(0);
    let manager = ManagerOptions {
        backend: Arc::new(table),
        catalog,
        capabilities: Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::new(AuditRing::default()))),
        clock: Arc::clone(clock),
        ids: Arc::new(move || u128::from(ids.fetch_add(1, Ordering::SeqCst)).to_be_bytes()),
        limits: NodeLimits { cells: 4, ..NodeLimits::for_cores(1) },
        runtime: runtime.handle().clone(),
    };
    LocalActivationManager::new(manager).unwrap()
}

fn contract() -> ContractName {
    ContractName::parse("latent:events/handler@0.2.0").unwrap()
}

fn function() -> FunctionName {
    FunctionName::parse("handle").unwrap()
}

fn binding(
    bus: &Arc<EmbeddedBroker>,
    store: &Arc<DeliveryStore>,
    clock: &Arc<dyn Clock>,
    runtime: &Runtime,
    told: &Told,
) -> Option<BindingSpec> {
    let (id, topic) = (BindingId::parse("b").unwrap(), TopicName::parse("in").unwrap());
    let mut partitions = Vec::new();
    for partition in (0..PARTITIONS).map(Partition) {
        let key = UnitKey { binding: id.clone(), topic: topic.clone(), partition };
        let (_, known_end) = bus.bounds("in", partition).unwrap();
        let unit = *store.declare(&[(key.clone(), StartAt::Earliest, known_end)]).ok()?.first()?;
        let shared = Arc::clone(bus) as Arc<dyn EventBus>;
        let source = TopicSource::new(Arc::clone(&shared), Arc::clone(store), key, unit, runtime.handle().clone());
        let source = source.with_dead_letters(DeadLetters::new(shared, id.clone(), TopicName::parse("dead").unwrap()));
        partitions.push(PartitionSpec {
            partition,
            source: Box::new(Watched { source, partition: partition.0, told: Arc::clone(told) }),
            intake: Intake::LookAhead,
            remembered: store.remembered(unit, clock.as_ref(), 10),
            known_end,
        });
    }
    let target = InboundTarget {
        tenant: TenantId::parse("acme").unwrap(),
        principal: Principal::trigger(&id),
        service: ServiceName::parse("service").unwrap(),
        contract: contract(),
        function: function(),
        route: None,
        budget: Budget::default(),
        input_bytes_max: limits::INPUT_BYTES.default,
    };
    let policy = DeliveryPolicy { deliveries_max: 3, retry_delay_millis: 10, retry_delay_max_millis: 10, ..DeliveryPolicy::default() };
    Some(BindingSpec { id, topic, target, policy, dead_letter: Some(TopicName::parse("dead").unwrap()), partitions })
}

/// Keeps which settlements were told to have become durable.
struct Watched {
    source: TopicSource,
    partition: u32,
    told: Told,
}

impl Source for Watched {
    fn pull(&mut self, from: Offset, heads_max: u32) -> Ticket<Result<Listing, SourceError>> {
        self.source.pull(from, heads_max)
    }

    fn begin(&mut self, offset: Offset, attempt: u32) -> Ticket<Result<DeliveredEvent, SourceError>> {
        self.source.begin(offset, attempt)
    }

    fn postpone(&mut self, offset: Offset, postponement: Postponement) -> Ticket<Result<(), SourceError>> {
        self.source.postpone(offset, postponement)
    }

    fn condemn(&mut self, offset: Offset, verdict: &Verdict) -> Ticket<Result<(), SourceError>> {
        self.source.condemn(offset, verdict)
    }

    fn park(&mut self, offset: Offset, verdict: &Verdict) -> Ticket<Result<(), SourceError>> {
        self.source.park(offset, verdict)
    }

    fn settle(&mut self, offset: Offset, settlement: Settlement) -> Ticket<Result<(), SourceError>> {
        let (told, place) = (Arc::clone(&self.told), (self.partition, offset.0));
        let settled = self.source.settle(offset, settlement);
        settled.map_or(Err(SourceError::Unavailable { reason: "killed".to_owned() }), move |answer| {
            answer.inspect(|()| _ = told.lock().unwrap().insert(place))
        })
    }
}

/// Does what the payload says: `ok` publishes one record under a uid derived from the event's place, `reject` refuses, `fail` traps.
struct Table {
    bus: Arc<EmbeddedBroker>,
    hangs: Arc<AtomicBool>,
}

impl ExecutionBackend for Table {
    fn run(&self, order: Box<StartOrder>) -> BackendFuture {
        let (bus, hangs) = (Arc::clone(&self.bus), Arc::clone(&self.hangs));
        Box::pin(async move {
            let start = match order.confirm() {
                Ok(start) => start,
                Err(not_started) => return not_started.into_report(),
            };
            let Input::Event(event) = start.input else { panic!("bindings deliver events") };
            ActivationReport::without_guest(handle(&bus, &event, &hangs).await)
        })
    }

    fn cells_max(&self) -> Option<usize> {
        None
    }
}

async fn handle(bus: &EmbeddedBroker, event: &DeliveredEvent, hangs: &AtomicBool) -> ActivationOutcome {
    match &event.payload[..] {
        b"reject" => ActivationOutcome::Rejected { reason: "no".to_owned() },
        b"fail" => ActivationOutcome::Trap { code: TrapCode::Unreachable, detail: String::new() },
        _ => {
            let (partition, offset) = (event.partition.0.to_le_bytes(), event.offset.0.to_le_bytes());
            let hash = length_delimited_sha256(&[b"out", &partition, &offset]);
            let uid = Uid::parse(&hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>()).unwrap();
            let payload = Bytes::from(format!("out of {}", event.uid.as_ref().unwrap()));
            let record = NewRecord::new(Some(uid), &event.key, MediaType::octet_stream(), Attributes::default(), payload).unwrap();
            match bus.submit_record("out", record).await {
                Ok(_) => ActivationOutcome::Success,
                // Trying again would use up the attempts; the process ends here.
                Err(_) => {
                    hangs.store(true, Ordering::SeqCst);
                    std::future::pending().await
                }
            }
        }
    }
}
