//! Events that never run (again): noted, parked, and only then settled. In this order, so that neither a kill nor a dead-letter topic that
//! is away makes one run once more, or lets one be lost.

use latent_core::{MonoTime, Offset};

use super::{Command, Cycle, State, Termination, backoff_millis};
use crate::delivery::limits;
use crate::delivery::source::{HeadContent, Settlement, SourceError, TerminationReason};

impl Cycle {
    /// The answer to [`Command::Condemn`].
    pub fn handle_condemned(&mut self, now: MonoTime, offset: Offset, answer: Result<(), SourceError>) {
        let Some(State::Noting(reason)) = self.entries.get(&offset).map(|entry| entry.state) else { return };
        if answer.is_ok() {
            self.source_faults = 0;
        }
        if self.is_over(offset) {
            return self.let_go(now, offset);
        }
        if offset < self.first {
            return self.drop_event(now, offset);
        }
        if answer.is_ok() {
            return self.wait_to_be_parked(offset, reason);
        }
        let until = now.plus_millis(self.source_backoff_millis());
        self.set_state(offset, State::Unnoted(reason, until));
        self.timers.insert((until, offset));
    }

    /// The answer to [`Command::Park`].
    pub fn handle_parked(&mut self, now: MonoTime, offset: Offset, answer: Result<(), SourceError>) {
        let Some(entry) = self.entries.get(&offset).copied() else { return };
        let State::Parking(reason) = entry.state else { return };
        self.parks_open = self.parks_open.saturating_sub(1);
        if entry.hold.over {
            return self.let_go(now, offset);
        }
        match answer {
            Ok(()) => {
                self.park_faults = 0;
                self.park_not_before = None;
                self.settle(offset, Settlement::Terminated(reason));
            }
            Err(SourceError::Expired { first }) if offset < first => {
                self.source_faults = 0;
                self.drop_expired(now, first);
                self.drop_event(now, offset);
            }
            Err(_) if offset < self.first => self.drop_event(now, offset),
            Err(_) => {
                let (first, longest) = (limits::PARK_BACKOFF_MILLIS.default, limits::PARK_BACKOFF_MAX_MILLIS.default);
                let backoff_millis = backoff_millis(self.park_faults, first, longest);
                self.park_faults = self.park_faults.saturating_add(1);
                self.park_not_before = Some(now.plus_millis(backoff_millis));
                self.park_from = Offset(offset.0.saturating_add(1));
                self.wait_to_be_parked(offset, reason);
            }
        }
    }

    /// Whether the event may yet be parked: it is listed, or an earlier process condemned it and it is not its turn yet.
    pub fn may_be_parked(&self, offset: Offset) -> bool {
        self.has(offset) || self.condemned.contains_key(&offset)
    }

    /// Why an event that is not settled never runs (again).
    pub fn condemned(&self, offset: Offset) -> Option<TerminationReason> {
        match self.entries.get(&offset)?.state {
            State::Noting(reason) | State::Unnoted(reason, _) | State::Condemned(reason) | State::Parking(reason) => Some(reason),
            _ => None,
        }
    }

    /// The event never runs (again). What is to be parked is written down first, so that no process ever runs it again; what cannot be
    /// read never runs anyway.
    pub(super) fn terminate(&mut self, offset: Offset, reason: TerminationReason) {
        if self.options.termination == Termination::Parked && reason != TerminationReason::Undecodable {
            self.condemn(offset, reason);
        } else {
            self.terminate_noted(offset, reason);
        }
    }

    pub(super) fn condemn(&mut self, offset: Offset, reason: TerminationReason) {
        self.set_state(offset, State::Noting(reason));
        self.outbox.push_back(Command::Condemn { offset, reason, attempts: self.attempts(offset) });
    }

    pub(super) fn terminate_noted(&mut self, offset: Offset, reason: TerminationReason) {
        #[cfg(test)]
        if self.planted == Some(crate::delivery::sim::PlantedBug::SettleUnparked) {
            return self.settle(offset, Settlement::Terminated(reason));
        }
        match self.options.termination {
            Termination::Plain => self.settle(offset, Settlement::Terminated(reason)),
            Termination::Parked => self.wait_to_be_parked(offset, reason),
        }
    }

    pub(super) fn wait_to_be_parked(&mut self, offset: Offset, reason: TerminationReason) {
        self.set_state(offset, State::Condemned(reason));
        self.to_park.insert(offset);
    }

    /// Parks condemned events, the earliest first and a failed one after the others: several at once, but one at a time as long as it does
    /// not work.
    pub(super) fn poll_park(&mut self, now: MonoTime) -> Option<Command> {
        let open_max = if self.park_faults > 0 { 1 } else { limits::PARKS_OPEN.default };
        if u64::from(self.parks_open) >= open_max || self.park_not_before.is_some_and(|at| at > now) {
            return None;
        }
        let offset = self.to_park.range(self.park_from..).next().or_else(|| self.to_park.first()).copied()?;
        self.to_park.remove(&offset);
        let entry = self.entries.get_mut(&offset)?;
        let State::Condemned(reason) = entry.state else { return None };
        entry.state = State::Parking(reason);
        self.parks_open += 1;
        Some(Command::Park { offset, reason, attempts: entry.attempts })
    }

    pub(super) fn never_runs(&self, offset: Offset) -> Option<TerminationReason> {
        let entry = self.entries.get(&offset)?;
        match entry.content {
            HeadContent::Undecodable => Some(TerminationReason::Undecodable),
            HeadContent::Event(_) if entry.attempts >= self.options.policy.deliveries_max => Some(TerminationReason::Exhausted),
            HeadContent::Event(_) => None,
        }
    }
}
