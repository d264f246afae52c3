//! Sessions that never come to be: nothing was published, and the answer says why in words of this side (P-048).

use latent_core::KnownFailure;
use latent_testkit::fake_peer::{INFO, Step};

use super::bench::{Bench, PASSWORD, PAYLOAD_END, STORED, failure, receipt, serve_each, unavailable};

/// After INFO and everything that opens the session.
fn opened(then: Vec<Step>) -> Vec<Step> {
    [Step::send(INFO), Step::ExpectUntil(b"PING\r\n".to_vec())].into_iter().chain(then).collect()
}

fn refused(text: &str) -> Vec<Step> {
    opened(vec![Step::send(format!("-ERR '{text}'\r\n")), Step::Close])
}

/// P-048, BUG-06, BUG-16, BUG-25, BUG-27.
#[tokio::test]
async fn a_session_that_does_not_come_to_be_is_unavailable_with_its_reason_and_dialled_once() {
    let info_with = |field: &str, other: &str| vec![Step::send(INFO.replace(field, other)), Step::Hold];
    let table: Vec<(&str, Vec<Step>)> = vec![
        ("the connection ended", vec![Step::Close]),
        ("the connection ended", vec![Step::CloseAbruptly]),
        ("the connection ended", vec![Step::send(&INFO[..40]), Step::CloseAbruptly]),
        ("the connection ended", vec![Step::send(&INFO[..INFO.len() - 1]), Step::Close]),
        ("the connection ended", opened(vec![Step::Close])),
        ("the connection ended", opened(vec![Step::send("PO"), Step::CloseAbruptly])),
        ("refused the credentials", refused("Authorization Violation")),
        ("refused the credentials", refused("authorization violation")),
        ("refused the credentials", refused("User Authentication Expired")),
        ("gave up waiting", refused("Authentication Timeout")),
        ("gave up waiting", vec![Step::send("-ERR 'Authentication Timeout'\r\n"), Step::Close]),
        ("takes no more connections", refused("maximum connections exceeded")),
        ("takes no more connections", refused("maximum account active connections exceeded")),
        ("_INBOX.LSF.>", refused("Permissions Violation for Subscription to \"_INBOX.LSF.MARKER.*\"")),
        ("reported an error", refused("Permissions Violation for Publish to \"shop.out\"")),
        ("reported an error", refused("MARKER of the broker")),
        ("message headers", info_with("\"headers\":true", "\"headers\":false")),
        ("message headers", info_with("\"headers\":true,", "")),
        ("no usable max_payload", info_with("\"max_payload\":1048576", "\"max_payload\":0")),
        ("malformed", info_with("\"proto\":1", "\"proto\":\"MARKER\"")),
        ("malformed", vec![Step::send("INFO MARKER\r\n"), Step::Hold]),
        ("does not wait for", vec![Step::send("PONG\r\n"), Step::Hold]),
        ("does not wait for", opened(vec![Step::send("MSG _INBOX.LSF.MARKER 1 0\r\n\r\n"), Step::Hold])),
    ];
    let bench = Bench::start(table.iter().map(|(_, script)| script.clone()).collect());
    for (connection, (expected, script)) in table.iter().enumerate() {
        let reason = unavailable(bench.publish().await);
        assert!(reason.contains(expected), "{reason} instead of {expected}: {script:?}");
        assert!(!reason.contains("MARKER") && !reason.contains("pw "), "{reason}");
        assert_eq!(bench.peer.accepted(), connection + 1, "one dial for one call: {script:?}");
        bench.assert_nothing_is_held();
        // At once it is not even dialled.
        unavailable(bench.publish().await);
        assert_eq!(bench.peer.accepted(), connection + 1, "{script:?}");
        bench.clock.skip(60_000);
    }
    assert_eq!((bench.publications(), bench.publisher.snapshot().uncertain), (0, 0));
}

/// A PONG before the PING proves nothing of it (P-009).
#[tokio::test]
async fn a_pong_that_answers_nothing_opens_no_session() {
    let bench = Bench::start(vec![vec![Step::send(format!("{INFO}PONG\r\n")), Step::Hold]]);
    unavailable(bench.publish().await);
    assert_eq!(bench.publications(), 0);
}

/// BUG-17: a refusal that is there before the publication begins is not its answer.
#[tokio::test]
async fn a_refusal_before_the_publication_begins_is_unavailable_and_nothing_is_sent() {
    let early = "PONG\r\n-ERR 'Permissions Violation for Publish to \"shop.out\"'\r\n";
    let bench = Bench::start(vec![opened(vec![Step::send(early), Step::Hold])]);
    unavailable(bench.publish().await);
    bench.peer.until_client_ended(0).await;
    assert_eq!(bench.publications(), 0);
}

/// P-062, BUG-16: what the broker announces bounds headers and payload together, as it changes; the connection stays.
#[tokio::test]
async fn the_announced_maximum_counts_before_the_write_and_as_it_changes() {
    let info = |max: usize| INFO.replace("1048576", &max.to_string());
    let first = Bench::start(vec![serve_each([Step::reply_message(STORED)])]);
    receipt(first.publish().await);
    let received = String::from_utf8(first.peer.report(0).received).unwrap();
    let line = received.split("\r\n").find(|line| line.starts_with("HPUB ")).unwrap();
    let total: usize = line.rsplit(' ').next().unwrap().parse().unwrap();

    let answered = || [Step::ServeUntil(PAYLOAD_END.to_vec()), Step::reply_message(STORED)];
    let pong = || Step::send("PONG\r\n");
    let script = [Step::send(info(total - 1)), Step::ExpectUntil(b"PING\r\n".to_vec())]
        .into_iter()
        // A newer one right behind the session, before the first publication.
        .chain([Step::send(format!("PONG\r\n{}", info(total)))])
        .chain(answered())
        // One that comes while the connection is parked, and is read with the answer to the question whether it is good.
        .chain([Step::Gate, Step::send(info(total - 1)), Step::ExpectUntil(b"PING\r\n".to_vec()), pong()])
        .chain([Step::Gate, Step::send(info(total))])
        .chain(answered())
        .chain([Step::Hold]);
    let bench = Bench::start(vec![script.collect()]);
    receipt(bench.publish().await);
    bench.clock.skip(2_000);
    bench.peer.open_gate();
    match failure(bench.publish().await) {
        KnownFailure::InvalidEvent { rule } => assert!(rule.contains("max_payload"), "{rule}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.publications(), 1, "no byte of it was sent");
    bench.clock.skip(2_000);
    bench.peer.open_gate();
    receipt(bench.publish().await);
    assert_eq!((bench.peer.accepted(), bench.publications()), (1, 2), "the connection stays");
}

/// the password is sent once, in CONNECT, and is in no error.
#[tokio::test]
async fn the_password_is_in_connect_and_nowhere_else() {
    let bench = Bench::start(vec![refused(PASSWORD), serve_each([Step::reply_message(STORED)])]);
    let refusal = failure(bench.publish().await);
    assert!(matches!(&refusal, KnownFailure::Unavailable { reason } if !reason.contains("quoted")), "{refusal}");
    bench.clock.skip(60_000);
    receipt(bench.publish().await);
    assert_eq!(bench.count(1, b"quoted"), 1);
    let shown = format!("{:?} {:?} {:?}", bench.publisher.snapshot(), bench.audit.records(), bench.publisher.config());
    assert!(!shown.contains("quoted"));
}
