//! Other programs: cargo and its friends, run where they can be seen.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::failure::Failure;

/// Cargo, as the one that started this tool, in `folder`.
pub(crate) fn cargo(folder: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(folder);
    command
}

/// The command line as a person would type it.
pub(crate) fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once(program).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// Runs a step with its output visible on standard error, and says what it is and how long it took.
pub(crate) fn run_step(name: &str, command: &mut Command) -> Result<(), Failure> {
    timed(name, || {
        command.stdin(Stdio::null()).stdout(std::io::stderr());
        let status = command.status().map_err(|source| Failure::Start { command: command_line(command), source })?;
        if status.success() { Ok(()) } else { Err(Failure::Command { command: command_line(command), status }) }
    })
}

/// Runs a step and shows each line of its standard output as it comes, handing it to `line` too.
pub(crate) fn run_lines(name: &str, command: &mut Command, mut line: impl FnMut(&str)) -> Result<(), Failure> {
    timed(name, || {
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|source| Failure::Start { command: command_line(command), source })?;
        let output = child.stdout.take().into_iter().flat_map(|pipe| BufReader::new(pipe).split(b'\n'));
        for bytes in output.map_while(Result::ok) {
            let text = String::from_utf8_lossy(&bytes);
            println!("{text}");
            line(&text);
        }
        let status = child.wait().map_err(|source| Failure::Start { command: command_line(command), source })?;
        if status.success() { Ok(()) } else { Err(Failure::Command { command: command_line(command), status }) }
    })
}

/// Runs a command quietly and gives its standard output.
pub(crate) fn capture(command: &mut Command) -> Result<String, Failure> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|source| Failure::Start { command: command_line(command), source })?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(Failure::Command { command: command_line(command), status: output.status })
    }
}

/// The target that this machine builds for by itself.
pub(crate) fn host_target(root: &Path) -> Result<String, Failure> {
    let version = capture(Command::new("rustc").arg("-vV").current_dir(root))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Failure::Unexpected { what: "`rustc -vV`".into(), problem: "it names no host".into() })
}

/// Names a step before it runs and says afterwards how it went and how long it took.
pub(crate) fn timed<T>(name: &str, step: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    eprintln!("==> {name}");
    let start = Instant::now();
    let result = step();
    let seconds = start.elapsed().as_secs_f64();
    match &result {
        Ok(_) => eprintln!("    {name}: done in {seconds:.1} s"),
        Err(failure) => eprintln!("    {name}: FAILED after {seconds:.1} s: {failure}"),
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_ends_badly_is_a_failure_that_names_its_command() {
        let failure = run_step("the step", Command::new("/bin/sh").args(["-c", "exit 4"])).unwrap_err();
        assert_eq!(failure.to_string(), "`sh -c exit 4` failed (exit status: 4)");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let failure = run_step("the step", &mut Command::new("no-such-program-here")).unwrap_err();
        assert!(matches!(failure, Failure::Start { command, .. } if command == "no-such-program-here"));
    }

    #[test]
    fn lines_are_handed_over_even_when_the_step_fails() {
        let mut lines = Vec::new();
        let result =
            run_lines("the step", Command::new("/bin/sh").args(["-c", "echo a; echo b; exit 1"]), |line| lines.push(line.to_owned()));
        assert_eq!((lines, result.is_err()), (vec!["a".to_owned(), "b".to_owned()], true));
    }
}
