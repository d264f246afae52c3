//! Says what became of every line, counts, and decides how the command ends.

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal as _;

use super::sender::{Sent, SentLine};
use crate::control::Fault;
use crate::error::CliError;
use crate::output::{Form, Output};

/// What is done with lines that are no events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InvalidLines {
    /// They count as refused.
    Refuse,
    /// They are told and do not count.
    Skip,
}

/// Counts of one publication.
pub(super) struct Tally {
    topic: String,
    invalid: InvalidLines,
    progress: ProgressBar,
    stored: u64,
    duplicates: u64,
    refused: u64,
    uncertain: u64,
    skipped: u64,
}

impl Tally {
    /// Nothing counted yet. `bytes` is the size of the file, where it is known.
    pub(super) fn new(topic: &str, invalid: InvalidLines, bytes: Option<u64>, form: Form) -> Self {
        let progress = progress_bar(bytes, form);
        Self { topic: topic.to_owned(), invalid, progress, stored: 0, duplicates: 0, refused: 0, uncertain: 0, skipped: 0 }
    }

    /// Tells and counts a batch; returns why nothing more can be sent, if so.
    pub(super) fn take(&mut self, sent: Sent, output: &mut Output) -> Result<Option<String>, CliError> {
        for line in sent.lines {
            match line {
                SentLine::Stored(placed) => {
                    self.stored += 1;
                    self.duplicates += u64::from(placed.duplicate);
                    if output.form() == Form::Json {
                        output.json(&placed)?;
                    }
                }
                SentLine::Refused { number, fault } => self.refuse(number, &fault, output)?,
                SentLine::Invalid { number, fault } => match self.invalid {
                    InvalidLines::Refuse => self.refuse(number, &fault.to_fault(), output)?,
                    InvalidLines::Skip => {
                        self.skipped += 1;
                        let document = json!({ "line": number, "skipped": fault.to_fault() });
                        self.progress.suspend(|| output.note(&document, format_args!("line {number} skipped: {fault}")));
                    }
                },
            }
        }
        output.flush()?;
        Ok(sent.stopped)
    }

    fn refuse(&mut self, number: u64, fault: &Fault, output: &mut Output) -> Result<(), CliError> {
        let count = if fault.uncertain { &mut self.uncertain } else { &mut self.refused };
        *count += 1;
        let document = json!({ "line": number, "error": fault });
        match output.form() {
            Form::Json => output.json(&document),
            Form::Human => {
                self.progress.suspend(|| output.note(&document, format_args!("line {number} {}: {}", fault.kind, fault.message)));
                Ok(())
            }
        }
    }

    /// Moves the bar.
    pub(super) fn progress(&self, bytes_read: u64) {
        self.progress.set_position(bytes_read);
    }

    /// The summary, and how the command ends. `stopped` is the last line read and why no further one was.
    pub(super) fn finish(self, output: &mut Output, stopped: Option<(u64, String)>) -> Result<(), CliError> {
        self.progress.finish_and_clear();
        let Self { topic, stored, duplicates, refused, uncertain, skipped, .. } = self;
        if output.form() == Form::Human {
            let new = stored - duplicates;
            output.text(&format!(
                "{topic}: {new} stored, {duplicates} already there, {refused} refused, {uncertain} uncertain, {skipped} skipped"
            ))?;
        }
        output.flush()?;
        if refused + uncertain > 0 || stopped.is_some() {
            return Err(CliError::Incomplete { events: stored + refused + uncertain, refused, uncertain, stopped });
        }
        Ok(())
    }
}

/// Only people at a terminal see it.
fn progress_bar(bytes: Option<u64>, form: Form) -> ProgressBar {
    if form == Form::Json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match bytes {
        Some(bytes) => (ProgressBar::new(bytes), "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}"),
        None => (ProgressBar::no_length(), "{spinner} {bytes} {bytes_per_sec}"),
    };
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}
