//! The delivery driver: one task that carries commands and answers between cycles, sources and the activation manager.
//!
//! Bindings come and go while it runs; one that goes begins nothing more and is let go of when nothing of it is open.
//!
//! It decides nothing: cycles decide what runs, admission how much, [`Lines`] whose turn it is. One driver serves every binding of a
//! node; a binding that has nothing to do is a few hundred bytes in a list, without task, timer or socket. Only the driver's own task
//! touches a cycle; other threads leave their news in [`Shared`] and wake it.

mod allowance;
mod handle;
mod lines;
mod log;
mod unit;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use latent_core::{BindingId, Clock, Completer, DeliveredEvent, MonoTime, Offset, Partition, TopicName};
use tokio::sync::watch;

use crate::{ActivationEnd, InboundTarget, LocalActivationManager, NodeError};

use super::cycle::Intake;
use super::policy::DeliveryPolicy;
use super::source::{Listing, Remembered, Source, SourceError, SourceNews};
use allowance::LogAllowance;
pub use handle::{BindingStatus, Changed, DeliveryHandle, DeliveryTotals, EventStatus, LatencyMillis};
use handle::{Change, Question, Shared};
use lines::Lines;
pub(crate) use log::detail_of;
pub use log::{Attempt, AttemptLog};
use unit::{At, Unit, UnitParts};

/// One trigger: which function is woken by which topic, and how.
pub struct BindingSpec {
    /// Its id.
    pub id: BindingId,
    /// The topic it is bound to.
    pub topic: TopicName,
    /// Whom it calls.
    pub target: InboundTarget,
    /// How often and when.
    pub policy: DeliveryPolicy,
    /// The topic in which its sources park events that never run (again); `None` when those are settled without.
    pub dead_letter: Option<TopicName>,
    /// The partitions of the topic.
    pub partitions: Vec<PartitionSpec>,
}

/// One partition of a binding: one ordered line of events.
pub struct PartitionSpec {
    /// Which.
    pub partition: Partition,
    /// Where its events come from.
    pub source: Box<dyn Source>,
    /// What listing them costs.
    pub intake: Intake,
    /// What is known of earlier processes.
    pub remembered: Remembered,
    /// The offset after the last event that exists.
    pub known_end: Offset,
}

/// News for one unit, from whatever thread.
enum News {
    Available(Offset),
    Told(SourceNews),
    Pulled(Result<Listing, SourceError>),
    Begun(Offset, Result<DeliveredEvent, SourceError>),
    Finished(Offset, Box<ActivationEnd>),
    Condemned(Offset, Result<(), SourceError>),
    Parked(Offset, Result<(), SourceError>),
    Settled(Offset, Result<(), SourceError>),
}

/// Bindings on their way out.
struct Removal {
    units: BTreeSet<usize>,
    removed: Completer<Changed>,
}

/// See the module.
pub struct DeliveryDriver {
    manager: Arc<LocalActivationManager>,
    clock: Arc<dyn Clock>,
    /// By a number that is never given again, so that late news of a unit that is gone reach nobody else.
    ///
    /// Boxed, because a map keeps room for several values where it has one.
    units: BTreeMap<usize, Box<Unit>>,
    next_unit: usize,
    /// Units that are to go, by who waits for that.
    removals: Vec<Removal>,
    lines: Lines,
    timers: BTreeSet<(MonoTime, usize)>,
    /// Units whose cycle is to be polled.
    touched: BTreeSet<usize>,
    allowance: LogAllowance,
    shared: Arc<Shared>,
}

impl DeliveryDriver {
    /// A driver for `bindings`. Nothing runs until [`DeliveryDriver::run`].
    ///
    /// # Errors
    /// [`NodeError`] when the manager takes no further listener.
    pub fn new(
        manager: Arc<LocalActivationManager>,
        clock: Arc<dyn Clock>,
        bindings: Vec<BindingSpec>,
    ) -> Result<(Self, DeliveryHandle), NodeError> {
        let shared = Arc::new(Shared::default());
        let woken = Arc::clone(&shared);
        manager.on_capacity(Arc::new(move || woken.wake()))?;
        let handle = DeliveryHandle::new(Arc::clone(&shared));
        let allowance = LogAllowance::new(clock.mono());
        let mut driver = Self {
            manager,
            clock,
            units: BTreeMap::new(),
            next_unit: 0,
            removals: Vec::new(),
            lines: Lines::default(),
            timers: BTreeSet::new(),
            touched: BTreeSet::new(),
            allowance,
            shared,
        };
        driver.add(bindings);
        Ok((driver, handle))
    }

