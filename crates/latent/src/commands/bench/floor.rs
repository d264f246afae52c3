//! The floor: one block, written in place and synced. What no durable commit on this disk can be faster than.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::failed;
use super::figure::{Latency, percentile};
use crate::error::CliError;

const BLOCK_BYTES: usize = 4_096;
/// Syncs of one probe.
const PROBE_SYNCS: usize = 15;
/// Times that are kept for the percentiles.
const TIMES_MAX: usize = 100_000;

/// See the module.
pub(super) struct Floor {
    file: File,
    times: Vec<Duration>,
}

impl Floor {
    /// Makes its file in `folder`.
    pub(super) fn create(folder: &Path) -> Result<Self, CliError> {
        let file = File::options().write(true).create_new(true).open(folder.join("block")).map_err(failed("making the floor's file"))?;
        file.write_all_at(&[0; BLOCK_BYTES], 0).and_then(|()| file.sync_all()).map_err(failed("writing the floor's block"))?;
        Ok(Self { file, times: Vec::new() })
    }

    /// The median of some writes with their syncs.
    pub(super) fn probe(&mut self) -> Result<Duration, CliError> {
        let mut times = [Duration::ZERO; PROBE_SYNCS];
        for (number, time) in (0_u8..).zip(&mut times) {
            let started = Instant::now();
            let written = self.file.write_all_at(&[number; BLOCK_BYTES], 0).and_then(|()| self.file.sync_data());
            written.map_err(failed("writing the floor's block"))?;
            *time = started.elapsed();
        }
        let room = TIMES_MAX.saturating_sub(self.times.len());
        self.times.extend(times.iter().take(room));
        times.sort_unstable();
        Ok(percentile(&times, 50).unwrap_or_default())
    }

    /// Of every write so far.
    pub(super) fn latency(&self) -> Option<Latency> {
        Latency::of(self.times.clone())
    }

    pub(super) fn median_micros(&self) -> f64 {
        self.latency().map_or(0.0, |latency| latency.p50)
    }
}
