//! Answers to a publication that was written: which of them is a receipt, and that what is none is uncertain.

use std::sync::{Arc, Mutex};

use latent_core::{PublicationOutcome, UncertainCause};
use latent_testkit::fake_peer::{Step, message_for, reply_inbox, subscription_id};

use super::bench::{Bench, STORED, receipt, serve, serve_each, uncertain};

/// One reply for each publication, on a connection of its own each, which must have been closed; all uncertain with the same cause.
pub(super) async fn all_close_with(cause: UncertainCause, rows: Vec<(&str, Step)>) {
    let bench = Bench::start(rows.iter().map(|(_, reply)| serve([reply.clone(), Step::Hold])).collect());
    for (connection, (row, _)) in rows.iter().enumerate() {
        assert_eq!(uncertain(bench.publish().await), cause, "{row}");
        bench.peer.until_client_ended(connection).await;
        bench.assert_nothing_is_held();
    }
    // Nothing was sent a second time by itself (P-054).
    assert_eq!(bench.publications(), rows.len());
    assert_eq!(bench.publisher.snapshot().uncertain, rows.len() as u64);
}

/// Replies on one connection that is kept throughout: what each publication came to.
pub(super) async fn kept(replies: Vec<Step>) -> Vec<PublicationOutcome> {
    let count = replies.len();
    let bench = Bench::start(vec![serve_each(replies)]);
    let mut outcomes = Vec::new();
    for _ in 0..count {
        outcomes.push(bench.publish().await);
    }
    assert_eq!((bench.peer.accepted(), bench.publications()), (1, count));
    outcomes
}

/// A message with headers to the last inbox.
pub(super) fn with_headers(block: &'static [u8], payload: &'static str) -> Step {
    Step::reply(move |received| {
        let (inbox, sid) = (reply_inbox(received).unwrap(), subscription_id(received).unwrap());
        let mut frame = format!("HMSG {inbox} {sid} {} {}\r\n", block.len(), block.len() + payload.len()).into_bytes();
        frame.extend_from_slice(block);
        frame.extend_from_slice(payload.as_bytes());
        frame.extend_from_slice(b"\r\n");
        frame
    })
}

/// A frame made from the last inbox and subscription id.
fn framed(make: impl Fn(&str, &str) -> String + Send + Sync + 'static) -> Step {
    Step::reply(move |received| make(&reply_inbox(received).unwrap(), &subscription_id(received).unwrap()).into_bytes())
}

fn stored_in(inbox: &str, sid: &str) -> String {
    format!("MSG {inbox} {sid} {}\r\n{STORED}\r\n", STORED.len())
}

