//! WIT values as JSON: `application/vnd.latent.wit-values.v1+json`, the arguments and results of functions that are not event handlers.
//!
//! ```text
//! component's type ─▶ Signature (checked once, bounded) ─┬─▶ decode: text ─▶ bounded tree ─▶ values
//!                                                        └─▶ encode: values ─▶ bounded text
//! ```
//! What lives here: the form, its limits and its refusals. What does not: calls, stores, and what a refusal means for an event. Pure:
//! no engine runs, nothing waits.
//!
//! A document is UTF-8 JSON, one array: the parameters in declaration order in, the results in declaration order out. How each type is
//! written is in `docs/values.md`. What counts, in both directions:
//! - *depth*: arrays and objects inside each other; the outer array is 1;
//! - *nodes*: JSON values, the outer array among them; keys are not values;
//! - *elements*: of one array, or members of one object;
//! - *string bytes*: UTF-8 bytes of a string or key, with escapes resolved;
//! - *document bytes*: the text.
//!
//! Invariants:
//! - A limit is checked before what it bounds is allocated: text before it is parsed, an element before it is read.
//! - Work and memory are linear in the document and the written-out signature, whose size is bounded when the component is prepared.
//! - What one direction writes the other reads back as the same, except that every NaN is *the* NaN.
//! - No error holds more of a document than one bounded name.

mod decode;
mod document;
mod encode;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz_bodies;
mod number;
mod path;
mod shape;
#[cfg(test)]
mod tests;

use latent_core::LimitError;
use wasmtime::component::Val;

pub use error::{Found, ValuesError, ValuesProblem};
pub use path::Path;
pub use shape::{Place, Signature, TypeProblem, TypeRefusal, TypeRoom};

use crate::limits;

/// The media type of the form.
pub const MEDIA_TYPE: &str = "application/vnd.latent.wit-values.v1+json";

/// What one document may hold, in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValuesLimits {
    /// Bytes of the text (`limits::VALUES_DOCUMENT_BYTES`).
    pub document_bytes: u64,
    /// Arrays and objects inside each other (`limits::VALUES_DEPTH`).
    pub depth: u64,
    /// JSON values (`limits::VALUES_NODES`).
    pub nodes: u64,
    /// UTF-8 bytes of one string or key (`limits::VALUES_STRING_BYTES`).
    pub string_bytes: u64,
    /// Elements of one array, members of one object (`limits::VALUES_ELEMENTS`).
    pub elements: u64,
}

impl Default for ValuesLimits {
    fn default() -> Self {
        Self {
            document_bytes: limits::VALUES_DOCUMENT_BYTES.default,
            depth: limits::VALUES_DEPTH.default,
            nodes: limits::VALUES_NODES.default,
            string_bytes: limits::VALUES_STRING_BYTES.default,
            elements: limits::VALUES_ELEMENTS.default,
        }
    }
}

impl ValuesLimits {
    /// Checks every field against its limit.
    ///
    /// # Errors
    /// [`LimitError`] naming the first field out of range.
    pub fn checked(self) -> Result<Self, LimitError> {
        limits::VALUES_DOCUMENT_BYTES.check(self.document_bytes)?;
        limits::VALUES_DEPTH.check(self.depth)?;
        limits::VALUES_NODES.check(self.nodes)?;
        limits::VALUES_STRING_BYTES.check(self.string_bytes)?;
        limits::VALUES_ELEMENTS.check(self.elements)?;
        Ok(self)
    }
}

/// True for results that are a declared failure: an `err` that is the function's sole result.
pub fn is_declared_failure(results: &[Val]) -> bool {
    matches!(results, [Val::Result(Err(_))])
}
