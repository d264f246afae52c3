//! Publications made ready by the publishing thread: frames whose numbers are still blank, and what the commit needs to know of each.
//! No I/O. Whatever can be done before an event's turn comes is done here, because the commit is what all publishers share.

use latent_core::{NewRecord, Uid, partition_for};

use super::body::{self, BodySummary};
use super::frame::{FOOTER_BYTES, HEADER_BYTES, frame_bytes};
use super::uid_hash::UidHasher;
use super::uid_runs::UidHash;
use crate::BusError;

/// One event of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) uid: Uid,
    pub(super) uid_hash: UidHash,
    pub(super) partition: u16,
    pub(super) body: BodySummary,
}

impl Event {
    /// Bytes of its frame.
    pub(super) const fn frame_bytes(&self) -> u64 {
        frame_bytes(self.body.body_len)
    }
}

/// Events that are handed over together, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Events {
    /// One frame after the other, header and footer blank.
    pub(super) frames: Vec<u8>,
    pub(super) events: Vec<Event>,
}

impl Events {
    /// Nothing yet, with room for these.
    pub(super) fn for_records(records: &[NewRecord]) -> Self {
        let bytes: u64 = records.iter().map(frame_bytes_max).sum();
        Self { frames: Vec::with_capacity(usize::try_from(bytes).unwrap_or_default()), events: Vec::with_capacity(records.len()) }
    }

    /// Adds a record under `uid`.
    pub(super) fn push(&mut self, uid: Uid, record: &NewRecord, topic: TopicTraits<'_>) -> Result<(), BusError> {
        let start = self.frames.len();
        self.frames.extend_from_slice(&[0; HEADER_BYTES]);
        let Some(body) = body::encode(&uid, record, &mut self.frames) else {
            self.frames.truncate(start);
            return Err(BusError::Rejected { rule: "the record is larger than its fields may be".to_owned(), permanent: true });
        };
        self.frames.extend_from_slice(&[0; FOOTER_BYTES]);
        let partition = u16::try_from(partition_for(record.key(), topic.partitions).0).unwrap_or(u16::MAX);
        self.events.push(Event { uid_hash: topic.hasher.hash(uid.as_str()), uid, partition, body });
        Ok(())
    }
}

/// At least the bytes of a record's frame, for who wants to know before the frame is made.
pub(super) fn frame_bytes_max(record: &NewRecord) -> u64 {
    const MINTED_UID_BYTES: usize = 36;
    let uid = record.uid.as_ref().map_or(MINTED_UID_BYTES, |uid| uid.as_str().len());
    let attributes: usize = record.attributes().iter().map(|(name, value)| 4 + name.len() + value.len()).sum();
    let fields = uid + record.key().len() + record.media_type().as_str().len() + attributes + record.payload().len();
    (HEADER_BYTES + body::LENGTHS_BYTES + fields + FOOTER_BYTES) as u64
}

/// What of a topic decides how its events are made ready.
#[derive(Clone, Copy)]
pub(super) struct TopicTraits<'t> {
    pub(super) partitions: u32,
    pub(super) hasher: &'t UidHasher,
}

/// The body within a frame.
pub(super) fn body_of(frame: &[u8]) -> &[u8] {
    frame.get(HEADER_BYTES..frame.len().saturating_sub(FOOTER_BYTES)).unwrap_or_default()
}
