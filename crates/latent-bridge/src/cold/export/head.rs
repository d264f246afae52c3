//! The head of a partition's archive: up to where it goes, and with which digest. Written down with a proof, so that whoever cuts the archive
//! short, or gives an older state of it, is found. No I/O.

use latent_core::{Offset, Partition};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{ExportError, ItemSource};
use crate::cold::segment::{
    Attest, Attestation, FinishedSegment, Item, PreviousSegment, Segment, SegmentDigest, SegmentError, SegmentPlace,
};

/// Keeps proofs of heads apart from all others.
const LABEL: &str = "latent-cold-head-v1";
/// A head as a file: names and numbers.
pub(crate) const HEAD_BYTES_MAX: u64 = 131_072;

/// Up to where a partition is in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveHead {
    /// Of which partition.
    pub place: SegmentPlace,
    /// How many segments there are.
    pub segments: u64,
    /// Offset of the last item of the last one.
    pub last: Offset,
    /// uid of that item; none where it was damaged.
    pub last_uid: Option<String>,
    /// Digest of the last segment.
    pub digest: SegmentDigest,
}

/// A head with its proof, as a document for whoever verifies the archive elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttestedHead {
    /// The head.
    pub head: ArchiveHead,
    /// What [`ArchiveHead::from_json`] reads.
    pub document: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    bus: String,
    topic: String,
    partition: u32,
    segments: u64,
    last: u64,
    last_uid: Option<String>,
    digest: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Proven<'h> {
    #[serde(borrow)]
    head: &'h RawValue,
    key_id: String,
    proof: String,
}

impl ArchiveHead {
    /// The head that a segment makes when it is the last one.
    pub(super) fn of_segment(segment: &Segment) -> Result<Self, ExportError> {
        let last = segment.items_from(segment.header().last).last().transpose()?;
        let last_uid = last.as_ref().and_then(Item::record).map(|record| record.uid.as_str().to_owned());
        let header = segment.header();
        let segments = header.number.checked_add(1).ok_or(SegmentError::Inconsistent { problem: "its number" })?;
        Ok(Self { place: header.place.clone(), segments, last: header.last, last_uid, digest: segment.digest() })
    }

    pub(super) fn of_finished(finished: &FinishedSegment) -> Result<Self, ExportError> {
        Self::of_segment(&Segment::open(finished.bytes.clone())?)
    }

    pub(super) const fn as_previous(&self) -> PreviousSegment {
        PreviousSegment { digest: self.digest, last: self.last }
    }

    /// Whether the log still has at the head what it had when it was archived.
    pub(super) fn check_history(&self, source: &dyn ItemSource) -> Result<(), ExportError> {
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

    /// As a document with its proof. `None` without a key.
    pub fn to_json(&self, keys: &dyn Attest) -> Option<String> {
        let written = Written {
            bus: self.place.bus.clone(),
            topic: self.place.topic.clone(),
            partition: self.place.partition.0,
            segments: self.segments,
            last: self.last.0,
            last_uid: self.last_uid.clone(),
            digest: self.digest.to_string(),
        };
        let head = RawValue::from_string(serde_json::to_string(&written).ok()?).ok()?;
        let (key_id, proof) = keys.prove(LABEL, head.get().as_bytes())?;
        let proof = SegmentDigest(proof).to_string();
        serde_json::to_string(&Proven { head: &head, key_id, proof }).ok()
    }

    /// Reads a document of [`ArchiveHead::to_json`], and believes it with its proof alone.
    ///
    /// # Errors
    /// [`ExportError::Unproven`].
    pub fn from_json(document: &str, keys: &dyn Attest) -> Result<Self, ExportError> {
        let proven: Proven<'_> = serde_json::from_str(document).map_err(|_| ExportError::Unproven)?;
        let proof = digest_of(&proven.proof).ok_or(ExportError::Unproven)?;
        if keys.check(LABEL, &proven.key_id, proven.head.get().as_bytes(), &proof.0) != Attestation::Proven {
            return Err(ExportError::Unproven);
        }
        Self::written(proven.head).ok_or(ExportError::Unproven)
    }

    /// What a document says, for whoever has it from a party that is trusted otherwise, as a running node. Its proof is not looked at.
    pub fn unproven(document: &str) -> Option<Self> {
        let proven: Proven<'_> = serde_json::from_str(document).ok()?;
        Self::written(proven.head)
    }

    fn written(head: &RawValue) -> Option<Self> {
        let written: Written = serde_json::from_str(head.get()).ok()?;
        Some(Self {
            place: SegmentPlace { bus: written.bus, topic: written.topic, partition: Partition(written.partition) },
            segments: written.segments,
            last: Offset(written.last),
            last_uid: written.last_uid,
            digest: digest_of(&written.digest)?,
        })
    }
}

/// 64 lower-case hexadecimal digits.
fn digest_of(text: &str) -> Option<SegmentDigest> {
    let is_hex = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_hex.then_some(())?;
    let mut digest = [0; 32];
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(SegmentDigest(digest))
}
