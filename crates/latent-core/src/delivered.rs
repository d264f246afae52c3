//! An event as it is handed to a function.

use bytes::Bytes;

use crate::{Attributes, MediaType, Offset, Partition, Record, StoredRecord, TopicName, Uid, UnixMillis};

/// One event on its way into an activation: the record, where it lies, and how often it was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveredEvent {
    /// The topic it was taken from.
    pub topic: TopicName,
    /// Its partition.
    pub partition: Partition,
    /// Its position there.
    pub offset: Offset,
    /// Its uid, if it has one.
    pub uid: Option<Uid>,
    /// Its key; empty when it was published without one.
    pub key: String,
    /// Media type of the payload.
    pub media_type: MediaType,
    /// Its attributes.
    pub attributes: Attributes,
    /// The payload, byte for byte as published.
    pub payload: Bytes,
    /// Which run of this binding on this event this is, counted from 1.
    pub delivery: u32,
    /// When the log took it.
    pub stored_at: UnixMillis,
}

impl DeliveredEvent {
    /// A record of `topic`, on its way into its run number `delivery`.
    pub fn of_record(topic: TopicName, stored: StoredRecord, delivery: u32) -> Self {
        let StoredRecord { partition, offset, record } = stored;
        let Record { uid, key, media_type, attributes, payload, stored_at } = record;
        Self { topic, partition, offset, uid: Some(uid), key, media_type, attributes, payload, delivery, stored_at }
    }
}
