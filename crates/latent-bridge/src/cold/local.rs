//! A folder as a store (B-042): what is there was written whole and synced, and so was every name above it.
//!
//! An object is prepared under a temporary name, synced, and given its name by a hard link, which never replaces. A process that is killed
//! in between leaves the temporary file, which the next attempt of the same owner takes up again.

use std::collections::HashSet;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::local_listing::{Folder, TEMPORARY, Walk};
use super::store::{ColdError, ColdStore, Listed, PutEnd};
use crate::embedded::{OpenAs, PathKind, Storage};
use crate::engine::embedded::directory::create_directories;
use crate::{BusError, limits};

/// See the module.
pub(crate) struct LocalStore {
    storage: Arc<dyn Storage>,
    root: PathBuf,
    /// Tells the temporary files of one owner from those of another one who writes into the same folder.
    tag: String,
    /// Folders whose names this process has made durable: one that was there may have been made by a process that was killed before it
    /// could.
    durable: Mutex<HashSet<PathBuf>>,
    /// The root is there.
    is_made: AtomicBool,
    /// Where a listing that had more than one page goes on.
    walk: Mutex<Option<Walk>>,
}

impl LocalStore {
    /// The store in `root`, which is created.
    pub(crate) fn open(storage: Arc<dyn Storage>, root: &Path, tag: &str) -> Result<Self, BusError> {
        create_directories(&*storage, root)?;
        let root = std::fs::canonicalize(root).map_err(|error| BusError::io("open", root, &error))?;
        Ok(Self::at(storage, root, tag, true))
    }

    /// The store in `root`, which is created before the first object: whoever only looks leaves nothing behind.
    pub(crate) fn open_as_it_is(storage: Arc<dyn Storage>, root: &Path, tag: &str) -> Result<Self, BusError> {
        match std::fs::canonicalize(root) {
            Ok(root) => Ok(Self::at(storage, root, tag, true)),
            Err(_) => {
                let root = std::path::absolute(root).map_err(|error| BusError::io("open", root, &error))?;
                Ok(Self::at(storage, root, tag, false))
            }
        }
    }

    fn at(storage: Arc<dyn Storage>, root: PathBuf, tag: &str, is_made: bool) -> Self {
        let is_made = AtomicBool::new(is_made);
        Self { storage, root, tag: tag.to_owned(), durable: Mutex::default(), is_made, walk: Mutex::default() }
    }

    /// Makes the folders of an object, durably.
    fn make_folders(&self, object: &Path) -> io::Result<()> {
        if !self.is_made.load(Ordering::Acquire) {
            create_directories(&*self.storage, &self.root).map_err(|error| io::Error::other(error.to_string()))?;
            self.is_made.store(true, Ordering::Release);
        }
        let mut below: Vec<_> = object.ancestors().skip(1).take_while(|folder| *folder != self.root).collect();
        below.reverse();
        for folder in below {
            if self.durable.lock().unwrap_or_else(PoisonError::into_inner).contains(folder) {
                continue;
            }
            self.storage.create_directory(folder)?;
            self.storage.sync_directory(folder.parent().unwrap_or(&self.root))?;
            self.durable.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned());
        }
        Ok(())
    }

    fn write(&self, object: &Path, prepared: &Path, bytes: &[u8]) -> io::Result<PutEnd> {
        self.make_folders(object)?;
        if self.storage.kind(object)? != PathKind::Missing {
            return self.exists(object);
        }
        let file = self.storage.open(prepared, OpenAs::Empty)?;
        file.write_at(bytes, 0)?;
        file.sync()?;
        match self.storage.hard_link(prepared, object) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return self.exists(object),
            Err(error) => return Err(error),
        }
        self.sync_names(object)?;
        // A listing under way would not have it.
        *self.walk.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(PutEnd::Created)
    }

    /// What is there may have been written by a process that was killed before it was durable, and whoever finds that it is his relies on it.
    fn exists(&self, object: &Path) -> io::Result<PutEnd> {
        if self.storage.kind(object)? == PathKind::File {
            self.storage.open(object, OpenAs::Existing)?.sync()?;
        }
        self.sync_names(object)?;
        Ok(PutEnd::Exists)
    }

    fn sync_names(&self, object: &Path) -> io::Result<()> {
        self.storage.sync_directory(object.parent().unwrap_or(&self.root))
    }

    fn read(&self, object: &Path, bytes_max: u64) -> io::Result<Result<Option<Bytes>, u64>> {
        match self.storage.kind(object)? {
            PathKind::Missing => return Ok(Ok(None)),
            PathKind::File => {}
            PathKind::Directory | PathKind::Unusual => return Err(io::Error::other("it is no regular file")),
        }
        let file = match self.storage.open(object, OpenAs::Existing) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ok(None)),
            // A copy of an archive may be one that can only be read.
            Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
                return read_only(object, bytes_max);
            }
            opened => opened?,
        };
        let bytes = file.bytes()?;
        if bytes > bytes_max {
            return Ok(Err(bytes));
        }
        let mut content = vec![0; usize::try_from(bytes).unwrap_or_default()];
        let read = file.read_at(&mut content, 0)?;
        content.truncate(read);
        Ok(Ok(Some(Bytes::from(content))))
    }
}

