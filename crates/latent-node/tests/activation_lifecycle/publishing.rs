//! What a node knows of the publications of an activation, however it ended, and the line it writes about those that need attention.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use latent_capabilities::{
    ActivationCapabilityRuntime, AuditRing, CompletionAccount, EVENT_PUBLISHER, EventBinding, EventPublisher, ProviderOutcome, ProviderRef,
    Publication, PublicationEnd, PublishFuture, PublishRequest,
};
use latent_core::{
    ActivationOutcome, Clock, ContractName, Deadline, Epoch, KnownFailure, LogicalTopic, ProviderId, PublicationOutcome, Receipt,
    SystemClock, Ticket, Uid, UnixMillis,
};
use latent_node::{ActivationEnd, InboundOrder, LocalActivationManager, ManagerOptions, WasmBackend};
use latent_test_guests::BEHAVE;
use latent_wasmtime::{EngineOptions, WasmEngine};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::node::{DEADLINE_MILLIS, catalog, ended, event, limits, origin, place, target, tenant};

/// What the provider answers to each publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Receipt,
    Conflict,
    Silence,
}

struct Scripted {
    answers: Vec<Answer>,
    given: AtomicUsize,
}

fn uid() -> Uid {
    Uid::parse("uid-of-the-provider").unwrap()
}

impl EventPublisher for Scripted {
    fn publish(&self, request: PublishRequest) -> PublishFuture {
        let (_, authority) = request.authorise_now().unwrap();
        authority.publishes_under(&uid());
        let at = self.given.fetch_add(1, Ordering::SeqCst);
        let receipt = Receipt { stream: "out".into(), sequence: 7, duplicate: false, accepted_at: UnixMillis(0) };
        match self.answers[at] {
            Answer::Receipt => Box::pin(std::future::ready(PublicationOutcome::Receipt(receipt))),
            Answer::Conflict => Box::pin(std::future::ready(PublicationOutcome::KnownFailure(KnownFailure::Conflict))),
            Answer::Silence => Box::pin(std::future::pending()),
        }
    }
}

/// A node whose guest is `behave` and may publish to `out`.
struct PublishingNode {
    manager: Arc<LocalActivationManager>,
    provider: Arc<Scripted>,
    audit: Arc<AuditRing>,
    clock: Arc<SystemClock>,
}

impl PublishingNode {
    fn answering(answers: impl Into<Vec<Answer>>) -> Self {
        let engine = WasmEngine::new(EngineOptions { cells: limits().cells.into(), ..EngineOptions::default() }).unwrap();
        let backend = Arc::new(WasmBackend::new(engine));
        backend.load(BEHAVE.component).unwrap();
        let (catalog, publication) = catalog(BEHAVE.component);
        let (audit, clock) = (Arc::new(AuditRing::default()), Arc::new(SystemClock::start()));
        let provider = Arc::new(Scripted { answers: answers.into(), given: AtomicUsize::new(0) });
        let capabilities = Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::clone(&audit) as _));
        let reference = ProviderRef {
            logical_id: ProviderId::parse("topics").unwrap(),
            capability: ContractName::parse(EVENT_PUBLISHER).unwrap(),
            profile: "p".into(),
            epoch: Epoch(1),
            digest: [0; 32],
        };
        capabilities.providers().install(reference.clone(), None, Arc::clone(&provider) as _).unwrap();
        let topics = BTreeSet::from([LogicalTopic::parse("out").unwrap()]);
        let binding = EventBinding { publication, tenant: tenant("a"), provider: reference, topics };
        capabilities.install_events(capabilities.compile_events([binding]).unwrap()).unwrap();
        let manager = LocalActivationManager::new(ManagerOptions {
            backend,
            catalog,
            capabilities,
            clock: Arc::clone(&clock) as _,
            ids: Arc::new(|| [7; 16]),
            limits: limits(),
            runtime: tokio::runtime::Handle::current(),
        });
        Self { manager: manager.unwrap(), provider, audit, clock }
    }

    fn begin(&self, payload: &str, deadline_millis: u64) -> Ticket<ActivationEnd> {
        let reservation = self.manager.reserve_inbound(&target("a")).unwrap();
        let deadline = Deadline::after(self.clock.mono(), deadline_millis);
        self.manager.activate(reservation, InboundOrder { event: event(payload), origin: origin(), deadline })
    }

    async fn run(&self, payload: &str) -> ActivationEnd {
        ended(self.begin(payload, DEADLINE_MILLIS)).await
    }

    /// Until the provider was given so many events.
    async fn until_given(&self, count: usize) {
        while self.provider.given.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    }

    /// What the journal names, which is what the end says.
    fn named(&self, end: &ActivationEnd) -> Vec<Publication> {
        let entry = self.manager.journal_entry(end.activation).unwrap();
        assert_eq!(entry.publications, end.report.publications);
        let place = place();
        let of_event = self.manager.journal_of_event(&place.topic, place.partition, place.offset);
        assert_eq!(of_event.first(), Some(&entry));
        entry.publications.iter().cloned().collect()
    }
}

