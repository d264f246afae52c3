//! One intent: the durable record of an archiving that is staged and not yet finished (B-072). No I/O; `docs/formats/cold-intent.md`.

use std::borrow::Cow;

use bytes::Bytes;
use latent_core::{Offset, Partition, Record, StoredRecord};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::keys::{AUTHENTICATION_FAILED, KeyRing, hex};
use super::object::{self, Content};
use crate::{BusError, limits};

/// Ends the name of every intent's file.
pub(crate) const ENDING: &str = ".json";

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Intent {
    pub(crate) topic: String,
    pub(crate) partition: Partition,
    /// As it is stored, or as it is about to be published.
    pub(crate) record: Record,
    /// Where it is stored, once that is known.
    pub(crate) offset: Option<Offset>,
}

/// Name of the file of an intent.
pub(crate) fn file_name(topic: &str, uid: &str) -> String {
    let digest = Sha256::new().chain_update(topic).chain_update(":").chain_update(uid).finalize();
    hex(&digest) + ENDING
}

impl Intent {
    /// Name of its file.
    pub(crate) fn name(&self) -> String {
        file_name(&self.topic, self.record.uid.as_str())
    }

    /// The record at its place, once that is known.
    pub(crate) fn stored(&self) -> Option<StoredRecord> {
        self.offset.map(|offset| StoredRecord { partition: self.partition, offset, record: self.record.clone() })
    }

    /// Whether both are about the same event (B-074): topic, uid, partition and everything that a publisher gave, JSON compared as values.
    /// When it was stored does not count.
    pub(crate) fn is_same_event(&self, other: &Self) -> bool {
        if self.topic != other.topic || self.partition != other.partition {
            return false;
        }
        if self.record.same_event(&other.record) {
            return true;
        }
        let value = |record: &Record| serde_json::from_slice::<Value>(&record.payload).ok();
        let same_payload = Record { payload: self.record.payload.clone(), ..other.record.clone() };
        self.record.media_type.is_json()
            && self.record.same_event(&same_payload)
            && value(&self.record).is_some_and(|mine| value(&other.record) == Some(mine))
    }

    /// What is written to its file.
    pub(crate) fn encode(&self, keys: &KeyRing) -> Result<Vec<u8>, BusError> {
        let payload = self.payload();
        let signature = keys.sign(&payload)?;
        let mut text = format!("{{\"key_id\":\"{}\",\"mac\":\"{}\",\"payload\":", signature.key_id, signature.mac).into_bytes();
        text.extend_from_slice(&payload);
        text.push(b'}');
        Ok(text)
    }

