//! One visit of a binding whose source hands events out one at a time and keeps their attempts itself, as a durable pull consumer does:
//! what is asked of the source, whether the function runs, and how the event is settled. A machine without I/O.
//!
//! ```text
//! Inspect ─▶ Pull ─┬─▶ Run ─┬─────────────▶ Settle ─▶ settled, or uncertain
//!    │         │    │        └─ never ──┐    ▲  └─ not sent ─▶ unsettled
//!    │         │    └─ never again ─▶ Park ──┘
//!    ▼         ▼             │          │
//!  idle,     empty,          ▼          ▼
//!  delayed   refused       stopped, out of time, not parked: unsettled, the source hands it out again
//! ```
//!
//! What always holds:
//! - each of the three operations happens at most once, in this order;
//! - an event is acknowledged only after its activation succeeded, and terminated only because it can never run (again);
//! - where there is a dead-letter topic, it is terminated only after it is there; what is condemned never runs again in this process;
//! - whoever stops, or is out of time, settles nothing: the source hands the event out again;
//! - of the one deadline, the settle margin is never given to the function (T-063), and nothing is pulled that could not run.

use latent_core::{ActivationOutcome, Deadline, Disposition, MonoTime, settle_margin};

use super::source::TerminationReason;

/// How a binding's events are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VisitPolicy {
    /// Runs of one event, the first included.
    pub deliveries_max: u32,
    /// How often the source hands one event out, at least as often as it may run.
    pub source_deliveries_max: u32,
    /// Whether what never runs (again) is parked before it is terminated.
    pub parks: bool,
    /// Delay before a further run.
    pub retry_delay_millis: u64,
    /// The longest delay that a function may ask for.
    pub retry_delay_max_millis: u64,
    /// The one deadline, from reservation to receipt of the settlement.
    pub operation_timeout_millis: u64,
}

/// What a source said when it was asked what it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Events never handed out.
    pub pending: u64,
    /// Events handed out and not settled, those among them that wait for their delay.
    pub unacknowledged: u64,
    /// The last event that was handed out.
    pub delivered_up_to: u64,
    /// How often anything was handed out.
    pub deliveries: u64,
    /// Everything up to this is settled.
    pub settled_up_to: u64,
}

impl Backlog {
    /// Whether the source gave up on an event: it is neither settled nor will it be handed out (T-052).
    pub const fn is_stranded(&self) -> bool {
        self.unacknowledged == 0 && self.settled_up_to < self.delivered_up_to
    }

    /// Whether the source handed out a later event in the place of the one that was unsettled when it was asked, of which it allows one.
    /// It gave that one up, unless somebody else settled it in between (see [`Waiting`]); once the later one is settled, nothing at the
    /// source tells of it.
    pub const fn is_passed_over_by(&self, handed: Handed) -> bool {
        self.unacknowledged > 0 && handed.sequence > self.delivered_up_to
    }
}

/// An event that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Handed {
    /// Its place in the source.
    pub sequence: u64,
    /// Which delivery this is, from 1.
    pub delivery: u64,
}

/// An event that was seen unsettled, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Its place in the source, and how often anything had been handed out by then.
    pub seen: (u64, u64),
    /// When it was seen first.
    pub since: MonoTime,
}

impl Waiting {
    /// What is unsettled by this answer, after what was known before it.
    pub fn after(known: Option<Self>, backlog: &Backlog, now: MonoTime) -> Option<Self> {
        let seen = (backlog.delivered_up_to, backlog.deliveries);
        let known = known.filter(|known| known.seen == seen);
        (backlog.unacknowledged > 0).then(|| known.unwrap_or(Self { seen, since: now }))
    }

    /// Whether nobody can settle that delivery any more: whoever was handed it has had all the time that an operation has. A binding has
    /// the same operation timeout on every node.
    pub fn is_over(&self, operation_timeout_millis: u64, now: MonoTime) -> bool {
        now.since(self.since) >= std::time::Duration::from_millis(operation_timeout_millis)
    }
}

/// An event that this process put off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PutOff {
    /// Its place in the source.
    pub sequence: u64,
    /// Before this the source does not hand it out.
    pub until: MonoTime,
}

/// An event that never runs (again) and could not be parked yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condemned {
    /// Its place in the source.
    pub sequence: u64,
    /// Why.
    pub reason: TerminationReason,
}

/// What is known of a binding from its last visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Known {
    /// What was put off.
    pub put_off: Option<PutOff>,
    /// What is only left to be parked.
    pub condemned: Option<Condemned>,
}

