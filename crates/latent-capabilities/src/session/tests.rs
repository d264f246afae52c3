//! One session on one provider that follows a script. What is about the answer's memory is in `charges`, what is noted of a
//! publication in `publications`.

mod charges;
mod publications;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use latent_core::{BindingId, Epoch, LogicalTopic, MonoTime, Offset, Partition, Receipt, TopicName, UncertainCause, UnixMillis};

use super::*;
use crate::provider::tests::{Never, reference};
use crate::{AuditRing, CompletionAccount, EventBinding, ProviderOutcome, PublishFuture};

/// Time that stands still unless a test moves it.
struct FixedClock(Mutex<MonoTime>);

impl Clock for FixedClock {
    fn mono(&self) -> MonoTime {
        *self.0.lock().unwrap()
    }

    fn unix(&self) -> UnixMillis {
        UnixMillis(self.mono().as_micros() / 1_000)
    }
}

/// What the provider does with an event that it was given.
#[derive(Clone)]
enum Answer {
    Outcome(PublicationOutcome),
    Silence,
}

/// Publishes nothing; runs `before` between the call and the second authorisation, then answers or hangs.
struct Scripted {
    before: Box<dyn Fn() + Send + Sync>,
    answer: Answer,
    calls: AtomicU64,
}

impl EventPublisher for Scripted {
    fn publish(&self, request: PublishRequest) -> PublishFuture {
        self.calls.fetch_add(1, Ordering::Relaxed);
        (self.before)();
        match (request.authorise_now(), self.answer.clone()) {
            (Err(failure), _) => Box::pin(std::future::ready(PublicationOutcome::KnownFailure(failure))),
            (Ok((_, authority)), answer) => {
                authority.publishes_under(&uid());
                match answer {
                    Answer::Outcome(outcome) => Box::pin(std::future::ready(outcome)),
                    Answer::Silence => Box::pin(std::future::pending()),
                }
            }
        }
    }
}

struct Bench {
    session: Session,
    capabilities: Arc<ActivationCapabilityRuntime>,
    audit: Arc<AuditRing>,
    provider: Arc<Scripted>,
}

fn uid() -> Uid {
    Uid::parse("uid-of-the-provider").unwrap()
}

fn receipt_in(stream: &str) -> Answer {
    Answer::Outcome(PublicationOutcome::Receipt(Receipt {
        stream: stream.into(),
        sequence: 1,
        duplicate: true,
        accepted_at: UnixMillis(0),
    }))
}

fn tenant() -> TenantId {
    TenantId::parse("acme").unwrap()
}

fn granted() -> EventBinding {
    let topics = BTreeSet::from([LogicalTopic::parse("out").unwrap()]);
    EventBinding { publication: PublicationId(1), tenant: tenant(), provider: reference(1), topics }
}

fn bench(answer: Answer, before: impl Fn(&ActivationCapabilityRuntime, &FixedClock) + Send + Sync + 'static) -> Bench {
    bench_on(CompletionAccount::default(), answer, before)
}

fn bench_on(
    account: CompletionAccount,
    answer: Answer,
    before: impl Fn(&ActivationCapabilityRuntime, &FixedClock) + Send + Sync + 'static,
) -> Bench {
    let audit = Arc::new(AuditRing::default());
    let capabilities = Arc::new(ActivationCapabilityRuntime::new(account, Arc::clone(&audit) as _));
    let clock = Arc::new(FixedClock(Mutex::new(MonoTime::ZERO)));
    let (weak, clock_before) = (Arc::downgrade(&capabilities), Arc::clone(&clock));
    let provider =
        Arc::new(Scripted { before: Box::new(move || before(&weak.upgrade().unwrap(), &clock_before)), answer, calls: AtomicU64::new(0) });
    capabilities.providers().install(reference(1), None, Arc::clone(&provider) as Arc<dyn EventPublisher>).unwrap();
    capabilities.install_events(capabilities.compile_events([granted()]).unwrap()).unwrap();
    let session = Session::open(SessionSpec {
        activation: ActivationId::from_random([1; 16]),
        tenant: tenant(),
        publication: PublicationId(1),
        origin: Some(Origin {
            binding: BindingId::parse("b").unwrap(),
            topic: TopicName::parse("in").unwrap(),
            partition: Partition(0),
            offset: Offset(0),
            stored_at: None,
        }),
        outbound_requests: 2,
        deadline: Deadline::after(MonoTime::ZERO, 100),
        capabilities: Arc::clone(&capabilities),
        clock,
    });
    Bench { session, capabilities, audit, provider }
}

/// Puts an empty plan in force.
fn revoke(capabilities: &ActivationCapabilityRuntime) {
    capabilities.install_events(capabilities.compile_events([]).unwrap()).unwrap();
}

