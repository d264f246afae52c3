//! A storage that writes down what was done to it, and what a disk may hold when the power is cut after any of it: what was synced
//! for certain; of what was not, any 512-byte sectors of the contents and any first part of the names.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use latent_bridge::embedded::{OpenAs, OsStorage, PathKind, Storage, StorageFile};

use super::fixtures::Seeded;

const SECTOR_BYTES: usize = 512;

/// One change. A file is known by a number that stays when its name changes.
#[derive(Clone)]
enum Change {
    Write { file: usize, at: usize, bytes: Vec<u8> },
    Resize { file: usize, bytes: usize },
    Sync { file: usize },
    Name(NameChange),
    SyncDirectory(PathBuf),
}

#[derive(Clone)]
enum NameChange {
    Give { path: PathBuf, file: usize },
    Move { from: PathBuf, to: PathBuf },
    Remove { path: PathBuf },
}

impl NameChange {
    fn path(&self) -> &Path {
        match self {
            Self::Give { path, .. } | Self::Move { to: path, .. } | Self::Remove { path } => path,
        }
    }
}

#[derive(Default)]
struct Journal {
    changes: Vec<Change>,
    names: HashMap<PathBuf, usize>,
    files: usize,
}

/// See the module. The live files are real ones.
#[derive(Clone, Default)]
pub(crate) struct JournalledStorage(Arc<Mutex<Journal>>);

impl JournalledStorage {
    /// How many changes there were.
    pub(crate) fn changes(&self) -> usize {
        self.0.lock().unwrap().changes.len()
    }

    /// Builds in `into` what the disk may hold when only the first `count` changes to `root` were made before the power was cut.
    pub(crate) fn crash(&self, count: usize, root: &Path, into: &Path, seeded: &mut Seeded) {
        let journal = self.0.lock().unwrap();
        let mut disk = Disk::default();
        journal.changes[..count].iter().for_each(|change| disk.apply(change));
        disk.lose_power(seeded);
        for (path, file) in &disk.names {
            let target = into.join(path.strip_prefix(root).unwrap());
            std::fs::create_dir_all(target.parent().unwrap()).unwrap();
            std::fs::write(target, disk.contents.get(file).map_or(&[] as &[u8], Vec::as_slice)).unwrap();
        }
    }

    fn note(&self, change: Change) {
        self.0.lock().unwrap().changes.push(change);
    }
}

/// Synced content and names, and what is not synced yet.
#[derive(Default)]
struct Disk {
    contents: BTreeMap<usize, Vec<u8>>,
    names: BTreeMap<PathBuf, usize>,
    unsynced: Vec<Change>,
    unsynced_names: Vec<NameChange>,
}

impl Disk {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { .. } | Change::Resize { .. } => self.unsynced.push(change.clone()),
            Change::Name(change) => self.unsynced_names.push(change.clone()),
            Change::Sync { file } => {
                let of_file =
                    |change: &Change| matches!(change, Change::Write { file: of, .. } | Change::Resize { file: of, .. } if of == file);
                let (synced, unsynced) = std::mem::take(&mut self.unsynced).into_iter().partition::<Vec<_>, _>(of_file);
                self.unsynced = unsynced;
                synced.iter().for_each(|change| self.content(change, |_| true));
            }
            Change::SyncDirectory(directory) => {
                let in_it = |change: &NameChange| change.path().parent() == Some(directory);
                let (synced, unsynced) = std::mem::take(&mut self.unsynced_names).into_iter().partition::<Vec<_>, _>(in_it);
                self.unsynced_names = unsynced;
                synced.into_iter().for_each(|change| self.rename(change));
            }
        }
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
            NameChange::Move { from, to } => {
                let file = self.names.remove(&from).unwrap();
                self.names.insert(to, file);
            }
        }
    }
}

impl Storage for JournalledStorage {
    fn open(&self, path: &Path, how: OpenAs) -> io::Result<Arc<dyn StorageFile>> {
        let live = OsStorage.open(path, how)?;
        let mut journal = self.0.lock().unwrap();
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
        Ok(Arc::new(JournalledFile { live, file, storage: self.clone() }))
    }

    fn kind(&self, path: &Path) -> io::Result<PathKind> {
        OsStorage.kind(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        OsStorage.list(directory)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        OsStorage.create_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsStorage.rename(from, to)?;
        let mut journal = self.0.lock().unwrap();
        let file = journal.names.remove(from).unwrap();
        journal.names.insert(to.to_owned(), file);
        journal.changes.push(Change::Name(NameChange::Move { from: from.to_owned(), to: to.to_owned() }));
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsStorage.hard_link(from, to)?;
        let mut journal = self.0.lock().unwrap();
        let file = journal.names[from];
        journal.names.insert(to.to_owned(), file);
        journal.changes.push(Change::Name(NameChange::Give { path: to.to_owned(), file }));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        OsStorage.remove_file(path)?;
        self.0.lock().unwrap().names.remove(path);
        self.note(Change::Name(NameChange::Remove { path: path.to_owned() }));
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.note(Change::SyncDirectory(path.to_owned()));
        Ok(())
    }
}

struct JournalledFile {
    live: Arc<dyn StorageFile>,
    file: usize,
    storage: JournalledStorage,
}

impl StorageFile for JournalledFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        self.live.read_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.live.write_at(bytes, at)?;
        self.storage.note(Change::Write { file: self.file, at: usize::try_from(at).unwrap(), bytes: bytes.to_vec() });
        Ok(())
    }

    fn resize(&self, bytes: u64) -> io::Result<()> {
        self.live.resize(bytes)?;
        self.storage.note(Change::Resize { file: self.file, bytes: usize::try_from(bytes).unwrap() });
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        self.live.bytes()
    }

    fn sync(&self) -> io::Result<()> {
        self.storage.note(Change::Sync { file: self.file });
        Ok(())
    }
}
