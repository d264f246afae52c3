//! A driver over a log in memory and a backend that does what an event's payload says, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use latent_capabilities::{ActivationCapabilityRuntime, AuditRing, CompletionAccount};
use latent_core::{
    ActivationOutcome, Attributes, BindingId, Budget, Clock, ComponentDigest, ContractName, DeliveredEvent, FunctionName, MediaType,
    MonoTime, Offset, Partition, PublicationId, ServiceName, TenantId, Ticket, TopicName, TrapCode, UnixMillis, Verdict,
};
use latent_node::delivery::{
    BindingSpec, BindingStatus, DeliveryDriver, DeliveryHandle, DeliveryPolicy, Head, HeadContent, Intake, KeyId, Listing, PartitionSpec,
    Postponement, Remembered, SettledSet, Settlement, Source, SourceError,
};
use latent_node::{
    BackendFuture, Catalog, ExecutionBackend, InboundTarget, Input, LocalActivationManager, ManagerOptions, NewPublication, NodeLimits,
    Principal, RouteKey, StartOrder, limits,
};
use latent_wasmtime::ActivationReport;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Time of the test's runtime: it stands still while there is work, and jumps to the next timer when there is none.
struct VirtualClock(tokio::time::Instant);

impl Clock for VirtualClock {
    fn mono(&self) -> MonoTime {
        MonoTime::from_micros(u64::try_from(self.0.elapsed().as_micros()).unwrap())
    }

    fn unix(&self) -> UnixMillis {
        UnixMillis(1_000_000 + self.mono().as_micros() / 1_000)
    }
}

/// One partition in memory.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) events: Vec<(&'static str, &'static str)>,
    pub(crate) settled: BTreeMap<u64, Settlement>,
    pub(crate) postponed: Vec<(u64, Postponement)>,
    pub(crate) verdicts: BTreeMap<u64, Verdict>,
    /// Dead letters in the order in which they came.
    pub(crate) parked: Vec<(u64, Verdict)>,
    /// The dead-letter topic takes nothing; how often it was asked.
    pub(crate) no_parking: bool,
    pub(crate) parkings_refused: usize,
    /// How many of the next operations are refused.
    pub(crate) refuse: usize,
    /// Below this everything has expired.
    pub(crate) first: u64,
}

#[derive(Clone, Default)]
pub(crate) struct MemorySource(Arc<Mutex<Log>>);

impl MemorySource {
    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap()
    }

    fn answer<T: Send + 'static>(&self, answer: impl FnOnce(&mut Log) -> T) -> Ticket<Result<T, SourceError>> {
        let mut log = self.log();
        if log.refuse > 0 {
            log.refuse -= 1;
            return Ticket::ready(Err(SourceError::Unavailable { reason: "the disk is away".to_owned() }));
        }
        Ticket::ready(Ok(answer(&mut log)))
    }
}

impl MemorySource {
    /// What a source that was written down would give back.
    fn remembered(&self, now: MonoTime) -> Remembered {
        let log = self.log();
        let mut settled = SettledSet::default();
        log.settled.keys().for_each(|offset| settled.insert(Offset(*offset)));
        let mut attempts = BTreeMap::new();
        for (offset, postponed) in log.postponed.iter().filter(|(offset, _)| !log.settled.contains_key(offset)) {
            attempts.insert(Offset(*offset), postponed.attempts);
        }
        let verdicts = log.verdicts.iter().filter(|(offset, _)| !log.settled.contains_key(offset));
        Remembered {
            settled,
            attempts: attempts.into_iter().map(|(offset, count)| (offset, count, now)).collect(),
            verdicts: verdicts.map(|(offset, verdict)| (Offset(*offset), verdict.clone())).collect(),
        }
    }
}

impl Source for MemorySource {
    fn pull(&mut self, from: Offset, heads_max: u32) -> Ticket<Result<Listing, SourceError>> {
        self.answer(|log| {
            let events = (0_u64..).zip(&log.events).skip_while(|(offset, _)| *offset < from.0.max(log.first)).take(heads_max as usize);
            let heads = events.map(|(offset, (key, _))| Head { offset: Offset(offset), content: HeadContent::Event(key_id(key)) });
            Listing { heads: heads.collect(), first: Offset(log.first) }
        })
    }

    fn begin(&mut self, offset: Offset, attempt: u32) -> Ticket<Result<DeliveredEvent, SourceError>> {
        let first = Offset(self.log().first);
        if offset < first {
            return Ticket::ready(Err(SourceError::Expired { first }));
        }
        self.answer(|log| event(log.events[usize::try_from(offset.0).unwrap()], offset, attempt))
    }

