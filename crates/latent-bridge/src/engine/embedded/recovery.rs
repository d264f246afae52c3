//! Opens the log of one topic. Full segments are taken from their index files, which are made again where they do not fit; the last
//! one is read whole, a torn tail is cut, and what is going to be acknowledged again is made durable first.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::append_file::{AppendFile, Extent};
use super::directory::{discard, parse_segment_name, set_aside, temporary};
use super::heal;
use super::numbers::Numbers;
use super::prepared;
use super::rebuild::next_numbers;
use super::retention_pass::remove_file;
use super::scan::SegmentEnd;
use super::segment::{Disk, OpenSegments, Segment};
use super::segment_index::{self, IndexError, IndexFile, SegmentSummary, index_path, parse_index_name};
use super::segment_scan::{ScannedSegment, read_segment};
use super::storage::{OpenAs, PathKind, Storage, StorageFile};
use super::topic::{Active, Contents, Topic, TopicParts};
use super::topic_log::{SegmentBounds, TopicLog};
use super::watermark::{self, Kept};
use crate::error::base_name;
use crate::{BusError, limits};

const COPY_BYTES: usize = 1_048_576;

/// What to open.
pub(super) struct TopicToOpen {
    pub(super) parts: TopicParts,
    pub(super) partitions: u32,
    pub(super) bounds: SegmentBounds,
}

/// An opened topic.
pub(super) struct OpenedTopic {
    pub(super) log: TopicLog,
    pub(super) next: Numbers,
    /// 1 when a torn tail was cut.
    pub(super) torn: u64,
}

/// Opens a topic's log. Memory is bounded by one segment's index, not by the log.
pub(super) fn open_topic(storage: &Arc<dyn Storage>, open: &OpenSegments, wanted: TopicToOpen) -> Result<OpenedTopic, BusError> {
    let TopicToOpen { parts, partitions, bounds } = wanted;
    let directory = &parts.directory;
    let watermark_path = watermark::path(directory);
    discard(&**storage, &temporary(&watermark_path));
    prepared::remove(&**storage, directory);
    let (watermark, is_missing) = match watermark::read(&**storage, &watermark_path, parts.salt, partitions)? {
        Kept::Found(watermark) => (Some(watermark), false),
        Kept::Unusable => (None, false),
        Kept::Missing => (None, true),
    };
    let first = watermark.as_ref().map(|watermark| watermark.first.clone());
    let runs = parts.run_store.open()?;
    let mut seen = watermark.as_ref().map_or_else(|| Numbers::zero(partitions), |watermark| watermark.next.clone());
    seen.sequence = runs.iter().map(|run| run.range().next).fold(seen.sequence, u64::max);
    let mut opening = Opening {
        storage: &**storage,
        parts: &parts,
        running: first.clone().unwrap_or_else(|| Numbers::zero(partitions)),
        acknowledged: watermark.as_ref().map_or(0, |watermark| watermark.next.sequence),
        seen,
        bounds,
        newest_full: None,
        last: None,
        full: VecDeque::new(),
        displaced: 0,
    };
    let names = storage.list(directory).map_err(|error| BusError::io("listing", directory, &error))?;
    let mut files = opening.segment_files(&names, first.as_ref())?;
    opening.see_indexes(&names, &files, first.as_ref());
    let last = files.pop();
    opening.newest_full = files.last().map(|file| file.first_sequence);
    opening.last = last.as_ref().map(|file| file.first_sequence);
    files.into_iter().try_for_each(|file| opening.full_segment(file))?;
    let last = last.map(|file| opening.last_segment(file)).transpose()?.unwrap_or_default();
    let next = next_numbers(&opening.running, &opening.seen);
    let Opening { full, displaced, acknowledged, .. } = opening;
    if is_missing && next.sequence > 0 {
        let file = base_name(&watermark_path);
        tracing::warn!(topic = parts.name, file, "the watermark is lost, or the topic was never closed; it is made again from the log");
    }
    if displaced > 0 {
        tracing::warn!(topic = parts.name, count = displaced, "records with repeated or falling numbers are kept and not readable");
    }
    // Without a watermark nobody knows whether what lies before the first segment has expired or was lost.
    let begins = full.front().map(|segment| &segment.start).or(last.active.as_ref().map(|active| &active.start));
    let first = first.unwrap_or_else(|| begins.cloned().unwrap_or_else(|| Numbers::zero(partitions)));
    let contents = Contents { segments: full, active: last.active, runs, first, next: next.clone(), displaced };
    let topic = Arc::new(Topic::new(parts, contents));
    let mut log = TopicLog { topic, storage: Arc::clone(storage), current: last.current, bounds, watermark, next_wanted: false };
    // Numbers skipped for lost records must stay skipped, and the runs that are dropped may have been the last to know.
    log.write_watermark(&next);
    heal::foreign_runs_dropped(&log.topic);
    heal::runs_again(&Disk { storage: &**storage, open, salt: log.topic.salt }, &log.topic, acknowledged)?;
    Ok(OpenedTopic { log, next, torn: last.torn })
}

