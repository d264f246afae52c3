//! The writer's side of one topic: its current segment and the step to the next.

use std::path::PathBuf;
use std::sync::Arc;

use super::append_file::{AppendError, AppendFile, Extent};
use super::commit::{PlannedRecord, WriteOutcome};
use super::directory::{discard, segment_name, sync_parent};
use super::numbers::Numbers;
use super::positions::Place;
use super::prepared;
use super::rebuild::partition_summaries;
use super::segment::{InMemory, Segment};
use super::segment_index::{self, SegmentSummary};
use super::segment_start;
use super::storage::{OpenAs, Storage};
use super::topic::{Active, Contents, Topic};
use super::uid_runs::UidEntry;
use super::watermark::{self, Watermark};
use crate::BusError;
use crate::error::base_name;

/// See the module.
pub(super) struct TopicLog {
    pub(super) topic: Arc<Topic>,
    pub(super) storage: Arc<dyn Storage>,
    /// `None` until there is something to write.
    pub(super) current: Option<AppendFile>,
    pub(super) bounds: SegmentBounds,
    /// The last watermark written.
    pub(super) watermark: Option<Watermark>,
    /// Whether the segment after the current one was asked for.
    pub(super) next_wanted: bool,
}

/// When a segment is full and how it grows.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentBounds {
    pub(super) bytes_max: u64,
    pub(super) records_max: u64,
    pub(super) preallocation_bytes: u64,
}

/// What the log needs from elsewhere before a new segment can begin.
pub(super) trait SealedBefore {
    /// Waits until the segment before has its index file.
    ///
    /// # Errors
    /// Why it could not be written.
    fn wait(&self) -> Result<(), BusError>;
    /// Has the index of a full segment written.
    fn seal(&self, segment: Arc<Segment>);
    /// A full segment has expired and is not waited for any more.
    fn forget(&self, segment: &Arc<Segment>);
}

impl TopicLog {
    /// Writes the frames of a group and says where they begin.
    pub(super) fn append(
        &mut self,
        records: impl Iterator<Item = PlannedRecord> + Clone,
        frames: &mut Vec<u8>,
        sealed: &dyn SealedBefore,
    ) -> Result<u64, WriteOutcome> {
        if !self.has_room(records.clone(), frames.len() as u64) {
            let first_sequence = records.clone().next().map_or(0, |record| record.header.identity.sequence);
            self.start_segment(first_sequence, sealed)?;
        }
        let Some(file) = self.current.as_mut() else {
            return Err(WriteOutcome::NotStored { reason: "there is no segment".to_owned() });
        };
        let mut start_bytes = 0;
        if file.length() == 0 {
            let start = begin(&self.topic, file);
            start_bytes = start.len() as u64;
            frames.splice(0..0, start);
        }
        let appended = match file.append(frames) {
            Err(AppendError::TakenBack(error)) if error.kind() == std::io::ErrorKind::StorageFull => {
                // The zeros of the next segment are room that nothing needs more than this.
                prepared::remove(&*self.storage, &self.topic.directory);
                file.append(frames)
            }
            appended => appended,
        };
        let at = appended.map_err(|error| match error {
            AppendError::TakenBack(error) => {
                let file = base_name(file.path());
                WriteOutcome::NotStored { reason: format!("write of {file} failed: {error}; nothing was stored") }
            }
            AppendError::Unknown(error) => {
                tracing::error!(topic = self.topic.name, %error, "a failed write could not be taken back");
                WriteOutcome::Unknown
            }
        })?;
        Ok(at + start_bytes)
    }

    fn has_room(&self, mut records: impl Iterator<Item = PlannedRecord> + Clone, bytes: u64) -> bool {
        let Some(file) = &self.current else { return false };
        let contents = self.topic.read();
        // Where no number was given yet, another segment would have the same name; whatever comes first has room.
        let begun = contents.active.as_ref().is_some_and(|active| active.start.sequence < contents.next.sequence);
        if file.length() == 0 || !begun {
            return true;
        }
        let positions = contents.active.as_ref().map(|active| &active.positions);
        let count = positions.map_or(0, super::positions::Positions::count);
        let holds = |record: PlannedRecord| {
            let identity = record.header.identity;
            positions.is_none_or(|positions| positions.holds(identity.partition, identity.offset))
        };
        file.length().saturating_add(bytes) <= self.bounds.bytes_max
            && count.saturating_add(records.clone().count() as u64) <= self.bounds.records_max
            && records.all(holds)
    }

