//! The format: what goes in comes out, the same in gives the same out, and nothing that was changed passes.

mod damage;
mod forged;
mod format;

use bytes::Bytes;
use latent_core::{Attributes, MediaType, Offset, Partition, Record, Uid, UnixMillis};

pub(crate) use super::doubles::Keys;
use super::*;

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

fn behind_a_hole(first: &FinishedSegment) -> FinishedSegment {
    let (last, found_at, reason) = (first.header.last.0, UnixMillis(9), HoleReason::RemovedBeforeArchived);
    let mut builder = SegmentBuilder::new(small()).unwrap();
    items(last + 8, 3).iter().for_each(|item| assert_eq!(builder.push(item), Ok(Pushed::Taken)));
    builder.set_hole(Some(Hole { first: Offset(last + 2), last: Offset(last + 6), events: 3, found_at, reason }));
    let previous = PreviousSegment { digest: first.digest, last: first.header.last };
    builder.finish(place(), 1, Some(previous), &Keys::one()).unwrap()
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
        ("cold_segment", "behind-a-hole", behind_a_hole(&first).bytes.to_vec()),
        ("cold_segment", "cut", cut),
    ]
}