    fn add(&mut self, bindings: Vec<BindingSpec>) {
        for binding in bindings {
            let BindingSpec { id, topic, target, policy, dead_letter, partitions } = binding;
            let tenant = self.lines.tenant(&target.tenant);
            let parts = Arc::new(UnitParts { id, topic, tenant, target, policy, dead_letter });
            for partition in partitions {
                let index = self.next_unit;
                self.next_unit += 1;
                self.shared.listen(&parts.topic, partition.partition, index);
                let shared = Arc::clone(&self.shared);
                let reporter = Arc::new(move |news| shared.tell(index, News::Told(news)));
                self.units.insert(index, Box::new(Unit::new(Arc::clone(&parts), partition, reporter)));
                self.touched.insert(index);
            }
        }
    }

    /// Delivers until `stop` says true or its sender is gone; then begins nothing new, settles what ends, and returns when nothing
    /// is open any more. The caller ends what takes too long through the activation manager.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut stopping = false;
        loop {
            self.work();
            if stopping && self.units.values().all(|unit| unit.is_quiet()) {
                self.answer_requests();
                return;
            }
            let wait = self.timers.first().map(|(at, _)| at.since(self.clock.mono()));
            tokio::select! {
                () = self.shared.woken() => {}
                () = sleep(wait) => {}
                changed = stop.wait_for(|stop| *stop), if !stopping => {
                    // A sender that is gone cannot say go on.
                    drop(changed);
                    stopping = true;
                    self.stop();
                }
            }
        }
    }

    /// Everything that can be done now.
    fn work(&mut self) {
        loop {
            self.take_changes();
            let news = self.shared.take_news();
            for (unit, news) in news {
                self.take(unit, news);
            }
            self.fire_timers();
            while let Some(unit) = self.touched.pop_first() {
                self.pump(unit);
            }
            self.reserve();
            self.end_removals();
            // Commands may have been answered on the spot, and reservations may have let units go on.
            if self.touched.is_empty() && !self.shared.has_news() {
                self.answer_requests();
                return;
            }
        }
    }

    fn take_changes(&mut self) {
        for change in self.shared.take_changes() {
            match change {
                Change::Add(bindings, added) => {
                    self.add(bindings);
                    added.complete(Changed::Done);
                }
                Change::Remove(bindings, removed) => {
                    let units = self.units.iter_mut().filter(|(_, unit)| bindings.contains(&unit.parts.id));
                    let units = units.map(|(index, unit)| {
                        unit.stop();
                        *index
                    });
                    let units: BTreeSet<_> = units.collect();
                    self.touched.extend(&units);
                    self.removals.push(Removal { units, removed });
                }
            }
        }
    }

    /// Lets go of removed units that have nothing open any more.
    fn end_removals(&mut self) {
        for removal in std::mem::take(&mut self.removals) {
            let (quiet, open): (BTreeSet<_>, BTreeSet<_>) =
                removal.units.iter().partition(|index| self.units.get(index).is_none_or(|unit| unit.is_quiet()));
            quiet.into_iter().for_each(|index| self.let_go(index));
            if open.is_empty() {
                removal.removed.complete(Changed::Done);
            } else {
                self.removals.push(Removal { units: open, ..removal });
            }
        }
    }

    fn let_go(&mut self, index: usize) {
        let Some(unit) = self.units.remove(&index) else { return };
        self.shared.unlisten(&unit.parts.topic, unit.partition(), index);
        if let Some(at) = unit.timer {
            self.timers.remove(&(at, index));
        }
        self.touched.remove(&index);
    }

    fn take(&mut self, index: usize, news: News) {
        let now = self.clock.mono();
        let Some(unit) = self.units.get_mut(&index) else { return };
        match news {
            News::Available(end) => unit.cycle.handle_available(end),
            News::Told(news) => {
                if let Some(activation) = unit.take_told(now, news) {
                    self.manager.cancel(activation);
                }
            }
            News::Pulled(answer) => unit.take_pulled(now, answer),
            News::Begun(offset, answer) => {
                if let Some((reservation, order)) = unit.take_begun(now, offset, answer) {
                    let (shared, offset) = (Arc::clone(&self.shared), order.event.offset);
                    let ended = move |end| shared.tell(index, News::Finished(offset, Box::new(end)));
                    self.manager.activate(reservation, order).on_ready(ended);
                }
            }
            News::Finished(offset, end) => {
                unit.tell_ended(offset);
                let at = At { now, unix: self.clock.unix(), allowance: &mut self.allowance };
                unit.take_finished(at, offset, &end, &self.shared);
            }
            News::Condemned(offset, answer) => unit.take_condemned(now, offset, answer),
            News::Parked(offset, answer) => unit.take_parked(now, offset, answer),
            News::Settled(offset, answer) => unit.take_settled(now, self.clock.unix(), offset, answer, &self.shared),
        }
        self.touched.insert(index);
    }

    /// Carries out what the unit's cycle wants, then notes its next deadline and whether it waits for a permit.
    fn pump(&mut self, index: usize) {
        let Some(unit) = self.units.get_mut(&index) else { return };
        loop {
            unit.return_surplus();
            let Some(command) = unit.cycle.poll(self.clock.mono()) else { break };
            unit.carry_out(command, index, &self.clock, &self.shared);
        }
        let deadline = unit.next_deadline();
        if unit.timer != deadline {
            if let Some(old) = unit.timer.take() {
                self.timers.remove(&(old, index));
            }
            if let Some(at) = deadline {
                self.timers.insert((at, index));
            }
            unit.timer = deadline;
        }
        if unit.wants_permit() {
            self.lines.join(unit.parts.tenant, index);
        }
    }

    /// Reserves for those who wait, tenant by tenant and unit by unit, until nobody waits or nothing is free.
    fn reserve(&mut self) {
        self.lines.begin_round();
        while let Some((tenant, index)) = self.lines.next() {
            let Some(unit) = self.units.get_mut(&index).filter(|unit| unit.wants_permit()) else { continue };
            match self.manager.reserve_inbound(&unit.parts.target) {
                Ok(reservation) => {
                    unit.take_permit(reservation);
                    self.touched.insert(index);
                    if unit.wants_permit() {
                        self.lines.join(tenant, index);
                    }
                }
                Err(refusal) if refusal.waits_for_capacity() => self.lines.refused(tenant, index),
                Err(refusal) => {
                    unit.refuse(self.clock.mono(), refusal.to_string());
                    self.touched.insert(index);
                }
            }
        }
    }

    fn fire_timers(&mut self) {
        let now = self.clock.mono();
        while let Some(&(at, index)) = self.timers.first().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, index));
            if let Some(unit) = self.units.get_mut(&index) {
                unit.timer = None;
                unit.refusal_is_over(now);
            }
            self.touched.insert(index);
        }
    }

    fn stop(&mut self) {
        for (index, unit) in &mut self.units {
            unit.stop();
            self.touched.insert(*index);
        }
    }

    fn answer_requests(&self) {
        for request in self.shared.take_requests() {
            let (units, clock) = (self.units.values().map(Box::as_ref), self.clock.as_ref());
            match request {
                Question::Statuses(asked) => asked.complete(unit::statuses(units, clock)),
                Question::Event(query, asked) => asked.complete(unit::event_statuses(units, &query, clock)),
            }
        }
    }
}

impl Drop for DeliveryDriver {
    fn drop(&mut self) {
        self.shared.close();
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        // Rounded up, so that a timer that is a little early does not make a busy loop.
        Some(wait) => tokio::time::sleep(wait.max(Duration::from_millis(1))).await,
        None => std::future::pending().await,
    }
}
