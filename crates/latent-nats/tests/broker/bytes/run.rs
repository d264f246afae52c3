//! Cases side by side on one broker: each worker with a thread, a proxy and a provider of its own, each case on a connection of its own.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use latent_capabilities::{
    ActivationCapabilityRuntime, AuditRing, CompletionAccount, EventBinding, EventDraft, PoolSettings, ProviderPools, Session, SessionSpec,
};
use latent_core::{ActivationId, Clock as _, Deadline, Epoch, LogicalTopic, MessageId, PublicationId, PublicationOutcome, SystemClock};
use latent_nats::{NatsConfig, NatsPools, NatsPublisher};
use latent_secrets::{LocalSecretStore, NewSecret, SecretName};
use latent_testkit::broker::{Broker, StoredMessage};
use latent_testkit::proxy::{At, Direction, FaultProxy};

use super::positions::{Case, Plain};
use crate::bench::{STREAM, TENANTS, binding, credentials, draft, event, password, provider, store, tenant};

const WORKERS: usize = 16;
/// Time of one operation. What it cuts short is right all the same: every rule holds for every answer.
const TIMEOUT_MILLIS: u64 = 400;

/// How one case ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) outcome: PublicationOutcome,
    id: MessageId,
    key: String,
    payload: String,
    pub(super) is_reached: bool,
    /// What passed the proxy.
    pub(super) session_proved: bool,
    pub(super) publication_complete: bool,
    pub(super) answer_complete: bool,
}

impl Ended {
    /// Whether a message is of this case, by its id, its key or its payload: one changed byte leaves two of them.
    pub(super) fn is_of(&self, message: &StoredMessage) -> bool {
        let is = |name, value: &str| message.header(name) == Some(value);
        is("Nats-Msg-Id", self.id.as_str()) || is("Lsf-Event-Key", &self.key) || contains(&message.payload, self.payload.as_bytes())
    }
}

/// What is said without a fault.
pub(super) fn plain(broker: &Broker) -> Plain {
    let mut worker = Worker::new(broker);
    let runtime = runtime();
    let case = Case { number: 99_999_999, direction: Direction::ToClient, byte: u64::MAX, fault: latent_testkit::proxy::Fault::Cut };
    let ended = runtime.block_on(worker.run(&case));
    assert!(matches!(ended.outcome, PublicationOutcome::Receipt(_)), "{:?}", ended.outcome);
    let said = |direction| worker.proxy.transcript(direction);
    Plain { to_broker: said(Direction::ToBroker), to_client: said(Direction::ToClient) }
}

/// Runs all of them.
pub(super) fn all(broker: &Broker, cases: &[Case]) -> Vec<(Case, Ended)> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let mut worker = Worker::new(broker);
                let runtime = runtime();
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let ended = runtime.block_on(worker.run(case));
                    done.lock().unwrap().push((case.clone(), ended));
                }
            });
        }
    });
    done.into_inner().unwrap()
}

