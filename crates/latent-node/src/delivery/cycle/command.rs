//! What goes into a cycle at its making, and what comes out of it.

use latent_core::Offset;

use crate::delivery::policy::DeliveryPolicy;
use crate::delivery::source::{Settlement, TerminationReason};

/// What listing an event costs at its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Intake {
    /// Listing takes nothing out: events stay in the log until they begin. Only beginning needs a permit.
    LookAhead,
    /// Listing takes events out of the source, so no more are pulled than permits are held (T-102).
    Reserved,
    /// As [`Intake::Reserved`], and the source is a broker that hands events out: it may hand any of them out again, in any order, and what
    /// it passes over may come later, since somebody else may hold it. Events come by [`crate::delivery::SourceNews`]; an answer to a pull only says
    /// that it is over.
    HandedOut,
}

/// How a cycle behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CycleOptions {
    /// Attempts, delays and parallelism.
    pub policy: DeliveryPolicy,
    /// What listing costs.
    pub intake: Intake,
    /// Events after the first unsettled one that are looked at.
    pub window_max: u32,
    /// What becomes of events that never run (again).
    pub termination: Termination,
}

/// What becomes of an event that never runs (again).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Termination {
    /// It is settled.
    Plain,
    /// It is kept in a dead-letter topic first; only when it is there it is settled.
    Parked,
}

/// What the driver is to do. Each command is answered by the `handle_*` call named with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    /// [`crate::delivery::Source::pull`]; answered by [`super::Cycle::handle_pulled`].
    Pull {
        /// First offset wanted.
        from: Offset,
        /// Most heads wanted.
        heads_max: u32,
    },
    /// [`crate::delivery::Source::begin`] with one granted permit; answered by [`super::Cycle::handle_begun`] and, if that was a success, by
    /// [`super::Cycle::handle_finished`] when the activation has ended.
    Begin {
        /// The event.
        offset: Offset,
        /// Which run this is, from 1.
        attempt: u32,
    },
    /// [`crate::delivery::Source::postpone`]; a note for the next process, not answered.
    Postpone {
        /// The event.
        offset: Offset,
        /// Runs so far.
        attempts: u32,
        /// Milliseconds from now to the next run.
        delay_millis: u64,
    },
    /// [`crate::delivery::Source::condemn`]; answered by [`super::Cycle::handle_condemned`].
    Condemn {
        /// The event.
        offset: Offset,
        /// Why it never runs (again).
        reason: TerminationReason,
        /// Runs so far.
        attempts: u32,
    },
    /// [`crate::delivery::Source::park`]; answered by [`super::Cycle::handle_parked`].
    Park {
        /// The event.
        offset: Offset,
        /// Why it never runs (again).
        reason: TerminationReason,
        /// Runs so far.
        attempts: u32,
    },
    /// [`crate::delivery::Source::settle`]; answered by [`super::Cycle::handle_settled`].
    Settle {
        /// The event.
        offset: Offset,
        /// How.
        settlement: Settlement,
    },
}
