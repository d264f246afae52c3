//! `latent bus tail`.
//!
//! On the embedded engine only a running node appends, so following means following the node: while none runs, nothing can come, and
//! holding the directory would keep one from starting. The directory is therefore opened once, to find the places, and given back. On a
//! broker anybody may append: where no node answers, the broker itself is followed, and waited for while it is away.
//!
//! What cannot be printed is told on standard error and passed: a damaged record, and offsets that retention removed before they were
//! read. On a broker the offsets of a partition have gaps, so a gap tells nothing there. A partition that cannot be read for now holds up
//! no other one (`troubles`).

mod troubles;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;

use super::event::EventPrinter;
use super::fetch::Cursor;
use super::location::{Location, LocationArgs};
use super::topic;
use crate::access::{Access, unexpected};
use crate::control::{Answer, Bounds, Fault, Request};
use crate::engine::Engine;
use crate::error::CliError;
use crate::exit::ExitStatus;
use crate::limits;
use crate::output::Output;
use crate::stop::StopSignal;
pub(crate) use troubles::named;
use troubles::{Troubles, is_outage};

/// How long the log is left alone after it had nothing new.
const POLL_PAUSE: Duration = Duration::from_millis(200);

/// How long a broker that did not answer is left alone.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);

/// Arguments of `latent bus tail`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent bus tail triage.results --from-start --json
  latent bus tail triage.results --partition 0 --from 1200

Ends with Ctrl-C or when its reader goes away. It goes on through restarts of node and broker. A record that cannot be read is told and \
passed; a partition that cannot be read for now is told and tried again, and the others go on.

Exit status: 0, or 1 when partitions could not be read at the end while others were.")]
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

/// Follows until interrupted, through restarts of node and broker. Partitions take turns; within one, events come in order.
pub(super) fn tail(args: &TailArgs, output: &mut Output) -> Result<(), CliError> {
    let location = args.location.locate_existing()?;
    let incomplete = Arc::new(AtomicBool::new(false));
    let at_force = Arc::clone(&incomplete);
    let stop = StopSignal::install_then(move || if at_force.load(Ordering::Relaxed) { ExitStatus::Failed } else { ExitStatus::Done })?;
    let mut way = Some(location.access_to_read("latent bus tail")?);
    let engine = way.as_mut().map_or(Ok(Engine::Embedded), Access::engine)?;
    let printer = EventPrinter::new(&args.topic, output);
    let mut following =
        Following { args, engine, printer, cursors: BTreeMap::new(), troubles: Troubles::default(), begin: Instant::now(), away: false };
    while !stop.is_set() && !output.is_closed() {
        output.look_for_reader();
        let Some(access) = &mut way else {
            stop.wait(POLL_PAUSE);
            way = found_again(&location)?;
            continue;
        };
        match following.turn(access, output) {
            Ok(Progress::Some) => following.away = false,
            Ok(Progress::None) => {
                following.away = false;
                way = rest(way, &stop, &location, output)?;
            }
            // The node went away: wait for the next one.
            Err(CliError::Control { source, .. }) if source.is_lost_connection() => way = None,
            Err(CliError::Log { fault, .. }) if engine == Engine::Nats && is_outage(&fault) => {
                following.wait_for_broker(&fault, &stop, output)
            }
            Err(error) => return Err(error),
        }
        incomplete.store(following.unread().is_some(), Ordering::Relaxed);
        // Whoever sees these lines may start a node at once: they are shown when the directory is given back.
        if !matches!(way, Some(Access::Directory(_))) {
            output.flush()?;
        }
    }
    following.unread().map_or(Ok(()), Err)
}

/// The way to a log that was lost, when there is one again.
fn found_again(location: &Location) -> Result<Option<Access>, CliError> {
    match location {
        Location::Directory { dir, .. } => Ok(Access::try_node(dir)?.map(Access::Node)),
        // With a broker there need be no node.
        Location::NodeOnBroker(_) | Location::Broker(_) => match location.access_to_read("latent bus tail") {
            Ok(access) => Ok(Some(access)),
            Err(CliError::Broker { source, .. }) if is_outage(&Fault::from((*source).clone())) => Ok(None),
            Err(error) => Err(error),
        },
    }
}

