//! The measuring loop: both sides of a row in turns, each slice in a moment that is as calm as patience allows.

use std::path::Path;
use std::time::{Duration, Instant};

use super::calm::{After, Before, Calm};
use super::figure::Slice;
use super::floor::Floor;
use super::plan::Plan;
use super::row::{Measured, Row, RowSpec};
use super::scratch::{Memory, Scratch, remove};
use crate::error::CliError;
use crate::exit::ExitStatus;
use crate::stop::StopSignal;

/// Between two probes of a machine that is not calm.
const PAUSE: Duration = Duration::from_millis(100);

/// The two sides of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Ours,
    Reference,
}

/// Ours, reference, ours, reference, …
pub(super) fn order(rounds: usize) -> impl Iterator<Item = Side> {
    (0..rounds).flat_map(|_| [Side::Ours, Side::Reference])
}

/// What a row runs. Each call makes its material, then times one slice.
pub(super) struct Pair<'p> {
    pub(super) ours: Box<dyn FnMut() -> Result<Slice, CliError> + 'p>,
    pub(super) reference: Box<dyn FnMut() -> Result<Slice, CliError> + 'p>,
}

impl Pair<'_> {
    fn slice(&mut self, side: Side) -> Result<Slice, CliError> {
        match side {
            Side::Ours => (self.ours)(),
            Side::Reference => (self.reference)(),
        }
    }
}

/// One run of the bench: where it works, how much it does, and how calm it is.
pub(super) struct Session {
    pub(super) plan: Plan,
    pub(super) scratch: Scratch,
    pub(super) stop: StopSignal,
    calm: Calm,
    floor: Floor,
}

impl Session {
    /// In a new folder, which is removed at the end, also when the run hangs in a write and is told to stop.
    pub(super) fn in_new_folder(plan: Plan, parent: Option<&Path>, memory: Memory) -> Result<Self, CliError> {
        let scratch = Scratch::create(parent.unwrap_or(".".as_ref()), memory)?;
        let root = scratch.root().to_owned();
        let stop = StopSignal::install_then(move || {
            remove(&root);
            ExitStatus::Failed
        })?;
        Self::begin(plan, scratch, stop)
    }

    /// Learns how fast a small synced write is here.
    fn begin(plan: Plan, scratch: Scratch, stop: StopSignal) -> Result<Self, CliError> {
        let floor = Floor::create(&scratch.folder("floor")?)?;
        Self { plan, scratch, stop, calm: Calm::new(), floor }.learned()
    }

    /// The same run with another floor, by which it also tells whether the machine is calm.
    pub(super) fn on_floor(self, floor: Floor) -> Result<Self, CliError> {
        Self { calm: Calm::new(), floor, ..self }.learned()
    }

    fn learned(mut self) -> Result<Self, CliError> {
        for _ in 0..self.plan.learning_probes {
            let probe = self.floor.probe()?;
            self.calm.learn(probe);
            self.stop.wait(PAUSE / 4);
        }
        Ok(self)
    }

    /// What the floor takes in this run: unless said otherwise, a write of 4 KiB and its sync.
    pub(super) const fn floor(&self) -> &Floor {
        &self.floor
    }

    /// Measures one row.
    pub(super) fn row(&mut self, spec: RowSpec, mut pair: Pair<'_>) -> Result<Row, CliError> {
        self.calm.begin(self.plan.patience);
        let mut measured = Measured::default();
        for side in order(self.plan.rounds) {
            let slice = self.slice(&mut pair, side)?;
            match side {
                Side::Ours => measured.ours.push(slice),
                Side::Reference => measured.reference.push(slice),
            }
        }
        measured.calm = self.calm.report();
        let doing = format!("measuring {} ({})", spec.id, spec.case);
        let nothing = || CliError::Bench { doing, reason: "a slice did nothing at all".to_owned() };
        Row::of(spec, measured, self.floor.median_micros(), self.plan.judging).ok_or_else(nothing)
    }

    /// Measures one row whose figures are not times of slices. How calm it is says nothing of them.
    pub(super) fn figures(
        &mut self,
        spec: RowSpec,
        mut ours: impl FnMut() -> Result<f64, CliError>,
        mut reference: impl FnMut() -> Result<f64, CliError>,
    ) -> Result<Row, CliError> {
        let (mut ours_figures, mut reference_figures) = (Vec::new(), Vec::new());
        for side in order(self.plan.rounds) {
            interrupted(&self.stop)?;
            match side {
                Side::Ours => ours_figures.push(ours()?),
                Side::Reference => reference_figures.push(reference()?),
            }
        }
        let doing = format!("measuring {} ({})", spec.id, spec.case);
        let nothing = || CliError::Bench { doing, reason: "nothing was measured".to_owned() };
        let figures = (&*ours_figures, &*reference_figures);
        Row::of_figures(spec, figures, self.floor.median_micros(), self.plan.judging).ok_or_else(nothing)
    }

    fn slice(&mut self, pair: &mut Pair<'_>, side: Side) -> Result<Slice, CliError> {
        loop {
            interrupted(&self.stop)?;
            let started = Instant::now();
            let before = self.calm.before(self.floor.probe()?);
            if before == Before::Wait {
                self.stop.wait(PAUSE);
                self.calm.spend(started.elapsed());
                continue;
            }
            let slice = pair.slice(side)?;
            if self.calm.after(before, self.floor.probe()?) == After::Keep {
                return Ok(slice);
            }
            self.calm.spend(started.elapsed());
        }
    }
}

/// # Errors
/// [`CliError::Interrupted`] after a signal.
pub(super) fn interrupted(stop: &StopSignal) -> Result<(), CliError> {
    if stop.is_set() { Err(CliError::Interrupted { what: "the measurement" }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sides_take_turns() {
        use Side::{Ours, Reference};
        assert_eq!(order(3).collect::<Vec<_>>(), [Ours, Reference, Ours, Reference, Ours, Reference]);
        assert_eq!(order(0).count(), 0);
    }
}
