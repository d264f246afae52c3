//! One partition of one binding on a pull consumer with a pinned client: what is held of it, and what that allows. A machine without I/O.
//! What runs when is the [`super::Cycle`]'s; which subject says what on the wire is not known here.
//!
//! ```text
//!                 message            gate open, room                                  confirmed
//!   (broker) ───────────▶ Unlisted ─────────────────▶ Listed ◀──▶ Running ─▶ Due ─▶ Sent ─────▶ settled
//!       ▲                   │    ▲                       │            │       ▲       │
//!       │           no room │    │ comes again           ▼            ▼       │       ▼
//!       │                   ▼    │                    lapsed: stops, waits    └─── Uncertain ─▶ settled, when the
//!       └── pin lost      Away ──┘                    until it comes again   comes again        broker says so
//! ```
//!
//! What always holds:
//! - what is held and does not run, and what the open pull may bring, never exceeds what the cycle reserved;
//! - nothing is listed before everything that is unsettled at the broker is known ([the gate](gate.rs));
//! - a lease counts from when the question was *sent* that the broker answered, so that an answer which is late makes it shorter, not longer;
//! - a settlement is sent once for each delivery, within its lease; one that is uncertain is over only when the broker says so.
//!
//! # How a shell drives it
//!
//! One task for each connection has a [`Desk`] for each of its lanes, in a lock that it shares with the lane's [`super::Source`].
//!
//! - Broker to lane: `handle_message` (of the desk), `handle_pull_ended`, `handle_inspected`, `handle_renewed`, `handle_settled`,
//!   `handle_connection_lost`, `handle_connected`. Every command is answered once; what a lost connection leaves open of settlements is
//!   answered *uncertain* (or *not sent*).
//! - Source to lane: each method is one of the desk's, of the same name. `condemn` (nothing to do: a broker takes no notes) and `park` are
//!   the shell's: the message stays held and renewed until it is settled.
//! - After each call: [`Desk::poll`] until it gives `None`, then wait for [`Lane::next_deadline`].
//! - The cycle asks only for what it is told of: [`super::SourceNews::Available`] with [`Lane::available_end`] of each inspection, the lane's
//!   own and those of the shell's sweep. A sweep that finds nothing pending and nothing unsettled tells nothing.

mod command;
mod desk;
mod gate;
mod held;
mod lease;
mod listing;
#[cfg(test)]
mod model;
mod settling;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use latent_core::{MonoTime, Offset};

use super::source::{HeadContent, Settlement};
use super::visit::Confirmation;
pub use command::{Delivery, Inspected, LaneCommand, LaneOptions, NotOurs, PinId, PullEnd, ReplyId};
pub use desk::Desk;
use gate::Gate;
use held::{Held, Stage};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    /// Messages are taken.
    Taking,
    /// The pin or the connection is lost, or the lane was stopped: what runs may end, the rest is given up.
    Losing,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lane {
    options: LaneOptions,
    phase: Phase,
    connected: bool,
    stopped: bool,
    pin: Option<PinId>,
    /// The order of the first delivery under the pin.
    first_order: u64,
    gate: Gate,
    held: BTreeMap<u64, Held>,
    /// The cycle's pull is open, with as many reservations not used.
    wanted: Option<u32>,
    /// The broker's is.
    pull_open: bool,
    /// When the last one was asked.
    asked_at: MonoTime,
    pull_not_before: Option<MonoTime>,
    question: Option<u64>,
    questions: u64,
    /// When the next question is due.
    inspect_at: Option<MonoTime>,
    /// Offset after the last message that was listed.
    listed_end: u64,
    out: VecDeque<LaneCommand>,
    #[cfg(test)]
    planted: Option<model::Planted>,
    #[cfg(test)]
    pinned_at: Option<MonoTime>,
}

impl Lane {
    /// A lane with nothing held, on a connection that is there.
    pub fn new(options: LaneOptions) -> Self {
        Self {
            options,
            phase: Phase::Taking,
            connected: true,
            stopped: false,
            pin: None,
            first_order: 0,
            gate: Gate::default(),
            held: BTreeMap::new(),
            wanted: None,
            pull_open: false,
            asked_at: MonoTime::ZERO,
            pull_not_before: None,
            question: None,
            questions: 0,
            inspect_at: None,
            listed_end: 0,
            out: VecDeque::new(),
            #[cfg(test)]
            planted: None,
            #[cfg(test)]
            pinned_at: None,
        }
    }

    /// The cycle asks for at most `heads_max` messages and has reserved them. Ends with [`LaneCommand::PullOver`].
    pub fn want(&mut self, heads_max: u32) {
        if self.is_taking() && self.connected {
            self.wanted = Some(heads_max);
        } else {
            self.out.push_back(LaneCommand::PullOver { refused: !self.stopped });
        }
    }

