//! The delivery cycle of one partition for one binding, as a machine without I/O: results and time in, commands out.
//!
//! ```text
//!            pull                        permit                    success, or terminated
//!  (source) ─────▶ Waiting ─▶ Ready ─────────▶ Beginning ─▶ Running ─────────────────────▶ Settling ─▶ settled
//!                  behind its   ▲                   │           │                          ▲  │  ▲
//!                  key          └────── Delayed ◀───┴───────────┤ retry, or the source     │  └──┘ again after
//!                                       until                   │ could not                │       a failed write
//!                                                               ▼                          │
//!           never (again), with a dead-letter topic: Noting ─▶ Condemned ─▶ Parking ───────┘ when the dead letter is there
//!                                                                  ▲           │
//!                                                                  └───────────┘ again after a while
//! ```
//!
//! Invariants, which the simulator checks from outside:
//! - an event is settled only after its activation succeeded, or because it can never run (again);
//! - of one key one event is between `Beginning` and settled, and it is the earliest unsettled one; a key moves on only after the
//!   settlement is durable, so that no kill can make a later event of a key run before an earlier one;
//! - permits held plus events in flight never exceed `in_flight_max`; every start uses one permit;
//! - what is condemned never runs again, in this process or the next; where there is a dead-letter topic, it is settled only after it is
//!   there;
//! - at most `window_max` events after the first unsettled one are looked at;
//! - what has expired is dropped where it is not running, counted, and never begun once that is known.
//!
//! Who drives it: call `handle_*`, [`Cycle::grant`] and [`Cycle::stop`] as things happen; after each call drain [`Cycle::poll`] until it
//! gives `None`, then look at [`Cycle::permits_missing`] and [`Cycle::next_deadline`].

mod command;
mod event;
mod handed;
mod parking;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use latent_core::{ActivationOutcome, Disposition, MonoTime, Offset};

use super::limits;
use super::settled::SettledSet;
use super::source::{Head, HeadContent, KeyId, Listing, Remembered, Settlement, SourceError, TerminationReason};

pub use command::{Command, CycleOptions, Intake, Termination};
pub use event::EventState;
use handed::Hold;
pub use snapshot::{CycleSnapshot, CycleState};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
enum State {
    Waiting,
    Ready,
    /// It would be ready, but somebody else may have it.
    Lapsed,
    Delayed(MonoTime),
    Beginning,
    Running,
    /// It never runs (again); that is being written down.
    Noting(TerminationReason),
    /// That could not be written down; it is tried again.
    Unnoted(TerminationReason, MonoTime),
    /// It waits to be parked.
    Condemned(TerminationReason),
    Parking(TerminationReason),
    Settling(Settlement),
    /// The settlement could not be written; it is tried again.
    Unsettled(Settlement, MonoTime),
}

/// A pull that is not answered.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(test, derive(PartialEq, Eq, Hash))]
struct OpenPull {
    heads_max: u32,
    /// The end known when it was asked for.
    known_end: Offset,
    /// Something was handed out for it.
    gave: bool,
}

#[derive(Debug, Clone, Copy)]
#[cfg_attr(test, derive(PartialEq, Eq, Hash))]
struct Entry {
    content: HeadContent,
    attempts: u32,
    state: State,
    hold: Hold,
}

/// See the module.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub struct Cycle {
    options: CycleOptions,
    settled: SettledSet,
    entries: BTreeMap<Offset, Entry>,
    /// Unsettled events of each key in order; only the front may leave `Waiting`.
    keys: BTreeMap<KeyId, VecDeque<Offset>>,
    ready: BTreeSet<Offset>,
    timers: BTreeSet<(MonoTime, Offset)>,
    /// Settlements and postponements to hand out.
    outbox: VecDeque<Command>,
    /// Attempts known from an earlier process, until it is their events' turn.
    remembered: BTreeMap<Offset, (u32, MonoTime)>,
    /// Verdicts known from an earlier process, until it is their events' turn.
    condemned: BTreeMap<Offset, (TerminationReason, u32)>,
    /// Condemned events.
    to_park: BTreeSet<Offset>,
    parks_open: u32,
    park_not_before: Option<MonoTime>,
    /// Where the next search for an event to park begins: behind the last one that could not be, so that one that never can be does not
    /// keep the others waiting.
    park_from: Offset,
    park_faults: u32,
    /// First offset not listed yet.
    cursor: Offset,
    /// Offset after the last one known to exist.
    known_end: Offset,
    /// Below this everything has expired, as far as known.
    first: Offset,
    /// Events that expired before they were settled.
    expired_unread: u64,
    pull_open: Option<OpenPull>,
    pull_not_before: Option<MonoTime>,
    permits: u32,
    /// A pull brought nothing: what was reserved for it goes back before anything is reserved for the next one, because others wait too.
    gives_back: bool,
    in_flight: u32,
    source_faults: u32,
    stopped: bool,
    #[cfg(test)]
    pub(super) planted: Option<super::sim::PlantedBug>,
}

