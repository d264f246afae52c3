//! Lines with an upper bound, on blocking and on asynchronous streams. A line is never buffered beyond the bound.

use std::io::{self, BufRead};

use latent_core::{Limit, LimitError};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

use crate::limits;

/// What came instead of a line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// More bytes than the bound before a line break.
    #[error(transparent)]
    TooLong(LimitError),
    /// The peer closed in the middle of a line.
    #[error("the connection was closed in the middle of a line")]
    Cut,
    /// The stream failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl FrameError {
    /// The name used in machine-readable output and `docs/errors.md`.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::TooLong(_) => "control-line-too-long",
            Self::Cut | Self::Io(_) => "control-closed",
        }
    }
}

/// A line on its way in: bytes in, done or not.
#[derive(Debug, Default)]
struct Line {
    bytes: Vec<u8>,
}

/// What a piece of input did to the line.
struct Step {
    consumed: usize,
    complete: bool,
}

impl Line {
    fn take(&mut self, input: &[u8]) -> Result<Step, FrameError> {
        let newline = input.iter().position(|byte| *byte == b'\n');
        let piece = input.get(..newline.unwrap_or(input.len())).unwrap_or_default();
        check_length(self.bytes.len().saturating_add(piece.len()))?;
        self.bytes.extend_from_slice(piece);
        Ok(Step { consumed: newline.map_or(input.len(), |at| at + 1), complete: newline.is_some() })
    }

    /// The input has ended: nothing more, or half a line.
    fn ended(&self) -> Result<Option<Vec<u8>>, FrameError> {
        if self.bytes.is_empty() { Ok(None) } else { Err(FrameError::Cut) }
    }
}

fn check_length(bytes: usize) -> Result<(), FrameError> {
    let limit = Limit { min: 0, ..limits::CONTROL_LINE_BYTES };
    limit.check(bytes as u64).map(|_| ()).map_err(FrameError::TooLong)
}

/// The next line without its break, or `None` at the end.
pub(super) fn read_line(reader: &mut impl BufRead) -> Result<Option<Vec<u8>>, FrameError> {
    let mut line = Line::default();
    loop {
        let input = match reader.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            input => input?,
        };
        if input.is_empty() {
            return line.ended();
        }
        let step = line.take(input)?;
        reader.consume(step.consumed);
        if step.complete {
            return Ok(Some(line.bytes));
        }
    }
}

/// As [`read_line`], for a task. Not cancel safe: a cancelled call loses the part of the line it had.
pub(super) async fn read_line_async(reader: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Vec<u8>>, FrameError> {
    let mut line = Line::default();
    loop {
        let input = reader.fill_buf().await?;
        if input.is_empty() {
            return line.ended();
        }
        let step = line.take(input)?;
        reader.consume(step.consumed);
        if step.complete {
            return Ok(Some(line.bytes));
        }
    }
}

/// A line with its break, checked against the bound.
pub(super) fn frame(mut line: Vec<u8>) -> Result<Vec<u8>, FrameError> {
    check_length(line.len())?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(input: &[u8], buffer_bytes: usize) -> (Vec<Vec<u8>>, Option<FrameError>) {
        let mut reader = io::BufReader::with_capacity(buffer_bytes, input);
        let mut lines = Vec::new();
        loop {
            match read_line(&mut reader) {
                Ok(Some(line)) => lines.push(line),
                Ok(None) => return (lines, None),
                Err(error) => return (lines, Some(error)),
            }
        }
    }

    #[test]
    fn lines_come_out_whatever_the_pieces_they_came_in() {
        for buffer_bytes in 1..12 {
            let (lines, error) = read_all(b"one\n\ntwo\nhalf", buffer_bytes);
            assert_eq!(lines, [&b"one"[..], b"", b"two"]);
            assert!(matches!(error, Some(FrameError::Cut)));
        }
    }

    #[test]
    fn a_line_is_accepted_at_its_bound_and_refused_one_byte_beyond() {
        let bytes_max = limits::CONTROL_LINE_BYTES.max_usize();
        for (bytes, accepted) in [(bytes_max - 1, true), (bytes_max, true), (bytes_max + 1, false)] {
            let mut input = vec![b'x'; bytes];
            input.push(b'\n');
            let (lines, error) = read_all(&input, 65_536);
            assert_eq!((lines.len() == 1, error.is_none()), (accepted, accepted), "{bytes}");
            assert_eq!(frame(vec![b'x'; bytes]).is_ok(), accepted, "{bytes}");
        }
    }
}
