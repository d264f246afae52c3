//! An export of a log that removes events by itself: what is gone before it was archived is written down by name, told once, and exporting
//! goes on behind it. What is written down is decided in `lookout`.

use std::sync::atomic::Ordering;

use latent_core::UnixMillis;

use super::lookout::{LogSpan, Lookout, Seen, Tally};
use super::{ArchiveHead, Export, ExportError, ItemSource, Known};
use crate::cold::segment::Hole;

/// What an export knows of the log that it reads.
#[derive(Clone, Copy)]
pub(super) struct Looking<'s> {
    pub(super) source: &'s dyn ItemSource,
    /// The log when it was first looked at in this export; none of one that keeps what is not archived.
    pub(super) span: Option<LogSpan>,
    pub(super) now: UnixMillis,
}

impl Export<'_> {
    /// Before anything is read: what was removed since the last time? A partition that was never looked at begins here.
    pub(super) fn look(&mut self, known: &mut Known, looking: Looking<'_>) -> Result<(), ExportError> {
        let Some(span) = looking.span else { return Ok(()) };
        let head = known.head().cloned().unwrap_or_else(|| ArchiveHead::before_any(self.place.clone()));
        if head.lookout.is_none() {
            return self.keep(known, ArchiveHead { lookout: Some(Lookout::begin(span, head.end())), ..head });
        }
        head.check_end(span)?;
        self.note_removed(known, span, false, looking.now)
    }

    /// After the partition was read as far as its next segment goes: is what was seen before among it, and did anything go meanwhile?
    pub(super) fn account(&mut self, known: &mut Known, looking: Looking<'_>, tally: Tally) -> Result<(), ExportError> {
        if looking.span.is_none() {
            return Ok(());
        }
        if let Some((mut head, mut lookout)) = known.lookout()
            && let Some(hole) = lookout.read(tally, looking.now)
        {
            head.lookout = Some(lookout);
            self.lose(known, head, hole)?;
        }
        looking.source.span()?.map_or(Ok(()), |span| self.note_removed(known, span, true, looking.now))
    }

    /// At the end of a pass: `waiting` is what it read and left, or did not need to read. Written down when it is another than before.
    pub(super) fn settle(&mut self, known: &mut Known, looking: Looking<'_>, was_read: bool) -> Result<(), ExportError> {
        let (Some(span), Some(waiting)) = (looking.span, known.waiting) else { return Ok(()) };
        if !was_read && waiting.first.is_some() {
            return Ok(());
        }
        let Some((head, mut lookout)) = known.lookout() else { return Ok(()) };
        lookout.waits(span, known.seen);
        if head.lookout == Some(lookout) {
            return Ok(());
        }
        if !was_read {
            // Nothing new was there when it was asked, which was after `span`: but was it, before?
            let now = looking.source.span()?;
            now.map_or(Ok(()), |span| self.note_removed(known, span, true, looking.now))?;
        }
        let Some((head, mut lookout)) = known.lookout() else { return Ok(()) };
        lookout.waits(span, known.seen);
        self.keep(known, ArchiveHead { lookout: Some(lookout), ..head })
    }

    fn note_removed(&mut self, known: &mut Known, span: LogSpan, is_read: bool, now: UnixMillis) -> Result<(), ExportError> {
        let Some((mut head, mut lookout)) = known.lookout() else { return Ok(()) };
        let Some(hole) = lookout.removed(span, is_read, now) else { return Ok(()) };
        head.lookout = Some(lookout);
        self.lose(known, head, hole)
    }

    /// Durable first, then told: so it is told once, and a process that ends between leaves it to whoever asks for the status.
    fn lose(&mut self, known: &mut Known, mut head: ArchiveHead, hole: Hole) -> Result<(), ExportError> {
        head.holes.note(hole, head.segments);
        self.keep(known, head)?;
        // What waits is read again.
        known.waiting = None;
        self.done.holes += 1;
        self.exporter.holes.fetch_add(1, Ordering::SeqCst);
        let (topic, partition) = (self.place.topic.as_str(), self.place.partition.0);
        let (first, last, problem) = (hole.first.0, hole.last.0, hole.problem());
        tracing::error!(topic, partition, first, last, problem, "the archive of a partition has a hole");
        Ok(())
    }

    pub(super) fn keep(&self, known: &mut Known, head: ArchiveHead) -> Result<(), ExportError> {
        self.exporter.files.keep(&head, self.to.keys)?;
        known.head = Some(Some(head));
        Ok(())
    }
}

impl Known {
    fn lookout(&self) -> Option<(ArchiveHead, Lookout)> {
        let head = self.head()?;
        Some((head.clone(), head.lookout?))
    }

    /// What of the partition had been seen, and is not archived.
    pub(super) fn expected(&self) -> Option<Seen> {
        self.head()?.lookout?.seen
    }
}
