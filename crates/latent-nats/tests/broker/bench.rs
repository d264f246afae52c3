//! A node's half without a node: capabilities, pools, a sealed store, one installed provider, and sessions to publish through.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use latent_capabilities::{
    ActivationCapabilityRuntime, AuditRing, CompletionAccount, EventBinding, EventDraft, Origin, PoolSettings, ProviderPools, Session,
    SessionSpec,
};
use latent_core::{
    ActivationId, BindingId, Clock, Deadline, Epoch, LogicalTopic, Offset, Partition, ProviderId, PublicationId, PublicationOutcome,
    Receipt, SystemClock, TenantId, TopicName,
};
use latent_nats::{EndpointDraft, InstallError, MappingDraft, NatsConfig, NatsCredential, NatsDraft, NatsPools, NatsPublisher, RootsDraft};
use latent_secrets::{LocalSecretStore, NewSecret, SealingKey, SecretName, TlsBinding};
use latent_testkit::broker::{Broker, BrokerSpec, BrokerUser, StreamSpec};

/// A tenant of the tests: its user of the broker and its topic `out`, mapped to `<tenant>.out`.
pub(crate) const TENANTS: [&str; 2] = ["shop", "bank"];
pub(crate) const STREAM: &str = "ORD";

pub(crate) struct Bench {
    pub(crate) broker: Broker,
    pub(crate) pools: NatsPools,
    pub(crate) audit: Arc<AuditRing>,
    pub(crate) secrets: Arc<LocalSecretStore>,
    pub(crate) clock: Arc<SystemClock>,
    pub(crate) publisher: NatsPublisher,
    activations: AtomicU64,
    _folder: tempfile::TempDir,
}

/// What a bench is started with.
pub(crate) struct Setup {
    pub(crate) spec: BrokerSpec,
    pub(crate) settings: PoolSettings,
    pub(crate) draft: fn(&mut NatsDraft),
    /// Where the publisher goes instead of to the broker itself.
    pub(crate) address: Option<SocketAddrV4>,
}

impl Default for Setup {
    fn default() -> Self {
        Self { spec: spec(), settings: PoolSettings::default(), draft: |_| (), address: None }
    }
}

pub(crate) fn spec() -> BrokerSpec {
    let users =
        TENANTS.map(|tenant| BrokerUser::publisher(tenant, &password(tenant), [format!("{tenant}.out"), format!("{tenant}.other")]));
    BrokerSpec::with_users(users).stream(StreamSpec::new(STREAM, ["shop.out", "bank.out"]))
}

