//! Where visits leave what can be seen of them: counters, the state of each binding, and the last step that says something (X-039, X-040,
//! T-021).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use latent_core::{Epoch, MonoTime, UnixMillis, Verdict};
use latent_node::delivery::{Backlog, Condemned, Confirmation, Handed, Known, PutOff, TerminationReason, VisitSettlement, Waiting};

use super::fault::StepFault;
use super::install::Installed;
use super::report::{BindingReport, LastStep, StepEnd, TriggerSnapshot, TriggerState};
use super::trouble::Trouble;

/// A message that is only left to be parked.
#[derive(Debug, Clone)]
pub(crate) struct Sentence {
    pub(crate) condemned: Condemned,
    /// With its place, what tells the message from one of a stream that was made anew.
    pub(crate) stored_unix_nanos: u64,
    pub(crate) verdict: Verdict,
}

/// What one binding keeps.
#[derive(Debug, Clone, Default)]
struct Mark {
    /// What the broker said last; `None` before it said anything.
    asked: Option<Backlog>,
    waiting: Option<Waiting>,
    put_off: Option<PutOff>,
    next_attempt_at: Option<UnixMillis>,
    is_delayed: bool,
    is_running: bool,
    sentence: Option<Sentence>,
    dead_lettered: u64,
    settled: u64,
    terminated: u64,
    exhausted: u64,
    last_outcome: Option<&'static str>,
    last_delivery_at: Option<UnixMillis>,
    problem: Option<(StepFault, Arc<str>)>,
    /// Messages that the broker was seen to have given up, and the last of them.
    stranded: u64,
    stranded_at: Option<u64>,
}

#[derive(Debug, Default)]
struct Marks {
    counts: TriggerSnapshot,
    bindings: Vec<Mark>,
    last: Option<LastStep>,
    driven: bool,
}

/// Where visits leave what can be seen.
#[derive(Debug)]
pub(crate) struct Board(Mutex<Marks>);

impl Board {
    pub(crate) fn new(epoch: Epoch, bindings: usize, tenants: usize) -> Self {
        let counts = TriggerSnapshot { epoch, bindings: bindings as u64, tenants: tenants as u64, ..TriggerSnapshot::default() };
        Self(Mutex::new(Marks { counts, bindings: vec![Mark::default(); bindings], last: None, driven: false }))
    }

