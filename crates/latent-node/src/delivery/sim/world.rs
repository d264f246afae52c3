//! The world of one schedule: lanes (partitions), one admission account for all of them, time, chance, and the checks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use latent_core::{ActivationOutcome, DeliveredEvent, MonoTime, Offset, TenantId, Ticket, UnixMillis, Verdict};

use super::log::{Durable, Ending, Event, FakeSource, Note, Run};
use crate::NodeLimits;
use crate::admission::{Account, Admission, Queued, Reserved, Slot};
use crate::delivery::{
    Command, Cycle, CycleOptions, CycleState, DeliveryPolicy, HeadContent, Intake, KeyId, Listing, Postponement, Settlement, Source,
    SourceError, Termination, TerminationReason,
};

/// A bug that a cycle is told to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::delivery) enum PlantedBug {
    /// Events of one key run at once.
    IgnoreKeys,
    /// A failed activation is acknowledged.
    AcknowledgeFailures,
    /// A used permit is kept.
    KeepPermits,
    /// Events that have expired are not dropped.
    KeepExpired,
    /// What never runs again is settled without being parked.
    SettleUnparked,
    /// A new process is not told what never runs again.
    ForgetVerdicts,
}

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) seed: u64,
    pub(super) what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "schedule {}: {}", self.seed, self.what)
    }
}

/// What happened in schedules, to show that they met what they are there for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Schedule {
    pub(super) kills: u64,
    pub(super) faults: u64,
    pub(super) lost_answers: u64,
    pub(super) reordered: u64,
    pub(super) retries: u64,
    pub(super) exhausted: u64,
    pub(super) saturated: u64,
    pub(super) runs: u64,
    pub(super) not_started: u64,
    pub(super) expired_unlisted: u64,
    pub(super) expired_listed: u64,
    pub(super) parked: u64,
    pub(super) parks_refused: u64,
    pub(super) condemned_remembered: u64,
}

impl Schedule {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            kills: self.kills + other.kills,
            faults: self.faults + other.faults,
            lost_answers: self.lost_answers + other.lost_answers,
            reordered: self.reordered + other.reordered,
            retries: self.retries + other.retries,
            exhausted: self.exhausted + other.exhausted,
            saturated: self.saturated + other.saturated,
            runs: self.runs + other.runs,
            not_started: self.not_started + other.not_started,
            expired_unlisted: self.expired_unlisted + other.expired_unlisted,
            expired_listed: self.expired_listed + other.expired_listed,
            parked: self.parked + other.parked,
            parks_refused: self.parks_refused + other.parks_refused,
            condemned_remembered: self.condemned_remembered + other.condemned_remembered,
        }
    }
}

/// SplitMix64: small, seeded, the same everywhere.
pub(in crate::delivery) struct Chance(pub(in crate::delivery) u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(in crate::delivery) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap_or_default()
    }

    pub(in crate::delivery) fn one_in(&mut self, odds: usize) -> bool {
        self.below(odds) == 0
    }
}

enum Answer {
    Pulled(Ticket<Result<Listing, SourceError>>),
    Begun(Offset, Ticket<Result<DeliveredEvent, SourceError>>),
    Postponed(Ticket<Result<(), SourceError>>),
    Condemned(Offset, Ticket<Result<(), SourceError>>),
    Parked(Offset, Ticket<Result<(), SourceError>>),
    Settled(Offset, Ticket<Result<(), SourceError>>),
}

struct InFlight {
    attempt: u32,
    slot: Slot<Queued>,
}

