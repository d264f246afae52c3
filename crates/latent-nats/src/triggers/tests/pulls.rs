//! What a broker may answer an inspection or a pull with, one answer at a time: each has its meaning, none runs a function that must not
//! run, and none keeps the binding from the next visit.

use latent_nats_proto::Evidence;
use latent_nats_proto::triggers::{ProfileField, PullStatus};
use latent_node::delivery::{Confirmation, VisitSettlement};
use latent_testkit::fake_peer::{INFO, Step};

use super::bench::{ACK, Bench, INSPECTION, PULL, info, inspected, message, open_then, pulled, settled, status};
use crate::triggers::{StepEnd, StepFault, StepOutcome};

const DONE: StepEnd = StepEnd::Settled { settlement: VisitSettlement::Acknowledge, confirmation: Confirmation::Confirmed };

/// A visit that handles a message.
fn handled() -> impl Iterator<Item = Step> {
    [inspected(1), pulled(&message(r#"["ok"]"#)), settled("+ACK")].into_iter().flatten()
}

/// BUG-32, T-041, D-11: every status, each followed by a message that is delivered.
#[tokio::test]
async fn each_status_is_quiet_or_told_and_the_next_visit_pulls_again() {
    use PullStatus as S;
    let table = [
        ("404 No Messages", None, true),
        ("408 Request Timeout", None, true),
        ("408 Requests Pending", None, true),
        ("408 Interest Expired", None, true),
        ("409 Exceeded MaxWaiting", None, true),
        ("409 Exceeded MaxAckPending", None, true),
        ("409 Batch Completed", None, true),
        ("409 Leadership Change", Some(S::LeadershipChange), true),
        ("409 Server Shutdown", Some(S::ServerShutdown), true),
        ("409 Consumer Deleted", Some(S::ConsumerDeleted), true),
        ("409 Consumer is push based", Some(S::PushBased), true),
        ("409 Exceeded MaxRequestBatch of 1", Some(S::RequestTooLarge), true),
        ("409 Exceeded MaxRequestExpires of 100ms", Some(S::RequestTooLarge), true),
        ("409 Exceeded MaxRequestMaxBytes of 10240", Some(S::RequestTooLarge), true),
        ("409 Message Size Exceeds MaxBytes", Some(S::MessageTooLarge), true),
        ("412 Precondition", Some(S::Precondition), true),
        ("423 Nats-Pin-Id Mismatch", Some(S::PinLost), true),
        ("429 Too Many Requests", Some(S::TooManyRequests), true),
        ("503", Some(S::NoResponders), true),
        ("100 Idle Heartbeat", Some(S::Unknown(100)), false),
        ("409 Something New", Some(S::Unknown(409)), false),
        ("418 Teapot", Some(S::Unknown(418)), false),
    ];
    for (line, told, keeps) in table {
        let first = open_then(inspected(1).into_iter().chain(pulled(&status(line))).chain(handled()).chain([Step::Hold]));
        let mut bench = Bench::start(vec![first, open_then(handled().chain([Step::Hold]))]);
        match (bench.step().await, told) {
            (StepOutcome::Empty { binding: 0 }, None) => assert_eq!(bench.monitor.last_step(), None, "{line}"),
            (StepOutcome::Reported(step), Some(status)) => {
                assert_eq!((step.end, step.handed), (StepEnd::Failed(StepFault::Status(status)), None), "{line}");
            }
            (other, _) => panic!("{line}: {other:?}"),
        }
        assert!(bench.half.scripted.runs().is_empty(), "{line}");
        assert_eq!(bench.reported().await.end, DONE, "{line}");
        assert_eq!(bench.peer.accepted(), if keeps { 1 } else { 2 }, "{line}");
        assert_eq!((bench.count(b"MSG.NEXT"), bench.count(b"+ACK")), (2, 1), "{line}: three operations a visit, no fourth");
    }
}

/// T-040, T-042, T-025, BUG-21, BUG-42: what is not one message of this consumer ends the connection, runs nothing, settles nothing.
#[tokio::test]
async fn a_foreign_malformed_or_oversized_delivery_closes_and_is_not_settled() {
    let with_ack = |ack: &str| format!("MSG in.a 1 {ack} 6\r\n[\"ok\"]\r\n");
    let headers = |block: &str, body: &str| format!("HMSG in.a 1 {ACK} {} {}\r\n{block}{body}\r\n", block.len(), block.len() + body.len());
    let foreign = Evidence::ForeignReply;
    let malformed = Evidence::MalformedFrame;
    let tail = "7.3.1700000000000000000.0";
    let table = [
        (with_ack(&format!("$JS.ACK.IN.b.1.{tail}")), foreign),
        (with_ack(&format!("$JS.ACK.OUT.a.1.{tail}")), foreign),
        (with_ack(&format!("$JS.ACK.hub.hash.IN.a.1.{tail}")), foreign),
        (with_ack(&format!("$JS.ACK.IN.a.0.{tail}")), foreign),
        (with_ack(&format!("$JS.ACK.IN.a.18446744073709551616.{tail}")), foreign),
        (with_ack(&format!("$JS.ACK.IN.a.x.{tail}")), foreign),
        (with_ack(&format!("$JS.ACK.IN.a.1.{tail}.9")), foreign),
        (with_ack("$JS.ACK.IN.a.1.7.3.1"), foreign),
        (with_ack(&format!("$JS.FC.IN.a.1.{tail}")), foreign),
        (with_ack(&format!("$js.ack.IN.a.1.{tail}")), foreign),
        (with_ack("in.a"), foreign),
        (with_ack("_INBOX.LSF.x"), foreign),
        ("MSG in.a 1 6\r\n[\"ok\"]\r\n".to_owned(), foreign),
        (message(r#"["ok"]"#).replace("in.a 1", "in.b 1"), foreign),
        (message(r#"["ok"]"#).replace("in.a 1", "in.a 2"), foreign),
        (message(&format!(r#"["ok{}"]"#, "x".repeat(1_020))), Evidence::OversizedReply),
        (headers(&format!("NATS/1.0\r\nA: {}\r\n\r\n", "v".repeat(8_192)), "x"), Evidence::OversizedReply),
        (format!("HMSG in.a 1 {ACK} 12 99999999999999999999\r\n"), malformed),
        (format!("HMSG in.a 1 {ACK} 12 1000000\r\n"), Evidence::OversizedReply),
        (format!("HMSG in.a 1 {ACK} 12 8\r\nNATS/1.0\r\n"), malformed),
        (format!("MSG in.a 1 {ACK} -1\r\n"), malformed),
        (format!("MSG in.a 1 {ACK} +6\r\n[\"ok\"]\r\n"), malformed),
        (format!("MSG in.a 1 {ACK} 6\r\n[\"ok\"]xx"), malformed),
        (headers("NATS/1.0\r\n", "x"), malformed),
        ("-ERR\r\n".to_owned(), Evidence::BrokerError),
        ("-ERR 'Slow Consumer'\r\n".to_owned(), Evidence::BrokerError),
        ("FOO\r\n".to_owned(), malformed),
        ("PONG\r\n".to_owned(), Evidence::UnexpectedFrame),
        ("PING\r\n".repeat(9), Evidence::ControlFlood),
        ("x".repeat(8_193), Evidence::LineTooLong),
    ];
    for (frames, evidence) in table {
        let first = open_then(inspected(1).into_iter().chain(pulled(&frames)).chain([Step::Hold]));
        let mut bench = Bench::start(vec![first, open_then(handled().chain([Step::Hold]))]);
        let fault = bench.fault().await;
        assert_eq!(fault, StepFault::Protocol(evidence), "{frames:.60}");
        bench.peer.until_client_ended(0).await;
        assert!(bench.half.scripted.runs().is_empty() && bench.count(b"PUB $JS.ACK") == 0, "{frames:.60}");
        bench.half.assert_nothing_is_held();
        assert_eq!(bench.reported().await.end, DONE, "{frames:.60}");
    }
}

/// BUG-21, BUG-42: what is unusual and legal is handled, and settled on exactly the subject that came.
#[tokio::test]
async fn an_unusual_but_legal_delivery_is_handled() {
    let long = "$JS.ACK._.Hash9.IN.a.1.7.3.1700000000000000000.0.more.tokens";
    let block = "NATS/1.0\r\nA: b\r\nA: \u{ff}\u{e9}\r\nEmpty:\r\n\r\n";
    let body = r#"["ok"]"#;
    let frames = [
        message(body),
        format!("MSG in.a 1 {long} 6\r\n{body}\r\n"),
        format!("msg in.a 1 {ACK} 6\r\n{body}\r\n"),
        format!("MSG\tin.a\t1  {ACK} 6\r\n{body}\r\n"),
        format!("HMSG in.a 1 {ACK} {} {}\r\n{block}{body}\r\n", block.len(), block.len() + body.len()),
        format!("PING\r\n{INFO}+OK\r\nPING\r\n{}", message(body)),
    ];
    for frame in frames {
        let script = open_then([inspected(1), pulled(&frame), settled("+ACK")].into_iter().flatten().chain([Step::Hold]));
        let mut bench = Bench::start(vec![script]);
        assert_eq!(bench.reported().await.end, DONE, "{frame:.60}");
        let subject = if frame.contains(long) { long } else { ACK };
        assert_eq!(bench.count(format!("PUB {subject} _INBOX.LSF.").as_bytes()), 1, "{frame:.60}");
        assert_eq!(bench.half.scripted.runs(), [body], "{frame:.60}");
    }
}

/// D-12: more deliveries than the consumer allows.
#[tokio::test]
async fn a_delivery_beyond_the_last_runs_nothing_and_is_left() {
    let fourth = message(r#"["ok"]"#).replace(".a.1.7", ".a.4.7");
    let first = open_then(inspected(1).into_iter().chain(pulled(&fourth)).chain([Step::Hold]));
    let mut bench = Bench::start(vec![first]);
    let step = bench.reported().await;
    assert_eq!(step.end, StepEnd::Failed(StepFault::DeliveredTooOften));
    assert_eq!(step.handed.map(|handed| (handed.sequence, handed.delivery)), Some((7, 4)));
    bench.peer.until_client_ended(0).await;
    assert!(bench.half.scripted.runs().is_empty() && bench.count(b"PUB $JS.ACK") == 0);
    bench.half.assert_nothing_is_held();
}

/// T-037, T-038, T-011, T-036: an inspection that is not what it must be is followed by no pull, and costs no connection.
#[tokio::test]
async fn an_inspection_that_does_not_fit_is_told_and_followed_by_no_pull() {
    let changed = |from: &str, to: &str| Step::reply_message(info(1, 0).replacen(from, to, 1));
    let missing = |err_code: u32| Step::reply_message(format!(r#"{{"error":{{"code":404,"err_code":{err_code},"description":"no"}}}}"#));
    let block = "NATS/1.0 503\r\n\r\n";
    let none = format!("HMSG {{inbox}} 1 {0} {0}\r\n{block}\r\n", block.len());
    let no_responders =
        Step::reply(move |received| none.replace("{inbox}", &latent_testkit::fake_peer::reply_inbox(received).unwrap()).into_bytes());
    let table = [
        (changed(r#""stream_name":"IN""#, r#""stream_name":"OTHER""#), StepFault::Mismatch(ProfileField::Stream), true),
        (changed(r#""name":"a""#, r#""name":"b""#), StepFault::Mismatch(ProfileField::Consumer), true),
        (changed("in.a", "in.>"), StepFault::Mismatch(ProfileField::FilterSubject), true),
        (changed("10240", "10241"), StepFault::Mismatch(ProfileField::MaxBytes), true),
        (missing(10_014), StepFault::ConsumerMissing, true),
        (missing(10_059), StepFault::StreamMissing, true),
        (missing(10_039), StepFault::Refused(10_039), true),
        (Step::reply_message("{"), StepFault::Protocol(Evidence::MalformedReceipt), false),
        (no_responders, StepFault::Protocol(Evidence::NoResponders), false),
        (Step::send("-ERR 'Permissions Violation for Publish to \"$JS.API.CONSUMER.INFO.IN.a\"'\r\n"), StepFault::PermissionRefused, false),
        (Step::send("-ERR 'Authorization Violation'\r\n"), StepFault::AuthenticationRefused, false),
        (Step::Close, StepFault::Protocol(Evidence::ConnectionLost { within_reply: false }), false),
    ];
    for (answer, fault, keeps) in table {
        let told = format!("{answer:?} {fault:?}");
        let first = [Step::ServeUntil(INSPECTION.to_vec()), answer].into_iter().chain(handled()).chain([Step::Hold]);
        let mut bench = Bench::start(vec![open_then(first), open_then(handled().chain([Step::Hold]))]);
        assert_eq!(bench.fault().await, fault, "{told}");
        assert_eq!(bench.count(b"MSG.NEXT"), 0, "{told}");
        assert_eq!(bench.reported().await.end, DONE, "{told}");
        assert_eq!(bench.peer.accepted(), if keeps { 1 } else { 2 }, "{told}");
    }
}

/// X-023: the status that follows a message arrives whenever it likes, once, and what is no such status ends the connection.
#[tokio::test]
async fn the_status_behind_a_message_is_taken_wherever_it_arrives() {
    let late = status("409 Batch Completed");
    let visits = 3;
    // With the message, before the receipt, behind it, and while the connection is parked.
    for place in 0..4 {
        let mut script = Vec::new();
        for _ in 0..visits {
            script.extend(inspected(1));
            let frames = if place == 0 { format!("{}{late}", message(r#"["ok"]"#)) } else { message(r#"["ok"]"#) };
            script.extend(pulled(&frames));
            let inbox = |received: &[u8]| {
                let text = String::from_utf8_lossy(received).into_owned();
                text.lines().rfind(|line| line.contains("MSG.NEXT")).unwrap().split(' ').nth(2).unwrap().to_owned()
            };
            let late = late.clone();
            script.push(Step::ServeUntil(b"\r\n+ACK\r\n".to_vec()));
            script.push(Step::reply(move |received| {
                let status = late.replace("{inbox}", &inbox(received)).into_bytes();
                let receipt = latent_testkit::fake_peer::message_for(received, b"");
                match place {
                    1 => [status, receipt].concat(),
                    2 | 3 => [receipt, status].concat(),
                    _ => receipt,
                }
            }));
        }
        let mut bench = Bench::start(vec![open_then(script.into_iter().chain([Step::Hold]))]);
        for visit in 0..visits {
            assert_eq!(bench.reported().await.end, DONE, "{place} {visit}");
            if place == 3 {
                bench.half.clock.skip(5_000);
            }
        }
        assert_eq!(bench.peer.accepted(), 1, "{place}");
    }
}

/// The status behind a message, cut at every byte between the message's own read and the next: the message is acknowledged all the same.
#[tokio::test]
async fn a_status_cut_by_the_end_of_a_read_keeps_no_message_from_its_settlement() {
    let late = status("409 Batch Completed");
    let status_bytes = late.len() + 40;
    // Reads have 4,096 bytes. The payload is made so that the message ends this far before the border.
    let payload_of = |before_border: usize| {
        let empty = message("").len() + 2;
        format!(r#"["ok","{}"]"#, "x".repeat(4_096 - before_border - empty - r#"["ok",""]"#.len()))
    };
    for before_border in (1..status_bytes).step_by(17) {
        let payload = payload_of(before_border);
        let frames = format!("{}{late}", message(&payload));
        let pull = [Step::ServeUntil(b"\"max_bytes\":13312}\r\n".to_vec()), pulled(&frames)[1].clone()];
        let large = info(1, 0).replace("10240", "13312");
        let inspection = [Step::ServeUntil(INSPECTION.to_vec()), Step::reply_message(large)];
        let script = open_then([inspection, pull, settled("+ACK")].into_iter().flatten().chain([Step::Hold]));
        let binding = crate::triggers::BindingDraft { payload_ceiling_bytes: Some(4_096), ..super::bench::binding("shop", "a") };
        let mut bench = Bench::start_with(vec![script], vec![binding]);
        assert_eq!(bench.reported().await.end, DONE, "{before_border}");
    }
    assert!(PULL.ends_with(b"10240}\r\n"));
}

/// BUG-30, X-003: a hint that the broker goes, with other addresses, is a control frame at every stage, and nothing else is dialled.
#[tokio::test]
async fn a_lame_duck_s_hint_changes_nothing_of_what_is_under_way() {
    let hint = INFO.replace("\"max_payload\"", "\"ldm\":true,\"connect_urls\":[\"127.0.0.1:1\",\"[::1]:2\"],\"max_payload\"");
    let before = |step: Step| [Step::send(hint.clone()), step];
    for stage in 0..3 {
        let steps = [inspected(1), pulled(&message(r#"["ok"]"#)), settled("+ACK")].into_iter().enumerate();
        let script = steps.flat_map(|(at, [until, answer])| {
            let answer = if at == stage { before(answer).to_vec() } else { vec![answer] };
            std::iter::once(until).chain(answer)
        });
        let mut bench = Bench::start(vec![open_then(script.chain(handled()).chain([Step::Hold]))]);
        for _ in 0..2 {
            assert_eq!(bench.reported().await.end, DONE, "{stage}");
        }
        assert_eq!((bench.peer.accepted(), bench.monitor.snapshot().connected), (1, 1), "{stage}");
    }
}