fn draft(topic: &str) -> EventDraft {
    EventDraft {
        topic: topic.into(),
        payload: b"secret-payload".to_vec(),
        media_type: "text/plain".into(),
        idempotency_key: "i".into(),
        ..EventDraft::default()
    }
}

fn poll_once(session: &Session, topic: &str) -> Poll<EventCompletion> {
    pin!(session.publish(draft(topic))).poll(&mut Context::from_waker(Waker::noop()))
}

/// The completion of a publication whose provider answers at once.
fn completed(session: &Session, topic: &str) -> EventCompletion {
    match poll_once(session, topic) {
        Poll::Ready(completion) => completion,
        Poll::Pending => panic!("the provider answers at once"),
    }
}

fn failure(session: &Session, topic: &str) -> KnownFailure {
    match completed(session, topic).tell() {
        PublicationOutcome::KnownFailure(failure) => failure,
        other => panic!("{other:?}"),
    }
}

impl Bench {
    fn calls(&self) -> u64 {
        self.provider.calls.load(Ordering::Relaxed)
    }
}

#[test]
fn a_granted_publication_charges_one_request_even_when_it_is_a_duplicate() {
    let bench = bench(receipt_in("s"), |_, _| ());
    for left in [1, 0] {
        assert!(matches!(completed(&bench.session, "out").tell(), PublicationOutcome::Receipt(receipt) if receipt.duplicate));
        assert_eq!(bench.session.requests_left(), left);
    }
    let records = bench.audit.records();
    assert_eq!((records.len(), records[0].observed), (2, ProviderOutcome::Acknowledged { duplicate: true }));
    assert_eq!(records[0].told, Some("receipt"));
    assert!(!format!("{records:?}").contains("secret-payload"));
}

#[test]
fn what_is_refused_before_admission_charges_nothing_and_reaches_no_provider() {
    let bench = bench(receipt_in("s"), |_, _| ());
    assert_eq!(failure(&bench.session, "other"), KnownFailure::PermissionDenied);
    assert_eq!(failure(&bench.session, "a b"), KnownFailure::InvalidTopic);
    assert_eq!((bench.session.requests_left(), bench.calls()), (2, 0));
    assert!(bench.audit.records().is_empty());
}

#[test]
fn a_service_without_a_binding_is_refused_explicitly_before_any_provider() {
    let bench = bench(receipt_in("s"), |_, _| ());
    revoke(&bench.capabilities);
    assert_eq!(failure(&bench.session, "out"), KnownFailure::PermissionDenied);
    assert_eq!((bench.session.requests_left(), bench.calls(), bench.audit.records().len()), (2, 0, 0));
}

#[test]
fn a_spent_budget_refuses_without_a_call() {
    let bench = bench(receipt_in("s"), |_, _| ());
    for _ in 0..2 {
        drop(completed(&bench.session, "out"));
    }
    assert_eq!(failure(&bench.session, "out"), KnownFailure::BudgetExhausted);
    assert_eq!((bench.calls(), bench.audit.records().len()), (2, 2));
}

#[test]
fn sessions_that_share_a_budget_on_many_threads_spend_it_exactly() {
    for _ in 0..50 {
        let bench = bench(receipt_in("s"), |_, _| ());
        let receipts = std::thread::scope(|scope| {
            let publish = || {
                let session = bench.session.clone();
                scope.spawn(move || matches!(completed(&session, "out").tell(), PublicationOutcome::Receipt(_)))
            };
            let threads: Vec<_> = (0..4).map(|_| publish()).collect();
            threads.into_iter().map(|thread| u64::from(thread.join().unwrap())).sum::<u64>()
        });
        assert_eq!((receipts, bench.calls(), bench.session.requests_left()), (2, 2, 0));
        assert_eq!(bench.capabilities.completions().held_bytes(), 0);
    }
}

#[test]
fn a_grant_revoked_while_queued_stops_the_publication() {
    let bench = bench(receipt_in("s"), |capabilities, _| revoke(capabilities));
    assert_eq!(failure(&bench.session, "out"), KnownFailure::PermissionDenied);
    assert_eq!(bench.audit.records()[0].observed, ProviderOutcome::NotStarted { reason: "permission-denied" });
    assert_eq!(bench.capabilities.plan_epoch(), Epoch(2));
}

#[test]
fn a_provider_replaced_while_a_call_is_queued_stops_the_call() {
    let replace = |capabilities: &ActivationCapabilityRuntime, _: &FixedClock| {
        capabilities.providers().install(reference(2), Some(Epoch(1)), Arc::new(Never)).unwrap();
    };
    let bench = bench(receipt_in("s"), replace);
    assert_eq!(failure(&bench.session, "out").kind(), "unavailable");
    assert_eq!(bench.audit.records()[0].observed, ProviderOutcome::NotStarted { reason: "unavailable" });
    assert_eq!(failure(&bench.session, "out").kind(), "unavailable");
    assert_eq!((bench.calls(), bench.session.requests_left()), (1, 1));
}

