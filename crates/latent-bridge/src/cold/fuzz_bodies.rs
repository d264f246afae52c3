//! Fuzz targets of the archive's JSON: intents, and objects of one event as verification sees them beside a proven segment. What is signed or
//! proven here is under a key that no input knows.

use std::sync::OnceLock;

use bytes::Bytes;
use latent_core::{Offset, Partition, StoredRecord};

use super::ControlKeys;
use super::export::segment_path;
use super::intent::Intent;
use super::keys::KeyRing;
use super::object;
use super::segment::{Item, SegmentBuilder, SegmentPlace, SegmentSizes};
use super::store::{ColdError, ColdStore, Listed, PutEnd};
use super::verify::{Known, Verification};

const KEY: [u8; 32] = [0x5a; 32];
const TOPIC: &str = "orders";
const PARTITION: Partition = Partition(3);

/// An intent as a file. Only what was signed with the key is taken, whatever lies around it; and read as a payload, it is written as what reads
/// back as the same.
pub(crate) fn cold_intent(input: &[u8]) {
    let Ok(keys) = KeyRing::new(&[KEY]) else { return };
    for name in signed().iter().map(Intent::name) {
        if let Ok(taken) = Intent::decode(&name, input, &keys) {
            assert!(signed().contains(&taken), "an intent was taken that was never signed");
        }
    }
    let Ok(intent) = std::str::from_utf8(input).map_err(drop).and_then(|text| Intent::decode_payload(text).map_err(drop)) else { return };
    let Ok(written) = intent.encode(&keys) else { return };
    // One too large for a file is refused by who reads it.
    if written.len() as u64 <= crate::limits::COLD_OBJECT_BYTES.max {
        assert!(Intent::decode(&intent.name(), &written, &keys) == Ok(intent), "an intent reads back as another");
    }
}

/// An object of one event. What is read is written as what reads back as the same; and nothing but the event of the segment is sound where a
/// segment has one.
pub(crate) fn cold_object(input: &[u8]) {
    let read = object::decode(input);
    if let Ok(stored) = &read {
        assert!(object::decode(&object::encode(stored)).as_ref() == Ok(stored), "an object reads back as another");
    }
    // In its own place, or beside what the segment has, or behind it.
    let offset = Offset(read.as_ref().map_or(1, |stored| stored.offset.0 % 8));
    let beside = Beside { segment: segment().0.clone(), object: Bytes::copy_from_slice(input), offset };
    let Ok(keys) = ControlKeys::new(&[KEY]) else { return };
    let known = Known::default();
    let archive =
        Verification { store: &beside, topic: None, partition: None, keys: Some(&keys), heads: &[], log: None, dense: true, known };
    let Ok(report) = archive.run(&mut |_| {}) else { return };
    let record = segment().1.iter().find(|record| record.offset == offset);
    let is_the_event = record.is_some_and(|record| read.as_ref() == Ok(record) && object::encode(record) == input);
    assert_eq!(report.findings.total() == 0, is_the_event, "an object at offset {offset} is judged wrongly");
    assert_eq!(report.proven_segments, 1);
}

/// Every intent that was ever signed with the key.
fn signed() -> &'static [Intent] {
    static SIGNED: OnceLock<Vec<Intent>> = OnceLock::new();
    SIGNED.get_or_init(|| {
        let intent = |(offset, stored): (Option<u64>, &StoredRecord)| Intent {
            topic: TOPIC.to_owned(),
            partition: PARTITION,
            record: stored.record.clone(),
            offset: offset.map(Offset),
        };
        [None, Some(42)].into_iter().zip(&segment().1).map(intent).collect()
    })
}

/// Events, of which a proven segment has all.
fn segment() -> &'static (Bytes, Vec<StoredRecord>) {
    static SEGMENT: OnceLock<(Bytes, Vec<StoredRecord>)> = OnceLock::new();
    SEGMENT.get_or_init(|| {
        let payloads: [(&str, &[u8]); 5] = [
            ("application/json", b"{\"n\":0, \"text\":\"\\u00e4\"}"),
            ("text/plain", b"\0\xff\xfe"),
            ("application/json", b"[1, 2.50, null]"),
            ("application/octet-stream", b""),
            ("application/json", b"not json"),
        ];
        let record = |(offset, (media_type, payload)): (u64, (&str, &[u8]))| {
            let attributes = vec![("Source".to_owned(), "a \"b\"".to_owned())];
            let content = object::Content { key: "k\u{e4}se", media_type, attributes, payload: Bytes::copy_from_slice(payload) };
            let record = content.record(&format!("uid-{offset}"), 1_000 + offset).ok()?;
            Some(StoredRecord { partition: PARTITION, offset: Offset(offset), record })
        };
        let records: Vec<_> = (0..).zip(payloads).filter_map(record).collect();
        (sealed(&records).unwrap_or_default(), records)
    })
}

