//! A real function, run twice on one event, publishing to a real log under a derived key: what it draws is the same again, and what is
//! not the same is a conflict that everybody but the function sees as one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use latent_bridge::{BridgeManifest, EmbeddedBroker, EventBus};
use latent_capabilities::{
    ActivationCapabilityRuntime, AuditRing, CompletionAccount, EVENT_PUBLISHER, EventBinding, Origin, ProviderOutcome, ProviderRef,
    PublicationEnd,
};
use latent_core::{
    ActivationOutcome, Attributes, BindingId, Budget, Clock, ComponentDigest, ContractName, Deadline, DeliveredEvent, Epoch, FunctionName,
    LogicalTopic, MediaType, Offset, Partition, ProviderId, ServiceName, StoredRecord, SystemClock, TenantId, TopicName, UnixMillis,
};
use latent_node::{
    Catalog, Contracts, InboundOrder, InboundTarget, LocalActivationManager, ManagerOptions, NewPublication, NodeLimits, Principal,
    RouteKey, WasmBackend,
};
use latent_test_guests::BEHAVE;
use latent_topics::{PROFILE, PublisherTotals, TopicPublisher};
use latent_wasmtime::{EngineOptions, HANDLER_CONTRACT, WasmEngine};

const MANIFEST: &str = "manifest_version: 1\nname: edge\ntopics:\n  - name: out\n    partitions: 1\n";

struct Node {
    _directory: tempfile::TempDir,
    log: Arc<EmbeddedBroker>,
    publisher: Arc<TopicPublisher>,
    audit: Arc<AuditRing>,
    clock: Arc<SystemClock>,
    manager: Arc<LocalActivationManager>,
}

fn tenant() -> TenantId {
    TenantId::parse("acme").unwrap()
}

fn target() -> InboundTarget {
    InboundTarget {
        tenant: tenant(),
        principal: Principal::trigger(&BindingId::parse("b").unwrap()),
        service: ServiceName::parse("behave").unwrap(),
        contract: ContractName::parse(HANDLER_CONTRACT).unwrap(),
        function: FunctionName::parse("handle").unwrap(),
        route: None,
        budget: Budget { wall_time_millis: 60_000, ..Budget::default() },
        input_bytes_max: 1_000,
    }
}

/// A catalog whose one route leads to `behave`, and what it may do.
fn published(capabilities: &ActivationCapabilityRuntime, publisher: &Arc<TopicPublisher>) -> Arc<Catalog> {
    let target = target();
    let catalog = Arc::new(Catalog::default());
    let publication = catalog
        .add(NewPublication {
            service: target.service.clone(),
            tenants: BTreeSet::from([tenant()]).into(),
            contracts: Contracts::from([(target.contract, BTreeSet::from([target.function]))]).into(),
            digest: ComponentDigest::of(BEHAVE.component),
        })
        .unwrap();
    catalog.point_route(RouteKey { tenant: tenant(), service: target.service, route: None }, publication).unwrap();
    let provider = ProviderRef {
        logical_id: ProviderId::parse("topics").unwrap(),
        capability: ContractName::parse(EVENT_PUBLISHER).unwrap(),
        profile: PROFILE.into(),
        epoch: Epoch(1),
        digest: [0; 32],
    };
    capabilities.providers().install(provider.clone(), None, Arc::clone(publisher) as _).unwrap();
    let topics = BTreeSet::from([LogicalTopic::parse("out").unwrap()]);
    let binding = EventBinding { publication, tenant: tenant(), provider, topics };
    capabilities.install_events(capabilities.compile_events([binding]).unwrap()).unwrap();
    catalog
}

