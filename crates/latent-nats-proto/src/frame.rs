//! One line of the protocol, read: the operation and, for a message, what stands where. Bodies are the decoder's.
//!
//! Operations are compared without case and fields are split at spaces and tabs, as the protocol says; sizes are plain digits.

use std::ops::Range;

/// A frame of the broker.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    Info(&'a [u8]),
    Message(Message<'a>),
    /// A message larger than fits, whose body was let go by. Only where a decoder is told to.
    Skipped(Skipped<'a>),
    Ping,
    Pong,
    Ok,
    /// What stands behind `-ERR`, quotes included.
    Error(&'a [u8]),
}

/// A `MSG` or `HMSG`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) subject: &'a [u8],
    pub(crate) subscription: &'a [u8],
    /// Where a reply to it goes; what settles a pulled message.
    pub(crate) reply: Option<&'a [u8]>,
    /// The header block of an `HMSG`.
    pub(crate) headers: Option<&'a [u8]>,
    pub(crate) payload: &'a [u8],
}

/// What is known of a message without its body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Skipped<'a> {
    pub(crate) subject: &'a [u8],
    pub(crate) subscription: &'a [u8],
    pub(crate) reply: Option<&'a [u8]>,
    /// Empty when there are none, or they are too large themselves.
    pub(crate) headers: &'a [u8],
    pub(crate) header_bytes: usize,
    pub(crate) payload_bytes: usize,
}

/// Why the bytes are no frame that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameError {
    LineTooLong,
    Malformed,
    /// A message announced more than fits.
    Oversized,
}

/// What one line says. Ranges are places in the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    Info(Range<usize>),
    Message(MessageLine),
    Ping,
    Pong,
    Ok,
    Error(Range<usize>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MessageLine {
    pub(crate) subject: Range<usize>,
    pub(crate) subscription: Range<usize>,
    pub(crate) reply: Option<Range<usize>>,
    pub(crate) header_bytes: Option<usize>,
    pub(crate) total_bytes: usize,
}

/// Most fields behind an operation: `HMSG subject sid reply headers total`.
const FIELDS_MAX: usize = 5;

/// Reads a line, its line end taken away.
pub(crate) fn read_line(line: &[u8]) -> Result<Line, FrameError> {
    let name_end = line.iter().position(|byte| is_separator(*byte)).unwrap_or(line.len());
    let (name, rest) = (line.get(..name_end).unwrap_or_default(), name_end..line.len());
    let is = |operation: &[u8]| name.eq_ignore_ascii_case(operation);
    let alone = |read: Line| if trimmed(line, rest.clone()).is_empty() { Ok(read) } else { Err(FrameError::Malformed) };
    if is(b"MSG") {
        message(line, rest, false)
    } else if is(b"HMSG") {
        message(line, rest, true)
    } else if is(b"PING") {
        alone(Line::Ping)
    } else if is(b"PONG") {
        alone(Line::Pong)
    } else if is(b"+OK") {
        alone(Line::Ok)
    } else if is(b"-ERR") {
        Ok(Line::Error(trimmed(line, rest)))
    } else if is(b"INFO") {
        Ok(Line::Info(trimmed(line, rest)))
    } else {
        Err(FrameError::Malformed)
    }
}

fn message(line: &[u8], rest: Range<usize>, has_headers: bool) -> Result<Line, FrameError> {
    let mut fields: [Range<usize>; FIELDS_MAX] = [0..0, 0..0, 0..0, 0..0, 0..0];
    let (mut count, mut at) = (0, rest.start);
    while let Some(field) = next_field(line, at) {
        at = field.end;
        *fields.get_mut(count).ok_or(FrameError::Malformed)? = field;
        count += 1;
    }
    let sizes = if has_headers { 2 } else { 1 };
    // With or without a subject for replies.
    if count != 2 + sizes && count != 3 + sizes {
        return Err(FrameError::Malformed);
    }
    let size = |at: usize| fields.get(at).and_then(|field| line.get(field.clone())).and_then(plain_size).ok_or(FrameError::Malformed);
    let total_bytes = size(count - 1)?;
    let header_bytes = if has_headers { Some(size(count - 2)?) } else { None };
    if header_bytes.is_some_and(|bytes| bytes > total_bytes) {
        return Err(FrameError::Malformed);
    }
    let [subject, subscription, third, ..] = fields;
    let reply = (count == 3 + sizes).then_some(third);
    Ok(Line::Message(MessageLine { subject, subscription, reply, header_bytes, total_bytes }))
}

fn next_field(line: &[u8], from: usize) -> Option<Range<usize>> {
    let start = from + line.get(from..)?.iter().position(|byte| !is_separator(*byte))?;
    let bytes = line.get(start..)?.iter().position(|byte| is_separator(*byte)).unwrap_or(line.len() - start);
    Some(start..start + bytes)
}

/// Digits without a sign or a leading zero.
fn plain_size(digits: &[u8]) -> Option<usize> {
    let is_plain = digits.iter().all(u8::is_ascii_digit) && (digits.len() == 1 || digits.first() != Some(&b'0'));
    is_plain.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

fn trimmed(line: &[u8], range: Range<usize>) -> Range<usize> {
    let part = line.get(range.clone()).unwrap_or_default();
    let from = part.iter().position(|byte| !is_separator(*byte)).unwrap_or(part.len());
    let until = part.iter().rposition(|byte| !is_separator(*byte)).map_or(from, |at| at + 1);
    range.start + from..range.start + until
}

fn is_separator(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}
