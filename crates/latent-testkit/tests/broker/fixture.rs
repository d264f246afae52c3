//! Starting, ending, changing: what tests rely on without saying so.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use latent_testkit::broker::{Broker, BrokerSpec, BrokerUser, CGROUPS_VAR, RUN_VAR, StreamSpec, TestCa};
use latent_testkit::{ChildGuard, require_broker, wait_until};
use rustls::pki_types::ServerName;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::wire::{Wire, trusting};

fn shop() -> BrokerUser {
    BrokerUser::publisher("shop", "word", ["orders.new"])
}

fn with_orders() -> BrokerSpec {
    BrokerSpec::with_users([shop()]).stream(StreamSpec::new("ORD", ["orders.>"]))
}

fn runs(pid: u32) -> bool {
    // A zombie has no executable.
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

#[tokio::test]
async fn the_administrator_provisions_reads_and_deletes() {
    require_broker!();
    let broker = Broker::start(with_orders());
    let mut wire = Wire::publisher(&broker, "shop", "word").await;
    wire.hpub("orders.new", "_INBOX.LSF.i.c.1", "Nats-Msg-Id: a\r\nLsf-Attr-x: y\r\n", b"payload").await;
    wire.line().await;
    let admin = broker.admin().await;
    let stored = admin.messages("ORD").await;
    assert_eq!(stored.len(), 1);
    assert_eq!((stored[0].subject.as_str(), stored[0].payload.as_slice(), stored[0].sequence), ("orders.new", b"payload".as_slice(), 1));
    assert_eq!((stored[0].header("Nats-Msg-Id"), stored[0].header("Lsf-Attr-x"), stored[0].headers.len()), (Some("a"), Some("y"), 2));
    admin.purge_stream("ORD").await;
    assert_eq!(admin.count("ORD").await, 0);
    admin.delete_stream("ORD").await;
    admin.add_stream(&StreamSpec::new("ORD", ["orders.>"])).await;
    assert_eq!(admin.count("ORD").await, 0);
}

#[tokio::test]
async fn connections_are_seen_with_their_user_and_subscriptions_and_can_be_closed_by_the_broker() {
    require_broker!();
    let broker = Broker::start(with_orders());
    let admin = broker.admin().await;
    assert_eq!(admin.connections(), []);
    let mut wire = Wire::publisher(&broker, "shop", "word").await;
    let seen = admin.connections();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].user.as_str(), seen[0].subscriptions.as_slice()), ("shop", ["_INBOX.LSF.i.c.*".to_owned()].as_slice()));
    admin.kick("shop").await;
    assert!(wire.ends().await);
}

#[tokio::test]
async fn tls_comes_before_info_unless_a_test_asks_otherwise() {
    require_broker!();
    for (handshake_first, cleartext_info) in [(true, false), (false, true)] {
        let broker = Broker::start(BrokerSpec { handshake_first, ..BrokerSpec::with_users([shop()]) });
        let mut tcp = TcpStream::connect(broker.address()).await.unwrap();
        if !handshake_first {
            let mut head = [0; 5];
            tcp.read_exact(&mut head).await.unwrap();
            assert_eq!(&head == b"INFO ", cleartext_info);
            continue;
        }
        let name = ServerName::try_from(broker.server_name()).unwrap();
        let mut tls = trusting(broker.ca()).connect(name, tcp).await.unwrap();
        let mut head = [0; 5];
        tls.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"INFO ");
    }
}

#[tokio::test]
async fn certificates_of_another_name_another_authority_or_another_time_are_refused() {
    require_broker!();
    let (ca, other) = (TestCa::new(), TestCa::new());
    let name = "broker.latent.test";
    let cases = [
        ("valid", ca.issue(name), true),
        ("another name", ca.issue("elsewhere.test"), false),
        ("another authority", other.issue(name), false),
        ("expired", ca.issue_expired(name), false),
        ("not yet valid", ca.issue_not_yet_valid(name), false),
    ];
    let connector = trusting(&ca);
    for (what, certificate, accepted) in cases {
        let broker = Broker::start(BrokerSpec { certificate: Some(certificate), ..BrokerSpec::with_users([shop()]) });
        let tcp = TcpStream::connect(broker.address()).await.unwrap();
        let connected = connector.connect(ServerName::try_from(name).unwrap(), tcp).await;
        assert_eq!(connected.is_ok(), accepted, "{what}");
    }
}

#[tokio::test]
async fn a_restarted_broker_keeps_its_address_and_has_its_streams_anew() {
    require_broker!();
    let broker = Broker::start(with_orders());
    let mut wire = Wire::publisher(&broker, "shop", "word").await;
    wire.hpub("orders.new", "_INBOX.LSF.i.c.1", "", b"gone").await;
    wire.line().await;
    wire.line().await;
    for end in [Broker::stop, Broker::kill] {
        end(&broker);
        assert!(broker.pid().is_none());
        assert!(TcpStream::connect(broker.address()).await.is_err());
        broker.restart();
        assert_eq!(broker.admin().await.count("ORD").await, 0);
    }
    assert!(wire.ends().await);
}

