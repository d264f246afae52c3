//! Installing: everything is checked, places in the pools are taken, nothing is opened.

use std::sync::Arc;

use latent_capabilities::{EpochConflict, ProviderRef, Registration, Retire};
use latent_core::{ContractName, Epoch, ProviderId, TenantId};
use latent_node::delivery::Source;

use super::bell::Bell;
use super::config::LanesConfig;
use super::journal::{Journal, LaneFailure};
use super::office::LaneCell;
use super::report::LaneReport;
use super::source::LaneSource;
use super::topics::LaneTopics;
use crate::client::{self, Client};
use crate::triggers::limits::TENANTS;
use crate::{Connection, InstallError, NatsCredential, NatsPools};

/// The profile's name.
pub const PROFILE: &str = "nats-jetstream-pull-v2";
/// What it takes the place of a capability's name with: no guest can import it.
const CAPABILITY: &str = "latent:triggers/nats-jetstream-lanes@1.0.0";

/// Installed lanes. One owner drives them with [`NatsLanes::run`]; monitors may be made before.
///
/// Holding them keeps nothing open: a lane that has nothing to do has no socket, task, timer or store.
pub struct NatsLanes {
    pub(super) installed: Arc<Installed>,
}

/// What the driver, sources and monitors share.
pub(super) struct Installed {
    pub(super) config: LanesConfig,
    pub(super) client: Client,
    pub(super) registration: Registration<Connection>,
    /// The lanes of each tenant.
    pub(super) tenants: Vec<Tenant>,
    /// Tenant and place of each lane, in the order of the configuration.
    places: Vec<(usize, usize)>,
    pub(super) journal: Arc<Journal>,
    pub(super) topics: Arc<dyn LaneTopics>,
}

/// The lanes of one tenant, which share a connection.
pub(super) struct Tenant {
    pub(super) cells: Vec<Arc<LaneCell>>,
    pub(super) bell: Arc<Bell>,
}

impl Retire for Installed {
    fn retire(&self) {
        self.registration.retire();
    }
}

/// Looks at lanes from outside, also after they ended.
#[derive(Clone)]
pub struct LaneMonitor(Arc<Installed>);

impl std::fmt::Debug for NatsLanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsLanes").field("lanes", &self.installed.config.lanes().len()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for LaneMonitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LaneMonitor").finish_non_exhaustive()
    }
}

impl NatsLanes {
    /// Installs lanes under `logical_id`. Checks everything, takes its places in the pools and opens nothing.
    ///
    /// `expected_epoch` is the epoch in force, `None` for an id that is not installed; `epoch` must be above it. Each tenant with lanes needs
    /// exactly one credential, bound to this tenant, the provider `bound_to`, and the configured server name and port (T-010, X-009). That may
    /// be the id of another profile's installation: a tenant has one user for whatever wakes its functions.
    ///
    /// # Errors
    /// [`InstallError`]; nothing was installed, and what was in force stays.
    pub fn install(
        pools: &NatsPools,
        (logical_id, bound_to): (&ProviderId, &ProviderId),
        (epoch, expected_epoch): (Epoch, Option<Epoch>),
        config: LanesConfig,
        credentials: Vec<NatsCredential>,
        topics: Arc<dyn LaneTopics>,
    ) -> Result<(Self, LaneMonitor), InstallError> {
        TENANTS.check(credentials.len().max(1) as u64).map_err(InstallError::TooManyCredentials)?;
        let credentials = client::in_order(config.tenants(), bound_to, config.peer(), credentials)?;
        let client = Client::new(config.peer(), config.trusts_public_roots(), credentials, Arc::clone(&pools.clock))?;
        let client = client.with_sessions(config.body_bytes_max());
        let reference = ProviderRef {
            logical_id: logical_id.clone(),
            capability: capability(),
            profile: PROFILE.into(),
            epoch,
            digest: config.digest(),
        };
        let registration = pools.pools.register(logical_id, epoch, config.tenants(), config.installation_bytes(), 0)?;
        let mut tenants: Vec<Tenant> = config.tenants().iter().map(|_| Tenant { cells: Vec::new(), bell: Arc::default() }).collect();
        let place_of = |tenant: &TenantId| config.tenants().iter().position(|known| known == tenant).unwrap_or_default();
        let mut places = Vec::with_capacity(config.lanes().len());
        for lane in config.lanes() {
            let of = place_of(&lane.draft().tenant);
            if let Some(tenant) = tenants.get_mut(of) {
                places.push((of, tenant.cells.len()));
                tenant.cells.push(Arc::new(LaneCell::new(lane.clone())));
            }
        }
        let journal = Arc::default();
        let installed = Arc::new(Installed { config, client, registration, tenants, places, journal, topics });
        let conflict: Result<(), EpochConflict> =
            pools.capabilities.providers().install_unbound(reference, expected_epoch, Arc::clone(&installed) as _);
        conflict?;
        Ok((Self { installed: Arc::clone(&installed) }, LaneMonitor(installed)))
    }

    /// The configuration. It holds no secret.
    pub fn config(&self) -> &LanesConfig {
        &self.installed.config
    }

    /// The source of a lane, by its place in the configuration: for a partition of a binding that hands events out. To be taken once.
    pub fn source(&self, lane: usize) -> Option<Box<dyn Source>> {
        let (of, place) = *self.installed.places.get(lane)?;
        let tenant = self.installed.tenants.get(of)?;
        let cell = Arc::clone(tenant.cells.get(place)?);
        let (clock, topics) = (Arc::clone(&self.installed.client.clock), Arc::clone(&self.installed.topics));
        Some(Box::new(LaneSource { cell, bell: Arc::clone(&tenant.bell), place, clock, topics }))
    }
}

impl LaneMonitor {
    /// How each lane stands, in the order of the configuration.
    pub fn lanes(&self) -> Vec<LaneReport> {
        let cells = self.0.places.iter().filter_map(|(of, place)| self.0.tenants.get(*of)?.cells.get(*place));
        cells.map(|cell| LaneReport::of(cell)).collect()
    }

    /// The last failures, oldest first (T-110).
    pub fn failures(&self) -> Vec<LaneFailure> {
        self.0.journal.failures()
    }

    /// Connections, from dial to closed socket.
    pub fn connections(&self) -> u64 {
        self.0.registration.in_use().connections
    }
}

fn capability() -> ContractName {
    // The constant is a contract's name: every installation of the tests reads it.
    #[allow(clippy::expect_used, reason = "a constant of the product")]
    ContractName::parse(CAPABILITY).expect("the capability's name is one")
}
