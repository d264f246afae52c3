//! Bytes whose digest was made right again, by somebody who knows the format and not the key: nothing in them is believed because of it,
//! and none of it makes a reader allocate or run on.

use super::*;
use crate::cold::segment::fuzz_bodies::{check_what_is_read, sealed};
use crate::cold::segment::trailer::{POINTER_BYTES, SEAL_BYTES};

#[test]
fn a_changed_content_with_a_digest_made_again_lacks_the_proof() {
    let bytes = segment_of(&items(0, 3), 0, None).bytes.to_vec();
    let at = 40;
    let mut changed = bytes.clone();
    changed[at] ^= 1;
    assert!(matches!(Segment::open(changed.clone().into()), Err(SegmentError::Changed { .. })));
    if let Ok(segment) = Segment::open(sealed(changed).into()) {
        assert_eq!(segment.attested(&Keys::one()), Attestation::Wrong);
    }
    assert_eq!(sealed(bytes.clone()), bytes);
}

#[test]
fn no_forged_byte_yields_items_out_of_order_or_more_than_the_header_says() {
    let original = segment_of(&items(0, 12), 0, None).bytes.to_vec();
    for at in 0..original.len() - SEAL_BYTES {
        for value in [0, 0x7f, 0xff, original[at] ^ 1] {
            let mut bytes = original.clone();
            bytes[at] = value;
            check_what_is_read(&sealed(bytes));
        }
    }
}

#[test]
fn a_block_that_says_it_becomes_very_large_is_refused_before_anything_is_allocated() {
    let bytes = segment_of(&items(0, 3), 0, None).bytes.to_vec();
    // The last number of the only entry of the index.
    let raw_bytes_at = bytes.len() - SEAL_BYTES - POINTER_BYTES - 4;
    let with = |raw_bytes: u32| {
        let mut bytes = bytes.clone();
        bytes[raw_bytes_at..raw_bytes_at + 4].copy_from_slice(&raw_bytes.to_le_bytes());
        read(&sealed(bytes))
    };
    assert!(matches!(with(u32::MAX), Err(SegmentError::TooLarge { .. })));
    let edge = u32::try_from(crate::limits::ARCHIVE_BLOCK_RAW_BYTES.default).unwrap();
    assert!(matches!(with(edge + 1), Err(SegmentError::TooLarge { .. })));
    assert!(matches!(with(edge), Err(SegmentError::Block { .. })), "room for it, and another size");
    assert!(matches!(with(1), Err(SegmentError::Block { .. })), "a block that does not fit what the index says");
}

#[test]
fn another_version_says_which_one() {
    let mut bytes = segment_of(&items(0, 3), 0, None).bytes.to_vec();
    bytes[8] = 3;
    assert_eq!(read(&sealed(bytes)), Err(SegmentError::Version { version: 3 }));
}

/// Whoever reads holds what is in a segment in memory, so somebody without the key must not make that as large as he likes.
#[test]
fn a_segment_of_more_items_or_more_bytes_than_any_has_is_refused_before_a_block_is_read() {
    let with_blocks = |blocks: u64| {
        let mut builder = SegmentBuilder::new(SegmentSizes { items: 64, raw_bytes: 64_000, block_bytes: 1 }).unwrap();
        (0..blocks).for_each(|offset| assert_eq!(builder.push(&item(offset, "1")), Ok(Pushed::Taken)));
        let mut bytes = builder.finish(place(), 0, None, &Keys::one()).unwrap().bytes.to_vec();
        let end = bytes.len() - SEAL_BYTES - POINTER_BYTES;
        let raw_bytes = u32::try_from(crate::limits::ARCHIVE_BLOCK_RAW_BYTES.max).unwrap().to_le_bytes();
        for entry in 0..usize::try_from(blocks).unwrap() {
            let at = end - entry * crate::cold::segment::index::ENTRY_BYTES - 4;
            bytes[at..at + 4].copy_from_slice(&raw_bytes);
        }
        Segment::open(sealed(bytes).into()).map(drop)
    };
    let edge = crate::limits::ARCHIVE_SEGMENT_BYTES.max / crate::limits::ARCHIVE_BLOCK_RAW_BYTES.max + 1;
    assert_eq!(with_blocks(edge), Ok(()));
    assert!(matches!(with_blocks(edge + 1), Err(SegmentError::TooLarge { .. })));

    let with_items = |count: u64| {
        let mut builder = SegmentBuilder::new(SegmentSizes { items: 100_000, raw_bytes: 64_000_000, block_bytes: 65_536 }).unwrap();
        (0..count).for_each(|offset| assert_eq!(builder.push(&Item::Damaged { offset: Offset(offset) }), Ok(Pushed::Taken)));
        Segment::open(builder.finish(place(), 0, None, &Keys::one()).unwrap().bytes).map(drop)
    };
    let edge = crate::limits::ARCHIVE_SEGMENT_RECORDS.max;
    assert_eq!(with_items(edge), Ok(()));
    assert!(matches!(with_items(edge + 1), Err(SegmentError::Inconsistent { .. })));
}
