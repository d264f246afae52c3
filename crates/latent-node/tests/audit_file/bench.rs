//! A session whose provider follows a script, a disk with a gate, and readers of what was written.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};

use latent_capabilities::{
    ActivationCapabilityRuntime, AuditRecord, CompletionAccount, EVENT_PUBLISHER, EventBinding, EventDraft, EventPublication,
    EventPublisher, Operation, ProviderOutcome, ProviderRef, PublishFuture, PublishRequest, SessionSpec,
};
use latent_core::{
    ActivationId, ContractName, Deadline, Epoch, LogicalTopic, MonoTime, ProviderId, PublicationId, PublicationOutcome, TenantId,
    UnixMillis,
};
use latent_node::AuditFile;
use latent_node::audit_file::{AuditStorage, Tail};
use latent_testkit::ManualClock;

/// What the provider does.
pub(crate) enum Answer {
    /// Takes the event and answers.
    Outcome(PublicationOutcome),
    /// Takes the event and does not.
    Silence,
    /// Leaves the event where it is.
    Never,
}

struct Scripted(Mutex<Option<Answer>>);

impl EventPublisher for Scripted {
    fn publish(&self, request: PublishRequest) -> PublishFuture {
        match self.0.lock().unwrap().take() {
            Some(Answer::Outcome(outcome)) => {
                assert!(request.authorise_now().is_ok());
                Box::pin(std::future::ready(outcome))
            }
            Some(Answer::Silence) => {
                assert!(request.authorise_now().is_ok());
                Box::pin(std::future::pending())
            }
            Some(Answer::Never) | None => Box::pin(std::future::pending()),
        }
    }
}

/// One activation's session on one audit file.
pub(crate) struct Session(latent_capabilities::Session);

impl Session {
    pub(crate) fn new(audit: &Arc<AuditFile>, answer: Answer) -> Self {
        let capabilities = ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::clone(audit) as _);
        capabilities.providers().install(provider(), None, Arc::new(Scripted(Mutex::new(Some(answer))))).unwrap();
        let binding = EventBinding {
            publication: PublicationId(1),
            tenant: TenantId::parse("acme").unwrap(),
            provider: provider(),
            topics: BTreeSet::from([LogicalTopic::parse("out").unwrap()]),
        };
        capabilities.install_events(capabilities.compile_events([binding]).unwrap()).unwrap();
        Self(latent_capabilities::Session::open(SessionSpec {
            activation: ActivationId::from_random([1; 16]),
            tenant: TenantId::parse("acme").unwrap(),
            publication: PublicationId(1),
            origin: None,
            outbound_requests: 1,
            deadline: Deadline::after(MonoTime::ZERO, 1_000),
            capabilities: Arc::new(capabilities),
            clock: Arc::new(ManualClock::starting_at(UnixMillis(1_000))),
        }))
    }

    /// One publication: told if its provider answers, given up if it does not.
    pub(crate) fn publish(&self, draft: EventDraft) {
        match pin!(self.0.publish(draft)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(completion) => drop(completion.tell()),
            Poll::Pending => {}
        }
    }
}

fn provider() -> ProviderRef {
    ProviderRef {
        logical_id: ProviderId::parse("topics").unwrap(),
        capability: ContractName::parse(EVENT_PUBLISHER).unwrap(),
        profile: "latent-topic-publish-v1".into(),
        epoch: Epoch(1),
        digest: [0; 32],
    }
}

pub(crate) fn draft() -> EventDraft {
    EventDraft { topic: "out".to_owned(), media_type: "text/plain".to_owned(), idempotency_key: "i".to_owned(), ..EventDraft::default() }
}

pub(crate) fn record() -> AuditRecord {
    AuditRecord {
        admitted_at: UnixMillis(1),
        ended_at: UnixMillis(2),
        activation: ActivationId::from_random([1; 16]),
        tenant: TenantId::parse("acme").unwrap(),
        provider: provider(),
        operation: Operation::Publish,
        request: EventPublication::check(draft()).unwrap().digest(),
        observed: ProviderOutcome::Acknowledged { duplicate: false },
        told: Some("receipt"),
    }
}

/// The names in a directory, sorted.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// All lines of all audit files, each of which must be JSON.
pub(crate) fn lines(directory: &Path) -> Vec<serde_json::Value> {
    let files = names(directory).into_iter().filter(|name| name.ends_with(".jsonl"));
    let texts = files.map(|name| std::fs::read_to_string(directory.join(name)).unwrap());
    texts.flat_map(|text| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<_>>()).collect()
}

/// Holds the writer until it is opened, and tells when it waits.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    open: bool,
    waiting: bool,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.open).unwrap());
    }

    pub(crate) fn until_waiting(&self) {
        drop(self.changed.wait_while(self.state.lock().unwrap(), |state| !state.waiting).unwrap());
    }

    pub(crate) fn open(&self) {
        self.state.lock().unwrap().open = true;
        self.changed.notify_all();
    }
}

/// A disk that takes everything, once its gate is open.
pub(crate) struct GatedDisk(pub(crate) Arc<Gate>);

impl AuditStorage for GatedDisk {
    fn numbers(&mut self) -> io::Result<Vec<u64>> {
        Ok(Vec::new())
    }

    fn open(&mut self, _number: u64) -> io::Result<Tail> {
        Ok(Tail { bytes: 0, torn: false })
    }

    fn append(&mut self, _bytes: &[u8]) -> io::Result<()> {
        self.0.pass();
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn remove(&mut self, _number: u64) -> io::Result<()> {
        Ok(())
    }
}
