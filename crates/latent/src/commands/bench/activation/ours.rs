//! Our side: a node's own way from admission to outcome, without a log or a trigger in front of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use latent_capabilities::{ActivationCapabilityRuntime, AuditRing, CompletionAccount, Origin};
use latent_core::{
    ActivationOutcome, Attributes, BindingId, Budget, Clock, ContractName, CoreError, Deadline, DeliveredEvent, FunctionName, MediaType,
    Offset, Partition, ServiceName, SystemClock, TenantId, TopicName, UnixMillis,
};
use latent_node::{
    Catalog, InboundOrder, InboundTarget, LocalActivationManager, ManagerOptions, NewPublication, NodeLimits, Principal, RouteKey,
    WasmBackend,
};
use latent_wasmtime::{EngineOptions, HANDLER_CONTRACT, WasmEngine};
use tokio::runtime::{self, Runtime};
use tokio::task::JoinHandle;

use super::super::failed;
use super::super::figure::Slice;
use super::guest::NOTHING;
use super::rows::{CELLS, PAYLOAD, engine_failed, joined};
use crate::error::CliError;
use crate::node::Ids;

/// Time that no activation here comes near.
const DEADLINE_MILLIS: u64 = 10_000;

/// A node with one service.
pub(in super::super) struct OurNode {
    runtime: Runtime,
    caller: Arc<Caller>,
}

/// Hands events over and waits for their outcomes.
struct Caller {
    manager: Arc<LocalActivationManager>,
    clock: Arc<dyn Clock>,
    target: InboundTarget,
    event: DeliveredEvent,
    origin: Origin,
}

impl OurNode {
    /// A node whose activations run on so many threads.
    pub(in super::super) fn start(threads: usize) -> Result<Self, CliError> {
        let runtime =
            runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().map_err(failed("making a runtime"))?;
        let caller = Caller::new(&runtime)?;
        Ok(Self { runtime, caller: Arc::new(caller) })
    }

    /// So many events at a time, one after the other each, for so long.
    pub(in super::super) fn slice(&self, at_a_time: usize, time: Duration) -> Result<Slice, CliError> {
        // Tasks of the runtime, as the node's delivery is.
        let running: Vec<_> = (0..at_a_time).map(|_| self.runtime.spawn(Arc::clone(&self.caller).one_by_one(time))).collect();
        let ended = |task: JoinHandle<_>| self.runtime.block_on(task).unwrap_or_else(|error| Err(engine_failed("running a node", &error)));
        running.into_iter().map(ended).collect::<Result<Vec<_>, _>>().map(joined)
    }
}

impl Caller {
    fn new(runtime: &Runtime) -> Result<Self, CliError> {
        let failed = |error: &dyn std::fmt::Display| engine_failed("making a node", error);
        let target = target().map_err(|error| failed(&error))?;
        let limits = NodeLimits { cells: u32::try_from(CELLS).unwrap_or(u32::MAX), ..NodeLimits::for_cores(2) };
        let engine = WasmEngine::new(EngineOptions { cells: CELLS, ..EngineOptions::default() }).map_err(|error| failed(&error))?;
        let backend = Arc::new(WasmBackend::new(engine));
        let digest = backend.load(NOTHING).map_err(|error| failed(&error))?.digest();
        let catalog = Arc::new(Catalog::default());
        let publication = catalog
            .add(NewPublication {
                service: target.service.clone(),
                tenants: BTreeSet::from([target.tenant.clone()]).into(),
                contracts: BTreeMap::from([(target.contract.clone(), BTreeSet::from([target.function.clone()]))]).into(),
                digest,
            })
            .map_err(|error| failed(&error))?;
        let route = RouteKey { tenant: target.tenant.clone(), service: target.service.clone(), route: None };
        catalog.point_route(route, publication).map_err(|error| failed(&error))?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let manager = LocalActivationManager::new(ManagerOptions {
            backend,
            catalog,
            capabilities: Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::new(AuditRing::default()))),
            clock: Arc::clone(&clock),
            ids: Arc::new(Ids::default()),
            limits,
            runtime: runtime.handle().clone(),
        })
        .map_err(|error| failed(&error))?;
        let (event, origin) = event().map_err(|error| failed(&error))?;
        Ok(Self { manager, clock, target, event, origin })
    }

    async fn one_by_one(self: Arc<Self>, time: Duration) -> Result<Slice, CliError> {
        let started = Instant::now();
        let (mut now, mut latencies) = (started, Vec::new());
        while now.duration_since(started) < time {
            self.call().await?;
            let done = Instant::now();
            latencies.push(done.duration_since(now));
            now = done;
        }
        Ok(Slice { units: latencies.len() as u64, elapsed: now.duration_since(started), latencies })
    }

    async fn call(&self) -> Result<(), CliError> {
        let reservation = self.manager.reserve_inbound(&self.target).map_err(|error| engine_failed("reserving", &error))?;
        let deadline = Deadline::after(self.clock.mono(), DEADLINE_MILLIS);
        let order = InboundOrder { event: self.event.clone(), origin: self.origin.clone(), deadline };
        match self.manager.activate(reservation, order).await.report.outcome {
            ActivationOutcome::Success => Ok(()),
            other => Err(engine_failed("activating", &other.kind())),
        }
    }
}

fn target() -> Result<InboundTarget, CoreError> {
    Ok(InboundTarget {
        tenant: TenantId::parse("acme")?,
        principal: Principal::trigger(&BindingId::parse("binding")?),
        service: ServiceName::parse("nothing")?,
        contract: ContractName::parse(HANDLER_CONTRACT)?,
        function: FunctionName::parse("handle")?,
        route: None,
        budget: Budget::default(),
        input_bytes_max: latent_node::limits::INPUT_BYTES.default,
    })
}

fn event() -> Result<(DeliveredEvent, Origin), CoreError> {
    let (topic, partition, offset) = (TopicName::parse("in")?, Partition(0), Offset(1));
    let event = DeliveredEvent {
        topic: topic.clone(),
        partition,
        offset,
        uid: None,
        key: "key".to_owned(),
        media_type: MediaType::json(),
        attributes: Attributes::default(),
        payload: Bytes::from_static(PAYLOAD),
        delivery: 1,
        stored_at: UnixMillis(1),
    };
    let origin = Origin { binding: BindingId::parse("binding")?, topic, partition, offset, stored_at: Some(event.stored_at) };
    Ok((event, origin))
}
