//! Opens the log of one topic: scans every segment, cuts a torn tail, and makes durable what it is going to acknowledge.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::append_file::{AppendFile, Extent};
use super::directory::{discard, parse_segment_name, set_aside, temporary};
use super::frame::Salt;
use super::rebuild::{NextNumbers, Rebuild};
use super::scan::{Found, SegmentEnd, scan_segment};
use super::storage::{OpenAs, PathKind, Storage, StorageFile};
use super::topic::{Contents, SegmentRef, Topic};
use super::topic_log::TopicLog;
use super::watermark;
use super::window::Window;
use crate::BusError;
use crate::error::base_name;

const COPY_BYTES: usize = 1_048_576;

/// What to open.
pub(super) struct TopicToOpen<'a> {
    pub(super) name: &'a str,
    pub(super) partitions: u32,
    pub(super) directory: PathBuf,
    pub(super) salt: Salt,
    pub(super) segment_bytes_max: u64,
    pub(super) preallocation_bytes: u64,
}

/// An opened topic.
pub(super) struct OpenedTopic {
    pub(super) log: TopicLog,
    pub(super) next: NextNumbers,
    /// 1 when a torn tail was cut.
    pub(super) torn: u64,
}

/// Opens a topic's log. Memory is bounded by the index, not by the size of a segment.
pub(super) fn open_topic(storage: &Arc<dyn Storage>, wanted: TopicToOpen<'_>) -> Result<OpenedTopic, BusError> {
    let watermark_path = watermark::path(&wanted.directory);
    discard(&**storage, &temporary(&watermark_path));
    let watermark = watermark::read(&**storage, &watermark_path, wanted.salt, wanted.partitions)?;
    let acknowledged = watermark.as_ref().map_or(0, |next| next.sequence);
    let mut scan = TopicScan { rebuild: Rebuild::new(wanted.partitions), segments: Vec::new(), last: None };
    for (number, (first_sequence, path)) in (0_u32..).zip(segments(&**storage, &wanted.directory)?) {
        scan.segment(&**storage, &wanted, SegmentToScan { number, first_sequence, path, acknowledged })?;
    }
    let rebuilt = scan.rebuild.finish(watermark.as_ref());
    if rebuilt.displaced > 0 {
        tracing::warn!(
            topic = wanted.name,
            count = rebuilt.displaced,
            "records with repeated or falling numbers are kept and not readable"
        );
    }
    let mut segments = scan.segments;
    let (current, torn) = match scan.last {
        // Not one frame is ours: a first write that was torn, or a file from elsewhere. Either way it is kept for whoever looks.
        Some(last) if last.end.torn && last.end.length == 0 => {
            let aside = set_aside(&**storage, &last.path)?;
            tracing::error!(topic = wanted.name, file = base_name(&aside), "a segment without a readable record was set aside");
            segments.pop();
            (None, 1)
        }
        Some(last) => last.settle(wanted.preallocation_bytes)?,
        None => (None, 0),
    };
    if let (Some(segment), Some(current)) = (segments.last_mut(), current.as_ref()) {
        segment.open = Some(Arc::clone(current.file()));
    }
    let contents = Contents { segments, positions: rebuilt.positions, uids: rebuilt.uids };
    let mut log = TopicLog {
        topic: Arc::new(Topic::new(wanted.name.to_owned(), wanted.salt, contents)),
        directory: wanted.directory,
        storage: Arc::clone(storage),
        current,
        segment_bytes_max: wanted.segment_bytes_max,
        preallocation_bytes: wanted.preallocation_bytes,
        watermark,
    };
    // Numbers skipped for lost records must stay skipped, and only the watermark can say so at the next opening.
    log.write_watermark(&rebuilt.next);
    Ok(OpenedTopic { log, next: rebuilt.next, torn })
}

/// Segments of a topic in order.
fn segments(storage: &dyn Storage, directory: &Path) -> Result<Vec<(u64, PathBuf)>, BusError> {
    let names = storage.list(directory).map_err(|error| BusError::io("listing", directory, &error))?;
    let mut segments: Vec<_> = names.iter().filter_map(|name| Some((parse_segment_name(name)?, directory.join(name)))).collect();
    segments.sort();
    for (_, path) in &segments {
        let kind = storage.kind(path).map_err(|error| BusError::io("open", path, &error))?;
        if kind != PathKind::File {
            return Err(BusError::Config { problem: format!("{} is not a regular file; put the segment itself there", base_name(path)) });
        }
    }
    Ok(segments)
}

struct SegmentToScan {
    number: u32,
    first_sequence: u64,
    path: PathBuf,
    /// Sequences below this one are durable for certain.
    acknowledged: u64,
}

struct TopicScan {
    rebuild: Rebuild,
    segments: Vec<SegmentRef>,
    last: Option<LastSegment>,
}

struct LastSegment {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    end: SegmentEnd,
    unconfirmed_from: Option<u64>,
}

impl TopicScan {
    fn segment(&mut self, storage: &dyn Storage, topic: &TopicToOpen<'_>, segment: SegmentToScan) -> Result<(), BusError> {
        let failed = |error: std::io::Error| BusError::io("read", &segment.path, &error);
        let file = storage.open(&segment.path, OpenAs::Existing).map_err(failed)?;
        let mut window = Window::new(&*file).map_err(failed)?;
        self.rebuild.segment_begins(segment.first_sequence);
        let mut unconfirmed_from = None;
        let rebuild = &mut self.rebuild;
        let end = scan_segment(&mut window, topic.salt, &mut |found| {
            if let Found::Record { header, at, .. } = &found
                && header.identity.sequence >= segment.acknowledged
            {
                unconfirmed_from = unconfirmed_from.or(Some(*at));
            }
            rebuild.take(segment.number, &found);
        })
        .map_err(failed)?;
        self.segments.push(SegmentRef { path: segment.path.clone(), open: None });
        if let Some(earlier) = self.last.replace(LastSegment { file, path: segment.path, end, unconfirmed_from })
            && earlier.end.torn
        {
            tracing::warn!(topic = topic.name, file = base_name(&earlier.path), "damage at the end of a full segment is kept as evidence");
        }
        Ok(())
    }
}

impl LastSegment {
    /// Cuts what is torn and returns the file ready for appending.
    fn settle(self, preallocation_bytes: u64) -> Result<(Option<AppendFile>, u64), BusError> {
        let SegmentEnd { length, file_bytes, torn } = self.end;
        let failed = |error: std::io::Error| BusError::io("repair", &self.path, &error);
        if torn || file_bytes < length {
            self.file.resize(length).and_then(|()| self.file.sync()).map_err(failed)?;
        }
        if let Some(from) = self.unconfirmed_from {
            confirm(&*self.file, from, length.min(file_bytes)).map_err(failed)?;
        }
        let allocated = if torn { length } else { file_bytes.max(length) };
        let file = AppendFile::new(self.file, self.path, Extent { length, allocated }, preallocation_bytes);
        Ok((Some(file), u64::from(torn)))
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
