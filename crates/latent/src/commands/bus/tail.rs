//! `latent bus tail`.
//!
//! Only a running node appends, so following means following the node: while none runs, nothing can come, and holding the directory
//! would keep one from starting. The directory is therefore opened once, to find the places, and given back.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;

use super::event::print;
use super::fetch::Cursor;
use super::location::LocationArgs;
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
#[command(after_help = "Example:\n  latent bus tail triage.results --from-start --json")]
pub(crate) struct TailArgs {
    #[command(flatten)]
    location: LocationArgs,
    /// Topic
    topic: String,
    /// Begin with the oldest event instead of the next one
    #[arg(long)]
    from_start: bool,
    /// Only this partition
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
}

/// Follows until interrupted, through restarts of the node. Partitions take turns; within one, events come in order.
pub(super) fn tail(args: &TailArgs, output: &mut Output) -> Result<(), CliError> {
    let dir = args.location.locate()?.dir;
    let stop = StopSignal::install()?;
    let mut cursors = BTreeMap::new();
    let mut way = Some(Access::open(&dir, "latent bus tail", &without_bindings)?);
    while !stop.is_set() && !output.is_closed() {
        let Some(access) = &mut way else {
            stop.wait(POLL_PAUSE);
            way = Access::try_node(&dir)?.map(Access::Node);
            continue;
        };
        match follow(args, access, &mut cursors, output) {
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

/// One turn over all partitions.
fn follow(args: &TailArgs, access: &mut Access, cursors: &mut BTreeMap<u32, Cursor>, output: &mut Output) -> Result<Progress, CliError> {
    if cursors.is_empty() {
        *cursors = place_cursors(args, access)?;
    }
    let mut progress = Progress::None;
    for cursor in cursors.values_mut() {
        let page = match cursor.page(access, limits::FETCH_PAGE_RECORDS.max) {
            Ok(page) => page,
            Err(CliError::Log { fault, .. }) if fault.continue_at.is_some() => {
                step_over(cursor, &fault, output);
                progress = Progress::Some;
                continue;
            }
            Err(error) => return Err(error),
        };
        for event in page {
            print(output, &args.topic, &event)?;
            progress = Progress::Some;
        }
    }
    Ok(progress)
}

/// A damaged record is told and passed: whoever follows wants what comes after it.
fn step_over(cursor: &mut Cursor, fault: &Fault, output: &Output) {
    output.note(&serde_json::json!({ "error": fault }), &fault.message);
    cursor.offset = fault.continue_at.unwrap_or(cursor.offset).max(cursor.offset.saturating_add(1));
}

fn place_cursors(args: &TailArgs, access: &mut Access) -> Result<BTreeMap<u32, Cursor>, CliError> {
    let doing = format!("finding the end of {}", args.topic);
    let partitions = match args.partition {
        Some(partition) => partition..partition.saturating_add(1),
        None => 0..partitions_of(args, access)?,
    };
    let mut cursors = BTreeMap::new();
    for partition in partitions {
        let request = Request::Bounds { topic: args.topic.clone(), partition };
        let Answer::Bounds(Bounds { first, next }) = access.ask(&doing, request)? else { return Err(unexpected(&doing)) };
        let offset = if args.from_start { first } else { next };
        cursors.insert(partition, Cursor { topic: args.topic.clone(), partition, offset });
    }
    Ok(cursors)
}

fn partitions_of(args: &TailArgs, access: &mut Access) -> Result<u32, CliError> {
    let doing = format!("following {}", args.topic);
    let Answer::Topics(topics) = access.ask(&doing, Request::Topics)? else { return Err(unexpected(&doing)) };
    match topics.iter().find(|topic| topic.topic == args.topic) {
        Some(topic) => Ok(topic.partitions),
        // The log has the words for a topic it does not know.
        None => {
            access.ask(&doing, Request::Bounds { topic: args.topic.clone(), partition: 0 })?;
            Err(unexpected(&doing))
        }
    }
}
