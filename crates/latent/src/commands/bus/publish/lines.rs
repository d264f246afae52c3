//! Lines of a file of any size: at most one bounded line is in memory, whatever the file holds.

use std::io::{self, BufRead, BufReader, Read};

/// A line, counted from 1. Its break (`\n`) is not part of it; a `\r` before that is. A last line without a break counts, an empty
/// rest after the last break does not.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) content: Content,
    pub(super) end: LineEnd,
}

/// What a line ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEnd {
    /// A line break.
    Break,
    /// The end of the file: whoever writes the file may not have finished the line.
    File,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    Whole(Vec<u8>),
    /// Longer than the bound; only counted.
    TooLong {
        bytes: u64,
    },
}

/// Reads line after line.
pub(super) struct Lines<R> {
    reader: R,
    line_bytes_max: usize,
    number: u64,
    bytes_read: u64,
}

impl<R: Read> Lines<BufReader<R>> {
    /// True when the next line can be had without waiting for whoever writes it.
    pub(super) fn has_whole_line(&self) -> bool {
        self.reader.buffer().contains(&b'\n')
    }
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(reader: R, line_bytes_max: usize) -> Self {
        Self { reader, line_bytes_max, number: 0, bytes_read: 0 }
    }

    /// Bytes consumed so far, for progress.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The next line, or `None` at the end.
    pub(super) fn next_line(&mut self) -> io::Result<Option<Line>> {
        let (mut kept, mut bytes, mut begun) = (Vec::new(), 0_u64, false);
        let end = loop {
            let input = match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                input => input?,
            };
            if input.is_empty() && !begun {
                return Ok(None);
            }
            begun = true;
            let newline = input.iter().position(|byte| *byte == b'\n');
            let piece = input.get(..newline.unwrap_or(input.len())).unwrap_or_default();
            bytes = bytes.saturating_add(piece.len() as u64);
            if bytes <= self.line_bytes_max as u64 {
                kept.extend_from_slice(piece);
            }
            let end = if input.is_empty() { Some(LineEnd::File) } else { newline.map(|_| LineEnd::Break) };
            let consumed = newline.map_or(input.len(), |at| at + 1);
            self.reader.consume(consumed);
            self.bytes_read = self.bytes_read.saturating_add(consumed as u64);
            if let Some(end) = end {
                break end;
            }
        };
        self.number = self.number.saturating_add(1);
        let content = if bytes <= self.line_bytes_max as u64 { Content::Whole(kept) } else { Content::TooLong { bytes } };
        Ok(Some(Line { number: self.number, content, end }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a line, or how many a longer one had.
    type Seen = Result<Vec<u8>, u64>;

    fn read(input: &[u8], buffer_bytes: usize) -> Vec<(u64, Seen)> {
        let mut lines = Lines::new(io::BufReader::with_capacity(buffer_bytes, input), 4);
        let mut seen = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            let content = match line.content {
                Content::Whole(bytes) => Ok(bytes),
                Content::TooLong { bytes } => Err(bytes),
            };
            seen.push((line.number, content));
            let last = input.split(|byte| *byte == b'\n').count() as u64 == line.number;
            assert_eq!(line.end, if last { LineEnd::File } else { LineEnd::Break });
        }
        assert_eq!(lines.bytes_read(), input.len() as u64);
        seen
    }

    fn whole(bytes: &[u8]) -> Seen {
        Ok(bytes.to_vec())
    }

    #[test]
    fn a_line_is_whole_when_its_break_is_there() {
        for (input, whole) in [(&b"a\nb\n"[..], true), (b"a\nb", false), (b"a\n", false)] {
            let mut lines = Lines::new(BufReader::new(input), 4);
            assert!(lines.next_line().unwrap().is_some());
            assert_eq!(lines.has_whole_line(), whole, "{input:?}");
        }
    }

    #[test]
    fn every_line_comes_once_whatever_the_buffer() {
        let cases: [(&[u8], Vec<Seen>); 7] = [
            (b"", vec![]),
            (b"\n", vec![whole(b"")]),
            (b"a", vec![whole(b"a")]),
            (b"a\n\nb\r\n", vec![whole(b"a"), whole(b""), whole(b"b\r")]),
            (b"\xff\0\n", vec![whole(b"\xff\0")]),
            (b"123\n1234\n12345\n1", vec![whole(b"123"), whole(b"1234"), Err(5), whole(b"1")]),
            (b"123456789", vec![Err(9)]),
        ];
        for (input, expected) in cases {
            for buffer_bytes in 1..12 {
                let expected: Vec<_> = (1..).zip(expected.clone()).collect();
                assert_eq!(read(input, buffer_bytes), expected, "{input:?} in pieces of {buffer_bytes}");
            }
        }
    }
}
