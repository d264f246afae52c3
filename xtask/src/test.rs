//! `cargo xtask test`: everything that must hold before a change is taken, ending with its counts.
//!
//! A failed step does not stop the others: one run shows all there is to mend. The last line of standard output is
//! `N passed, M failed, K skipped`; a step that fails without a test to blame counts as one failure.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use latent_testkit::{REQUIRE_BROKER_VAR, SKIPS_FILE_VAR};

use crate::counts::Counts;
use crate::failure::Failure;
use crate::process::{cargo, host_target, run_lines, run_step, timed};
use crate::tree::Tree;
use crate::{broker, demo, guests, rows, tidy};

/// Asks for the tests that compile a project of their own, which take a while.
const SLOW_TESTS_VAR: &str = "LATENT_SLOW_TESTS";
/// What cargo is told for every workspace.
const TEST: [&str; 4] = ["test", "--locked", "--workspace", "--no-fail-fast"];

/// Runs everything.
///
/// # Errors
/// [`Failure::Failed`] when anything failed, [`Failure::NothingRan`] when no test ran.
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let start = Instant::now();
    let skips_file = root.join("target").join("xtask").join("skips");
    clear(&skips_file)?;
    let mut session = Session { root, skips_file: &skips_file, server: None, reader: None, counts: Counts::default() };
    if let Err(failure) = session.run_all() {
        eprintln!("    {failure}");
        session.counts.step_failed("preparing the steps", session.counts.failed);
    }
    let mut counts = session.counts;
    counts.skips_file(&std::fs::read_to_string(&skips_file).unwrap_or_default());
    name_all("skipped", &counts.skips);
    name_all("FAILED", &counts.failures);
    eprintln!("all steps: {:.1} s", start.elapsed().as_secs_f64());
    println!("{}", counts.summary());
    match counts.failed {
        _ if counts.is_empty() => Err(Failure::NothingRan),
        0 => Ok(()),
        failed => Err(Failure::Failed { failed }),
    }
}

struct Session<'a> {
    root: &'a Path,
    skips_file: &'a Path,
    /// The broker that tests run against, once it is there.
    server: Option<PathBuf>,
    /// The independent client that reads streams, once it is there.
    reader: Option<PathBuf>,
    counts: Counts,
}

