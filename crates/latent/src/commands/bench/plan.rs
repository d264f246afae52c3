//! How much is measured.

use std::time::Duration;

use super::row::Judging;

/// Publishers at once.
pub(super) const PUBLISHERS: usize = 16;
/// Events of one batch.
pub(super) const BATCH_EVENTS: usize = 256;
/// Events of one page.
pub(super) const PAGE_EVENTS: usize = 1_000;

/// Bounds of every row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// Slices of each side.
    pub(super) rounds: usize,
    /// The longest that a slice of publications takes; it ends earlier when its events are used up.
    pub(super) slice: Duration,
    /// Events of a slice that publishes one at a time.
    pub(super) singles_max: usize,
    /// Events of each of several publishers in a slice.
    pub(super) publisher_events_max: usize,
    /// Batches of a slice.
    pub(super) batches_max: usize,
    /// Records in the large log. The small one has a tenth.
    pub(super) records: u64,
    /// Events that are read in a row of reading, and those of the large kind.
    pub(super) read_events: u64,
    pub(super) read_large_events: u64,
    /// Look-ups of a slice.
    pub(super) lookups: usize,
    /// Pages of a slice that reads here and there.
    pub(super) pages: usize,
    /// Publications of a slice that publishes on a broker.
    pub(super) publications: u32,
    /// Messages of a slice that wakes a function of a broker's.
    pub(super) wake_ups: u64,
    /// How long one look at what is idle takes.
    pub(super) idle: Duration,
    /// Batches that are stored before a kill.
    pub(super) killed_batches: u64,
    /// How long a row may wait in total for a calm machine.
    pub(super) patience: Duration,
    /// Probes before anything is measured.
    pub(super) learning_probes: usize,
    pub(super) judging: Judging,
}

impl Plan {
    /// What figures are taken from.
    pub(super) const fn full(records: u64) -> Self {
        Self {
            rounds: 7,
            slice: Duration::from_millis(200),
            singles_max: 4_000,
            publisher_events_max: 2_000,
            batches_max: 100,
            records,
            read_events: if records / 10 < 100_000 { records / 10 } else { 100_000 },
            read_large_events: 5_000,
            lookups: 4_000,
            pages: 40,
            publications: 2_000,
            wake_ups: 12,
            idle: Duration::from_secs(2),
            killed_batches: 16,
            patience: Duration::from_secs(5),
            learning_probes: 12,
            judging: Judging::Judged,
        }
    }

    /// Everything once, as little as there can be: whether it works, not how fast it is.
    pub(super) const fn quick() -> Self {
        Self {
            rounds: 2,
            slice: Duration::from_millis(20),
            singles_max: 20,
            publisher_events_max: 4,
            batches_max: 2,
            records: 2_000,
            read_events: 200,
            read_large_events: 20,
            lookups: 20,
            pages: 2,
            publications: 20,
            wake_ups: 1,
            idle: Duration::from_millis(20),
            killed_batches: 1,
            patience: Duration::ZERO,
            learning_probes: 1,
            judging: Judging::NotJudged,
        }
    }
}
