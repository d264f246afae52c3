//! `tools/run_nats_event_tests.py` as a program: with a cargo (and a docker) that only pretends, so that its exit statuses and its
//! cleaning up are seen by themselves.
#![allow(clippy::unwrap_used, reason = "what supports the tests may fail like a test")]

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use latent_testkit::{ChildGuard, CliEnv, wait_until};

const DIGEST: &str = "sha256:065e8355c20a5575b3c77224be1855e8103fd148b68fba05130b9b8ddfa40ccc";

/// `test` leaves behind what a killed test could: a process that ignores polite signals in a session of its own, and a key. Then it
/// does what the file `then` says.
const CARGO: &str = r#"#!/bin/sh
case "$1" in
metadata) cat "$FAKE/metadata" ;;
xtask) echo "$FAKE/server" ;;
test)
  echo "$@" >> "$FAKE/tests"
  [ -z "$LATENT_BROKER_CGROUP" ] || echo "$LATENT_BROKER_CGROUP" > "$FAKE/groups"
  for group in $(echo "$LATENT_BROKER_CGROUP" | tr : ' '); do
    cat "$group/memory.limit_in_bytes" "$group/memory.max" "$group/pids.max" "$group/cpu.cfs_quota_us" "$group/cpu.max" 2>/dev/null
  done > "$FAKE/limits"
  echo "$LATENT_REQUIRE_BROKER $LATENT_NATS_SERVER" > "$FAKE/environment"
  echo secret > "$TMPDIR/key.pem"
  echo "$TMPDIR" > "$FAKE/folder"
  setsid sh -c "trap '' TERM INT HUP; while :; do sleep 600; done" &
  echo $! > "$FAKE/left.new" && mv "$FAKE/left.new" "$FAKE/left"
  . "$FAKE/then"
  ;;
esac
"#;

/// Says what the file `digests` holds, and notes every call.
const DOCKER: &str = r#"#!/bin/sh
echo "$@" >> "$FAKE/docker"
case "$1" in
image) cat "$FAKE/digests" ;;
ps) echo 0123456789ab ;;
esac
"#;

struct Fake {
    env: CliEnv,
}

impl Fake {
    /// With the publisher's suite built and the other not, and tests that end as `then` says.
    fn new(then: &str) -> Self {
        let env = CliEnv::new(python());
        let fake = env.folder().to_owned();
        for (name, text) in [("bin/cargo", CARGO), ("bin/docker", DOCKER)] {
            let path = env.write(name, text);
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        env.write("then", then);
        env.write("digests", format!("[\"nats@{DIGEST}\"]"));
        env.write("metadata", METADATA);
        let mut path = OsString::from(fake.join("bin"));
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        Self { env: env.with_variable("PATH", path).with_variable("FAKE", fake) }
    }

    fn arguments(arguments: &[&str]) -> Vec<OsString> {
        let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/run_nats_event_tests.py");
        std::iter::once(runner.into_os_string()).chain(arguments.iter().map(OsString::from)).collect()
    }

    fn run(&self, arguments: &[&str]) -> latent_testkit::CliOutput {
        self.env.run(Self::arguments(arguments))
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.env.folder().join(name)).unwrap_or_default()
    }

    /// Nothing of what the tests left is there any more.
    fn is_clean(&self) {
        let pid = self.read("left");
        assert!(!runs(pid.trim()), "process {pid}");
        let folders = [self.read("folder")].into_iter().chain(self.read("groups").trim().split(':').map(str::to_owned).collect::<Vec<_>>());
        for folder in folders.map(|folder| PathBuf::from(folder.trim())).filter(|folder| !folder.as_os_str().is_empty()) {
            assert!(!folder.exists(), "{}", folder.display());
        }
    }
}

const METADATA: &str = r#"{"packages":[
    {"name":"latent-nats","targets":[{"name":"broker","kind":["test"]}]},
    {"name":"latent-wasmtime","targets":[{"name":"nats_events","kind":["test"]},{"name":"nats_triggers","kind":["lib"]}]}]}"#;

/// Of both suites.
const BUILT: &str = r#"{"packages":[
    {"name":"latent-nats","targets":[{"name":"broker","kind":["test"]},{"name":"triggers","kind":["test"]}]},
    {"name":"latent-wasmtime","targets":[{"name":"nats_events","kind":["test"]},{"name":"nats_triggers","kind":["test"]}]}]}"#;

