//! A storage that writes down what was done to it, and what a disk may hold when the power is cut after any of it: what was synced
//! for certain; of what was not, any 512-byte sectors of the contents and any first part of the names. A failed sync is the system's
//! worst: the pages stay readable, are called clean, and reach the disk never, unless they are written again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use latent_bridge::embedded::{OpenAs, OsStorage, PathKind, Storage, StorageFile};

use super::fixtures::Seeded;

const SECTOR_BYTES: usize = 512;

/// One change. A file is known by a number that stays when its name changes.
#[derive(Clone)]
enum Change {
    Write {
        file: usize,
        at: usize,
        bytes: Vec<u8>,
    },
    Resize {
        file: usize,
        bytes: usize,
    },
    Sync {
        file: usize,
    },
    /// A sync that failed: what was not synced before is forgotten.
    FailedSync {
        file: usize,
    },
    Name(NameChange),
    SyncDirectory(PathBuf),
}

#[derive(Clone)]
enum NameChange {
    Give { path: PathBuf, file: usize },
    Move { from: PathBuf, to: PathBuf },
    Remove { path: PathBuf },
    Folder { path: PathBuf },
}

impl NameChange {
    fn path(&self) -> &Path {
        match self {
            Self::Give { path, .. } | Self::Move { to: path, .. } | Self::Remove { path } | Self::Folder { path } => path,
        }
    }
}

#[derive(Default)]
struct Journal {
    changes: Vec<Change>,
    names: HashMap<PathBuf, usize>,
    files: usize,
    /// Changes after which nothing happens any more: the process was killed there.
    halt_after: Option<usize>,
    /// The next sync of a file with this ending fails.
    failing_sync: Option<&'static str>,
}

impl Journal {
    fn halted(&self) -> io::Result<()> {
        let halted = self.halt_after.is_some_and(|after| self.changes.len() >= after);
        if halted { Err(io::Error::other("halted")) } else { Ok(()) }
    }
}

/// See the module. The live files are real ones.
#[derive(Clone, Default)]
pub(crate) struct JournalledStorage(Arc<Mutex<Journal>>);

impl JournalledStorage {
    /// How many changes there were.
    pub(crate) fn changes(&self) -> usize {
        self.0.lock().unwrap().changes.len()
    }

    /// Lets nothing happen after so many changes, as if the process had been killed there; `None` lets everything happen again.
    pub(crate) fn halt_after(&self, changes: Option<usize>) {
        self.0.lock().unwrap().halt_after = changes;
    }

    /// Lets the next sync of a file whose name ends so fail.
    pub(crate) fn fail_sync(&self, ending: &'static str) {
        self.0.lock().unwrap().failing_sync = Some(ending);
    }

    /// True when that sync has come.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.lock().unwrap().failing_sync.is_none()
    }

    /// Builds in `into` what the disk may hold when only the first `count` changes to `root` were made before the power was cut.
    pub(crate) fn crash(&self, count: usize, root: &Path, into: &Path, seeded: &mut Seeded) {
        let journal = self.0.lock().unwrap();
        let mut disk = Disk::default();
        journal.changes[..count].iter().for_each(|change| disk.apply(change));
        disk.lose_power(seeded);
        // In the order of their names, so that a folder comes before what is in it.
        for folder in &disk.folders {
            // One whose parent was lost is lost with it.
            drop(std::fs::create_dir(into.join(folder.strip_prefix(root).unwrap())));
        }
        for (path, file) in &disk.names {
            let target = into.join(path.strip_prefix(root).unwrap());
            if !target.parent().unwrap().is_dir() {
                continue;
            }
            std::fs::write(target, disk.contents.get(file).map_or(&[] as &[u8], Vec::as_slice)).unwrap();
        }
    }

    /// Makes a change and writes it down, unless the process was killed before.
    fn change<T>(&self, change: Change, live: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let mut journal = self.0.lock().unwrap();
        journal.halted()?;
        let done = live()?;
        journal.changes.push(change);
        Ok(done)
    }
}

/// Synced content and names, and what is not synced yet.
#[derive(Default)]
struct Disk {
    contents: BTreeMap<usize, Vec<u8>>,
    names: BTreeMap<PathBuf, usize>,
    folders: BTreeSet<PathBuf>,
    unsynced: Vec<Change>,
    unsynced_names: Vec<NameChange>,
}

