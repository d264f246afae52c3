//! One file of the store, replaced whole: a temporary file, its sync, a rename, the directory's sync. Only who has the lock may.

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};

use rustix::fs::{Mode, OFlags, fsync, openat, renameat};

use crate::SecretError;
use crate::directory::{Directory, failed};

/// The one file that is ever half written.
const PREPARED: &str = "write.tmp";

/// The calls that a replacement makes, so that tests can let each of them fail.
pub(crate) trait Steps: fmt::Debug + Send + Sync {
    /// Makes the temporary file anew: what is left of an earlier try goes.
    fn create(&self, directory: &Directory) -> io::Result<File>;
    /// Writes all of it.
    fn write(&self, file: &mut File, content: &[u8]) -> io::Result<()>;
    /// Makes its content durable.
    fn sync(&self, file: &File) -> io::Result<()>;
    /// Gives it the name of the file that it replaces.
    fn rename(&self, directory: &Directory, name: &str) -> io::Result<()>;
    /// Makes that name durable.
    fn sync_directory(&self, directory: &Directory) -> io::Result<()>;
}

/// The machine's own file system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Disk;

impl Steps for Disk {
    fn create(&self, directory: &Directory) -> io::Result<File> {
        directory.remove(PREPARED)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(directory, PREPARED, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    fn write(&self, file: &mut File, content: &[u8]) -> io::Result<()> {
        file.write_all(content)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, directory: &Directory, name: &str) -> io::Result<()> {
        Ok(renameat(directory, PREPARED, directory, name)?)
    }

    fn sync_directory(&self, directory: &Directory) -> io::Result<()> {
        Ok(fsync(directory)?)
    }
}

/// Replaces a file durably. After an error the old or the new content is there, whole; which, the error says.
pub(crate) fn replace(steps: &dyn Steps, directory: &Directory, name: &str, content: &[u8]) -> Result<(), SecretError> {
    let prepared = directory.file(PREPARED);
    let step = |operation, done: io::Result<()>| done.map_err(|error| failed(operation, &prepared, error));
    let mut file = steps.create(directory).map_err(|error| failed("making", &prepared, error))?;
    step("writing", steps.write(&mut file, content))?;
    step("syncing", steps.sync(&file))?;
    step("renaming", steps.rename(directory, name))?;
    let synced = steps.sync_directory(directory);
    synced.map_err(|error| SecretError::NotDurable { file: directory.file(name), reason: error.to_string() })
}

#[cfg(test)]
pub(crate) mod faults {
    //! A disk of which one call fails, as it would for a process that dies there.

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Calls of one replacement.
    pub(crate) const CALLS: usize = 5;
    /// Calls until the new content stands under its name.
    pub(crate) const CALLS_UNTIL_VISIBLE: usize = 4;

    #[derive(Debug)]
    pub(crate) struct Faulty {
        /// Calls that still succeed.
        left: AtomicUsize,
    }

    impl Faulty {
        pub(crate) fn after(calls: usize) -> Self {
            Self { left: AtomicUsize::new(calls) }
        }

        fn spend(&self) -> io::Result<()> {
            let spent = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            spent.map(drop).map_err(|_| io::Error::from(io::ErrorKind::StorageFull))
        }
    }

    impl Steps for Faulty {
        fn create(&self, directory: &Directory) -> io::Result<File> {
            self.spend().and_then(|()| Disk.create(directory))
        }

        fn write(&self, file: &mut File, content: &[u8]) -> io::Result<()> {
            // A write that fails has written half.
            let half = content.get(..content.len() / 2).unwrap_or_default();
            match self.spend() {
                Ok(()) => Disk.write(file, content),
                Err(error) => Disk.write(file, half).and(Err(error)),
            }
        }

        fn sync(&self, file: &File) -> io::Result<()> {
            self.spend().and_then(|()| Disk.sync(file))
        }

        fn rename(&self, directory: &Directory, name: &str) -> io::Result<()> {
            self.spend().and_then(|()| Disk.rename(directory, name))
        }

        fn sync_directory(&self, directory: &Directory) -> io::Result<()> {
            self.spend().and_then(|()| Disk.sync_directory(directory))
        }
    }
}
