//! What is dialled and what is said before anybody is known: one address, TLS first, nothing kept from connection to connection.

use std::process::Command;

use latent_capabilities::PoolSettings;
use latent_capabilities::limits::{CONNECTION_BYTES, POOL_BYTES};
use latent_core::KnownFailure;
use latent_nats_proto::limits::SECRET_BYTES;
use latent_testkit::broker::{SERVER_NAME, TestCa};
use latent_testkit::fake_peer::{FakePeer, Handshake, INFO, Step};

use super::bench::{Bench, PASSWORD, PAYLOAD_END, STORED, Setup, failure, receipt, serve, serve_each, unavailable};

/// X-003, BUG-03, BUG-30.
#[tokio::test]
async fn no_address_that_a_broker_names_is_ever_dialled() {
    let other = FakePeer::start_cleartext(INFO);
    let hints = format!(
        "\"host\":\"other.test\",\"ip\":\"{0}\",\"ldm\":true,\"cluster\":\"c\",\"connect_urls\":[\"{0}\",\"[::1]:1\",\"localhost:1\"],",
        other.address()
    );
    let info = INFO.replace("\"host\":\"127.0.0.1\",", &hints);
    let script = |end: Step| {
        let begin = [Step::send(info.clone()), Step::ServeUntil(PAYLOAD_END.to_vec())];
        begin.into_iter().chain([Step::send(info.clone()), Step::reply_message(STORED), end]).collect::<Vec<_>>()
    };
    let bench = Bench::start(vec![script(Step::Close), script(Step::CloseAbruptly), script(Step::Hold), vec![Step::Close]]);
    for _ in 0..3 {
        receipt(bench.publish().await);
        bench.clock.skip(2_000);
    }
    assert_eq!((bench.peer.accepted(), other.accepted()), (3, 0), "the configured one, again and again");
}

/// The environment belongs to the whole process, so this test runs itself again in one of its own.
#[tokio::test]
async fn no_variable_of_the_environment_leads_elsewhere_or_logs_a_key() {
    const ROLE: &str = "LATENT_NATS_ROLE";
    if std::env::var_os(ROLE).is_some() {
        let bench = Bench::start(vec![serve_each([Step::reply_message(STORED)])]);
        receipt(bench.publish().await);
        return;
    }
    let proxy = FakePeer::start_cleartext("HTTP/1.1 200 OK\r\n\r\n");
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "publisher::tests::dialling::no_variable_of_the_environment_leads_elsewhere_or_logs_a_key"]);
    child.env(ROLE, "child").env("SSLKEYLOGFILE", &keys);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "SOCKS_PROXY", "NATS_PROXY", "NATS_URL", "NATS_SERVER"] {
        child.env(name, format!("http://{}", proxy.address())).env(name.to_lowercase(), format!("http://{}", proxy.address()));
    }
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    assert_eq!(proxy.accepted(), 0);
    assert!(!keys.exists());
}

/// X-004, BUG-05, BUG-06: not a byte of a session in clear, no second attempt, and a reason that says what to change.
#[tokio::test]
async fn a_peer_that_speaks_before_tls_gets_no_byte_of_a_session() {
    for first in [INFO, "-ERR 'Authentication Timeout'\r\n", "INFO {}\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n"] {
        let bench = Bench::before(FakePeer::start_cleartext(first), &TestCa::new().root_der(), Setup::default());
        let reason = unavailable(bench.publish().await);
        assert!(reason.contains("handshake_first") && !reason.contains("credential"), "{reason}");
        bench.peer.until_client_ended(0).await;
        let received = bench.peer.report(0).received;
        assert_eq!(received[..3], [0x16, 0x03, 0x01], "TLS and nothing else");
        let text = String::from_utf8_lossy(&received);
        for secret in [PASSWORD, "quoted", "CONNECT", "shop", "HPUB"] {
            assert!(!text.contains(secret), "{text}");
        }
        bench.assert_nothing_is_held();
        unavailable(bench.publish().await);
        assert_eq!(bench.peer.accepted(), 1, "the backoff");
    }
}

/// the peer offers tickets and takes early data.
#[tokio::test]
async fn every_connection_begins_with_a_full_handshake_and_sends_nothing_early() {
    let bench = Bench::start(vec![serve([Step::reply_message(STORED), Step::Close])]);
    for connection in 0..4 {
        receipt(bench.publish().await);
        let report = bench.peer.report(connection);
        assert_eq!((report.handshake, report.early_data), (Some(Handshake::Full), false), "{connection}");
        assert_eq!(report.server_name.as_deref(), Some(SERVER_NAME));
        bench.clock.skip(2_000);
    }
}

/// the longest token there may be, every byte of it escaped. One byte more is refused by the store, long before a connection.
#[tokio::test]
async fn a_token_at_its_bound_authenticates() {
    let token = "\"".repeat(SECRET_BYTES.max_usize());
    let setup = Setup { token: Some(token.clone()), ..Setup::default() };
    let bench = Bench::start_with(vec![serve_each([Step::reply_message(STORED)])], setup);
    receipt(bench.publish().await);
    assert_eq!(bench.count(0, format!("\"auth_token\":\"{}\"", "\\\"".repeat(token.len())).as_bytes()), 1);
}

/// 256 KiB of each connection, from its dial on, whatever becomes of it.
#[tokio::test]
async fn a_connection_is_charged_from_its_dial_on_and_without_its_charge_not_dialled() {
    // Three connections with their calls, and not a fourth one.
    let settings = PoolSettings::default().set(&POOL_BYTES, 1 << 20).unwrap();
    let bench = Bench::start_with(vec![serve([Step::Hold])], Setup { settings, ..Setup::default() });
    let calls: Vec<_> = (0..3).map(|_| bench.begin("shop")).collect();
    bench.peer.until_accepted(3).await;
    let held = bench.pools.pools.snapshot();
    assert_eq!(held.connections, 3);
    assert!(held.bytes > 3 * CONNECTION_BYTES.default, "{held:?}");
    let fourth = bench.begin("bank");
    bench.until(|snapshot| snapshot.queued == 1).await;
    assert_eq!((bench.peer.accepted(), bench.pools.pools.snapshot().connections), (3, 3));
    for call in calls {
        Bench::give_up(call).await;
    }
    bench.peer.until_accepted(4).await;
    assert_eq!(bench.pools.pools.snapshot().connections, 1, "its turn came with what the others held");
    Bench::give_up(fourth).await;
    bench.assert_nothing_is_held();
}

/// BUG-25: credentials that are refused cost one connection for each call that is allowed to dial.
#[tokio::test]
async fn refused_credentials_never_become_a_loop_of_connections() {
    let refused =
        [Step::send(INFO), Step::ExpectUntil(b"PING\r\n".to_vec()), Step::send("-ERR 'Authorization Violation'\r\n"), Step::Close];
    let bench = Bench::start(vec![refused.to_vec()]);
    for _ in 0..100 {
        assert!(matches!(failure(bench.publish().await), KnownFailure::Unavailable { .. }));
    }
    let dials = bench.peer.accepted();
    assert!(dials < 100, "{dials} connections for 100 calls at once");
    assert_eq!(bench.publisher.snapshot().connects_failed, dials as u64);
    bench.assert_nothing_is_held();
}
