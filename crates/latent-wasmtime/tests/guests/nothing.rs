//! The guest that does nothing.

use latent_core::ActivationOutcome;
use latent_test_guests::NOTHING;

use crate::bench::Bench;

#[tokio::test]
async fn a_handler_that_does_nothing_succeeds_and_uses_nearly_nothing() {
    let report = Bench::of(NOTHING.component).run("anything").await;
    assert_eq!((report.outcome, report.log.len()), (ActivationOutcome::Success, 0));
    assert!(report.fuel_used < 100_000, "{}", report.fuel_used);
}