    /// Makes what was written durable.
    pub(super) fn sync(&mut self) -> WriteOutcome {
        match self.current.as_mut().map_or(Ok(()), AppendFile::sync) {
            Ok(()) => WriteOutcome::Durable,
            Err(error) => {
                tracing::error!(topic = self.topic.name, %error, "a sync failed; the topic refuses publications until it is opened again");
                WriteOutcome::Unknown
            }
        }
    }

    /// Shows durable records to readers. The first one's frame lies at `at`.
    pub(super) fn show(&self, records: impl Iterator<Item = PlannedRecord>, mut at: u64) {
        let mut contents = self.topic.write();
        let Contents { active, next, .. } = &mut *contents;
        let Some(active) = active else { return };
        for PlannedRecord { header, uid_hash } in records {
            let identity = header.identity;
            // A segment is at most 1 GiB long, so a position always fits.
            let place = Place { offset: identity.offset, at: u32::try_from(at).unwrap_or(u32::MAX) };
            active.positions.push(identity.partition, place, header.frame_bytes());
            active.uids.add(UidEntry { hash: uid_hash, sequence: identity.sequence, at: place.at });
            next.sequence = identity.sequence.saturating_add(1);
            next.raise(usize::from(identity.partition), identity.offset.saturating_add(1));
            at += header.frame_bytes();
            active.oldest = active.oldest.min(header.stored_at);
            active.newest = active.newest.max(header.stored_at);
        }
        active.length = at;
    }

    fn start_segment(&mut self, first_sequence: u64, sealed: &dyn SealedBefore) -> Result<(), WriteOutcome> {
        let not_stored = |reason: String| WriteOutcome::NotStored { reason: format!("{reason}; nothing was stored") };
        sealed.wait().map_err(|error| not_stored(format!("the index of the segment before is not written: {error}")))?;
        let file = self.create_segment(first_sequence).map_err(|error| not_stored(format!("a new segment could not be begun: {error}")))?;
        self.end_segment(sealed);
        self.write_to(file);
        Ok(())
    }

    /// Leaves a durable segment that has no record and says which numbers were given, for a topic whose others are about to go.
    pub(super) fn keep_numbers(&mut self) -> Result<(), BusError> {
        if self.current.is_none() {
            let file = self.create_segment(self.topic.read().next.sequence)?;
            self.write_to(file);
        }
        let Some(file) = self.current.as_mut().filter(|file| file.length() == 0) else { return Ok(()) };
        let start = begin(&self.topic, file);
        let written = match file.append(&start) {
            Ok(_) => file.sync(),
            Err(AppendError::TakenBack(error) | AppendError::Unknown(error)) => Err(error),
        };
        if let Err(error) = written {
            // There is no record in it, so it can be begun again under the same name.
            let path = file.path().to_owned();
            (self.current, self.topic.write().active) = (None, None);
            discard(&*self.storage, &path);
            return Err(BusError::io("write", &path, &error));
        }
        if let Some(active) = &mut self.topic.write().active {
            active.length = start.len() as u64;
        }
        Ok(())
    }

    fn write_to(&mut self, file: AppendFile) {
        let mut contents = self.topic.write();
        let start = contents.next.clone();
        contents.active = Some(Active::new(file.path().to_owned(), Arc::clone(file.file()), start));
        drop(contents);
        (self.current, self.next_wanted) = (Some(file), false);
    }

