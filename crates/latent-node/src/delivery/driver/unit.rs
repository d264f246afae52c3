//! One partition of one binding in the driver: its cycle, its source, the reservations behind its permits, and what people may know.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use latent_core::{
    ActivationId, ActivationOutcome, BindingId, Clock, Deadline, DeliveredEvent, MonoTime, Offset, Partition, TopicName, UnixMillis,
    Verdict, settle_margin,
};

use super::allowance::LogAllowance;
use super::handle::EventQuery;
use super::log::{Attempt, detail_of, failure_of};
use super::{BindingStatus, EventStatus, News, PartitionSpec, Shared};
use crate::delivery::cycle::{Command, Cycle, CycleOptions, CycleState, EventState, Intake, Termination};
use crate::delivery::limits;
use crate::delivery::origin_of;
use crate::delivery::policy::DeliveryPolicy;
use crate::delivery::source::{Listing, Postponement, Reporter, Settlement, Source, SourceError, SourceNews, TerminationReason};
use crate::{ActivationEnd, InboundOrder, InboundTarget, Reservation};

/// Between two lines about the same fault of a source, and before one about another.
const FAULT_TOLD_EVERY_MILLIS: u64 = 60_000;
const OTHER_FAULT_TOLD_AFTER_MILLIS: u64 = 1_000;

/// Events of which it is known that they were settled here, where nothing but the broker remembers them.
const SETTLED_KNOWN_MAX: usize = 256;

/// What the partitions of one binding share.
pub(super) struct UnitParts {
    pub(super) id: BindingId,
    pub(super) topic: TopicName,
    /// Index of the tenant's line.
    pub(super) tenant: usize,
    pub(super) target: InboundTarget,
    pub(super) policy: DeliveryPolicy,
    /// Where events go that never run (again).
    pub(super) dead_letter: Option<TopicName>,
}

/// The moment an activation's end is looked at, and what may be written about it.
pub(super) struct At<'a> {
    pub(super) now: MonoTime,
    pub(super) unix: UnixMillis,
    pub(super) allowance: &'a mut LogAllowance,
}

/// A delivery between its beginning and its settlement.
struct Open {
    /// Until the activation has it.
    reservation: Option<Reservation>,
    /// From then on.
    activation: Option<ActivationId>,
    deadline: Deadline,
    stored_at: Option<UnixMillis>,
    settlement: Option<Settlement>,
}

pub(super) struct Unit {
    pub(super) parts: Arc<UnitParts>,
    pub(super) cycle: Cycle,
    pub(super) timer: Option<MonoTime>,
    partition: Partition,
    source: Box<dyn Source>,
    permits: Vec<Reservation>,
    intake: Intake,
    /// The last ones, of a source that hands events out.
    settled_here: VecDeque<Offset>,
    open: BTreeMap<Offset, Open>,
    /// Why events that are not settled never run (again), in more words than the cycle needs.
    verdicts: BTreeMap<Offset, Verdict>,
    /// No reservation is asked for before this time, because the last one was refused for good.
    refused_until: Option<MonoTime>,
    /// Why, as it was told.
    refusal_told: Option<String>,
    /// The last fault of the source that was told, and when.
    fault_told: Option<(String, MonoTime)>,
    acknowledged: u64,
    terminated: u64,
    exhausted: u64,
    dead_lettered: u64,
    /// Expired events that the log was told of.
    expired_told: u64,
    last: Option<(&'static str, UnixMillis)>,
    /// What stands in the way now.
    obstacle: Option<String>,
    /// What stands in the way of parking now.
    parking_obstacle: Option<String>,
    /// How the last attempt that did not succeed ended.
    last_failure: Option<(String, UnixMillis)>,
}

impl Unit {
    pub(super) fn new(parts: Arc<UnitParts>, mut spec: PartitionSpec, reporter: Reporter) -> Self {
        spec.source.report_to(reporter);
        #[allow(clippy::cast_possible_truncation, reason = "the limit's range fits 32 bits")]
        let window_max = limits::WINDOW.default as u32;
        let termination = if parts.dead_letter.is_some() { Termination::Parked } else { Termination::Plain };
        let options = CycleOptions { policy: parts.policy, intake: spec.intake, window_max, termination };
        let verdicts = spec.remembered.verdicts.iter().cloned().collect();
        Self {
            parts,
            cycle: Cycle::new(options, spec.remembered, spec.known_end),
            timer: None,
            partition: spec.partition,
            source: spec.source,
            permits: Vec::new(),
            intake: spec.intake,
            settled_here: VecDeque::new(),
            open: BTreeMap::new(),
            verdicts,
            refused_until: None,
            refusal_told: None,
            fault_told: None,
            acknowledged: 0,
            terminated: 0,
            exhausted: 0,
            dead_lettered: 0,
            expired_told: 0,
            last: None,
            obstacle: None,
            parking_obstacle: None,
            last_failure: None,
        }
    }

