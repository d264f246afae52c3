//! A node, put together from its configuration: the host of its functions, and the triggers that wake them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use latent_bridge::{AppendWatcher, EmbeddedBroker, EventBus};
use latent_core::{Clock, Offset, Partition, SystemClock};
use latent_node::delivery::{BindingSpec, DeliveryDriver, DeliveryHandle, DeliveryPolicy, Intake, PartitionSpec};
use latent_node::{AuditFile, InboundTarget, LocalActivationManager, Principal};
use latent_topics::{DeadLetters, DeliveryStore, StartAt, TopicSource, UnitKey};
use latent_wasmtime::HANDLER_CONTRACT;
use tokio::runtime::Handle;

use super::composition::{Admitted, Composition, Foundation, part};
use super::maintenance::Schedule;
use super::reload::Reloader;
use super::reports::Reports;
use crate::config::Config;
use crate::config::settings::{StartPosition, TriggerConfig};
use crate::error::CliError;
use crate::host::{ClockWatch, HostFiles};
use crate::log::Log;
use crate::maintenance::Maintainer;

/// The function of the handler contract.
const HANDLE: &str = "handle";

/// A node that is ready to run.
pub(super) struct Assembly {
    pub(super) driver: DeliveryDriver,
    pub(super) manager: Arc<LocalActivationManager>,
    pub(super) audit: Arc<AuditFile>,
    pub(super) reports: Arc<Reports>,
    /// When the log's own maintenance is due, its work and the clock of both.
    pub(super) maintenance: (Schedule, Arc<Maintainer>, Arc<dyn Clock>),
}

impl Assembly {
    pub(super) fn name(&self) -> String {
        self.reports.name()
    }
}

/// Makes all parts. Compiles components that are new, so it may take a while.
///
/// # Errors
/// [`CliError::Node`] naming the service, trigger or part.
pub(super) fn assemble(config: Config, log: Log, runtime: &Handle) -> Result<Assembly, CliError> {
    let publishing = log.bus();
    assemble_publishing(config, log, publishing, runtime)
}

/// As [`assemble`], with what functions publish going through `publishing`, which also tells what the log has got: for who wants to see
/// events on their way.
///
/// # Errors
/// As [`assemble`].
pub(super) fn assemble_publishing(config: Config, log: Log, publishing: Arc<dyn EventBus>, runtime: &Handle) -> Result<Assembly, CliError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let schedule = Schedule::begin(clock.mono(), config.engine.maintenance_interval_seconds());
    let watch = ClockWatch::open(HostFiles::below(&config.node.data_dir), Arc::clone(&clock));
    let watch = Arc::new(watch.map_err(|error| part("the watch of the clock", &error))?);
    let maintainer = Arc::new(Maintainer::new(log.bus(), Arc::clone(&watch)));

    let composition = Composition::new(Foundation {
        config: &config,
        bus: Arc::clone(&publishing),
        clock: Arc::clone(&clock),
        runtime: runtime.clone(),
    })?;
    let services = composition.admit(&config.services)?;
    check_handlers(config.cycle_triggers(), &services)?;
    check_functions(&config, &services)?;
    composition.tidy(&config.services);
    composition.publish(services)?;

    let memory = log.embedded().map(Memory::open).transpose()?;
    let parts = BindingParts { memory, clock: Arc::clone(&clock), runtime: runtime.clone() };
    let declared = parts.declare(&config.triggers)?;
    parts.spent(&declared).iter().for_each(|told| tracing::warn!("{told}"));
    let mut bindings = parts.specs(declared);
    bindings.extend(composition.providers.lane_bindings(&config));
    let (manager, audit) = (Arc::clone(&composition.manager), Arc::clone(&composition.audit));
    let (driver, handle) =
        DeliveryDriver::new(Arc::clone(&manager), Arc::clone(&clock), bindings).map_err(|error| part("the delivery driver", &error))?;
    publishing.watch_appends(Arc::new(Wake(handle.clone())));
    let composition = Arc::new(composition);
    let reloader = Reloader::new(config, Arc::clone(&composition), parts, handle.clone());
    let reports =
        Reports { reloader, log, deliveries: handle, composition, clock: Arc::clone(&clock), maintainer: Arc::clone(&maintainer), watch };
    let reports = Arc::new(reports);
    Ok(Assembly { driver, manager, audit, reports, maintenance: (schedule, maintainer, clock) })
}