/// One partition: its log, its cycle, and what the checks know about its events.
struct Lane {
    tenant: TenantId,
    source: FakeSource,
    cycle: Cycle,
    /// In the order of the source's open operations.
    answers: Vec<Answer>,
    /// What stands behind the permits that the cycle holds.
    permits: Vec<Slot<Reserved>>,
    /// Begun or running, with the attempt.
    in_flight: BTreeMap<Offset, InFlight>,
    running: Vec<Offset>,
    /// Runs of an event that ended so, over all processes.
    succeeded: BTreeMap<Offset, u32>,
    rejected: BTreeMap<Offset, u32>,
    /// Events that once ended before they began.
    not_started: BTreeSet<Offset>,
    /// Below this the cycle knows that everything has expired.
    first_seen: Offset,
    /// Events were counted by a process that is gone.
    killed: bool,
}

pub(super) struct World {
    seed: u64,
    chance: Chance,
    now: MonoTime,
    lanes: Vec<Lane>,
    options: CycleOptions,
    planted: Option<PlantedBug>,
    limits: NodeLimits,
    admission: Admission,
    events_left: usize,
    kills_left: usize,
    /// Whether events expire, and whether a new process is told of it.
    expiring: bool,
    expiry_noted: bool,
    /// Whether the log may refuse and processes may be killed.
    rough: bool,
    seen: Schedule,
}

impl World {
    pub(super) fn new(seed: u64, planted: Option<PlantedBug>) -> Self {
        let mut chance = Chance(seed);
        let policy = DeliveryPolicy {
            deliveries_max: 1 + u32::try_from(chance.below(4)).unwrap_or_default(),
            in_flight_max: 1 + u32::try_from(chance.below(4)).unwrap_or_default(),
            retry_delay_millis: 10,
            retry_delay_max_millis: 40,
            ..DeliveryPolicy::default()
        };
        let intake = if chance.one_in(3) { Intake::Reserved } else { Intake::LookAhead };
        let termination = if chance.one_in(2) { Termination::Parked } else { Termination::Plain };
        let window_max = 2 + u32::try_from(chance.below(6)).unwrap_or_default();
        let options = CycleOptions { policy, intake, window_max, termination };
        let lanes = (0..=chance.below(2)).map(|lane| Lane::new(lane, options, planted)).collect();
        let cells = 1 + u32::try_from(chance.below(4)).unwrap_or_default();
        let limits = NodeLimits { cells, admission_slots: 2 * cells, ..NodeLimits::for_cores(1) };
        let (events_left, kills_left) = (4 + chance.below(12), chance.below(3));
        let (expiring, expiry_noted) = (chance.one_in(3), chance.one_in(2));
        Self {
            seed,
            chance,
            now: MonoTime::from_millis(1),
            lanes,
            options,
            planted,
            limits,
            admission: Admission::new(limits),
            events_left,
            kills_left,
            expiring,
            expiry_noted,
            rough: true,
            seen: Schedule::default(),
        }
    }

    /// Anything may happen, in any order.
    pub(super) fn run_freely(&mut self) -> Result<(), Violation> {
        while self.events_left > 0 || self.kills_left > 0 {
            let lane = self.chance.below(self.lanes.len());
            match self.chance.below(if self.expiring { 14 } else { 13 }) {
                13 => self.expire(lane),
                12 => self.open_or_close_dead_letters(lane),
                0 | 1 => self.append(lane),
                2..=5 => self.answer(lane)?,
                6 | 7 => self.end_activation(lane),
                8 => self.pass_time(),
                9 | 10 => self.grant(lane),
                _ => self.maybe_kill()?,
            }
            self.drain(lane)?;
        }
        Ok(())
    }

    /// No more events, kills or faults: everything must come to its end in a bounded number of steps.
    pub(super) fn run_to_the_end(&mut self) -> Result<(), Violation> {
        self.rough = false;
        self.lanes.iter().for_each(|lane| lane.source.log().no_parking = false);
        for _ in 0..4_000 {
            if self.lanes.iter().all(Lane::is_done) {
                return Ok(());
            }
            for lane in 0..self.lanes.len() {
                self.grant(lane);
                self.drain(lane)?;
                self.answer(lane)?;
                self.drain(lane)?;
                self.end_activation(lane);
                self.drain(lane)?;
            }
            self.pass_time();
        }
        Err(self.violation("events are left and nothing moves".to_owned()))
    }

