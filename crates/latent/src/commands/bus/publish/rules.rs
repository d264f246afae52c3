//! From a line to an event, or to the reason why it is none. Pure.

use bytes::Bytes;
use latent_core::{Attributes, MediaType, NewRecord, Uid, length_delimited_sha256};
use serde_json::Value;

use super::faults::LineFault;
use super::lines::{Content, Line};
use crate::control::{NewEvent, Payload};

/// What makes an event of a line.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) topic: String,
    pub(super) lines: LineForm,
    pub(super) key: KeyRule,
    pub(super) uid: UidRule,
}

/// Where the uid comes from.
#[derive(Debug, Clone)]
pub(super) enum UidRule {
    /// Made from topic, line number and line.
    Line,
    /// From the line.
    Pointer(Pointer),
    /// The log mints one.
    Fresh,
}

/// Where the uid of an event came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UidOrigin {
    /// Made from topic, line number and line: the same when the file is published again.
    Line,
    /// Said by the line.
    Given,
    /// New with every publication.
    Fresh,
}

impl UidRule {
    /// Where most uids under this rule come from.
    pub(super) const fn origin(&self) -> UidOrigin {
        match self {
            Self::Line => UidOrigin::Line,
            Self::Pointer(_) => UidOrigin::Given,
            Self::Fresh => UidOrigin::Fresh,
        }
    }

    const fn pointer(&self) -> Option<&Pointer> {
        match self {
            Self::Pointer(pointer) => Some(pointer),
            Self::Line | Self::Fresh => None,
        }
    }
}

/// An event made of a line.
#[derive(Debug, Clone)]
pub(super) struct LineEvent {
    pub(super) event: NewEvent,
    pub(super) uid: UidOrigin,
}

/// What a line is.
#[derive(Debug, Clone)]
pub(super) enum LineForm {
    /// One JSON value; blank lines are passed over.
    Json,
    /// Bytes, whatever they are; an empty line is an empty event.
    Raw(MediaType),
}

/// Where the key comes from.
#[derive(Debug, Clone)]
pub(super) enum KeyRule {
    /// The same for every line.
    Fixed(String),
    /// From the line.
    Pointer(Pointer),
}

/// A JSON pointer: empty, or `/` and names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pointer(String);

impl Pointer {
    /// Checks the form; whether a line has the place is seen line by line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if !text.is_empty() && !text.starts_with('/') {
            return Err(format!("a JSON pointer begins with `/`, like /repository/full_name; {text:?} does not"));
        }
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            if character == '~' && !matches!(characters.next(), Some('0' | '1')) {
                return Err(format!("in a JSON pointer `~` is written ~0 and `/` inside a name ~1; {text:?} has another `~`"));
            }
        }
        Ok(Self(text.to_owned()))
    }

    /// The text or number at the place.
    fn resolve(&self, value: &Value) -> Found {
        match value.pointer(&self.0) {
            Some(Value::String(text)) => Found::Text(text.clone()),
            Some(Value::Number(number)) => Found::Text(number.to_string()),
            Some(Value::Null) => Found::OtherType("null"),
            Some(Value::Bool(_)) => Found::OtherType("true or false"),
            Some(Value::Array(_)) => Found::OtherType("an array"),
            Some(Value::Object(_)) => Found::OtherType("an object"),
            None => Found::Nothing,
        }
    }
}

enum Found {
    Text(String),
    /// Something else, in words.
    OtherType(&'static str),
    Nothing,
}

/// What a line turned out to be.
#[derive(Debug)]
pub(super) enum LineOutcome {
    Event(LineEvent),
    /// Passed over: a blank line between JSON lines.
    Blank,
    Invalid(LineFault),
}

impl Rules {
    /// Reads one line.
    pub(super) fn read(&self, line: Line) -> LineOutcome {
        let bytes = match line.content {
            Content::Whole(bytes) => bytes,
            Content::TooLong { bytes } => return LineOutcome::Invalid(LineFault::TooLong { bytes }),
        };
        if matches!(self.lines, LineForm::Json) && bytes.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
            return LineOutcome::Blank;
        }
        self.event(line.number, bytes).map_or_else(LineOutcome::Invalid, LineOutcome::Event)
    }

