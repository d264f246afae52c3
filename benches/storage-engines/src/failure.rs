//! What can go wrong with a measurement. Every failure ends the run: a figure next to a failure would be no figure.

use std::io;
use std::path::PathBuf;

use latent_bridge::BusError;
use latent_core::CoreError;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{what}")]
    Io { what: String, source: io::Error },
    #[error("the folder {folder} is on {kind}, where a sync costs nothing; choose one on a disk with --stores-in")]
    NotOnADisk { folder: PathBuf, kind: String },
    #[error("no engine is called {name:?}; there are: {known}")]
    UnknownEngine { name: String, known: String },
    #[error("{engine} cannot {what}")]
    Unsupported { engine: &'static str, what: &'static str },
    #[error("{engine} returned {found} records of {expected}")]
    WrongCount { engine: String, expected: u64, found: u64 },
    #[error("a record is not one of ours: {problem}")]
    ForeignRecord { problem: &'static str },
    #[error("{program} ended with {status}: {message}")]
    Child { program: String, status: String, message: String },
    #[error("{engine} failed {failed} checks")]
    CheckFailed { engine: String, failed: usize },
    #[error("a publisher of the same group failed")]
    GroupFailed,
    #[error("sqlite")]
    Sqlite(#[from] rusqlite::Error),
    #[error("fjall")]
    Fjall(#[from] fjall::Error),
    #[error("redb")]
    Redb(#[source] Box<redb::Error>),
    #[error("latent-bridge")]
    Bus(#[from] BusError),
    #[error("an event was refused")]
    Core(#[from] CoreError),
    #[error("a payload is no JSON")]
    Json(#[from] serde_json::Error),
}

impl Failure {
    /// For `map_err`: names what was done to a file.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// For `map_err`: redb has an error type for each operation.
    pub(crate) fn redb(error: impl Into<redb::Error>) -> Self {
        Self::Redb(Box::new(error.into()))
    }
}
