//! A node of the model: a real lane under a real cycle, with the shell between them, which keeps nothing to itself.

use std::collections::BTreeSet;

use latent_core::{ActivationOutcome, MonoTime, Offset};

use super::Planted;
use crate::delivery::lane::{Lane, LaneCommand, LaneOptions};
use crate::delivery::sim::PlantedBug;
use crate::delivery::visit::Confirmation;
use crate::delivery::{Command, Cycle, CycleOptions, Listing, Remembered, SourceError, SourceNews};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) lane: Lane,
    pub(super) cycle: Cycle,
    /// Reservations that the cycle has.
    pub(super) permits: u32,
    pub(super) cells: u32,
    pub(super) running: BTreeSet<u64>,
    /// Begun since it was last looked.
    pub(super) begun: Vec<u64>,
    /// Told to be settled since it was last looked.
    pub(super) told_settled: Vec<u64>,
    /// A pull went beyond what is reserved.
    pub(super) overdrawn: Option<String>,
}

impl Node {
    pub(super) fn new(lane: LaneOptions, cycle: CycleOptions, cells: u32, planted: Option<Planted>) -> Self {
        let mut lane = Lane::new(lane);
        lane.planted = planted;
        let mut cycle = Cycle::new(cycle, Remembered::default(), Offset(0));
        cycle.planted = (planted == Some(Planted::AcknowledgeFailures)).then_some(PlantedBug::AcknowledgeFailures);
        Self { lane, cycle, permits: 0, cells, running: BTreeSet::new(), begun: Vec::new(), told_settled: Vec::new(), overdrawn: None }
    }

    /// The run of a message ended.
    pub(super) fn finish(&mut self, now: MonoTime, sequence: u64, outcome: &ActivationOutcome) {
        self.running.remove(&sequence);
        self.lane.ended(sequence);
        self.cycle.handle_finished(now, Offset(sequence), outcome);
    }

    /// Carries everything between lane and cycle until nothing moves; gives what goes to the broker.
    pub(super) fn settle_down(&mut self, now: MonoTime) -> Vec<LaneCommand> {
        let mut to_broker = Vec::new();
        loop {
            let mut moved = false;
            while let Some(command) = self.lane.poll(now) {
                moved = true;
                self.note_pull(command);
                if !self.tell_cycle(now, command) {
                    to_broker.push(command);
                }
            }
            self.permits -= self.cycle.take_surplus_permits();
            let in_use = u32::try_from(self.running.len()).unwrap_or(u32::MAX);
            while self.cycle.permits_missing() > 0 && self.permits + in_use < self.cells {
                self.permits += 1;
                self.cycle.grant();
            }
            while let Some(command) = self.cycle.poll(now) {
                moved = true;
                self.carry_out(now, command);
            }
            if !moved {
                return to_broker;
            }
        }
    }

    fn note_pull(&mut self, command: LaneCommand) {
        if let LaneCommand::Pull { batch_max, .. } = command {
            // What the cycle knows waits for a reservation if it has none.
            let held = self.lane.unlisted();
            if held + batch_max > self.permits {
                self.overdrawn = Some(format!("pulls {batch_max} with {held} held and {} reserved", self.permits));
            }
        }
    }

    /// False for what is not the cycle's.
    fn tell_cycle(&mut self, now: MonoTime, command: LaneCommand) -> bool {
        match command {
            LaneCommand::Inspect { .. } | LaneCommand::Pull { .. } | LaneCommand::Renew { .. } | LaneCommand::Settle { .. } => {
                return false;
            }
            LaneCommand::List(arrival) => self.tell(now, SourceNews::Handed(arrival)),
            LaneCommand::Again(arrival) => self.tell(now, SourceNews::Again(arrival)),
            LaneCommand::Lapsed { sequence } => self.tell(now, SourceNews::Lapsed(Offset(sequence))),
            LaneCommand::Over { sequence } => self.tell(now, SourceNews::Over(Offset(sequence))),
            LaneCommand::PullOver { refused } => {
                let answer = if refused { Err(unavailable()) } else { Ok(Listing::default()) };
                self.cycle.handle_pulled(now, answer);
            }
            LaneCommand::Settled { sequence, confirmation } => {
                let answer = if confirmation == Confirmation::Confirmed { Ok(()) } else { Err(unavailable()) };
                if answer.is_ok() {
                    self.told_settled.push(sequence);
                }
                self.cycle.handle_settled(now, Offset(sequence), answer);
            }
        }
        true
    }

    /// News for the cycle; a run that is to stop for it stops at once.
    pub(super) fn tell(&mut self, now: MonoTime, news: SourceNews) {
        self.cycle.handle_news(now, news);
        if let SourceNews::Lapsed(offset) | SourceNews::Over(offset) = news
            && self.cycle.is_to_stop(offset)
        {
            self.finish(now, offset.0, &ActivationOutcome::Cancelled);
        }
    }

    fn carry_out(&mut self, now: MonoTime, command: Command) {
        match command {
            Command::Pull { heads_max, .. } => self.lane.want(heads_max),
            Command::Begin { offset, .. } => {
                self.permits -= 1;
                let answer = self.lane.begin(now, offset.0).map_err(|_| unavailable());
                if answer.is_ok() {
                    self.running.insert(offset.0);
                    self.begun.push(offset.0);
                }
                self.cycle.handle_begun(now, offset, answer);
            }
            Command::Postpone { offset, .. } => self.lane.put_off(offset.0),
            Command::Condemn { offset, .. } => self.cycle.handle_condemned(now, offset, Ok(())),
            Command::Park { offset, .. } => self.cycle.handle_parked(now, offset, Ok(())),
            Command::Settle { offset, settlement } => self.lane.settle(offset.0, settlement),
        }
    }
}

fn unavailable() -> SourceError {
    SourceError::Unavailable { reason: "the model says so".to_owned() }
}
