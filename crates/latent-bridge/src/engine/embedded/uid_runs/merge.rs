//! Merging neighbouring runs into one. Streams: at any time it holds a page of each input, a chunk of the output, and its filter.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::page::{PAGE_BYTES, PageBytes};
use super::run::Run;
use super::store::RunStore;
use super::write::{CHUNK_PAGES, RunPlan, RunWriter};
use super::{SequenceRange, UidEntry};
use crate::{BusError, limits};

/// Runs that may be merged: sound, of one level, and without a gap between their ranges, so that their union covers what the result
/// will claim to cover. Made by [`super::UidRuns::merge_due`] alone.
pub(in super::super) struct MergePlan {
    inputs: Vec<Arc<Run>>,
    level: u32,
    range: SequenceRange,
    witness: u64,
}

impl MergePlan {
    /// `None` when these must not be merged. They are in the order of their first sequence.
    pub(super) fn of(runs: &[Arc<Run>]) -> Option<Self> {
        let (oldest, newest) = (runs.first()?, runs.last()?);
        let level = oldest.level();
        let fit = runs.len() == limits::UID_MERGE_RUNS.max_usize()
            && runs.iter().all(|run| run.level() == level && !run.is_damaged())
            && runs.iter().zip(runs.iter().skip(1)).all(|(run, following)| run.range().next == following.range().first);
        let range = SequenceRange { first: oldest.range().first, next: newest.range().next };
        fit.then(|| Self { inputs: runs.to_vec(), level, range, witness: newest.witness() })
    }

    /// The level of the runs that are merged.
    pub(in super::super) const fn level(&self) -> u32 {
        self.level
    }

    /// What the merged run will cover.
    #[cfg(test)]
    pub(super) const fn range(&self) -> SequenceRange {
        self.range
    }

    /// At least as many entries as are live from `first_live` on.
    fn entries_max(&self, first_live: u64) -> u64 {
        let of_run = |run: &Arc<Run>| {
            let live = run.range().next.saturating_sub(run.range().first.max(first_live));
            live.min(run.entries())
        };
        self.inputs.iter().map(of_run).fold(0, u64::saturating_add)
    }
}

impl RunStore {
    /// Merges runs into one of the next level, durably, without entries below `first_live`. The inputs stay as they are; the caller
    /// puts the result in their place with [`super::UidRuns::with`]. `between` is called for every 64 KiB that were read or written;
    /// when it breaks, the merge is given up, nothing of it stays, and the answer is `None`.
    ///
    /// # Errors
    /// [`BusError::Io`]. When a page of an input is damaged, that run says so from then on.
    pub(in super::super) fn merge(
        &self,
        plan: &MergePlan,
        first_live: u64,
        between: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Option<Arc<Run>>, BusError> {
        let MergePlan { range, witness, .. } = *plan;
        let planned = RunPlan { range, level: plan.level.saturating_add(1), witness, entries_max: plan.entries_max(first_live) };
        let mut writer = RunWriter::begin(self, planned)?;
        let mut sources = Sources::open(&plan.inputs)?;
        let mut pace = Pace { between, pages_next: CHUNK_PAGES };
        let mut last = None;
        while let Some(entry) = sources.next()? {
            if entry.sequence >= first_live && last != Some(entry) {
                writer.push(entry)?;
                last = Some(entry);
            }
            if pace.reached(writer.pages().saturating_add(sources.pages_read)).is_break() {
                return Ok(None);
            }
        }
        while writer.seal_next()? {
            if pace.reached(writer.pages().saturating_add(sources.pages_read)).is_break() {
                return Ok(None);
            }
        }
        let returning = plan.inputs.iter().map(|run| run.resident_filter_bytes()).fold(0, u64::saturating_add);
        writer.finish(returning).map(Some)
    }
}

/// Lets the caller in after every chunk of pages.
struct Pace<'b> {
    between: &'b mut dyn FnMut() -> ControlFlow<()>,
    /// Pages at which it is called next.
    pages_next: u64,
}

impl Pace<'_> {
    fn reached(&mut self, pages: u64) -> ControlFlow<()> {
        if pages < self.pages_next {
            return ControlFlow::Continue(());
        }
        self.pages_next = pages.saturating_add(CHUNK_PAGES);
        (self.between)()
    }
}

/// The entries of several runs as one sorted sequence.
struct Sources<'r> {
    sources: Vec<Source<'r>>,
    buffer: Box<PageBytes>,
    pages_read: u64,
}

/// One run, read page by page.
struct Source<'r> {
    run: &'r Run,
    /// The page after those that were read.
    number: u64,
    /// The rest of the page that was read last, reversed.
    rest: Vec<UidEntry>,
}

impl<'r> Sources<'r> {
    fn open(runs: &'r [Arc<Run>]) -> Result<Self, BusError> {
        let sources = runs.iter().map(|run| Source { run, number: 1, rest: Vec::new() }).collect();
        let mut opened = Self { sources, buffer: Box::new([0; PAGE_BYTES]), pages_read: 0 };
        for source in &mut opened.sources {
            opened.pages_read = opened.pages_read.saturating_add(source.fill(&mut opened.buffer)?);
        }
        Ok(opened)
    }

    fn next(&mut self) -> Result<Option<UidEntry>, BusError> {
        let least = self.sources.iter_mut().filter(|source| !source.rest.is_empty()).min_by_key(|source| source.rest.last().copied());
        let Some(source) = least else { return Ok(None) };
        let entry = source.rest.pop();
        self.pages_read = self.pages_read.saturating_add(source.fill(&mut self.buffer)?);
        Ok(entry)
    }
}

impl Source<'_> {
    /// Reads on when nothing is left of the last page. Returns how many pages that took.
    fn fill(&mut self, buffer: &mut PageBytes) -> Result<u64, BusError> {
        let first = self.number;
        while self.rest.is_empty() && self.number < self.run.header().entries_end() {
            let page = self.run.entry_page(self.number, buffer)?;
            self.rest.extend(page.entries());
            self.rest.reverse();
            self.number = self.number.saturating_add(1);
        }
        Ok(self.number.saturating_sub(first))
    }
}
