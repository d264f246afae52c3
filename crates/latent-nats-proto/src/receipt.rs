//! The body of a reply to a publication (P-041, P-044): a receipt, a refusal, or nothing that counts.

use crate::json::{JsonError, Rules, Value, object};
use crate::limits::RECEIPT_DEPTH;
use crate::outcome::Evidence;

#[derive(Default)]
struct Fields {
    stream_is_expected: Option<bool>,
    sequence: Option<u64>,
    duplicate: Option<bool>,
    refusal: Option<Refusal>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
struct Refusal {
    code: Option<u64>,
    err_code: Option<u64>,
}

/// What a body shows.
pub(crate) fn read(body: &[u8], expected_stream: &str) -> Evidence {
    match fields(body, expected_stream) {
        Ok(fields) => evidence(&fields),
        Err(_) => Evidence::MalformedReceipt,
    }
}

const RULES: Rules = Rules::Strict { levels: RECEIPT_DEPTH.max_usize() };

fn fields(body: &[u8], expected_stream: &str) -> Result<Fields, JsonError> {
    let text = std::str::from_utf8(body).map_err(|_| JsonError::Syntax)?;
    let mut fields = Fields::default();
    object(text, RULES, |name, value| {
        if name.is("stream") {
            fields.stream_is_expected = Some(value.text()?.is(expected_stream));
        } else if name.is("seq") {
            fields.sequence = Some(value.integer()?);
        } else if name.is("duplicate") {
            fields.duplicate = Some(value.bool()?);
        } else if name.is("domain") {
            value.text()?;
        } else if name.is("error") {
            fields.refusal = Some(refusal(&value)?);
        }
        Ok(())
    })?;
    Ok(fields)
}

fn refusal(value: &Value<'_>) -> Result<Refusal, JsonError> {
    let Value::Object(text) = value else { return Err(JsonError::Member) };
    let mut refusal = Refusal::default();
    object(text, RULES, |name, value| {
        if name.is("code") {
            refusal.code = Some(value.integer()?);
        } else if name.is("err_code") {
            refusal.err_code = Some(value.integer()?);
        } else if name.is("description") {
            value.text()?;
        }
        Ok(())
    })?;
    Ok(refusal)
}

/// The stream that a subject belongs to refuses what expects another one, and names itself. In every other answer a stream that is not
/// the expected one makes it somebody else's.
const STREAM_MISMATCH: Refusal = Refusal { code: Some(400), err_code: Some(10_060) };

fn evidence(fields: &Fields) -> Evidence {
    let names_another = fields.stream_is_expected == Some(false);
    if names_another && fields.refusal != Some(STREAM_MISMATCH) {
        return Evidence::WrongStream;
    }
    if let Some(Refusal { code, err_code }) = fields.refusal {
        let is_plain = fields.sequence.is_none_or(|sequence| sequence == 0) && fields.duplicate != Some(true);
        return if is_plain { Evidence::Rejected { code, err_code } } else { Evidence::MalformedReceipt };
    }
    match (fields.stream_is_expected, fields.sequence) {
        (Some(true), Some(sequence)) if sequence > 0 => Evidence::Stored { sequence, duplicate: fields.duplicate.unwrap_or(false) },
        _ => Evidence::MalformedReceipt,
    }
}

#[cfg(test)]
mod tests;
