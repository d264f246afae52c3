//! A host around the engine: a session with one granted topic, a provider that follows a script, and time.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, Mutex};

use bytes::Bytes;
use latent_capabilities::{
    ActivationCapabilityRuntime, AuditRing, CompletionAccount, EVENT_PUBLISHER, EventBinding, EventPublication, EventPublisher, Origin,
    ProviderRef, PublishFuture, PublishRequest, Session, SessionSpec,
};
use latent_core::{
    ActivationId, ActivationOutcome, Attributes, BindingId, Budget, Clock, ContractName, Deadline, DeliveredEvent, Epoch, LogicalTopic,
    MediaType, Offset, Partition, ProviderId, PublicationId, PublicationOutcome, Receipt, SystemClock, TenantId, TopicName, TraceId, Uid,
    UnixMillis,
};
use latent_test_guests::BEHAVE;
use latent_wasmtime::{ActivationReport, EngineOptions, HandlerCall, PreparedComponent, WasmEngine};

/// The one topic that is granted.
pub(crate) const GRANTED: &str = "out";

/// The tests share one engine and one compiled guest; compiling it once is slow enough. It has more cells than tests run at a time,
/// because one that waits for a cell in paused time would pass its deadline at once.
static SHARED: LazyLock<(WasmEngine, PreparedComponent)> = LazyLock::new(|| {
    let engine = WasmEngine::new(EngineOptions { cells: 256, ..EngineOptions::default() }).unwrap();
    let behave = engine.prepare(BEHAVE.component).unwrap();
    (engine, behave)
});

/// What the provider does with one publication.
pub(crate) enum Answer {
    Receipt,
    Outcome(PublicationOutcome),
    /// Takes the event and never answers.
    Silence,
}

/// Publishes nothing; remembers what it was given and answers by script, with receipts when the script has ended.
pub(crate) struct Scripted {
    answers: Mutex<Vec<Answer>>,
    pub(crate) given: Mutex<Vec<Arc<EventPublication>>>,
}

impl EventPublisher for Scripted {
    fn publish(&self, request: PublishRequest) -> PublishFuture {
        let (event, authority) = match request.authorise_now() {
            Ok(authorised) => authorised,
            Err(failure) => return Box::pin(std::future::ready(PublicationOutcome::KnownFailure(failure))),
        };
        authority.publishes_under(&uid_of(&event));
        let sequence = {
            let mut given = self.given.lock().unwrap();
            given.push(event);
            given.len() as u64 - 1
        };
        let receipt = Receipt { stream: GRANTED.into(), sequence, duplicate: false, accepted_at: UnixMillis(5) };
        match self.answers.lock().unwrap().pop() {
            None | Some(Answer::Receipt) => Box::pin(std::future::ready(PublicationOutcome::Receipt(receipt))),
            Some(Answer::Outcome(outcome)) => Box::pin(std::future::ready(outcome)),
            Some(Answer::Silence) => Box::pin(std::future::pending()),
        }
    }
}

/// What this provider publishes an event under.
pub(crate) fn uid_of(event: &EventPublication) -> Uid {
    Uid::parse(&format!("uid-of-{}", event.idempotency_key())).unwrap()
}

/// Everything one activation is run with; a test changes what it is about.
pub(crate) struct Bench {
    pub(crate) engine: WasmEngine,
    pub(crate) component: PreparedComponent,
    pub(crate) budget: Budget,
    pub(crate) timeout_millis: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) provider: Arc<Scripted>,
    pub(crate) audit: Arc<AuditRing>,
    pub(crate) account: CompletionAccount,
    /// What the plan grants; `None` for a service without a binding.
    pub(crate) granted: Option<&'static str>,
    /// The event that it answers to, if any.
    pub(crate) origin: Option<Origin>,
}

impl Bench {
    /// The guest `behave` with the default budget and a deadline that only a hanging test reaches.
    pub(crate) fn behave() -> Self {
        let (engine, component) = SHARED.clone();
        Self::on(engine, component)
    }

    /// A component on the shared engine.
    pub(crate) fn of(component: &[u8]) -> Self {
        let engine = SHARED.0.clone();
        let component = engine.prepare(component).unwrap();
        Self::on(engine, component)
    }

    pub(crate) fn on(engine: WasmEngine, component: PreparedComponent) -> Self {
        Self {
            engine,
            component,
            budget: Budget { wall_time_millis: 60_000, ..Budget::default() },
            timeout_millis: 120_000,
            clock: Arc::new(SystemClock::start()),
            provider: Arc::new(Scripted { answers: Mutex::default(), given: Mutex::default() }),
            audit: Arc::new(AuditRing::default()),
            account: CompletionAccount::default(),
            granted: Some(GRANTED),
            origin: Some(origin()),
        }
    }

