//! Compiled components kept on disk, so that a start does not compile them again.
//!
//! What lives here: the directory, the form of an entry, the proof that an entry is ours, and which entries go when there are too many.
//! What does not: whether a component may run. What is loaded from here passes the same checks as what was compiled just now.
//!
//! Invariants:
//! - Code that this cache did not write for exactly this component and engine is never loaded: it is removed, and compiled again.
//! - An open cache never fails an activation. A full disk or a damaged entry costs the time to compile.
//! - Entries take `bytes_max` at most, beyond it only what other processes are writing at this moment.
//!
//! `docs/design/compiled-code.md` says what is trusted and why.

mod entry;
mod error;
mod eviction;
mod folder;
#[cfg(test)]
mod tests;
mod trusted;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use latent_core::ComponentDigest;
use wasmtime::component::Component;

pub(crate) use self::entry::EngineIdentity;
pub use self::error::CompiledCacheError;

use self::entry::{EntryName, HEADER_BYTES, Key};
use self::folder::Folder;
use crate::{PreparedComponent, WasmEngine, WasmError, component, limits};

/// What a cache is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompiledCacheOptions {
    /// Bytes of all entries together (`limits::COMPILED_CACHE_BYTES`).
    pub bytes_max: u64,
}

impl Default for CompiledCacheOptions {
    fn default() -> Self {
        Self { bytes_max: limits::COMPILED_CACHE_BYTES.default }
    }
}

/// What a cache did since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompiledCacheCounts {
    /// Components loaded without being compiled.
    pub loaded: u64,
    /// Components that were not there.
    pub missing: u64,
    /// Entries that were not what this cache had written, or could not be read. They were removed.
    pub refused: u64,
    /// Components compiled and kept.
    pub stored: u64,
    /// Components that were compiled and could not be kept.
    pub not_stored: u64,
    /// Entries removed to make room.
    pub evicted: u64,
}

/// Compiled components in a directory. Cheap to clone. Several processes may use one directory.
#[derive(Clone)]
pub struct CompiledCache(Arc<Inner>);

struct Inner {
    folder: Folder,
    key: Key,
    bytes_max: u64,
    counts: Counts,
    trouble_told: AtomicBool,
}

#[derive(Default)]
struct Counts {
    loaded: AtomicU64,
    missing: AtomicU64,
    refused: AtomicU64,
    stored: AtomicU64,
    not_stored: AtomicU64,
    evicted: AtomicU64,
}

impl CompiledCache {
    /// Opens a directory that nobody else can read or write, with the key that its entries are proven by; makes both when missing.
    /// Removes what a killed process left half written, and entries beyond the bound.
    ///
    /// # Errors
    /// [`CompiledCacheError`] says what is wrong with the directory or its key file and what to do.
    pub fn open(directory: &Path, options: CompiledCacheOptions) -> Result<Self, CompiledCacheError> {
        let bytes_max = limits::COMPILED_CACHE_BYTES.check(options.bytes_max)?;
        Self::within(Folder::open(directory)?, bytes_max)
    }

    fn within(folder: Folder, bytes_max: u64) -> Result<Self, CompiledCacheError> {
        let key = folder.key()?;
        let cache = Inner { folder, key, bytes_max, counts: Counts::default(), trouble_told: AtomicBool::new(false) };
        if let Err(error) = cache.folder.remove_leftovers().and_then(|()| cache.make_room(None, 0)) {
            cache.tell_trouble("cleaned up", &error);
        }
        Ok(Self(Arc::new(cache)))
    }

    /// What happened since it was opened.
    pub fn counts(&self) -> CompiledCacheCounts {
        let counts = &self.0.counts;
        CompiledCacheCounts {
            loaded: counts.loaded.load(Relaxed),
            missing: counts.missing.load(Relaxed),
            refused: counts.refused.load(Relaxed),
            stored: counts.stored.load(Relaxed),
            not_stored: counts.not_stored.load(Relaxed),
            evicted: counts.evicted.load(Relaxed),
        }
    }
}

