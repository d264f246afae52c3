//! The proxy: every fault at exactly its byte, before a recording peer and before the real broker.

use std::time::Duration;

use latent_testkit::broker::{Broker, BrokerSpec, BrokerUser, SERVER_NAME, StreamSpec, TestCa};
use latent_testkit::fake_peer::{FakePeer, Step};
use latent_testkit::proxy::{At, Direction, Fault, FaultProxy};
use latent_testkit::require_broker;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::wire::Wire;

const ANSWER: &[u8] = b"answer\r\n";
const QUESTION: &[u8] = b"question";
const INBOX: &str = "_INBOX.LSF.i.c.1";

/// A recording peer behind a proxy.
struct Behind {
    ca: TestCa,
    peer: FakePeer,
    proxy: FaultProxy,
}

impl Behind {
    /// The peer sends `ANSWER` when it has got `QUESTION`, then holds.
    fn new() -> Self {
        Self::following(vec![Step::ExpectUntil(QUESTION.to_vec()), Step::Send(ANSWER.to_vec()), Step::Hold])
    }

    fn following(script: Vec<Step>) -> Self {
        let ca = TestCa::new();
        let identity = ca.issue(SERVER_NAME);
        let peer = FakePeer::start(&identity, vec![script]);
        let proxy = FaultProxy::start_before(peer.address(), &ca, &identity);
        Self { ca, peer, proxy }
    }

    async fn client(&self) -> Wire {
        Wire::connect(self.proxy.address(), &self.ca, SERVER_NAME).await.unwrap()
    }
}

#[tokio::test]
async fn a_cut_towards_the_broker_lets_exactly_the_bytes_before_it_arrive() {
    for byte in 0..=QUESTION.len() {
        let behind = Behind::following(vec![Step::Hold]);
        let cut = behind.proxy.at(Direction::ToBroker, byte as u64, Fault::Cut);
        let mut client = behind.client().await;
        client.try_send(QUESTION).await;
        cut.reached().await;
        behind.peer.until_client_ended(0).await;
        assert_eq!(behind.peer.report(0).received, QUESTION[..byte], "cut at {byte}");
        assert_eq!(behind.proxy.bytes(Direction::ToBroker), byte as u64);
        assert_eq!(client.rest().await, b"");
        behind.proxy.until_open(0).await;
    }
}

#[tokio::test]
async fn a_cut_towards_the_client_lets_exactly_the_bytes_before_it_arrive() {
    for byte in 0..=ANSWER.len() {
        let behind = Behind::following(vec![Step::Send(ANSWER.to_vec()), Step::Hold]);
        let cut = behind.proxy.at(Direction::ToClient, byte as u64, Fault::Cut);
        let mut client = behind.client().await;
        assert_eq!(client.rest().await, ANSWER[..byte], "cut at {byte}");
        assert!(cut.is_reached());
        behind.peer.until_client_ended(0).await;
        assert_eq!(behind.proxy.bytes(Direction::ToClient), byte as u64);
    }
}

#[tokio::test]
async fn a_garbled_byte_is_the_only_one_that_changes() {
    let behind = Behind::new();
    let first = behind.proxy.at(Direction::ToClient, 2, Fault::Garble(0x20));
    let mut client = behind.client().await;
    client.send(QUESTION).await;
    assert_eq!(client.line().await, "anSwer\r\n");
    assert!(first.is_reached());
}

#[tokio::test]
async fn a_stall_holds_one_direction_until_it_is_released_and_the_client_may_go_meanwhile() {
    let behind = Behind::new();
    let stall = behind.proxy.at(Direction::ToClient, 3, Fault::Stall);
    let mut client = behind.client().await;
    client.send(QUESTION).await;
    assert_eq!(client.exactly(3).await, "ans");
    stall.reached().await;
    behind.proxy.until_held(Direction::ToClient, ANSWER.len() - 3).await;
    client.send("more").await;
    behind.peer.until_received(0, b"questionmore").await;
    behind.proxy.release();
    assert_eq!(client.exactly(5).await, "wer\r\n");

    behind.proxy.withhold(Direction::ToBroker);
    client.send("late").await;
    behind.proxy.until_held(Direction::ToBroker, 4).await;
    drop(client);
    behind.proxy.until_open(0).await;
    assert_eq!(behind.proxy.open_to_broker(), 1, "what the client sent before it went is still under way");
    behind.proxy.release();
    behind.peer.until_received(0, b"questionmorelate").await;
    behind.peer.until_client_ended(0).await;
}

#[tokio::test]
async fn one_side_can_be_cut_while_the_other_hears_nothing() {
    let behind = Behind::new();
    behind.proxy.inject(Some(0), Direction::ToBroker, At::After(b"que".to_vec()), Fault::CutBrokerSide);
    let mut client = behind.client().await;
    client.send(QUESTION).await;
    behind.proxy.reached().await;
    behind.peer.until_client_ended(0).await;
    assert_eq!((behind.peer.report(0).received.as_slice(), behind.proxy.open_connections()), (b"que".as_slice(), 1));

    behind.proxy.inject(Some(1), Direction::ToClient, At::Byte(0), Fault::CutClientSide);
    let mut second = behind.client().await;
    assert_eq!(second.rest().await, b"");
    behind.peer.until_accepted(2).await;
    assert!(!behind.peer.report(1).client_ended);
}

