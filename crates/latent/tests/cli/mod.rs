//! One file for each part of the command line; what they share is here.

mod archive;
mod archive_on_broker;
mod archive_promised;
mod archive_refused;
mod bench;
mod broker;
mod bulk;
mod clock;
mod cluster;
mod commands;
mod completeness;
mod config;
mod deadletter;
mod dev;
mod endurance;
mod engines;
mod forgetting;
mod holding;
mod invoking;
mod lanes;
mod maintaining;
mod migrating;
mod mistakes;
mod new;
mod outbox;
mod outcomes;
mod provider;
mod reading;
mod reloading;
mod resuming;
mod revoking;
mod running;
mod secret;
mod service;
mod streams;
mod why;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

use latent_testkit::{ChildGuard, CliEnv, CliOutput, wait_until};
use serde_json::{Value, json};

/// Against hanging only.
pub(crate) const HANG_LIMIT: Duration = Duration::from_secs(60);

pub(crate) const MANIFEST: &str = "\
manifest_version: 1
name: demo
topics:
  - { name: in, partitions: 3 }
  - { name: one, partitions: 1 }
";

/// A node without functions: enough to own a directory and answer.
pub(crate) const CONFIG: &str = "\
[node]
name = \"edge\"
data_dir = \"data\"
[engine]
kind = \"embedded\"
manifest = \"bridge.yaml\"
[[topic]]
name = \"in\"
tenant = \"acme\"
[[topic]]
name = \"one\"
tenant = \"acme\"
";

/// The program in a folder with a manifest and a configuration, nothing provisioned.
pub(crate) fn fresh() -> CliEnv {
    let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
    env.write("bridge.yaml", MANIFEST);
    env.write("latent.toml", CONFIG);
    env
}

/// As [`fresh`], with the data directory made.
pub(crate) fn provisioned() -> CliEnv {
    let env = fresh();
    let _ = env.run(["bus", "provision"]).with_status(0);
    env
}

/// Every line of standard output as JSON.
pub(crate) fn documents(output: &CliOutput) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
    output.stdout.lines().map(parse).collect()
}

/// The one error object on standard error.
pub(crate) fn error_of(output: &CliOutput) -> Value {
    let last = output.stderr.lines().last().unwrap_or_default();
    let document: Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error} in {:?}", output.stderr));
    document["error"].clone()
}

/// Publishes lines from standard input and hands back the documents.
pub(crate) fn publish(env: &CliEnv, arguments: &[&str], lines: &[u8], status: i32) -> Vec<Value> {
    let all = ["bus", "publish", "--file", "-", "--json"].iter().chain(arguments);
    documents(&env.run_with_input(all, lines.to_vec()).with_status(status))
}

/// What `fetch` prints of a partition.
pub(crate) fn fetched(env: &CliEnv, topic: &str, partition: u32) -> Vec<Value> {
    let partition = partition.to_string();
    let arguments = ["bus", "fetch", topic, "--partition", &partition, "--max", "1000000", "--json"];
    documents(&env.run(arguments).with_status(0))
}

pub(crate) fn values(events: &[Value]) -> Vec<Value> {
    events.iter().map(|event| event["value"].clone()).collect()
}

pub(crate) fn base64(text: &str) -> Value {
    json!({ "data_base64": text })
}

/// Flips a bit of the stored record that has `marker` in it.
pub(crate) fn damage(env: &CliEnv, topic: &str, marker: &[u8]) {
    for entry in std::fs::read_dir(env.folder().join("data/topics").join(topic)).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(marker.len()).position(|window| window == marker) {
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
}

/// A process that goes on, with its lines.
pub(crate) struct Running {
    pub(crate) child: ChildGuard,
    pub(crate) stdout: BufReader<std::process::ChildStdout>,
    pub(crate) stdin: Option<ChildStdin>,
}

impl Running {
    pub(crate) fn start(env: &CliEnv, arguments: &[&str]) -> Self {
        let mut command = env.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = ChildGuard::spawn(&mut command).unwrap();
        let (stdout, stdin) = (BufReader::new(child.take_stdout().unwrap()), child.take_stdin());
        Self { child, stdout, stdin }
    }

    /// The next line as JSON.
    pub(crate) fn document(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
    }

    pub(crate) fn write(&mut self, lines: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(lines).unwrap();
        stdin.flush().unwrap();
    }

    /// Asks it to stop and waits for its exit status.
    pub(crate) fn stop(mut self) -> Option<i32> {
        self.child.terminate().unwrap();
        self.child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code()
    }
}

/// A node on the data directory of `env` that answers on its socket.
pub(crate) fn node(env: &CliEnv) -> Running {
    node_of(env, "latent.toml")
}

/// A node of a configuration whose data directory is `data` beside it.
pub(crate) fn node_of(env: &CliEnv, config: &str) -> Running {
    let mut node = Running::start(env, &["run", "-c", config]);
    let socket = env.folder().join(config).with_file_name("data").join("control.sock");
    // A socket file alone may be one that was left behind.
    wait_until("the node's answer on its control socket", || {
        assert_eq!(node.child.try_wait().unwrap(), None, "the node ended");
        answers(&socket)
    });
    node
}

fn answers(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else { return false };
    let mut answer = String::new();
    writeln!(stream, r#"{{"version":1,"request":"ping"}}"#).is_ok()
        && BufReader::new(stream).read_line(&mut answer).is_ok_and(|bytes| bytes > 0)
}

/// A socket that answers as a node would say: `ping` by itself, everything else by `answer`. Without an answer it closes the connection.
/// It serves one connection after the other until the test ends.
pub(crate) fn scripted_node(env: &CliEnv, mut answer: impl FnMut(&Value) -> Option<Value> + Send + 'static) {
    let listener = UnixListener::bind(env.folder().join("data/control.sock")).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut line = String::new();
            while stream.read_line(&mut line).unwrap_or(0) > 0 {
                let request = serde_json::from_str::<Value>(&line).unwrap()["request"].clone();
                let node = || json!({ "node": { "name": "n", "version": "1", "pid": 1, "engine": "embedded" } });
                let Some(told) = (if request == json!("ping") { Some(node()) } else { answer(&request) }) else { break };
                if writeln!(stream.get_mut(), "{}", json!({ "version": 1, "answer": told })).is_err() {
                    break;
                }
                line.clear();
            }
        }
    });
}