fn sealed(records: &[StoredRecord]) -> Option<Bytes> {
    let mut builder = SegmentBuilder::new(SegmentSizes::default()).ok()?;
    for record in records {
        builder.push(&Item::from(record.clone())).ok()?;
    }
    let place = SegmentPlace { bus: "corpus".to_owned(), topic: TOPIC.to_owned(), partition: PARTITION };
    let keys = ControlKeys::new(&[KEY]).ok()?;
    builder.finish(place, 0, None, &keys).ok().map(|finished| finished.bytes)
}

/// A segment, and an object under the name of an offset.
struct Beside {
    segment: Bytes,
    object: Bytes,
    offset: Offset,
}

impl Beside {
    fn objects(&self) -> [(String, &Bytes); 2] {
        let segment = (segment_path(TOPIC, PARTITION, Offset(0)), &self.segment);
        [segment, (object::object_path(TOPIC, PARTITION, self.offset), &self.object)]
    }
}

impl ColdStore for Beside {
    fn put_new(&self, _: &str, _: Bytes) -> Result<PutEnd, ColdError> {
        Ok(PutEnd::Exists)
    }

    fn get(&self, path: &str, _: u64) -> Result<Option<Bytes>, ColdError> {
        Ok(self.objects().into_iter().find(|(name, _)| name == path).map(|(_, bytes)| bytes.clone()))
    }

    fn list_after(&self, prefix: &str, after: &str, count_max: usize) -> Result<Vec<Listed>, ColdError> {
        let listed = self.objects().into_iter().filter(|(name, _)| name.starts_with(prefix) && **name > *after);
        Ok(listed.take(count_max).map(|(name, bytes)| Listed::object(name, bytes.len() as u64)).collect())
    }
}

/// Inputs of both.
#[cfg(test)]
pub(crate) fn corpus() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let keys = KeyRing::new(&[KEY]).unwrap();
    let file = |at: usize| signed()[at].encode(&keys).unwrap();
    let payload = |file: &[u8]| {
        let text = std::str::from_utf8(file).unwrap();
        let (_, payload) = text.split_once("\"payload\":").unwrap();
        payload.as_bytes()[..payload.len() - 1].to_vec()
    };
    let object = |at: usize| object::encode(&segment().1[at]).to_vec();
    vec![
        ("cold_intent", "staged", file(0)),
        ("cold_intent", "with-its-offset", file(1)),
        ("cold_intent", "payload", payload(&file(1))),
        ("cold_object", "json", object(0)),
        ("cold_object", "bytes", object(1)),
        ("cold_object", "empty", object(3)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte changed in several ways, and every cut, of each input.
    #[test]
    fn every_changed_byte_and_every_cut_of_intents_and_objects_is_seen() {
        for (target, _, content) in corpus() {
            let body = if target == "cold_intent" { cold_intent } else { cold_object };
            for at in 0..content.len() {
                for mask in [0x01, 0x20, 0x80, 0xff] {
                    let mut changed = content.clone();
                    changed[at] ^= mask;
                    body(&changed);
                }
                body(&content[..at]);
                body(&content[at..]);
            }
            body(&[&content[..], b" "].concat());
        }
    }

    #[test]
    fn what_was_signed_and_what_the_segment_has_is_taken() {
        let keys = KeyRing::new(&[KEY]).unwrap();
        let intent = &signed()[0];
        assert_eq!(Intent::decode(&intent.name(), &intent.encode(&keys).unwrap(), &keys).as_ref(), Ok(intent));
        // The bodies hold for these as well, where the object lies in its own place.
        corpus().iter().for_each(|(target, _, content)| if *target == "cold_object" { cold_object(content) } else { cold_intent(content) });
    }
}
