//! What is refused on this side: no socket, no byte, no charge left (P-047, P-059).

use latent_capabilities::limits::{CALL_SCRATCH_BYTES, CONNECTION_BYTES, POOL_BYTES};
use latent_capabilities::{EventDraft, PoolSettings};
use latent_core::KnownFailure;
use latent_testkit::fake_peer::Step;

use super::bench::{Bench, STORED, Setup, event, failure, receipt, serve, serve_each};

/// P-005, P-008, P-047, BUG-19: a topic that looks like an address, a subject, a command or an injection is a name that nothing has.
#[tokio::test]
async fn a_topic_that_is_more_than_a_name_is_refused_before_any_socket() {
    let long = "t".repeat(129);
    let topics = [
        "",
        "a b",
        "a\tb",
        "out\n",
        "out\r\nPUB x 1\r\nx",
        "a..b",
        ".a",
        "a.",
        "a.*",
        "*",
        ">",
        "out.>",
        "$JS.API.INFO",
        "$SYS.x",
        "_INBOX.x",
        "_inbox.x",
        "_INBOX.LSF.x",
        "out\0",
        "\u{fc}ber",
        "a\u{a0}b",
        &long,
        "shop.out",
        "nats://127.0.0.1:4222",
        "ORD",
        "OUT",
    ];
    let bench = Bench::start(vec![serve_each([Step::reply_message(STORED)])]);
    for topic in topics {
        let refused = failure(bench.publish_draft(EventDraft { topic: topic.to_owned(), ..event() }).await);
        assert!(matches!(refused, KnownFailure::InvalidTopic | KnownFailure::PermissionDenied), "{topic:?}: {refused:?}");
    }
    assert_eq!((bench.peer.accepted(), bench.pools.pools.snapshot().totals.dials), (0, 0));
    bench.assert_nothing_is_held();
    receipt(bench.publish().await);
}

/// P-019 to P-023, P-038, BUG-20: nothing that a caller writes can end a line or stand for a header of ours.
#[tokio::test]
async fn what_could_end_a_header_is_refused_and_not_stripped() {
    let attribute = |name: &str, value: &str| EventDraft { attributes: vec![(name.to_owned(), value.to_owned())], ..event() };
    let long = "v".repeat(257);
    let mut refused: Vec<EventDraft> =
        ["", "a:b", "a b", "$x_y", "\u{fc}", "a\r\nNats-Msg-Id: x", "a\0"].map(|name| attribute(name, "v")).to_vec();
    refused.push(attribute(&"n".repeat(65), "v"));
    let values = [" v", "v ", "\u{fc}", "\r", "\n", "a\rb", "a\nb", "v\r\nNats-Msg-Id: x", "\0", "a\0b", &long];
    refused.extend(values.map(|value| attribute("a", value)));
    refused.push(EventDraft { attributes: vec![("a".to_owned(), "1".to_owned()), ("A".to_owned(), "2".to_owned())], ..event() });
    for text in ["\r\n", "a\r\nb: c", "a b", "\0", "\u{fc}"] {
        refused.push(EventDraft { key: Some(text.to_owned()), ..event() });
        refused.push(EventDraft { media_type: text.to_owned(), ..event() });
        refused.push(EventDraft { idempotency_key: text.to_owned(), ..event() });
    }
    let bench = Bench::start(vec![serve_each([Step::reply_message(STORED)])]);
    for draft in refused {
        let shown = format!("{draft:?}");
        assert!(matches!(failure(bench.publish_draft(draft).await), KnownFailure::InvalidEvent { .. }), "{shown}");
    }
    assert_eq!(bench.peer.accepted(), 0);
    bench.assert_nothing_is_held();
}

