//! The body of a frame: uid, key, media type, attributes and payload. Bytes in, values out; no I/O.
//!
//! Equal bodies are equal events: every field that counts for "same content" is in here and nothing else is but what the host writes
//! on dead letters.

use bytes::Bytes;
use latent_core::{Attributes, MediaType, NewRecord, Record, Uid, UnixMillis, limits};

use super::frame::{u16_at, u32_at};

/// Bytes of the lengths at the start of a body.
pub(super) const LENGTHS_BYTES: usize = 16;

/// Byte positions of the lengths.
pub(super) mod lengths_at {
    pub(in super::super) const UID: usize = 0;
    pub(in super::super) const KEY: usize = 2;
    pub(in super::super) const MEDIA_TYPE: usize = 4;
    pub(in super::super) const ATTRIBUTE_COUNT: usize = 6;
    pub(in super::super) const ATTRIBUTES: usize = 8;
    pub(in super::super) const PAYLOAD: usize = 12;
}

/// Room for attributes: those of clients and those the host adds to a dead letter (at most 8 KiB), with their lengths.
const ATTRIBUTES_BYTES_MAX: usize = 16_384;

/// The largest head: lengths, uid and key.
pub(super) const HEAD_BYTES_MAX: usize = LENGTHS_BYTES + limits::UID_BYTES.max_usize() + limits::KEY_BYTES.max_usize();

/// The largest body any record can have. A header that claims more is damaged.
pub(super) const BODY_BYTES_MAX: usize =
    HEAD_BYTES_MAX + limits::MEDIA_TYPE_BYTES.max_usize() + ATTRIBUTES_BYTES_MAX + limits::EVENT_BYTES.max_usize();

/// Length and checksums of an encoded body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BodySummary {
    pub(super) body_len: u32,
    pub(super) body_crc: u32,
    pub(super) head_crc: u32,
}

/// The part of a body that can be read without its payload.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BodyHead<'b> {
    pub(super) key: &'b str,
    pub(super) payload_bytes: u64,
}

struct Lengths {
    uid: usize,
    key: usize,
    media_type: usize,
    attribute_count: usize,
    attributes: usize,
    payload: usize,
}

impl Lengths {
    fn decode(body: &[u8]) -> Option<Self> {
        let short = |at| u16_at(body, at).map(usize::from);
        let long = |at| u32_at(body, at).and_then(|len| usize::try_from(len).ok());
        Some(Self {
            uid: short(lengths_at::UID)?,
            key: short(lengths_at::KEY)?,
            media_type: short(lengths_at::MEDIA_TYPE)?,
            attribute_count: short(lengths_at::ATTRIBUTE_COUNT)?,
            attributes: long(lengths_at::ATTRIBUTES)?,
            payload: long(lengths_at::PAYLOAD)?,
        })
    }

    const fn head_bytes(&self) -> usize {
        LENGTHS_BYTES + self.uid + self.key
    }
}

/// Appends the body of a record under `uid` to `out`. `None`, with `out` as it was, when a field is longer than its limit, which the
/// types of the record rule out.
pub(super) fn encode(uid: &Uid, record: &NewRecord, out: &mut Vec<u8>) -> Option<BodySummary> {
    let start = out.len();
    let summary = append(uid, record, out).filter(|summary| summary.body_len as usize <= BODY_BYTES_MAX);
    if summary.is_none() {
        out.truncate(start);
    }
    summary
}

