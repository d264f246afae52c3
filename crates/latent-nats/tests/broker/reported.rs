//! Public reports about other clients, each as one small experiment on the real broker. The number is that of the case; those that need a
//! peer no real broker is are in `src/publisher/tests`.

use std::sync::Arc;
use std::time::Duration;

use latent_capabilities::EventDraft;
use latent_core::{KnownFailure, PublicationOutcome, UncertainCause};
use latent_testkit::broker::{Broker, BrokerSpec, BrokerUser, StreamSpec};
use latent_testkit::proxy::{At, Direction, Fault, FaultProxy};
use latent_testkit::{StandingTime, require_broker};

use crate::bench::{Bench, STREAM, Setup, event, failure, password, receipt, spec, uncertain};

fn without_streams() -> BrokerSpec {
    BrokerSpec { streams: Vec::new(), ..spec() }
}

/// BUG-05: the orders of handshake that begin with TLS when the client does.
#[tokio::test]
async fn bug_05_a_broker_that_takes_tls_first_among_others_is_connected_to() {
    require_broker!();
    for within in ["auto", "300ms"] {
        let spec = BrokerSpec { handshake_first_within: Some(within), ..spec() };
        let bench = Bench::start(Setup { spec, ..Setup::default() });
        assert_eq!(receipt(bench.publish("shop", "k").await).sequence, 1, "{within}");
    }
}

/// BUG-09: a silent listener hides that no stream is there. Nobody can know, and nobody asks.
#[tokio::test(start_paused = true)]
async fn bug_09_a_listener_without_a_stream_leaves_the_publication_uncertain() {
    require_broker!();
    let _standing = StandingTime::hold();
    let broker = Broker::start(without_streams());
    let proxy = FaultProxy::start(&broker);
    let bench = Arc::new(Bench::on(broker, Setup { address: Some(proxy.address()), ..Setup::default() }));
    let admin = bench.broker.admin().await;
    let _listener = admin.client().subscribe("shop.>").await.unwrap();
    admin.client().flush().await.unwrap();
    let sent = proxy.inject(None, Direction::ToBroker, At::After(b"{\"n\":1}\r\n".to_vec()), Fault::Delay(Duration::ZERO));
    let call = tokio::spawn({
        let bench = Arc::clone(&bench);
        async move { bench.publish("shop", "k").await }
    });
    sent.reached().await;
    tokio::time::advance(Duration::from_millis(5_001)).await;
    assert_eq!(uncertain(call.await.unwrap()).cause, UncertainCause::Deadline);
    let sent = String::from_utf8(proxy.transcript(Direction::ToBroker)).unwrap();
    let verbs: Vec<&str> = sent.split("\r\n").filter_map(|line| line.split(' ').next()).filter(|verb| verb.len() > 2).collect();
    assert_eq!(&verbs[..3], ["CONNECT", "SUB", "PING"]);
    assert_eq!(sent.matches("PUB ").count(), 1, "no request beside the publication");
}

/// BUG-11: a stream by interest that nobody is interested in stores nothing and says what it says.
#[tokio::test]
async fn bug_11_a_receipt_of_a_stream_by_interest_has_a_positive_sequence_or_there_is_none() {
    require_broker!();
    let stream = StreamSpec::new(STREAM, ["shop.out"]).by_interest();
    let bench = Bench::start(Setup { spec: without_streams().stream(stream), ..Setup::default() });
    let admin = bench.broker.admin().await;
    for attempt in 0..2 {
        match bench.publish("shop", "k").await {
            PublicationOutcome::Receipt(receipt) => assert!(receipt.sequence > 0, "{receipt:?}"),
            PublicationOutcome::Uncertain(uncertain) => assert_eq!(uncertain.cause, UncertainCause::Unusable),
            other => panic!("{attempt}: {other:?}"),
        }
    }
    assert_eq!((admin.count(STREAM).await, bench.publisher.snapshot().attempts), (0, 2), "no resend by itself");
}

