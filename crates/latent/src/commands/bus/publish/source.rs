//! The file of events, opened, and watched for changes while it is read.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::time::SystemTime;

use crate::error::CliError;

/// The file, and its size where that is known.
pub(super) struct Source {
    pub(super) reader: Box<dyn Read>,
    pub(super) bytes: Option<u64>,
    pub(super) original: Option<Original>,
}

/// A regular file as it was when it was opened. Pipes and devices have no such state.
pub(super) struct Original {
    file: File,
    seen: Seen,
}

impl Source {
    /// Opens the file, `-` being standard input. A pipe is opened when its writer opens it.
    pub(super) fn open(file: &Path) -> Result<Self, CliError> {
        if file == Path::new("-") {
            return Ok(Self { reader: Box::new(io::stdin().lock()), bytes: None, original: None });
        }
        let unreadable = |reason: String| CliError::Input { file: file.to_owned(), reason };
        let opened = File::open(file).map_err(|error| unreadable(error.to_string()))?;
        let metadata = opened.metadata().map_err(|error| unreadable(error.to_string()))?;
        if metadata.is_dir() {
            return Err(unreadable("it is a directory".to_owned()));
        }
        let original = if metadata.is_file() {
            let file = opened.try_clone().map_err(|error| unreadable(error.to_string()))?;
            Some(Original { file, seen: Seen::of(&metadata) })
        } else {
            None
        };
        Ok(Self { reader: Box::new(opened), bytes: original.as_ref().map(|original| original.seen.bytes), original })
    }
}

impl Original {
    /// What changed since it was opened, in words.
    pub(super) fn change(&self) -> Option<String> {
        let change = self.seen.change_to(Seen::of(&self.file.metadata().ok()?))?;
        Some(format!("the file changed while it was read: {change}; publish it again when nothing writes to it"))
    }
}

/// What is compared of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    bytes: u64,
    modified: Option<SystemTime>,
}

impl Seen {
    fn of(metadata: &Metadata) -> Self {
        Self { bytes: metadata.len(), modified: metadata.modified().ok() }
    }

    fn change_to(self, now: Self) -> Option<String> {
        if self.bytes != now.bytes {
            return Some(format!("it had {} bytes and has {}", self.bytes, now.bytes));
        }
        (self.modified != now.modified).then(|| "it was written to".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn growing_shrinking_and_writing_in_place_are_changes() {
        let at = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let before = Seen { bytes: 10, modified: at(1) };
        let cases = [
            (before, None),
            (Seen { bytes: 11, modified: at(2) }, Some("it had 10 bytes and has 11")),
            (Seen { bytes: 0, modified: at(1) }, Some("it had 10 bytes and has 0")),
            (Seen { bytes: 10, modified: at(2) }, Some("it was written to")),
        ];
        for (now, change) in cases {
            assert_eq!(before.change_to(now).as_deref(), change);
        }
    }

    #[test]
    fn a_file_that_is_left_alone_has_not_changed() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("f");
        std::fs::write(&path, "a\n").unwrap();
        let original = Source::open(&path).unwrap().original.unwrap();
        assert_eq!(original.change(), None);
        std::fs::write(&path, "a\nb\n").unwrap();
        assert!(original.change().is_some_and(|change| change.contains("it had 2 bytes and has 4")));
    }
}
