//! How far a migration is, as a small text with its own check: what a later run begins with. `docs/formats/migrate-progress.md` has its form.

use std::collections::BTreeMap;

use latent_core::Offset;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::RecordDigest;

/// Begins the text, with its version.
const HEAD: &str = "latent-migrate-progress 1 ";

/// What is known to be in the destination of a partition: the last record that was copied, on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Where the first record of the source lay that was copied.
    pub first: Offset,
    /// Where the last one lies in the source.
    pub source: Offset,
    /// Where it lies in the destination.
    pub destination: Offset,
    /// How many there are in the destination up to it.
    pub records: u64,
    /// What it is.
    pub last: RecordDigest,
}

/// Positions of all partitions between two logs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// The source, in the words of who migrates.
    pub source: String,
    /// The destination.
    pub destination: String,
    /// By topic and partition.
    pub positions: BTreeMap<(String, u32), Position>,
    /// The partition that is being published.
    pub at_work: Option<(String, u32)>,
}

/// Why a text is no progress.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgressError {
    /// It is of another version, or something else altogether.
    #[error("it is no progress of a migration that this version can read")]
    Foreign,
    /// It was changed or is not whole.
    #[error("it is damaged")]
    Damaged,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    source: String,
    destination: String,
    positions: Vec<Entry>,
    at_work: Option<(String, u32)>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    topic: String,
    partition: u32,
    first: u64,
    source: u64,
    destination: u64,
    records: u64,
    last: String,
}

impl Progress {
    /// The text: a line with version and SHA-256 of what follows, then one JSON document.
    ///
    /// # Errors
    /// [`ProgressError::Foreign`] for what JSON cannot hold, which no progress is.
    pub fn encode(&self) -> Result<String, ProgressError> {
        let entry = |((topic, partition), position): (&(String, u32), &Position)| Entry {
            topic: topic.clone(),
            partition: *partition,
            first: position.first.0,
            source: position.source.0,
            destination: position.destination.0,
            records: position.records,
            last: position.last.to_string(),
        };
        let positions = self.positions.iter().map(entry).collect();
        let Self { source, destination, at_work, .. } = self.clone();
        let document = Document { source, destination, positions, at_work };
        let body = serde_json::to_string(&document).map_err(|_| ProgressError::Foreign)?;
        Ok(format!("{HEAD}{}\n{body}\n", check(&body)))
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`ProgressError`].
    pub fn decode(text: &str) -> Result<Self, ProgressError> {
        let (head, body) = text.strip_prefix(HEAD).ok_or(ProgressError::Foreign)?.split_once('\n').ok_or(ProgressError::Damaged)?;
        let body = body.strip_suffix('\n').ok_or(ProgressError::Damaged)?;
        if head != check(body) {
            return Err(ProgressError::Damaged);
        }
        let document: Document = serde_json::from_str(body).map_err(|_| ProgressError::Damaged)?;
        let mut positions = BTreeMap::new();
        for Entry { topic, partition, first, source, destination, records, last } in document.positions {
            let last = RecordDigest::parse(&last).ok_or(ProgressError::Damaged)?;
            let (first, source, destination) = (Offset(first), Offset(source), Offset(destination));
            positions.insert((topic, partition), Position { first, source, destination, records, last });
        }
        Ok(Self { source: document.source, destination: document.destination, positions, at_work: document.at_work })
    }

    /// The name of the file for a migration between these two, where nobody gives another one.
    pub fn file_name(source: &str, destination: &str) -> String {
        let of_both = check(&format!("{source}\0{destination}"));
        format!("latent-migrate-{}.progress", of_both.get(..16).unwrap_or_default())
    }

    /// Whether it is of a migration between these two.
    pub fn is_between(&self, source: &str, destination: &str) -> bool {
        self.source == source && self.destination == destination
    }
}

fn check(body: &str) -> String {
    let bytes: [u8; 32] = Sha256::digest(body.as_bytes()).into();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
