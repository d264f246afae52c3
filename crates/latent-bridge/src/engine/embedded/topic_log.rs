//! The writer's side of one topic: its current segment and the step to the next.

use std::path::PathBuf;
use std::sync::Arc;

use super::append_file::{AppendError, AppendFile, Extent};
use super::commit::WriteOutcome;
use super::directory::{discard, segment_name, sync_parent};
use super::rebuild::NextNumbers;
use super::storage::{OpenAs, Storage};
use super::topic::{SegmentRef, Topic};
use super::watermark;
use crate::BusError;
use crate::error::base_name;

/// See the module.
pub(super) struct TopicLog {
    pub(super) topic: Arc<Topic>,
    pub(super) directory: PathBuf,
    pub(super) storage: Arc<dyn Storage>,
    /// `None` until the first record of the topic.
    pub(super) current: Option<AppendFile>,
    pub(super) segment_bytes_max: u64,
    pub(super) preallocation_bytes: u64,
    /// The last watermark written.
    pub(super) watermark: Option<NextNumbers>,
}

/// Where the frames of a group begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    pub(super) segment: u32,
    pub(super) at: u64,
}

impl TopicLog {
    /// Writes the frames of a group, starting a segment named `first_sequence` when the current one is full.
    pub(super) fn append(&mut self, first_sequence: u64, frames: &[u8]) -> Result<Written, WriteOutcome> {
        let full = |file: &AppendFile| file.length() > 0 && file.length() + frames.len() as u64 > self.segment_bytes_max;
        if self.current.as_ref().is_none_or(full) {
            self.start_segment(first_sequence)?;
        }
        let Some(file) = self.current.as_mut() else {
            return Err(WriteOutcome::NotStored { reason: "there is no segment".to_owned() });
        };
        let written = file.append(frames).map_err(|error| match error {
            AppendError::TakenBack(error) => {
                let file = base_name(file.path());
                WriteOutcome::NotStored { reason: format!("write of {file} failed: {error}; nothing was stored") }
            }
            AppendError::Unknown(error) => {
                tracing::error!(topic = self.topic.name, %error, "a failed write could not be taken back");
                WriteOutcome::Unknown
            }
        })?;
        let segment = u32::try_from(self.topic.read().segments.len().saturating_sub(1)).unwrap_or(u32::MAX);
        Ok(Written { segment, at: written })
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

    fn start_segment(&mut self, first_sequence: u64) -> Result<(), WriteOutcome> {
        let path = self.directory.join(segment_name(first_sequence));
        let file = self.storage.open(&path, OpenAs::New).map_err(|error| {
            let reason = format!("creation of {} failed: {error}; nothing was stored", base_name(&path));
            WriteOutcome::NotStored { reason }
        })?;
        // A segment whose name is not durable may be gone after a power cut, with everything in it. Nothing is in it yet.
        sync_parent(&*self.storage, &path).map_err(|error| {
            discard(&*self.storage, &path);
            WriteOutcome::NotStored { reason: format!("the name of a new segment could not be made durable: {error}; nothing was stored") }
        })?;
        if let Some(mut full) = self.current.take() {
            full.trim();
        }
        let mut contents = self.topic.write();
        if let Some(full) = contents.segments.last_mut() {
            full.open = None;
        }
        contents.segments.push(SegmentRef { path: path.clone(), open: Some(Arc::clone(&file)) });
        self.current = Some(AppendFile::new(file, path, Extent::default(), self.preallocation_bytes));
        Ok(())
    }

    /// Remembers durable next numbers in the watermark. A failure costs only what a watermark is for, so it is a warning.
    pub(super) fn write_watermark(&mut self, next: &NextNumbers) {
        if next.sequence == 0 || self.watermark.as_ref() == Some(next) {
            return;
        }
        if let Err(error) = self.keep_watermark(next) {
            tracing::warn!(topic = self.topic.name, %error, "the watermark could not be written");
        }
    }

    /// As [`TopicLog::write_watermark`], for numbers that must be remembered.
    pub(super) fn keep_watermark(&mut self, next: &NextNumbers) -> Result<(), BusError> {
        watermark::write(&*self.storage, &watermark::path(&self.directory), self.topic.salt, next)?;
        self.watermark = Some(next.clone());
        Ok(())
    }
}
