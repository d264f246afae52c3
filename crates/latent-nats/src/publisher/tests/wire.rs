//! Lines and frames at their bounds, in every stage: long lines, floods of control frames, bytes that are no protocol (P-024, P-027).

use latent_core::UncertainCause;
use latent_testkit::fake_peer::{INFO, Step, message_for};

use super::bench::{Bench, PAYLOAD_END, STORED, receipt, serve, serve_each, unavailable, uncertain};

/// An INFO whose line, without its end, has this many bytes.
fn info_of(bytes: usize) -> String {
    let long = INFO.replace("\"client_id\":5}\r\n", "\"connect_urls\":[\"");
    let end = "\"],\"unknown\":{\"deep\":[[[{}]]]}}";
    format!("{long}{}{end}\r\n", "x".repeat(bytes - long.len() - end.len()))
}

/// The same bytes, sent at once, one by one, and split inside the line end.
fn ways(text: &str) -> [Vec<Step>; 3] {
    let bytes = text.as_bytes().to_vec();
    let (begin, end) = bytes.split_at(bytes.len() - 1);
    [vec![Step::Send(bytes.clone())], vec![Step::SendBytewise(bytes.clone())], vec![Step::Send(begin.to_vec()), Step::Send(end.to_vec())]]
}

/// P-024, P-062, BUG-07.
#[tokio::test]
async fn an_info_of_eight_kib_is_read_however_it_comes_and_one_byte_more_is_unavailable() {
    let answered = [Step::ServeUntil(PAYLOAD_END.to_vec()), Step::reply_message(STORED), Step::Close];
    let mut scripts = Vec::new();
    for bytes in [1_023, 1_024, 1_025, 4_097, 8_191, 8_192] {
        scripts.extend(ways(&info_of(bytes)).map(|info| info.into_iter().chain(answered.clone()).collect()));
    }
    let read = scripts.len();
    scripts.extend(ways(&info_of(8_193)).map(|info| info.into_iter().chain([Step::Hold]).collect()));
    scripts.push(vec![Step::Send(vec![b'I'; 64 << 20]), Step::Hold]);
    let all = scripts.len();
    let bench = Bench::start(scripts);
    for _ in 0..read {
        receipt(bench.publish().await);
        bench.clock.skip(2_000);
    }
    for connection in read..all {
        let reason = unavailable(bench.publish().await);
        assert!(reason.contains("longer than 8 KiB") && reason.contains("very large cluster"), "{reason}");
        bench.peer.until_client_ended(connection).await;
        bench.clock.skip(60_000);
    }
    assert_eq!((bench.peer.accepted(), bench.publications()), (all, read));
    // Nothing of the session was said to a broker that could not be read.
    assert_eq!(bench.count(all - 1, b"CONNECT"), 0);
}

/// P-024: before the answer a line at its bound is read, and one byte more ends it as uncertain.
#[tokio::test]
async fn a_line_above_eight_kib_before_the_answer_is_uncertain() {
    let at_bound = Step::send(info_of(8_192));
    let above = [Step::send(info_of(8_193)), Step::Send(vec![b'x'; 8_195])];
    let above_in_message = Step::reply(|received| {
        let message = message_for(received, STORED.as_bytes());
        let mut frame = b"MSG ".to_vec();
        frame.extend(vec![b' '; 8_192]);
        frame.extend_from_slice(&message[4..]);
        frame
    });
    let mut scripts = vec![serve([at_bound, Step::reply_message(STORED), Step::Close])];
    scripts.extend(above.into_iter().chain([above_in_message]).map(|step| serve([step, Step::Hold])));
    let bench = Bench::start(scripts);
    receipt(bench.publish().await);
    bench.clock.skip(2_000);
    for connection in 1..4 {
        assert_eq!(uncertain(bench.publish().await), UncertainCause::Unusable, "{connection}");
        bench.peer.until_client_ended(connection).await;
    }
    bench.assert_nothing_is_held();
}

/// Control frames of every kind, as many.
fn controls(count: usize) -> String {
    let lowered = INFO.replace("1048576", "900000");
    let kinds = ["PING\r\n", "+OK\r\n", lowered.as_str(), "PING\r\n"];
    (0..count).map(|place| kinds[place % kinds.len()]).collect()
}

fn pings(count: usize) -> usize {
    (0..count).filter(|place| place % 2 == 0 || place % 4 == 3).filter(|place| place % 4 != 2).count()
}

/// P-027, BUG-28: eight while the answer is awaited, however they are split, and each PING is answered.
#[tokio::test]
async fn eight_control_frames_before_the_answer_are_dealt_with_and_the_ninth_is_a_flood() {
    let mut scripts: Vec<Vec<Step>> = Vec::new();
    for way in ways(&controls(8)) {
        let answered_pings = Step::ExpectUntil(b"PONG\r\n".repeat(pings(8)));
        scripts.push(serve(way.into_iter().chain([answered_pings, Step::reply_message(STORED), Step::Close])));
    }
    for way in ways(&controls(9)) {
        scripts.push(serve(way.into_iter().chain([Step::reply_message(STORED), Step::Hold])));
    }
    let bench = Bench::start(scripts);
    for connection in 0..3 {
        receipt(bench.publish().await);
        assert_eq!(bench.count(connection, b"PONG\r\n"), pings(8));
        bench.clock.skip(2_000);
    }
    for connection in 3..6 {
        assert_eq!(uncertain(bench.publish().await), UncertainCause::Unusable);
        bench.peer.until_client_ended(connection).await;
    }
}