    fn lock(&self) -> MutexGuard<'_, Marks> {
        // The guarded sections cannot panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with(&self, binding: usize, change: impl FnOnce(&mut TriggerSnapshot, &mut Mark)) {
        let Marks { counts, bindings, .. } = &mut *self.lock();
        if let Some(mark) = bindings.get_mut(binding) {
            change(counts, mark);
        }
    }

    /// Somebody drives from now on.
    pub(crate) fn driven(&self) {
        self.lock().driven = true;
    }

    /// Nobody does any more, so nothing of this side runs, however the driver ended.
    pub(crate) fn undriven(&self) {
        let mut marks = self.lock();
        marks.driven = false;
        marks.bindings.iter_mut().for_each(|mark| mark.is_running = false);
    }

    /// A visit begins. What is known of the last ones is told.
    pub(crate) fn begin(&self, binding: usize) -> Known {
        let mut known = Known::default();
        self.with(binding, |counts, mark| {
            add(&mut counts.visits);
            known = Known { put_off: mark.put_off, condemned: mark.sentence.as_ref().map(|known| known.condemned) };
        });
        known
    }

    /// The broker answered. True when it is seen to have given up a message, for the first time.
    pub(crate) fn inspected(&self, binding: usize, backlog: Backlog, now: MonoTime) -> bool {
        self.with(binding, |counts, mark| {
            add(&mut counts.inspections);
            mark.asked = Some(backlog);
            mark.waiting = Waiting::after(mark.waiting, &backlog, now);
        });
        backlog.is_stranded() && self.stranded(binding, backlog.delivered_up_to)
    }

    /// In the place of what was unsettled the broker handed out this. The sequence of the message that it gave up, if that is certain and
    /// news: when it was asked, at `asked_at`, nobody could settle its last delivery any more.
    pub(crate) fn passed_over(&self, binding: usize, handed: Handed, operation_timeout_millis: u64, asked_at: MonoTime) -> Option<u64> {
        let given_up = {
            let marks = self.lock();
            let mark = marks.bindings.get(binding)?;
            let is_certain = mark.waiting.is_some_and(|waiting| waiting.is_over(operation_timeout_millis, asked_at));
            mark.asked.filter(|asked| is_certain && asked.is_passed_over_by(handed))?.delivered_up_to
        };
        self.stranded(binding, given_up).then_some(given_up)
    }

    /// The broker gave this message up. True when that is news.
    fn stranded(&self, binding: usize, sequence: u64) -> bool {
        let mut is_news = false;
        self.with(binding, |counts, mark| {
            is_news = mark.stranded_at != Some(sequence);
            if is_news {
                add(&mut counts.stranded);
                add(&mut mark.stranded);
                mark.stranded_at = Some(sequence);
            }
        });
        is_news
    }

    pub(crate) fn pulling(&self, binding: usize) {
        self.with(binding, |counts, _| add(&mut counts.pulls));
    }

    pub(crate) fn handed(&self, binding: usize, at: UnixMillis) {
        self.with(binding, |counts, mark| {
            add(&mut counts.delivered);
            mark.is_running = true;
            mark.is_delayed = false;
            mark.last_delivery_at = Some(at);
        });
    }

    pub(crate) fn ended(&self, binding: usize, outcome: &'static str) {
        self.with(binding, |counts, mark| {
            add(&mut counts.activations);
            mark.last_outcome = Some(outcome);
        });
    }

    /// What was handed out is nothing to run the function with.
    pub(crate) fn unfit(&self, binding: usize, outcome: &'static str) {
        self.with(binding, |_, mark| mark.last_outcome = Some(outcome));
    }

    /// A trouble with the next message, which nobody could read, with where it is in the stream.
    pub(crate) fn placed(&self, binding: usize, mut trouble: Trouble) -> Trouble {
        let asked = self.lock().bindings.get(binding).and_then(|mark| mark.asked);
        if let Some(asked) = asked.filter(|_| trouble.fault.is_of_message()) {
            let place = if asked.unacknowledged > 0 { "the message at sequence" } else { "the next message after sequence" };
            trouble.why = format!("{}: {place} {}", trouble.why, asked.delivered_up_to);
        }
        trouble
    }

    /// Nothing was there, or only what was put off. What is over by that, if anything was wrong.
    pub(crate) fn quiet(&self, binding: usize, is_delayed: bool) -> Option<StepFault> {
        let mut over = None;
        self.with(binding, |_, mark| {
            mark.is_delayed = is_delayed;
            // A message that cannot be taken is still there while the broker waits for it.
            let is_of_message = mark.problem.as_ref().is_some_and(|(fault, _)| fault.is_of_message());
            if !is_of_message || mark.backlog().unacknowledged == 0 {
                over = mark.problem.take().map(|(fault, _)| fault);
            }
            if !is_delayed {
                (mark.put_off, mark.next_attempt_at) = (None, None);
            }
        });
        over
    }

    /// The verdict on a message that is only left to be parked.
    pub(crate) fn verdict(&self, binding: usize, sequence: u64, stored_unix_nanos: u64) -> Option<Verdict> {
        let marks = self.lock();
        let known = marks.bindings.get(binding)?.sentence.as_ref()?;
        (known.condemned.sequence == sequence && known.stored_unix_nanos == stored_unix_nanos).then(|| known.verdict.clone())
    }

    /// A message is only left to be parked; nothing else is until it was.
    pub(crate) fn condemn(&self, binding: usize, sentence: Sentence) {
        self.with(binding, |_, mark| mark.sentence = Some(sentence));
    }

    /// What is wrong with a message that was handed out, and stays. True when it is news.
    pub(crate) fn troubled(&self, binding: usize, fault: StepFault, why: &str) -> bool {
        let mut is_news = false;
        self.with(binding, |_, mark| {
            is_news = mark.problem.as_ref().is_none_or(|(known, words)| *known != fault || **words != *why);
            mark.problem = Some((fault, why.into()));
        });
        is_news
    }

    /// Why the dials of a tenant wait, from whichever of its bindings saw it: those of `is_of_tenant`.
    pub(crate) fn cause_of_backoff(&self, is_of_tenant: impl Fn(usize) -> bool) -> Option<(StepFault, Arc<str>)> {
        let marks = self.lock();
        let of_tenant = marks.bindings.iter().enumerate().filter(|(index, _)| is_of_tenant(*index));
        let mut problems = of_tenant.filter_map(|(_, mark)| mark.problem.clone());
        problems.find(|(fault, _)| fault.begins_backoff() && *fault != StepFault::Backoff)
    }

    /// A message is in the dead-letter topic.
    pub(crate) fn parked(&self, binding: usize) {
        self.with(binding, |counts, mark| {
            add(&mut counts.dead_lettered);
            add(&mut mark.dead_lettered);
        });
    }

    /// A visit ended with a settlement, or with a message left as it was. `put_off` says until when, where it was delayed. What is over by
    /// that, if anything was wrong.
    pub(crate) fn settled(&self, step: LastStep, put_off: Option<(PutOff, UnixMillis)>) -> Option<StepFault> {
        let mut marks = self.lock();
        marks.last = Some(step);
        let Marks { counts, bindings, .. } = &mut *marks;
        add(match step.end {
            StepEnd::Settled { confirmation: Confirmation::Confirmed, settlement } => match settlement {
                VisitSettlement::Acknowledge => &mut counts.acknowledged,
                VisitSettlement::RetryAfter { .. } => &mut counts.delayed,
                VisitSettlement::Terminate(TerminationReason::Exhausted) => &mut counts.exhausted,
                VisitSettlement::Terminate(_) => &mut counts.terminated,
            },
            StepEnd::Settled { .. } => &mut counts.uncertain,
            StepEnd::Unsettled(_) => &mut counts.unsettled,
            StepEnd::Failed(_) => &mut counts.failed,
        });
        let mark = bindings.get_mut(step.binding)?;
        mark.count(step.end);
        let is_of = |known: &Sentence| step.handed.is_some_and(|handed| handed.sequence == known.condemned.sequence);
        if matches!(step.end, StepEnd::Settled { .. }) && mark.sentence.as_ref().is_some_and(is_of) {
            mark.sentence = None;
        }
        // Why it could not be parked or settled was told when that failed.
        let is_settled = matches!(step.end, StepEnd::Settled { confirmation: Confirmation::Confirmed, .. });
        let was_told = mark.problem.as_ref().is_some_and(|(fault, _)| matches!(fault, StepFault::NotParked | StepFault::SettlementRefused));
        let over = if is_settled || !was_told { mark.problem.take() } else { None };
        (mark.is_running, mark.is_delayed) = (false, put_off.is_some());
        (mark.put_off, mark.next_attempt_at) = put_off.map_or((None, None), |(off, at)| (Some(off), Some(at)));
        over.map(|(fault, _)| fault)
    }

    /// A visit failed. True when that is news.
    pub(crate) fn failed(&self, step: LastStep, fault: StepFault, why: &str) -> bool {
        let mut marks = self.lock();
        marks.last = Some(step);
        let Marks { counts, bindings, .. } = &mut *marks;
        add(if fault.is_load() { &mut counts.refused } else { &mut counts.failed });
        let Some(mark) = bindings.get_mut(step.binding) else { return false };
        mark.is_running = false;
        let is_known = mark.problem.as_ref().is_some_and(|(known, words)| match fault {
            // The wait after it says less than what it waits for.
            StepFault::Backoff => known.begins_backoff(),
            _ => *known == fault && **words == *why,
        });
        if !is_known {
            mark.problem = Some((fault, why.into()));
        }
        !is_known
    }

    #[cfg(test)]
    pub(super) fn states(&self) -> Vec<TriggerState> {
        let marks = self.lock();
        marks.bindings.iter().map(|mark| Self::state(mark, marks.driven)).collect()
    }

    #[cfg(test)]
    pub(super) fn problem(&self, binding: usize) -> Option<(StepFault, Arc<str>)> {
        self.lock().bindings[binding].problem.clone()
    }

    #[cfg(test)]
    pub(super) fn counts(&self) -> TriggerSnapshot {
        self.lock().counts
    }

    fn state(mark: &Mark, driven: bool) -> TriggerState {
        match (&mark.problem, mark.backlog()) {
            _ if mark.is_running => TriggerState::Busy,
            _ if !driven => TriggerState::Stopped,
            (Some((fault, _)), _) if fault.is_load() => TriggerState::Saturated,
            (Some(_), _) => TriggerState::Stalled,
            _ if mark.is_delayed => TriggerState::Delayed,
            (None, backlog) if backlog.pending > 0 || backlog.unacknowledged > 0 => TriggerState::Busy,
            (None, backlog) if backlog.is_stranded() => TriggerState::Stranded,
            _ => TriggerState::Idle,
        }
    }
}

