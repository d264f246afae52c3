//! `latent dev`: what is changed runs, what is broken changes nothing, and no event is lost or doubled on the way.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};

use latent_test_guests::{BEHAVE, COMMAND, PLAIN};
use latent_testkit::{Missing, skip};
use rustix::process::{Pid, test_kill_process_group};
use serde_json::json;

use super::revoking::with_services;
use super::*;

/// Set to run tests that compile a project of their own.
const SLOW: &str = "LATENT_SLOW_TESTS";
/// Against hanging only: a first build compiles what a project is made of.
const BUILD_LIMIT: Duration = Duration::from_secs(900);

/// A running `latent dev --json` and what it said so far.
struct Dev {
    child: ChildGuard,
    lines: Receiver<Value>,
    said: Vec<Value>,
}

impl Dev {
    fn start(env: &CliEnv, folder: &str) -> Self {
        let mut command = env.command(["dev", folder, "--json"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = ChildGuard::spawn(&mut command).unwrap();
        let stdout = BufReader::new(child.take_stdout().unwrap());
        let (told, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let line = line.unwrap();
                let document = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
                if told.send(document).is_err() {
                    return;
                }
            }
        });
        Self { child, lines, said: Vec::new() }
    }

    /// The next line that is such an event and of which `is` is true. Lines before it are kept in `said`, and it too.
    #[track_caller]
    fn await_event(&mut self, event: &str, is: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.lines.recv_timeout(BUILD_LIMIT).unwrap_or_else(|error| panic!("{error}: no {event} after {:#?}", self.said));
            self.said.push(line.clone());
            if line["event"] == json!(event) && is(&line) {
                return line;
            }
        }
    }

    /// Takes in what was said since, without waiting.
    fn look(&mut self) {
        self.said.extend(self.lines.try_iter());
    }

    fn said(&self, event: &str) -> Vec<&Value> {
        self.said.iter().filter(|line| line["event"] == json!(event)).collect()
    }

    /// Ends it in order; everything it said.
    fn stop(mut self) -> Vec<Value> {
        self.child.terminate().unwrap();
        assert_eq!(self.child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(0));
        self.said.extend(self.lines.iter());
        self.said
    }
}

fn any(_: &Value) -> bool {
    true
}

/// Publishes one event of this text.
fn publish_text(env: &CliEnv, topic: &str, text: &str) {
    let arguments = [topic, "--raw-lines", "--media-type", "text/plain", "--fresh-uids"];
    assert_eq!(publish(env, &arguments, format!("{text}\n").as_bytes(), 0).len(), 1);
}

#[test]
fn each_activation_is_a_line_with_the_log_of_its_function_and_a_new_component_file_is_taken_in() {
    let env = with_services(&[("triage", "acme")]);
    let mut dev = Dev::start(&env, ".");
    let started = dev.await_event("started", any);
    let (first, generation) = (started["routes"][0]["component"].clone(), started["routes"][0]["generation"].as_u64().unwrap());
    publish_text(&env, "triage", "log");
    let activation = dev.await_event("activation", any);
    let place = ["outcome", "service", "trigger", "topic", "partition", "offset", "attempt"].map(|field| activation[field].clone());
    assert_eq!(json!(place), json!(["success", "triage", "triage", "triage", 0, 0, 1]));
    let log: Vec<_> = activation["log"].as_array().unwrap().iter().map(|line| (&line["source"], &line["text"])).collect();
    let expected = [("debug", "one"), ("stdout", "two"), ("warn", "three"), ("stderr", "four")];
    assert_eq!(json!(&log[..4]), json!(expected), "{activation}");
    assert_eq!(activation["component"], first);
    publish_text(&env, "triage", "reject:not this one");
    let rejected = dev.await_event("activation", any);
    assert_eq!((&rejected["outcome"], &rejected["reason"]), (&json!("rejected"), &json!("not this one")));

    env.write("triage.wasm", [BEHAVE.component, &[0, 3, 1, b'n', 1][..]].concat());
    let in_force = dev.await_event("in-force", any);
    assert_eq!(in_force["routes"][0]["generation"], json!(generation + 1));
    publish_text(&env, "triage", "ok");
    assert_eq!(dev.await_event("activation", any)["component"], in_force["routes"][0]["component"]);

    // What cannot be used is said, and what ran runs on.
    for (component, kind) in [(&b"nothing"[..], "config-invalid"), (COMMAND.component, "node")] {
        env.write("triage.wasm", component);
        let refused = dev.await_event("refused", any);
        assert_eq!((&refused["kind"], &refused["serving"]), (&json!(kind), &json!(true)), "{refused}");
        publish_text(&env, "triage", "ok");
        assert_eq!(dev.await_event("activation", any)["component"], in_force["routes"][0]["component"]);
    }
    env.write("triage.wasm", BEHAVE.component);
    assert_eq!(dev.await_event("in-force", any)["routes"][0]["component"], first);
    let said = dev.stop();
    assert!(said.iter().all(|line| line["event"] != json!("left-out")));
}