    pub(super) fn partition(&self) -> Partition {
        self.partition
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.cycle.is_quiet()
    }

    /// Begins nothing more.
    pub(super) fn stop(&mut self) {
        self.cycle.stop();
        self.source.stop();
    }

    pub(super) fn tell_ended(&mut self, offset: Offset) {
        self.source.ended(offset);
    }

    /// News of the source. Gives the activation that is to be stopped because of it.
    pub(super) fn take_told(&mut self, now: MonoTime, news: SourceNews) -> Option<ActivationId> {
        self.cycle.handle_news(now, news);
        let (SourceNews::Lapsed(offset) | SourceNews::Over(offset)) = news else { return None };
        self.forget_if_gone(offset);
        self.open.get(&offset).and_then(|open| open.activation).filter(|_| self.cycle.is_to_stop(offset))
    }

    pub(super) fn wants_permit(&self) -> bool {
        self.refused_until.is_none() && self.cycle.permits_missing() > 0
    }

    pub(super) fn take_permit(&mut self, reservation: Reservation) {
        if self.refusal_told.take().is_some() {
            tracing::info!(binding = %self.parts.id, topic = %self.parts.topic, partition = %self.partition, "events go on");
        }
        self.permits.push(reservation);
        self.cycle.grant();
    }

    /// Gives back the reservations that the cycle cannot use now.
    pub(super) fn return_surplus(&mut self) {
        let surplus = self.cycle.take_surplus_permits() as usize;
        let kept = self.permits.len().saturating_sub(surplus);
        self.permits.truncate(kept);
    }

    /// A reservation was refused for a reason that waiting for capacity does not mend, such as a revoked service.
    pub(super) fn refuse(&mut self, now: MonoTime, reason: String) {
        // Asked again every second; told once.
        if self.refusal_told.as_ref() != Some(&reason) {
            tracing::warn!(binding = %self.parts.id, topic = %self.parts.topic, partition = %self.partition, reason, "events wait");
            self.refusal_told = Some(reason.clone());
        }
        self.obstacle = Some(reason);
        self.refused_until = Some(now.plus_millis(limits::REFUSED_WAIT_MILLIS.default));
    }

    pub(super) fn refusal_is_over(&mut self, now: MonoTime) {
        if self.refused_until.is_some_and(|until| until <= now) {
            self.refused_until = None;
            // If it still stands in the way, the next reservation says so again.
            self.obstacle = None;
        }
    }

    pub(super) fn next_deadline(&self) -> Option<MonoTime> {
        self.cycle.next_deadline().into_iter().chain(self.refused_until).min()
    }

