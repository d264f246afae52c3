//! What reaches the stream, what the broker refuses, and what comes back of it.

use std::time::Duration;

use latent_core::{KnownFailure, PublicationOutcome, Receipt, UncertainCause};
use latent_nats::NatsDraft;
use latent_testkit::broker::{BrokerSpec, BrokerUser, StreamSpec};
use latent_testkit::require_broker;

use crate::bench::{Bench, STREAM, Setup, TENANTS, event, failure, password, receipt, spec};

#[tokio::test]
async fn a_publication_is_stored_as_specified_and_answered_by_its_receipt() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    let first = receipt(bench.publish("shop", "k-1").await);
    assert_eq!((&*first.stream, first.sequence, first.duplicate), (STREAM, 1, false));
    let stored = bench.broker.admin().await.messages(STREAM).await;
    assert_eq!(stored.len(), 1);
    let message = &stored[0];
    assert_eq!((message.subject.as_str(), &message.payload[..]), ("shop.out", &event("k-1").payload[..]));
    let headers: Vec<_> = message.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let id =
        latent_core::MessageId::derive("tests", &crate::bench::tenant("shop"), &latent_core::LogicalTopic::parse("out").unwrap(), "k-1");
    let mut expected = vec![
        ("Nats-Expected-Stream", STREAM),
        ("Nats-Msg-Id", id.as_str()),
        ("Content-Type", "application/json"),
        ("Lsf-Event-Key", "customer-7"),
        ("Lsf-Attr-Trace", "t-1"),
    ];
    let mut headers = headers;
    headers.sort_unstable();
    expected.sort_unstable();
    assert_eq!(headers, expected);
}

#[tokio::test]
async fn every_call_reaches_the_broker_which_keeps_the_first_payload_of_a_key() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    let first = receipt(bench.publish("shop", "k").await);
    let other = latent_capabilities::EventDraft { payload: b"other".to_vec(), attributes: Vec::new(), ..event("k") };
    let again = receipt(bench.publish_draft("shop", other).await);
    assert_eq!((again.sequence, again.duplicate), (first.sequence, true));
    let stored = bench.broker.admin().await.messages(STREAM).await;
    assert_eq!(stored.len(), 1);
    assert_eq!(&stored[0].payload[..], &event("k").payload[..]);
    let snapshot = bench.publisher.snapshot();
    assert_eq!((snapshot.attempts, snapshot.acknowledged, snapshot.duplicates), (2, 2, 1));
}