#[test]
fn settings_are_taken_in_when_they_change_and_mistakes_in_them_are_told() {
    let env = with_services(&[("triage", "acme")]);
    let mut dev = Dev::start(&env, ".");
    let _ = dev.await_event("started", any);
    let config = std::fs::read_to_string(env.folder().join("latent.toml")).unwrap();
    env.write("latent.toml", config.replace("id = \"triage\"\n", "id = \"triage\"\nmax_deliveries = 1\n"));
    let in_force = dev.await_event("in-force", any);
    assert_eq!(in_force["changes"][0]["change"], json!("max_deliveries"), "{in_force}");
    env.write("latent.toml", format!("{config}\nnonsense"));
    assert_eq!(dev.await_event("refused", any)["kind"], json!("config-invalid"));
    env.write("latent.toml", config.replace("name = \"edge\"", "name = \"other\""));
    assert_eq!(dev.await_event("refused", any)["kind"], json!("needs-restart"));
    env.write("latent.toml", &config);
    assert_eq!(dev.await_event("in-force", any)["changes"][0]["change"], json!("max_deliveries"));
    let _ = dev.stop();
}

#[test]
fn a_call_from_the_command_line_is_a_line_too() {
    let env = super::invoking::with_functions();
    env.write("plain.wasm", PLAIN.component);
    let mut dev = Dev::start(&env, ".");
    let _ = dev.await_event("started", any);
    let _ = env.run(["invoke", "plain", "demo:plain/work@1.0.0#divide", "--args", "[7, 2]"]).with_status(0);
    let called = dev.await_event("activation", any);
    let what = ["outcome", "service", "function", "trigger", "offset"].map(|field| called[field].clone());
    assert_eq!(json!(what), json!(["success", "plain", "divide", null, null]));
    let _ = dev.stop();
}

