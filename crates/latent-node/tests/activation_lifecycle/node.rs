//! A node for tests: one service `triage` for the tenants `a`, `b` and `c`, time by hand, guests by script.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use latent_capabilities::{ActivationCapabilityRuntime, AuditRing, CompletionAccount, Origin};
use latent_core::{
    ActivationId, ActivationOutcome, Attributes, BindingId, Budget, Clock, ComponentDigest, ContractName, Deadline, DeliveredEvent,
    FunctionName, MediaType, Offset, Partition, Place, PublicationId, RouteGeneration, ServiceName, TenantId, Ticket, TopicName,
    UnixMillis,
};
use latent_node::{
    Account, ActivationEnd, Catalog, Contracts, ExecutionBackend, IdSource, InboundOrder, InboundTarget, LocalActivationManager,
    ManagerOptions, NewPublication, NodeError, NodeLimits, Principal, Reservation, RouteKey,
};
use latent_testkit::ManualClock;
use latent_wasmtime::HANDLER_CONTRACT;

use crate::scripted::ScriptedBackend;

/// Wall time at which every test starts.
pub(crate) const START: UnixMillis = UnixMillis(1_000_000);
/// Deadline of an order unless a test says otherwise: far beyond what any test takes in real time.
pub(crate) const DEADLINE_MILLIS: u64 = 60_000;

pub(crate) struct Node {
    pub(crate) manager: Arc<LocalActivationManager>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) guests: Arc<ScriptedBackend>,
    pub(crate) publication: PublicationId,
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

/// Two cells and defaults that no small test meets.
pub(crate) fn limits() -> NodeLimits {
    NodeLimits { cells: 2, ..NodeLimits::for_cores(1) }
}

pub(crate) fn publication(component: &[u8]) -> NewPublication {
    NewPublication {
        service: ServiceName::parse("triage").unwrap(),
        tenants: BTreeSet::from(["a", "b", "c"].map(tenant)).into(),
        contracts: Contracts::from([(
            ContractName::parse(HANDLER_CONTRACT).unwrap(),
            BTreeSet::from([FunctionName::parse("handle").unwrap()]),
        )])
        .into(),
        digest: ComponentDigest::of(component),
    }
}

pub(crate) fn route(of: &str) -> RouteKey {
    RouteKey { tenant: tenant(of), service: ServiceName::parse("triage").unwrap(), route: None }
}

pub(crate) fn target(of: &str) -> InboundTarget {
    InboundTarget {
        tenant: tenant(of),
        principal: Principal::trigger(&binding()),
        service: ServiceName::parse("triage").unwrap(),
        contract: ContractName::parse(HANDLER_CONTRACT).unwrap(),
        function: FunctionName::parse("handle").unwrap(),
        route: None,
        budget: Budget { wall_time_millis: 2_000, ..Budget::default() },
        input_bytes_max: 1_000,
    }
}

pub(crate) fn binding() -> BindingId {
    BindingId::parse("triage-github").unwrap()
}

pub(crate) fn origin() -> Origin {
    Origin {
        binding: binding(),
        topic: TopicName::parse("github.events").unwrap(),
        partition: Partition(3),
        offset: Offset(7),
        stored_at: Some(START),
    }
}

pub(crate) fn place() -> Place {
    let Origin { topic, partition, offset, .. } = origin();
    Place { topic, partition, offset }
}

pub(crate) fn event(payload: &str) -> DeliveredEvent {
    DeliveredEvent {
        topic: TopicName::parse("github.events").unwrap(),
        partition: Partition(3),
        offset: Offset(7),
        uid: None,
        key: String::new(),
        media_type: MediaType::parse("text/plain").unwrap(),
        attributes: Attributes::default(),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        delivery: 2,
        stored_at: START,
    }
}

/// Ids that count up, so that no two are alike.
fn counted_ids() -> Arc<dyn IdSource> {
    let next = AtomicU64::new(1);
    Arc::new(move || u128::from(next.fetch_add(1, Ordering::Relaxed)).to_be_bytes())
}

