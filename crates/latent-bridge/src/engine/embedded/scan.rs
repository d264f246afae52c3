//! Reads one segment from front to back and says what lies where. It decides what is a record, what is a damaged record and what is
//! a torn tail; what that means for offsets is decided in `rebuild`.
//!
//! - The start: numbers given before the segment, at its very beginning.
//!
//! - A record: header and body checksums are right. Its footer does not matter.
//! - A damaged record: header or footer names it, and it was written to its end, or something valid follows it.
//! - The tail: what comes after the last of both. All zero: space written ahead. Anything else: a write that did not finish.

use std::io;

use super::body::BODY_BYTES_MAX;
use super::frame::{FOOTER_BYTES, HEADER_BYTES, Header, Identity, Salt};
use super::numbers::Numbers;
use super::segment_start::{self, start_bytes};
use super::window::Window;

/// One thing found.
pub(super) enum Found<'b> {
    /// The segment's start.
    Start(Numbers),
    /// A whole record.
    Record {
        /// Its header.
        header: Header,
        /// Position of its frame in the segment.
        at: u64,
        /// Its body.
        body: &'b [u8],
    },
    /// A record whose content is lost.
    Damaged(Identity),
}

/// How a segment ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentEnd {
    /// End of the last record, damaged or not, or else of the segment's start.
    pub(super) length: u64,
    /// Size of the file.
    pub(super) file_bytes: u64,
    /// True when something unfinished lies between.
    pub(super) torn: bool,
}

/// Scans a segment of a topic with `partitions` partitions, telling `tell` of everything found, in order.
pub(super) fn scan_segment(
    window: &mut Window<'_>,
    salt: Salt,
    partitions: usize,
    tell: &mut dyn FnMut(Found<'_>),
) -> io::Result<SegmentEnd> {
    let mut length = 0;
    if let Some(start) = segment_start::decode(salt, window.slice(0, start_bytes(partitions))?, partitions) {
        length = start_bytes(partitions) as u64;
        tell(Found::Start(start));
    }
    let mut scan = Scan { window, salt, tell, unfinished: Vec::new(), length, zeros_from: None };
    let mut at = length;
    while let Some(next) = scan.step(at)? {
        at = next;
    }
    let (length, file_bytes, zeros_from) = (scan.length, scan.window.file_bytes(), scan.zeros_from);
    let torn = length < file_bytes && zeros_from != Some(length) && !scan.window.is_zero_from(length)?;
    Ok(SegmentEnd { length, file_bytes, torn })
}

struct Scan<'s, 'f, 't> {
    window: &'s mut Window<'f>,
    salt: Salt,
    tell: &'t mut dyn FnMut(Found<'_>),
    /// Named by a header, body damaged, no footer: damaged if anything valid follows, else part of the tail.
    unfinished: Vec<Identity>,
    length: u64,
    /// Nothing but zeros from here on.
    zeros_from: Option<u64>,
}

impl Scan<'_, '_, '_> {
    /// Looks at the bytes at `at` and says where to go on, or `None` at the end.
    fn step(&mut self, at: u64) -> io::Result<Option<u64>> {
        match Header::decode(self.salt, self.window.slice(at, HEADER_BYTES)?, BODY_BYTES_MAX) {
            Some(header) => self.frame(at, header),
            None => self.resume(at),
        }
    }

    fn frame(&mut self, at: u64, header: Header) -> io::Result<Option<u64>> {
        let end = at + header.frame_bytes();
        let body_at = at + HEADER_BYTES as u64;
        let body_len = header.body_len as usize;
        let body = self.window.slice(body_at, body_len)?;
        if body.len() == body_len && crc32fast::hash(body) == header.body_crc {
            self.unfinished.drain(..).for_each(|identity| (self.tell)(Found::Damaged(identity)));
            (self.tell)(Found::Record { header, at, body: self.window.slice(body_at, body_len)? });
            self.length = end;
            return Ok(Some(end));
        }
        let footer = self.window.slice(body_at + u64::from(header.body_len), FOOTER_BYTES)?;
        if Identity::decode_footer(self.salt, footer) == Some(header.identity) {
            self.damaged(header.identity, end);
        } else {
            self.unfinished.push(header.identity);
        }
        Ok(Some(end))
    }

    fn damaged(&mut self, identity: Identity, end: u64) {
        self.unfinished.drain(..).for_each(|earlier| (self.tell)(Found::Damaged(earlier)));
        (self.tell)(Found::Damaged(identity));
        self.length = end;
    }

    /// No header at `at`: goes on at the next header, or after the footer of the record whose header is lost.
    fn resume(&mut self, at: u64) -> io::Result<Option<u64>> {
        // The usual end, and much faster to see than to search.
        if self.window.is_zero_from(at)? {
            self.zeros_from = Some(at);
            return Ok(None);
        }
        let salt = self.salt;
        let mut footer = None;
        let found = self.window.find(at, HEADER_BYTES, |bytes| {
            footer = Identity::decode_footer(salt, bytes);
            footer.is_some() || Header::decode(salt, bytes, BODY_BYTES_MAX).is_some()
        })?;
        let Some(found) = found else { return Ok(None) };
        let Some(identity) = footer else { return Ok(Some(found)) };
        let end = found + FOOTER_BYTES as u64;
        self.damaged(identity, end);
        Ok(Some(end))
    }
}
