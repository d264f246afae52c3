//! Heads and staged segments in files. Each is replaced whole: written beside, synced, renamed, the directory synced.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use latent_core::Partition;
use sha2::{Digest as _, Sha256};

use super::head_document::HEAD_BYTES_MAX;
use super::{ArchiveHead, ExportError};
use crate::BusError;
use crate::cold::segment::{Attest, Attestation, FinishedSegment, Segment, SegmentDigest, SegmentPlace};
use crate::embedded::{OpenAs, PathKind, Storage};
use crate::limits;

/// See the module.
pub(super) struct HeadFiles {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
}

/// The folder of heads and staged segments, below the outbox.
pub(crate) const HEADS: &str = "segments";

fn name(place: &SegmentPlace, ending: &str) -> String {
    name_of(&place.topic, place.partition, ending)
}

fn name_of(topic: &str, partition: Partition, ending: &str) -> String {
    format!("{topic}.p{partition}.{ending}")
}

/// A topic is archived elsewhere from now on: what says how far it is archived where it was does not hold there. Heads stay under another
/// name, for whoever verifies that archive; what was staged is in the log, and is built again.
pub(crate) fn set_heads_aside(storage: &dyn Storage, outbox: &Path, topic: &str, (partitions, was): (u32, &str)) -> Result<(), BusError> {
    let directory = outbox.join(HEADS);
    let mark = SegmentDigest(Sha256::digest(was).into()).to_string();
    let mark = mark.get(..16).unwrap_or_default();
    let mut is_changed = false;
    for partition in (0..partitions).map(Partition) {
        let head = directory.join(name_of(topic, partition, "head"));
        let aside = directory.join(name_of(topic, partition, &format!("head.{mark}")));
        is_changed |= is_there(&head, storage.rename(&head, &aside))?;
        let staged = directory.join(name_of(topic, partition, "seg"));
        is_changed |= is_there(&staged, storage.remove_file(&staged))?;
    }
    if is_changed {
        tracing::info!(topic, was, mark, "the topic is archived elsewhere from now on; heads of where it was are set aside");
        storage.sync_directory(&directory).map_err(|error| BusError::io("sync", &directory, &error))?;
    }
    Ok(())
}

fn is_there(path: &Path, result: io::Result<()>) -> Result<bool, BusError> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(BusError::io("setting aside", path, &error)),
    }
}

impl HeadFiles {
    pub(super) const fn new(storage: Arc<dyn Storage>, directory: PathBuf) -> Self {
        Self { storage, directory }
    }

    /// The head that was written down last.
    pub(super) fn head(&self, place: &SegmentPlace, keys: &dyn Attest) -> Result<Option<ArchiveHead>, ExportError> {
        let path = self.directory.join(name(place, "head"));
        let Some(bytes) = self.read(&path, HEAD_BYTES_MAX)? else { return Ok(None) };
        let document = std::str::from_utf8(&bytes).map_err(|_| ExportError::Unproven)?;
        let head = ArchiveHead::from_json(document, keys)?;
        if head.place == *place { Ok(Some(head)) } else { Err(ExportError::Unproven) }
    }

    /// Writes a head down.
    pub(super) fn keep(&self, head: &ArchiveHead, keys: &dyn Attest) -> Result<(), ExportError> {
        let document = head.to_json(keys).ok_or(crate::cold::segment::SegmentError::NoKey)?;
        self.replace(&name(&head.place, "head"), document.as_bytes())
    }

    /// Proves a head with the newest key that an older one of the ring proves.
    pub(super) fn reseal(&self, place: &SegmentPlace, keys: &dyn Attest) -> Result<(), ExportError> {
        let path = self.directory.join(name(place, "head"));
        let Some(bytes) = self.read(&path, HEAD_BYTES_MAX)? else { return Ok(()) };
        let head = self.head(place, keys)?;
        let newest = head.and_then(|head| head.to_json(keys));
        match newest.filter(|newest| *newest.as_bytes() != *bytes) {
            Some(document) => self.replace(&name(place, "head"), document.as_bytes()),
            None => Ok(()),
        }
    }

    /// Keeps a segment until it is in the store.
    pub(super) fn stage(&self, finished: &FinishedSegment) -> Result<(), ExportError> {
        self.replace(&name(&finished.header.place, "seg"), &finished.bytes)
    }

    /// What was staged and may not be in the store. One that cannot be used is dropped: its records are still in the log, and are built into
    /// another one.
    pub(super) fn staged(&self, place: &SegmentPlace, keys: &dyn Attest) -> Result<Option<FinishedSegment>, ExportError> {
        let path = self.directory.join(name(place, "seg"));
        let Some(bytes) = self.read(&path, limits::ARCHIVE_SEGMENT_OBJECT_BYTES.default)? else { return Ok(None) };
        match Segment::open(bytes.clone()) {
            Ok(segment) if segment.header().place == *place && segment.attested(keys) == Attestation::Proven => {
                Ok(Some(FinishedSegment { header: segment.header().clone(), digest: segment.digest(), bytes }))
            }
            _ => {
                tracing::warn!(topic = place.topic, partition = place.partition.0, "a staged segment cannot be used and is built again");
                self.unstage(place)?;
                Ok(None)
            }
        }
    }

    /// It is in the store and the head says so.
    pub(super) fn unstage(&self, place: &SegmentPlace) -> Result<(), ExportError> {
        let path = self.directory.join(name(place, "seg"));
        match self.storage.remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(BusError::io("removing", &path, &error).into()),
            _ => Ok(()),
        }
    }

    fn read(&self, path: &Path, bytes_max: u64) -> Result<Option<Bytes>, ExportError> {
        let read = || {
            match self.storage.kind(path)? {
                PathKind::File => {}
                PathKind::Missing => return Ok(None),
                // Not as one that was never written: what is known of the archive would be forgotten without a word.
                PathKind::Directory | PathKind::Unusual => return Err(io::Error::other("it is no regular file")),
            }
            let file = self.storage.open(path, OpenAs::Existing)?;
            let bytes = usize::try_from(file.bytes()?.min(bytes_max + 1)).map_err(io::Error::other)?;
            let mut content = vec![0; bytes];
            let read = file.read_at(&mut content, 0)?;
            content.truncate(read);
            Ok(Some(Bytes::from(content)))
        };
        read().map_err(|error: io::Error| BusError::io("reading", path, &error).into())
    }

    fn replace(&self, name: &str, content: &[u8]) -> Result<(), ExportError> {
        let (path, beside) = (self.directory.join(name), self.directory.join(format!("{name}.tmp")));
        let write = || {
            self.make_directory()?;
            let file = self.storage.open(&beside, OpenAs::Empty)?;
            file.write_at(content, 0)?;
            file.sync()?;
            self.storage.rename(&beside, &path)?;
            self.storage.sync_directory(&self.directory)
        };
        write().map_err(|error: io::Error| {
            // Whatever could not be written is written anew next time; only the space matters.
            let _ = self.storage.remove_file(&beside);
            BusError::io("writing", &path, &error).into()
        })
    }

    fn make_directory(&self) -> io::Result<()> {
        if self.storage.kind(&self.directory)? == PathKind::Directory {
            return Ok(());
        }
        self.storage.create_directory(&self.directory)?;
        self.directory.parent().map_or(Ok(()), |parent| self.storage.sync_directory(parent))
    }
}
