//! `with_nats_url [--cluster] PROGRAM ARGUMENTS…`: runs a program with the pinned broker beside it, or with three of them that keep streams
//! together, and names it in the environment: `AV_NATS_*`, `LATENT_CONTRACT_ACCOUNTS`, `LATENT_CONTRACT_REPLICAS`. For the live contract of
//! the bus in `cargo xtask test`.
//!
//! Each account is for one case of the contract at a time. The brokers end with this process, however that ends.
#![allow(clippy::expect_used, clippy::print_stderr, reason = "a tool of the project: a panic is how it fails")]

use std::net::SocketAddrV4;
use std::process::{Command, ExitCode};

use latent_testkit::broker::{Broker, BrokerAccount, BrokerSpec, BrokerUser, Cluster, TestCa};

/// The certificate is of the address: nothing has to be looked up.
const SERVER_NAME: &str = "127.0.0.1";
const USER: &str = "contract";
const PASSWORD: &str = "of a broker that lives as long as one run of the tests";
/// More than tests that run at a time on the machines this is used on. Where there are more, they wait for each other.
const ACCOUNTS: u32 = 16;
/// Room for everything that the cases keep at a time.
const DISK_BYTES_MAX: i64 = 2 << 30;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let is_cluster = arguments.next_if(|word| word == "--cluster").is_some();
    let Some(program) = arguments.next() else {
        eprintln!("usage: with_nats_url [--cluster] PROGRAM ARGUMENTS…");
        return ExitCode::from(2);
    };
    let account = |number: u32| BrokerAccount {
        name: format!("CONTRACT-{number}"),
        users: vec![BrokerUser::unlimited(&format!("{USER}-{number}"), PASSWORD)],
    };
    // One more that is named as it is, for a program that wants one account.
    let plain = BrokerAccount { name: "CONTRACT".to_owned(), users: vec![BrokerUser::unlimited(USER, PASSWORD)] };
    let accounts = (0..ACCOUNTS).map(account).chain([plain]).collect();
    let spec = BrokerSpec { server_name: SERVER_NAME.to_owned(), accounts, ..BrokerSpec::default() }.disk(DISK_BYTES_MAX);
    let started = if is_cluster { Started::Three(Cluster::start(&spec)) } else { Started::One(Box::new(Broker::start(spec))) };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, started.ca().root_pem()).expect("a file for the root");
    let mut command = Command::new(program);
    let addresses: Vec<_> = started.addresses().iter().map(|address| format!("tls://{address}")).collect();
    command.args(arguments).env("AV_NATS_URL", addresses.join(",")).env("AV_NATS_CA_FILE", &ca_file);
    command.env("LATENT_CONTRACT_REPLICAS", addresses.len().to_string());
    command.env("AV_NATS_USER", USER).env("AV_NATS_PASSWORD", PASSWORD).env("AV_NATS_TLS_FIRST", "true");
    command.env("LATENT_CONTRACT_ACCOUNTS", ACCOUNTS.to_string());
    let status = command.status().expect("the program");
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

enum Started {
    One(Box<Broker>),
    Three(Cluster),
}

impl Started {
    fn addresses(&self) -> Vec<SocketAddrV4> {
        match self {
            Self::One(broker) => vec![broker.address()],
            Self::Three(cluster) => cluster.addresses(),
        }
    }

    fn ca(&self) -> &TestCa {
        match self {
            Self::One(broker) => broker.ca(),
            Self::Three(cluster) => cluster.ca(),
        }
    }
}
