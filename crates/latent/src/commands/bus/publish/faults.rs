//! Why a line is no event, in words that help to mend the file. Pure.

use latent_core::{CoreError, limits};

use crate::control::Fault;

/// Why a line is no event.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum LineFault {
    #[error("the line has {bytes} bytes and an event at most {max}", max = limits::EVENT_BYTES.max)]
    TooLong { bytes: u64 },
    #[error("the line is not JSON: {problem}{}", after(.hint))]
    NotJson { problem: String, hint: Option<&'static str> },
    #[error("the line has nothing at {pointer}, where its {what} should be")]
    Missing { what: &'static str, pointer: String },
    #[error("the {what} at {pointer} is {found}; it must be text or a number")]
    OtherType { what: &'static str, pointer: String, found: &'static str },
    #[error(transparent)]
    Value(#[from] CoreError),
}

fn after(hint: &Option<&'static str>) -> String {
    hint.map(|hint| format!("; {hint}")).unwrap_or_default()
}

impl LineFault {
    pub(super) fn not_json(bytes: &[u8], error: &serde_json::Error) -> Self {
        // A line has one line: only the column says anything.
        let (text, place) = (error.to_string(), format!(" at line 1 column {}", error.column()));
        let problem = text.strip_suffix(&place).map_or(text.clone(), |problem| format!("{problem} at column {}", error.column()));
        Self::NotJson { problem, hint: hint_for(bytes, error) }
    }

    /// The name used in machine-readable output and `docs/errors.md`.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "line-too-long",
            Self::NotJson { .. } => "line-not-json",
            Self::Missing { .. } => "line-missing-value",
            Self::OtherType { .. } => "line-wrong-type",
            Self::Value(_) => "rejected",
        }
    }

    pub(super) fn to_fault(&self) -> Fault {
        Fault::refused(self.kind(), self.to_string())
    }
}

const ONE_DOCUMENT_A_LINE: &str = "write one document a line, not spread over several";
const RAW_LINES: &str = "publish lines that are no JSON with --raw-lines";
const BYTE_ORDER_MARK: &str = "the line begins with a byte order mark; save the file as UTF-8 without one";
const UTF_16: &str = "the line has NUL bytes, as text in UTF-16 has; convert the file to UTF-8, or publish bytes with --raw-lines";
const NOT_UTF_8: &str = "the line is not UTF-8; convert the file, or publish bytes with --raw-lines";

/// What was probably meant: another encoding, a part of a document that spans lines, or text that is no JSON at all.
fn hint_for(bytes: &[u8], error: &serde_json::Error) -> Option<&'static str> {
    let text = bytes.trim_ascii();
    let is_member = text.starts_with(b"\"") && text.windows(2).any(|pair| pair == b"\":");
    match text.first() {
        _ if bytes.starts_with(b"\xef\xbb\xbf") => Some(BYTE_ORDER_MARK),
        _ if bytes.contains(&0) => Some(UTF_16),
        _ if str::from_utf8(bytes).is_err() => Some(NOT_UTF_8),
        _ if error.is_eof() || is_member => Some(ONE_DOCUMENT_A_LINE),
        Some(b'}' | b']') => Some(ONE_DOCUMENT_A_LINE),
        Some(b'{' | b'[' | b'"') | None => None,
        Some(_) => Some(RAW_LINES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_json_is_told_what_was_probably_meant() {
        let cases: [(&[u8], &str); 13] = [
            (b"{", ONE_DOCUMENT_A_LINE),
            (b"  \"user\": \"ada\",", ONE_DOCUMENT_A_LINE),
            (b"}", ONE_DOCUMENT_A_LINE),
            (b"],", ONE_DOCUMENT_A_LINE),
            (b"hello world", RAW_LINES),
            (b"2026-01-01 INFO started", RAW_LINES),
            (b"\xef\xbb\xbf{}", BYTE_ORDER_MARK),
            (b"\xff\xfe{\0}\0", UTF_16),
            (b"{\"a\":\"\0\"}", UTF_16),
            (b"\xff\xfe", NOT_UTF_8),
            (b"{\"name\":\"gr\xfcn\"}", NOT_UTF_8),
            (b"{\"a\":1,}", "column 8"),
            (b"{} {}", "trailing characters at column 4"),
        ];
        for (bytes, hint) in cases {
            let error = serde_json::from_slice::<serde_json::Value>(bytes).unwrap_err();
            let fault = LineFault::not_json(bytes, &error);
            assert!(fault.to_string().ends_with(hint) && fault.to_string().contains("column"), "{bytes:?}: {fault}");
        }
    }
}
