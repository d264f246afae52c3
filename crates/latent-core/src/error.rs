//! What can be wrong with a value at the border. The faults of engines, hosts and files live in the crates that meet them.

use crate::LimitError;

/// Why a value could not become one of this crate's types. Always the caller's, guest's or operator's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoreError {
    /// A text field breaks its rule.
    #[error("{what} {value:?} is not acceptable: {problem}")]
    Text {
        /// Which field: "tenant", "topic", …
        what: &'static str,
        /// What was given, cut to 80 characters.
        value: String,
        /// Which rule it breaks.
        problem: TextProblem,
    },
    /// A number lies outside its named limit.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// Two attributes have the same name, compared without case (D-03).
    #[error("attribute {name:?} is given twice (names are compared without case); give each name once")]
    DuplicateAttribute {
        /// The second of the two names.
        name: String,
    },
    /// An attribute uses the prefix that only the host may write.
    #[error("attribute {name:?} uses the reserved prefix {prefix:?}; choose another name", prefix = crate::RESERVED_ATTRIBUTE_PREFIX)]
    ReservedAttribute {
        /// The name given.
        name: String,
    },
}

/// The rule a text field breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextProblem {
    /// Nothing was given.
    #[error("it is empty")]
    Empty,
    /// Longer than the field's bound.
    #[error("it has {bytes} bytes and at most {bytes_max} are allowed")]
    TooLong {
        /// Bytes given.
        bytes: usize,
        /// Bytes allowed.
        bytes_max: usize,
    },
    /// A character the field may not hold.
    #[error("{found:?} at byte {at} is not allowed; use {allowed}")]
    Character {
        /// The character found.
        found: char,
        /// Its byte position.
        at: usize,
        /// What may stand there.
        allowed: &'static str,
    },
    /// The shape as a whole is wrong.
    #[error("it must be {expected}")]
    Shape {
        /// The expected shape.
        expected: &'static str,
    },
}

impl CoreError {
    pub(crate) fn text(what: &'static str, value: &str, problem: TextProblem) -> Self {
        Self::Text { what, value: value.chars().take(80).collect(), problem }
    }
}