    pub(crate) fn with_budget(mut self, change: impl FnOnce(&mut Budget)) -> Self {
        change(&mut self.budget);
        self
    }

    /// The provider's answers, first to last.
    pub(crate) fn with_answers(self, answers: impl IntoIterator<Item = Answer>) -> Self {
        let mut answers: Vec<_> = answers.into_iter().collect();
        answers.reverse();
        *self.provider.answers.lock().unwrap() = answers;
        self
    }

    /// One activation on an event with this payload.
    pub(crate) fn run(&self, payload: &str) -> impl Future<Output = ActivationReport> + Send + use<> {
        self.run_in(self.session(), payload)
    }

    /// The same in a session that the caller keeps.
    pub(crate) fn run_in(&self, session: Session, payload: &str) -> impl Future<Output = ActivationReport> + Send + use<> {
        self.run_event(session, event(payload))
    }

    /// One activation on an event with this key.
    pub(crate) fn run_under_key(&self, key: &str, payload: &str) -> impl Future<Output = ActivationReport> + Send + use<> {
        self.run_event(self.session(), DeliveredEvent { key: key.to_owned(), ..event(payload) })
    }

    fn run_event(&self, session: Session, event: DeliveredEvent) -> impl Future<Output = ActivationReport> + Send + use<> {
        let call = HandlerCall { event, session, budget: self.budget, trace: Self::trace() };
        self.engine.run_handler(&self.component, call)
    }

    /// What the guest saw: the reason with which it rejects.
    pub(crate) async fn seen(&self, payload: &str) -> String {
        match self.run(payload).await.outcome {
            ActivationOutcome::Rejected { reason } => reason,
            other => panic!("{payload} ended as {other:?}"),
        }
    }

    /// That a healthy event is handled, whatever ran before.
    pub(crate) async fn assert_healthy(&self) {
        let healthy = Self::on(self.engine.clone(), self.component.clone());
        assert_eq!(healthy.run("ok").await.outcome, ActivationOutcome::Success);
    }

    pub(crate) fn trace() -> TraceId {
        TraceId::from_random([0xab; 16])
    }

    pub(crate) fn session(&self) -> Session {
        let tenant = TenantId::parse("acme").unwrap();
        Session::open(SessionSpec {
            activation: ActivationId::from_random([0xcd; 16]),
            tenant,
            publication: PublicationId(1),
            origin: self.origin.clone(),
            outbound_requests: self.budget.outbound_requests,
            deadline: Deadline::after(self.clock.mono(), self.timeout_millis),
            capabilities: self.capabilities(),
            clock: Arc::clone(&self.clock),
        })
    }

    fn capabilities(&self) -> Arc<ActivationCapabilityRuntime> {
        let capabilities = ActivationCapabilityRuntime::new(self.account.clone(), Arc::clone(&self.audit) as _);
        let provider = ProviderRef {
            logical_id: ProviderId::parse("topics").unwrap(),
            capability: ContractName::parse(EVENT_PUBLISHER).unwrap(),
            profile: "p".into(),
            epoch: Epoch(1),
            digest: [0; 32],
        };
        capabilities.providers().install(provider.clone(), None, Arc::clone(&self.provider) as Arc<dyn EventPublisher>).unwrap();
        let bindings = self.granted.map(|topic| EventBinding {
            publication: PublicationId(1),
            tenant: TenantId::parse("acme").unwrap(),
            provider,
            topics: BTreeSet::from([LogicalTopic::parse(topic).unwrap()]),
        });
        capabilities.install_events(capabilities.compile_events(bindings).unwrap()).unwrap();
        Arc::new(capabilities)
    }
}

pub(crate) fn origin() -> Origin {
    let DeliveredEvent { topic, partition, offset, stored_at, .. } = event("");
    Origin { binding: BindingId::parse("b").unwrap(), topic, partition, offset, stored_at: Some(stored_at) }
}

fn event(payload: &str) -> DeliveredEvent {
    DeliveredEvent {
        topic: TopicName::parse("in").unwrap(),
        partition: Partition(3),
        offset: Offset(41),
        uid: Some(Uid::parse("u-1").unwrap()),
        key: "k".to_owned(),
        media_type: MediaType::octet_stream(),
        attributes: Attributes::parse(vec![("A".to_owned(), "b".to_owned())]).unwrap(),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        delivery: 2,
        stored_at: UnixMillis(1_000),
    }
}
