//! The rows of `latent bench trigger`: what each one compares, and with which target.

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use latent_bridge::{EmbeddedBroker, EventBus};

use super::super::activation::{OurNode, dormant};
use super::super::event::PayloadSize;
use super::super::figure::{Latency, Slice};
use super::super::measure::{Pair, Session};
use super::super::plan::Plan;
use super::super::row::{Row, RowSpec, Target, Unit};
use super::super::store::Store;
use super::super::workload as work;
use super::lanes::Lanes;
use super::node::{self, Cells, PARTITIONS};
use super::passage::{Crossing, Passage};
use super::pull;
use super::watched::{Sightings, WatchedBus};
use crate::error::CliError;
use crate::node::InProcessNode;

/// Durable appends that an event may take: in, out, and its settlement.
const APPENDS: u32 = 3;
/// Cells of a node whose functions wait for the disk more than they compute.
const MANY_CELLS: u32 = 32;
/// Within this an event wakes its function.
const WAKE_UP: Duration = Duration::from_millis(1);

/// A row of the table of targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum RowId {
    /// Messages of a broker's consumer, one binding
    #[value(name = "Q-20")]
    OneBinding,
    /// Events of a broker's topics, eight bindings
    #[value(name = "Q-21")]
    EightBindings,
    /// What an event of a broker's topics takes of a processor
    #[value(name = "Q-24")]
    ProcessorTime,
    /// What 256 idle bindings of a broker cost
    #[value(name = "Q-23")]
    Idle,
    /// From topic to topic
    #[value(name = "Q-06")]
    Passage,
    /// Memory of what does nothing
    #[value(name = "Q-07")]
    Dormant,
    /// How soon a function is woken
    #[value(name = "Q-22")]
    WakeUp,
}

/// One of the times of an event.
type OfCrossing = fn(&Crossing) -> Duration;

/// Where finished rows go.
type Report<'r> = &'r mut dyn FnMut(&Row) -> Result<(), CliError>;

/// Where the events of the rows come from.
#[derive(Clone, Copy)]
pub(super) enum Source<'b> {
    /// A log of this process.
    Log,
    /// A broker.
    Broker(&'b pull::Bench),
}

impl RowId {
    /// Measures every case of a row that there is with this source.
    pub(super) fn measure(self, source: Source<'_>, session: &mut Session, report: Report<'_>) -> Result<(), CliError> {
        match (source, self) {
            (Source::Log, Self::Passage) => {
                many(session, report)?;
                single(session, report)
            }
            (Source::Log, Self::Dormant) => dormant(session, report),
            (Source::Log, Self::WakeUp) => wake_up(session, report),
            (Source::Broker(broker), Self::OneBinding) => broker.one_binding(session, report),
            #[cfg(feature = "bench-peers")]
            (Source::Broker(broker), Self::EightBindings) => Lanes::of(broker, session, "eight")?.eight_bindings(session, report),
            #[cfg(not(feature = "bench-peers"))]
            (Source::Broker(_), Self::EightBindings) => Ok(()),
            (Source::Broker(broker), Self::ProcessorTime) => Lanes::of(broker, session, "processor")?.processor_time(session, report),
            (Source::Broker(broker), Self::WakeUp) => {
                broker.wake_up(session, report)?;
                Lanes::of(broker, session, "wake-up")?.wake_up(session, report)
            }
            (Source::Broker(broker), Self::Idle) => {
                broker.idle(session, report)?;
                Lanes::of(broker, session, "idle")?.idle(session, report)
            }
            (Source::Log, Self::OneBinding | Self::EightBindings | Self::ProcessorTime | Self::Idle)
            | (Source::Broker(_), Self::Passage | Self::Dormant) => Ok(()),
        }
    }

    /// Whether there is nothing to measure of it without a broker.
    pub(super) const fn needs_a_broker(self) -> bool {
        matches!(self, Self::OneBinding | Self::EightBindings | Self::ProcessorTime | Self::Idle)
    }
}

fn many(session: &mut Session, report: Report<'_>) -> Result<(), CliError> {
    let (plan, stop) = (session.plan, session.stop.clone());
    let mut parts = Parts::new(session, "many", 2)?;
    for (case, name, cells) in [("many, default cells", "many", Cells::Default), ("many, 32 cells", "many-cells", Cells::Set(MANY_CELLS))] {
        let node = node::start(&session.scratch.folder(name)?, cells, |log| Arc::clone(log) as Arc<dyn EventBus>)?;
        let mut passage = Passage::through(&node, &stop);
        let spec = RowSpec {
            id: "Q-06",
            case,
            unit: Unit::PerSecond,
            reference_name: "the slower of Q-02 (two threads) and Q-03 (16 publishers)",
            target: Target::AtLeast(0.6),
        };
        let pair = Pair { ours: Box::new(|| passage.many(&plan)), reference: Box::new(|| parts.slower(&plan)) };
        let row = session.row(spec, pair)?;
        node.end();
        report(&row)?;
    }
    Ok(())
}

