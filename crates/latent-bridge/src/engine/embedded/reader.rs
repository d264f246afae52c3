//! Reads on the caller's thread. Positions are copied under the shared lock; files are read without it, so a reader never holds up
//! the writer for longer than that copy.

use bytes::Bytes;
use latent_core::{Offset, Partition, StoredRecord};

use super::frame::frame_bytes;
use super::positions::Place;
use super::segment_reader::SegmentReader;
use super::storage::Storage;
use super::topic::{SegmentRef, Topic};
use super::uid_index::{Located, UidHash};
use crate::{BusError, HeadContent, RecordHead};

/// What a read asks for, with its bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) partition: Partition,
    pub(super) offset: Offset,
    pub(super) count_max: usize,
    pub(super) bytes_max: u64,
}

/// Records from `range.offset` on, up to the first damaged one.
pub(super) fn fetch(storage: &dyn Storage, topic: &Topic, range: Range) -> Result<Vec<StoredRecord>, BusError> {
    let planned = plan_fetch(topic, range)?;
    let mut segments = Segments { storage, topic, known: planned.segments, open: None };
    let mut records = Vec::with_capacity(planned.places.len());
    for place in planned.places {
        let Some(record) = segments.of(place)?.record(range.partition, place)? else {
            if records.is_empty() {
                return Err(topic.unreadable(range.partition, Offset(place.offset)));
            }
            break;
        };
        records.push(record);
    }
    Ok(records)
}

/// Heads from `range.offset` on; a damaged record is listed as such.
pub(super) fn heads(storage: &dyn Storage, topic: &Topic, range: Range) -> Result<Vec<RecordHead>, BusError> {
    let (planned, offsets) = plan_heads(topic, range)?;
    let mut segments = Segments { storage, topic, known: planned.segments, open: None };
    let mut places = planned.places.into_iter().peekable();
    let mut heads = Vec::new();
    for offset in offsets {
        let content = match places.next_if(|place| place.offset == offset) {
            Some(place) => segments.of(place)?.head(range.partition, place)?,
            None => HeadContent::Damaged,
        };
        heads.push(RecordHead { offset: Offset(offset), content });
    }
    Ok(heads)
}

/// Place and body of the record that the index has for this hash of a uid.
pub(super) fn read_located(storage: &dyn Storage, topic: &Topic, uid: UidHash) -> Result<Option<(Located, Bytes)>, BusError> {
    let (at, place, segment) = {
        let contents = topic.read();
        let Some(at) = contents.uids.locate(uid) else { return Ok(None) };
        let place = contents.partition(Partition(at.partition)).and_then(|positions| positions.at(at.offset));
        let segment = place.and_then(|place| contents.segments.get(place.segment as usize).cloned());
        (at, place, segment)
    };
    let unreadable = || topic.unreadable(Partition(at.partition), Offset(at.offset));
    let (Some(place), Some(segment)) = (place, segment) else { return Err(unreadable()) };
    let frame = SegmentReader::open(storage, topic, &segment)?.frame(Partition(at.partition), place)?;
    frame.map(|(_, body)| Some((at, body))).ok_or_else(unreadable)
}

/// What a read will look at: places, and the segments they are in by number.
struct Planned {
    places: Vec<Place>,
    segments: Vec<(u32, SegmentRef)>,
}

fn plan_fetch(topic: &Topic, range: Range) -> Result<Planned, BusError> {
    let contents = topic.read();
    let positions = contents.partition(range.partition).ok_or_else(|| topic.out_of_range(range.partition))?;
    let mut places = Vec::new();
    let mut bytes = 0_u64;
    for (expected, place) in (range.offset.0..=u64::MAX).zip(positions.from(range.offset.0)).take(range.count_max) {
        bytes = bytes.saturating_add(frame_bytes(place.body_len));
        if place.offset != expected || (bytes > range.bytes_max && !places.is_empty()) {
            break;
        }
        places.push(*place);
    }
    if places.is_empty() && range.count_max > 0 && range.offset < positions.next() {
        return Err(topic.unreadable(range.partition, range.offset));
    }
    let segments = segments_of(&contents.segments, &places);
    Ok(Planned { places, segments })
}

fn plan_heads(topic: &Topic, range: Range) -> Result<(Planned, std::ops::Range<u64>), BusError> {
    let contents = topic.read();
    let positions = contents.partition(range.partition).ok_or_else(|| topic.out_of_range(range.partition))?;
    let end = range.offset.0.saturating_add(range.count_max as u64).min(positions.next().0);
    let places: Vec<_> = positions.from(range.offset.0).iter().take_while(|place| place.offset < end).copied().collect();
    let segments = segments_of(&contents.segments, &places);
    Ok((Planned { places, segments }, range.offset.0..end))
}

fn segments_of(segments: &[SegmentRef], places: &[Place]) -> Vec<(u32, SegmentRef)> {
    let mut used: Vec<(u32, SegmentRef)> = Vec::new();
    for place in places {
        if used.last().is_none_or(|(number, _)| *number != place.segment)
            && let Some(segment) = segments.get(place.segment as usize)
        {
            used.push((place.segment, segment.clone()));
        }
    }
    used
}

/// The segments of one read. The one used last stays open until another is needed.
struct Segments<'r> {
    storage: &'r dyn Storage,
    topic: &'r Topic,
    known: Vec<(u32, SegmentRef)>,
    open: Option<(u32, SegmentReader<'r>)>,
}

impl<'r> Segments<'r> {
    fn of(&mut self, place: Place) -> Result<&SegmentReader<'r>, BusError> {
        let open = match self.open.take() {
            Some(open) if open.0 == place.segment => open,
            _ => (place.segment, self.reader(place.segment)?),
        };
        Ok(&self.open.insert(open).1)
    }

    fn reader(&self, number: u32) -> Result<SegmentReader<'r>, BusError> {
        let known = self.known.iter().find(|(known, _)| *known == number);
        let missing = || BusError::Backend(format!("segment number {number} of topic {:?} is not known", self.topic.name));
        SegmentReader::open(self.storage, self.topic, &known.ok_or_else(missing)?.1)
    }
}