impl fmt::Debug for CompiledCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledCache").field("directory", &self.0.folder.path()).field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Inner {
    fn load(&self, engine: &WasmEngine, name: &EntryName) -> Option<Component> {
        let file = name.to_string();
        let entry = match self.folder.read(&file, self.bytes_max) {
            Ok(Some(entry)) => entry,
            Ok(None) => {
                self.counts.missing.fetch_add(1, Relaxed);
                return None;
            }
            Err(error) => {
                self.refuse(&file, &error);
                return None;
            }
        };
        let Some(code) = entry::verify(&self.key, name, &entry) else {
            self.refuse(&file, &"it is not what was written here");
            return None;
        };
        match trusted::load(engine.wasmtime(), &code) {
            Ok(component) => {
                self.counts.loaded.fetch_add(1, Relaxed);
                if let Err(error) = self.folder.touch(&file) {
                    self.tell_trouble("marked as used", &error);
                }
                Some(component)
            }
            Err(error) => {
                self.refuse(&file, &error);
                None
            }
        }
    }

    /// Counts, tells and removes an entry that cannot be used. Each is told: they are few, and somebody may have put them there.
    fn refuse(&self, file: &str, why: &dyn fmt::Display) {
        self.counts.refused.fetch_add(1, Relaxed);
        tracing::warn!(directory = %self.folder.path().display(), entry = file, %why, "kept compiled code is not used; it is removed and compiled again");
        if let Err(error) = self.folder.remove(file) {
            self.tell_trouble("cleaned up", &error);
        }
    }

    fn store(&self, name: &EntryName, component: &Component) {
        match self.try_store(name, component) {
            Ok(()) => {
                self.counts.stored.fetch_add(1, Relaxed);
            }
            Err(error) => {
                self.counts.not_stored.fetch_add(1, Relaxed);
                self.tell_trouble("written", &error);
            }
        }
    }

    fn try_store(&self, name: &EntryName, component: &Component) -> io::Result<()> {
        let code = component.serialize().map_err(|error| io::Error::other(format!("{error:#}")))?;
        let header = entry::seal(&self.key, name, &code);
        self.make_room(Some(name), (HEADER_BYTES + code.len()) as u64)?;
        self.folder.put(&name.to_string(), &[&header, &code])
    }

    /// Removes entries until `bytes` more fit.
    fn make_room(&self, name: Option<&EntryName>, bytes: u64) -> io::Result<()> {
        let Some(room) = self.bytes_max.checked_sub(bytes) else {
            return Err(io::Error::other(format!("{bytes} bytes are more than the {} of the whole cache", self.bytes_max)));
        };
        let suffix = name.map(EntryName::suffix);
        for victim in eviction::victims(self.folder.held(suffix.as_deref())?, room) {
            self.folder.remove(&victim.name)?;
            self.counts.evicted.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Tells the first trouble with the disk; all are counted where they change anything.
    fn tell_trouble(&self, action: &'static str, error: &io::Error) {
        if !self.trouble_told.swap(true, Relaxed) {
            let directory = self.folder.path().display();
            tracing::warn!(%directory, %error, "compiled code could not be {action}; the cost is compiling it again. Not told again");
        }
    }
}

impl WasmEngine {
    /// As [`WasmEngine::prepare`], but takes the code from `cache` when it is there, and puts it there when it is not. CPU heavy in the
    /// second case only.
    ///
    /// # Errors
    /// Those of [`WasmEngine::prepare`]. The cache adds none.
    pub fn prepare_cached(&self, cache: &CompiledCache, component: &[u8]) -> Result<PreparedComponent, WasmError> {
        let digest = ComponentDigest::of(component);
        if let Some(prepared) = self.load_cached(cache, digest)? {
            return Ok(prepared);
        }
        let compiled = component::compile(self.wasmtime(), component)?;
        let prepared = PreparedComponent::link(self.wasmtime(), self.linker(), digest, &compiled)?;
        cache.0.store(&EntryName { digest, engine: self.identity() }, &compiled);
        Ok(prepared)
    }

    /// The component of this digest, if `cache` has its code: the component's own bytes are not needed. Reads and verifies one file, on
    /// the calling thread.
    ///
    /// # Errors
    /// What [`WasmEngine::prepare`] says of a component's imports and exports. `Ok(None)` when it has to be compiled.
    pub fn load_cached(&self, cache: &CompiledCache, digest: ComponentDigest) -> Result<Option<PreparedComponent>, WasmError> {
        let Some(component) = cache.0.load(self, &EntryName { digest, engine: self.identity() }) else { return Ok(None) };
        PreparedComponent::link(self.wasmtime(), self.linker(), digest, &component).map(Some)
    }
}
