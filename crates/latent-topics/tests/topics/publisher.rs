//! Guest publications on a real log, through a real session: what is stored, and what the guest and the audit are told.

use std::collections::BTreeSet;
use std::sync::Arc;

use latent_bridge::{
    AppendWatcher, BridgeManifest, BusError, EmbeddedBroker, EventBus, MaintenanceReport, PublishAck, PublishResult, RecordHead,
};
use latent_capabilities::{
    ActivationCapabilityRuntime, AuditRing, CompletionAccount, EVENT_PUBLISHER, EventBinding, EventDraft, ProviderOutcome, ProviderRef,
    Session, SessionSpec,
};
use latent_core::{
    ActivationId, Clock, ContractName, Deadline, Epoch, KnownFailure, LogicalTopic, NewRecord, Offset, Partition, ProviderId,
    PublicationId, PublicationOutcome, Receipt, StoredRecord, SystemClock, TenantId, Ticket, Uid, UncertainCause, UnixMillis,
};
use latent_topics::{PROFILE, PublisherTotals, TopicPublisher};

const MANIFEST: &str = "manifest_version: 1\nname: edge\ntopics:\n  - name: out\n    partitions: 2\n";

struct Bench {
    capabilities: Arc<ActivationCapabilityRuntime>,
    audit: Arc<AuditRing>,
    publisher: Arc<TopicPublisher>,
    clock: Arc<dyn Clock>,
}

impl Bench {
    /// Two tenants, both granted the topic, on one bus.
    fn new(bus: Arc<dyn EventBus>) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let publisher = Arc::new(TopicPublisher::new(bus, "edge", Arc::clone(&clock)));
        let provider = ProviderRef {
            logical_id: ProviderId::parse("topics").unwrap(),
            capability: ContractName::parse(EVENT_PUBLISHER).unwrap(),
            profile: PROFILE.into(),
            epoch: Epoch(1),
            digest: [0; 32],
        };
        let audit = Arc::new(AuditRing::default());
        let capabilities = Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::clone(&audit) as _));
        capabilities.providers().install(provider.clone(), None, Arc::clone(&publisher) as _).unwrap();
        let binding = |tenant| EventBinding {
            publication: PublicationId(1),
            tenant: TenantId::parse(tenant).unwrap(),
            provider: provider.clone(),
            topics: BTreeSet::from([LogicalTopic::parse("out").unwrap()]),
        };
        capabilities.install_events(capabilities.compile_events(["acme", "other"].map(binding)).unwrap()).unwrap();
        Self { capabilities, audit, publisher, clock }
    }

    fn session(&self, tenant: &str) -> Session {
        Session::open(SessionSpec {
            activation: ActivationId::from_random([1; 16]),
            tenant: TenantId::parse(tenant).unwrap(),
            publication: PublicationId(1),
            origin: None,
            outbound_requests: 8,
            deadline: Deadline::after(self.clock.mono(), 60_000),
            capabilities: Arc::clone(&self.capabilities),
            clock: Arc::clone(&self.clock),
        })
    }
}

fn draft(idempotency_key: &str, payload: &str) -> EventDraft {
    EventDraft {
        topic: "out".to_owned(),
        key: Some("k".to_owned()),
        payload: payload.as_bytes().to_vec(),
        media_type: "application/json".to_owned(),
        attributes: vec![("Trace".to_owned(), "t 1".to_owned())],
        idempotency_key: idempotency_key.to_owned(),
    }
}

fn real_log() -> (tempfile::TempDir, Arc<EmbeddedBroker>) {
    let directory = tempfile::tempdir().unwrap();
    let manifest = BridgeManifest::from_yaml(MANIFEST).unwrap();
    let log = Arc::new(EmbeddedBroker::provision(directory.path(), &manifest).unwrap());
    (directory, log)
}

fn stored(log: &EmbeddedBroker) -> Vec<StoredRecord> {
    (0..2).flat_map(|partition| log.submit_fetch("out", Partition(partition), Offset(0), 10).wait().unwrap()).collect()
}

