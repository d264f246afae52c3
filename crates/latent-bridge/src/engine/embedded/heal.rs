//! Makes derived files again from a full segment while the log is in use: the index that a reader found unusable, and uid runs that
//! no longer cover what they should. Each is named in a warning, unless it may be that it never was written.

use std::sync::Arc;

use super::directory::discard;
use super::segment::{Disk, InMemory, Segment};
use super::segment_index::{self, index_path};
use super::segment_scan::read_segment;
use super::topic::Topic;
use super::uid_runs::{RunToWrite, SequenceRange, run_name};
use crate::BusError;
use crate::error::base_name;

/// Reads a full segment again and writes its index. When that cannot be written, or the segment itself was damaged since it was opened
/// so that other records are counted than its index has, it stays in memory. `seen` is how often that was done before the index was
/// found unusable: when somebody else did it meanwhile there is nothing to do, and the answer is `None`.
pub(super) fn index_again(disk: &Disk<'_>, topic: &Topic, segment: &Arc<Segment>, seen: u64) -> Result<Option<Arc<InMemory>>, BusError> {
    let mut made_again = segment.made_again();
    if *made_again != seen {
        return Ok(None);
    }
    let memory = Arc::new(read_again(disk, topic, segment)?);
    let path = index_path(&segment.path);
    let written = segment_index::write(disk.storage, &path, topic.salt, (&memory.summary, &memory.positions));
    if let Err(error) = &written {
        tracing::warn!(topic = topic.name, %error, "an index could not be written and stays in memory");
    }
    let on_disk = written.is_ok() && segment.is_described_by(&memory.summary);
    segment.set_memory((!on_disk).then(|| Arc::clone(&memory)));
    *made_again += 1;
    // Expired meanwhile, it has lost its index for that reason.
    if written.is_ok() && !topic.read().has(segment) {
        discard(disk.storage, &path);
    }
    Ok(Some(memory))
}

fn read_again(disk: &Disk<'_>, topic: &Topic, segment: &Arc<Segment>) -> Result<InMemory, BusError> {
    let failed = |error: std::io::Error| BusError::io("read", &segment.path, &error);
    let file = segment.file(disk).map_err(failed)?;
    let scanned = read_segment(&file, topic.salt, &topic.hasher, segment.start.clone()).map_err(failed)?;
    Ok(InMemory { summary: scanned.summary(), positions: scanned.rebuilt.positions, uids: scanned.rebuilt.uids })
}

fn range_of(segment: &Segment) -> SequenceRange {
    SequenceRange { first: segment.start.sequence, next: segment.next_sequence }
}

/// Drops runs that were made from another history of the log: the segment at whose end they end has another witness, or there is none. So
/// it is with the run of a segment that was ended for its age and had none behind it when the log was closed: it is filled again.
pub(super) fn foreign_runs_dropped(topic: &Topic) {
    let (dropped, filled) = {
        let mut contents = topic.write();
        let witness = |next: u64| contents.segments.iter().find(|segment| segment.next_sequence == next).map(|segment| segment.witness);
        let successor = contents.runs.without(|run| witness(run.range().next) != Some(run.witness()));
        let filled = contents.active.as_ref().map(|active| SequenceRange { first: active.start.sequence, next: contents.next.sequence });
        (contents.replace_runs(successor), filled)
    };
    for run in &dropped {
        let file = base_name(run.path());
        if filled.is_some_and(|filled| filled.first <= run.range().first && run.range().next <= filled.next) {
            tracing::debug!(topic = topic.name, file, "the uid run of a segment that is filled again is dropped");
        } else {
            tracing::warn!(topic = topic.name, file, "a uid run that does not fit its segments is dropped and made again from the log");
        }
        topic.run_store.remove(run);
    }
}

/// Writes runs for every full segment that no sound run covers, and drops those that are not needed. Segments that ended below the
/// sequence `covered` are known to have had their runs once.
pub(super) fn runs_again(disk: &Disk<'_>, topic: &Topic, covered: u64) -> Result<(), BusError> {
    let _changing = topic.changing_runs();
    let uncovered: Vec<Arc<Segment>> = {
        let contents = topic.read();
        // Those at the end that are not sealed yet are looked up in memory; further back only runs are asked.
        let sealed = contents.segments.iter().rev().skip_while(|segment| segment.in_memory().is_some());
        let mut uncovered: Vec<_> = sealed.filter(|segment| !contents.runs.uncovered(range_of(segment)).is_empty()).cloned().collect();
        uncovered.reverse();
        uncovered
    };
    say_uncovered(topic, &uncovered, covered);
    for segment in uncovered {
        let memory = read_again(disk, topic, &segment)?;
        let range = range_of(&segment);
        let run = topic.run_store.write(RunToWrite { range, level: 0, witness: segment.witness, entries: memory.uids.sorted() })?;
        let needless = topic.write().put_run(run);
        needless.iter().for_each(|run| topic.run_store.remove(run));
    }
    let needless = topic.write().prune_runs();
    needless.iter().for_each(|run| topic.run_store.remove(run));
    Ok(())
}

/// Names the runs that are made again. The newest full segment may never have had its run: it is written while the next segment is
/// filled already.
fn say_uncovered(topic: &Topic, uncovered: &[Arc<Segment>], covered: u64) {
    let ranges: Vec<_> = uncovered.iter().map(|segment| range_of(segment)).collect();
    let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return };
    let contents = topic.read();
    let newest = contents.segments.back().map_or(0, |segment| segment.start.sequence);
    // Where records were lost there are sequences that belong to no segment, and no run misses them.
    let is_missed = |gap: &SequenceRange| ranges.iter().any(|range| range.first < gap.next && gap.first < range.next);
    let gaps = contents.runs.uncovered(SequenceRange { first: first.first, next: last.next });
    for gap in gaps.into_iter().filter(is_missed) {
        let file = run_name(gap);
        if gap.first < newest || gap.next <= covered {
            tracing::warn!(topic = topic.name, file, "a uid run is lost or damaged and is made again from the log");
        } else {
            tracing::info!(topic = topic.name, file, "the uid run of the newest full segment was not written yet; it is written now");
        }
    }
}
