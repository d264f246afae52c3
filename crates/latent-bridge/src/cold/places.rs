//! From a `cold_uri` to its store (B-028, B-069, B-071): which kinds this build knows, and what each needs.

use std::path::Path;
use std::sync::Arc;

use super::local::LocalStore;
use super::store::ColdStore;
use crate::embedded::{OsStorage, Storage};
use crate::{BridgeManifest, BusError};

/// Opens the stores that `cold_uri`s name. The seam at which an embedder or a test brings stores of its own.
pub trait ColdStores: Send + Sync {
    /// The store at `uri`. Nothing is written yet but a folder that is not there.
    ///
    /// # Errors
    /// [`BusError::Config`] saying what is wrong with it.
    fn open(&self, uri: &str) -> Result<Arc<dyn ColdStore>, BusError>;

    /// Whether a store can be opened at `uri`, without touching anything.
    ///
    /// # Errors
    /// As [`ColdStores::open`].
    fn check(&self, uri: &str) -> Result<(), BusError>;
}

/// The kinds of places that this build knows.
enum Place<'u> {
    Folder(&'u str),
    #[cfg(feature = "cold-store-aws")]
    S3(&'u str),
}

/// A store that this build cannot reach is refused, not ignored: its events would be lost.
fn place(uri: &str) -> Result<Place<'_>, BusError> {
    let refused = |problem: &str| Err(BusError::Config { problem: format!("retention.cold_uri {uri:?}: {problem}") });
    match uri.split_once("://") {
        None => Ok(Place::Folder(uri)),
        Some(("file", path)) if cfg!(feature = "cold-store") => match path.strip_prefix('/') {
            Some(_) if !path.contains(['?', '#', '%']) && path.split('/').all(|part| part != "..") => Ok(Place::Folder(path)),
            _ => refused("write file:///absolute/path, without `..`, `%`, `?` and `#`"),
        },
        #[cfg(feature = "cold-store-aws")]
        Some(("s3", _)) => Ok(Place::S3(uri)),
        Some(("file", _)) => refused("this program is built without the feature cold-store; name a folder without a scheme"),
        #[cfg(not(feature = "cold-store-aws"))]
        Some(("s3", _)) => refused("this program is built without the feature cold-store-aws; name a folder"),
        Some(_) => refused("stores of this kind are not known; name a folder, file:///path or s3://bucket/prefix"),
    }
}

/// Whether every `cold_uri` of a manifest names a store that can be opened. Nothing is touched.
pub(crate) fn check(manifest: &BridgeManifest, stores: Option<&dyn ColdStores>) -> Result<(), BusError> {
    for topic in &manifest.topics {
        let Some(uri) = &topic.retention.cold_uri else { continue };
        let checked = match stores {
            Some(stores) => stores.check(uri),
            None => place(uri).map(drop),
        };
        checked.map_err(|error| match error {
            BusError::Config { problem } => BusError::Config { problem: format!("topic {:?}: {problem}", topic.name) },
            error => error,
        })?;
    }
    Ok(())
}

/// When the folder of a store is made that is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Make {
    /// At once.
    Now,
    /// Before the first object: for whoever may only look.
    BeforeTheFirstObject,
}

/// Opens the store at `uri`. `tag` tells the temporary files of this owner from those of others.
pub(crate) fn open(uri: &str, storage: &Arc<dyn Storage>, tag: &str, make: Make) -> Result<Arc<dyn ColdStore>, BusError> {
    match place(uri)? {
        Place::Folder(path) => {
            let (storage, path) = (Arc::clone(storage), Path::new(path));
            let opened = match make {
                Make::Now => LocalStore::open(storage, path, tag),
                Make::BeforeTheFirstObject => LocalStore::open_as_it_is(storage, path, tag),
            };
            bounded(Arc::new(opened.map_err(|error| unusable(uri, &error))?))
        }
        #[cfg(feature = "cold-store-aws")]
        Place::S3(uri) => Ok(Arc::new(super::s3::S3Store::open(uri, std::env::vars_os())?)),
    }
}

