//! The providers of a configuration that publish to a broker, and the triggers that a broker wakes, with the pools and the secrets they
//! share. Nothing is dialled here.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use latent_capabilities::{ActivationCapabilityRuntime, PoolSnapshot, ProviderPools, ProviderRef};
use latent_core::{Clock, Epoch, LogicalTopic, ProviderId, TenantId};
use latent_nats::lanes::{LaneMonitor, NatsLanes};
use latent_nats::triggers::{NatsTriggers, TriggerMonitor};
use latent_nats::{Connection, NatsCredential, NatsPools, NatsPublisher};
use latent_node::delivery::BindingSpec;
use latent_secrets::{LocalSecretStore, TlsBinding};
use latent_topics::StreamTopics;
use tokio::sync::watch;

use super::composition::part;
use super::lane_bindings;
use crate::config::Config;
use crate::config::settings::{CredentialConfig, LanesConfig, ProviderConfig, SecretsConfig, StreamsConfig};
use crate::error::CliError;
use crate::limits::{LANES_PROVIDERS, TRIGGERS_PROVIDER};
use crate::secret_store;

/// See the module.
pub(super) struct BrokerProviders {
    pools: ProviderPools<Connection>,
    publishers: Vec<NatsPublisher>,
    /// What looks at the triggers of streams, and, until they are driven, themselves.
    monitor: Option<TriggerMonitor>,
    triggers: Mutex<Option<NatsTriggers>>,
    /// The same of those that follow the second profile, one for each `lanes` of the configuration.
    lane_monitors: Vec<LaneMonitor>,
    lanes: Mutex<Vec<NatsLanes>>,
}

impl BrokerProviders {
    /// Opens the store of secrets, where one is configured, and installs every provider of the configuration.
    ///
    /// # Errors
    /// [`CliError::Node`] naming the store or the provider.
    pub(super) fn install(
        config: &Config,
        capabilities: &Arc<ActivationCapabilityRuntime>,
        clock: &Arc<dyn Clock>,
        topics: &Arc<StreamTopics>,
    ) -> Result<Self, CliError> {
        let pools = ProviderPools::new(config.pools.clone(), Arc::clone(clock));
        let is_needed = !config.providers.is_empty() || config.streams.is_some() || !config.lanes.is_empty();
        let secrets = config.secrets.as_ref().filter(|_| is_needed).map(open).transpose()?;
        let shared = NatsPools { capabilities: Arc::clone(capabilities), pools: pools.clone(), clock: Arc::clone(clock) };
        let install = |provider: &ProviderConfig| {
            let failed = |error: &dyn std::fmt::Display| part(&format!("provider {}", provider.id), error);
            let bind = |credential: &CredentialConfig| {
                let secrets = secrets.as_ref().ok_or_else(|| failed(&"there is no [secrets]"))?;
                let (server_name, port) = (provider.nats.server_name(), provider.nats.address().port());
                bind(secrets, credential, (&provider.id, server_name, port), clock.as_ref()).map_err(|error| failed(&error))
            };
            let credentials = provider.credentials.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
            NatsPublisher::install(&shared, provider.id.clone(), Epoch(1), None, provider.nats.clone(), credentials)
                .map_err(|error| failed(&error))
        };
        let publishers = config.providers.iter().map(install).collect::<Result<Vec<_>, _>>()?;
        let installed = config.streams.as_ref().map(|streams| install_triggers(streams, secrets.as_ref(), &shared, topics)).transpose()?;
        let (triggers, monitor) = installed.unzip();
        // The one of `[engine]` comes first; where its id is not needed the other one may have it.
        let lanes = config.lanes.iter().zip(LANES_PROVIDERS);
        let lanes =
            lanes.map(|(lanes, id)| install_lanes((id, lanes), secrets.as_ref(), &shared, topics)).collect::<Result<Vec<_>, _>>()?;
        let (lanes, lane_monitors) = lanes.into_iter().unzip();
        Ok(Self { pools, publishers, monitor, triggers: Mutex::new(triggers), lane_monitors, lanes: Mutex::new(lanes) })
    }

    /// What the delivery cycle is to run of the second profile, in the order of the configuration: each source is given once.
    pub(super) fn lane_bindings(&self, config: &Config) -> Vec<BindingSpec> {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        config.lanes.iter().zip(lanes.iter()).flat_map(|(config, lanes)| lane_bindings::specs(config, lanes)).collect()
    }

