//! How far a restoration is. It only saves work: without it everything is published again, and known by its uid.

use std::collections::BTreeMap;

use latent_core::{Offset, Partition};
use serde::{Deserialize, Serialize};

/// Of the form. The first one had no number, and did not say where the events went.
const VERSION: u32 = 2;

/// Up to which archived offset each partition is in the new log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    #[serde(default)]
    version: u32,
    /// What is restored where to, in words of the caller. Progress of something else is of no use.
    restoration: String,
    done: BTreeMap<String, u64>,
}

impl Progress {
    /// Nothing is done yet.
    pub fn of(restoration: &str) -> Self {
        Self { version: VERSION, restoration: restoration.to_owned(), done: BTreeMap::new() }
    }

    /// Reads what [`Progress::to_json`] wrote.
    ///
    /// # Errors
    /// In words, when it is none or of another restoration.
    pub fn from_json(document: &str, restoration: &str) -> Result<Self, String> {
        let progress: Self = serde_json::from_str(document).map_err(|error| format!("it holds no progress of a restoration: {error}"))?;
        match progress.version {
            VERSION if progress.restoration == restoration => Ok(progress),
            VERSION => Err(format!("it is of another restoration: {}", progress.restoration)),
            _ => Err("it is of another restoration, of a version that did not note where the events went".to_owned()),
        }
    }

    /// As a document.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn done(&self, topic: &str, partition: Partition) -> Option<Offset> {
        self.done.get(&format!("{topic}/p{partition}")).copied().map(Offset)
    }

    pub(super) fn note(&mut self, topic: &str, partition: Partition, offset: Offset) {
        self.done.insert(format!("{topic}/p{partition}"), offset.0);
    }
}
