//! The live contract (B-084): the same cases on the broker that `AV_NATS_URL` names, reached as `AV_NATS_CA_FILE`, `AV_NATS_USER`,
//! `AV_NATS_PASSWORD` and `AV_NATS_TLS_FIRST` say.
//!
//! Cases name their topics, so no two of them may share an account at a time. With `LATENT_CONTRACT_ACCOUNTS=N` the broker has N accounts
//! for these tests alone, with the users `<AV_NATS_USER>-0` and so on: each case gets a free one and finds it empty. Without it the
//! cases run one after the other in the one account there is. That may be somebody's: a stream that is already there is never touched,
//! and those that a case makes are deleted after it. `LATENT_CONTRACT_REPLICAS` is how many servers keep each stream.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Condvar, Mutex, Once, PoisonError};
use std::time::Duration;

use async_nats::jetstream::{self, Context};
use async_nats::{ConnectOptions, ServerAddr};
use latent_bridge::nats_bus::{NatsCredentials, NatsOptions};
use latent_bridge::{BridgeManifest, InOrder, NatsBus};
use latent_testkit::{Missing, REQUIRE_BROKER_VAR, SKIPS_FILE_VAR, until_some};

use super::{Engine, Numbering};

const URL_VAR: &str = "AV_NATS_URL";
const ACCOUNTS_VAR: &str = "LATENT_CONTRACT_ACCOUNTS";
const REPLICAS_VAR: &str = "LATENT_CONTRACT_REPLICAS";
/// Bounds each thing that is asked of the broker here.
const CALL_TIME_MAX: Duration = Duration::from_secs(60);

struct OnBroker {
    // Closed before the account is emptied and free for the next case.
    bus: NatsBus,
    account: Account,
}

impl Engine for OnBroker {
    const NUMBERING: Numbering = Numbering::OfSharedStream;

    fn missing() -> Option<Missing> {
        if std::env::var_os(URL_VAR).is_some() {
            return None;
        }
        static SAID: Once = Once::new();
        // Past the test's captured output: it must be seen.
        SAID.call_once(|| drop(writeln!(std::io::stderr(), "SKIPPED ({URL_VAR} unset)")));
        Some(Missing::NatsUrl)
    }

    fn provision(manifest: &BridgeManifest) -> Self {
        let replicas = variable(REPLICAS_VAR).map_or(manifest.replication_factor, |text| text.parse().unwrap());
        let manifest = &BridgeManifest { replication_factor: replicas, ..manifest.clone() };
        let mut account = Account::lease();
        account.make_room_for(manifest);
        let bus = match account.number {
            Some(_) => NatsBus::provision_with(account.options(), manifest),
            None => NatsBus::provision(&url(), manifest),
        };
        Self { bus: bus.unwrap(), account }
    }

    fn in_order(&self) -> &dyn InOrder {
        &self.bus
    }

    fn reopen(self) -> Self {
        let Self { bus, account } = self;
        let manifest = bus.manifest().clone();
        drop(bus);
        let bus = match account.number {
            Some(_) => NatsBus::open_with(account.options(), &manifest),
            None => NatsBus::open(&url(), &manifest),
        };
        Self { bus: bus.unwrap(), account }
    }
}

super::contract_tests!(OnBroker);