/// What the stream holds once the broker is done with everything that it got. The stream is empty afterwards.
pub(super) fn settled(broker: &Broker) -> Vec<StoredMessage> {
    runtime().block_on(async {
        let admin = broker.admin().await;
        latent_testkit::wait_until("the broker sees every connection closed", || admin.connections().is_empty());
        // What is stored goes through one queue: once this one is answered, everything before it is stored or refused.
        let marker = admin.jetstream().publish("bank.out", "a marker".into()).await.unwrap();
        marker.await.unwrap();
        let stored = admin.messages(STREAM).await;
        admin.purge_stream(STREAM).await;
        stored
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

struct Worker {
    proxy: FaultProxy,
    pools: NatsPools,
    clock: Arc<SystemClock>,
    secrets: Arc<LocalSecretStore>,
    config: NatsConfig,
    epoch: u64,
    _folder: tempfile::TempDir,
}

impl Worker {
    fn new(broker: &Broker) -> Self {
        let proxy = FaultProxy::start(broker);
        let clock = Arc::new(SystemClock::start());
        let capabilities = Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::new(AuditRing::default())));
        let pools = ProviderPools::new(PoolSettings::default(), Arc::clone(&clock) as _);
        let pools = NatsPools { capabilities, pools, clock: Arc::clone(&clock) as _ };
        let folder = tempfile::tempdir().unwrap();
        let secrets = store(folder.path());
        for name in TENANTS {
            let (address, server_name): (SocketAddrV4, String) = (proxy.address(), broker.server_name());
            let secret_name = SecretName::parse(name).unwrap();
            let binding = binding(name, address, &server_name);
            secrets.put(NewSecret::tls(&secret_name, &binding, password(name).as_bytes(), None), clock.unix()).unwrap();
        }
        let mut draft = draft(broker, proxy.address());
        draft.operation_timeout_millis = Some(TIMEOUT_MILLIS);
        let config = draft.check().unwrap();
        Self { proxy, pools, clock, secrets, config, epoch: 0, _folder: folder }
    }

    /// One publication through a provider that is new: no connection, no backoff, and the first operation of the first connection.
    async fn run(&mut self, case: &Case) -> Ended {
        let session = self.session();
        let connection = self.proxy.connections();
        let watch = self.proxy.inject(Some(connection), case.direction, At::Byte(case.byte), case.fault);
        // Far apart from those of every other case, so that a changed byte makes no case another one.
        let key = mark("key", case);
        let payload = mark("payload", case);
        let draft = EventDraft { payload: payload.clone().into_bytes(), key: Some(key.clone()), ..event(&key) };
        let outcome = session.publish(draft).await.tell();
        let is_reached = watch.is_reached();
        let to_broker = self.proxy.transcript_of(connection, Direction::ToBroker);
        let to_client = self.proxy.transcript_of(connection, Direction::ToClient);
        let end = format!("{payload}\r\n");
        Ended {
            outcome,
            id: MessageId::derive("tests", &tenant("shop"), &LogicalTopic::parse("out").unwrap(), &key),
            key,
            payload,
            is_reached,
            session_proved: contains(&to_client, b"PONG\r\n"),
            publication_complete: contains(&to_broker, end.as_bytes()),
            answer_complete: to_client.ends_with(b"}\r\n") && contains(&to_client, b"MSG _INBOX.LSF."),
        }
    }

    fn session(&mut self) -> Session {
        let (expected, epoch) = (Some(self.epoch).filter(|epoch| *epoch > 0), self.epoch + 1);
        self.epoch = epoch;
        let credentials = credentials(&self.secrets, &self.config, &*self.clock);
        let installed =
            NatsPublisher::install(&self.pools, provider(), Epoch(epoch), expected.map(Epoch), self.config.clone(), credentials).unwrap();
        let binding = EventBinding {
            publication: PublicationId(1),
            tenant: tenant("shop"),
            provider: installed.reference().clone(),
            topics: BTreeSet::from([LogicalTopic::parse("out").unwrap()]),
        };
        let capabilities = &self.pools.capabilities;
        capabilities.install_events(capabilities.compile_events([binding]).unwrap()).unwrap();
        Session::open(SessionSpec {
            activation: ActivationId::from_random([0; 16]),
            tenant: tenant("shop"),
            publication: PublicationId(1),
            origin: None,
            outbound_requests: 1,
            deadline: Deadline::after(self.clock.mono(), 60_000),
            capabilities: Arc::clone(&self.pools.capabilities),
            clock: Arc::clone(&self.clock) as _,
        })
    }
}

fn mark(what: &str, case: &Case) -> String {
    MessageId::derive(what, &tenant("shop"), &LogicalTopic::parse("out").unwrap(), &case.number.to_string()).as_str().to_owned()
}

fn contains(bytes: &[u8], pattern: &[u8]) -> bool {
    bytes.windows(pattern.len()).any(|window| window == pattern)
}