fn single(session: &mut Session, report: Report<'_>) -> Result<(), CliError> {
    let (plan, stop) = (session.plan, session.stop.clone());
    let (node, sightings) = watched_node(session, "single")?;
    let mut passage = Passage::through(&node, &stop);
    let mut parts = Parts::new(session, "single", 1)?;
    let cases: [(_, OfCrossing); 2] =
        [("one, until it is out", Crossing::until_out), ("one, until it is settled", Crossing::until_settled)];
    for (case, of) in cases {
        let spec = RowSpec {
            id: "Q-06",
            case,
            unit: Unit::MicrosEach,
            reference_name: "three durable appends + one activation",
            target: Target::AtMost(1.0),
        };
        let ours = || passage.one_by_one(&plan, &sightings, of).map(|slice| slice.narrowed_to(Latency::median));
        let pair = Pair { ours: Box::new(ours), reference: Box::new(|| parts.in_a_row(&plan, APPENDS)) };
        report(&session.row(spec, pair)?)?;
    }
    node.end();
    Ok(())
}

fn wake_up(session: &mut Session, report: Report<'_>) -> Result<(), CliError> {
    let (plan, stop) = (session.plan, session.stop.clone());
    let (node, sightings) = watched_node(session, "wake-up")?;
    let mut passage = Passage::through(&node, &stop);
    let mut parts = Parts::new(session, "wake-up", 1)?;
    let spec = RowSpec {
        id: "Q-22",
        case: "append to first act",
        unit: Unit::MicrosEach,
        reference_name: "1 ms; its percentiles are one append + one activation",
        target: Target::AtMost(1.0),
    };
    let ours = || passage.one_by_one(&plan, &sightings, Crossing::wake_up).map(|slice| slice.narrowed_to(Latency::median));
    // The target is a time of its own; what a round trip costs here is told beside it.
    let allowed = |slice: Slice| Slice { units: 1, elapsed: WAKE_UP, ..slice };
    let pair = Pair { ours: Box::new(ours), reference: Box::new(|| parts.in_a_row(&plan, 1).map(allowed)) };
    let row = session.row(spec, pair)?;
    node.end();
    report(&row)
}

fn watched_node(session: &Session, name: &str) -> Result<(InProcessNode, Arc<Sightings>), CliError> {
    let sightings = Arc::new(Sightings::default());
    let watched = |log: &Arc<EmbeddedBroker>| Arc::new(WatchedBus { log: Arc::clone(log), sightings: Arc::clone(&sightings) }) as _;
    let node = node::start(&session.scratch.folder(name)?, Cells::Default, watched)?;
    Ok((node, sightings))
}

/// What an event's way is made of, each alone: activations of a function that does nothing, and publications to a log.
struct Parts {
    activations: OurNode,
    threads: usize,
    log: Store,
}

impl Parts {
    fn new(session: &Session, name: &str, threads: usize) -> Result<Self, CliError> {
        let log = Store::create(&session.scratch.folder(&format!("{name}-log"))?, PARTITIONS, PayloadSize::Small)?;
        Ok(Self { activations: OurNode::start(threads)?, threads, log })
    }

    fn activations(&self, plan: &Plan) -> Result<Slice, CliError> {
        self.activations.slice(self.threads, plan.slice)
    }

    /// Activations or publications at their best, whichever are slower.
    fn slower(&mut self, plan: &Plan) -> Result<Slice, CliError> {
        let (activations, publications) = (self.activations(plan)?, work::publishers(&mut self.log, plan)?);
        let slower = if activations.per_second() < publications.per_second() { activations } else { publications };
        Ok(Slice { latencies: Vec::new(), ..slower })
    }

    /// So many durable appends and one activation after another, at their medians.
    fn in_a_row(&mut self, plan: &Plan, appends: u32) -> Result<Slice, CliError> {
        let activation = self.activations(plan)?.narrowed_to(Latency::median).elapsed;
        let publications = work::singles(&mut self.log, plan)?.narrowed_to(Latency::median);
        let whole = |append: Duration| append * appends + activation;
        let latencies = publications.latencies.iter().map(|append| whole(*append)).collect();
        Ok(Slice { units: 1, elapsed: whole(publications.elapsed), latencies })
    }
}
