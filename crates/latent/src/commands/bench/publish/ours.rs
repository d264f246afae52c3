//! Our side: a provider as a node installs it, with its pools, a sealed credential and every bound in force, and functions that publish
//! through it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use latent_capabilities::{
    ActivationCapabilityRuntime, AuditRing, CompletionAccount, EventBinding, EventDraft, Origin, PoolSettings, ProviderPools, Session,
    SessionSpec,
};
use latent_core::{
    ActivationId, ActivationOutcome, Attributes, BindingId, Budget, Clock, CoreError, Deadline, DeliveredEvent, Epoch, LogicalTopic,
    MediaType, Offset, Partition, ProviderId, PublicationId, PublicationOutcome, SystemClock, TenantId, TopicName, TraceId, UnixMillis,
};
use latent_nats::{EndpointDraft, MappingDraft, NatsConfig, NatsCredential, NatsDraft, NatsPools, NatsPublisher, RootsDraft};
use latent_secrets::{LocalSecretStore, NewSecret, SealingKey, SecretName, TlsBinding};
use latent_wasmtime::{EngineOptions, HandlerCall, PreparedComponent, WasmEngine};
use tokio::runtime::Runtime;

use super::super::failed;
use super::super::figure::Slice;
use super::broken;
use super::guest::REPEAT;
use super::rows::{Ids, TOGETHER};
use super::target::Target;
use super::watched::Watched;
use crate::error::CliError;

const DOING: &str = "preparing the provider";
/// The topic that the guest names.
const TOPIC: &str = "out";
pub(super) const PROVIDER: &str = "measured";
const PUBLICATION: PublicationId = PublicationId(1);
/// Time that no slice comes near.
const DEADLINE_MILLIS: u64 = 120_000;
/// Publications of one activation: the most that a budget allows.
#[allow(clippy::cast_possible_truncation, reason = "the limit is far below it")]
const AT_ONCE: u32 = latent_core::limits::BUDGET_OUTBOUND_REQUESTS.max as u32;

/// See the module.
pub(super) struct OurPublisher {
    runtime: Runtime,
    host: Arc<Host>,
}

struct Host {
    engine: WasmEngine,
    guest: PreparedComponent,
    capabilities: Arc<ActivationCapabilityRuntime>,
    clock: Arc<dyn Clock>,
    tenant: TenantId,
    watched: Arc<Watched>,
    activations: AtomicU64,
}

impl OurPublisher {
    /// Puts the credential into a new store in `folder` and installs a provider. Nothing is dialled.
    pub(super) fn start(target: &Target, folder: &Path) -> Result<Self, CliError> {
        let runtime = Runtime::new().map_err(failed("making a runtime"))?;
        let tenant = parsed(TenantId::parse("bench"))?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let new = || ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::new(AuditRing::default()));
        let installed = NatsPools {
            capabilities: Arc::new(new()),
            pools: ProviderPools::new(PoolSettings::default(), Arc::clone(&clock)),
            clock: Arc::clone(&clock),
        };
        let publisher = install(&installed, target, &store(folder)?, PROVIDER, std::slice::from_ref(&tenant))?;
        // What functions reach is the same provider with somebody watching.
        let (capabilities, watched) = (Arc::new(new()), Arc::new(Watched::new(Arc::new(publisher.clone()))));
        let reference = publisher.reference().clone();
        let provided = capabilities.providers().install(reference.clone(), None, Arc::clone(&watched) as _);
        provided.map_err(|error| broken(DOING, &error))?;
        let topics = BTreeSet::from([parsed(LogicalTopic::parse(TOPIC))?]);
        let binding = EventBinding { publication: PUBLICATION, tenant: tenant.clone(), provider: reference, topics };
        let plan = capabilities.compile_events([binding]).map_err(|error| broken(DOING, &error))?;
        capabilities.install_events(plan).map_err(|error| broken(DOING, &error))?;
        let engine = WasmEngine::new(EngineOptions { cells: 1, ..EngineOptions::default() }).map_err(|error| broken(DOING, &error))?;
        let guest = engine.prepare(REPEAT).map_err(|error| broken(DOING, &error))?;
        let host = Host { engine, guest, capabilities, clock, tenant, watched, activations: AtomicU64::new(0) };
        Ok(Self { runtime, host: Arc::new(host) })
    }

    /// So many publications of a function, one after the other, each timed from its call to the function's next one.
    pub(super) fn singles(&self, payload: &Bytes, publications: u32) -> Result<Slice, CliError> {
        let mut latencies = Vec::new();
        let mut left = publications;
        while left > 0 {
            let times = left.min(AT_ONCE);
            left -= times;
            let running = self.runtime.spawn(Arc::clone(&self.host).activate(payload.clone(), times));
            self.runtime.block_on(running).map_err(|error| broken("running a function", &error))??;
            latencies.extend(self.host.watched.take_turns());
        }
        Ok(Slice { units: latencies.len() as u64, elapsed: latencies.iter().sum(), latencies })
    }

    /// So many publications in total, 64 at a time, without a function.
    pub(super) fn together(&self, payload: &[u8], publications: u32, ids: &mut Ids) -> Result<Slice, CliError> {
        let share = publications / TOGETHER;
        self.host.watched.expect(usize::try_from(publications).unwrap_or_default());
        let work: Vec<_> = (0..TOGETHER).map(|_| (ids.take(share), payload.to_vec())).collect();
        let slice = self.runtime.block_on(async {
            let started = Instant::now();
            let one = |(ids, payload)| tokio::spawn(Arc::clone(&self.host).publish_each(ids, payload));
            let running: Vec<_> = work.into_iter().map(one).collect();
            let mut latencies = Vec::new();
            for task in running {
                latencies.extend(task.await.map_err(|error| broken("publishing", &error))??);
            }
            Ok(Slice { units: latencies.len() as u64, elapsed: started.elapsed(), latencies })
        });
        drop(self.host.watched.take_turns());
        slice
    }
}

