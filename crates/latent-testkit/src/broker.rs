//! The pinned NATS server as a fixture: TLS first, memory only unless said otherwise, loopback only, gone with its owner.
//!
//! Nothing here reaches the product. Certificates are made at run time ([`TestCa`]); streams are provisioned on a path of their own
//! ([`Admin`]) with a user of its own, so that the users under test need no right of administration.
//!
//! The executable is what `LATENT_NATS_SERVER` names, else what `cargo xtask broker` put under `target/nats-server/`.

mod admin;
mod ca;
mod cluster;
mod consumer;
mod lane;
mod monitor;
mod process;
mod spec;

use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;
use tempfile::TempDir;

pub use admin::{Admin, StoredMessage};
pub use ca::{Issued, TestCa};
pub use cluster::Cluster;
pub use consumer::PullConsumer;
pub use lane::LaneConsumer;
pub use monitor::Connection;
pub use process::{CGROUPS_VAR, RUN_VAR, SERVER_VAR, VERSION, is_available};
use process::{Running, Started};
pub use spec::{BrokerAccount, BrokerAuth, BrokerSpec, BrokerUser, PUBLISHER_INBOXES, SERVER_NAME, StreamSpec};
use spec::{CERTIFICATE_FILE, CONFIG_FILE, KEY_FILE, Place, configuration};

use crate::own_thread::block_on;
use crate::wait_until;

/// Leaves the test, counted, when there is no broker to run it against. A macro, because only the test itself can return.
#[macro_export]
macro_rules! require_broker {
    () => {
        if !$crate::broker::is_available() {
            $crate::skip!($crate::Missing::Broker);
        }
    };
}

/// A running broker. Dropping it ends the process and removes its folder; a process that dies with its test leaves neither behind.
#[derive(Debug)]
pub struct Broker {
    folder: TempDir,
    ca: Arc<TestCa>,
    admin: BrokerUser,
    address: SocketAddrV4,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    spec: BrokerSpec,
    running: Option<Running>,
}

#[allow(clippy::expect_used, clippy::panic, reason = "this runs inside a test: a panic is how it fails")]
impl Broker {
    /// Starts a broker with a fresh certificate authority and makes the streams of `spec`.
    ///
    /// # Panics
    /// When it does not start; the message ends with the broker's log.
    pub fn start(spec: BrokerSpec) -> Self {
        Self::start_with_ca(spec, TestCa::new())
    }

    /// As [`Broker::start`], certified by `ca`.
    ///
    /// # Panics
    /// As [`Broker::start`].
    pub fn start_with_ca(spec: BrokerSpec, ca: TestCa) -> Self {
        Self::start_certified(spec, Arc::new(ca))
    }

    fn start_certified(spec: BrokerSpec, ca: Arc<TestCa>) -> Self {
        let folder = tempfile::Builder::new().prefix("latent-broker-").tempdir().expect("a temporary folder");
        let certificate = spec.certificate.clone().unwrap_or_else(|| ca.issue(&spec.server_name));
        for (name, content) in [(CERTIFICATE_FILE, &certificate.certificate_pem), (KEY_FILE, &certificate.key_pem)] {
            std::fs::write(folder.path().join(name), content).expect("a file of the broker");
        }
        let admin = admin::user();
        write_configuration(&folder, &spec, None, &admin);
        let Started { running, address } = process::start(folder.path());
        let broker = Self { folder, ca, admin, address, state: Mutex::new(State { spec, running: Some(running) }) };
        broker.provision();
        broker
    }

    /// Where it listens; stays the same over restarts.
    pub const fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// The authority that certified it.
    pub fn ca(&self) -> &TestCa {
        &self.ca
    }

    /// The name in its specification.
    pub fn server_name(&self) -> String {
        self.state().spec.server_name.clone()
    }

    /// The provisioning path.
    ///
    /// # Panics
    /// When the broker cannot be reached.
    pub async fn admin(&self) -> Admin {
        let (auth, server_name) = {
            let state = self.state();
            (state.spec.auth.clone(), state.spec.server_name.clone())
        };
        let monitor = self.monitor();
        Admin::connect(self.address, monitor, &auth, &self.admin, &self.ca, &server_name).await
    }

    /// Ends it (SIGTERM) and waits until it has ended. Its streams are gone with it.
    ///
    /// # Panics
    /// When it does not end.
    pub fn stop(&self) {
        let running = self.state().running.take();
        running.map(Running::stop).unwrap_or_default();
    }

    /// Ends it as a power cut would (SIGKILL).
    pub fn kill(&self) {
        drop(self.state().running.take());
    }

