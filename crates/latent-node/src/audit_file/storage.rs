//! Where audit files lie: a directory of numbered files, behind a trait so that a test can let it fail.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;

const PREFIX: &str = "audit-";
const SUFFIX: &str = ".jsonl";
/// Digits of a file's number.
const DIGITS: usize = 10;
/// The last number of that many digits. So many files of the smallest size hold more than any disk.
const NUMBER_MAX: u64 = 9_999_999_999;

/// How a file that was opened ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// Bytes in it.
    pub bytes: u64,
    /// Its last line has no end: whoever wrote it died, or the disk was full.
    pub torn: bool,
}

/// Numbered files, of which one is open for appending. Driven by the writer thread alone; every call may block.
pub trait AuditStorage: Send + 'static {
    /// The numbers of the files that are there, ascending.
    ///
    /// # Errors
    /// Any of the storage; the writer tries again with the next record.
    fn numbers(&mut self) -> io::Result<Vec<u64>>;

    /// Opens a file for appending, new or not, in place of the one that was open.
    ///
    /// # Errors
    /// As above.
    fn open(&mut self, number: u64) -> io::Result<Tail>;

    /// Appends to the open file. May have written a part when it fails.
    ///
    /// # Errors
    /// As above.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes the open file's bytes durable; nothing to do when none is open.
    ///
    /// # Errors
    /// As above.
    fn sync(&mut self) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// As above.
    fn remove(&mut self, number: u64) -> io::Result<()>;
}

/// A directory of `audit-0000000001.jsonl` and so on, both readable by the owner alone. Other files in it are left alone.
#[derive(Debug)]
pub struct AuditDirectory {
    directory: PathBuf,
    open: Option<File>,
}

impl AuditDirectory {
    /// The directory, there or not.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), open: None }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{PREFIX}{number:0DIGITS$}{SUFFIX}"))
    }
}

fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let plain = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

impl AuditStorage for AuditDirectory {
    fn numbers(&mut self) -> io::Result<Vec<u64>> {
        // Here and not at the start, so that a directory that was removed comes back.
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            numbers.extend(entry?.file_name().to_str().and_then(number_of));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn open(&mut self, number: u64) -> io::Result<Tail> {
        if number > NUMBER_MAX {
            return Err(io::Error::from(io::ErrorKind::QuotaExceeded));
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(self.path(number))?;
        // A file that was there may have been made readable for others.
        file.set_permissions(Permissions::from_mode(0o600))?;
        let bytes = file.metadata()?.len();
        let mut last = [b'\n'];
        if bytes > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        self.open = Some(file);
        Ok(Tail { bytes, torn: last != [b'\n'] })
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.open {
            Some(file) => file.write_all(bytes),
            None => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.open.as_ref().map_or(Ok(()), File::sync_data)
    }

    fn remove(&mut self, number: u64) -> io::Result<()> {
        std::fs::remove_file(self.path(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_its_number_are_the_same_both_ways_and_foreign_names_are_none() {
        let directory = AuditDirectory::new("d");
        for number in [0, 1, NUMBER_MAX] {
            let path = directory.path(number);
            assert_eq!(number_of(path.file_name().unwrap().to_str().unwrap()), Some(number));
        }
        assert!(AuditDirectory::new("d").open(NUMBER_MAX + 1).is_err_and(|error| error.kind() == io::ErrorKind::QuotaExceeded));
        for name in ["audit-1.jsonl", "audit-00000000001.jsonl", "audit-+000000001.jsonl", "audit-0000000001.json", "notes", ""] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
