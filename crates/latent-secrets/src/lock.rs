//! One change at a time, over all processes. Readers need no lock: a file is replaced whole.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::SecretError;
use crate::directory::{Directory, failed};

const LOCK: &str = "lock";
/// How often it is tried while somebody else has it.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// The right to change the store. The system takes it back when this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// Waits for at most `wait`.
    pub(crate) fn take(directory: &Directory, wait: Duration) -> Result<Self, SecretError> {
        let path = directory.file(LOCK);
        let opened = directory.open_file(LOCK, OFlags::RDWR | OFlags::CREATE)?;
        let file = opened.ok_or_else(|| failed("making", &path, Errno::NOENT.into()))?;
        let start = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if start.elapsed() < wait => std::thread::sleep(TRY_EVERY),
                Err(Errno::WOULDBLOCK) => return Err(SecretError::Locked { holder: holder(file), file: path }),
                Err(errno) => return Err(failed("locking", &path, errno.into())),
            }
        }
        let mut lock = Self { file };
        lock.say_who();
        Ok(lock)
    }

    /// For whoever waits in vain. Nothing depends on it.
    fn say_who(&mut self) {
        let written = self.file.set_len(0).and_then(|()| self.file.rewind());
        let _ = written.and_then(|()| writeln!(self.file, "{}", std::process::id()));
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.file.set_len(0);
    }
}

fn holder(file: File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim_end().parse().ok()
}