    /// Starts it again on the same address, with what was stored on disk. The streams of its specification that were in memory are made
    /// anew and empty. A running one is stopped first.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&self) {
        self.stop();
        let mut state = self.state();
        write_configuration(&self.folder, &state.spec, Some(self.address.port()), &self.admin);
        let Started { running, address } = process::start(self.folder.path());
        assert_eq!(address, self.address, "a restarted broker keeps its address");
        state.running = Some(running);
        drop(state);
        self.provision();
    }

    /// Stops the process where it stands (SIGSTOP): connections stay, nothing is answered.
    ///
    /// # Panics
    /// When it does not run.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let Some(pid) = self.pid() else { return };
        let tasks = format!("/proc/{pid}/task");
        wait_until("every thread of the broker to stand still", || {
            let states = std::fs::read_dir(&tasks).into_iter().flatten().flatten();
            states.map(|task| std::fs::read_to_string(task.path().join("stat")).unwrap_or_default()).all(|stat| is_stopped(&stat))
        });
    }

    /// Lets a paused process go on (SIGCONT).
    ///
    /// # Panics
    /// When it does not run.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Tells it to enter lame duck mode (SIGUSR2): clients get an INFO that says so, new ones are refused.
    ///
    /// # Panics
    /// When it does not run.
    pub fn enter_lame_duck(&self) {
        self.signal(Signal::USR2);
    }

    /// Changes its specification while it runs (SIGHUP), as for the rotation of a password, and waits until that is in force. Clients
    /// whose credentials are not valid any more are disconnected by the broker. Streams are left alone.
    ///
    /// # Panics
    /// When the broker does not take the new configuration.
    pub fn reload(&self, change: impl FnOnce(&mut BrokerSpec)) {
        let monitor = self.monitor();
        let before = monitor::config_load_time(monitor);
        let mut state = self.state();
        change(&mut state.spec);
        write_configuration(&self.folder, &state.spec, Some(self.address.port()), &self.admin);
        drop(state);
        self.signal(Signal::HUP);
        let taken = crate::wait::looked_until(crate::wait::HANG_LIMIT, || monitor::config_load_time(monitor) != before);
        assert!(taken, "the broker does not take its new configuration\n{}", self.log());
    }

    /// The end of its log.
    pub fn log(&self) -> String {
        process::log_of(self.folder.path())
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.state().running.as_ref().map(Running::pid)
    }

    /// Makes consumers.
    ///
    /// # Panics
    /// When the broker refuses.
    pub fn add_consumers(&self, consumers: &[PullConsumer]) {
        block_on(async {
            let admin = self.admin().await;
            for consumer in consumers {
                admin.add_consumer(&consumer.stream, &consumer.settings()).await;
            }
        });
    }

    /// Makes consumers for lanes.
    ///
    /// # Panics
    /// When the broker refuses.
    pub fn add_lanes(&self, lanes: &[LaneConsumer]) {
        block_on(async {
            let admin = self.admin().await;
            for lane in lanes {
                admin.add_consumer(&lane.stream, &lane.settings()).await;
            }
        });
    }

    fn provision(&self) {
        let streams = self.state().spec.streams.clone();
        if !streams.is_empty() {
            block_on(async {
                let admin = self.admin().await;
                for stream in &streams {
                    admin.add_stream(stream).await;
                }
            });
        }
    }

    fn monitor(&self) -> SocketAddrV4 {
        self.state().running.as_ref().map(Running::monitor).expect("a running broker")
    }

    fn signal(&self, signal: Signal) {
        self.state().running.as_ref().expect("a running broker").signal(signal);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[allow(clippy::expect_used, reason = "this runs inside a test: a panic is how it fails")]
fn write_configuration(folder: &TempDir, spec: &BrokerSpec, port: Option<u16>, admin: &BrokerUser) {
    let text = configuration(spec, &Place { folder: folder.path(), port, admin });
    std::fs::write(folder.path().join(CONFIG_FILE), text).expect("a file of the broker");
}
/// Whether a line of `/proc/PID/task/TID/stat` is of a thread that a signal stopped. The name before the state may hold anything.
fn is_stopped(stat: &str) -> bool {
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 't']))
}

#[cfg(test)]
mod tests {
    use super::is_stopped;

    #[test]
    fn a_stopped_thread_is_told_from_a_running_one_whatever_its_name() {
        assert!(is_stopped("7 (nats) R (x) T 1 1") && is_stopped("7 (nats-server) t 1"));
        assert!(!is_stopped("7 (a) T (b) S 1") && !is_stopped("7 (nats-server) R 1"));
        assert!(is_stopped(""), "a thread that has ended does nothing");
    }
}
