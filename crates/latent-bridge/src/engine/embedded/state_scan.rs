//! The form of a state log: entries, each behind a header of 16 bytes. Bytes in, entries out.

use std::io;

use super::frame::{Salt, u32_at};
use super::window::Window;
use crate::limits;

/// First bytes of an entry, little-endian.
pub(super) const ENTRY_MAGIC: u32 = u32::from_le_bytes(*b"LTS1");
/// Bytes before an entry.
pub(super) const ENTRY_HEADER_BYTES: usize = 16;

/// Byte positions in an entry's header.
pub(super) mod entry_at {
    pub(in super::super) const MAGIC: usize = 0;
    pub(in super::super) const HEADER_CRC: usize = 4;
    pub(in super::super) const LENGTH: usize = 8;
    pub(in super::super) const BODY_CRC: usize = 12;
}

/// What a scan met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Scanned {
    pub(super) entries: u64,
    /// Damaged places with a valid entry after them.
    pub(super) damaged: u64,
    /// End of the last valid entry.
    pub(super) length: u64,
}

/// Appends an entry with its header to `out`. The entry's length is within its limit.
pub(super) fn encode_entry(salt: Salt, entry: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(entry.len()).unwrap_or(u32::MAX).to_le_bytes();
    let body_crc = crc32fast::hash(entry).to_le_bytes();
    let fields = [length, body_crc].concat();
    out.extend_from_slice(&ENTRY_MAGIC.to_le_bytes());
    out.extend_from_slice(&salt.crc(&fields).to_le_bytes());
    out.extend_from_slice(&fields);
    out.extend_from_slice(entry);
}

struct EntryHeader {
    length: usize,
    body_crc: u32,
}

fn decode_header(salt: Salt, bytes: &[u8]) -> Option<EntryHeader> {
    let header = bytes.get(..ENTRY_HEADER_BYTES)?;
    let valid = u32_at(header, entry_at::MAGIC)? == ENTRY_MAGIC
        && u32_at(header, entry_at::HEADER_CRC)? == salt.crc(header.get(entry_at::LENGTH..)?);
    let length = usize::try_from(u32_at(header, entry_at::LENGTH)?).ok()?;
    let body_crc = u32_at(header, entry_at::BODY_CRC)?;
    (valid && length <= limits::STATE_ENTRY_BYTES.max_usize()).then_some(EntryHeader { length, body_crc })
}

/// Hands every valid entry that begins before `end` to `take`.
pub(super) fn scan_entries(window: &mut Window<'_>, end: u64, salt: Salt, take: &mut dyn FnMut(&[u8])) -> io::Result<Scanned> {
    let mut scanned = Scanned::default();
    let mut damaged_before = 0;
    let mut at = 0;
    while at < end {
        let Some(header) = decode_header(salt, window.slice(at, ENTRY_HEADER_BYTES)?) else {
            damaged_before += 1;
            match window.find(at, ENTRY_HEADER_BYTES, |bytes| decode_header(salt, bytes).is_some())? {
                Some(next) => at = next,
                None => break,
            }
            continue;
        };
        let body = window.slice(at + ENTRY_HEADER_BYTES as u64, header.length)?;
        at += (ENTRY_HEADER_BYTES + header.length) as u64;
        if body.len() == header.length && crc32fast::hash(body) == header.body_crc {
            take(body);
            scanned = Scanned { entries: scanned.entries + 1, damaged: scanned.damaged + damaged_before, length: at };
            damaged_before = 0;
        } else {
            damaged_before += 1;
        }
    }
    Ok(scanned)
}