impl Session<'_> {
    fn run_all(&mut self) -> Result<(), Failure> {
        // What tests need from outside is installed here, before anything that could need it.
        let root = self.root;
        self.step("the wasm target", |_| guests::ensure_target(root));
        let fetched = broker::ensure(root).map(|path| self.server = Some(path));
        self.step("the pinned broker", |_| fetched);
        let fetched = broker::ensure_reader(root).map(|path| self.reader = Some(path));
        self.step("the independent client", |_| fetched);
        let workspaces = Tree::read(root)?.workspace_folders();
        let host = host_target(root)?;
        for folder in &workspaces {
            self.command(&titled("formatting", folder), cargo(&root.join(folder)).args(["fmt", "--all", "--check"]));
        }
        self.step("tidy", |_| timed("tidy", || tidy::run(root)));
        self.step("rows", |_| timed("rows", || rows::run(&Tree::read(root)?, rows::Stage::Underway)));
        for folder in &workspaces {
            self.lints(folder);
        }
        for folder in &workspaces {
            self.tests(folder, &host);
        }
        Ok(())
    }

    fn lints(&mut self, folder: &str) {
        self.clippy(&titled("lints", folder), folder, &["--all-targets"]);
        if !folder.is_empty() {
            self.clippy(&titled("lints for wasm", folder), folder, &["--target", guests::TARGET]);
        }
    }

    fn clippy(&mut self, name: &str, folder: &str, extra: &[&str]) {
        let mut command = cargo(&self.root.join(folder));
        command.args(["clippy", "--locked", "--workspace"]).args(extra).args(["--", "-D", "warnings"]);
        if !folder.is_empty() {
            // What the small workspaces depend on is much the same: it is looked at once.
            command.env("CARGO_TARGET_DIR", self.root.join("target").join("xtask").join("lints"));
        }
        self.command(name, &mut command);
    }

    /// Guests are tested natively, even where their own settings say wasm.
    fn tests(&mut self, folder: &str, host: &str) {
        let mut command = cargo(&self.root.join(folder));
        command.args(TEST);
        if folder.is_empty() && self.server.is_some() {
            return self.tests_with_brokers(&command);
        }
        if !folder.is_empty() {
            command.args(["--target", host]);
        }
        self.run_tests(&titled("tests", folder), command);
    }

    /// All tests with a broker beside them, then the contract of the bus once more with three.
    fn tests_with_brokers(&mut self, tests: &Command) {
        // Built first: the tool that starts brokers beside tests is one of the things that are built with them.
        let failed_before = self.counts.failed;
        self.command("building the tests", cargo(self.root).args(TEST).arg("--no-run"));
        if self.counts.failed > failed_before {
            return;
        }
        let mut contract = cargo(self.root);
        contract.args(TEST).args(["--test", "main", "contract::nats"]);
        for (name, brokers, command) in
            [("tests", Brokers::One, tests), ("the contract of a bus on three brokers", Brokers::Three, &contract)]
        {
            match with_nats_url(self.root, command, brokers) {
                Ok(command) => self.run_tests(name, command),
                Err(_) => self.counts.step_failed(name, self.counts.failed),
            }
        }
    }

    fn run_tests(&mut self, name: &str, mut command: Command) {
        command.env(REQUIRE_BROKER_VAR, "1").env(SLOW_TESTS_VAR, "1").env(SKIPS_FILE_VAR, self.skips_file);
        if let Some(server) = &self.server {
            command.env(broker::SERVER_VAR, server);
        }
        if let Some(reader) = &self.reader {
            command.env(broker::READER_VAR, reader);
        }
        self.step(name, |counts| run_lines(name, &mut command, |line| counts.line(line)));
    }

    fn command(&mut self, name: &str, command: &mut Command) {
        self.step(name, |_| run_step(name, command));
    }

    fn step(&mut self, name: &str, step: impl FnOnce(&mut Counts) -> Result<(), Failure>) {
        let failed_before = self.counts.failed;
        if step(&mut self.counts).is_err() {
            self.counts.step_failed(name, failed_before);
        }
    }
}

/// How many brokers stand beside the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Brokers {
    One,
    /// Of one cluster, which keeps every stream three times.
    Three,
}

/// The command with brokers beside it that `AV_NATS_URL` names, for the live contract of the bus. Nothing else looks at that variable.
fn with_nats_url(root: &Path, command: &Command, brokers: Brokers) -> Result<Command, Failure> {
    let mut with = Command::new(demo::target_folder(root)?.join("debug").join("examples").join("with_nats_url"));
    if brokers == Brokers::Three {
        with.arg("--cluster");
    }
    with.arg(command.get_program()).args(command.get_args()).current_dir(root);
    Ok(with)
}

fn titled(what: &str, folder: &str) -> String {
    if folder.is_empty() { what.to_owned() } else { format!("{what} of {folder}") }
}

fn name_all(what: &str, names: &[String]) {
    for name in names {
        eprintln!("{what}: {name}");
    }
}

fn clear(skips_file: &Path) -> Result<(), Failure> {
    let folder = skips_file.parent().unwrap_or(skips_file);
    std::fs::create_dir_all(folder).map_err(Failure::file(folder))?;
    std::fs::write(skips_file, "").map_err(Failure::file(skips_file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::command_line;

    #[test]
    fn the_tests_run_as_they_are_with_brokers_beside_them() {
        let root = crate::tree::project_root();
        let mut tests = cargo(&root);
        tests.args(TEST);
        for (brokers, line) in [
            (Brokers::One, "with_nats_url cargo test --locked --workspace --no-fail-fast"),
            (Brokers::Three, "with_nats_url --cluster cargo test --locked --workspace --no-fail-fast"),
        ] {
            let with = with_nats_url(&root, &tests, brokers).unwrap();
            assert!(Path::new(with.get_program()).ends_with("debug/examples/with_nats_url"));
            let program = tests.get_program().to_string_lossy().into_owned();
            assert_eq!(command_line(&with).replace(&program, "cargo"), line);
            assert_eq!(with.get_current_dir(), Some(root.as_path()));
        }
    }
}