impl Cycle {
    /// A cycle that goes on from what its source remembers. `known_end` is the offset after the last event that exists.
    pub fn new(options: CycleOptions, remembered: Remembered, known_end: Offset) -> Self {
        let attempts = remembered.attempts.into_iter().filter(|(offset, ..)| !remembered.settled.contains(*offset));
        let condemned = remembered.verdicts.iter().filter(|(offset, _)| !remembered.settled.contains(*offset));
        Self {
            options,
            cursor: remembered.settled.first_unsettled(Offset(0)),
            remembered: attempts.map(|(offset, attempts, until)| (offset, (attempts, until))).collect(),
            condemned: condemned.map(|(offset, verdict)| (*offset, (verdict.reason, verdict.attempts))).collect(),
            to_park: BTreeSet::new(),
            parks_open: 0,
            park_not_before: None,
            park_from: Offset(0),
            park_faults: 0,
            settled: remembered.settled,
            entries: BTreeMap::new(),
            keys: BTreeMap::new(),
            ready: BTreeSet::new(),
            timers: BTreeSet::new(),
            outbox: VecDeque::new(),
            known_end,
            first: Offset(0),
            expired_unread: 0,
            pull_open: None,
            pull_not_before: None,
            permits: 0,
            gives_back: false,
            in_flight: 0,
            source_faults: 0,
            stopped: false,
            #[cfg(test)]
            planted: None,
        }
    }

    /// The source has events up to `end`, exclusive.
    pub fn handle_available(&mut self, end: Offset) {
        self.known_end = self.known_end.max(end);
    }

    /// The answer to [`Command::Pull`].
    pub fn handle_pulled(&mut self, now: MonoTime, answer: Result<Listing, SourceError>) {
        let Some(pull) = self.pull_open.take() else { return };
        match answer {
            Ok(Listing { heads, .. }) if self.is_handed_out() => self.end_handed_pull(now, pull, heads),
            Ok(Listing { heads, first }) => {
                self.source_faults = 0;
                self.drop_expired(now, first);
                let complete = (heads.len() as u64) < u64::from(pull.heads_max);
                for head in heads {
                    self.take_head(now, head);
                }
                // A short answer attests that nothing else lay below the end that was known when it was asked for, so a gap there is
                // not asked for again. What came since was not part of the question.
                if complete {
                    self.settled.insert_range(self.cursor, pull.known_end);
                    self.cursor = self.settled.first_unsettled(self.cursor);
                }
            }
            // What was asked for has expired meanwhile, so nothing is asked for again.
            Err(_) if self.cursor >= self.known_end => {}
            Err(_) => self.pull_not_before = Some(now.plus_millis(self.source_backoff_millis())),
        }
    }

    /// The answer to [`Command::Begin`]. After a success the activation runs and ends in [`Cycle::handle_finished`].
    pub fn handle_begun(&mut self, now: MonoTime, offset: Offset, answer: Result<(), SourceError>) {
        let Some(entry) = self.entries.get_mut(&offset).filter(|entry| entry.state == State::Beginning) else { return };
        match answer {
            Ok(()) => {
                entry.attempts = entry.attempts.saturating_add(1);
                entry.state = State::Running;
                self.source_faults = 0;
            }
            Err(_) if entry.hold.over => {
                self.in_flight = self.in_flight.saturating_sub(1);
                self.let_go(now, offset);
            }
            Err(SourceError::Undecodable) => {
                self.in_flight = self.in_flight.saturating_sub(1);
                self.terminate(offset, TerminationReason::Undecodable);
            }
            Err(SourceError::Expired { first }) if offset < first => {
                self.in_flight = self.in_flight.saturating_sub(1);
                self.source_faults = 0;
                self.drop_expired(now, first);
                self.drop_event(now, offset);
            }
            Err(SourceError::Unavailable { .. } | SourceError::Expired { .. }) => {
                self.in_flight = self.in_flight.saturating_sub(1);
                if offset < self.first {
                    return self.drop_event(now, offset);
                }
                let until = now.plus_millis(self.source_backoff_millis());
                self.delay(offset, until);
            }
        }
    }

