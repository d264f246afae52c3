//! The contract of a bus: submit and complete, with a blocking façade on top. No engine and no I/O lives here.

pub(crate) mod batch;
pub(crate) mod in_order;
mod pages;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use latent_core::{Attributes, MediaType, NewRecord, Offset, Partition, StoredRecord, Ticket, Uid, UnixMillis};
use serde::Serialize;
use serde_json::Value;

use crate::cold::ArchiveStatistics;
use crate::cold::export::AttestedHead;
use crate::{BusError, MaintenanceReport, StoredEvent, limits};

pub use in_order::{Fence, InOrder};

/// Where an event lies. On the embedded engine the offset is partition-local, on NATS it is the stream sequence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PublishAck {
    /// The topic.
    pub topic: String,
    /// The partition the key chose.
    pub partition: u32,
    /// The position there.
    pub offset: u64,
    /// The event's uid.
    pub uid: String,
    /// True when the log already held this uid with the same content.
    pub duplicate: bool,
}

/// What became of one publication.
pub type PublishResult = Result<PublishAck, BusError>;

/// What can be known of a record without holding its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordHead {
    /// The position.
    pub offset: Offset,
    /// Key and size, or that the record is damaged.
    pub content: HeadContent,
}

/// See [`RecordHead`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadContent {
    /// The record can be read.
    Readable {
        /// Its key.
        key: String,
        /// Bytes of its payload.
        payload_bytes: u64,
    },
    /// The record is damaged; its offset stays occupied.
    Damaged,
}

/// Told after records became readable. Called on the thread that committed them, while
/// nobody else can commit: it must not block and must not call the bus.
pub trait AppendWatcher: Send + Sync {
    /// `next` is the offset after the last readable record of the partition.
    fn appended(&self, topic: &str, partition: Partition, next: Offset);
}

/// Partitioned, ordered, replayable topics.
///
/// [`EventBus::submit_record`] never blocks: it checks, hands over and returns a ticket, or a ready ticket with the reason why not. The
/// other `submit_*` methods read; an engine on local files reads where it is called, so call them where waiting for a disk is allowed.
/// The remaining methods are the blocking façade over them and must not be called from an async task.
pub trait EventBus: Send + Sync {
    /// Publishes one record. A missing uid is minted (UUIDv7). Acknowledged means durable.
    fn submit_record(&self, topic: &str, record: NewRecord) -> Ticket<PublishResult>;

    /// One page: records with offsets ≥ `offset`, ascending, at most `max`, and no more than an engine's bounds let through at once.
    /// Below the first readable offset it begins there. A damaged record ends the page before it; when it is the first, the result is
    /// [`BusError::Unreadable`], and reading can go on after it. Only an empty page says that there are no more.
    fn submit_fetch(&self, topic: &str, partition: Partition, offset: Offset, max: usize) -> Ticket<Result<Vec<StoredRecord>, BusError>>;

    /// Heads of records with offsets ≥ `offset`, ascending, at most `max`; damaged records are listed as such. Fewer than `max`, up to
    /// 1,024, means that there are no more.
    fn submit_heads(&self, topic: &str, partition: Partition, offset: Offset, max: usize) -> Ticket<Result<Vec<RecordHead>, BusError>>;

    /// What bytes there are of the payload of a record that cannot be read, whatever they hold: for whoever keeps what is left of it. None
    /// where nothing of it can be made out, or on an engine that keeps no such bytes.
    fn submit_remains(&self, _topic: &str, _partition: Partition, _offset: Offset) -> Ticket<Result<Bytes, BusError>> {
        Ticket::ready(Ok(Bytes::new()))
    }

