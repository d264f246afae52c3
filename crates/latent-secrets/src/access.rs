//! Who may read a file or enter a directory: its owner alone, and we are the owner.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::AccessProblem;

/// The bits of a mode that let somebody else in.
const OTHERS: u32 = 0o077;

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    File,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::File => "regular file",
        }
    }

    const fn mode(self) -> &'static str {
        match self {
            Self::Directory => "700",
            Self::File => "600",
        }
    }
}

/// Checks what was opened, not a path that may since name something else.
pub(crate) fn owner_only(path: &Path, metadata: &Metadata, kind: Kind) -> Result<(), AccessProblem> {
    owner_only_for(path, metadata, kind, rustix::process::geteuid().as_raw())
}

fn owner_only_for(path: &Path, metadata: &Metadata, kind: Kind, ours: u32) -> Result<(), AccessProblem> {
    let is_kind = if kind == Kind::Directory { metadata.is_dir() } else { metadata.is_file() };
    if !is_kind {
        return Err(AccessProblem::Kind { expected: kind.word() });
    }
    if metadata.uid() != ours {
        let command = format!("chown {ours} {}", quoted(path));
        return Err(AccessProblem::Owner { owner: metadata.uid(), ours, command });
    }
    let mode = metadata.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(AccessProblem::Mode { mode, command: format!("chmod {} {}", kind.mode(), quoted(path)) });
    }
    Ok(())
}

/// What the system's refusal to open a path means.
pub(crate) fn refused(path: &Path, error: rustix::io::Errno, kind: Kind) -> Option<AccessProblem> {
    use rustix::io::Errno;
    let is_link = path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
    match error {
        Errno::NOENT => Some(AccessProblem::Missing),
        Errno::LOOP | Errno::NOTDIR if is_link => Some(AccessProblem::Symlink),
        Errno::NOTDIR | Errno::NXIO => Some(AccessProblem::Kind { expected: kind.word() }),
        _ => None,
    }
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'-' | b'_');
    if !text.is_empty() && text.bytes().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn every_bit_that_lets_somebody_else_in_is_refused_with_the_command_to_run() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a file's");
        std::fs::write(&path, b"").unwrap();
        for bit in 0..9 {
            let mode = 0o600 | (1 << bit);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let checked = owner_only(&path, &path.metadata().unwrap(), Kind::File);
            if bit >= 6 {
                assert_eq!(checked, Ok(()), "{mode:o}");
            } else {
                let command = format!("chmod 600 '{}/a file'\\''s'", temp.path().display());
                assert_eq!(checked, Err(AccessProblem::Mode { mode, command }), "{mode:o}");
            }
        }
    }

    #[test]
    fn what_belongs_to_somebody_else_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let metadata = temp.path().metadata().unwrap();
        let other = metadata.uid() + 1;
        let refused = owner_only_for(temp.path(), &metadata, Kind::Directory, other).unwrap_err();
        assert!(matches!(refused, AccessProblem::Owner { owner, ours, .. } if owner == metadata.uid() && ours == other));
    }
}
