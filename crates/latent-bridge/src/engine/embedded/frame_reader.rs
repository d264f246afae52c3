//! Frames of one segment file at known positions, checked against their checksums and against who they should be.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use latent_core::{MediaType, Offset, Partition, StoredRecord, UnixMillis};

use super::body::{self, BODY_BYTES_MAX, HEAD_BYTES_MAX};
use super::frame::{HEADER_BYTES, Header, Salt};
use super::positions::Place;
use super::storage::StorageFile;
use super::window::{CHUNK_BYTES, Window};
use crate::HeadContent;

/// Bytes read at a time for one record.
const SMALL_CHUNK_BYTES: usize = 4_096;

/// See the module.
pub(super) struct FrameReader<'f> {
    window: Window<'f>,
    salt: Salt,
    /// Of the record read last: neighbours mostly have the same.
    media_type: Option<MediaType>,
}

impl<'f> FrameReader<'f> {
    /// A reader of frames at `places`, which ascend. Reads larger pieces where they lie close together.
    pub(super) fn new(file: &'f Arc<dyn StorageFile>, salt: Salt, places: &[Place]) -> io::Result<Self> {
        Ok(Self { window: Window::with_chunk(&**file, chunk_bytes(places))?, salt, media_type: None })
    }

    /// Header and body of the frame at `at`, or `None` when it is damaged.
    pub(super) fn frame(&mut self, at: u32) -> io::Result<Option<(Header, &[u8])>> {
        let Some(header) = self.header(at)? else { return Ok(None) };
        let body = self.window.slice(u64::from(at) + HEADER_BYTES as u64, header.body_len as usize)?;
        let sound = body.len() == header.body_len as usize && crc32fast::hash(body) == header.body_crc;
        Ok(sound.then_some((header, body)))
    }

    /// A record and the bytes of its frame, or `None` when it is damaged.
    pub(super) fn record(&mut self, partition: Partition, place: Place) -> io::Result<Option<(StoredRecord, u64)>> {
        let known = self.media_type.take();
        let frame = self.frame(place.at)?.filter(|(header, _)| is_at(header, partition, place));
        let read = frame.and_then(|(header, body)| {
            let record = body::decode(body, UnixMillis(header.stored_at), known.as_ref())?;
            Some((StoredRecord { partition, offset: Offset(place.offset), record }, header.frame_bytes()))
        });
        self.media_type = read.as_ref().map(|(stored, _)| stored.record.media_type.clone());
        Ok(read)
    }

    /// A record's head; its payload is neither read nor checked.
    pub(super) fn head(&mut self, partition: Partition, place: Place) -> io::Result<HeadContent> {
        let Some(header) = self.header(place.at)?.filter(|header| is_at(header, partition, place)) else { return Ok(HeadContent::Damaged) };
        let head = self.window.slice(u64::from(place.at) + HEADER_BYTES as u64, HEAD_BYTES_MAX.min(header.body_len as usize))?;
        let head = body::decode_head(head, header.head_crc);
        Ok(head.map_or(HeadContent::Damaged, |head| HeadContent::Readable { key: head.key.to_owned(), payload_bytes: head.payload_bytes }))
    }

    /// What bytes there are of a damaged record's payload; none where its frame cannot be made out.
    pub(super) fn remains(&mut self, partition: Partition, place: Place) -> io::Result<Bytes> {
        let Some(header) = self.header(place.at)?.filter(|header| is_at(header, partition, place)) else { return Ok(Bytes::new()) };
        let body = self.window.slice(u64::from(place.at) + HEADER_BYTES as u64, header.body_len as usize)?;
        Ok(Bytes::copy_from_slice(body::remains(body)))
    }

    /// The header of the frame at `at`, or `None` when it is damaged.
    pub(super) fn header(&mut self, at: u32) -> io::Result<Option<Header>> {
        Ok(Header::decode(self.salt, self.window.slice(at.into(), HEADER_BYTES)?, BODY_BYTES_MAX))
    }
}

fn is_at(header: &Header, partition: Partition, place: Place) -> bool {
    u32::from(header.identity.partition) == partition.0 && header.identity.offset == place.offset
}

/// Records that lie close together are read in one piece, up to a bound; those far apart each for itself.
fn chunk_bytes(places: &[Place]) -> usize {
    let (Some(first), Some(last)) = (places.first(), places.last()) else { return SMALL_CHUNK_BYTES };
    let span = last.at.saturating_sub(first.at) as usize;
    let gaps = places.len().saturating_sub(1).max(1);
    if span / gaps > SMALL_CHUNK_BYTES {
        return SMALL_CHUNK_BYTES;
    }
    // The last frame's length is not known yet; it is read for the mean of those before.
    (span + span / gaps + HEADER_BYTES).clamp(SMALL_CHUNK_BYTES, CHUNK_BYTES)
}
