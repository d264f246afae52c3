//! The log of one activation: lines of `latent:log`, of stdout and of stderr in the order in which they were completed, under one
//! budget of bytes. A pure machine; the host interfaces feed it.
//!
//! Invariants: `kept bytes + lines ≤ budget` (each line costs its text and one byte, so empty lines are not free); at most `log_lines`
//! lines are kept, because a line takes the host more than its text; what a guest wrote and is not kept is in `cut_bytes`; no kept text holds a character that could move a terminal or forge another line.

use std::fmt;

use crate::limits;

/// How serious a line of `latent:log` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Every step.
    Trace,
    /// For finding faults.
    Debug,
    /// Worth knowing.
    Info,
    /// Unexpected and survived.
    Warn,
    /// Something failed.
    Error,
}

/// Where a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogSource {
    /// `latent:log/log`, with its level.
    Log(LogLevel),
    /// The guest's standard output.
    Stdout,
    /// The guest's standard error; a panic message comes this way.
    Stderr,
}

/// One line, made harmless: control characters are shown as escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Where it came from.
    pub source: LogSource,
    /// Its text, without a line break.
    pub text: String,
}

impl fmt::Display for LogSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Log(LogLevel::Trace) => "trace",
            Self::Log(LogLevel::Debug) => "debug",
            Self::Log(LogLevel::Info) => "info",
            Self::Log(LogLevel::Warn) => "warn",
            Self::Log(LogLevel::Error) => "error",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        })
    }
}

/// The two byte streams of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputKind {
    Stdout,
    Stderr,
}

/// Collects the lines of one activation.
#[derive(Debug)]
pub(crate) struct ActivationLog {
    lines: Vec<LogLine>,
    bytes_left: usize,
    cut_bytes: u64,
    open_stdout: Vec<u8>,
    open_stderr: Vec<u8>,
}

impl ActivationLog {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { lines: Vec::new(), bytes_left: bytes_max, cut_bytes: 0, open_stdout: Vec::new(), open_stderr: Vec::new() }
    }

    /// What may still be logged.
    pub(crate) fn bytes_left(&self) -> usize {
        self.bytes_left
    }

    /// Takes one line of `latent:log`. A line break in it is shown, not obeyed.
    pub(crate) fn write_line(&mut self, level: LogLevel, message: &str) {
        self.push(LogSource::Log(level), message);
    }

    /// Takes bytes of a stream; each line break completes a line.
    pub(crate) fn write_output(&mut self, kind: OutputKind, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            match piece.strip_suffix(b"\n") {
                Some(end) => {
                    self.append_open(kind, end);
                    self.complete(kind);
                }
                None => self.append_open(kind, piece),
            }
        }
    }

    /// The lines and the bytes cut; unfinished lines of the streams are completed first.
    pub(crate) fn finish(&mut self) -> (Vec<LogLine>, u64) {
        for kind in [OutputKind::Stdout, OutputKind::Stderr] {
            if !self.open(kind).is_empty() {
                self.complete(kind);
            }
        }
        (std::mem::take(&mut self.lines), std::mem::take(&mut self.cut_bytes))
    }

    fn open(&mut self, kind: OutputKind) -> &mut Vec<u8> {
        match kind {
            OutputKind::Stdout => &mut self.open_stdout,
            OutputKind::Stderr => &mut self.open_stderr,
        }
    }

    /// An unfinished line holds no more than could still be kept of it.
    fn append_open(&mut self, kind: OutputKind, bytes: &[u8]) {
        let room = self.bytes_left.saturating_sub(self.open(kind).len());
        let (kept, cut) = bytes.split_at(bytes.len().min(room));
        self.open(kind).extend_from_slice(kept);
        self.cut_bytes += cut.len() as u64;
    }

    fn complete(&mut self, kind: OutputKind) {
        let bytes = std::mem::take(self.open(kind));
        let source = match kind {
            OutputKind::Stdout => LogSource::Stdout,
            OutputKind::Stderr => LogSource::Stderr,
        };
        self.push(source, &String::from_utf8_lossy(&bytes));
    }

    fn push(&mut self, source: LogSource, message: &str) {
        if self.lines.len() >= limits::LOG_LINES.default_usize() {
            // An empty line counts as its line break, so that a flood of them is seen.
            self.cut_bytes += (message.len() as u64).max(1);
            return;
        }
        // The line itself costs a byte; without it there is no line.
        let Some(room) = self.bytes_left.checked_sub(1) else {
            self.cut_bytes += message.len() as u64;
            return;
        };
        let (text, cut) = harmless(message, room);
        self.cut_bytes += cut as u64;
        if text.is_empty() && cut > 0 {
            return;
        }
        self.bytes_left = room - text.len();
        self.lines.push(LogLine { source, text });
    }
}