/// What to do when there is nothing new: wait with the node, or give the directory back and wait for a node.
fn rest(way: Option<Access>, stop: &StopSignal, location: &Location, output: &Output) -> Result<Option<Access>, CliError> {
    if let (Some(Access::Directory(_)), Location::Directory { dir, .. }) = (&way, location) {
        drop(way);
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
    engine: Engine,
    printer: EventPrinter<'a>,
    cursors: BTreeMap<u32, Cursor>,
    troubles: Troubles,
    begin: Instant,
    /// The broker was away at the last turn, which was told.
    away: bool,
}

impl Following<'_> {
    /// One turn over all partitions that can be read.
    fn turn(&mut self, access: &mut Access, output: &mut Output) -> Result<Progress, CliError> {
        if self.cursors.is_empty() {
            self.cursors = place_cursors(self.args, access)?;
            self.tell_where_it_begins(output);
        }
        let mut progress = Progress::None;
        let due: Vec<_> = self.cursors.keys().copied().filter(|at| self.troubles.is_due(*at, self.begin.elapsed())).collect();
        for partition in due {
            match self.turn_of(partition, access, output) {
                Ok(Progress::Some) => progress = Progress::Some,
                Ok(Progress::None) => {}
                Err(CliError::Log { fault, .. }) if !fault.permanent => {
                    self.forget_changed(partition, &fault);
                    self.troubles.failed(partition, fault, self.begin.elapsed());
                    continue;
                }
                Err(error) => return Err(error),
            }
            self.troubles.read(partition);
        }
        if let Some(fault) = self.troubles.hopeless(self.cursors.len()) {
            return Err(CliError::Log { doing: format!("reading {}", self.args.topic), fault: fault.clone() });
        }
        self.tell_troubles(output);
        Ok(progress)
    }

    /// The next page of one partition.
    fn turn_of(&mut self, partition: u32, access: &mut Access, output: &mut Output) -> Result<Progress, CliError> {
        let Some(cursor) = self.cursors.get_mut(&partition) else { return Ok(Progress::None) };
        let wanted = cursor.offset;
        let page = match cursor.page(access, limits::FETCH_PAGE_RECORDS.max) {
            Ok(page) => page,
            Err(CliError::Damaged { continue_at, fault, .. }) => {
                step_over(cursor, access, self.engine, (continue_at, &fault), output)?;
                return Ok(Progress::Some);
            }
            Err(error) => return Err(error),
        };
        // A damaged record ends a page, so what a page leaves out before its first event is not there any more.
        if let Some(first) = page.first().filter(|_| self.engine == Engine::Embedded) {
            tell_gap(cursor, wanted..first.offset, output);
        }
        for event in &page {
            self.printer.print(output, event)?;
        }
        Ok(if page.is_empty() { Progress::None } else { Progress::Some })
    }

    /// Offsets of another history are none of this one, which is read from its begin: better an event twice than one left out.
    fn forget_changed(&mut self, partition: u32, fault: &Fault) {
        if let Some(cursor) = self.cursors.get_mut(&partition).filter(|_| fault.kind == "history-changed") {
            cursor.offset = 0;
        }
    }

    fn tell_troubles(&mut self, output: &Output) {
        for told in self.troubles.tell() {
            let words = told.words(&self.args.topic, self.cursors.len());
            let mut document = serde_json::json!({ "note": words, "topic": self.args.topic, "partitions": told.partitions });
            if let Some(fault) = &told.fault {
                document["error"] = serde_json::json!(fault);
            }
            output.note(&document, words.as_str());
        }
    }

    /// What is left unread, as the end of the command.
    fn unread(&self) -> Option<CliError> {
        let (partitions, fault) = self.troubles.unread(self.cursors.len())?;
        let places = partitions.iter().filter_map(|partition| self.cursors.get(partition));
        let places = places.map(|cursor| (cursor.partition, cursor.offset)).collect();
        Some(CliError::Unread { topic: self.args.topic.clone(), places, fault: fault.clone() })
    }

    fn wait_for_broker(&mut self, fault: &Fault, stop: &StopSignal, output: &Output) {
        if !self.away {
            self.away = true;
            let words = format!("the broker does not answer and is waited for: {}", fault.message);
            output.note(&serde_json::json!({ "note": words, "error": fault }), words.as_str());
        }
        stop.wait(OUTAGE_PAUSE);
    }

    /// Silence looks like an empty topic to whoever expects the stored events.
    fn tell_where_it_begins(&self, output: &Output) {
        if !self.args.from_start && self.args.from.is_none() {
            output.hint(format_args!("waiting for new events of {}; --from-start shows the stored ones first", self.args.topic));
        }
    }
}

/// A damaged record is told and passed: whoever follows wants what comes after it. It may also be one that is gone by now.
fn step_over(
    cursor: &mut Cursor,
    access: &mut Access,
    engine: Engine,
    (continue_at, fault): (u64, &Fault),
    output: &Output,
) -> Result<(), CliError> {
    let doing = format!("finding the begin of {}", cursor.topic);
    let first = match engine {
        Engine::Embedded => bounds(access, &cursor.topic, cursor.partition, &doing)?.first,
        Engine::Nats => 0,
    };
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
