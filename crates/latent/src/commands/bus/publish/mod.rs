//! `latent bus publish`: a file of events, one a line, streamed in bounded batches.
//!
//! `source` opens, `lines` reads, `rules` makes events, `faults` says why a line is none, `sender` hands over, `tally` says what became of each. Every event has a uid of its own, so
//! that publishing the same file again stores nothing twice, unless new uids are asked for.

mod faults;
mod lines;
mod rules;
mod sender;
mod source;
mod tally;

use std::io::{BufReader, Read};
use std::path::PathBuf;

use clap::Args;
use latent_core::{MediaType, limits as core_limits};

use lines::{Line, LineEnd, Lines};
use rules::{KeyRule, LineForm, LineOutcome, Pointer, Rules, UidRule};
use sender::{Batch, Sender};
use source::{Original, Source};
pub(crate) use tally::{EmptyLines, Repetition, SentCounts, Stopped};
use tally::{InvalidLines, Tally, TallyOptions};

use super::location::LocationArgs;
use super::topic;
use crate::access::{Access, unexpected};
use crate::control::{Answer, Request};
use crate::error::CliError;
use crate::output::Output;

/// Read at once: large enough that a batch is seldom cut short by it.
const READ_BYTES: usize = 1 << 20;

/// Arguments of `latent bus publish`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent bus publish github.events --file events.jsonl --key-pointer /repository/full_name
  cat lines.txt | latent bus publish logs --file - --raw-lines --media-type text/plain

Each line is one event; its line break is no part of it, a carriage return before that is. Without --raw-lines a line must be JSON and blank lines are passed over; \
with it a line is published as bytes, whatever it holds, and an empty line is an empty event.

Run again after a crash and nothing is doubled: without --uid-pointer the uid is a hash of topic, line number and line. So keep \
every line at its number when you correct a file: mend a refused line in place or leave it blank; a line that moved is a new event. \
Equal lines at the same number of two files are one event, since the name of the file is no part of it: publish the second file with \
--fresh-uids, or both with --uid-pointer.

With --fresh-uids each line is a new event whatever was published before, so that a corrected function sees it again; such a publication \
cannot be resumed.

Events of one key run in their order. Events without a key form one ordered line: one that is retried holds back those behind it. \
Give each line its key with --key-pointer where only events of the same thing depend on each other.

It ends at the first line that is uncertain, or that the log does not take for now, because what comes behind must not overtake it: how far \
it came is said, and the same command with the same file goes on from there. On a broker a line is recognised for as long as the broker knows \
its uid (`dedup_hours` of the manifest): run it again within that time.

Exit status: 3 if any event is uncertain, else 1 if any was refused, else 0.")]
pub(crate) struct PublishArgs {
    #[command(flatten)]
    location: LocationArgs,
    /// Topic
    topic: String,
    /// File of events, `-` for standard input
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Key of every event
    #[arg(long, value_name = "KEY", conflicts_with = "key_pointer")]
    key: Option<String>,
    /// JSON pointer to each event's key; with --raw-lines the key is empty where there is none
    #[arg(long, value_name = "POINTER")]
    key_pointer: Option<String>,
    /// JSON pointer to each event's uid
    #[arg(long, value_name = "POINTER")]
    uid_pointer: Option<String>,
    /// Give each line a new uid, so that nothing is recognised as already there; not resumable
    #[arg(long, conflicts_with = "uid_pointer")]
    fresh_uids: bool,
    /// Skip lines that are no events or break a rule of the topic, and say which, instead of counting them as refused
    #[arg(long)]
    skip_invalid: bool,
    /// Publish lines as bytes instead of JSON
    #[arg(long)]
    raw_lines: bool,
    /// Media type of raw lines
    #[arg(long, value_name = "TYPE", requires = "raw_lines", default_value = "application/octet-stream")]
    media_type: String,
}

