//! The file that keeps how far a migration is: replaced whole, durably, and one process's at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use latent_bridge::migrate::{Position, Progress, ProgressError};
use latent_core::Partition;

use super::progress_between;
use crate::error::CliError;
use crate::limits;

const OPTION: &str = "--progress";
/// What is not saved yet is compared again by the next run, so it need not be saved after each batch of many.
const SAVE_PAUSE: Duration = Duration::from_millis(250);

/// See the module.
pub(super) struct ProgressFile {
    path: PathBuf,
    progress: Progress,
    is_changed: bool,
    saved: Option<Instant>,
    /// Held as long as it may be written.
    lock: Option<File>,
}

/// Why nothing of what the file says is used; `None` where all of it is, or where there is none.
pub(super) type Ignored = Option<ProgressError>;

impl ProgressFile {
    /// That of a migration between these two, not looked at yet.
    pub(super) fn at(path: Option<PathBuf>, source: &str, destination: &str) -> Self {
        let path = path.unwrap_or_else(|| PathBuf::from(Progress::file_name(source, destination)));
        Self { path, progress: progress_between(source, destination), is_changed: false, saved: None, lock: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Reads it, to write nothing.
    pub(super) fn look(mut self) -> Result<(Self, Ignored), CliError> {
        let ignored = self.read()?;
        Ok((self, ignored))
    }

    /// Makes it this process's own, and reads it.
    pub(super) fn take(mut self) -> Result<(Self, Ignored), CliError> {
        let beside = self.beside("lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&beside).map_err(|error| failed(&beside, &error))?;
        match lock.try_lock() {
            Ok(()) => self.lock = Some(lock),
            Err(TryLockError::WouldBlock) => {
                let reason = format!("another process migrates with {}; wait for it to end", self.path.display());
                return Err(CliError::Value { option: OPTION, reason });
            }
            Err(TryLockError::Error(error)) => return Err(failed(&beside, &error)),
        }
        self.look()
    }

    /// A partition is about to be published.
    pub(super) fn begin(&mut self, topic: &str, partition: Partition) -> Result<(), CliError> {
        let at_work = Some((topic.to_owned(), partition.0));
        self.is_changed |= self.progress.at_work != at_work;
        self.progress.at_work = at_work;
        self.save()
    }

    /// Where a partition is. Saved now and then.
    pub(super) fn note(&mut self, topic: &str, partition: Partition, position: Position) -> Result<(), CliError> {
        let known = self.progress.positions.insert((topic.to_owned(), partition.0), position);
        self.is_changed |= known != Some(position);
        if self.is_changed && self.saved.is_none_or(|saved| saved.elapsed() >= SAVE_PAUSE) { self.save() } else { Ok(()) }
    }

    /// Writes it beside itself, syncs it, and puts it in its place.
    pub(super) fn save(&mut self) -> Result<(), CliError> {
        if !self.is_changed || self.lock.is_none() {
            return Ok(());
        }
        let text = self.progress.encode().map_err(|error| unusable(&self.path, &error))?;
        let beside = self.beside("new");
        write_synced(&beside, text.as_bytes()).map_err(|error| failed(&beside, &error))?;
        std::fs::rename(&beside, &self.path).and_then(|()| sync_folder_of(&self.path)).map_err(|error| failed(&self.path, &error))?;
        (self.is_changed, self.saved) = (false, Some(Instant::now()));
        Ok(())
    }

    fn read(&mut self) -> Result<Ignored, CliError> {
        let Some(text) = read_bounded(&self.path).map_err(|error| failed(&self.path, &error))? else { return Ok(None) };
        match Progress::decode(&text) {
            Ok(found) if found.is_between(&self.progress.source, &self.progress.destination) => {
                self.progress = found;
                Ok(None)
            }
            Ok(found) => {
                let reason =
                    format!("{} is of a migration from {} to {}; name another file", self.path.display(), found.source, found.destination);
                Err(CliError::Value { option: OPTION, reason })
            }
            Err(ProgressError::Damaged) => Ok(Some(ProgressError::Damaged)),
            // Whatever it is, it is not ours to write over.
            Err(error @ ProgressError::Foreign) => Err(unusable(&self.path, &error)),
        }
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(ending);
        name.into()
    }
}

fn unusable(path: &Path, error: &ProgressError) -> CliError {
    CliError::Value { option: OPTION, reason: format!("{}: {error}; name another file", path.display()) }
}

fn failed(path: &Path, error: &io::Error) -> CliError {
    CliError::ProgressFile { file: path.to_owned(), reason: error.to_string() }
}

fn read_bounded(path: &Path) -> io::Result<Option<String>> {
    // Looked at before it is opened: opening a pipe would wait for its other end.
    match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(metadata) if !metadata.is_file() => return Err(io::Error::other("it is not a file")),
        looked_at => _ = looked_at?,
    }
    let bytes_max = limits::MIGRATE_PROGRESS_BYTES.default;
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it has more than {bytes_max} bytes")));
    }
    // What is no text is damaged, and told as that.
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

fn write_synced(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use latent_bridge::migrate::RecordDigest;
    use latent_core::Offset;

    use super::*;

    fn at(folder: &Path) -> ProgressFile {
        ProgressFile::at(Some(folder.join("p")), "a", "b")
    }

    fn position(source: u64) -> Position {
        let last = RecordDigest::parse(&"0a".repeat(32)).unwrap();
        Position { first: Offset(0), source: Offset(source), destination: Offset(1), records: 1, last }
    }

    #[test]
    fn what_is_noted_is_there_for_the_next_run_and_for_one_at_a_time() {
        let temp = tempfile::tempdir().unwrap();
        let (mut file, ignored) = at(temp.path()).take().ok().unwrap();
        assert_eq!(ignored, None);
        assert!(matches!(at(temp.path()).take(), Err(CliError::Value { option: OPTION, .. })), "one process at a time");
        assert!(at(temp.path()).look().is_ok(), "who writes nothing may look");
        file.note("t", Partition(3), position(7)).unwrap();
        file.note("t", Partition(3), position(8)).unwrap();
        file.save().unwrap();
        drop(file);
        let (file, _) = at(temp.path()).take().ok().unwrap();
        assert_eq!(file.progress().positions.get(&("t".to_owned(), 3)), Some(&position(8)));
        assert!(matches!(ProgressFile::at(Some(temp.path().join("p")), "a", "c").look(), Err(CliError::Value { .. })), "of another one");
        let names: Vec<_> = std::fs::read_dir(temp.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!names.contains(&"p.new".into()), "{names:?}");
    }

    #[test]
    fn a_damaged_file_is_ignored_and_told_and_somebody_elses_is_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        let (mut file, _) = at(temp.path()).take().ok().unwrap();
        file.note("t", Partition(0), position(1)).unwrap();
        drop(file);
        let path = temp.path().join("p");
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() = 0xff;
        std::fs::write(&path, &bytes).unwrap();
        let (file, ignored) = at(temp.path()).take().ok().unwrap();
        assert_eq!((ignored, file.progress().positions.len()), (Some(ProgressError::Damaged), 0));
        drop(file);
        std::fs::write(&path, "my notes\n").unwrap();
        assert!(matches!(at(temp.path()).take(), Err(CliError::Value { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "my notes\n");
    }

    #[test]
    fn a_file_is_read_up_to_its_bound() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("p");
        for (bytes, is_read) in [(limits::MIGRATE_PROGRESS_BYTES.default, true), (limits::MIGRATE_PROGRESS_BYTES.default + 1, false)] {
            File::create(&path).unwrap().set_len(bytes).unwrap();
            assert_eq!(read_bounded(&path).is_ok(), is_read, "{bytes}");
        }
        assert!(read_bounded(temp.path()).is_err());
    }
}
