//! The head of a partition's archive: up to where it goes, and with which digest. Written down with a proof, so that whoever cuts the archive
//! short, or gives an older state of it, is found. No I/O.

use latent_core::Offset;

use super::lookout::{Holes, LogSpan, Lookout};
use super::{ExportError, ItemSource};
use crate::cold::segment::{FinishedSegment, Item, PreviousSegment, Segment, SegmentDigest, SegmentError, SegmentPlace};

/// Up to where a partition is in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveHead {
    /// Of which partition.
    pub place: SegmentPlace,
    /// How many segments there are. Before the first one, the next three say nothing.
    pub segments: u64,
    /// Offset of the last item of the last one.
    pub last: Offset,
    /// uid of that item; none where it was damaged.
    pub last_uid: Option<String>,
    /// Digest of the last segment.
    pub digest: SegmentDigest,
    /// How far the log was looked through; none of one that removes nothing by itself, or that was not looked at since there is such a mark.
    pub lookout: Option<Lookout>,
    /// What the log lost before it was archived.
    pub holes: Holes,
}

/// A head with its proof, as a document for whoever verifies the archive elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttestedHead {
    /// The head.
    pub head: ArchiveHead,
    /// What [`ArchiveHead::from_json`] reads.
    pub document: String,
}

impl ArchiveHead {
    /// The head that a segment makes when it is the last one.
    pub(super) fn of_segment(segment: &Segment) -> Result<Self, ExportError> {
        let last = segment.items_from(segment.header().last).last().transpose()?;
        let last_uid = last.as_ref().and_then(Item::record).map(|record| record.uid.as_str().to_owned());
        let header = segment.header();
        let segments = header.number.checked_add(1).ok_or(SegmentError::Inconsistent { problem: "its number" })?;
        let (place, last, digest) = (header.place.clone(), header.last, segment.digest());
        Ok(Self { place, segments, last, last_uid, digest, lookout: None, holes: Holes::default() })
    }

    /// The head of a partition of which nothing is in the archive yet.
    pub(super) fn before_any(place: SegmentPlace) -> Self {
        let (last, digest) = (Offset(0), SegmentDigest([0; 32]));
        Self { place, segments: 0, last, last_uid: None, digest, lookout: None, holes: Holes::default() }
    }

    /// As the head behind another one, after a segment of so many items.
    pub(super) fn behind(mut self, known: Option<&Self>, items: u64) -> Self {
        if let Some(known) = known {
            (self.lookout, self.holes) = (known.lookout, known.holes.clone());
        }
        if let Some(lookout) = &mut self.lookout {
            lookout.archived(self.last, items);
        }
        self
    }

    /// The last offset that is in the archive; none where nothing is.
    pub fn end(&self) -> Option<Offset> {
        (self.segments > 0).then_some(self.last)
    }

    pub(super) fn of_finished(finished: &FinishedSegment) -> Result<Self, ExportError> {
        Self::of_segment(&Segment::open(finished.bytes.clone())?)
    }

    /// As the segment that the next one follows.
    pub(super) fn as_previous(&self) -> Option<PreviousSegment> {
        self.end().map(|last| PreviousSegment { digest: self.digest, last })
    }

    /// Whether the log still has at the head what it had when it was archived.
    pub(super) fn check_history(&self, source: &dyn ItemSource) -> Result<(), ExportError> {
        if self.segments == 0 {
            return Ok(());
        }
        let (first, next) = source.bounds()?;
        let changed = |problem: String| {
            let place = format!("{}/p{}", self.place.topic, self.place.partition);
            Err(ExportError::HistoryChanged { place, last: self.last, problem })
        };
        if next <= self.last {
            return changed(format!("ends before offset {next}"));
        }
        let Some(uid) = self.last_uid.as_ref().filter(|_| first <= self.last) else { return Ok(()) };
        match source.page(self.last)?.into_iter().next() {
            Some(Item::Record { offset, record }) if offset == self.last && record.uid.as_str() != uid => {
                changed(format!("has uid {:?} there, where the archive has {uid:?}", record.uid.as_str()))
            }
            Some(item) if item.offset() == self.last => Ok(()),
            // A log that begins before it has it, unless its offsets are counted anew.
            _ => changed(format!("has nothing of the partition there, where the archive has {uid:?}")),
        }
    }

    /// Whether a log that removes events by itself goes at least as far as it was looked through.
    pub(super) fn check_end(&self, span: LogSpan) -> Result<(), ExportError> {
        let Some(lookout) = self.lookout.filter(|lookout| lookout.is_beyond(span)) else { return Ok(()) };
        let place = format!("{}/p{}", self.place.topic, self.place.partition);
        let problem = format!("ends before offset {}, and was looked through up to {}", span.next, lookout.upto);
        Err(ExportError::HistoryChanged { place, last: self.last, problem })
    }
}
