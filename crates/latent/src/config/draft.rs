//! Half-read tables: what could be read of each, so that references are checked even between tables that have other faults.

use std::path::PathBuf;

use latent_bridge::BridgeManifest;
use latent_capabilities::PoolSettings;
use latent_core::{BindingId, Budget, ContractName, FunctionName, LogicalTopic, ProviderId, ServiceName, StreamName, TenantId, TopicName};
use latent_nats::triggers::{BindingDraft, TriggerConfig as NatsTriggerConfig};
use latent_nats::{EndpointDraft, NatsConfig, RootsDraft};
use latent_secrets::SecretName;

use super::lanes;
use super::profile::Profile;
use super::section::Spanned;
use super::settings::{
    ArchiveConfig, BrokerConfig, Config, CredentialConfig, EngineConfig, EngineKind, Grant, NodeConfig, ProviderConfig, SecretsConfig,
    ServiceConfig, Share, SharePermission, StartPosition, TopicConfig, TriggerConfig,
};
use super::streams;

/// The file so far.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) node: Option<NodeConfig>,
    /// Whether `[engine]` says that the log is on a broker, whatever else is wrong with it.
    pub(super) is_on_nats: bool,
    pub(super) engine: Option<EngineDraft>,
    /// Whether the file has a `[secrets]`, readable or not.
    pub(super) secrets_stand: bool,
    pub(super) secrets: Option<SecretsConfig>,
    pub(super) archive: ArchiveConfig,
    pub(super) pools: PoolSettings,
    pub(super) providers: Vec<ProviderDraft>,
    pub(super) topics: Vec<TopicDraft>,
    pub(super) services: Vec<ServiceDraft>,
    pub(super) triggers: Vec<TriggerDraft>,
    /// `[broker]`; `None`: there is none.
    pub(super) streams: Option<StreamsDraft>,
    /// The triggers that name a stream.
    pub(super) stream_triggers: Vec<StreamTriggerDraft>,
    /// Those of them that ask for `nats-jetstream-pull-v2`.
    pub(super) raw_triggers: Vec<RawTriggerDraft>,
}

#[derive(Debug)]
pub(super) struct StreamsDraft {
    /// `None` after a problem was reported, or where a file has it.
    pub(super) broker: Option<(EndpointDraft, RootsDraft)>,
    pub(super) poll_interval_millis: u64,
    pub(super) credentials: Vec<CredentialDraft>,
    /// What `settings` names: the configuration, or nothing after a problem was reported.
    pub(super) file: Option<Result<NatsTriggerConfig, ()>>,
    pub(super) at: usize,
}

#[derive(Debug)]
pub(super) struct StreamTriggerDraft {
    /// As people find it when the id is missing.
    pub(super) label: String,
    pub(super) id: Option<Spanned<BindingId>>,
    pub(super) tenant: Option<Spanned<TenantId>>,
    pub(super) service: Option<Spanned<ServiceName>>,
    /// `None` after a problem was reported.
    pub(super) binding: Option<BindingDraft>,
    pub(super) dead_letter: Option<Spanned<TopicName>>,
    pub(super) operation_timeout_millis: Spanned<u64>,
    pub(super) budget: Budget,
    pub(super) wall_time_at: usize,
    pub(super) at: usize,
}

impl StreamTriggerDraft {
    /// The trigger in a sentence.
    pub(super) fn called(&self) -> String {
        self.id.as_ref().map_or_else(|| self.label.clone(), |id| format!("trigger {:?}", id.value))
    }
}

/// A trigger on a stream whose function is given raw events.
#[derive(Debug)]
pub(super) struct RawTriggerDraft {
    /// What it has in common with a trigger on a topic; its topic is the filter.
    pub(super) trigger: TriggerDraft,
    /// `None` after a problem was reported.
    pub(super) consumer: Option<RawConsumer>,
    pub(super) at: usize,
}

/// The durable consumer that an operator named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawConsumer {
    pub(super) stream: StreamName,
    pub(super) consumer: StreamName,
}

