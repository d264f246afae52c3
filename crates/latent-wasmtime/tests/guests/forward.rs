//! The guest that publishes what it is given.

use latent_core::ActivationOutcome;
use latent_test_guests::FORWARD;

use crate::bench::{Bench, GRANTED};

#[tokio::test]
async fn what_comes_in_goes_out_once_with_its_key_under_a_derived_one() {
    let bench = Bench::of(FORWARD.component);
    assert_eq!(bench.run("a payload").await.outcome, ActivationOutcome::Success);
    assert_eq!(bench.run("a payload").await.outcome, ActivationOutcome::Success);
    let given = bench.provider.given.lock().unwrap();
    let [first, again] = given.as_slice() else { panic!("{} publications", given.len()) };
    assert_eq!((first.topic().as_str(), first.key(), &first.payload()[..]), (GRANTED, "k", &b"a payload"[..]));
    assert_eq!(first.idempotency_key(), again.idempotency_key(), "the same event again");
}