/// The interpreter itself: what stands in its place on the path may need the developer's home.
fn python() -> PathBuf {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

fn runs(pid: &str) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

#[test]
fn the_exit_status_of_the_tests_is_kept_and_what_they_leave_is_removed() {
    for (then, status) in [("exit 0", 0), ("exit 101", 101), ("kill -KILL $$", 137)] {
        let fake = Fake::new(then);
        let output = fake.run(&[]).with_status(status);
        assert!(output.stderr.contains("2.14.6"), "{}", output.stderr);
        fake.is_clean();
        let (tests, expected) = (fake.read("tests"), ["-p latent-nats --test broker", "-p latent-wasmtime --test nats_events"]);
        assert_eq!(tests.lines().count(), 2);
        for (line, expected) in tests.lines().zip(expected) {
            assert_eq!(line, format!("test --locked {expected} --all-features --no-fail-fast"));
        }
        if !fake.read("groups").is_empty() {
            let limits = fake.read("limits");
            assert!(["268435456", "64", "100000"].iter().all(|limit| limits.split_whitespace().any(|word| word == *limit)), "{limits}");
        }
        assert_eq!(fake.read("environment").trim(), format!("1 {}", fake.env.folder().join("server").display()));
    }
}

#[test]
fn a_signal_ends_the_tests_and_what_they_leave_is_removed_all_the_same() {
    type Send = fn(&mut ChildGuard) -> std::io::Result<()>;
    let signals: [(Send, i32); 2] = [(ChildGuard::interrupt, 130), (ChildGuard::terminate, 143)];
    for (send, status) in signals {
        let fake = Fake::new("wait");
        let mut command = fake.env.command(Fake::arguments(&[]));
        let mut runner = ChildGuard::spawn(command.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
        wait_until("the tests run", || !fake.read("left").is_empty());
        assert!(runs(fake.read("left").trim()));
        send(&mut runner).unwrap();
        let ended = runner.wait_at_most(Duration::from_secs(120)).unwrap().unwrap();
        assert_eq!(ended.code(), Some(status));
        fake.is_clean();
        assert_eq!(fake.read("tests").lines().count(), 1, "nothing is started after the signal");
    }
}

#[test]
fn a_suite_that_is_unknown_or_not_built_runs_nothing_and_says_so() {
    let fake = Fake::new("exit 0");
    let unknown = fake.run(&["--suite", "nats_tests"]).with_status(2);
    assert!(unknown.stderr.contains("nats_tests") && unknown.stderr.contains("nats_triggers"), "{}", unknown.stderr);
    let not_built = fake.run(&["--suite", "nats_triggers"]).with_status(3);
    assert!(not_built.stderr.contains("nats_triggers is not built yet"), "{}", not_built.stderr);
    assert_eq!(fake.run(&["--list"]).with_status(0).stdout, "nats_events: built\nnats_triggers: not built yet\n");
    assert_eq!(fake.read("tests"), "");
}

#[test]
fn each_suite_runs_its_targets_in_order_its_own_last() {
    let suites = [
        ("nats_events", ["-p latent-nats --test broker", "-p latent-wasmtime --test nats_events"]),
        ("nats_triggers", ["-p latent-nats --test triggers", "-p latent-wasmtime --test nats_triggers"]),
    ];
    for (suite, expected) in suites {
        let fake = Fake::new("exit 0");
        fake.env.write("metadata", BUILT);
        let _ = fake.run(&["--suite", suite, "--caps", "none"]).with_status(0);
        let tests = fake.read("tests");
        assert_eq!(tests.lines().count(), 2, "{tests}");
        assert!(tests.lines().zip(expected).all(|(line, expected)| line.contains(expected)), "{tests}");
        assert_eq!(fake.run(&["--list"]).with_status(0).stdout, "nats_events: built\nnats_triggers: built\n");
    }
}

#[test]
fn arguments_after_two_dashes_go_to_the_harness() {
    let fake = Fake::new("exit 0");
    let _ = fake.run(&["--caps", "none", "--", "one_test", "--exact"]).with_status(0);
    assert!(fake.read("tests").lines().all(|line| line.ends_with("-- one_test --exact")), "{}", fake.read("tests"));
}

#[test]
fn a_run_without_caps_says_so_loudly() {
    let output = Fake::new("exit 0").run(&["--caps", "none"]).with_status(0);
    assert!(output.stderr.contains("NO CAPS ARE IN FORCE"), "{}", output.stderr);
}

#[test]
fn a_container_is_of_the_pinned_image_capped_and_removed() {
    let fake = Fake::new("\"$LATENT_NATS_SERVER\" --config file");
    let _ = fake.run(&["--caps", "docker"]).with_status(0);
    let calls = fake.read("docker");
    let run = calls.lines().find(|line| line.starts_with("run ")).unwrap();
    for part in ["--memory 268435456 ", "--cpus 1 ", "--pids-limit 64 ", "--log-driver none ", &format!("nats@{DIGEST} --config file")] {
        assert!(run.contains(part), "{part:?} in {run}");
    }
    assert!(calls.lines().any(|line| line == "rm --force 0123456789ab"), "{calls}");
    fake.is_clean();
}

#[test]
fn an_image_of_another_digest_is_refused() {
    let other = "nats@sha256:0000000000000000000000000000000000000000000000000000000000000000";
    let fake = Fake::new("exit 0");
    for caps in ["auto", "docker", "none"] {
        let output = fake.run(&["--caps", caps, "--image", other]).with_status(4);
        assert!(output.stderr.contains("not the pinned image"), "{}", output.stderr);
    }
    fake.env.write("digests", format!("[\"{other}\"]"));
    let output = fake.run(&["--caps", "docker"]).with_status(4);
    assert!(output.stderr.contains(DIGEST), "{}", output.stderr);
    assert_eq!(fake.read("tests"), "");
}
