//! Carries between the lanes of one tenant and the session of its connection. A machine without I/O: bytes are moved by `run`, time is an
//! argument.
//!
//! ```text
//! LaneSource ──▶ desk ──▶ command ─┬▶ backlog ──▶ Session: inspect, renew, settle
//!                 ▲                └▶ pull, once its consumer was seen to be right and there is room
//!                 └── answers, messages ◀── events of the session
//! ```
//!
//! What always holds: each command of a desk is carried once, in order, but for pulls, which wait for room without keeping anything else
//! waiting; what is given up at its deadline is uncertain; nothing is pulled from a consumer that was not inspected in the last
//! `limits::PROFILE_MILLIS`, and under this pin (T-101, T-106).

mod events;
mod pulls;
mod sweep;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::RandomState;
use std::sync::Arc;

use latent_core::{Clock, MonoTime, UnixMillis};
use latent_nats_proto::session::{GiveUp, OperationId, Session, SessionRefused, SessionSettlement};
use latent_nats_proto::{Ended, Evidence};
use latent_node::delivery::{Confirmation, LaneCommand, ReplyId, Settlement};

use super::bell::Bell;
use super::journal::Journal;
use super::limits;
use super::office::{LaneCell, Of};
use super::topics::LaneTopics;
use crate::triggers::StepFault;
use pulls::PullState;
use sweep::Sweep;

/// What an operation of the session was begun for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// With the lane's question, if it is one.
    Inspect {
        lane: usize,
        question: Option<u64>,
        of_sweep: bool,
    },
    Pull {
        lane: usize,
    },
    /// A pull that keeps the pin and brings nothing.
    Keep {
        lane: usize,
    },
    Renew {
        lane: usize,
        sequence: u64,
        reply: ReplyId,
    },
    Settle {
        lane: usize,
        sequence: u64,
    },
}

impl Purpose {
    const fn lane(self) -> usize {
        match self {
            Self::Inspect { lane, .. }
            | Self::Pull { lane }
            | Self::Keep { lane }
            | Self::Renew { lane, .. }
            | Self::Settle { lane, .. } => lane,
        }
    }
}

/// What is kept of a lane here.
struct Carried {
    cell: Arc<LaneCell>,
    /// Commands that had no room yet, oldest first.
    backlog: VecDeque<LaneCommand>,
    pull: PullState,
    /// The consumer was seen to be right then.
    profile_at: Option<MonoTime>,
    /// Inspections under way.
    inspections: u32,
    /// How often the broker delivers a message.
    max_deliver: Option<u64>,
    /// How long the broker keeps a pin without another pull.
    pin_millis: Option<u64>,
    /// When it was pulled from last, to bring something or to keep the pin.
    asked_at: MonoTime,
    /// A pull that keeps the pin is under way.
    keeping: bool,
    /// To be inspected once nothing is held.
    looks_again: bool,
    timer: Option<MonoTime>,
}

/// See the module.
pub(super) struct Carrier {
    lanes: Vec<Carried>,
    session: Option<Session>,
    operations: BTreeMap<OperationId, (Purpose, MonoTime)>,
    /// When an operation is waited for no longer.
    deadlines: BTreeSet<(MonoTime, OperationId)>,
    /// When a lane is to be looked at.
    timers: BTreeSet<(MonoTime, usize)>,
    touched: BTreeSet<usize>,
    /// Lanes whose backlog waits for room.
    blocked: BTreeSet<usize>,
    /// Lanes whose pull waits for room, the one that waits longest first.
    pulls_waiting: VecDeque<usize>,
    /// Until when each of the lanes that keep a pull open does.
    hot: BTreeMap<usize, MonoTime>,
    hot_max: u64,
    /// Those of them whose pull has ended.
    keep_open: BTreeSet<usize>,
    /// When a pull has been silent for too long.
    signs: BTreeSet<(MonoTime, usize)>,
    sweep: Sweep,
    topics: Arc<dyn LaneTopics>,
    journal: Arc<Journal>,
    clock: Arc<dyn Clock>,
    bell: Arc<Bell>,
    /// Which start of the broker the last connection was to.
    started: Option<u64>,
    /// Seeded by chance in each process, so that nobody can choose keys that share an id.
    hasher: RandomState,
}