    /// Where the event that was published with this key and uid lies, or `None` when there certainly is none.
    ///
    /// An engine with an index answers from it. Without one, the partition of the key is read where it is called, in pages of
    /// `limits::FIND_PAGE_RECORDS`, up to the end it has at the call. A damaged record on the way may have been the one: when the uid
    /// is not found elsewhere, the answer is [`BusError::Unreadable`] naming the first of them.
    fn submit_find(&self, topic: &str, key: &str, uid: &Uid) -> Ticket<Result<Option<PublishAck>, BusError>> {
        Ticket::ready(pages::find(self, topic, key, uid))
    }

    /// The name of the stream that holds a topic: what a receipt calls it. The topic itself, on an engine that has no streams.
    fn stream_of(&self, topic: &str) -> String {
        topic.to_owned()
    }

    /// How many partitions the topic has.
    ///
    /// # Errors
    /// [`BusError::UnknownTopic`].
    fn partitions(&self, topic: &str) -> Result<u32, BusError>;

    /// The declared topics, sorted.
    fn topics(&self) -> Vec<String>;

    /// First readable offset and the offset after the last one, of a partition.
    ///
    /// # Errors
    /// [`BusError::UnknownTopic`], [`BusError::OutOfRange`].
    fn bounds(&self, topic: &str, partition: Partition) -> Result<(Offset, Offset), BusError>;

    /// Sets the one watcher of this bus; it replaces an earlier one.
    fn watch_appends(&self, watcher: Arc<dyn AppendWatcher>);

    /// Does what time makes due: expires records that are older than their topic keeps them, and completes archive intents. `now` is
    /// the wall clock; a time in the past only makes less due.
    ///
    /// # Errors
    /// [`BusError::Io`] and what else stopped the pass as a whole. What concerns one topic or intent stands in the report.
    fn maintain(&self, now: UnixMillis) -> Result<MaintenanceReport, BusError>;

    /// As [`EventBus::maintain`], with the time in milliseconds since 1970: how many records expired and intents were completed.
    ///
    /// # Errors
    /// See [`EventBus::maintain`].
    fn maintenance(&self, now_ms: u64) -> Result<u64, BusError> {
        let report = self.maintain(UnixMillis(now_ms))?;
        Ok(report.expired_records.saturating_add(report.intents_completed))
    }

    /// Sets the key that authenticates archive intents from now on; those that were set before still verify. A bus without an archive has no use for one and takes any.
    ///
    /// # Errors
    /// [`BusError::Config`] for a key that protects nothing.
    fn set_control_key(&self, _key: [u8; 32]) -> Result<(), BusError> {
        Ok(())
    }

    /// Sets the whole ring of control keys, the newest first: it signs, all verify. A bus without an archive takes any.
    ///
    /// # Errors
    /// [`BusError::Config`] for a key that protects nothing, or too many.
    fn set_control_keys(&self, _newest_first: &[[u8; 32]]) -> Result<(), BusError> {
        Ok(())
    }

    /// Up to where a partition of a topic with `cold_format: segments` is in its archive, with a proof; none where nothing is yet.
    ///
    /// # Errors
    /// [`BusError::Backend`] when what was written down is not proven by a control key; [`BusError::Io`].
    fn archive_head(&self, _topic: &str, _partition: Partition) -> Result<Option<AttestedHead>, BusError> {
        Ok(None)
    }

    /// From which offset on a partition's events are archived at its topic's `cold_uri`: what is older was stored before that, and need not
    /// be there. None where it is not archived, or that is not known.
    ///
    /// # Errors
    /// [`BusError`] when it could not be asked.
    fn archived_since(&self, _topic: &str, _partition: Partition) -> Result<Option<Offset>, BusError> {
        Ok(None)
    }

    /// What waits in the archive's outbox; none when no topic is archived.
    fn archive_statistics(&self) -> Option<ArchiveStatistics> {
        None
    }

    /// Publishes one record and waits.
    ///
    /// # Errors
    /// See [`BusError`]; `Uncertain` means that it may be stored.
    fn publish_record(&self, topic: &str, record: &NewRecord) -> PublishResult {
        self.submit_record(topic, record.clone()).wait()
    }