impl Node {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = Arc::new(EmbeddedBroker::provision(directory.path(), &BridgeManifest::from_yaml(MANIFEST).unwrap()).unwrap());
        let (clock, audit) = (Arc::new(SystemClock::start()), Arc::new(AuditRing::default()));
        let publisher = Arc::new(TopicPublisher::new(Arc::clone(&log) as _, "edge", Arc::clone(&clock) as _));
        let capabilities = Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::clone(&audit) as _));
        let catalog = published(&capabilities, &publisher);
        let limits = NodeLimits { cells: 2, ..NodeLimits::for_cores(1) };
        let engine = WasmEngine::new(EngineOptions { cells: limits.cells.into(), ..EngineOptions::default() }).unwrap();
        let backend = Arc::new(WasmBackend::new(engine));
        backend.load(BEHAVE.component).unwrap();
        let ids = AtomicU64::new(1);
        let manager = LocalActivationManager::new(ManagerOptions {
            backend,
            catalog,
            capabilities,
            clock: Arc::clone(&clock) as _,
            ids: Arc::new(move || u128::from(ids.fetch_add(1, Ordering::Relaxed)).to_be_bytes()),
            limits,
            runtime: tokio::runtime::Handle::current(),
        });
        Self { _directory: directory, log, publisher, audit, clock, manager: manager.unwrap() }
    }

    /// The run number `delivery` on the event at `offset`: what the guest saw, and how its one publication ended.
    async fn run(&self, payload: &str, offset: u64, delivery: u32) -> (String, PublicationEnd) {
        let (topic, stored_at) = (TopicName::parse("in").unwrap(), UnixMillis(1_000));
        let event = DeliveredEvent {
            topic: topic.clone(),
            partition: Partition(0),
            offset: Offset(offset),
            uid: None,
            key: String::new(),
            media_type: MediaType::octet_stream(),
            attributes: Attributes::default(),
            payload: Bytes::copy_from_slice(payload.as_bytes()),
            delivery,
            stored_at,
        };
        let binding = BindingId::parse("b").unwrap();
        let origin = Origin { binding, topic, partition: Partition(0), offset: Offset(offset), stored_at: Some(stored_at) };
        let reservation = self.manager.reserve_inbound(&target()).unwrap();
        let deadline = Deadline::after(self.clock.mono(), 60_000);
        let end = self.manager.activate(reservation, InboundOrder { event, origin, deadline }).await;
        let ActivationOutcome::Rejected { reason } = end.report.outcome else { panic!("{:?}", end.report) };
        let entry = self.manager.journal_of_event(&TopicName::parse("in").unwrap(), Partition(0), Offset(offset)).remove(0);
        assert_eq!(entry.activation, end.activation);
        assert_eq!(entry.publications.len(), 1);
        let publication = entry.publications.iter().next().unwrap();
        assert!(publication.uid.as_ref().is_some_and(|uid| uid.as_str().starts_with("lsf-")));
        (reason, publication.end.clone())
    }

    fn stored(&self) -> Vec<StoredRecord> {
        self.log.submit_fetch("out", Partition(0), Offset(0), 10).wait().unwrap()
    }
}

fn stored(sequence: u64, duplicate: bool) -> PublicationEnd {
    PublicationEnd::Stored { stream: "out".into(), sequence, duplicate }
}

#[tokio::test]
async fn what_a_function_drew_or_read_off_the_clock_is_stored_once_for_each_event_however_often_it_runs() {
    for source in ["random", "time"] {
        let (node, payload) = (Node::new(), format!("publish-content:out:{source}"));
        assert_eq!(node.run(&payload, 0, 1).await, ("Ok(false)".to_owned(), stored(0, false)), "{source}");
        assert_eq!(node.run(&payload, 0, 2).await, ("Ok(true)".to_owned(), stored(0, true)), "{source}");
        assert_eq!(node.run(&payload, 1, 1).await, ("Ok(false)".to_owned(), stored(1, false)), "{source}");
        assert_eq!(node.stored().len(), 2, "{source}");
    }
}

#[tokio::test]
async fn a_function_that_does_not_do_the_same_again_makes_a_conflict_and_changes_nothing() {
    let node = Node::new();
    assert_eq!(node.run("publish-content:out:delivery", 0, 1).await, ("Ok(false)".to_owned(), stored(0, false)));
    assert_eq!(node.run("publish-content:out:delivery", 0, 2).await, ("Err(InvalidEvent)".to_owned(), PublicationEnd::Conflict));
    let last = node.audit.records().pop().unwrap();
    assert_eq!((last.observed, last.told), (ProviderOutcome::Rejected { reason: "conflict" }, Some("invalid-event")));
    let totals = PublisherTotals { receipts: 1, failures: 1, conflicts: 1, ..PublisherTotals::default() };
    assert_eq!(node.publisher.totals(), totals);
    let records = node.stored();
    assert_eq!((records.len(), &records[0].record.payload[..]), (1, &b"1"[..]));
}
