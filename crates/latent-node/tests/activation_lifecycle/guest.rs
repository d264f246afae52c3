//! A real component through the whole way: loaded, published, routed, reserved, run, remembered.

use std::sync::Arc;

use latent_core::{ActivationOutcome, Clock, ContractName, Deadline, FunctionName, SystemClock};
use latent_node::{
    ActivationEnd, Catalog, Contracts, InboundOrder, InboundTarget, LoadError, LocalActivationManager, NewPublication, RevocationScope,
    WasmBackend,
};
use latent_test_guests::{BEHAVE, COMMAND, Guest};
use latent_wasmtime::{EngineOptions, WasmEngine, WasmError};

use crate::node::{DEADLINE_MILLIS, catalog, ended, event, limits, manager, origin, publication, route, target};

struct RealNode {
    manager: Arc<LocalActivationManager>,
    catalog: Arc<Catalog>,
    backend: Arc<WasmBackend>,
    clock: Arc<SystemClock>,
}

impl RealNode {
    /// A node whose routes lead to `guest`, which is loaded.
    fn running(guest: Guest) -> Self {
        let engine = WasmEngine::new(EngineOptions { cells: limits().cells.into(), ..EngineOptions::default() }).unwrap();
        let backend = Arc::new(WasmBackend::new(engine));
        backend.load(guest.component).unwrap();
        let (catalog, _) = catalog(guest.component);
        let clock = Arc::new(SystemClock::start());
        let manager = manager(Arc::clone(&backend) as _, &catalog, Arc::clone(&clock) as _, limits()).unwrap();
        Self { manager, catalog, backend, clock }
    }

    async fn run(&self, target: &InboundTarget, payload: &str) -> ActivationEnd {
        let reservation = self.manager.reserve_inbound(target).unwrap();
        let deadline = Deadline::after(self.clock.mono(), DEADLINE_MILLIS);
        let end = ended(self.manager.activate(reservation, InboundOrder { event: event(payload), origin: origin(), deadline })).await;
        assert_eq!(self.manager.snapshot().node, latent_node::Account::default());
        end
    }
}

#[tokio::test]
async fn a_guest_handles_its_event_and_the_journal_knows_what_it_used() {
    let node = RealNode::running(BEHAVE);
    let end = node.run(&target("a"), "ok").await;
    assert_eq!(end.report.outcome, ActivationOutcome::Success);
    assert!(end.started_at.is_some());
    let entry = node.manager.journal_entry(end.activation).unwrap();
    assert_eq!(entry.ended.kind, "success");
    assert!(entry.fuel_used > 0 && entry.memory_bytes_peak > 0);
}

#[tokio::test]
async fn a_guests_refusal_and_its_log_come_back() {
    let node = RealNode::running(BEHAVE);
    let end = node.run(&target("a"), "reject:not JSON").await;
    assert_eq!(end.report.outcome, ActivationOutcome::Rejected { reason: "not JSON".to_owned() });
    let end = node.run(&target("a"), "log").await;
    assert!(!end.report.log.is_empty());
    assert_eq!(node.manager.journal_entry(end.activation).unwrap().log, end.report.log);
}

#[tokio::test]
async fn a_guest_that_computes_for_ever_ends_by_its_budget_and_the_cell_serves_the_next() {
    let node = RealNode::running(BEHAVE);
    let end = node.run(&target("a"), "loop").await;
    // Fuel or time, whichever the machine reaches first.
    assert!(matches!(end.report.outcome, ActivationOutcome::BudgetExhausted(_) | ActivationOutcome::Timeout), "{:?}", end.report.outcome);
    assert_eq!(node.run(&target("a"), "ok").await.report.outcome, ActivationOutcome::Success);
}

#[tokio::test]
async fn a_loaded_component_authorises_nothing() {
    let node = RealNode::running(BEHAVE);
    let reservation = node.manager.reserve_inbound(&target("a")).unwrap();
    let (publication, _) = node.catalog.route(&route("a")).unwrap();
    node.catalog.revoke(publication, RevocationScope::Whole).unwrap();
    let deadline = Deadline::after(node.clock.mono(), DEADLINE_MILLIS);
    let order = InboundOrder { event: event("ok"), origin: origin(), deadline };
    let end = ended(node.manager.activate(reservation, order)).await;
    assert!(matches!(end.report.outcome, ActivationOutcome::PermissionRefused { .. }));
    assert_eq!((end.started_at, end.report.fuel_used), (None, 0));
}

#[tokio::test]
async fn loading_is_by_content_and_a_bad_component_is_named() {
    let node = RealNode::running(BEHAVE);
    let digest = latent_core::ComponentDigest::of(BEHAVE.component);
    let behave = node.backend.load(BEHAVE.component).unwrap();
    assert!(behave.digest() == digest && behave.exports_handler() && node.backend.is_loaded(digest));
    assert_eq!(node.backend.load(b"nothing").err(), Some(LoadError::Component(WasmError::NotWasm)));
    assert!(!node.backend.load(COMMAND.component).unwrap().exports_handler());
    assert_eq!(node.backend.snapshot().components, 2);
}

#[tokio::test]
async fn a_component_without_the_handler_is_an_incompatible_contract() {
    let node = RealNode::running(COMMAND);
    let end = node.run(&target("a"), "ok").await;
    assert!(matches!(end.report.outcome, ActivationOutcome::IncompatibleContract { .. }), "{:?}", end.report.outcome);
}

#[tokio::test]
async fn only_the_handler_can_be_called_with_an_event() {
    let node = RealNode::running(BEHAVE);
    let calc = ContractName::parse("demo:math/calc@1.0.0").unwrap();
    let add = FunctionName::parse("add").unwrap();
    let content =
        NewPublication { contracts: Contracts::from([(calc.clone(), [add.clone()].into())]).into(), ..publication(BEHAVE.component) };
    let other = node.catalog.add(content).unwrap();
    node.catalog.point_route(route("a"), other).unwrap();
    let end = node.run(&InboundTarget { contract: calc, function: add, ..target("a") }, "ok").await;
    assert!(matches!(end.report.outcome, ActivationOutcome::IncompatibleContract { .. }), "{:?}", end.report.outcome);
}

#[tokio::test]
async fn a_published_component_that_is_not_loaded_is_a_host_failure_that_names_it() {
    let node = RealNode::running(BEHAVE);
    let missing = publication(b"never loaded");
    let digest = missing.digest;
    let other = node.catalog.add(missing).unwrap();
    node.catalog.point_route(route("a"), other).unwrap();
    let end = node.run(&target("a"), "ok").await;
    assert!(matches!(&end.report.outcome, ActivationOutcome::HostFailure { reason } if reason.contains(&digest.to_string())));
    assert_eq!(end.started_at, None);
}
