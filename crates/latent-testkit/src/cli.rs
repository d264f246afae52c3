//! Programs run as a user would, with nothing of the developer's machine around them.
//!
//! The environment is empty but for a home in the temporary folder, a fixed locale and a fixed time zone; the working folder is
//! the temporary folder; standard input is empty. A program that hangs is ended and fails its test.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use tempfile::TempDir;

use crate::ChildGuard;
use crate::wait::HANG_LIMIT;

/// A program and the temporary folder it runs in.
#[derive(Debug)]
pub struct CliEnv {
    program: PathBuf,
    folder: TempDir,
    variables: Vec<(OsString, OsString)>,
}

/// What one run left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a run that nobody looks at tests nothing"]
pub struct CliOutput {
    /// Exit status, or `None` when a signal ended the program.
    pub status: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

#[allow(clippy::expect_used, clippy::panic, reason = "this runs inside a test: a panic is how it fails")]
impl CliEnv {
    /// Runs of `program`, usually `env!("CARGO_BIN_EXE_…")`, in a fresh temporary folder.
    ///
    /// # Panics
    /// When no temporary folder can be made.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("home")).expect("a home in the temporary folder");
        Self { program: program.into(), folder, variables: Vec::new() }
    }

    /// The folder that runs start in.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Adds one environment variable to every run.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Writes a file below the folder, with the folders on its way, and returns its path.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder().join(name);
        let parent = path.parent().expect("a file has a folder");
        std::fs::create_dir_all(parent).expect("folders below the temporary folder");
        std::fs::write(&path, content).expect("a file below the temporary folder");
        path
    }

    /// The command that [`CliEnv::run`] runs, for tests that keep the process (see [`ChildGuard`]).
    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(self.folder()).stdin(Stdio::null());
        command.env_clear().env("HOME", self.folder().join("home")).env("LANG", "C.UTF-8").env("TZ", "UTC");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs the program to its end.
    ///
    /// # Panics
    /// When it cannot be started, hangs, or writes what is not UTF-8.
    #[track_caller]
    pub fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> CliOutput {
        self.run_with_input(arguments, Vec::new())
    }

    /// Runs the program to its end with `input` on its standard input.
    ///
    /// # Panics
    /// As [`CliEnv::run`].
    #[track_caller]
    pub fn run_with_input<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>, input: Vec<u8>) -> CliOutput {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = ChildGuard::spawn(&mut command).unwrap_or_else(|error| panic!("cannot start {}: {error}", self.program.display()));
        let stdin = child.take_stdin();
        // A program may end without reading its input: the broken pipe is its own affair.
        let writer = std::thread::spawn(move || stdin.map(|mut pipe| pipe.write_all(&input)));
        let (stdout, stderr) = (read_all(child.take_stdout()), read_all(child.take_stderr()));
        let ended = child.wait_at_most(HANG_LIMIT).expect("the child's exit status");
        let Ok(status) = ended else { panic!("{} hangs: {ended:?}", self.program.display()) };
        let _ = writer.join();
        CliOutput { status: status.code(), stdout: stdout.join().expect("stdout"), stderr: stderr.join().expect("stderr") }
    }
}

#[allow(clippy::expect_used, reason = "this runs inside a test: a panic is how it fails")]
fn read_all(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        pipe.expect("a piped stream").read_to_string(&mut text).expect("UTF-8");
        text
    })
}

#[allow(clippy::panic, reason = "this runs inside a test: a panic is how it fails")]
impl CliOutput {
    /// Requires this exit status and hands the output on.
    ///
    /// # Panics
    /// When the status is another one; the message shows all that the program wrote.
    #[track_caller]
    pub fn with_status(self, expected: i32) -> Self {
        let Self { status, stdout, stderr } = &self;
        assert!(*status == Some(expected), "exit status {status:?}, expected {expected}\n--- stdout\n{stdout}--- stderr\n{stderr}---");
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell() -> CliEnv {
        CliEnv::new("/bin/sh")
    }

    #[test]
    fn a_run_gives_status_and_both_outputs() {
        let output = shell().run(["-c", "echo out; echo err >&2; exit 3"]);
        assert_eq!(output, CliOutput { status: Some(3), stdout: "out\n".into(), stderr: "err\n".into() });
    }

    #[test]
    fn nothing_of_the_surroundings_is_seen_but_what_the_test_gives() {
        let env = shell().with_variable("GIVEN", "by the test");
        let output = env.run(["-c", "echo \"${CARGO_MANIFEST_DIR-unset} $GIVEN $TZ\"; cd \"$HOME\" && pwd -P"]).with_status(0);
        let home = env.folder().canonicalize().unwrap().join("home");
        assert_eq!(output.stdout, format!("unset by the test UTC\n{}\n", home.display()));
    }

    #[test]
    fn files_of_the_test_lie_where_the_program_starts() {
        let env = shell();
        env.write("deep/down/file", "content");
        assert_eq!(env.run(["-c", "cat deep/down/file"]).with_status(0).stdout, "content");
    }

    #[test]
    fn input_larger_than_a_pipe_comes_back_whole() {
        let input = "x".repeat(1 << 20);
        assert_eq!(shell().run_with_input(["-c", "cat"], input.clone().into_bytes()).with_status(0).stdout, input);
    }

    #[test]
    #[should_panic(expected = "why it failed")]
    fn a_wrong_status_shows_what_the_program_wrote() {
        let _ = shell().run(["-c", "echo why it failed; exit 1"]).with_status(0);
    }
}
