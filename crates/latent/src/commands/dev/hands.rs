//! The programs that build: one at a time, each in a process group of its own, so that all of it can be ended together.
//!
//! Invariants: a group is signalled only while its leader is not reaped, so that a reused process id is never hit; when the leader has
//! ended, whatever it left in its group is killed before it is reaped; after [`Hands::stop`] nothing is started any more. What a
//! program says is read to its end and kept up to a bound, so that it never waits for a reader.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// How long output is waited for when its program has ended: somebody outside the group may hold the other end.
const OUTPUT_WAIT: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Hands {
    state: Mutex<State>,
    stopped: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_stopped: bool,
    /// Leader of the group that is at work and not reaped.
    group: Option<Pid>,
}

/// How much is kept of what a program says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    /// Of its standard output.
    pub(super) stdout_bytes: usize,
    /// Of its standard error.
    pub(super) stderr_bytes: usize,
}

/// How a program ended and what it said.
#[derive(Debug)]
pub(super) struct Done {
    /// Its exit.
    pub(super) status: ExitStatus,
    /// Its results.
    pub(super) stdout: Said,
    /// Its messages.
    pub(super) stderr: Said,
}

/// The first bytes of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// As many as are kept.
    pub(super) bytes: Vec<u8>,
    /// How many more there were.
    pub(super) bytes_left_out: u64,
}

impl Said {
    /// These words, whole.
    pub(super) fn words(text: &str) -> Self {
        Self { bytes: text.as_bytes().to_vec(), bytes_left_out: 0 }
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotRun {
    /// It was told to stop, before or during the work.
    #[error("it was told to stop")]
    Stopped,
    /// The system could not start it or could not say how it ended.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl Hands {
    /// Runs `command` to its end, without input.
    ///
    /// # Errors
    /// [`NotRun`].
    pub(super) fn run(&self, command: &mut Command, kept: Kept) -> Result<Done, NotRun> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let (mut child, leader) = self.start(command)?;
        let stdout = Reader::of(child.stdout.take(), kept.stdout_bytes);
        let stderr = Reader::of(child.stderr.take(), kept.stderr_bytes);
        if stdout.is_err() || stderr.is_err() {
            // Without a reader it could wait for one for ever.
            self.kill();
        }
        let status = self.wait(&mut child, leader)?;
        let done = Done { status, stdout: stdout?.said(), stderr: stderr?.said() };
        if self.is_stopped() { Err(NotRun::Stopped) } else { Ok(done) }
    }

    fn start(&self, command: &mut Command) -> Result<(Child, Pid), NotRun> {
        // Held while it starts, so that a stop comes before it or finds it.
        let mut state = self.lock();
        if state.is_stopped {
            return Err(NotRun::Stopped);
        }
        let child = command.spawn()?;
        let leader = Pid::from_child(&child);
        state.group = Some(leader);
        Ok((child, leader))
    }

    fn wait(&self, child: &mut Child, leader: Pid) -> io::Result<ExitStatus> {
        // Waits and leaves it to be reaped: until then its group has its name.
        while let Err(error) = waitid(WaitId::Pid(leader), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            if error != rustix::io::Errno::INTR {
                break;
            }
        }
        let mut state = self.lock();
        signal(&state, Signal::KILL);
        state.group = None;
        child.wait()
    }

    /// Asks whatever works to end, and starts nothing any more.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.is_stopped = true;
        signal(&state, Signal::TERM);
        self.stopped.notify_all();
    }

    /// Ends at once whatever works.
    pub(super) fn kill(&self) {
        signal(&self.lock(), Signal::KILL);
    }

    /// Waits for this time or until it is told to stop.
    pub(super) fn pause(&self, pause: Duration) {
        // Which of the two it was is asked separately.
        let _ = self.stopped.wait_timeout_while(self.lock(), pause, |state| !state.is_stopped);
    }

    /// True after [`Hands::stop`].
    pub(super) fn is_stopped(&self) -> bool {
        self.lock().is_stopped
    }

    // No guarded section can panic half-way.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn signal(state: &State, signal: Signal) {
    if let Some(leader) = state.group {
        // An error means that nothing is left of the group.
        let _ = kill_process_group(leader, signal);
    }
}

/// Reads a stream on a thread of its own.
struct Reader {
    said: Arc<Mutex<Said>>,
    ended: mpsc::Receiver<()>,
}

