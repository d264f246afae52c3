//! A store of cold objects as the archive sees it: the seam at which tests make every call fail. Nothing here decides anything.
//!
//! A path is relative to the place that a `cold_uri` names: normal components joined by `/`. Calls block; each is bounded in time by the
//! store itself. There is no call that overwrites or removes.

use bytes::Bytes;

/// What a store said to [`ColdStore::put_new`]. Neither answer is proof of what lies there now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutEnd {
    /// The object was made, and is durable.
    Created,
    /// The store says that there is one already, or that another write was in the way. It may be ours, another one, or none.
    Exists,
}

/// One object of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its path.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// It is no object, and what it is: for whoever verifies, so that nothing is left out in silence. It cannot be read.
    pub stray: Option<&'static str>,
}

impl Listed {
    /// An object.
    pub const fn object(path: String, bytes: u64) -> Self {
        Self { path, bytes, stray: None }
    }
}

/// Objects that are written once and read back.
pub trait ColdStore: Send + Sync {
    /// Makes an object where nothing is, in one call, whole or not at all.
    ///
    /// # Errors
    /// [`ColdError`]; after [`ColdError::Timeout`] and [`ColdError::Failed`] it may be there all the same.
    fn put_new(&self, path: &str, bytes: Bytes) -> Result<PutEnd, ColdError>;

    /// Reads an object; none when there is none.
    ///
    /// # Errors
    /// [`ColdError::TooLarge`] above `bytes_max`, without reading it; else [`ColdError`].
    fn get(&self, path: &str, bytes_max: u64) -> Result<Option<Bytes>, ColdError>;

    /// Objects whose path begins with `prefix` and comes after `after`, in the order of their bytes, at most `count_max`. Fewer than that
    /// means that the store knows of no more. A stray may also be one that stands where a folder of the prefix should be. Only verification and restoring list: archiving needs no right to it.
    ///
    /// # Errors
    /// [`ColdError`].
    fn list_after(&self, prefix: &str, after: &str, count_max: usize) -> Result<Vec<Listed>, ColdError>;
}

/// Why a call of a store did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ColdError {
    /// No answer in time; it may have been done.
    #[error("cold store: {operation} of {object:?} took too long: connector operation timed out; it is tried again")]
    Timeout {
        /// What was asked for.
        operation: &'static str,
        /// The object's path.
        object: String,
    },
    /// The store cannot make an object only where nothing is.
    #[error(
        "cold store: it cannot create {object:?} only where nothing is ({reason}); use a store with conditional writes, or switch them on"
    )]
    Unconditional {
        /// The object's path.
        object: String,
        /// The store's words.
        reason: String,
    },
    /// The object is larger than the reader takes.
    #[error("cold store: {object:?} has {bytes} bytes, more than the {bytes_max} that one of ours can have")]
    TooLarge {
        /// The object's path.
        object: String,
        /// Its size.
        bytes: u64,
        /// The bound.
        bytes_max: u64,
    },
    /// Anything else.
    #[error("cold store: {operation} of {object:?} failed: {reason}")]
    Failed {
        /// What was asked for.
        operation: &'static str,
        /// The object's path.
        object: String,
        /// The store's or the system's words.
        reason: String,
    },
}
