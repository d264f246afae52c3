//! `cargo xtask bench`: the project's own measurements, from a build with optimisations.
//!
//! The measured folder is made below the project, on the disk that it lies on, and is gone afterwards. What publishes on a broker is given
//! the pinned one by `with_broker` of the testkit, which starts it with a stream on disk: this tool itself stays quick to build.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::process::{cargo, run_lines, run_step};
use crate::{broker, demo};

/// For whom the rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A person.
    Readable,
    /// A machine: one JSON object a line.
    Json,
}

/// What is measured here, and its word after `latent bench`.
const MEASURED: [(&str, &str); 3] = [("the embedded log", "bus"), ("activations", "activation"), ("triggers", "trigger")];

/// What is not measured here, and where it is.
const ELSEWHERE: &str = "\
The comparison with other embedded stores is a workspace of its own, which compiles them:
  cd benches/storage-engines && cargo run --release -- measure";

/// Measures everything and prints row after row.
///
/// # Errors
/// [`Failure::Command`] when the build or the measurement failed. A target that is missed is no failure.
pub(crate) fn run(root: &Path, form: Form) -> Result<(), Failure> {
    build(root)?;
    for (what, word) in MEASURED {
        run_lines(&format!("measuring {what}"), &mut command(&latent(root)?, word, form), |_| {})?;
    }
    publications(root, form)?;
    topics(root, form)?;
    pulled(root, form)?;
    eprintln!("{ELSEWHERE}");
    Ok(())
}

/// Measures publications on the pinned broker.
///
/// # Errors
/// As [`run`], and when there is no broker.
pub(crate) fn publish(root: &Path, form: Form) -> Result<(), Failure> {
    build(root)?;
    publications(root, form)
}

fn publications(root: &Path, form: Form) -> Result<(), Failure> {
    let server = broker::ensure(root)?;
    let mut command = with_broker(root, &command(&latent(root)?, "publish", form));
    run_lines("measuring publications on a broker", command.env(broker::SERVER_VAR, server), |_| {})
}

/// Measures topics on the pinned broker.
///
/// # Errors
/// As [`run`], and when there is no broker.
pub(crate) fn broker(root: &Path, form: Form) -> Result<(), Failure> {
    build(root)?;
    topics(root, form)
}

fn topics(root: &Path, form: Form) -> Result<(), Failure> {
    let server = broker::ensure(root)?;
    let mut command = beside_a_broker(root, &["with_nats_url", "--"], &command(&latent(root)?, "broker", form));
    run_lines("measuring topics on a broker", command.env(broker::SERVER_VAR, server), |_| {})
}

/// Measures what wakes functions: events of the embedded log, and messages of the pinned broker.
///
/// # Errors
/// As [`run`], and when there is no broker.
pub(crate) fn trigger(root: &Path, form: Form) -> Result<(), Failure> {
    build(root)?;
    run_lines("measuring triggers", &mut command(&latent(root)?, "trigger", form), |_| {})?;
    pulled(root, form)
}

fn pulled(root: &Path, form: Form) -> Result<(), Failure> {
    let server = broker::ensure(root)?;
    let mut command = with_consumers(root, &command(&latent(root)?, "trigger", form));
    run_lines("measuring triggers on a broker", command.env(broker::SERVER_VAR, server), |_| {})
}

fn build(root: &Path) -> Result<(), Failure> {
    let mut command = cargo(root);
    command.args(["build", "--release", "--locked", "--package", "latent", "--features", "bench-peers"]);
    run_step("building latent with optimisations (the first time takes some minutes)", &mut command)
}

/// The program that was built.
fn latent(root: &Path) -> Result<PathBuf, Failure> {
    Ok(demo::target_folder(root)?.join("release").join("latent"))
}

fn command(latent: &Path, word: &str, form: Form) -> Command {
    let mut command = Command::new(latent);
    command.args(["bench", word]);
    if form == Form::Json {
        command.arg("--json");
    }
    command
}

/// The command with a broker that lives as long as it, and the arguments that say which.
fn with_broker(root: &Path, command: &Command) -> Command {
    beside_a_broker(root, &["with_broker", "--"], command)
}

/// The same with consumers to pull from.
fn with_consumers(root: &Path, command: &Command) -> Command {
    beside_a_broker(root, &["with_broker", "--", "--consumers"], command)
}

fn beside_a_broker(root: &Path, example: &[&str], command: &Command) -> Command {
    let mut with = cargo(root);
    with.args(["run", "--quiet", "--locked", "--package", "latent-testkit", "--features", "broker", "--example"]).args(example);
    with.arg(command.get_program()).args(command.get_args());
    with
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::command_line;

    #[test]
    fn the_program_with_optimisations_is_asked_and_where_needed_given_a_broker() {
        let latent = Path::new("target/release/latent");
        assert!(command_line(&command(latent, "bus", Form::Readable)).ends_with("latent bench bus"));
        let given = with_broker(Path::new("."), &command(latent, "publish", Form::Json));
        assert!(command_line(&given).ends_with("--example with_broker -- target/release/latent bench publish --json"));
        let given = with_consumers(Path::new("."), &command(latent, "trigger", Form::Readable));
        assert!(command_line(&given).ends_with("--example with_broker -- --consumers target/release/latent bench trigger"));
    }
}
