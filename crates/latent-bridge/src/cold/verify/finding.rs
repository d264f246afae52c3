//! What is wrong with an archive, as data: of what kind, where, and in words.

use std::collections::BTreeMap;
use std::fmt;

use latent_core::{Offset, Partition};
use serde::Serialize;

use crate::limits;

/// What kind of thing is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FindingKind {
    /// What should be there is not.
    Missing,
    /// What is there should not be.
    Extra,
    /// Another event than the log has, or than another object has.
    Different,
    /// Bytes are not those that were written.
    Changed,
    /// A part of it is gone.
    Truncated,
    /// Whole, and under the name of another one.
    Misplaced,
    /// Consistent in itself, and not made by who has a control key, or not what the rest of the chain was made behind.
    Replaced,
    /// Proven with a key that was not given.
    UnknownKey,
    /// The log could not be asked.
    Unknown,
    /// The archive is as it was written, and says of itself that the log lost events before they were archived.
    Hole,
}

impl FindingKind {
    /// The name used in output.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::Different => "different",
            Self::Changed => "changed",
            Self::Truncated => "truncated",
            Self::Misplaced => "misplaced",
            Self::Replaced => "replaced",
            Self::UnknownKey => "unknown-key",
            Self::Unknown => "unknown",
            Self::Hole => "hole",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Of what kind.
    pub kind: FindingKind,
    /// Topic; none for an object that has none.
    pub topic: Option<String>,
    /// Partition.
    pub partition: Option<u32>,
    /// First offset that is concerned.
    pub first: Option<u64>,
    /// Last offset that is concerned; none where that cannot be told.
    pub last: Option<u64>,
    /// Path of the object, relative to the archive.
    pub object: Option<String>,
    /// In words.
    pub problem: String,
}

impl Finding {
    pub(super) fn of_unknown(path: &str) -> Self {
        Self::of_path(path, "no object of an archive has such a name".to_owned())
    }

    /// What is in the place of an object, or in the way of some, and can be none.
    pub(super) fn of_stray(path: &str, what: &str) -> Self {
        Self::of_path(path, format!("{what}; it was not looked into, and what should lie there is not there"))
    }

    fn of_path(path: &str, problem: String) -> Self {
        let (topic, partition, first, last) = (None, None, None, None);
        Self { kind: FindingKind::Extra, topic, partition, first, last, object: Some(path.to_owned()), problem }
    }

    pub(super) fn of(kind: FindingKind, place: (&str, Partition), first: Offset, last: Option<Offset>, problem: String) -> Self {
        let (topic, partition) = (Some(place.0.to_owned()), Some(place.1.0));
        Self { kind, topic, partition, first: Some(first.0), last: last.map(|last| last.0), object: None, problem }
    }

    pub(super) fn in_object(self, path: &str) -> Self {
        Self { object: Some(path.to_owned()), ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.kind.word())?;
        if let (Some(topic), Some(partition), Some(first)) = (&self.topic, self.partition, self.first) {
            write!(f, "{topic}/p{partition} offset {first}")?;
            match self.last {
                Some(last) if last == first => {}
                Some(last) => write!(f, " to {last}")?,
                None => write!(f, " and perhaps more")?,
            }
            write!(f, ": ")?;
        }
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        f.write_str(&self.problem)
    }
}

/// The first `limits::ARCHIVE_FINDINGS` of what is wrong, and how much there is of each kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    kept: Vec<Finding>,
    counts: BTreeMap<FindingKind, u64>,
}

impl Findings {
    pub(super) fn push(&mut self, finding: Finding) {
        *self.counts.entry(finding.kind).or_default() += 1;
        if self.kept.len() < limits::ARCHIVE_FINDINGS.default_usize() {
            self.kept.push(finding);
        }
    }

    /// Those that are kept, in the order they were found.
    pub fn kept(&self) -> &[Finding] {
        &self.kept
    }

    /// How many there are of each kind, those included that are not kept.
    pub const fn counts(&self) -> &BTreeMap<FindingKind, u64> {
        &self.counts
    }

    /// How many there are.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// How many of them are holes: what is there is sound, and what they name never came there.
    pub fn holes(&self) -> u64 {
        self.counts.get(&FindingKind::Hole).copied().unwrap_or_default()
    }
}