    fn payload(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.record.payload.len() + 512);
        text.extend_from_slice(b"{\"topic\":");
        object::push_json(&mut text, &self.topic);
        text.extend_from_slice(b",\"event_uid\":");
        object::push_json(&mut text, self.record.uid.as_str());
        text.extend_from_slice(format!(",\"partition\":{}", self.partition).as_bytes());
        object::push_content(&mut text, &self.record);
        if let Some(offset) = self.offset {
            text.extend_from_slice(format!(",\"offset\":{offset}").as_bytes());
        }
        text.push(b'}');
        text
    }

    /// Reads what was written to the file `name`. Nothing of it is believed before its MAC was checked over the bytes as they lie there.
    pub(crate) fn decode(name: &str, content: &[u8], keys: &KeyRing) -> Result<Self, BusError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Envelope<'a> {
            #[serde(borrow)]
            key_id: Cow<'a, str>,
            #[serde(borrow)]
            mac: Cow<'a, str>,
            #[serde(borrow)]
            payload: &'a RawValue,
        }
        let unread = || BusError::Backend(AUTHENTICATION_FAILED.to_owned());
        if content.len() as u64 > limits::COLD_OBJECT_BYTES.max {
            return Err(unread());
        }
        let envelope: Envelope<'_> = serde_json::from_slice(content).map_err(|_| unread())?;
        keys.verify(&envelope.key_id, &envelope.mac, envelope.payload.get().as_bytes())?;
        let intent = Self::decode_payload(envelope.payload.get()).map_err(|problem| BusError::Serde { problem })?;
        if intent.name() != name {
            let problem = format!("the intent {name:.80} is of another event than its name says; it is kept, move it away");
            return Err(BusError::Serde { problem });
        }
        Ok(intent)
    }

    pub(super) fn decode_payload(payload: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Payload<'a> {
            topic: String,
            #[serde(borrow)]
            event_uid: Cow<'a, str>,
            partition: u32,
            #[serde(borrow)]
            key: Cow<'a, str>,
            #[serde(borrow)]
            media_type: Cow<'a, str>,
            attributes: Vec<(String, String)>,
            #[serde(borrow, default, deserialize_with = "object::present")]
            value: Option<&'a RawValue>,
            #[serde(borrow, default)]
            data_base64: Option<Cow<'a, str>>,
            stored_at: u64,
            #[serde(default)]
            offset: Option<u64>,
        }
        let payload: Payload<'_> = serde_json::from_str(payload).map_err(|error| error.to_string())?;
        let bytes: Bytes = object::payload(payload.value, payload.data_base64.as_deref())?;
        let content = Content { key: &payload.key, media_type: &payload.media_type, attributes: payload.attributes, payload: bytes };
        let record = content.record(&payload.event_uid, payload.stored_at)?;
        Ok(Self { topic: payload.topic, partition: Partition(payload.partition), record, offset: payload.offset.map(Offset) })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::object::tests::stored;
    use super::*;

    pub(crate) fn intent(offset: Option<u64>) -> Intent {
        let stored = stored("application/json", b"{\"b\":1, \"a\":[2.50]}", &[("Z", "1")]);
        Intent { topic: "orders".to_owned(), partition: Partition(3), record: stored.record, offset: offset.map(Offset) }
    }

    fn keys(bytes: &[u8]) -> KeyRing {
        KeyRing::new(&bytes.iter().map(|byte| [*byte; 32]).collect::<Vec<_>>()).unwrap()
    }

    fn is_refused(result: &Result<Intent, BusError>) -> bool {
        matches!(result, Err(BusError::Backend(text)) if text == AUTHENTICATION_FAILED)
    }

    /// B-072: golden, because files of an earlier program must be read. Name and MAC were computed apart.
    #[test]
    fn the_name_and_the_bytes_of_an_intent_are_pinned() {
        assert_eq!(intent(None).name(), "181009eddbeb87f4f321262fc4f10ba8189235ee9a95c0a259dc9a767f17bce9.json");
        let text = String::from_utf8(intent(Some(42)).encode(&keys(&[7])).unwrap()).unwrap();
        let payload = "{\"topic\":\"orders\",\"event_uid\":\"u-1\",\"partition\":3,\"key\":\"k\u{e4}se \\\"1\\\"\",\
                       \"media_type\":\"application/json\",\"attributes\":[[\"Z\",\"1\"]],\"value\":{\"b\":1, \"a\":[2.50]},\
                       \"stored_at\":9,\"offset\":42}";
        let (key_id, mac) = ("27e91c1628ef2087", "9db37063c25b8505267020ebb32f34e4034e95ea40e9dfdd17612b29d82fc741");
        assert_eq!(text, format!("{{\"key_id\":\"{key_id}\",\"mac\":\"{mac}\",\"payload\":{payload}}}"));
    }

    #[test]
    fn an_intent_reads_back_with_and_without_its_offset() {
        for offset in [None, Some(0), Some(u64::MAX)] {
            let intent = intent(offset);
            let bytes = intent.encode(&keys(&[7])).unwrap();
            assert_eq!(Intent::decode(&intent.name(), &bytes, &keys(&[7])), Ok(intent.clone()));
            assert_eq!(Intent::decode(&intent.name(), &bytes, &keys(&[8, 7])), Ok(intent), "after a rotation");
        }
    }

    /// B-073: the MAC is over the bytes as they lie there, so that even what means the same is refused.
    #[test]
    fn any_changed_byte_and_any_other_key_is_refused_before_anything_is_believed() {
        let intent = intent(Some(42));
        let bytes = intent.encode(&keys(&[7])).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(is_refused(&Intent::decode(&intent.name(), &changed, &keys(&[7]))), "byte {at}");
            assert!(is_refused(&Intent::decode(&intent.name(), &bytes[..at], &keys(&[7]))), "cut at {at}");
        }
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(is_refused(&Intent::decode(&intent.name(), text.replace("\"stored_at\":9", "\"stored_at\": 9").as_bytes(), &keys(&[7]))));
        assert!(is_refused(&Intent::decode(&intent.name(), &bytes, &keys(&[8]))));
    }

    /// B-078.
    #[test]
    fn an_intent_under_another_name_is_refused() {
        let bytes = intent(None).encode(&keys(&[7])).unwrap();
        for name in ["", "x.json", &file_name("orders", "u-2")] {
            assert!(matches!(Intent::decode(name, &bytes, &keys(&[7])), Err(BusError::Serde { .. })), "{name}");
        }
    }

    #[test]
    fn the_same_event_is_one_whatever_time_it_was_staged() {
        let mut later = intent(Some(1));
        later.record.stored_at = latent_core::UnixMillis(10);
        assert!(intent(None).is_same_event(&later));
        later.record.payload = Bytes::from_static(b"{\"a\":[2.5],\"b\":1}");
        assert!(intent(None).is_same_event(&later), "the same value in other bytes");
        let changes: [fn(&mut Intent); 4] = [
            |intent| intent.topic = "x".to_owned(),
            |intent| intent.partition = Partition(1),
            |intent| intent.record.key = String::new(),
            |intent| intent.record.payload = Bytes::from_static(b"{}"),
        ];
        for change in changes {
            let mut other = intent(None);
            change(&mut other);
            assert!(!intent(None).is_same_event(&other));
        }
    }
}