impl Carrier {
    pub(super) fn new(
        cells: Vec<Arc<LaneCell>>,
        bell: Arc<Bell>,
        topics: Arc<dyn LaneTopics>,
        journal: Arc<Journal>,
        (clock, hot_max): (Arc<dyn Clock>, u64),
    ) -> Self {
        let touched = (0..cells.len()).collect();
        let sweep = Sweep::new(cells.len());
        let lanes = cells.into_iter().map(Carried::new).collect();
        let mut carrier = Self {
            lanes,
            session: None,
            operations: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            timers: BTreeSet::new(),
            touched,
            blocked: BTreeSet::new(),
            pulls_waiting: VecDeque::new(),
            hot: BTreeMap::new(),
            hot_max,
            keep_open: BTreeSet::new(),
            signs: BTreeSet::new(),
            sweep,
            topics,
            journal,
            clock,
            bell,
            started: None,
            hasher: RandomState::new(),
        };
        for lane in &carrier.lanes {
            lane.cell.office().desk.lane.handle_connection_lost();
        }
        carrier.work();
        carrier
    }

    /// The session, for whoever moves its bytes.
    pub(super) fn session(&mut self) -> Option<&mut Session> {
        self.session.as_mut()
    }

    /// A connection is there.
    pub(super) fn connected(&mut self, session: Session) {
        let (now, has_forgotten) = (self.clock.mono(), self.is_started_anew(&session));
        self.session = Some(session);
        for (place, lane) in self.lanes.iter_mut().enumerate() {
            lane.profile_at = None;
            let mut office = lane.cell.office();
            if has_forgotten {
                office.desk.lane.handle_broker_forgot(now);
            }
            office.desk.lane.handle_connected();
            drop(office);
            self.touched.insert(place);
        }
        self.sweep.begin_anew(self.clock.mono());
    }

    /// Whether a broker that stands alone was started since the last connection. In a cluster another server says nothing of that one's
    /// consumers.
    fn is_started_anew(&mut self, session: &Session) -> bool {
        let Some(facts) = session.server().filter(|facts| !facts.is_clustered) else { return false };
        let before = std::mem::replace(&mut self.started, facts.started);
        before.is_some_and(|before| facts.started != Some(before))
    }

    /// The connection is to be closed, or has ended.
    pub(super) fn disconnected(&mut self, how: Ended) {
        if let Some(session) = &mut self.session {
            session.ended(how);
        }
        self.take_events();
        // A session that is over has said so with its last event.
        self.session = None;
    }

    /// What keeps every lane from a connection, as it is told to those who ask.
    pub(super) fn cannot_connect(&mut self, fault: StepFault, why: &str) {
        let now = self.now();
        for lane in &self.lanes {
            self.journal.trouble(&lane.cell, now, Of::Inspection, fault, why);
        }
    }

    /// Everything that can be done now without moving a byte.
    pub(super) fn work(&mut self) {
        // Once for each call, since room comes with what the session was moved by.
        self.touched.append(&mut self.blocked);
        loop {
            self.touched.append(&mut self.bell.take());
            self.take_events();
            self.end_overdue();
            self.fire_timers();
            self.sweep_on();
            if self.touched.is_empty() {
                return;
            }
            while let Some(place) = self.touched.pop_first() {
                self.pump(place);
            }
            self.begin_pulls();
            self.ask_again();
        }
    }

    /// When [`Carrier::work`] is to be called again even if nothing happens.
    pub(super) fn next_deadline(&self) -> Option<MonoTime> {
        let deadlines = self.deadlines.first().map(|(at, _)| *at);
        let timers = self.timers.first().map(|(at, _)| *at);
        let sweep = self.session.as_ref().map(|_| self.sweep.next_at());
        let signs = self.silent_at();
        [deadlines, timers, sweep.flatten(), signs].into_iter().flatten().min()
    }

    /// Nobody carries any more: everything that waits is answered, and from now on desks answer by themselves.
    pub(super) fn close(&mut self) {
        self.disconnected(Ended::Cancelled);
        for lane in &mut self.lanes {
            lane.backlog.clear();
            let mut office = lane.cell.office();
            office.desk.lane.handle_connection_lost();
            office.desk.stop();
            office.closed = true;
        }
        for place in 0..self.lanes.len() {
            self.pump(place);
        }
    }