/// Takes the event at once and answers when it is polled the second time.
struct Slow;

impl EventPublisher for Slow {
    fn publish(&self, request: PublishRequest) -> PublishFuture {
        let accepted = request.authorise_now().is_ok();
        let mut polled = false;
        Box::pin(std::future::poll_fn(move |_| {
            if !std::mem::replace(&mut polled, true) {
                return Poll::Pending;
            }
            assert!(accepted);
            let Answer::Outcome(outcome) = receipt_in("s") else { unreachable!() };
            Poll::Ready(outcome)
        }))
    }
}

#[test]
fn a_publication_that_was_accepted_keeps_its_receipt_when_plan_and_provider_are_replaced() {
    let bench = bench(Answer::Silence, |_, _| ());
    let capabilities = &bench.capabilities;
    capabilities.providers().install(reference(2), Some(Epoch(1)), Arc::new(Slow)).unwrap();
    let rebound = EventBinding { provider: reference(2), ..granted() };
    capabilities.install_events(capabilities.compile_events([rebound]).unwrap()).unwrap();
    let mut publication = pin!(bench.session.publish(draft("out")));
    let context = &mut Context::from_waker(Waker::noop());
    assert!(publication.as_mut().poll(context).is_pending());
    revoke(capabilities);
    capabilities.providers().install(reference(3), Some(Epoch(2)), Arc::new(Never)).unwrap();
    let Poll::Ready(completion) = publication.poll(context) else { panic!("the provider answers the second time") };
    assert!(matches!(completion.tell(), PublicationOutcome::Receipt(_)));
    assert_eq!(failure(&bench.session, "out"), KnownFailure::PermissionDenied);
}

#[test]
fn a_deadline_that_passes_in_the_queue_is_kept_as_the_cause() {
    let bench = bench(receipt_in("s"), |_, clock| *clock.0.lock().unwrap() = MonoTime::from_millis(100));
    assert_eq!(failure(&bench.session, "out"), KnownFailure::DeadlineExceeded);
    assert_eq!(failure(&bench.session, "out"), KnownFailure::DeadlineExceeded);
    assert_eq!(bench.calls(), 1);
    let record = &bench.audit.records()[0];
    assert_eq!((record.admitted_at, record.ended_at), (UnixMillis(0), UnixMillis(100)));
}

#[test]
fn an_interrupted_publication_is_audited_as_unknown_and_told_to_nobody() {
    let bench = bench(Answer::Silence, |_, _| ());
    assert!(poll_once(&bench.session, "out").is_pending());
    let records = bench.audit.records();
    assert_eq!((records.len(), records[0].observed, records[0].told), (1, ProviderOutcome::Unknown { cause: "cancelled" }, None));
}

#[test]
fn a_guest_interrupted_after_the_acknowledgement_is_audited_as_acknowledged_and_not_told() {
    let bench = bench(receipt_in("s"), |_, _| ());
    drop(completed(&bench.session, "out"));
    let records = bench.audit.records();
    assert_eq!((records.len(), records[0].observed, records[0].told), (1, ProviderOutcome::Acknowledged { duplicate: true }, None));
}

/// Keeps its request, so that it can be started after its caller has gone.
#[derive(Default)]
struct Keeping(Mutex<Option<PublishRequest>>);

impl EventPublisher for Keeping {
    fn publish(&self, request: PublishRequest) -> PublishFuture {
        *self.0.lock().unwrap() = Some(request);
        Box::pin(std::future::pending())
    }
}

#[test]
fn a_publication_given_up_before_it_started_can_no_longer_start() {
    let bench = bench(Answer::Silence, |_, _| ());
    let (capabilities, keeping) = (&bench.capabilities, Arc::new(Keeping::default()));
    capabilities.providers().install(reference(2), Some(Epoch(1)), Arc::clone(&keeping) as _).unwrap();
    let rebound = EventBinding { provider: reference(2), ..granted() };
    capabilities.install_events(capabilities.compile_events([rebound]).unwrap()).unwrap();
    assert!(poll_once(&bench.session, "out").is_pending());
    assert_eq!(bench.audit.records()[0].observed, ProviderOutcome::NotStarted { reason: "cancelled" });
    let request = keeping.0.lock().unwrap().take().unwrap();
    assert_eq!(request.authorise_now().map(|_| ()), Err(KnownFailure::Cancelled));
}

#[test]
fn derived_keys_repeat_with_the_same_origin_and_ordinal() {
    let keys = |session: &Session| [session.derive().unwrap(), session.derive().unwrap()];
    let first = keys(&bench(receipt_in("s"), |_, _| ()).session);
    assert_eq!(first, keys(&bench(receipt_in("s"), |_, _| ()).session));
    assert_ne!(first[0], first[1]);
}