/// How an event is to be settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisitSettlement {
    /// Handled.
    Acknowledge,
    /// Again after a delay.
    RetryAfter {
        /// The delay.
        millis: u64,
    },
    /// Never again.
    Terminate(TerminationReason),
}

/// What is known of a settlement that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Confirmation {
    /// The source has the command. Not that the event was still pending (T-049).
    Confirmed,
    /// It was certainly not sent.
    NotSent,
    /// It may have arrived; it is never sent again (T-050).
    Uncertain,
}

/// Why an event was left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsettled {
    /// The operator stops (T-048).
    Stopped,
    /// The deadline has passed.
    TimeSpent,
    /// The credential is not current any more (X-012).
    CredentialChanged,
    /// The settlement was not sent.
    NotSent,
    /// It could not be parked, so it is not terminated.
    NotParked(TerminationReason),
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisitNext {
    /// Ask the source what it has; answered by [`Visit::inspected`].
    Inspect,
    /// Ask it for one event; answered by [`Visit::pulled`]. Immediately before, look once more whether it could run.
    Pull,
    /// Run the function; answered by [`Visit::finished`].
    Run {
        /// When it must have ended.
        until: Deadline,
    },
    /// Park; answered by [`Visit::parked`].
    Park(TerminationReason),
    /// Settle; answered by [`Visit::settled`].
    Settle(VisitSettlement),
    /// Nothing.
    End(VisitEnd),
}

/// How a visit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisitEnd {
    /// The source has nothing, so it was not asked for anything (T-062).
    Idle,
    /// All it has is an event that this process put off.
    Delayed,
    /// It was asked and gave nothing.
    Empty,
    /// It could not answer; whoever carried the question knows why.
    Failed,
    /// Stopped before anything was handed out.
    Stopped,
    /// Too little time was left to run anything, so nothing was asked for.
    TooLate,
    /// An event was handed out more often than it may be: nothing is run or settled (D-12).
    OutOfRange(Handed),
    /// The settlement was sent.
    Settled {
        /// What was settled.
        handed: Handed,
        /// How.
        settlement: VisitSettlement,
        /// Whether the source has it.
        confirmation: Confirmation,
    },
    /// The event was left as it is.
    Unsettled {
        /// Which.
        handed: Handed,
        /// Why.
        why: Unsettled,
    },
}

/// See the module.
#[derive(Debug, Clone, Copy)]
pub struct Visit {
    policy: VisitPolicy,
    deadline: Deadline,
    known: Known,
    handed: Handed,
    next: VisitNext,
}

impl Visit {
    /// A visit with everything reserved. `deadline` is the original one.
    pub const fn begin(policy: VisitPolicy, deadline: Deadline, known: Known) -> Self {
        Self { policy, deadline, known, handed: Handed { sequence: 0, delivery: 0 }, next: VisitNext::Inspect }
    }

    /// What to do.
    pub const fn next(&self) -> VisitNext {
        self.next
    }

    /// What was handed out; nothing before that.
    pub const fn handed(&self) -> Handed {
        self.handed
    }

    /// When the function must have ended: the margin behind it is for settling.
    pub const fn run_until(&self) -> Deadline {
        self.deadline.earlier_by(settle_margin(self.policy.operation_timeout_millis))
    }

    /// The answer to [`VisitNext::Inspect`]; `None` when there is none.
    pub fn inspected(&mut self, now: MonoTime, backlog: Option<Backlog>) {
        if self.next != VisitNext::Inspect {
            return;
        }
        self.next = match backlog {
            None => VisitNext::End(VisitEnd::Failed),
            Some(Backlog { pending: 0, unacknowledged: 0, .. }) => VisitNext::End(VisitEnd::Idle),
            // The source allows one unsettled event, and knows its delay better than to hand anything out before.
            Some(backlog) if self.waits_for_put_off(now, backlog) => VisitNext::End(VisitEnd::Delayed),
            Some(_) if self.run_until().has_passed(now) => VisitNext::End(VisitEnd::TooLate),
            Some(_) => VisitNext::Pull,
        };
    }

    fn waits_for_put_off(&self, now: MonoTime, backlog: Backlog) -> bool {
        let of_backlog = |off: &PutOff| off.until > now && off.sequence == backlog.delivered_up_to && backlog.unacknowledged > 0;
        self.known.put_off.as_ref().is_some_and(of_backlog)
    }

    /// What was condemned at its place is another event: the source was made anew.
    pub const fn forget_condemned(&mut self) {
        self.known.condemned = None;
    }

