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
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};

use latent_bridge::{BusError, EventBus as _};
use latent_core::{BindingId, Partition};
use latent_node::delivery::{Changed, DeliveryHandle};
use latent_topics::DeliveryStore;

use super::assembly::{BindingParts, Declared, Memory, check_functions, check_handlers};
use super::composition::{Admitted, Composition};
use super::remembering;
use crate::config::settings::TriggerConfig;
use crate::config::{self, Config, NamedFiles};
use crate::control::{Difference, Fault, ForgetRefused, Forgotten, ReloadOrder, Reloaded};
use crate::error::CliError;
use difference::{Differences, differences};

/// Why a configuration was not taken in. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReloadRefused {
    /// Another configuration than the expected one is in force.
    #[error("the configuration in force has epoch {found}, not {expected}; look at what it is and decide again")]
    Epoch {
        /// In force.
        found: u64,
        /// Expected.
        expected: u64,
    },
    /// Another file is meant than the one that the node was started with.
    #[error("this node was started with {}, and {} is meant; name that file, or stop this node and start one with the other", read.display(), meant)]
    OtherFile {
        /// The node's.
        read: PathBuf,
        /// The command's.
        meant: String,
    },
    /// The node's configuration is no file any more. A pipe would never end.
    #[error("{} is not a file any more", path.display())]
    NotAFile {
        /// Where it was.
        path: PathBuf,
    },
    /// Another reload is under way.
    #[error("another reload is under way; wait for its end")]
    Busy,
    /// Something changed that only a start can take in.
    #[error("only a start can take in what changed in {}; start the node again", parts.join(", "))]
    NeedsRestart {
        /// What.
        parts: Vec<String>,
    },
    /// A trigger asks for more memory than the node's cells were made for.
    #[error("the cells of this node hold {held_bytes} bytes and trigger {trigger} asks for {wanted_bytes}; start the node again")]
    Memory {
        /// The trigger.
        trigger: BindingId,
        /// What a cell holds.
        held_bytes: u64,
        /// What it asks for.
        wanted_bytes: u64,
    },
    /// The file, a component or a part of the node does not allow it.
    #[error("{error}: {}", error.why())]
    Part {
        /// In the words of the command that would meet it.
        #[from]
        error: CliError,
    },
    /// The log could not say where a topic ends.
    #[error(transparent)]
    Log(#[from] BusError),
    /// The node is on its way out.
    #[error("the node is stopping; the next start reads the configuration")]
    Stopping,
}

impl ReloadRefused {
    /// The name used in machine-readable output and `docs/errors.md`.
    pub(crate) fn kind(&self) -> &str {
        match self {
            Self::Epoch { .. } => "epoch-conflict",
            Self::OtherFile { .. } | Self::NotAFile { .. } => "other-file",
            Self::Busy => "busy",
            Self::NeedsRestart { .. } | Self::Memory { .. } => "needs-restart",
            Self::Part { error } => error.kind(),
            Self::Log(error) => error.kind(),
            Self::Stopping => "stopping",
        }
    }
}

