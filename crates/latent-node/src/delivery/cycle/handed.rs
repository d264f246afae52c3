//! Events that a broker hands out: they come in any order and may come again, be somebody else's, or be over at any time. What is listed
//! here holds a reservation until it has run, and a place among the events in flight until it is over, since the broker counts it there.

use latent_core::{MonoTime, Offset};

use super::{Cycle, Entry, Intake, OpenPull, State};
use crate::delivery::limits;
use crate::delivery::source::{Arrival, Head, HeadContent, SourceNews};

/// What a broker may still do with an event.
#[derive(Debug, Clone, Copy, Default)]
#[cfg_attr(test, derive(PartialEq, Eq, Hash))]
pub(super) struct Hold {
    /// Attempts that are not taken back: those of others, as the broker counts them.
    pub(super) others: u32,
    /// Somebody else may have it by now.
    pub(super) lapsed: bool,
    /// Its run is being stopped for that.
    pub(super) cut: bool,
    /// Nothing follows from what is still open of it.
    pub(super) over: bool,
}

impl Cycle {
    /// News of a source that hands events out.
    pub fn handle_news(&mut self, now: MonoTime, news: SourceNews) {
        match news {
            SourceNews::Available(end) => self.handle_available(end),
            SourceNews::Handed(arrival) => self.take_arrival(now, arrival),
            SourceNews::Again(arrival) if self.is_lapsed(arrival.head.offset) => self.take_arrival(now, arrival),
            SourceNews::Again(arrival) => self.count_delivery(arrival),
            SourceNews::Lapsed(offset) => self.lapse(offset),
            SourceNews::Over(offset) => self.end(now, offset),
        }
    }

    /// Whether an event that began may start to run: it is still this process's.
    pub fn may_start(&self, offset: Offset) -> bool {
        self.entries.get(&offset).is_some_and(|entry| !entry.hold.lapsed && !entry.hold.over)
    }

    /// Whether the run of an event is to be stopped.
    pub fn is_to_stop(&self, offset: Offset) -> bool {
        self.entries.get(&offset).is_some_and(|entry| entry.state == State::Running && (entry.hold.cut || entry.hold.over))
    }

    pub(super) fn is_handed_out(&self) -> bool {
        self.options.intake == Intake::HandedOut
    }

    pub(super) fn is_lapsed(&self, offset: Offset) -> bool {
        self.entries.get(&offset).is_some_and(|entry| entry.hold.lapsed)
    }

    /// Whether the first event of this key has lapsed.
    pub(super) fn is_behind_lapsed(&self, content: HeadContent) -> bool {
        let HeadContent::Event(key) = content else { return false };
        self.keys.get(&key).and_then(|line| line.front()).is_some_and(|front| self.is_lapsed(*front))
    }

    pub(super) fn is_over(&self, offset: Offset) -> bool {
        self.entries.get(&offset).is_some_and(|entry| entry.hold.over)
    }

    /// Permits that stand behind what an open pull may still bring.
    pub(super) fn promised(&self) -> u32 {
        self.pull_open.filter(|_| self.is_handed_out()).map_or(0, |pull| pull.heads_max)
    }

    /// How many further events the broker may hand out here before as many are unsettled as may be. What has lapsed is to come again, and
    /// needs a place for that.
    pub(super) fn handed_room(&self) -> u32 {
        let most = self.options.policy.in_flight_max.min(self.options.window_max);
        let ours = self.entries.values().filter(|entry| !entry.hold.lapsed).count();
        most.saturating_sub(u32::try_from(ours).unwrap_or(u32::MAX))
    }

    /// How many events a pull is to ask for: as many as there may be.
    pub(super) fn handed_wanted(&self) -> u32 {
        let there = u32::try_from(self.known_end.0.saturating_sub(self.cursor.0)).unwrap_or(u32::MAX);
        self.handed_room().min(there)
    }

    /// A pull is over. Where none came there is none until that is said; where some did, there is as much more as was said.
    pub(super) fn end_handed_pull(&mut self, now: MonoTime, pull: OpenPull, heads: Vec<Head>) {
        self.source_faults = 0;
        let gave = pull.gave || !heads.is_empty();
        self.gives_back = !gave;
        heads.into_iter().for_each(|head| self.take_arrival(now, Arrival { head, deliveries: 1 }));
        if !gave && self.known_end == pull.known_end {
            self.known_end = self.cursor;
        }
    }

    fn count_delivery(&mut self, Arrival { head, deliveries }: Arrival) {
        if let Some(entry) = self.entries.get_mut(&head.offset) {
            entry.hold.others = entry.hold.others.max(deliveries.saturating_sub(1));
            entry.attempts = entry.attempts.max(entry.hold.others);
        }
    }

