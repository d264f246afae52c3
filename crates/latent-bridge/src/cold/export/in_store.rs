//! What the store has of a partition, beside what the head says of it. The head is believed as far as the store has it.

use std::collections::VecDeque;

use latent_core::Offset;

use super::{ArchiveHead, ArchivedName, Export, ExportError, ItemSource, Known, partition_prefix};
use crate::cold::segment::{Attestation, Item, Segment};
use crate::cold::store::each_listed;
use crate::limits;

/// A log that is read beside an archive, page by page.
struct Beside<'s> {
    source: &'s dyn ItemSource,
    from: Offset,
    page: VecDeque<Item>,
}

impl Beside<'_> {
    /// What it has at an offset; offsets that are asked for ascend.
    fn at(&mut self, offset: Offset) -> Result<Option<Item>, ExportError> {
        loop {
            while let Some(next) = self.page.front() {
                if next.offset() > offset {
                    return Ok(None);
                }
                let next = self.page.pop_front();
                self.from = Offset(offset.0.saturating_add(1));
                if let Some(next) = next.filter(|next| next.offset() == offset) {
                    return Ok(Some(next));
                }
            }
            self.page = self.source.page(self.from.max(offset))?.into();
            if self.page.is_empty() {
                return Ok(None);
            }
        }
    }
}

impl Export<'_> {
    /// Compares the head with the store, which may have been changed since. Whether it is another one now.
    pub(super) fn look_again(&self, known: &mut Known) -> Result<bool, ExportError> {
        let Some(head) = known.head().cloned() else { return Ok(false) };
        let newer = self.compare_with_store(head.clone())?;
        let has_changed = newer != head;
        known.head = Some(Some(newer));
        Ok(has_changed)
    }

    /// Each segment of the partition that the store lists: where it begins, and its path.
    fn each_segment(&self, mut each: impl FnMut(Offset, String)) -> Result<(), ExportError> {
        let prefix = partition_prefix(&self.place.topic, self.place.partition);
        each_listed(self.to.store, &prefix, |listed| {
            if let (None, Some(ArchivedName::Segment { first, .. })) = (listed.stray, ArchivedName::parse(&listed.path)) {
                each(first, listed.path);
            }
            Ok(())
        })
    }

    /// How many segments of the partition the store lists, and the path of the last one.
    fn listed(&self) -> Result<(u64, Option<String>), ExportError> {
        let (mut count, mut last) = (0, None);
        self.each_segment(|_, path| {
            count += 1;
            last = Some(path);
        })?;
        Ok((count, last))
    }

    /// A store that was set back to an older state does not have what the head says, and nobody may rely on it. One that has more was
    /// written to since, by another exporter, or before the head itself was set back: its last segment is the head then.
    pub(super) fn compare_with_store(&self, head: ArchiveHead) -> Result<ArchiveHead, ExportError> {
        let (found, last) = self.listed()?;
        if found < head.segments {
            let place = format!("{}/p{}", self.place.topic, self.place.partition);
            return Err(ExportError::SetBack { place, found, written: head.segments });
        }
        let Some(path) = last.filter(|_| found > head.segments) else { return Ok(head) };
        match self.read(&path) {
            Ok(segment) if segment.header().number.checked_add(1) == Some(found) => {
                // What is in those between is not known, so nothing of what was seen is expected of the log any more.
                let header = segment.header();
                let items = if header.number == head.segments { header.items.into() } else { u64::MAX };
                let newer = ArchiveHead::of_segment(&segment)?.behind(Some(&head), items);
                self.exporter.files.keep(&newer, self.to.keys)?;
                Ok(newer)
            }
            Ok(_) | Err(ExportError::Foreign { .. }) => {
                tracing::warn!(
                    object = path,
                    "an object of the archive does not belong there and is not looked at; run `latent archive verify`"
                );
                Ok(head)
            }
            Err(error) => Err(error),
        }
    }

    /// The head of an archive whose head was never written down here, or was lost: its last segment, if it is proven.
    ///
    /// Then the log may be another one as well, in which the same uids stand for other events: what it still has of the archive is compared
    /// with it once, before anything leaves the log because of it.
    pub(super) fn find_in_store(&self, source: &dyn ItemSource) -> Result<Option<ArchiveHead>, ExportError> {
        let (_, Some(path)) = self.listed()? else { return Ok(None) };
        let segment = self.read(&path)?;
        let head = ArchiveHead::of_segment(&segment)?;
        self.compare_with_log(source, &head)?;
        self.exporter.files.keep(&head, self.to.keys)?;
        Ok(Some(head))
    }

    fn compare_with_log(&self, source: &dyn ItemSource, head: &ArchiveHead) -> Result<(), ExportError> {
        let (first, _) = source.bounds()?;
        let mut log = Beside { source, from: first, page: VecDeque::new() };
        for path in self.segments_from(first)? {
            for item in self.read(&path)?.items().skip_while(|item| item.as_ref().is_ok_and(|item| item.offset() < first)) {
                let item = item?;
                let is_other = |there: Item| there.record().zip(item.record()).is_some_and(|(there, archived)| !there.same_event(archived));
                if log.at(item.offset())?.is_some_and(is_other) {
                    let place = format!("{}/p{}", self.place.topic, self.place.partition);
                    let problem = format!("has another event than its archive at offset {}", item.offset());
                    return Err(ExportError::HistoryChanged { place, last: head.last, problem });
                }
            }
        }
        Ok(())
    }

    /// Paths of the segments that can have something at `first` or behind it.
    fn segments_from(&self, first: Offset) -> Result<Vec<String>, ExportError> {
        let mut paths = Vec::new();
        self.each_segment(|begins, path| {
            if begins <= first {
                paths.clear();
            }
            paths.push(path);
        })?;
        Ok(paths)
    }

    /// A segment of this partition that is in the store and proven.
    pub(super) fn read(&self, path: &str) -> Result<Segment, ExportError> {
        let foreign = |problem: &str| ExportError::Foreign { object: path.to_owned(), problem: problem.to_owned() };
        let bytes = self.to.store.get(path, limits::ARCHIVE_SEGMENT_OBJECT_BYTES.default)?;
        let bytes = bytes.ok_or_else(|| ExportError::Absent { object: path.to_owned() })?;
        let segment = Segment::open(bytes).map_err(|error| foreign(&error.to_string()))?;
        if segment.header().place != self.place {
            return Err(foreign("it is of another partition, topic or bus"));
        }
        match segment.attested(self.to.keys) {
            Attestation::Proven => Ok(segment),
            Attestation::Wrong => Err(foreign("its proof does not hold")),
            Attestation::UnknownKey => Err(foreign("it is proven with a key that is not in `[archive] control_key_files`")),
        }
    }
}