/// A trigger wakes a handler, so its service's component must export one.
pub(super) fn check_handlers<'t>(triggers: impl Iterator<Item = &'t TriggerConfig>, services: &[Admitted]) -> Result<(), CliError> {
    let by_name: BTreeMap<_, _> = services.iter().map(|admitted| (&admitted.service.name, admitted)).collect();
    for trigger in triggers {
        let Some(admitted) = by_name.get(&trigger.service) else { continue };
        let wants_handler = trigger.contract.as_str() == HANDLER_CONTRACT && trigger.function.as_str() == HANDLE;
        if wants_handler && !admitted.facts.exports_handler {
            return Err(CliError::Node {
                what: format!("trigger {} cannot wake service {}", trigger.id, trigger.service),
                why: format!("its component {} does not export {HANDLER_CONTRACT}", admitted.service.component.display()),
                next: "export a handler; `latent new` shows how".to_owned(),
            });
        }
    }
    Ok(())
}

/// A trigger on a stream calls one function, so its service's component must export that.
pub(super) fn check_functions(config: &Config, services: &[Admitted]) -> Result<(), CliError> {
    for binding in config.streams.iter().flat_map(|streams| streams.triggers.bindings()) {
        let target = binding.target();
        let Some(admitted) = services.iter().find(|admitted| admitted.service.name == target.service) else { continue };
        let exported = admitted.facts.contracts();
        if !exported.get(&target.contract).is_some_and(|functions| functions.contains(&target.function)) {
            let names: Vec<_> = exported.keys().map(ToString::to_string).collect();
            return Err(CliError::Node {
                what: format!("trigger {} cannot call service {}", binding.id(), target.service),
                why: format!(
                    "its component {} does not export {}#{}; it exports {}",
                    admitted.service.component.display(),
                    target.contract,
                    target.function,
                    if names.is_empty() { "nothing that can be called".to_owned() } else { names.join(", ") }
                ),
                next: "correct contract and function of the [[trigger]], or export the function".to_owned(),
            });
        }
    }
    Ok(())
}

/// Tells the driver what the log has got.
struct Wake(DeliveryHandle);

impl AppendWatcher for Wake {
    fn appended(&self, topic: &str, partition: Partition, next: Offset) {
        self.0.available(topic, partition, next);
    }
}

/// What deliveries read and what is remembered of them.
pub(super) struct Memory {
    pub(super) log: Arc<EmbeddedBroker>,
    pub(super) store: Arc<DeliveryStore>,
}

impl Memory {
    fn open(log: &Arc<EmbeddedBroker>) -> Result<Self, CliError> {
        let failed = |error: &dyn std::fmt::Display| part("the memory of deliveries", error);
        let store = DeliveryStore::open(log).map_err(|error| failed(&error))?;
        store.give_up_lost_offsets(log).map_err(|error| failed(&error))?;
        Ok(Self { log: Arc::clone(log), store })
    }
}

/// What bindings are made with.
pub(super) struct BindingParts {
    /// `None` where topics are on a broker, which remembers by itself.
    pub(super) memory: Option<Memory>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) runtime: Handle,
}

impl BindingParts {
    /// Makes sure that the memory of deliveries has a place for each partition of each trigger.
    ///
    /// # Errors
    /// [`CliError::Node`] naming the trigger or the memory of deliveries. Places that were made are kept and used the next time.
    pub(super) fn declare(&self, triggers: &[TriggerConfig]) -> Result<Vec<Declared>, CliError> {
        let Some(Memory { log, store }) = &self.memory else { return Ok(Vec::new()) };
        // All at once, so that a node with many new triggers waits for few syncs.
        let asked = triggers.iter().map(|trigger| lines_of(trigger, log)).collect::<Result<Vec<_>, _>>()?;
        let declared = store.declare(&asked.concat()).map_err(|error| part("the memory of deliveries", &error))?;
        let mut units = declared.into_iter();
        let with_units = |(trigger, lines): (&TriggerConfig, Vec<Line>)| {
            let units: Vec<u32> = units.by_ref().take(lines.len()).collect();
            Declared { trigger: trigger.clone(), lines: lines.into_iter().zip(units).collect() }
        };
        Ok(triggers.iter().zip(asked).map(with_units).collect())
    }

    /// One binding for each trigger, going on where it was: nothing of it may run when this is called.
    pub(super) fn specs(&self, triggers: Vec<Declared>) -> Vec<BindingSpec> {
        let memory = self.memory.iter();
        memory.flat_map(|memory| triggers.iter().map(|declared| self.spec(memory, declared))).collect()
    }

