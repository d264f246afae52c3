//! Taking the configuration in again while the node runs: all of it or nothing.
//!
//! ```text
//! read ─▶ compare ─▶ components, handlers, memory of new triggers ─▶ epoch? ─▶ leaving triggers out ─▶ publish, grant ─▶ coming triggers in
//!  └──────── everything that can be refused; nothing has changed ────────┘    └──────── nothing here can be refused ────────┘
//! ```
//! A trigger that changes is taken out, which waits for what it has begun, and comes back where it was. A service whose component changed
//! keeps its triggers: its route moves, and what is under way ends on what it began with.

mod difference;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};

use latent_bridge::EventBus as _;
use latent_core::Partition;
use latent_node::delivery::{Changed, DeliveryHandle};

use super::assembly::{BindingParts, Declared, check_handlers};
use super::composition::{Admitted, Composition};
use crate::config::settings::TriggerConfig;
use crate::config::{self, Config, NamedFiles};
use crate::control::{Difference, Fault, ReloadOrder, Reloaded};
use crate::error::CliError;
use difference::{Differences, differences};

/// The configuration in force, and what it takes to put another one in force.
pub(super) struct Reloader {
    in_force: RwLock<Arc<Config>>,
    /// Held by the one reload there can be at a time.
    turn: Mutex<()>,
    composition: Arc<Composition>,
    bindings: BindingParts,
    deliveries: DeliveryHandle,
}

/// A configuration that nothing can refuse any more.
struct Ready {
    config: Config,
    services: Vec<Admitted>,
    coming: Vec<Declared>,
    leaving: BTreeSet<latent_core::BindingId>,
    changes: Vec<Difference>,
}

impl Reloader {
    pub(super) fn new(config: Config, composition: Arc<Composition>, bindings: BindingParts, deliveries: DeliveryHandle) -> Self {
        Self { in_force: RwLock::new(Arc::new(config)), turn: Mutex::new(()), composition, bindings, deliveries }
    }

    /// The configuration in force.
    pub(super) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the file in again, on a thread that may block: until new components are compiled and changed triggers have ended what they
    /// had begun.
    ///
    /// # Errors
    /// Why not, as a fault; nothing has changed then.
    pub(super) fn reload(&self, order: ReloadOrder) -> Result<Reloaded, Fault> {
        let _turn = self.take_turn()?;
        let now = self.config();
        let epoch = self.composition.epoch();
        if let Some(expected) = order.expected_epoch.filter(|expected| *expected != epoch) {
            let message = format!("the configuration in force has epoch {epoch}, not {expected}; look at what it is and decide again");
            return Err(Fault::refused("epoch-conflict", message));
        }
        let next = config::load(&now.path, NamedFiles::ComponentsMustExist).map_err(|error| fault(&CliError::Config(error)))?.config;
        let file = now.path.display().to_string();
        let ready = self.prepare(&now, next)?;
        if order.dry_run || ready.changes.is_empty() {
            return Ok(Reloaded { file, epoch, applied: false, changes: ready.changes });
        }
        let changes = ready.changes.clone();
        let epoch = self.put_in_force(&now, ready)?;
        changes.iter().for_each(|change| tracing::info!(epoch, %change, "configuration reloaded"));
        Ok(Reloaded { file, epoch, applied: true, changes })
    }

    fn take_turn(&self) -> Result<MutexGuard<'_, ()>, Fault> {
        match self.turn.try_lock() {
            Ok(turn) => Ok(turn),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let busy = Fault::refused("busy", "another reload is under way; wait for its end".to_owned());
                Err(Fault { permanent: false, ..busy })
            }
        }
    }

    /// Everything that can be refused.
    fn prepare(&self, now: &Config, next: Config) -> Result<Ready, Fault> {
        let Differences { mut changes, for_restart, leaving, coming } = differences(now, &next);
        if !for_restart.is_empty() {
            let message = format!("only a start can take in what changed in {}; start the node again", for_restart.join(", "));
            return Err(Fault::refused("needs-restart", message));
        }
        self.check_memory(&coming)?;
        let services = self.composition.admit(&next.services).map_err(|error| fault(&error))?;
        check_handlers(&next.triggers, &services).map_err(|error| fault(&error))?;
        changes.extend(self.composition.other_components(&services));
        let coming = self.bindings.declare(&coming).map_err(|error| fault(&error))?;
        Ok(Ready { config: next, services, coming, leaving: leaving.into_iter().collect(), changes })
    }

    /// Cells were made for the largest budget of the start.
    fn check_memory(&self, coming: &[TriggerConfig]) -> Result<(), Fault> {
        let held = self.composition.memory_bytes_max();
        match coming.iter().find(|trigger| trigger.budget.memory_bytes > held) {
            None => Ok(()),
            Some(trigger) => {
                let message = format!(
                    "the cells of this node hold {held} bytes and trigger {} asks for {}; start the node again",
                    trigger.id, trigger.budget.memory_bytes
                );
                Err(Fault::refused("needs-restart", message))
            }
        }
    }

    fn put_in_force(&self, now: &Config, ready: Ready) -> Result<u64, Fault> {
        let Ready { config, services, coming, leaving, changes: _ } = ready;
        self.finished(self.deliveries.remove(leaving.clone()).wait())?;
        let epoch = match self.composition.publish(services) {
            Ok(epoch) => epoch.0,
            Err(error) => {
                // Nobody else grants or publishes, so this is not expected; callers are where they were, and so shall the triggers be.
                let left: Vec<_> = now.triggers.iter().filter(|trigger| leaving.contains(&trigger.id)).cloned().collect();
                let back = self.bindings.declare(&left).map_err(|error| fault(&error))?;
                self.bring_in(back)?;
                return Err(fault(&error));
            }
        };
        self.bring_in(coming)?;
        self.composition.write_down();
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
        Ok(epoch)
    }

    /// Adds triggers, and tells them what was appended while they were not there.
    fn bring_in(&self, triggers: Vec<Declared>) -> Result<(), Fault> {
        let topics: BTreeSet<_> = triggers.iter().map(|declared| declared.trigger.topic.clone()).collect();
        self.finished(self.deliveries.add(self.bindings.specs(triggers)).wait())?;
        let log = &self.bindings.log;
        for topic in topics {
            let partitions = log.partitions(topic.as_str()).map_err(|error| Fault::from(&error))?;
            for partition in (0..partitions).map(Partition) {
                let (_, end) = log.bounds(topic.as_str(), partition).map_err(|error| Fault::from(&error))?;
                self.deliveries.available(topic.as_str(), partition, end);
            }
        }
        Ok(())
    }

    fn finished(&self, changed: Changed) -> Result<(), Fault> {
        match changed {
            Changed::Done => Ok(()),
            Changed::DriverEnded => {
                Err(Fault::refused("stopping", "the node is stopping; the next start reads the configuration".to_owned()))
            }
        }
    }
}

/// A command's failure as a fault: what and why; what to do is the asking command's to say.
fn fault(error: &CliError) -> Fault {
    Fault::refused(error.kind(), format!("{error}: {}", error.why()))
}
