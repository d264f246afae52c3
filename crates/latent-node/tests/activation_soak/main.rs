//! Many activations that end in every way, one node: nothing is left behind, and memory stays flat.
//!
//! A few thousand run with the tests; `cargo xtask campaign activations` runs a million, whose report is in `docs/reliability.md`. Every
//! account is looked at on the way, and the process's memory is compared between two moments at which the same is loaded.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test says what it needs by failing without it")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use latent_capabilities::{
    ActivationCapabilityRuntime, AuditRing, CompletionAccount, EVENT_PUBLISHER, EventBinding, EventPublisher, Origin, ProviderRef,
    PublishFuture, PublishRequest,
};
use latent_core::{
    Attributes, BindingId, Budget, Clock, ContractName, Deadline, DeliveredEvent, Epoch, FunctionName, LogicalTopic, MediaType, Offset,
    Partition, ProviderId, PublicationOutcome, Receipt, ServiceName, SystemClock, TenantId, TopicName, UnixMillis,
};
use latent_node::{
    Account, ActivationEnd, CallOrder, Catalog, InboundOrder, InboundTarget, LocalActivationManager, ManagerOptions, NewPublication,
    NodeLimits, Principal, RouteKey, WasmBackend,
};
use latent_test_guests::{BEHAVE, Guest, PLAIN};
use latent_wasmtime::{EngineOptions, HANDLER_CONTRACT, WasmEngine};

/// How many run unless the campaign says.
const ACTIVATIONS: u64 = 20_000;
/// Says how many.
const ACTIVATIONS_VAR: &str = "LATENT_SOAK_ACTIVATIONS";
/// What memory may differ by between the two moments: the allocator's own movements, and pages of the pool that are touched for the
/// first time. A leak of 64 bytes an activation would be eight times as much in a million.
const SLACK_BYTES: u64 = 8 << 20;

/// What is run, in turns, and the kind that it ends in.
const WAYS: [(Way, &str); 19] = [
    (Way::Event("ok"), "success"),
    (Way::Event("reject:no"), "rejected"),
    (Way::Event("retry:100:later"), "retry"),
    (Way::Event("panic:why"), "trap"),
    (Way::Event("trap"), "trap"),
    (Way::Event("exit:3"), "trap"),
    (Way::Event("loop"), "fuel-exhausted"),
    (Way::Event("recurse"), "trap"),
    (Way::Event("alloc:60000000"), "memory-exhausted"),
    (Way::Event("log-flood:20000"), "success"),
    (Way::Event("publish:elsewhere"), "rejected"),
    (Way::Event("publish-or-fail:out"), "success"),
    (Way::Event("publish-many:out:3"), "rejected"),
    (Way::TooLong("sleep:60000"), "timeout"),
    (Way::Cancelled("sleep:60000"), "cancelled"),
    (Way::Call("divide", "[6,2]"), "success"),
    (Way::Call("divide", "[1,0]"), "declared-failure"),
    (Way::Call("divide", "[1]"), "invalid-arguments"),
    (Way::Call("numbers", "[5000]"), "result-exhausted"),
];

