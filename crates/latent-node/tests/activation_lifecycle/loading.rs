//! Components come into memory when they are first used and leave it when others need the room; none of it changes what may run.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use latent_core::{ActivationOutcome, Clock, ComponentDigest, Deadline, SystemClock};
use latent_node::{
    ActivationEnd, Catalog, ComponentSource, InboundOrder, LocalActivationManager, NodeError, RevocationScope, WasmBackend,
    WasmBackendOptions, limits::LOADED_COMPONENT_BYTES,
};
use latent_test_guests::{BEHAVE, COMMAND};
use latent_wasmtime::{EngineOptions, WasmEngine};

use crate::node::{DEADLINE_MILLIS, catalog, ended, event, limits, manager, origin, publication, route, target};

/// A shelf of components whose readers wait while the door is shut.
#[derive(Default)]
struct Shelf {
    components: Mutex<BTreeMap<ComponentDigest, Vec<u8>>>,
    reads: Mutex<Vec<ComponentDigest>>,
    shut: Mutex<bool>,
    opened: Condvar,
}

impl Shelf {
    fn holding(components: &[&[u8]]) -> Arc<Self> {
        let shelf = Self::default();
        for component in components {
            shelf.components.lock().unwrap().insert(ComponentDigest::of(component), component.to_vec());
        }
        Arc::new(shelf)
    }

    fn set_shut(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.opened.notify_all();
    }

    fn reads(&self) -> usize {
        self.reads.lock().unwrap().len()
    }
}

impl ComponentSource for Shelf {
    fn read(&self, digest: ComponentDigest) -> Result<Vec<u8>, String> {
        self.reads.lock().unwrap().push(digest);
        let shut = self.opened.wait_while(self.shut.lock().unwrap(), |shut| *shut).unwrap();
        drop(shut);
        self.components.lock().unwrap().get(&digest).cloned().ok_or_else(|| "the shelf does not have it".to_owned())
    }
}

struct Loading {
    manager: Arc<LocalActivationManager>,
    catalog: Arc<Catalog>,
    backend: Arc<WasmBackend>,
    shelf: Arc<Shelf>,
    clock: Arc<SystemClock>,
}

impl Loading {
    /// A node whose routes lead to `component`, of which nothing is loaded.
    fn of(component: &[u8], shelf: Arc<Shelf>, loaded_bytes_max: u64) -> Self {
        let engine = WasmEngine::new(EngineOptions { cells: limits().cells.into(), ..EngineOptions::default() }).unwrap();
        let source = Some(Arc::clone(&shelf) as Arc<dyn ComponentSource>);
        let backend = Arc::new(WasmBackend::with_options(WasmBackendOptions { engine, loaded_bytes_max, cache: None, source }).unwrap());
        let (catalog, _) = catalog(component);
        let clock = Arc::new(SystemClock::start());
        let manager = manager(Arc::clone(&backend) as _, &catalog, Arc::clone(&clock) as _, limits()).unwrap();
        Self { manager, catalog, backend, shelf, clock }
    }

    fn begin(&self, payload: &str, deadline_millis: u64) -> latent_core::Ticket<ActivationEnd> {
        let reservation = self.manager.reserve_inbound(&target("a")).unwrap();
        let deadline = Deadline::after(self.clock.mono(), deadline_millis);
        self.manager.activate(reservation, InboundOrder { event: event(payload), origin: origin(), deadline })
    }

    async fn outcome(&self, payload: &str) -> ActivationOutcome {
        ended(self.begin(payload, DEADLINE_MILLIS)).await.report.outcome
    }