fn receipt(outcome: PublicationOutcome) -> Receipt {
    match outcome {
        PublicationOutcome::Receipt(receipt) => receipt,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_publication_is_stored_as_it_was_given_and_its_receipt_says_where() {
    let (_directory, log) = real_log();
    let bench = Bench::new(Arc::clone(&log) as _);
    let payload = r#"{"metadata":{"uid":"chosen-by-the-guest"},"a":1}"#;
    let got = receipt(bench.session("acme").publish(draft("i", payload)).await.tell());
    assert_eq!((&*got.stream, got.sequence, got.duplicate), ("out", 0, false));
    let records = stored(&log);
    let record = &records[0].record;
    assert_eq!((record.key.as_str(), &record.payload[..], record.media_type.as_str()), ("k", payload.as_bytes(), "application/json"));
    assert_eq!(record.attributes.iter().collect::<Vec<_>>(), [("Trace", "t 1")]);
    assert!(record.uid.as_str().starts_with("lsf-"), "a uid inside the payload is data");
}

#[tokio::test]
async fn the_same_key_stores_once_for_each_tenant_and_other_content_is_a_conflict() {
    let (_directory, log) = real_log();
    let bench = Bench::new(Arc::clone(&log) as _);
    let session = bench.session("acme");
    let first = receipt(session.publish(draft("i", "{}")).await.tell());
    let again = receipt(session.publish(draft("i", "{}")).await.tell());
    assert_eq!((again.sequence, again.duplicate), (first.sequence, true));
    assert!(!receipt(bench.session("other").publish(draft("i", "{}")).await.tell()).duplicate);
    let conflict = session.publish(draft("i", "[]")).await.tell();
    assert_eq!(conflict, PublicationOutcome::KnownFailure(KnownFailure::Conflict));
    let last = bench.audit.records().pop().unwrap();
    assert_eq!((last.observed, last.told), (ProviderOutcome::Rejected { reason: "conflict" }, Some("invalid-event")));
    assert_eq!(bench.publisher.totals(), PublisherTotals { receipts: 3, duplicates: 1, failures: 1, conflicts: 1, uncertain: 0 });
    assert_eq!(stored(&log).len(), 2);
}

#[tokio::test]
async fn a_revoked_grant_stops_the_next_publication() {
    let (_directory, log) = real_log();
    let bench = Bench::new(Arc::clone(&log) as _);
    let session = bench.session("acme");
    receipt(session.publish(draft("i", "{}")).await.tell());
    bench.capabilities.install_events(bench.capabilities.compile_events([]).unwrap()).unwrap();
    let refused = session.publish(draft("j", "{}")).await.tell();
    assert_eq!(refused, PublicationOutcome::KnownFailure(KnownFailure::PermissionDenied));
    assert_eq!(stored(&log).len(), 1);
}

/// A bus whose answer to a publication is chosen: none ever, or an abandoned one.
struct Silent {
    keeps: bool,
    kept: std::sync::Mutex<Vec<latent_core::Completer<PublishResult>>>,
}

impl EventBus for Silent {
    fn submit_record(&self, _topic: &str, record: NewRecord) -> Ticket<PublishResult> {
        let abandoned = BusError::Uncertain { uid: record.uid.unwrap(), cause: UncertainCause::Closed };
        let (ticket, completer) = Ticket::pair(Err(abandoned));
        if self.keeps {
            self.kept.lock().unwrap().push(completer);
        }
        ticket
    }

    fn submit_fetch(&self, _: &str, _: Partition, _: Offset, _: usize) -> Ticket<Result<Vec<StoredRecord>, BusError>> {
        Ticket::ready(Ok(Vec::new()))
    }

    fn submit_heads(&self, _: &str, _: Partition, _: Offset, _: usize) -> Ticket<Result<Vec<RecordHead>, BusError>> {
        Ticket::ready(Ok(Vec::new()))
    }

    fn submit_find(&self, _: &str, _: &str, _: &Uid) -> Ticket<Result<Option<PublishAck>, BusError>> {
        Ticket::ready(Ok(None))
    }

    fn partitions(&self, _: &str) -> Result<u32, BusError> {
        Ok(1)
    }

    fn topics(&self) -> Vec<String> {
        vec!["out".to_owned()]
    }

    fn bounds(&self, _: &str, _: Partition) -> Result<(Offset, Offset), BusError> {
        Ok((Offset(0), Offset(0)))
    }

    fn watch_appends(&self, _: Arc<dyn AppendWatcher>) {}

    fn maintain(&self, _: UnixMillis) -> Result<MaintenanceReport, BusError> {
        Ok(MaintenanceReport::default())
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_that_never_answers_and_one_that_ends_leave_the_publication_uncertain() {
    for (keeps, expected) in [(true, UncertainCause::Deadline), (false, UncertainCause::Closed)] {
        let bench = Bench::new(Arc::new(Silent { keeps, kept: std::sync::Mutex::default() }));
        let PublicationOutcome::Uncertain(uncertain) = bench.session("acme").publish(draft("i", "{}")).await.tell() else {
            panic!("{keeps}")
        };
        assert_eq!(uncertain.cause, expected);
        assert!(uncertain.uid.is_some_and(|uid| uid.as_str().starts_with("lsf-")));
        assert_eq!(bench.publisher.totals(), PublisherTotals { uncertain: 1, ..PublisherTotals::default() });
        let last = bench.audit.records().pop().unwrap();
        assert_eq!((last.observed, last.told), (ProviderOutcome::Unknown { cause: expected.kind() }, Some("uncertain")));
    }
}

#[tokio::test]
async fn the_session_notes_the_uid_also_of_a_conflict_and_of_an_end_that_nobody_saw() {
    let (_directory, log) = real_log();
    let bench = Bench::new(Arc::clone(&log) as _);
    let session = bench.session("acme");
    receipt(session.publish(draft("i", "{}")).await.tell());
    drop(session.publish(draft("i", "[]")).await);
    let noted = session.take_publications();
    let uid = stored(&log)[0].record.uid.clone();
    let expected = [("receipt", Some(&uid)), ("conflict", Some(&uid))];
    assert_eq!(noted.iter().map(|one| (one.kind(), one.uid.as_ref())).collect::<Vec<_>>(), expected);

    let bench = Bench::new(Arc::new(Silent { keeps: true, kept: std::sync::Mutex::default() }));
    let session = bench.session("acme");
    {
        let mut publication = std::pin::pin!(session.publish(draft("i", "{}")));
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(publication.as_mut().poll(cx).is_pending())).await;
        assert!(polled);
        assert_eq!(bench.publisher.totals(), PublisherTotals::default());
    }
    let noted = session.take_publications();
    assert_eq!(noted.iter().map(|one| (one.kind(), one.uid.as_ref())).collect::<Vec<_>>(), [("uncertain", Some(&uid))]);
    assert_eq!(bench.publisher.totals(), PublisherTotals { uncertain: 1, ..PublisherTotals::default() });
}
