//! Listing a folder in the order of its paths, page by page, where each directory is read once for many pages. What cannot be an object is
//! told as a stray and never opened: links are not followed and pipes are not waited for.
//!
//! Of a directory the nearest names behind the last one are kept, at most `window` of them: memory has a bound, and a directory with no
//! more names than that is read once.

use std::collections::{BinaryHeap, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::store::Listed;
use crate::embedded::{PathKind, Storage};

/// Ends the name of a file that is being written.
pub(super) const TEMPORARY: &str = ".tmp";
/// Folders above an object: the topic's and the partition's.
const FOLDERS: usize = 2;

/// Where a listing goes on.
pub(super) struct Walk {
    prefix: String,
    /// Of the last name that was told.
    after: String,
    /// From the root down to where it is.
    frames: Vec<Frame>,
}

/// A directory that is being listed.
struct Frame {
    /// Empty, or ends with `/`.
    folder: String,
    /// In order.
    names: VecDeque<Found>,
    /// What is behind this name was not read yet.
    unread_behind: Option<String>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    /// Of a folder with `/` at its end, so that the order is that of whole paths.
    path: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Folder,
    Object,
    Stray(&'static str),
}

/// What is listed.
#[derive(Clone, Copy)]
pub(super) struct Folder<'f> {
    pub(super) storage: &'f dyn Storage,
    pub(super) root: &'f Path,
    /// Names of one directory that are kept at once.
    pub(super) window: usize,
}

impl Walk {
    pub(super) fn new(prefix: &str, after: &str) -> Self {
        Self { prefix: prefix.to_owned(), after: after.to_owned(), frames: vec![Frame::unread(String::new())] }
    }

    /// Whether what is asked for is what comes next.
    pub(super) fn goes_on(&self, prefix: &str, after: &str) -> bool {
        self.prefix == prefix && self.after == after
    }

    /// The next `count_max`; fewer at the end.
    pub(super) fn page(&mut self, of: Folder<'_>, count_max: usize) -> io::Result<Vec<Listed>> {
        let mut out = Vec::new();
        while out.len() < count_max
            && let Some(frame) = self.frames.last_mut()
        {
            let Some(found) = frame.names.pop_front() else {
                let Some(behind) = frame.unread_behind.take() else {
                    self.frames.pop();
                    continue;
                };
                let wanted = Wanted { prefix: &self.prefix, after: &self.after, folder: &frame.folder, behind: &behind };
                (frame.names, frame.unread_behind) = wanted.read(of)?;
                continue;
            };
            match found.kind {
                Kind::Folder => self.frames.push(Frame::unread(found.path)),
                Kind::Object => out.extend(listed(of, found.path)?),
                Kind::Stray(what) => out.push(Listed { path: found.path, bytes: 0, stray: Some(what) }),
            }
        }
        if let Some(last) = out.last() {
            self.after.clone_from(&last.path);
        }
        Ok(out)
    }
}

impl Frame {
    fn unread(folder: String) -> Self {
        Self { folder, names: VecDeque::new(), unread_behind: Some(String::new()) }
    }
}

struct Wanted<'w> {
    prefix: &'w str,
    after: &'w str,
    folder: &'w str,
    behind: &'w str,
}

impl Wanted<'_> {
    /// The nearest names behind `behind`, and the last of them if there are more.
    fn read(&self, of: Folder<'_>) -> io::Result<(VecDeque<Found>, Option<String>)> {
        let mut nearest = BinaryHeap::new();
        let mut has_more = false;
        let visited = of.storage.visit(&of.root.join(self.folder), &mut |name, kind| {
            let Some(found) = self.found(name, kind).filter(|found| *found.path > *self.behind) else { return };
            nearest.push(found);
            if nearest.len() > of.window {
                nearest.pop();
                has_more = true;
            }
        });
        match visited {
            // Gone since it was seen; or the whole archive is not there yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((VecDeque::new(), None)),
            visited => visited?,
        }
        let last = nearest.peek().map(|last| last.path.clone()).filter(|_| has_more);
        Ok((nearest.into_sorted_vec().into(), last))
    }

    fn found(&self, name: &OsStr, kind: PathKind) -> Option<Found> {
        let path = |name: &str| format!("{}{name}", self.folder);
        let Some(text) = name.to_str() else {
            return self.stray(path(&name.as_bytes().escape_ascii().to_string()), "its name is not UTF-8");
        };
        match kind {
            PathKind::Missing => None,
            PathKind::Directory if self.folder.matches('/').count() >= FOLDERS => {
                self.stray(path(text), "it is a folder, where only objects can be")
            }
            PathKind::Directory => {
                let path = path(text) + "/";
                self.may_be_below(&path).then_some(Found { path, kind: Kind::Folder })
            }
            PathKind::File if text.ends_with(TEMPORARY) => None,
            PathKind::File => {
                let path = path(text);
                (path.starts_with(self.prefix) && *path > *self.after).then_some(Found { path, kind: Kind::Object })
            }
            PathKind::Unusual => self.stray(path(text), "it is a link, a pipe, a socket or a device, and no file"),
        }
    }

    /// One that stands where a folder above the prefix should be hides what is asked for.
    fn stray(&self, path: String, what: &'static str) -> Option<Found> {
        let is_above = || self.prefix.strip_prefix(&path).is_some_and(|rest| rest.starts_with('/'));
        let is_wanted = *path > *self.after && (path.starts_with(self.prefix) || is_above());
        is_wanted.then_some(Found { path, kind: Kind::Stray(what) })
    }

    /// Whether a path below `folder` can begin with the prefix and come after `after`.
    fn may_be_below(&self, folder: &str) -> bool {
        let meets = folder.starts_with(self.prefix) || self.prefix.starts_with(folder);
        meets && (folder > self.after || self.after.starts_with(folder))
    }
}

