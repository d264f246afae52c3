//! Makes the checksums of a file right, whatever it says.

use super::PARTITIONS;
use crate::engine::embedded::frame::{FOOTER_BYTES, FOOTER_MAGIC, HEADER_BYTES, HEADER_MAGIC, Salt, header_at, u32_at};
use crate::engine::embedded::segment_index::{self, INDEX_FIXED_BYTES, INDEX_PARTITION_BYTES};
use crate::engine::embedded::segment_start::{START_MAGIC, start_bytes};
use crate::engine::embedded::state_scan::{ENTRY_HEADER_BYTES, ENTRY_MAGIC, entry_at};
use crate::engine::embedded::uid_runs::header::run_header_at;
use crate::engine::embedded::uid_runs::page;

/// Where most checksums stand, and where what they cover begins.
const CRC_AT: usize = 4;
const COVERED_AT: usize = 8;

fn put(bytes: &mut [u8], at: usize, number: u32) {
    bytes.iter_mut().skip(at).zip(number.to_le_bytes()).for_each(|(to, from)| *to = from);
}

/// The checksum at byte 4 covers everything from byte 8 on.
pub(super) fn after_checksum(salt: Salt, bytes: &mut [u8]) {
    let crc = salt.crc(bytes.get(COVERED_AT..).unwrap_or_default());
    put(bytes, CRC_AT, crc);
}

/// What begins with a magic in `bytes`, at each place where it does.
fn at_each(bytes: &mut [u8], magic: u32, mut seal: impl FnMut(&mut [u8])) {
    for at in 0..bytes.len() {
        if u32_at(bytes, at) == Some(magic)
            && let Some(found) = bytes.get_mut(at..)
        {
            seal(found);
        }
    }
}

pub(super) fn segment(salt: Salt, bytes: &mut [u8]) {
    if u32_at(bytes, 0) == Some(START_MAGIC)
        && let Some(start) = bytes.get_mut(..start_bytes(PARTITIONS as usize))
    {
        after_checksum(salt, start);
    }
    at_each(bytes, HEADER_MAGIC, |frame| {
        let body_len = u32_at(frame, header_at::BODY_LEN).unwrap_or_default() as usize;
        if let Some(body) = frame.get(HEADER_BYTES..HEADER_BYTES.saturating_add(body_len)) {
            let crc = crc32fast::hash(body);
            put(frame, header_at::BODY_CRC, crc);
        }
        if let Some(header) = frame.get_mut(..HEADER_BYTES) {
            after_checksum(salt, header);
        }
    });
    at_each(bytes, FOOTER_MAGIC, |footer| {
        if let Some(footer) = footer.get_mut(..FOOTER_BYTES) {
            after_checksum(salt.inverted(), footer);
        }
    });
}

pub(super) fn segment_index(salt: Salt, bytes: &mut [u8]) {
    let header_bytes = INDEX_FIXED_BYTES + INDEX_PARTITION_BYTES * PARTITIONS as usize;
    let Some(header) = bytes.get_mut(..header_bytes) else { return };
    after_checksum(salt, header);
    let page_salt = salt.of_parts(u32_at(header, CRC_AT).unwrap_or_default());
    for page in bytes.chunks_mut(segment_index::PAGE_BYTES).skip(header_bytes.div_ceil(segment_index::PAGE_BYTES)) {
        let crc = page_salt.crc(page.get(4..).unwrap_or_default());
        put(page, 0, crc);
    }
}

/// Every page says too which run it belongs to, which follows from the header.
pub(super) fn uid_run(salt: Salt, bytes: &mut [u8]) {
    let mut pages = (0_u32..).zip(bytes.chunks_mut(page::PAGE_BYTES));
    let Some((_, header)) = pages.next() else { return };
    let mark = salt.crc(header.get(run_header_at::FORMAT..run_header_at::ENTRIES).unwrap_or_default());
    after_checksum(salt, header);
    for (number, page) in pages {
        put(page, 4, mark);
        put(page, 8, number);
        let crc = salt.crc(page.get(4..).unwrap_or_default());
        put(page, 0, crc);
    }
}

pub(super) fn state_log(salt: Salt, bytes: &mut [u8]) {
    at_each(bytes, ENTRY_MAGIC, |entry| {
        let length = u32_at(entry, entry_at::LENGTH).unwrap_or_default() as usize;
        if let Some(body) = entry.get(ENTRY_HEADER_BYTES..ENTRY_HEADER_BYTES.saturating_add(length)) {
            let crc = crc32fast::hash(body);
            put(entry, entry_at::BODY_CRC, crc);
        }
        if let Some(header) = entry.get_mut(..ENTRY_HEADER_BYTES) {
            after_checksum(salt, header);
        }
    });
}