    /// Hands a command to the source; the answer comes back as news.
    pub(super) fn carry_out(&mut self, command: Command, index: usize, clock: &Arc<dyn Clock>, shared: &Arc<Shared>) {
        let shared = Arc::clone(shared);
        match command {
            Command::Pull { from, heads_max } => {
                self.source.pull(from, heads_max).on_ready(move |answer| shared.tell(index, News::Pulled(answer)));
            }
            Command::Begin { offset, attempt } => {
                let deadline = Deadline::after(clock.mono(), self.parts.policy.operation_timeout_millis);
                let open = Open { reservation: self.permits.pop(), activation: None, deadline, stored_at: None, settlement: None };
                self.open.insert(offset, open);
                self.source.begin(offset, attempt).on_ready(move |answer| shared.tell(index, News::Begun(offset, answer)));
            }
            Command::Postpone { offset, attempts, delay_millis } => {
                let not_before = UnixMillis(clock.unix().0.saturating_add(delay_millis));
                let (binding, partition) = (self.parts.id.clone(), self.partition);
                self.source.postpone(offset, Postponement { attempts, not_before }).on_ready(move |answer| {
                    if let Err(error) = answer {
                        // The next process may retry earlier than it should; nothing is lost by that.
                        tracing::warn!(%binding, %partition, %offset, %error, "a retry delay could not be written down");
                    }
                });
            }
            Command::Condemn { offset, reason, attempts } => {
                let verdict = self.verdict(offset, reason, attempts);
                self.source.condemn(offset, &verdict).on_ready(move |answer| shared.tell(index, News::Condemned(offset, answer)));
            }
            Command::Park { offset, reason, attempts } => {
                let verdict = self.verdict(offset, reason, attempts);
                self.source.park(offset, &verdict).on_ready(move |answer| shared.tell(index, News::Parked(offset, answer)));
            }
            Command::Settle { offset, settlement } => {
                if let Some(open) = self.open.get_mut(&offset) {
                    open.settlement = Some(settlement);
                } else {
                    let open = Open {
                        reservation: None,
                        activation: None,
                        deadline: Deadline::after(clock.mono(), 0),
                        stored_at: None,
                        settlement: Some(settlement),
                    };
                    self.open.insert(offset, open);
                }
                self.source.settle(offset, settlement).on_ready(move |answer| shared.tell(index, News::Settled(offset, answer)));
            }
        }
    }

    /// Why an event never runs (again): as it was noted when that was decided, or else what the cycle knows.
    fn verdict(&mut self, offset: Offset, reason: TerminationReason, attempts: u32) -> Verdict {
        let verdict = self.verdicts.entry(offset).or_insert_with(|| Verdict::new(reason, attempts, None, ""));
        verdict.clone()
    }

    pub(super) fn take_condemned(&mut self, now: MonoTime, offset: Offset, answer: Result<(), SourceError>) {
        self.note_source(now, answer.as_ref().err());
        self.cycle.handle_condemned(now, offset, answer);
        self.forget_if_gone(offset);
    }

    pub(super) fn take_parked(&mut self, now: MonoTime, offset: Offset, answer: Result<(), SourceError>) {
        match &answer {
            Err(SourceError::Unavailable { reason }) => self.tell_parking_failed(reason),
            Ok(()) => {
                if self.parking_obstacle.take().is_some() {
                    tracing::info!(binding = %self.parts.id, topic = %self.parts.topic, partition = %self.partition, "events are parked again");
                }
                self.dead_lettered = self.dead_lettered.saturating_add(1);
            }
            Err(_) => {}
        }
        self.cycle.handle_parked(now, offset, answer);
        self.forget_if_gone(offset);
        self.tell_expired();
    }

    /// Tried again with growing waits; told once for each reason.
    fn tell_parking_failed(&mut self, reason: &str) {
        let dead_letter = self.parts.dead_letter.as_ref().map_or("", TopicName::as_str);
        let obstacle = format!("dead-letter topic {dead_letter}: {reason}");
        if self.parking_obstacle.as_ref() != Some(&obstacle) {
            let UnitParts { id, topic, .. } = &*self.parts;
            tracing::warn!(binding = %id, %topic, partition = %self.partition, dead_letter, reason, "an event cannot be parked and is kept");
            self.parking_obstacle = Some(obstacle);
        }
    }

    /// An event that expired leaves nothing behind.
    fn forget_if_gone(&mut self, offset: Offset) {
        if !self.cycle.has(offset) {
            self.verdicts.remove(&offset);
            self.open.remove(&offset);
        }
    }