pub(crate) fn password(tenant: &str) -> String {
    format!("pw of {tenant} \"quoted\"")
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

pub(crate) fn provider() -> ProviderId {
    ProviderId::parse("orders").unwrap()
}

pub(crate) fn binding(tenant_name: &str, address: SocketAddrV4, server_name: &str) -> TlsBinding {
    TlsBinding { tenant: tenant(tenant_name), provider: provider(), server_name: server_name.to_owned(), port: address.port() }
}

pub(crate) fn draft(broker: &Broker, address: SocketAddrV4) -> NatsDraft {
    let mapping = |tenant: &str, topic: &str| MappingDraft {
        tenant: Some(tenant.to_owned()),
        topic: Some(topic.to_owned()),
        subject: Some(format!("{tenant}.{topic}")),
        stream: Some(STREAM.to_owned()),
    };
    NatsDraft {
        format_version: Some(1),
        endpoint: Some(EndpointDraft {
            address: Some(address.to_string()),
            allow_non_public_peer: Some(address.to_string()),
            server_name: Some(broker.server_name()),
        }),
        roots: Some(RootsDraft::only(&broker.ca().root_der())),
        idempotency_namespace: Some("tests".to_owned()),
        payload_ceiling_bytes: Some(65_536),
        operation_timeout_millis: Some(5_000),
        duplicate_window_millis: Some(120_000),
        mappings: Some(TENANTS.iter().flat_map(|tenant| [mapping(tenant, "out"), mapping(tenant, "other")]).collect()),
    }
}

impl Bench {
    pub(crate) fn start(setup: Setup) -> Self {
        let broker = Broker::start(setup.spec.clone());
        Self::on(broker, setup)
    }

    /// With credentials for a server of this name, whatever the broker's is.
    pub(crate) fn start_named(setup: Setup, server_name: &str) -> Self {
        let broker = Broker::start(setup.spec.clone());
        Self::build(broker, setup, server_name)
    }

    pub(crate) fn on(broker: Broker, setup: Setup) -> Self {
        let server_name = broker.server_name();
        Self::build(broker, setup, &server_name)
    }

    fn build(broker: Broker, setup: Setup, server_name: &str) -> Self {
        let address = setup.address.unwrap_or(broker.address());
        let clock = Arc::new(SystemClock::start());
        let audit = Arc::new(AuditRing::default());
        let capabilities = Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::clone(&audit) as _));
        let pools = ProviderPools::new(setup.settings, Arc::clone(&clock) as Arc<dyn Clock>);
        let pools = NatsPools { capabilities, pools, clock: Arc::clone(&clock) as _ };
        let folder = tempfile::tempdir().unwrap();
        let secrets = store(folder.path());
        for tenant in TENANTS {
            let name = SecretName::parse(tenant).unwrap();
            let binding = binding(tenant, address, server_name);
            secrets.put(NewSecret::tls(&name, &binding, password(tenant).as_bytes(), None), clock.unix()).unwrap();
        }
        let mut draft = draft(&broker, address);
        (setup.draft)(&mut draft);
        let config = draft.check().unwrap();
        let credentials = credentials(&secrets, &config, clock.as_ref());
        let publisher = NatsPublisher::install(&pools, provider(), Epoch(1), None, config, credentials).unwrap();
        let bench = Self { broker, pools, audit, secrets, clock, publisher, activations: AtomicU64::new(0), _folder: folder };
        bench.grant(&["out", "other"]);
        bench
    }

    /// Puts a plan in force that grants these topics to every tenant, through the epoch in force.
    pub(crate) fn grant(&self, topics: &[&str]) {
        self.grant_through(&self.publisher, topics);
    }

    pub(crate) fn grant_through(&self, publisher: &NatsPublisher, topics: &[&str]) {
        let topics: BTreeSet<_> = topics.iter().map(|topic| LogicalTopic::parse(topic).unwrap()).collect();
        let binding = |name: &&str| EventBinding {
            publication: PublicationId(1),
            tenant: tenant(name),
            provider: publisher.reference().clone(),
            topics: topics.clone(),
        };
        let bindings: Vec<_> = TENANTS.iter().filter(|_| !topics.is_empty()).map(binding).collect();
        let capabilities = &self.pools.capabilities;
        capabilities.install_events(capabilities.compile_events(bindings).unwrap()).unwrap();
    }

    /// The draft of the configuration in force.
    pub(crate) fn draft(&self) -> NatsDraft {
        draft(&self.broker, self.publisher.config().address())
    }

    /// Installs the same configuration as another epoch.
    pub(crate) fn install(&self, epoch: u64, expected: Option<u64>) -> Result<NatsPublisher, InstallError> {
        self.install_draft(epoch, expected, self.draft())
    }

    /// The same, with every tenant authenticated by this token.
    pub(crate) fn install_with_tokens(&self, epoch: u64, expected: Option<u64>, token: &str) -> Result<NatsPublisher, InstallError> {
        let config = self.publisher.config().clone();
        let handle = |tenant: &TenantId| {
            let binding = binding(tenant.as_str(), config.address(), config.server_name());
            let name = SecretName::parse(&format!("{tenant}-{epoch}")).unwrap();
            self.secrets.put(NewSecret::tls(&name, &binding, token.as_bytes(), None), self.clock.unix()).unwrap();
            let handle = self.secrets.bind_tls_credential(&name, &binding, self.clock.unix()).unwrap();
            NatsCredential::token(tenant.clone(), handle)
        };
        let credentials = config.tenants().iter().map(handle).collect();
        NatsPublisher::install(&self.pools, provider(), Epoch(epoch), expected.map(Epoch), config, credentials)
    }

    /// Waits for what the provider's own counters show.
    pub(crate) async fn until(&self, reached: impl Fn(&latent_nats::NatsSnapshot) -> bool) {
        let look = || std::future::ready(reached(&self.publisher.snapshot()).then_some(()));
        latent_testkit::until_some("counters of the provider", look).await;
    }

    /// Waits until this many publications may have been written.
    #[allow(dead_code, reason = "the tests with guests need it")]
    pub(crate) async fn until_written(&self, count: u64) {
        self.until(|snapshot| snapshot.possible_writes == count).await;
    }

    /// Publishes until there is a receipt, through whatever backoff is left.
    pub(crate) async fn until_receipt(&self, tenant: &str, key: &str) -> Receipt {
        let publish = || async {
            match self.publish(tenant, key).await {
                PublicationOutcome::Receipt(receipt) => Some(receipt),
                PublicationOutcome::KnownFailure(latent_core::KnownFailure::Unavailable { .. }) => None,
                other => panic!("{other:?}"),
            }
        };
        latent_testkit::until_some("a receipt", publish).await
    }

    pub(crate) fn install_draft(&self, epoch: u64, expected: Option<u64>, draft: NatsDraft) -> Result<NatsPublisher, InstallError> {
        let config = draft.check().unwrap();
        let credentials = credentials(&self.secrets, &config, self.clock.as_ref());
        NatsPublisher::install(&self.pools, provider(), Epoch(epoch), expected.map(Epoch), config, credentials)
    }

    pub(crate) fn session(&self, tenant_name: &str, millis: u64) -> Session {
        self.session_with_requests(tenant_name, millis, 1_000_000)
    }

    pub(crate) fn session_with_requests(&self, tenant_name: &str, millis: u64, outbound_requests: u64) -> Session {
        let number = self.activations.fetch_add(1, Ordering::Relaxed);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&number.to_le_bytes());
        Session::open(SessionSpec {
            activation: ActivationId::from_random(id),
            tenant: tenant(tenant_name),
            publication: PublicationId(1),
            // Each activation answers to an event of its own, so that derived keys differ.
            origin: Some(origin(number)),
            outbound_requests,
            deadline: Deadline::after(self.clock.mono(), millis),
            capabilities: Arc::clone(&self.pools.capabilities),
            clock: Arc::clone(&self.clock) as _,
        })
    }

    /// One publication of a tenant to `out`.
    pub(crate) async fn publish(&self, tenant: &str, key: &str) -> PublicationOutcome {
        self.publish_draft(tenant, event(key)).await
    }

    pub(crate) async fn publish_draft(&self, tenant: &str, draft: EventDraft) -> PublicationOutcome {
        self.session(tenant, 10_000).publish(draft).await.tell()
    }
}