/// A catalog in which every tenant's route leads to one publication of `component`.
pub(crate) fn catalog(component: &[u8]) -> (Arc<Catalog>, PublicationId) {
    let catalog = Arc::new(Catalog::default());
    let publication = catalog.add(publication(component)).unwrap();
    for of in ["a", "b", "c"] {
        assert_eq!(catalog.point_route(route(of), publication), Ok(RouteGeneration(1)));
    }
    (catalog, publication)
}

/// A manager on the runtime of the calling test.
pub(crate) fn manager(
    backend: Arc<dyn ExecutionBackend>,
    catalog: &Arc<Catalog>,
    clock: Arc<dyn Clock>,
    limits: NodeLimits,
) -> Result<Arc<LocalActivationManager>, NodeError> {
    LocalActivationManager::new(ManagerOptions {
        backend,
        catalog: Arc::clone(catalog),
        capabilities: Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::new(AuditRing::default()))),
        clock,
        ids: counted_ids(),
        limits,
        runtime: tokio::runtime::Handle::current(),
    })
}

impl Node {
    pub(crate) fn new(limits: NodeLimits) -> Self {
        let guests = Arc::new(ScriptedBackend::default());
        let (catalog, publication) = catalog(b"one");
        let clock = Arc::new(ManualClock::starting_at(START));
        let manager = manager(Arc::clone(&guests) as _, &catalog, Arc::clone(&clock) as _, limits).unwrap();
        Self { manager, catalog, clock, guests, publication }
    }

    pub(crate) fn order(&self, payload: &str, deadline_millis: u64) -> InboundOrder {
        InboundOrder { event: event(payload), origin: origin(), deadline: Deadline::after(self.clock.mono(), deadline_millis) }
    }

    pub(crate) fn reserve(&self, of: &str) -> Reservation {
        self.manager.reserve_inbound(&target(of)).unwrap()
    }

    /// Reserves and hands over an event whose payload is the guest's label.
    pub(crate) fn activate(&self, of: &str, label: &str) -> (ActivationId, Ticket<ActivationEnd>) {
        self.activate_until(of, label, DEADLINE_MILLIS)
    }

    pub(crate) fn activate_until(&self, of: &str, label: &str, deadline_millis: u64) -> (ActivationId, Ticket<ActivationEnd>) {
        let reservation = self.reserve(of);
        let activation = reservation.activation();
        (activation, self.manager.activate(reservation, self.order(label, deadline_millis)))
    }

    /// What the node holds: reserved, queued, running.
    pub(crate) fn counts(&self) -> (u32, u32, u32) {
        let Account { reserved, queued, running, .. } = self.manager.snapshot().node;
        (reserved, queued, running)
    }

    /// Every account is empty and no store exists.
    pub(crate) fn assert_empty(&self) {
        let snapshot = self.manager.snapshot();
        assert_eq!(snapshot.node, Account::default());
        assert!(snapshot.tenants.is_empty(), "{:?}", snapshot.tenants);
        assert_eq!((self.guests.stores(), self.manager.running()), (0, vec![]));
    }

    /// Ends the running guest with success, and its ticket says so.
    pub(crate) async fn succeed(&self, label: &str, ticket: Ticket<ActivationEnd>) {
        self.guests.end(label, ActivationOutcome::Success);
        assert_eq!(ended(ticket).await.report.outcome, ActivationOutcome::Success);
    }
}

/// Waits for the end. The guard only turns a hang into a failure.
pub(crate) async fn ended(ticket: Ticket<ActivationEnd>) -> ActivationEnd {
    tokio::time::timeout(Duration::from_secs(60), ticket).await.expect("the activation ends")
}

/// Lets everything that can run now run until it waits. On the tests' single-threaded runtime each yield lets every other runnable
/// task take one step, and no chain of wake-ups here is nearly as long.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