/// P-034, P-035, P-038, BUG-22: names that look like ours stay below the prefix, and ours are there once each.
#[tokio::test]
async fn attributes_stand_below_their_prefix_and_reserved_headers_are_there_once() {
    let names = ["Nats-Msg-Id", "X-Nats-Msg-Id", "Nats-Expected-Stream", "Content-Type", "Lsf-Event-Key", "Status", "a"];
    let attributes = names.map(|name| (name.to_owned(), format!("{name}:v"))).to_vec();
    let bench = Bench::start(vec![serve_each([Step::reply_message(STORED)])]);
    receipt(bench.publish_draft(EventDraft { attributes, ..event() }).await);
    let received = String::from_utf8(bench.peer.report(0).received).unwrap();
    let (_, publication) = received.split_once("NATS/1.0\r\n").unwrap();
    let (block, payload) = publication.split_once("\r\n\r\n").unwrap();
    assert_eq!(payload.as_bytes(), super::bench::PAYLOAD_END);
    let headers: Vec<(&str, &str)> = block.split("\r\n").map(|line| line.split_once(": ").unwrap()).collect();
    for name in names {
        let below = format!("Lsf-Attr-{name}");
        assert!(headers.contains(&(&below, &format!("{name}:v"))), "{headers:?}");
    }
    for (name, value) in [("Nats-Expected-Stream", "ORD"), ("Content-Type", "application/json"), ("Lsf-Event-Key", "customer-7")] {
        let same: Vec<_> = headers.iter().filter(|(header, _)| header.eq_ignore_ascii_case(name)).collect();
        assert_eq!(same, [&(name, value)]);
    }
    let ids: Vec<_> = headers.iter().filter(|(header, _)| header.eq_ignore_ascii_case("Nats-Msg-Id")).collect();
    assert!(matches!(ids[..], [(_, id)] if id.starts_with("lsf-") && id.len() == 68), "{ids:?}");
    assert_eq!(headers.len(), names.len() + 4);
}

/// P-030, P-031: a call is charged what its input holds by capacity, and a workspace beside it, while it waits already.
#[tokio::test]
async fn input_is_charged_by_its_capacity_and_refused_without_room_for_it() {
    let roomy = |capacity: usize| {
        let mut payload = Vec::with_capacity(capacity);
        payload.extend_from_slice(br#"{"n":1}"#);
        EventDraft { payload, ..event() }
    };
    let settings = PoolSettings::default().set(&POOL_BYTES, 1 << 20).unwrap();
    let script = serve([Step::Gate, Step::reply_message(STORED), Step::Hold]);
    let bench = Bench::start_with(vec![script], Setup { settings, ..Setup::default() });
    assert!(matches!(failure(bench.publish_draft(roomy(1 << 20)).await), KnownFailure::Unavailable { .. }));
    assert_eq!((bench.peer.accepted(), bench.pools.pools.snapshot().totals.dials), (0, 0));
    let charged = 300_000;
    let call = tokio::spawn({
        let bench = std::sync::Arc::clone(&bench);
        async move { bench.publish_draft(roomy(charged)).await }
    });
    bench.peer.until_received(0, super::bench::PAYLOAD_END).await;
    let bytes = bench.pools.pools.snapshot().bytes;
    assert!(bytes >= CONNECTION_BYTES.default + CALL_SCRATCH_BYTES.default + charged as u64, "{bytes}");
    bench.peer.open_gate();
    receipt(call.await.unwrap());
    assert_eq!(bench.pools.pools.snapshot().bytes, CONNECTION_BYTES.default);
}

/// P-018: the ceiling counts, to the byte.
#[tokio::test]
async fn a_payload_at_the_ceiling_is_sent_and_one_byte_more_is_refused() {
    let payload = |bytes: usize| {
        let mut payload = vec![b'x'; bytes];
        let end = payload.len() - 7;
        payload[end..].copy_from_slice(br#"{"n":1}"#);
        EventDraft { payload, ..event() }
    };
    let bench = Bench::start(vec![serve_each([Step::reply_message(STORED)])]);
    assert!(matches!(failure(bench.publish_draft(payload(65_537)).await), KnownFailure::InvalidEvent { .. }));
    assert_eq!(bench.peer.accepted(), 0);
    receipt(bench.publish_draft(payload(65_536)).await);
}
