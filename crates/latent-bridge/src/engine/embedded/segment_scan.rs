//! Scans one segment file: the thin shell around `scan` and `rebuild`, used at opening and when an index has to be made again.

use std::io;
use std::sync::Arc;

use super::frame::Salt;
use super::numbers::Numbers;
use super::rebuild::{Rebuilt, SegmentRebuild};
use super::scan::{SegmentEnd, scan_segment};
use super::segment_index::{SegmentSummary, witness};
use super::storage::StorageFile;
use super::uid_hash::UidHasher;
use super::window::Window;

/// What a segment file holds.
pub(super) struct ScannedSegment {
    pub(super) rebuilt: Rebuilt,
    pub(super) end: SegmentEnd,
    pub(super) witness: u64,
}

impl ScannedSegment {
    /// What an index says of it.
    pub(super) fn summary(&self) -> SegmentSummary {
        self.rebuilt.summary(described_bytes(self.end), self.witness)
    }
}

/// Evidence behind the last frame stays, and the index covers it: it is of the file as it is.
fn described_bytes(end: SegmentEnd) -> u64 {
    if end.torn { end.file_bytes } else { end.length }
}

/// Reads a segment before which the numbers `start` were given.
pub(super) fn read_segment(file: &Arc<dyn StorageFile>, salt: Salt, hasher: &UidHasher, start: Numbers) -> io::Result<ScannedSegment> {
    let mut window = Window::new(&**file)?;
    let partitions = start.offsets.len();
    let mut rebuild = SegmentRebuild::new(start, hasher).of_file(window.file_bytes());
    let end = scan_segment(&mut window, salt, partitions, &mut |found| rebuild.take(&found))?;
    let witness = witness(&**file, hasher, described_bytes(end))?;
    Ok(ScannedSegment { rebuilt: rebuild.finish(), end, witness })
}
