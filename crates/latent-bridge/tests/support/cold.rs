//! Archives for tests: stores behind a `cold_uri`, manifests that name them, and what lies in them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use latent_bridge::cold::{ArchiveOptions, ColdStore, ColdStores};
use latent_bridge::{BridgeManifest, BusError, EventBus};
use latent_core::UnixMillis;
use serde_json::Value;

use super::fixtures::{self, Published};

/// A control key.
pub(crate) const KEY: [u8; 32] = [7; 32];
/// A time at which everything of an hour ago has expired.
pub(crate) const HOUR: u64 = 3_600_000;

/// Every `cold_uri` is this store.
pub(crate) struct One<S>(pub(crate) Arc<S>);

impl<S: ColdStore + 'static> ColdStores for One<S> {
    fn open(&self, _uri: &str) -> Result<Arc<dyn ColdStore>, BusError> {
        Ok(Arc::clone(&self.0) as _)
    }

    fn check(&self, _uri: &str) -> Result<(), BusError> {
        Ok(())
    }
}

/// Options whose stores are `store`, with a key, one upload at a time.
pub(crate) fn archive<S: ColdStore + 'static>(store: &Arc<S>) -> ArchiveOptions {
    ArchiveOptions { control_keys: vec![KEY], stores: Some(Arc::new(One(Arc::clone(store)))), uploads: 1, ..ArchiveOptions::default() }
}

/// A manifest of these topics, kept for an hour and archived at `uri`.
pub(crate) fn manifest(topics: &[(&str, u32)], uri: &str) -> BridgeManifest {
    let mut manifest = fixtures::manifest(topics);
    for topic in &mut manifest.topics {
        topic.retention.hot_hours = 1;
        topic.retention.cold_uri = Some(uri.to_owned());
    }
    manifest
}

/// Where the object of an acknowledged record lies.
pub(crate) fn path_of(published: &Published) -> String {
    let ack = &published.ack;
    format!("{}/p{}/{:020}.json", ack.topic, ack.partition, ack.offset)
}

/// Fails unless `objects` are those of `records`, whole, and no others but the probe's.
pub(crate) fn assert_archived<'r>(
    objects: &BTreeMap<String, bytes::Bytes>,
    records: impl IntoIterator<Item = &'r Published>,
    context: &str,
) {
    let mut left: BTreeMap<_, _> = objects.iter().filter(|(path, _)| !path.starts_with("latent-probe/")).collect();
    for published in records {
        let path = path_of(published);
        let object = left.remove(&path).unwrap_or_else(|| panic!("{context}: no object {path}"));
        let object: Value = serde_json::from_slice(object).unwrap_or_else(|error| panic!("{context}: {path}: {error}"));
        assert_eq!(object["uid"], *published.ack.uid, "{context}: {path}");
        assert_eq!(object["offset"], published.ack.offset, "{context}: {path}");
    }
    assert!(left.is_empty(), "{context}: also {:?}", left.keys());
}

/// The objects in a folder, by their path below it.
pub(crate) fn objects_in(folder: &Path) -> BTreeMap<String, bytes::Bytes> {
    let mut objects = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
                match std::fs::read(&path) {
                    Ok(content) => drop(objects.insert(name, content.into())),
                    // A process that writes there meanwhile has given it its name, or has taken it away.
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{name}"),
                }
            }
        }
    }
    objects
}

/// Intents in an outbox.
pub(crate) fn intents(outbox: &Path) -> Vec<String> {
    let names = std::fs::read_dir(outbox).into_iter().flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".json")).collect()
}

/// Maintains until nothing of the archive is left, a minute at a time. Fails when that takes too long. Returns the records that expired.
pub(crate) fn maintain_to_the_end(bus: &dyn EventBus, mut now: u64) -> u64 {
    let mut expired = 0;
    for _ in 0..200 {
        let report = bus.maintain(UnixMillis(now)).unwrap();
        expired += report.expired_records;
        if report.intents_pending == 0 && report.unarchived_topics.is_empty() {
            return expired;
        }
        now += 60_000;
    }
    panic!("the archive does not come to an end: {:?}", bus.maintain(UnixMillis(now)));
}