#[derive(Debug)]
pub(super) struct EngineDraft {
    pub(super) manifest: BridgeManifest,
    pub(super) manifest_path: PathBuf,
    /// Where the file names it.
    pub(super) manifest_at: usize,
    /// `None` only after a problem was reported.
    pub(super) kind: Option<EngineKind>,
    pub(super) at: usize,
}

#[derive(Debug)]
pub(super) struct ProviderDraft {
    pub(super) id: Option<Spanned<ProviderId>>,
    pub(super) nats: Option<NatsConfig>,
    pub(super) credentials: Vec<CredentialDraft>,
    pub(super) at: usize,
}

#[derive(Debug)]
pub(super) struct CredentialDraft {
    pub(super) tenant: Option<Spanned<TenantId>>,
    pub(super) user: Option<String>,
    pub(super) secret: Option<Spanned<SecretName>>,
}

impl ProviderDraft {
    /// Whether it maps this topic for this tenant.
    pub(super) fn maps(&self, tenant: &TenantId, topic: &str) -> bool {
        self.nats.as_ref().is_some_and(|nats| nats.topics_of(tenant).any(|mapped| mapped.as_str() == topic))
    }

    fn complete(self) -> Option<ProviderConfig> {
        let credential = |credential: CredentialDraft| {
            Some(CredentialConfig { tenant: credential.tenant?.value, user: credential.user, secret: credential.secret?.value })
        };
        let credentials = self.credentials.into_iter().map(credential).collect::<Option<_>>()?;
        Some(ProviderConfig { id: self.id?.value, nats: self.nats?, credentials })
    }
}

#[derive(Debug)]
pub(super) struct TopicDraft {
    pub(super) name: Option<Spanned<TopicName>>,
    pub(super) tenant: Option<Spanned<TenantId>>,
    pub(super) shares: Vec<ShareDraft>,
}

#[derive(Debug)]
pub(super) struct ShareDraft {
    pub(super) tenant: Option<Spanned<TenantId>>,
    pub(super) may: Vec<SharePermission>,
}

#[derive(Debug)]
pub(super) struct ServiceDraft {
    pub(super) name: Option<Spanned<ServiceName>>,
    pub(super) tenant: Option<Spanned<TenantId>>,
    pub(super) component: Option<Spanned<PathBuf>>,
    pub(super) grants: Vec<GrantDraft>,
}

#[derive(Debug)]
pub(super) struct GrantDraft {
    pub(super) capability: Option<Spanned<ContractName>>,
    pub(super) topics: Vec<Spanned<LogicalTopic>>,
}

#[derive(Debug, Clone)]
pub(super) struct TriggerDraft {
    /// As people find it when the id is missing.
    pub(super) label: String,
    pub(super) id: Option<Spanned<BindingId>>,
    pub(super) tenant: Option<Spanned<TenantId>>,
    pub(super) service: Option<Spanned<ServiceName>>,
    pub(super) topic: Option<Spanned<TopicName>>,
    pub(super) dead_letter: Option<Spanned<TopicName>>,
    pub(super) contract: Option<ContractName>,
    pub(super) function: Option<FunctionName>,
    pub(super) max_deliveries: u32,
    pub(super) max_in_flight: u32,
    pub(super) retry_delay_millis: Spanned<u64>,
    pub(super) retry_delay_max_millis: Spanned<u64>,
    pub(super) operation_timeout_millis: Spanned<u64>,
    pub(super) start: StartPosition,
    pub(super) budget: Budget,
    pub(super) wall_time_at: usize,
    /// What it follows where its topic is on a broker.
    pub(super) profile: Profile,
    /// Keys that it has and `nats-jetstream-pull-v1` does not.
    pub(super) beside_pull_v1: Vec<(&'static str, usize)>,
    pub(super) ack_wait_millis: Spanned<u64>,
    pub(super) payload_ceiling_bytes: u64,
    pub(super) budget_stands: bool,
}

impl TopicDraft {
    /// False only when it is certain: a topic whose owner could not be read refuses nobody.
    pub(super) fn permits(&self, tenant: &TenantId, right: SharePermission) -> bool {
        let shared = |share: &ShareDraft| share.tenant.as_ref().is_none_or(|with| with.value == *tenant) && share.may.contains(&right);
        self.tenant.as_ref().is_none_or(|owner| owner.value == *tenant) || self.shares.iter().any(shared)
    }