    /// Publishes a JSON value. The uid is `value.metadata.uid` when that is a string, else it is minted (B-010).
    ///
    /// # Errors
    /// See [`EventBus::publish_record`].
    fn publish(&self, topic: &str, key: &str, value: &Value) -> PublishResult {
        let uid = metadata_uid(value).map(Uid::parse).transpose()?;
        self.publish_record(topic, &json_record(uid, key, value)?)
    }

    /// Publishes a JSON value under `event_uid`, which `value.metadata.uid` must equal where it is a string (D-16).
    ///
    /// # Errors
    /// See [`EventBus::publish_record`]; a different `metadata.uid` is `Rejected`.
    fn publish_idempotent(&self, topic: &str, key: &str, value: &Value, event_uid: &str) -> PublishResult {
        if let Some(inner) = metadata_uid(value).filter(|inner| *inner != event_uid) {
            let rule =
                format!("metadata.uid {inner:?} differs from the uid {event_uid:?} of the call; make them equal or leave metadata.uid out");
            return Err(BusError::Rejected { rule, permanent: true });
        }
        self.publish_record(topic, &json_record(Some(Uid::parse(event_uid)?), key, value)?)
    }

    /// Publishes many records, sharing commits; one result for each, in order. At most `limits::BATCH_IN_FLIGHT` of them and
    /// `limits::BATCH_IN_FLIGHT_BYTES` of payload are handed over and unanswered at a time. Once one failed in a way that may pass, those
    /// not handed over yet are refused as well: a later event of its key must not overtake it.
    fn publish_batch(&self, topic: &str, records: &[NewRecord]) -> Vec<PublishResult> {
        batch::publish(self, topic, records)
    }

    /// Events in their JSON form, with offsets ≥ `offset`, ascending: `max` of them or as many as there are at the call, whichever is
    /// less. The list is never shorter than that. It reads page after page, so `max` may be any number, but what it collects is
    /// bounded by `limits::FETCH_TOTAL_BYTES`.
    ///
    /// Below the first readable offset it begins there; at or beyond the end it is empty. A damaged record among those asked for is an
    /// error that names it. What comes before it is had from [`EventBus::submit_fetch`], or with a `max` that ends before it; what comes
    /// after it, by asking from the offset after it on.
    ///
    /// # Errors
    /// [`BusError::UnknownTopic`]; [`BusError::OutOfRange`] for a partition that does not exist, or for more bytes than the bound, when
    /// fewer records must be asked for; [`BusError::Unreadable`], [`BusError::Io`].
    fn fetch(&self, topic: &str, partition: u32, offset: u64, max: usize) -> Result<Vec<StoredEvent>, BusError> {
        let bytes_max = limits::FETCH_TOTAL_BYTES.default;
        pages::fetch(self, pages::Wanted { topic, partition: Partition(partition), offset: Offset(offset), count_max: max, bytes_max })
    }

    /// [`EventBus::submit_find`], waited for. `None` is certain.
    ///
    /// # Errors
    /// [`BusError::UnknownTopic`]; [`BusError::Rejected`] for a uid that no event can have; [`BusError::Unreadable`] when a damaged record
    /// leaves the answer open; [`BusError::Io`].
    fn find_event_by_uid(&self, topic: &str, key: &str, event_uid: &str) -> Result<Option<PublishAck>, BusError> {
        self.submit_find(topic, key, &Uid::parse(event_uid)?).wait()
    }
}

fn metadata_uid(value: &Value) -> Option<&str> {
    value.get("metadata")?.get("uid")?.as_str()
}

fn json_record(uid: Option<Uid>, key: &str, value: &Value) -> Result<NewRecord, BusError> {
    let payload = serde_json::to_vec(value).map_err(|error| BusError::Serde { problem: error.to_string() })?;
    Ok(NewRecord::new(uid, key, MediaType::json(), Attributes::default(), Bytes::from(payload))?)
}
