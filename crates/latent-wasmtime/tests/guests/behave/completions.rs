//! The memory charged for receipts: from the dispatch of a publication until the guest's store is gone, however it goes.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use latent_capabilities::{CompletionAccount, limits};
use latent_core::ActivationOutcome;

use crate::bench::{Answer, Bench};

const CALL: u64 = limits::COMPLETION_CALL_BYTES.default;

/// A bench whose account has room for this many calls.
fn with_room_for(calls: u64) -> Bench {
    Bench { account: CompletionAccount::new(calls * CALL).unwrap(), ..Bench::behave() }
}

/// Drives an activation by hand until the provider was given this many events. From there on the guest waits.
async fn until_given<T>(bench: &Bench, count: usize, running: &mut Pin<Box<impl Future<Output = T>>>) {
    let provider = Arc::clone(&bench.provider);
    while provider.given.lock().unwrap().len() < count {
        let polled = poll_fn(|cx| Poll::Ready(running.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_lowered_receipt_stays_charged_while_its_store_exists_and_returns_with_it() {
    let bench = with_room_for(8).with_answers([Answer::Receipt, Answer::Silence]);
    let mut running = Box::pin(bench.run("publish-many:out:2"));
    until_given(&bench, 2, &mut running).await;
    assert_eq!(bench.account.held_bytes(), 2 * CALL, "one receipt in the guest, one call under way");
    drop(running);
    assert_eq!(bench.account.held_bytes(), 0);
}

#[tokio::test]
async fn a_guest_that_succeeds_rejects_or_traps_with_a_receipt_returns_its_charge() {
    let bench = with_room_for(1);
    for (payload, kind) in [("publish-or-fail:out", "success"), ("publish:out", "rejected"), ("publish-then-trap:out", "trap")] {
        assert_eq!(bench.run(payload).await.outcome.kind(), kind);
        assert_eq!(bench.account.held_bytes(), 0, "{payload}");
    }
    assert_eq!((bench.provider.given.lock().unwrap().len(), bench.account.refused()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_runs_out_of_time_with_a_receipt_returns_its_charge() {
    let bench = with_room_for(2).with_answers([Answer::Receipt, Answer::Silence]);
    assert_eq!(bench.run("publish-many:out:2").await.outcome, ActivationOutcome::Timeout);
    assert_eq!((bench.account.held_bytes(), bench.account.refused()), (0, 0));
}

#[tokio::test]
async fn a_full_account_is_unavailable_to_the_guest_and_never_costs_an_acknowledgement() {
    let bench = with_room_for(2);
    assert_eq!(bench.seen("publish-many:out:3").await, "[Ok(0), Ok(1), Err(Unavailable)]");
    assert_eq!(bench.provider.given.lock().unwrap().len(), 2, "the refused one was not sent");
    assert_eq!((bench.account.held_bytes(), bench.audit.records().len()), (0, 2));
}

#[tokio::test]
async fn activations_share_the_account_of_their_node() {
    let bench = with_room_for(1).with_answers([Answer::Silence]);
    let mut waiting = Box::pin(bench.run("publish:out"));
    until_given(&bench, 1, &mut waiting).await;
    assert_eq!(bench.seen("publish-many:out:1").await, "[Err(Unavailable)]");
    drop(waiting);
    assert_eq!(bench.seen("publish-many:out:1").await, "[Ok(1)]");
}

#[tokio::test]
async fn a_guest_without_a_binding_runs_and_each_of_its_publications_is_denied() {
    let bench = Bench { granted: None, ..Bench::behave() };
    assert_eq!(bench.seen("publish:out").await, "Err(PermissionDenied { topic: \"out\" })");
    assert_eq!(bench.run("ok").await.outcome, ActivationOutcome::Success);
    assert!(bench.provider.given.lock().unwrap().is_empty() && bench.audit.records().is_empty());
}
