//! What can be wrong with a document, or with values that are to become one.

use std::fmt;

use latent_core::Limit;

use super::path::{Path, Step, shown};

/// Why a document was not read, or not written. Holds no more of its content than one bounded name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct ValuesError {
    /// Where.
    pub path: Path,
    /// What.
    pub problem: ValuesProblem,
}

/// What is wrong at a place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValuesProblem {
    /// More than a limit allows.
    #[error("more than {max}, the limit `{limit}`; send less")]
    OverLimit {
        /// The limit's name.
        limit: &'static str,
        /// The number in force.
        max: u64,
    },
    /// The text is not JSON, or more than one document.
    #[error("not one JSON document in UTF-8: {detail}")]
    NotJson {
        /// What the parser said, with line and column.
        detail: String,
    },
    /// A value of the wrong kind or out of its range.
    #[error("expected {expected}, found {found}")]
    Mismatch {
        /// The WIT type in words, with the form that it takes.
        expected: &'static str,
        /// What stands there.
        found: Found,
    },
    /// An array of the wrong length where the type fixes it.
    #[error("expected exactly {expected} values ({of}), found {found}")]
    Length {
        /// How many the type has.
        expected: usize,
        /// How many stand there.
        found: usize,
        /// What they are.
        of: &'static str,
    },
    /// An object has the same key twice, perhaps once in escapes.
    #[error("the key `{key}` is there twice; also keys that differ only in their escapes are the same")]
    DuplicateKey {
        /// The key, bounded.
        key: String,
    },
    /// A key that the type does not have.
    #[error("unknown key `{key}` in {of}")]
    UnknownKey {
        /// The key, bounded.
        key: String,
        /// What the object is.
        of: &'static str,
    },
    /// A key that the type needs.
    #[error("the key `{key}` is missing in {of}")]
    MissingKey {
        /// The key, bounded.
        key: String,
        /// What the object is.
        of: &'static str,
    },
    /// A name that a variant, enum or flags type does not have.
    #[error("`{name}` is no name of this {of}")]
    UnknownName {
        /// The name, bounded.
        name: String,
        /// `variant`, `enum` or `flags`.
        of: &'static str,
    },
    /// A flag named twice.
    #[error("the flag `{name}` is named twice")]
    RepeatedFlag {
        /// The flag, bounded.
        name: String,
    },
    /// A `value` for a case that has no payload.
    #[error("the case `{case}` has no payload; leave `value` out")]
    UnexpectedPayload {
        /// The case, bounded.
        case: String,
    },
    /// A value to be written that is of another type: a defect of the caller, never of a document.
    #[error("the value to be written is not of the type {expected}; this is a defect of the host: report it")]
    ForeignValue {
        /// The type in words.
        expected: &'static str,
    },
}

/// What stands where something else was expected: its kind, never its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean,
    /// An integer of another range.
    IntegerOutOfRange,
    /// An integer where none belongs.
    Integer,
    /// A number with a fraction or exponent, minus zero, or one beyond 64 bits.
    OtherNumber,
    /// A string that is not what was expected.
    UnfitText,
    /// A string where none belongs.
    Text,
    /// An array.
    Array,
    /// An object.
    Object,
    /// An object with other keys.
    UnfitObject,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::IntegerOutOfRange => "an integer out of this range",
            Self::Integer => "an integer",
            Self::OtherNumber => "a number with a fraction or exponent, minus zero, or more than 64 bits",
            Self::UnfitText => "another string",
            Self::Text => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
            Self::UnfitObject => "an object with other keys",
        })
    }
}

impl ValuesProblem {
    /// Over `limit`, of which `max` is in force.
    pub(super) fn over(limit: &Limit, max: u64) -> Self {
        Self::OverLimit { limit: limit.name, max }
    }

    /// At this place, as far as is known yet.
    pub(super) fn here(self) -> ValuesError {
        ValuesError { path: Path::default(), problem: self }
    }

    pub(super) fn unknown_name(name: &str, of: &'static str) -> Self {
        Self::UnknownName { name: shown(name), of }
    }
}

impl ValuesError {
    /// The same error, one level further out.
    pub(super) fn inside(mut self, step: Step) -> Self {
        self.path.push_outer(step);
        self
    }

    /// The same error, with the name of the parameter that it is in.
    pub(super) fn naming_parameter<'a>(mut self, name: impl FnOnce(usize) -> Option<&'a str>) -> Self {
        self.path.name_parameter(name);
        self
    }
}
