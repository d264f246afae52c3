//! A component that is a program and no function.

use latent_core::{ActivationOutcome, ComponentDigest};
use latent_test_guests::COMMAND;

use crate::bench::Bench;

#[tokio::test]
async fn it_is_prepared_and_says_that_it_exports_no_handler() {
    let bench = Bench::of(COMMAND.component);
    assert!(!bench.component.exports_handler());
    assert_eq!(bench.component.digest(), ComponentDigest::of(COMMAND.component));
    assert!(bench.component.code_bytes() > 0);
    assert!(bench.component.imports().any(|name| name.starts_with("wasi:cli/stdout@0.2.")));
    let report = bench.run("ok").await;
    let ActivationOutcome::IncompatibleContract { reason } = report.outcome else { panic!("{report:?}") };
    assert!(reason.contains("does not export latent:events/handler@0.2.0"), "{reason}");
}
