use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use latent_core::{BindingId, Epoch, LogicalTopic, MonoTime, Offset, Partition, ProviderId, Receipt, TopicName, UnixMillis};

use super::*;
use crate::{AuditRing, EventBinding, EventPublisher, Plan, PublishFuture, ServicePlan};

/// Time that stands still unless a test moves it.
struct FixedClock(Mutex<MonoTime>);

impl Clock for FixedClock {
    fn mono(&self) -> MonoTime {
        *self.0.lock().unwrap()
    }

    fn unix(&self) -> UnixMillis {
        UnixMillis(0)
    }
}

/// Publishes nothing; runs `before` between the call and the second authorisation, then answers or hangs.
struct Scripted {
    before: Box<dyn Fn() + Send + Sync>,
    answers: bool,
    calls: AtomicU64,
}

impl EventPublisher for Scripted {
    fn publish(&self, request: PublishRequest) -> PublishFuture {
        self.calls.fetch_add(1, Ordering::Relaxed);
        (self.before)();
        let outcome = match request.authorise_now() {
            Err(failure) => PublicationOutcome::KnownFailure(failure),
            Ok(_) => PublicationOutcome::Receipt(Receipt { stream: "s".into(), sequence: 1, duplicate: true, accepted_at: UnixMillis(0) }),
        };
        if self.answers { Box::pin(std::future::ready(outcome)) } else { Box::pin(std::future::pending()) }
    }
}

struct Bench {
    session: Session,
    plans: Arc<PlanBook>,
    audit: Arc<AuditRing>,
    provider: Arc<Scripted>,
}

fn bench(answers: bool, before: impl Fn(&PlanBook, &FixedClock) + Send + Sync + 'static) -> Bench {
    let reference = ProviderRef { logical_id: ProviderId::parse("topics").unwrap(), profile: "p".into(), epoch: Epoch(1), digest: [0; 32] };
    let tenant = TenantId::parse("acme").unwrap();
    let topics = BTreeMap::from([(LogicalTopic::parse("out").unwrap(), reference.clone())]);
    let service = ServicePlan { events: Some(EventBinding { topics }) };
    let plans = Arc::new(PlanBook::new(Plan::default().with(PublicationId(1), tenant.clone(), service)));
    let clock = Arc::new(FixedClock(Mutex::new(MonoTime::ZERO)));
    let (plans_before, clock_before) = (Arc::clone(&plans), Arc::clone(&clock));
    let provider = Arc::new(Scripted { before: Box::new(move || before(&plans_before, &clock_before)), answers, calls: AtomicU64::new(0) });
    let providers = Arc::new(Providers::default());
    providers.install(reference, None, Arc::clone(&provider) as Arc<dyn EventPublisher>).unwrap();
    let audit = Arc::new(AuditRing::default());
    let session = Session::open(SessionSpec {
        activation: ActivationId::from_random([1; 16]),
        tenant,
        publication: PublicationId(1),
        origin: Some(Origin {
            binding: BindingId::parse("b").unwrap(),
            topic: TopicName::parse("in").unwrap(),
            partition: Partition(0),
            offset: Offset(0),
        }),
        outbound_requests: 2,
        deadline: Deadline::after(MonoTime::ZERO, 100),
        plans: Arc::clone(&plans),
        providers,
        audit: Arc::clone(&audit) as Arc<dyn AuditSink>,
        clock,
    });
    Bench { session, plans, audit, provider }
}

fn draft(topic: &str) -> EventDraft {
    EventDraft {
        topic: topic.into(),
        payload: Bytes::from_static(b"secret-payload"),
        media_type: "text/plain".into(),
        idempotency_key: "i".into(),
        ..EventDraft::default()
    }
}

fn poll_once(session: &Session, topic: &str) -> Poll<PublicationOutcome> {
    pin!(session.publish(draft(topic))).poll(&mut Context::from_waker(Waker::noop()))
}

fn failure(outcome: Poll<PublicationOutcome>) -> KnownFailure {
    match outcome {
        Poll::Ready(PublicationOutcome::KnownFailure(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_granted_publication_charges_one_request_even_when_it_is_a_duplicate() {
    let bench = bench(true, |_, _| ());
    assert!(matches!(poll_once(&bench.session, "out"), Poll::Ready(PublicationOutcome::Receipt(_))));
    assert_eq!(bench.session.requests_left(), 1);
    let records = bench.audit.records();
    assert_eq!(records[0].observed, ProviderOutcome::Acknowledged { duplicate: true });
    assert_eq!(records[0].told, Some("receipt"));
    assert!(!format!("{records:?}").contains("secret-payload"));
}

#[test]
fn what_is_refused_before_admission_charges_nothing_and_reaches_no_provider() {
    let bench = bench(true, |_, _| ());
    assert_eq!(failure(poll_once(&bench.session, "other")), KnownFailure::PermissionDenied);
    assert_eq!(failure(poll_once(&bench.session, "a b")), KnownFailure::InvalidTopic);
    assert_eq!((bench.session.requests_left(), bench.provider.calls.load(Ordering::Relaxed)), (2, 0));
    assert!(bench.audit.records().is_empty());
}

#[test]
fn a_spent_budget_refuses_without_a_call() {
    let bench = bench(true, |_, _| ());
    for _ in 0..2 {
        assert!(poll_once(&bench.session, "out").is_ready());
    }
    assert_eq!(failure(poll_once(&bench.session, "out")), KnownFailure::BudgetExhausted);
    assert_eq!(bench.provider.calls.load(Ordering::Relaxed), 2);
}

#[test]
fn a_grant_revoked_while_queued_stops_the_publication() {
    let bench = bench(true, |plans, _| assert!(plans.replace(plans.generation(), Plan::default()).is_ok()));
    assert_eq!(failure(poll_once(&bench.session, "out")), KnownFailure::PermissionDenied);
    assert_eq!(bench.audit.records()[0].observed, ProviderOutcome::NotStarted { reason: "permission-denied" });
    assert_eq!(bench.plans.generation(), 2);
}

#[test]
fn a_deadline_that_passes_in_the_queue_is_kept_as_the_cause() {
    let bench = bench(true, |_, clock| *clock.0.lock().unwrap() = MonoTime::from_millis(100));
    assert_eq!(failure(poll_once(&bench.session, "out")), KnownFailure::DeadlineExceeded);
    assert_eq!(failure(poll_once(&bench.session, "out")), KnownFailure::DeadlineExceeded);
    assert_eq!(bench.provider.calls.load(Ordering::Relaxed), 1);
}

#[test]
fn an_interrupted_publication_is_audited_as_unknown_and_told_to_nobody() {
    let bench = bench(false, |_, _| ());
    assert!(poll_once(&bench.session, "out").is_pending());
    let record = &bench.audit.records()[0];
    assert_eq!((record.observed, record.told), (ProviderOutcome::Unknown { cause: "cancelled" }, None));
}

#[test]
fn derived_keys_repeat_with_the_same_origin_and_ordinal() {
    let keys = |session: &Session| [session.derive().unwrap(), session.derive().unwrap()];
    let first = keys(&bench(true, |_, _| ()).session);
    assert_eq!(first, keys(&bench(true, |_, _| ()).session));
    assert_ne!(first[0], first[1]);
}
