//! Who may do what on which broker, by a configuration: one user for each purpose and tenant. No I/O.

use std::net::SocketAddrV4;

use latent_bridge::nats_bus::{NatsOptions, NatsRoots, Permissions, ProbedStream, stream_name, subject};
use latent_bridge::{BridgeManifest, TopicSpec};
use latent_core::{ProviderId, TenantId};
use latent_nats::NatsConfig;
use latent_nats::lanes::LaneBinding;
use latent_nats::triggers::TriggerBinding;
use latent_secrets::SecretName;

use crate::config::Config;
use crate::config::settings::{BrokerConfig, CredentialConfig, LanesConfig, ProviderConfig, StreamsConfig};
use crate::limits::TRIGGERS_PROVIDER;

/// Where a broker is and whom it must prove to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) address: SocketAddrV4,
    pub(super) server_name: String,
    roots: NatsRoots,
    tls_first: bool,
}

impl Site {
    pub(super) fn of_engine(engine: &BrokerConfig) -> Self {
        let peer = &engine.peer;
        let roots = NatsRoots::Der(peer.roots().map(<[u8]>::to_vec).collect());
        Self { address: peer.address(), server_name: peer.server_name().to_owned(), roots, tls_first: engine.tls_first }
    }

    /// A provider begins with TLS, always.
    pub(super) fn of_provider(nats: &NatsConfig) -> Self {
        let own: Vec<_> = nats.roots().map(<[u8]>::to_vec).collect();
        let roots = if nats.trusts_public_roots() { NatsRoots::System } else { NatsRoots::Der(own) };
        Self { address: nats.address(), server_name: nats.server_name().to_owned(), roots, tls_first: true }
    }

    /// A client of triggers begins with TLS, always.
    pub(super) fn of_streams(streams: &StreamsConfig) -> Self {
        let (peer, public) = (streams.triggers.peer(), streams.triggers.trusts_public_roots());
        let roots = if public { NatsRoots::System } else { NatsRoots::Der(peer.roots().map(<[u8]>::to_vec).collect()) };
        Self { address: peer.address(), server_name: peer.server_name().to_owned(), roots, tls_first: true }
    }

    /// As [`Site::of_streams`].
    pub(super) fn of_lanes(lanes: &LanesConfig) -> Self {
        let (peer, public) = (lanes.installed.peer(), lanes.installed.trusts_public_roots());
        let roots = if public { NatsRoots::System } else { NatsRoots::Der(peer.roots().map(<[u8]>::to_vec).collect()) };
        Self { address: peer.address(), server_name: peer.server_name().to_owned(), roots, tls_first: true }
    }

    /// How to connect, as nobody yet.
    pub(super) fn options(&self) -> NatsOptions {
        let mut options = NatsOptions::new(&format!("tls://{}", self.address));
        options.roots = self.roots.clone();
        options.server_name = Some(self.server_name.clone());
        options.tls_first = self.tls_first;
        // Looking at a broker and making its streams archives nothing.
        options.archive = None;
        options
    }
}

/// One broker and its users.
#[derive(Debug, Clone)]
pub(super) struct BrokerUsers {
    pub(super) site: Site,
    /// Names are unique.
    pub(super) users: Vec<User>,
    /// Who authenticates with a token, which can have no permissions.
    pub(super) tokens: Vec<String>,
    /// What the configuration knows of the broker's streams.
    pub(super) streams: Vec<ProbedStream>,
}

/// A user and everything that it may do.
#[derive(Debug, Clone)]
pub(super) struct User {
    pub(super) name: String,
    /// What it is for; several share it when the configuration gives them one name.
    pub(super) purposes: Vec<String>,
    pub(super) credential: Credential,
    pub(super) permissions: Permissions,
}

/// Where the password is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Credential {
    /// In the store, as the node's own.
    Bus(SecretName),
    /// In the store, for a provider.
    Provider { provider: ProviderId, tenant: TenantId, secret: SecretName },
    /// In the environment of the operator.
    Operator,
}

impl BrokerUsers {
    fn add(&mut self, name: &str, purpose: String, credential: Credential, permissions: Permissions) {
        if let Some(known) = self.users.iter_mut().find(|user| user.name == name) {
            if !known.purposes.contains(&purpose) {
                known.purposes.push(purpose);
            }
            known.permissions.extend(permissions);
            return;
        }
        self.users.push(User { name: name.to_owned(), purposes: vec![purpose], credential, permissions });
    }

    fn keep(&mut self, stream: &str, subjects: Vec<String>) {
        match self.streams.iter_mut().find(|known| known.name == stream) {
            Some(known) => known.subjects.extend(subjects),
            None => self.streams.push(ProbedStream { name: stream.to_owned(), subjects }),
        }
    }

    /// True when somebody of the configuration has this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.users.iter().any(|user| user.name == name && user.credential != Credential::Operator)
    }
}

