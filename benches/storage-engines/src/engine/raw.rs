//! The raw limit: the same bytes in files, without an index and without anything to recover. What no engine can beat.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::Engine;
use crate::event::{Event, payload_of};
use crate::failure::Failure;

/// Bytes that our engine writes before a body and after it.
const HEADER_BYTES: usize = 48;
const FOOTER_BYTES: usize = 28;
/// Where the length and the checksum of the body stand in the header.
const LENGTH_AT: usize = 8;
const CRC_AT: usize = 12;
/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;
/// Bytes of one block of the floor.
const BLOCK_BYTES: usize = 4_096;
/// What a frame needs at most, for writing ahead.
const FRAME_BYTES_MAX: usize = 512;

/// Whether the file has its size before it is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    /// Zeros up to there, synced before anything is timed.
    Preallocated,
    /// It grows with each commit.
    Growing,
}

/// One file of frames.
pub(crate) struct RawLog {
    file: File,
    space: Space,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    length: u64,
    allocated: u64,
    buffer: Vec<u8>,
    /// Where each event begins, by number: a place known without an index.
    places: Vec<u64>,
}

impl RawLog {
    pub(crate) fn create(folder: &Path, space: Space) -> Result<Self, Failure> {
        let file = File::options().read(true).write(true).create_new(true).open(folder.join("raw.log"));
        let file = file.map_err(Failure::io("create the raw log"))?;
        Ok(Self { file, space, state: Mutex::default() })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A frame of the size that our engine writes. The checksum of the body is the only one: the smallest that can be read back.
fn push_frame(event: &Event, out: &mut Vec<u8>) {
    let mut header = [0_u8; HEADER_BYTES];
    let length = u32::try_from(event.body.len()).unwrap_or(u32::MAX);
    for (at, word) in [(LENGTH_AT, length), (CRC_AT, crc32fast::hash(&event.body))] {
        header.iter_mut().skip(at).zip(word.to_le_bytes()).for_each(|(to, from)| *to = from);
    }
    out.extend_from_slice(&header);
    out.extend_from_slice(&event.body);
    out.extend_from_slice(&[0xff; FOOTER_BYTES]);
}

/// Length and checksum that a header states; a length of zero is space written ahead.
fn length_and_crc(header: &[u8]) -> Option<(usize, u32)> {
    let word = |at: usize| header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    Some((usize::try_from(word(LENGTH_AT)?).ok()?, word(CRC_AT)?))
}

/// The first whole frame in `bytes`: the bytes it takes, and its body. `None` when more must be read.
fn first_frame(bytes: &[u8]) -> Result<Option<(usize, &[u8])>, Failure> {
    let Some((length, crc)) = bytes.get(..HEADER_BYTES).and_then(length_and_crc) else { return Ok(None) };
    let end = HEADER_BYTES + length;
    let Some(body) = bytes.get(HEADER_BYTES..end).filter(|_| bytes.len() >= end + FOOTER_BYTES) else { return Ok(None) };
    if crc32fast::hash(body) != crc {
        return Err(Failure::ForeignRecord { problem: "its checksum is wrong" });
    }
    Ok(Some((end + FOOTER_BYTES, body)))
}

impl Engine for RawLog {
    fn prepare(&self, events: usize) -> Result<(), Failure> {
        if self.space == Space::Growing {
            return Ok(());
        }
        let mut state = self.state();
        let wanted = state.length + (events * FRAME_BYTES_MAX) as u64;
        let zeros = vec![0; READ_BYTES];
        while state.allocated < wanted {
            self.file.write_all_at(&zeros, state.allocated).map_err(Failure::io("write zeros ahead"))?;
            state.allocated += zeros.len() as u64;
        }
        self.file.sync_all().map_err(Failure::io("sync zeros"))
    }

    fn commit(&self, events: &[&Event]) -> Result<(), Failure> {
        let mut state = self.state();
        let State { length, buffer, places, .. } = &mut *state;
        buffer.clear();
        for event in events {
            places.push(*length + buffer.len() as u64);
            push_frame(event, buffer);
        }
        self.file.write_all_at(buffer, *length).map_err(Failure::io("write the raw log"))?;
        *length += buffer.len() as u64;
        self.file.sync_data().map_err(Failure::io("sync the raw log"))
    }

    fn read(&self, visit: &mut dyn FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
        let end = self.state().length;
        let (mut at, mut buffer) = (0, vec![0; READ_BYTES]);
        while at < end {
            let count = self.file.read_at(&mut buffer, at).map_err(Failure::io("read the raw log"))?;
            let known = usize::try_from(end - at).map_or(count, |left| count.min(left));
            let mut rest = buffer.get(..known).unwrap_or_default();
            let before = rest.len();
            while let Some((taken, body)) = first_frame(rest)? {
                visit(payload_of(body)?)?;
                rest = rest.get(taken..).unwrap_or_default();
            }
            if rest.len() == before {
                return Err(Failure::ForeignRecord { problem: "its frame is cut" });
            }
            at += (before - rest.len()) as u64;
        }
        Ok(())
    }

    fn find(&self, event: &Event) -> Result<bool, Failure> {
        let place = usize::try_from(event.number).ok().and_then(|number| self.state().places.get(number).copied());
        let Some(place) = place else { return Ok(false) };
        let mut buffer = [0; FRAME_BYTES_MAX];
        let count = self.file.read_at(&mut buffer, place).map_err(Failure::io("read one frame"))?;
        Ok(first_frame(buffer.get(..count).unwrap_or_default())?.is_some())
    }
}

/// One block, written in place and synced.
pub(crate) struct Floor(File);

impl Floor {
    pub(crate) fn create(folder: &Path) -> Result<Self, Failure> {
        let file = File::options().read(true).write(true).create_new(true).open(folder.join("floor"));
        let file = file.map_err(Failure::io("create the floor's file"))?;
        file.write_all_at(&[0; BLOCK_BYTES], 0).and_then(|()| file.sync_all()).map_err(Failure::io("write the floor's block"))?;
        Ok(Self(file))
    }
}

impl Engine for Floor {
    fn commit(&self, events: &[&Event]) -> Result<(), Failure> {
        let filling = events.first().and_then(|event| event.body.first()).copied().unwrap_or_default();
        self.0.write_all_at(&[filling; BLOCK_BYTES], 0).and_then(|()| self.0.sync_data()).map_err(Failure::io("write the floor's block"))
    }

    fn read(&self, _visit: &mut dyn FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
        let mut block = [0; BLOCK_BYTES];
        (&self.0).read_exact(&mut block).map_err(Failure::io("read the floor's block"))
    }

    fn find(&self, _event: &Event) -> Result<bool, Failure> {
        Err(Failure::Unsupported { engine: "floor", what: "find an event" })
    }
}
