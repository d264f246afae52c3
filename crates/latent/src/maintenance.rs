//! Runs the log's maintenance, one at a time. When it runs is decided elsewhere: by a command, or by the node's timer.

use std::sync::{Arc, Mutex, PoisonError};

use latent_bridge::{BusError, EventBus, MaintenanceReport};
use latent_core::Clock;

/// A log and the clock its maintenance goes by.
pub(crate) struct Maintainer {
    bus: Arc<dyn EventBus>,
    clock: Arc<dyn Clock>,
    /// Held while one runs. Whoever comes meanwhile waits and then runs another, which finds little to do.
    running: Mutex<()>,
}

impl Maintainer {
    /// Maintenance of `bus`.
    pub(crate) fn new(bus: Arc<dyn EventBus>, clock: Arc<dyn Clock>) -> Self {
        Self { bus, clock, running: Mutex::new(()) }
    }

    /// Runs it now. Blocks for as long as it takes, so never call it on an executor's thread.
    ///
    /// # Errors
    /// The bus's.
    pub(crate) fn run(&self) -> Result<MaintenanceReport, BusError> {
        let _alone = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        self.bus.maintain(self.clock.unix())
    }
}
