//! Our side: triggers as a node installs them, with its pools, a sealed credential, admission and engine, and every bound in force.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use latent_capabilities::{
    ActivationCapabilityRuntime, AuditRing, CompletionAccount, EventBinding, EventPublisher, PoolSettings, ProviderPools, ProviderRef,
    PublishFuture, PublishRequest,
};
use latent_core::{
    Clock, ContractName, Epoch, FunctionName, LogicalTopic, ProviderId, PublicationOutcome, Receipt, ServiceName, SystemClock, TenantId,
    Uid, UnixMillis,
};
use latent_nats::triggers::{BindingDraft, BudgetDraft, NatsTriggers, StepEnd, StepOutcome, TriggerDraft, TriggerMonitor};
use latent_nats::{EndpointDraft, NatsCredential, NatsPools, Peer, RootsDraft};
use latent_node::delivery::{Confirmation, VisitSettlement};
use latent_node::{Catalog, LocalActivationManager, ManagerOptions, NewPublication, NodeLimits, RouteKey, WasmBackend};
use latent_secrets::{NewSecret, SecretName, TlsBinding};
use latent_wasmtime::{EngineOptions, HANDLER_CONTRACT, WasmEngine};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::super::super::failed;
use super::super::super::figure::Slice;
use super::super::super::publish::{Target, broken, parsed, store};
use super::{ACK_WAIT_MILLIS, MAX_DELIVER, OPERATION_TIMEOUT_MILLIS, PAYLOAD_CEILING_BYTES, consumer, filter};
use crate::error::CliError;
use crate::node::Ids;

const DOING: &str = "preparing triggers";
pub(in super::super) const TENANT: &str = "bench";
pub(in super::super) const SERVICE: &str = "measured";
pub(in super::super) const HANDLE: &str = "handle";
/// What the guest that publishes names.
const TOPIC: &str = "out";
/// The arguments of a handler that is called with values: an event, and not a large one.
pub(super) const EVENT: &[u8] = br#"[{"topic":"in","partition":0,"offset":"1","uid":{"none":null},"key":{"none":null},"media-type":"application/json","attributes":[],"payload":[],"delivery-count":1,"stored-at-unix-millis":"1"}]"#;

/// A node's half with one service.
pub(in super::super) struct Half {
    pub(in super::super) runtime: Runtime,
    pub(in super::super) manager: Arc<LocalActivationManager>,
    pub(in super::super) pools: NatsPools,
    asked: Arc<Asked>,
}

/// Triggers of a half, nothing opened.
pub(super) struct Installed {
    triggers: NatsTriggers,
    pub(super) monitor: TriggerMonitor,
}

/// Triggers that are driven by a task of the half's runtime.
pub(super) struct Running {
    stop: watch::Sender<bool>,
    run: JoinHandle<NatsTriggers>,
    pub(super) monitor: TriggerMonitor,
}