    pub(super) fn take_pulled(&mut self, now: MonoTime, answer: Result<Listing, SourceError>) {
        self.note_source(now, answer.as_ref().err());
        self.cycle.handle_pulled(now, answer);
        self.tell_expired();
        self.verdicts.retain(|offset, _| self.cycle.may_be_parked(*offset));
    }

    /// Retention wins over a slow binding; its operator should know.
    fn tell_expired(&mut self) {
        let expired_unread = self.cycle.snapshot().expired_unread;
        let more = expired_unread.saturating_sub(self.expired_told);
        if more > 0 {
            tracing::warn!(
                binding = %self.parts.id, topic = %self.parts.topic, partition = %self.partition, events = more,
                "events expired before they were handled"
            );
            self.expired_told = expired_unread;
        }
    }

    /// The event is there: gives what the activation manager needs to run it.
    pub(super) fn take_begun(
        &mut self,
        now: MonoTime,
        offset: Offset,
        answer: Result<DeliveredEvent, SourceError>,
    ) -> Option<(Reservation, InboundOrder)> {
        self.note_source(now, answer.as_ref().err());
        let answer = if self.cycle.may_start(offset) { answer } else { Err(no_longer_ours()) };
        let (event, mut reservation) = match answer.and_then(|event| Ok((event, self.reservation_of(offset)?))) {
            Ok(begun) => begun,
            Err(error) => {
                self.open.remove(&offset);
                self.cycle.handle_begun(now, offset, Err(error));
                self.tell_expired();
                return None;
            }
        };
        if self.intake == Intake::HandedOut {
            // It was made before the event was asked for.
            reservation.follow_route();
        }
        let open = self.open.get_mut(&offset)?;
        open.stored_at = Some(event.stored_at);
        open.activation = Some(reservation.activation());
        // The guest's part of the one deadline: what is kept is for settling (T-063).
        let guest = open.deadline.earlier_by(settle_margin(self.parts.policy.operation_timeout_millis));
        let origin = origin_of(&self.parts.id, &event);
        self.cycle.handle_begun(now, offset, Ok(()));
        Some((reservation, InboundOrder { event, origin, deadline: guest }))
    }

    /// The reservation behind the permit of a begun event. A cycle begins nothing without a permit, so it is there.
    fn reservation_of(&mut self, offset: Offset) -> Result<Reservation, SourceError> {
        let reservation = self.open.get_mut(&offset).and_then(|open| open.reservation.take());
        reservation.ok_or_else(|| SourceError::Unavailable { reason: "the event began without a reservation".to_owned() })
    }

    pub(super) fn take_finished(&mut self, at: At<'_>, offset: Offset, end: &ActivationEnd, shared: &Shared) {
        let At { now, unix, allowance } = at;
        let outcome = &end.report.outcome;
        // An attempt that is not counted is taken back below.
        let number = self.cycle.attempts(offset);
        shared.count_activation(outcome);
        self.last = Some((outcome.kind(), unix));
        self.last_failure = failure_of(end).map(|failure| (failure, unix)).or(self.last_failure.take());
        // What ended before the guest could start is no attempt, unless it could never start.
        let never = matches!(outcome, ActivationOutcome::InvalidArguments { .. } | ActivationOutcome::IncompatibleContract { .. });
        if end.started_at.is_none() && !never {
            self.cycle.handle_not_started(now, offset);
        } else {
            self.cycle.handle_finished(now, offset, outcome);
        }
        if let Some(reason) = self.cycle.condemned(offset) {
            let (attempts, detail) = (self.cycle.attempts(offset), detail_of(end));
            self.verdicts.insert(offset, Verdict::new(reason, attempts, Some((end.activation, end.digest)), &detail));
        }
        let next_attempt = self.cycle.next_attempt_of(offset);
        if next_attempt.is_some() || !self.cycle.has(offset) {
            self.open.remove(&offset);
        }
        self.tell_expired();
        let attempt = Attempt {
            binding: &self.parts.id,
            topic: self.parts.topic.as_str(),
            partition: self.partition,
            offset,
            attempt: number,
            attempts_max: self.parts.policy.deliveries_max,
            next_attempt_at: next_attempt.map(|at| unix_of(at, now, unix)),
            delay_millis: next_attempt.map(|at| u64::try_from(at.since(now).as_millis()).unwrap_or(u64::MAX)),
        };
        attempt.log(end, now, allowance);
    }