pub(super) fn publish(args: &PublishArgs, output: &mut Output) -> Result<(), CliError> {
    let rules = rules_of(args)?;
    args.location.refuse_archived(&args.topic)?;
    let source = Source::open(&args.file)?;
    let mut access = args.location.access("latent bus publish")?;
    check_topic(&mut access, &args.topic)?;
    if matches!(access, Access::Directory(_)) {
        output.hint("no node is running; the events run when one starts");
    }
    let invalid = if args.skip_invalid { InvalidLines::Skip } else { InvalidLines::Refuse };
    let empty = if args.raw_lines { EmptyLines::AreEvents } else { EmptyLines::PassedOver };
    let options = TallyOptions { topic: &args.topic, invalid, uids: rules.uid.origin(), empty, bytes: source.bytes };
    let mut tally = Tally::new(options, output.form());
    let mut sender = Sender::new(access, &args.topic);
    let lines = Lines::new(BufReader::with_capacity(READ_BYTES, source.reader), core_limits::EVENT_BYTES.max_usize());
    let mut reading = Reading { rules, lines, original: source.original, last: 0 };
    loop {
        let (batch, ending) = reading.fill();
        let stopped = tally.take(sender.send(batch), output)?;
        tally.progress(reading.lines.bytes_read());
        match (ending, stopped) {
            (_, Some(reason)) | (Ending::Unreadable(reason), None) => return tally.finish(output, Some((reading.last, reason))),
            (Ending::None, None) => {}
            (Ending::File, None) => return tally.finish(output, None),
        }
    }
}

/// Whether there is more to read.
enum Ending {
    None,
    File,
    Unreadable(String),
}

/// A file on its way to becoming batches.
struct Reading {
    rules: Rules,
    lines: Lines<BufReader<Box<dyn Read>>>,
    original: Option<Original>,
    /// The last line that went into a batch.
    last: u64,
}

impl Reading {
    /// The next batch: until it is full, the file ends, or the next line would have to be waited for (a pipe that pauses holds nothing
    /// back).
    fn fill(&mut self) -> (Batch, Ending) {
        let mut batch = Batch::default();
        loop {
            match self.lines.next_line() {
                Ok(None) => return (batch, self.end_of_file()),
                Err(error) => return (batch, Ending::Unreadable(format!("the file cannot be read: {error}"))),
                Ok(Some(line)) => {
                    // Half a line of a file that is being written would be an event of its own, beside the whole one later.
                    if line.end == LineEnd::File
                        && let changed @ Ending::Unreadable(_) = self.end_of_file()
                    {
                        return (batch, changed);
                    }
                    self.last = line.number;
                    add(&self.rules, line, &mut batch);
                }
            }
            if batch.is_full() || !self.lines.has_whole_line() {
                return (batch, Ending::None);
            }
        }
    }

    /// Whether the end that was met is that of the file as it was opened.
    fn end_of_file(&self) -> Ending {
        self.original.as_ref().and_then(Original::change).map_or(Ending::File, Ending::Unreadable)
    }
}

fn add(rules: &Rules, line: Line, batch: &mut Batch) {
    let number = line.number;
    match rules.read(line) {
        LineOutcome::Event(event) => batch.push_event(number, event),
        LineOutcome::Invalid(fault) => batch.push_invalid(number, fault),
        LineOutcome::Blank => {}
    }
}

/// Asked once: a file of a million lines needs no million words about one missing topic.
fn check_topic(access: &mut Access, topic: &str) -> Result<(), CliError> {
    let doing = format!("publishing to {topic}");
    match topic::ask(access, topic, &doing, Request::Bounds { topic: topic.to_owned(), partition: 0 })? {
        Answer::Bounds(_) => Ok(()),
        _ => Err(unexpected(&doing)),
    }
}

fn rules_of(args: &PublishArgs) -> Result<Rules, CliError> {
    let pointer = |option, text: &str| Pointer::parse(text).map_err(|reason| CliError::Value { option, reason });
    let key = match (&args.key, &args.key_pointer) {
        (_, Some(text)) => KeyRule::Pointer(pointer("--key-pointer", text)?),
        (key, None) => KeyRule::Fixed(key.clone().unwrap_or_default()),
    };
    let lines = if args.raw_lines {
        let media_type = MediaType::parse(&args.media_type);
        LineForm::Raw(media_type.map_err(|error| CliError::Value { option: "--media-type", reason: error.to_string() })?)
    } else {
        LineForm::Json
    };
    let uid = match &args.uid_pointer {
        Some(text) => UidRule::Pointer(pointer("--uid-pointer", text)?),
        None if args.fresh_uids => UidRule::Fresh,
        None => UidRule::Line,
    };
    Ok(Rules { topic: args.topic.clone(), lines, key, uid })
}
