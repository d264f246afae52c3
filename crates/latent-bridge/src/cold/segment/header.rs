//! The head of a segment: of which partition it is, what it holds, and which segment it follows.

use latent_core::{Offset, Partition, limits};

use super::cursor::{Cursor, put_text};
use super::{Hole, SegmentDigest, SegmentError};

/// The first bytes. The line end and the byte above ASCII show at once what a transfer as text did.
pub(super) const MAGIC: [u8; 8] = *b"\x89LSEG\r\n\x1a";
/// The version of a segment before which nothing is known to be lost.
const WHOLE: u32 = 1;
/// The version of one that also names a hole. Nothing else is different, so that other programs read all the others.
const WITH_HOLE: u32 = 2;
/// Magic, version and length of the header.
pub(super) const PREFIX_BYTES: usize = 16;
/// Longest header: two texts and some 120 bytes of numbers.
const HEADER_BYTES_MAX: usize = 65_535 + limits::TOPIC_NAME_BYTES.max_usize() + 256;

/// Which partition of which bus.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentPlace {
    /// Name of the bus, from its manifest.
    pub bus: String,
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: Partition,
}

/// The segment before this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreviousSegment {
    /// Its digest.
    pub digest: SegmentDigest,
    /// Its last offset.
    pub last: Offset,
}

/// What a segment says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Where it belongs.
    pub place: SegmentPlace,
    /// How many segments of the partition come before it.
    pub number: u64,
    /// The one before it. None is before the first.
    pub previous: Option<PreviousSegment>,
    /// Offset of its first item.
    pub first: Offset,
    /// Offset of its last item.
    pub last: Offset,
    /// Items in it.
    pub items: u32,
    /// How many of them are offsets whose record was damaged.
    pub damaged: u32,
    /// Earliest `stored_at` of its records, in milliseconds since 1970; 0 without a record.
    pub oldest: u64,
    /// Latest `stored_at` of its records; 0 without a record.
    pub newest: u64,
    /// What the log lost behind the segment before it, before it was archived.
    pub hole: Option<Hole>,
}

impl SegmentHeader {
    /// Appends magic, version, length and header.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), SegmentError> {
        let body = self.body().ok_or_else(|| SegmentError::Unwritable {
            what: format!("topic {:?}", self.place.topic),
            problem: "its name or that of the bus is longer than 65,535 bytes",
        })?;
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.hole.map_or(WHOLE, |_| WITH_HOLE).to_le_bytes());
        out.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&body);
        Ok(())
    }

    fn body(&self) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(256);
        put_text(&mut out, &self.place.bus)?;
        put_text(&mut out, &self.place.topic)?;
        out.extend_from_slice(&self.place.partition.0.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.push(u8::from(self.previous.is_some()));
        out.extend_from_slice(&self.previous.map_or([0; 32], |previous| previous.digest.0));
        out.extend_from_slice(&self.previous.map_or(0, |previous| previous.last.0).to_le_bytes());
        for number in [self.first.0, self.last.0, self.oldest, self.newest] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.items, self.damaged] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        if let Some(hole) = self.hole {
            hole.encode(&mut out);
        }
        (out.len() <= HEADER_BYTES_MAX).then_some(out)
    }

    /// Reads the start of a segment. Returns the header and how many bytes it takes.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Self, usize), SegmentError> {
        let not_whole = |problem| SegmentError::NotWhole { problem };
        let mut start = Cursor(bytes);
        if start.array() != Some(MAGIC) {
            return Err(not_whole("it does not begin as one"));
        }
        let version = start.u32().ok_or_else(|| not_whole("its version"))?;
        if version != WHOLE && version != WITH_HOLE {
            return Err(SegmentError::Version { version });
        }
        let length = start.u32().ok_or_else(|| not_whole("the length of its header"))? as usize;
        if length > HEADER_BYTES_MAX {
            return Err(SegmentError::TooLarge { what: "its header", bytes: length as u64, max: HEADER_BYTES_MAX as u64 });
        }
        let mut body = Cursor(start.take(length).ok_or_else(|| not_whole("its header"))?);
        let header = Self::decode_body(&mut body, version == WITH_HOLE).filter(|_| body.0.is_empty());
        let header = header.ok_or(SegmentError::Inconsistent { problem: "its header is none" })?;
        header.check().map(|()| (header, PREFIX_BYTES + length))
    }

    fn decode_body(body: &mut Cursor<'_>, has_hole: bool) -> Option<Self> {
        let (bus, topic) = (body.text()?.to_owned(), body.text()?.to_owned());
        let place = SegmentPlace { bus, topic, partition: Partition(body.u32()?) };
        let number = body.u64()?;
        let follows = body.u8()?;
        let previous = PreviousSegment { digest: SegmentDigest(body.array()?), last: Offset(body.u64()?) };
        let previous = match follows {
            0 => (previous == PreviousSegment { digest: SegmentDigest([0; 32]), last: Offset(0) }).then_some(None)?,
            1 => Some(previous),
            _ => return None,
        };
        let [first, last, oldest, newest] = [body.u64()?, body.u64()?, body.u64()?, body.u64()?];
        let (items, damaged) = (body.u32()?, body.u32()?);
        let hole = if has_hole { Some(Hole::decode(body)?) } else { None };
        Some(Self { place, number, previous, first: Offset(first), last: Offset(last), items, damaged, oldest, newest, hole })
    }

    fn check(&self) -> Result<(), SegmentError> {
        let span = self.last.0.checked_sub(self.first.0);
        let problem = if span.is_none_or(|span| u64::from(self.items).saturating_sub(1) > span) || self.items == 0 {
            "its offsets do not have room for its items"
        } else if self.damaged > self.items || self.oldest > self.newest {
            "its counts or times"
        } else if self.previous.is_some() != (self.number > 0) {
            "its number and the segment it follows"
        } else if self.previous.is_some_and(|previous| previous.last >= self.first) {
            "it begins before the segment that it follows ends"
        } else if self.hole.is_some_and(|hole| !hole.is_one() || self.previous.is_some_and(|previous| previous.last >= hole.first)) {
            "the hole that it names"
        } else {
            return Ok(());
        };
        Err(SegmentError::Inconsistent { problem })
    }
}