    /// What must hold at the very end.
    pub(super) fn finish(mut self) -> Result<Schedule, Violation> {
        for lane in 0..self.lanes.len() {
            self.drain(lane)?;
            let snapshot = self.lanes[lane].cycle.snapshot();
            if snapshot.state != CycleState::Idle || snapshot.pending + snapshot.unacknowledged + snapshot.delayed != 0 {
                return Err(self.violation(format!("all is settled and the cycle says {snapshot:?}")));
            }
            let (settled, events) = self.lanes[lane].counts();
            if let Some(offset) = self.lanes[lane].parked_and_not_over() {
                return Err(self.violation(format!("offset {offset} is parked and neither settled nor expired")));
            }
            let accounted = settled + snapshot.expired_unread;
            // A process that was killed takes its count with it.
            if accounted != events && !self.lanes[lane].killed {
                return Err(self.violation(format!("{accounted} of {events} events are settled or counted as expired")));
            }
        }
        if self.admission.node() != Account::default() {
            return Err(self.violation(format!("never returned: {:?}", self.admission.node())));
        }
        Ok(self.seen)
    }

    fn violation(&self, what: String) -> Violation {
        Violation { seed: self.seed, what }
    }

    /// The dead-letter topic is away for long stretches.
    fn open_or_close_dead_letters(&mut self, lane: usize) {
        let closed = self.chance.one_in(2);
        self.lanes[lane].source.log().no_parking = closed;
    }

    fn append(&mut self, lane: usize) {
        if self.events_left == 0 {
            return;
        }
        self.events_left -= 1;
        let content =
            if self.chance.one_in(12) { HeadContent::Undecodable } else { HeadContent::Event(KeyId(self.chance.below(3) as u64)) };
        let script = (0..=self.chance.below(4)).map(|_| self.script_step()).collect();
        let lane = &mut self.lanes[lane];
        let end = {
            let mut log = lane.source.log();
            log.durable.events.push(Event { content, script });
            log.durable.events.len() as u64
        };
        lane.cycle.handle_available(Offset(end));
    }

    /// The oldest events of a lane expire, whatever is being done with them.
    fn expire(&mut self, lane: usize) {
        let count = 1 + self.chance.below(4) as u64;
        let mut log = self.lanes[lane].source.log();
        let end = log.durable.events.len() as u64;
        log.durable.first = Offset(end.min(log.durable.first.0 + count));
    }

    fn script_step(&mut self) -> Run {
        match self.chance.below(7) {
            6 => Run::NeverStart,
            0 => Run::Reject,
            1 | 2 => Run::Fail,
            3 => Run::AskAgain(self.chance.below(60) as u64),
            _ => Run::Succeed,
        }
    }

    /// Ends one open operation of the lane, any of them, and hands the answer to the cycle.
    fn answer(&mut self, lane: usize) -> Result<(), Violation> {
        let open = self.lanes[lane].answers.len();
        if open == 0 {
            return Ok(());
        }
        let index = self.chance.below(open);
        self.seen.reordered += u64::from(index > 0);
        let ending = match self.chance.below(20) {
            0 if self.rough => Ending::Refused,
            1 if self.rough => Ending::AnswerLost,
            _ => Ending::Done,
        };
        self.seen.faults += u64::from(ending == Ending::Refused);
        self.seen.lost_answers += u64::from(ending == Ending::AnswerLost);
        self.lanes[lane].source.end(index, ending);
        self.check_settled(lane)?;
        let answer = self.lanes[lane].answers.remove(index);
        self.deliver(lane, answer);
        Ok(())
    }