/// BUG-14: the window counts from the first store, and a late retry is a new message. Its end is the broker's own.
#[tokio::test]
async fn bug_14_a_retry_within_the_window_is_a_duplicate_and_one_after_it_is_stored_again() {
    require_broker!();
    let stream = StreamSpec::new(STREAM, ["shop.out"]).duplicate_window(Duration::from_secs(1));
    let broker = Broker::start(without_streams().stream(stream));
    let proxy = FaultProxy::start(&broker);
    let bench = Bench::on(broker, Setup { address: Some(proxy.address()), ..Setup::default() });
    let cut = proxy.inject(None, Direction::ToClient, At::Before(b"MSG _INBOX.LSF.".to_vec()), Fault::Cut);
    assert_eq!(uncertain(bench.publish("shop", "k").await).cause, UncertainCause::Closed);
    assert!(cut.is_reached());
    let mut answers = Vec::new();
    // The broker is asked until it has forgotten; each answer before that is the first message.
    while answers.last().is_none_or(|(_, duplicate)| *duplicate) {
        let answer = receipt(bench.publish("shop", "k").await);
        answers.push((answer.sequence, answer.duplicate));
    }
    let (last, before) = answers.split_last().unwrap();
    assert!(before.iter().all(|answer| *answer == (1, true)), "{before:?}");
    assert_eq!(*last, (2, false));
    let stored = bench.broker.admin().await.messages(STREAM).await;
    assert!(stored[1].stored_unix_nanos - stored[0].stored_unix_nanos >= 1_000_000_000);
}

/// BUG-16: headers and payload together, to the byte.
#[tokio::test]
async fn bug_16_headers_and_payload_together_are_at_most_what_the_broker_announced() {
    require_broker!();
    let broker = Broker::start(BrokerSpec { max_payload: Some(1_024), ..spec() });
    let proxy = FaultProxy::start(&broker);
    let bench = Bench::on(broker, Setup { address: Some(proxy.address()), ..Setup::default() });
    receipt(bench.publish("shop", "k-0").await);
    let sent = String::from_utf8(proxy.transcript(Direction::ToBroker)).unwrap();
    let line = sent.split("\r\n").find(|line| line.starts_with("HPUB ")).unwrap();
    let headers: usize = line.split(' ').nth(3).unwrap().parse().unwrap();
    let of = |total: usize, key: &str| EventDraft { payload: vec![b'x'; total - headers], ..event(key) };
    for (total, key) in [(1_023, "k-1"), (1_024, "k-2")] {
        receipt(bench.publish_draft("shop", of(total, key)).await);
    }
    let before = proxy.bytes(Direction::ToBroker);
    assert!(matches!(failure(bench.publish_draft("shop", of(1_025, "k-3")).await), KnownFailure::InvalidEvent { .. }));
    assert_eq!((proxy.bytes(Direction::ToBroker), proxy.connections()), (before, 1), "not a byte of it");
    receipt(bench.publish("shop", "k-4").await);
    assert_eq!((bench.broker.admin().await.count(STREAM).await, proxy.connections()), (4, 1));
}

/// BUG-18: what the user may subscribe to is proved before the first publication.
#[tokio::test]
async fn bug_18_a_reply_inbox_that_is_not_permitted_is_found_before_anything_is_published() {
    require_broker!();
    for (allowed, works) in [(vec![], false), (vec!["_INBOX.LSF.*"], false), (vec!["_INBOX.LSF.>"], true), (vec!["_INBOX.>"], true)] {
        let subscribe = allowed.iter().map(|subject| (*subject).to_owned()).collect();
        let user = BrokerUser { subscribe, ..BrokerUser::publisher("shop", &password("shop"), ["shop.out"]) };
        let spec = BrokerSpec::with_users([user]).stream(StreamSpec::new(STREAM, ["shop.out"]));
        let bench = Bench::start(Setup { spec, ..Setup::default() });
        match bench.publish("shop", "k").await {
            PublicationOutcome::Receipt(_) => assert!(works, "{allowed:?}"),
            PublicationOutcome::KnownFailure(KnownFailure::Unavailable { reason }) => {
                assert!(!works && reason.contains("_INBOX.LSF.>"), "{allowed:?}: {reason}");
            }
            other => panic!("{allowed:?}: {other:?}"),
        }
        assert_eq!(bench.broker.admin().await.count(STREAM).await, u64::from(works), "{allowed:?}");
    }
}

