//! The example as people run it: its real component on the real node, in a folder of its own.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use latent_testkit::{ChildGuard, CliEnv, wait_until};
use serde_json::Value;

/// As the example's configuration has it.
const DELIVERIES: &str = "max_deliveries = 5";
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
        Self::edited(|config| config)
    }

    /// With another number of attempts.
    pub(crate) fn with_deliveries(deliveries_max: u32) -> Self {
        Self::edited(|config| {
            assert!(config.contains(DELIVERIES));
            config.replace(DELIVERIES, &format!("max_deliveries = {deliveries_max}"))
        })
    }

    /// With another configuration.
    pub(crate) fn edited(edit: impl Fn(String) -> String) -> Self {
        let env = CliEnv::new(env!("CARGO_BIN_EXE_latent"));
        let read = |name: &str| std::fs::read_to_string(example().join(name)).unwrap();
        let relative = "target/wasm32-wasip2/release/webhook_triage.wasm";
        let config = read("latent.toml");
        assert!(config.contains(relative));
        env.write("latent.toml", edit(config.replace(relative, component().to_str().unwrap())));
        for name in ["bridge.yaml", "events.jsonl"] {
            env.write(name, read(name));
        }
        Self { env }
    }

    /// For commands of its own.
    pub(crate) const fn env(&self) -> &CliEnv {
        &self.env
    }

    /// Where the configuration is.
    pub(crate) fn folder(&self) -> &Path {
        self.env.folder()
    }

    /// Where the node keeps everything.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder().join("data")
    }

    /// Starts the node and does not wait for it.
    pub(crate) fn spawn(&self) -> Node {
        let mut command = self.env.command(["run", "-c", "latent.toml"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Node(ChildGuard::spawn(&mut command).unwrap())
    }

    /// Starts the node and waits until it says that it runs.
    pub(crate) fn start(&self) -> Node {
        let mut node = self.spawn();
        let mut line = String::new();
        BufReader::new(node.0.take_stdout().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("is running"), "{line:?}");
        node
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
        self.statuses().remove(0)
    }

    fn statuses(&self) -> Vec<Value> {
        let output = self.env.run(["trigger", "status", "--json", "-c", "latent.toml"]).with_status(0);
        json_lines(output.stdout.as_bytes())
    }

    pub(crate) fn wait_until_handled(&self) {
        wait_until("every event handled", || self.statuses().iter().all(|status| status["pending"] == 0));
    }
}

impl Node {
    /// Waits so long; the node must not end by itself.
    pub(crate) fn must_run_for(&mut self, time: Duration) {
        let ended = self.0.wait_at_most(time).unwrap();
        assert!(ended.is_err(), "the node ended by itself: {ended:?}");
    }

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
