//! Names of archived objects. No I/O.

use latent_core::{Offset, Partition};

/// What the name of an object says, relative to the place that a `cold_uri` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ArchivedName {
    /// A segment.
    Segment {
        /// Topic.
        topic: String,
        /// Partition.
        partition: Partition,
        /// Its first offset.
        first: Offset,
    },
    /// One event.
    Object {
        /// Topic.
        topic: String,
        /// Partition.
        partition: Partition,
        /// Its offset.
        offset: Offset,
    },
}

impl ArchivedName {
    /// Reads a path in the one form that it is written in.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let (folder, file) = path.rsplit_once('/')?;
        let (topic, partition) = folder.rsplit_once('/')?;
        let partition = Partition(number(partition.strip_prefix('p')?)?);
        let (digits, ending) = file.split_at_checked(20)?;
        let padded = digits.trim_start_matches('0');
        let is_padded = digits.bytes().all(|digit| digit.is_ascii_digit());
        let offset = Offset(if padded.is_empty() { 0 } else { padded.parse().ok()? });
        if !is_padded || topic.is_empty() || topic.contains('/') {
            return None;
        }
        let topic = topic.to_owned();
        match ending {
            ".seg" => Some(Self::Segment { topic, partition, first: offset }),
            ".json" => Some(Self::Object { topic, partition, offset }),
            _ => None,
        }
    }

    /// Topic and partition.
    pub(crate) fn place(&self) -> (&str, Partition) {
        match self {
            Self::Segment { topic, partition, .. } | Self::Object { topic, partition, .. } => (topic, *partition),
        }
    }
}

/// Digits without a leading zero.
fn number(digits: &str) -> Option<u32> {
    let plain = digits.bytes().all(|digit| digit.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    plain.then(|| digits.parse().ok()).flatten()
}

/// Where a partition's objects lie.
pub(crate) fn partition_prefix(topic: &str, partition: Partition) -> String {
    format!("{topic}/p{partition}/")
}

/// Where a segment lies.
pub(crate) fn segment_path(topic: &str, partition: Partition, first: Offset) -> String {
    format!("{topic}/p{partition}/{:020}.seg", first.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_in_the_one_form_it_is_written_in() {
        let path = segment_path("a.b", Partition(10), Offset(u64::MAX));
        assert_eq!(path, "a.b/p10/18446744073709551615.seg");
        let parsed = ArchivedName::parse(&path).unwrap();
        assert_eq!(parsed, ArchivedName::Segment { topic: "a.b".to_owned(), partition: Partition(10), first: Offset(u64::MAX) });
        assert_eq!(parsed.place(), ("a.b", Partition(10)));
        let object = ArchivedName::Object { topic: "t".to_owned(), partition: Partition(0), offset: Offset(0) };
        assert_eq!(ArchivedName::parse("t/p0/00000000000000000000.json"), Some(object));
        for wrong in [
            "t/p0/1.seg",
            "t/p00/00000000000000000001.seg",
            "t/p01/00000000000000000001.seg",
            "t/q0/00000000000000000001.seg",
            "t/p0/0000000000000000000x.seg",
            "t/p0/99999999999999999999.seg",
            "t/p0/00000000000000000001.seg.tmp",
            "t/p0/+0000000000000000001.seg",
            "t/p4294967296/00000000000000000001.seg",
            "/p0/00000000000000000001.seg",
            "x/t/p0/00000000000000000001.seg",
            "p0/00000000000000000001.seg",
            "é",
            "",
        ] {
            assert_eq!(ArchivedName::parse(wrong), None, "{wrong}");
        }
    }
}
