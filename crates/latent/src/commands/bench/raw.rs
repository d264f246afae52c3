//! The loops by hand: the same bytes in one file, without an index and without anything to recover. What no log can beat.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::event::payload_of;
use super::failed;
use crate::error::CliError;

/// Bytes that our log writes before a body and after it.
pub(super) const HEADER_BYTES: usize = 48;
pub(super) const FOOTER_BYTES: usize = 28;
/// Where the length and the checksum of the body stand in a header, as in our log's.
const LENGTH_AT: usize = 8;
const CRC_AT: usize = 12;
/// Bytes read or zeroed at once.
const CHUNK_BYTES: usize = 1 << 20;

/// One file of frames with zeros behind them.
pub(super) struct RawLog {
    file: File,
    length: u64,
    zeroed: u64,
    buffer: Vec<u8>,
}

impl RawLog {
    /// An empty one in `folder`.
    pub(super) fn create(folder: &Path) -> Result<Self, CliError> {
        let file = File::options().read(true).write(true).create_new(true).open(folder.join("raw.log"));
        let file = file.map_err(failed("making the file of the loop by hand"))?;
        Ok(Self { file, length: 0, zeroed: 0, buffer: Vec::new() })
    }

    /// Writes zeros ahead for these bodies and syncs them, so that no commit changes the file's size.
    pub(super) fn prepare<'b>(&mut self, bodies: impl Iterator<Item = &'b [u8]>) -> Result<(), CliError> {
        let wanted = self.length + bodies.map(|body| frame_bytes(body.len()) as u64).sum::<u64>();
        let zeros = vec![0; CHUNK_BYTES];
        while self.zeroed < wanted {
            self.file.write_all_at(&zeros, self.zeroed).map_err(failed("writing zeros ahead"))?;
            self.zeroed += zeros.len() as u64;
        }
        self.file.sync_all().map_err(failed("syncing zeros"))
    }

    /// Appends a group with one write and one sync.
    pub(super) fn commit<'b>(&mut self, bodies: impl Iterator<Item = &'b [u8]>) -> Result<(), CliError> {
        self.append(bodies)?;
        self.file.sync_data().map_err(failed("syncing the loop by hand"))
    }

    /// Appends without a sync, for what is going to be read.
    pub(super) fn append<'b>(&mut self, bodies: impl Iterator<Item = &'b [u8]>) -> Result<(), CliError> {
        self.buffer.clear();
        bodies.for_each(|body| push_frame(body, &mut self.buffer));
        self.file.write_all_at(&self.buffer, self.length).map_err(failed("writing the loop by hand"))?;
        self.length += self.buffer.len() as u64;
        Ok(())
    }

    /// Reads everything in order, checks it, and parses each payload as JSON. Values are held a page at a time, as who fetches pages
    /// holds them. How many there were.
    pub(super) fn read_decoded(&self, page_events: usize) -> Result<u64, CliError> {
        let (mut count, mut page) = (0, Vec::new());
        each_frame(&self.file, 0, &mut |_, body| {
            page.extend(payload_of(body).and_then(|payload| serde_json::from_slice::<serde_json::Value>(payload).ok()));
            if page.len() == page_events {
                count += std::hint::black_box(std::mem::take(&mut page)).len() as u64;
            }
        })?;
        Ok(count + std::hint::black_box(page).len() as u64)
    }
}

const fn frame_bytes(body_bytes: usize) -> usize {
    HEADER_BYTES + body_bytes + FOOTER_BYTES
}

/// A frame of the size that our log writes. The checksum of the body is the only one: the least that can be read back.
fn push_frame(body: &[u8], out: &mut Vec<u8>) {
    let mut header = [0_u8; HEADER_BYTES];
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    for (at, word) in [(LENGTH_AT, length), (CRC_AT, crc32fast::hash(body))] {
        header.iter_mut().skip(at).zip(word.to_le_bytes()).for_each(|(to, from)| *to = from);
    }
    out.extend_from_slice(&header);
    out.extend_from_slice(body);
    out.extend_from_slice(&[0xff; FOOTER_BYTES]);
}