#[tokio::test]
async fn a_changed_password_is_in_force_after_a_reload_and_the_old_connection_is_closed() {
    require_broker!();
    let broker = Broker::start(with_orders());
    let mut old = Wire::publisher(&broker, "shop", "word").await;
    broker.reload(|spec| spec.auth = latent_testkit::broker::BrokerAuth::Users(vec![BrokerUser { password: "new".into(), ..shop() }]));
    assert_eq!(old.line().await, "-ERR 'Authorization Violation'\r\n");
    let _new = Wire::publisher(&broker, "shop", "new").await;
    assert_eq!(broker.admin().await.count("ORD").await, 0, "the streams are left alone");
}

#[tokio::test]
async fn a_token_is_all_that_a_broker_with_a_token_asks_for() {
    require_broker!();
    let broker = Broker::start(BrokerSpec::with_token("open sesame").stream(StreamSpec::new("ORD", ["orders.>"])));
    for (token, answer) in [("open sesame", "PONG\r\n"), ("wrong", "-ERR 'Authorization Violation'\r\n")] {
        let (mut wire, _info) = Wire::open(&broker).await;
        wire.send(format!("CONNECT {{\"verbose\":false,\"auth_token\":\"{token}\"}}\r\nPING\r\n")).await;
        assert_eq!(wire.line().await, answer);
    }
    assert_eq!(broker.admin().await.count("ORD").await, 0);
}

#[tokio::test]
async fn a_paused_broker_answers_when_it_goes_on_and_a_lame_duck_says_so() {
    require_broker!();
    let broker = Broker::start(with_orders());
    let mut wire = Wire::publisher(&broker, "shop", "word").await;
    let pid = broker.pid().unwrap();
    broker.pause();
    wait_until("the broker is stopped", || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T "));
    wire.send("PING\r\n").await;
    broker.resume();
    assert_eq!(wire.line().await, "PONG\r\n");
    broker.enter_lame_duck();
    let info = wire.line().await;
    assert!(info.starts_with("INFO ") && info.contains("\"ldm\":true"), "{info}");
}

#[test]
fn a_dropped_broker_leaves_no_process_and_no_folder() {
    require_broker!();
    let broker = Broker::start(with_orders());
    let pid = broker.pid().unwrap();
    let folder = folder_of(pid);
    assert!(runs(pid) && folder.is_dir());
    broker.pause();
    drop(broker);
    assert!(!runs(pid) && !folder.exists());
}

fn folder_of(pid: u32) -> PathBuf {
    std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap()
}

/// This test runs itself again as a process that is killed while its broker runs.
#[test]
fn a_killed_test_leaves_no_broker_and_no_folder() {
    const ROLE: &str = "LATENT_TESTKIT_ROLE";
    require_broker!();
    if std::env::var_os(ROLE).is_some() {
        let _broker = Broker::start(with_orders());
        loop {
            std::thread::park();
        }
    }
    let mark = format!("killed-test-{}", std::process::id());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "fixture::a_killed_test_leaves_no_broker_and_no_folder"]).env(ROLE, "child").env(RUN_VAR, &mark);
    let mut child = ChildGuard::spawn(command.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
    let mut found = None;
    wait_until("the broker of the child", || {
        found = marked(&mark);
        found.is_some()
    });
    let pid = found.unwrap();
    let folder = folder_of(pid);
    child.kill().unwrap();
    wait_until("the broker ends with its test", || !runs(pid));
    wait_until("its folder goes too", || !folder.exists());
}

/// The fixture reads the environment, so this test runs itself again as a process with another one.
#[test]
fn the_server_enters_every_control_group_it_is_given() {
    const ROLE: &str = "LATENT_TESTKIT_ROLE";
    require_broker!();
    if std::env::var_os(ROLE).is_some() {
        let broker = Broker::start(with_orders());
        for group in std::env::split_paths(&std::env::var_os(CGROUPS_VAR).unwrap()) {
            let entered = std::fs::read_to_string(group.join("cgroup.procs")).unwrap();
            assert_eq!(entered.trim(), broker.pid().unwrap().to_string());
        }
        return;
    }
    // Ordinary folders: what is written into them can be read again.
    let groups = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "fixture::the_server_enters_every_control_group_it_is_given"]).env(ROLE, "child");
    command.env(CGROUPS_VAR, std::env::join_paths(groups.iter().map(tempfile::TempDir::path)).unwrap());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// The server (not a shell on the way to it) that carries the mark of a run.
fn marked(mark: &str) -> Option<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let carries = |pid: u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let wanted = format!("{RUN_VAR}={mark}");
        let found = environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes());
        (found && exe.file_name()? == "nats-server").then_some(pid)
    };
    // Its process id stands in a file once its watcher is about to be there; the ports file says that it listens.
    processes.into_iter().find_map(carries).filter(|pid| folder_of(*pid).join("broker.pid").is_file())
}
