//! Removes what has expired from one topic. `retention` decides; the order here is what makes it safe: first the watermark says durably
//! that the records are gone, then readers no longer see them, then the files go. Whatever stops it half-way is finished next time.

use std::sync::Arc;

use super::directory::first_sequence_named;
use super::numbers::Numbers;
use super::retention::{self, Age};
use super::segment::{OpenSegments, Segment};
use super::segment_index::index_path;
use super::storage::Storage;
use super::topic::{Contents, Topic};
use super::topic_log::{SealedBefore, TopicLog};
use super::uid_runs::Run;
use super::watermark::Watermark;
use crate::BusError;
use crate::error::base_name;

/// What a pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Expired {
    pub(super) segments: u64,
    pub(super) records: u64,
    /// Files that could not be removed. They are removed at the next opening.
    pub(super) unremoved_files: u64,
}

/// What may be expired.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    /// The clock.
    pub(super) now_millis: u64,
    /// Of a topic that is archived: everything below this sequence is.
    pub(super) exported: Option<u64>,
}

/// Expires what is due. `next` are the topic's next numbers.
pub(super) fn run(
    log: &mut TopicLog,
    next: &Numbers,
    due: Due,
    sealed: &dyn SealedBefore,
    open: &OpenSegments,
) -> Result<Expired, BusError> {
    let mut expired = match due.exported {
        // Its segments were ended before they were exported.
        Some(_) => expired_segments(&log.topic, due.now_millis),
        None => {
            end_segment_with_old_records(log, due.now_millis, sealed);
            expired_segments(&log.topic, due.now_millis)
        }
    };
    let may_leave = |segment: &&Arc<Segment>| due.exported.is_none_or(|exported| segment.next_sequence <= exported);
    expired.truncate(expired.iter().take_while(may_leave).count());
    if expired.is_empty() {
        return Ok(Expired::default());
    }
    if log.topic.read().segments.len() == expired.len() {
        // Without a segment only the watermark would know the numbers, and it may be lost.
        log.keep_numbers()?;
    }
    let first = first_without(&log.topic.read(), expired.len());
    log.keep_watermark(Watermark { first: first.clone(), next: next.clone() })?;
    let mut done = Expired { segments: expired.len() as u64, ..Expired::default() };
    {
        let _changing = log.topic.changing_runs();
        for run in forget(&log.topic, expired.len(), first) {
            done.unremoved_files += u64::from(!remove_file(&*log.storage, run.path()));
        }
    }
    for segment in expired {
        done.records += segment.records_in_all();
        done.unremoved_files += remove(&*log.storage, &segment);
        open.forget(&segment);
        sealed.forget(&segment);
    }
    Ok(done)
}

/// When that cannot be done now, what lies before the segment being written expires all the same: perhaps the disk is full.
pub(super) fn end_segment_with_old_records(log: &mut TopicLog, now_millis: u64, sealed: &dyn SealedBefore) {
    let hot_hours = log.topic.hot_hours;
    if !log.topic.read().active.as_ref().is_some_and(|active| retention::must_end(active.oldest, now_millis, hot_hours)) {
        return;
    }
    match sealed.wait() {
        Ok(()) => log.end_segment(sealed),
        Err(error) => {
            tracing::warn!(topic = log.topic.name, %error, "old records stay until the index of the segment before them is written")
        }
    }
}

/// Full segments that have expired, the oldest first.
pub(super) fn expired_segments(topic: &Topic, now_millis: u64) -> Vec<Arc<Segment>> {
    let contents = topic.read();
    let ages: Vec<_> = contents.segments.iter().map(|segment| Age::from(&**segment)).collect();
    let later = contents.active.as_ref().map(|active| Age { newest: (active.positions.count() > 0).then_some(active.newest) });
    let count = retention::expired(&ages, later, now_millis, topic.hot_hours);
    contents.segments.iter().take(count).cloned().collect()
}

/// The first numbers when the oldest `count` segments are gone: those before the first segment that stays.
fn first_without(contents: &Contents, count: usize) -> Numbers {
    let full = contents.segments.get(count).map(|segment| (&segment.start, &segment.path));
    let stays = full.or_else(|| contents.active.as_ref().map(|active| (&active.start, &active.path)));
    let mut first = contents.first.clone();
    match stays {
        None => first.raise_to(&contents.next),
        Some((start, path)) => {
            // The next opening tells by the names what has expired, and numbers may have been given up after a file got its name.
            let sequence = first_sequence_named(path).map_or(start.sequence, |named| named.min(start.sequence));
            first.raise_to(&Numbers { sequence, offsets: start.offsets.clone() });
        }
    }
    first
}

/// Hides the oldest `count` segments from readers. Returns the uid runs that nobody needs any more.
fn forget(topic: &Topic, count: usize, first: Numbers) -> Vec<Arc<Run>> {
    let mut contents = topic.write();
    contents.segments.drain(..count);
    contents.first = first;
    contents.prune_runs()
}

fn remove(storage: &dyn Storage, segment: &Segment) -> u64 {
    let paths = [segment.path.clone(), index_path(&segment.path)];
    paths.iter().map(|path| u64::from(!remove_file(storage, path))).sum()
}

/// False when it is still there.
pub(super) fn remove_file(storage: &dyn Storage, path: &std::path::Path) -> bool {
    match storage.remove_file(path) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => {
            tracing::warn!(file = base_name(path), %error, "a file of an expired segment could not be removed; it is tried again at the next opening");
            false
        }
    }
}
