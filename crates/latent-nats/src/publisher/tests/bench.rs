//! A provider with its pools, sealed secrets and sessions, and the scripted peer that it publishes to.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use latent_capabilities::{
    ActivationCapabilityRuntime, AuditRing, CompletionAccount, EventBinding, EventDraft, PoolSettings, ProviderPools, Session, SessionSpec,
};
use latent_core::{
    ActivationId, Clock, Deadline, Epoch, KnownFailure, MonoTime, ProviderId, PublicationId, PublicationOutcome, Receipt, TenantId,
    UncertainCause, UnixMillis,
};
use latent_secrets::{LocalSecretStore, NewSecret, SealingKey, SecretName, TlsBinding};
use latent_testkit::broker::{SERVER_NAME, TestCa};
use latent_testkit::fake_peer::{FakePeer, INFO, Step};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::{EndpointDraft, MappingDraft, NatsConfig, NatsCredential, NatsDraft, NatsPools, NatsPublisher, NatsSnapshot, RootsDraft};

pub(super) const TENANTS: [&str; 2] = ["shop", "bank"];
pub(super) const STORED: &str = r#"{"stream":"ORD","seq":1}"#;
/// What every publication of the tests ends with, and nothing else that a client sends.
pub(super) const PAYLOAD_END: &[u8] = b"{\"n\":1}\r\n";
pub(super) const PASSWORD: &str = "pw \"quoted\"";
/// The time of one operation, unless a test says otherwise: far more than any of them takes.
pub(super) const TIMEOUT_MILLIS: u64 = 30_000;

/// A peer that does its part until one publication is there, whatever it does then.
pub(super) fn serve(then: impl IntoIterator<Item = Step>) -> Vec<Step> {
    let begin = [Step::send(INFO), Step::ServeUntil(PAYLOAD_END.to_vec())];
    begin.into_iter().chain(then).collect()
}

/// A peer that answers each publication of one connection with the next of these.
pub(super) fn serve_each(answers: impl IntoIterator<Item = Step>) -> Vec<Step> {
    let answered = answers.into_iter().flat_map(|answer| [Step::ServeUntil(PAYLOAD_END.to_vec()), answer]);
    std::iter::once(Step::send(INFO)).chain(answered).chain([Step::Hold]).collect()
}

/// Time of the runtime, which a test may pause, with jumps beside it that no timer sees.
#[derive(Debug)]
pub(super) struct TestClock {
    start: Instant,
    skipped_millis: AtomicU64,
}

impl TestClock {
    pub(super) fn start() -> Self {
        Self { start: Instant::now(), skipped_millis: AtomicU64::new(0) }
    }

    /// Lets connections age and backoff pass, at once.
    pub(super) fn skip(&self, millis: u64) {
        self.skipped_millis.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn mono(&self) -> MonoTime {
        let micros = u64::try_from(self.start.elapsed().as_micros()).unwrap();
        MonoTime::from_micros(micros).plus_millis(self.skipped_millis.load(Ordering::SeqCst))
    }

    fn unix(&self) -> UnixMillis {
        UnixMillis(1_700_000_000_000 + self.mono().as_micros() / 1_000)
    }
}

pub(super) async fn advance(millis: u64) {
    tokio::time::advance(Duration::from_millis(millis)).await;
}

pub(super) struct Setup {
    pub(super) settings: PoolSettings,
    pub(super) draft: fn(&mut NatsDraft),
    /// Where the publisher goes instead of to the peer itself.
    pub(super) address: Option<SocketAddrV4>,
    /// Authenticate with this token instead of a user name and [`PASSWORD`].
    pub(super) token: Option<String>,
}

impl Default for Setup {
    fn default() -> Self {
        Self { settings: PoolSettings::default(), draft: |_| (), address: None, token: None }
    }
}

pub(super) struct Bench {
    pub(super) peer: FakePeer,
    pub(super) pools: NatsPools,
    pub(super) audit: Arc<AuditRing>,
    pub(super) clock: Arc<TestClock>,
    pub(super) publisher: NatsPublisher,
    activations: AtomicU64,
    _folder: tempfile::TempDir,
}

impl Bench {
    /// A peer whose connections follow these scripts, one after the other.
    pub(super) fn start(scripts: Vec<Vec<Step>>) -> Arc<Self> {
        Self::start_with(scripts, Setup::default())
    }

