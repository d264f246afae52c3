//! What a valid configuration says. Every name is parsed, every number in its range, every reference resolved, every path joined to
//! the folder of the file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use latent_bridge::BridgeManifest;
use latent_capabilities::PoolSettings;
use latent_core::{BindingId, Budget, ContractName, FunctionName, LogicalTopic, ProviderId, ServiceName, TenantId, TopicName};
use latent_nats::lanes::LaneBinding;
use latent_nats::{NatsConfig, Peer};
use latent_secrets::SecretName;

use crate::limits;

/// The whole file.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Where it was read from, as the operator named it.
    pub(crate) path: PathBuf,
    /// `[node]` and `[limits]`.
    pub(crate) node: NodeConfig,
    /// `[engine]`.
    pub(crate) engine: EngineConfig,
    /// `[secrets]`; `None`: the node has no secrets.
    pub(crate) secrets: Option<SecretsConfig>,
    /// `[archive]`.
    pub(crate) archive: ArchiveConfig,
    /// `[pools]`: what all providers share.
    pub(crate) pools: PoolSettings,
    /// `[[provider]]`, in the order of the file, ids unique.
    pub(crate) providers: Vec<ProviderConfig>,
    /// `[[topic]]`, in the order of the file, names unique.
    pub(crate) topics: Vec<TopicConfig>,
    /// `[[service]]`, in the order of the file, names unique.
    pub(crate) services: Vec<ServiceConfig>,
    /// `[[trigger]]` on topics of the embedded engine, in the order of the file, ids unique.
    pub(crate) triggers: Vec<TriggerConfig>,
    /// The triggers that follow `nats-jetstream-pull-v1`, with the broker that wakes them; `None`: there are none.
    pub(crate) streams: Option<StreamsConfig>,
    /// Those that follow `nats-jetstream-pull-v2`: at most one for each broker, none of them empty.
    pub(crate) lanes: Vec<LanesConfig>,
}

impl Config {
    /// How many triggers there are, one that reads several partitions counted once.
    pub(crate) fn trigger_count(&self) -> usize {
        let of_streams =
            self.streams.iter().flat_map(|streams| streams.triggers.bindings()).map(latent_nats::triggers::TriggerBinding::trigger);
        self.triggers.len() + of_streams.collect::<std::collections::BTreeSet<_>>().len() + self.lane_triggers().count()
    }

    /// Those that follow `nats-jetstream-pull-v2`.
    pub(crate) fn lane_triggers(&self) -> impl Iterator<Item = &LaneTrigger> {
        self.lanes.iter().flat_map(|lanes| &lanes.triggers)
    }

    /// Each trigger that the delivery cycle runs, wherever its events are.
    pub(crate) fn cycle_triggers(&self) -> impl Iterator<Item = &TriggerConfig> {
        self.triggers.iter().chain(self.lane_triggers().map(|lane| &lane.trigger))
    }

    /// The dead-letter topics of all triggers, some of them named twice.
    pub(crate) fn dead_letter_topics(&self) -> impl Iterator<Item = &TopicName> {
        let of_topics = self.cycle_triggers().filter_map(|trigger| trigger.dead_letter.as_ref());
        let of_streams = self.streams.iter().flat_map(|streams| streams.triggers.bindings());
        of_topics.chain(of_streams.filter_map(|binding| binding.dead_letter()))
    }
}

/// The node itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeConfig {
    /// Name in status and logs.
    pub(crate) name: String,
    /// Everything the node keeps lies below it.
    pub(crate) data_dir: PathBuf,
    /// Activations at once; `None`: twice the number of cores.
    pub(crate) cells: Option<u64>,
    /// Linear memory that one activation can be given; `None`: the largest budget of the triggers, or the default budget.
    pub(crate) cell_memory_bytes: Option<u64>,
    /// How long a stopping node waits for running activations.
    pub(crate) drain_millis: u64,
}

