//! Looking at files: their stamps, in a bounded number, without what is made and not written.
//!
//! Left out are folders that say that they can be made again (`CACHEDIR.TAG`, as cargo's target folders do), `target` itself, what a
//! node keeps, names that begin with a dot (`.cargo` apart) or end with `~`, and what is watched as something else. Folders behind links are not
//! entered, so that there is no way round in a circle. What cannot be read counts as not there.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::foreman::{Snapshot, Stamp};
use crate::limits;

/// Folders of what can be made again.
const MADE: &[&str] = &["target", "node_modules"];
/// The one name with a dot that is a source.
const CARGO: &str = ".cargo";
/// In a folder, says that its content can be made again.
const CACHE_TAG: &str = "CACHEDIR.TAG";

/// What is looked at together.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    /// Folders, with everything below them.
    pub(super) folders: BTreeSet<PathBuf>,
    /// Single files.
    pub(super) files: BTreeSet<PathBuf>,
    /// Files and folders below that are no part of it.
    pub(super) except: BTreeSet<PathBuf>,
}

/// What was seen of a place.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Its files.
    pub(super) files: Snapshot,
    /// True when there was more than may be looked at.
    pub(super) is_cut: bool,
}

/// Looks at every file of a place.
pub(super) fn look(place: &Place) -> Seen {
    look_within(place, limits::DEV_WATCHED_FILES.max_usize())
}

fn look_within(place: &Place, entries_max: usize) -> Seen {
    let mut seen = Seen::default();
    seen.files.extend(place.files.iter().filter_map(|file| Some((file.clone(), stamp(file)?))));
    let mut open: Vec<PathBuf> = place.folders.iter().rev().cloned().collect();
    let mut entries = 0;
    while let Some(folder) = open.pop() {
        // In the order of names, so that what is beyond the bound is the same each time.
        let mut paths: Vec<_> = fs::read_dir(&folder).into_iter().flatten().flatten().take(entries_max + 1).collect();
        paths.sort_by_key(fs::DirEntry::file_name);
        let mut below = Vec::new();
        for entry in paths {
            let path = entry.path();
            if is_left_out(&path) || place.except.contains(&path) {
                continue;
            }
            entries += 1;
            if entries > entries_max {
                seen.is_cut = true;
                return seen;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => below.push(path),
                Ok(_) => seen.files.extend(stamp(&path).map(|stamp| (path, stamp))),
                Err(_) => {}
            }
        }
        open.extend(below.into_iter().rev().filter(|folder| !folder.join(CACHE_TAG).exists()));
    }
    seen
}

fn is_left_out(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return true };
    (name.starts_with('.') && name != CARGO) || name.ends_with('~') || MADE.contains(&name)
}

/// `None` for what is no file, or is not there.
fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some(Stamp { place: (metadata.dev(), metadata.ino()), bytes: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these files, each with its own name as content.
    fn folder(files: &[&str]) -> tempfile::TempDir {
        let temp = tempfile::tempdir().unwrap();
        for file in files {
            let path = temp.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        temp
    }

    fn whole(folder: &Path) -> Place {
        Place { folders: BTreeSet::from([folder.to_owned()]), ..Place::default() }
    }

    fn names(seen: &Seen, root: &Path) -> Vec<String> {
        seen.files.keys().map(|path| path.strip_prefix(root).unwrap().display().to_string()).collect()
    }

    #[test]
    fn what_is_written_is_seen_and_what_is_made_is_not() {
        let temp = folder(&[
            ".cargo/config.toml",
            ".git/HEAD",
            ".lib.rs.swp",
            "Cargo.toml",
            "data/log",
            "latent.toml",
            "made/CACHEDIR.TAG",
            "made/a.wasm",
            "node_modules/x.js",
            "src/deep/down.rs",
            "src/lib.rs",
            "src/lib.rs~",
            "target/a.d",
        ]);
        let root = temp.path();
        std::os::unix::fs::symlink(root, root.join("src/round")).unwrap();
        let place = Place { except: ["data", "latent.toml"].iter().map(|name| root.join(name)).collect(), ..whole(root) };
        let seen = look(&place);
        assert_eq!(names(&seen, root), [".cargo/config.toml", "Cargo.toml", "src/deep/down.rs", "src/lib.rs"]);
        assert!(!seen.is_cut);
    }

    #[test]
    fn every_kind_of_change_changes_what_is_seen() {
        let temp = folder(&["a.rs", "b.rs"]);
        let place = whole(temp.path());
        let mut before = look(&place).files;
        let replace = |name: &str| {
            fs::write(temp.path().join("new"), "same").unwrap();
            fs::rename(temp.path().join("new"), temp.path().join(name)).unwrap();
        };
        let changes: [(&str, &dyn Fn()); 4] = [
            ("longer", &|| fs::write(temp.path().join("a.rs"), "longer").unwrap()),
            ("replaced", &|| replace("b.rs")),
            ("new", &|| fs::write(temp.path().join("c.rs"), "").unwrap()),
            ("gone", &|| fs::remove_file(temp.path().join("a.rs")).unwrap()),
        ];
        for (name, change) in changes {
            change();
            let after = look(&place).files;
            assert_ne!(before, after, "{name}");
            before = after;
        }
        assert_eq!(look(&place).files, before);
        fs::hard_link(temp.path().join("b.rs"), temp.path().join(".another-name")).unwrap();
        assert_eq!(look(&place).files, before, "another name changes nothing");
    }

    #[test]
    fn a_place_is_whole_at_the_bound_and_cut_one_beyond() {
        let temp = folder(&["a/1.rs", "b.rs"]);
        let place = whole(temp.path());
        assert!(!look_within(&place, 4).is_cut);
        let exact = look_within(&place, 3);
        assert_eq!((exact.files.len(), exact.is_cut), (2, false));
        let cut = look_within(&place, 2);
        assert_eq!((names(&cut, temp.path()), cut.is_cut), (vec!["b.rs".to_owned()], true));
    }

    #[test]
    fn what_is_not_there_is_not_seen_and_no_error() {
        let temp = folder(&[]);
        let missing = temp.path().join("missing");
        let place = Place { folders: BTreeSet::from([missing.clone()]), files: BTreeSet::from([missing]), ..Place::default() };
        assert!(look(&place).files.is_empty());
    }
}