    fn deliver(&mut self, lane: usize, answer: Answer) {
        let now = self.now;
        let lane = &mut self.lanes[lane];
        match answer {
            Answer::Pulled(ticket) => {
                let answer = ticket.wait();
                if let Ok(Listing { first, .. }) = answer {
                    let before = lane.cycle.snapshot().expired_unread;
                    lane.see_expiry(first, self.expiry_noted);
                    lane.cycle.handle_pulled(now, answer);
                    self.seen.expired_unlisted += lane.cycle.snapshot().expired_unread - before;
                } else {
                    lane.cycle.handle_pulled(now, answer);
                }
            }
            Answer::Postponed(ticket) => drop(ticket.wait()),
            Answer::Condemned(offset, ticket) => lane.cycle.handle_condemned(now, offset, ticket.wait()),
            Answer::Parked(offset, ticket) => {
                let answer = ticket.wait();
                match answer {
                    Ok(()) => self.seen.parked += 1,
                    Err(SourceError::Expired { first }) => lane.see_expiry(first, self.expiry_noted),
                    Err(_) => self.seen.parks_refused += 1,
                }
                lane.cycle.handle_parked(now, offset, answer);
            }
            Answer::Settled(offset, ticket) => lane.cycle.handle_settled(now, offset, ticket.wait()),
            Answer::Begun(offset, ticket) => match ticket.wait() {
                Ok(_) => {
                    lane.running.push(offset);
                    lane.cycle.handle_begun(now, offset, Ok(()));
                }
                Err(error) => {
                    if let Some(in_flight) = lane.in_flight.remove(&offset) {
                        self.admission.release(in_flight.slot);
                    }
                    if let SourceError::Expired { first } = error {
                        lane.see_expiry(first, self.expiry_noted);
                        self.seen.expired_listed += 1;
                    }
                    lane.cycle.handle_begun(now, offset, Err(error));
                }
            },
        }
    }

    fn end_activation(&mut self, lane: usize) {
        let running = self.lanes[lane].running.len();
        if running == 0 {
            return;
        }
        let offset = self.chance.below(running);
        let lane = &mut self.lanes[lane];
        let offset = lane.running.swap_remove(offset);
        let Some(InFlight { attempt, slot }) = lane.in_flight.remove(&offset) else { return };
        // A run takes no time in a schedule, so its cell is taken and returned at once.
        match self.admission.start(slot) {
            Ok(running) => self.admission.release(running),
            Err(queued) => self.admission.release(queued),
        }
        self.seen.runs += 1;
        let outcome = match lane.script(offset, attempt) {
            // Once for each event: what never starts for ever never ends.
            Run::NeverStart if lane.not_started.insert(offset) => {
                self.seen.not_started += 1;
                return lane.cycle.handle_not_started(self.now, offset);
            }
            Run::NeverStart => ActivationOutcome::Timeout,
            Run::Succeed => {
                *lane.succeeded.entry(offset).or_default() += 1;
                ActivationOutcome::Success
            }
            Run::Reject => {
                *lane.rejected.entry(offset).or_default() += 1;
                ActivationOutcome::Rejected { reason: String::new() }
            }
            Run::Fail => ActivationOutcome::Timeout,
            Run::AskAgain(millis) => ActivationOutcome::RetryRequested { reason: String::new(), delay_millis: Some(millis) },
        };
        lane.cycle.handle_finished(self.now, offset, &outcome);
    }

    fn pass_time(&mut self) {
        let next = self.lanes.iter().filter_map(|lane| lane.cycle.next_deadline()).min();
        self.now = match next {
            Some(at) if !self.rough || self.chance.one_in(2) => self.now.max(at),
            _ => self.now.plus_millis(self.chance.below(30) as u64),
        };
    }

    /// Reserves for a lane as the driver would: as many as are missing, as long as admission lets.
    fn grant(&mut self, lane: usize) {
        let lane = &mut self.lanes[lane];
        for _ in 0..lane.cycle.permits_missing() {
            let Ok(slot) = self.admission.reserve(&lane.tenant, 1) else { return };
            lane.permits.push(slot);
            lane.cycle.grant();
        }
    }