/// P-027: the same bound while a session is opened, where it is unavailable.
#[tokio::test]
async fn eight_control_frames_within_the_handshake_are_dealt_with_and_the_ninth_is_a_flood() {
    let flooded = |count: usize| {
        let rest = [Step::ServeUntil(PAYLOAD_END.to_vec()), Step::reply_message(STORED), Step::Close];
        [Step::send(format!("{INFO}{}", controls(count)))].into_iter().chain(rest).collect::<Vec<_>>()
    };
    let bench = Bench::start(vec![flooded(8), flooded(9)]);
    receipt(bench.publish().await);
    assert_eq!(bench.count(0, b"PONG\r\n"), pings(8));
    bench.clock.skip(2_000);
    let reason = unavailable(bench.publish().await);
    assert!(reason.contains("more control frames"), "{reason}");
    assert_eq!((bench.peer.accepted(), bench.publications()), (2, 1));
}

/// Bytes that are no frame, or one that nobody waits for, wherever they come (BUG-21).
const NO_PROTOCOL: &[&str] = &[
    "HMSG _INBOX.LSF.x 1 12 4\r\n",
    "HMSG _INBOX.LSF.x 1 0 0\r\n\r\n",
    "MSG _INBOX.LSF.x 1 -1\r\n",
    "MSG _INBOX.LSF.x 1 +1\r\nx\r\n",
    "MSG _INBOX.LSF.x 1 01\r\nx\r\n",
    "MSG _INBOX.LSF.x 1 18446744073709551615\r\n",
    "MSG _INBOX.LSF.x 1 99999999999999999999999\r\n",
    "MSG _INBOX.LSF.x 1\r\n",
    "MSG _INBOX.LSF.x 1 2 3 4 5\r\n",
    "MSG\r\n",
    "MSG _INBOX.LSF.x 1 1\r\nxx\r\n",
    "MSG _INBOX.LSF.x 1 1\r\nx\n\r",
    "MSG _INBOX.LSF.\u{fffd} 1 1\r\nx\r\n",
    "-ERR\r\n",
    "-ERR \r\n",
    "HMSG _INBOX.LSF.x 1 15 15\r\nNATS/1.0503\r\n\r\n\r\n",
    "HMSG _INBOX.LSF.x 1 14 14\r\nNATS/1.0 503\r\n\r\n",
    "GET / HTTP/1.1\r\n\r\n",
    "HUH\r\n",
    "PINGPONG\r\n",
    "\r\n",
    "\n",
    "PING\n",
    "\u{0}\u{0}\u{0}\r\n",
    "PUB a 1\r\nx\r\n",
    "CONNECT {}\r\n",
    "SUB a 1\r\n",
];

#[tokio::test]
async fn bytes_that_are_no_protocol_before_the_answer_are_uncertain_and_close() {
    let bench = Bench::start(NO_PROTOCOL.iter().map(|text| serve([Step::send(*text), Step::Hold])).collect());
    for (connection, text) in NO_PROTOCOL.iter().enumerate() {
        assert_eq!(uncertain(bench.publish().await), UncertainCause::Unusable, "{text:?}");
        bench.peer.until_client_ended(connection).await;
    }
}

#[tokio::test]
async fn bytes_that_are_no_protocol_within_the_handshake_are_unavailable_and_publish_nothing() {
    let before_info = NO_PROTOCOL.iter().map(|text| vec![Step::send(*text), Step::Hold]);
    let before_pong =
        NO_PROTOCOL.iter().map(|text| vec![Step::send(INFO), Step::ExpectUntil(b"SUB ".to_vec()), Step::send(*text), Step::Hold]);
    let scripts: Vec<_> = before_info.chain(before_pong).collect();
    let count = scripts.len();
    let bench = Bench::start(scripts);
    for connection in 0..count {
        unavailable(bench.publish().await);
        bench.peer.until_client_ended(connection).await;
        bench.clock.skip(60_000);
    }
    assert_eq!((bench.peer.accepted(), bench.publications()), (count, 0));
}

#[tokio::test]
async fn bytes_that_are_no_protocol_on_a_parked_connection_cost_one_more_dial_and_nothing_else() {
    let parked = |text: &&str| serve([Step::reply_message(STORED), Step::send(*text), Step::Hold]);
    let bench = Bench::start(NO_PROTOCOL.iter().map(parked).chain([serve_each([Step::reply_message(STORED)])]).collect());
    for connection in 0..=NO_PROTOCOL.len() {
        receipt(bench.publish().await);
        assert_eq!(bench.peer.accepted(), connection + 1);
        bench.clock.skip(2_000);
    }
    assert_eq!(bench.publisher.snapshot().parked_lost, NO_PROTOCOL.len() as u64);
}
