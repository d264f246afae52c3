//! Reads on the caller's thread. What lies where is asked under the shared lock; files are read without it, so a reader never holds up
//! the writer for longer than a look into memory.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use latent_core::{Offset, Partition, StoredRecord, Uid};

use super::body;
use super::frame::Identity;
use super::frame_reader::FrameReader;
use super::heal;
use super::positions::Place;
use super::segment::{Disk, Segment};
use super::segment_index::{IndexError, index_path};
use super::storage::StorageFile;
use super::topic::{Contents, Topic};
use super::uid_runs::{UidEntry, UidHash};
use crate::error::base_name;
use crate::{BusError, HeadContent, RecordHead};

/// What a read asks for, with its bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) partition: Partition,
    pub(super) offset: Offset,
    pub(super) count_max: usize,
    pub(super) bytes_max: u64,
}

/// A record as it was found by its uid.
pub(super) struct FoundRecord {
    pub(super) identity: Identity,
    pub(super) body: Bytes,
}

/// How often a read begins again because what it was about to read expired.
const BEGIN_AGAIN_MAX: u32 = 8;

/// Records from `range.offset`, or from the first one there is, up to the first damaged one.
pub(super) fn fetch(disk: &Disk<'_>, topic: &Topic, range: Range) -> Result<Vec<StoredRecord>, BusError> {
    let mut records = Vec::new();
    let mut bytes = 0_u64;
    walk(disk, topic, range, &mut |step| {
        let (stored, frame_bytes) = match step {
            Step::Missing { offset } => return damage(topic, range, &records, offset),
            Step::At { reader, place } => match reader.record(range.partition, place)? {
                Some(found) => found,
                None => return damage(topic, range, &records, place.offset),
            },
        };
        bytes = bytes.saturating_add(frame_bytes);
        if bytes > range.bytes_max && !records.is_empty() {
            return Ok(ControlFlow::Break(()));
        }
        records.push(stored);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(records)
}

/// A damaged record ends the list before it; a list that would begin with one is an error.
fn damage(topic: &Topic, range: Range, records: &[StoredRecord], offset: u64) -> Result<ControlFlow<()>, ReadError> {
    if records.is_empty() {
        return Err(ReadError::Bus(topic.unreadable(range.partition, Offset(offset))));
    }
    Ok(ControlFlow::Break(()))
}

/// Heads from `range.offset`, or from the first one there is; a damaged record is listed as such.
pub(super) fn heads(disk: &Disk<'_>, topic: &Topic, range: Range) -> Result<Vec<RecordHead>, BusError> {
    let mut heads = Vec::new();
    walk(disk, topic, range, &mut |step| {
        let (offset, content) = match step {
            Step::Missing { offset } => (offset, HeadContent::Damaged),
            Step::At { reader, place } => (place.offset, reader.head(range.partition, place)?),
        };
        heads.push(RecordHead { offset: Offset(offset), content });
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(heads)
}

/// What bytes there are of the payload of a damaged record at `range.offset`.
pub(super) fn remains(disk: &Disk<'_>, topic: &Topic, range: Range) -> Result<Bytes, BusError> {
    let mut found = Bytes::new();
    walk(disk, topic, Range { count_max: 1, ..range }, &mut |step| {
        if let Step::At { reader, place } = step
            && place.offset == range.offset.0
        {
            found = reader.remains(range.partition, place)?;
        }
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

/// One offset of a walk.
enum Step<'s, 'f> {
    /// No record is there: it is damaged.
    Missing {
        offset: u64,
    },
    At {
        reader: &'s mut FrameReader<'f>,
        place: Place,
    },
}

enum ReadError {
    Io(std::io::Error),
    Bus(BusError),
}

impl From<std::io::Error> for ReadError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl ReadError {
    fn of(self, path: &Path) -> BusError {
        match self {
            Self::Io(error) => BusError::io("read", path, &error),
            Self::Bus(error) => error,
        }
    }
}

type Visit<'v> = dyn FnMut(Step<'_, '_>) -> Result<ControlFlow<()>, ReadError> + 'v;

/// Visits the offsets of a range in order, segment by segment.
fn walk(disk: &Disk<'_>, topic: &Topic, range: Range, visit: &mut Visit<'_>) -> Result<(), BusError> {
    let partition = range.partition.0 as usize;
    let (mut offset, mut left) = (range.offset.0, range.count_max);
    let mut began_again = 0;
    while left > 0 {
        let wanted = offset;
        let Some(piece) = next_piece(topic, range.partition, &mut offset, left)? else { return Ok(()) };
        // What came next expired meanwhile: a list has no gap in its middle, and the next read begins where the log does now.
        if offset > wanted && left < range.count_max {
            return Ok(());
        }
        let (file, places) = match piece.open(disk, topic, partition, left) {
            Ok(Some(opened)) => opened,
            Ok(None) => {
                while left > 0 && offset < piece.end {
                    if visit(Step::Missing { offset }).map_err(|error| error.of(&piece.path))?.is_break() {
                        return Ok(());
                    }
                    (offset, left) = (offset + 1, left - 1);
                }
                continue;
            }
            // Gone since it was looked up: it has expired, or somebody removed it.
            Err(error) if error_is_missing(&error) && began_again < BEGIN_AGAIN_MAX => {
                began_again += 1;
                if topic.bounds(range.partition)?.0.0 > offset {
                    continue;
                }
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        let failed = |error: ReadError| error.of(&piece.path);
        let mut reader = FrameReader::new(&file, topic.salt, &places).map_err(|error| failed(error.into()))?;
        let mut places = places.into_iter().peekable();
        while left > 0 && offset < piece.end {
            let step = match places.next_if(|place| place.offset == offset) {
                Some(place) => Step::At { reader: &mut reader, place },
                None => Step::Missing { offset },
            };
            if visit(step).map_err(failed)?.is_break() {
                return Ok(());
            }
            (offset, left) = (offset + 1, left - 1);
        }
    }
    Ok(())
}

fn error_is_missing(error: &BusError) -> bool {
    matches!(error, BusError::Io { kind: std::io::ErrorKind::NotFound, .. })
}

/// The part of a walk that lies in one segment.
struct Piece {
    path: PathBuf,
    /// The offset after the last one that belongs to it.
    end: u64,
    offset: u64,
    source: PieceSource,
}

enum PieceSource {
    /// The segment is lost: none of its offsets can be read.
    Lost,
    Full(Arc<Segment>),
    Active {
        file: Arc<dyn StorageFile>,
        places: Vec<Place>,
    },
}

/// The segment in which `offset` lies, which is moved up to the first there is. `None` at the end.
fn next_piece(topic: &Topic, partition: Partition, offset: &mut u64, left: usize) -> Result<Option<Piece>, BusError> {
    let contents = topic.read();
    let (first, next) = topic.bounds_in(&contents, partition)?;
    *offset = (*offset).max(first.0);
    if *offset >= next.0 {
        return Ok(None);
    }
    let at = partition.0 as usize;
    let active = contents.active.as_ref();
    let active_start = active.and_then(|active| active.start.offsets.get(at).copied());
    if let (Some(active), Some(start)) = (active, active_start)
        && *offset >= start
    {
        let places = active.positions.from(at, *offset, left);
        let source = PieceSource::Active { file: Arc::clone(&active.file), places };
        return Ok(Some(Piece { path: active.path.clone(), end: next.0, offset: *offset, source }));
    }
    let number = contents.segment_of_offset(at, *offset);
    let after = contents.segments.get(number.map_or(0, |number| number + 1)).and_then(|after| after.start.offsets.get(at).copied());
    let end = after.or(active_start).unwrap_or(next.0);
    let segment = number.and_then(|number| contents.segments.get(number));
    let path = segment.map(|segment| segment.path.clone()).unwrap_or_default();
    let source = segment.map_or(PieceSource::Lost, |segment| PieceSource::Full(Arc::clone(segment)));
    Ok(Some(Piece { path, end, offset: *offset, source }))
}

impl Piece {
    /// The file and where the wanted records lie in it.
    fn open(&self, disk: &Disk<'_>, topic: &Topic, partition: usize, left: usize) -> Result<Option<Opened>, BusError> {
        match &self.source {
            PieceSource::Lost => Ok(None),
            PieceSource::Active { file, places } => Ok(Some((Arc::clone(file), places.clone()))),
            PieceSource::Full(segment) => {
                let file = segment.file(disk).map_err(|error| BusError::io("open", &segment.path, &error))?;
                let made_again = *segment.made_again();
                let mut places = segment.places(disk, partition, self.offset, left);
                if matches!(places, Err(IndexError::Missing | IndexError::Unusable)) {
                    tracing::warn!(
                        topic = topic.name,
                        file = base_name(&index_path(&segment.path)),
                        "an index is lost or damaged and is made again from its segment"
                    );
                    places = match heal::index_again(disk, topic, segment, made_again)? {
                        // Taken from here: the segment may expire, and its fresh index with it, before it could be opened.
                        Some(memory) => Ok(memory.positions.from(partition, self.offset, left)),
                        None => segment.places(disk, partition, self.offset, left),
                    };
                }
                Ok(Some((file, places.map_err(|error| unusable(segment, error))?)))
            }
        }
    }
}

/// An index that cannot be read, or was damaged again as soon as it was made again. Its records are not damaged.
fn unusable(segment: &Segment, error: IndexError) -> BusError {
    let error = match error {
        IndexError::Io(error) => error,
        IndexError::Missing | IndexError::Unusable => {
            std::io::Error::new(std::io::ErrorKind::InvalidData, "it is lost or damaged; it is made again from its segment")
        }
    };
    BusError::io("read", &index_path(&segment.path), &error)
}

type Opened = (Arc<dyn StorageFile>, Vec<Place>);

/// The record with this uid. `None` when the topic certainly has none.
pub(super) fn find(disk: &Disk<'_>, topic: &Topic, uid: &Uid, hash: UidHash) -> Result<Option<FoundRecord>, BusError> {
    let mut result = Ok(None);
    let mut look = |entry: UidEntry| match read_candidate(disk, topic, entry) {
        Ok(Some(found)) if body::decode_uid(&found.body) != Some(uid.as_str()) => ControlFlow::Continue(()),
        Ok(None) => ControlFlow::Continue(()),
        other => {
            result = other;
            ControlFlow::Break(())
        }
    };
    let (in_memory, runs, first) = {
        let contents = topic.read();
        (candidates_in_memory(&contents, hash), contents.runs.clone(), contents.first.sequence)
    };
    if in_memory.into_iter().try_for_each(&mut look).is_continue() {
        runs.candidates(hash, first, &mut look)?;
    }
    result
}

fn candidates_in_memory(contents: &Contents, hash: UidHash) -> Vec<UidEntry> {
    let mut candidates = Vec::new();
    if let Some(active) = &contents.active {
        candidates.extend(active.uids.candidates(hash));
    }
    // Full segments without an index on disk: at most the last one or two, unless the disk refuses.
    for segment in contents.segments.iter().rev() {
        let Some(memory) = segment.in_memory() else { break };
        candidates.extend(memory.uids.candidates(hash));
    }
    candidates
}

/// The record of an index entry; `None` when it has expired or the entry is about another one.
fn read_candidate(disk: &Disk<'_>, topic: &Topic, entry: UidEntry) -> Result<Option<FoundRecord>, BusError> {
    let place = Place { offset: 0, at: entry.at };
    let (file, path) = {
        let contents = topic.read();
        if entry.sequence < contents.first.sequence || entry.sequence >= contents.next.sequence {
            return Ok(None);
        }
        match (contents.segment_of_sequence(entry.sequence), &contents.active) {
            // Opened under the lock, so that it cannot expire before it is open.
            (Some(segment), _) => {
                let file = segment.file(disk).map_err(|error| BusError::io("open", &segment.path, &error))?;
                (file, segment.path.clone())
            }
            (None, Some(active)) => (Arc::clone(&active.file), active.path.clone()),
            (None, None) => return Ok(None),
        }
    };
    let failed = |error: std::io::Error| BusError::io("read", &path, &error);
    let mut reader = FrameReader::new(&file, topic.salt, &[place]).map_err(failed)?;
    if let Some((header, body)) = reader.frame(entry.at).map_err(failed)? {
        let same = header.identity.sequence == entry.sequence;
        return Ok(same.then(|| FoundRecord { identity: header.identity, body: Bytes::copy_from_slice(body) }));
    }
    // Whose record it was cannot be read, and it was probably this uid's: neither found nor absent.
    let header = reader.header(entry.at).map_err(failed)?.filter(|header| header.identity.sequence == entry.sequence);
    Err(header.map_or_else(
        || BusError::Io {
            operation: "read",
            file: base_name(&path),
            kind: std::io::ErrorKind::InvalidData,
            reason: format!("the record at byte {} is damaged, and it may be the one with this uid", entry.at),
        },
        |header| topic.unreadable(Partition(header.identity.partition.into()), Offset(header.identity.offset)),
    ))
}
