//! The rows of lanes: what each one compares, and with which target.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use latent_nats::lanes::limits::{SWEEP_MILLIS, SWEEP_RATE};
use latent_node::delivery::DeliveryDriver;

use super::super::super::activation::{NOTHING, RawLoop};
use super::super::super::failed;
use super::super::super::figure::{Latency, Slice};
use super::super::super::measure::{Pair, Session, interrupted};
use super::super::super::publish::{broken, resident_bytes};
use super::super::super::row::{Row, RowSpec, Target as Wanted, Unit};
use super::super::guest::FORWARD;
use super::super::pull::Bench;
use super::super::pull::idle::cpu_time;
use super::super::pull::ours::{self, Half};
use super::events::Events;
use super::idle::{Held, held};
use super::node::{self, Node};
use super::{BINDINGS, MANY, filter};
use crate::error::CliError;
use crate::stop::StopSignal;

/// The first of the lanes that are idle.
const FIRST: usize = BINDINGS;
/// A slice counts from when one of so many parts of its events is settled: the connection is there, and every store was used.
const WARM_UP: u64 = 16;
/// The pin of a node that stopped is gone from every consumer after this, so that all lanes of the next one begin at once.
const PIN: Duration = Duration::from_secs(7);
/// Between two looks at how far a node is: often enough to be exact, and too seldom to cost.
const LOOK: Duration = Duration::from_millis(1);
/// The same where one event is waited for.
const CLOSE_LOOK: Duration = Duration::from_micros(200);
/// Within this an event of an active binding wakes its function; one of another needs a sweep more.
const WAKE_UP: Duration = Duration::from_millis(5);
/// Of so many events that wake a function, one is measured of a binding that nothing came to yet.
const COLD: u64 = 3;
/// Installations that are measured together, so that pages of 4 KiB are small beside them.
const INSTALLATIONS: usize = 8;
/// What one dormant binding may take.
const BINDING_BYTES: f64 = 2_048.0;
/// A hundredth of a processor.
const CPU_SPARE_MICROS: f64 = 10_000.0;
/// What one event may take of a processor.
const EVENT_CPU_MICROS: f64 = 60.0;

/// Where finished rows go.
type Report<'r> = &'r mut dyn FnMut(&Row) -> Result<(), CliError>;

/// A figure of what is idle: its case, its unit, what it is compared with, and what is added to that.
type Figure = (&'static str, Unit, &'static str, fn(&Held) -> f64, f64);

/// A way to wake functions: its case, how often, what is allowed in words and as a time, of which binding, and which of the times counts.
type WakeUp<'c> = (&'static str, u64, &'static str, Duration, &'c dyn Fn() -> usize, fn(&Latency) -> f64);

/// Events of eight bindings, and the time that the whole process had of processors meanwhile.
struct Worked {
    slice: Slice,
    cpu: Duration,
}

/// See the module.
pub(in super::super) struct Lanes<'b> {
    broker: &'b Bench,
    events: Events,
    stop: StopSignal,
    folder: PathBuf,
    folders: Cell<usize>,
    /// When the last node whose lanes worked stopped.
    stopped: Cell<Option<Instant>>,
}

impl<'b> Lanes<'b> {
    /// `name` is of the row.
    pub(in super::super) fn of(broker: &'b Bench, session: &Session, name: &str) -> Result<Self, CliError> {
        let folder = session.scratch.folder(name)?;
        Ok(Self { broker, events: Events::new()?, stop: session.stop.clone(), folder, folders: Cell::new(0), stopped: Cell::new(None) })
    }

    fn new_folder(&self) -> Result<PathBuf, CliError> {
        let number = self.folders.replace(self.folders.get() + 1);
        let folder = self.folder.join(format!("node-{number}"));
        fs::create_dir(&folder).map_err(failed("making a folder for a node"))?;
        Ok(folder)
    }

    /// Stores so many events on each of these subjects, in turns; when the first one began to be.
    fn store(&self, subjects: &[String], each: u64) -> Result<Instant, CliError> {
        let turns = (0..each).flat_map(|_| subjects);
        let messages: Vec<_> = turns.map(|subject| self.events.message(subject.clone())).collect();
        self.broker.hand.store_all(&messages)
    }

