//! `nats-jetstream-publish-v1`: installing a provider, and what it is made of.

use std::sync::Arc;

use latent_capabilities::{
    ActivationCapabilityRuntime, EVENT_PUBLISHER, EventPublisher, ProviderPools, ProviderRef, PublishFuture, PublishRequest, Registration,
};
use latent_core::{Clock, ContractName, Epoch, ProviderId};
use latent_nats_proto::InstanceInbox;

use crate::counters::{CountedAttempt, Counter, Counters};
use crate::dial::Dialler;
use crate::voice::Voice;
use crate::{Connection, InstallError, NatsConfig, NatsCredential, NatsSnapshot, limits, publish, tls};

/// The profile's name (P-001).
pub const PROFILE: &str = "nats-jetstream-publish-v1";

/// What a node's NATS providers share: the registry of providers, their connections' pools, and time.
#[derive(Clone)]
pub struct NatsPools {
    /// Where a provider is installed under its logical id, epoch by epoch.
    pub capabilities: Arc<ActivationCapabilityRuntime>,
    /// The bounds that all of them share.
    pub pools: ProviderPools<Connection>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// An installed provider. Cheap to clone; clones are the same provider.
///
/// Holding one keeps nothing open: a provider without calls has no socket, no task and no timer beside what its parked connections
/// hold, and those are closed with their age or when it is replaced.
#[derive(Clone)]
pub struct NatsPublisher(Arc<Provider>);

pub(crate) struct Provider {
    pub(crate) config: NatsConfig,
    /// In the order of the configuration's tenants.
    pub(crate) credentials: Vec<NatsCredential>,
    pub(crate) dialler: Dialler,
    pub(crate) registration: Registration<Connection>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Counters,
    pub(crate) voice: Voice,
    /// The next connection's number, below the instance's inbox.
    pub(crate) connections: Counter,
    reference: ProviderRef,
}

impl Provider {
    pub(crate) fn reference(&self) -> &ProviderRef {
        &self.reference
    }
}

impl NatsPublisher {
    /// Installs a provider under `logical_id` (P-003, X-019, X-037). Checks everything, takes its places in the pools and opens nothing.
    ///
    /// `expected_epoch` is the epoch in force, `None` for an id that is not installed; `epoch` must be above it. Each tenant of the
    /// configuration needs exactly one credential, bound to this tenant, this id, and the configured server name and port.
    /// A provider that was installed under the id before gets no new calls, and its parked connections are closed; what runs ends as it
    /// would have. The provider is used once a plan binds its [reference](Self::reference).
    ///
    /// # Errors
    /// [`InstallError`]; nothing was installed, and what was in force stays.
    pub fn install(
        pools: &NatsPools,
        logical_id: ProviderId,
        epoch: Epoch,
        expected_epoch: Option<Epoch>,
        config: NatsConfig,
        credentials: Vec<NatsCredential>,
    ) -> Result<Self, InstallError> {
        let credentials = in_order(&config, &logical_id, credentials)?;
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| InstallError::Random { problem: error.to_string() })?;
        let dialler = Dialler {
            address: config.address,
            server_name: config.server_name.clone(),
            tls: tls::client_config(&config)?,
            inbox: InstanceInbox::new(random),
        };
        let reference = ProviderRef {
            logical_id: logical_id.clone(),
            capability: capability(),
            profile: PROFILE.into(),
            epoch,
            digest: config.digest(),
        };
        let (metadata_bytes, chunk_bytes) = (config.metadata_bytes(), config.payload_ceiling_bytes);
        let registration = pools.pools.register(&logical_id, epoch, config.tenants(), metadata_bytes, chunk_bytes)?;
        let provider = Provider {
            config,
            credentials,
            dialler,
            registration,
            clock: Arc::clone(&pools.clock),
            counters: Counters::default(),
            voice: Voice::default(),
            connections: Counter::default(),
            reference: reference.clone(),
        };
        let publisher = Self(Arc::new(provider));
        pools.capabilities.providers().install(reference, expected_epoch, Arc::new(publisher.clone()))?;
        Ok(publisher)
    }

    /// What a plan binds to use this provider.
    pub fn reference(&self) -> &ProviderRef {
        &self.0.reference
    }

    /// The configuration in force. It holds no secret.
    pub fn config(&self) -> &NatsConfig {
        &self.0.config
    }

    /// What it has done and holds.
    pub fn snapshot(&self) -> NatsSnapshot {
        let Provider { counters, registration, reference, config, .. } = &*self.0;
        let in_use = registration.in_use();
        NatsSnapshot {
            epoch: reference.epoch,
            mappings: config.mappings.all().len() as u64,
            queued: in_use.queued,
            running: in_use.running,
            connections: in_use.connections,
            connected: counters.connected.get(),
            connects_failed: counters.connects_failed.get(),
            parked_lost: counters.parked_lost.get(),
            attempts: counters.attempts.get(),
            possible_writes: counters.possible_writes.get(),
            acknowledged: counters.acknowledged.get(),
            duplicates: counters.duplicates.get(),
            failures: counters.failures.get(),
            uncertain: counters.uncertain.get(),
        }
    }
}

impl EventPublisher for NatsPublisher {
    fn publish(&self, request: PublishRequest) -> PublishFuture {
        let provider = Arc::clone(&self.0);
        Box::pin(async move {
            let mut attempt = CountedAttempt::begin(&provider.counters);
            let outcome = publish::once(&provider, request, &mut attempt).await;
            attempt.end(&outcome);
            outcome
        })
    }

    fn retire(&self) {
        self.0.registration.retire();
    }
}

fn capability() -> ContractName {
    // The constant is a contract's name: a test of the capabilities reads it.
    #[allow(clippy::expect_used, reason = "a constant of the product")]
    ContractName::parse(EVENT_PUBLISHER).expect("the capability's name is one")
}

/// The credentials in the order of the configuration's tenants: each tenant one, nobody else's.
fn in_order(config: &NatsConfig, provider: &ProviderId, credentials: Vec<NatsCredential>) -> Result<Vec<NatsCredential>, InstallError> {
    limits::CREDENTIALS.check(credentials.len().max(1) as u64).map_err(InstallError::TooManyCredentials)?;
    for (index, credential) in credentials.iter().enumerate() {
        let tenant = credential.tenant();
        if !config.tenants().contains(tenant) {
            return Err(InstallError::UnknownTenant { tenant: tenant.clone() });
        }
        if credentials[..index].iter().any(|other| other.tenant() == tenant) {
            return Err(InstallError::TwoCredentials { tenant: tenant.clone() });
        }
        if !credential.has_usable_username() {
            return Err(InstallError::Username { tenant: tenant.clone() });
        }
        let binding = latent_secrets::TlsBinding {
            tenant: tenant.clone(),
            provider: provider.clone(),
            server_name: config.server_name().to_owned(),
            port: config.address().port(),
        };
        if !credential.secret().is_bound_to(&binding) {
            return Err(InstallError::OtherBinding { tenant: tenant.clone() });
        }
    }
    let of = |tenant| credentials.iter().find(|credential| credential.tenant() == tenant).cloned();
    let missing = |tenant: &latent_core::TenantId| InstallError::NoCredential { tenant: tenant.clone() };
    config.tenants().iter().map(|tenant| of(tenant).ok_or_else(|| missing(tenant))).collect()
}

#[cfg(test)]
mod tests;
