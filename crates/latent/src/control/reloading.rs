//! The words of a reload: what is asked, what differs, what came of it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a running node is to take its configuration in again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReloadOrder {
    /// Only if this epoch is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expected_epoch: Option<u64>,
    /// Say what differs and change nothing.
    pub(crate) dry_run: bool,
    /// The file that is meant, as the system names it. The node reads the one it was started with, and refuses if that is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
}

/// What came of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reloaded {
    /// The file that the node read.
    pub(crate) file: String,
    /// The epoch in force now. It grows with each reload that changed something.
    pub(crate) epoch: u64,
    /// True when the changes are in force; false when there are none, or with a dry run.
    pub(crate) applied: bool,
    /// What differs between the node and the file.
    pub(crate) changes: Vec<Difference>,
    /// What the file does not decide, what is not as it says because somebody decided otherwise, and what changes for events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Difference {
    /// `service`, `trigger` or `topic`.
    pub(crate) object: String,
    /// Its name.
    pub(crate) name: String,
    /// `added`, `removed`, or which part of it changed.
    pub(crate) change: String,
    /// What is in force; empty for something that is new.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) from: String,
    /// What the file says; empty for something that is gone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) to: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, name, change, from, to } = self;
        write!(f, "{object} {name}: {change}")?;
        match (from.is_empty(), to.is_empty()) {
            (true, true) => Ok(()),
            (true, false) => write!(f, ": {to}"),
            (false, true) => write!(f, ": no longer {from}"),
            (false, false) => write!(f, ": {from} → {to}"),
        }
    }
}