    pub(super) fn start_with(scripts: Vec<Vec<Step>>, setup: Setup) -> Arc<Self> {
        let ca = TestCa::new();
        let peer = FakePeer::start(&ca.issue(SERVER_NAME), scripts);
        Self::before(peer, &ca.root_der(), setup)
    }

    /// Before any peer, trusting this root.
    pub(super) fn before(peer: FakePeer, root_der: &[u8], setup: Setup) -> Arc<Self> {
        let address = setup.address.unwrap_or(peer.address());
        let clock = Arc::new(TestClock::start());
        let audit = Arc::new(AuditRing::default());
        let capabilities = Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::clone(&audit) as _));
        let pools = ProviderPools::new(setup.settings, Arc::clone(&clock) as Arc<dyn Clock>);
        let pools = NatsPools { capabilities, pools, clock: Arc::clone(&clock) as _ };
        let folder = tempfile::tempdir().unwrap();
        let secrets = store(folder.path());
        let mut draft = draft(address, root_der);
        (setup.draft)(&mut draft);
        let config = draft.check().unwrap();
        let credentials = credentials(&secrets, &config, clock.unix(), setup.token.as_deref());
        let publisher = NatsPublisher::install(&pools, provider(), Epoch(1), None, config, credentials).unwrap();
        let topics: BTreeSet<_> = publisher.config().mappings.all().iter().map(|mapping| mapping.topic.clone()).collect();
        let bindings = publisher.config().tenants().iter().map(|tenant| EventBinding {
            publication: PublicationId(1),
            tenant: tenant.clone(),
            provider: publisher.reference().clone(),
            topics: topics.clone(),
        });
        pools.capabilities.install_events(pools.capabilities.compile_events(bindings).unwrap()).unwrap();
        Arc::new(Self { peer, pools, audit, clock, publisher, activations: AtomicU64::new(0), _folder: folder })
    }

    pub(super) fn session(&self, tenant: &str, millis: u64) -> Session {
        let number = self.activations.fetch_add(1, Ordering::Relaxed);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&number.to_le_bytes());
        Session::open(SessionSpec {
            activation: ActivationId::from_random(id),
            tenant: TenantId::parse(tenant).unwrap(),
            publication: PublicationId(1),
            origin: None,
            outbound_requests: 1_000_000,
            deadline: Deadline::after(self.clock.mono(), millis),
            capabilities: Arc::clone(&self.pools.capabilities),
            clock: Arc::clone(&self.clock) as _,
        })
    }

    /// One publication of the first tenant.
    pub(super) async fn publish(&self) -> PublicationOutcome {
        self.publish_draft(event()).await
    }

    pub(super) async fn publish_draft(&self, draft: EventDraft) -> PublicationOutcome {
        self.session("shop", 60_000).publish(draft).await.tell()
    }

    /// One publication beside the test.
    pub(super) fn begin(self: &Arc<Self>, tenant: &'static str) -> JoinHandle<PublicationOutcome> {
        let bench = Arc::clone(self);
        tokio::spawn(async move { bench.session(tenant, 60_000).publish(event()).await.tell() })
    }

    /// Gives a publication up, and waits until its future is gone.
    pub(super) async fn give_up(call: JoinHandle<PublicationOutcome>) {
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    }

    pub(super) async fn until(&self, reached: impl Fn(&NatsSnapshot) -> bool) {
        for _ in 0..100_000 {
            if reached(&self.publisher.snapshot()) {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("never reached: {:?}", self.publisher.snapshot());
    }

    /// No call, no connection, no byte charged.
    pub(super) fn assert_nothing_is_held(&self) {
        let (own, all) = (self.publisher.snapshot(), self.pools.pools.snapshot());
        assert_eq!((own.queued, own.running, own.connections), (0, 0, 0));
        assert_eq!((all.queued, all.running, all.connections, all.parked, all.bytes), (0, 0, 0, 0, 0));
    }

    /// How often the peer got these bytes on a connection.
    pub(super) fn count(&self, connection: usize, pattern: &[u8]) -> usize {
        self.peer.report(connection).received.windows(pattern.len()).filter(|window| *window == pattern).count()
    }

    /// Publications that the peer saw, on all connections.
    pub(super) fn publications(&self) -> usize {
        (0..self.peer.accepted()).map(|connection| self.count(connection, b"HPUB ")).sum()
    }
}

pub(super) fn provider() -> ProviderId {
    ProviderId::parse("orders").unwrap()
}

pub(super) fn draft(address: SocketAddrV4, root_der: &[u8]) -> NatsDraft {
    let mapping = |tenant: &str| MappingDraft {
        tenant: Some(tenant.to_owned()),
        topic: Some("out".to_owned()),
        subject: Some(format!("{tenant}.out")),
        stream: Some("ORD".to_owned()),
    };
    NatsDraft {
        format_version: Some(1),
        endpoint: Some(EndpointDraft {
            address: Some(address.to_string()),
            allow_non_public_peer: Some(address.to_string()),
            server_name: Some(SERVER_NAME.to_owned()),
        }),
        roots: Some(RootsDraft::only(root_der)),
        idempotency_namespace: Some("tests".to_owned()),
        payload_ceiling_bytes: Some(65_536),
        operation_timeout_millis: Some(TIMEOUT_MILLIS),
        duplicate_window_millis: Some(120_000),
        mappings: Some(TENANTS.iter().map(|tenant| mapping(tenant)).collect()),
    }
}

pub(super) fn store(folder: &std::path::Path) -> Arc<LocalSecretStore> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    Arc::new(LocalSecretStore::open(folder, SealingKey::from_bytes(&[7; 32])).unwrap())
}