impl Mark {
    fn backlog(&self) -> Backlog {
        self.asked.unwrap_or_default()
    }

    fn count(&mut self, end: StepEnd) {
        let StepEnd::Settled { settlement, confirmation: Confirmation::Confirmed } = end else { return };
        match settlement {
            VisitSettlement::RetryAfter { .. } => return,
            VisitSettlement::Acknowledge => (),
            VisitSettlement::Terminate(reason) => {
                add(&mut self.terminated);
                if reason == TerminationReason::Exhausted {
                    add(&mut self.exhausted);
                }
            }
        }
        add(&mut self.settled);
    }
}

pub(super) fn add(count: &mut u64) {
    *count = count.saturating_add(1);
}

/// Looks at installed triggers without driving them. Cheap to clone.
#[derive(Clone)]
pub struct TriggerMonitor(pub(super) Arc<Installed>);

impl std::fmt::Debug for TriggerMonitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TriggerMonitor").field("snapshot", &self.snapshot()).finish_non_exhaustive()
    }
}

impl TriggerMonitor {
    /// Counts, and what is held now.
    pub fn snapshot(&self) -> TriggerSnapshot {
        let Installed { board, client, registration, .. } = &*self.0;
        let in_use = registration.in_use();
        TriggerSnapshot {
            running: in_use.running,
            connections: in_use.connections,
            connected: client.connected.get(),
            connects_failed: client.connects_failed.get(),
            parked_lost: client.parked_lost.get(),
            ..board.lock().counts
        }
    }

    /// The configuration. It holds no secret.
    pub fn config(&self) -> &super::TriggerConfig {
        &self.0.config
    }

    /// The last step that ended with a message or an error; `None` before the first.
    pub fn last_step(&self) -> Option<LastStep> {
        self.0.board.lock().last
    }

    /// Every binding, in the order of the configuration.
    pub fn bindings(&self) -> Vec<BindingReport> {
        let marks = self.0.board.lock();
        let reports = self.0.config.bindings().iter().zip(&marks.bindings).map(|(binding, mark)| BindingReport {
            id: binding.id().clone(),
            state: Board::state(mark, marks.driven),
            pending: mark.asked.map(|asked| asked.pending),
            unacknowledged: mark.asked.map(|asked| asked.unacknowledged),
            delayed: mark.is_delayed,
            settled: mark.settled,
            terminated: mark.terminated,
            exhausted: mark.exhausted,
            dead_lettered: mark.dead_lettered,
            last_outcome: mark.last_outcome,
            last_delivery_at: mark.last_delivery_at,
            next_attempt_at: mark.next_attempt_at,
            stranded: mark.stranded,
            stranded_at: mark.stranded_at,
            problem: mark.problem.clone(),
        });
        reports.collect()
    }
}
