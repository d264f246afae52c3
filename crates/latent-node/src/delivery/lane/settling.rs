//! Settlements: sent once for each delivery, and over only when the broker says so.

use latent_core::MonoTime;

use super::command::{Inspected, LaneCommand};
use super::held::{Held, Stage};
use super::{Confirmation, Lane, Settlement};

impl Lane {
    /// The event is to be settled. Ends with [`LaneCommand::Settled`].
    pub fn settle(&mut self, sequence: u64, settlement: Settlement) {
        match self.held.get_mut(&sequence) {
            Some(held) if matches!(held.stage, Stage::Listed | Stage::Running) => {
                held.stage = Stage::Due(settlement);
                if held.lapsed && !self.is_taking() {
                    self.give_up(sequence);
                }
            }
            // It was given up meanwhile.
            _ => {
                self.out.push_back(LaneCommand::Over { sequence });
                self.out.push_back(LaneCommand::Settled { sequence, confirmation: Confirmation::NotSent });
            }
        }
    }

    /// The answer to [`LaneCommand::Settle`].
    pub fn handle_settled(&mut self, now: MonoTime, sequence: u64, confirmation: Confirmation) {
        #[cfg(test)]
        let confirmation = self.confirmation_if_planted(confirmation);
        let taking = self.is_taking();
        let Some(held) = self.held.get_mut(&sequence) else { return };
        let Stage::Sent(settlement) = held.stage else { return };
        let again = std::mem::take(&mut held.again);
        match confirmation {
            Confirmation::Confirmed => {
                self.held.remove(&sequence);
                self.out.push_back(LaneCommand::Settled { sequence, confirmation });
            }
            _ if again => held.stage = Stage::Due(settlement),
            Confirmation::NotSent if taking => {
                // The cycle asks again after a while.
                held.stage = Stage::Listed;
                self.out.push_back(LaneCommand::Settled { sequence, confirmation });
            }
            Confirmation::NotSent => {
                held.stage = Stage::Due(settlement);
                self.give_up(sequence);
            }
            Confirmation::Uncertain => {
                held.stage = Stage::Uncertain(settlement);
                if taking {
                    self.inspect_at = Some(now);
                    self.tell_lapsed(now, sequence);
                } else {
                    self.give_up(sequence);
                }
            }
        }
    }

    pub(super) fn send_due(&mut self) {
        if !self.connected {
            return;
        }
        for (sequence, held) in &mut self.held {
            if let Stage::Due(settlement) = held.stage
                && !held.lapsed
            {
                held.stage = Stage::Sent(settlement);
                self.out.push_back(LaneCommand::Settle { sequence: *sequence, reply: held.delivery.reply, settlement });
            }
        }
    }

    /// Everything up to `floor` is settled, by whomever.
    pub(super) fn learn_settled(&mut self, floor: u64) {
        let settled: Vec<u64> = self.held.range(..=floor).map(|(sequence, _)| *sequence).collect();
        for sequence in settled {
            match self.held.get(&sequence).map(|held| held.stage) {
                Some(Stage::Away | Stage::Unlisted) => drop(self.held.remove(&sequence)),
                Some(Stage::Listed | Stage::Running) => self.give_up(sequence),
                Some(Stage::Due(_) | Stage::Uncertain(_)) => self.confirm(sequence),
                // Its answer is under way.
                Some(Stage::Sent(_)) | None => {}
            }
        }
    }

    /// Whether anything waits for what only the broker can tell: that it comes again, or is settled.
    pub(super) fn waits_for_broker(&self) -> bool {
        self.held.values().any(|held| held.told || matches!(held.stage, Stage::Uncertain(_) | Stage::Away))
    }

    /// Uncertain settlements have arrived if what else is held accounts for everything that is unsettled.
    pub(super) fn resolve_uncertain(&mut self, seen: &Inspected) {
        let (uncertain, others): (Vec<&Held>, Vec<&Held>) = self.held.values().partition(|held| matches!(held.stage, Stage::Uncertain(_)));
        let others_are_unsettled = others.iter().all(|held| !held.foreign && !matches!(held.stage, Stage::Sent(_)));
        let others = others.iter().filter(|held| held.first_order <= seen.deliveries).count() as u64;
        if self.gate.is_open() && others_are_unsettled && seen.unacknowledged == others {
            let arrived = uncertain.iter().filter(|held| held.first_order <= seen.deliveries);
            let arrived: Vec<u64> = arrived.map(|held| held.delivery.sequence).collect();
            arrived.into_iter().for_each(|sequence| self.confirm(sequence));
        }
    }

    fn confirm(&mut self, sequence: u64) {
        if self.held.remove(&sequence).is_some() {
            self.out.push_back(LaneCommand::Settled { sequence, confirmation: Confirmation::Confirmed });
        }
    }
}