fn origin(number: u64) -> Origin {
    Origin {
        binding: BindingId::parse("tests").unwrap(),
        topic: TopicName::parse("in").unwrap(),
        partition: Partition(0),
        offset: Offset(number),
        stored_at: None,
    }
}

pub(crate) fn store(folder: &std::path::Path) -> Arc<LocalSecretStore> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    Arc::new(LocalSecretStore::open(folder, SealingKey::from_bytes(&[7; 32])).unwrap())
}

pub(crate) fn credentials(secrets: &Arc<LocalSecretStore>, config: &NatsConfig, clock: &dyn Clock) -> Vec<NatsCredential> {
    let bind = |tenant: &TenantId| {
        let binding = binding(tenant.as_str(), config.address(), config.server_name());
        let name = SecretName::parse(tenant.as_str()).unwrap();
        let handle = secrets.bind_tls_credential(&name, &binding, clock.unix()).unwrap();
        NatsCredential::password(tenant.clone(), tenant.as_str(), handle)
    };
    config.tenants().iter().map(bind).collect()
}

pub(crate) fn event(key: &str) -> EventDraft {
    EventDraft {
        topic: "out".to_owned(),
        key: Some("customer-7".to_owned()),
        payload: br#"{"n":1}"#.to_vec(),
        media_type: "application/json".to_owned(),
        attributes: vec![("Trace".to_owned(), "t-1".to_owned())],
        idempotency_key: key.to_owned(),
    }
}

pub(crate) fn receipt(outcome: PublicationOutcome) -> Receipt {
    match outcome {
        PublicationOutcome::Receipt(receipt) => receipt,
        other => panic!("no receipt: {other:?}"),
    }
}

pub(crate) fn failure(outcome: PublicationOutcome) -> latent_core::KnownFailure {
    match outcome {
        PublicationOutcome::KnownFailure(failure) => failure,
        other => panic!("no known failure: {other:?}"),
    }
}

pub(crate) fn uncertain(outcome: PublicationOutcome) -> latent_core::Uncertain {
    match outcome {
        PublicationOutcome::Uncertain(uncertain) => uncertain,
        other => panic!("not uncertain: {other:?}"),
    }
}
