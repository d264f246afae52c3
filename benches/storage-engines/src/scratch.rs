//! Folders for the stores that are measured: on a disk, and gone afterwards.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::failure::Failure;

/// File systems in memory, where a sync does nothing.
const IN_MEMORY: &[&str] = &["tmpfs", "ramfs", "devtmpfs"];

/// Where folders are made.
pub(crate) struct Scratch {
    root: PathBuf,
    file_system: String,
}

impl Scratch {
    /// Folders will be made in `root`.
    ///
    /// # Errors
    /// [`Failure::NotOnADisk`] for a folder in memory: everything would look fast there.
    pub(crate) fn in_folder(root: &Path) -> Result<Self, Failure> {
        let root = root.canonicalize().map_err(Failure::io(format!("find the folder {}", root.display())))?;
        let mounts = std::fs::read_to_string("/proc/self/mounts").map_err(Failure::io("read the list of mounts"))?;
        let file_system = file_system_of(&root, &mounts).unwrap_or("unknown").to_owned();
        if IN_MEMORY.contains(&&*file_system) {
            return Err(Failure::NotOnADisk { folder: root, kind: file_system });
        }
        Ok(Self { root, file_system })
    }

    /// The kind of file system.
    pub(crate) fn file_system(&self) -> &str {
        &self.file_system
    }

    /// A new folder.
    pub(crate) fn folder(&self) -> Result<TempDir, Failure> {
        TempDir::with_prefix_in("storage-engines-", &self.root).map_err(Failure::io("create a folder"))
    }
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
    }
}