impl Half {
    /// Its service is this component.
    pub(in super::super) fn start(component: &[u8]) -> Result<Self, CliError> {
        let failed_with = |error: &dyn std::fmt::Display| broken(DOING, error);
        let runtime = Runtime::new().map_err(failed("making a runtime"))?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let capabilities = Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::new(AuditRing::default())));
        let limits = NodeLimits::for_cores(2);
        let options = EngineOptions { cells: u64::from(limits.cells), ..EngineOptions::default() };
        let backend = Arc::new(WasmBackend::new(WasmEngine::new(options).map_err(|error| failed_with(&error))?));
        let digest = backend.load(component).map_err(|error| failed_with(&error))?.digest();
        let (tenant, service) = (parsed(TenantId::parse(TENANT))?, parsed(ServiceName::parse(SERVICE))?);
        let contract = (parsed(ContractName::parse(HANDLER_CONTRACT))?, BTreeSet::from([parsed(FunctionName::parse(HANDLE))?]));
        let catalog = Arc::new(Catalog::default());
        let publication = catalog.add(NewPublication {
            service: service.clone(),
            tenants: BTreeSet::from([tenant.clone()]).into(),
            contracts: BTreeMap::from([contract]).into(),
            digest,
        });
        let publication = publication.map_err(|error| failed_with(&error))?;
        let route = RouteKey { tenant: tenant.clone(), service, route: None };
        catalog.point_route(route, publication).map_err(|error| failed_with(&error))?;
        let asked = Arc::new(Asked::default());
        let reference = asked.reference()?;
        let provided = capabilities.providers().install(reference.clone(), None, Arc::clone(&asked) as _);
        provided.map_err(|error| failed_with(&error))?;
        let topics = BTreeSet::from([parsed(LogicalTopic::parse(TOPIC))?]);
        let plan = capabilities.compile_events([EventBinding { publication, tenant, provider: reference, topics }]);
        capabilities.install_events(plan.map_err(|error| failed_with(&error))?).map_err(|error| failed_with(&error))?;
        let manager = LocalActivationManager::new(ManagerOptions {
            backend,
            catalog,
            capabilities: Arc::clone(&capabilities),
            clock: Arc::clone(&clock),
            ids: Arc::new(Ids::default()),
            limits,
            runtime: runtime.handle().clone(),
        });
        let pools = NatsPools { capabilities, pools: ProviderPools::new(PoolSettings::default(), Arc::clone(&clock)), clock };
        Ok(Self { runtime, manager: manager.map_err(|error| failed_with(&error))?, pools, asked })
    }

    /// Installs a binding for each of these consumers. `folder` is new.
    pub(super) fn install(&self, target: &Target, folder: &Path, numbers: Range<usize>, interval: u64) -> Result<Installed, CliError> {
        install(&self.pools, target, folder, numbers, interval)
    }

    /// So many messages, one after the other, in a task of the runtime as a node's driver is one.
    pub(super) fn handle(&self, installed: Installed, count: u32) -> Result<(Installed, Slice), CliError> {
        let manager = Arc::clone(&self.manager);
        let handling = self.runtime.spawn(async move {
            let Installed { mut triggers, monitor } = installed;
            let (started, mut latencies) = (Instant::now(), Vec::new());
            let mut now = started;
            for _ in 0..count {
                acknowledged(triggers.step(&manager).await)?;
                let done = Instant::now();
                latencies.push(done.duration_since(now));
                now = done;
            }
            let slice = Slice { units: u64::from(count), elapsed: now.duration_since(started), latencies };
            Ok((Installed { triggers, monitor }, slice))
        });
        self.runtime.block_on(handling).map_err(|error| broken("handling messages", &error))?
    }

    /// Drives triggers until they are stopped.
    pub(super) fn run(&self, Installed { mut triggers, monitor }: Installed) -> Running {
        let (stop, stopped) = watch::channel(false);
        let manager = Arc::clone(&self.manager);
        let run = self.runtime.spawn(async move {
            triggers.run(&manager, stopped).await;
            triggers
        });
        Running { stop, run, monitor }
    }

    /// Stops them, their sockets closed.
    pub(super) fn stop(&self, Running { stop, run, monitor }: Running) -> Result<Installed, CliError> {
        stop.send_replace(true);
        let triggers = self.runtime.block_on(run).map_err(|error| broken("stopping triggers", &error))?;
        Ok(Installed { triggers, monitor })
    }

    /// When a function asked the host for something last, once.
    pub(in super::super) fn asked_at(&self) -> Option<Instant> {
        self.asked.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Tasks of its runtime.
    pub(in super::super) fn tasks(&self) -> usize {
        self.runtime.metrics().num_alive_tasks()
    }
}

/// Triggers in pools of their own, which nobody drives.
pub(super) fn dormant(target: &Target, folder: &Path, numbers: Range<usize>, interval: u64) -> Result<(NatsPools, Installed), CliError> {
    let pools = pools();
    let installed = install(&pools, target, folder, numbers, interval)?;
    Ok((pools, installed))
}

/// Pools of their own.
pub(in super::super) fn pools() -> NatsPools {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let capabilities = Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::new(AuditRing::default())));
    NatsPools { capabilities, pools: ProviderPools::new(PoolSettings::default(), Arc::clone(&clock)), clock }
}

fn install(pools: &NatsPools, target: &Target, folder: &Path, numbers: Range<usize>, interval: u64) -> Result<Installed, CliError> {
    let failed_with = |error: &dyn std::fmt::Display| broken(DOING, error);
    let config = draft(target, numbers, interval).check().map_err(|error| failed_with(&error))?;
    let provider = provider_of(folder)?;
    let credential = credential(pools, target, folder, config.peer(), &provider)?;
    let installed = NatsTriggers::install(pools, provider, Epoch(1), None, config, vec![credential]);
    let (triggers, monitor) = installed.map_err(|error| failed_with(&error))?;
    Ok(Installed { triggers, monitor })
}

/// Each folder is of one provider.
pub(in super::super) fn provider_of(folder: &Path) -> Result<ProviderId, CliError> {
    parsed(ProviderId::parse(&folder.file_name().unwrap_or_default().to_string_lossy()))
}

