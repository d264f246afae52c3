//! what bindings cost that have nothing to do, as the system counts it.

use std::ops::Range;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::super::super::measure::interrupted;
use super::super::super::publish::{broken, sockets};
use super::ours::{Half, Installed, Running, STALL};
use crate::error::CliError;
use crate::stop::StopSignal;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(1);

/// What was held, and used in a while.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) sockets: usize,
    pub(super) tasks: usize,
    /// Time of all processors in a second.
    pub(super) cpu: Duration,
    /// From one visit of a binding to its next.
    pub(super) round: Duration,
}

/// Triggers of some consumers, which run while they are measured.
pub(super) struct Idle<'h> {
    pub(super) half: &'h Half,
    installed: Option<Installed>,
    bindings: u64,
}

impl<'h> Idle<'h> {
    pub(super) fn of(half: &'h Half, installed: Installed, numbers: &Range<usize>) -> Self {
        Self { half, installed: Some(installed), bindings: numbers.len() as u64 }
    }

    /// Runs them for this long, after the first round.
    pub(super) fn held(&mut self, time: Duration, stop: &StopSignal) -> Result<Held, CliError> {
        let Some(installed) = self.installed.take() else { return Err(broken("measuring Q-23", &"an earlier measurement failed")) };
        let running = self.half.run(installed);
        let held = self.of_running(&running, time, stop);
        let visits = running.monitor.snapshot();
        self.installed = Some(self.half.stop(running)?);
        if visits.pulls > 0 || visits.failed > 0 {
            return Err(broken("measuring Q-23", &format!("idle bindings did something: {visits:?}")));
        }
        held
    }

    fn of_running(&self, running: &Running, time: Duration, stop: &StopSignal) -> Result<Held, CliError> {
        let inspections = || running.monitor.snapshot().inspections;
        let until = |count: u64| {
            let since = Instant::now();
            while inspections() < count {
                interrupted(stop)?;
                if since.elapsed() > STALL {
                    return Err(broken("measuring Q-23", &format!("the bindings are not visited: {:?}", running.monitor.snapshot())));
                }
                std::thread::sleep(LOOK);
            }
            Ok(())
        };
        let first = inspections();
        until(first + self.bindings)?;
        let (started, cpu, before) = (Instant::now(), cpu_time(), inspections());
        while started.elapsed() < time {
            interrupted(stop)?;
            std::thread::sleep(LOOK.max(time / 50));
        }
        let (elapsed, cpu) = (started.elapsed(), cpu_time().saturating_sub(cpu));
        // At least one, so that a look that is shorter than a rest has a figure too.
        let rounds = (inspections() - before).max(1) as f64 / self.bindings as f64;
        Ok(Held { sockets: sockets()?, tasks: self.half.tasks(), cpu: cpu.div_f64(elapsed.as_secs_f64()), round: elapsed.div_f64(rounds) })
    }
}

/// Processor time of this process so far.
pub(in super::super) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