    /// The answer to [`VisitNext::Pull`]: an event, none, or that there is no answer.
    pub fn pulled(&mut self, answer: Result<Option<Handed>, ()>) {
        if self.next != VisitNext::Pull {
            return;
        }
        self.next = match answer {
            Err(()) => VisitNext::End(VisitEnd::Failed),
            Ok(None) => VisitNext::End(VisitEnd::Empty),
            Ok(Some(handed)) if handed.delivery > u64::from(self.policy.source_deliveries_max) => {
                VisitNext::End(VisitEnd::OutOfRange(handed))
            }
            Ok(Some(handed)) => {
                self.handed = handed;
                let condemned = self.known.condemned.filter(|known| known.sequence == handed.sequence).map(|known| known.reason);
                match condemned {
                    Some(reason) => self.never(reason),
                    None if handed.delivery > u64::from(self.policy.deliveries_max) => self.never(TerminationReason::Exhausted),
                    None => VisitNext::Run { until: self.run_until() },
                }
            }
        };
    }

    /// What becomes of an event that never runs (again).
    const fn never(&self, reason: TerminationReason) -> VisitNext {
        if self.policy.parks { VisitNext::Park(reason) } else { VisitNext::Settle(VisitSettlement::Terminate(reason)) }
    }

    /// What was handed out is nothing that could be run.
    pub const fn undecodable(&mut self) {
        if let VisitNext::Run { .. } = self.next {
            self.next = self.never(TerminationReason::Undecodable);
        }
    }

    /// The answer to [`VisitNext::Park`]: whether the event is in the dead-letter topic.
    pub fn parked(&mut self, now: MonoTime, is_there: bool) {
        let VisitNext::Park(reason) = self.next else { return };
        // Where the time is over, it is terminated when it comes again: parking it once more stores nothing.
        if is_there && !self.deadline.has_passed(now) {
            self.next = VisitNext::Settle(VisitSettlement::Terminate(reason));
        } else {
            self.leave(Unsettled::NotParked(reason));
        }
    }

    /// The function ended, or was not run because of what it was to be given.
    pub fn finished(&mut self, now: MonoTime, outcome: &ActivationOutcome) {
        if !matches!(self.next, VisitNext::Run { .. }) {
            return;
        }
        if self.deadline.has_passed(now) {
            return self.leave(Unsettled::TimeSpent);
        }
        let is_last = self.handed.delivery >= u64::from(self.policy.deliveries_max);
        self.next = match outcome.disposition() {
            Disposition::Acknowledge => VisitNext::Settle(VisitSettlement::Acknowledge),
            Disposition::Terminate => self.never(TerminationReason::Rejected),
            Disposition::Retry { .. } if is_last => self.never(TerminationReason::Exhausted),
            Disposition::Retry { delay_millis: wish } => {
                let VisitPolicy { retry_delay_millis: usual, retry_delay_max_millis: longest, .. } = self.policy;
                let millis = wish.map_or(usual, |wish| wish.clamp(usual.min(longest), longest));
                VisitNext::Settle(VisitSettlement::RetryAfter { millis })
            }
        };
    }

    /// What became of the settlement.
    pub const fn settled(&mut self, confirmation: Confirmation) {
        if let VisitNext::Settle(settlement) = self.next {
            let handed = self.handed;
            self.next = VisitNext::End(match confirmation {
                Confirmation::NotSent => VisitEnd::Unsettled { handed, why: Unsettled::NotSent },
                Confirmation::Confirmed | Confirmation::Uncertain => VisitEnd::Settled { handed, settlement, confirmation },
            });
        }
    }

    /// The settlement must not be sent.
    pub const fn withhold(&mut self, why: Unsettled) {
        if let VisitNext::Settle(_) = self.next {
            self.leave(why);
        }
    }

    /// The operator stops. A settlement that is due already is still sent: what ended has ended.
    pub const fn stop(&mut self) {
        match self.next {
            VisitNext::Inspect | VisitNext::Pull => self.next = VisitNext::End(VisitEnd::Stopped),
            VisitNext::Run { .. } => self.leave(Unsettled::Stopped),
            VisitNext::Park(reason) => self.leave(Unsettled::NotParked(reason)),
            VisitNext::Settle(_) | VisitNext::End(_) => {}
        }
    }

    const fn leave(&mut self, why: Unsettled) {
        self.next = VisitNext::End(VisitEnd::Unsettled { handed: self.handed, why });
    }
}

#[cfg(test)]
mod tests;