/// `text` with control and direction-changing characters as escapes, cut at `bytes_max` bytes between two characters; and how many
/// bytes of `text` did not fit.
pub(crate) fn harmless(text: &str, bytes_max: usize) -> (String, usize) {
    let mut kept = String::with_capacity(text.len().min(bytes_max));
    for (at, c) in text.char_indices() {
        let before = kept.len();
        if is_harmful(c) {
            kept.extend(c.escape_default());
        } else {
            kept.push(c);
        }
        if kept.len() > bytes_max {
            kept.truncate(before);
            return (kept, text.len() - at);
        }
    }
    (kept, 0)
}

/// Control characters move the terminal; direction marks and line separators make a line look like another.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_at_their_edge_whatever_the_budget() {
        let most = limits::LOG_LINES.default_usize();
        for (written, kept, cut) in [(most - 1, most - 1, 0), (most, most, 0), (most + 1, most, 1), (most * 3, most, most as u64 * 2)] {
            let mut log = ActivationLog::new(1_000_000);
            log.write_output(OutputKind::Stderr, &vec![b'\n'; written]);
            let (lines, cut_bytes) = log.finish();
            assert_eq!((lines.len(), cut_bytes), (kept, cut), "{written}");
        }
    }

    fn texts(lines: &[LogLine]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn lines_of_all_sources_are_kept_in_the_order_in_which_they_were_completed() {
        let mut log = ActivationLog::new(1_000);
        log.write_output(OutputKind::Stdout, b"first\nunfin");
        log.write_line(LogLevel::Warn, "second");
        log.write_output(OutputKind::Stderr, b"third\n");
        log.write_output(OutputKind::Stdout, b"ished\n\nlast");
        let (lines, cut) = log.finish();
        assert_eq!(texts(&lines), ["first", "second", "third", "unfinished", "", "last"]);
        let sources: Vec<_> = lines.iter().map(|line| line.source.to_string()).collect();
        assert_eq!(sources, ["stdout", "warn", "stderr", "stdout", "stdout", "stdout"]);
        assert_eq!(cut, 0);
    }

    #[test]
    fn a_line_that_just_fits_is_whole_and_one_byte_more_is_cut_and_counted() {
        for (length, kept, cut) in [(8, 8, 0), (9, 9, 0), (10, 9, 1), (1_000, 9, 991)] {
            for stream in [false, true] {
                let mut log = ActivationLog::new(10);
                let text = "x".repeat(length);
                if stream {
                    log.write_output(OutputKind::Stdout, text.as_bytes());
                } else {
                    log.write_line(LogLevel::Info, &text);
                }
                let (lines, cut_seen) = log.finish();
                assert_eq!((lines[0].text.len(), cut_seen), (kept, cut), "{length} bytes, stream: {stream}");
            }
        }
    }

    #[test]
    fn with_no_bytes_left_nothing_is_kept_and_everything_is_counted() {
        let mut log = ActivationLog::new(0);
        log.write_line(LogLevel::Info, "abc");
        log.write_output(OutputKind::Stderr, b"de\nf\n\n");
        assert_eq!(log.finish(), (Vec::new(), 6));
    }

    #[test]
    fn a_line_of_which_nothing_fits_leaves_no_empty_line() {
        let mut log = ActivationLog::new(1);
        log.write_line(LogLevel::Info, "abc");
        assert_eq!(log.finish(), (Vec::new(), 3));
    }

    #[test]
    fn empty_lines_are_not_free() {
        let mut log = ActivationLog::new(3);
        (0..100).for_each(|_| log.write_line(LogLevel::Info, ""));
        assert_eq!(log.finish().0.len(), 3);
    }

    #[test]
    fn control_characters_are_shown_and_not_obeyed() {
        let (text, cut) = harmless("a\x1b[2J\r\n\tb\u{202e}c\0é", 100);
        assert_eq!((text.as_str(), cut), ("a\\u{1b}[2J\\r\\n\\tb\\u{202e}c\\u{0}é", 0));
    }

    #[test]
    fn a_cut_falls_between_characters_and_never_inside_an_escape() {
        assert_eq!(harmless("aé", 2), ("a".to_owned(), 2));
        assert_eq!(harmless("a\x1b", 5), ("a".to_owned(), 1));
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_replaced() {
        let mut log = ActivationLog::new(100);
        log.write_output(OutputKind::Stdout, b"a\xffb\n");
        assert_eq!(texts(&log.finish().0), ["a\u{fffd}b"]);
    }

    #[test]
    fn a_character_split_between_two_writes_is_whole() {
        let mut log = ActivationLog::new(100);
        log.write_output(OutputKind::Stdout, &"é".as_bytes()[..1]);
        log.write_output(OutputKind::Stdout, &"é\n".as_bytes()[1..]);
        assert_eq!(texts(&log.finish().0), ["é"]);
    }
}
