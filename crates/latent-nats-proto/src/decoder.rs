//! Bytes of the broker into frames, in memory that is allocated once. A frame is whole by its announced length, never by the end of the
//! stream, and what it announces is checked before its body is waited for.

use crate::frame::{Frame, FrameError, Line, Message, MessageLine, Skipped, read_line};
use crate::limits::{CONTROL_LINE_BYTES, RECEIPT_BYTES, SKIPPED_MESSAGE_BYTES};

const LINE_END: &[u8] = b"\r\n";

/// The received bytes that are not used up, and how far they are understood.
pub(crate) struct Decoder {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Bytes from `start` that were looked through for a line end.
    scanned: usize,
    /// Bytes from `start` of the frame handed out last, gone with the next call.
    taken: usize,
    /// The line of a message whose body is not complete, and its bytes with the line end.
    head: Option<(MessageLine, usize)>,
    body_bytes_max: usize,
    /// Whether a message above `body_bytes_max` is let go by instead of being an error.
    is_skipping: bool,
    /// Bytes of a body that are still to be let go by.
    to_skip: usize,
}

impl Decoder {
    /// For messages whose headers and body have at most [`RECEIPT_BYTES`].
    pub(crate) fn for_receipts() -> Self {
        Self::new(RECEIPT_BYTES.max_usize())
    }

    /// For messages whose headers and body have at most so many bytes.
    pub(crate) fn new(body_bytes_max: usize) -> Self {
        Self {
            buffer: vec![0; Self::buffer_bytes(body_bytes_max)].into(),
            start: 0,
            end: 0,
            scanned: 0,
            taken: 0,
            head: None,
            body_bytes_max,
            is_skipping: false,
            to_skip: 0,
        }
    }

    /// Memory that is allocated for such messages.
    pub(crate) const fn buffer_bytes(body_bytes_max: usize) -> usize {
        CONTROL_LINE_BYTES.max_usize() + body_bytes_max + 2 * LINE_END.len()
    }

    /// The same, for a connection on which one message that is too large must not end what else is under way.
    pub(crate) fn skipping(body_bytes_max: usize) -> Self {
        Self { is_skipping: true, ..Self::new(body_bytes_max) }
    }

    /// Most bytes that headers and body of a message may have to be handed out.
    pub(crate) fn body_bytes_max(&self) -> usize {
        self.body_bytes_max
    }

    pub(crate) fn is_skipping(&self) -> bool {
        self.is_skipping
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// Takes as many of `bytes` as there is room for and says how many.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> usize {
        self.release();
        if self.start > 0 && self.buffer.len() - self.end < bytes.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let count = bytes.len().min(self.buffer.len() - self.end);
        if let (Some(room), Some(new)) = (self.buffer.get_mut(self.end..self.end + count), bytes.get(..count)) {
            room.copy_from_slice(new);
            self.end += count;
        }
        count
    }

    /// Whether bytes of a frame that is not complete are here.
    pub(crate) fn is_within_frame(&self) -> bool {
        self.start + self.taken < self.end
    }

    /// Whether what is here ends with a line.
    pub(crate) fn ends_with_line(&self) -> bool {
        let rest = self.buffer.get(self.start + self.taken..self.end).unwrap_or_default();
        self.head.is_none() && (rest.is_empty() || rest.ends_with(LINE_END))
    }

