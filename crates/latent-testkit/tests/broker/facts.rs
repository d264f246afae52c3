//! What the pinned broker sends, byte for byte: the facts that the publisher is built on. When the version moves, this fails first.

use std::time::Duration;

use latent_testkit::broker::{Broker, BrokerSpec, BrokerUser, StreamSpec, VERSION};
use latent_testkit::require_broker;
use serde_json::Value;

use crate::wire::Wire;

const INBOX: &str = "_INBOX.LSF.i.c.1";

fn broker() -> Broker {
    let user = BrokerUser::publisher("shop", "word", ["orders.new", "small.new", "full.new", "nobody.listens"]);
    let streams = [
        StreamSpec::new("ORD", ["orders.>"]),
        StreamSpec::new("SMALL", ["small.>"]).max_msg_size(100),
        StreamSpec::new("FULL", ["full.>"]).max_msgs(1),
    ];
    Broker::start(streams.into_iter().fold(BrokerSpec::with_users([user]), BrokerSpec::stream))
}

/// Publishes and requires exactly this answer on the inbox.
async fn answered(wire: &mut Wire, subject: &str, headers: &str, payload: &[u8], answer: &str) {
    wire.hpub(subject, INBOX, headers, payload).await;
    assert_eq!(wire.line().await, format!("MSG {INBOX} 1 {}\r\n", answer.len()));
    assert_eq!(wire.line().await, format!("{answer}\r\n"));
}

#[tokio::test]
async fn the_broker_introduces_itself_as_the_pinned_one() {
    require_broker!();
    let broker = broker();
    let (_wire, info) = Wire::open(&broker).await;
    let info: Value = serde_json::from_str(&info).unwrap();
    let expected = [
        ("version", Value::from(VERSION)),
        ("proto", 1.into()),
        ("headers", true.into()),
        ("auth_required", true.into()),
        ("max_payload", 1_048_576.into()),
        ("jetstream", true.into()),
        ("api_lvl", 4.into()),
        ("port", broker.address().port().into()),
    ];
    for (name, value) in expected {
        assert_eq!(info.get(name), Some(&value), "{name} in {info}");
    }
}

#[tokio::test]
async fn acknowledgements_and_refusals_of_a_stream_are_these_bytes() {
    require_broker!();
    let broker = broker();
    let mut wire = Wire::publisher(&broker, "shop", "word").await;
    answered(&mut wire, "orders.new", "Nats-Msg-Id: a\r\n", b"one", r#"{"stream":"ORD","seq":1}"#).await;
    answered(&mut wire, "orders.new", "Nats-Msg-Id: a\r\n", b"two", r#"{"stream":"ORD","seq":1,"duplicate": true}"#).await;
    let wrong = r#"{"error":{"code":400,"err_code":10060,"description":"expected stream does not match"},"stream":"ORD","seq":0}"#;
    answered(&mut wire, "orders.new", "Nats-Expected-Stream: OTHER\r\n", b"three", wrong).await;
    let large = r#"{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"},"stream":"SMALL","seq":0}"#;
    answered(&mut wire, "small.new", "", &[b'x'; 101], large).await;
    answered(&mut wire, "full.new", "", b"fits", r#"{"stream":"FULL","seq":1}"#).await;
    let full = r#"{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"FULL","seq":0}"#;
    answered(&mut wire, "full.new", "", b"does not", full).await;
    let long_id = format!("Nats-Msg-Id: {}\r\n", "i".repeat(300));
    answered(&mut wire, "orders.new", &long_id, b"four", r#"{"stream":"ORD","seq":2}"#).await;
    let admin = broker.admin().await;
    let stored: Vec<Vec<u8>> = admin.messages("ORD").await.into_iter().map(|message| message.payload).collect();
    assert_eq!((stored, admin.count("SMALL").await, admin.count("FULL").await), (vec![b"one".to_vec(), b"four".to_vec()], 0, 1));
}

#[tokio::test]
async fn a_subject_without_a_listener_is_answered_with_status_503() {
    require_broker!();
    let broker = broker();
    let mut wire = Wire::publisher(&broker, "shop", "word").await;
    wire.hpub("nobody.listens", INBOX, "Nats-Msg-Id: a\r\n", b"lost").await;
    let block = "NATS/1.0 503\r\nNats-Subject: nobody.listens\r\n\r\n";
    assert_eq!(wire.line().await, format!("HMSG {INBOX} 1 {} {}\r\n", block.len(), block.len()));
    assert_eq!(wire.exactly(block.len() + 2).await, format!("{block}\r\n"));
}

#[tokio::test]
async fn what_a_user_may_not_do_is_refused_by_name_and_the_connection_stays() {
    require_broker!();
    let broker = broker();
    let mut wire = Wire::publisher(&broker, "shop", "word").await;
    wire.hpub("secret.x", INBOX, "", b"never").await;
    assert_eq!(wire.line().await, "-ERR 'Permissions Violation for Publish to \"secret.x\"'\r\n");
    wire.send("SUB foo 2\r\n").await;
    assert_eq!(wire.line().await, "-ERR 'Permissions Violation for Subscription to \"foo\"'\r\n");
    wire.send("PING\r\n").await;
    assert_eq!(wire.line().await, "PONG\r\n");
}

#[tokio::test]
async fn a_message_above_max_payload_ends_the_connection() {
    require_broker!();
    let user = BrokerUser::publisher("shop", "word", ["orders.new"]);
    let broker = Broker::start(BrokerSpec { max_payload: Some(1_000), ..BrokerSpec::with_users([user]) });
    let mut wire = Wire::publisher(&broker, "shop", "word").await;
    wire.hpub("orders.new", INBOX, "", &[b'x'; 1_001]).await;
    assert_eq!(wire.line().await, "-ERR 'Maximum Payload Violation'\r\n");
    assert!(wire.ends().await);
}

#[tokio::test]
async fn two_connections_on_one_wildcard_inbox_both_hear_the_reply() {
    require_broker!();
    let broker = broker();
    let mut own = Wire::publisher(&broker, "shop", "word").await;
    let mut other = Wire::publisher(&broker, "shop", "word").await;
    own.hpub("orders.new", INBOX, "", b"one").await;
    let head = format!("MSG {INBOX} 1 24\r\n");
    assert_eq!((own.line().await, other.line().await), (head.clone(), head));
}

#[tokio::test]
async fn an_id_is_forgotten_when_the_window_has_passed() {
    require_broker!();
    let window = Duration::from_secs(1);
    let user = BrokerUser::publisher("shop", "word", ["orders.new"]);
    let broker = Broker::start(BrokerSpec::with_users([user]).stream(StreamSpec::new("ORD", ["orders.>"]).duplicate_window(window)));
    let mut wire = Wire::publisher(&broker, "shop", "word").await;
    answered(&mut wire, "orders.new", "Nats-Msg-Id: a\r\n", b"one", r#"{"stream":"ORD","seq":1}"#).await;
    // Asked until the broker has forgotten; its own clock then says that it was not too early.
    loop {
        wire.hpub("orders.new", INBOX, "Nats-Msg-Id: a\r\n", b"two").await;
        let (_head, answer) = (wire.line().await, wire.line().await);
        if !answer.contains("duplicate") {
            assert_eq!(answer, "{\"stream\":\"ORD\",\"seq\":2}\r\n");
            break;
        }
    }
    let stored = broker.admin().await.messages("ORD").await;
    let nanos = stored[1].stored_unix_nanos - stored[0].stored_unix_nanos;
    assert!(nanos >= i128::try_from(window.as_nanos()).unwrap(), "forgotten after {nanos} ns");
}