    pub(super) fn take_settled(
        &mut self,
        now: MonoTime,
        unix: UnixMillis,
        offset: Offset,
        answer: Result<(), SourceError>,
        shared: &Shared,
    ) {
        self.note_source(now, answer.as_ref().err());
        if answer.is_ok()
            && let Some(Open { stored_at, settlement: Some(settlement), .. }) = self.open.remove(&offset)
        {
            let waited = stored_at.map(|stored_at| unix.0.saturating_sub(stored_at.0));
            shared.count_settled(waited);
            self.count(offset, settlement);
            self.remember_settled(offset);
            self.verdicts.remove(&offset);
        }
        self.cycle.handle_settled(now, offset, answer);
        self.forget_if_gone(offset);
    }

    fn remember_settled(&mut self, offset: Offset) {
        if self.intake == Intake::HandedOut {
            self.settled_here.truncate(SETTLED_KNOWN_MAX - 1);
            self.settled_here.push_front(offset);
        }
    }

    /// What is done with one event, and the attempts made on it.
    fn event(&self, offset: Offset) -> (EventState, u32) {
        match self.cycle.event(offset) {
            (EventState::Unseen, _) if self.settled_here.contains(&offset) => (EventState::Settled, 0),
            known => known,
        }
    }

    fn count(&mut self, offset: Offset, settlement: Settlement) {
        match settlement {
            Settlement::Acknowledged => self.acknowledged = self.acknowledged.saturating_add(1),
            Settlement::Terminated(reason) => {
                self.terminated = self.terminated.saturating_add(1);
                self.exhausted = self.exhausted.saturating_add(u64::from(reason == TerminationReason::Exhausted));
                // A rejection was told with its activation, unless that was under an earlier setting or in an earlier process; the others
                // end an event that nobody rejected.
                let was_to_be_parked = self.parts.dead_letter.is_none() && self.verdicts.contains_key(&offset);
                if reason != TerminationReason::Rejected || was_to_be_parked {
                    let UnitParts { id, topic, dead_letter, .. } = &*self.parts;
                    let (partition, reason, dead_letter) = (self.partition, reason.kind(), dead_letter.as_ref().map(TopicName::as_str));
                    tracing::warn!(binding = %id, %topic, %partition, %offset, reason, dead_letter, "event given up: it will not run again");
                }
            }
        }
    }

    /// Each operation that a full disk refuses is a fault of its own: told once a minute, and another reason a second later.
    fn tell_source_failed(&mut self, now: MonoTime, reason: &str) {
        let quiet_millis = |told: &str| if told == reason { FAULT_TOLD_EVERY_MILLIS } else { OTHER_FAULT_TOLD_AFTER_MILLIS };
        if self.fault_told.as_ref().is_some_and(|(told, at)| now < at.plus_millis(quiet_millis(told))) {
            return;
        }
        tracing::warn!(binding = %self.parts.id, topic = %self.parts.topic, partition = %self.partition, reason, "the log could not answer");
        self.fault_told = Some((reason.to_owned(), now));
    }

    /// Keeps the last fault of the source until it answers well again.
    fn note_source(&mut self, now: MonoTime, fault: Option<&SourceError>) {
        match fault {
            Some(SourceError::Unavailable { reason }) => {
                self.tell_source_failed(now, reason);
                self.obstacle = Some(reason.clone());
            }
            // A refused reservation stands in the way as well, and the source knows nothing of it.
            Some(SourceError::Undecodable | SourceError::Expired { .. }) | None if self.refused_until.is_none() => self.obstacle = None,
            Some(SourceError::Undecodable | SourceError::Expired { .. }) | None => {}
        }
    }

