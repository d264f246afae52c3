//! Completion memory from admission to the end of the store: neither leaked nor returned early, wherever a publication is dropped.

use latent_core::PublicationOutcome;

use super::*;

const CALL: u64 = limits::COMPLETION_CALL_BYTES.default;

fn held(bench: &Bench) -> u64 {
    bench.capabilities.completions().held_bytes()
}

/// An account with room for this many calls.
fn room_for(calls: u64) -> CompletionAccount {
    CompletionAccount::new(calls * CALL).unwrap()
}

#[test]
fn a_publication_that_never_began_charges_nothing() {
    let bench = bench(receipt_in("s"), |_, _| ());
    drop(bench.session.publish(draft("out")));
    assert_eq!((held(&bench), bench.session.requests_left(), bench.audit.records().len()), (0, 2, 0));
}

#[test]
fn a_refused_publication_keeps_nothing_charged() {
    let bench = bench(receipt_in("s"), |_, _| ());
    let mut completion = completed(&bench.session, "other");
    assert_eq!((held(&bench), completion.take_owner().bytes()), (0, 0));
}

#[test]
fn the_charge_is_there_before_the_provider_is_called() {
    let bench = bench(receipt_in("s"), |capabilities, _| assert_eq!(capabilities.completions().held_bytes(), CALL));
    drop(completed(&bench.session, "out"));
    assert_eq!((bench.calls(), held(&bench)), (1, 0));
}

#[test]
fn a_pending_publication_returns_its_charge_when_it_is_dropped_and_not_before() {
    let bench = bench(Answer::Silence, |_, _| ());
    {
        let mut publication = pin!(bench.session.publish(draft("out")));
        assert!(publication.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(held(&bench), CALL);
    }
    assert_eq!((held(&bench), bench.session.requests_left()), (0, 1));
}

#[test]
fn a_publication_stopped_at_the_second_authorisation_returns_its_charge_with_its_owner() {
    let bench = bench(receipt_in("s"), |capabilities, _| revoke(capabilities));
    let completion = completed(&bench.session, "out");
    assert_eq!(held(&bench), CALL);
    drop(completion);
    assert_eq!(held(&bench), 0);
}

#[test]
fn a_told_receipt_stays_charged_until_its_owner_goes() {
    let bench = bench(receipt_in("s"), |_, _| ());
    let mut completion = completed(&bench.session, "out");
    let owner = completion.take_owner();
    assert!(matches!(completion.tell(), PublicationOutcome::Receipt(_)));
    assert_eq!((held(&bench), owner.bytes()), (CALL, CALL));
    drop(owner);
    assert_eq!(held(&bench), 0);
}

#[test]
fn a_full_account_refuses_before_the_provider_and_charges_nothing_at_its_edge() {
    let bench = bench_on(room_for(1), receipt_in("s"), |_, _| ());
    let first = completed(&bench.session, "out");
    let KnownFailure::Unavailable { reason } = failure(&bench.session, "out") else { panic!("the account is full") };
    assert!(reason.contains("completion_bytes"), "{reason}");
    assert_eq!((bench.calls(), bench.session.requests_left(), held(&bench)), (1, 1, CALL));
    assert_eq!((bench.audit.records().len(), bench.capabilities.completions().refused()), (0, 1));
    drop(first);
    assert!(matches!(completed(&bench.session, "out").tell(), PublicationOutcome::Receipt(_)));
}

#[test]
fn a_session_without_requests_does_not_touch_the_account() {
    let bench = bench_on(room_for(2), receipt_in("s"), |_, _| ());
    let held_by_guest = [completed(&bench.session, "out").take_owner(), completed(&bench.session, "out").take_owner()];
    assert_eq!(failure(&bench.session, "out"), KnownFailure::BudgetExhausted);
    assert_eq!((bench.capabilities.completions().refused(), held(&bench)), (0, 2 * CALL));
    drop(held_by_guest);
    assert_eq!(held(&bench), 0);
}

#[test]
fn a_receipt_fits_its_charge_at_the_edge_and_is_uncertain_beyond_it() {
    let most = limits::RECEIPT_STREAM_BYTES.max_usize();
    for bytes in [most - 1, most] {
        let completion = completed(&bench(receipt_in(&"s".repeat(bytes)), |_, _| ()).session, "out");
        assert!(matches!(completion.tell(), PublicationOutcome::Receipt(receipt) if receipt.stream.len() == bytes), "{bytes}");
    }
    let bench = bench(receipt_in(&"s".repeat(most + 1)), |_, _| ());
    let outcome = completed(&bench.session, "out").tell();
    assert!(matches!(outcome, PublicationOutcome::Uncertain(uncertain) if uncertain.cause == UncertainCause::Unusable));
    let record = &bench.audit.records()[0];
    assert_eq!((record.observed, record.told), (ProviderOutcome::Acknowledged { duplicate: true }, Some("uncertain")));
}
