//! `measure`: every contender of a workload, interleaved: A B C …, then again, beginning one further each time, so that nobody always
//! follows the same neighbour. Every contender has a store of its own that stays open through all rounds.

use std::time::Duration;

use tempfile::TempDir;

use crate::calm::{Calm, CalmReport};
use crate::engine::Engine;
use crate::event::Batch;
use crate::failure::Failure;
use crate::scratch::Scratch;
use crate::workload::{BATCH_EVENTS, Contender, Workload};

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    /// Slices of every contender.
    pub(crate) rounds: usize,
    /// The longest a slice of writing may take.
    pub(crate) slice: Duration,
    /// Events that are stored before anything is read.
    pub(crate) stored: u64,
    /// How long a workload may wait in total for a calm machine.
    pub(crate) patience: Duration,
}

/// What one contender did in each round.
pub(crate) struct Series {
    pub(crate) contender: Contender,
    /// Events a second, by round.
    pub(crate) per_second: Vec<f64>,
}

/// A workload's series, the raw limit first.
pub(crate) struct Measured {
    pub(crate) series: Vec<Series>,
    pub(crate) calm: CalmReport,
}

struct Opened {
    contender: Contender,
    engine: Box<dyn Engine>,
    /// Last, so that it goes when the engine is closed.
    _folder: TempDir,
}

/// Measures one workload.
pub(crate) fn measure(workload: Workload, extent: Extent, scratch: &Scratch, calm: &mut Calm) -> Result<Measured, Failure> {
    let stored = extent.stored.next_multiple_of(BATCH_EVENTS as u64);
    let opened = workload.contenders().into_iter().map(|contender| open(contender, scratch)).collect::<Result<Vec<_>, _>>()?;
    if workload.needs_stored_events() {
        opened.iter().try_for_each(|opened| fill(&*opened.engine, stored))?;
    }
    calm.begin(extent.patience);
    let mut contenders: Vec<_> = opened.into_iter().map(|opened| (opened, Vec::with_capacity(extent.rounds))).collect();
    let mut first = 0;
    for _ in 0..extent.rounds {
        for (opened, rates) in &mut contenders {
            // A slice that something else on the machine fell into is done again, with events of its own.
            let rate = calm.through(|| {
                let material = workload.material(first, stored)?;
                first += material.events() as u64;
                workload.slice(opened.contender, &*opened.engine, &material, extent.slice)
            })?;
            rates.push(rate);
        }
        contenders.rotate_left(1);
    }
    let turns = extent.rounds % contenders.len().max(1);
    contenders.rotate_right(turns);
    let series = contenders.into_iter().map(|(opened, per_second)| Series { contender: opened.contender, per_second });
    Ok(Measured { series: series.collect(), calm: calm.report() })
}

fn open(contender: Contender, scratch: &Scratch) -> Result<Opened, Failure> {
    let folder = scratch.folder()?;
    Ok(Opened { contender, engine: contender.engine.open(folder.path())?, _folder: folder })
}

fn fill(engine: &dyn Engine, stored: u64) -> Result<(), Failure> {
    let mut batches = (0..stored).step_by(BATCH_EVENTS);
    batches.try_for_each(|first| {
        engine.prepare(BATCH_EVENTS)?;
        engine.publish_batch(&Batch::numbered_from(first, BATCH_EVENTS)?)
    })
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_workload_measures_each_contender_in_each_round() {
        let scratch = Scratch::in_folder(&std::env::temp_dir()).unwrap();
        let extent = Extent { rounds: 2, slice: Duration::from_millis(2), stored: 300, patience: Duration::ZERO };
        let mut calm = Calm::watch(&scratch).unwrap();
        for workload in Workload::value_variants() {
            let series = measure(*workload, extent, &scratch, &mut calm).unwrap().series;
            let order: Vec<_> = series.iter().map(|series| series.contender).collect();
            assert_eq!(order, workload.contenders());
            assert!(series.iter().all(|series| series.per_second.len() == 2), "{workload:?}");
        }
    }
}