    fn spec(&self, memory: &Memory, Declared { trigger, lines }: &Declared) -> BindingSpec {
        let partitions = lines.iter().map(|((key, _, known_end), unit)| PartitionSpec {
            partition: key.partition,
            remembered: memory.store.remembered(*unit, self.clock.as_ref(), trigger.retry_delay_max_millis),
            known_end: *known_end,
            intake: Intake::LookAhead,
            source: Box::new(self.source(memory, trigger, key, *unit)),
        });
        let partitions = partitions.collect();
        BindingSpec {
            id: trigger.id.clone(),
            topic: trigger.topic.clone(),
            target: target(trigger),
            policy: policy(trigger),
            dead_letter: trigger.dead_letter.clone(),
            partitions,
        }
    }

    /// For each trigger that gives no more runs than some of its unsettled events have had: a sentence that says how many those are. Of a
    /// trigger that runs it is what holds now; a run that is under way counts as one that its event has had.
    pub(super) fn spent(&self, triggers: &[Declared]) -> Vec<String> {
        let Some(memory) = &self.memory else { return Vec::new() };
        let counted = triggers.iter().map(|declared| (self.spent_events(memory, declared), &declared.trigger));
        counted.filter(|(events, _)| *events > 0).map(|(events, trigger)| told_spent(events, trigger)).collect()
    }

    fn spent_events(&self, memory: &Memory, Declared { trigger, lines }: &Declared) -> usize {
        let of_unit = |unit: u32| {
            let remembered = memory.store.remembered(unit, self.clock.as_ref(), trigger.retry_delay_max_millis);
            let decided: BTreeSet<_> = remembered.verdicts.into_iter().map(|(offset, _)| offset).collect();
            let spent = |(offset, attempts, _): &(Offset, u32, _)| *attempts >= trigger.max_deliveries && !decided.contains(offset);
            remembered.attempts.iter().filter(|note| spent(note)).count()
        };
        lines.iter().map(|(_, unit)| of_unit(*unit)).sum()
    }

    fn source(&self, memory: &Memory, trigger: &TriggerConfig, key: &UnitKey, unit: u32) -> TopicSource {
        let bus = Arc::clone(&memory.log) as Arc<dyn EventBus>;
        let source = TopicSource::new(Arc::clone(&bus), Arc::clone(&memory.store), key.clone(), unit, self.runtime.clone());
        match &trigger.dead_letter {
            Some(topic) => source.with_dead_letters(DeadLetters::new(bus, trigger.id.clone(), topic.clone())),
            None => source,
        }
    }
}

fn told_spent(events: usize, trigger: &TriggerConfig) -> String {
    let TriggerConfig { id, max_deliveries, dead_letter, .. } = trigger;
    let events = if events == 1 { "1 event".to_owned() } else { format!("{events} events") };
    let end = dead_letter.as_ref().map_or_else(|| "counted as terminated".to_owned(), |topic| format!("parked in {topic}"));
    format!("trigger {id}: {events} had as many runs as max_deliveries ({max_deliveries}) gives or more, to be {end} without another run")
}

/// A trigger that the memory of deliveries knows.
pub(super) struct Declared {
    pub(super) trigger: TriggerConfig,
    lines: Vec<(Line, u32)>,
}

/// One partition of a trigger's topic, where it starts if it is new, and its end.
type Line = (UnitKey, StartAt, Offset);

fn lines_of(trigger: &TriggerConfig, log: &EmbeddedBroker) -> Result<Vec<Line>, CliError> {
    let failed = |error| part(&format!("trigger {}", trigger.id), &error);
    let count = log.partitions(trigger.topic.as_str()).map_err(failed)?;
    let line = |partition| {
        let (first, end) = log.bounds(trigger.topic.as_str(), partition).map_err(failed)?;
        let start = match trigger.start {
            // What expired before the trigger was there is none of its events.
            StartPosition::Earliest => StartAt::At(first),
            StartPosition::Latest => StartAt::Latest,
        };
        Ok((UnitKey { binding: trigger.id.clone(), topic: trigger.topic.clone(), partition }, start, end))
    };
    (0..count).map(Partition).map(line).collect()
}

pub(super) fn target(trigger: &TriggerConfig) -> InboundTarget {
    InboundTarget {
        tenant: trigger.tenant.clone(),
        principal: Principal::trigger(&trigger.id),
        service: trigger.service.clone(),
        contract: trigger.contract.clone(),
        function: trigger.function.clone(),
        route: None,
        budget: trigger.budget,
        input_bytes_max: latent_node::limits::INPUT_BYTES.default,
    }
}

pub(super) fn policy(trigger: &TriggerConfig) -> DeliveryPolicy {
    DeliveryPolicy {
        deliveries_max: trigger.max_deliveries,
        in_flight_max: trigger.max_in_flight,
        retry_delay_millis: trigger.retry_delay_millis,
        retry_delay_max_millis: trigger.retry_delay_max_millis,
        operation_timeout_millis: trigger.operation_timeout_millis,
    }
}
