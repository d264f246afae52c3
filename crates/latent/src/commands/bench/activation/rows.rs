//! The rows of `latent bench activation`: what each one compares, and with which target.

use std::fmt::Display;
use std::time::Duration;

use clap::ValueEnum;

use super::super::figure::{Latency, Slice};
use super::super::measure::{Pair, Session};
use super::super::row::{Row, RowSpec, Target, Unit};
use super::idle::{IdleNode, Shape};
use super::ours::OurNode;
use super::raw::RawLoop;
use crate::error::CliError;

/// Stores at the same time, on both sides.
pub(super) const CELLS: u64 = 4;
/// What every event carries.
pub(super) const PAYLOAD: &[u8] = br#"{"order":4711,"state":"paid"}"#;
/// Publications and bindings of a node with many of them.
const MANY: u32 = 10_000;
/// Components of a node with many of them.
const COMPONENTS: u32 = 100;
/// Threads for blocking work that a start may leave for some seconds.
const THREADS_ON_THEIR_WAY_OUT: u64 = 8;
/// What a publication or a dormant binding may take.
const DORMANT_BYTES: f64 = 2_048.0;
/// What a hundred kept components may add to a start.
const START: Duration = Duration::from_millis(10);
const BY_HAND: &str = "fresh store, call, drop by hand on the engine";

/// A row of the table of targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum RowId {
    /// One activation, from admission to outcome
    #[value(name = "Q-01")]
    Activation,
    /// Activations on two threads
    #[value(name = "Q-02")]
    Threads,
    /// Memory of what does nothing
    #[value(name = "Q-07")]
    Dormant,
    /// Start with components kept on disk
    #[value(name = "Q-08")]
    Start,
}

impl RowId {
    /// Measures every case of a row.
    pub(super) fn measure(self, session: &mut Session, report: &mut dyn FnMut(&Row) -> Result<(), CliError>) -> Result<(), CliError> {
        match self {
            Self::Activation => activation(session, report),
            Self::Threads => threads(session, report),
            Self::Dormant => dormant(session, report),
            Self::Start => start(session, report),
        }
    }
}

fn activation(session: &mut Session, report: &mut dyn FnMut(&Row) -> Result<(), CliError>) -> Result<(), CliError> {
    let (ours, raw, time) = (OurNode::start(1)?, RawLoop::new()?, session.plan.slice);
    for (case, most, percentile) in [("median", 1.5, Latency::median as fn(&Latency) -> f64), ("99th percentile", 2.0, Latency::high)] {
        let spec = RowSpec { id: "Q-01", case, unit: Unit::MicrosEach, reference_name: BY_HAND, target: Target::AtMost(most) };
        let one = |slice: Slice| slice.narrowed_to(percentile);
        let pair = Pair { ours: Box::new(|| ours.slice(1, time).map(one)), reference: Box::new(|| raw.slice(1, time).map(one)) };
        report(&session.row(spec, pair)?)?;
    }
    Ok(())
}

fn threads(session: &mut Session, report: &mut dyn FnMut(&Row) -> Result<(), CliError>) -> Result<(), CliError> {
    let (one, two, raw, time) = (OurNode::start(1)?, OurNode::start(2)?, RawLoop::new()?, session.plan.slice);
    let rate = |slice: Slice| Slice { latencies: Vec::new(), ..slice };
    let spec =
        |case, reference_name, least| RowSpec { id: "Q-02", case, unit: Unit::PerSecond, reference_name, target: Target::AtLeast(least) };
    let pair = Pair { ours: Box::new(|| two.slice(2, time).map(rate)), reference: Box::new(|| one.slice(1, time).map(rate)) };
    report(&session.row(spec("two threads to one", "our own one thread", 1.4), pair)?)?;
    let pair = Pair { ours: Box::new(|| two.slice(2, time).map(rate)), reference: Box::new(|| raw.slice(2, time).map(rate)) };
    report(&session.row(spec("two threads", BY_HAND, 0.6), pair)?)
}

/// Q-07: what a publication or a binding takes that does nothing.
pub(in super::super) fn dormant(session: &mut Session, report: &mut dyn FnMut(&Row) -> Result<(), CliError>) -> Result<(), CliError> {
    // One loaded component beside nothing is Q-08's matter, and its compilation leaves threads behind.
    let one = Shape { publications: 1, bindings: 0, components: 1 };
    let one = IdleNode::prepare(&session.scratch.folder("one")?, one)?;
    let many = Shape { publications: MANY, bindings: MANY, components: 1 };
    let many = IdleNode::prepare(&session.scratch.folder("dormant")?, many)?;
    let spec = RowSpec {
        id: "Q-07",
        case: "bytes of each of 20,000",
        unit: Unit::BytesEach,
        reference_name: "2 KiB for each publication and binding, beyond a node with one",
        target: Target::AtMost(1.0),
    };
    let beyond = || {
        let (with, without) = (many.start()?.held()?, one.start()?.held()?);
        // A blocking thread may be on its way out; one for each binding could not hide.
        if with.files != without.files || with.threads > without.threads.saturating_add(THREADS_ON_THEIR_WAY_OUT) {
            let reason = format!("{with:?} beside {without:?}: threads or open files grew with bindings");
            return Err(CliError::Bench { doing: "measuring Q-07".to_owned(), reason });
        }
        Ok(with.memory_bytes.saturating_sub(without.memory_bytes) as f64 / f64::from(2 * MANY))
    };
    report(&session.figures(spec, beyond, || Ok(DORMANT_BYTES))?)
}

fn start(session: &mut Session, report: &mut dyn FnMut(&Row) -> Result<(), CliError>) -> Result<(), CliError> {
    let empty = IdleNode::prepare(&session.scratch.folder("start-empty")?, Shape::default())?;
    let many = Shape { publications: COMPONENTS, bindings: 0, components: COMPONENTS };
    let many = IdleNode::prepare(&session.scratch.folder("start-many")?, many)?;
    // The first start compiles and keeps.
    drop(many.start()?);
    drop(empty.start()?);
    let spec = RowSpec {
        id: "Q-08",
        case: "100 kept components",
        unit: Unit::MicrosEach,
        reference_name: "10 ms beyond the start of an empty node",
        target: Target::AtMost(1.0),
    };
    let beyond = || {
        let (with, without) = (many.start()?.ready_after, empty.start()?.ready_after);
        Ok(with.saturating_sub(without).as_secs_f64() * 1e6)
    };
    report(&session.figures(spec, beyond, || Ok(START.as_secs_f64() * 1e6))?)
}

/// One slice of what ran side by side.
pub(super) fn joined(slices: Vec<Slice>) -> Slice {
    let elapsed = slices.iter().map(|slice| slice.elapsed).max().unwrap_or_default();
    let units = slices.iter().map(|slice| slice.units).sum();
    Slice { units, elapsed, latencies: slices.into_iter().flat_map(|slice| slice.latencies).collect() }
}

/// A failure of the engine or of the node on it.
pub(super) fn engine_failed(doing: &str, reason: &dyn Display) -> CliError {
    CliError::Bench { doing: doing.to_owned(), reason: reason.to_string() }
}