    /// The next complete frame, or nothing when more bytes are needed.
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        self.release();
        if self.head.is_none() {
            let Some(line_bytes) = self.line_bytes()? else { return Ok(None) };
            match self.read_line(line_bytes)? {
                Line::Message(line) => {
                    self.to_skip = if line.total_bytes > self.body_bytes_max { line.total_bytes - self.kept_bytes(&line) } else { 0 };
                    self.head = Some((line, line_bytes));
                }
                line => {
                    self.taken = line_bytes;
                    return Ok(Some(self.plain_frame(line)));
                }
            }
        }
        self.message()
    }

    /// Gives up the frame handed out last.
    fn release(&mut self) {
        self.start += self.taken;
        self.taken = 0;
        if self.start >= self.end {
            (self.start, self.end, self.scanned) = (0, 0, 0);
        }
    }

    /// The bytes of the line at the front, with its end, once it is there.
    fn line_bytes(&mut self) -> Result<Option<usize>, FrameError> {
        let bytes_max = CONTROL_LINE_BYTES.max_usize() + LINE_END.len();
        let here = self.buffer.get(self.start..self.end).unwrap_or_default();
        let new = here.get(self.scanned..).unwrap_or_default();
        let Some(at) = new.iter().position(|byte| *byte == b'\n') else {
            self.scanned = here.len();
            // One byte beyond the bound can still be the first of the line end, and two cannot.
            let beyond = here.get(CONTROL_LINE_BYTES.max_usize()..).unwrap_or_default();
            return if matches!(beyond, [] | [b'\r']) { Ok(None) } else { Err(FrameError::LineTooLong) };
        };
        let bytes = self.scanned + at + 1;
        self.scanned = 0;
        if bytes > bytes_max {
            return Err(FrameError::LineTooLong);
        }
        if here.get(..bytes).is_some_and(|line| line.ends_with(LINE_END)) { Ok(Some(bytes)) } else { Err(FrameError::Malformed) }
    }

    fn read_line(&self, line_bytes: usize) -> Result<Line, FrameError> {
        let line = read_line(self.at(0..line_bytes - LINE_END.len()))?;
        match &line {
            Line::Message(message) if message.total_bytes > self.announced_bytes_max() => Err(FrameError::Oversized),
            _ => Ok(line),
        }
    }

    fn announced_bytes_max(&self) -> usize {
        if self.is_skipping { self.body_bytes_max.max(SKIPPED_MESSAGE_BYTES.max_usize()) } else { self.body_bytes_max }
    }

    fn plain_frame(&self, line: Line) -> Frame<'_> {
        match line {
            Line::Info(text) => Frame::Info(self.at(text)),
            Line::Error(text) => Frame::Error(self.at(text)),
            Line::Ping => Frame::Ping,
            Line::Pong => Frame::Pong,
            // Messages have a body and do not come here.
            Line::Ok | Line::Message(_) => Frame::Ok,
        }
    }

    fn message(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        let Some((line, line_bytes)) = self.head.take() else { return Ok(None) };
        if line.total_bytes > self.body_bytes_max {
            return self.skip(line, line_bytes);
        }
        let body_end = line_bytes + line.total_bytes;
        if self.end - self.start < body_end + LINE_END.len() {
            self.head = Some((line, line_bytes));
            return Ok(None);
        }
        if self.at(body_end..body_end + LINE_END.len()) != LINE_END {
            return Err(FrameError::Malformed);
        }
        self.taken = body_end + LINE_END.len();
        let payload_start = line_bytes + line.header_bytes.unwrap_or(0);
        Ok(Some(Frame::Message(Message {
            subject: self.at(line.subject),
            subscription: self.at(line.subscription),
            reply: line.reply.map(|reply| self.at(reply)),
            headers: line.header_bytes.map(|_| self.at(line_bytes..payload_start)),
            payload: self.at(payload_start..body_end),
        })))
    }

    /// What is kept of a message that is let go by: its headers, unless those are too large themselves.
    fn kept_bytes(&self, line: &MessageLine) -> usize {
        line.header_bytes.filter(|bytes| *bytes <= self.body_bytes_max).unwrap_or(0)
    }

    /// Lets go by what is here of a body. Its line and headers stay at the front, the line end behind the body is looked at as ever.
    fn skip(&mut self, line: MessageLine, line_bytes: usize) -> Result<Option<Frame<'_>>, FrameError> {
        let kept = line_bytes + self.kept_bytes(&line);
        let body_start = self.start + kept;
        let gone = self.to_skip.min(self.end.saturating_sub(body_start));
        if gone > 0 {
            self.buffer.copy_within(body_start + gone..self.end, body_start);
            self.end -= gone;
            self.to_skip -= gone;
        }
        if self.to_skip > 0 || self.end - self.start < kept + LINE_END.len() {
            self.head = Some((line, line_bytes));
            return Ok(None);
        }
        if self.at(kept..kept + LINE_END.len()) != LINE_END {
            return Err(FrameError::Malformed);
        }
        self.taken = kept + LINE_END.len();
        let header_bytes = line.header_bytes.unwrap_or(0);
        Ok(Some(Frame::Skipped(Skipped {
            subject: self.at(line.subject),
            subscription: self.at(line.subscription),
            reply: line.reply.map(|reply| self.at(reply)),
            headers: self.at(line_bytes..kept),
            header_bytes,
            payload_bytes: line.total_bytes - header_bytes,
        })))
    }

    /// The bytes at a place counted from the front.
    fn at(&self, range: std::ops::Range<usize>) -> &[u8] {
        self.buffer.get(self.start + range.start..self.start + range.end).unwrap_or_default()
    }
}

/// The digits of a number: they are the array from the index on.
pub(crate) fn decimal(number: u64) -> ([u8; 20], usize) {
    let (mut digits, mut at, mut rest) = ([b'0'; 20], 20, number);
    loop {
        at -= 1;
        if let (Some(place), Ok(digit)) = (digits.get_mut(at), u8::try_from(rest % 10)) {
            *place = b'0' + digit;
        }
        rest /= 10;
        if rest == 0 || at == 0 {
            return (digits, at);
        }
    }
}

#[cfg(test)]
mod tests;
