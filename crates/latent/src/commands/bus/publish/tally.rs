//! Says what became of every line, counts, and decides how the command ends.

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::json;
use std::io::IsTerminal as _;

use super::rules::UidOrigin;
use super::sender::{Sent, SentLine};
use crate::control::Fault;
use crate::error::CliError;
use crate::output::{Form, Output};

/// What is done with lines that are no events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InvalidLines {
    /// They count as refused.
    Refuse,
    /// They are told and do not count, whoever finds them: this command, or the topic's rules.
    Skip,
}

/// What an empty line of the file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EmptyLines {
    /// Nothing.
    PassedOver,
    /// An event, as any other line is.
    AreEvents,
}

/// What publishing a file again does with the lines that are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repetition {
    /// They are recognised by the uids that they say.
    ByUid,
    /// They are recognised as long as they stand at their line numbers.
    ByPlace(EmptyLines),
    /// They are stored once more, with new uids.
    StoresAnew,
}

/// What became of the lines of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(crate) struct SentCounts {
    /// Stored now.
    pub(crate) stored: u64,
    /// Stored before, and recognised.
    pub(crate) already_there: u64,
    /// Certainly not stored.
    pub(crate) refused: u64,
    /// Of the refused, those whose uid belongs to another event.
    pub(crate) conflicts: u64,
    /// May be stored.
    pub(crate) uncertain: u64,
    /// No events, and told to be skipped.
    pub(crate) skipped: u64,
}

impl SentCounts {
    /// Events of the file, whatever became of them.
    pub(crate) const fn events(&self) -> u64 {
        self.stored.saturating_add(self.already_there).saturating_add(self.refused).saturating_add(self.uncertain)
    }
}

/// Where a publication ended before its file did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Stopped {
    /// The last line that was read. Nothing after it was sent.
    pub(crate) last_read: u64,
    /// The first line that is neither stored nor refused for good.
    pub(crate) first_open: Option<u64>,
    /// Why.
    pub(crate) reason: String,
}

impl Stopped {
    /// How far it came and why no further.
    pub(crate) fn words(&self) -> String {
        let Self { last_read, first_open, reason } = self;
        let done = match first_open {
            Some(1) | None => String::new(),
            Some(2) => "line 1 is done; ".to_owned(),
            Some(line) => format!("the lines up to {} are done; ", line.saturating_sub(1)),
        };
        format!("{done}nothing was sent after line {last_read}: {reason}")
    }
}

/// What a tally needs to know of its publication.
pub(super) struct TallyOptions<'t> {
    pub(super) topic: &'t str,
    pub(super) invalid: InvalidLines,
    pub(super) uids: UidOrigin,
    pub(super) empty: EmptyLines,
    /// Size of the file, where it is known.
    pub(super) bytes: Option<u64>,
}

/// Counts of one publication.
pub(super) struct Tally<'t> {
    options: TallyOptions<'t>,
    progress: ProgressBar,
    counts: SentCounts,
    /// Of the refused, those that may be stored another time.
    passing: u64,
    /// The first line that is neither stored nor refused for good.
    open: Option<u64>,
    run: Option<Run>,
}

/// Lines of a run that people see; the others are counted.
const RUN_LINES_TOLD: u64 = 3;

/// Lines one after the other with the same passing fault: a full disk refuses every line that is left, in the same words.
#[derive(Debug)]
struct Run {
    fault: Fault,
    lines: u64,
    last: u64,
}

impl Run {
    /// What was not told of it, in words.
    fn rest(&self) -> Option<String> {
        let untold = self.lines.saturating_sub(RUN_LINES_TOLD);
        (untold > 0).then(|| format!("and {untold} more up to line {}, each {} for the same reason", self.last, self.fault.kind))
    }
}

impl<'t> Tally<'t> {
    /// Nothing counted yet.
    pub(super) fn new(options: TallyOptions<'t>, form: Form) -> Self {
        Self { progress: progress_bar(options.bytes, form), options, counts: SentCounts::default(), passing: 0, open: None, run: None }
    }

