//! JSON read strictly: a member that stands twice is refused, because whoever checks a document and whoever uses it could each see
//! another of the two.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads one document, within the parser's depth of 128.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice::<Strict>(bytes).map(|strict| strict.0)
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if map.contains_key(&name) {
                return Err(A::Error::custom(format_args!("a member stands twice: {name:?}")));
            }
            let Strict(value) = members.next_value()?;
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_without_doubled_members_reads_as_serde_json_reads_it() {
        let documents = [
            "null",
            "true",
            "-0",
            "18446744073709551615",
            "-9223372036854775808",
            "1.5e300",
            "\"\\u00e9\\ud83d\\ude00\"",
            "[]",
            "{}",
            " [1, {\"a\": [null, \"\"]}] ",
        ];
        for text in documents {
            assert_eq!(parse(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
        for text in ["", "{", "1 2", "1e999", "nul", "\u{feff}1", "[1,]", &"[".repeat(200)] {
            assert_eq!(
                parse(text.as_bytes()).unwrap_err().to_string(),
                serde_json::from_str::<Value>(text).unwrap_err().to_string(),
                "{text}"
            );
        }
        assert!(parse(b"\"\xff\"").is_err());
    }

    #[test]
    fn a_member_that_stands_twice_is_refused_with_its_place() {
        let error = parse(b"{\"a\": 1,\n \"b\": {\"a\": 1, \"a\": 2}}").unwrap_err();
        assert!(error.to_string().contains("stands twice: \"a\" at line 2"), "{error}");
    }
}
