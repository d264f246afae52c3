//! The server's process: found, started inside the control groups of the run, watched, ended.
//!
//! A second small process watches the test: when the test's process is gone, by whatever way, it ends the server and removes its
//! folder. It holds the reading end of a pipe whose other end only the test has.

use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::spec::{CONFIG_FILE, LOG_FILE, PID_FILE};
use crate::ChildGuard;
use crate::wait::{HANG_LIMIT, looked_until};

/// The version that the conformance of this project is shown with.
pub const VERSION: &str = "2.14.6";
/// Names the executable.
pub const SERVER_VAR: &str = "LATENT_NATS_SERVER";
/// Folders of control groups, separated by `:`. The server puts itself into each of them before it begins.
pub const CGROUPS_VAR: &str = "LATENT_BROKER_CGROUP";
/// A mark of the run that started the server, handed on to it, so that a runner can find what is left.
pub const RUN_VAR: &str = "LATENT_BROKER_RUN";

/// Where `cargo xtask broker` puts the executable, below the root of the clone.
const DEFAULT_SERVER: &str = "target/nats-server/nats-server";
/// Enters the control groups that stand first, then becomes the server: the process id stays the same.
const ENTER: &str = "while [ \"$1\" != -- ]; do echo $$ > \"$1/cgroup.procs\" || exit 97; shift; done; shift; exec \"$@\"";
/// Waits for the end of its standard input, then ends the server and removes its folder.
const WATCH: &str = "trap '' INT TERM HUP; read -r _; kill -KILL \"$1\" $(cat \"$2\"/*.pid) 2>/dev/null; rm -rf -- \"$2\"";
const LOG_TAIL_BYTES: usize = 8 << 10;

/// A running server with its watcher.
#[derive(Debug)]
pub(super) struct Running {
    // The watcher goes before the server: it must never see a process id that is free again.
    _watcher: ChildGuard,
    _alive: Option<ChildStdin>,
    server: Server,
    monitor: SocketAddrV4,
}

/// The server's process. Started through a container's command line, the server itself has another id than the child.
#[derive(Debug)]
struct Server {
    child: ChildGuard,
    pid: u32,
}

/// What starting gives.
pub(super) struct Started {
    pub(super) running: Running,
    pub(super) address: SocketAddrV4,
}

/// True when there is a server to start.
///
/// # Panics
/// When the environment names one that is not there: that is a mistake, not a reason to skip.
pub fn is_available() -> bool {
    let named = std::env::var_os(SERVER_VAR).map(PathBuf::from);
    if let Some(path) = &named {
        assert!(path.is_file(), "{SERVER_VAR} names {}, which is not a file", path.display());
    }
    named.is_some() || default_server().is_file()
}

fn default_server() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(DEFAULT_SERVER)
}

fn executable() -> PathBuf {
    std::env::var_os(SERVER_VAR).map_or_else(default_server, PathBuf::from)
}

/// Starts the server on the configuration in `folder` and waits until it listens.
#[allow(clippy::panic, reason = "this runs inside a test: a panic is how it fails")]
pub(super) fn start(folder: &Path) -> Started {
    forget_earlier(folder);
    let program = executable();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", ENTER, "enter"]);
    if let Some(groups) = std::env::var_os(CGROUPS_VAR) {
        command.args(std::env::split_paths(&groups).filter(|group| !group.as_os_str().is_empty()));
    }
    command.arg("--").arg(&program).arg("--config").arg(folder.join(CONFIG_FILE));
    hermetic(&mut command, folder);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = ChildGuard::spawn(&mut command).unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
    let pid = child.pid();
    let mut server = Server { child, pid };
    let (watcher, alive) = watch(pid, folder);
    let Some((address, monitor, pid)) = listening(&mut server.child, folder) else {
        panic!("the broker does not start ({:?})\n{}", server.child.try_wait(), log_of(folder));
    };
    server.pid = pid;
    Started { running: Running { _watcher: watcher, _alive: alive, server, monitor }, address }
}

fn forget_earlier(folder: &Path) {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "ports" || extension == "pid")) {
        let _ = std::fs::remove_file(path);
    }
}

/// Nothing of the surroundings but where programs are and the mark of the run.
fn hermetic(command: &mut Command, folder: &Path) {
    command.current_dir(folder).env_clear().envs(["PATH", RUN_VAR].iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
}

#[allow(clippy::panic, reason = "this runs inside a test: a panic is how it fails")]
fn watch(pid: u32, folder: &Path) -> (ChildGuard, Option<ChildStdin>) {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", WATCH, "watch", &pid.to_string()]).arg(folder);
    hermetic(&mut command, Path::new("/"));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut watcher = ChildGuard::spawn(&mut command).unwrap_or_else(|error| panic!("cannot watch the broker: {error}"));
    let alive = watcher.take_stdin();
    (watcher, alive)
}

fn listening(child: &mut ChildGuard, folder: &Path) -> Option<(SocketAddrV4, SocketAddrV4, u32)> {
    let mut found = None;
    looked_until(HANG_LIMIT, || {
        found = ports(folder);
        found.is_some() || !matches!(child.try_wait(), Ok(None))
    });
    found
}

/// What the server wrote down about itself: the clients' address, the monitoring address, its process id.
fn ports(folder: &Path) -> Option<(SocketAddrV4, SocketAddrV4, u32)> {
    let mut files = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let text = std::fs::read(files.find(|path| path.extension().is_some_and(|extension| extension == "ports"))?).ok()?;
    let ports: Value = serde_json::from_slice(&text).ok()?;
    let address = |kind: &str| ports.get(kind)?.get(0)?.as_str()?.rsplit_once('/')?.1.parse().ok();
    let pid = std::fs::read_to_string(folder.join(PID_FILE)).ok()?.trim().parse().ok()?;
    Some((address("nats")?, address("monitoring")?, pid))
}

/// The end of the log in `folder`.
pub(super) fn log_of(folder: &Path) -> String {
    let log = std::fs::read(folder.join(LOG_FILE)).unwrap_or_default();
    String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned()
}

impl Running {
    pub(super) const fn pid(&self) -> u32 {
        self.server.pid
    }

    pub(super) const fn monitor(&self) -> SocketAddrV4 {
        self.monitor
    }

    pub(super) fn signal(&self, signal: Signal) {
        self.server.signal(signal);
    }

    /// Ends the server in its own way. A stopped process is let go on first: it could not hear.
    #[allow(clippy::panic, reason = "this runs inside a test: a panic is how it fails")]
    pub(super) fn stop(mut self) {
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        let ended = self.server.child.wait_at_most(Duration::from_secs(60));
        assert!(matches!(ended, Ok(Ok(_))), "the broker does not end: {ended:?}");
    }
}

impl Server {
    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            // An error means that it has ended, which the test will notice by itself.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::KILL);
        }
    }
}