impl Disk {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { .. } | Change::Resize { .. } => self.unsynced.push(change.clone()),
            Change::Name(change) => self.unsynced_names.push(change.clone()),
            Change::Sync { file } => self.take_unsynced(*file).iter().for_each(|change| self.content(change, |_| true)),
            Change::FailedSync { file } => drop(self.take_unsynced(*file)),
            Change::SyncDirectory(directory) => {
                let in_it = |change: &NameChange| change.path().parent() == Some(directory);
                let (synced, unsynced) = std::mem::take(&mut self.unsynced_names).into_iter().partition::<Vec<_>, _>(in_it);
                self.unsynced_names = unsynced;
                synced.into_iter().for_each(|change| self.rename(change));
            }
        }
    }

    fn take_unsynced(&mut self, file: usize) -> Vec<Change> {
        let of_file = |change: &Change| matches!(change, Change::Write { file: of, .. } | Change::Resize { file: of, .. } if *of == file);
        let (of_file, others) = std::mem::take(&mut self.unsynced).into_iter().partition::<Vec<_>, _>(of_file);
        self.unsynced = others;
        of_file
    }

    fn lose_power(&mut self, seeded: &mut Seeded) {
        for change in std::mem::take(&mut self.unsynced) {
            self.content(&change, |_| seeded.below(2) == 0);
        }
        let names = std::mem::take(&mut self.unsynced_names);
        let kept = seeded.below(names.len() + 1);
        names.into_iter().take(kept).for_each(|change| self.rename(change));
    }

    /// Applies the sectors of a change that reached the disk.
    fn content(&mut self, change: &Change, mut reached: impl FnMut(usize) -> bool) {
        match change {
            Change::Write { file, at, bytes } => {
                let content = self.contents.entry(*file).or_default();
                let mut done = 0;
                while done < bytes.len() {
                    let start = at + done;
                    let end = (start / SECTOR_BYTES + 1) * SECTOR_BYTES;
                    let length = (end - start).min(bytes.len() - done);
                    if reached(start) {
                        content.resize(content.len().max(start + length), 0);
                        content[start..start + length].copy_from_slice(&bytes[done..done + length]);
                    }
                    done += length;
                }
            }
            Change::Resize { file, bytes } if reached(0) => self.contents.entry(*file).or_default().resize(*bytes, 0),
            _ => {}
        }
    }

    fn rename(&mut self, change: NameChange) {
        match change {
            NameChange::Give { path, file } => drop(self.names.insert(path, file)),
            NameChange::Remove { path } => drop(self.names.remove(&path)),
            NameChange::Folder { path } => drop(self.folders.insert(path)),
            NameChange::Move { from, to } => {
                let file = self.names.remove(&from).unwrap();
                self.names.insert(to, file);
            }
        }
    }
}

impl Storage for JournalledStorage {
    fn open(&self, path: &Path, how: OpenAs) -> io::Result<Arc<dyn StorageFile>> {
        let mut journal = self.0.lock().unwrap();
        if how != OpenAs::Existing {
            journal.halted()?;
        }
        let live = OsStorage.open(path, how)?;
        let file = match journal.names.get(path) {
            Some(file) => *file,
            None => {
                let file = journal.files;
                journal.files += 1;
                journal.names.insert(path.to_owned(), file);
                journal.changes.push(Change::Name(NameChange::Give { path: path.to_owned(), file }));
                file
            }
        };
        if how == OpenAs::Empty {
            journal.changes.push(Change::Resize { file, bytes: 0 });
        }
        let name = path.to_string_lossy().into_owned();
        Ok(Arc::new(JournalledFile { live, file, name, storage: self.clone() }))
    }

    fn kind(&self, path: &Path) -> io::Result<PathKind> {
        OsStorage.kind(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        OsStorage.list(directory)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.change(Change::Name(NameChange::Folder { path: path.to_owned() }), || OsStorage.create_directory(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(Change::Name(NameChange::Move { from: from.to_owned(), to: to.to_owned() }), || OsStorage.rename(from, to))?;
        let names = &mut self.0.lock().unwrap().names;
        let file = names.remove(from).unwrap();
        names.insert(to.to_owned(), file);
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.0.lock().unwrap().names[from];
        self.change(Change::Name(NameChange::Give { path: to.to_owned(), file }), || OsStorage.hard_link(from, to))?;
        self.0.lock().unwrap().names.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change(Change::Name(NameChange::Remove { path: path.to_owned() }), || OsStorage.remove_file(path))?;
        self.0.lock().unwrap().names.remove(path);
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.change(Change::SyncDirectory(path.to_owned()), || Ok(()))
    }
}

struct JournalledFile {
    live: Arc<dyn StorageFile>,
    file: usize,
    name: String,
    storage: JournalledStorage,
}

impl StorageFile for JournalledFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        self.live.read_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let change = Change::Write { file: self.file, at: usize::try_from(at).unwrap(), bytes: bytes.to_vec() };
        self.storage.change(change, || self.live.write_at(bytes, at))
    }

    fn resize(&self, bytes: u64) -> io::Result<()> {
        let change = Change::Resize { file: self.file, bytes: usize::try_from(bytes).unwrap() };
        self.storage.change(change, || self.live.resize(bytes))
    }

    fn bytes(&self) -> io::Result<u64> {
        self.live.bytes()
    }

    fn sync(&self) -> io::Result<()> {
        {
            let mut journal = self.storage.0.lock().unwrap();
            if journal.failing_sync.is_some_and(|ending| self.name.ends_with(ending)) {
                journal.failing_sync = None;
                journal.changes.push(Change::FailedSync { file: self.file });
                return Err(io::Error::other("the disk said no"));
            }
        }
        self.storage.change(Change::Sync { file: self.file }, || Ok(()))
    }
}
