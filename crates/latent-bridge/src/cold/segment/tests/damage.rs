//! Accidents: every cut and every flipped bit is seen.

use super::*;

#[test]
fn a_segment_cut_at_any_byte_is_none() {
    let bytes = segment_of(&items(0, 12), 0, None).bytes;
    for length in 0..bytes.len() {
        assert!(read(&bytes[..length]).is_err(), "cut at {length}");
        assert!(read(&bytes[bytes.len() - length..]).is_err(), "all but the first bytes, {length} left");
    }
    assert!(read(&[&bytes[..], b"\0"].concat()).is_err());
}

#[test]
fn every_flipped_bit_is_seen() {
    let finished = segment_of(&items(0, 12), 0, None);
    let mut unseen_without_keys = 0;
    for bit in 0..finished.bytes.len() * 8 {
        let mut bytes = finished.bytes.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(segment) = Segment::open(bytes.into()) {
            unseen_without_keys += 1;
            assert_ne!(segment.attested(&Keys::one()), Attestation::Proven, "bit {bit}");
        }
    }
    // Only the name of the key and the proof, which say nothing without the key.
    assert!(unseen_without_keys <= (32 + 32) * 8, "{unseen_without_keys}");
}

#[test]
fn what_a_broken_segment_claims_to_be_can_still_be_told() {
    let finished = segment_of(&items(5, 12), 0, None);
    let half = &finished.bytes[..finished.bytes.len() / 2];
    assert_eq!(Segment::claims(half), Some(finished.header));
    assert_eq!(Segment::claims(b"{}"), None);
}

#[test]
fn more_than_the_largest_segment_is_not_looked_at() {
    let bytes = Bytes::from(vec![0; crate::limits::ARCHIVE_SEGMENT_OBJECT_BYTES.max_usize() + 1]);
    assert!(matches!(Segment::open(bytes), Err(SegmentError::TooLarge { .. })));
}