impl Host {
    async fn activate(self: Arc<Self>, payload: Bytes, times: u32) -> Result<(), CliError> {
        self.watched.expect(usize::try_from(times).unwrap_or_default());
        let (session, origin) = self.session(u64::from(times))?;
        let event = DeliveredEvent {
            topic: origin.topic,
            partition: origin.partition,
            offset: origin.offset,
            uid: None,
            key: times.to_string(),
            media_type: MediaType::octet_stream(),
            attributes: Attributes::default(),
            payload,
            delivery: 1,
            stored_at: UnixMillis(1),
        };
        let budget = Budget {
            cpu_fuel: latent_core::limits::BUDGET_FUEL.max,
            wall_time_millis: DEADLINE_MILLIS,
            outbound_requests: u64::from(times),
            ..Budget::default()
        };
        let call = HandlerCall { event, session, budget, trace: TraceId::from_random([1; 16]) };
        match self.engine.run_handler(&self.guest, call).await.outcome {
            ActivationOutcome::Success => Ok(()),
            other => Err(broken("running a function", &format!("{other:?}"))),
        }
    }

    async fn publish_each(self: Arc<Self>, ids: Vec<String>, payload: Vec<u8>) -> Result<Vec<std::time::Duration>, CliError> {
        let (session, _) = self.session(ids.len() as u64)?;
        let mut latencies = Vec::with_capacity(ids.len());
        let mut now = Instant::now();
        for idempotency_key in ids {
            let draft = EventDraft {
                topic: TOPIC.to_owned(),
                key: None,
                payload: payload.clone(),
                media_type: "application/octet-stream".to_owned(),
                attributes: Vec::new(),
                idempotency_key,
            };
            match session.publish(draft).await.tell() {
                PublicationOutcome::Receipt(receipt) if !receipt.duplicate => {}
                other => return Err(broken("publishing", &format!("{other:?}"))),
            }
            let done = Instant::now();
            latencies.push(done.duration_since(now));
            now = done;
        }
        Ok(latencies)
    }

    /// A session of its own event, so that derived keys are too.
    fn session(&self, outbound_requests: u64) -> Result<(Session, Origin), CliError> {
        let number = self.activations.fetch_add(1, Ordering::Relaxed);
        let (binding, topic) = (parsed(BindingId::parse("bench"))?, parsed(TopicName::parse("in"))?);
        let origin = Origin { binding, topic, partition: Partition(0), offset: Offset(number), stored_at: None };
        let session = Session::open(SessionSpec {
            activation: ActivationId::from_random(u128::from(number).to_be_bytes()),
            tenant: self.tenant.clone(),
            publication: PUBLICATION,
            origin: Some(origin.clone()),
            outbound_requests,
            deadline: Deadline::after(self.clock.mono(), DEADLINE_MILLIS),
            capabilities: Arc::clone(&self.capabilities),
            clock: Arc::clone(&self.clock),
        });
        Ok((session, origin))
    }
}

