//! Runs the log's maintenance, one at a time, and not by a clock that jumped. When it runs is decided elsewhere: by a command, or by
//! the node's timer.

use std::sync::{Arc, Mutex, PoisonError};

use latent_bridge::{BusError, EventBus, MaintenanceReport};
use latent_node::Hold;

use crate::host::{ClockWatch, HostFileError, held_words};

/// Why nothing was maintained, or not everything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MaintainError {
    /// The log could not.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The wall clock is not believed, and what is old is told by it.
    #[error("retention is held: {}", held_words(.0))]
    Held(Hold),
    /// What the clock said before cannot be looked at.
    #[error(transparent)]
    Host(#[from] HostFileError),
}

impl MaintainError {
    /// The name used in machine-readable output and `docs/errors.md`.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Bus(error) => error.kind(),
            Self::Held(_) => "clock-held",
            Self::Host(error) => error.kind(),
        }
    }
}

/// A log and the clock its maintenance goes by.
pub(crate) struct Maintainer {
    bus: Arc<dyn EventBus>,
    watch: Arc<ClockWatch>,
    /// Held while one runs. Whoever comes meanwhile waits and then runs another, which finds little to do.
    running: Mutex<()>,
}

impl Maintainer {
    /// Maintenance of `bus`.
    pub(crate) fn new(bus: Arc<dyn EventBus>, watch: Arc<ClockWatch>) -> Self {
        Self { bus, watch, running: Mutex::new(()) }
    }

    /// Runs it now. Blocks for as long as it takes, so never call it on an executor's thread.
    ///
    /// # Errors
    /// The bus's, and [`MaintainError::Held`]: nothing was done then.
    pub(crate) fn run(&self) -> Result<MaintenanceReport, MaintainError> {
        let _alone = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.watch.believed_now().map_err(MaintainError::Held)?;
        Ok(self.bus.maintain(now)?)
    }

    /// The last words of a process that stops.
    pub(crate) fn close(&self) {
        self.watch.close();
    }
}
