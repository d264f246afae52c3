//! The folder of a run: on a disk, and gone afterwards.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::failed;
use crate::error::CliError;

/// File systems in memory, where a sync does nothing.
const IN_MEMORY: &[&str] = &["tmpfs", "ramfs", "devtmpfs"];
/// Names that are tried for the folder: an earlier process with our number may have left one.
const NAMES_MAX: u32 = 100;

/// Whether a folder in memory will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    Refused,
    Allowed,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Scratch {
    root: PathBuf,
    file_system: String,
}

impl Scratch {
    /// A new folder in `parent`.
    ///
    /// # Errors
    /// [`CliError::Value`] for a parent that is not there or in memory: everything would look fast there.
    pub(super) fn create(parent: &Path, memory: Memory) -> Result<Self, CliError> {
        let unusable = |reason| CliError::Value { option: "--dir", reason };
        let parent = parent.canonicalize().map_err(|error| unusable(format!("{}: {error}", parent.display())))?;
        // Where there is no such list, nothing is known of the file system.
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let file_system = file_system_of(&parent, &mounts).unwrap_or("an unknown file system").to_owned();
        if memory == Memory::Refused && IN_MEMORY.contains(&&*file_system) {
            let problem =
                "which is in memory: a sync costs nothing there. Name a folder on a disk, or add --allow-memory to try the command";
            return Err(unusable(format!("{} is on {file_system}, {problem}", parent.display())));
        }
        let process = std::process::id();
        for number in 0..NAMES_MAX {
            let root = parent.join(format!("latent-bench-{process}-{number}"));
            match std::fs::create_dir(&root) {
                Ok(()) => return Ok(Self { root, file_system }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(unusable(format!("no folder can be made in {}: {error}", parent.display()))),
            }
        }
        Err(unusable(format!("{} is full of folders latent-bench-{process}-…; remove them", parent.display())))
    }

    /// The kind of file system.
    pub(super) fn file_system(&self) -> &str {
        &self.file_system
    }

    /// The folder itself.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// A new folder in it.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf, CliError> {
        let folder = self.root.join(name);
        std::fs::create_dir(&folder).map_err(failed(format!("making {}", folder.display())))?;
        Ok(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.root);
    }
}

/// Removes the folder of a run. Nobody is left to tell of a failure but the operator, who sees the folder.
pub(super) fn remove(root: &Path) {
    let _ = std::fs::remove_dir_all(root);
}

/// The kind of the innermost mount that holds `folder`; of two at one place the later one covers the other.
fn file_system_of<'m>(folder: &Path, mounts: &'m str) -> Option<&'m str> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((Path::new(fields.next()?), fields.next()?))
    });
    let holding = mounts.filter(|(place, _)| folder.starts_with(place));
    holding.max_by_key(|(place, _)| place.components().count()).map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_and_latest_mount_counts() {
        let mounts = "/dev/a / ext4 rw 0 0\nnone /run tmpfs rw 0 0\n/dev/b /run/data xfs rw 0 0\n/dev/c /run/data btrfs rw 0 0\n";
        for (folder, kind) in [("/data", "ext4"), ("/run/x", "tmpfs"), ("/run/data/x", "btrfs"), ("/running", "ext4")] {
            assert_eq!(file_system_of(Path::new(folder), mounts), Some(kind), "{folder}");
        }
        assert_eq!(file_system_of(Path::new("/data"), ""), None);
    }

    #[test]
    fn two_runs_have_folders_of_their_own_which_go_with_them() {
        let parent = tempfile::tempdir().unwrap();
        let (one, other) =
            (Scratch::create(parent.path(), Memory::Allowed).unwrap(), Scratch::create(parent.path(), Memory::Allowed).unwrap());
        assert_ne!(one.root(), other.root());
        std::fs::write(one.folder("inner").unwrap().join("file"), "x").unwrap();
        drop((one, other));
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_parent_that_is_not_there_is_a_wrong_value() {
        let error = Scratch::create(Path::new("no/such/folder"), Memory::Allowed).unwrap_err();
        assert!(matches!(error, CliError::Value { option: "--dir", .. }), "{error:?}");
    }
}