    fn state(&self, state: CycleState) -> CycleState {
        if self.refused_until.is_some() && state < CycleState::Stalled { CycleState::Stalled } else { state }
    }
}

fn no_longer_ours() -> SourceError {
    SourceError::Unavailable { reason: "the broker may have handed the event to another node".to_owned() }
}

/// A monotonic time as people read it.
fn unix_of(at: MonoTime, now: MonoTime, unix: UnixMillis) -> UnixMillis {
    let ahead = u64::try_from(at.since(now).as_millis()).unwrap_or(u64::MAX);
    UnixMillis(unix.0.saturating_add(ahead))
}

/// The units summed up by binding, in their order.
pub(super) fn statuses<'a>(units: impl Iterator<Item = &'a Unit>, clock: &dyn Clock) -> Vec<BindingStatus> {
    let (now, unix) = (clock.mono(), clock.unix());
    let mut statuses: Vec<BindingStatus> = Vec::new();
    for unit in units {
        let snapshot = unit.cycle.snapshot();
        let next_attempt_at = snapshot.next_attempt.map(|at| unix_of(at, now, unix));
        let parts = &unit.parts;
        if statuses.last().is_none_or(|last| last.id != parts.id) {
            statuses.push(empty_status(parts));
        }
        let Some(status) = statuses.last_mut() else { continue };
        status.partitions += 1;
        status.state = status.state.max(unit.state(snapshot.state));
        status.pending += snapshot.pending;
        status.unacknowledged += snapshot.unacknowledged;
        status.delayed += snapshot.delayed;
        status.acknowledged += unit.acknowledged;
        status.terminated += unit.terminated;
        status.exhausted += unit.exhausted;
        status.dead_lettered += unit.dead_lettered;
        status.expired_unread += snapshot.expired_unread;
        status.next_attempt_at = status.next_attempt_at.into_iter().chain(next_attempt_at).min();
        if let Some((outcome, at)) = unit.last
            && status.last_delivery_at.is_none_or(|known| known <= at)
        {
            (status.last_outcome, status.last_delivery_at) = (Some(outcome), Some(at));
        }
        let parking = unit.parking_obstacle.as_ref().filter(|_| unit.cycle.parking_fails());
        let obstacle = || unit.obstacle.as_ref().or(parking).cloned();
        status.obstacle = status.obstacle.take().or_else(obstacle);
        if let Some((failure, at)) = &unit.last_failure
            && status.last_failure.as_ref().is_none_or(|(_, known)| known <= at)
        {
            status.last_failure = Some((failure.clone(), *at));
        }
    }
    statuses
}

/// What each binding of the event's topic does with it.
pub(super) fn event_statuses<'a>(units: impl Iterator<Item = &'a Unit>, query: &EventQuery, clock: &dyn Clock) -> Vec<EventStatus> {
    let (now, unix) = (clock.mono(), clock.unix());
    let is_asked = |unit: &&Unit| unit.partition == query.partition && unit.parts.topic == query.topic;
    let status = |unit: &Unit| {
        let (state, attempts) = unit.event(query.offset);
        let next_attempt_at = if let EventState::Delayed(until) = state { Some(unix_of(until, now, unix)) } else { None };
        let UnitParts { id, policy, .. } = &*unit.parts;
        EventStatus { binding: id.clone(), state, attempts, attempts_max: policy.deliveries_max, next_attempt_at }
    };
    units.filter(is_asked).map(status).collect()
}

fn empty_status(parts: &UnitParts) -> BindingStatus {
    BindingStatus {
        id: parts.id.clone(),
        tenant: parts.target.tenant.clone(),
        topic: parts.topic.clone(),
        partitions: 0,
        state: CycleState::Idle,
        pending: 0,
        unacknowledged: 0,
        delayed: 0,
        acknowledged: 0,
        terminated: 0,
        exhausted: 0,
        dead_lettered: 0,
        expired_unread: 0,
        last_outcome: None,
        last_delivery_at: None,
        next_attempt_at: None,
        obstacle: None,
        last_failure: None,
    }
}
