//! The scripted peer: what it sends, what it notices.

use latent_testkit::broker::{SERVER_NAME, TestCa};
use latent_testkit::fake_peer::{FakePeer, Handshake, INFO, Step};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::wire::{Wire, trusting};

const LOGIN: &str = "CONNECT {}\r\nPING\r\n";
const PUBLICATION: &str = "SUB _INBOX.LSF.i.c.* 1\r\nPING\r\nHPUB s _INBOX.LSF.i.c.1 12 14\r\nNATS/1.0\r\n\r\nxx\r\n";

#[tokio::test]
async fn a_script_plays_a_broker() {
    let ca = TestCa::new();
    let script = vec![Step::send(INFO), Step::ServeUntil(b"xx\r\n".to_vec()), Step::reply_message("{}"), Step::Hold];
    let peer = FakePeer::start(&ca.issue(SERVER_NAME), vec![script]);
    let mut wire = Wire::connect(peer.address(), &ca, SERVER_NAME).await.unwrap();
    assert_eq!(wire.line().await, INFO);
    wire.send(LOGIN).await;
    assert_eq!(wire.line().await, "PONG\r\n");
    wire.send(PUBLICATION).await;
    assert_eq!(
        (wire.line().await, wire.line().await, wire.line().await),
        ("PONG\r\n".into(), "MSG _INBOX.LSF.i.c.1 1 2\r\n".into(), "{}\r\n".into())
    );
    drop(wire);
    peer.until_script_done(0).await;
    let report = peer.report(0);
    assert_eq!(String::from_utf8(report.received).unwrap(), format!("{LOGIN}{PUBLICATION}"));
    assert_eq!((report.server_name.as_deref(), report.handshake, report.early_data), (Some(SERVER_NAME), Some(Handshake::Full), false));
}

#[tokio::test]
async fn scripts_are_followed_in_turn_and_the_last_is_repeated() {
    let ca = TestCa::new();
    let peer = FakePeer::start(&ca.issue(SERVER_NAME), vec![vec![Step::send("one\r\n")], vec![Step::SendBytewise(b"two\r\n".to_vec())]]);
    for expected in ["one\r\n", "two\r\n", "two\r\n"] {
        let mut wire = Wire::connect(peer.address(), &ca, SERVER_NAME).await.unwrap();
        assert_eq!(wire.rest().await, expected.as_bytes());
    }
    assert_eq!(peer.accepted(), 3);
}

#[tokio::test]
async fn a_gate_holds_the_script_until_it_is_opened_while_everything_is_recorded() {
    let ca = TestCa::new();
    let peer = FakePeer::start(&ca.issue(SERVER_NAME), vec![vec![Step::Gate, Step::send("through\r\n"), Step::CloseAbruptly]]);
    let mut wire = Wire::connect(peer.address(), &ca, SERVER_NAME).await.unwrap();
    wire.send("before").await;
    peer.until_received(0, b"before").await;
    peer.open_gate();
    assert_eq!(wire.rest().await, b"through\r\n");
}

#[tokio::test]
async fn a_client_that_ends_early_leaves_the_script_undone() {
    let ca = TestCa::new();
    let peer = FakePeer::start(&ca.issue(SERVER_NAME), vec![vec![Step::ExpectUntil(b"never".to_vec())]]);
    drop(Wire::connect(peer.address(), &ca, SERVER_NAME).await.unwrap());
    peer.until_client_ended(0).await;
    assert!(!peer.report(0).script_done);
}

#[tokio::test]
async fn a_client_that_keeps_tickets_is_seen_to_resume() {
    let ca = TestCa::new();
    let peer = FakePeer::start(&ca.issue(SERVER_NAME), vec![vec![Step::send("hello\r\n"), Step::Close]]);
    let connector = trusting(&ca);
    for expected in [Handshake::Full, Handshake::Resumed] {
        let tcp = TcpStream::connect(peer.address()).await.unwrap();
        let mut tls = connector.connect(ServerName::try_from(SERVER_NAME).unwrap(), tcp).await.unwrap();
        tls.read_to_end(&mut Vec::new()).await.unwrap();
        assert_eq!(peer.report(peer.accepted() - 1).handshake, Some(expected));
    }
}

#[tokio::test]
async fn a_client_that_does_not_trust_the_peer_is_reported_with_its_reason() {
    let (ca, other) = (TestCa::new(), TestCa::new());
    let peer = FakePeer::start(&other.issue(SERVER_NAME), vec![Vec::new()]);
    assert!(Wire::connect(peer.address(), &ca, SERVER_NAME).await.is_err());
    peer.until_client_ended(0).await;
    let report = peer.report(0);
    assert!(report.handshake_failure.is_some() && report.handshake.is_none() && report.received.is_empty(), "{report:?}");
}

#[tokio::test]
async fn a_peer_in_clear_sends_first_and_records_what_comes() {
    let peer = FakePeer::start_cleartext(INFO);
    let mut tcp = TcpStream::connect(peer.address()).await.unwrap();
    let mut info = vec![0; INFO.len()];
    tcp.read_exact(&mut info).await.unwrap();
    tcp.write_all(b"secret").await.unwrap();
    peer.until_received(0, b"secret").await;
    assert_eq!(info, INFO.as_bytes());
}
