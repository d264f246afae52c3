//! Creating a data directory and changing what its manifest says. Everything is checked before anything is touched; the manifest
//! appears or changes in one step, last.

use std::collections::BTreeMap;
use std::path::Path;

use super::directory::{
    Layout, StoreId, checked_text, create_directories, discard, parse_format, read_control, render_format, sync_parent, with_check,
    write_control, write_temporary,
};
use super::lock::DirectoryLock;
use super::options::EngineOptions;
use super::schemas::{InForce, Schemas, split_lines};
use super::storage::{PathKind, Storage};
use crate::cold::{ColdStores, places};
use crate::{BridgeManifest, BusError, TopicSpec};

/// A directory that is locked and whose control files were read.
pub(super) struct OpenedDirectory {
    pub(super) layout: Layout,
    pub(super) lock: DirectoryLock,
    pub(super) store: StoreId,
    pub(super) manifest: BridgeManifest,
    pub(super) schemas: Schemas,
}

fn config(problem: String) -> BusError {
    BusError::Config { problem }
}

/// Refuses what a manifest may say and this engine cannot do. Ignoring it would lose events or let wrong ones in.
pub(super) fn check_supported(manifest: &BridgeManifest, stores: Option<&dyn ColdStores>) -> Result<(), BusError> {
    manifest.validate()?;
    places::check(manifest, stores)
}

/// True when the directory has a manifest, whatever is in it.
pub(super) fn is_provisioned(storage: &dyn Storage, layout: &Layout) -> Result<bool, BusError> {
    let path = layout.manifest();
    let kind = storage.kind(&path).map_err(|error| BusError::io("open", &path, &error))?;
    Ok(kind != PathKind::Missing)
}

/// Creates a data directory for `manifest`. Of several at once, one wins.
pub(super) fn provision(directory: &Path, manifest: &BridgeManifest, options: &EngineOptions) -> Result<OpenedDirectory, BusError> {
    options.checked()?;
    check_supported(manifest, options.archive.stores.as_deref())?;
    let (storage, layout) = (&*options.storage, Layout::new(directory));
    if is_provisioned(storage, &layout)? {
        return Err(already_provisioned(""));
    }
    let schemas = Schemas::resolve(manifest, &options.schema_roots, None)?;
    create_directories(storage, layout.root())?;
    let lock = DirectoryLock::take(&layout.lock(), &options.holder).map_err(|error| match error {
        BusError::InUse { holder, .. } => already_provisioned(&format!(", or is being provisioned, by {holder}")),
        error => error,
    })?;
    if is_provisioned(storage, &layout)? {
        return Err(already_provisioned(""));
    }
    refuse_remains(storage, &layout)?;
    let store = StoreId(fresh_id()?);
    write_control(storage, &layout.format(), render_format(store).as_bytes())?;
    create_directories(storage, &layout.state())?;
    create_topics(storage, &layout, &manifest.topics)?;
    schemas.write_copies(storage, &layout)?;
    link_manifest(storage, &layout, &manifest_text(manifest, &schemas, store)?)?;
    Ok(OpenedDirectory { layout, lock, store, manifest: manifest.clone(), schemas })
}

/// Without its manifest a directory looks new. One that holds data is not: a new store id would make that data unreadable.
fn refuse_remains(storage: &dyn Storage, layout: &Layout) -> Result<(), BusError> {
    let names = |path: &Path| match storage.kind(path) {
        Ok(PathKind::Directory) => storage.list(path).map_err(|error| BusError::io("listing", path, &error)),
        _ => Ok(Vec::new()),
    };
    let mut remains = names(&layout.state())?;
    for topic in names(&layout.topics())? {
        remains.extend(names(&layout.topic(&topic))?);
    }
    match remains.first() {
        None => Ok(()),
        Some(name) => Err(config(format!(
            "manifest.yaml is missing from a directory that holds data ({name}); nothing was touched, restore manifest.yaml from a copy"
        ))),
    }
}

fn already_provisioned(by: &str) -> BusError {
    config(format!("the directory is already provisioned{by}; open it, or choose another"))
}

fn fresh_id() -> Result<[u8; 16], BusError> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| BusError::Backend(format!("no random bytes from the system: {error}")))?;
    Ok(id)
}

