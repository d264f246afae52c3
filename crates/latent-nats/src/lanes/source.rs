//! A lane as the delivery cycle's source. What is asked is noted at the lane's desk; the task of the connection carries it.

use std::sync::Arc;

use latent_core::{Clock, DeliveredEvent, Offset, Ticket, Verdict};
use latent_node::delivery::{Listing, Postponement, Reporter, Settlement, Source, SourceError};

use super::bell::Bell;
use super::office::{LaneCell, Office};
use super::topics::{LaneTopics, Unplaced};

/// See the module.
pub(super) struct LaneSource {
    pub(super) cell: Arc<LaneCell>,
    pub(super) bell: Arc<Bell>,
    /// The lane's place at its carrier.
    pub(super) place: usize,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) topics: Arc<dyn LaneTopics>,
}

impl LaneSource {
    /// Does something at the desk and has it carried.
    fn at_desk<T>(&self, act: impl FnOnce(&mut Office) -> T) -> T {
        let mut office = self.cell.office();
        let done = act(&mut office);
        if office.closed {
            // Nobody carries any more: the desk itself answers.
            while office.poll(self.clock.mono()).is_some() {}
        }
        drop(office);
        self.bell.ring(self.place);
        done
    }
}

impl Source for LaneSource {
    fn pull(&mut self, _: Offset, heads_max: u32) -> Ticket<Result<Listing, SourceError>> {
        self.at_desk(|office| office.desk.pull(heads_max))
    }

    fn begin(&mut self, offset: Offset, attempt: u32) -> Ticket<Result<DeliveredEvent, SourceError>> {
        let now = self.clock.mono();
        self.at_desk(|office| office.desk.begin(now, offset, attempt))
    }

    fn postpone(&mut self, offset: Offset, _: Postponement) -> Ticket<Result<(), SourceError>> {
        self.at_desk(|office| office.desk.postpone(offset))
    }

    fn condemn(&mut self, _: Offset, _: &Verdict) -> Ticket<Result<(), SourceError>> {
        // A broker takes no notes: a message that comes again elsewhere is tried again there, as long as runs are left.
        Ticket::ready(Ok(()))
    }

    fn park(&mut self, offset: Offset, verdict: &Verdict) -> Ticket<Result<(), SourceError>> {
        let found = {
            let office = self.cell.office();
            let event = office.desk.record(offset).cloned().map(Unplaced::Event);
            event.or_else(|| office.remains(offset.0).map(|bytes| Unplaced::Remains { offset, bytes }))
        };
        match found {
            Some(letter) => self.topics.park(&self.cell.binding, letter, verdict.clone()),
            None => Ticket::ready(Err(SourceError::Unavailable { reason: "the message is not held any more; it comes again".to_owned() })),
        }
    }

    fn settle(&mut self, offset: Offset, settlement: Settlement) -> Ticket<Result<(), SourceError>> {
        self.at_desk(|office| office.desk.settle(offset, settlement))
    }

    fn report_to(&mut self, reporter: Reporter) {
        self.at_desk(|office| office.desk.report_to(reporter));
    }

    fn ended(&mut self, offset: Offset) {
        self.at_desk(|office| office.desk.ended(offset));
    }

    fn stop(&mut self) {
        self.at_desk(|office| office.desk.stop());
    }
}