fn credentials(secrets: &Arc<LocalSecretStore>, config: &NatsConfig, now: UnixMillis, token: Option<&str>) -> Vec<NatsCredential> {
    let bind = |tenant: &TenantId| {
        let (server_name, port) = (config.server_name().to_owned(), config.address().port());
        let binding = TlsBinding { tenant: tenant.clone(), provider: provider(), server_name, port };
        let name = SecretName::parse(tenant.as_str()).unwrap();
        secrets.put(NewSecret::tls(&name, &binding, token.unwrap_or(PASSWORD).as_bytes(), None), now).unwrap();
        let handle = secrets.bind_tls_credential(&name, &binding, now).unwrap();
        match token {
            Some(_) => NatsCredential::token(tenant.clone(), handle),
            None => NatsCredential::password(tenant.clone(), tenant.as_str(), handle),
        }
    };
    config.tenants().iter().map(bind).collect()
}

pub(super) fn event() -> EventDraft {
    EventDraft {
        topic: "out".to_owned(),
        key: Some("customer-7".to_owned()),
        payload: br#"{"n":1}"#.to_vec(),
        media_type: "application/json".to_owned(),
        attributes: vec![("Trace".to_owned(), "t-1".to_owned())],
        idempotency_key: "k-1".to_owned(),
    }
}

pub(super) fn receipt(outcome: PublicationOutcome) -> Receipt {
    match outcome {
        PublicationOutcome::Receipt(receipt) => receipt,
        other => panic!("no receipt: {other:?}"),
    }
}

pub(super) fn failure(outcome: PublicationOutcome) -> KnownFailure {
    match outcome {
        PublicationOutcome::KnownFailure(failure) => failure,
        other => panic!("no known failure: {other:?}"),
    }
}

pub(super) fn unavailable(outcome: PublicationOutcome) -> String {
    match failure(outcome) {
        KnownFailure::Unavailable { reason } => reason,
        other => panic!("{other:?}"),
    }
}

pub(super) fn uncertain(outcome: PublicationOutcome) -> UncertainCause {
    match outcome {
        PublicationOutcome::Uncertain(uncertain) => {
            assert!(uncertain.uid.is_some(), "it can be looked up");
            uncertain.cause
        }
        other => panic!("not uncertain: {other:?}"),
    }
}
