//! Child processes that cannot outlive their owner.
//!
//! A signal is sent only while the child is known not to be reaped, so that a reused process id is never hit.

use std::io;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::looked_until;

/// Owns one child process: when the guard goes, by whatever way, the child is killed and reaped.
#[derive(Debug)]
pub struct ChildGuard {
    child: Child,
}

/// The child had not ended when the wait did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StillRunning {
    /// The child's process id.
    pub pid: u32,
    /// How long was waited.
    pub waited: Duration,
}

impl std::fmt::Display for StillRunning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} was still running after {:?}", self.pid, self.waited)
    }
}

impl std::error::Error for StillRunning {}

impl ChildGuard {
    /// Starts `command`.
    ///
    /// # Errors
    /// The program could not be started.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(|child| Self { child })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child's standard input, once, if it was piped.
    pub const fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// The child's standard output, once, if it was piped.
    pub const fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// The child's standard error, once, if it was piped.
    pub const fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// The exit status if the child has ended.
    ///
    /// # Errors
    /// The operating system refused to say.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Asks the child to end (SIGTERM). Nothing happens when it has ended already.
    ///
    /// # Errors
    /// The signal could not be sent.
    pub fn terminate(&mut self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Does what Ctrl-C does to the child (SIGINT). Nothing happens when it has ended already.
    ///
    /// # Errors
    /// The signal could not be sent.
    pub fn interrupt(&mut self) -> io::Result<()> {
        self.signal(Signal::INT)
    }

    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the child has no process id"))?;
        Ok(kill_process(pid, signal)?)
    }

    /// Ends the child at once (SIGKILL) and reaps it: what `kill -9` does.
    ///
    /// # Errors
    /// The signal could not be sent or the child not be reaped.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// Waits until the child ends, at most `limit`.
    ///
    /// # Errors
    /// `Ok(Err(StillRunning))` when it has not ended by then; the outer error when the operating system refused to say.
    pub fn wait_at_most(&mut self, limit: Duration) -> io::Result<Result<ExitStatus, StillRunning>> {
        let mut ended = Ok(None);
        looked_until(limit, || {
            ended = self.child.try_wait();
            !matches!(ended, Ok(None))
        });
        Ok(ended?.ok_or(StillRunning { pid: self.child.id(), waited: limit }))
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // An error means that the child has ended and is reaped: nothing is left to do.
        let _ = self.kill();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    const GENEROUS: Duration = Duration::from_secs(60);

    fn sleeper() -> ChildGuard {
        ChildGuard::spawn(Command::new("sleep").arg("600")).unwrap()
    }

    fn is_alive(pid: u32) -> bool {
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        rustix::process::test_kill_process(pid).is_ok()
    }

    #[test]
    fn dropping_the_guard_kills_and_reaps_the_child() {
        let guard = sleeper();
        let pid = guard.pid();
        assert!(is_alive(pid));
        drop(guard);
        assert!(!is_alive(pid), "an unreaped child would still answer");
    }

    #[test]
    fn a_child_ends_by_the_signal_it_was_sent() {
        type End = fn(&mut ChildGuard) -> io::Result<()>;
        let cases: [(&str, i32, End); 3] = [
            ("terminate", 15, ChildGuard::terminate),
            ("interrupt", 2, ChildGuard::interrupt),
            ("kill", 9, |guard| guard.kill().map(drop)),
        ];
        for (name, signal, end) in cases {
            let mut guard = sleeper();
            end(&mut guard).unwrap();
            let status = guard.wait_at_most(GENEROUS).unwrap().unwrap();
            assert_eq!(status.signal(), Some(signal), "{name}");
        }
    }

    #[test]
    fn a_wait_gives_up_at_its_limit_and_leaves_the_child_alone() {
        let mut guard = sleeper();
        let gave_up = guard.wait_at_most(Duration::ZERO).unwrap().unwrap_err();
        assert_eq!(gave_up.pid, guard.pid());
        assert!(is_alive(guard.pid()));
    }

    #[test]
    fn ending_a_child_that_has_ended_does_nothing() {
        let mut guard = ChildGuard::spawn(&mut Command::new("true")).unwrap();
        assert!(guard.wait_at_most(GENEROUS).unwrap().unwrap().success());
        guard.terminate().unwrap();
        assert!(guard.try_wait().unwrap().unwrap().success());
    }
}