impl Reader {
    fn of(stream: Option<impl Read + Send + 'static>, kept_bytes: usize) -> io::Result<Self> {
        let said = Arc::new(Mutex::new(Said::default()));
        let (end, ended) = mpsc::channel();
        let keeping = Arc::clone(&said);
        if let Some(stream) = stream {
            let reading = move || {
                read(stream, kept_bytes, &keeping);
                drop(end);
            };
            std::thread::Builder::new().name("latent-build".to_owned()).spawn(reading)?;
        }
        Ok(Self { said, ended })
    }

    /// Everything, or what there is when somebody outside the group keeps the stream open.
    fn said(self) -> Said {
        // The end drops its sender and sends nothing.
        let _ = self.ended.recv_timeout(OUTPUT_WAIT);
        std::mem::take(&mut self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn read(mut stream: impl Read, kept_bytes: usize, said: &Mutex<Said>) {
    let mut buffer = [0; 8_192];
    loop {
        let read = match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // As at its end.
            Err(_) => return,
        };
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = read.min(kept_bytes.saturating_sub(said.bytes.len()));
        said.bytes.extend(buffer.iter().take(kept));
        said.bytes_left_out += (read - kept) as u64;
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::test_kill_process_group;

    use super::*;

    const KEPT: Kept = Kept { stdout_bytes: 64, stderr_bytes: 64 };

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_gives_its_status_and_both_outputs() {
        let done = Hands::default().run(&mut shell("echo out; echo err >&2; exit 3"), KEPT).unwrap();
        assert_eq!(done.status.code(), Some(3));
        assert_eq!((&*done.stdout.bytes, &*done.stderr.bytes), (&b"out\n"[..], &b"err\n"[..]));
    }

    #[test]
    fn output_is_kept_up_to_its_bound_and_the_rest_is_counted() {
        for (bytes, kept, left_out) in [(63, 63, 0), (64, 64, 0), (65, 64, 1), (1_000_000, 64, 999_936)] {
            let done = Hands::default().run(&mut shell(&format!("head -c {bytes} /dev/zero >&2")), KEPT).unwrap();
            assert_eq!((done.stderr.bytes.len(), done.stderr.bytes_left_out), (kept, left_out), "{bytes}");
        }
    }

    #[test]
    fn what_a_program_leaves_in_its_group_ends_with_it() {
        let done = Hands::default().run(&mut shell("sleep 600 & echo $$"), KEPT).unwrap();
        let group: i32 = String::from_utf8(done.stdout.bytes).unwrap().trim().parse().unwrap();
        latent_testkit::wait_until("an empty group", || test_kill_process_group(Pid::from_raw(group).unwrap()).is_err());
    }

    #[test]
    fn a_stop_ends_the_whole_group_and_nothing_starts_after_it() {
        let hands = Arc::new(Hands::default());
        let temp = tempfile::tempdir().unwrap();
        let begun = temp.path().join("begun");
        let script = format!("sleep 600 & echo > {}; wait", begun.display());
        let working = {
            let hands = Arc::clone(&hands);
            std::thread::spawn(move || hands.run(&mut shell(&script), KEPT))
        };
        latent_testkit::wait_until("a program at work", || begun.exists());
        let group = hands.lock().group.unwrap();
        hands.stop();
        assert!(matches!(working.join().unwrap(), Err(NotRun::Stopped)));
        latent_testkit::wait_until("an empty group", || test_kill_process_group(group).is_err());
        assert!(matches!(hands.run(&mut shell("true"), KEPT), Err(NotRun::Stopped)));
        // Who is stopped does not wait.
        hands.pause(Duration::from_secs(600));
        assert!(hands.is_stopped());
    }

    #[test]
    fn a_program_that_does_not_listen_is_killed() {
        let hands = Arc::new(Hands::default());
        let temp = tempfile::tempdir().unwrap();
        let begun = temp.path().join("begun");
        let script = format!("trap '' TERM; echo > {}; while :; do sleep 600; done", begun.display());
        let working = {
            let hands = Arc::clone(&hands);
            std::thread::spawn(move || hands.run(&mut shell(&script), KEPT))
        };
        latent_testkit::wait_until("a program at work", || begun.exists());
        hands.stop();
        hands.kill();
        assert!(matches!(working.join().unwrap(), Err(NotRun::Stopped)));
    }

    #[test]
    fn a_program_that_is_not_there_is_told() {
        let missing = Hands::default().run(&mut Command::new("/nowhere/cargo"), KEPT);
        assert!(matches!(missing, Err(NotRun::System(error)) if error.kind() == io::ErrorKind::NotFound));
    }
}