/// A topic while it is being opened.
struct Opening<'o> {
    storage: &'o dyn Storage,
    parts: &'o TopicParts,
    /// The numbers given so far.
    running: Numbers,
    /// Sequences below this one are durable for certain.
    acknowledged: u64,
    /// Numbers that any derived file has seen: none of them is given again, whatever became of the records.
    seen: Numbers,
    bounds: SegmentBounds,
    /// First sequences of the last two segments: the one before the last, and the last.
    newest_full: Option<u64>,
    last: Option<u64>,
    full: VecDeque<Arc<Segment>>,
    displaced: u64,
}

/// A segment file by its name.
struct SegmentFile {
    first_sequence: u64,
    path: PathBuf,
}

/// How the last segment goes on.
#[derive(Default)]
struct LastSegment {
    active: Option<Active>,
    current: Option<AppendFile>,
    torn: u64,
}

impl Opening<'_> {
    /// Segments in order. Those that expired, and could not be removed when they did, are removed now.
    fn segment_files(&self, names: &[String], first: Option<&Numbers>) -> Result<Vec<SegmentFile>, BusError> {
        let directory = &self.parts.directory;
        let mut segments: Vec<_> = names.iter().filter_map(|name| Some((parse_segment_name(name)?, directory.join(name)))).collect();
        segments.sort();
        let mut files = Vec::new();
        let following: Vec<_> = segments.iter().skip(1).map(|(sequence, _)| *sequence).collect();
        for (at, (first_sequence, path)) in segments.into_iter().enumerate() {
            let kind = self.storage.kind(&path).map_err(|error| BusError::io("open", &path, &error))?;
            if kind != PathKind::File {
                return Err(BusError::Config {
                    problem: format!("{} is not a regular file; put the segment itself there", base_name(&path)),
                });
            }
            // Expired is only what ends before the first sequence; a watermark of another history may lie within a segment.
            let ends_by = |first: &Numbers| following.get(at).is_some_and(|next| *next <= first.sequence);
            if first.is_some_and(ends_by) {
                tracing::info!(topic = self.parts.name, file = base_name(&path), "an expired segment is removed");
                remove_file(self.storage, &path);
                remove_file(self.storage, &index_path(&path));
                continue;
            }
            files.push(SegmentFile { first_sequence, path });
        }
        Ok(files)
    }

    /// Looks at indexes that say where the log ended once: of its last segment, and of segments that are lost. Those of expired segments
    /// are removed.
    fn see_indexes(&mut self, names: &[String], files: &[SegmentFile], first: Option<&Numbers>) {
        for name in names {
            let (path, Some(first_sequence)) = (self.parts.directory.join(name), parse_index_name(name)) else { continue };
            let at = files.binary_search_by_key(&first_sequence, |file| file.first_sequence);
            if at.is_err() && first.is_some_and(|first| first_sequence < first.sequence) {
                remove_file(self.storage, &path);
                continue;
            }
            if name.ends_with(".tmp") || at.is_ok_and(|at| at + 1 < files.len()) {
                continue;
            }
            let partitions = u32::try_from(self.running.offsets.len()).unwrap_or(u32::MAX);
            if let Ok((_, summary)) = IndexFile::open(self.storage, &path, self.parts.salt, partitions) {
                self.seen.raise_to(&summary.end);
            }
        }
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn StorageFile>, BusError> {
        self.storage.open(path, OpenAs::Existing).map_err(|error| BusError::io("open", path, &error))
    }

    /// The numbers given before a segment, as far as its name and the segments before it say.
    fn start_of(&self, segment: &SegmentFile) -> Numbers {
        let mut start = self.running.clone();
        start.sequence = start.sequence.max(segment.first_sequence);
        start
    }

    fn scan(&self, file: &Arc<dyn StorageFile>, segment: &SegmentFile) -> Result<ScannedSegment, BusError> {
        let scanned = read_segment(file, self.parts.salt, &self.parts.hasher, self.start_of(segment));
        scanned.map_err(|error| BusError::io("read", &segment.path, &error))
    }

    /// Takes a segment that others follow: from its index, or by reading it.
    fn full_segment(&mut self, segment: SegmentFile) -> Result<(), BusError> {
        let file = self.open(&segment.path)?;
        let indexed = self.indexed(&*file, &segment)?;
        let summary = match indexed {
            Some(summary) => summary,
            None => {
                let scanned = self.scan(&file, &segment)?;
                if scanned.end.length == 0 && self.is_stray(&segment) {
                    return self.put_aside(&segment.path);
                }
                if scanned.end.torn {
                    let (topic, file) = (&self.parts.name, base_name(&segment.path));
                    tracing::warn!(topic, file, "damage at the end of a full segment is kept as evidence");
                } else if scanned.end.file_bytes > scanned.end.length {
                    trim(&*file, &segment.path, scanned.end.length);
                }
                self.write_index(&segment, &scanned)?
            }
        };
        self.take_full(segment.path, &summary);
        Ok(())
    }

    fn take_full(&mut self, path: PathBuf, summary: &SegmentSummary) {
        self.running.raise_to(&summary.end);
        self.displaced += summary.displaced;
        self.full.push_back(Arc::new(Segment::new(path, summary, None)));
    }

    /// What a segment's index says, if the index is of this file as it is and fits what comes before.
    fn indexed(&self, file: &dyn StorageFile, segment: &SegmentFile) -> Result<Option<SegmentSummary>, BusError> {
        let path = index_path(&segment.path);
        discard(self.storage, &temporary(&path));
        let partitions = u32::try_from(self.running.offsets.len()).unwrap_or(u32::MAX);
        let summary = match IndexFile::open(self.storage, &path, self.parts.salt, partitions) {
            Ok((_, summary)) => summary,
            Err(IndexError::Missing) => {
                self.say_missing(segment, &path);
                return Ok(None);
            }
            Err(IndexError::Unusable) => {
                tracing::warn!(topic = self.parts.name, file = base_name(&path), "a damaged index is made again from its segment");
                return Ok(None);
            }
            Err(IndexError::Io(error)) => {
                tracing::warn!(file = base_name(&path), %error, "an index could not be read; it is made again from its segment");
                return Ok(None);
            }
        };
        let bytes = file.bytes().map_err(|error| BusError::io("open", &segment.path, &error))?;
        let same_end = || segment_index::witness(file, &self.parts.hasher, bytes).is_ok_and(|witness| witness == summary.witness);
        let fits = summary.length == bytes
            && same_end()
            && summary.start.sequence == segment.first_sequence
            && self.running.all_reached_by(&summary.start)
            && summary.start.all_reached_by(&summary.end);
        if !fits {
            let file = base_name(&path);
            tracing::warn!(topic = self.parts.name, file, "an index that does not fit its segment is made again from it");
        }
        Ok(fits.then_some(summary))
    }

    /// The newest full segment may never have had its index: it is written while the next segment is filled already. A watermark that
    /// knows of the next one was written later.
    fn say_missing(&self, segment: &SegmentFile, index: &Path) {
        let (topic, file) = (&self.parts.name, base_name(index));
        if self.newest_full == Some(segment.first_sequence) && self.last.is_some_and(|last| self.acknowledged < last) {
            tracing::info!(topic, file, "the index of the newest full segment was not written yet; it is written now");
        } else {
            tracing::warn!(topic, file, "a lost index is made again from its segment");
        }
    }

    fn write_index(&self, segment: &SegmentFile, scanned: &ScannedSegment) -> Result<SegmentSummary, BusError> {
        let summary = scanned.summary();
        let content = (&summary, &scanned.rebuilt.positions);
        segment_index::write(self.storage, &index_path(&segment.path), self.parts.salt, content)?;
        Ok(summary)
    }

    /// Takes the segment that was written last.
    fn last_segment(&mut self, segment: SegmentFile) -> Result<LastSegment, BusError> {
        let file = self.open(&segment.path)?;
        let scanned = self.scan(&file, &segment)?;
        let end = scanned.end;
        if end.length == 0 && (end.torn || self.is_stray(&segment)) {
            // Not one byte of it is a record: a first write that was torn, or a file from elsewhere.
            self.put_aside(&segment.path)?;
            return Ok(LastSegment { torn: u64::from(end.torn), ..LastSegment::default() });
        }
        if end.torn && scanned.rebuilt.end.sequence < self.acknowledged.max(self.seen.sequence) {
            // Records are known to have been acknowledged where there is damage now: nothing is cut, and nothing written behind it.
            let (topic, file) = (&self.parts.name, base_name(&segment.path));
            tracing::error!(topic, file, "the end of the log is damaged and kept as evidence; a new segment is begun");
            let summary = self.write_index(&segment, &scanned)?;
            self.take_full(segment.path, &summary);
            return Ok(LastSegment::default());
        }
        self.running.raise_to(&scanned.rebuilt.end);
        self.displaced += scanned.rebuilt.displaced;
        let current = self.settle(&file, &segment.path, &scanned)?;
        let rebuilt = scanned.rebuilt;
        let active = Active {
            path: segment.path,
            file,
            start: rebuilt.start,
            length: end.length,
            positions: rebuilt.positions,
            uids: rebuilt.uids,
            oldest: rebuilt.oldest,
            newest: rebuilt.newest,
            displaced: rebuilt.displaced,
        };
        Ok(LastSegment { active: Some(active), current: Some(current), torn: u64::from(end.torn) })
    }

    /// Cuts what is torn and returns the file ready for appending.
    fn settle(&self, file: &Arc<dyn StorageFile>, path: &Path, scanned: &ScannedSegment) -> Result<AppendFile, BusError> {
        let SegmentEnd { length, file_bytes, torn } = scanned.end;
        let failed = |error: std::io::Error| BusError::io("repair", path, &error);
        let zeros_max = self.bounds.bytes_max.saturating_add(self.bounds.preallocation_bytes);
        let too_long = file_bytes > length.max(zeros_max);
        if torn || too_long || file_bytes < length {
            file.resize(length).and_then(|()| file.sync()).map_err(failed)?;
        }
        // Only the last group can have been written and not synced: none is written before the one before it is synced.
        if let Some(group) = scanned.rebuilt.last_group.filter(|group| group.sequence >= self.acknowledged) {
            confirm(&**file, group.at, length.min(file_bytes)).map_err(failed)?;
        }
        let allocated = if torn || too_long { length } else { file_bytes.max(length) };
        Ok(AppendFile::new(Arc::clone(file), path.to_owned(), Extent { length, allocated }, self.bounds.preallocation_bytes))
    }

    /// An empty segment whose name lies too far ahead to be believed. A plausible one is evidence of numbers that were given.
    fn is_stray(&self, segment: &SegmentFile) -> bool {
        segment.first_sequence.saturating_sub(self.running.sequence.max(self.seen.sequence)) > limits::RAISED_OFFSETS.max
    }

    fn put_aside(&self, path: &Path) -> Result<(), BusError> {
        let aside = set_aside(self.storage, path)?;
        tracing::error!(topic = self.parts.name, file = base_name(&aside), "a segment without a readable record was set aside");
        Ok(())
    }
}

/// Gives back zeros behind the end of a full segment, which its index does not cover. A failure costs only another reading of it.
fn trim(file: &dyn StorageFile, path: &Path, length: u64) {
    if let Err(error) = file.resize(length).and_then(|()| file.sync()) {
        tracing::warn!(file = base_name(path), %error, "zeros behind the end of a full segment could not be given back");
    }
}

/// Writes bytes again as they are, and syncs. After a failed sync the system keeps pages that are on no disk and calls them clean;
/// reading them back proves nothing, so a record is acknowledged again only once it was written again.
pub(super) fn confirm(file: &dyn StorageFile, from: u64, to: u64) -> std::io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES.min(usize::try_from(to.saturating_sub(from)).unwrap_or(COPY_BYTES))];
    let mut at = from;
    while at < to {
        let wanted = usize::try_from(to - at).unwrap_or(COPY_BYTES).min(buffer.len());
        let Some(part) = buffer.get_mut(..wanted) else { break };
        let read = file.read_at(part, at)?;
        let Some(part) = part.get(..read).filter(|part| !part.is_empty()) else { break };
        file.write_at(part, at)?;
        at += read as u64;
    }
    file.sync()
}
