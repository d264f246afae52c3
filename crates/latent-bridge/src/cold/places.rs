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

/// Opens the store at `uri`. `tag` tells the temporary files of this owner from those of others.
pub(crate) fn open(uri: &str, storage: &Arc<dyn Storage>, tag: &str) -> Result<Arc<dyn ColdStore>, BusError> {
    match place(uri)? {
        Place::Folder(path) => bounded(Arc::new(LocalStore::open(Arc::clone(storage), Path::new(path), tag)?)),
        #[cfg(feature = "cold-store-aws")]
        Place::S3(uri) => Ok(Arc::new(super::s3::S3Store::open(uri, std::env::vars_os())?)),
    }
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
    let storage: Arc<dyn Storage> = Arc::new(OsStorage);
    open(uri, &storage, "reader")
}

#[cfg(test)]
mod tests {
    use super::*;

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