/// The words of an operation on some folder say nothing to whoever wrote a `cold_uri`.
fn unusable(uri: &str, error: &BusError) -> BusError {
    let reason = match error {
        BusError::Io { reason, .. } => reason.clone(),
        error => error.to_string(),
    };
    let problem = format!(
        "retention.cold_uri {uri:?}: the folder cannot be made or opened ({reason}); name one that this user may make and write, or mount what should be there"
    );
    BusError::Config { problem }
}

#[cfg(feature = "cold-store")]
fn bounded(store: Arc<dyn ColdStore>) -> Result<Arc<dyn ColdStore>, BusError> {
    Ok(Arc::new(super::bounded::BoundedStore::new(store)?))
}

/// Without a runtime there is nobody to leave a call behind: a folder may hang as the log's own files may.
#[cfg(not(feature = "cold-store"))]
#[allow(clippy::unnecessary_wraps, reason = "with the feature it can fail")]
fn bounded(store: Arc<dyn ColdStore>) -> Result<Arc<dyn ColdStore>, BusError> {
    Ok(store)
}

/// The archive at `uri`, to be read: a folder must be there and is not made.
///
/// # Errors
/// [`BusError::Config`] for a `uri` that names none, [`BusError::Io`].
pub fn open_existing(uri: &str) -> Result<Arc<dyn ColdStore>, BusError> {
    if let Place::Folder(path) = place(uri)?
        && !Path::new(path).is_dir()
    {
        let problem = format!("there is no archive at {uri:?}: it is not a folder");
        return Err(BusError::Config { problem });
    }
    open_to_read(uri)
}

/// The archive at `uri`, to be read: a folder that is not there is an archive with nothing in it, and is not made.
///
/// # Errors
/// [`BusError::Config`] for a `uri` that names none, [`BusError::Io`].
pub fn open_to_read(uri: &str) -> Result<Arc<dyn ColdStore>, BusError> {
    let storage: Arc<dyn Storage> = Arc::new(OsStorage);
    open(uri, &storage, "reader", Make::BeforeTheFirstObject)
}

/// Whether two URIs name one place. Nothing is touched.
pub fn is_same_place(one: &str, other: &str) -> bool {
    let normal = |uri: &str| match place(uri) {
        Ok(Place::Folder(path)) => std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).ok(),
        _ => None,
    };
    match (normal(one), normal(other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => one.trim_end_matches('/') == other.trim_end_matches('/'),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_is_one_however_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        assert!(is_same_place(path, &format!("{path}/")) && is_same_place(path, &format!("{path}/./")));
        assert_eq!(is_same_place(path, &format!("file://{path}")), cfg!(feature = "cold-store"));
        assert!(is_same_place("s3://b/x", "s3://b/x/") && !is_same_place("s3://b/x", "s3://b/y") && !is_same_place(path, "s3://b/x"));
        assert!(!is_same_place(path, &format!("{path}/below")));
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_told_as_the_cold_uri_that_names_it() {
        let storage: Arc<dyn Storage> = Arc::new(OsStorage);
        let refused = open("/proc/nope", &storage, "me", Make::Now).map(drop).unwrap_err();
        let words = refused.to_string();
        assert!(matches!(refused, BusError::Config { .. }), "{words}");
        assert!(words.contains("cold_uri \"/proc/nope\"") && words.contains("name one that this user may make"), "{words}");
    }

    /// B-028.
    #[test]
    fn a_scheme_that_this_build_does_not_know_is_refused_by_name() {
        for uri in ["gs://b/p", "http://h/p", "ftp://h", "s4://b", "file://host/p", "file:///a/../b", "file:///a%20b"] {
            let refused = place(uri).map(drop).unwrap_err();
            assert!(matches!(&refused, BusError::Config { problem } if problem.contains(uri)), "{refused}");
        }
        assert!(matches!(place("data/cold"), Ok(Place::Folder("data/cold"))));
        assert_eq!(place("file:///data/cold").is_ok(), cfg!(feature = "cold-store"));
        assert_eq!(place("s3://bucket/prefix").is_ok(), cfg!(feature = "cold-store-aws"));
    }
}
