//! The guest that publishes its event many times.

use latent_core::ActivationOutcome;
use latent_test_guests::REPEAT;

use crate::bench::Bench;

#[tokio::test]
async fn an_event_whose_key_is_no_number_is_rejected_and_publishes_nothing() {
    let bench = Bench::of(REPEAT.component);
    match bench.run("a payload").await.outcome {
        ActivationOutcome::Rejected { reason } => assert!(reason.contains("the key \"k\""), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(bench.provider.given.lock().unwrap().is_empty());
}

#[tokio::test]
async fn it_publishes_as_often_as_its_key_says_each_time_under_another_derived_key() {
    let bench = Bench::of(REPEAT.component);
    assert_eq!(bench.run_under_key("3", "a payload").await.outcome, ActivationOutcome::Success);
    let given = bench.provider.given.lock().unwrap();
    assert!(given.iter().all(|event| &event.payload()[..] == b"a payload" && event.key().is_empty()));
    let keys: std::collections::BTreeSet<_> = given.iter().map(|event| event.idempotency_key().to_owned()).collect();
    assert_eq!((given.len(), keys.len()), (3, 3));
}