    /// Creates the file of a segment whose first record gets this sequence.
    fn create_segment(&self, first_sequence: u64) -> Result<AppendFile, BusError> {
        let path = self.topic.directory.join(segment_name(first_sequence));
        let (file, allocated) = self.create(&path).map_err(|error| BusError::io("create", &path, &error))?;
        // A segment whose name is not durable may be gone after a power cut, with everything in it. Nothing is in it yet.
        sync_parent(&*self.storage, &path).inspect_err(|_| discard(&*self.storage, &path))?;
        Ok(AppendFile::new(file, path, Extent { length: 0, allocated }, self.bounds.preallocation_bytes))
    }

    fn create(&self, path: &std::path::Path) -> std::io::Result<(Arc<dyn super::storage::StorageFile>, u64)> {
        if self.bounds.preallocation_bytes > 0 && prepared::claim(&*self.storage, &self.topic.directory, path)? {
            let opened = self.storage.open(path, OpenAs::Existing).and_then(|file| file.bytes().map(|allocated| (file, allocated)));
            // The name must be free for the next attempt. Nothing but zeros is in it.
            return opened.inspect_err(|_| discard(&*self.storage, path));
        }
        Ok((self.storage.open(path, OpenAs::New)?, 0))
    }

    /// Ends the segment being written, if it has records: it becomes a full one, and its index is written.
    pub(super) fn end_segment(&mut self, sealed: &dyn SealedBefore) {
        if let Some(mut full) = self.current.take() {
            full.trim();
        }
        let mut contents = self.topic.write();
        let Some(active) = contents.active.take() else { return };
        // Without a witness the index is made again at the next opening, which is all that a failure costs.
        let witness = segment_index::witness(&*active.file, &self.topic.hasher, active.length).unwrap_or_default();
        let summary = SegmentSummary {
            end: contents.next.clone(),
            start: active.start,
            length: active.length,
            oldest: active.oldest,
            newest: active.newest,
            displaced: active.displaced,
            witness,
            partitions: partition_summaries(&active.positions),
        };
        let memory = Arc::new(InMemory { summary: summary.clone(), positions: active.positions, uids: active.uids });
        let segment = Arc::new(Segment::new(active.path, &summary, Some(memory)));
        contents.segments.push_back(Arc::clone(&segment));
        drop(contents);
        sealed.seal(segment);
    }

    /// True, once for each segment, when the current one is so full that the next should be made ready.
    pub(super) fn wants_next(&mut self) -> bool {
        let SegmentBounds { bytes_max, preallocation_bytes, .. } = self.bounds;
        let worth_it = preallocation_bytes > 0 && bytes_max / 8 >= preallocation_bytes;
        let wanted = worth_it && !self.next_wanted && self.current.as_ref().is_some_and(|file| file.length() > bytes_max / 2);
        self.next_wanted |= wanted;
        wanted
    }

    /// Remembers durable next numbers in the watermark. A failure costs only what a watermark is for, so it is a warning.
    pub(super) fn write_watermark(&mut self, next: &Numbers) {
        let first = self.topic.read().first.clone();
        let watermark = Watermark { first, next: next.clone() };
        if next.sequence == 0 || self.watermark.as_ref() == Some(&watermark) {
            return;
        }
        if let Err(error) = self.keep_watermark(watermark) {
            tracing::warn!(topic = self.topic.name, %error, "the watermark could not be written");
        }
    }

    /// As [`TopicLog::write_watermark`], for numbers that must be remembered.
    pub(super) fn keep_watermark(&mut self, watermark: Watermark) -> Result<(), BusError> {
        watermark::write(&*self.storage, &watermark_path(&self.topic), self.topic.salt, &watermark)?;
        self.watermark = Some(watermark);
        Ok(())
    }
}

/// The first bytes of an empty segment. Offsets may have been given up since its file was made, so its numbers are taken now.
fn begin(topic: &Topic, file: &AppendFile) -> Vec<u8> {
    let mut contents = topic.write();
    let next = contents.next.clone();
    let mut start = Vec::new();
    segment_start::encode(topic.salt, &next, &mut start);
    contents.active = Some(Active::new(file.path().to_owned(), Arc::clone(file.file()), next));
    start
}

fn watermark_path(topic: &Topic) -> PathBuf {
    watermark::path(&topic.directory)
}