    fn maybe_kill(&mut self) -> Result<(), Violation> {
        if self.kills_left == 0 || !self.chance.one_in(6) {
            return Ok(());
        }
        self.kills_left -= 1;
        self.seen.kills += 1;
        self.admission = Admission::new(self.limits);
        for index in 0..self.lanes.len() {
            let kept = self.chance.below(self.lanes[index].answers.len() + 1);
            self.lanes[index].kill(kept, self.options, self.planted);
            self.seen.condemned_remembered += self.lanes[index].source.log().durable.remembered().verdicts.len() as u64;
            self.check_settled(index)?;
            self.drain(index)?;
        }
        Ok(())
    }

    /// Takes every command of a lane's cycle, checks it and hands it to the source.
    fn drain(&mut self, lane: usize) -> Result<(), Violation> {
        loop {
            for _ in 0..self.lanes[lane].cycle.take_surplus_permits() {
                let Some(slot) = self.lanes[lane].permits.pop() else {
                    return Err(self.violation("a permit came back that was never out".to_owned()));
                };
                self.admission.release(slot);
            }
            let now = self.now;
            let Some(command) = self.lanes[lane].cycle.poll(now) else { break };
            self.check(lane, command)?;
            self.lanes[lane].hand_over(now, command);
        }
        self.seen.saturated += u64::from(self.lanes[lane].cycle.snapshot().state == CycleState::Saturated);
        Ok(())
    }

    fn check(&mut self, lane: usize, command: Command) -> Result<(), Violation> {
        let problem = match command {
            Command::Begin { offset, attempt } => self.begin_problem(lane, offset, attempt),
            Command::Pull { heads_max, .. } => self.pull_problem(lane, heads_max),
            Command::Postpone { attempts, delay_millis, .. } => {
                self.seen.retries += 1;
                let policy = self.options.policy;
                let fits = attempts < policy.deliveries_max && (10..=policy.retry_delay_max_millis).contains(&delay_millis);
                (!fits).then(|| format!("{command:?} is outside the policy"))
            }
            Command::Condemn { offset, reason, attempts } => self.condemn_problem(lane, offset, reason, attempts),
            Command::Park { offset, reason, .. } => self.park_problem(lane, offset, reason),
            Command::Settle { settlement, .. } => {
                self.seen.exhausted += u64::from(settlement == Settlement::Terminated(TerminationReason::Exhausted));
                None
            }
        };
        problem.map_or(Ok(()), |what| Err(self.violation(what)))
    }

    fn pull_problem(&self, lane: usize, heads_max: u32) -> Option<String> {
        let lane = &self.lanes[lane];
        let too_many = self.options.intake == Intake::Reserved && heads_max as usize > lane.permits.len();
        too_many.then(|| format!("pulls {heads_max} with {} permits", lane.permits.len()))
    }

    /// What is condemned has the right to be.
    fn condemn_problem(&self, lane: usize, offset: Offset, reason: TerminationReason, attempts: u32) -> Option<String> {
        let right = match reason {
            TerminationReason::Rejected => self.lanes[lane].rejected.contains_key(&offset),
            TerminationReason::Exhausted => attempts >= self.options.policy.deliveries_max,
            TerminationReason::Undecodable => false,
        };
        (!right).then(|| format!("offset {offset} is condemned as {reason:?} after {attempts} attempts without the right"))
    }

    /// What is parked was written down before, and for the same reason.
    fn park_problem(&self, lane: usize, offset: Offset, reason: TerminationReason) -> Option<String> {
        let log = self.lanes[lane].source.log();
        let noted = log.durable.verdicts.get(&offset).map(|verdict| verdict.reason);
        let parked = log.durable.parked.get(&offset).copied();
        let right = match reason {
            TerminationReason::Undecodable => noted.is_none(),
            _ => noted == Some(reason) || offset < self.lanes[lane].first_seen,
        };
        (!right || parked.is_some_and(|parked| parked != reason))
            .then(|| format!("offset {offset} is parked as {reason:?}, noted as {noted:?}"))
    }