fn read_only(object: &Path, bytes_max: u64) -> io::Result<Result<Option<Bytes>, u64>> {
    let file = std::fs::File::open(object)?;
    let bytes = file.metadata()?.len();
    if bytes > bytes_max {
        return Ok(Err(bytes));
    }
    let mut content = Vec::new();
    file.take(bytes_max).read_to_end(&mut content)?;
    Ok(Ok(Some(Bytes::from(content))))
}

/// A path below the root, or why it is none.
fn below(root: &Path, object: &str) -> io::Result<PathBuf> {
    let is_normal = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains(['\0', '\\']);
    if object.is_empty() || !object.split('/').all(is_normal) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no path of an object"));
    }
    Ok(root.join(object))
}

fn failed(operation: &'static str, object: &str, error: &io::Error) -> ColdError {
    ColdError::Failed { operation, object: object.to_owned(), reason: error.to_string() }
}

impl ColdStore for LocalStore {
    fn put_new(&self, path: &str, bytes: Bytes) -> Result<PutEnd, ColdError> {
        let put = || {
            let object = below(&self.root, path)?;
            let mut name = object.file_name().unwrap_or_default().to_owned();
            name.push(format!(".{}{TEMPORARY}", self.tag));
            let prepared = object.with_file_name(name);
            let written = self.write(&object, &prepared, &bytes);
            match self.storage.remove_file(&prepared) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::debug!(%error, "a temporary file of the cold store stays until its object is written again");
                }
                _ => {}
            }
            written
        };
        put().map_err(|error| failed("put", path, &error))
    }

    fn get(&self, path: &str, bytes_max: u64) -> Result<Option<Bytes>, ColdError> {
        let read = below(&self.root, path).and_then(|object| self.read(&object, bytes_max)).map_err(|error| failed("get", path, &error))?;
        read.map_err(|bytes| ColdError::TooLarge { object: path.to_owned(), bytes, bytes_max })
    }

    fn list_after(&self, prefix: &str, after: &str, count_max: usize) -> Result<Vec<Listed>, ColdError> {
        let kept = self.walk.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut walk = kept.filter(|walk| walk.goes_on(prefix, after)).unwrap_or_else(|| Walk::new(prefix, after));
        let of = Folder { storage: &*self.storage, root: &self.root, window: limits::ARCHIVE_LIST_NAMES.default_usize() };
        let page = walk.page(of, count_max).map_err(|error| failed("list", prefix, &error))?;
        // At its end it is forgotten: what comes later is seen by whoever asks again.
        if page.len() >= count_max {
            *self.walk.lock().unwrap_or_else(PoisonError::into_inner) = Some(walk);
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::OsStorage;

    fn store() -> (tempfile::TempDir, LocalStore) {
        let directory = tempfile::tempdir().unwrap();
        let store = LocalStore::open(Arc::new(OsStorage), &directory.path().join("a/b"), "me").unwrap();
        (directory, store)
    }

    fn put(store: &LocalStore, path: &str, bytes: &'static [u8]) -> Result<PutEnd, ColdError> {
        store.put_new(path, Bytes::from_static(bytes))
    }

    /// B-042.
    #[test]
    fn an_object_is_written_once_and_never_replaced_and_no_other_file_stays() {
        let (directory, store) = store();
        assert_eq!(put(&store, "t/p0/1.json", b"one"), Ok(PutEnd::Created));
        assert_eq!(put(&store, "t/p0/1.json", b"two"), Ok(PutEnd::Exists));
        assert_eq!(store.get("t/p0/1.json", 3), Ok(Some(Bytes::from_static(b"one"))));
        assert_eq!(store.get("t/p0/2.json", 3), Ok(None));
        assert!(matches!(store.get("t/p0/1.json", 2), Err(ColdError::TooLarge { bytes: 3, bytes_max: 2, .. })));
        assert_eq!(std::fs::read_dir(directory.path().join("a/b/t/p0")).unwrap().count(), 1);
    }

    #[test]
    fn what_a_killed_process_left_is_taken_up_again() {
        let (directory, store) = store();
        let folder = directory.path().join("a/b/t");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("1.json.me.tmp"), b"half of something longer").unwrap();
        assert_eq!(put(&store, "t/1.json", b"one"), Ok(PutEnd::Created));
        assert_eq!(store.list_after("", "", 10).unwrap(), [Listed::object("t/1.json".to_owned(), 3)]);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn who_only_looks_leaves_nothing_behind_and_who_writes_makes_the_folder() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("a/b");
        let store = LocalStore::open_as_it_is(Arc::new(OsStorage), &root, "me").unwrap();
        assert_eq!(store.list_after("", "", 9), Ok(Vec::new()));
        assert_eq!(store.get("t/p0/1.json", 9), Ok(None));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert_eq!(put(&store, "t/p0/1.json", b"one"), Ok(PutEnd::Created));
        assert_eq!(store.list_after("", "", 9).unwrap().len(), 1);
    }

    #[test]
    fn a_listing_sees_what_was_written_between_its_pages() {
        let (_directory, store) = store();
        for path in ["t/1", "t/3", "t/4"] {
            put(&store, path, b"x").unwrap();
        }
        assert_eq!(store.list_after("t/", "", 1).unwrap()[0].path, "t/1");
        put(&store, "t/2", b"x").unwrap();
        assert_eq!(store.list_after("t/", "t/1", 1).unwrap()[0].path, "t/2");
        assert_eq!(store.list_after("t/", "t/2", 9).unwrap().len(), 2);
    }

    #[test]
    fn no_path_leads_out_of_the_folder_and_no_error_shows_where_it_is() {
        let (directory, store) = store();
        for path in ["", "/etc/x", "../x", "t/../../x", "t//x", "./x", "t/", "t\0x"] {
            let error = put(&store, path, b"x").unwrap_err();
            assert!(!error.to_string().contains(&*directory.path().to_string_lossy()), "{error}");
            assert!(store.get(path, 9).is_err(), "{path:?}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_listing_is_in_the_order_of_paths_and_goes_on_after_any_of_them() {
        let (_directory, store) = store();
        let mut paths = ["a/p0/2.json", "a/p0/1.json", "a/p10/1.json", "a/p2/1.json", "a.b/p0/1.json", "a-b/x", "b"];
        for path in paths {
            put(&store, path, b"x").unwrap();
        }
        paths.sort_unstable();
        let listed = |prefix: &str, after: &str, max| {
            store.list_after(prefix, after, max).unwrap().into_iter().map(|listed| listed.path).collect::<Vec<_>>()
        };
        assert_eq!(listed("", "", 100), paths);
        for (at, path) in paths.iter().enumerate() {
            assert_eq!(listed("", path, 2), paths[at + 1..].iter().copied().take(2).collect::<Vec<_>>(), "{path}");
        }
        assert_eq!(listed("a/p", "", 100), ["a/p0/1.json", "a/p0/2.json", "a/p10/1.json", "a/p2/1.json"]);
        assert_eq!(listed("a/p0/", "a/p0/1.json", 100), ["a/p0/2.json"]);
        assert!(listed("zz", "", 9).is_empty() && listed("a/p0/1.json/", "", 9).is_empty());
    }
}