    /// Lets the loader come as far as the door.
    async fn somebody_waits(&self) {
        tokio::time::timeout(Duration::from_secs(60), async {
            while self.shelf.reads() == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("the component is asked for");
    }
}

/// The same component with something at its end that changes nothing but its digest.
fn varied(component: &[u8], variant: u8) -> Vec<u8> {
    let mut varied = component.to_vec();
    // A custom section: id, size, length of its name, its name, its content.
    varied.extend_from_slice(&[0, 3, 1, b'v', variant]);
    varied
}

#[tokio::test]
async fn a_component_is_loaded_when_it_is_first_used_and_stays() {
    let node = Loading::of(BEHAVE.component, Shelf::holding(&[BEHAVE.component]), LOADED_COMPONENT_BYTES.default);
    assert_eq!(node.backend.snapshot().components, 0);
    for _ in 0..3 {
        assert_eq!(node.outcome("ok").await, ActivationOutcome::Success);
    }
    assert_eq!((node.shelf.reads(), node.backend.snapshot().components), (1, 1));
}

#[tokio::test]
async fn many_who_want_one_component_cause_one_load() {
    let node = Loading::of(BEHAVE.component, Shelf::holding(&[BEHAVE.component]), LOADED_COMPONENT_BYTES.default);
    node.shelf.set_shut(true);
    let waiting: Vec<_> = (0..2).map(|_| node.begin("ok", DEADLINE_MILLIS)).collect();
    node.somebody_waits().await;
    node.shelf.set_shut(false);
    for ticket in waiting {
        assert_eq!(ended(ticket).await.report.outcome, ActivationOutcome::Success);
    }
    assert_eq!(node.shelf.reads(), 1);
}

#[tokio::test]
async fn what_is_revoked_while_its_component_is_loaded_does_not_start() {
    let node = Loading::of(BEHAVE.component, Shelf::holding(&[BEHAVE.component]), LOADED_COMPONENT_BYTES.default);
    node.shelf.set_shut(true);
    let ticket = node.begin("ok", DEADLINE_MILLIS);
    node.somebody_waits().await;
    let (publication, _) = node.catalog.route(&route("a")).unwrap();
    node.catalog.revoke(publication, RevocationScope::Whole).unwrap();
    node.shelf.set_shut(false);
    let end = ended(ticket).await;
    assert!(matches!(end.report.outcome, ActivationOutcome::PermissionRefused { .. }), "{:?}", end.report.outcome);
    assert_eq!((end.started_at, end.report.fuel_used), (None, 0));
}

#[tokio::test]
async fn who_waits_for_a_load_beyond_the_deadline_times_out_and_the_load_serves_the_next() {
    let node = Loading::of(BEHAVE.component, Shelf::holding(&[BEHAVE.component]), LOADED_COMPONENT_BYTES.default);
    node.shelf.set_shut(true);
    assert_eq!(ended(node.begin("ok", 20)).await.report.outcome, ActivationOutcome::Timeout);
    let cancelled = node.begin("ok", DEADLINE_MILLIS);
    node.somebody_waits().await;
    let running = node.manager.running();
    assert!(running.iter().all(|activation| node.manager.cancel(*activation)) && !running.is_empty());
    assert_eq!(ended(cancelled).await.report.outcome, ActivationOutcome::Cancelled);
    node.shelf.set_shut(false);
    assert_eq!(node.outcome("ok").await, ActivationOutcome::Success);
    assert_eq!(node.shelf.reads(), 1);
    assert_eq!(node.manager.snapshot().node, latent_node::Account::default());
}

#[tokio::test]
async fn what_is_used_least_makes_room_and_comes_back_when_it_is_wanted() {
    let variants: Vec<_> = (0..3).map(|variant| varied(BEHAVE.component, variant)).collect();
    let shelf = Shelf::holding(&variants.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let engine = WasmEngine::new(EngineOptions { cells: 1, ..EngineOptions::default() }).unwrap();
    let code_bytes = engine.prepare(BEHAVE.component).unwrap().code_bytes() as u64;
    let node = Loading::of(&variants[0], shelf, code_bytes * 2 + code_bytes / 2);
    let publications: Vec<_> = variants.iter().map(|component| node.catalog.add(publication(component)).unwrap()).collect();
    let mut reads = Vec::new();
    for wanted in [0, 1, 0, 2, 1, 2] {
        node.catalog.point_route(route("a"), publications[wanted]).unwrap();
        assert_eq!(node.outcome("ok").await, ActivationOutcome::Success, "{wanted}");
        assert!(node.backend.snapshot().bytes <= node.backend.snapshot().bytes_max);
        reads.push(node.shelf.reads());
    }
    // 2 displaces 1, which was used before 0; 1 displaces 0.
    assert_eq!((reads, node.backend.snapshot().evicted), (vec![1, 2, 2, 3, 4, 4], 2));
}

#[tokio::test]
async fn a_component_that_cannot_be_had_is_a_host_failure_that_says_why() {
    let reason = |outcome| match outcome {
        ActivationOutcome::HostFailure { reason } => reason,
        other => panic!("{other:?}"),
    };
    let missing = Loading::of(BEHAVE.component, Shelf::holding(&[]), LOADED_COMPONENT_BYTES.default);
    let why = reason(missing.outcome("ok").await);
    assert!(why.contains("the shelf does not have it") && why.contains(&ComponentDigest::of(BEHAVE.component).to_string()), "{why}");
    // It may be there the next time.
    missing.shelf.components.lock().unwrap().insert(ComponentDigest::of(BEHAVE.component), BEHAVE.component.to_vec());
    assert_eq!(missing.outcome("ok").await, ActivationOutcome::Success);

    let other = Loading::of(BEHAVE.component, Shelf::holding(&[]), LOADED_COMPONENT_BYTES.default);
    other.shelf.components.lock().unwrap().insert(ComponentDigest::of(BEHAVE.component), COMMAND.component.to_vec());
    let why = reason(other.outcome("ok").await);
    assert!(why.contains(&ComponentDigest::of(COMMAND.component).to_string()), "{why}");
}

#[test]
fn a_component_larger_than_all_that_may_be_loaded_is_refused_with_both_numbers() {
    let engine = WasmEngine::new(EngineOptions { cells: 1, ..EngineOptions::default() }).unwrap();
    let component_bytes = engine.prepare(COMMAND.component).unwrap().code_bytes() as u64;
    for (loaded_bytes_max, fits) in [(component_bytes - 1, false), (component_bytes, true), (component_bytes + 1, true)] {
        let options = WasmBackendOptions { engine: engine.clone(), loaded_bytes_max, cache: None, source: None };
        let refused = WasmBackend::with_options(options).unwrap().load(COMMAND.component).err();
        let expected = latent_node::LoadError::TooLarge { component_bytes, bytes_max: loaded_bytes_max };
        assert_eq!(refused, (!fits).then_some(expected), "{loaded_bytes_max}");
    }
    for bad in [LOADED_COMPONENT_BYTES.min - 1, LOADED_COMPONENT_BYTES.max + 1] {
        let options = WasmBackendOptions { engine: engine.clone(), loaded_bytes_max: bad, cache: None, source: None };
        let refused = WasmBackend::with_options(options).err();
        assert!(matches!(refused, Some(NodeError::Limit(refused)) if refused.name == "loaded_component_bytes"), "{bad}");
    }
}