    fn postpone(&mut self, offset: Offset, postponement: Postponement) -> Ticket<Result<(), SourceError>> {
        self.answer(|log| log.postponed.push((offset.0, postponement)))
    }

    fn condemn(&mut self, offset: Offset, verdict: &Verdict) -> Ticket<Result<(), SourceError>> {
        self.answer(|log| _ = log.verdicts.insert(offset.0, verdict.clone()))
    }

    fn park(&mut self, offset: Offset, verdict: &Verdict) -> Ticket<Result<(), SourceError>> {
        let mut log = self.log();
        if log.no_parking {
            log.parkings_refused += 1;
            return Ticket::ready(Err(SourceError::Unavailable { reason: "it is full".to_owned() }));
        }
        log.parked.push((offset.0, verdict.clone()));
        Ticket::ready(Ok(()))
    }

    fn settle(&mut self, offset: Offset, settlement: Settlement) -> Ticket<Result<(), SourceError>> {
        self.answer(|log| assert!(log.settled.insert(offset.0, settlement).is_none(), "{offset} settled twice"))
    }
}

pub(crate) fn key_id(key: &str) -> KeyId {
    KeyId(key.bytes().fold(7, |id, byte| id * 31 + u64::from(byte)))
}

pub(crate) fn event((key, payload): (&'static str, &'static str), offset: Offset, attempt: u32) -> DeliveredEvent {
    DeliveredEvent {
        topic: TopicName::parse("in").unwrap(),
        partition: Partition(0),
        offset,
        uid: None,
        key: key.to_owned(),
        media_type: MediaType::octet_stream(),
        attributes: Attributes::default(),
        payload: Bytes::from_static(payload.as_bytes()),
        delivery: attempt,
        stored_at: UnixMillis(1_000_000),
    }
}

/// Runs what the payload says: `ok`, `reject`, `trap`, `again`, `slow` (10 ms), `hang` (until it is stopped).
#[derive(Default)]
pub(crate) struct Backend {
    /// `tenant/offset#attempt` of each start, in order.
    pub(crate) starts: Mutex<Vec<String>>,
    running: Mutex<BTreeSet<String>>,
    /// The most that ran at once.
    pub(crate) most: Mutex<usize>,
    /// When guest code had to have ended, in the order of the starts.
    pub(crate) deadlines: Mutex<Vec<MonoTime>>,
}

struct Shared(Arc<Backend>);

impl ExecutionBackend for Shared {
    fn run(&self, order: Box<StartOrder>) -> BackendFuture {
        let backend = Arc::clone(&self.0);
        Box::pin(async move {
            let start = match order.confirm() {
                Ok(start) => start,
                Err(not_started) => return not_started.into_report(),
            };
            let Input::Event(event) = start.input else { unreachable!("bindings deliver events") };
            let name = format!("{}/{}#{}", start.session.spec().tenant, event.offset, event.delivery);
            backend.enter(&name);
            backend.deadlines.lock().unwrap().push(start.session.spec().deadline.at());
            let outcome = match &event.payload[..] {
                b"ok" => ActivationOutcome::Success,
                b"reject" => ActivationOutcome::Rejected { reason: "no".to_owned() },
                b"trap" => ActivationOutcome::Trap { code: TrapCode::Unreachable, detail: String::new() },
                b"again" => ActivationOutcome::RetryRequested { reason: String::new(), delay_millis: Some(700) },
                b"slow" => {
                    // Ten milliseconds of virtual time, in which others may run.
                    let _ = tokio::time::timeout(std::time::Duration::from_millis(10), std::future::pending::<()>()).await;
                    ActivationOutcome::Success
                }
                _ => std::future::pending().await,
            };
            backend.running.lock().unwrap().remove(&name);
            ActivationReport::without_guest(outcome)
        })
    }

    fn cells_max(&self) -> Option<usize> {
        None
    }
}

impl Backend {
    fn enter(&self, name: &str) {
        self.starts.lock().unwrap().push(name.to_owned());
        let mut running = self.running.lock().unwrap();
        running.insert(name.to_owned());
        let mut most = self.most.lock().unwrap();
        *most = running.len().max(*most);
    }

    pub(crate) fn started(&self) -> Vec<String> {
        self.starts.lock().unwrap().clone()
    }
}

/// A node without a log and without guests.
pub(crate) struct Bench {
    pub(crate) manager: Arc<LocalActivationManager>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) backend: Arc<Backend>,
    pub(crate) publications: BTreeMap<String, PublicationId>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// A driver that runs.
