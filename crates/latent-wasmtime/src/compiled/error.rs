//! Why a cache directory is not used.

use std::path::{Path, PathBuf};

use latent_core::LimitError;

/// Why a cache of compiled components could not be opened. Once it is open nothing fails because of it: what cannot be kept is compiled
/// again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompiledCacheError {
    /// The bound lies outside its limit.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The path is a file or a symbolic link.
    #[error(
        "`{}` is not a directory, or is a symbolic link; compiled code is kept in a directory of its own: name that, or remove this",
        path.display()
    )]
    NotADirectory {
        /// The path given.
        path: PathBuf,
    },
    /// Directory or key file belong to somebody else, who could put code into them.
    #[error(
        "`{}` belongs to user {owner}, not to user {user} who runs this; compiled code is trusted only where nobody else can write: \
         choose a directory of your own, or change its owner",
        path.display()
    )]
    Foreign {
        /// Directory or key file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Who runs this process.
        user: u32,
    },
    /// The directory is open to others.
    #[error(
        "`{}` is open to other users (mode {mode:03o}); compiled code is trusted only where nobody else can write: \
         remove what it holds, then `chmod 700` it",
        path.display()
    )]
    DirectoryOpen {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The key file is open to others, who may know it now.
    #[error(
        "the key file `{}` is open to other users (mode {mode:03o}) and may be known to them; remove it: a new one is made, and components \
         are compiled again",
        path.display()
    )]
    KeyOpen {
        /// The key file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// What lies in the key's place is no key.
    #[error("the key file `{}` is not a file of {expected} bytes; remove it: a new one is made, and components are compiled again", path.display())]
    KeyMalformed {
        /// The key file.
        path: PathBuf,
        /// Bytes that a key has.
        expected: usize,
    },
    /// A file operation failed.
    #[error("`{}` could not be {action}: {detail}; look at the disk and at the permissions of the directories above", path.display())]
    Io {
        /// Directory or key file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        detail: String,
    },
}

impl CompiledCacheError {
    pub(super) fn io(action: &'static str, path: &Path, error: &std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), action, detail: error.to_string() }
    }
}