    /// Those that follow the second profile, for the one who drives them.
    pub(super) fn take_lanes(&self) -> Vec<NatsLanes> {
        std::mem::take(&mut *self.lanes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How they stand.
    pub(super) fn lane_monitors(&self) -> &[LaneMonitor] {
        &self.lane_monitors
    }

    /// The triggers of streams, for the one who drives them.
    pub(super) fn take_triggers(&self) -> Option<NatsTriggers> {
        self.triggers.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// How the triggers of streams stand.
    pub(super) fn monitor(&self) -> Option<&TriggerMonitor> {
        self.monitor.as_ref()
    }

    /// The provider that maps a topic for a tenant, if one does. The configuration allows one at most.
    pub(super) fn serving(&self, tenant: &TenantId, topic: &LogicalTopic) -> Option<&ProviderRef> {
        let serves = |publisher: &&NatsPublisher| publisher.config().topics_of(tenant).any(|mapped| mapped == topic);
        self.publishers.iter().find(serves).map(NatsPublisher::reference)
    }

    /// Each provider.
    pub(super) fn publishers(&self) -> &[NatsPublisher] {
        &self.publishers
    }

    /// What all of them hold.
    pub(super) fn pools(&self) -> PoolSnapshot {
        self.pools.snapshot()
    }

    /// What all of them may account for.
    pub(super) fn accounted_bytes(&self) -> u64 {
        // Without a provider nothing is ever charged.
        if self.is_empty() { 0 } else { self.pools.settings().accounted_bytes() }
    }

    fn is_empty(&self) -> bool {
        self.publishers.is_empty() && self.monitor.is_none() && self.lane_monitors.is_empty()
    }

    /// Closes connections that nobody uses any more, until `stop` becomes true; then all that are idle, and refuses everything. One timer
    /// for the whole node, and none where no provider is configured.
    pub(super) async fn tend_until(&self, mut stop: watch::Receiver<bool>) {
        if self.is_empty() {
            return;
        }
        let age = Duration::from_millis(self.pools.settings().get(&latent_capabilities::limits::POOL_IDLE_MILLIS));
        loop {
            tokio::select! {
                () = tokio::time::sleep(age) => self.pools.close_idle(),
                // An error means that the sender is gone, which is a stop as well.
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Refuses everything from now on and closes what is idle.
    pub(super) fn shut_down(&self) {
        self.pools.shut_down();
    }
}

/// Installs the triggers of streams. Nothing is dialled.
fn install_triggers(
    streams: &StreamsConfig,
    secrets: Option<&Arc<LocalSecretStore>>,
    shared: &NatsPools,
    topics: &Arc<StreamTopics>,
) -> Result<(NatsTriggers, TriggerMonitor), CliError> {
    let failed = |error: &dyn std::fmt::Display| part("the triggers of streams", error);
    let id = ProviderId::parse(TRIGGERS_PROVIDER).map_err(|error| failed(&error))?;
    let secrets = secrets.ok_or_else(|| failed(&"there is no [secrets]"))?;
    let peer = streams.triggers.peer();
    let of = |credential: &CredentialConfig| {
        bind(secrets, credential, (&id, peer.server_name(), peer.address().port()), shared.clock.as_ref()).map_err(|error| failed(&error))
    };
    let credentials = streams.credentials.iter().map(of).collect::<Result<Vec<_>, _>>()?;
    let topics = Some(Arc::clone(topics) as _);
    let installed = NatsTriggers::install_knowing(shared, id.clone(), (Epoch(1), None), streams.triggers.clone(), credentials, topics);
    installed.map_err(|error| failed(&error))
}

/// The same of the second profile.
fn install_lanes(
    (id, lanes): (&str, &LanesConfig),
    secrets: Option<&Arc<LocalSecretStore>>,
    shared: &NatsPools,
    topics: &Arc<StreamTopics>,
) -> Result<(NatsLanes, LaneMonitor), CliError> {
    let failed = |error: &dyn std::fmt::Display| part("the triggers of the broker", error);
    let id = ProviderId::parse(id).map_err(|error| failed(&error))?;
    let bound_to = ProviderId::parse(TRIGGERS_PROVIDER).map_err(|error| failed(&error))?;
    let secrets = secrets.ok_or_else(|| failed(&"there is no [secrets]"))?;
    let peer = lanes.installed.peer();
    let of = |credential: &CredentialConfig| {
        let place = (&bound_to, peer.server_name(), peer.address().port());
        bind(secrets, credential, place, shared.clock.as_ref()).map_err(|error| failed(&error))
    };
    let credentials = lanes.credentials.iter().map(of).collect::<Result<Vec<_>, _>>()?;
    let (config, topics) = (lanes.installed.clone(), Arc::clone(topics) as _);
    NatsLanes::install(shared, (&id, &bound_to), (Epoch(1), None), config, credentials, topics).map_err(|error| failed(&error))
}

fn open(secrets: &SecretsConfig) -> Result<Arc<LocalSecretStore>, CliError> {
    secret_store::open(secrets).map(Arc::new).map_err(|source| CliError::Secret { doing: "opening the store of secrets", source })
}

fn bind(
    secrets: &Arc<LocalSecretStore>,
    credential: &CredentialConfig,
    (provider, server_name, port): (&ProviderId, &str, u16),
    clock: &dyn Clock,
) -> Result<NatsCredential, latent_secrets::BindError> {
    let binding = TlsBinding { tenant: credential.tenant.clone(), provider: provider.clone(), server_name: server_name.to_owned(), port };
    let handle = secrets.bind_tls_credential(&credential.secret, &binding, clock.unix())?;
    Ok(match &credential.user {
        Some(user) => NatsCredential::password(credential.tenant.clone(), user, handle),
        None => NatsCredential::token(credential.tenant.clone(), handle),
    })
}
