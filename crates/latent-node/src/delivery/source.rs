//! What the delivery cycle needs from a place that events come from. Knows no NATS and no file.

use std::sync::Arc;

use latent_capabilities::Origin;
pub use latent_core::TerminationReason;
use latent_core::{BindingId, DeliveredEvent, MonoTime, Offset, Place, Replay, Ticket, UnixMillis, Verdict};

use super::settled::SettledSet;

/// Stands for a key inside one process. Equal keys have equal ids; unequal keys may share one, which only makes them wait for
/// each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub u64);

/// What a pull tells of one event: enough to decide when it may run, without holding its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Head {
    /// Its position.
    pub offset: Offset,
    /// Its key, or that it cannot be read.
    pub content: HeadContent,
}

/// See [`Head`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeadContent {
    /// An event with this key.
    Event(KeyId),
    /// Not a readable record. It is settled without running.
    Undecodable,
}

/// What a pull tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// Ascending.
    pub heads: Vec<Head>,
    /// Every event below has expired: retention does not wait for anybody, and nobody can read it any more. 0 where events do not expire.
    pub first: Offset,
}

/// An event that a broker handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// The event.
    pub head: Head,
    /// How often it was handed out, this time included, to whomever.
    pub deliveries: u32,
}

/// What a source that hands events out tells its cycle without being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceNews {
    /// There may be events up to this offset, exclusive.
    Available(Offset),
    /// An event was handed out. It uses one of the reservations of the open pull.
    Handed(Arrival),
    /// Somebody else may get the event any moment: its run is to be stopped, and neither it nor anything behind it in its key may begin
    /// until it comes again or is over.
    Lapsed(Offset),
    /// The event was handed out once more, to this process.
    Again(Arrival),
    /// The event is over for this process: it was settled by another, or is left to the next one. What runs of it is to be stopped.
    Over(Offset),
}

/// Takes the news of one source. May be called from any thread.
pub type Reporter = Arc<dyn Fn(SourceNews) + Send + Sync>;

/// How an event is settled for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settlement {
    /// Its activation succeeded.
    Acknowledged,
    /// It will never run again.
    Terminated(TerminationReason),
}

/// A later attempt, as it is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Postponement {
    /// Attempts made so far.
    pub attempts: u32,
    /// The earliest time of the next one, on the wall clock, because it must mean the same after a restart.
    pub not_before: UnixMillis,
}

/// Why a source could not do what it was asked. The cycle waits and asks again, except where noted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The record cannot be read and never will be: it is terminated without running.
    #[error("the record cannot be read")]
    Undecodable,
    /// The event has expired: it is dropped without running.
    #[error("the event has expired: the first one that is kept is {first}")]
    Expired {
        /// As in [`Listing::first`]; above the event's offset.
        first: Offset,
    },
    /// It cannot be done now.
    #[error("{reason}")]
    Unavailable {
        /// What stands in the way, for the status.
        reason: String,
    },
}

/// What a source remembers of a partition for a binding, handed to a new cycle.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Remembered {
    /// What is settled.
    pub settled: SettledSet,
    /// Attempts made on events that are not settled, with the earliest time of the next one.
    pub attempts: Vec<(Offset, u32, MonoTime)>,
    /// Verdicts on events that are not settled: they never run again.
    pub verdicts: Vec<(Offset, Verdict)>,
}

/// What keys of a run on `event` are derived from: the event's place and time, and of one that was published again out of a dead letter,
/// those it had first.
pub fn origin_of(binding: &BindingId, event: &DeliveredEvent) -> Origin {
    let (place, stored_at) = match Replay::read(&event.attributes).filter(|replay| replay.place.topic == event.topic) {
        Some(Replay { place, stored_at, .. }) => (place, stored_at),
        None => (Place { topic: event.topic.clone(), partition: event.partition, offset: event.offset }, event.stored_at),
    };
    let Place { topic, partition, offset } = place;
    Origin { binding: binding.clone(), topic, partition, offset, stored_at: Some(stored_at) }
}

/// A partition of a topic (or a durable consumer) as one binding sees it.
///
/// Every method hands over and returns a ticket; none blocks. The cycle never has more than one `pull` open, and for one offset never
/// more than one of the others, but for notes.
pub trait Source: Send {
    /// Heads with offsets ≥ `from`, at most `heads_max`. Fewer than that means that there are no more now.
    fn pull(&mut self, from: Offset, heads_max: u32) -> Ticket<Result<Listing, SourceError>>;

    /// Writes down that `attempt` begins, then gives the event. The note survives a kill of the process.
    fn begin(&mut self, offset: Offset, attempt: u32) -> Ticket<Result<DeliveredEvent, SourceError>>;

    /// Writes down that the event runs again later.
    fn postpone(&mut self, offset: Offset, postponement: Postponement) -> Ticket<Result<(), SourceError>>;

    /// Writes down that the event never runs again, and why. The note survives a kill of the process.
    fn condemn(&mut self, offset: Offset, verdict: &Verdict) -> Ticket<Result<(), SourceError>>;

    /// Keeps the event with its verdict in the dead-letter topic. A success survives a power cut; done twice it is one dead letter.
    fn park(&mut self, offset: Offset, verdict: &Verdict) -> Ticket<Result<(), SourceError>>;

    /// Settles the event. A success survives a power cut.
    fn settle(&mut self, offset: Offset, settlement: Settlement) -> Ticket<Result<(), SourceError>>;

    /// Where news goes, told before anything is asked. Only a source that hands events out has any.
    fn report_to(&mut self, reporter: Reporter) {
        drop(reporter);
    }

    /// An activation of the event has ended, however. Told before anything that follows from it.
    fn ended(&mut self, offset: Offset) {
        let _ = offset;
    }

    /// Nothing new will be asked for. What a source keeps for later it may let go of; an open pull is to be answered.
    fn stop(&mut self) {}
}
