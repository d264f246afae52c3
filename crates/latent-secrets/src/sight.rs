//! A file that was read, kept open so that it can be recognised by a look.
//!
//! A change of the store puts another file under the name. While this one is open, the system gives its number to no other file: the
//! same number under the name is this file, however fast changes follow each other. Clocks decide nothing. The times and the size are
//! compared as well, for files that something else than a store wrote into.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// An open file and what it looked like when it was read.
#[derive(Debug)]
pub(crate) struct Sight {
    seen: Metadata,
    /// Holds the file's number.
    file: File,
}

impl Sight {
    pub(crate) fn of(file: File) -> io::Result<Self> {
        Ok(Self { seen: file.metadata()?, file })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Whether it still stands there, untouched. The path's last part is not followed.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        let looks = |metadata: &Metadata| {
            let times = (metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec());
            (metadata.dev(), metadata.ino(), metadata.mode(), metadata.uid(), metadata.len(), times)
        };
        path.symlink_metadata().is_ok_and(|found| looks(&found) == looks(&self.seen))
    }
}