#[tokio::test]
async fn tenants_topics_and_namespaces_do_not_share_a_key() {
    require_broker!();
    // Two topics of one tenant on one subject are allowed (D-08).
    let draft = |draft: &mut NatsDraft| {
        for mapping in draft.mappings.iter_mut().flatten() {
            mapping.subject = mapping.tenant.as_ref().map(|tenant| format!("{tenant}.out"));
        }
    };
    let bench = Bench::start(Setup { draft, ..Setup::default() });
    let mut sequences = Vec::new();
    for tenant in TENANTS {
        for topic in ["out", "other"] {
            let draft = latent_capabilities::EventDraft { topic: topic.to_owned(), ..event("the-same") };
            sequences.push(receipt(bench.publish_draft(tenant, draft).await).sequence);
        }
    }
    let mut config = bench.draft();
    draft(&mut config);
    config.idempotency_namespace = Some("another".to_owned());
    let publisher = bench.install_draft(2, Some(1), config).unwrap();
    bench.grant_through(&publisher, &["out"]);
    sequences.push(receipt(bench.publish("shop", "the-same").await).sequence);
    assert_eq!(sequences, [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn a_key_is_free_again_after_the_brokers_window() {
    require_broker!();
    let stream = StreamSpec::new(STREAM, ["shop.out"]).duplicate_window(Duration::from_secs(1));
    let bench = Bench::start(Setup { spec: users().stream(stream), ..Setup::default() });
    let first = receipt(bench.publish("shop", "k").await);
    assert!(receipt(bench.publish("shop", "k").await).duplicate);
    // The broker's own clock decides when the window is over: it is asked until it says so.
    let publish = || async { Some(receipt(bench.publish("shop", "k").await)).filter(|receipt| !receipt.duplicate) };
    let after = latent_testkit::until_some("the end of the broker's window", publish).await;
    assert_eq!((after.duplicate, after.sequence), (false, first.sequence + 1));
    let stored = bench.broker.admin().await.messages(STREAM).await;
    let apart = stored[1].stored_unix_nanos - stored[0].stored_unix_nanos;
    assert!(apart >= 1_000_000_000, "{apart}");
}

#[tokio::test]
async fn a_subject_of_another_stream_is_refused_and_nothing_is_stored() {
    require_broker!();
    let spec = users().stream(StreamSpec::new("OTHER", ["shop.out"])).stream(StreamSpec::new(STREAM, ["bank.out"]));
    let bench = Bench::start(Setup { spec, ..Setup::default() });
    assert!(matches!(failure(bench.publish("shop", "k").await), KnownFailure::InvalidEvent { .. }));
    let admin = bench.broker.admin().await;
    assert_eq!((admin.count("OTHER").await, admin.count(STREAM).await), (0, 0));
    receipt(bench.publish("bank", "k").await);
    assert_eq!(bench.publisher.snapshot().connections, 2, "a refusal keeps the connection");
}

#[tokio::test]
async fn a_message_too_large_for_the_stream_is_refused_and_nothing_is_stored() {
    require_broker!();
    let stream = StreamSpec::new(STREAM, ["shop.out"]).max_msg_size(300);
    let bench = Bench::start(Setup { spec: users().stream(stream), ..Setup::default() });
    let large = latent_capabilities::EventDraft { payload: vec![b'x'; 400], ..event("k") };
    assert!(matches!(failure(bench.publish_draft("shop", large).await), KnownFailure::InvalidEvent { .. }));
    assert_eq!(bench.broker.admin().await.count(STREAM).await, 0);
}

#[tokio::test]
async fn a_full_stream_is_uncertain_with_its_own_cause() {
    require_broker!();
    let stream = StreamSpec::new(STREAM, ["shop.out"]).max_msgs(1);
    let bench = Bench::start(Setup { spec: users().stream(stream), ..Setup::default() });
    receipt(bench.publish("shop", "k-1").await);
    match bench.publish("shop", "k-2").await {
        PublicationOutcome::Uncertain(uncertain) => assert_eq!(uncertain.cause, UncertainCause::StorageLimit),
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.broker.admin().await.count(STREAM).await, 1);
}

#[tokio::test]
async fn a_subject_without_a_stream_is_unavailable() {
    require_broker!();
    let bench = Bench::start(Setup { spec: users(), ..Setup::default() });
    match failure(bench.publish("shop", "k").await) {
        KnownFailure::Unavailable { reason } => assert!(reason.contains("no stream listens"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_the_user_may_not_publish_is_permission_denied() {
    require_broker!();
    let user = BrokerUser::publisher("shop", &password("shop"), ["shop.another"]);
    let spec = BrokerSpec::with_users([user]).stream(StreamSpec::new(STREAM, ["shop.>"]));
    let bench = Bench::start(Setup { spec, ..Setup::default() });
    assert_eq!(failure(bench.publish("shop", "k").await), KnownFailure::PermissionDenied);
    assert_eq!(failure(bench.publish("shop", "k").await), KnownFailure::PermissionDenied);
    assert_eq!(bench.publisher.snapshot().connected, 1, "the connection stays");
    assert_eq!(bench.broker.admin().await.count(STREAM).await, 0);
}

#[tokio::test]
async fn the_brokers_own_maximum_is_honoured_before_anything_is_written() {
    require_broker!();
    let spec = BrokerSpec { max_payload: Some(1_024), ..spec() };
    let bench = Bench::start(Setup { spec, ..Setup::default() });
    let large = latent_capabilities::EventDraft { payload: vec![b'x'; 1_024], ..event("k") };
    assert!(matches!(failure(bench.publish_draft("shop", large).await), KnownFailure::InvalidEvent { .. }));
    assert_eq!(receipt(bench.publish("shop", "k").await).sequence, 1);
    assert_eq!(bench.publisher.snapshot().connected, 1, "the connection was kept");
}

#[tokio::test]
async fn what_is_refused_on_this_side_opens_no_connection() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    let with = |change: fn(&mut latent_capabilities::EventDraft)| {
        let mut draft = event("k");
        change(&mut draft);
        draft
    };
    let invalid = [
        with(|draft| draft.payload = vec![0; 65_537]),
        with(|draft| draft.idempotency_key = String::new()),
        with(|draft| draft.media_type = "text/plain\r\nX: y".to_owned()),
        with(|draft| {
            let value = "v".repeat(240);
            draft.attributes = (0..11).map(|n| (format!("n{n}"), value.clone())).collect();
            draft.key = Some("k".repeat(256));
            draft.media_type = "m".repeat(128);
            draft.idempotency_key = "i".repeat(256);
            // Within every bound of its own, and above 4 KiB with the rest of the headers.
            draft.attributes.push(("m".repeat(60), "v".repeat(170)));
        }),
    ];
    let last = invalid.len() - 1;
    for (place, draft) in invalid.into_iter().enumerate() {
        let refused = failure(bench.publish_draft("shop", draft).await);
        // What the last one adds up to is below the bound of the headers: it is the aggregate of attributes that refuses.
        assert!(matches!(refused, KnownFailure::InvalidEvent { .. }), "{place} of {last}: {refused:?}");
    }
    for topic in ["$JS.API.STREAM.NAMES", "_INBOX.x", "a.*", "shop.out"] {
        let draft = latent_capabilities::EventDraft { topic: topic.to_owned(), ..event("k") };
        let refused = failure(bench.publish_draft("shop", draft).await);
        assert!(matches!(refused, KnownFailure::InvalidTopic | KnownFailure::PermissionDenied), "{topic}: {refused:?}");
    }
    let snapshot = bench.publisher.snapshot();
    assert_eq!((snapshot.connected, snapshot.connects_failed, bench.pools.pools.snapshot().totals.dials), (0, 0, 0));
    assert_eq!(bench.broker.admin().await.connections_of("shop"), 0);
}

#[tokio::test]
async fn a_granted_topic_without_a_mapping_is_an_invalid_topic() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    bench.grant(&["out", "unmapped"]);
    let draft = latent_capabilities::EventDraft { topic: "unmapped".to_owned(), ..event("k") };
    assert_eq!(failure(bench.publish_draft("shop", draft).await), KnownFailure::InvalidTopic);
    assert_eq!(bench.pools.pools.snapshot().totals.dials, 0);
}

#[tokio::test]
async fn a_receipt_has_the_time_at_which_it_was_seen() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    let before = latent_core::Clock::unix(bench.clock.as_ref());
    let Receipt { accepted_at, .. } = receipt(bench.publish("shop", "k").await);
    assert!(before <= accepted_at && accepted_at <= latent_core::Clock::unix(bench.clock.as_ref()));
}

#[tokio::test]
async fn a_payload_at_the_largest_ceiling_goes_through() {
    require_broker!();
    let settings = latent_capabilities::PoolSettings::default();
    let settings = settings.set(&latent_capabilities::limits::POOL_CHUNK_BYTES, 262_144).unwrap();
    let draft = |draft: &mut NatsDraft| draft.payload_ceiling_bytes = Some(262_144);
    let bench = Bench::start(Setup { settings, draft, ..Setup::default() });
    let large = latent_capabilities::EventDraft { payload: vec![b'x'; 262_144], ..event("k") };
    receipt(bench.publish_draft("shop", large).await);
    assert_eq!(bench.broker.admin().await.messages(STREAM).await[0].payload.len(), 262_144);
}

/// The users of the tests without a stream.
fn users() -> BrokerSpec {
    BrokerSpec { streams: Vec::new(), ..spec() }
}