    /// The event is about to run.
    ///
    /// # Errors
    /// [`NotOurs`] when it may be somebody else's; it must not run.
    pub fn begin(&mut self, now: MonoTime, sequence: u64) -> Result<(), NotOurs> {
        self.lapse(now);
        let held = self.held.get_mut(&sequence).filter(|held| held.stage == Stage::Listed && !held.lapsed).ok_or(NotOurs)?;
        held.begin();
        Ok(())
    }

    /// Its run has ended, however.
    pub fn ended(&mut self, sequence: u64) {
        if let Some(held) = self.held.get_mut(&sequence).filter(|held| held.stage == Stage::Running) {
            held.stage = Stage::Listed;
        }
    }

    /// It runs again later.
    pub fn put_off(&mut self, sequence: u64) {
        self.ended(sequence);
        if !self.is_taking() && self.held.get(&sequence).is_some_and(|held| held.stage == Stage::Listed) {
            self.give_up(sequence);
        }
    }

    /// A message was delivered. Gives whether its record is to be kept; one that is not kept is left to the broker.
    pub fn handle_message(&mut self, now: MonoTime, delivery: Delivery) -> bool {
        if !self.is_taking() {
            return false;
        }
        if self.pin.is_none() {
            self.pin = Some(delivery.pin);
            self.first_order = delivery.order;
            #[cfg(test)]
            self.pinned_at.replace(now);
        } else if self.pin != Some(delivery.pin) {
            self.lose();
            return false;
        }
        self.gate.note_delivery(delivery.order, delivery.deliveries == 1);
        if !self.gate.is_open() {
            self.inspect_at = Some(now);
        }
        if self.held.contains_key(&delivery.sequence) {
            self.take_again(now, delivery);
            return true;
        }
        // More than was asked for, or a broker that does not keep to its own settings: nothing is known for sure any more.
        if self.room() == 0 || self.held.len() as u64 >= self.options.held_max {
            self.lose();
            return false;
        }
        self.held.insert(delivery.sequence, Held::new(delivery, self.lease_begins(now), &self.options));
        true
    }

    /// The answer to [`LaneCommand::Pull`] is over.
    pub fn handle_pull_ended(&mut self, now: MonoTime, end: PullEnd) {
        self.pull_open = false;
        match end {
            PullEnd::PinLost => self.lose(),
            // What is held keeps its reservations, so the cycle goes on waiting with it.
            PullEnd::Over if self.unlisted() == 0 => self.end_wanted(false),
            PullEnd::Refused if self.unlisted() == 0 => self.end_wanted(true),
            PullEnd::Over => {}
            PullEnd::Refused => self.pull_not_before = Some(now.plus_millis(self.options.inspect_millis())),
        }
    }

    /// The answer to [`LaneCommand::Inspect`]; `None` when there is none. Answers to older questions change nothing.
    pub fn handle_inspected(&mut self, now: MonoTime, question: u64, answer: Option<Inspected>) {
        if self.question != Some(question) {
            return;
        }
        self.question = None;
        let Some(seen) = answer else {
            self.inspect_at = Some(now.plus_millis(self.options.inspect_millis()));
            return;
        };
        self.learn_settled(seen.settled_up_to);
        if !self.is_taking() {
            return;
        }
        if self.pin.is_none() || seen.deliveries < self.first_order {
            self.gate.take_early(&seen);
        } else if seen.pin != self.pin {
            return self.lose();
        } else {
            self.gate.take(&seen, &self.held);
            let (gate, forgets) = (&self.gate, |held: &Held| held.lapsed && matches!(held.stage, Stage::Away | Stage::Unlisted));
            self.held.retain(|_, held| gate.is_open() || gate.is_proven(held) || !forgets(held));
            #[cfg(test)]
            self.open_if_planted(&seen);
            self.resolve_uncertain(&seen);
        }
        let asks_again = self.pin.is_some() && (!self.gate.is_open() || self.waits_for_broker());
        let next = now.plus_millis(self.options.inspect_millis());
        // What came meanwhile has asked for another one already.
        self.inspect_at = self.inspect_at.or(asks_again.then_some(next));
    }

    /// The connection is gone, and with it every question.
    pub fn handle_connection_lost(&mut self) {
        self.connected = false;
        self.pull_open = false;
        self.question = None;
        self.held.values_mut().for_each(Held::renewal_lost);
        self.lose();
    }

    /// There is one again.
    pub fn handle_connected(&mut self) {
        self.connected = true;
    }