#[derive(Debug, Clone, Copy)]
enum Way {
    Event(&'static str),
    /// With a wall time that it does not keep.
    TooLong(&'static str),
    /// Stopped by somebody else.
    Cancelled(&'static str),
    Call(&'static str, &'static str),
}

struct Node {
    manager: Arc<LocalActivationManager>,
    clock: Arc<SystemClock>,
    capabilities: Arc<ActivationCapabilityRuntime>,
}

fn tenant() -> TenantId {
    TenantId::parse("acme").unwrap()
}

fn service(guest: Guest) -> ServiceName {
    ServiceName::parse(guest.name).unwrap()
}

impl Node {
    fn new() -> Self {
        let limits = NodeLimits::for_cores(2);
        let engine = WasmEngine::new(EngineOptions { cells: limits.cells.into(), ..EngineOptions::default() }).unwrap();
        let backend = Arc::new(WasmBackend::new(engine));
        let catalog = Arc::new(Catalog::default());
        let mut publications = Vec::new();
        for guest in [BEHAVE, PLAIN] {
            let component = backend.load(guest.component).unwrap();
            let content = NewPublication {
                service: service(guest),
                tenants: BTreeSet::from([tenant()]).into(),
                contracts: component.contracts().into(),
                digest: component.digest(),
            };
            let publication = catalog.add(content).unwrap();
            publications.push(publication);
            catalog.point_route(RouteKey { tenant: tenant(), service: service(guest), route: None }, publication).unwrap();
        }
        let capabilities = Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::new(AuditRing::default())));
        let reference = provider();
        capabilities.providers().install(reference.clone(), None, Arc::new(Receipts)).unwrap();
        let topics = BTreeSet::from([LogicalTopic::parse("out").unwrap()]);
        let granted = publications.iter().map(|publication| EventBinding {
            publication: *publication,
            tenant: tenant(),
            provider: reference.clone(),
            topics: topics.clone(),
        });
        capabilities.install_events(capabilities.compile_events(granted).unwrap()).unwrap();
        let clock = Arc::new(SystemClock::start());
        let ids = AtomicU64::new(1);
        let manager = LocalActivationManager::new(ManagerOptions {
            backend,
            catalog,
            capabilities: Arc::clone(&capabilities),
            clock: Arc::clone(&clock) as _,
            ids: Arc::new(move || u128::from(ids.fetch_add(1, Ordering::Relaxed)).to_be_bytes()),
            limits,
            runtime: tokio::runtime::Handle::current(),
        });
        Self { manager: manager.unwrap(), clock, capabilities }
    }

    fn target(&self, guest: Guest, contract: &str, function: &str) -> InboundTarget {
        InboundTarget {
            tenant: tenant(),
            principal: Principal::trigger(&BindingId::parse("b").unwrap()),
            service: service(guest),
            contract: ContractName::parse(contract).unwrap(),
            function: FunctionName::parse(function).unwrap(),
            route: None,
            budget: Budget { cpu_fuel: 2_000_000, log_bytes: 4_096, wall_time_millis: 60_000, ..Budget::default() },
            input_bytes_max: 1_000,
        }
    }

    async fn run(&self, way: Way) -> ActivationEnd {
        let deadline = Deadline::after(self.clock.mono(), 120_000);
        match way {
            Way::Event(payload) => {
                let reservation = self.manager.reserve_inbound(&self.target(BEHAVE, HANDLER_CONTRACT, "handle")).unwrap();
                self.manager.activate(reservation, InboundOrder { event: event(payload), origin: origin(), deadline }).await
            }
            Way::TooLong(payload) => {
                let target = self.target(BEHAVE, HANDLER_CONTRACT, "handle");
                let target = InboundTarget { budget: Budget { wall_time_millis: 1, ..target.budget }, ..target };
                let reservation = self.manager.reserve_inbound(&target).unwrap();
                self.manager.activate(reservation, InboundOrder { event: event(payload), origin: origin(), deadline }).await
            }
            Way::Cancelled(payload) => {
                let reservation = self.manager.reserve_inbound(&self.target(BEHAVE, HANDLER_CONTRACT, "handle")).unwrap();
                let activation = reservation.activation();
                let ticket = self.manager.activate(reservation, InboundOrder { event: event(payload), origin: origin(), deadline });
                assert!(self.manager.cancel(activation));
                ticket.await
            }
            Way::Call(function, arguments) => {
                let reservation = self.manager.reserve_inbound(&self.target(PLAIN, "demo:plain/work@1.0.0", function)).unwrap();
                let order = CallOrder { arguments: Bytes::from_static(arguments.as_bytes()), deadline, origin: None, trace: None };
                self.manager.call(reservation, order).await
            }
        }
    }

    /// Runs so many, two at a time, and counts how they ended.
    async fn run_many(&self, count: u64) -> BTreeMap<&'static str, u64> {
        let mut ended = BTreeMap::new();
        let ways = WAYS.iter().cycle().take(usize::try_from(count).unwrap());
        let mut ways = ways.peekable();
        while let Some(&(first, expected_first)) = ways.next() {
            let second = ways.next();
            let (one, other) = tokio::join!(self.run(first), async {
                match second {
                    Some((way, _)) => Some(self.run(*way).await),
                    None => None,
                }
            });
            let expected = [Some(expected_first), second.map(|(_, expected)| *expected)];
            for (end, expected) in [Some(one), other].into_iter().zip(expected).filter_map(|(end, expected)| end.zip(expected)) {
                assert_eq!(end.report.outcome.kind(), expected, "{:?}", end.report.outcome);
                *ended.entry(expected).or_default() += 1;
            }
        }
        ended
    }

    fn assert_empty(&self) {
        assert_eq!(self.manager.snapshot().node, Account::default());
        assert_eq!((self.manager.running(), self.capabilities.completions().held_bytes()), (vec![], 0));
    }
}

/// Takes every event and gives a receipt.
struct Receipts;

impl EventPublisher for Receipts {
    fn publish(&self, request: PublishRequest) -> PublishFuture {
        let receipt = Receipt { stream: "out".into(), sequence: 1, duplicate: false, accepted_at: UnixMillis(1) };
        let outcome = request.authorise_now().map_or_else(PublicationOutcome::KnownFailure, |_| PublicationOutcome::Receipt(receipt));
        Box::pin(std::future::ready(outcome))
    }
}

fn provider() -> ProviderRef {
    ProviderRef {
        logical_id: ProviderId::parse("receipts").unwrap(),
        capability: ContractName::parse(EVENT_PUBLISHER).unwrap(),
        profile: "p".into(),
        epoch: Epoch(1),
        digest: [0; 32],
    }
}

fn origin() -> Origin {
    Origin {
        binding: BindingId::parse("b").unwrap(),
        topic: TopicName::parse("in").unwrap(),
        partition: Partition(0),
        offset: Offset(0),
        stored_at: None,
    }
}

fn event(payload: &'static str) -> DeliveredEvent {
    DeliveredEvent {
        topic: TopicName::parse("in").unwrap(),
        partition: Partition(0),
        offset: Offset(0),
        uid: None,
        key: "k".to_owned(),
        media_type: MediaType::parse("text/plain").unwrap(),
        attributes: Attributes::default(),
        payload: Bytes::from_static(payload.as_bytes()),
        delivery: 1,
        stored_at: UnixMillis(1_000),
    }
}

/// Memory of this process that is not a mapped file.
fn memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1_024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn activations_that_end_in_every_way_leave_nothing_behind() {
    let count = std::env::var(ACTIVATIONS_VAR).map_or(ACTIVATIONS, |count| count.parse().unwrap());
    let node = Node::new();
    // Until the journal is full and every cell has been in every state; what comes after that must not add to it.
    let warm = (count / 5).max(8_000);
    let mut ended = node.run_many(warm).await;
    node.assert_empty();
    let before = memory_bytes();
    for (kind, more) in node.run_many(count.saturating_sub(warm)).await {
        *ended.entry(kind).or_default() += more;
    }
    node.assert_empty();
    let after = memory_bytes();
    println!("{count} activations: {ended:?}; memory {before} bytes after {warm}, {after} at the end");
    assert_eq!(ended.keys().copied().collect::<BTreeSet<_>>(), WAYS.iter().map(|(_, kind)| *kind).collect());
    assert!(after <= before + SLACK_BYTES, "memory grew from {before} to {after} bytes");
}
