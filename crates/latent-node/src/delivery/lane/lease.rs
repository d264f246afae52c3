//! Leases: until when a message is certainly this process's.

use latent_core::MonoTime;

use super::command::{Delivery, LaneCommand, ReplyId};
use super::held::{Held, Stage};
use super::{Confirmation, Lane, LaneOptions};

impl Lane {
    /// The answer to [`LaneCommand::Renew`].
    pub fn handle_renewed(&mut self, now: MonoTime, sequence: u64, reply: ReplyId, confirmation: Confirmation) {
        if let Some(held) = self.held.get_mut(&sequence) {
            held.renewal_answered(now, reply, confirmation == Confirmation::Confirmed, &self.options);
        }
    }

    /// From when the lease of what arrives now is counted: its pull was sent before the broker can have delivered it.
    pub(super) fn lease_begins(&self, now: MonoTime) -> MonoTime {
        #[cfg(test)]
        if self.planted == Some(super::model::Planted::LeaseFromArrival) {
            return now;
        }
        let _ = now;
        self.asked_at
    }

    pub(super) fn renew(&mut self, now: MonoTime) {
        if !self.connected {
            return;
        }
        let (losing, gate) = (!self.is_taking(), &self.gate);
        for (sequence, held) in &mut self.held {
            if held.renews_at(losing).is_some_and(|at| at <= now) && !gate.doubts(held) {
                held.renewal_sent(now);
                self.out.push_back(LaneCommand::Renew { sequence: *sequence, reply: held.delivery.reply });
            }
        }
    }

    /// Takes leases as lost whose time is over. What runs under one is stopped.
    pub(super) fn lapse(&mut self, now: MonoTime) {
        self.lapse_those(now, |held, options| held.lapses_at(options) <= now);
    }

    /// The broker may know nothing of what it delivered last: a server that was killed goes on with what it wrote down of its consumers, which
    /// is a little old. It hands such messages out as if for the first time, to anybody, and a settlement of ours would be taken for that of
    /// the new holder, whose gate counts on nobody else's. So every lease of before is over. To be told before [`Lane::handle_connected`].
    pub fn handle_broker_forgot(&mut self, now: MonoTime) {
        self.lapse_those(now, |_, _| true);
    }

    fn lapse_those(&mut self, now: MonoTime, is_over: impl Fn(&Held, &LaneOptions) -> bool) {
        let is_over = |held: &Held| held.has_lease() && is_over(held, &self.options);
        let over: Vec<u64> = self.held.iter().filter(|(_, held)| is_over(held)).map(|(sequence, _)| *sequence).collect();
        for sequence in over.into_iter().rev() {
            let Some(held) = self.held.get_mut(&sequence) else { continue };
            held.lapsed = true;
            match held.stage {
                // Whether it is settled is not known: if it is not, it comes again.
                Stage::Unlisted | Stage::Away if !self.gate.is_open() && !self.gate.is_proven(held) => {
                    self.held.remove(&sequence);
                }
                // It has to come again, and needs room for that.
                Stage::Unlisted => held.stage = Stage::Away,
                Stage::Listed | Stage::Due(_) if self.phase == super::Phase::Losing => self.give_up(sequence),
                Stage::Listed | Stage::Running | Stage::Due(_) => self.tell_lapsed(now, sequence),
                _ => {}
            }
        }
    }

    /// The message has to come again, and the cycle is to make room for that.
    pub(super) fn tell_lapsed(&mut self, now: MonoTime, sequence: u64) {
        if let Some(held) = self.held.get_mut(&sequence).filter(|held| !held.told) {
            held.told = true;
            self.out.push_back(LaneCommand::Lapsed { sequence });
            self.inspect_at = self.inspect_at.or(Some(now.plus_millis(self.options.inspect_millis())));
        }
    }

    /// A message that is known came again: its lease begins anew, and another subject settles it.
    pub(super) fn take_again(&mut self, now: MonoTime, delivery: Delivery) {
        let (begins, options) = (self.lease_begins(now), self.options);
        let Some(held) = self.held.get_mut(&delivery.sequence) else { return };
        held.renew_by_delivery(delivery, begins, &options);
        match held.stage {
            Stage::Away => held.stage = Stage::Unlisted,
            Stage::Sent(_) => held.again = true,
            Stage::Uncertain(settlement) => held.stage = Stage::Due(settlement),
            Stage::Unlisted | Stage::Listed | Stage::Running | Stage::Due(_) => {}
        }
        if !matches!(held.stage, Stage::Unlisted) {
            let (arrival, told) = (held.arrival(), std::mem::take(&mut held.told));
            self.out.push_back(LaneCommand::Again(arrival));
            if told {
                self.use_reservation();
            }
        }
        // The lease may be over already, if the answer was long under way.
        self.lapse(now);
    }
}
