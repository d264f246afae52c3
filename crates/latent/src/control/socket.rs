//! The socket file: made owner-only before anybody can find it, removed when the node stops.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use latent_core::LimitError;

use crate::data_dir::DataDir;
use crate::log::Log;

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    /// The data directory's path is too long for a socket address.
    #[error(transparent)]
    PathTooLong(#[from] LimitError),
    /// Something that is not a socket has the name.
    #[error("{} exists and is not a socket; remove it", .0.display())]
    Occupied(PathBuf),
    /// The system said no.
    #[error("{step} failed for the control socket: {source}")]
    Io {
        /// What was tried.
        step: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

/// A bound, listening socket. Dropping it removes the file; drop it before the log, whose lock says that the name is ours.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    /// Binds the socket of a data directory. `_owner` has the lock of that directory: it makes a socket file that is still
    /// there a leftover, which is replaced.
    ///
    /// # Errors
    /// [`SocketError`]; nothing of ours is left behind.
    pub(crate) fn bind(dir: &DataDir, _owner: &Log) -> Result<Self, SocketError> {
        dir.check_socket_path()?;
        let path = dir.control_socket();
        refuse_other_files(&path)?;
        // Made in a directory that only we can enter, then moved: at no moment can another user reach a socket with wider rights.
        let nursery = Nursery::create(dir.log())?;
        let cradle = nursery.0.join("s");
        let listener = UnixListener::bind(&cradle).map_err(|source| SocketError::Io { step: "binding", source })?;
        let owner_only = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&cradle, owner_only).map_err(|source| SocketError::Io { step: "setting the rights", source })?;
        listener.set_nonblocking(true).map_err(|source| SocketError::Io { step: "setting up", source })?;
        std::fs::rename(&cradle, &path).map_err(|source| SocketError::Io { step: "naming", source })?;
        Ok(Self { listener, path })
    }

    /// The listener, non-blocking.
    pub(super) fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // A file that stays is replaced by the next node.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn refuse_other_files(path: &Path) -> Result<(), SocketError> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => Err(SocketError::Occupied(path.to_owned())),
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(SocketError::Io { step: "looking", source }),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// An owner-only directory whose name is as short as the socket's own, so that one bound on paths serves both.
struct Nursery(PathBuf);

impl Nursery {
    fn create(parent: &Path) -> Result<Self, SocketError> {
        let failed = |source| SocketError::Io { step: "creating a directory", source };
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(|error| failed(io::Error::other(error.to_string())))?;
        let name = format!(".c{:08x}", u32::from_le_bytes(random));
        let path = parent.join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        Ok(Self(path))
    }
}

impl Drop for Nursery {
    fn drop(&mut self) {
        // An empty directory that stays harms nobody.
        let _ = std::fs::remove_file(self.0.join("s"));
        let _ = std::fs::remove_dir(&self.0);
    }
}
