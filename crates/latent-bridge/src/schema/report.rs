//! The text of a refusal: the first violations, each with its place, all of it bounded whatever the payload holds.

use std::fmt::{self, Write};

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

use crate::limits;

/// Bytes of a payload's value, name or place that a violation shows.
const EXCERPT_BYTES: usize = 48;

/// Text that takes no more than its share: what is longer ends with `…`, and whoever writes it is told to stop. Control characters are
/// shown escaped, so that a payload cannot begin a line of its own in a log.
pub(super) struct Bounded {
    text: String,
    bytes_max: usize,
}

impl Bounded {
    pub(super) fn of(bytes_max: usize, shown: impl fmt::Display) -> String {
        let mut bounded = Self { text: String::new(), bytes_max };
        // Its only error is that the text is full, which the text shows.
        let _ = write!(bounded, "{shown}");
        bounded.text
    }
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            let mut utf8 = [0; 4];
            let escaped = c.is_control().then(|| c.escape_default().to_string());
            let shown = escaped.as_deref().unwrap_or_else(|| c.encode_utf8(&mut utf8));
            if self.text.len() + shown.len() > self.bytes_max {
                self.text.push('…');
                return Err(fmt::Error);
            }
            self.text.push_str(shown);
        }
        Ok(())
    }
}

/// The first violations and the number of the others.
pub(super) fn violations<'e>(errors: impl Iterator<Item = ValidationError<'e>>) -> String {
    let mut errors = errors;
    let first: Vec<_> = errors.by_ref().take(limits::SCHEMA_VIOLATIONS.default_usize()).map(|error| violation(&error)).collect();
    let more = match errors.count() {
        0 => String::new(),
        count => format!("; and {count} more"),
    };
    format!("{}{more}", first.join("; "))
}

/// One violation: where in the payload, and what.
pub(super) fn violation(error: &ValidationError<'_>) -> String {
    let place = match error.instance_path().as_str() {
        "" => "the payload".to_owned(),
        path => Bounded::of(EXCERPT_BYTES, path),
    };
    Bounded::of(limits::SCHEMA_VIOLATION_BYTES.default_usize(), format_args!("{place}: {}", what(error)))
}

fn what(error: &ValidationError<'_>) -> String {
    let text_bytes_max = limits::SCHEMA_VIOLATION_BYTES.default_usize();
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected } | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let name = Bounded::of(EXCERPT_BYTES, Value::from(unexpected.first().map_or("", String::as_str)));
            match unexpected.len() {
                0 | 1 => format!("the member {name} is not allowed"),
                count => format!("the member {name} and {} more are not allowed", count - 1),
            }
        }
        ValidationErrorKind::PropertyNames { error } => {
            let name = Bounded::of(EXCERPT_BYTES, error.instance());
            Bounded::of(text_bytes_max, format_args!("a member's name: {}", error.masked_with(name)))
        }
        // Its own words hold the whole schema that must not match.
        ValidationErrorKind::Not { .. } => format!("{} is what the schema excludes", Bounded::of(EXCERPT_BYTES, error.instance())),
        _ => Bounded::of(text_bytes_max, error.masked_with(Bounded::of(EXCERPT_BYTES, error.instance()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_its_bound_between_characters_and_control_characters_are_escaped() {
        for (text, expected) in
            [("abcd", "abcd"), ("abcde", "abcd…"), ("abcé", "abc…"), ("é é", "é…"), ("a\nb", "a\\nb"), ("ab\u{85}", "ab…")]
        {
            let bytes_max = if text == "é é" { 3 } else { 4 };
            let expected = if text == "é é" { "é …" } else { expected };
            assert_eq!(Bounded::of(bytes_max, text), expected, "{text:?}");
        }
    }
}