#[test]
fn a_person_reads_lines_without_colours_where_there_is_no_terminal() {
    let env = with_services(&[("triage", "acme")]);
    let mut running = Running::start(&env, &["dev", "."]);
    let mut line = || {
        let mut line = String::new();
        running.stdout.read_line(&mut line).unwrap();
        line
    };
    assert!(line().starts_with("serving edge; its data is in "));
    assert!(line().starts_with("    triage leads to component sha256:"));
    publish_text(&env, "triage", "log");
    let activation = line();
    assert!(
        activation.starts_with("success  triage  triage  triage/0@0  attempt 1  ") && activation.contains(" ms  fuel "),
        "{activation}"
    );
    assert_eq!([line(), line()], ["    debug: one\n", "    stdout: two\n"]);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn activations_that_nobody_reads_in_time_are_counted_and_hold_up_nothing() {
    let env = with_services(&[("triage", "acme")]);
    let mut command = env.command(["dev", ".", "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = ChildGuard::spawn(&mut command).unwrap();
    let mut stdout = BufReader::new(child.take_stdout().unwrap());
    let mut started = String::new();
    stdout.read_line(&mut started).unwrap();
    // More than what waits and what a pipe holds.
    let published = 6_000;
    let arguments = ["triage", "--raw-lines", "--media-type", "text/plain", "--fresh-uids"];
    assert_eq!(publish(&env, &arguments, "ok\n".repeat(published).as_bytes(), 0).len(), published);
    wait_until("every event handled", || {
        let status = documents(&env.run(["trigger", "status", "--json"]).with_status(0)).remove(0);
        (&status["pending"], &status["settled"]) == (&json!(0), &json!(published))
    });
    let (mut shown, mut left_out) = (0, 0);
    while shown + left_out < published as u64 {
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        match line["event"].as_str() {
            Some("activation") => shown += 1,
            Some("left-out") => left_out += line["activations"].as_u64().unwrap(),
            _ => panic!("{line}"),
        }
    }
    assert_eq!(shown + left_out, published as u64);
    assert!(left_out > 0 && shown >= 4_096, "{shown} shown, {left_out} left out");
    child.terminate().unwrap();
    assert_eq!(child.wait_at_most(HANG_LIMIT).unwrap().unwrap().code(), Some(0));
}

#[test]
fn what_no_file_can_mend_ends_the_command() {
    let env = with_services(&[("triage", "acme")]);
    let running = node(&env);
    assert_eq!(error_of(&env.run(["dev", ".", "--json"]).with_status(1))["kind"], json!("node-running"));
    assert_eq!(running.stop(), Some(0));
    std::fs::remove_file(env.folder().join("triage.wasm")).unwrap();
    let error = error_of(&env.run(["dev", ".", "--json"]).with_status(2));
    assert_eq!(error["problems"][0]["kind"], json!("config-component"), "nothing here builds it");
}

/// Variables with which cargo finds its toolchain although the rest of the environment is empty.
fn with_cargo(env: CliEnv) -> CliEnv {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let folder = |name: &str, default: &str| std::env::var_os(name).unwrap_or_else(|| home.join(default).into());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let env = env.with_variable("PATH", path).with_variable("CARGO_HOME", folder("CARGO_HOME", ".cargo"));
    let env = env.with_variable("RUSTUP_HOME", folder("RUSTUP_HOME", ".rustup"));
    match std::env::var_os("RUSTUP_TOOLCHAIN") {
        Some(toolchain) => env.with_variable("RUSTUP_TOOLCHAIN", toolchain),
        None => env,
    }
}

/// A folder `app` whose component is made by a cargo project of this source, without any dependency.
fn with_project(files: &[(&str, &str)]) -> CliEnv {
    let services = with_services(&[("triage", "acme")]);
    let config = std::fs::read_to_string(services.folder().join("latent.toml")).unwrap();
    let env = with_cargo(CliEnv::new(env!("CARGO_BIN_EXE_latent")));
    env.write("app/latent.toml", config.replace("triage.wasm", "target/wasm32-wasip2/release/fn.wasm"));
    env.write("app/bridge.yaml", std::fs::read(services.folder().join("bridge.yaml")).unwrap());
    let manifest =
        "[workspace]\n[package]\nname = \"fn\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[[bin]]\nname = \"fn\"\npath = \"main.rs\"\n";
    env.write("app/Cargo.toml", manifest);
    for (name, text) in files {
        env.write(Path::new("app").join(name), text);
    }
    env
}

#[test]
fn a_stop_during_a_build_ends_in_order_and_leaves_no_process() {
    let build = "fn main() {\n    let out = std::path::PathBuf::from(std::env::var_os(\"CARGO_MANIFEST_DIR\").unwrap()).join(\".begun\");\n    \
                 std::fs::write(out, std::process::id().to_string()).unwrap();\n    \
                 std::thread::sleep(std::time::Duration::from_secs(600));\n}\n";
    let env = with_project(&[("main.rs", "fn main() {}\n"), ("build.rs", build)]);
    let mut dev = Dev::start(&env, "app");
    let building = dev.await_event("building", any);
    assert_eq!((&building["project"], &building["services"]), (&json!("fn"), &json!(["triage"])));
    let begun = env.folder().join("app/.begun");
    wait_until("a build script that runs", || std::fs::read_to_string(&begun).is_ok_and(|pid| !pid.is_empty()));
    let script: i32 = std::fs::read_to_string(&begun).unwrap().parse().unwrap();
    let group = rustix::process::getpgid(Pid::from_raw(script)).unwrap();
    assert_ne!(group, rustix::process::getpgid(Pid::from_raw(dev.child.pid().try_into().unwrap())).unwrap());
    let said = dev.stop();
    wait_until("an empty process group", || test_kill_process_group(group).is_err());
    assert!(said.iter().all(|line| line["event"] == json!("building")), "{said:?}");
}

#[test]
fn a_first_build_that_fails_is_waited_for_and_a_component_that_is_no_handler_is_told() {
    let env = with_project(&[("main.rs", "fn main() { let oops = missing; }\n")]);
    let elsewhere = env.folder().join("elsewhere");
    let env = env.with_variable("CARGO_TARGET_DIR", &elsewhere);
    let mut dev = Dev::start(&env, "app");
    let failed = dev.await_event("build-failed", any);
    let output = failed["output"].as_str().unwrap();
    assert!(output.contains("E0425") && output.contains("main.rs:1"), "{output}");
    assert_eq!((&failed["next"], &failed["output_bytes_left_out"]), (&Value::Null, &json!(0)));
    let refused = dev.await_event("refused", any);
    assert_eq!((&refused["kind"], &refused["serving"]), (&json!("config-invalid"), &json!(false)), "{refused}");
    env.write("app/main.rs", "fn main() {}\n");
    let building = dev.await_event("building", any);
    assert_eq!(building["changed"], json!(["main.rs"]));
    let refused = dev.await_event("refused", any);
    assert_eq!(refused["kind"], json!("node"), "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("does not export"), "{refused}");
    let _ = dev.stop();
    assert!(!elsewhere.exists(), "what is built goes where the configuration looks for it");
}

#[test]
fn an_earlier_component_is_served_when_the_first_build_fails() {
    let env = with_project(&[("main.rs", "fn main() { let oops = missing; }\n")]);
    env.write("app/target/wasm32-wasip2/release/fn.wasm", BEHAVE.component);
    let mut dev = Dev::start(&env, "app");
    let _ = dev.await_event("build-failed", any);
    let _ = dev.await_event("started", any);
    let arguments = ["triage", "--raw-lines", "--media-type", "text/plain", "--fresh-uids", "-c", "app/latent.toml"];
    assert_eq!(publish(&env, &arguments, b"ok\n", 0).len(), 1);
    assert_eq!(dev.await_event("activation", any)["outcome"], json!("success"));
    let _ = dev.stop();
}

#[test]
fn a_missing_cargo_and_a_missing_target_are_told_with_what_installs_them() {
    let without = with_project(&[("main.rs", "fn main() {}\n")]).with_variable("PATH", "/nowhere");
    let mut dev = Dev::start(&without, "app");
    let failed = dev.await_event("build-failed", any);
    assert!(failed["next"].as_str().unwrap().contains("rustup target add wasm32-wasip2"), "{failed}");
    assert!(failed["output"].as_str().unwrap().contains("cargo could not be started"), "{failed}");
    let _ = dev.stop();

    // Programs that say what cargo and rustc say where the target is not installed.
    let target = with_project(&[("main.rs", "fn main() {}\n")]);
    let programs = target.folder().join("bin");
    let target = target.with_variable("PATH", &programs);
    for (name, script) in [("cargo", "echo \"error[E0463]: can't find crate\" >&2; exit 101"), ("rustc", "echo /nowhere")] {
        let program = target.write(Path::new("bin").join(name), format!("#!/bin/sh\n{script}\n"));
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut dev = Dev::start(&target, "app");
    let failed = dev.await_event("build-failed", any);
    assert!(failed["next"].as_str().unwrap().contains("`rustup target add wasm32-wasip2`"), "{failed}");
    assert!(failed["output"].as_str().unwrap().contains("E0463"), "{failed}");
    let _ = dev.stop();
}

/// A project as `latent new` makes it. What it is made of is built once for all runs of this test.
fn new_project(name: &str) -> CliEnv {
    let env = with_cargo(CliEnv::new(env!("CARGO_BIN_EXE_latent")));
    let _ = env.run(["new", name]).with_status(0);
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("projects");
    std::fs::create_dir_all(&built).unwrap();
    std::os::unix::fs::symlink(built, env.folder().join(name).join("target")).unwrap();
    env
}

#[test]
fn a_changed_handler_is_built_and_taken_in_while_events_flow_and_a_broken_one_changes_nothing() {
    if std::env::var_os(SLOW).is_none() {
        skip!(Missing::Input(SLOW));
    }
    let env = new_project("developed");
    let source = std::fs::read_to_string(env.folder().join("developed/src/lib.rs")).unwrap();
    let mut dev = Dev::start(&env, "developed");
    let started = dev.await_event("started", any);
    let arguments = [
        "bus",
        "publish",
        "developed.in",
        "--file",
        "-",
        "--fresh-uids",
        "--key-pointer",
        "/user",
        "--json",
        "-c",
        "developed/latent.toml",
    ];
    let mut publishing = Running::start(&env, &arguments);
    let mut published = 0_u64;
    let mut publish_some = |publishing: &mut Running| {
        let line = format!("{{\"user\":\"u{}\"}}\n", published % 5);
        publishing.write(line.as_bytes());
        let _ = publishing.document();
        published += 1;
    };

    publish_some(&mut publishing);
    env.write("developed/src/lib.rs", source.replace("hello, {user}", "welcome, {user}"));
    // Events come in all the time while it is built and taken in.
    while dev.said("in-force").is_empty() {
        publish_some(&mut publishing);
        dev.look();
    }
    assert_eq!(dev.said("building").last().unwrap()["changed"], json!(["src/lib.rs"]));
    let second = dev.said("in-force")[0]["routes"][0].clone();
    assert_eq!(second["generation"], json!(started["routes"][0]["generation"].as_u64().unwrap() + 1));
    publish_some(&mut publishing);

    env.write("developed/src/lib.rs", source.replace("Ok(())", "Ok(missing)"));
    while dev.said("build-failed").is_empty() {
        publish_some(&mut publishing);
        dev.look();
    }
    let failed = dev.said("build-failed")[0].clone();
    assert!(failed["output"].as_str().unwrap().contains("cannot find value `missing`"), "{failed}");
    publish_some(&mut publishing);
    let runs = |second: &Value| {
        let component = second["component"].clone();
        move |line: &Value| line["component"] == component
    };
    let _ = dev.await_event("activation", runs(&second));

    env.write("developed/src/lib.rs", source.replace("hello, {user}", "good day, {user}"));
    let in_force = dev.await_event("in-force", any);
    assert_eq!(in_force["routes"][0]["generation"], json!(second["generation"].as_u64().unwrap() + 1));
    publish_some(&mut publishing);
    drop(publishing.stdin.take());
    let _ = dev.await_event("activation", runs(&in_force["routes"][0]));

    // Each event has run once and well, and each has one greeting.
    let topics = || documents(&env.run(["bus", "topics", "--json", "-c", "developed/latent.toml"]).with_status(0));
    let events = |topic: &str| topics().iter().find(|one| one["topic"] == json!(topic)).unwrap()["events"].as_u64().unwrap();
    wait_until("a greeting for each event", || events("developed.out") == published);
    let said = dev.stop();
    let ran: Vec<_> = said.iter().filter(|line| line["event"] == json!("activation")).collect();
    let places: std::collections::BTreeSet<_> = ran.iter().map(|line| (line["partition"].as_u64(), line["offset"].as_u64())).collect();
    assert!(ran.iter().all(|line| line["outcome"] == json!("success") && line["attempt"] == json!(1)), "{ran:#?}");
    assert_eq!((ran.len() as u64, places.len() as u64), (published, published));
    let components: std::collections::BTreeSet<_> = ran.iter().map(|line| line["component"].as_str().unwrap()).collect();
    assert_eq!(components.len(), 3, "each of the three components has run");
}