/// What authenticates the archive of topics with a `cold_uri`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ArchiveConfig {
    /// Files with control keys, the newest first: it signs, all verify.
    pub(crate) control_key_files: Vec<PathBuf>,
}

/// The log behind the topics.
#[derive(Debug, Clone)]
pub(crate) struct EngineConfig {
    /// The manifest, read and valid.
    pub(crate) manifest: BridgeManifest,
    /// Where it was read from; schema references are relative to its folder.
    pub(crate) manifest_path: PathBuf,
    /// Where the log is.
    pub(crate) kind: EngineKind,
}

/// Where the log is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EngineKind {
    /// On this machine, in the node's data directory.
    Embedded {
        /// Seconds from the end of one maintenance to the begin of the next.
        maintenance_interval_seconds: u64,
    },
    /// On a broker.
    Nats(BrokerConfig),
}

impl EngineConfig {
    /// Seconds from the end of one maintenance to the begin of the next.
    pub(crate) const fn maintenance_interval_seconds(&self) -> u64 {
        match &self.kind {
            EngineKind::Embedded { maintenance_interval_seconds } => *maintenance_interval_seconds,
            EngineKind::Nats(_) => limits::MAINTENANCE_INTERVAL_SECONDS.default,
        }
    }

    /// The broker, when the log is on one.
    pub(crate) const fn broker(&self) -> Option<&BrokerConfig> {
        match &self.kind {
            EngineKind::Embedded { .. } => None,
            EngineKind::Nats(broker) => Some(broker),
        }
    }
}

/// The broker behind the topics, and who the node is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokerConfig {
    /// Where it is and whom it must prove to be.
    pub(crate) peer: Peer,
    /// Whether TLS begins before the broker says anything.
    pub(crate) tls_first: bool,
    /// What publishes and reads.
    pub(crate) bus_credential: BrokerUser,
    /// What delivers, for each tenant with triggers.
    pub(crate) trigger_credentials: BTreeMap<TenantId, BrokerUser>,
}

/// The triggers of one broker that follow `nats-jetstream-pull-v2`.
#[derive(Debug, Clone)]
pub(crate) struct LanesConfig {
    /// What is installed: the lanes of each trigger, one trigger after the other.
    pub(crate) installed: latent_nats::lanes::LanesConfig,
    /// In the order of the file, those on topics first.
    pub(crate) triggers: Vec<LaneTrigger>,
    /// One for each tenant that has such triggers.
    pub(crate) credentials: Vec<CredentialConfig>,
}

impl LanesConfig {
    /// Each trigger with its lanes.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = (&LaneTrigger, &LaneBinding)> {
        let triggers = self.triggers.iter().flat_map(|trigger| std::iter::repeat_n(trigger, trigger.partitions as usize));
        triggers.zip(self.installed.lanes())
    }
}

/// The same is installed for the same triggers, and who they are on the broker is the same.
impl PartialEq for LanesConfig {
    fn eq(&self, other: &Self) -> bool {
        let Self { installed, triggers, credentials } = self;
        installed.digest() == other.installed.digest() && *triggers == other.triggers && *credentials == other.credentials
    }
}

/// A trigger that follows `nats-jetstream-pull-v2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaneTrigger {
    /// What it wakes, and how often. Its topic is the filter where it reads a stream.
    pub(crate) trigger: TriggerConfig,
    /// Largest payload of an event.
    pub(crate) payload_ceiling_bytes: u64,
    /// Partitions, each of which has a lane.
    pub(crate) partitions: u32,
}

/// The triggers that streams of a broker wake one message at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamsConfig {
    /// What is installed.
    pub(crate) triggers: latent_nats::triggers::TriggerConfig,
    /// One for each tenant that has such triggers.
    pub(crate) credentials: Vec<CredentialConfig>,
}

/// A user of the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokerUser {
    /// Its name there.
    pub(crate) user: String,
    /// Its password's name in the secret store.
    pub(crate) secret: SecretName,
}

