//! Whether the machine is calm. Another program that computes makes a sync many times slower, for every engine alike, and then every
//! engine looks the same; such a slice says nothing about the engines.
//!
//! Before and after each slice some blocks are written and synced. A slice counts as disturbed when that took much longer than it took
//! at its best; it is done again while patience lasts, and taken as it is afterwards. Both are reported.

use std::fmt;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::engine::{Engine, Name};
use crate::event::Event;
use crate::failure::Failure;
use crate::scratch::Scratch;

/// Syncs of one probe.
const PROBE_SYNCS: usize = 15;
/// Probes before anything is measured.
const LEARNING_PROBES: usize = 12;
/// A probe this many times slower than the best one is a disturbance.
const DISTURBED_FACTOR: u32 = 3;
/// Between two probes of a machine that is not calm.
const PAUSE: Duration = Duration::from_millis(250);

/// What was found.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CalmReport {
    best: Duration,
    slices: usize,
    repeated: usize,
    disturbed: usize,
}

/// See the module.
pub(crate) struct Calm {
    floor: Box<dyn Engine>,
    block: Event,
    patience: Duration,
    report: CalmReport,
    _folder: TempDir,
}

impl Calm {
    /// Probes in a folder of its own, first for a while to learn how fast a sync can be.
    pub(crate) fn watch(scratch: &Scratch) -> Result<Self, Failure> {
        let folder = scratch.folder()?;
        let (floor, block) = (Name::Floor.open(folder.path())?, Event::numbered(0)?);
        let report = CalmReport { best: Duration::MAX, ..CalmReport::default() };
        let mut calm = Self { floor, block, patience: Duration::ZERO, report, _folder: folder };
        for _ in 0..LEARNING_PROBES {
            calm.is_calm()?;
            std::thread::park_timeout(PAUSE);
        }
        Ok(calm)
    }

    /// Begins a workload, which may wait at most `patience` in total.
    pub(crate) fn begin(&mut self, patience: Duration) {
        self.patience = patience;
        self.report = CalmReport { best: self.report.best, ..CalmReport::default() };
    }

    /// Runs a slice in a calm moment, or as calm a moment as patience allows.
    pub(crate) fn through(&mut self, mut slice: impl FnMut() -> Result<f64, Failure>) -> Result<f64, Failure> {
        self.report.slices += 1;
        loop {
            let started = Instant::now();
            let calm_before = self.is_calm()?;
            if !calm_before && !self.patience.is_zero() {
                std::thread::park_timeout(PAUSE);
                self.patience = self.patience.saturating_sub(started.elapsed());
                continue;
            }
            let rate = slice()?;
            if calm_before && self.is_calm()? {
                return Ok(rate);
            }
            if self.patience.is_zero() {
                self.report.disturbed += 1;
                return Ok(rate);
            }
            self.report.repeated += 1;
            self.patience = self.patience.saturating_sub(started.elapsed());
        }
    }

    pub(crate) fn report(&self) -> CalmReport {
        self.report
    }

    fn is_calm(&mut self) -> Result<bool, Failure> {
        let mut times = [Duration::ZERO; PROBE_SYNCS];
        for time in &mut times {
            let started = Instant::now();
            self.floor.publish(&self.block)?;
            *time = started.elapsed();
        }
        times.sort_unstable();
        let median = times.get(PROBE_SYNCS / 2).copied().unwrap_or(Duration::MAX);
        self.report.best = self.report.best.min(median);
        Ok(median <= self.report.best.saturating_mul(DISTURBED_FACTOR))
    }
}

impl fmt::Display for CalmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { best, slices, repeated, disturbed } = self;
        write!(
            f,
            "4 KiB and a sync at best: {} µs; of {slices} slices {repeated} were repeated and {disturbed} taken although disturbed",
            best.as_micros()
        )
    }
}
