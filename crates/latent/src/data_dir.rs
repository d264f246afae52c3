//! Where things lie in a node's data directory.
//!
//! The directory is the embedded log's directory: whoever holds the log's lock owns everything below it. A node whose topics are on a
//! broker takes the same lock, so that no two nodes share a directory, whatever their engines. Other parts of the node add
//! subdirectories of their own; the control socket lies at the top.

use std::path::{Path, PathBuf};

use latent_bridge::BusError;
use latent_bridge::embedded::DirectoryLock;
use latent_core::LimitError;

use crate::limits;

const CONTROL_SOCKET: &str = "control.sock";
const AUDIT: &str = "audit";

/// A node's data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DataDir {
    root: PathBuf,
}

impl DataDir {
    /// The directory at `root`, there or not.
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Where the log is.
    pub(crate) fn log(&self) -> &Path {
        &self.root
    }

    /// Makes the directory if it is not there, and takes its lock: for a node without a log in it.
    ///
    /// # Errors
    /// [`BusError::InUse`] naming the holder; [`BusError::Io`].
    pub(crate) fn take(&self, holder: &str) -> Result<DirectoryLock, BusError> {
        DirectoryLock::of_directory(&self.root, holder)
    }

    /// The components that the node's services are made of, by digest.
    pub(crate) fn components(&self) -> PathBuf {
        self.root.join("components")
    }

    /// Their compiled code.
    pub(crate) fn compiled(&self) -> PathBuf {
        self.root.join("compiled")
    }

    /// The socket of a running node.
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.root.join(CONTROL_SOCKET)
    }

    /// The directory of the audit files.
    pub(crate) fn audit(&self) -> PathBuf {
        self.root.join(AUDIT)
    }

    /// Checks that the socket's path fits a socket address.
    ///
    /// # Errors
    /// The limit, with the bytes the path has.
    pub(crate) fn check_socket_path(&self) -> Result<(), LimitError> {
        check_socket_path_bytes(self.control_socket().as_os_str().len())
    }
}

fn check_socket_path_bytes(bytes: usize) -> Result<(), LimitError> {
    let limit = latent_core::Limit { min: 0, ..limits::SOCKET_PATH_BYTES };
    limit.check(bytes as u64).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_path_is_accepted_at_its_bound_and_refused_one_beyond() {
        let name = CONTROL_SOCKET.len() + 1;
        let of = |bytes: usize| DataDir::new(Path::new(&"d".repeat(bytes - name))).check_socket_path().is_ok();
        assert_eq!([102, 103, 104].map(of), [true, true, false]);
    }
}
