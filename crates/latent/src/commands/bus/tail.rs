//! `latent bus tail`.
//!
//! Only a running node appends, so following means following the node: while none runs, nothing can come, and holding the directory
//! would keep one from starting. The directory is therefore opened once, to find the places, and given back.
//!
//! What cannot be printed is told on standard error and passed: a damaged record, and offsets that retention removed before they were
//! read.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use clap::Args;

use super::event::EventPrinter;
use super::fetch::Cursor;
use super::location::LocationArgs;
use super::topic;
use crate::access::{Access, unexpected, without_bindings};
use crate::control::{Answer, Bounds, Fault, Request};
use crate::data_dir::DataDir;
use crate::error::CliError;
use crate::limits;
use crate::output::Output;
use crate::stop::StopSignal;

/// How long the log is left alone after it had nothing new.
const POLL_PAUSE: Duration = Duration::from_millis(200);

/// Arguments of `latent bus tail`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent bus tail triage.results --from-start --json
  latent bus tail triage.results --partition 0 --from 1200

Ends with Ctrl-C or when its reader goes away, with status 0. It goes on through restarts of the node.")]
pub(crate) struct TailArgs {
    #[command(flatten)]
    location: LocationArgs,
    /// Topic
    topic: String,
    /// Begin with the oldest event instead of the next one
    #[arg(long)]
    from_start: bool,
    /// Begin with this offset, in each partition
    #[arg(long, value_name = "K", conflicts_with = "from_start")]
    from: Option<u64>,
    /// Only this partition
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
}

/// Follows until interrupted, through restarts of the node. Partitions take turns; within one, events come in order.
pub(super) fn tail(args: &TailArgs, output: &mut Output) -> Result<(), CliError> {
    let dir = args.location.locate()?.dir;
    let stop = StopSignal::install()?;
    let mut following = Following { args, printer: EventPrinter::new(&args.topic, output), cursors: BTreeMap::new() };
    let mut way = Some(Access::open(&dir, "latent bus tail", &without_bindings)?);
    while !stop.is_set() && !output.is_closed() {
        output.look_for_reader();
        let Some(access) = &mut way else {
            stop.wait(POLL_PAUSE);
            way = Access::try_node(&dir)?.map(Access::Node);
            continue;
        };
        match following.turn(access, output) {
            Ok(Progress::Some) => {}
            Ok(Progress::None) => way = rest(way, &stop, &dir, output)?,
            // The node went away: wait for the next one.
            Err(CliError::Control { source, .. }) if source.is_lost_connection() => way = None,
            Err(error) => return Err(error),
        }
        // Whoever sees these lines may start a node at once: they are shown when the directory is given back.
        if !matches!(way, Some(Access::Directory(_))) {
            output.flush()?;
        }
    }
    Ok(())
}

/// What to do when there is nothing new: wait with the node, or give the directory back and wait for a node.
fn rest(way: Option<Access>, stop: &StopSignal, dir: &DataDir, output: &Output) -> Result<Option<Access>, CliError> {
    if let Some(Access::Directory(directory)) = way {
        drop(directory);
        let note = serde_json::json!({ "note": "no node is running; waiting for one" });
        output.note(&note, format_args!("no node is running on {}; waiting for one", dir.log().display()));
        return Ok(None);
    }
    stop.wait(POLL_PAUSE);
    Ok(way)
}

/// Whether anything was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Some,
    None,
}

/// A topic that is followed. No cursors: its places are not known yet.
struct Following<'a> {
    args: &'a TailArgs,
    printer: EventPrinter<'a>,
    cursors: BTreeMap<u32, Cursor>,
}

impl Following<'_> {
    /// One turn over all partitions.
    fn turn(&mut self, access: &mut Access, output: &mut Output) -> Result<Progress, CliError> {
        if self.cursors.is_empty() {
            self.cursors = place_cursors(self.args, access)?;
            self.tell_where_it_begins(output);
        }
        let mut progress = Progress::None;
        for cursor in self.cursors.values_mut() {
            let wanted = cursor.offset;
            let page = match cursor.page(access, limits::FETCH_PAGE_RECORDS.max) {
                Ok(page) => page,
                Err(CliError::Damaged { continue_at, fault, .. }) => {
                    step_over(cursor, access, (continue_at, &fault), output)?;
                    progress = Progress::Some;
                    continue;
                }
                Err(error) => return Err(error),
            };
            // A damaged record ends a page, so what a page leaves out before its first event is not there any more.
            if let Some(first) = page.first() {
                tell_gap(cursor, wanted..first.offset, output);
            }
            for event in page {
                self.printer.print(output, &event)?;
                progress = Progress::Some;
            }
        }
        Ok(progress)
    }

    /// Silence looks like an empty topic to whoever expects the stored events.
    fn tell_where_it_begins(&self, output: &Output) {
        if !self.args.from_start && self.args.from.is_none() {
            output.hint(format_args!("waiting for new events of {}; --from-start shows the stored ones first", self.args.topic));
        }
    }
}

/// A damaged record is told and passed: whoever follows wants what comes after it. It may also be one that is gone by now.
fn step_over(cursor: &mut Cursor, access: &mut Access, (continue_at, fault): (u64, &Fault), output: &Output) -> Result<(), CliError> {
    let doing = format!("finding the begin of {}", cursor.topic);
    let Bounds { first, .. } = bounds(access, &cursor.topic, cursor.partition, &doing)?;
    if first > cursor.offset {
        tell_gap(cursor, cursor.offset..first, output);
        cursor.offset = first;
    } else {
        output.note(&serde_json::json!({ "error": fault }), &fault.message);
        cursor.offset = continue_at.max(cursor.offset.saturating_add(1));
    }
    Ok(())
}

/// Says which offsets can never be read any more.
fn tell_gap(cursor: &Cursor, gone: Range<u64>, output: &Output) {
    if gone.is_empty() {
        return;
    }
    let place = format!("{}/p{}", cursor.topic, cursor.partition);
    let words = format!("retention removed {place} from offset {} up to {} before it was read", gone.start, gone.end.saturating_sub(1));
    let document = serde_json::json!({
        "note": words, "topic": cursor.topic, "partition": cursor.partition, "gone_from": gone.start, "next": gone.end,
    });
    output.note(&document, words.as_str());
}

fn bounds(access: &mut Access, topic: &str, partition: u32, doing: &str) -> Result<Bounds, CliError> {
    match topic::ask(access, topic, doing, Request::Bounds { topic: topic.to_owned(), partition })? {
        Answer::Bounds(bounds) => Ok(bounds),
        _ => Err(unexpected(doing)),
    }
}

fn place_cursors(args: &TailArgs, access: &mut Access) -> Result<BTreeMap<u32, Cursor>, CliError> {
    let doing = format!("finding the end of {}", args.topic);
    let mut cursors = BTreeMap::new();
    for partition in topic::partitions(access, &args.topic, args.partition)? {
        let Bounds { first, next } = bounds(access, &args.topic, partition, &doing)?;
        let offset = if args.from_start { first } else { args.from.unwrap_or(next) };
        cursors.insert(partition, Cursor { topic: args.topic.clone(), partition, offset });
    }
    Ok(cursors)
}
