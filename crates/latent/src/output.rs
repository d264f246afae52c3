//! What a command says: results on standard output, everything else on standard error.
//!
//! A reader that goes away (`| head`) is no error: the rest of the output is dropped and [`Output::is_closed`] lets readers of a log
//! stop early. A publication goes on; cutting it short because nobody listens would lose events without a word.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write as _};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde_json::json;

use crate::config::Warning;
use crate::error::CliError;

/// Whom the output is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Lines for people.
    Human,
    /// One JSON document, or one JSON object for each line.
    Json,
}

/// The two streams of a command.
pub(crate) struct Output {
    form: Form,
    stdout: BufWriter<Stdout>,
    closed: bool,
}

impl Output {
    /// Output in `form`, nothing written yet.
    pub(crate) fn new(form: Form) -> Self {
        Self { form, stdout: BufWriter::new(io::stdout()), closed: false }
    }

    /// Whom it is for.
    pub(crate) const fn form(&self) -> Form {
        self.form
    }

    /// True when nobody reads standard output any more.
    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Looks whether the reader is gone, without writing: a command that waits would else learn it with its next line.
    pub(crate) fn look_for_reader(&mut self) {
        let stdout = io::stdout();
        let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
        // Only pipes, sockets and terminals tell. A failed look says nothing.
        let told = poll(&mut polled, Some(&Timespec::default())).is_ok_and(|count| count > 0);
        self.closed |= told && polled.iter().any(|stdout| stdout.revents().intersects(PollFlags::ERR | PollFlags::HUP));
    }

    /// True when a person reads standard output as it is written.
    pub(crate) fn is_watched(&self) -> bool {
        self.form == Form::Human && io::stdout().is_terminal()
    }

    /// True when its lines may have colours: for a person on a terminal, unless `NO_COLOR` says otherwise.
    pub(crate) fn is_coloured(&self) -> bool {
        self.is_watched() && !colours_are_unwanted()
    }

    /// One line: `document` for machines, `text` for people.
    ///
    /// # Errors
    /// [`CliError::Output`] for anything but a closed reader.
    pub(crate) fn line(&mut self, document: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), CliError> {
        match self.form {
            Form::Json => self.json(document),
            Form::Human => self.text(&text()),
        }
    }

    /// As [`Output::line`], for text that has colours in it, and nothing else that a terminal would obey.
    ///
    /// # Errors
    /// [`CliError::Output`] for anything but a closed reader.
    pub(crate) fn painted(&mut self, document: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), CliError> {
        match self.form {
            Form::Json => self.json(document),
            Form::Human => self.raw(&text()),
        }
    }

    /// One JSON line.
    ///
    /// # Errors
    /// [`CliError::Output`].
    pub(crate) fn json(&mut self, document: &impl Serialize) -> Result<(), CliError> {
        let line = serde_json::to_string(document).map_err(|error| CliError::Output { reason: error.to_string() })?;
        self.raw(&line)
    }

    /// One line of text, or several.
    ///
    /// # Errors
    /// [`CliError::Output`].
    pub(crate) fn text(&mut self, lines: &str) -> Result<(), CliError> {
        let lines: Vec<_> = lines.split('\n').map(printable).collect();
        self.raw(&lines.join("\n"))
    }

    fn raw(&mut self, line: &str) -> Result<(), CliError> {
        self.write(|stdout| writeln!(stdout, "{line}"))
    }

    /// Hands everything to the reader now.
    ///
    /// # Errors
    /// [`CliError::Output`].
    pub(crate) fn flush(&mut self) -> Result<(), CliError> {
        self.write(io::Write::flush)
    }

    fn write(&mut self, write: impl FnOnce(&mut BufWriter<Stdout>) -> io::Result<()>) -> Result<(), CliError> {
        if self.closed {
            return Ok(());
        }
        match write(&mut self.stdout) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            Err(error) => Err(CliError::Output { reason: error.to_string() }),
        }
    }

    /// One line on standard error that is no result: what was skipped, what to know.
    pub(crate) fn note(&self, document: &impl Serialize, text: impl Display) {
        let line = match self.form {
            Form::Json => serde_json::to_string(document).unwrap_or_default(),
            Form::Human => printable(&text.to_string()),
        };
        to_stderr(&line);
    }

    /// One line on standard error that only a person can use.
    pub(crate) fn hint(&self, text: impl Display) {
        if self.form == Form::Human {
            to_stderr(&printable(&text.to_string()));
        }
    }

    /// Warnings of a configuration.
    pub(crate) fn warnings(&self, warnings: &[Warning]) {
        for warning in warnings {
            self.note(&json!({ "warning": warning }), format_args!("warning: {warning}"));
        }
    }
}