/// B-084. A case runs itself again as a process without the variable.
#[test]
fn without_a_broker_a_case_says_so_is_counted_and_fails_where_one_was_promised() {
    const CASE: &str = "contract::nats::keys_choose_their_pinned_partitions";
    let folder = tempfile::tempdir().unwrap();
    for (promised, passes, counted) in [("0", true, format!("main::{CASE}\tAV_NATS_URL unset\n")), ("1", false, String::new())] {
        let file = folder.path().join(promised);
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", CASE]).env_remove(URL_VAR).env(SKIPS_FILE_VAR, &file).env(REQUIRE_BROKER_VAR, promised);
        let output = child.output().unwrap();
        assert_eq!(output.status.success(), passes, "{REQUIRE_BROKER_VAR}={promised}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("SKIPPED (AV_NATS_URL unset)"), "seen past the captured output");
        assert_eq!(std::fs::read_to_string(&file).unwrap_or_default(), counted);
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn url() -> String {
    variable(URL_VAR).unwrap()
}

/// Accounts that no case has at the moment; `None` until the first one is asked for.
static FREE: Mutex<Option<Vec<Option<u32>>>> = Mutex::new(None);
static FREED: Condvar = Condvar::new();

/// One case's account of the broker.
struct Account {
    /// Which of those that are for these tests alone; `None`: the one that the environment names.
    number: Option<u32>,
    /// Streams that this case makes.
    streams: Vec<String>,
}

impl Account {
    /// Waits for a free one. Cases are bounded themselves, so one comes free.
    fn lease() -> Self {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let all = || match variable(ACCOUNTS_VAR) {
                Some(count) => (0..count.parse().unwrap()).map(Some).collect(),
                None => vec![None],
            };
            if let Some(number) = free.get_or_insert_with(all).pop() {
                return Self { number, streams: Vec::new() };
            }
            free = FREED.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn user(&self) -> Option<String> {
        let base = variable("AV_NATS_USER")?;
        Some(self.number.map_or(base.clone(), |number| format!("{base}-{number}")))
    }

    fn options(&self) -> NatsOptions {
        let mut options = NatsOptions::from_environment(&url()).unwrap();
        if let Some(NatsCredentials::UserPassword { user, .. }) = &mut options.credentials {
            *user = self.user().unwrap();
        }
        options
    }

    /// An account of our own is emptied; of somebody's nothing is touched.
    fn make_room_for(&mut self, manifest: &BridgeManifest) {
        self.streams = manifest.topics.iter().map(|topic| format!("av_{}", topic.name.replace('.', "_"))).collect();
        let there = self.with_jetstream(async |jetstream| stream_names(&jetstream).await);
        if self.number.is_some() {
            self.with_jetstream(async |jetstream| delete(&jetstream, &there).await);
        } else if let Some(name) = self.streams.iter().find(|name| there.contains(name)) {
            let name = name.clone();
            // What is not ours stays when this account is given back.
            self.streams.clear();
            panic!("the broker of {URL_VAR} has a stream {name} that this test did not make; name another account, or delete it");
        }
    }

    /// Runs `call` on a connection of its own.
    fn with_jetstream<T>(&self, call: impl AsyncFnOnce(Context) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let servers: Vec<ServerAddr> = url().split(',').map(|server| server.parse().unwrap()).collect();
            let mut options = ConnectOptions::new().name("latent-contract").connection_timeout(CALL_TIME_MAX);
            if let Some((user, password)) = self.user().zip(variable("AV_NATS_PASSWORD")) {
                options = options.user_and_password(user, password).require_tls(true);
            }
            if let Some(ca_file) = ca_file() {
                options = options.add_root_certificates(ca_file).require_tls(true);
            }
            if tls_first() {
                options = options.tls_first();
            }
            let client = options.connect(servers).await.unwrap();
            let mut jetstream = jetstream::new(client);
            jetstream.set_timeout(CALL_TIME_MAX);
            tokio::time::timeout(CALL_TIME_MAX, call(jetstream)).await.unwrap()
        })
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let streams = std::mem::take(&mut self.streams);
        // An account of our own is emptied before the next case anyway.
        if self.number.is_none() && !streams.is_empty() {
            self.with_jetstream(async |jetstream| delete(&jetstream, &streams).await);
        }
        FREE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().push(self.number);
        FREED.notify_one();
    }
}

fn ca_file() -> Option<PathBuf> {
    variable("AV_NATS_CA_FILE").map(PathBuf::from)
}

fn tls_first() -> bool {
    variable("AV_NATS_TLS_FIRST").is_some_and(|value| value == "true")
}

/// The first thousand: more than a case could meet in an account that it may use.
async fn stream_names(jetstream: &Context) -> Vec<String> {
    let reply: serde_json::Value = jetstream.request("STREAM.NAMES", &()).await.unwrap();
    let names = reply["streams"].as_array().into_iter().flatten();
    names.map(|name| name.as_str().unwrap().to_owned()).collect()
}

async fn delete(jetstream: &Context, streams: &[String]) {
    for stream in streams {
        // One that is not there any more is as good; one that stays is another case's past. The members of a cluster hear of it one by one.
        until_some("a stream of an earlier case is gone", async || {
            let _ = jetstream.delete_stream(stream).await;
            (!stream_names(jetstream).await.contains(stream)).then_some(())
        })
        .await;
    }
}
