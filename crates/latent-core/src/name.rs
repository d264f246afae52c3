//! Names that people choose: parsed once, valid for ever. The rules are those of D-04.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::{CoreError, TextProblem, limits};

const PRINTABLE: &str = "printable ASCII without spaces (0x21 to 0x7E)";
const TOKEN: &str = "letters, digits, `_` and `-`";
const TOKENS: &str = "letters, digits, `_` and `-`, joined by single dots";

fn bounded(what: &'static str, text: &str, bytes_max: usize) -> Result<(), CoreError> {
    if text.is_empty() {
        return Err(CoreError::text(what, text, TextProblem::Empty));
    }
    if text.len() > bytes_max {
        return Err(CoreError::text(what, text, TextProblem::TooLong { bytes: text.len(), bytes_max }));
    }
    Ok(())
}

fn every_char(what: &'static str, text: &str, allowed: &'static str, ok: impl Fn(char) -> bool) -> Result<(), CoreError> {
    match text.char_indices().find(|(_, c)| !ok(*c)) {
        None => Ok(()),
        Some((at, found)) => Err(CoreError::text(what, text, TextProblem::Character { found, at, allowed })),
    }
}

/// Printable ASCII, not empty, at most `bytes_max` bytes (D-04).
pub(crate) fn check_printable(what: &'static str, text: &str, bytes_max: usize) -> Result<(), CoreError> {
    bounded(what, text, bytes_max)?;
    every_char(what, text, PRINTABLE, |c| ('\x21'..='\x7e').contains(&c))
}