fn create_topics(storage: &dyn Storage, layout: &Layout, topics: &[TopicSpec]) -> Result<(), BusError> {
    create_directories(storage, &layout.topics())?;
    topics.iter().try_for_each(|topic| create_directories(storage, &layout.topic(&topic.name)))?;
    // A folder that was there may have been made by a process that was killed before it was durable.
    topics.first().map_or(Ok(()), |topic| sync_parent(storage, &layout.topic(&topic.name)))
}

/// Begins the line of the manifest's file that says to which store it belongs. YAML takes it for a comment.
const STORE_PREFIX: &str = "# store ";

fn manifest_text(manifest: &BridgeManifest, schemas: &Schemas, store: StoreId) -> Result<String, BusError> {
    let manifest = manifest.to_yaml()?;
    Ok(with_check(&schemas.with_lines(&format!("{manifest}{STORE_PREFIX}{}\n", store.hex()))))
}

/// A manifest's text without the line of its store, which must be that of the format file: under another store id every log of the
/// directory would look foreign, and be set aside.
fn of_store(text: &str, store: StoreId) -> Result<&str, BusError> {
    let (manifest, found) = text.rsplit_once(STORE_PREFIX).unwrap_or((text, ""));
    let (expected, found) = (store.hex(), found.trim_end());
    if found == expected {
        return Ok(manifest);
    }
    let found = if found.is_empty() { "none" } else { found };
    Err(config(format!(
        "format and manifest.yaml are not of one directory: format has store {expected}, manifest.yaml has {found:.40}; nothing was \
         touched, restore both from the same copy"
    )))
}

/// A hard link refuses to replace, which a rename would not: the last guard against a second winner.
fn link_manifest(storage: &dyn Storage, layout: &Layout, text: &str) -> Result<(), BusError> {
    let path = layout.manifest();
    let prepared = write_temporary(storage, &path, text.as_bytes())?;
    let linked = storage.hard_link(&prepared, &path);
    discard(storage, &prepared);
    linked.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => already_provisioned(""),
        _ => BusError::io("link", &path, &error),
    })?;
    sync_parent(storage, &path)
}

/// Locks a provisioned directory and reads its control files. An unknown format is refused before anything is touched.
pub(super) fn open(directory: &Path, options: &EngineOptions) -> Result<OpenedDirectory, BusError> {
    options.checked()?;
    let (storage, layout) = (&*options.storage, Layout::new(directory));
    if !is_provisioned(storage, &layout)? {
        return Err(config("the directory is not provisioned; provision it from a manifest first".to_owned()));
    }
    let missing = |file: &str| config(format!("{file} is missing from the directory; restore it from a copy"));
    let store = parse_format(&read_control(storage, &layout.format())?.ok_or_else(|| missing("format"))?)?;
    let lock = DirectoryLock::take(&layout.lock(), &options.holder)?;
    discard(storage, &super::directory::temporary(&layout.manifest()));
    discard(storage, &super::directory::temporary(&layout.format()));
    let text = read_control(storage, &layout.manifest())?.ok_or_else(|| missing("manifest.yaml"))?;
    let (text, lines) = split_lines(checked_text("manifest.yaml", &text)?);
    let manifest = BridgeManifest::from_yaml(of_store(text, store)?)?;
    check_supported(&manifest, options.archive.stores.as_deref())?;
    check_folders(storage, &layout, &manifest)?;
    let schemas = Schemas::open(storage, &layout, &manifest, &lines)?;
    schemas.discard_unused(storage, &layout);
    sync_names(storage, &layout, &manifest)?;
    Ok(OpenedDirectory { layout, lock, store, manifest, schemas })
}

/// Makes every name durable that an earlier process gave and was killed before it could. What is acknowledged from now on lies in files
/// that would be gone with their names after a power cut.
fn sync_names(storage: &dyn Storage, layout: &Layout, manifest: &BridgeManifest) -> Result<(), BusError> {
    let mut folders = vec![layout.root().to_owned(), layout.topics()];
    folders.extend(manifest.topics.iter().map(|topic| layout.topic(&topic.name)));
    folders.extend(
        [layout.state(), layout.schemas()].into_iter().filter(|folder| storage.kind(folder).is_ok_and(|kind| kind == PathKind::Directory)),
    );
    folders.iter().try_for_each(|folder| storage.sync_directory(folder).map_err(|error| BusError::io("sync", folder, &error)))
}

