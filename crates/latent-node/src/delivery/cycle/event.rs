//! What a cycle knows of one event, for whoever asks why it did or did not run. Read only.

use latent_core::{MonoTime, Offset};

use super::{Cycle, State};
use crate::delivery::source::{Settlement, TerminationReason};

/// What a binding does with one event at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventState {
    /// The binding has not come to it: it lies beyond what is looked at, or does not exist yet.
    Unseen,
    /// An earlier event of its key is not settled.
    BehindItsKey,
    /// It runs as soon as there is room.
    Ready,
    /// It runs again at this time.
    Delayed(MonoTime),
    /// It is running, or about to.
    Running,
    /// It never runs (again) and is to be parked.
    Condemned(TerminationReason),
    /// It is done with, and that is being written down; with the reason if it never runs (again).
    Settling(Option<TerminationReason>),
    /// It is done with.
    Settled,
    /// It is not kept any more, whether it was done with or not.
    Expired,
}

impl Cycle {
    /// What is done with the event at `offset`, and the attempts made on it as far as they are known: of what is settled, none are.
    pub fn event(&self, offset: Offset) -> (EventState, u32) {
        if let Some(entry) = self.entries.get(&offset) {
            return (state_of(entry.state), entry.attempts);
        }
        if offset < self.first {
            (EventState::Expired, 0)
        } else if self.settled.contains(offset) {
            (EventState::Settled, 0)
        } else if let Some((reason, attempts)) = self.condemned.get(&offset) {
            (EventState::Condemned(*reason), *attempts)
        } else if let Some((attempts, until)) = self.remembered.get(&offset) {
            (EventState::Delayed(*until), *attempts)
        } else {
            (EventState::Unseen, 0)
        }
    }
}

const fn state_of(state: State) -> EventState {
    match state {
        State::Waiting => EventState::BehindItsKey,
        // It goes on as soon as the broker says whose it is, which nobody can hasten.
        State::Ready | State::Lapsed => EventState::Ready,
        State::Delayed(until) => EventState::Delayed(until),
        State::Beginning | State::Running => EventState::Running,
        State::Noting(reason) | State::Unnoted(reason, _) | State::Condemned(reason) | State::Parking(reason) => {
            EventState::Condemned(reason)
        }
        State::Settling(settlement) | State::Unsettled(settlement, _) => EventState::Settling(match settlement {
            Settlement::Acknowledged => None,
            Settlement::Terminated(reason) => Some(reason),
        }),
    }
}