/// Where the node's credentials are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SecretsConfig {
    /// The store; `secrets` in the data directory unless said.
    pub(crate) directory: PathBuf,
    /// The key that it is sealed under.
    pub(crate) key: KeySource,
}

/// Where a sealing key comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// A file.
    File(PathBuf),
    /// A credential that systemd gives.
    Credential(String),
}

/// A provider of publications to raw subjects of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProviderConfig {
    /// Id, unique in the file.
    pub(crate) id: ProviderId,
    /// Where it publishes.
    pub(crate) nats: NatsConfig,
    /// One for each tenant that it has mappings of.
    pub(crate) credentials: Vec<CredentialConfig>,
}

/// What a tenant authenticates with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CredentialConfig {
    /// The tenant.
    pub(crate) tenant: TenantId,
    /// The broker's user; `None`: the secret is a token.
    pub(crate) user: Option<String>,
    /// The password's or token's name in the secret store.
    pub(crate) secret: SecretName,
}

/// A topic and its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicConfig {
    /// A topic of the manifest.
    pub(crate) name: TopicName,
    /// Its one owner.
    pub(crate) tenant: TenantId,
    /// What other tenants may do with it.
    pub(crate) shares: Vec<Share>,
}

/// One other tenant's rights on a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    /// The other tenant.
    pub(crate) tenant: TenantId,
    /// At least one right.
    pub(crate) may: Vec<SharePermission>,
}

/// A right on a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SharePermission {
    /// Its functions may publish there.
    Publish,
    /// Its triggers may be woken from there.
    Subscribe,
}

impl SharePermission {
    /// The word of the configuration.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
        }
    }
}

/// A component and what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceConfig {
    /// Name, unique in the file.
    pub(crate) name: ServiceName,
    /// The tenant it runs for.
    pub(crate) tenant: TenantId,
    /// The component's file.
    pub(crate) component: PathBuf,
    /// One for each capability granted.
    pub(crate) grants: Vec<Grant>,
}

/// One capability and where it may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The imported interface.
    pub(crate) capability: ContractName,
    /// Topics that may be published to; at least one, each open to the service's tenant.
    pub(crate) topics: Vec<LogicalTopic>,
}

/// Where a new binding begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum StartPosition {
    /// With the oldest event that is kept.
    #[default]
    Earliest,
    /// With the first event appended after it was first seen.
    Latest,
}

/// Which function wakes for which topic, and how often it is tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TriggerConfig {
    /// Id, unique in the file.
    pub(crate) id: BindingId,
    /// The tenant of its service.
    pub(crate) tenant: TenantId,
    /// A `[[service]]` of that tenant.
    pub(crate) service: ServiceName,
    /// A `[[topic]]` open to that tenant.
    pub(crate) topic: TopicName,
    /// A `[[topic]]` to which that tenant may publish: where events go that never run (again). `None`: they are terminated.
    pub(crate) dead_letter: Option<TopicName>,
    /// Exported interface; `latent:events/handler@0.2.0` unless said.
    pub(crate) contract: ContractName,
    /// Function in it; `handle` unless said.
    pub(crate) function: FunctionName,
    /// Runs of one event, the first included.
    pub(crate) max_deliveries: u32,
    /// Events of one partition running at once.
    pub(crate) max_in_flight: u32,
    /// Delay before the second run; doubles with each further one.
    pub(crate) retry_delay_millis: u64,
    /// The longest delay, at least `retry_delay_millis`.
    pub(crate) retry_delay_max_millis: u64,
    /// The one deadline of a delivery, settling included.
    pub(crate) operation_timeout_millis: u64,
    /// Where a new binding begins.
    pub(crate) start: StartPosition,
    /// What one activation may use, as configured: the host cuts its wall time to the deadline less the settle margin.
    pub(crate) budget: Budget,
}
