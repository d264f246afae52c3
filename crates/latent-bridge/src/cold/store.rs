//! A store of cold objects as the archive sees it: the seam at which tests make every call fail. Nothing here decides anything.
//!
//! A path is relative to the place that a `cold_uri` names: normal components joined by `/`. Calls block; each is bounded in time by the
//! store itself. There is no call that overwrites or removes.

use bytes::Bytes;

use crate::limits;

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
    /// means that the store knows of no more. A stray may also be one that stands where a folder of the prefix should be. Archiving event by event never lists and needs no right to it; segments, verification
    /// and restoring do.
    ///
    /// # Errors
    /// [`ColdError`].
    fn list_after(&self, prefix: &str, after: &str, count_max: usize) -> Result<Vec<Listed>, ColdError>;
}

/// Everything below a prefix, in the order of paths, page after page. Nothing but one page is held.
///
/// # Errors
/// What `each` says, which ends it; [`ColdError`] of the store, also where names do not ascend, which would go on for ever.
pub(super) fn each_listed<E: From<ColdError>>(
    store: &dyn ColdStore,
    prefix: &str,
    mut each: impl FnMut(Listed) -> Result<(), E>,
) -> Result<(), E> {
    let (mut after, page_max) = (String::new(), limits::ARCHIVE_LIST_PAGE.default_usize());
    loop {
        let page = store.list_after(prefix, &after, page_max)?;
        let Some(last) = page.last() else { return Ok(()) };
        if last.path <= after {
            let reason = "the store lists names that do not come after the one asked for".to_owned();
            return Err(ColdError::Failed { operation: "list", object: prefix.to_owned(), reason }.into());
        }
        after.clone_from(&last.path);
        let is_last = page.len() < page_max;
        page.into_iter().try_for_each(&mut each)?;
        if is_last {
            return Ok(());
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives the same page whatever is asked for.
    struct Standing;

    impl ColdStore for Standing {
        fn put_new(&self, _: &str, _: Bytes) -> Result<PutEnd, ColdError> {
            Ok(PutEnd::Exists)
        }

        fn get(&self, _: &str, _: u64) -> Result<Option<Bytes>, ColdError> {
            Ok(None)
        }

        fn list_after(&self, _: &str, _: &str, count_max: usize) -> Result<Vec<Listed>, ColdError> {
            Ok((0..count_max).map(|number| Listed::object(format!("{number:05}"), 1)).collect())
        }
    }

    #[test]
    fn a_listing_that_goes_round_in_a_circle_ends() {
        let mut seen = 0;
        let ended = each_listed::<ColdError>(&Standing, "", |_| {
            seen += 1;
            Ok(())
        });
        assert!(matches!(&ended, Err(ColdError::Failed { operation: "list", .. })), "{ended:?}");
        assert_eq!(seen, limits::ARCHIVE_LIST_PAGE.default_usize());
    }
}
