//! Who is connected to and how, and what a failed attempt says and leaves (B-045 to B-049).

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use latent_bridge::nats_bus::{NatsCredentials, NatsOptions, NatsRoots};
use latent_bridge::{BusError, EventBus, NatsBus};
use latent_testkit::broker::{Broker, BrokerAuth, BrokerSpec, BrokerUser, Cluster, SERVER_NAME, TestCa};
use latent_testkit::fake_peer::{FakePeer, INFO, Step};
use latent_testkit::proxy::FaultProxy;
use latent_testkit::{require_broker, wait_until};

use crate::live::{PASSWORD, USER, beside, manifest, options, options_at, runtime, spec};

/// An address that a certificate can be of, so that the environment alone is enough.
const HOST: &str = "127.0.0.1";

fn provision(options: NatsOptions) -> Result<NatsBus, BusError> {
    NatsBus::provision_with(options, &manifest(1))
}

fn problem(options: NatsOptions) -> BusError {
    let error = provision(options).map(drop).unwrap_err();
    assert!(!format!("{error} {error:?}").contains(PASSWORD), "{error:?}");
    error
}

/// What the environment says of a broker whose root certificate is in `folder`.
fn environment(url: &str, folder: &tempfile::TempDir, ca: &TestCa, tls_first: Option<&str>) -> NatsOptions {
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, ca.root_pem()).unwrap();
    let variables = [
        ("AV_NATS_CA_FILE", Some(file.into_os_string())),
        ("AV_NATS_USER", Some(USER.into())),
        ("AV_NATS_PASSWORD", Some(PASSWORD.into())),
        ("AV_NATS_TLS_FIRST", tls_first.map(OsString::from)),
    ];
    NatsOptions::from_lookup(url, |name| variables.iter().find(|(known, _)| *known == name)?.1.clone()).unwrap()
}

/// B-047, with both kinds of server and each order that is not theirs.
#[test]
fn the_order_of_tls_is_as_told_and_never_the_other() {
    require_broker!();
    let folder = tempfile::tempdir().unwrap();
    for handshake_first in [true, false] {
        let broker = Broker::start(BrokerSpec { server_name: HOST.to_owned(), handshake_first, ..spec() });
        let url = format!("nats://{}", broker.address());
        let (right, wrong) = if handshake_first { (Some("true"), None) } else { (None, Some("true")) };
        let error = problem(environment(&url, &folder, broker.ca(), wrong));
        assert!(error.to_string().contains("AV_NATS_TLS_FIRST"), "{error}");
        let bus = provision(environment(&url, &folder, broker.ca(), right)).unwrap();
        assert_eq!(bus.topics(), ["t"]);
    }
}

/// B-049: a broker that does not insist on TLS gets no byte outside it.
#[test]
fn credentials_use_tls_with_a_broker_that_would_do_without() {
    require_broker!();
    let folder = tempfile::tempdir().unwrap();
    let tls = BrokerSpec { server_name: HOST.to_owned(), handshake_first_within: Some("50ms"), ..spec() };
    let broker = Broker::start(BrokerSpec { extra: "allow_non_tls: true\n".to_owned(), ..tls });
    let bus = provision(environment(&format!("nats://{}", broker.address()), &folder, broker.ca(), None)).unwrap();
    let connections = beside(&broker, async |admin| admin.connections());
    assert_eq!(connections.len(), 1);
    assert!(!connections[0].tls_version.is_empty(), "{connections:?}");
    assert!(bus.is_connected());
}

/// A server without TLS: greets, and takes a handshake for a protocol error, as the real one does. Keeps what it got.
struct Cleartext {
    listener: std::net::TcpListener,
    got: std::thread::JoinHandle<Vec<u8>>,
}

impl Cleartext {
    fn start(info: &'static str) -> Self {
        let listener = std::net::TcpListener::bind((HOST, 0)).unwrap();
        let accepting = listener.try_clone().unwrap();
        let got = std::thread::spawn(move || {
            let (mut client, mut got, mut first) = (accepting.accept().unwrap().0, Vec::new(), [0; 1]);
            client.write_all(info.as_bytes()).unwrap();
            client.read_exact(&mut first).unwrap();
            client.write_all(b"-ERR 'Unknown Protocol Operation'\r\n").unwrap();
            // A client that goes away leaves an error or an end.
            let _ = client.read_to_end(&mut got);
            [&first[..], &got].concat()
        });
        Self { listener, got }
    }

    fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.listener.local_addr().unwrap())
    }

    /// All that came on the first connection, which is over, and whether another one came.
    fn end(self) -> (Vec<u8>, bool) {
        let got = self.got.join().unwrap();
        self.listener.set_nonblocking(true).unwrap();
        (got, self.listener.accept().is_ok())
    }
}