fn check_token(what: &'static str, text: &str, bytes_max: usize) -> Result<(), CoreError> {
    bounded(what, text, bytes_max)?;
    every_char(what, text, TOKEN, |c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

fn check_tokens(what: &'static str, text: &str, bytes_max: usize) -> Result<(), CoreError> {
    bounded(what, text, bytes_max)?;
    every_char(what, text, TOKENS, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))?;
    if text.starts_with('_') || text.split('.').any(str::is_empty) {
        let expected = "tokens joined by single dots, the first not starting with `_`";
        return Err(CoreError::text(what, text, TextProblem::Shape { expected }));
    }
    Ok(())
}

fn check_contract(what: &'static str, text: &str, bytes_max: usize) -> Result<(), CoreError> {
    check_printable(what, text, bytes_max)?;
    let shaped = text.split_once(':').is_some_and(|(namespace, rest)| {
        let Some((package, interface)) = rest.split_once('/') else { return false };
        let (interface, version) = interface.split_once('@').unwrap_or((interface, "0"));
        [namespace, package, interface].iter().all(|part| is_kebab(part)) && !version.is_empty()
    });
    if !shaped {
        return Err(CoreError::text(what, text, TextProblem::Shape { expected: "`namespace:package/interface@version`" }));
    }
    Ok(())
}

fn is_kebab(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

fn check_function(what: &'static str, text: &str, bytes_max: usize) -> Result<(), CoreError> {
    bounded(what, text, bytes_max)?;
    if !is_kebab(text) {
        return Err(CoreError::text(what, text, TextProblem::Shape { expected: "a WIT function name such as `handle`" }));
    }
    Ok(())
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $limit:expr, $check:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the rule and keeps the text.
            ///
            /// # Errors
            /// [`CoreError::Text`] naming the field, the value and the rule it breaks.
            pub fn parse(text: &str) -> Result<Self, CoreError> {
                $check($what, text, $limit.max_usize())?;
                Ok(Self(text.into()))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The text, shared with this name.
            pub fn shared(&self) -> Arc<str> {
                Arc::clone(&self.0)
            }
        }

        /// Names are compared as their texts are, so that one can be looked for without making another.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type!(
    /// A tenant: the unit of isolation. Printable ASCII, at most 64 bytes.
    TenantId, "tenant", limits::NAME_BYTES, check_printable
);
name_type!(
    /// A service: what an invocation names first. Dotted tokens, at most 64 bytes.
    ServiceName, "service", limits::NAME_BYTES, check_tokens
);
name_type!(
    /// A trigger binding. One token, because it becomes part of a durable consumer's name.
    BindingId, "trigger id", limits::NAME_BYTES, check_token
);
name_type!(
    /// A route that selects one publication of a service.
    RouteName, "route", limits::NAME_BYTES, check_token
);
name_type!(
    /// The logical id of an installed provider.
    ProviderId, "provider id", limits::NAME_BYTES, check_tokens
);
name_type!(
    /// A topic of the bridge. Dotted tokens, the first not starting with `_`, at most 120 bytes.
    TopicName, "topic", limits::TOPIC_NAME_BYTES, check_tokens
);
name_type!(
    /// A topic as a function names it: a lookup key, never an address. Dotted tokens, at most 128 bytes (P-005, P-015).
    LogicalTopic, "topic", limits::LOGICAL_TOPIC_BYTES, check_tokens
);
name_type!(
    /// A subject of the broker: literal, so no wildcards, no system or inbox prefix. At most 128 bytes (P-005, P-016).
    Subject, "subject", limits::SUBJECT_BYTES, check_tokens
);
name_type!(
    /// A stream of the broker. One token of at most 128 bytes (P-017).
    StreamName, "stream", limits::STREAM_NAME_BYTES, check_token
);
name_type!(
    /// A durable consumer of a stream. One token of at most 128 bytes (T-022).
    ConsumerName, "consumer", limits::STREAM_NAME_BYTES, check_token
);
name_type!(
    /// What separates the idempotency keys of one provider from those of others. Printable ASCII, at most 64 bytes (D-02, D-04).
    IdempotencyNamespace, "idempotency namespace", limits::NAME_BYTES, check_printable
);
name_type!(
    /// An exported interface, `namespace:package/interface@version`.
    ContractName, "contract", limits::CONTRACT_BYTES, check_contract
);
name_type!(
    /// A function of a contract, as WIT spells it.
    FunctionName, "function", limits::CONTRACT_BYTES, check_function
);
name_type!(
    /// A media type. Printable ASCII without spaces, at most 128 bytes.
    MediaType, "media type", limits::MEDIA_TYPE_BYTES, check_printable
);

impl From<&TopicName> for LogicalTopic {
    /// Every topic of the bridge can be named by a function.
    fn from(topic: &TopicName) -> Self {
        Self(Arc::clone(&topic.0))
    }
}

impl MediaType {
    /// What a payload is when nobody said: `application/octet-stream`.
    pub fn octet_stream() -> Self {
        Self("application/octet-stream".into())
    }

    /// `application/json`.
    pub fn json() -> Self {
        Self("application/json".into())
    }

    /// True for `application/json` and structured `+json` types, parameters ignored, compared without case.
    pub fn is_json(&self) -> bool {
        let essence = self.0.split(';').next().unwrap_or_default();
        let suffix = essence.len().checked_sub("+json".len()).and_then(|at| essence.get(at..));
        essence.eq_ignore_ascii_case("application/json")
            || (essence.contains('/') && suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case("+json")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_tokens_joined_by_single_dots() {
        for good in ["a", "github.events", "A-b_c.d9", &"x".repeat(120)] {
            assert_eq!(TopicName::parse(good).unwrap().as_str(), good);
        }
        let too_long = "x".repeat(121);
        let bad = [
            "",
            "a b",
            "a\tb",
            "a\n",
            "a..b",
            ".a",
            "a.",
            "a.*",
            ">",
            "$JS.x",
            "_INBOX.x",
            "_inbox.x",
            "a\0",
            &too_long,
            "é",
            "a\u{a0}b",
            ".",
            "..",
            "a\r\nPUB x 0",
        ];
        for bad in bad {
            assert!(TopicName::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_contract_has_namespace_package_interface_and_version() {
        assert!(ContractName::parse("latent:events/handler@0.2.0").is_ok());
        assert!(ContractName::parse("demo:math/calc").is_ok());
        for bad in ["handler", "latent:events", "latent/events:handler", "a:b/c@", "1a:b/c@1", "a:b/c d@1"] {
            assert!(ContractName::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_binding_is_one_token_and_a_tenant_any_printable_text() {
        assert!(BindingId::parse("triage-github").is_ok());
        assert!(BindingId::parse("a.b").is_err());
        assert!(TenantId::parse("acme/eu:1").is_ok());
        assert!(TenantId::parse("ac me").is_err());
        assert!(TenantId::parse(&"x".repeat(64)).is_ok() && TenantId::parse(&"x".repeat(65)).is_err());
    }

    #[test]
    fn json_media_types_are_recognised() {
        for json in ["application/json", "Application/JSON;charset=utf-8", "application/cloudevents+json"] {
            assert!(MediaType::parse(json).unwrap().is_json(), "{json}");
        }
        assert!(!MediaType::octet_stream().is_json());
    }

    #[test]
    fn an_error_names_the_field_the_value_and_the_place() {
        let text = TopicName::parse("a b").unwrap_err().to_string();
        assert!(text.contains("topic \"a b\"") && text.contains("' ' at byte 1"), "{text}");
    }
}
