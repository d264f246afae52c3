//! The components of a node, kept by digest below its data directory, and what is known of them without loading them.
//!
//! ```text
//! data_dir/components/<digest>.wasm    each component that the configuration names or named since the start
//! data_dir/components/known.json       which file held which component when it was last looked at, and what that exports
//! ```
//! A file of the configuration may be rebuilt while the node runs: what was published stays what it was, because it is read from here.
//! What is missing or damaged here is read from that file again, if it still holds the same component; a copy that cannot be kept, on a
//! full disk, costs only that. The directory is for its owner alone, as `known.json` is taken at its word; names of another form are
//! never touched.
//! A file that has not changed since it was last looked at (device, inode, size, times) is not read again, so a start with many
//! components reads none of them. What is known is a shortcut and no authority: a component is believed by its digest when it is read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use latent_core::{ComponentDigest, ContractName, FunctionName};
use latent_node::{ComponentSource, Contracts, LoadError, WasmBackend};
use serde::{Deserialize, Serialize};

use crate::component_file;

const KNOWN: &str = "known.json";
/// Grows when what is known of a component changes its form or meaning.
const FORM: u32 = 1;

/// What is known of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Facts {
    /// Its digest.
    digest: String,
    /// True when it can be woken by events.
    pub(super) exports_handler: bool,
    /// What it offers to callers.
    contracts: BTreeMap<String, BTreeSet<String>>,
    /// What it imports.
    pub(super) imports: BTreeSet<String>,
}

impl Facts {
    fn of(component: &latent_wasmtime::PreparedComponent) -> Self {
        let contracts = component.contracts().into_iter();
        let names = |functions: BTreeSet<FunctionName>| functions.iter().map(|function| function.as_str().to_owned()).collect();
        Self {
            digest: component.digest().to_string(),
            exports_handler: component.exports_handler(),
            contracts: contracts.map(|(contract, functions)| (contract.as_str().to_owned(), names(functions))).collect(),
            imports: component.imports().map(str::to_owned).collect(),
        }
    }

    /// The component's digest; `None` for facts that say nonsense.
    pub(super) fn digest(&self) -> Option<ComponentDigest> {
        ComponentDigest::parse(&self.digest).ok()
    }

    /// What it offers to callers; names that are none are left out.
    pub(super) fn contracts(&self) -> Contracts {
        let functions = |names: &BTreeSet<String>| names.iter().filter_map(|name| FunctionName::parse(name).ok()).collect();
        let contracts = self.contracts.iter();
        contracts.filter_map(|(name, names)| Some((ContractName::parse(name).ok()?, functions(names)))).collect()
    }
}

/// A file as the system describes it. When all of it is the same, so is the content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    form: u32,
    /// The program that looked: another one may offer other imports.
    program: String,
    files: BTreeMap<PathBuf, (Stamp, Facts)>,
}

impl Known {
    fn empty() -> Self {
        Self { form: FORM, program: env!("CARGO_PKG_VERSION").to_owned(), files: BTreeMap::new() }
    }
}

/// Why a component could not be taken in.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShelfError {
    /// Its file cannot be read.
    #[error("{0}")]
    Unreadable(io::Error),
    /// It is not one that this node can run.
    #[error(transparent)]
    Unusable(#[from] LoadError),
}

/// Why there is no shelf.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShelfOpenError {
    /// The directory cannot be made or looked at.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is a link or a file.
    #[error("{} is not a directory; move away what is there", dir.display())]
    NotADirectory {
        /// Where.
        dir: PathBuf,
    },
    /// Others could put components there.
    #[error("{} must belong to the user of the node and be open to nobody else (mode {mode:o}, owner {owner}); chown and chmod 700 it, and remove what you do not know", dir.display())]
    OpenToOthers {
        /// Where.
        dir: PathBuf,
        /// Its permissions.
        mode: u32,
        /// Its owner.
        owner: u32,
    },
}

/// See the module. One thread changes it at a time.
#[derive(Debug)]
pub(super) struct Shelf {
    shelved: Shelved,
    known: Known,
}

/// The components that are kept, for whoever has to load one.
#[derive(Debug, Clone)]
pub(super) struct Shelved {
    dir: PathBuf,
    /// The file of the configuration that held each component when it was last looked at.
    files: Arc<Mutex<BTreeMap<ComponentDigest, PathBuf>>>,
}