/// The error, in three lines or as one object.
pub(crate) fn report(form: Form, error: &CliError) {
    let line = match form {
        Form::Json => error_document(error).to_string(),
        Form::Human => error_lines(error, Palette::of_stderr()),
    };
    to_stderr(&line);
}

fn error_document(error: &CliError) -> serde_json::Value {
    let mut document = json!({
        "kind": error.kind(),
        "status": error.status().code(),
        "what": error.to_string(),
        "why": error.why(),
        "next": error.next_step(),
    });
    match error {
        CliError::Config(config) => document["problems"] = json!(config.problems),
        CliError::Incomplete { counts, stopped, .. } => {
            document["counts"] = json!(counts);
            if let Some(stopped) = stopped {
                document["stopped"] = json!(stopped);
            }
        }
        CliError::Unread { places, .. } => {
            let place = |(partition, offset): &(u32, u64)| json!({ "partition": partition, "offset": offset });
            document["partitions"] = places.iter().map(place).collect();
        }
        CliError::Unreplayed { counts } => document["counts"] = json!(counts),
        CliError::Unmigrated { counts, findings, .. } => {
            document["counts"] = json!(counts);
            document["findings"] = json!(findings);
        }
        _ => {}
    }
    json!({ "error": document })
}

fn error_lines(error: &CliError, palette: Palette) -> String {
    let (bold, plain) = palette.error();
    let why: Vec<_> = error.why().lines().map(printable).collect();
    let (what, next) = (printable(&error.to_string()), printable(&error.next_step()));
    format!("{bold}error:{plain} {what}\n  why: {}\n next: {next}", why.join("\n       "))
}

/// Text without what could move a terminal's cursor or turn the direction of its text: file content, names and words of a broker reach
/// these lines.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if is_obeyed(c) { '\u{fffd}' } else { c }).collect()
}

fn is_obeyed(c: char) -> bool {
    c.is_control() && c != '\t' || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Standard error being gone leaves nobody to tell.
#[allow(clippy::print_stderr, reason = "the one place that writes to standard error")]
fn to_stderr(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn colours_are_unwanted() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

#[derive(Debug, Clone, Copy)]
enum Palette {
    Plain,
    Colours,
}

impl Palette {
    /// Colours on a terminal, unless `NO_COLOR` says otherwise.
    fn of_stderr() -> Self {
        if io::stderr().is_terminal() && !colours_are_unwanted() { Self::Colours } else { Self::Plain }
    }

    const fn error(self) -> (&'static str, &'static str) {
        match self {
            Self::Plain => ("", ""),
            Self::Colours => ("\u{1b}[1;31m", "\u{1b}[0m"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> CliError {
        CliError::Held { dir: "data".into(), holder: "held by process 7\u{1b}[2J".to_owned() }
    }

    #[test]
    fn an_error_is_three_lines_without_control_characters() {
        let lines = error_lines(&held(), Palette::Plain);
        assert_eq!(lines.lines().count(), 3, "{lines}");
        assert!(lines.starts_with("error: the data directory data is in use") && !lines.contains('\u{1b}'), "{lines}");
    }

    #[test]
    fn what_a_terminal_would_obey_is_replaced_and_tabs_and_letters_of_any_script_are_not() {
        let cases = [
            ("a\tb", "a\tb"),
            ("gr\u{fc}n \u{5e9}\u{5dc}", "gr\u{fc}n \u{5e9}\u{5dc}"),
            ("\u{1b}[2J\u{7}\r\n", "\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}"),
            ("\u{9b}31m\0\u{7f}", "\u{fffd}31m\u{fffd}\u{fffd}"),
            ("to \u{202e}txt.exe\u{2066}", "to \u{fffd}txt.exe\u{fffd}"),
        ];
        for (text, shown) in cases {
            assert_eq!(printable(text), shown, "{text:?}");
        }
    }

    #[test]
    fn an_error_is_one_object_for_machines() {
        let document = error_document(&held());
        assert_eq!((&document["error"]["kind"], &document["error"]["status"]), (&json!("directory-held"), &json!(1)));
        assert_eq!(document.to_string().lines().count(), 1);
    }
}