    fn begin_problem(&mut self, index: usize, offset: Offset, attempt: u32) -> Option<String> {
        let lane = &mut self.lanes[index];
        let Some(slot) = lane.permits.pop() else { return Some(format!("{offset} begins without a permit")) };
        let slot = self.admission.queue(slot);
        let log = lane.source.log();
        let event = &log.durable.events[usize::try_from(offset.0).unwrap_or_default()];
        let Note { attempts, not_before, .. } = log.durable.attempts.get(&offset).copied().unwrap_or_default();
        // Until it is written down that one did not count.
        let uncounted = u32::from(lane.not_started.contains(&offset));
        let same_key = |other: &Offset| log.durable.events[usize::try_from(other.0).unwrap_or_default()].content == event.content;
        let mut settled = log.durable.remembered().settled;
        settled.insert_range(Offset(0), lane.first_seen);
        let floor = settled.floor();
        let problem = if offset < lane.first_seen {
            Some("begins although it is known to have expired".to_owned())
        } else if log.durable.settled.contains_key(&offset) {
            Some("begins although it is settled".to_owned())
        } else if log.durable.verdicts.contains_key(&offset) || log.durable.parked.contains_key(&offset) {
            Some("begins although it is condemned".to_owned())
        } else if lane.in_flight.keys().any(same_key) {
            Some("begins while another of its key runs".to_owned())
        } else if (0..offset.0).map(Offset).any(|earlier| same_key(&earlier) && !log.durable.is_over(earlier)) {
            Some("begins before an earlier one of its key is settled".to_owned())
        } else if lane.in_flight.len() >= self.options.policy.in_flight_max as usize {
            Some("begins although in_flight_max is reached".to_owned())
        } else if attempt > self.options.policy.deliveries_max || attempt + uncounted < attempts || attempt > attempts + 1 {
            Some(format!("begins as attempt {attempt} after {attempts}"))
        } else if not_before > self.now {
            Some("begins before its delay is over".to_owned())
        } else if offset.0 - floor.0 >= u64::from(self.options.window_max) {
            Some("begins outside the window".to_owned())
        } else {
            None
        };
        drop(log);
        lane.in_flight.insert(offset, InFlight { attempt, slot });
        problem.map(|what| format!("lane {index}, offset {offset}, attempt {attempt}: {what}"))
    }

    /// Everything settled on disk was settled for a reason.
    fn check_settled(&self, lane: usize) -> Result<(), Violation> {
        let lane = &self.lanes[lane];
        let log = lane.source.log();
        for (offset, settlement) in &log.durable.settled {
            let Durable { events, attempts, .. } = &log.durable;
            let right = match settlement {
                Settlement::Acknowledged => lane.succeeded.contains_key(offset),
                Settlement::Terminated(TerminationReason::Rejected) => lane.rejected.contains_key(offset),
                Settlement::Terminated(TerminationReason::Exhausted) => {
                    attempts.get(offset).is_some_and(|note| note.attempts >= self.options.policy.deliveries_max)
                }
                Settlement::Terminated(TerminationReason::Undecodable) => {
                    events[usize::try_from(offset.0).unwrap_or_default()].content == HeadContent::Undecodable
                }
            };
            let parked = self.options.termination == Termination::Parked && matches!(settlement, Settlement::Terminated(_));
            if !right || log.durable.parked.contains_key(offset) != parked {
                return Err(self.violation(format!("offset {offset} is settled as {settlement:?} without the right")));
            }
        }
        Ok(())
    }
}

