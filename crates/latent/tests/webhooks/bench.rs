//! The example as people run it: its real component on the real node, in a folder of its own.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use latent_testkit::{ChildGuard, CliEnv, wait_until};
use serde_json::Value;

const PARTITIONS: u32 = 4;
/// Against hanging only.
const HANG_LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/webhook-triage")
}

/// The example's component, built as its README says.
fn component() -> &'static Path {
    static COMPONENT: OnceLock<PathBuf> = OnceLock::new();
    COMPONENT.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--release", "--locked", "--target", "wasm32-wasip2", "--target-dir", "target"]);
        // The example is a workspace of its own: what this build was told does not concern it.
        build.current_dir(example()).env_remove("CARGO_TARGET_DIR").env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("RUSTFLAGS");
        let output = build.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        example().join("target/wasm32-wasip2/release/webhook_triage.wasm")
    })
}

/// One data directory with the example's configuration.
pub(crate) struct Application {
    env: CliEnv,
}

/// A node that runs.
pub(crate) struct Node(ChildGuard);

impl Application {
    pub(crate) fn new() -> Self {
        let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
        let read = |name: &str| std::fs::read_to_string(example().join(name)).unwrap();
        let relative = "target/wasm32-wasip2/release/webhook_triage.wasm";
        let config = read("latent.toml");
        assert!(config.contains(relative));
        env.write("latent.toml", config.replace(relative, component().to_str().unwrap()));
        env.write("bridge.yaml", read("bridge.yaml"));
        Self { env }
    }

    /// Starts the node and waits until it says that it runs.
    pub(crate) fn start(&self) -> Node {
        let mut command = self.env.command(["run", "-c", "latent.toml"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut node = ChildGuard::spawn(&mut command).unwrap();
        let mut line = String::new();
        BufReader::new(node.take_stdout().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("is running"), "{line:?}");
        Node(node)
    }

    /// The command that publishes a file of webhooks.
    fn publish_command(&self, file: &Path) -> Command {
        let words = ["bus", "publish", "github.events", "--raw-lines", "--media-type", "application/json", "--json", "-c", "latent.toml"];
        let mut command = self.env.command(words);
        command.args(["--key-pointer", "/payload/repository/full_name", "--file"]).arg(file);
        command
    }

    pub(crate) fn publish(&self, file: &Path) -> Vec<Value> {
        let output = self.publish_command(file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        json_lines(&output.stdout)
    }

    /// Publishes while other things happen. How it ends is nobody's business: the node may be gone.
    pub(crate) fn publish_in_background(&self, file: &Path) -> ChildGuard {
        let mut command = self.publish_command(file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        ChildGuard::spawn(&mut command).unwrap()
    }

    pub(crate) fn status(&self) -> Value {
        let output = self.env.run(["trigger", "status", "--json", "-c", "latent.toml"]).with_status(0);
        json_lines(output.stdout.as_bytes()).remove(0)
    }

    /// Waits until the node has settled `count` events since it started, or everything that was published.
    pub(crate) fn wait_until_settled(&self, count: u64, publishing: &mut ChildGuard) {
        wait_until(&format!("{count} settled events"), || {
            let published = publishing.try_wait().unwrap().is_some();
            let status = self.status();
            status["settled"].as_u64().unwrap() >= count || (published && status["pending"] == 0)
        });
    }

    pub(crate) fn wait_until_handled(&self) {
        wait_until("every event handled", || {
            let status = self.status();
            ["pending", "unacknowledged", "delayed"].iter().all(|name| status[name] == 0)
        });
    }

    /// Every result, partition by partition, in order.
    pub(crate) fn results(&self) -> Vec<Vec<Value>> {
        let fetch = |partition: u32| {
            let partition = partition.to_string();
            let words =
                ["bus", "fetch", "triage.results", "--offset", "0", "--max", "100000", "--json", "-c", "latent.toml", "--partition"];
            let output = self.env.run(words.iter().copied().chain([partition.as_str()])).with_status(0);
            json_lines(output.stdout.as_bytes())
        };
        (0..PARTITIONS).map(fetch).collect()
    }
}

impl Node {
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
    }

    pub(crate) fn stop(mut self) {
        self.0.terminate().unwrap();
        let status = self.0.wait_at_most(HANG_LIMIT).unwrap().unwrap();
        assert!(status.success(), "{status}");
    }
}

fn json_lines(text: &[u8]) -> Vec<Value> {
    std::str::from_utf8(text).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