impl From<ReloadRefused> for Fault {
    fn from(refused: ReloadRefused) -> Self {
        let permanent = !matches!(refused, ReloadRefused::Busy | ReloadRefused::Log(_) | ReloadRefused::Stopping);
        Self { permanent, ..Self::refused(refused.kind(), refused.to_string()) }
    }
}

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
    leaving: BTreeSet<BindingId>,
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

    /// What is remembered of deliveries, where there are any.
    pub(super) fn store(&self) -> Option<&DeliveryStore> {
        self.bindings.memory.as_ref().map(|memory| memory.store.as_ref())
    }

    /// Forgets a trigger that is not in force. No reload brings it back meanwhile.
    ///
    /// # Errors
    /// [`ForgetRefused`], and what the disk says.
    pub(super) fn forget(&self, id: &str) -> Result<Forgotten, Fault> {
        let _turn = self.take_turn().map_err(|_| ForgetRefused::Busy)?;
        remembering::forget(self.store(), &self.config().triggers, id, "remove it from the configuration and run `latent reload` first")
    }

    /// Takes the file in again, on a thread that may block: until new components are compiled and changed triggers have ended what they
    /// had begun.
    ///
    /// # Errors
    /// [`ReloadRefused`].
    pub(super) fn reload(&self, order: &ReloadOrder) -> Result<Reloaded, ReloadRefused> {
        self.try_reload(order).inspect_err(|refused| tracing::warn!(kind = refused.kind(), %refused, "the configuration was not taken in"))
    }

    fn try_reload(&self, order: &ReloadOrder) -> Result<Reloaded, ReloadRefused> {
        let _turn = self.take_turn()?;
        let now = self.config();
        check_file(&now.path, order.file.as_deref())?;
        let epoch = self.composition.epoch();
        if let Some(expected) = order.expected_epoch.filter(|expected| *expected != epoch) {
            return Err(ReloadRefused::Epoch { found: epoch, expected });
        }
        if !now.path.is_file() {
            return Err(ReloadRefused::NotAFile { path: now.path.clone() });
        }
        let next = config::load(&now.path, NamedFiles::ComponentsMustExist).map_err(CliError::Config)?.config;
        let file = now.path.display().to_string();
        let ready = self.prepare(&now, next)?;
        if order.dry_run || ready.changes.is_empty() {
            let notes = self.notes(&ready.changes, self.bindings.spent(&ready.coming));
            return Ok(Reloaded { file, epoch, applied: false, changes: ready.changes, notes });
        }
        let changes = ready.changes.clone();
        let (epoch, spent) = self.put_in_force(&now, ready)?;
        changes.iter().for_each(|change| tracing::info!(epoch, %change, "configuration reloaded"));
        spent.iter().for_each(|told| tracing::warn!("{told}"));
        let notes = self.notes(&changes, spent);
        Ok(Reloaded { file, epoch, applied: true, changes, notes })
    }

    /// What a reload tells beside its changes.
    fn notes(&self, changes: &[Difference], spent: Vec<String>) -> Vec<String> {
        let started = changes.iter().filter(|change| change.object == "trigger" && change.change == "start");
        let started = started.map(|Difference { name, .. }| {
            format!("trigger {name} goes on where it was: start is where a trigger begins of which nothing is remembered")
        });
        started.chain(spent).chain(self.composition.routed_elsewhere()).collect()
    }

    fn take_turn(&self) -> Result<MutexGuard<'_, ()>, ReloadRefused> {
        match self.turn.try_lock() {
            Ok(turn) => Ok(turn),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(ReloadRefused::Busy),
        }
    }

    /// Everything that can be refused.
    fn prepare(&self, now: &Config, next: Config) -> Result<Ready, ReloadRefused> {
        let Differences { mut changes, for_restart, leaving, coming } = differences(now, &next);
        if !for_restart.is_empty() {
            return Err(ReloadRefused::NeedsRestart { parts: for_restart });
        }
        self.check_memory(&coming)?;
        let services = self.composition.admit(&next.services)?;
        check_handlers(next.cycle_triggers(), &services)?;
        check_functions(&next, &services)?;
        changes.extend(self.composition.other_components(&services));
        let coming = self.bindings.declare(&coming)?;
        Ok(Ready { config: next, services, coming, leaving: leaving.into_iter().collect(), changes })
    }

    /// Cells were made for the largest budget of the start.
    fn check_memory(&self, coming: &[TriggerConfig]) -> Result<(), ReloadRefused> {
        let held_bytes = self.composition.memory_bytes_max();
        match coming.iter().find(|trigger| trigger.budget.memory_bytes > held_bytes) {
            None => Ok(()),
            Some(trigger) => {
                Err(ReloadRefused::Memory { trigger: trigger.id.clone(), held_bytes, wanted_bytes: trigger.budget.memory_bytes })
            }
        }
    }

    /// The epoch then, and what is told of events that had as many runs as their changed triggers give.
    fn put_in_force(&self, now: &Config, ready: Ready) -> Result<(u64, Vec<String>), ReloadRefused> {
        let Ready { config, services, coming, leaving, changes: _ } = ready;
        self.finished(self.deliveries.remove(leaving.clone()).wait())?;
        let epoch = match self.composition.publish(services) {
            Ok(epoch) => epoch.0,
            Err(error) => {
                // Nobody else grants or publishes, so this is not expected; callers are where they were, and so shall the triggers be.
                let left: Vec<_> = now.triggers.iter().filter(|trigger| leaving.contains(&trigger.id)).cloned().collect();
                let back = self.bindings.declare(&left)?;
                self.bring_in(back)?;
                return Err(error.into());
            }
        };
        let spent = self.bindings.spent(&coming);
        self.bring_in(coming)?;
        self.composition.write_down();
        super::spare_memory::give_back();
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
        Ok((epoch, spent))
    }

    /// Adds triggers, and tells them what was appended while they were not there.
    fn bring_in(&self, triggers: Vec<Declared>) -> Result<(), ReloadRefused> {
        let topics: BTreeSet<_> = triggers.iter().map(|declared| declared.trigger.topic.clone()).collect();
        self.finished(self.deliveries.add(self.bindings.specs(triggers)).wait())?;
        let Some(Memory { log, .. }) = &self.bindings.memory else { return Ok(()) };
        for topic in topics {
            let partitions = log.partitions(topic.as_str())?;
            for partition in (0..partitions).map(Partition) {
                let (_, end) = log.bounds(topic.as_str(), partition)?;
                self.deliveries.available(topic.as_str(), partition, end);
            }
        }
        Ok(())
    }

    fn finished(&self, changed: Changed) -> Result<(), ReloadRefused> {
        match changed {
            Changed::Done => Ok(()),
            Changed::DriverEnded => Err(ReloadRefused::Stopping),
        }
    }
}

/// Refuses a command that names another file. One that cannot be looked at any more is no other file: reading it says why.
fn check_file(read: &Path, meant: Option<&str>) -> Result<(), ReloadRefused> {
    let Some((meant, read)) = meant.zip(read.canonicalize().ok()) else { return Ok(()) };
    if Path::new(meant) == read { Ok(()) } else { Err(ReloadRefused::OtherFile { read, meant: meant.to_owned() }) }
}