/// BUG-20, BUG-22: values as they were given, names below the prefix, and ours once each.
#[tokio::test]
async fn bug_20_attributes_come_back_as_they_were_given() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    let given = [
        ("Nats-Msg-Id", "x"),
        ("nats-expected-stream", "OTHER"),
        ("X-Nats-Msg-Id", "a:b: c"),
        ("a", "with  inner   spaces"),
        ("empty", ""),
        ("marks", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    ];
    let attributes = given.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    receipt(bench.publish_draft("shop", EventDraft { attributes, ..event("k") }).await);
    let stored = bench.broker.admin().await.messages(STREAM).await.remove(0);
    for (name, value) in given {
        assert_eq!(stored.header(&format!("Lsf-Attr-{name}")), Some(value), "{name}");
    }
    for ours in ["Nats-Msg-Id", "Nats-Expected-Stream"] {
        let same = stored.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(ours)).count();
        assert_eq!(same, 1, "{ours}");
    }
    assert_eq!(stored.header("Nats-Expected-Stream"), Some(STREAM));
}

/// BUG-23: full, then room again: the retry is stored. And a stream that takes nothing any more.
#[tokio::test]
async fn bug_23_a_full_or_sealed_stream_is_uncertain_and_a_retry_with_room_is_stored() {
    require_broker!();
    let stream = StreamSpec::new(STREAM, ["shop.out"]).max_msgs(1);
    let bench = Bench::start(Setup { spec: without_streams().stream(stream), ..Setup::default() });
    receipt(bench.publish("shop", "k-1").await);
    assert_eq!(uncertain(bench.publish("shop", "k-2").await).cause, UncertainCause::StorageLimit);
    let admin = bench.broker.admin().await;
    assert_eq!(admin.count(STREAM).await, 1);
    admin.purge_stream(STREAM).await;
    let stored = receipt(bench.publish("shop", "k-2").await);
    assert_eq!((stored.duplicate, admin.count(STREAM).await), (false, 1));
    let mut config = admin.jetstream().get_stream(STREAM).await.unwrap().cached_info().config.clone();
    config.sealed = true;
    admin.jetstream().update_stream(config).await.unwrap();
    assert_eq!(uncertain(bench.publish("shop", "k-3").await).cause, UncertainCause::Unusable);
    assert_eq!(admin.count(STREAM).await, 1);
}

/// BUG-28: the broker gives a parked connection up that answers no PING; that costs one dial and is never uncertain.
#[tokio::test]
async fn bug_28_a_parked_connection_that_the_broker_gave_up_costs_one_dial() {
    require_broker!();
    let spec = BrokerSpec { ping_interval: Some(Duration::from_millis(100)), ping_max: Some(1), ..spec() };
    let bench = Bench::start(Setup { spec, ..Setup::default() });
    let admin = bench.broker.admin().await;
    receipt(bench.publish("shop", "k-1").await);
    latent_testkit::wait_until("the broker gives the connection up", || admin.connections_of("shop") == 0);
    receipt(bench.publish("shop", "k-2").await);
    let snapshot = bench.publisher.snapshot();
    assert_eq!((snapshot.connected, snapshot.parked_lost, snapshot.failures, snapshot.uncertain), (2, 1, 0, 0));
}

/// BUG-30, P-060: notices to go elsewhere, and then the broker goes.
#[tokio::test]
async fn bug_30_a_lame_duck_is_unavailable_at_most_and_found_again() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    receipt(bench.publish("shop", "k-1").await);
    bench.broker.enter_lame_duck();
    // It gives its streams up first; whichever comes first is said, and nothing is uncertain.
    match bench.publish("shop", "k-2").await {
        PublicationOutcome::Receipt(receipt) => assert_eq!(receipt.sequence, 2),
        other => assert!(matches!(failure(other), KnownFailure::Unavailable { .. })),
    }
    bench.broker.kill();
    assert!(matches!(failure(bench.publish("shop", "k-3").await), KnownFailure::Unavailable { .. }));
    bench.broker.restart();
    assert_eq!(bench.until_receipt("shop", "k-3").await.sequence, 1);
}
