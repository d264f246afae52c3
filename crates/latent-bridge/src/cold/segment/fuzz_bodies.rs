//! Fuzz target of a cold segment. It reads its input twice: as it is, and with its digest made right, because else hardly any input
//! would come past that.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::Segment;
use super::trailer::SEAL_BYTES;

/// Reading ends, and what it yields is in order and as much as the header says.
pub(crate) fn cold_segment(input: &[u8]) {
    check_what_is_read(input);
    check_what_is_read(&sealed(input.to_vec()));
}

/// Makes the digest right again.
pub(crate) fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let at = bytes.len().saturating_sub(SEAL_BYTES);
    if let Some((covered, seal)) = bytes.split_at_mut_checked(at) {
        let digest: [u8; 32] = Sha256::digest(covered).into();
        seal.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    }
    bytes
}

/// What holds of everything that can be read.
pub(crate) fn check_what_is_read(bytes: &[u8]) {
    let Ok(segment) = Segment::open(Bytes::copy_from_slice(bytes)) else { return };
    let header = segment.header();
    let mut whole = true;
    let mut offsets = Vec::new();
    for item in segment.items() {
        match item {
            Ok(item) => offsets.push(item.offset()),
            Err(_) => whole = false,
        }
    }
    assert!(offsets.is_sorted_by(|a, b| a < b), "offsets do not ascend");
    assert!(offsets.iter().all(|offset| (header.first..=header.last).contains(offset)), "an offset outside those of the header");
    assert!(if whole { offsets.len() == header.items as usize } else { offsets.len() <= header.items as usize }, "more or fewer items");
}
