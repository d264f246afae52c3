//! What a cycle tells people about itself. Read only.

use latent_core::{MonoTime, Offset};

use super::{Cycle, State};

/// What a binding does at the moment, in the words of the status document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CycleState {
    /// Nothing to do.
    Idle,
    /// Events wait only for their next attempt.
    Delayed,
    /// Events are running, or about to.
    Busy,
    /// The window is full: later events wait for the first unsettled ones.
    Saturated,
    /// The source cannot do what it is asked, or the dead-letter topic takes nothing.
    Stalled,
    /// It was stopped.
    Stopped,
}

/// Numbers for the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CycleSnapshot {
    /// What it does.
    pub state: CycleState,
    /// Events that are not settled, as far as known.
    pub pending: u64,
    /// Events begun and not yet settled.
    pub unacknowledged: u64,
    /// Events that wait for their next attempt.
    pub delayed: u64,
    /// When the earliest of those is due.
    pub next_attempt: Option<MonoTime>,
    /// Events that expired before they were settled, since the cycle was made.
    pub expired_unread: u64,
}

impl Cycle {
    /// Numbers for the status.
    pub fn snapshot(&self) -> CycleSnapshot {
        let mut unacknowledged = 0;
        let mut delayed = 0;
        for entry in self.entries.values() {
            match entry.state {
                State::Beginning
                | State::Running
                | State::Noting(_)
                | State::Unnoted(..)
                | State::Condemned(_)
                | State::Parking(_)
                | State::Settling(_)
                | State::Unsettled(..) => unacknowledged += 1,
                State::Delayed(_) => delayed += 1,
                State::Waiting | State::Ready | State::Lapsed => {}
            }
        }
        let pending = self.known_end.0.saturating_sub(self.cursor.0) + self.entries.len() as u64;
        let next_attempt = self.timers.iter().find(|(_, offset)| self.is_delayed(*offset)).map(|(at, _)| *at);
        let state = self.state(pending, unacknowledged);
        CycleSnapshot { state, pending, unacknowledged, delayed, next_attempt, expired_unread: self.expired_unread }
    }

    /// Whether events wait for a dead-letter topic that takes nothing.
    pub fn parking_fails(&self) -> bool {
        self.park_faults > 0 && (self.parks_open > 0 || !self.to_park.is_empty())
    }

    fn state(&self, pending: u64, unacknowledged: u64) -> CycleState {
        if self.stopped {
            CycleState::Stopped
        } else if (self.source_faults > 0 && pending > 0) || self.parking_fails() {
            // Where nothing waits, nothing stands still: what the source could not answer was settled by somebody else.
            CycleState::Stalled
        } else if pending == 0 {
            CycleState::Idle
        } else if self.is_full(unacknowledged) && self.cursor < self.known_end && self.ready.is_empty() {
            CycleState::Saturated
        } else if unacknowledged == 0 && self.ready.is_empty() && self.is_all_looked_at() {
            CycleState::Delayed
        } else {
            CycleState::Busy
        }
    }

    /// Whether nothing further is looked at. A broker hands out no more than may be in flight: where something of that runs, it goes on.
    fn is_full(&self, unacknowledged: u64) -> bool {
        if self.is_handed_out() {
            return self.handed_room() == 0 && unacknowledged == 0;
        }
        self.window_used() >= self.options.window_max
    }

    /// Whether nothing is known to lie beyond what is listed. A pull from a broker stands open for what may still come.
    fn is_all_looked_at(&self) -> bool {
        if self.is_handed_out() {
            return self.entries.values().any(|entry| matches!(entry.state, State::Delayed(_)));
        }
        !self.wants_pull() && self.pull_open.is_none()
    }

    fn is_delayed(&self, offset: Offset) -> bool {
        matches!(self.entries.get(&offset).map(|entry| entry.state), Some(State::Delayed(_)))
    }
}
