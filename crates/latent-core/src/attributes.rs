//! Attributes of an event: a short, ordered list of names and values (D-03, P-022).

use crate::{CoreError, TextProblem, limits};

/// Attribute names with this prefix (compared without case) are written by the host alone.
pub const RESERVED_ATTRIBUTE_PREFIX: &str = "Latent-Dead-";

/// Bytes counted for each attribute on top of its name and value: room for a header's prefix and punctuation (D-03).
const OVERHEAD_BYTES: usize = 20;

/// Validated attributes, in the order given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes(Vec<(String, String)>);

impl Attributes {
    /// Checks count, names, values, sum and uniqueness of attributes that a guest, a client or an operator gave.
    ///
    /// Names are letters, digits and `-`. Values are printable ASCII, may be empty and may hold inner spaces; a space at either
    /// end is refused rather than trimmed, so that what is read equals what was written on every engine.
    ///
    /// # Errors
    /// [`CoreError`] naming the attribute and the rule.
    pub fn parse(pairs: Vec<(String, String)>) -> Result<Self, CoreError> {
        limits::ATTRIBUTES.check(pairs.len() as u64)?;
        let mut bytes = 0;
        for (at, (name, value)) in pairs.iter().enumerate() {
            check_name(name)?;
            check_value(value)?;
            bytes += name.len() + value.len() + OVERHEAD_BYTES;
            if pairs[..at].iter().any(|(earlier, _)| earlier.eq_ignore_ascii_case(name)) {
                return Err(CoreError::DuplicateAttribute { name: name.clone() });
            }
        }
        limits::ATTRIBUTES_BYTES.check(bytes as u64)?;
        Ok(Self(pairs))
    }

    /// The names and values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn check_name(name: &str) -> Result<(), CoreError> {
    let bytes_max = limits::ATTRIBUTE_NAME_BYTES.max_usize();
    let problem = if name.is_empty() {
        TextProblem::Empty
    } else if name.len() > bytes_max {
        TextProblem::TooLong { bytes: name.len(), bytes_max }
    } else if let Some((at, found)) = name.char_indices().find(|(_, c)| !c.is_ascii_alphanumeric() && *c != '-') {
        TextProblem::Character { found, at, allowed: "letters, digits and `-`" }
    } else if name.get(..RESERVED_ATTRIBUTE_PREFIX.len()).is_some_and(|head| head.eq_ignore_ascii_case(RESERVED_ATTRIBUTE_PREFIX)) {
        return Err(CoreError::ReservedAttribute { name: name.to_owned() });
    } else {
        return Ok(());
    };
    Err(CoreError::text("attribute name", name, problem))
}

fn check_value(value: &str) -> Result<(), CoreError> {
    let bytes_max = limits::ATTRIBUTE_VALUE_BYTES.max_usize();
    let problem = if value.len() > bytes_max {
        TextProblem::TooLong { bytes: value.len(), bytes_max }
    } else if let Some((at, found)) = value.char_indices().find(|(_, c)| !('\x20'..='\x7e').contains(c)) {
        TextProblem::Character { found, at, allowed: "printable ASCII and inner spaces" }
    } else if value.starts_with(' ') || value.ends_with(' ') {
        TextProblem::Shape { expected: "without a space at either end" }
    } else {
        return Ok(());
    };
    Err(CoreError::text("attribute value", value, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, value: &str) -> Result<Attributes, CoreError> {
        Attributes::parse(vec![(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn names_and_values_are_checked_at_their_edges() {
        for (name, value) in [("a", ""), ("X-Trace-1", "a b:c"), (&*"n".repeat(64), &*"v".repeat(256))] {
            assert!(one(name, value).is_ok(), "{name:?} {value:?}");
        }
        for name in ["", "a:b", "a b", "$x_y", "é", "latent-dead-Reason", &"n".repeat(65)] {
            assert!(one(name, "v").is_err(), "{name:?}");
        }
        for value in [" v", "v ", "a\rb", "a\nb", "a\r\nNats-Msg-Id: x", "a\0", "é", &"v".repeat(257)] {
            assert!(one("n", value).is_err(), "{value:?}");
        }
    }

    #[test]
    fn sixteen_attributes_fit_and_seventeen_do_not() {
        let many = |count: usize| Attributes::parse((0..count).map(|n| (format!("n{n}"), String::new())).collect());
        assert!(many(16).is_ok() && many(17).is_err());
    }

    #[test]
    fn the_sum_counts_twenty_bytes_for_each_attribute() {
        // Twelve attributes of 3 + 233 + 20 bytes are exactly 3,072.
        let list = |last: usize| {
            let value = |n: usize| "v".repeat(if n == 11 { last } else { 233 });
            Attributes::parse((0..12).map(|n| (format!("a{n:02}"), value(n))).collect())
        };
        assert!(list(233).is_ok() && list(234).is_err());
    }

    #[test]
    fn names_that_differ_in_case_alone_are_refused() {
        let pairs = vec![("a".to_owned(), String::new()), ("A".to_owned(), String::new())];
        assert_eq!(Attributes::parse(pairs), Err(CoreError::DuplicateAttribute { name: "A".to_owned() }));
    }
}