    fn complete(self) -> Option<TopicConfig> {
        let shares = self.shares.into_iter().map(|share| Some(Share { tenant: share.tenant?.value, may: share.may }));
        Some(TopicConfig { name: self.name?.value, tenant: self.tenant?.value, shares: shares.collect::<Option<_>>()? })
    }
}

impl ServiceDraft {
    fn complete(self) -> Option<ServiceConfig> {
        let grants = self.grants.into_iter().map(|grant| {
            let topics = grant.topics.into_iter().map(|topic| topic.value).collect();
            Some(Grant { capability: grant.capability?.value, topics })
        });
        Some(ServiceConfig {
            name: self.name?.value,
            tenant: self.tenant?.value,
            component: self.component?.value,
            grants: grants.collect::<Option<_>>()?,
        })
    }
}

impl TriggerDraft {
    /// The trigger in a sentence.
    pub(super) fn called(&self) -> String {
        self.id.as_ref().map_or_else(|| self.label.clone(), |id| format!("trigger {:?}", id.value))
    }

    /// Where a problem of the whole trigger is told.
    pub(super) fn at(&self) -> usize {
        let topic = self.topic.as_ref().map(|topic| topic.at);
        topic.or(self.id.as_ref().map(|id| id.at)).unwrap_or(self.wall_time_at)
    }

    pub(super) fn complete(self) -> Option<TriggerConfig> {
        Some(TriggerConfig {
            id: self.id?.value,
            tenant: self.tenant?.value,
            service: self.service?.value,
            topic: self.topic?.value,
            dead_letter: self.dead_letter.map(|topic| topic.value),
            contract: self.contract?,
            function: self.function?,
            max_deliveries: self.max_deliveries,
            max_in_flight: self.max_in_flight,
            retry_delay_millis: self.retry_delay_millis.value,
            retry_delay_max_millis: self.retry_delay_max_millis.value,
            operation_timeout_millis: self.operation_timeout_millis.value,
            start: self.start,
            budget: self.budget,
        })
    }
}

impl Draft {
    /// Where a problem of all triggers of streams is told.
    pub(super) fn place_of_streams(&self) -> Option<usize> {
        let of_topic = self.triggers.iter().find(|trigger| trigger.profile == Profile::PullV1).map(TriggerDraft::at);
        let of_trigger = self.stream_triggers.first().map(|trigger| trigger.at).or(of_topic);
        self.streams.as_ref().map(|streams| streams.at).or(of_trigger)
    }

    /// The broker behind the topics.
    pub(super) fn broker(&self) -> Option<&BrokerConfig> {
        match self.engine.as_ref()?.kind.as_ref()? {
            EngineKind::Nats(broker) => Some(broker),
            EngineKind::Embedded { .. } => None,
        }
    }

    /// The configuration. `None` only after a problem was reported.
    pub(super) fn complete(self, path: PathBuf) -> Option<Config> {
        let (streams, lanes) = (streams::complete(&self), lanes::complete(&self)?);
        let is_embedded = !self.is_on_nats;
        let EngineDraft { manifest, manifest_path, manifest_at: _, kind, at: _ } = self.engine?;
        Some(Config {
            path,
            node: self.node?,
            engine: EngineConfig { manifest, manifest_path, kind: kind? },
            secrets: self.secrets,
            archive: self.archive,
            pools: self.pools,
            providers: self.providers.into_iter().map(ProviderDraft::complete).collect::<Option<_>>()?,
            topics: self.topics.into_iter().map(TopicDraft::complete).collect::<Option<_>>()?,
            services: self.services.into_iter().map(ServiceDraft::complete).collect::<Option<_>>()?,
            triggers: self.triggers.into_iter().filter(|_| is_embedded).map(TriggerDraft::complete).collect::<Option<_>>()?,
            streams,
            lanes,
        })
    }
}