/// Every broker of a configuration, in its order, with `operator` on each.
pub(super) fn of(config: &Config, operator: &str) -> Vec<BrokerUsers> {
    let mut brokers: Vec<BrokerUsers> = Vec::new();
    let engine = config.engine.broker();
    if let Some(engine) = engine {
        let manifest = &config.engine.manifest;
        let broker = at(&mut brokers, Site::of_engine(engine));
        let credential = Credential::Bus(engine.bus_credential.secret.clone());
        broker.add(
            &engine.bus_credential.user,
            format!("the bus of node {}: its topics, and nothing else", config.node.name),
            credential,
            Permissions::of_bus(manifest),
        );
        manifest.topics.iter().for_each(|topic| broker.keep(&stream_name(&topic.name), subjects_of(topic)));
    }
    config.providers.iter().for_each(|provider| add_provider(&mut brokers, provider));
    config.streams.iter().for_each(|streams| add_streams(&mut brokers, streams));
    config.lanes.iter().for_each(|lanes| add_lanes(&mut brokers, lanes));
    let of_topics = |broker: &BrokerUsers| engine.is_some_and(|engine| engine.peer.address() == broker.site.address);
    for broker in &mut brokers {
        let manifest: Option<&BridgeManifest> = of_topics(broker).then_some(&config.engine.manifest);
        let purpose = if manifest.is_some() {
            "the operator, for `latent broker provision`: makes and changes the streams of the topics; deletes and reads nothing"
        } else {
            "the operator, for `latent broker provision`: looks at streams; changes, deletes and reads nothing"
        };
        broker.add(operator, purpose.to_owned(), Credential::Operator, Permissions::of_operator(manifest));
        let of_streams = config.streams.iter().filter(|streams| streams.triggers.peer().address() == broker.site.address);
        let of_streams = of_streams.flat_map(|streams| streams.triggers.bindings()).map(TriggerBinding::profile);
        let of_streams = of_streams.map(|profile| (profile.stream, profile.consumer, profile.filter_subject));
        let of_lanes = config.lanes.iter().filter(|lanes| lanes.installed.peer().address() == broker.site.address);
        let of_lanes = of_lanes.flat_map(|lanes| lanes.installed.lanes()).map(LaneBinding::draft);
        let of_lanes = of_lanes.map(|lane| (lane.stream.as_str(), lane.consumer.as_str(), lane.filter.as_str()));
        let consumers = Permissions::of_durables(of_streams.chain(of_lanes));
        if !consumers.publish.is_empty() {
            let purpose = "the same: makes and changes the consumers of the triggers; deletes none and pulls from none".to_owned();
            broker.add(operator, purpose, Credential::Operator, consumers);
        }
    }
    brokers
}

fn subjects_of(topic: &TopicSpec) -> Vec<String> {
    (0..topic.partitions).map(|partition| subject(&topic.name, partition)).collect()
}

fn at(brokers: &mut Vec<BrokerUsers>, site: Site) -> &mut BrokerUsers {
    let found = brokers.iter().position(|broker| broker.site.address == site.address);
    let index = found.unwrap_or(brokers.len());
    if found.is_none() {
        brokers.push(BrokerUsers { site, users: Vec::new(), tokens: Vec::new(), streams: Vec::new() });
    }
    &mut brokers[index]
}

/// One user for each tenant that has triggers: its own consumers, and nobody else's.
fn add_streams(brokers: &mut Vec<BrokerUsers>, streams: &StreamsConfig) {
    let broker = at(brokers, Site::of_streams(streams));
    for binding in streams.triggers.bindings() {
        broker.keep(binding.stream().as_str(), vec![binding.filter().as_str().to_owned()]);
    }
    for credential in &streams.credentials {
        let own = streams.triggers.bindings().iter().filter(|binding| *binding.tenant() == credential.tenant);
        let consumers = own.map(|binding| (binding.stream().as_str(), binding.consumer().as_str()));
        add_triggers(broker, credential, Permissions::of_trigger(consumers));
    }
}

/// The same of the second profile, which takes the same rights (T-109).
fn add_lanes(brokers: &mut Vec<BrokerUsers>, lanes: &LanesConfig) {
    let broker = at(brokers, Site::of_lanes(lanes));
    let all = || lanes.installed.lanes().iter().map(LaneBinding::draft);
    for lane in all() {
        broker.keep(lane.stream.as_str(), vec![lane.filter.to_string()]);
    }
    for credential in &lanes.credentials {
        let own = all().filter(|lane| lane.tenant == credential.tenant);
        let consumers = own.map(|lane| (lane.stream.as_str(), lane.consumer.as_str()));
        add_triggers(broker, credential, Permissions::of_trigger(consumers));
    }
}

fn add_triggers(broker: &mut BrokerUsers, credential: &CredentialConfig, permissions: Permissions) {
    let Ok(provider) = ProviderId::parse(TRIGGERS_PROVIDER) else { return };
    let tenant = credential.tenant.clone();
    let purpose = format!("tenant {} of the triggers: its consumers, and nothing else", tenant.as_str());
    match &credential.user {
        Some(user) => broker.add(user, purpose, Credential::Provider { provider, tenant, secret: credential.secret.clone() }, permissions),
        None => broker.tokens.push(purpose),
    }
}

fn add_provider(brokers: &mut Vec<BrokerUsers>, provider: &ProviderConfig) {
    let broker = at(brokers, Site::of_provider(&provider.nats));
    for mapped in provider.nats.mapped() {
        broker.keep(mapped.stream.as_str(), vec![mapped.subject.as_str().to_owned()]);
    }
    for credential in &provider.credentials {
        let tenant = &credential.tenant;
        let purpose = format!("tenant {} of provider {}: its mapped subjects, and nothing else", tenant.as_str(), provider.id.as_str());
        let Some(user) = &credential.user else {
            broker.tokens.push(purpose);
            continue;
        };
        let subjects = provider.nats.mapped().filter(|mapped| mapped.tenant == tenant).map(|mapped| mapped.subject.as_str());
        let secret = credential.secret.clone();
        let place = Credential::Provider { provider: provider.id.clone(), tenant: tenant.clone(), secret };
        broker.add(user, purpose, place, Permissions::of_publisher(subjects));
    }
}