impl Shelf {
    /// Opens the shelf, or makes it. What is known is forgotten if it cannot be read.
    ///
    /// # Errors
    /// [`ShelfOpenError`].
    pub(super) fn open(dir: &Path) -> Result<Self, ShelfOpenError> {
        if matches!(dir.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound) {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        must_be_ours(dir)?;
        let empty = Known::empty();
        let text = component_file::read(&dir.join(KNOWN)).ok();
        let read = text.and_then(|text| serde_json::from_slice::<Known>(&text).ok());
        let known = read.filter(|known| known.form == empty.form && known.program == empty.program).unwrap_or(empty);
        Ok(Self { shelved: Shelved { dir: dir.to_owned(), files: Arc::default() }, known })
    }

    /// The components that are kept.
    pub(super) fn shelved(&self) -> Shelved {
        self.shelved.clone()
    }

    /// Takes the component of a file in, unless it is here already, and says what is known of it. Compiles one that is new, so it may
    /// take a while.
    ///
    /// # Errors
    /// [`ShelfError`].
    pub(super) fn take_in(&mut self, file: &Path, backend: &WasmBackend) -> Result<Facts, ShelfError> {
        let (opened, metadata) = component_file::open(file).map_err(ShelfError::Unreadable)?;
        let stamp = Stamp::of(&metadata);
        if let Some((_, facts)) = self.known.files.get(file).filter(|(known, _)| *known == stamp)
            && let Some(digest) = facts.digest().filter(|digest| self.shelved.has(*digest))
        {
            self.shelved.remember(digest, file);
            return Ok(facts.clone());
        }
        let component = component_file::read_opened(&opened).map_err(ShelfError::Unreadable)?;
        let prepared = backend.load(&component)?;
        self.shelved.keep(prepared.digest(), &component);
        self.shelved.remember(prepared.digest(), file);
        let facts = Facts::of(&prepared);
        self.known.files.insert(file.to_owned(), (stamp, facts.clone()));
        Ok(facts)
    }

    /// Writes down what is known of the files that are used, and removes every component that none of them holds. To be called when
    /// nothing else can be running. A failure costs time at the next start, or room on the disk, and nothing else.
    pub(super) fn tidy(&mut self, used: &BTreeSet<PathBuf>) {
        self.known.files.retain(|file, _| used.contains(file));
        let digests = self.known.files.values().filter_map(|(_, facts)| facts.digest());
        let kept: BTreeSet<_> = digests.map(file_name).collect();
        let entries = fs::read_dir(&self.shelved.dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
        for stale in entries.filter_map(|name| name.into_string().ok()).filter(|name| is_ours(name) && !kept.contains(name)) {
            if let Err(error) = fs::remove_file(self.shelved.dir.join(&stale)) {
                tracing::warn!(file = stale, %error, "a component that nothing names any more could not be removed");
            }
        }
        self.write_down();
    }

    /// Writes down what is known.
    pub(super) fn write_down(&self) {
        let written = serde_json::to_vec(&self.known).map_err(io::Error::other);
        let written = written.and_then(|text| replace(&self.shelved.dir, KNOWN, &text));
        if let Err(error) = written {
            tracing::warn!(%error, "what is known of the components could not be written down; the next start reads them again");
        }
    }
}

impl Shelved {
    fn file(&self, digest: ComponentDigest) -> PathBuf {
        self.dir.join(file_name(digest))
    }

    fn has(&self, digest: ComponentDigest) -> bool {
        self.file(digest).is_file()
    }

    /// Keeps a copy, unless there is one. Without it the component is read from its file, as long as that holds it.
    fn keep(&self, digest: ComponentDigest, component: &[u8]) {
        if !self.has(digest)
            && let Err(error) = replace(&self.dir, &file_name(digest), component)
        {
            tracing::warn!(%digest, %error, "no copy of the component could be kept; it runs as long as its file stays as it is");
        }
    }

    fn remember(&self, digest: ComponentDigest, file: &Path) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).insert(digest, file.to_owned());
    }

    /// The kept copy, if it is there and whole. A damaged one is removed.
    fn copy(&self, digest: ComponentDigest) -> io::Result<Vec<u8>> {
        let file = self.file(digest);
        let component = component_file::read(&file)?;
        if ComponentDigest::of(&component) == digest {
            return Ok(component);
        }
        tracing::warn!(%digest, "the kept copy of a component was damaged and is removed");
        fs::remove_file(&file)?;
        Err(io::Error::other("it was damaged"))
    }
}

impl ComponentSource for Shelved {
    fn read(&self, digest: ComponentDigest) -> Result<Vec<u8>, String> {
        let missing = match self.copy(digest) {
            Ok(component) => return Ok(component),
            Err(error) => error,
        };
        let file = self.files.lock().unwrap_or_else(PoisonError::into_inner).get(&digest).cloned();
        let again = file.and_then(|file| component_file::read(&file).ok()).filter(|component| ComponentDigest::of(component) == digest);
        if let Some(component) = again {
            self.keep(digest, &component);
            return Ok(component);
        }
        let copy = self.file(digest);
        Err(format!(
            "{}: {missing}, and the file it came from holds another one now; run `latent reload`, which takes that in",
            copy.display()
        ))
    }
}

/// The directory itself, not what a link leads to, and nobody else's.
fn must_be_ours(dir: &Path) -> Result<(), ShelfOpenError> {
    let metadata = dir.symlink_metadata()?;
    if !metadata.is_dir() {
        return Err(ShelfOpenError::NotADirectory { dir: dir.to_owned() });
    }
    let (mode, owner) = (metadata.mode() & 0o777, metadata.uid());
    if mode & 0o077 != 0 || owner != rustix::process::geteuid().as_raw() {
        return Err(ShelfOpenError::OpenToOthers { dir: dir.to_owned(), mode, owner });
    }
    Ok(())
}

/// Whether a name is one that this shelf makes. Nothing else in the directory is ever touched: it may be somebody's.
fn is_ours(name: &str) -> bool {
    let name = name.strip_suffix(".new").unwrap_or(name);
    name.strip_suffix(".wasm")
        .is_some_and(|digits| digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
}

fn file_name(digest: ComponentDigest) -> String {
    format!("{}.wasm", digest.to_string().trim_start_matches("sha256:"))
}

/// Whoever reads the file sees the old content or the new one, also after a crash.
fn replace(dir: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let temporary = dir.join(format!("{name}.new"));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, dir.join(name))
}

#[cfg(test)]
mod tests;