/// P-010.
#[tokio::test]
async fn a_reply_to_another_inbox_subscription_or_stream_is_uncertain_and_closes() {
    let of_operation = |number: u64| {
        framed(move |inbox, sid| {
            let (connection, _) = inbox.rsplit_once('.').unwrap();
            stored_in(&format!("{connection}.{number}"), sid)
        })
    };
    let rows = vec![
        ("no inbox of ours", framed(|_, sid| stored_in("_INBOX.x", sid))),
        ("ours with a byte more", framed(|inbox, sid| stored_in(&format!("{inbox}0"), sid))),
        ("ours with a level more", framed(|inbox, sid| stored_in(&format!("{inbox}.1"), sid))),
        ("of the connection itself", framed(|inbox, sid| stored_in(inbox.rsplit_once('.').unwrap().0, sid))),
        ("of the next operation", of_operation(2)),
        ("of an operation that never was", of_operation(0)),
        ("in another letter case", framed(|inbox, sid| stored_in(&inbox.to_lowercase(), sid))),
        ("another subscription", framed(|inbox, sid| stored_in(inbox, &format!("{sid}1")))),
        ("another subscription, same number", framed(|inbox, sid| stored_in(inbox, &format!("0{sid}")))),
        ("another stream", Step::reply_message(r#"{"stream":"OTHER","seq":1}"#)),
        ("the stream in another letter case", Step::reply_message(r#"{"stream":"ord","seq":1}"#)),
        ("a foreign one before ours", framed(|inbox, sid| format!("{}{}", stored_in("_INBOX.x", sid), stored_in(inbox, sid)))),
    ];
    all_close_with(UncertainCause::Unusable, rows).await;
}

/// P-010: neither on the same connection nor on another one.
#[tokio::test]
async fn a_late_reply_to_an_earlier_publication_is_never_the_answer_of_a_later_one() {
    let first: Arc<Mutex<Option<String>>> = Arc::default();
    let remember = Arc::clone(&first);
    let remembered = Step::reply(move |received| {
        *remember.lock().unwrap() = reply_inbox(received);
        Vec::new()
    });
    let late = || {
        let first = Arc::clone(&first);
        Step::reply(move |received| stored_in(&first.lock().unwrap().clone().unwrap(), &subscription_id(received).unwrap()).into_bytes())
    };
    let same_connection = [Step::reply_message(STORED), Step::ServeUntil(b"{\"n\":1}\r\n".to_vec()), late()];
    let lost = serve([remembered.clone(), Step::Close]);
    let other_connection = serve([late(), Step::Hold]);
    let remembered_and_repeated = serve([remembered].into_iter().chain(same_connection).chain([Step::Hold]));
    let bench = Bench::start(vec![lost, other_connection, remembered_and_repeated]);
    assert_eq!(uncertain(bench.publish().await), UncertainCause::Closed);
    assert_eq!(uncertain(bench.publish().await), UncertainCause::Unusable);
    receipt(bench.publish().await);
    assert_eq!(uncertain(bench.publish().await), UncertainCause::Unusable);
    bench.peer.until_client_ended(2).await;
}

/// P-041, P-044, P-026, BUG-11: what is no receipt. Each is closed and uncertain.
#[tokio::test]
async fn a_receipt_without_a_positive_sequence_or_its_stream_is_none() {
    let deep = |levels: usize| format!(r#"{{"stream":"ORD","seq":1,"x":{}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1));
    let bodies: Vec<String> = [
        r#"{"stream":"ORD","seq":0}"#,
        r#"{"stream":"ORD","seq":0,"duplicate":true}"#,
        r#"{"stream":"ORD"}"#,
        r#"{"stream":"ORD","seq":"1"}"#,
        r#"{"stream":"ORD","seq":1.0}"#,
        r#"{"stream":"ORD","seq":1e0}"#,
        r#"{"stream":"ORD","seq":-1}"#,
        r#"{"stream":"ORD","seq":01}"#,
        r#"{"stream":"ORD","seq":null}"#,
        r#"{"stream":"ORD","seq":18446744073709551616}"#,
        r#"{"seq":1}"#,
        r#"{"stream":null,"seq":1}"#,
        r#"{"stream":["ORD"],"seq":1}"#,
        r#"{"stream":"ORD ","seq":1}"#,
        r#"{"stream":"ORD","seq":1,"duplicate":"true"}"#,
        r#"{"stream":"ORD","seq":1,"duplicate":1}"#,
        r#"{"stream":"ORD","seq":1,"domain":7}"#,
        r#"{"stream":"ORD","seq":1,"seq":2}"#,
        r#"{"stream":"ORD","stream":"ORD","seq":1}"#,
        r#"{"stream":"ORD","seq":1,"se\u0071":1}"#,
        r#"{"stream":"ORD","seq":1}}"#,
        r#"{"stream":"ORD","seq":1} x"#,
        r#"{"stream":"ORD","seq":1"#,
        r#"[{"stream":"ORD","seq":1}]"#,
        r#""ORD:1""#,
        "+OK",
        "",
        r#"{"error":{"code":400,"err_code":10060},"stream":"ORD","seq":1}"#,
        r#"{"error":{"code":400,"err_code":10054},"stream":"OTHER","seq":0}"#,
        r#"{"error":{"code":400,"err_code":10060},"duplicate":true}"#,
        r#"{"error":"no","stream":"ORD","seq":1}"#,
        r#"{"error":null,"stream":"ORD","seq":1}"#,
    ]
    .into_iter()
    .map(str::to_owned)
    .chain([deep(9), deep(1_000)])
    .collect();
    let rows = bodies.iter().map(|body| (body.as_str(), Step::reply_message(body.clone()))).collect();
    all_close_with(UncertainCause::Unusable, rows).await;
}

/// P-041, P-042, P-051, P-026, P-025: what is one, at each bound, on one connection.
#[tokio::test]
async fn a_receipt_has_its_stream_sequence_and_duplicate_flag() {
    let padded = |bytes: usize| {
        let body = r#"{"stream":"ORD","seq":6,"x":""}"#;
        body.replace(r#""""#, &format!(r#""{}""#, "p".repeat(bytes - body.len())))
    };
    let depth_8 = format!(r#"{{"stream":"ORD","seq":5,"x":{}{}}}"#, "[".repeat(7), "]".repeat(7));
    let rows: Vec<(Step, u64, bool)> = vec![
        (Step::reply_message(STORED), 1, false),
        (Step::reply_message(r#"{"stream":"ORD","seq":2,"duplicate": true}"#), 2, true),
        (Step::reply_message(r#"{ "seq" : 3 , "duplicate":false,"stream":"O\u0052D","domain":"hub"}"#), 3, false),
        (Step::reply_message(r#"{"stream":"ORD","seq":18446744073709551615,"batch":"b","count":1}"#), u64::MAX, false),
        (Step::reply_message(depth_8), 5, false),
        (Step::reply_message(padded(4_096)), 6, false),
        // BUG-21: legal though unusual.
        (with_headers(b"NATS/1.0\r\nA: 1\r\nA: 2\r\nB: \xff\r\x00\r\n\r\n", STORED), 1, false),
        (framed(|inbox, sid| format!("msg\t{inbox}  {sid}\t{}\r\n{STORED}\r\n", STORED.len())), 1, false),
        // BUG-28, BUG-27: however it is split.
        (Step::reply(|received| message_for(received, STORED.as_bytes())), 1, false),
    ];
    let outcomes = kept(rows.iter().map(|(step, ..)| step.clone()).collect()).await;
    for (place, (outcome, (_, sequence, duplicate))) in outcomes.into_iter().zip(rows).enumerate() {
        let receipt = receipt(outcome);
        assert_eq!((&*receipt.stream, receipt.sequence, receipt.duplicate), ("ORD", sequence, duplicate), "{place}");
    }
}

/// P-052, BUG-01, BUG-27: what ends the wait, each with a cause that tells it apart.
#[tokio::test]
async fn a_connection_that_ends_before_the_whole_answer_is_uncertain() {
    let half = || {
        Step::reply(|received| {
            let mut frame = message_for(received, STORED.as_bytes());
            frame.truncate(frame.len() - 9);
            frame
        })
    };
    let without_line_end = || {
        Step::reply(|received| {
            let mut frame = message_for(received, STORED.as_bytes());
            frame.truncate(frame.len() - 1);
            frame
        })
    };
    let ends = [
        vec![Step::Close],
        vec![Step::CloseAbruptly],
        vec![half(), Step::Close],
        vec![half(), Step::CloseAbruptly],
        vec![without_line_end(), Step::CloseAbruptly],
        vec![Step::send("PING\r\n"), Step::ServeUntil(b"PONG\r\n".to_vec()), Step::Close],
    ];
    let count = ends.len();
    let bench = Bench::start(ends.into_iter().map(serve).collect());
    for end in 0..count {
        assert_eq!(uncertain(bench.publish().await), UncertainCause::Closed, "{end}");
        bench.assert_nothing_is_held();
    }
    assert_eq!(bench.publications(), count);
}

/// BUG-27: a frame is whole by its length. What happens behind it takes nothing back.
#[tokio::test]
async fn a_whole_answer_counts_however_the_connection_ends_behind_it() {
    let answered = |end: Step| serve([Step::reply_message(STORED), end]);
    let bench = Bench::start(vec![answered(Step::Close), answered(Step::CloseAbruptly), answered(Step::CloseAbruptly)]);
    for _ in 0..3 {
        receipt(bench.publish().await);
        bench.clock.skip(2_000);
    }
    assert_eq!((bench.publisher.snapshot().uncertain, bench.peer.accepted()), (0, 3));
}

/// P-025: the announced size is enough; the body of it is not waited for.
#[tokio::test]
async fn a_reply_above_four_kib_is_uncertain_before_its_body_is_there() {
    let announced = |size: &'static str| framed(move |inbox, sid| format!("MSG {inbox} {sid} {size}\r\n"));
    let rows = vec![
        ("one more", announced("4097")),
        ("a mebibyte", announced("1048576")),
        ("near 2^64", announced("18446744073709551615")),
        ("above 2^64", announced("18446744073709551616")),
        ("headers alone", framed(|inbox, sid| format!("HMSG {inbox} {sid} 4097 4097\r\n"))),
        ("both together", framed(|inbox, sid| format!("HMSG {inbox} {sid} 12 4097\r\n"))),
    ];
    all_close_with(UncertainCause::Unusable, rows).await;
}
