//! What a session notes of its publications, however they end.

use latent_core::Uncertain;

use super::*;
use crate::PublicationEnd;

/// A bench whose topic leads to this provider.
fn bench_with(provider: Arc<dyn EventPublisher>) -> Bench {
    let bench = bench(Answer::Silence, |_, _| ());
    let capabilities = &bench.capabilities;
    capabilities.providers().install(reference(2), Some(Epoch(1)), provider).unwrap();
    let rebound = EventBinding { provider: reference(2), ..granted() };
    capabilities.install_events(capabilities.compile_events([rebound]).unwrap()).unwrap();
    bench
}

fn noted(session: &Session) -> Vec<(String, Option<Uid>, &'static str, PublicationEnd)> {
    let noted = session.take_publications();
    noted.iter().map(|one| (one.topic.to_string(), one.uid.clone(), one.kind(), one.end.clone())).collect()
}

fn noted_of(answer: Answer) -> (&'static str, PublicationEnd) {
    let bench = bench(answer, |_, _| ());
    drop(poll_once(&bench.session, "out"));
    let mut noted = noted(&bench.session);
    let (topic, named, kind, end) = noted.pop().unwrap();
    assert_eq!((topic.as_str(), named, noted.len()), ("out", Some(uid()), 0), "{kind}");
    (kind, end)
}

#[test]
fn each_end_is_noted_with_the_uid_that_the_provider_said() {
    let known = |failure| Answer::Outcome(PublicationOutcome::KnownFailure(failure));
    let uncertain = |cause| Answer::Outcome(PublicationOutcome::Uncertain(Uncertain { uid: None, cause }));
    let stored = PublicationEnd::Stored { stream: "s".into(), sequence: 1, duplicate: true };
    assert_eq!(noted_of(receipt_in("s")), ("duplicate", stored));
    assert_eq!(noted_of(known(KnownFailure::Conflict)), ("conflict", PublicationEnd::Conflict));
    assert_eq!(noted_of(known(KnownFailure::InvalidTopic)), ("invalid-topic", PublicationEnd::Failed { reason: "invalid-topic" }));
    let storage = PublicationEnd::Uncertain { cause: "storage" };
    assert_eq!(noted_of(uncertain(UncertainCause::Storage)), ("uncertain", storage));
}

#[test]
fn a_receipt_that_cannot_be_used_is_noted_as_the_guest_is_told() {
    let unusable = PublicationEnd::Uncertain { cause: "unusable" };
    assert_eq!(noted_of(receipt_in(&"s".repeat(limits::RECEIPT_STREAM_BYTES.max_usize() + 1))), ("uncertain", unusable));
}

#[test]
fn a_publication_under_way_is_noted_as_uncertain_when_its_caller_goes_and_not_before() {
    let bench = bench(Answer::Silence, |_, _| ());
    {
        let mut publication = pin!(bench.session.publish(draft("out")));
        assert!(publication.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(bench.session.take_publications().is_empty());
    }
    let cancelled = PublicationEnd::Uncertain { cause: "cancelled" };
    assert_eq!(noted(&bench.session), [("out".to_owned(), Some(uid()), "uncertain", cancelled)]);
    assert!(bench.session.take_publications().is_empty(), "each is taken once");
}

#[test]
fn a_publication_given_up_before_it_started_is_noted_as_cancelled_without_a_uid() {
    let keeping = Arc::new(Keeping::default());
    let bench = bench_with(Arc::clone(&keeping) as _);
    assert!(poll_once(&bench.session, "out").is_pending());
    // What the provider says of it afterwards changes nothing.
    let request = keeping.0.lock().unwrap().take().unwrap();
    request.authority.publishes_under(&uid());
    let cancelled = PublicationEnd::Failed { reason: "cancelled" };
    assert_eq!(noted(&bench.session), [("out".to_owned(), None, "cancelled", cancelled)]);
}

#[test]
fn what_is_refused_before_admission_is_no_attempt_and_not_noted() {
    let bench = bench(receipt_in("s"), |_, _| ());
    for topic in ["other", "a b"] {
        drop(completed(&bench.session, topic));
    }
    assert!(bench.session.take_publications().is_empty());
}

#[test]
fn an_attempt_that_was_refused_when_it_was_to_start_is_noted_with_the_reason() {
    let bench = bench(receipt_in("s"), |capabilities, _| revoke(capabilities));
    drop(completed(&bench.session, "out"));
    let denied = PublicationEnd::Failed { reason: "permission-denied" };
    assert_eq!(noted(&bench.session), [("out".to_owned(), None, "permission-denied", denied)]);
}

#[test]
fn a_uid_that_the_provider_says_with_an_uncertain_end_only_is_noted_too() {
    struct Late;
    impl EventPublisher for Late {
        fn publish(&self, request: PublishRequest) -> PublishFuture {
            assert!(request.authorise_now().is_ok());
            let uncertain = Uncertain { uid: Some(uid()), cause: UncertainCause::Closed };
            Box::pin(std::future::ready(PublicationOutcome::Uncertain(uncertain)))
        }
    }
    let bench = bench_with(Arc::new(Late));
    drop(completed(&bench.session, "out"));
    assert_eq!(noted(&bench.session)[0].1, Some(uid()));
}

#[test]
fn only_the_first_uid_counts() {
    struct Twice;
    impl EventPublisher for Twice {
        fn publish(&self, request: PublishRequest) -> PublishFuture {
            let (_, authority) = request.authorise_now().unwrap();
            ["first", "second"].iter().for_each(|text| authority.publishes_under(&Uid::parse(text).unwrap()));
            Box::pin(std::future::ready(PublicationOutcome::KnownFailure(KnownFailure::Conflict)))
        }
    }
    let bench = bench_with(Arc::new(Twice));
    drop(completed(&bench.session, "out"));
    assert_eq!(noted(&bench.session)[0].1, Some(Uid::parse("first").unwrap()));
}
