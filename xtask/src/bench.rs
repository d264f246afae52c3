//! `cargo xtask bench`: the project's own measurements, from a build with optimisations.
//!
//! The measured folder is made below the project, on the disk that it lies on, and is gone afterwards.

use std::path::Path;
use std::process::Command;

use crate::failure::Failure;
use crate::process::{cargo, run_lines};

/// For whom the rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A person.
    Readable,
    /// A machine: one JSON object a line.
    Json,
}

/// What is measured, and its word after `latent bench`.
const MEASURED: [(&str, &str); 3] = [("the embedded log", "bus"), ("activations", "activation"), ("triggers", "trigger")];

/// What is not measured here, and where it is.
const ELSEWHERE: &str = "\
The comparison with other embedded stores is a workspace of its own, which compiles them:
  cd benches/storage-engines && cargo run --release -- measure";

/// Measures and prints row after row.
///
/// # Errors
/// [`Failure::Command`] when the build or the measurement failed. A target that is missed is no failure.
pub(crate) fn run(root: &Path, form: Form) -> Result<(), Failure> {
    for (what, word) in MEASURED {
        run_lines(&format!("measuring {what} (the first build takes some minutes)"), &mut command(root, word, form), |_| {})?;
    }
    eprintln!("{ELSEWHERE}");
    Ok(())
}

fn command(root: &Path, word: &str, form: Form) -> Command {
    let mut command = cargo(root);
    command.args(["run", "--quiet", "--release", "--locked", "--package", "latent", "--", "bench", word]);
    if form == Form::Json {
        command.arg("--json");
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::command_line;

    #[test]
    fn what_is_measured_is_built_with_optimisations() {
        let line = |word, form| command_line(&command(Path::new("."), word, form));
        assert!(line("bus", Form::Readable).ends_with("run --quiet --release --locked --package latent -- bench bus"));
        assert!(line("activation", Form::Json).ends_with("-- bench activation --json"));
    }
}