fn append(uid: &Uid, record: &NewRecord, out: &mut Vec<u8>) -> Option<BodySummary> {
    let (media_type, attributes) = (record.media_type().as_str(), record.attributes());
    let attributes_bytes: usize = attributes.iter().map(|(name, value)| 4 + name.len() + value.len()).sum();
    let fixed = LENGTHS_BYTES + uid.as_str().len() + record.key().len() + media_type.len();
    let start = out.len();
    out.reserve(fixed + attributes_bytes + record.payload().len());
    for length in [uid.as_str().len(), record.key().len(), media_type.len(), attributes.iter().len()] {
        out.extend_from_slice(&u16::try_from(length).ok()?.to_le_bytes());
    }
    for length in [attributes_bytes, record.payload().len()] {
        out.extend_from_slice(&u32::try_from(length).ok()?.to_le_bytes());
    }
    out.extend_from_slice(uid.as_str().as_bytes());
    out.extend_from_slice(record.key().as_bytes());
    let head_end = out.len();
    out.extend_from_slice(media_type.as_bytes());
    for (name, value) in attributes.iter() {
        for text in [name, value] {
            out.extend_from_slice(&u16::try_from(text.len()).ok()?.to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
    }
    out.extend_from_slice(record.payload());
    let body_len = u32::try_from(out.len() - start).ok()?;
    let mut crc = crc32fast::Hasher::new();
    crc.update(out.get(start..head_end)?);
    let head_crc = crc.clone().finalize();
    crc.update(out.get(head_end..)?);
    Some(BodySummary { body_len, body_crc: crc.finalize(), head_crc })
}

/// Decodes a body whose checksum was right. `None` when it still is no record, which only a fault of the writer could cause. Where the
/// media type is `known`, which is that of the record read before it, it is shared with that one.
pub(super) fn decode(body: &[u8], stored_at: UnixMillis, known: Option<&MediaType>) -> Option<Record> {
    let lengths = Lengths::decode(body)?;
    let mut at = LENGTHS_BYTES;
    let mut text = |length: usize| {
        let part = body.get(at..at.checked_add(length)?)?;
        at += length;
        std::str::from_utf8(part).ok()
    };
    let uid = Uid::parse(text(lengths.uid)?).ok()?;
    let key = text(lengths.key)?.to_owned();
    let media_type = text(lengths.media_type)?;
    let media_type = match known.filter(|known| known.as_str() == media_type) {
        Some(known) => known.clone(),
        None => MediaType::parse(media_type).ok()?,
    };
    let attributes = decode_attributes(body.get(at..at.checked_add(lengths.attributes)?)?, lengths.attribute_count)?;
    at += lengths.attributes;
    let payload = body.get(at..).filter(|payload| payload.len() == lengths.payload)?;
    Some(Record { uid, key, media_type, attributes, payload: Bytes::copy_from_slice(payload), stored_at })
}

fn decode_attributes(mut bytes: &[u8], count: usize) -> Option<Attributes> {
    let mut text = || {
        let length = usize::from(u16_at(bytes, 0)?);
        let part = bytes.get(2..2 + length)?;
        bytes = bytes.get(2 + length..)?;
        String::from_utf8(part.to_vec()).ok()
    };
    let pairs = (0..count).map(|_| Some((text()?, text()?))).collect::<Option<Vec<_>>>()?;
    bytes.is_empty().then_some(())?;
    Attributes::stored(pairs).ok()
}

/// Whether two bodies are of the same event (B-056): equal, or different in nothing but what the host wrote.
pub(super) fn same_event(one: &[u8], other: &[u8]) -> bool {
    let record = |body| decode(body, UnixMillis(0), None);
    one == other || record(one).zip(record(other)).is_some_and(|(one, other)| one.same_event(&other))
}

/// The payload of a body that may be damaged: by its lengths where they add up, else all there is.
pub(super) fn remains(body: &[u8]) -> &[u8] {
    let lengths = Lengths::decode(body);
    let payload_at = lengths.filter(|lengths| {
        let before = [lengths.head_bytes(), lengths.media_type, lengths.attributes].iter().sum::<usize>();
        before.checked_add(lengths.payload) == Some(body.len())
    });
    payload_at.and_then(|lengths| body.get(body.len() - lengths.payload..)).unwrap_or(body)
}

/// Reads the uid of a body whose checksum was right.
pub(super) fn decode_uid(body: &[u8]) -> Option<&str> {
    let lengths = Lengths::decode(body)?;
    std::str::from_utf8(body.get(LENGTHS_BYTES..LENGTHS_BYTES.checked_add(lengths.uid)?)?).ok()
}

/// Reads the head at the start of `bytes`, which may end anywhere after it, and checks it against its own checksum.
pub(super) fn decode_head(bytes: &[u8], head_crc: u32) -> Option<BodyHead<'_>> {
    let lengths = Lengths::decode(bytes)?;
    let head = bytes.get(..lengths.head_bytes()).filter(|head| crc32fast::hash(head) == head_crc)?;
    let key = std::str::from_utf8(head.get(LENGTHS_BYTES + lengths.uid..)?).ok()?;
    Some(BodyHead { key, payload_bytes: lengths.payload as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(attributes: Vec<(String, String)>) -> NewRecord {
        let attributes = Attributes::parse(attributes).unwrap();
        NewRecord::new(None, "käse", MediaType::octet_stream(), attributes, Bytes::from_static(b"\0\xffpayload")).unwrap()
    }

    fn encoded(uid: &str, record: &NewRecord) -> (Bytes, BodySummary) {
        let mut bytes = Vec::new();
        let summary = encode(&Uid::parse(uid).unwrap(), record, &mut bytes).unwrap();
        assert_eq!((summary.body_len as usize, summary.body_crc), (bytes.len(), crc32fast::hash(&bytes)));
        (bytes.into(), summary)
    }

    #[test]
    fn a_body_reads_back_as_it_was_written() {
        let uid = Uid::parse("u-1").unwrap();
        for pairs in [vec![], vec![("a".to_owned(), String::new()), ("B-c".to_owned(), "x y".to_owned())]] {
            let new = record(pairs);
            let (bytes, summary) = encoded("u-1", &new);
            let written = new.clone().into_record(uid.clone(), UnixMillis(9));
            for known in [None, Some(MediaType::octet_stream()), Some(MediaType::json())] {
                assert_eq!(decode(&bytes, UnixMillis(9), known.as_ref()).as_ref(), Some(&written), "{known:?}");
            }
            assert_eq!(decode_uid(&bytes), Some("u-1"));
            let head = bytes.slice(..LENGTHS_BYTES + 3 + "käse".len());
            assert_eq!(decode_head(&head, summary.head_crc), Some(BodyHead { key: "käse", payload_bytes: 9 }));
        }
    }

    #[test]
    fn what_the_host_wrote_does_not_make_another_event() {
        let with = |client: &str, host: &str| {
            let client = Attributes::parse(vec![("a".to_owned(), client.to_owned())]).unwrap();
            let attributes = client.with_host(vec![("Latent-Dead-Attempts".to_owned(), host.to_owned())]).unwrap();
            let new = NewRecord::new(None, "k", MediaType::json(), attributes, Bytes::from_static(b"p")).unwrap();
            encoded("u", &new).0
        };
        assert!(same_event(&with("1", "5"), &with("1", "6")));
        assert!(!same_event(&with("1", "5"), &with("2", "5")));
        let plain = encoded("u", &record(vec![])).0;
        assert!(same_event(&plain, &plain) && !same_event(&plain, &encoded("v", &record(vec![])).0));
    }

    #[test]
    fn what_remains_of_a_damaged_body_is_its_payload_where_the_lengths_add_up() {
        let (bytes, _) = encoded("u", &record(vec![("a".to_owned(), "b".to_owned())]));
        assert_eq!(remains(&bytes), b"\0\xffpayload");
        assert_eq!(remains(&bytes[1..]), &bytes[1..]);
        assert_eq!(remains(&[]), b"");
    }

    #[test]
    fn a_cut_or_lengthened_body_is_no_record() {
        let (bytes, _) = encoded("u", &record(vec![("a".to_owned(), "b".to_owned())]));
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length], UnixMillis(0), None), None, "{length}");
        }
        let longer = [&*bytes, b"x"].concat();
        assert_eq!(decode(&longer, UnixMillis(0), None), None);
    }

    #[test]
    fn a_changed_key_is_noticed_without_the_payload() {
        let (bytes, summary) = encoded("u", &record(vec![]));
        let mut bytes = bytes.to_vec();
        bytes[LENGTHS_BYTES + 1] ^= 1;
        assert_eq!(decode_head(&bytes, summary.head_crc), None);
    }

    #[test]
    fn the_largest_record_fits_the_largest_body() {
        let attributes = (0..12).map(|n| (format!("a{n:02}"), "v".repeat(233))).collect();
        let payload = Bytes::from(vec![1; limits::EVENT_BYTES.max_usize()]);
        let media_type = MediaType::parse(&"m".repeat(128)).unwrap();
        let new = NewRecord::new(None, &"k".repeat(1_024), media_type, Attributes::parse(attributes).unwrap(), payload).unwrap();
        let (bytes, _) = encoded(&"u".repeat(256), &new);
        assert!(bytes.len() <= BODY_BYTES_MAX && decode(&bytes, UnixMillis(0), None).is_some());
    }
}