fn publication(end: PublicationEnd) -> Publication {
    Publication { topic: LogicalTopic::parse("out").unwrap(), uid: Some(uid()), end }
}

fn stored() -> Publication {
    publication(PublicationEnd::Stored { stream: "out".into(), sequence: 7, duplicate: false })
}

fn cancelled() -> Publication {
    publication(PublicationEnd::Uncertain { cause: "cancelled" })
}

#[tokio::test]
async fn the_journal_names_what_an_activation_published_and_where_it_lies() {
    let node = PublishingNode::answering([Answer::Receipt]);
    let end = node.run("publish-or-fail:out").await;
    assert_eq!((end.report.outcome.kind(), node.named(&end)), ("success", vec![stored()]));
}

#[tokio::test]
async fn a_conflict_is_an_invalid_event_to_the_guest_and_itself_to_everybody_else() {
    let node = PublishingNode::answering([Answer::Conflict]);
    let end = node.run("publish:out").await;
    assert_eq!(end.report.outcome, ActivationOutcome::Rejected { reason: "Err(InvalidEvent)".to_owned() });
    assert_eq!(node.named(&end), [publication(PublicationEnd::Conflict)]);
    let record = &node.audit.records()[0];
    assert_eq!((record.observed, record.told), (ProviderOutcome::Rejected { reason: "conflict" }, Some("invalid-event")));
}

#[tokio::test]
async fn what_a_cancelled_activation_had_published_and_under_way_is_in_its_end() {
    let node = PublishingNode::answering([Answer::Receipt, Answer::Silence]);
    let ticket = node.begin("publish-many:out:2", DEADLINE_MILLIS);
    node.until_given(2).await;
    assert!(node.manager.cancel(node.manager.running()[0]));
    let end = ended(ticket).await;
    assert_eq!((&end.report.outcome, node.named(&end)), (&ActivationOutcome::Cancelled, vec![stored(), cancelled()]));
}

#[tokio::test]
async fn what_an_activation_had_under_way_at_its_deadline_is_in_its_end() {
    let node = PublishingNode::answering([Answer::Receipt, Answer::Silence]);
    let end = ended(node.begin("publish-many:out:2", 300)).await;
    assert_eq!((&end.report.outcome, node.named(&end)), (&ActivationOutcome::Timeout, vec![stored(), cancelled()]));
}

#[test]
fn what_was_under_way_when_the_runtime_went_away_is_in_the_end() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (node, ticket) = runtime.block_on(async {
        let node = PublishingNode::answering([Answer::Silence]);
        let ticket = node.begin("publish:out", DEADLINE_MILLIS);
        node.until_given(1).await;
        (node, ticket)
    });
    drop(runtime);
    let end = ticket.wait();
    assert_eq!((&end.report.outcome, node.named(&end)), (&ActivationOutcome::Cancelled, vec![cancelled()]));
}

#[tokio::test]
async fn conflicts_and_uncertain_ends_are_one_warning_for_each_activation_with_their_count() {
    let log = Warnings::default();
    // With one subscriber alone, whether anybody listens would be decided by the thread that first gets to the place, which may be that of
    // another test.
    let _another = tracing::Dispatch::new(log.clone());
    let _listening = tracing::subscriber::set_default(log.clone());
    let node = PublishingNode::answering([Answer::Receipt, Answer::Conflict, Answer::Conflict, Answer::Silence]);
    drop(node.run("publish-many:out:1").await);
    assert!(log.taken().is_empty(), "a receipt is no warning");
    drop(ended(node.begin("publish-many:out:3", 300)).await);
    let lines = log.taken();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in [
        "binding=\"triage-github\"",
        "activation=07070707",
        "topic=out",
        "uid=\"uid-of-the-provider\"",
        "kind=\"conflict\"",
        "conflicts=2",
        "uncertain=1",
    ] {
        assert!(lines[0].contains(part), "{part} in {}", lines[0]);
    }
}

/// Keeps the warnings of this thread, with their fields.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}