/// B-049: a server without TLS, which is also what stripping TLS from INFO looks like.
#[test]
fn a_server_without_tls_gets_no_credentials_and_is_told_as_that() {
    let ca = TestCa::new();
    let stripped = "INFO {\"server_id\":\"FAKE\",\"version\":\"2.14.6\",\"proto\":1,\"host\":\"127.0.0.1\",\"port\":4222,\"headers\":true,\
                    \"auth_required\":true,\"tls_required\":false,\"tls_available\":false,\"max_payload\":1048576,\"jetstream\":true}\r\n";
    let user = NatsCredentials::UserPassword { user: USER.to_owned(), password: PASSWORD.to_owned() };
    let forced = [("nats", Some(user)), ("nats", Some(NatsCredentials::Token(PASSWORD.to_owned()))), ("nats", None), ("tls", None)];
    for (scheme, credentials) in forced {
        for tls_first in [true, false] {
            let peer = Cleartext::start(stripped);
            let roots = NatsRoots::Der(vec![ca.root_der()]);
            let error = problem(NatsOptions { credentials: credentials.clone(), roots, tls_first, ..NatsOptions::new(&peer.url(scheme)) });
            assert!(matches!(&error, BusError::Config { problem } if problem.contains("TLS")), "{error}");
            let (got, another) = peer.end();
            assert_eq!((got.first(), another), (Some(&22), false), "one connection, with a TLS handshake and nothing before it");
            let text = String::from_utf8_lossy(&got);
            assert!(!text.contains("CONNECT") && !text.contains(PASSWORD), "{text}");
        }
    }
}

#[test]
fn a_certificate_that_is_not_right_is_refused_before_any_credential_is_sent() {
    let (ca, other) = (TestCa::new(), TestCa::new());
    let identities = [
        ("of another authority", other.issue(SERVER_NAME)),
        ("of another name", ca.issue("other.latent.test")),
        ("expired", ca.issue_expired(SERVER_NAME)),
        ("not yet valid", ca.issue_not_yet_valid(SERVER_NAME)),
        ("name where it does not count", ca.issue_common_name_only(SERVER_NAME)),
    ];
    for (what, identity) in identities {
        let peer = FakePeer::start(&identity, vec![vec![Step::send(INFO), Step::Hold]]);
        let error = problem(options_at(&[peer.address()], &ca));
        assert!(matches!(&error, BusError::Config { problem } if problem.contains("certificate")), "{what}: {error}");
        assert_eq!((peer.accepted(), peer.report(0).received), (1, Vec::new()), "{what}");
    }
}

/// The dialled address is none of the names of the certificate in these tests, so the given name must be what counts.
#[test]
fn the_name_that_is_given_is_verified_whatever_host_is_dialled() {
    require_broker!();
    let broker = Broker::start(spec());
    drop(provision(options(&broker)).unwrap());
    for name in [None, Some("other.latent.test".to_owned())] {
        let error = problem(NatsOptions { server_name: name, ..options(&broker) });
        assert!(error.to_string().contains("certificate"), "{error}");
    }
    let error = problem(NatsOptions { server_name: Some("not a name".to_owned()), ..options(&broker) });
    assert!(error.to_string().contains("cannot be the name of a certificate"), "{error}");
}

/// BUG-25: for each way to be turned away, one connection, an error, and nothing left.
#[test]
fn a_connection_that_is_turned_away_is_one_connection_and_an_error() {
    let ca = TestCa::new();
    let identity = ca.issue(SERVER_NAME);
    let table = [
        ("-ERR 'Authorization Violation'\r\n", "refuses user \"bus\"", true),
        ("-ERR 'maximum connections exceeded'\r\n", "maximum connections exceeded", false),
        ("-ERR 'maximum account active connections exceeded'\r\n", "maximum account active connections exceeded", false),
        ("", "not reachable", false),
    ];
    for (answer, told, permanent) in table {
        let script = vec![Step::send(INFO), Step::ExpectUntil(b"PING\r\n".to_vec()), Step::send(answer), Step::Close];
        let peer = FakePeer::start(&identity, vec![script]);
        let error = problem(options_at(&[peer.address()], &ca));
        assert!(error.to_string().contains(told), "{answer}: {error}");
        assert_eq!(error.is_permanent(), permanent, "{error}");
        // The bus's runtime has ended with its thread, so nothing can come any more.
        wait_until("the connection is over", || peer.open_connections() == 0);
        assert_eq!(peer.accepted(), 1, "{answer}");
    }
}

/// BUG-25, on a real broker.
#[test]
fn a_wrong_password_is_told_as_that_and_leaves_no_connection() {
    require_broker!();
    let broker = Broker::start(spec());
    let wrong = |credentials| NatsOptions { credentials, ..options(&broker) };
    let of = |user: &str, password: &str| Some(NatsCredentials::UserPassword { user: user.to_owned(), password: password.to_owned() });
    for credentials in [of(USER, "wrong"), of("nobody", PASSWORD), Some(NatsCredentials::Token(PASSWORD.to_owned())), None] {
        let error = problem(wrong(credentials.clone()));
        assert!(matches!(&error, BusError::Config { problem } if problem.contains("refuses")), "{credentials:?}: {error}");
    }
    beside(&broker, async |admin| wait_until("no connection is left", || admin.connections().is_empty()));
    let log = broker.log();
    assert_eq!(log.matches("authentication error").count(), 4, "one attempt each\n{log}");
}

