//! The format: what goes in comes out, the same in gives the same out, and nothing that was changed passes.

mod damage;
mod forged;
mod format;

use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use latent_core::{Attributes, MediaType, Offset, Partition, Record, Uid, UnixMillis};
use sha2::Sha256;

use super::*;

/// A ring of keys for tests, newest first.
pub(crate) struct Keys(pub(crate) Vec<[u8; 32]>);

impl Keys {
    pub(crate) fn one() -> Self {
        Self(vec![[7; 32]])
    }

    fn name(key: &[u8; 32]) -> String {
        format!("key-{}", key[0])
    }

    fn mac(key: &[u8; 32], label: &str, message: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        mac.update(label.as_bytes());
        mac.update(&[0]);
        mac.update(Self::name(key).as_bytes());
        mac.update(&[0]);
        mac.update(message);
        mac
    }
}

impl Attest for Keys {
    fn prove(&self, label: &str, message: &[u8]) -> Option<(String, [u8; 32])> {
        let key = self.0.first()?;
        Some((Self::name(key), Self::mac(key, label, message).finalize().into_bytes().into()))
    }

    fn check(&self, label: &str, key_id: &str, message: &[u8], proof: &[u8; 32]) -> Attestation {
        let Some(key) = self.0.iter().find(|key| Self::name(key) == key_id) else { return Attestation::UnknownKey };
        match Self::mac(key, label, message).verify_slice(proof) {
            Ok(()) => Attestation::Proven,
            Err(_) => Attestation::Wrong,
        }
    }
}

pub(crate) fn place() -> SegmentPlace {
    SegmentPlace { bus: "test".to_owned(), topic: "orders.placed".to_owned(), partition: Partition(3) }
}

pub(crate) fn item(offset: u64, payload: impl Into<Bytes>) -> Item {
    let record = Record {
        uid: Uid::parse(&format!("uid-{offset}")).unwrap(),
        key: format!("key-{}", offset % 5),
        media_type: MediaType::json(),
        attributes: Attributes::parse(vec![("Source".to_owned(), "test".to_owned())]).unwrap(),
        payload: payload.into(),
        stored_at: UnixMillis(1_000_000 + offset),
    };
    Item::Record { offset: Offset(offset), record }
}

/// Every seventh of them is damaged, and every fifth offset is nobody's.
pub(crate) fn items(from: u64, count: u64) -> Vec<Item> {
    let offsets = (from..).filter(|offset| offset % 5 != 4);
    let one = |offset: u64| match offset % 7 {
        3 => Item::Damaged { offset: Offset(offset) },
        _ => item(offset, format!("{{\"n\":{offset},\"text\":\"{}\"}}", "abc".repeat(usize::try_from(offset % 11).unwrap()))),
    };
    offsets.take(usize::try_from(count).unwrap()).map(one).collect()
}

/// Blocks of a few items.
pub(crate) fn small() -> SegmentSizes {
    SegmentSizes { items: 64, raw_bytes: 64_000, block_bytes: 512 }
}

pub(crate) fn segment_of(items: &[Item], number: u64, previous: Option<PreviousSegment>) -> FinishedSegment {
    let mut builder = SegmentBuilder::new(small()).unwrap();
    items.iter().for_each(|item| assert_eq!(builder.push(item), Ok(Pushed::Taken)));
    builder.finish(place(), number, previous, &Keys::one()).unwrap()
}

pub(crate) fn read(bytes: &[u8]) -> Result<Vec<Item>, SegmentError> {
    Segment::open(Bytes::copy_from_slice(bytes))?.items().collect()
}

/// Inputs of the fuzz target.
pub(crate) fn corpus() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let first = segment_of(&items(0, 24), 0, None);
    let previous = PreviousSegment { digest: first.digest, last: first.header.last };
    let second = segment_of(&items(first.header.last.0 + 1, 3), 1, Some(previous));
    let cut = first.bytes[..first.bytes.len() / 2].to_vec();
    vec![
        ("cold_segment", "several-blocks", first.bytes.to_vec()),
        ("cold_segment", "the-second", second.bytes.to_vec()),
        ("cold_segment", "cut", cut),
    ]
}
