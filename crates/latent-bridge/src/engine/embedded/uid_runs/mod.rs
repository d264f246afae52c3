//! Which uid may lie where in a topic's log, on disk: immutable runs of entries sorted by hash, merged as they become many.
//!
//! Everything here is derived from the log and can be made again from it. So nothing is believed blindly: a page is read only when its
//! checksum fits, and an entry is a candidate that the caller compares with the record. What may not happen is that an entry is not
//! found without an error: hence a run claims a range of sequences, and has every record of it that was live when it was made; and it
//! has a witness by which the caller notices that it was made from another history of the log.
//!
//! This file has the set of runs and its decisions, all of them pure. `store` opens and removes files, `write` and `merge` make them,
//! `run` reads one. Lookups take memory for one page; what stays in memory are headers and the filters that fit a [`FilterBudget`].

mod budget;
pub(super) mod filter;
pub(super) mod header;
mod merge;
pub(super) mod page;
mod run;
mod store;
#[cfg(test)]
mod tests;
mod write;

use std::ops::ControlFlow;
use std::sync::Arc;

pub(super) use budget::FilterBudget;
pub(super) use merge::MergePlan;
pub(super) use run::Run;
pub(super) use store::{RunStore, run_name};
pub(super) use write::RunToWrite;

use crate::BusError;

/// Keyed hash of a uid. Evenly distributed, and since its key is known to nobody, nobody can choose uids that share one or lie close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct UidHash(pub(super) u64);

impl UidHash {
    /// The number of the part in which this hash lies when all hashes are divided into `parts` even ones. In the order of the hashes.
    const fn part_of(self, parts: u64) -> u64 {
        ((self.0 as u128 * parts as u128) >> 64) as u64
    }
}

/// Where a record with this hash may lie. Ordered as in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UidEntry {
    pub(super) hash: UidHash,
    /// The record's sequence in its topic.
    pub(super) sequence: u64,
    /// Byte position of the record in its segment.
    pub(super) at: u32,
}

/// The sequences `first..next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SequenceRange {
    pub(super) first: u64,
    pub(super) next: u64,
}

impl SequenceRange {
    const fn contains(self, other: Self) -> bool {
        self.first <= other.first && other.next <= self.next
    }

    const fn is_empty(self) -> bool {
        self.first >= self.next
    }

    /// The part of it that is not expired.
    const fn live(self, first_live: u64) -> Self {
        Self { first: if self.first < first_live { first_live } else { self.first }, next: self.next }
    }
}

/// The runs of one topic as they are at one moment, ordered by their first sequence. Cheap to clone; the writer replaces it as a whole.
#[derive(Clone, Default)]
pub(super) struct UidRuns(Arc<[Arc<Run>]>);

/// A set of runs that takes the place of another.
pub(super) struct Successor {
    pub(super) runs: UidRuns,
    /// No longer in the set. Their files are to be removed before another run is written; who still reads them can go on.
    pub(super) dropped: Vec<Arc<Run>>,
}

impl UidRuns {
    fn new(mut runs: Vec<Arc<Run>>) -> Self {
        runs.sort_by_key(|run| run.range());
        Self(runs.into())
    }

    /// The runs in the order of their first sequence.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Run>> {
        self.0.iter()
    }

    /// Hands every entry with this hash and a sequence of at least `first_live` to `take`, newest run first, until it breaks. The same
    /// entry may come twice.
    ///
    /// # Errors
    /// [`BusError::Io`] when a page cannot be read or is damaged. Its run says so from then on, see [`Run::is_damaged`]; what was
    /// handed over until then is as good as ever.
    pub(super) fn candidates(
        &self,
        hash: UidHash,
        first_live: u64,
        take: &mut dyn FnMut(UidEntry) -> ControlFlow<()>,
    ) -> Result<(), BusError> {
        for run in self.iter().rev() {
            if run.candidates(hash, first_live, take)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The parts of `live` that no sound run covers, in order. They must be made again from the log before "not found" means anything.
    pub(super) fn uncovered(&self, live: SequenceRange) -> Vec<SequenceRange> {
        let mut gaps = Vec::new();
        let mut reached = live.first;
        for range in self.iter().filter(|run| !run.is_damaged()).map(|run| run.range()) {
            if range.next <= reached {
                continue;
            }
            if range.first >= live.next {
                break;
            }
            gaps.push(SequenceRange { first: reached, next: range.first });
            reached = range.next;
        }
        gaps.push(SequenceRange { first: reached, next: live.next });
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }

    /// With a run more, without those whose range it contains. One of exactly the same range is not among the dropped: the new run's
    /// file has taken the place of its file.
    pub(super) fn with(&self, run: Arc<Run>) -> Successor {
        let range = run.range();
        let (replaced, mut kept) = self.split(|old| range.contains(old.range()));
        kept.push(run);
        let dropped = replaced.into_iter().filter(|old| old.range() != range).collect();
        Successor { runs: Self::new(kept), dropped }
    }

    /// Without the runs of which `unwanted` is true, for instance those whose witness does not fit the log. `None` when there is none.
    pub(super) fn without(&self, unwanted: impl Fn(&Run) -> bool) -> Option<Successor> {
        let (dropped, kept) = self.split(unwanted);
        (!dropped.is_empty()).then(|| Successor { runs: Self::new(kept), dropped })
    }

    /// Without the runs nobody needs when `first_live` is the first sequence that is not expired: those that cover nothing live, and
    /// damaged ones whose live part sound ones cover by now. `None` when all are needed.
    pub(super) fn pruned(&self, first_live: u64) -> Option<Successor> {
        self.without(|run| {
            let live = run.range().live(first_live);
            live.is_empty() || (run.is_damaged() && self.uncovered(live).is_empty())
        })
    }

    /// What to merge next: the oldest neighbours of one level, of the lowest level first. Damaged runs are left alone.
    pub(super) fn merge_due(&self) -> Option<MergePlan> {
        let plans = self.0.windows(crate::limits::UID_MERGE_RUNS.max_usize()).filter_map(MergePlan::of);
        plans.min_by_key(MergePlan::level)
    }

    /// Loads filters that are not in memory while the budget lasts, newest runs first. A filter that cannot be loaded is done without.
    pub(super) fn load_filters(&self, budget: &FilterBudget) {
        self.iter().rev().for_each(|run| run.load_filter(budget));
    }

    /// Those of which `chosen` is true, and the others.
    fn split(&self, chosen: impl Fn(&Run) -> bool) -> (Vec<Arc<Run>>, Vec<Arc<Run>>) {
        self.iter().cloned().partition(|run| chosen(run))
    }
}
