//! The floor: what nothing that is measured can be faster than. For a log that is one block, written in place and synced; a bench of
//! something else brings its own.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::failed;
use super::figure::{Latency, percentile};
use crate::error::CliError;

const BLOCK_BYTES: usize = 4_096;
/// Times taken by one probe.
const PROBE_TIMES: usize = 15;
/// Times that are kept for the percentiles.
const TIMES_MAX: usize = 100_000;

/// See the module.
pub(super) struct Floor {
    once: Box<dyn FnMut() -> Result<(), CliError>>,
    times: Vec<Duration>,
}

impl Floor {
    /// A block in a new file in `folder`, synced.
    pub(super) fn create(folder: &Path) -> Result<Self, CliError> {
        let file = File::options().write(true).create_new(true).open(folder.join("block")).map_err(failed("making the floor's file"))?;
        file.write_all_at(&[0; BLOCK_BYTES], 0).and_then(|()| file.sync_all()).map_err(failed("writing the floor's block"))?;
        let mut number = 0_u8;
        Ok(Self::of(move || {
            number = number.wrapping_add(1);
            let written = file.write_all_at(&[number; BLOCK_BYTES], 0).and_then(|()| file.sync_data());
            written.map_err(failed("writing the floor's block"))
        }))
    }

    /// Whatever `once` does once.
    pub(super) fn of(once: impl FnMut() -> Result<(), CliError> + 'static) -> Self {
        Self { once: Box::new(once), times: Vec::new() }
    }

    /// The median of some times.
    pub(super) fn probe(&mut self) -> Result<Duration, CliError> {
        let mut times = [Duration::ZERO; PROBE_TIMES];
        for time in &mut times {
            let started = Instant::now();
            (self.once)()?;
            *time = started.elapsed();
        }
        let room = TIMES_MAX.saturating_sub(self.times.len());
        self.times.extend(times.iter().take(room));
        times.sort_unstable();
        Ok(percentile(&times, 50).unwrap_or_default())
    }

    /// Of every time so far.
    pub(super) fn latency(&self) -> Option<Latency> {
        Latency::of(self.times.clone())
    }

    pub(super) fn median_micros(&self) -> f64 {
        self.latency().map_or(0.0, |latency| latency.p50)
    }
}