/// A missing folder is a topic's whole log gone. Creating it anew would hide that.
fn check_folders(storage: &dyn Storage, layout: &Layout, manifest: &BridgeManifest) -> Result<(), BusError> {
    for topic in &manifest.topics {
        let path = layout.topic(&topic.name);
        let kind = storage.kind(&path).map_err(|error| BusError::io("open", &path, &error))?;
        if kind != PathKind::Directory {
            return Err(config(format!("folder topics/{} is missing; restore it from a copy", topic.name)));
        }
    }
    Ok(())
}

/// Brings an opened directory to `wanted`, or says what cannot be changed and changes nothing.
pub(super) fn apply(opened: &mut OpenedDirectory, wanted: &BridgeManifest, options: &EngineOptions) -> Result<(), BusError> {
    check_supported(wanted, options.archive.stores.as_deref())?;
    compare(&opened.manifest, wanted)?;
    let in_force = InForce { manifest: &opened.manifest, schemas: &opened.schemas };
    let schemas = Schemas::resolve(wanted, &options.schema_roots, Some(in_force))?;
    if *wanted == opened.manifest && schemas.is_same(&opened.schemas) {
        return Ok(());
    }
    let storage = &*options.storage;
    create_topics(storage, &opened.layout, &wanted.topics)?;
    schemas.write_copies(storage, &opened.layout)?;
    write_control(storage, &opened.layout.manifest(), manifest_text(wanted, &schemas, opened.store)?.as_bytes())?;
    schemas.discard_unused(storage, &opened.layout);
    tell_changes(&opened.manifest, wanted, schemas.is_same(&opened.schemas));
    opened.manifest = wanted.clone();
    opened.schemas = schemas;
    Ok(())
}

/// An operator reads in the log what a new manifest changed, above all that a topic takes anything from now on.
fn tell_changes(old: &BridgeManifest, new: &BridgeManifest, same_schemas: bool) {
    let known: BTreeMap<_, _> = old.topics.iter().map(|topic| (&topic.name, topic)).collect();
    for topic in &new.topics {
        let name = &topic.name;
        let Some(before) = known.get(name) else {
            tracing::info!(topic = name, partitions = topic.partitions, "a topic was added");
            continue;
        };
        if before.retention != topic.retention {
            tracing::info!(topic = name, hot_hours = topic.retention.hot_hours, "the retention of a topic was changed");
        }
        if before.schema_ref.is_some() && topic.schema_ref.is_none() {
            tracing::warn!(topic = name, "the schema of a topic was taken away: it takes any event from now on");
        } else if before.schema_ref != topic.schema_ref {
            tracing::info!(topic = name, schema = topic.schema_ref, "a topic has another schema; stored events are not checked again");
        }
    }
    if !same_schemas {
        tracing::info!("the content of schemas was changed; stored events are not checked again");
    }
}

/// Refuses what would lose events or move them (D-21).
fn compare(stored: &BridgeManifest, wanted: &BridgeManifest) -> Result<(), BusError> {
    if stored.name != wanted.name {
        let (old, new) = (&stored.name, &wanted.name);
        return Err(config(format!(
            "the directory belongs to {old:?} and the manifest's name is {new:?}; use {old:?}, or another directory (derived uids depend on the name)"
        )));
    }
    let wanted: BTreeMap<_, _> = wanted.topics.iter().map(|topic| (&topic.name, topic)).collect();
    for old in &stored.topics {
        let name = &old.name;
        let Some(new) = wanted.get(name) else {
            return Err(config(format!(
                "topic {name:?} is in the directory and not in the manifest; removing a topic is not supported, add it again"
            )));
        };
        if old.partitions != new.partitions {
            let (old, new) = (old.partitions, new.partitions);
            return Err(config(format!(
                "topic {name:?} has {old} partitions and the manifest says {new}; a changed count would send keys to other partitions, use {old}"
            )));
        }
    }
    Ok(())
}