/// The target's user, sealed in a new store.
pub(in super::super) fn credential(
    pools: &NatsPools,
    target: &Target,
    folder: &Path,
    peer: &Peer,
    id: &ProviderId,
) -> Result<NatsCredential, CliError> {
    let failed_with = |error: &dyn std::fmt::Display| broken("storing the credential", error);
    let (secrets, tenant, now) = (store(folder)?, parsed(TenantId::parse(TENANT))?, pools.clock.unix());
    let name = SecretName::parse(TENANT).map_err(|error| failed_with(&error))?;
    let (server_name, port) = (peer.server_name().to_owned(), peer.address().port());
    let binding = TlsBinding { tenant: tenant.clone(), provider: id.clone(), server_name, port };
    let secret = NewSecret::tls(&name, &binding, target.password.as_bytes(), None);
    secrets.put(secret, now).map_err(|error| failed_with(&error))?;
    let handle = secrets.bind_tls_credential(&name, &binding, now).map_err(|error| failed_with(&error))?;
    Ok(NatsCredential::password(tenant, &target.user, handle))
}

fn acknowledged(step: StepOutcome) -> Result<(), CliError> {
    let confirmed = StepEnd::Settled { settlement: VisitSettlement::Acknowledge, confirmation: Confirmation::Confirmed };
    match step {
        StepOutcome::Reported(step) if step.end == confirmed => Ok(()),
        other => Err(broken("handling messages", &format!("{other:?}"))),
    }
}

fn draft(target: &Target, numbers: Range<usize>, interval: u64) -> TriggerDraft {
    let binding = |number| BindingDraft {
        id: Some(consumer(number)),
        tenant: Some(TENANT.to_owned()),
        service: Some(SERVICE.to_owned()),
        contract: Some(HANDLER_CONTRACT.to_owned()),
        function: Some(HANDLE.to_owned()),
        stream: Some(target.stream.clone()),
        consumer: Some(consumer(number)),
        filter: Some(filter(&target.subject, number)),
        payload_ceiling_bytes: Some(PAYLOAD_CEILING_BYTES),
        operation_timeout_millis: Some(OPERATION_TIMEOUT_MILLIS),
        max_deliver: Some(MAX_DELIVER),
        ack_wait_millis: Some(ACK_WAIT_MILLIS),
        nak_delay_millis: Some(1_000),
        budget: Some(BudgetDraft {
            cpu_fuel: Some(50_000_000),
            memory_bytes: Some(32 << 20),
            wall_time_millis: Some(2_000),
            outbound_requests: Some(4),
            log_bytes: Some(1_024),
        }),
        ..BindingDraft::default()
    };
    TriggerDraft {
        format_version: Some(1),
        endpoint: Some(endpoint(target)),
        roots: Some(RootsDraft::only(&target.root)),
        poll_interval_millis: Some(interval),
        bindings: Some(numbers.map(binding).collect()),
    }
}

/// Where the broker of the measurement is.
pub(in super::super) fn endpoint(target: &Target) -> EndpointDraft {
    EndpointDraft {
        address: Some(target.address.to_string()),
        allow_non_public_peer: Some(target.address.to_string()),
        server_name: Some(target.server_name.clone()),
    }
}

/// A provider that stores nothing and remembers when it was asked: the first thing that its function does.
#[derive(Default)]
struct Asked(Mutex<Option<Instant>>);

impl Asked {
    fn reference(&self) -> Result<ProviderRef, CliError> {
        Ok(ProviderRef {
            logical_id: parsed(ProviderId::parse("asked"))?,
            capability: parsed(ContractName::parse(latent_capabilities::EVENT_PUBLISHER))?,
            profile: "asked".into(),
            epoch: Epoch(1),
            digest: [0; 32],
        })
    }
}

impl EventPublisher for Asked {
    fn publish(&self, request: PublishRequest) -> PublishFuture {
        let asked_at = Instant::now();
        let outcome = match request.authorise_now() {
            Ok((_, authority)) => {
                if let Ok(uid) = Uid::parse("asked") {
                    authority.publishes_under(&uid);
                }
                let stream = TOPIC.into();
                PublicationOutcome::Receipt(Receipt { stream, sequence: 1, duplicate: false, accepted_at: UnixMillis(1) })
            }
            Err(failure) => PublicationOutcome::KnownFailure(failure),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked_at);
        Box::pin(std::future::ready(outcome))
    }

    fn retire(&self) {}
}

/// How long nothing may happen before that is a failure.
pub(in super::super) const STALL: Duration = Duration::from_secs(30);