/// BUG-25, for a connection that was there: nobody comes back in a tight loop, and the right password is enough again.
#[test]
fn revoked_credentials_are_tried_ever_more_slowly_until_they_hold_again() {
    require_broker!();
    let broker = Broker::start(spec());
    let proxy = FaultProxy::start(&broker);
    let bus = provision(NatsOptions { servers: vec![format!("tls://{}", proxy.address())], ..options(&broker) }).unwrap();
    let (begin, before) = (Instant::now(), proxy.connections());
    let user = |password: &str| BrokerAuth::Users(vec![BrokerUser::unlimited(USER, password)]);
    broker.reload(|spec| spec.auth = user("another"));
    wait_until("seven attempts", || proxy.connections() >= before + 7);
    // None before the first, then at least half of 50, 100, 200, 400, 800 and 1,600 ms.
    assert!(begin.elapsed() >= Duration::from_millis(1_575), "{:?}", begin.elapsed());
    assert!(!bus.is_connected());
    let error = bus.publish("t", "k", &serde_json::json!(1)).unwrap_err();
    assert!(matches!(error, BusError::NotSent { .. }), "{error:?}");
    broker.reload(|spec| spec.auth = user(PASSWORD));
    wait_until("the connection is made again", || bus.is_connected());
    bus.publish("t", "k", &serde_json::json!(2)).unwrap();
    assert_eq!(beside(&broker, async |admin| admin.count("av_t").await), 1);
}

#[test]
fn a_server_that_is_not_there_or_says_nothing_is_no_fault_of_the_configuration() {
    let ca = TestCa::new();
    let nobody = SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, free_port());
    let error = problem(options_at(&[nobody], &ca));
    assert!(matches!(&error, BusError::NotSent { reason } if reason.contains("not reachable")), "{error}");
    // It takes the connection and is silent.
    let silent = std::net::TcpListener::bind((HOST, 0)).unwrap();
    let std::net::SocketAddr::V4(address) = silent.local_addr().unwrap() else { panic!() };
    let error = problem(options_at(&[address], &ca));
    assert!(matches!(&error, BusError::Timeout { operation } if operation.contains("connecting to the broker")), "{error}");
    assert!(!error.is_permanent());
}

fn free_port() -> u16 {
    std::net::TcpListener::bind((HOST, 0)).unwrap().local_addr().unwrap().port()
}

#[test]
fn the_next_server_is_tried_when_one_is_not_there() {
    require_broker!();
    let broker = Broker::start(spec());
    let nobody = SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, free_port());
    for addresses in [[nobody, broker.address()], [broker.address(), nobody]] {
        let bus = provision(options_at(&addresses, broker.ca())).unwrap();
        assert!(bus.is_connected());
    }
}

/// What a broker announces of others is nobody that the operator named: no credential goes there.
#[test]
fn a_server_that_is_only_announced_is_never_dialled() {
    require_broker!();
    let cluster = Cluster::start(&spec());
    let [named, others @ ..] = cluster.members() else { panic!() };
    let bus = provision(options_at(&[named.address()], cluster.ca())).unwrap();
    for round in 1..=5 {
        beside(named, async |admin| admin.kick(USER).await);
        wait_until("the connection is made again", || {
            let total: usize = cluster.members().iter().map(|member| beside(member, async |admin| admin.connections_of(USER))).sum();
            total == 1 && bus.is_connected()
        });
        assert!(others.iter().all(|other| beside(other, async |admin| admin.connections_of(USER)) == 0), "round {round}");
    }
}

/// The broker's permissions name the prefix, and nobody's inbox is another's.
#[test]
fn every_connection_has_its_own_inboxes() {
    require_broker!();
    let broker = Broker::start(spec());
    let (_one, _other) = (provision(options(&broker)).unwrap(), provision(options(&broker)).unwrap());
    let connections = beside(&broker, async |admin| admin.connections());
    let inboxes: Vec<_> = connections.iter().flat_map(|connection| &connection.subscriptions).collect();
    let prefixes: std::collections::BTreeSet<_> = inboxes.iter().map(|inbox| inbox.split('.').take(3).collect::<Vec<_>>()).collect();
    assert!(inboxes.iter().all(|inbox| inbox.starts_with("_INBOX.LSF.")), "{inboxes:?}");
    assert_eq!((connections.len(), prefixes.len()), (2, 2), "{inboxes:?}");
}

/// B-045.
#[test]
fn provisioning_works_inside_and_outside_of_a_runtime_of_any_kind() {
    require_broker!();
    let broker = Broker::start(spec());
    let check = || {
        let bus = provision(options(&broker)).unwrap();
        assert_eq!(bus.topics(), ["t"]);
    };
    check();
    runtime().block_on(async { check() });
    let many = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    many.block_on(async { check() });
    std::thread::scope(|scope| scope.spawn(check).join().unwrap());
}