    fn take_arrival(&mut self, now: MonoTime, Arrival { head, deliveries }: Arrival) {
        self.source_faults = 0;
        if let Some(pull) = &mut self.pull_open {
            pull.heads_max = pull.heads_max.saturating_sub(1);
            pull.gave = true;
        }
        self.count_delivery(Arrival { head, deliveries });
        if let Some(entry) = self.entries.get_mut(&head.offset) {
            entry.hold.lapsed = false;
            if entry.state == State::Lapsed {
                self.make_ready(head.offset);
            }
            return;
        }
        let others = deliveries.saturating_sub(1);
        self.cursor = self.cursor.max(Offset(head.offset.0.saturating_add(1)));
        self.known_end = self.known_end.max(self.cursor);
        let counted = self.remembered.get(&head.offset).map_or(0, |(attempts, _)| *attempts);
        let hold = Hold { others, ..Hold::default() };
        let entry = Entry { content: head.content, attempts: counted.max(others), state: State::Waiting, hold };
        self.entries.insert(head.offset, entry);
        match head.content {
            HeadContent::Undecodable => self.make_ready(head.offset),
            HeadContent::Event(_) => self.join_key(now, head),
        }
    }

    /// Takes its place in the line of its key, which may be before what was listed earlier; not before what has begun.
    fn join_key(&mut self, now: MonoTime, Head { offset, content }: Head) {
        let HeadContent::Event(key) = content else { return };
        let front = self.keys.get(&key).and_then(|line| line.front()).copied();
        let begun = usize::from(front.is_some_and(|front| self.has_begun(front)));
        let line = self.keys.entry(key).or_default();
        let place = line.iter().skip(begun).take_while(|waiting| **waiting < offset).count() + begun;
        line.insert(place, offset);
        if place == 0 {
            if let Some(front) = front {
                self.hold_back(front);
            }
            self.release(now, offset);
        }
        #[cfg(test)]
        self.release_if_planted(now, offset);
    }

    fn has_begun(&self, offset: Offset) -> bool {
        let state = self.entries.get(&offset).map(|entry| entry.state);
        state.is_some_and(|state| !matches!(state, State::Waiting | State::Ready | State::Delayed(_) | State::Lapsed))
    }

    /// An earlier event of its key came: it waits again, and its delay counts still.
    fn hold_back(&mut self, offset: Offset) {
        let Some(entry) = self.entries.get_mut(&offset) else { return };
        let before = std::mem::replace(&mut entry.state, State::Waiting);
        let attempts = entry.attempts;
        self.ready.remove(&offset);
        if let State::Delayed(until) = before {
            self.timers.remove(&(until, offset));
            self.remembered.insert(offset, (attempts, until));
        }
    }

    fn lapse(&mut self, offset: Offset) {
        let Some(entry) = self.entries.get_mut(&offset) else { return };
        entry.hold.lapsed = true;
        let state = entry.state;
        // It is still there to be had, as are the others that have lapsed.
        let lapsed = self.entries.values().filter(|entry| entry.hold.lapsed).count() as u64;
        self.known_end = self.known_end.max(Offset(self.cursor.0.saturating_add(lapsed)));
        let Some(entry) = self.entries.get_mut(&offset) else { return };
        match state {
            State::Ready => {
                entry.state = State::Lapsed;
                self.ready.remove(&offset);
            }
            State::Beginning | State::Running => entry.hold.cut = true,
            _ => {}
        }
    }

    fn end(&mut self, now: MonoTime, offset: Offset) {
        use State::{Beginning, Noting, Parking, Running, Settling};
        let Some(entry) = self.entries.get_mut(&offset) else { return };
        if matches!(entry.state, Beginning | Running | Noting(_) | Parking(_) | Settling(_)) {
            entry.hold.over = true;
        } else {
            self.let_go(now, offset);
        }
    }

    /// Nothing more is done with the event here. What this process counted is kept for a while, since it may come again.
    pub(super) fn let_go(&mut self, now: MonoTime, offset: Offset) {
        let Some(entry) = self.entries.remove(&offset) else { return };
        self.ready.remove(&offset);
        self.to_park.remove(&offset);
        let until = match entry.state {
            State::Delayed(until) | State::Unnoted(_, until) | State::Unsettled(_, until) => {
                self.timers.remove(&(until, offset));
                until
            }
            _ => now,
        };
        if entry.attempts > entry.hold.others {
            self.remembered.insert(offset, (entry.attempts, until));
            if self.remembered.len() as u64 > limits::WINDOW.max {
                self.remembered.pop_first();
            }
        }
        if let HeadContent::Event(key) = entry.content {
            self.leave_key(now, key, offset);
        }
    }

    /// A settled event: where a log lists events, its place is known to be done with for good.
    pub(super) fn note_settled(&mut self, offset: Offset) {
        if self.is_handed_out() {
            self.remembered.remove(&offset);
            return;
        }
        self.settled.insert(offset);
        self.cursor = self.settled.first_unsettled(self.cursor);
    }
}

#[cfg(test)]
mod tests;
