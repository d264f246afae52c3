//! A lane with the records of its messages and the tickets its cycle waits for: the part of a [`crate::delivery::Source`] that is the same
//! for every shell. No I/O: what goes to the broker comes out of [`Desk::poll`], dead letters are the shell's.
//!
//! A shell keeps it in a lock that its connection's task and its `Source` share, and calls [`Desk::poll`] after every other call. Nothing
//! here calls back into the shell but the reporter and tickets, which only leave news for the driver.

use std::collections::BTreeMap;

use latent_core::{Completer, DeliveredEvent, MonoTime, Offset, Ticket};

use super::command::{Delivery, LaneCommand};
use super::{Confirmation, Lane};
use crate::delivery::source::{Listing, Reporter, Settlement, SourceError, SourceNews};

type Answer<T> = Result<T, SourceError>;

/// See the module.
pub struct Desk {
    /// The broker's answers go to it directly; messages go through [`Desk::handle_message`].
    pub lane: Lane,
    /// `None` for what cannot be read.
    records: BTreeMap<u64, Option<DeliveredEvent>>,
    reporter: Option<Reporter>,
    pull: Option<Completer<Answer<Listing>>>,
    settling: BTreeMap<u64, Completer<Answer<()>>>,
    /// Why the broker gives nothing, in the shell's words.
    obstacle: Option<String>,
}

impl Desk {
    /// A desk for a lane with nothing held.
    pub const fn new(lane: Lane) -> Self {
        Self { lane, records: BTreeMap::new(), reporter: None, pull: None, settling: BTreeMap::new(), obstacle: None }
    }

    /// [`crate::delivery::Source::report_to`].
    pub fn report_to(&mut self, reporter: Reporter) {
        self.reporter = Some(reporter);
    }

    /// [`crate::delivery::Source::pull`].
    pub fn pull(&mut self, heads_max: u32) -> Ticket<Answer<Listing>> {
        let (ticket, completer) = Ticket::pair(Err(self.no_answer()));
        self.pull = Some(completer);
        self.lane.want(heads_max);
        ticket
    }

    /// [`crate::delivery::Source::begin`].
    pub fn begin(&mut self, now: MonoTime, offset: Offset, attempt: u32) -> Ticket<Answer<DeliveredEvent>> {
        let begun = self.lane.begin(now, offset.0).map_err(|error| SourceError::Unavailable { reason: error.to_string() });
        let record = begun.and_then(|()| self.records.get(&offset.0).cloned().flatten().ok_or(SourceError::Undecodable));
        if record.is_err() {
            self.lane.ended(offset.0);
        }
        Ticket::ready(record.map(|record| DeliveredEvent { delivery: attempt, ..record }))
    }

    /// [`crate::delivery::Source::postpone`]. The broker remembers no attempts of ours, so nothing is written down.
    pub fn postpone(&mut self, offset: Offset) -> Ticket<Answer<()>> {
        self.lane.put_off(offset.0);
        Ticket::ready(Ok(()))
    }

    /// [`crate::delivery::Source::ended`].
    pub fn ended(&mut self, offset: Offset) {
        self.lane.ended(offset.0);
    }

    /// [`crate::delivery::Source::settle`].
    pub fn settle(&mut self, offset: Offset, settlement: Settlement) -> Ticket<Answer<()>> {
        let (ticket, completer) = Ticket::pair(Err(self.no_answer()));
        self.settling.insert(offset.0, completer);
        self.lane.settle(offset.0, settlement);
        ticket
    }

    /// [`crate::delivery::Source::stop`].
    pub fn stop(&mut self) {
        self.lane.stop();
    }

    /// The record of a message that is held, for its dead letter; `None` for one that is not, or cannot be read.
    pub fn record(&self, offset: Offset) -> Option<&DeliveredEvent> {
        self.records.get(&offset.0).and_then(Option::as_ref)
    }

    /// [`Lane::handle_message`], with what it carries; `None` when that cannot be read.
    pub fn handle_message(&mut self, now: MonoTime, delivery: Delivery, record: Option<DeliveredEvent>) {
        if self.lane.handle_message(now, delivery) {
            self.records.insert(delivery.sequence, record);
        }
    }

    /// Tells the cycle what it is to know, and gives the next command for the broker.
    pub fn poll(&mut self, now: MonoTime) -> Option<LaneCommand> {
        while let Some(command) = self.lane.poll(now) {
            match command {
                LaneCommand::Inspect { .. } | LaneCommand::Pull { .. } | LaneCommand::Renew { .. } | LaneCommand::Settle { .. } => {
                    return Some(command);
                }
                LaneCommand::List(arrival) => self.report(SourceNews::Handed(arrival)),
                LaneCommand::Again(arrival) => self.report(SourceNews::Again(arrival)),
                LaneCommand::Lapsed { sequence } => self.report(SourceNews::Lapsed(Offset(sequence))),
                LaneCommand::Over { sequence } => self.report(SourceNews::Over(Offset(sequence))),
                LaneCommand::PullOver { refused } => self.end_pull(refused),
                LaneCommand::Settled { sequence, confirmation } => self.end_settlement(sequence, confirmation),
            }
        }
        let lane = &self.lane;
        self.records.retain(|sequence, _| lane.holds(*sequence));
        None
    }

    /// What stands in the way of messages, told to the cycle with the next refusal; `None` when nothing does.
    pub fn set_obstacle(&mut self, obstacle: Option<String>) {
        self.obstacle = obstacle;
    }

    /// Tells the cycle up to where there may be messages.
    pub fn tell_available(&self, end: Offset) {
        self.report(SourceNews::Available(end));
    }

    fn no_answer(&self) -> SourceError {
        let reason = self.obstacle.clone().unwrap_or_else(|| "the broker gives no messages now".to_owned());
        SourceError::Unavailable { reason }
    }

    fn report(&self, news: SourceNews) {
        if let Some(reporter) = &self.reporter {
            reporter(news);
        }
    }

    fn end_pull(&mut self, refused: bool) {
        if let Some(pull) = self.pull.take() {
            pull.complete(if refused { Err(self.no_answer()) } else { Ok(Listing::default()) });
        }
    }

    fn end_settlement(&mut self, sequence: u64, confirmation: Confirmation) {
        let Some(settling) = self.settling.remove(&sequence) else { return };
        settling.complete(match confirmation {
            Confirmation::Confirmed => Ok(()),
            Confirmation::NotSent => Err(SourceError::Unavailable { reason: "the settlement was not sent".to_owned() }),
            Confirmation::Uncertain => Err(SourceError::Unavailable { reason: "the settlement got no answer".to_owned() }),
        });
    }
}

#[cfg(test)]
mod tests;