    /// Carries what a lane's desk wants.
    fn pump(&mut self, place: usize) {
        while let Some(command) = self.next_command(place) {
            if let Some(command) = self.carry(place, command) {
                if let Some(lane) = self.lanes.get_mut(place) {
                    lane.backlog.push_front(command);
                }
                // Looked at again when the session has moved; nothing more of it is carried before.
                break;
            }
        }
        self.keep_pin(place);
        self.look_again(place);
        self.set_timer(place);
    }

    fn look_again(&mut self, place: usize) {
        let is_due = |lane: &&mut Carried| lane.looks_again && lane.inspections == 0 && lane.cell.office().desk.lane.held() == 0;
        if let Some(lane) = self.lanes.get_mut(place).filter(is_due) {
            lane.looks_again = false;
            // Refused where there is no room: the sweep, or the next pull, looks then.
            let _ = self.begin_inspection(place, None, false);
        }
    }

    fn next_command(&mut self, place: usize) -> Option<LaneCommand> {
        let now = self.clock.mono();
        let lane = self.lanes.get_mut(place)?;
        lane.backlog.pop_front().or_else(|| lane.cell.office().poll(now))
    }

    /// Gives the command back when there is no room for it.
    fn carry(&mut self, place: usize, command: LaneCommand) -> Option<LaneCommand> {
        let refused = match command {
            LaneCommand::Inspect { question } => self.begin_inspection(place, Some(question), false),
            LaneCommand::Pull { pin, batch_max, expires_millis } => {
                self.want_pull(place, pin, batch_max, expires_millis);
                return None;
            }
            LaneCommand::Renew { sequence, reply } => {
                self.begin_settlement(place, reply, SessionSettlement::InProgress, Purpose::Renew { lane: place, sequence, reply })
            }
            LaneCommand::Settle { sequence, reply, settlement } => {
                self.begin_settlement(place, reply, words_of(settlement), Purpose::Settle { lane: place, sequence })
            }
            // The desk keeps the others to itself.
            _ => return None,
        };
        match refused {
            Ok(()) => None,
            Err(refused) if waits_for_room(refused) => {
                self.blocked.insert(place);
                Some(command)
            }
            Err(_) => {
                self.not_begun(command, place);
                None
            }
        }
    }

    fn begin_inspection(&mut self, place: usize, question: Option<u64>, of_sweep: bool) -> Result<(), SessionRefused> {
        let Some(lane) = self.lanes.get_mut(place) else { return Ok(()) };
        let session = self.session.as_mut().ok_or(SessionRefused::Closed)?;
        let operation = session.begin_inspect(lane.cell.binding.consumer())?;
        lane.inspections += 1;
        self.begun(operation, Purpose::Inspect { lane: place, question, of_sweep }, limits::ANSWER_MILLIS.default);
        Ok(())
    }

    fn begin_settlement(
        &mut self,
        place: usize,
        reply: ReplyId,
        settlement: SessionSettlement<'_>,
        purpose: Purpose,
    ) -> Result<(), SessionRefused> {
        let Some(lane) = self.lanes.get(place) else { return Ok(()) };
        let session = self.session.as_mut().ok_or(SessionRefused::Closed)?;
        let ack = lane.cell.office().reply(reply).ok_or(SessionRefused::Closed)?;
        let operation = session.begin_settle(&ack, settlement)?;
        self.begun(operation, purpose, limits::ANSWER_MILLIS.default);
        Ok(())
    }

    fn begun(&mut self, operation: OperationId, purpose: Purpose, answer_millis: u64) {
        let until = self.clock.mono().plus_millis(answer_millis);
        self.operations.insert(operation, (purpose, until));
        // A pull has signs of life instead.
        if !matches!(purpose, Purpose::Pull { .. }) {
            self.deadlines.insert((until, operation));
        }
    }