#[tokio::test]
async fn a_fault_for_one_connection_leaves_the_others_alone() {
    let behind = Behind::new();
    let second = behind.proxy.inject(Some(1), Direction::ToClient, At::Byte(0), Fault::Cut);
    for (number, whole) in [(0, true), (1, false), (2, true)] {
        let mut client = behind.client().await;
        client.try_send(QUESTION).await;
        if whole {
            assert_eq!(client.exactly(ANSWER.len()).await.as_bytes(), ANSWER, "connection {number}");
        } else {
            assert_eq!(client.rest().await, b"", "connection {number}");
        }
    }
    assert!(second.is_reached());
    assert_eq!(behind.proxy.connections(), 3);
}

#[tokio::test]
async fn a_delay_ends_by_itself() {
    let behind = Behind::new();
    let delay = behind.proxy.at(Direction::ToBroker, 1, Fault::Delay(Duration::from_millis(20)));
    let mut client = behind.client().await;
    client.send(QUESTION).await;
    assert_eq!(client.line().await.as_bytes(), ANSWER);
    assert!(delay.is_reached());
}

#[tokio::test]
async fn a_peer_that_speaks_last_is_heard_before_the_connection_ends() {
    let long = vec![b'x'; 300_000];
    let behind = Behind::following(vec![Step::Send(long.clone()), Step::Close]);
    let mut client = behind.client().await;
    assert_eq!(client.rest().await, long);
    assert_eq!(behind.proxy.transcript(Direction::ToClient).len(), 64 << 10, "what is kept is bounded");
}

fn with_orders() -> Broker {
    let user = BrokerUser::publisher("shop", "word", ["orders.new"]);
    Broker::start(BrokerSpec::with_users([user]).stream(StreamSpec::new("ORD", ["orders.>"])))
}

#[tokio::test]
async fn a_withheld_acknowledgement_leaves_the_message_stored_once() {
    require_broker!();
    let broker = with_orders();
    let proxy = FaultProxy::start(&broker);
    let mut wire = Wire::publisher_through(proxy.address(), &broker, "shop", "word").await;
    let withheld = proxy.withhold_from(Direction::ToClient, b"MSG ");
    wire.hpub("orders.new", INBOX, "Nats-Msg-Id: a\r\n", b"kept").await;
    withheld.reached().await;
    let admin = broker.admin().await;
    assert_eq!(admin.count("ORD").await, 1);
    proxy.release();
    assert_eq!(wire.line().await, format!("MSG {INBOX} 1 24\r\n"));
    assert_eq!(wire.line().await, "{\"stream\":\"ORD\",\"seq\":1}\r\n");
    let sent = proxy.transcript(Direction::ToBroker);
    assert!(sent.starts_with(b"CONNECT ") && sent.ends_with(b"kept\r\n"), "{}", String::from_utf8_lossy(&sent));
}

#[tokio::test]
async fn a_publication_cut_one_byte_before_its_end_is_not_stored_and_a_whole_one_is() {
    require_broker!();
    let broker = with_orders();
    for (missing, stored) in [(1, 0), (0, 1)] {
        let proxy = FaultProxy::start(&broker);
        let mut wire = Wire::publisher_through(proxy.address(), &broker, "shop", "word").await;
        let frame = b"HPUB orders.new _INBOX.LSF.i.c.1 12 16\r\nNATS/1.0\r\n\r\nkept\r\n";
        let end = proxy.bytes(Direction::ToBroker) + frame.len() as u64 - missing;
        let cut = proxy.at(Direction::ToBroker, end, Fault::Cut);
        wire.try_send(frame).await;
        cut.reached().await;
        let admin = broker.admin().await;
        latent_testkit::wait_until("the broker sees the end", || admin.connections_of("shop") == 0);
        assert_eq!(admin.count("ORD").await, stored, "{missing} missing");
    }
}

#[tokio::test]
async fn a_raw_proxy_counts_and_cuts_ciphertext() {
    require_broker!();
    let broker = with_orders();
    let proxy = FaultProxy::start_raw(&broker);
    let mut wire = Wire::publisher_through(proxy.address(), &broker, "shop", "word").await;
    assert_eq!(proxy.transcript(Direction::ToBroker)[0], 0x16, "a TLS handshake record");
    let cut = proxy.at(Direction::ToClient, proxy.bytes(Direction::ToClient) + 7, Fault::Cut);
    wire.send("PING\r\n").await;
    assert_eq!(wire.rest().await, b"", "half a record is nothing");
    assert!(cut.is_reached());

    let before_tls = FaultProxy::start_raw(&broker);
    let cut = before_tls.at(Direction::ToBroker, 3, Fault::Cut);
    let mut tcp = TcpStream::connect(before_tls.address()).await.unwrap();
    tcp.write_all(&[0x16, 3, 1, 0, 200, 1]).await.unwrap();
    assert_eq!(tcp.read(&mut [0; 8]).await.unwrap_or(0), 0);
    assert!(cut.is_reached());
}

#[test]
fn a_proxy_that_goes_takes_its_connections_along() {
    let behind = Behind::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut client = runtime.block_on(behind.client());
    let Behind { peer, proxy, .. } = behind;
    runtime.block_on(peer.until_accepted(1));
    drop(proxy);
    assert_eq!(runtime.block_on(client.rest()), b"");
    runtime.block_on(peer.until_client_ended(0));
}