    /// Otherwise one lane would begin seconds after another, and what is measured would be the pins.
    fn until_unpinned(&self) -> Result<(), CliError> {
        let Some(stopped) = self.stopped.get() else { return Ok(()) };
        while stopped.elapsed() < PIN {
            interrupted(&self.stop)?;
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// So many events of each of eight bindings, which are there when the node starts.
    fn worked(&self, each: u64) -> Result<Worked, CliError> {
        let subjects: Vec<_> = (0..BINDINGS).map(|number| filter(&self.broker.target.subject, number)).collect();
        self.store(&subjects, each)?;
        let events = each * BINDINGS as u64;
        self.until_unpinned()?;
        let node = Node::start(NOTHING, &self.broker.target, &self.new_folder()?, 0..BINDINGS)?;
        let started = node.until_settled(events / WARM_UP, LOOK, &self.stop)?;
        let (cpu, before) = (cpu_time(), node.deliveries.settled());
        let ended = node.until_settled(events, LOOK, &self.stop)?;
        let cpu = cpu_time().saturating_sub(cpu);
        node.stop(events)?;
        self.stopped.set(Some(Instant::now()));
        let units = events.saturating_sub(before).max(1);
        Ok(Worked { slice: Slice { units, elapsed: ended.duration_since(started), latencies: Vec::new() }, cpu })
    }

    /// eight bindings whose functions do nothing.
    #[cfg(feature = "bench-peers")]
    pub(in super::super) fn eight_bindings(&self, session: &mut Session, report: Report<'_>) -> Result<(), CliError> {
        use super::super::super::activation::OurNode;
        use super::peer::{Acks, Peer};

        let (plan, each) = (session.plan, u64::from(session.plan.publications));
        let (peer, activations) = (Peer::connect(&self.broker.target)?, OurNode::start(2)?);
        let by_peer = |number: usize, count: u64, acks| {
            self.store(&[super::peer_filter(&self.broker.target.subject, number)], count)?;
            peer.handle(&super::peer_consumer(number), count, acks)
        };
        let spec = |case, reference_name, least| RowSpec {
            id: "Q-21",
            case,
            unit: Unit::PerSecond,
            reference_name,
            target: Wanted::AtLeast(least),
        };
        let ours = || self.worked(each).map(|worked| worked.slice);
        let acknowledged = || by_peer(0, each, Acks::Acknowledged);
        let one = spec("v2, acknowledged one by one", "async-nats, batches, each ack acknowledged, nothing run", 3.0);
        report(&session.row(one, Pair { ours: Box::new(ours), reference: Box::new(acknowledged) })?)?;
        let slower = || {
            let plain = by_peer(1, each * BINDINGS as u64, Acks::Plain)?;
            let activations = activations.slice(2, plan.slice)?;
            let slower = if activations.per_second() < plain.per_second() { activations } else { plain };
            Ok(Slice { latencies: Vec::new(), ..slower })
        };
        let other = spec("v2, plain acks", "the slower of Q-02 (two threads) and async-nats, batches, plain acks, nothing run", 0.6);
        report(&session.row(other, Pair { ours: Box::new(ours), reference: Box::new(slower) })?)
    }

    /// what one of many events takes of a processor when its function does nothing.
    pub(in super::super) fn processor_time(&self, session: &mut Session, report: Report<'_>) -> Result<(), CliError> {
        let (plan, each, raw) = (session.plan, u64::from(session.plan.publications), RawLoop::new()?);
        let micros = |cpu: Duration, units: u64| cpu.as_secs_f64() * 1e6 / units.max(1) as f64;
        let (mut ours, mut by_hand) = (Vec::new(), Vec::new());
        for _ in 0..plan.rounds {
            let Worked { slice, cpu } = self.worked(each)?;
            ours.push(micros(cpu, slice.units));
            let before = cpu_time();
            let activations = raw.slice(1, plan.slice)?.units;
            by_hand.push(micros(cpu_time().saturating_sub(before), activations));
        }
        for (case, reference_name, most, own) in [
            ("v2, processor time", "60 µs of a processor", 1.0, Some(EVENT_CPU_MICROS)),
            ("v2, to an activation", "fresh store, call, drop by hand on the engine", 3.0, None),
        ] {
            let spec = RowSpec { id: "Q-24", case, unit: Unit::MicrosEach, reference_name, target: Wanted::AtMost(most) };
            let (mut ours, mut by_hand) = (ours.iter().copied(), by_hand.iter().copied());
            let nothing = || broken("measuring Q-24", &"nothing was measured");
            let reference = || own.or_else(|| by_hand.next()).ok_or_else(nothing);
            report(&session.figures(spec, || ours.next().ok_or_else(nothing), reference)?)?;
        }
        Ok(())
    }

    /// from a publication to the first act of its function, of a node with many bindings.
    pub(in super::super) fn wake_up(&self, session: &mut Session, report: Report<'_>) -> Result<(), CliError> {
        let node = Node::start(FORWARD, &self.broker.target, &self.new_folder()?, FIRST..FIRST + MANY)?;
        node.until_inspected(&self.stop)?;
        let (samples, settled, cold) = (session.plan.wake_ups, Cell::new(0), Cell::new(FIRST + 1));
        let sweep = Duration::from_millis(SWEEP_MILLIS.default.max(MANY as u64 * 1_000 / SWEEP_RATE.default));
        // It is active from its first event on.
        self.woken(&node, FIRST, &settled)?;
        let active = || FIRST;
        let next_cold = || cold.replace(cold.get() + 1);
        let cases: [WakeUp<'_>; 2] = [
            ("v2, active", samples, "5 ms", WAKE_UP, &active, Latency::median),
            (
                "v2, the first, longest",
                (samples / COLD).max(1),
                "one sweep of 256 bindings, and 5 ms",
                sweep + WAKE_UP,
                &next_cold,
                Latency::high,
            ),
        ];
        for (case, count, reference_name, most, lane, of) in cases {
            let ours = || {
                let latencies = (0..count).map(|_| self.woken(&node, lane(), &settled)).collect::<Result<Vec<_>, _>>()?;
                Ok(Slice { units: count, elapsed: latencies.iter().sum(), latencies }.narrowed_to(of))
            };
            let allowed = || Ok(Slice { units: 1, elapsed: most, latencies: Vec::new() });
            let spec = RowSpec { id: "Q-22", case, unit: Unit::MicrosEach, reference_name, target: Wanted::AtMost(1.0) };
            report(&session.row(spec, Pair { ours: Box::new(ours), reference: Box::new(allowed) })?)?;
        }
        node.stop(settled.get())
    }

    /// From before one event is published to the first act of its function. It comes at some moment of a rest, and nothing else does.
    fn woken(&self, node: &Node, lane: usize, settled: &Cell<u64>) -> Result<Duration, CliError> {
        interrupted(&self.stop)?;
        std::thread::sleep(Duration::from_millis(5 + settled.get() * 37 % 100));
        let _earlier = node.half.asked_at();
        let stored_at = self.store(&[filter(&self.broker.target.subject, lane)], 1)?;
        settled.set(settled.get() + 1);
        node.until_settled(settled.get(), CLOSE_LOOK, &self.stop)?;
        let asked_at = node.half.asked_at().ok_or_else(|| broken("measuring Q-22", &"the function did nothing"))?;
        Ok(asked_at.saturating_duration_since(stored_at))
    }

    /// 256 idle bindings beside one.
    pub(in super::super) fn idle(&self, session: &mut Session, report: Report<'_>) -> Result<(), CliError> {
        self.dormant(session, report)?;
        let (target, time) = (&self.broker.target, session.plan.idle);
        let (mut of_many, mut of_one) = (Vec::new(), Vec::new());
        for _ in 0..session.plan.rounds {
            of_many.push(held(target, &self.new_folder()?, FIRST..FIRST + MANY, time, &self.stop)?);
            of_one.push(held(target, &self.new_folder()?, FIRST..FIRST + 1, time, &self.stop)?);
        }
        let figures: [Figure; 3] = [
            ("v2, sockets", Unit::Count, "those of one idle binding", |held| held.sockets as f64, 0.0),
            ("v2, tasks", Unit::Count, "those of one idle binding", |held| held.tasks as f64, 0.0),
            ("v2, CPU", Unit::CpuMicros, "that of one, and 1 % of a core", |held| held.cpu.as_secs_f64() * 1e6, CPU_SPARE_MICROS),
        ];
        for (case, unit, reference_name, figure, spare) in figures {
            let (mut ours, mut reference) = (of_many.iter().map(figure), of_one.iter().map(figure));
            let nothing = || broken("measuring Q-23", &"nothing was measured");
            let spec = RowSpec { id: "Q-23", case, unit, reference_name, target: Wanted::AtMost(1.0) };
            let ours = || ours.next().ok_or_else(nothing);
            report(&session.figures(spec, ours, || Ok(reference.next().ok_or_else(nothing)? + spare))?)?;
        }
        Ok(())
    }

    /// Installed, and known to the driver.
    fn dormant(&self, session: &mut Session, report: Report<'_>) -> Result<(), CliError> {
        let half = Half::start(NOTHING)?;
        let (mut kept, mut drivers) = (Vec::new(), Vec::new());
        let each = || {
            let folders = (0..INSTALLATIONS).map(|_| self.new_folder()).collect::<Result<Vec<_>, _>>()?;
            let before = resident_bytes()?;
            let mut bindings = Vec::new();
            for folder in &folders {
                let pools = ours::pools();
                let mut installed = node::install(&pools, &self.broker.target, folder, FIRST..FIRST + MANY)?;
                bindings.append(&mut installed.bindings);
                kept.push((pools, installed));
            }
            let driver = DeliveryDriver::new(Arc::clone(&half.manager), Arc::clone(&half.pools.clock), bindings);
            drivers.push(driver.map_err(|error| broken("measuring Q-23", &error))?);
            // What the allocator had free is used first, so a round can look like none at all.
            Ok(resident_bytes()?.saturating_sub(before).max(1) as f64 / (INSTALLATIONS * MANY) as f64)
        };
        let spec = RowSpec {
            id: "Q-23",
            case: "v2, bytes of each of 256",
            unit: Unit::BytesEach,
            reference_name: "2 KiB for a binding",
            target: Wanted::AtMost(1.0),
        };
        report(&session.figures(spec, each, || Ok(BINDING_BYTES))?)
    }
}