/// Visits header and body of a file's frames from byte `from` on, each body with its checksum found right, and reads the file to its
/// end. Frames end where there is none: at zeros, or at the end. Our log's segments can be read so too.
pub(super) fn each_frame(file: &File, from: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), CliError> {
    let (mut at, mut buffer, mut filled) = (from, vec![0; CHUNK_BYTES], 0);
    let mut in_frames = true;
    loop {
        let room = buffer.get_mut(filled..).unwrap_or_default();
        let count = file.read_at(room, at).map_err(failed("reading frames"))?;
        if count == 0 {
            return Ok(());
        }
        (at, filled) = (at + count as u64, filled + count);
        let mut rest = if in_frames { buffer.get(..filled).unwrap_or_default() } else { &[] };
        loop {
            match first_frame(rest) {
                Found::Frame { bytes, header, body } => {
                    visit(header, body);
                    rest = rest.get(bytes..).unwrap_or_default();
                }
                Found::More { bytes } => {
                    let kept = rest.len();
                    buffer.copy_within(filled - kept..filled, 0);
                    filled = kept;
                    buffer.resize(buffer.len().max(bytes), 0);
                    break;
                }
                Found::End => {
                    (in_frames, filled) = (false, 0);
                    break;
                }
            }
        }
    }
}

enum Found<'b> {
    Frame {
        bytes: usize,
        header: &'b [u8],
        body: &'b [u8],
    },
    /// The frame is longer than what was read; all of it takes so many bytes.
    More {
        bytes: usize,
    },
    End,
}

/// No body is longer: what says so is no header.
const BODY_BYTES_MAX: usize = 1 << 20;

fn first_frame(bytes: &[u8]) -> Found<'_> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Found::More { bytes: HEADER_BYTES } };
    let word = |at: usize| header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
    let length = usize::try_from(word(LENGTH_AT)).unwrap_or(usize::MAX);
    if length == 0 || length > BODY_BYTES_MAX {
        return Found::End;
    }
    let whole = frame_bytes(length);
    match bytes.get(HEADER_BYTES..HEADER_BYTES + length) {
        Some(body) if bytes.len() >= whole && crc32fast::hash(body) == word(CRC_AT) => Found::Frame { bytes: whole, header, body },
        Some(_) if bytes.len() >= whole => Found::End,
        _ => Found::More { bytes: whole },
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::{PayloadSize, body};
    use super::*;

    fn log() -> (tempfile::TempDir, RawLog) {
        let folder = tempfile::tempdir().unwrap();
        let log = RawLog::create(folder.path()).unwrap();
        (folder, log)
    }

    #[test]
    fn what_was_committed_is_read_back_over_the_edges_of_chunks() {
        let (_folder, mut log) = log();
        let written: Vec<_> = (0..400).map(|number| body(PayloadSize::Large, number).unwrap()).collect();
        for group in written.chunks(16) {
            log.prepare(group.iter().map(Vec::as_slice)).unwrap();
            log.commit(group.iter().map(Vec::as_slice)).unwrap();
        }
        assert!(log.length > 2 * CHUNK_BYTES as u64);
        let mut bodies = Vec::new();
        each_frame(&log.file, 0, &mut |_, body| bodies.push(body.to_vec())).unwrap();
        assert!(bodies == written);
        assert_eq!(log.read_decoded(7).unwrap(), 400);
    }

    #[test]
    fn a_frame_with_a_wrong_checksum_ends_the_frames() {
        let (_folder, mut log) = log();
        log.append([&b"one"[..], b"two", b"three"].into_iter()).unwrap();
        log.file.write_all_at(b"T", (frame_bytes(3) + HEADER_BYTES) as u64).unwrap();
        let mut bodies = Vec::new();
        each_frame(&log.file, 0, &mut |_, body| bodies.push(body.to_vec())).unwrap();
        assert_eq!(bodies, [b"one"]);
    }

    #[test]
    fn a_length_beyond_every_body_is_no_frame() {
        let mut bytes = vec![0; HEADER_BYTES];
        for (length, is_frame) in [(0, false), (BODY_BYTES_MAX, true), (BODY_BYTES_MAX + 1, false)] {
            bytes[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
            assert_eq!(matches!(first_frame(&bytes), Found::More { .. }), is_frame, "{length}");
        }
    }
}
