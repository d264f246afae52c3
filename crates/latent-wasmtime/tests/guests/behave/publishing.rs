//! What a guest is told when it publishes, and what becomes of a publication under way when its activation ends.

use std::sync::Arc;

use latent_capabilities::{ProviderOutcome, PublicationEnd};
use latent_core::{ActivationOutcome, KnownFailure, PublicationOutcome, Uncertain, UncertainCause};
use latent_wasmtime::ActivationReport;

use crate::bench::{Answer, Bench, uid_of};

#[tokio::test]
async fn a_granted_publication_reaches_the_provider_as_the_guest_made_it() {
    let bench = Bench::behave();
    let seen = bench.seen("publish:out:repo:key-1").await;
    assert_eq!(seen, "Ok(Receipt { event_id: \"out:0\", stream: \"out\", sequence: 0, accepted_at_unix_millis: 5, duplicate: false })");
    let given = bench.provider.given.lock().unwrap();
    let event = &given[0];
    assert_eq!((event.topic().as_str(), event.key(), event.idempotency_key()), ("out", "repo", "key-1"));
    assert_eq!((event.media_type().as_str(), &event.payload()[..]), ("text/plain;charset=utf-8", &b"from behave"[..]));
    assert_eq!(event.attributes().iter().collect::<Vec<_>>(), [("Kind", "test")]);
}

