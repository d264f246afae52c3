//! Installing: everything is checked, places in the pools are taken, nothing is opened (T-014).

use std::sync::Arc;

use latent_capabilities::{EpochConflict, ProviderRef, Registration, Retire};
use latent_core::{ContractName, Epoch, ProviderId, TenantId};
use latent_node::delivery::AttemptLog;

use super::TriggerConfig;
use super::board::{Board, TriggerMonitor};
use super::limits;
use super::rotation::Rotation;
use super::topics::Topics;
use crate::client::{self, Client};
use crate::voice::Voice;
use crate::{Connection, InstallError, NatsCredential, NatsPools};

/// The profile's name (T-001).
pub const PROFILE: &str = "nats-jetstream-pull-v1";
/// What it takes the place of a capability's name with: no guest can import it.
const CAPABILITY: &str = "latent:triggers/nats-jetstream-pull@1.0.0";

/// Installed triggers, to be driven by one owner: with [`NatsTriggers::run`], or step by step. Two drivers at a time cannot be (T-015).
///
/// Holding them keeps nothing open: a binding that is not visited has no socket, task, timer or store.
pub struct NatsTriggers {
    pub(super) installed: Arc<Installed>,
    pub(super) rotation: Rotation,
}

impl std::fmt::Debug for NatsTriggers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsTriggers").field("bindings", &self.installed.config.bindings().len()).finish_non_exhaustive()
    }
}

/// What driver and monitors share.
pub(crate) struct Installed {
    pub(crate) config: TriggerConfig,
    /// The tenant of each binding, as its place in the pools.
    pub(super) places: Vec<usize>,
    pub(crate) client: Client,
    pub(crate) registration: Registration<Connection>,
    pub(crate) board: Board,
    pub(super) voice: Voice,
    pub(super) attempts: AttemptLog,
    pub(super) epoch: Epoch,
    /// Who knows topics, where a binding needs that.
    pub(super) topics: Option<Arc<dyn Topics>>,
    pub(super) logical_id: ProviderId,
}

impl Installed {
    /// Nobody drives any more: what is parked is closed.
    pub(super) fn close_idle(&self) {
        self.board.undriven();
        self.registration.close_parked();
    }
}

impl Retire for Installed {
    fn retire(&self) {
        self.registration.retire();
    }
}

impl NatsTriggers {
    /// Installs triggers under `logical_id` (T-014, X-019). Checks everything, takes its places in the pools and opens nothing.
    ///
    /// `expected_epoch` is the epoch in force, `None` for an id that is not installed; `epoch` must be above it. Each tenant with bindings
    /// needs exactly one credential, bound to this tenant, this id, and the configured server name and port (T-010, X-009). Triggers that
    /// were installed under the id before begin nothing any more; what they have begun ends as it would have (T-059, X-020).
    ///
    /// # Errors
    /// [`InstallError`]; nothing was installed, and what was in force stays.
    pub fn install(
        pools: &NatsPools,
        logical_id: ProviderId,
        epoch: Epoch,
        expected_epoch: Option<Epoch>,
        config: TriggerConfig,
        credentials: Vec<NatsCredential>,
    ) -> Result<(Self, TriggerMonitor), InstallError> {
        Self::install_knowing(pools, logical_id, (epoch, expected_epoch), config, credentials, None)
    }

    /// The same with somebody who knows topics: for bindings that are given events of topics, or have a dead-letter topic.
    ///
    /// # Errors
    /// As [`NatsTriggers::install`].
    pub fn install_knowing(
        pools: &NatsPools,
        logical_id: ProviderId,
        (epoch, expected_epoch): (Epoch, Option<Epoch>),
        config: TriggerConfig,
        credentials: Vec<NatsCredential>,
        topics: Option<Arc<dyn Topics>>,
    ) -> Result<(Self, TriggerMonitor), InstallError> {
        if let Some(binding) = config.bindings().iter().find(|binding| binding.needs_topics() && topics.is_none()) {
            return Err(InstallError::NoTopics { binding: binding.id().clone() });
        }
        limits::TENANTS.check(credentials.len().max(1) as u64).map_err(InstallError::TooManyCredentials)?;
        let credentials = client::in_order(config.tenants(), &logical_id, config.peer(), credentials)?;
        let payload_bytes_max = config.bindings().iter().map(super::TriggerBinding::payload_ceiling_bytes).max().unwrap_or_default();
        let client = Client::new(config.peer(), config.trusts_public_roots(), credentials, Arc::clone(&pools.clock))?;
        let client = client.delivered(payload_bytes_max);
        let reference = ProviderRef {
            logical_id: logical_id.clone(),
            capability: capability(),
            profile: PROFILE.into(),
            epoch,
            digest: config.digest(),
        };
        let (metadata_bytes, chunk_bytes) = (config.installation_bytes(), u64::from(payload_bytes_max));
        let registration = pools.pools.register(&logical_id, epoch, config.tenants(), metadata_bytes, chunk_bytes)?;
        let place = |tenant: &TenantId| config.tenants().iter().position(|known| known == tenant).unwrap_or_default();
        let places: Vec<usize> = config.bindings().iter().map(|binding| place(binding.tenant())).collect();
        let rotation = Rotation::new(&places);
        let board = Board::new(epoch, config.bindings().len(), config.tenants().len());
        let voice = Voice::default();
        let attempts = AttemptLog::new(client.clock.mono());
        let installed = Arc::new(Installed { config, places, client, registration, board, voice, attempts, epoch, topics, logical_id });
        let conflict: Result<(), EpochConflict> =
            pools.capabilities.providers().install_unbound(reference, expected_epoch, Arc::clone(&installed) as _);
        conflict?;
        Ok((Self { installed: Arc::clone(&installed), rotation }, TriggerMonitor(installed)))
    }

    /// The configuration. It holds no secret.
    pub fn config(&self) -> &TriggerConfig {
        &self.installed.config
    }

    /// Closes the connections that are parked between visits (T-017). Whoever drives single steps calls it at the end; the shutdown of the
    /// pools closes them too.
    pub fn close_idle(&self) {
        self.installed.close_idle();
    }
}

fn capability() -> ContractName {
    // The constant is a contract's name: every installation of the tests reads it.
    #[allow(clippy::expect_used, reason = "a constant of the product")]
    ContractName::parse(CAPABILITY).expect("the capability's name is one")
}