    fn event(&self, number: u64, bytes: Vec<u8>) -> Result<LineEvent, LineFault> {
        let (key, given, media_type) = match &self.lines {
            LineForm::Json => self.of_json(&bytes)?,
            LineForm::Raw(media_type) => self.of_raw(&bytes, media_type),
        };
        let (uid, origin) = match (given, &self.uid) {
            (Some(uid), _) => (Some(uid), UidOrigin::Given),
            (None, UidRule::Fresh) => (None, UidOrigin::Fresh),
            (None, UidRule::Line | UidRule::Pointer(_)) => (Some(line_uid(&self.topic, number, &bytes)), UidOrigin::Line),
        };
        let payload = Bytes::from(bytes);
        // What can never be a record is the line's fault, and is told before anything is sent.
        let parsed = uid.as_deref().map(Uid::parse).transpose()?;
        NewRecord::new(parsed, &key, media_type.clone(), Attributes::default(), payload.clone())?;
        let media_type = media_type.as_str().to_owned();
        let event = NewEvent { uid, key, media_type, attributes: Vec::new(), payload: Payload(payload) };
        Ok(LineEvent { event, uid: origin })
    }

    /// Everything asked for must be there.
    fn of_json(&self, bytes: &[u8]) -> Result<(String, Option<String>, MediaType), LineFault> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| LineFault::not_json(bytes, &error))?;
        let demand = |what, pointer: &Pointer| match pointer.resolve(&value) {
            Found::Text(text) => Ok(text),
            Found::OtherType(found) => Err(LineFault::OtherType { what, pointer: pointer.0.clone(), found }),
            Found::Nothing => Err(LineFault::Missing { what, pointer: pointer.0.clone() }),
        };
        let key = match &self.key {
            KeyRule::Fixed(key) => key.clone(),
            KeyRule::Pointer(pointer) => demand("key", pointer)?,
        };
        let uid = self.uid.pointer().map(|pointer| demand("uid", pointer)).transpose()?;
        Ok((key, uid, MediaType::json()))
    }

    /// Bytes need not be JSON: what cannot be found is an empty key, and a uid made from the line.
    fn of_raw(&self, bytes: &[u8], media_type: &MediaType) -> (String, Option<String>, MediaType) {
        let wants_json = matches!(self.key, KeyRule::Pointer(_)) || self.uid.pointer().is_some();
        let value: Option<Value> = if wants_json { serde_json::from_slice(bytes).ok() } else { None };
        let look = |pointer: &Pointer| match value.as_ref().map(|value| pointer.resolve(value)) {
            Some(Found::Text(text)) => Some(text),
            Some(Found::OtherType(_) | Found::Nothing) | None => None,
        };
        let key = match &self.key {
            KeyRule::Fixed(key) => key.clone(),
            KeyRule::Pointer(pointer) => look(pointer).unwrap_or_default(),
        };
        let uid = self.uid.pointer().and_then(look).filter(|uid| Uid::parse(uid).is_ok());
        (key, uid, media_type.clone())
    }
}