pub(crate) struct Driving {
    pub(crate) handle: DeliveryHandle,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

fn contract() -> ContractName {
    ContractName::parse("latent:events/handler@0.2.0").unwrap()
}

fn handle_function() -> FunctionName {
    FunctionName::parse("handle").unwrap()
}

fn service() -> ServiceName {
    ServiceName::parse("service").unwrap()
}

/// A callable service of the tenant.
fn publish(catalog: &Catalog, tenant: &str, component: &str) -> PublicationId {
    let tenant = TenantId::parse(tenant).unwrap();
    let publication = NewPublication {
        service: service(),
        tenants: BTreeSet::from([tenant.clone()]).into(),
        contracts: BTreeMap::from([(contract(), BTreeSet::from([handle_function()]))]).into(),
        digest: ComponentDigest::of(component.as_bytes()),
    };
    let publication = catalog.add(publication).unwrap();
    catalog.point_route(RouteKey { tenant, service: service(), route: None }, publication).unwrap();
    publication
}

impl Bench {
    /// With `cells` cells and a callable service for each tenant.
    pub(crate) fn new(cells: u32, tenants: &[&str]) -> Self {
        let catalog = Arc::new(Catalog::default());
        let mut publications = BTreeMap::new();
        for tenant in tenants {
            publications.insert((*tenant).to_owned(), publish(&catalog, tenant, &format!("one of {tenant}")));
        }
        let backend = Arc::new(Backend::default());
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock(tokio::time::Instant::now()));
        let ids = AtomicU64::new(0);
        let manager = LocalActivationManager::new(ManagerOptions {
            backend: Arc::new(Shared(Arc::clone(&backend))),
            catalog: Arc::clone(&catalog),
            capabilities: Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::new(AuditRing::default()))),
            clock: Arc::clone(&clock),
            ids: Arc::new(move || u128::from(ids.fetch_add(1, Ordering::SeqCst)).to_be_bytes()),
            limits: NodeLimits { cells, ..NodeLimits::for_cores(1) },
            runtime: tokio::runtime::Handle::current(),
        })
        .unwrap();
        Self { manager, catalog, backend, publications, clock }
    }

    /// Points the tenant's route at a publication of another component: a revoked one never comes back.
    pub(crate) fn publish_again(&self, tenant: &str) {
        publish(&self.catalog, tenant, &format!("two of {tenant}"));
    }

    pub(crate) fn binding(&self, id: &str, tenant: &str, policy: DeliveryPolicy, source: &MemorySource) -> BindingSpec {
        let id = BindingId::parse(id).unwrap();
        let target = InboundTarget {
            tenant: TenantId::parse(tenant).unwrap(),
            principal: Principal::trigger(&id),
            service: service(),
            contract: contract(),
            function: handle_function(),
            route: None,
            budget: Budget::default(),
            input_bytes_max: limits::INPUT_BYTES.default,
        };
        let partition = PartitionSpec {
            partition: Partition(0),
            source: Box::new(source.clone()),
            intake: Intake::LookAhead,
            remembered: source.remembered(self.clock.mono()),
            known_end: Offset(source.log().events.len() as u64),
        };
        BindingSpec { id, topic: TopicName::parse("in").unwrap(), target, policy, dead_letter: None, partitions: vec![partition] }
    }

    /// As [`Bench::binding`], with a dead-letter topic.
    pub(crate) fn parking(&self, id: &str, tenant: &str, policy: DeliveryPolicy, source: &MemorySource) -> BindingSpec {
        BindingSpec { dead_letter: Some(TopicName::parse("dead").unwrap()), ..self.binding(id, tenant, policy, source) }
    }

    pub(crate) fn drive(&self, bindings: Vec<BindingSpec>) -> Driving {
        let (driver, handle) = DeliveryDriver::new(Arc::clone(&self.manager), Arc::clone(&self.clock), bindings).unwrap();
        let (stop, stopped) = watch::channel(false);
        Driving { handle, stop, task: tokio::spawn(driver.run(stopped)) }
    }

    /// Waits, in virtual time, until the binding's status satisfies `reached`.
    pub(crate) async fn until(&self, driving: &Driving, reached: impl Fn(&BindingStatus) -> bool) -> BindingStatus {
        for _ in 0..10_000 {
            let status = driving.handle.statuses().await.remove(0);
            if reached(&status) {
                return status;
            }
            tokio::time::advance(std::time::Duration::from_millis(5)).await;
        }
        panic!("never reached: {:?}", driving.handle.statuses().await);
    }
}

impl Driving {
    pub(crate) fn tell_to_stop(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    pub(crate) async fn stop(self) {
        self.tell_to_stop();
        self.task.await.unwrap();
    }
}
