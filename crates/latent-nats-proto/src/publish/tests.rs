use super::*;
use crate::outcome::UncertainCause;
use crate::testing::{INFO, established, established_with, inbox, message, message_with_headers, publication, take};
use crate::{FailureCause as Cause, Want};

const RECEIPT: &str = r#"{"stream":"ORD","seq":7}"#;

fn failed(kind: FailureKind, cause: Cause) -> Answer {
    Answer::KnownFailure { kind, cause }
}

fn receipt(sequence: u64, duplicate: bool) -> Answer {
    Answer::Receipt { sequence, duplicate }
}

/// The end of a publication that was written and answered with this.
fn after(reply: &[u8]) -> PublishEnd {
    let mut link = established();
    let mut publish = Publish::begin(&mut link, &publication(b"x")).unwrap();
    assert!(!take(&mut publish).is_empty() && publish.want() == Want::Read);
    publish.received(reply);
    take(&mut publish);
    assert_eq!(publish.want(), Want::Done, "{}", String::from_utf8_lossy(reply));
    let end = publish.finish();
    assert_eq!(link.is_reusable(), end.connection == Connection::Keep);
    end
}

fn check(replies: &[(&[u8], Answer, Connection)]) {
    for (reply, outcome, connection) in replies {
        let expected = PublishEnd { outcome: *outcome, possible_write: true, connection: *connection };
        assert_eq!(after(reply), expected, "{}", String::from_utf8_lossy(reply));
    }
}

