//! The JSON Schema of a topic's payloads: compiled once, asked before an event is taken (B-024, B-025).
//!
//! Nothing is fetched, and only `source` reads files. What a schema can cost is bounded when it is compiled (`graph`, `cost`), what a refusal
//! can say is bounded when it is written (`report`). The compiler and validator themselves are the crate `jsonschema`.
//!
//! Patterns are matched by an engine whose time grows with the text alone; patterns with back-references or look-around, which it cannot
//! have, are refused.

mod cost;
mod graph;
mod json;
mod report;
mod source;

use std::fmt;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use latent_core::{Limit, MediaType};
use serde_json::Value;

use crate::{BusError, limits};
use cost::{Cost, values_at_each_depth};
use graph::Graph;
use report::Bounded;
#[cfg(feature = "nats")]
pub(crate) use source::resolve;
pub(crate) use source::{missing_source, read_source, references};

/// Bytes of a schema's name that an error shows.
const NAME_BYTES: usize = 160;
/// Bytes of what is wrong with a schema that an error shows.
const FLAW_BYTES: usize = 400;

/// A compiled schema.
pub struct TopicSchema {
    name: String,
    validator: Validator,
    cost: Cost,
    has_alternatives: bool,
}

/// Something in a schema that cannot be used, and where.
#[derive(Debug)]
struct Flaw {
    pointer: String,
    problem: String,
}

impl Flaw {
    fn new(pointer: &str, problem: String) -> Self {
        Self { pointer: pointer.to_owned(), problem }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.pointer.is_empty() {
            write!(f, "{}: ", Bounded::of(NAME_BYTES, &self.pointer))?;
        }
        f.write_str(&self.problem)
    }
}

impl fmt::Debug for TopicSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicSchema").field("name", &self.name).finish_non_exhaustive()
    }
}

impl TopicSchema {
    /// Compiles the text of a schema. Its draft is what `$schema` says, 2020-12 when it says nothing. `name` is how errors call the
    /// schema, as the manifest's `schema_ref` does.
    ///
    /// # Errors
    /// [`BusError::Config`] naming topic, schema and what is wrong: larger than `control_file_bytes`, not JSON, nested deeper than
    /// `schema_depth`, not a schema, a reference out of the document, endless, or beyond `schema_patterns`, `schema_pattern_bytes` or
    /// `schema_recursion`.
    pub fn compile(topic: &str, name: &str, bytes: &[u8]) -> Result<Self, BusError> {
        let name = Bounded::of(NAME_BYTES, name);
        let refused = |flaw: Flaw| {
            let flaw = Bounded::of(FLAW_BYTES, flaw);
            BusError::Config { problem: format!("topic {topic:?}: schema {name:?} cannot be used: {flaw}") }
        };
        let document = read(bytes).map_err(refused)?;
        let graph = Graph::of(&document).map_err(refused)?;
        // Before the costs, since it explains better what is no schema at all.
        let validator = build(&document).map_err(refused)?;
        let cost = Cost::of(&graph).map_err(refused)?;
        let has_alternatives = graph.has_alternatives;
        Ok(Self { name, validator, cost, has_alternatives })
    }

    /// Whether a payload may become an event of the topic. Works on the caller's thread for at most `schema_steps` estimated steps.
    ///
    /// # Errors
    /// A permanent [`BusError::Rejected`] whose text begins with `event rejected by schema`: the media type is not JSON; the payload is
    /// not JSON, or has a member twice; it would take too long to check; or it violates the schema. At most `schema_violations` are
    /// told, each with its place and no more than an excerpt of the payload.
    pub fn check(&self, media_type: &MediaType, payload: &[u8]) -> Result<(), BusError> {
        if !media_type.is_json() {
            let media_type = media_type.as_str();
            return Err(
                self.rejected(format!("media type {media_type:?} is not JSON; publish it as application/json or another JSON type"))
            );
        }
        let value = json::parse(payload).map_err(|error| {
            let error = Bounded::of(limits::SCHEMA_VIOLATION_BYTES.default_usize(), error);
            self.rejected(format!("the payload cannot be read as JSON: {error}"))
        })?;
        let values_at = values_at_each_depth(&value);
        let steps = self.cost.steps(&values_at);
        self.affordable(steps, values_at.len())?;
        if self.validator.is_valid(&value) { Ok(()) } else { Err(self.rejected(self.violations(&value, steps))) }
    }

    fn affordable(&self, steps: u64, levels: usize) -> Result<(), BusError> {
        let check = |limit: Limit, needed: u64| {
            let too_much = |_| {
                let max = limit.max;
                self.rejected(format!(
                    "a payload of {levels} levels may take {needed} steps to check and {max} ({}) are allowed; nest it less, or write a schema with fewer alternatives that lead back to themselves",
                    limit.name
                ))
            };
            limit.check(needed.max(limit.min)).map(drop).map_err(too_much)
        };
        check(limits::SCHEMA_RECURSION, self.cost.recursion(levels))?;
        check(limits::SCHEMA_STEPS, steps)
    }

    /// What to say about an invalid payload. Looking for every violation costs much more than finding that there is one, so a payload
    /// that is expensive to check is told less about.
    fn violations(&self, value: &Value, steps: u64) -> String {
        if limits::SCHEMA_REPORT_STEPS.check(steps.max(limits::SCHEMA_REPORT_STEPS.min)).is_ok() {
            return report::violations(self.validator.iter_errors(value));
        }
        let first = if self.has_alternatives { None } else { self.validator.validate(value).err() };
        let first = first.map_or_else(|| "it does not fit".to_owned(), |error| report::violation(&error));
        format!("{first}; the payload is too large to look for more")
    }

    fn rejected(&self, why: impl fmt::Display) -> BusError {
        BusError::Rejected { rule: format!("event rejected by schema {}: {why}", self.name), permanent: true }
    }
}

fn read(bytes: &[u8]) -> Result<Value, Flaw> {
    let flaw = |problem: String| Flaw::new("", problem);
    let max = limits::CONTROL_FILE_BYTES.max;
    if bytes.len() as u64 > max {
        return Err(flaw(format!("it has {} bytes and at most {max} are read", bytes.len())));
    }
    let document = json::parse(bytes).map_err(|error| flaw(format!("it is not JSON: {error}")))?;
    let levels = values_at_each_depth(&document).len() as u64;
    limits::SCHEMA_DEPTH.check(levels).map_err(|error| flaw(error.to_string()))?;
    Ok(document)
}

fn build(document: &Value) -> Result<Validator, Flaw> {
    let patterns = PatternOptions::regex().size_limit(limits::SCHEMA_PATTERN_BYTES.max_usize());
    let options = jsonschema::options().offline().with_pattern_options(patterns.dfa_size_limit(limits::SCHEMA_PATTERN_BYTES.max_usize()));
    options.build(document).map_err(|error| Flaw::new(error.instance_path().as_str(), describe(&error)))
}

fn describe(error: &ValidationError<'_>) -> String {
    match error.kind() {
        ValidationErrorKind::Format { format } if format == "regex" => {
            let pattern = Bounded::of(NAME_BYTES, error.instance());
            let max = limits::SCHEMA_PATTERN_BYTES.max;
            format!(
                "the pattern {pattern} cannot be used: it is no regular expression, looks around or back, or would take more than {max} bytes"
            )
        }
        _ => Bounded::of(FLAW_BYTES, error),
    }
}

#[cfg(test)]
mod tests;