#[tokio::test]
async fn a_topic_that_is_not_granted_is_a_permission_denied_and_charges_nothing() {
    let bench = Bench::behave().with_budget(|budget| budget.outbound_requests = 1);
    let denied = "Err(PermissionDenied { topic: \"secrets\" })";
    assert_eq!(bench.seen("publish-many:secrets:2").await, format!("[{denied}, {denied}]"));
    assert!(bench.provider.given.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_handler_that_passes_a_failed_publication_on_asks_again_for_a_missing_grant_and_rejects_what_is_no_topic() {
    let bench = Bench::behave();
    let ActivationOutcome::RetryRequested { reason, .. } = bench.run("publish-or-fail:secrets").await.outcome else {
        panic!("a missing grant must not cost the event");
    };
    assert!(reason.contains("topic \"secrets\" is not granted") && reason.contains("topics = [\"secrets\"]"), "{reason}");
    assert_eq!(bench.run("publish-or-fail:$SYS.x").await.outcome.kind(), "rejected");
}

#[tokio::test]
async fn a_name_that_is_no_topic_is_an_invalid_topic() {
    assert_eq!(Bench::behave().seen("publish:$SYS.x").await, "Err(InvalidTopic)");
}

#[tokio::test]
async fn requests_beyond_the_budget_are_refused_without_a_call() {
    let bench = Bench::behave().with_budget(|budget| budget.outbound_requests = 2);
    assert_eq!(bench.seen("publish-many:out:3").await, "[Ok(0), Ok(1), Err(BudgetExhausted)]");
    assert_eq!(bench.provider.given.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn the_reserved_effect_count_is_neither_consumed_nor_reported() {
    let with = |effect_count| Bench::behave().with_budget(|budget| budget.effect_count = effect_count);
    // None would stop a publication if it were consumed.
    let (none, many) = (with(0), with(u64::MAX));
    let (without, with) = (none.run("publish-many:out:2").await, many.run("publish-many:out:2").await);
    assert_eq!(without.outcome, ActivationOutcome::Rejected { reason: "[Ok(0), Ok(1)]".to_owned() });
    assert_eq!(without, with, "the report says nothing of it");
    let (none, many) = (none.audit.records(), many.audit.records());
    assert!(none.len() == 2 && none.iter().zip(&many).all(|(one, other)| (one.observed, one.told) == (other.observed, other.told)));
}

#[tokio::test]
async fn each_outcome_of_the_provider_reaches_the_guest_as_its_own_answer() {
    let known = |failure| Answer::Outcome(PublicationOutcome::KnownFailure(failure));
    let uncertain = Answer::Outcome(PublicationOutcome::Uncertain(Uncertain { uid: None, cause: UncertainCause::Storage }));
    let answers = [known(KnownFailure::Conflict), known(KnownFailure::Unavailable { reason: String::new() }), uncertain, Answer::Receipt];
    let bench = Bench::behave().with_answers(answers);
    assert_eq!(bench.seen("publish-many:out:4").await, "[Err(InvalidEvent), Err(Unavailable), Err(Uncertain), Ok(3)]");
}

#[tokio::test]
async fn a_payload_is_published_up_to_its_bound_and_refused_beyond() {
    let bench = Bench::behave();
    for (bytes, expected) in [(262_143, "Ok(0)"), (262_144, "Ok(1)"), (262_145, "Err(InvalidEvent)"), (1_000_000, "Err(InvalidEvent)")] {
        assert_eq!(bench.seen(&format!("publish-bytes:out:{bytes}")).await, expected, "{bytes}");
    }
}

#[tokio::test]
async fn without_a_key_of_its_own_a_publication_has_the_same_key_whenever_the_event_is_handled_again() {
    let bench = Bench::behave();
    for _ in 0..2 {
        assert_eq!(bench.run("publish-many:out:2").await.outcome.kind(), "rejected");
    }
    let given = bench.provider.given.lock().unwrap();
    let keys: Vec<_> = given.iter().map(|event| event.idempotency_key()).collect();
    assert_eq!(keys[..2], keys[2..]);
    assert_ne!(keys[0], keys[1]);
}

#[tokio::test(start_paused = true)]
async fn a_publication_without_an_answer_ends_with_the_activation_and_stays_uncertain_in_the_audit() {
    let bench = Bench::behave().with_answers([Answer::Silence]);
    let report = bench.run("publish:out").await;
    assert_eq!((&report.outcome, kinds(&report)), (&ActivationOutcome::Timeout, vec!["uncertain"]));
    assert!(report.publications.iter().all(|publication| publication.uid.is_some()));
    let record = &bench.audit.records()[0];
    assert_eq!((record.observed, record.told), (ProviderOutcome::Unknown { cause: "cancelled" }, None));
    bench.assert_healthy().await;
}

#[tokio::test]
async fn dropping_the_activation_drops_its_publication() {
    let bench = Bench::behave().with_answers([Answer::Silence]);
    let provider = Arc::clone(&bench.provider);
    let mut running = Box::pin(bench.run("publish:out"));
    // Driven by hand until the provider has the event; from there on the guest waits.
    while provider.given.lock().unwrap().is_empty() {
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(running.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        tokio::task::yield_now().await;
    }
    assert!(bench.audit.records().is_empty());
    drop(running);
    assert_eq!(bench.audit.records()[0].observed, ProviderOutcome::Unknown { cause: "cancelled" });
    bench.assert_healthy().await;
}

fn kinds(report: &ActivationReport) -> Vec<&'static str> {
    report.publications.iter().map(latent_capabilities::Publication::kind).collect()
}

#[tokio::test]
async fn the_report_names_each_publication_with_its_uid_and_where_it_lies() {
    let known = |failure| Answer::Outcome(PublicationOutcome::KnownFailure(failure));
    let uncertain = Answer::Outcome(PublicationOutcome::Uncertain(Uncertain { uid: None, cause: UncertainCause::Storage }));
    let bench = Bench::behave().with_answers([Answer::Receipt, known(KnownFailure::Conflict), uncertain]);
    let report = bench.run("publish-many:out:3").await;
    assert_eq!(kinds(&report), ["receipt", "conflict", "uncertain"]);
    let given = bench.provider.given.lock().unwrap();
    for (publication, event) in report.publications.iter().zip(given.iter()) {
        assert_eq!((&publication.topic, &publication.uid), (event.topic(), &Some(uid_of(event))));
    }
    let first = report.publications.iter().next().map(|publication| publication.end.clone());
    assert_eq!(first, Some(PublicationEnd::Stored { stream: "out".into(), sequence: 0, duplicate: false }));
}

#[tokio::test]
async fn a_trapped_guest_s_publications_are_in_its_report() {
    let report = Bench::behave().run("publish-then-trap:out").await;
    assert_eq!((report.outcome.kind(), kinds(&report)), ("trap", vec!["receipt"]));
}

#[tokio::test]
async fn what_a_stopped_activation_had_under_way_is_known_to_its_session() {
    let bench = Bench::behave().with_answers([Answer::Receipt, Answer::Silence]);
    let provider = Arc::clone(&bench.provider);
    let session = bench.session();
    let mut running = Box::pin(bench.run_in(session.clone(), "publish-many:out:2"));
    while provider.given.lock().unwrap().len() < 2 {
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(running.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        tokio::task::yield_now().await;
    }
    drop(running);
    let kinds: Vec<_> = session.take_publications().iter().map(latent_capabilities::Publication::kind).collect();
    assert_eq!(kinds, ["receipt", "uncertain"]);
}