    /// A command of which certainly nothing was written.
    fn not_begun(&mut self, command: LaneCommand, place: usize) {
        let now = self.clock.mono();
        let Some(lane) = self.lanes.get(place) else { return };
        let mut office = lane.cell.office();
        match command {
            LaneCommand::Inspect { question } => office.desk.lane.handle_inspected(now, question, None),
            LaneCommand::Renew { sequence, reply } => office.desk.lane.handle_renewed(now, sequence, reply, Confirmation::NotSent),
            LaneCommand::Settle { sequence, .. } => office.desk.lane.handle_settled(now, sequence, Confirmation::NotSent),
            _ => {}
        }
    }

    /// On both clocks.
    fn now(&self) -> (MonoTime, UnixMillis) {
        (self.clock.mono(), self.clock.unix())
    }

    fn end_overdue(&mut self) {
        let now = self.clock.mono();
        while let Some((_, operation)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            self.deadlines.pop_first();
            let given_up = self.session.as_mut().is_none_or(|session| session.give_up(operation, GiveUp::DeadlineExceeded));
            if !given_up && matches!(self.operations.get(&operation), Some((Purpose::Keep { .. }, _))) {
                // It is a pull, which cannot be given up alone, and this one is answered at once.
                self.disconnected(Ended::DeadlineExceeded);
            }
        }
        if self.silent_at().is_some_and(|at| at <= now) {
            // Its messages could still come, so that it cannot be given up alone.
            self.disconnected(Ended::DeadlineExceeded);
        }
        self.take_events();
    }

    fn fire_timers(&mut self) {
        let now = self.clock.mono();
        while let Some((at, place)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, place));
            if let Some(lane) = self.lanes.get_mut(place)
                && lane.timer == Some(at)
            {
                lane.timer = None;
            }
            self.touched.insert(place);
        }
    }

    fn set_timer(&mut self, place: usize) {
        let keep_at = self.keep_at(place);
        let Some(lane) = self.lanes.get_mut(place) else { return };
        let deadline = lane.cell.office().desk.lane.next_deadline();
        let deadline = deadline.into_iter().chain(keep_at).min();
        if lane.timer == deadline {
            return;
        }
        if let Some(old) = lane.timer.take() {
            self.timers.remove(&(old, place));
        }
        if let Some(at) = deadline {
            self.timers.insert((at, place));
        }
        lane.timer = deadline;
    }

    /// The connection is over, for what was seen.
    fn lost(&mut self, evidence: Evidence) {
        self.operations.clear();
        self.deadlines.clear();
        self.pulls_waiting.clear();
        self.blocked.clear();
        self.signs.clear();
        self.keep_open.clear();
        let now = self.now();
        let trouble = crate::triggers::trouble::of_evidence(evidence);
        for place in 0..self.lanes.len() {
            let waiting = self.lanes.get_mut(place).map(|lane| std::mem::take(&mut lane.backlog)).unwrap_or_default();
            waiting.into_iter().for_each(|command| self.not_begun(command, place));
            let Some(lane) = self.lanes.get_mut(place) else { continue };
            (lane.pull, lane.inspections, lane.profile_at, lane.keeping) = (PullState::None, 0, None, false);
            if evidence != Evidence::Cancelled {
                self.journal.trouble(&lane.cell, now, Of::Inspection, trouble.fault, &trouble.why);
            }
            lane.cell.office().desk.lane.handle_connection_lost();
            self.touched.insert(place);
        }
    }
}

impl Carried {
    fn new(cell: Arc<LaneCell>) -> Self {
        Self {
            cell,
            backlog: VecDeque::new(),
            pull: PullState::None,
            profile_at: None,
            inspections: 0,
            max_deliver: None,
            pin_millis: None,
            asked_at: MonoTime::ZERO,
            keeping: false,
            looks_again: false,
            timer: None,
        }
    }
}

fn waits_for_room(refused: SessionRefused) -> bool {
    matches!(refused, SessionRefused::Operations { .. } | SessionRefused::Outgoing { .. })
}

const fn words_of(settlement: Settlement) -> SessionSettlement<'static> {
    match settlement {
        Settlement::Acknowledged => SessionSettlement::Acknowledge,
        Settlement::Terminated(reason) => SessionSettlement::Terminate { reason: Some(reason.kind()) },
    }
}
