//! `nats-jetstream-publish-v1`: installing a provider, and what it is made of.

use std::sync::Arc;

use latent_capabilities::{
    ActivationCapabilityRuntime, EVENT_PUBLISHER, EventPublisher, ProviderPools, ProviderRef, PublishFuture, PublishRequest, Registration,
};
use latent_core::{Clock, ContractName, Epoch, ProviderId};

use crate::client::{self, Client};
use crate::counters::{CountedAttempt, Counters};
use crate::voice::Voice;
use crate::{Connection, InstallError, NatsConfig, NatsCredential, NatsSnapshot, publish};

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
    pub(crate) client: Client,
    pub(crate) registration: Registration<Connection>,
    pub(crate) counters: Counters,
    pub(crate) voice: Voice,
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
        let peer = config.peer();
        let credentials = client::in_order(config.tenants(), &logical_id, peer, credentials)?;
        let client = Client::new(peer, config.public_roots, credentials, Arc::clone(&pools.clock))?;
        let reference = ProviderRef {
            logical_id: logical_id.clone(),
            capability: capability(),
            profile: PROFILE.into(),
            epoch,
            digest: config.digest(),
        };
        let (metadata_bytes, chunk_bytes) = (config.metadata_bytes(), config.payload_ceiling_bytes);
        let registration = pools.pools.register(&logical_id, epoch, config.tenants(), metadata_bytes, chunk_bytes)?;
        let provider =
            Provider { config, client, registration, counters: Counters::default(), voice: Voice::default(), reference: reference.clone() };
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
        let Provider { counters, client, registration, reference, config, .. } = &*self.0;
        let in_use = registration.in_use();
        NatsSnapshot {
            epoch: reference.epoch,
            mappings: config.mappings.all().len() as u64,
            queued: in_use.queued,
            running: in_use.running,
            connections: in_use.connections,
            connected: client.connected.get(),
            connects_failed: client.connects_failed.get(),
            parked_lost: client.parked_lost.get(),
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

#[cfg(test)]
mod tests;