    /// The activation of an event ended.
    pub fn handle_finished(&mut self, now: MonoTime, offset: Offset, outcome: &ActivationOutcome) {
        let Some(entry) = self.entries.get(&offset).filter(|entry| entry.state == State::Running).copied() else { return };
        self.in_flight = self.in_flight.saturating_sub(1);
        #[cfg(test)]
        self.leak_permit_if_planted();
        if entry.hold.over {
            return self.let_go(now, offset);
        }
        if *outcome == ActivationOutcome::Cancelled && (self.stopped || entry.hold.cut) {
            return self.take_back_attempt(now, offset);
        }
        let disposition = outcome.disposition();
        #[cfg(test)]
        let disposition = self.planted_disposition(disposition);
        match disposition {
            Disposition::Acknowledge => self.settle(offset, Settlement::Acknowledged),
            Disposition::Terminate => self.terminate(offset, TerminationReason::Rejected),
            Disposition::Retry { .. } if entry.attempts >= self.options.policy.deliveries_max => {
                self.terminate(offset, TerminationReason::Exhausted);
            }
            Disposition::Retry { .. } if offset < self.first => self.drop_event(now, offset),
            Disposition::Retry { delay_millis: wished } => {
                let delay_millis = self.options.policy.delay_millis(entry.attempts, wished);
                self.delay(offset, now.plus_millis(delay_millis));
                self.outbox.push_back(Command::Postpone { offset, attempts: entry.attempts, delay_millis });
            }
        }
    }

    /// The activation of an event ended before any of its code ran: its deadline passed in the queue, or its service was revoked
    /// meanwhile. That is no attempt.
    pub fn handle_not_started(&mut self, now: MonoTime, offset: Offset) {
        if self.entries.get(&offset).is_some_and(|entry| entry.state == State::Running) {
            self.in_flight = self.in_flight.saturating_sub(1);
            if self.is_over(offset) {
                return self.let_go(now, offset);
            }
            self.take_back_attempt(now, offset);
        }
    }

    /// The answer to [`Command::Settle`].
    pub fn handle_settled(&mut self, now: MonoTime, offset: Offset, answer: Result<(), SourceError>) {
        let Some(entry) = self.entries.get(&offset).copied() else { return };
        let State::Settling(settlement) = entry.state else { return };
        if entry.hold.over {
            return self.let_go(now, offset);
        }
        if answer.is_err() {
            let until = now.plus_millis(self.source_backoff_millis());
            self.set_state(offset, State::Unsettled(settlement, until));
            self.timers.insert((until, offset));
            return;
        }
        self.source_faults = 0;
        self.note_settled(offset);
        self.entries.remove(&offset);
        if let HeadContent::Event(key) = entry.content {
            self.leave_key(now, key, offset);
        }
    }

    /// Gives one permit: one event may begin.
    pub fn grant(&mut self) {
        self.permits = self.permits.saturating_add(1);
    }

    /// Takes back the permits that cannot be used now. The driver returns as many reservations.
    pub fn take_surplus_permits(&mut self) -> u32 {
        let surplus = self.permits.saturating_sub(self.permits_usable());
        self.permits -= surplus;
        self.gives_back = false;
        surplus
    }

    /// How many more permits could be used at once.
    pub fn permits_missing(&self) -> u32 {
        self.permits_usable().saturating_sub(self.permits)
    }

    /// Stops: nothing new is pulled or begun. Settlements of what has finished still go out.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// True when no command is unanswered.
    pub fn is_quiet(&self) -> bool {
        self.pull_open.is_none()
            && self.outbox.is_empty()
            && self.entries.values().all(|entry| {
                !matches!(entry.state, State::Beginning | State::Running | State::Noting(_) | State::Parking(_) | State::Settling(_))
            })
    }

