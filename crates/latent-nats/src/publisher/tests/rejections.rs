//! Refusals of a publication that was written: the few that prove that nothing was stored, and all the others.

use latent_capabilities::limits::POOL_CHUNK_BYTES;
use latent_capabilities::{EventDraft, PoolSettings};
use latent_core::{KnownFailure, UncertainCause};
use latent_testkit::fake_peer::{INFO, Step};

use super::bench::{Bench, STORED, Setup, event, failure, receipt, serve, serve_each, uncertain};
use super::replies::{all_close_with, kept, with_headers};

/// P-050, P-034, BUG-23: the closed list of what was certainly not stored. The connection is kept.
#[tokio::test]
async fn no_responders_and_the_listed_rejections_are_known_failures_and_keep_the_connection() {
    let refused = |code: u32, err_code: u32, stream: &str| {
        let error = format!(r#"{{"code":{code},"err_code":{err_code},"description":"MARKER of the broker"}}"#);
        Step::reply_message(format!(r#"{{"error":{error},"stream":"{stream}","seq":0}}"#))
    };
    let outcomes = kept(vec![
        with_headers(b"NATS/1.0 503\r\nNats-Subject: shop.out\r\n\r\n", ""),
        with_headers(b"NATS/1.0 503\r\n\r\n", ""),
        with_headers(b"NATS/1.0 503 No Responders\r\n\r\n", ""),
        refused(400, 10_060, "ORD"),
        refused(400, 10_060, "OTHER"),
        refused(400, 10_054, "ORD"),
        Step::reply_message(r#"{"error":{"code":400,"err_code":10054}}"#),
    ])
    .await;
    for (place, outcome) in outcomes.into_iter().enumerate() {
        let failure = failure(outcome);
        assert!(!failure.to_string().contains("MARKER"), "{failure}");
        assert_eq!(matches!(failure, KnownFailure::Unavailable { .. }), place < 3, "{place}: {failure}");
        assert_eq!(matches!(failure, KnownFailure::InvalidEvent { .. }), place >= 3, "{place}: {failure}");
    }
}

/// P-053, P-050, D-05, BUG-23, BUG-24: a rejection that is not on the list is uncertain, a 5xx always.
#[tokio::test]
async fn every_other_rejection_is_uncertain_and_no_json_error_is_taken_for_no_responders() {
    use UncertainCause::{Storage, StorageLimit, Unusable};
    let table = [
        (r#"{"code":503,"err_code":10077,"description":"any text"}"#, StorageLimit),
        (r#"{"code":503,"err_code":10047}"#, StorageLimit),
        (r#"{"code":503,"err_code":10023}"#, StorageLimit),
        (r#"{"code":500,"err_code":10052}"#, Storage),
        (r#"{"code":503,"err_code":10060}"#, Storage),
        (r#"{"code":503,"err_code":1}"#, Storage),
        (r#"{"code":599,"err_code":0}"#, Storage),
        (r#"{"code":400,"err_code":10109}"#, Unusable),
        (r#"{"code":400,"err_code":10071}"#, Unusable),
        (r#"{"code":400,"err_code":10164}"#, Unusable),
        (r#"{"code":400,"err_code":10070}"#, Unusable),
        (r#"{"code":400,"err_code":10077}"#, Unusable),
        (r#"{"code":409,"err_code":1}"#, Unusable),
        (r#"{"code":429,"err_code":1}"#, Unusable),
        (r#"{"code":404,"err_code":10060}"#, Unusable),
        (r#"{"code":503}"#, Unusable),
        (r#"{"err_code":10060}"#, Unusable),
        (r#"{"code":400}"#, Unusable),
        ("{}", Unusable),
    ];
    let reply = |error: &str| Step::reply_message(format!(r#"{{"error":{error},"stream":"ORD","seq":0}}"#));
    let outcomes = kept(table.iter().map(|(error, _)| reply(error)).collect()).await;
    for (outcome, (error, cause)) in outcomes.into_iter().zip(table) {
        assert_eq!(uncertain(outcome), cause, "{error}");
    }
}

/// BUG-13: an id that the broker is still busy with, or remembers without its message, is neither done nor refused.
#[tokio::test]
async fn an_id_in_process_is_uncertain_until_an_explicit_retry_is_stored() {
    let busy = |code: u32, err_code: u32| {
        Step::reply_message(format!(r#"{{"error":{{"code":{code},"err_code":{err_code}}},"stream":"ORD","seq":0}}"#))
    };
    let first = serve([Step::Close]);
    let retries = serve_each([busy(409, 10_158), busy(429, 10_167), Step::reply_message(STORED)]);
    let bench = Bench::start(vec![first, retries]);
    for cause in [UncertainCause::Closed, UncertainCause::Unusable, UncertainCause::Unusable] {
        assert_eq!(uncertain(bench.publish().await), cause);
    }
    assert!(!receipt(bench.publish().await).duplicate);
    assert_eq!(bench.publications(), 4, "each of them asked for by the caller");
}

/// P-049, BUG-17: the exact refusal for this subject, and nothing like it.
#[tokio::test]
async fn only_the_exact_refusal_for_this_subject_is_permission_denied() {
    let ours = || Step::send("-ERR 'Permissions Violation for Publish to \"shop.out\"'\r\n");
    for outcome in kept(vec![ours(), ours()]).await {
        assert_eq!(failure(outcome), KnownFailure::PermissionDenied);
    }
    let rows = [
        "-ERR 'Permissions Violation for Publish to \"shop.other\"'\r\n",
        "-ERR 'Permissions Violation for Publish to \"shop.outer\"'\r\n",
        "-ERR 'Permissions Violation for Publish to \"shop\"'\r\n",
        "-ERR 'Permissions Violation for Publish to \"SHOP.OUT\"'\r\n",
        "-ERR 'Permissions Violation for Publish to \"shop.out\" sid 1'\r\n",
        "-ERR 'Permissions Violation for Publish to \"shop.out\" '\r\n",
        "-ERR 'Permissions Violation for Publish to shop.out'\r\n",
        "-ERR 'permissions violation for publish to \"shop.out\"'\r\n",
        "-ERR Permissions Violation for Publish to \"shop.out\"\r\n",
        "-ERR 'Permissions Violation for Publish with Reply of \"_INBOX.LSF.x\"'\r\n",
        "-ERR 'Permissions Violation for Subscription to \"shop.out\"'\r\n",
        "-ERR 'Authorization Violation'\r\n",
        "-ERR 'Unknown Protocol Operation'\r\n",
        "-ERR ''\r\n",
    ];
    all_close_with(UncertainCause::Unusable, rows.map(|text| (text, Step::send(text))).to_vec()).await;
}

/// BUG-16: the broker's own words for a message that is too large are a known failure, and the connection goes with them.
#[tokio::test]
async fn a_maximum_payload_violation_after_the_write_is_a_known_failure_and_closes() {
    let violation = serve([Step::send("-ERR 'Maximum Payload Violation'\r\n"), Step::CloseAbruptly]);
    let bench = Bench::start(vec![violation, serve([Step::CloseAbruptly]), serve_each([Step::reply_message(STORED)])]);
    assert!(matches!(failure(bench.publish().await), KnownFailure::InvalidEvent { .. }));
    assert_eq!(uncertain(bench.publish().await), UncertainCause::Closed, "without its words it is uncertain");
    receipt(bench.publish().await);
}

/// BUG-16: the same while most of it is not written yet. The peer takes no more of it, and what it said before it closed is read.
#[tokio::test]
async fn a_maximum_payload_violation_in_the_middle_of_the_write_is_read() {
    let settings = PoolSettings::default().set(&POOL_CHUNK_BYTES, 262_144).unwrap();
    let setup = Setup { settings, draft: |draft| draft.payload_ceiling_bytes = Some(262_144), ..Setup::default() };
    let violation =
        [Step::send(INFO), Step::ServeUntil(b"HPUB ".to_vec()), Step::send("-ERR 'Maximum Payload Violation'\r\n"), Step::CloseAbruptly];
    let bench = Bench::start_with(vec![violation.to_vec()], setup);
    for _ in 0..20 {
        let large = EventDraft { payload: vec![b'x'; 262_144], ..event() };
        assert!(matches!(failure(bench.publish_draft(large).await), KnownFailure::InvalidEvent { .. }));
    }
    assert_eq!(bench.peer.accepted(), 20);
}
