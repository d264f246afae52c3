//! One segment open for reading: a record or its head, checked against its checksum and against the identity the index gave it.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use latent_core::{Offset, Partition, StoredRecord, UnixMillis};

use super::body::{self, BODY_BYTES_MAX, HEAD_BYTES_MAX};
use super::frame::{HEADER_BYTES, Header};
use super::positions::Place;
use super::storage::{OpenAs, Storage, StorageFile};
use super::topic::{SegmentRef, Topic};
use crate::{BusError, HeadContent};

/// See the module.
pub(super) struct SegmentReader<'t> {
    topic: &'t Topic,
    file: Arc<dyn StorageFile>,
    path: PathBuf,
}

impl<'t> SegmentReader<'t> {
    pub(super) fn open(storage: &dyn Storage, topic: &'t Topic, segment: &SegmentRef) -> Result<Self, BusError> {
        let file = match &segment.open {
            Some(file) => Arc::clone(file),
            None => storage.open(&segment.path, OpenAs::Existing).map_err(|error| BusError::io("open", &segment.path, &error))?,
        };
        Ok(Self { topic, file, path: segment.path.clone() })
    }

    /// Header and body of a record, or `None` when it is damaged.
    pub(super) fn frame(&self, partition: Partition, place: Place) -> Result<Option<(Header, Bytes)>, BusError> {
        let bytes = Bytes::from(self.bytes(place.at, HEADER_BYTES + place.body_len as usize)?);
        let Some(header) = self.header(partition, place, &bytes) else { return Ok(None) };
        let body = bytes.slice(HEADER_BYTES..);
        let sound = body.len() == header.body_len as usize && crc32fast::hash(&body) == header.body_crc;
        Ok(sound.then_some((header, body)))
    }

    /// A record, or `None` when it is damaged.
    pub(super) fn record(&self, partition: Partition, place: Place) -> Result<Option<StoredRecord>, BusError> {
        let frame = self.frame(partition, place)?;
        let record = frame.and_then(|(header, body)| body::decode(&body, UnixMillis(header.stored_at)));
        Ok(record.map(|record| StoredRecord { partition, offset: Offset(place.offset), record }))
    }

    /// A record's head; its payload is neither read nor checked.
    pub(super) fn head(&self, partition: Partition, place: Place) -> Result<HeadContent, BusError> {
        let bytes = self.bytes(place.at, HEADER_BYTES + HEAD_BYTES_MAX.min(place.body_len as usize))?;
        let header = self.header(partition, place, &bytes);
        let head = header.and_then(|header| body::decode_head(bytes.get(HEADER_BYTES..)?, header.head_crc));
        Ok(head.map_or(HeadContent::Damaged, |head| HeadContent::Readable { key: head.key.to_owned(), payload_bytes: head.payload_bytes }))
    }

    fn bytes(&self, at: u64, length: usize) -> Result<Vec<u8>, BusError> {
        let mut bytes = vec![0; length];
        let read = self.file.read_at(&mut bytes, at).map_err(|error| BusError::io("read", &self.path, &error))?;
        bytes.truncate(read);
        Ok(bytes)
    }

    fn header(&self, partition: Partition, place: Place, bytes: &[u8]) -> Option<Header> {
        let header = Header::decode(self.topic.salt, bytes, BODY_BYTES_MAX)?;
        let identity = header.identity;
        (identity.partition == partition.0 && identity.offset == place.offset && header.body_len == place.body_len).then_some(header)
    }
}