/// The same line of the same file for the same topic has the same uid whenever it is published: `line-` and the SHA-256, in hex, over
/// topic, line number in decimal, and line, each as its length in 8 little-endian bytes and then its bytes.
fn line_uid(topic: &str, number: u64, line: &[u8]) -> String {
    let hash = length_delimited_sha256(&[topic.as_bytes(), number.to_string().as_bytes(), line]);
    hash.iter().fold("line-".to_owned(), |uid, byte| format!("{uid}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::super::lines::LineEnd;
    use super::*;

    fn rules(lines: LineForm, key: &str, uid: Option<&str>) -> Rules {
        let pointer = |text| Pointer::parse(text).unwrap();
        let uid = uid.map_or(UidRule::Line, |text| UidRule::Pointer(pointer(text)));
        Rules { topic: "t".to_owned(), lines, key: KeyRule::Pointer(pointer(key)), uid }
    }

    fn line(bytes: &[u8]) -> Line {
        Line { number: 3, content: Content::Whole(bytes.to_vec()), end: LineEnd::Break }
    }

    /// Key and uid, `blank`, or the kind of the fault.
    fn read(rules: &Rules, bytes: &[u8]) -> String {
        match rules.read(line(bytes)) {
            LineOutcome::Event(LineEvent { event, .. }) => {
                assert_eq!(event.payload.0, bytes);
                format!("{} {}", event.key, event.uid.unwrap_or_default())
            }
            LineOutcome::Blank => "blank".to_owned(),
            LineOutcome::Invalid(fault) => fault.kind().to_owned(),
        }
    }

    #[test]
    fn json_lines_must_have_what_is_asked_of_them() {
        let rules = rules(LineForm::Json, "/k", Some("/u"));
        let cases: [(&[u8], &str); 11] = [
            (b"{\"k\":\"a\",\"u\":\"b\"}", "a b"),
            (b" {\"k\":7,\"u\":-8}\r", "7 -8"),
            (b"", "blank"),
            (b" \t\r", "blank"),
            (b"{", "line-not-json"),
            (b"{} {}", "line-not-json"),
            (b"\"\xff\"", "line-not-json"),
            (b"{\"u\":\"b\"}", "line-missing-value"),
            (b"{\"k\":null,\"u\":\"b\"}", "line-wrong-type"),
            (b"{\"k\":\"a\",\"u\":[]}", "line-wrong-type"),
            (b"{\"k\":\"a\",\"u\":\"with space\"}", "rejected"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(read(&rules, bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn raw_lines_are_events_whatever_they_hold() {
        let rules = rules(LineForm::Raw(MediaType::octet_stream()), "/k", Some("/u"));
        let cases: [(&[u8], &str); 4] = [
            (b"{\"k\":\"a\",\"u\":\"b\"}", "a b"),
            (b"{\"k\":1.5,\"u\":\"b\"}", "1.5 b"),
            (b"{\"u\":\"b\"}", " b"),
            (b"{\"k\":[],\"u\":\"b\"}", " b"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(read(&rules, bytes), expected, "{bytes:?}");
        }
        for bytes in [&b""[..], b"\xff\xfe", b"{", b"{\"k\":\"\",\"u\":\"a b\"}"] {
            let uid = line_uid("t", 3, bytes);
            assert_eq!(read(&rules, bytes), format!(" {uid}"), "{bytes:?}");
        }
    }

    #[test]
    fn the_origin_of_a_uid_is_known_line_by_line() {
        let origin = |rules: &Rules, bytes: &[u8]| match rules.read(line(bytes)) {
            LineOutcome::Event(LineEvent { event, uid }) => (event.uid.is_some(), uid),
            other => panic!("{other:?}"),
        };
        let given = rules(LineForm::Raw(MediaType::octet_stream()), "/k", Some("/u"));
        assert_eq!(origin(&given, b"{\"u\":\"b\"}"), (true, UidOrigin::Given));
        assert_eq!(origin(&given, b"no uid"), (true, UidOrigin::Line));
        let fresh = Rules { uid: UidRule::Fresh, ..given };
        assert_eq!(origin(&fresh, b"{\"u\":\"b\"}"), (false, UidOrigin::Fresh));
    }

    #[test]
    fn a_uid_is_made_from_topic_number_and_line() {
        assert_eq!(line_uid("t", 3, b"x"), "line-d9121e25f6ef9a219b1e35b1183c0fa649f813e125293f2a2c3536f5a80fbaec");
        let others = [line_uid("u", 3, b"x"), line_uid("t", 4, b"x"), line_uid("t", 3, b"y"), line_uid("t3", 3, b"x")];
        assert!(others.iter().all(|other| *other != line_uid("t", 3, b"x")));
    }

    #[test]
    fn a_line_beyond_the_bound_is_no_event() {
        let outcome =
            rules(LineForm::Json, "", None).read(Line { number: 1, content: Content::TooLong { bytes: 600_000 }, end: LineEnd::Break });
        assert!(matches!(outcome, LineOutcome::Invalid(LineFault::TooLong { bytes: 600_000 })));
    }

    #[test]
    fn pointers_are_checked_before_any_line_is_read() {
        for good in ["", "/a", "/a/0/b", "/a~1b", "/~0"] {
            assert!(Pointer::parse(good).is_ok(), "{good}");
        }
        for bad in ["a", "a/b", "/~", "/~2"] {
            assert!(Pointer::parse(bad).is_err(), "{bad}");
        }
    }
}
