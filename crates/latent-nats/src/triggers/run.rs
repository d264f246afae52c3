//! The one loop (T-015): whose turn, a visit, and a rest when nothing was found.

use std::sync::Arc;
use std::time::Duration;

use latent_node::LocalActivationManager;
use tokio::sync::watch;

use super::install::{Installed, NatsTriggers};
use super::report::LastStep;
use super::rotation::{Found, pause_millis};
use super::stop::Stop;
use super::visit::visit;

/// What one step came to. It never sleeps: waits belong to whoever drives (D-14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a step says whether there was work"]
pub enum StepOutcome {
    /// The broker has nothing for this binding, so it was not pulled from (T-062).
    Idle {
        /// The binding's place in the configuration.
        binding: usize,
    },
    /// Its one message waits for its delay (D-26).
    Delayed {
        /// The binding's place in the configuration.
        binding: usize,
    },
    /// It was pulled from and nothing came.
    Empty {
        /// The binding's place in the configuration.
        binding: usize,
    },
    /// A message was handled, or something failed.
    Reported(LastStep),
    /// The stop signal came before anything was handed out.
    Stopped,
    /// Another epoch was installed in its place, or the pools were shut down: nothing is begun any more.
    Retired,
}

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// The stop signal, or its sender is gone.
    Stopped,
    /// Another epoch was installed in its place, or the pools were shut down.
    Retired,
}

impl NatsTriggers {
    /// Drives all bindings until `stop` says true or its sender is gone, and returns when everything that was begun has ended and every
    /// connection is closed (T-015, T-018, T-060).
    ///
    /// A failure ends nothing: it is recorded, its binding is left alone for a poll interval, or for nine times as long as it kept the others
    /// waiting, and the others go on (T-054, D-14). Dropping
    /// the future closes the socket that it holds and leaves what was delivered unsettled; an activation that was begun ends by itself.
    pub async fn run(&mut self, manager: &Arc<LocalActivationManager>, stop: watch::Receiver<bool>) -> RunEnd {
        self.run_with(manager, Stop::never(), Stop::on(stop)).await
    }

    /// The same for a node that drains: when `drain` says true, nothing new is begun, and what is under way ends and is settled by its
    /// outcome, unless `stop` comes first.
    pub async fn run_draining(
        &mut self,
        manager: &Arc<LocalActivationManager>,
        drain: watch::Receiver<bool>,
        stop: watch::Receiver<bool>,
    ) -> RunEnd {
        self.run_with(manager, Stop::on(drain), Stop::on(stop)).await
    }

    async fn run_with(&mut self, manager: &Arc<LocalActivationManager>, mut drain: Stop, mut stop: Stop) -> RunEnd {
        let _driver = Driver::of(&self.installed);
        self.drive(manager, &mut drain, &mut stop).await
    }

    async fn drive(&mut self, manager: &Arc<LocalActivationManager>, drain: &mut Stop, stop: &mut Stop) -> RunEnd {
        let interval = self.installed.config.poll_interval_millis();
        loop {
            if stop.is_given() || drain.is_given() {
                return RunEnd::Stopped;
            }
            let Some(binding) = self.rotation.next_due(self.installed.client.clock.mono()) else {
                let rest = drain.race(tokio::time::sleep(Duration::from_millis(interval)));
                if stop.race(rest).await.flatten().is_none() {
                    return RunEnd::Stopped;
                }
                self.rotation.begin_sweep();
                continue;
            };
            let begun = self.installed.client.clock.mono();
            let outcome = visit(&self.installed, binding, manager, stop).await;
            let now = self.installed.client.clock.mono();
            let took_millis = u64::try_from(now.since(begun).as_millis()).unwrap_or(u64::MAX);
            let in_vain = Found::Failure { not_before: now.plus_millis(pause_millis(interval, took_millis)) };
            let found = match outcome {
                StepOutcome::Idle { .. } | StepOutcome::Delayed { .. } => Found::Nothing,
                StepOutcome::Empty { .. } => in_vain,
                StepOutcome::Reported(step) if step.handed.is_some() && step.is_settled() => Found::Work,
                // Its function took the time.
                StepOutcome::Reported(step) if step.handed.is_some() => Found::Failure { not_before: now.plus_millis(interval) },
                StepOutcome::Reported(_) => in_vain,
                StepOutcome::Stopped => return RunEnd::Stopped,
                StepOutcome::Retired => return RunEnd::Retired,
            };
            self.rotation.visited(binding, found);
        }
    }

    /// Visits the next binding in turn: at most one message and one activation (T-016). Pauses after failures are the loop's own.
    pub async fn step(&mut self, manager: &Arc<LocalActivationManager>) -> StepOutcome {
        let Some(binding) = self.rotation.next() else { return StepOutcome::Retired };
        self.installed.board.driven();
        visit(&self.installed, binding, manager, &mut Stop::never()).await
    }
}

/// Whoever drives, until it ends or is dropped.
struct Driver(Arc<Installed>);

impl Driver {
    fn of(installed: &Arc<Installed>) -> Self {
        installed.board.driven();
        Self(Arc::clone(installed))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.close_idle();
    }
}

impl LastStep {
    const fn is_settled(&self) -> bool {
        matches!(self.end, super::StepEnd::Settled { .. })
    }
}