impl Lane {
    fn new(index: usize, options: CycleOptions, planted: Option<PlantedBug>) -> Self {
        let source = FakeSource::default();
        let cycle = new_cycle(&source, options, planted);
        let tenant = TenantId::parse(&format!("tenant-{index}")).expect("a tenant");
        let (succeeded, rejected) = (BTreeMap::new(), BTreeMap::new());
        Self {
            tenant,
            source,
            cycle,
            answers: Vec::new(),
            permits: Vec::new(),
            in_flight: BTreeMap::new(),
            running: Vec::new(),
            succeeded,
            rejected,
            not_started: BTreeSet::new(),
            first_seen: Offset(0),
            killed: false,
        }
    }

    /// The process dies and a new one starts. What had run is remembered by the checks alone.
    fn kill(&mut self, kept: usize, options: CycleOptions, planted: Option<PlantedBug>) {
        self.source.kill(kept);
        self.answers.clear();
        self.in_flight.clear();
        self.running.clear();
        self.permits.clear();
        self.killed = true;
        self.first_seen = self.source.log().durable.first_noted;
        self.cycle = new_cycle(&self.source, options, planted);
    }

    /// The cycle is told that everything below `first` has expired; `noted` when the next process shall know too.
    fn see_expiry(&mut self, first: Offset, noted: bool) {
        self.first_seen = self.first_seen.max(first);
        if noted {
            let mut log = self.source.log();
            log.durable.first_noted = log.durable.first_noted.max(first);
        }
    }

    fn hand_over(&mut self, now: MonoTime, command: Command) {
        let answer = match command {
            Command::Pull { from, heads_max } => Answer::Pulled(self.source.pull(from, heads_max)),
            Command::Begin { offset, attempt } => Answer::Begun(offset, self.source.begin(offset, attempt)),
            Command::Condemn { offset, reason, attempts } => {
                Answer::Condemned(offset, self.source.condemn(offset, &Verdict::new(reason, attempts, None, "")))
            }
            Command::Park { offset, reason, attempts } => {
                Answer::Parked(offset, self.source.park(offset, &Verdict::new(reason, attempts, None, "")))
            }
            Command::Settle { offset, settlement } => Answer::Settled(offset, self.source.settle(offset, settlement)),
            Command::Postpone { offset, attempts, delay_millis } => {
                // The simulated wall clock is the monotonic one, rounded up to whole milliseconds.
                let not_before = UnixMillis(now.plus_millis(delay_millis).as_micros().div_ceil(1_000));
                Answer::Postponed(self.source.postpone(offset, Postponement { attempts, not_before }))
            }
        };
        self.answers.push(answer);
    }

    fn script(&self, offset: Offset, attempt: u32) -> Run {
        let log = self.source.log();
        let script = &log.durable.events[usize::try_from(offset.0).unwrap_or_default()].script;
        let last = script.len().saturating_sub(1);
        script[last.min(attempt.saturating_sub(1) as usize)]
    }

    /// Events settled, and all of them.
    fn counts(&self) -> (u64, u64) {
        let durable = &self.source.log().durable;
        (durable.settled.len() as u64, durable.events.len() as u64)
    }

    fn parked_and_not_over(&self) -> Option<Offset> {
        let durable = &self.source.log().durable;
        durable.parked.keys().copied().find(|offset| !durable.is_over(*offset))
    }

    fn is_done(&self) -> bool {
        let log = self.source.log();
        let over = (0..log.durable.events.len() as u64).all(|offset| log.durable.is_over(Offset(offset)));
        over && log.open.is_empty() && self.cycle.is_quiet() && self.cycle.snapshot().pending == 0
    }
}

fn new_cycle(source: &FakeSource, options: CycleOptions, planted: Option<PlantedBug>) -> Cycle {
    let log = source.log();
    let mut remembered = log.durable.remembered();
    if planted == Some(PlantedBug::ForgetVerdicts) {
        remembered.verdicts.clear();
    }
    let mut cycle = Cycle::new(options, remembered, Offset(log.durable.events.len() as u64));
    cycle.planted = planted;
    cycle
}
