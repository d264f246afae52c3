//! Reservations: what is listed for them, what is put away for want of them, and what is asked of the broker because of them.

use latent_core::MonoTime;

use super::command::LaneCommand;
use super::held::{Held, Stage};
use super::{HeadContent, Lane};

impl Lane {
    pub(super) fn unlisted(&self) -> u32 {
        u32::try_from(self.held.values().filter(|held| held.stage == Stage::Unlisted).count()).unwrap_or(u32::MAX)
    }

    /// How many reservations nothing is held for.
    pub(super) fn room(&self) -> u32 {
        self.wanted.unwrap_or_default().saturating_sub(self.unlisted())
    }

    /// A message that came has taken one of the cycle's reservations.
    pub(super) fn use_reservation(&mut self) {
        self.wanted = self.wanted.map(|wanted| wanted.saturating_sub(1));
        if self.wanted == Some(0) {
            self.end_wanted(false);
        }
    }

    pub(super) fn end_wanted(&mut self, refused: bool) {
        if self.wanted.take().is_some() {
            self.out.push_back(LaneCommand::PullOver { refused });
        }
    }

    /// Lists what may be listed, and makes room while something that is not known keeps the gate shut.
    pub(super) fn list(&mut self, now: MonoTime) {
        while self.gate.is_open() && self.is_taking() {
            let next = self.held.iter().find(|(_, held)| held.stage == Stage::Unlisted && !self.waits_for_away(held));
            let Some((sequence, arrival, lapsed)) = next.map(|(sequence, held)| (*sequence, held.arrival(), held.lapsed)) else { break };
            self.set_stage(sequence, Stage::Listed);
            self.listed_end = self.listed_end.max(sequence.saturating_add(1));
            self.out.push_back(LaneCommand::List(arrival));
            if lapsed {
                self.tell_lapsed(now, sequence);
            }
            self.use_reservation();
        }
        // What cannot be listed must not keep what it waits for from coming.
        if self.wanted.is_some() && self.room() == 0 && !self.pull_open && self.is_taking() {
            let last = self.held.iter().rev().find(|(_, held)| held.stage == Stage::Unlisted).map(|(sequence, _)| *sequence);
            if let Some(sequence) = last.filter(|_| self.gate.is_open() || self.gate.waits_for_more()) {
                self.set_stage(sequence, Stage::Away);
            }
        }
    }

    /// An earlier message of its key is known and has to come again first.
    pub(super) fn waits_for_away(&self, held: &Held) -> bool {
        let HeadContent::Event(_) = held.delivery.content else { return false };
        let earlier = self.held.range(..held.delivery.sequence).map(|(_, earlier)| earlier);
        earlier.filter(|earlier| earlier.stage == Stage::Away).any(|earlier| earlier.delivery.content == held.delivery.content)
    }

    pub(super) fn batch(&self) -> u32 {
        if self.connected && self.is_taking() && !self.pull_open { self.room() } else { 0 }
    }

    /// Asks the broker what is to be asked now.
    pub(super) fn ask(&mut self, now: MonoTime) {
        if !self.connected || !self.is_taking() {
            return;
        }
        let batch_max = self.batch();
        let pulls = batch_max > 0 && self.pull_not_before.is_none_or(|at| at <= now);
        // Before a pin is waited for: then what comes with it can be told from what was settled meanwhile.
        let inspects = self.inspect_at.is_some_and(|at| at <= now) || (pulls && self.pin.is_none());
        if inspects && self.question.is_none() {
            self.questions += 1;
            self.question = Some(self.questions);
            self.inspect_at = None;
            self.out.push_back(LaneCommand::Inspect { question: self.questions });
        }
        if pulls {
            #[cfg(test)]
            let batch_max = self.batch_if_planted(batch_max);
            self.pull_open = true;
            self.asked_at = now;
            self.pull_not_before = None;
            self.out.push_back(LaneCommand::Pull { pin: self.pin, batch_max, expires_millis: self.options.renew_millis() });
        }
    }
}