    /// Tells and counts a batch; returns why nothing more can be sent, if so.
    pub(super) fn take(&mut self, sent: Sent, output: &mut Output) -> Result<Option<String>, CliError> {
        for line in sent.lines {
            match line {
                SentLine::Stored(placed) => {
                    let count = if placed.duplicate { &mut self.counts.already_there } else { &mut self.counts.stored };
                    *count += 1;
                    if output.form() == Form::Json {
                        output.json(&placed)?;
                    }
                }
                SentLine::Refused { number, fault } if fault.is_rejected() => self.invalid(number, &fault, output)?,
                SentLine::Refused { number, fault } => self.refuse(number, &fault, output)?,
                SentLine::Invalid { number, fault } => self.invalid(number, &fault.to_fault(), output)?,
            }
        }
        output.flush()?;
        Ok(sent.stopped)
    }

    /// A line that can never be an event of the topic.
    fn invalid(&mut self, number: u64, fault: &Fault, output: &mut Output) -> Result<(), CliError> {
        match self.options.invalid {
            InvalidLines::Refuse => self.refuse(number, fault, output),
            InvalidLines::Skip => {
                self.counts.skipped += 1;
                let document = json!({ "line": number, "skipped": fault });
                self.progress.suspend(|| output.note(&document, format_args!("line {number} skipped: {}", fault.message_after_kind())));
                Ok(())
            }
        }
    }

    fn refuse(&mut self, number: u64, fault: &Fault, output: &mut Output) -> Result<(), CliError> {
        let count = if fault.uncertain { &mut self.counts.uncertain } else { &mut self.counts.refused };
        *count += 1;
        self.counts.conflicts += u64::from(fault.is_conflict());
        self.passing += u64::from(!fault.permanent && !fault.uncertain);
        self.open = self.open.or((!fault.permanent).then_some(number));
        match output.form() {
            Form::Json => output.json(&json!({ "line": number, "error": fault })),
            Form::Human => {
                if self.is_told(number, fault, output) {
                    let words = format_args!("line {number} {}: {}", fault.kind, fault.message_after_kind());
                    self.progress.suspend(|| output.hint(words));
                }
                Ok(())
            }
        }
    }

    /// Whether people see a refused line. What is wrong with a line itself is always told, because each has to be found.
    fn is_told(&mut self, number: u64, fault: &Fault, output: &Output) -> bool {
        if let Some(run) = self.run.as_mut().filter(|run| run.fault == *fault) {
            run.lines += 1;
            run.last = number;
            return run.lines <= RUN_LINES_TOLD;
        }
        self.end_run(output);
        self.run = (!fault.permanent).then(|| Run { fault: fault.clone(), lines: 1, last: number });
        true
    }

    fn end_run(&mut self, output: &Output) {
        if let Some(rest) = self.run.take().and_then(|run| run.rest()) {
            self.progress.suspend(|| output.hint(rest));
        }
    }

    /// Moves the bar.
    pub(super) fn progress(&self, bytes_read: u64) {
        self.progress.set_position(bytes_read);
    }

    /// The summary, and how the command ends. `stopped` is the last line read and why no further one was.
    pub(super) fn finish(mut self, output: &mut Output, stopped: Option<(u64, String)>) -> Result<(), CliError> {
        let stopped = stopped.map(|(last_read, reason)| Stopped { last_read, first_open: self.open, reason });
        self.end_run(output);
        self.progress.finish_and_clear();
        let Self { options: TallyOptions { topic, uids, empty, .. }, counts, passing, .. } = self;
        match output.form() {
            Form::Human => output.text(&summary(topic, uids, &counts))?,
            // Their lines were told one by one; what they come to is nowhere else.
            Form::Json if counts.skipped > 0 => output.note(&json!({ "counts": counts }), ""),
            Form::Json => {}
        }
        output.flush()?;
        if counts.events() == 0 && counts.skipped == 0 {
            output.hint("the file holds no events");
        }
        if counts.refused > 0 || counts.uncertain > 0 || stopped.is_some() {
            let repetition = match uids {
                UidOrigin::Fresh => Repetition::StoresAnew,
                UidOrigin::Given => Repetition::ByUid,
                UidOrigin::Line => Repetition::ByPlace(empty),
            };
            return Err(CliError::Incomplete { counts, repetition, stopped, passing });
        }
        Ok(())
    }
}