/// None when it is gone meanwhile.
fn listed(of: Folder<'_>, path: String) -> io::Result<Option<Listed>> {
    match std::fs::symlink_metadata(of.root.join(&path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => Ok(Some(Listed::object(path, found?.len()))),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::embedded::{OpenAs, OsStorage, StorageFile};

    /// Counts how often a directory is read.
    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Storage for Counting {
        fn open(&self, path: &Path, how: OpenAs) -> io::Result<Arc<dyn StorageFile>> {
            OsStorage.open(path, how)
        }
        fn kind(&self, path: &Path) -> io::Result<PathKind> {
            OsStorage.kind(path)
        }
        fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
            OsStorage.list(directory)
        }
        fn visit(&self, directory: &Path, tell: &mut dyn FnMut(&OsStr, PathKind)) -> io::Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            OsStorage.visit(directory, tell)
        }
        fn create_directory(&self, path: &Path) -> io::Result<()> {
            OsStorage.create_directory(path)
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            OsStorage.rename(from, to)
        }
        fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
            OsStorage.hard_link(from, to)
        }
        fn remove_file(&self, path: &Path) -> io::Result<()> {
            OsStorage.remove_file(path)
        }
        fn sync_directory(&self, path: &Path) -> io::Result<()> {
            OsStorage.sync_directory(path)
        }
    }

    fn files(root: &Path, count: usize) -> Vec<String> {
        std::fs::create_dir_all(root.join("t/p0")).unwrap();
        let paths: Vec<_> = (0..count).map(|n| format!("t/p0/{n:020}.json")).collect();
        paths.iter().for_each(|path| std::fs::write(root.join(path), "x").unwrap());
        paths
    }

    fn all(walk: &mut Walk, of: Folder<'_>, page: usize) -> Vec<Listed> {
        let mut out = Vec::new();
        loop {
            let listed = walk.page(of, page).unwrap();
            let is_last = listed.len() < page;
            out.extend(listed);
            if is_last {
                return out;
            }
        }
    }

    #[test]
    fn a_directory_is_read_once_for_all_of_its_pages() {
        let root = tempfile::tempdir().unwrap();
        let paths = files(root.path(), 120);
        let storage = Counting::default();
        let of = Folder { storage: &storage, root: root.path(), window: 1_000 };
        let listed = all(&mut Walk::new("", ""), of, 7);
        assert_eq!(listed.into_iter().map(|listed| listed.path).collect::<Vec<_>>(), paths);
        assert_eq!(storage.0.load(Ordering::Relaxed), 3, "root, topic and partition, each once");
    }

    #[test]
    fn what_is_kept_of_a_directory_is_bounded_and_the_order_stays() {
        let root = tempfile::tempdir().unwrap();
        let paths = files(root.path(), 25);
        let storage = Counting::default();
        let of = Folder { storage: &storage, root: root.path(), window: 10 };
        let mut walk = Walk::new("t/", "");
        let most = Cell::new(0);
        let mut told = Vec::new();
        while let Some(one) = walk.page(of, 1).unwrap().pop() {
            most.set(most.get().max(walk.frames.iter().map(|frame| frame.names.len()).sum()));
            told.push(one.path);
        }
        assert_eq!(told, paths);
        assert!(most.get() <= 10, "{} names were kept", most.get());
        assert_eq!(storage.0.load(Ordering::Relaxed), 2 + 3, "25 names in windows of 10");
    }

    #[test]
    fn what_is_no_object_is_told_and_neither_opened_nor_followed() {
        let (root, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        files(root.path(), 1);
        files(elsewhere.path(), 3);
        let partition = root.path().join("t/p0");
        std::os::unix::fs::symlink(elsewhere.path().join("t"), root.path().join("linked")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", partition.join(format!("{:020}.json", 1))).unwrap();
        let pipe = std::process::Command::new("mkfifo").arg(partition.join(format!("{:020}.json", 2))).status().unwrap();
        assert!(pipe.success());
        std::fs::create_dir(partition.join(format!("{:020}.json", 3))).unwrap();
        std::fs::write(partition.join(OsStr::from_bytes(b"\xff\n.json")), "x").unwrap();
        std::fs::write(partition.join("x.json.me.tmp"), "x").unwrap();
        let of = Folder { storage: &OsStorage, root: root.path(), window: 100 };
        let told = all(&mut Walk::new("", ""), of, 2);
        let strays: Vec<_> = told.iter().filter(|listed| listed.stray.is_some()).map(|listed| &*listed.path).collect();
        let expected = ["linked", "t/p0/00000000000000000001.json", "t/p0/00000000000000000002.json", "t/p0/00000000000000000003.json"];
        assert_eq!(strays[..4], expected);
        assert_eq!(strays[4..], ["t/p0/\\xff\\n.json"]);
        assert_eq!(told.len(), 6);
        assert!(told.is_sorted_by(|one, other| one.path < other.path));
        let below: Vec<_> = all(&mut Walk::new("linked/p0/", ""), of, 9).into_iter().map(|listed| listed.path).collect();
        assert_eq!(below, ["linked"], "what stands in the way of a prefix");
    }
}
