//! The body of the fuzz target for components: prepare, run once with a small budget, and nothing else is harmed.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use latent_capabilities::{ActivationCapabilityRuntime, AuditRing, CompletionAccount, Session, SessionSpec};
use latent_core::{
    ActivationId, ActivationOutcome, Attributes, Budget, Clock, ContractName, Deadline, DeliveredEvent, FunctionName, MediaType, Offset,
    Partition, PublicationId, SystemClock, TenantId, TopicName, TraceId, UnixMillis,
};
use tokio::runtime::Runtime;

use crate::{ActivationReport, EngineOptions, FunctionCall, HandlerCall, PreparedComponent, WasmEngine};

/// What is run after every input: small, sound, and in the same cell.
const HEALTHY: &[u8] = include_bytes!("../../fuzz-corpus/component/handler");
/// Functions of one component that are called.
const FUNCTIONS_MAX: usize = 8;
const BUDGET: Budget = Budget {
    cpu_fuel: 200_000,
    memory_bytes: 4 << 20,
    wall_time_millis: 2_000,
    outbound_requests: 4,
    log_bytes: 4_096,
    child_calls: 0,
    effect_count: 0,
};

/// One engine for all inputs: what one leaves behind would meet the next.
struct Host {
    engine: WasmEngine,
    healthy: PreparedComponent,
    runtime: Runtime,
    clock: Arc<dyn Clock>,
}

static HOST: LazyLock<Host> = LazyLock::new(|| {
    let engine = WasmEngine::new(EngineOptions { cells: 1, ..EngineOptions::default() });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let (Ok(engine), Ok(runtime)) = (engine, runtime) else { unreachable!("this machine has no room for one cell") };
    let Ok(healthy) = engine.prepare(HEALTHY) else { unreachable!("the healthy component is not sound") };
    Host { engine, healthy, runtime, clock: Arc::new(SystemClock::start()) }
});

/// A component ends in a typed error when it is prepared, or in an outcome that does not blame the host when it is run, and a sound one
/// runs after it.
pub(super) fn component(input: &[u8]) {
    match HOST.engine.prepare(input) {
        Err(error) => assert!(error.to_string().len() <= 4_096, "an error of {} bytes", error.to_string().len()),
        Ok(prepared) => run_all(&prepared),
    }
    let after = HOST.handle(&HOST.healthy);
    assert_eq!(after.outcome, ActivationOutcome::Success, "the healthy component");
    assert_eq!(HOST.engine.free_cells(), HOST.engine.cells(), "a cell was not given back");
}

fn run_all(prepared: &PreparedComponent) {
    check(&HOST.handle(prepared));
    HOST.call_each(prepared).iter().for_each(check);
}

fn check(report: &ActivationReport) {
    assert!(!matches!(report.outcome, ActivationOutcome::HostFailure { .. }), "the host is blamed: {:?}", report.outcome);
    assert!(report.fuel_used <= BUDGET.cpu_fuel && report.memory_bytes_peak <= BUDGET.memory_bytes, "{report:?}");
    assert!(report.log.iter().map(|line| line.text.len() as u64).sum::<u64>() <= BUDGET.log_bytes, "{report:?}");
}

fn trace() -> TraceId {
    TraceId::from_random([0xab; 16])
}

impl Host {
    fn handle(&self, component: &PreparedComponent) -> ActivationReport {
        let call = HandlerCall { event: event(), session: self.session(), budget: BUDGET, trace: trace() };
        self.runtime.block_on(self.engine.run_handler(component, call))
    }

    /// Its first functions, without arguments, in the order of their names.
    fn call_each(&self, component: &PreparedComponent) -> Vec<ActivationReport> {
        let contracts = component.contracts();
        let functions = contracts.iter().flat_map(|(contract, functions)| functions.iter().map(move |function| (contract, function)));
        let call = |(contract, function): (&ContractName, &FunctionName)| {
            let (contract, function) = (contract.clone(), function.clone());
            let arguments = Bytes::from_static(b"[]");
            let call = FunctionCall { contract, function, arguments, session: self.session(), budget: BUDGET, trace: trace() };
            self.runtime.block_on(self.engine.run_function(component, call))
        };
        functions.take(FUNCTIONS_MAX).map(call).collect()
    }

    /// A session without any grant.
    fn session(&self) -> Session {
        let Ok(tenant) = TenantId::parse("acme") else { unreachable!("a tenant's name") };
        Session::open(SessionSpec {
            activation: ActivationId::from_random([0xcd; 16]),
            tenant,
            publication: PublicationId(1),
            origin: None,
            outbound_requests: BUDGET.outbound_requests,
            deadline: Deadline::after(self.clock.mono(), 10_000),
            capabilities: Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::new(AuditRing::default()))),
            clock: Arc::clone(&self.clock),
        })
    }
}

fn event() -> DeliveredEvent {
    let (Ok(topic), Ok(attributes)) = (TopicName::parse("in"), Attributes::parse(vec![("A".to_owned(), "b".to_owned())])) else {
        unreachable!("a topic and an attribute")
    };
    DeliveredEvent {
        topic,
        partition: Partition(3),
        offset: Offset(41),
        uid: None,
        key: "k".to_owned(),
        media_type: MediaType::octet_stream(),
        attributes,
        payload: Bytes::from_static(b"payload"),
        delivery: 2,
        stored_at: UnixMillis(1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz_bodies::components;

    #[test]
    fn the_functions_of_the_corpus_return_values_of_every_kind() {
        let prepared = HOST.engine.prepare(&components::functions()).unwrap();
        let results: Vec<_> = HOST.call_each(&prepared).into_iter().map(|report| report.result.unwrap()).collect();
        let expected = [
            r#"[{"case":"letters","value":["A"]}]"#,
            r#"[{"err":"more"}]"#,
            r#"[[{"count":7,"share":{"some":"1.5"},"outcome":{"ok":"A"}}]]"#,
            r#"[[["text"]]]"#,
            r#"[["first","third"]]"#,
            r#"["text"]"#,
        ];
        assert_eq!(results, expected);
    }
}