/// The counts, and what it means that some were there: a function that was corrected is not run by them.
fn summary(topic: &str, uids: UidOrigin, counts: &SentCounts) -> String {
    let SentCounts { stored, already_there, refused, conflicts, uncertain, skipped } = counts;
    let conflicts = if *conflicts > 0 { format!(" ({conflicts} in conflict)") } else { String::new() };
    let line = format!(
        "{topic}: {stored} stored, {already_there} already there, {refused} refused{conflicts}, {uncertain} uncertain, {skipped} skipped"
    );
    let advice = match (already_there, uids) {
        (0, _) | (_, UidOrigin::Fresh) => return line,
        (_, UidOrigin::Line) => "use --fresh-uids to store and run them once more",
        (_, UidOrigin::Given) => "use --fresh-uids instead of --uid-pointer to store and run them once more",
    };
    format!("{line}\nwhat is already there was stored before and does not run again; {advice}")
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

#[cfg(test)]
mod tests {
    use super::super::faults::LineFault;
    use super::*;

    fn refused(kind: &str, permanent: bool, uncertain: bool) -> SentLine {
        let fault = Fault { permanent, uncertain, ..Fault::refused(kind, format!("{kind}: words")) };
        SentLine::Refused { number: 1, fault }
    }

    fn counts(invalid: InvalidLines) -> SentCounts {
        let options = TallyOptions { topic: "t", invalid, uids: UidOrigin::Given, empty: EmptyLines::PassedOver, bytes: None };
        let mut output = Output::new(Form::Human);
        let mut tally = Tally::new(options, Form::Human);
        let lines = vec![
            SentLine::Invalid { number: 1, fault: LineFault::TooLong { bytes: 1 } },
            // A rule of the topic, which only the log knows, such as its schema.
            refused("rejected", true, false),
            refused("rejected", false, false),
            refused("conflict", true, false),
            refused("poisoned", false, false),
            refused("uncertain", false, true),
        ];
        tally.take(Sent { lines, stopped: None }, &mut output).unwrap();
        tally.counts
    }

    #[test]
    fn people_see_the_first_lines_of_one_passing_fault_and_the_number_of_the_rest() {
        let options =
            TallyOptions { topic: "t", invalid: InvalidLines::Refuse, uids: UidOrigin::Line, empty: EmptyLines::PassedOver, bytes: None };
        let (mut tally, output) = (Tally::new(options, Form::Human), Output::new(Form::Human));
        let full = Fault { permanent: false, ..Fault::refused("not-sent", "no space".to_owned()) };
        let told: Vec<_> = (1..=5).filter(|line| tally.is_told(*line, &full, &output)).collect();
        assert_eq!(told, [1, 2, 3]);
        let rest = tally.run.as_ref().and_then(Run::rest);
        assert_eq!(rest.as_deref(), Some("and 2 more up to line 5, each not-sent for the same reason"));
        let wrong = Fault::refused("line-not-json", "words".to_owned());
        assert!((6..=10).all(|line| tally.is_told(line, &wrong, &output)), "each line that is wrong has to be found");
        assert!(tally.is_told(11, &full, &output), "a new run begins");
        assert_eq!(tally.run.as_ref().and_then(Run::rest), None);
    }

    #[test]
    fn what_can_never_be_an_event_of_the_topic_is_skipped_on_request_and_nothing_else() {
        let none = SentCounts { conflicts: 1, uncertain: 1, ..SentCounts::default() };
        assert_eq!(counts(InvalidLines::Refuse), SentCounts { refused: 5, ..none });
        assert_eq!(counts(InvalidLines::Skip), SentCounts { refused: 3, skipped: 2, ..none });
    }

    #[test]
    fn a_publication_that_stopped_says_how_far_it_came() {
        let words = |first_open| Stopped { last_read: 9, first_open, reason: "away".to_owned() }.words();
        assert_eq!(words(None), "nothing was sent after line 9: away");
        assert_eq!(words(Some(1)), "nothing was sent after line 9: away");
        assert_eq!(words(Some(2)), "line 1 is done; nothing was sent after line 9: away");
        assert_eq!(words(Some(8)), "the lines up to 7 are done; nothing was sent after line 9: away");
    }

    #[test]
    fn conflicts_stand_beside_the_refused_they_are_among() {
        let counts = SentCounts { refused: 3, conflicts: 2, ..SentCounts::default() };
        assert_eq!(
            summary("t", UidOrigin::Given, &counts),
            "t: 0 stored, 0 already there, 3 refused (2 in conflict), 0 uncertain, 0 skipped"
        );
    }
}
