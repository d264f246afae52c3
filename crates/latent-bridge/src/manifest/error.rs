//! What can be wrong with a manifest. Always the operator's to mend.

use crate::BusError;

/// Why a manifest is refused. Nothing was created or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The text is not a manifest: not YAML, an unknown or missing field, a wrong type, an anchor, too large.
    #[error("manifest{}: {problem}", at(.line, .column))]
    Parse {
        /// What is wrong.
        problem: String,
        /// Line, counted from 1, where it is known.
        line: Option<u64>,
        /// Column, counted from 1, where it is known.
        column: Option<u64>,
    },
    /// Another version of the form.
    #[error("manifest: version {0} is not supported; use manifest_version 1")]
    Version(u64),
    /// A value breaks a rule.
    #[error("manifest{}: {field}: {problem}", at(.line, .column))]
    Invalid {
        /// The field, with the topic's name where there is one.
        field: String,
        /// The rule and the value.
        problem: String,
        /// Line, counted from 1, of the value, or of its topic when it is not written; nothing where there is no text.
        line: Option<u64>,
        /// Column, counted from 1, likewise.
        column: Option<u64>,
    },
}

fn at(line: &Option<u64>, column: &Option<u64>) -> String {
    match (line, column) {
        (Some(line), Some(column)) => format!(" line {line}, column {column}"),
        _ => String::new(),
    }
}

impl ManifestError {
    pub(super) fn parse(problem: String) -> Self {
        Self::Parse { problem, line: None, column: None }
    }
}

impl From<ManifestError> for BusError {
    fn from(error: ManifestError) -> Self {
        Self::Config { problem: error.to_string() }
    }
}