    /// The next command, or `None` when there is nothing to do until something is handled or a deadline passes.
    pub fn poll(&mut self, now: MonoTime) -> Option<Command> {
        self.fire_timers(now);
        if let Some(command) = self.outbox.pop_front() {
            return Some(command);
        }
        if self.stopped {
            return None;
        }
        self.poll_begin().or_else(|| self.poll_park(now)).or_else(|| self.poll_pull(now))
    }

    /// When [`Cycle::poll`] is to be called again even if nothing happens.
    pub fn next_deadline(&self) -> Option<MonoTime> {
        if self.stopped {
            return self.timers.iter().find(|(_, offset)| self.is_unsettled(*offset)).map(|(at, _)| *at);
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        let pull = self.pull_not_before.filter(|_| self.wants_pull() && self.pull_room() > 0);
        let park = self.park_not_before.filter(|_| !self.to_park.is_empty() && self.parks_open == 0);
        timer.into_iter().chain(pull).chain(park).min()
    }

    /// Whether the event is listed and neither settled nor dropped.
    pub fn has(&self, offset: Offset) -> bool {
        self.entries.contains_key(&offset)
    }

    /// Attempts made on an event that is not settled.
    pub fn attempts(&self, offset: Offset) -> u32 {
        self.entries.get(&offset).map_or(0, |entry| entry.attempts)
    }

    /// When the next attempt on an event is due.
    pub fn next_attempt_of(&self, offset: Offset) -> Option<MonoTime> {
        match self.entries.get(&offset)?.state {
            State::Delayed(until) => Some(until),
            _ => None,
        }
    }

    fn take_head(&mut self, now: MonoTime, head: Head) {
        // Out of order or already known: the source broke its promise, and listing twice must not run twice.
        if head.offset < self.cursor {
            return;
        }
        // What the source passes over does not exist; as part of the settled set it takes no room and holds up no floor.
        self.settled.insert_range(self.cursor, head.offset);
        self.cursor = Offset(head.offset.0.saturating_add(1));
        self.known_end = self.known_end.max(self.cursor);
        if self.settled.contains(head.offset) {
            self.cursor = self.settled.first_unsettled(self.cursor);
            return;
        }
        let attempts = self.remembered.get(&head.offset).map(|(attempts, _)| *attempts);
        let attempts = self.condemned.get(&head.offset).map(|(_, attempts)| *attempts).or(attempts).unwrap_or_default();
        self.entries.insert(head.offset, Entry { content: head.content, attempts, state: State::Waiting, hold: Hold::default() });
        match head.content {
            HeadContent::Undecodable => self.make_ready(head.offset),
            HeadContent::Event(key) => {
                let queue = self.keys.entry(key).or_default();
                queue.push_back(head.offset);
                if queue.len() == 1 {
                    self.release(now, head.offset);
                }
                #[cfg(test)]
                self.release_if_planted(now, head.offset);
            }
        }
    }

    /// Un-notes an attempt that did not count. While stopping, the event is left to the next process, which may run it at once (T-048).
    fn take_back_attempt(&mut self, now: MonoTime, offset: Offset) {
        let Some(entry) = self.entries.get_mut(&offset) else { return };
        entry.attempts = entry.attempts.saturating_sub(1).max(entry.hold.others);
        entry.hold.cut = false;
        let attempts = entry.attempts;
        if offset < self.first {
            return self.drop_event(now, offset);
        }
        let delay_millis = if self.stopped { 0 } else { self.options.policy.delay_millis(1, None) };
        if self.stopped {
            self.set_state(offset, State::Waiting);
        } else {
            self.delay(offset, now.plus_millis(delay_millis));
        }
        self.outbox.push_back(Command::Postpone { offset, attempts, delay_millis });
    }

    /// Everything below `first` has expired. What runs may end; of the rest, nothing can be read any more.
    fn drop_expired(&mut self, now: MonoTime, first: Offset) {
        if first <= self.first {
            return;
        }
        #[cfg(test)]
        if self.planted == Some(super::sim::PlantedBug::KeepExpired) {
            return;
        }
        self.first = first;
        self.expired_unread = self.expired_unread.saturating_add(self.settled.unsettled_in(self.cursor, first));
        self.settled.insert_range(self.cursor, first);
        self.known_end = self.known_end.max(first);
        self.remembered = self.remembered.split_off(&first);
        self.condemned = self.condemned.split_off(&first);
        let is_open = |state| {
            use State::{Beginning, Noting, Parking, Running, Settling, Unsettled};
            matches!(state, Beginning | Running | Noting(_) | Parking(_) | Settling(_) | Unsettled(..))
        };
        let dropped: Vec<_> = self.entries.range(..first).filter(|(_, entry)| !is_open(entry.state)).map(|(offset, _)| *offset).collect();
        // The latest first: then no event is released that is dropped itself a moment later.
        dropped.into_iter().rev().for_each(|offset| self.drop_event(now, offset));
        self.cursor = self.settled.first_unsettled(self.cursor);
    }

    /// Drops an event that has expired and is not running.
    fn drop_event(&mut self, now: MonoTime, offset: Offset) {
        let Some(entry) = self.entries.remove(&offset) else { return };
        self.expired_unread = self.expired_unread.saturating_add(1);
        self.settled.insert(offset);
        self.ready.remove(&offset);
        self.to_park.remove(&offset);
        if let State::Delayed(until) | State::Unnoted(_, until) = entry.state {
            self.timers.remove(&(until, offset));
        }
        if let HeadContent::Event(key) = entry.content {
            self.leave_key(now, key, offset);
        }
    }

    /// Lets the front of a key's queue go on: at once, or when the delay noted by an earlier process is over. What never runs again has
    /// nothing to wait for: it may have had more runs than its binding gives by now.
    fn release(&mut self, now: MonoTime, offset: Offset) {
        let noted = self.remembered.remove(&offset);
        if let Some((reason, _)) = self.condemned.remove(&offset) {
            return self.terminate_noted(offset, reason);
        }
        match noted {
            Some((_, until)) if until > now && self.never_runs(offset).is_none() => self.delay(offset, until),
            _ => self.make_ready(offset),
        }
    }

    /// It is this event's turn. One that may not run (again) needs no permit.
    fn make_ready(&mut self, offset: Offset) {
        if self.is_lapsed(offset) {
            self.set_state(offset, State::Lapsed);
        } else if let Some(reason) = self.never_runs(offset) {
            self.terminate(offset, reason);
        } else {
            self.set_state(offset, State::Ready);
            self.ready.insert(offset);
        }
    }

    fn delay(&mut self, offset: Offset, until: MonoTime) {
        self.set_state(offset, State::Delayed(until));
        self.timers.insert((until, offset));
    }

    fn settle(&mut self, offset: Offset, settlement: Settlement) {
        self.set_state(offset, State::Settling(settlement));
        self.outbox.push_back(Command::Settle { offset, settlement });
    }

    fn set_state(&mut self, offset: Offset, state: State) {
        if let Some(entry) = self.entries.get_mut(&offset) {
            entry.state = state;
        }
    }

    /// The event is done with; if its key waited for it, the next one has its turn.
    fn leave_key(&mut self, now: MonoTime, key: KeyId, offset: Offset) {
        let Some(queue) = self.keys.get_mut(&key) else { return };
        let was_front = queue.front() == Some(&offset);
        if was_front {
            queue.pop_front();
        } else {
            queue.retain(|waiting| *waiting != offset);
        }
        match queue.front().copied() {
            Some(next) if was_front => self.release(now, next),
            Some(_) => {}
            None => {
                self.keys.remove(&key);
            }
        }
    }

    fn fire_timers(&mut self, now: MonoTime) {
        while let Some(&(at, offset)) = self.timers.first().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, offset));
            match self.entries.get(&offset).map(|entry| entry.state) {
                Some(State::Delayed(_)) => self.make_ready(offset),
                Some(State::Unsettled(settlement, _)) => self.settle(offset, settlement),
                Some(State::Unnoted(reason, _)) => self.condemn(offset, reason),
                _ => {}
            }
        }
    }

    /// Begins the earliest ready event if a permit is there.
    fn poll_begin(&mut self) -> Option<Command> {
        if self.permits <= self.promised() || self.in_flight >= self.options.policy.in_flight_max {
            return None;
        }
        let offset = self.ready.pop_first()?;
        self.permits -= 1;
        self.in_flight += 1;
        if let Some(entry) = self.entries.get_mut(&offset) {
            entry.hold.cut = false;
        }
        self.set_state(offset, State::Beginning);
        Some(Command::Begin { offset, attempt: self.attempts(offset).saturating_add(1) })
    }

    fn poll_pull(&mut self, now: MonoTime) -> Option<Command> {
        if !self.wants_pull() || self.pull_not_before.is_some_and(|at| now < at) {
            return None;
        }
        let heads_max = self.pull_room();
        if heads_max == 0 {
            return None;
        }
        self.pull_not_before = None;
        self.pull_open = Some(OpenPull { heads_max, known_end: self.known_end, gave: false });
        Some(Command::Pull { from: self.cursor, heads_max })
    }

    /// There is something to list and room for it, permits apart.
    fn wants_pull(&self) -> bool {
        let room = if self.is_handed_out() { self.handed_room() > 0 } else { self.window_used() < self.options.window_max };
        self.pull_open.is_none() && self.cursor < self.known_end && room
    }

    #[allow(clippy::cast_possible_truncation, reason = "the limit's range fits 32 bits")]
    fn pull_room(&self) -> u32 {
        let room = self.options.window_max.saturating_sub(self.window_used()).min(limits::HEADS_PER_PULL.default as u32);
        match self.options.intake {
            Intake::LookAhead => room,
            Intake::Reserved => room.min(self.permits.saturating_sub(self.held())),
            Intake::HandedOut => room.min(self.handed_room()).min(self.permits.saturating_sub(self.held())),
        }
    }

    /// How far has been looked beyond the first unsettled event. Nothing is used while that one is not listed itself, however much
    /// behind it an earlier process has settled.
    fn window_used(&self) -> u32 {
        if self.is_handed_out() {
            return u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        }
        u32::try_from(self.cursor.0.saturating_sub(self.settled.floor().0)).unwrap_or(u32::MAX)
    }

    /// Listed events that will need a permit, those of later attempts included.
    pub(super) fn held(&self) -> u32 {
        let waiting = self.entries.values().filter(|entry| match entry.state {
            State::Ready => true,
            // What waits for an event that has to come again must not keep the reservation for that from being made.
            State::Waiting => !self.is_behind_lapsed(entry.content),
            _ => false,
        });
        let waiting = waiting.count();
        u32::try_from(waiting).unwrap_or(u32::MAX)
    }

    /// How many permits could be used at once.
    fn permits_usable(&self) -> u32 {
        if self.stopped {
            return 0;
        }
        let free = self.options.policy.in_flight_max.saturating_sub(self.in_flight);
        let ready = u32::try_from(self.ready.len()).unwrap_or(u32::MAX);
        match self.options.intake {
            Intake::LookAhead => ready.min(free),
            Intake::HandedOut => {
                let wanted = if self.wants_pull() && !self.gives_back { self.handed_wanted() } else { self.promised() };
                self.held().saturating_add(wanted).min(free)
            }
            Intake::Reserved => {
                let wanted = if self.wants_pull() { free } else { self.pull_open.map_or(0, |pull| pull.heads_max) };
                self.held().saturating_add(wanted).min(free)
            }
        }
    }

    /// The wait after one more fault of the source.
    fn source_backoff_millis(&mut self) -> u64 {
        let faults = self.source_faults;
        self.source_faults = self.source_faults.saturating_add(1);
        backoff_millis(faults, limits::SOURCE_BACKOFF_MILLIS.default, limits::SOURCE_BACKOFF_MAX_MILLIS.default)
    }

    fn is_unsettled(&self, offset: Offset) -> bool {
        matches!(self.entries.get(&offset).map(|entry| entry.state), Some(State::Unsettled(..)))
    }
}

/// The wait after one more fault, which doubles with each.
fn backoff_millis(faults: u32, first_millis: u64, longest_millis: u64) -> u64 {
    first_millis.saturating_mul(1 << faults.min(32)).min(longest_millis)
}

/// Bugs that the simulator plants to show that it would find them.
#[cfg(test)]
impl Cycle {
    fn release_if_planted(&mut self, now: MonoTime, offset: Offset) {
        if self.planted == Some(super::sim::PlantedBug::IgnoreKeys) {
            self.release(now, offset);
        }
    }

    fn planted_disposition(&self, disposition: Disposition) -> Disposition {
        match self.planted {
            Some(super::sim::PlantedBug::AcknowledgeFailures) => Disposition::Acknowledge,
            _ => disposition,
        }
    }

    fn leak_permit_if_planted(&mut self) {
        if self.planted == Some(super::sim::PlantedBug::KeepPermits) {
            self.permits += 1;
        }
    }
}

#[cfg(test)]
mod tests;
