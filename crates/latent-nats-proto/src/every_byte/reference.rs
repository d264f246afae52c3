//! What bytes of a broker say, read in another way than the machines do: whole at once, with `serde_json`. For single replies to the
//! publication of these tests only.

use serde_json::Value;

use crate::testing::{STREAM, SUBJECT, inbox};
use crate::{Answer, FailureCause, FailureKind, UncertainCause};

#[derive(Debug, Clone, Copy)]
pub(super) enum Expected {
    /// Exactly this.
    Answer(Answer),
    /// Nothing that counts: uncertain, whatever the cause.
    Unusable,
}

const fn failed(kind: FailureKind, cause: FailureCause) -> Expected {
    Expected::Answer(Answer::KnownFailure { kind, cause })
}

/// What one reply to a written publication comes to.
pub(super) fn answer(bytes: &[u8]) -> Expected {
    frame(bytes).unwrap_or(Expected::Unusable)
}

fn frame(bytes: &[u8]) -> Option<Expected> {
    let line_end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let line = std::str::from_utf8(&bytes[..line_end]).ok().filter(|line| !line.contains('\n'))?;
    let rest = &bytes[line_end + 2..];
    if let Some(text) = without_name(line, "-ERR") {
        return Some(error(text));
    }
    let fields: Vec<&str> = line.split([' ', '\t']).filter(|field| !field.is_empty()).collect();
    let size = |text: &str| text.parse::<usize>().ok().filter(|size| size.to_string() == text);
    match fields[..] {
        [name, subject, "1", total] if name.eq_ignore_ascii_case("MSG") && subject == inbox(1) => receipt(body(rest, size(total)?)?),
        [name, subject, "1", headers, total] if name.eq_ignore_ascii_case("HMSG") && subject == inbox(1) => {
            let (headers, total) = (size(headers)?, size(total)?);
            let block = body(rest, total)?.get(..headers)?;
            let is_503 = block.starts_with(b"NATS/1.0 503\r\n") && block.ends_with(b"\r\n\r\n") && headers == total;
            is_503.then_some(failed(FailureKind::Unavailable, FailureCause::NoResponders))
        }
        _ => None,
    }
}

/// What stands behind the name and one space or tab.
fn without_name<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.get(..name.len()).filter(|start| start.eq_ignore_ascii_case(name))?;
    line.get(name.len()..)?.strip_prefix([' ', '\t'])
}

fn body(rest: &[u8], bytes: usize) -> Option<&[u8]> {
    rest.get(bytes..bytes + 2).filter(|end| *end == b"\r\n")?;
    rest.get(..bytes)
}

fn error(text: &str) -> Expected {
    if text == format!("'Permissions Violation for Publish to \"{SUBJECT}\"'") {
        return failed(FailureKind::PermissionDenied, FailureCause::PublishRefused);
    }
    if text.eq_ignore_ascii_case("'Maximum Payload Violation'") {
        return failed(FailureKind::InvalidEvent, FailureCause::ServerMaximum);
    }
    Expected::Unusable
}

fn receipt(body: &[u8]) -> Option<Expected> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let fields = value.as_object()?;
    let error = fields.get("error");
    let is_mismatch = error.is_some_and(|error| error["code"] == 400 && error["err_code"] == 10_060);
    if fields.get("stream").is_some_and(|stream| !stream.is_string() || stream != STREAM && !is_mismatch) {
        return None;
    }
    let sequence = match fields.get("seq") {
        Some(sequence) => Some(sequence.as_u64()?),
        None => None,
    };
    let duplicate = match fields.get("duplicate") {
        Some(duplicate) => duplicate.as_bool()?,
        None => false,
    };
    if fields.get("domain").is_some_and(|domain| !domain.is_string()) {
        return None;
    }
    if let Some(error) = error {
        return (sequence.unwrap_or(0) == 0 && !duplicate).then(|| refusal(error))?;
    }
    fields.get("stream")?;
    let sequence = sequence.filter(|sequence| *sequence > 0)?;
    Some(Expected::Answer(Answer::Receipt { sequence, duplicate }))
}

fn refusal(error: &Value) -> Option<Expected> {
    let fields = error.as_object()?;
    if fields.get("description").is_some_and(|text| !text.is_string()) {
        return None;
    }
    let code = fields.get("code")?.as_u64()?;
    let err_code = fields.get("err_code")?.as_u64()?;
    match (code, err_code) {
        (400, 10_060) => Some(failed(FailureKind::InvalidEvent, FailureCause::StreamMismatch)),
        (400, 10_054) => Some(failed(FailureKind::InvalidEvent, FailureCause::StreamMessageSize)),
        (503, 10_077) => Some(Expected::Answer(Answer::Uncertain(UncertainCause::StorageLimit))),
        _ => None,
    }
}

/// Whether these bytes are one INFO that a session can begin with.
pub(super) fn is_info(bytes: &[u8]) -> bool {
    let read = || {
        let text = std::str::from_utf8(bytes.strip_suffix(b"\r\n")?).ok().filter(|line| !line.contains('\n'))?;
        let value: Value = serde_json::from_str(without_name(text, "INFO")?).ok()?;
        let fields = value.as_object()?;
        let is = |name: &str, check: fn(&Value) -> bool| fields.get(name).is_none_or(check);
        let types = is("version", Value::is_string)
            && is("proto", Value::is_u64)
            && is("auth_required", Value::is_boolean)
            && is("jetstream", Value::is_boolean);
        Some(types && fields.get("headers")?.as_bool()? && fields.get("max_payload")?.as_u64()? > 0)
    };
    read().unwrap_or(false)
}

/// Whether these bytes are one PONG.
pub(super) fn is_pong(bytes: &[u8]) -> bool {
    bytes.eq_ignore_ascii_case(b"PONG\r\n") && bytes.ends_with(b"\r\n")
}