#[test]
fn every_answer_of_the_pinned_broker_ends_as_it_must() {
    use Connection::{Close, Keep};
    let refusal = |code: u32, err_code: u32| {
        message(1, &format!(r#"{{"error":{{"code":{code},"err_code":{err_code},"description":"marker-text"}},"stream":"ORD","seq":0}}"#))
    };
    let no_responders = failed(FailureKind::Unavailable, Cause::NoResponders);
    check(&[
        (&message(1, RECEIPT), receipt(7, false), Keep),
        (&message(1, r#"{"stream":"ORD","seq":1,"duplicate": true}"#), receipt(1, true), Keep),
        (&refusal(400, 10_060), failed(FailureKind::InvalidEvent, Cause::StreamMismatch), Keep),
        (
            &message(1, r#"{"error":{"code":400,"err_code":10060},"stream":"OTHER","seq":0}"#),
            failed(FailureKind::InvalidEvent, Cause::StreamMismatch),
            Keep,
        ),
        (&refusal(400, 10_054), failed(FailureKind::InvalidEvent, Cause::StreamMessageSize), Keep),
        (&refusal(503, 10_077), Answer::Uncertain(UncertainCause::StorageLimit), Keep),
        (&refusal(500, 10_999), Answer::Uncertain(UncertainCause::InternalError), Keep),
        (&refusal(409, 10_158), Answer::Uncertain(UncertainCause::UnlistedRejection), Keep),
        (&message_with_headers(1, "NATS/1.0 503\r\nNats-Subject: orders.new\r\n\r\n", ""), no_responders, Keep),
        (&message_with_headers(1, "NATS/1.0 503\r\n\r\n", ""), no_responders, Keep),
        (&message_with_headers(1, "NATS/1.0 503 No Responders\r\n\r\n", ""), no_responders, Keep),
        (&message_with_headers(1, "NATS/1.0 503\r\n\r\n", "x"), Answer::Uncertain(UncertainCause::UnexpectedStatus), Close),
        (&message_with_headers(1, "NATS/1.0 408\r\n\r\n", ""), Answer::Uncertain(UncertainCause::UnexpectedStatus), Close),
        (&message_with_headers(1, "NATS/1.0\r\nA: b\r\nA: \u{80}\r\n\r\n", RECEIPT), receipt(7, false), Keep),
        (&message_with_headers(1, "NATS/1.0503\r\n\r\n", ""), Answer::Uncertain(UncertainCause::MalformedReply), Close),
        (&message_with_headers(1, "NATS/1.0 503\r\n", ""), Answer::Uncertain(UncertainCause::MalformedReply), Close),
    ]);
}

#[test]
fn a_reply_counts_for_exactly_this_inbox_subscription_and_stream() {
    let reply = |subject: &str, subscription: &str, body: &str| -> Vec<u8> {
        format!("MSG {subject} {subscription} {}\r\n{body}\r\n", body.len()).into()
    };
    let (mine, close) = (inbox(1), Connection::Close);
    let foreign = Answer::Uncertain(UncertainCause::ForeignReply);
    check(&[
        (&reply(&inbox(2), "1", RECEIPT), foreign, close),
        (&reply(&inbox(0), "1", RECEIPT), foreign, close),
        (&reply(&inbox(11), "1", RECEIPT), foreign, close),
        (&reply(&mine[..mine.len() - 2], "1", RECEIPT), foreign, close),
        (&reply(&mine.to_uppercase(), "1", RECEIPT), foreign, close),
        (&reply(&mine.replace(".3.", ".4."), "1", RECEIPT), foreign, close),
        (&reply("orders.new", "1", RECEIPT), foreign, close),
        (&reply("\u{fffd}", "1", RECEIPT), foreign, close),
        (&reply(&mine, "2", RECEIPT), foreign, close),
        (&reply(&mine, "01", RECEIPT), foreign, close),
        (&reply(&mine, "11", RECEIPT), foreign, close),
        (&reply(&mine, "1", r#"{"stream":"OTHER","seq":7}"#), Answer::Uncertain(UncertainCause::WrongStream), close),
        (&reply(&mine, "1", r#"{"stream":"ORD","seq":0,"duplicate":true}"#), Answer::Uncertain(UncertainCause::MalformedReply), close),
        (&reply(&mine, "1", ""), Answer::Uncertain(UncertainCause::MalformedReply), close),
        (b"PONG\r\n", foreign, close),
    ]);
}

#[test]
fn a_late_reply_to_an_earlier_operation_is_never_matched_to_a_new_one() {
    let mut link = established();
    for operation in 1..=2 {
        let mut publish = Publish::begin(&mut link, &publication(b"x")).unwrap();
        let written = String::from_utf8(take(&mut publish)).unwrap();
        assert!(written.starts_with(&format!("HPUB orders.new {} ", inbox(operation))), "{written}");
        publish.received(&message(operation, RECEIPT));
        assert_eq!(publish.finish().outcome, receipt(7, false));
    }
    let mut publish = Publish::begin(&mut link, &publication(b"x")).unwrap();
    take(&mut publish);
    publish.received(&message(2, RECEIPT));
    publish.received(&message(3, RECEIPT));
    let end = publish.finish();
    assert_eq!((end.outcome, end.connection), (Answer::Uncertain(UncertainCause::ForeignReply), Connection::Close));
    // A second reply to an operation that has ended is found before anything is written.
    let mut link = established();
    let mut publish = Publish::begin(&mut link, &publication(b"x")).unwrap();
    take(&mut publish);
    publish.received(&[message(1, RECEIPT), message(1, RECEIPT)].concat());
    assert_eq!(publish.finish().outcome, receipt(7, false));
    assert_eq!(Publish::begin(&mut link, &publication(b"x")).unwrap_err(), PublishRefused::LinkNotReusable);
    assert!(!link.is_reusable());
}

#[test]
fn only_the_exact_refusal_of_this_subject_is_a_denied_permission() {
    let another = (Answer::Uncertain(UncertainCause::PermissionOfAnother), Connection::Close);
    let broker = (Answer::Uncertain(UncertainCause::BrokerError), Connection::Close);
    let denied = (failed(FailureKind::PermissionDenied, Cause::PublishRefused), Connection::Keep);
    let too_large = (failed(FailureKind::InvalidEvent, Cause::ServerMaximum), Connection::Close);
    let table = [
        ("'Permissions Violation for Publish to \"orders.new\"'", denied),
        ("'Permissions Violation for Publish to \"orders.old\"'", another),
        ("'Permissions Violation for Publish to \"orders.new.more\"'", another),
        ("'Permissions Violation for Publish to \"ORDERS.NEW\"'", another),
        ("'permissions violation for publish to \"orders.new\"'", another),
        ("'Permissions Violation for Publish to \"orders.new\" sid 1'", another),
        ("'Permissions Violation for Publish with Reply of \"_INBOX.LSF.x\"'", another),
        ("'Permissions Violation for Subscription to \"orders.new\"'", another),
        ("'Maximum Payload Violation'", too_large),
        ("'Stale Connection'", broker),
        ("'User Authentication Expired'", broker),
        ("", broker),
    ];
    for (text, (outcome, connection)) in table {
        let end = after(format!("-ERR {text}\r\n").as_bytes());
        assert_eq!((end.outcome, end.connection), (outcome, connection), "{text}");
        assert!(!format!("{end:?}").contains("orders"), "{end:?}");
    }
    // Before the first byte every one of them leaves the publication unsent.
    for (text, _) in table {
        let mut link = established();
        let mut publish = Publish::begin(&mut link, &publication(b"x")).unwrap();
        publish.received(format!("-ERR {text}\r\n").as_bytes());
        assert!(publish.want() == Want::Done && publish.outgoing().concat().is_empty());
        let end = publish.finish();
        assert!(matches!(end.outcome, Answer::KnownFailure { kind: FailureKind::Unavailable, .. }) && !end.possible_write, "{text}");
    }
}

#[test]
fn eight_control_frames_are_answered_and_nine_are_a_flood() {
    let control = |count: usize| [b"PING\r\n", INFO, b"+OK\r\n"].into_iter().cycle().take(count).collect::<Vec<_>>().concat();
    for chunk in [1, 2, 5, 10_000] {
        let mut link = established();
        let mut publish = Publish::begin(&mut link, &publication(b"x")).unwrap();
        take(&mut publish);
        let input = [control(8), message(1, RECEIPT)].concat();
        let mut written = Vec::new();
        for piece in input.chunks(chunk) {
            publish.received(piece);
            written.extend(take(&mut publish));
        }
        assert_eq!(String::from_utf8(written).unwrap(), "PONG\r\n".repeat(3), "{chunk}");
        let end = publish.finish();
        assert_eq!((end.outcome, end.connection), (receipt(7, false), Connection::Keep), "{chunk}");
        assert!(link.is_reusable());
    }
    let end = after(&[control(9), message(1, RECEIPT)].concat());
    assert_eq!((end.outcome, end.connection), (Answer::Uncertain(UncertainCause::ControlFlood), Connection::Close));
}

#[test]
fn what_is_above_a_bound_ends_the_stage_before_it_is_read() {
    let line = [b"MSG ", &*vec![b's'; 8_189]].concat();
    let (flood, deep) = (Answer::Uncertain(UncertainCause::LineTooLong), Answer::Uncertain(UncertainCause::MalformedReply));
    let oversized = Answer::Uncertain(UncertainCause::OversizedReply);
    let nested =
        |levels: usize| message(1, &format!(r#"{{"stream":"ORD","seq":7,"x":{}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1)));
    check(&[
        (&line, flood, Connection::Close),
        (format!("MSG {} 1 4097\r\n", inbox(1)).as_bytes(), oversized, Connection::Close),
        (format!("HMSG {} 1 12 4097\r\n", inbox(1)).as_bytes(), oversized, Connection::Close),
        (&message(1, &format!("{RECEIPT}{}", " ".repeat(4_096 - RECEIPT.len()))), receipt(7, false), Connection::Keep),
        (&nested(8), receipt(7, false), Connection::Keep),
        (&nested(9), deep, Connection::Close),
    ]);
}

#[test]
fn an_answer_stays_when_the_answer_to_a_ping_does_not_get_out() {
    for how in [Ended::PeerClosed, Ended::TransportFailed, Ended::DeadlineExceeded, Ended::Cancelled] {
        let mut link = established();
        let mut publish = Publish::begin(&mut link, &publication(b"x")).unwrap();
        take(&mut publish);
        publish.received(&[b"PING\r\n", &*message(1, RECEIPT)].concat());
        assert_eq!((publish.want(), publish.outgoing().concat()), (Want::Write, b"PONG\r\n".to_vec()));
        publish.wrote(2);
        publish.ended(how);
        assert_eq!(publish.want(), Want::Done);
        let end = publish.finish();
        assert_eq!((end.outcome, end.connection), (receipt(7, false), Connection::Close), "{how:?}");
    }
}

#[test]
fn the_border_is_the_first_offer_even_when_nothing_is_taken() {
    let ends = [
        (Ended::PeerClosed, failed(FailureKind::Unavailable, Cause::ConnectionLost), UncertainCause::ConnectionLost),
        (Ended::TransportFailed, failed(FailureKind::Unavailable, Cause::ConnectionLost), UncertainCause::ConnectionLost),
        (Ended::DeadlineExceeded, failed(FailureKind::DeadlineExceeded, Cause::Deadline), UncertainCause::Deadline),
        (Ended::Cancelled, failed(FailureKind::Cancelled, Cause::Cancelled), UncertainCause::Cancelled),
    ];
    for (how, before, hidden) in ends {
        for written in [None, Some(0), Some(1), Some(100), Some(usize::MAX)] {
            let mut link = established();
            let mut publish = Publish::begin(&mut link, &publication(b"x")).unwrap();
            if let Some(written) = written {
                publish.offering();
                publish.wrote(written);
            }
            publish.ended(how);
            publish.ended(Ended::PeerClosed);
            let outcome = if written.is_some() { Answer::Uncertain(hidden) } else { before };
            let expected = PublishEnd { outcome, possible_write: written.is_some(), connection: Connection::Close };
            assert_eq!(publish.finish(), expected, "{how:?} {written:?}");
            assert!(!link.is_reusable());
        }
    }
}

#[test]
fn a_reply_that_stalls_or_is_cut_off_is_told_apart_from_one_that_never_came() {
    let reply = message(1, RECEIPT);
    for cut in 1..reply.len() {
        for (how, cause) in [(Ended::PeerClosed, UncertainCause::ReplyTruncated), (Ended::DeadlineExceeded, UncertainCause::ReplyStalled)] {
            let mut link = established();
            let mut publish = Publish::begin(&mut link, &publication(b"x")).unwrap();
            take(&mut publish);
            publish.received(&reply[..cut]);
            publish.ended(how);
            assert_eq!(publish.finish().outcome, Answer::Uncertain(cause), "{cut}");
        }
    }
}

#[test]
fn a_whole_reply_counts_whatever_comes_behind_it() {
    for how in [Ended::PeerClosed, Ended::TransportFailed] {
        let mut link = established();
        let mut publish = Publish::begin(&mut link, &publication(b"x")).unwrap();
        take(&mut publish);
        publish.received(&message(1, RECEIPT));
        publish.ended(how);
        assert_eq!(publish.finish().outcome, receipt(7, false));
    }
    // More than there is room for behind it: the receipt stays, the connection does not.
    let end = after(&[message(1, RECEIPT), vec![b'x'; 100_000]].concat());
    assert_eq!((end.outcome, end.connection), (receipt(7, false), Connection::Close));
}

#[test]
fn a_reply_to_what_was_not_sent_completely_belongs_to_something_else() {
    let replies = [
        message(1, RECEIPT),
        message(1, r#"{"error":{"code":400,"err_code":10060}}"#),
        message_with_headers(1, "NATS/1.0 503\r\n\r\n", ""),
        b"-ERR 'Permissions Violation for Publish to \"orders.new\"'\r\n".to_vec(),
    ];
    for reply in replies {
        let mut link = established();
        let mut publish = Publish::begin(&mut link, &publication(b"payload")).unwrap();
        publish.offering();
        let bytes = publish.outgoing().concat().len();
        publish.wrote(bytes - 1);
        publish.received(&reply);
        assert_eq!(publish.want(), Want::Done);
        let end = publish.finish();
        assert!(matches!(end.outcome, Answer::Uncertain(_)) && end.connection == Connection::Close, "{end:?}");
    }
}

#[test]
fn a_publication_goes_out_in_one_piece_however_the_writer_takes_it() {
    let payload = b"\r\npayload\r\n";
    let expected = {
        let mut link = established();
        take(&mut Publish::begin(&mut link, &publication(payload)).unwrap())
    };
    assert!(expected.ends_with(b"\r\n\r\n\r\npayload\r\n\r\n"));
    for step in 1..=expected.len() {
        let mut link = established();
        let mut publish = Publish::begin(&mut link, &publication(payload)).unwrap();
        let mut written = Vec::new();
        let mut pings = 0;
        while publish.want() == Want::Write {
            publish.offering();
            let bytes = publish.outgoing().concat();
            let count = step.min(bytes.len());
            written.extend_from_slice(&bytes[..count]);
            publish.wrote(count);
            if pings < 3 {
                // A PING in the middle is answered behind the publication, not inside it.
                publish.received(b"PING\r\n");
                pings += 1;
            }
        }
        let (publication, pongs) = written.split_at(expected.len());
        assert!(publication == expected && pongs == b"PONG\r\n".repeat(pings), "{step}");
    }
}

#[test]
fn headers_and_payload_are_taken_at_the_broker_s_maximum_and_refused_one_beyond() {
    let info = |bytes: usize| format!("INFO {{\"headers\":true,\"max_payload\":{bytes}}}\r\n").into_bytes();
    let payload = [0; 100];
    let bytes = header_block_bytes(&publication(&payload)) + payload.len();
    let refused = PublishRefused::ServerMaximum { bytes, bytes_max: bytes as u64 - 1 };
    assert!(Publish::begin(&mut established_with(&info(bytes)), &publication(&payload)).is_ok());
    let mut link = established_with(&info(bytes - 1));
    assert_eq!(Publish::begin(&mut link, &publication(&payload)).unwrap_err(), refused);
    assert!(link.is_reusable() && Publish::begin(&mut link, &publication(&payload[1..])).is_ok());
    assert_eq!(refused.answer(), failed(FailureKind::InvalidEvent, Cause::ServerMaximum));

    // A newer INFO that waits in the link.
    let mut link = established_with(&info(bytes));
    let mut publish = Publish::begin(&mut link, &publication(&payload)).unwrap();
    take(&mut publish);
    publish.received(&[message(1, RECEIPT), info(bytes - 1)].concat());
    assert_eq!(publish.finish().outcome, receipt(7, false));
    assert_eq!(Publish::begin(&mut link, &publication(&payload)).unwrap_err(), refused);
    assert!(link.is_reusable());

    // One that arrives after it began and before its first byte.
    let mut link = established_with(&info(bytes));
    let mut publish = Publish::begin(&mut link, &publication(&payload)).unwrap();
    publish.received(&info(bytes - 1));
    assert_eq!(publish.want(), Want::Done);
    let expected = PublishEnd { outcome: refused.answer(), possible_write: false, connection: Connection::Keep };
    assert_eq!(publish.finish(), expected);
    assert!(link.is_reusable());

    // One that arrives while it is written changes nothing for it.
    let mut publish = Publish::begin(&mut link, &publication(&payload[1..])).unwrap();
    publish.offering();
    publish.wrote(1);
    publish.received(&info(10));
    take(&mut publish);
    publish.received(&message(2, RECEIPT));
    assert_eq!(publish.finish().outcome, receipt(7, false));
    assert_eq!(link.server().unwrap().max_payload_bytes, 10);
}

#[test]
fn an_info_that_cannot_be_worked_with_ends_the_stage() {
    for info in ["INFO {\"headers\":false,\"max_payload\":9}", "INFO {\"headers\":true}", "INFO x", "INFO"] {
        let end = after(format!("{info}\r\n").as_bytes());
        assert_eq!((end.outcome, end.connection), (Answer::Uncertain(UncertainCause::MalformedReply), Connection::Close), "{info}");
    }
}

#[test]
fn an_inbox_is_never_used_twice_not_even_when_they_run_out() {
    let mut link = established();
    link.inbox.skip_to(u64::MAX);
    let mut publish = Publish::begin(&mut link, &publication(b"x")).unwrap();
    take(&mut publish);
    publish.received(&message(u64::MAX, RECEIPT));
    assert_eq!(publish.finish().outcome, receipt(7, false));
    for _ in 0..2 {
        assert_eq!(Publish::begin(&mut link, &publication(b"x")).unwrap_err(), PublishRefused::InboxExhausted);
    }
    assert_eq!(PublishRefused::InboxExhausted.answer(), failed(FailureKind::Unavailable, Cause::Local));
}

#[test]
fn what_is_refused_takes_no_operation_and_offers_nothing() {
    let mut link = established();
    let refused = Publish::begin(&mut link, &Publication { subject: "a b", ..publication(b"x") }).unwrap_err();
    assert_eq!((refused, link.is_reusable()), (PublishRefused::Text { field: "subject" }, true));
    let written = take(&mut Publish::begin(&mut link, &publication(b"x")).unwrap());
    assert!(String::from_utf8(written).unwrap().contains(&inbox(1)));
}

#[test]
fn only_a_link_in_step_takes_a_publication() {
    let refused = |link: &mut Link| Publish::begin(link, &publication(b"x")).unwrap_err();
    assert_eq!(refused(&mut crate::testing::fresh()), PublishRefused::LinkNotReusable);
    let mut dropped = established();
    assert!(Publish::begin(&mut dropped, &publication(b"x")).is_ok());
    assert_eq!(refused(&mut dropped), PublishRefused::LinkNotReusable);
    for waiting in [&b"PIN"[..], b"MSG a 1 3\r\n", b"PONG\r\n", b"-ERR 'x'\r\n", b"MSG a 1 0\r\n\r\n", b"nonsense\r\n"] {
        let mut link = established();
        link.decoder.fill(waiting);
        assert_eq!(refused(&mut link), PublishRefused::LinkNotReusable, "{}", String::from_utf8_lossy(waiting));
    }
}

#[test]
fn an_unfinished_publication_that_is_finished_is_as_good_as_cancelled() {
    let mut link = established();
    let end = Publish::begin(&mut link, &publication(b"x")).unwrap().finish();
    assert_eq!((end.outcome, end.possible_write), (failed(FailureKind::Cancelled, Cause::Cancelled), false));
    let mut link = established();
    let mut publish = Publish::begin(&mut link, &publication(b"x")).unwrap();
    publish.offering();
    let end = publish.finish();
    assert_eq!((end.outcome, end.possible_write), (Answer::Uncertain(UncertainCause::Cancelled), true));
}

#[test]
fn a_link_keeps_its_memory_over_many_publications() {
    let mut link = established();
    let before = (link.head.as_ptr(), link.head.capacity());
    for operation in 1..=1_000 {
        let mut publish = Publish::begin(&mut link, &publication(b"payload")).unwrap();
        while publish.want() == Want::Write {
            publish.offering();
            publish.wrote(publish.outgoing().iter().map(|part| part.len()).sum());
        }
        publish.received(&message(operation, RECEIPT));
        assert_eq!(publish.finish().outcome, receipt(7, false));
    }
    assert_eq!((link.head.as_ptr(), link.head.capacity()), before);
}

#[test]
fn nothing_shows_content_keys_ids_or_secrets() {
    let attributes = latent_core::Attributes::parse(vec![("marker-a".to_owned(), "marker-b".to_owned())]).unwrap();
    let publication = Publication {
        subject: "marker-subject",
        expected_stream: "marker-stream",
        message_id: "marker-id",
        content_type: Some("marker/type"),
        key: Some("marker-key"),
        attributes: &attributes,
        payload: b"marker-payload",
    };
    let mut link = established();
    let mut publish = Publish::begin(&mut link, &publication).unwrap();
    let shown = format!("{publication:?} {publish:?}");
    take(&mut publish);
    publish.received(b"-ERR 'marker-text'\r\n");
    let shown = format!("{shown} {publish:?}");
    let shown = format!("{shown} {:?}", publish.finish());
    let shown = format!("{shown} {link:?} {:?}", link.server());
    assert!(!shown.contains("marker") && !shown.contains(&"5a".repeat(16)), "{shown}");
}
