//! Which file a line goes to, and which files stay.
//!
//! Invariants: a file holds at most `file_bytes`; there are at most `files` of them; a line never begins inside another. After any
//! failure nothing is believed of the open file: the next line looks at the storage again.

use std::io;

use super::AuditFileLimits;
use super::storage::{AuditStorage, Tail};

/// A step of the writer that failed. Names no path and no content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditFault {
    /// What was tried: `list`, `open`, `append`, `sync`, `remove` or `fit`.
    pub operation: &'static str,
    /// The kind of error.
    pub kind: io::ErrorKind,
    /// The operating system's number for it, if it has one.
    pub os_error: Option<i32>,
}

impl std::fmt::Display for AuditFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { operation, kind, os_error } = self;
        match os_error {
            Some(code) => write!(f, "{operation}: {}", io::Error::from_raw_os_error(*code)),
            None => write!(f, "{operation}: {kind}"),
        }
    }
}

trait Named<T> {
    fn named(self, operation: &'static str) -> Result<T, AuditFault>;
}

impl<T> Named<T> for io::Result<T> {
    fn named(self, operation: &'static str) -> Result<T, AuditFault> {
        self.map_err(|error| AuditFault { operation, kind: error.kind(), os_error: error.raw_os_error() })
    }
}

#[derive(Clone, Copy)]
struct Open {
    number: u64,
    bytes: u64,
}

pub(super) struct Writer<S> {
    storage: S,
    limits: AuditFileLimits,
    open: Option<Open>,
}

impl<S: AuditStorage> Writer<S> {
    pub(super) const fn new(storage: S, limits: AuditFileLimits) -> Self {
        Self { storage, limits, open: None }
    }

    /// Appends one line, which ends in a newline.
    pub(super) fn write(&mut self, line: &[u8]) -> Result<(), AuditFault> {
        let open = self.open.take();
        self.open = Some(self.append(open, line)?);
        Ok(())
    }

    pub(super) fn sync(&mut self) -> Result<(), AuditFault> {
        self.storage.sync().named("sync")
    }

    fn append(&mut self, open: Option<Open>, line: &[u8]) -> Result<Open, AuditFault> {
        let line_bytes = line.len() as u64;
        if line_bytes > self.limits.file_bytes {
            return Err(AuditFault { operation: "fit", kind: io::ErrorKind::FileTooLarge, os_error: None });
        }
        let mut open = match open {
            Some(open) => open,
            None => self.open_newest()?,
        };
        if open.bytes.saturating_add(line_bytes) > self.limits.file_bytes {
            self.sync()?;
            self.keep_newest(self.limits.files - 1)?;
            open = self.open_whole(open.number + 1)?;
        }
        self.storage.append(line).named("append")?;
        Ok(Open { bytes: open.bytes.saturating_add(line_bytes), ..open })
    }

    fn open_newest(&mut self) -> Result<Open, AuditFault> {
        let newest = self.keep_newest(self.limits.files)?;
        self.open_whole(newest.unwrap_or(1))
    }

    /// Opens a file so that the next line is a line of its own.
    fn open_whole(&mut self, number: u64) -> Result<Open, AuditFault> {
        let Tail { bytes, torn } = self.storage.open(number).named("open")?;
        if torn {
            self.storage.append(b"\n").named("append")?;
        }
        Ok(Open { number, bytes: bytes + u64::from(torn) })
    }

    /// Removes all files but the newest; says which the newest is.
    fn keep_newest(&mut self, files: u64) -> Result<Option<u64>, AuditFault> {
        let numbers = self.storage.numbers().named("list")?;
        let kept = usize::try_from(files).unwrap_or(usize::MAX);
        let surplus = numbers.len().saturating_sub(kept);
        numbers.iter().take(surplus).try_for_each(|number| self.storage.remove(*number).named("remove"))?;
        Ok(numbers.last().copied())
    }
}

#[cfg(test)]
mod tests;
