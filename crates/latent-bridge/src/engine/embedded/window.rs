//! A sliding view of a file, so that scanning a log of any size needs a bounded buffer.

use std::io;

use super::storage::StorageFile;

/// Bytes read at a time where a whole file is read.
pub(super) const CHUNK_BYTES: usize = 262_144;

/// See the module. Slices end early only at the end of the file.
pub(super) struct Window<'f> {
    file: &'f dyn StorageFile,
    file_bytes: u64,
    chunk_bytes: usize,
    start: u64,
    buffer: Vec<u8>,
}

impl<'f> Window<'f> {
    pub(super) fn new(file: &'f dyn StorageFile) -> io::Result<Self> {
        Self::with_chunk(file, CHUNK_BYTES)
    }

    /// A view that reads `chunk_bytes` at a time.
    pub(super) fn with_chunk(file: &'f dyn StorageFile, chunk_bytes: usize) -> io::Result<Self> {
        Ok(Self { file, file_bytes: file.bytes()?, chunk_bytes, start: 0, buffer: Vec::new() })
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Up to `wanted` bytes at `at`.
    pub(super) fn slice(&mut self, at: u64, wanted: usize) -> io::Result<&[u8]> {
        let wanted = usize::try_from(self.file_bytes.saturating_sub(at)).unwrap_or(usize::MAX).min(wanted);
        if self.buffered(at, wanted).is_none() {
            self.refill(at, wanted)?;
        }
        Ok(self.buffered(at, wanted).unwrap_or_default())
    }

    fn buffered(&self, at: u64, wanted: usize) -> Option<&[u8]> {
        let from = usize::try_from(at.checked_sub(self.start)?).ok()?;
        self.buffer.get(from..from.checked_add(wanted)?)
    }

    fn refill(&mut self, at: u64, wanted: usize) -> io::Result<()> {
        self.buffer.resize(wanted.max(self.chunk_bytes), 0);
        let read = self.file.read_at(&mut self.buffer, at)?;
        self.buffer.truncate(read);
        self.start = at;
        // The file shrank under the scan: whoever did that holds no lock of ours.
        if read < wanted {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// The first position from `from` on at which `hit` accepts the bytes that follow (at least `overlap` of them, less at the end).
    pub(super) fn find(&mut self, from: u64, overlap: usize, mut hit: impl FnMut(&[u8]) -> bool) -> io::Result<Option<u64>> {
        let mut at = from;
        let end = self.file_bytes;
        while at < end {
            let bytes = self.slice(at, CHUNK_BYTES)?;
            let last_chunk = at + bytes.len() as u64 >= end;
            // A candidate in the last `overlap` bytes is looked at again with the next chunk behind it.
            let usable = if last_chunk { bytes.len() } else { bytes.len().saturating_sub(overlap).max(1) };
            if let Some(found) = (0..usable).find(|start| bytes.get(*start..).is_some_and(&mut hit)) {
                return Ok(Some(at + found as u64));
            }
            at += usable as u64;
        }
        Ok(None)
    }

    /// True when every byte from `from` to the end is zero.
    pub(super) fn is_zero_from(&mut self, from: u64) -> io::Result<bool> {
        let mut at = from;
        while at < self.file_bytes {
            let bytes = self.slice(at, CHUNK_BYTES)?;
            if !is_zero(bytes) {
                return Ok(false);
            }
            at += bytes.len() as u64;
        }
        Ok(true)
    }
}

/// Whether all bytes are zero. In pieces without a way out, of which the processor compares many bytes at a time: the space written
/// ahead can be most of a segment.
fn is_zero(bytes: &[u8]) -> bool {
    const PIECE_BYTES: usize = 256;
    bytes.chunks(PIECE_BYTES).all(|piece| piece.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::is_zero;

    #[test]
    fn one_bit_anywhere_is_seen() {
        for length in [0, 1, 255, 256, 257, 600] {
            let mut bytes = vec![0; length];
            assert!(is_zero(&bytes), "{length}");
            for at in 0..length {
                bytes[at] = 1;
                assert!(!is_zero(&bytes), "{at} of {length}");
                bytes[at] = 0;
            }
        }
    }
}
