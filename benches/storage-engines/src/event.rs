//! The events that everything is measured with: 300 bytes of JSON under an explicit uid, spread by key over eight partitions.
//!
//! An event is made once, outside what is timed, in both forms: as the record our engine takes and as the body that every other
//! engine stores. The body has the layout and the size of the one our engine writes.

use bytes::Bytes;
use latent_core::{Attributes, CoreError, MediaType, NewRecord, Uid, partition_for};

use crate::failure::Failure;

/// Partitions of the topic.
pub(crate) const PARTITIONS: u32 = 8;
/// Bytes of a payload.
pub(crate) const PAYLOAD_BYTES: usize = 300;
/// Bytes of a body before its texts.
const LENGTHS_BYTES: usize = 16;
/// Different keys.
const KEYS: u64 = 64;
/// What a payload starts with; its number follows.
const PAYLOAD_START: &str = "{\"number\":\"";
/// Digits of the number in a payload.
const NUMBER_DIGITS: usize = 12;

/// One event in every form that an engine may want.
pub(crate) struct Event {
    /// Its place in the order of publication.
    pub(crate) number: u64,
    /// Its uid. It grows with the number, as a minted one does, which is the kindest order for an index that is a tree.
    pub(crate) uid: String,
    /// The partition its key chooses.
    pub(crate) partition: u32,
    /// What a store keeps.
    pub(crate) body: Vec<u8>,
    /// What our engine takes.
    pub(crate) record: NewRecord,
}

/// Events that are committed together, in both forms.
pub(crate) struct Batch {
    /// As other engines take them.
    pub(crate) events: Vec<Event>,
    /// As `publish_batch` takes them.
    pub(crate) records: Vec<NewRecord>,
}

impl Event {
    /// The event with this number. The same number gives the same event.
    pub(crate) fn numbered(number: u64) -> Result<Self, Failure> {
        let uid = format!("01930000-0000-7000-8000-{number:012x}");
        let key = format!("key-{:02}", number % KEYS);
        let record = record(&uid, &key, payload(number))?;
        let body = body(&uid, &record);
        Ok(Self { number, uid, partition: partition_for(&key, PARTITIONS).0, body, record })
    }

    /// `count` events from `first` on.
    pub(crate) fn numbered_from(first: u64, count: usize) -> Result<Vec<Self>, Failure> {
        (first..).take(count).map(Self::numbered).collect()
    }
}

impl Batch {
    /// `count` events from `first` on.
    pub(crate) fn numbered_from(first: u64, count: usize) -> Result<Self, Failure> {
        let events = Event::numbered_from(first, count)?;
        let records = events.iter().map(|event| event.record.clone()).collect();
        Ok(Self { events, records })
    }
}

fn record(uid: &str, key: &str, payload: String) -> Result<NewRecord, CoreError> {
    NewRecord::new(Some(Uid::parse(uid)?), key, MediaType::json(), Attributes::default(), Bytes::from(payload))
}

fn payload(number: u64) -> String {
    let start = format!(
        "{PAYLOAD_START}{number:0NUMBER_DIGITS$}\",\"type\":\"order.accepted\",\"customer\":{},\"total\":{}.25,\"text\":\"",
        number % 9_973,
        number % 500
    );
    let padding = PAYLOAD_BYTES.saturating_sub(start.len() + 2);
    format!("{start}{}\"}}", "x".repeat(padding))
}

fn body(uid: &str, record: &NewRecord) -> Vec<u8> {
    let (key, media_type, payload) = (record.key(), record.media_type().as_str(), record.payload());
    let mut body = Vec::with_capacity(LENGTHS_BYTES + uid.len() + key.len() + media_type.len() + payload.len());
    for length in [uid.len(), key.len(), media_type.len(), 0] {
        body.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
    }
    for length in [0, payload.len()] {
        body.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    }
    for part in [uid.as_bytes(), key.as_bytes(), media_type.as_bytes(), payload] {
        body.extend_from_slice(part);
    }
    body
}

/// The payload at the end of a body.
pub(crate) fn payload_of(body: &[u8]) -> Result<&[u8], Failure> {
    let foreign = Failure::ForeignRecord { problem: "its body is too short" };
    let start = body.len().checked_sub(PAYLOAD_BYTES).filter(|start| *start >= LENGTHS_BYTES);
    start.and_then(|start| body.get(start..)).ok_or(foreign)
}

/// The number that a payload carries.
pub(crate) fn number_in(payload: &[u8]) -> Result<u64, Failure> {
    let digits = payload.get(PAYLOAD_START.len()..PAYLOAD_START.len() + NUMBER_DIGITS);
    let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|digits| digits.parse().ok());
    number.ok_or(Failure::ForeignRecord { problem: "its payload carries no number" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_json_of_the_stated_size_and_carries_its_number() {
        for number in [0, 7, 999_999_999_999] {
            let event = Event::numbered(number).unwrap();
            let payload = payload_of(&event.body).unwrap();
            assert_eq!((payload.len(), &**event.record.payload()), (PAYLOAD_BYTES, payload));
            assert_eq!(number_in(payload).unwrap(), number);
            assert!(serde_json::from_slice::<serde_json::Value>(payload).is_ok());
        }
    }

    #[test]
    fn events_reach_every_partition() {
        let partitions: std::collections::BTreeSet<_> = Event::numbered_from(0, 64).unwrap().iter().map(|event| event.partition).collect();
        assert_eq!(partitions.len(), PARTITIONS as usize);
    }

    #[test]
    fn what_is_no_body_of_ours_is_refused() {
        assert!(payload_of(&[0; PAYLOAD_BYTES + LENGTHS_BYTES - 1]).is_err());
        assert!(number_in(b"{\"number\":\"12").is_err() && number_in(&[b'x'; 40]).is_err());
    }
}
