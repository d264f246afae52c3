//! A head as a document with its proof (`docs/formats/cold-head.md`): format 2 where something is known of what the log removes, else format 1,
//! which is all that older programs know. No I/O.

use latent_core::{Offset, Partition, UnixMillis};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::lookout::{Holes, KeptHole, Lookout, Seen};
use super::{ArchiveHead, ExportError};
use crate::cold::segment::{Attest, Attestation, Hole, HoleReason, SegmentDigest, SegmentPlace};
use crate::limits;

/// Keep proofs of heads apart from all others, and those of one format from those of another.
const LABELS: [&str; 2] = ["latent-cold-head-v1", "latent-cold-head-v2"];
/// The longest name of a key.
const KEY_ID_BYTES_MAX: usize = 32;
/// A head as a file: names, numbers, and what it names of holes.
pub(crate) const HEAD_BYTES_MAX: u64 = 163_840;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Proven<'h> {
    /// Missing in format 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    format: Option<u32>,
    #[serde(borrow)]
    head: &'h RawValue,
    key_id: String,
    proof: String,
}

/// Format 1.
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

/// Format 2.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenWithHoles {
    chain: Written,
    looked: Option<u64>,
    seen: Option<WrittenSeen>,
    holes: Vec<WrittenHole>,
    holes_total: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSeen {
    first: u64,
    last: u64,
    events: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHole {
    first: u64,
    last: u64,
    events: u64,
    found_at: u64,
    reason: String,
    segment: u64,
}

impl ArchiveHead {
    /// As a document with its proof. `None` without a key.
    pub fn to_json(&self, keys: &dyn Attest) -> Option<String> {
        let chain = Written {
            bus: self.place.bus.clone(),
            topic: self.place.topic.clone(),
            partition: self.place.partition.0,
            segments: self.segments,
            last: self.last.0,
            last_uid: self.last_uid.clone(),
            digest: self.digest.to_string(),
        };
        let is_plain = self.lookout.is_none() && self.holes == Holes::default();
        let (format, label, text) = if is_plain {
            (None, LABELS[0], serde_json::to_string(&chain))
        } else {
            (Some(2), LABELS[1], serde_json::to_string(&self.with_holes(chain)))
        };
        let head = RawValue::from_string(text.ok()?).ok()?;
        let (key_id, proof) = keys.prove(label, head.get().as_bytes())?;
        let proof = SegmentDigest(proof).to_string();
        serde_json::to_string(&Proven { format, head: &head, key_id, proof }).ok()
    }

    fn with_holes(&self, chain: Written) -> WrittenWithHoles {
        let seen = self.lookout.and_then(|lookout| lookout.seen);
        let hole = |kept: &KeptHole| {
            let Hole { first, last, events, found_at, reason } = kept.hole;
            let reason = reason.word().to_owned();
            WrittenHole { first: first.0, last: last.0, events, found_at: found_at.0, reason, segment: kept.segment }
        };
        WrittenWithHoles {
            chain,
            looked: self.lookout.map(|lookout| lookout.upto.0),
            seen: seen.map(|Seen { first, last, events }| WrittenSeen { first: first.0, last: last.0, events }),
            holes: self.holes.kept().iter().map(hole).collect(),
            holes_total: self.holes.total(),
        }
    }

    /// Reads a document of [`ArchiveHead::to_json`], and believes it with its proof alone.
    ///
    /// # Errors
    /// [`ExportError::Unproven`], [`ExportError::UnknownKey`].
    pub fn from_json(document: &str, keys: &dyn Attest) -> Result<Self, ExportError> {
        let proven: Proven<'_> = serde_json::from_str(document).map_err(|_| ExportError::Unproven)?;
        let proof = digest_of(&proven.proof).ok_or(ExportError::Unproven)?;
        let label = if proven.format.is_some() { LABELS[1] } else { LABELS[0] };
        match keys.check(label, &proven.key_id, proven.head.get().as_bytes(), &proof.0) {
            Attestation::Proven => Self::written(&proven).ok_or(ExportError::Unproven),
            // The name of a key is shown as it is, so it must be one.
            Attestation::UnknownKey if is_key_id(&proven.key_id) => Err(ExportError::UnknownKey { key_id: proven.key_id }),
            Attestation::UnknownKey | Attestation::Wrong => Err(ExportError::Unproven),
        }
    }

    /// What a document says, for whoever has it from a party that is trusted otherwise, as a running node. Its proof is not looked at.
    pub fn unproven(document: &str) -> Option<Self> {
        let proven: Proven<'_> = serde_json::from_str(document).ok()?;
        Self::written(&proven)
    }

    fn written(proven: &Proven<'_>) -> Option<Self> {
        let text = proven.head.get();
        match proven.format {
            None => Self::of_chain(serde_json::from_str(text).ok()?),
            Some(2) => serde_json::from_str::<WrittenWithHoles>(text).ok()?.head(),
            Some(_) => None,
        }
    }

    fn of_chain(written: Written) -> Option<Self> {
        Some(Self {
            place: SegmentPlace { bus: written.bus, topic: written.topic, partition: Partition(written.partition) },
            segments: written.segments,
            last: Offset(written.last),
            last_uid: written.last_uid,
            digest: digest_of(&written.digest)?,
            lookout: None,
            holes: Holes::default(),
        })
    }
}

impl WrittenWithHoles {
    fn head(self) -> Option<ArchiveHead> {
        let seen = self.seen.map(|seen| Seen { first: Offset(seen.first), last: Offset(seen.last), events: seen.events });
        let hole = |one: WrittenHole| {
            let (first, last, found_at) = (Offset(one.first), Offset(one.last), UnixMillis(one.found_at));
            let hole = Hole { first, last, events: one.events, found_at, reason: HoleReason::of_word(&one.reason)? };
            hole.is_one().then_some(KeptHole { hole, segment: one.segment })
        };
        let kept = self.holes.into_iter().map(hole).collect::<Option<Vec<_>>>()?;
        let is_bounded = kept.len() <= limits::ARCHIVE_HOLES.default_usize() && kept.len() as u64 <= self.holes_total;
        let lookout = self.looked.map(|upto| Lookout { upto: Offset(upto), seen });
        let head = ArchiveHead::of_chain(self.chain)?;
        is_bounded.then_some(ArchiveHead { lookout, holes: Holes { kept, total: self.holes_total }, ..head })
    }
}

/// As [`Attest::prove`] names keys.
fn is_key_id(text: &str) -> bool {
    (1..=KEY_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
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

#[cfg(test)]
mod tests {
    use super::super::NO_SUCH_KEY;
    use super::*;
    use crate::cold::segment::doubles::Keys;

    fn head() -> ArchiveHead {
        let place = SegmentPlace { bus: "test".to_owned(), topic: "t".to_owned(), partition: Partition(3) };
        let (digest, last_uid) = (SegmentDigest([0xab; 32]), Some("u\"1".to_owned()));
        ArchiveHead { place, segments: 2, last: Offset(40), last_uid, digest, lookout: None, holes: Holes::default() }
    }

    fn with_holes() -> ArchiveHead {
        let seen = Some(Seen { first: Offset(61), last: Offset(70), events: 4 });
        let mut head = ArchiveHead { lookout: Some(Lookout { upto: Offset(60), seen }), ..head() };
        let (first, last, found_at) = (Offset(50), Offset(60), UnixMillis(9));
        head.holes.note(Hole { first, last, events: 2, found_at, reason: HoleReason::RemovedBeforeArchived }, 2);
        head
    }

    /// What programs wrote that knew no holes.
    const FORMAT_1: &str = concat!(
        r#"{"head":{"bus":"test","topic":"t","partition":3,"segments":2,"last":40,"last_uid":"u\"1","#,
        r#""digest":"abababababababababababababababababababababababababababababababab"},"key_id":"key-7","#,
        r#""proof":"PROOF"}"#
    );
    const FORMAT_2: &str = concat!(
        r#"{"format":2,"head":{"chain":{"bus":"test","topic":"t","partition":3,"segments":2,"last":40,"last_uid":"u\"1","#,
        r#""digest":"abababababababababababababababababababababababababababababababab"},"looked":60,"#,
        r#""seen":{"first":61,"last":70,"events":4},"#,
        r#""holes":[{"first":50,"last":60,"events":2,"found_at":9,"reason":"removed-before-archived","segment":2}],"#,
        r#""holes_total":1},"key_id":"key-7","proof":"PROOF"}"#
    );

    /// A document with the proof of a label over its head.
    fn proven(document: &str, label: &str) -> String {
        let (start, end) = (document.find("\"head\":").unwrap() + 7, document.find(",\"key_id\"").unwrap());
        let (_, proof) = Keys::one().prove(label, &document.as_bytes()[start..end]).unwrap();
        document.replace("PROOF", &SegmentDigest(proof).to_string())
    }

    #[test]
    fn both_formats_are_pinned_and_read() {
        for (head, document, label) in [(head(), FORMAT_1, LABELS[0]), (with_holes(), FORMAT_2, LABELS[1])] {
            let document = proven(document, label);
            assert_eq!(head.to_json(&Keys::one()).unwrap(), document);
            assert_eq!(ArchiveHead::from_json(&document, &Keys::one()), Ok(head.clone()));
            assert_eq!(ArchiveHead::unproven(&document), Some(head));
        }
    }

    #[test]
    fn every_changed_byte_of_either_format_is_refused() {
        for (document, label) in [(FORMAT_1, LABELS[0]), (FORMAT_2, LABELS[1])] {
            let document = proven(document, label);
            for at in 0..document.len() {
                let mut bytes = document.clone().into_bytes();
                bytes[at] ^= 1;
                let Ok(changed) = String::from_utf8(bytes) else { continue };
                let refused = ArchiveHead::from_json(&changed, &Keys::one()).unwrap_err();
                let names_a_key = matches!(&refused, ExportError::UnknownKey { key_id } if !document.contains(key_id.as_str()));
                assert!(refused == ExportError::Unproven || names_a_key, "byte {at}: {refused}");
            }
        }
    }

    #[test]
    fn a_key_that_is_not_there_is_named_and_what_is_no_name_of_a_key_is_not_shown() {
        let document = proven(FORMAT_1, LABELS[0]);
        let named = |key: &str| ArchiveHead::from_json(&document.replace("key-7", key), &Keys::one()).unwrap_err();
        assert_eq!(named("key-8"), ExportError::UnknownKey { key_id: "key-8".to_owned() });
        assert!(named("key-8").to_string().contains("key-8") && named("key-8").to_string().ends_with(NO_SUCH_KEY));
        let too_long = "k".repeat(KEY_ID_BYTES_MAX + 1);
        assert_eq!(named(&too_long[1..]), ExportError::UnknownKey { key_id: too_long[1..].to_owned() });
        for unfit in [&*too_long, "", "a b", "\\u001b[2J", "é"] {
            assert_eq!(named(unfit), ExportError::Unproven, "{unfit}");
        }
    }

    #[test]
    fn a_proof_of_one_format_is_none_of_the_other_and_a_hole_that_is_none_is_refused() {
        let refused =
            |document: &str, label| assert_eq!(ArchiveHead::from_json(&proven(document, label), &Keys::one()), Err(ExportError::Unproven));
        refused(FORMAT_1, LABELS[1]);
        refused(FORMAT_2, LABELS[0]);
        refused(&FORMAT_2.replace("\"format\":2", "\"format\":3"), LABELS[1]);
        for (from, to) in [
            ("\"first\":50", "\"first\":61"),
            ("\"events\":2", "\"events\":12"),
            ("removed-before", "lost-before"),
            ("total\":1", "total\":0"),
        ] {
            refused(&FORMAT_2.replace(from, to), LABELS[1]);
        }
    }
}