/// A new store of secrets, sealed under a key that ends with the process.
pub(in super::super) fn store(folder: &Path) -> Result<Arc<LocalSecretStore>, CliError> {
    let folder = folder.join("secrets");
    let failed = |error: &dyn std::fmt::Display| broken("making a store of secrets", error);
    LocalSecretStore::prepare(&folder).map_err(|error| failed(&error))?;
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| failed(&error))?;
    let store = LocalSecretStore::open(&folder, SealingKey::from_bytes(&key)).map_err(|error| failed(&error))?;
    Ok(Arc::new(store))
}

/// Installs a provider with a mapping for each tenant, all of them to the target's subject or to subjects below it.
pub(super) fn install(
    pools: &NatsPools,
    target: &Target,
    secrets: &Arc<LocalSecretStore>,
    id: &str,
    tenants: &[TenantId],
) -> Result<NatsPublisher, CliError> {
    let failed = |error: &dyn std::fmt::Display| broken(DOING, error);
    let config = draft(target, tenants)?.check().map_err(|error| failed(&error))?;
    let provider = parsed(ProviderId::parse(id))?;
    let bind = |tenant: &TenantId| credential(secrets, pools.clock.as_ref(), target, &config, &provider, tenant);
    let credentials = tenants.iter().map(bind).collect::<Result<_, _>>()?;
    NatsPublisher::install(pools, provider, Epoch(1), None, config.clone(), credentials).map_err(|error| failed(&error))
}

fn draft(target: &Target, tenants: &[TenantId]) -> Result<NatsDraft, CliError> {
    // Ids are new in each run, whatever the stream remembers.
    let namespace = Ids::new()?.prefix().to_owned();
    // Two tenants may not share a subject.
    let subject = |number: usize| if number == 0 { target.subject.clone() } else { format!("{}.{number}", target.subject) };
    let mapping = |(number, tenant): (usize, &TenantId)| MappingDraft {
        tenant: Some(tenant.to_string()),
        topic: Some(TOPIC.to_owned()),
        subject: Some(subject(number)),
        stream: Some(target.stream.clone()),
    };
    Ok(NatsDraft {
        format_version: Some(1),
        endpoint: Some(EndpointDraft {
            address: Some(target.address.to_string()),
            allow_non_public_peer: Some(target.address.to_string()),
            server_name: Some(target.server_name.clone()),
        }),
        roots: Some(RootsDraft::only(&target.root)),
        idempotency_namespace: Some(namespace),
        payload_ceiling_bytes: Some(latent_nats::limits::PAYLOAD_CEILING_BYTES.default),
        operation_timeout_millis: Some(latent_nats::limits::OPERATION_TIMEOUT_MILLIS.default),
        duplicate_window_millis: Some(latent_nats::limits::DUPLICATE_WINDOW_MILLIS.default),
        mappings: Some(tenants.iter().enumerate().map(mapping).collect()),
    })
}

fn credential(
    secrets: &Arc<LocalSecretStore>,
    clock: &dyn Clock,
    target: &Target,
    config: &NatsConfig,
    provider: &ProviderId,
    tenant: &TenantId,
) -> Result<NatsCredential, CliError> {
    let failed = |error: &dyn std::fmt::Display| broken("storing the credential", error);
    let name = SecretName::parse(&format!("{provider}-{tenant}")).map_err(|error| failed(&error))?;
    let binding = TlsBinding {
        tenant: tenant.clone(),
        provider: provider.clone(),
        server_name: config.server_name().to_owned(),
        port: config.address().port(),
    };
    secrets.put(NewSecret::tls(&name, &binding, target.password.as_bytes(), None), clock.unix()).map_err(|error| failed(&error))?;
    let handle = secrets.bind_tls_credential(&name, &binding, clock.unix()).map_err(|error| failed(&error))?;
    Ok(NatsCredential::password(tenant.clone(), &target.user, handle))
}

/// A name of this module's own, checked as everybody's.
pub(in super::super) fn parsed<T>(name: Result<T, CoreError>) -> Result<T, CliError> {
    name.map_err(|error| broken(DOING, &error))
}