    /// Takes nothing more; what runs may end and be settled.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.lose();
    }

    /// The next command, or `None` when there is nothing to do until something is handled or a deadline passes.
    pub fn poll(&mut self, now: MonoTime) -> Option<LaneCommand> {
        self.lapse(now);
        if self.out.is_empty() {
            #[cfg(test)]
            self.open_on_lease_if_planted(now);
            self.begin_anew();
            self.list(now);
            self.send_due();
            self.renew(now);
            self.ask(now);
        }
        self.out.pop_front()
    }

    /// When [`Lane::poll`] is to be called again even if nothing happens.
    pub fn next_deadline(&self) -> Option<MonoTime> {
        let losing = !self.is_taking();
        let lapses = self.held.values().filter(|held| held.has_lease()).map(|held| held.lapses_at(&self.options));
        let renewals = self.held.values().filter(|held| !self.gate.doubts(held)).filter_map(|held| held.renews_at(losing));
        let renewals = renewals.filter(|_| self.connected);
        let question = self.inspect_at.filter(|_| self.question.is_none() && self.connected && !losing);
        let pull = self.pull_not_before.filter(|_| self.batch() > 0);
        lapses.chain(renewals).chain(question).chain(pull).min()
    }

    /// What to report as available after an inspection: `None` when there is nothing.
    pub fn available_end(&self, seen: &Inspected) -> Option<Offset> {
        let here = self.held.values().filter(|held| !held.told && held.stage != Stage::Away).count() as u64;
        let elsewhere = seen.unacknowledged.saturating_sub(here);
        let more = seen.pending.saturating_add(elsewhere);
        (more > 0).then(|| Offset(self.listed_end.saturating_add(more)))
    }

    /// What to report as available so that one further message is asked for, though none is known to be there: keeps a pull open.
    pub const fn standing_end(&self) -> Offset {
        Offset(self.listed_end.saturating_add(1))
    }

    /// What to report as available when a message that came says how many lie behind it; `None` when there are none.
    pub fn available_behind(&self, sequence: u64, behind: u64) -> Option<Offset> {
        (behind > 0).then(|| Offset(self.listed_end.max(sequence.saturating_add(1)).saturating_add(behind)))
    }

    /// Whether the cycle's pull is open: messages it has reserved for and that did not come.
    pub const fn is_asked(&self) -> bool {
        self.wanted.is_some()
    }

    /// Whether everything unsettled is known, so that messages are listed as they come.
    pub fn is_gate_open(&self) -> bool {
        self.gate.is_open()
    }

    /// The pin, while something is held under it and no pull keeps it: a pull that brings nothing has to.
    pub fn pin_to_keep(&self) -> Option<PinId> {
        self.pin.filter(|_| self.is_taking() && self.connected && !self.pull_open && !self.held.is_empty())
    }

    /// Whether the message's record is to be kept.
    pub fn holds(&self, sequence: u64) -> bool {
        self.held.get(&sequence).is_some_and(|held| held.stage != Stage::Away)
    }

    /// Messages held, of which nothing is settled for sure.
    pub fn held(&self) -> usize {
        self.held.values().filter(|held| held.stage != Stage::Away).count()
    }

    fn is_taking(&self) -> bool {
        self.phase == Phase::Taking
    }

    /// Gives up everything but what runs or is being settled. The latest first, so that in the cycle nothing takes its place in between.
    fn lose(&mut self) {
        if !self.is_taking() {
            return;
        }
        self.phase = Phase::Losing;
        let sequences: Vec<u64> = self.held.keys().rev().copied().collect();
        for sequence in sequences {
            match self.held.get(&sequence).map(|held| (held.stage, held.lapsed)) {
                Some((Stage::Away | Stage::Unlisted, _)) => drop(self.held.remove(&sequence)),
                // What has lapsed waits to come again before it is settled, and comes to others now.
                Some((Stage::Listed | Stage::Uncertain(_), _) | (Stage::Due(_), true)) => self.give_up(sequence),
                Some((Stage::Running | Stage::Due(_) | Stage::Sent(_), _)) | None => {}
            }
        }
        self.end_wanted(false);
    }

    /// The message is left to whoever gets it next.
    fn give_up(&mut self, sequence: u64) {
        let Some(held) = self.held.remove(&sequence) else { return };
        self.out.push_back(LaneCommand::Over { sequence });
        let confirmation = match held.stage {
            Stage::Due(_) => Confirmation::NotSent,
            Stage::Uncertain(_) => Confirmation::Uncertain,
            _ => return,
        };
        self.out.push_back(LaneCommand::Settled { sequence, confirmation });
    }

    /// With nothing left of the last pin, a new one may be waited for.
    fn begin_anew(&mut self) {
        if self.is_taking() || self.stopped || !self.connected || self.pull_open || !self.held.is_empty() {
            return;
        }
        self.phase = Phase::Taking;
        self.pin = None;
        self.gate = Gate::default();
        self.question = None;
        self.inspect_at = None;
    }

    fn set_stage(&mut self, sequence: u64, stage: Stage) {
        if let Some(held) = self.held.get_mut(&sequence) {
            held.stage = stage;
        }
    }
}
