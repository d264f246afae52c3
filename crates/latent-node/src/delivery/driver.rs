//! The delivery driver: one task that carries commands and answers between cycles, sources and the activation manager.
//!
//! It decides nothing: cycles decide what runs, admission how much, [`Lines`] whose turn it is. One driver serves every binding of a
//! node; a binding that has nothing to do is a few hundred bytes in a list, without task, timer or socket. Only the driver's own task
//! touches a cycle; other threads leave their news in [`Shared`] and wake it.

mod allowance;
mod handle;
mod lines;
mod log;
mod unit;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use latent_core::{BindingId, Clock, DeliveredEvent, MonoTime, Offset, Partition, TopicName};
use tokio::sync::watch;

use crate::{ActivationEnd, InboundTarget, LocalActivationManager, NodeError};

use super::cycle::Intake;
use super::policy::DeliveryPolicy;
use super::source::{Listing, Remembered, Source, SourceError};
use allowance::LogAllowance;
use handle::Shared;
pub use handle::{BindingStatus, DeliveryHandle, DeliveryTotals, LatencyMillis};
use lines::Lines;
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
    Pulled(Result<Listing, SourceError>),
    Begun(Offset, Result<DeliveredEvent, SourceError>),
    Finished(Offset, Box<ActivationEnd>),
    Settled(Offset, Result<(), SourceError>),
}

/// See the module.
pub struct DeliveryDriver {
    manager: Arc<LocalActivationManager>,
    clock: Arc<dyn Clock>,
    units: Vec<Unit>,
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
        let mut units = Vec::new();
        let mut lines = Lines::default();
        let mut shared = Shared::default();
        for binding in bindings {
            let tenant = lines.tenant(&binding.target.tenant);
            let parts =
                Arc::new(UnitParts { id: binding.id, topic: binding.topic, tenant, target: binding.target, policy: binding.policy });
            for partition in binding.partitions {
                shared.listen(&parts.topic, partition.partition, units.len());
                units.push(Unit::new(Arc::clone(&parts), partition));
            }
        }
        let shared = Arc::new(shared);
        let woken = Arc::clone(&shared);
        manager.on_capacity(Arc::new(move || woken.wake()))?;
        let handle = DeliveryHandle::new(Arc::clone(&shared));
        let touched = (0..units.len()).collect();
        let allowance = LogAllowance::new(clock.mono());
        Ok((Self { manager, clock, units, lines, timers: BTreeSet::new(), touched, allowance, shared }, handle))
    }

    /// Delivers until `stop` says true or its sender is gone; then begins nothing new, settles what ends, and returns when nothing
    /// is open any more. The caller ends what takes too long through the activation manager.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut stopping = false;
        loop {
            self.work();
            if stopping && self.units.iter().all(Unit::is_quiet) {
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
            let news = self.shared.take_news();
            for (unit, news) in news {
                self.take(unit, news);
            }
            self.fire_timers();
            while let Some(unit) = self.touched.pop_first() {
                self.pump(unit);
            }
            self.reserve();
            // Commands may have been answered on the spot, and reservations may have let units go on.
            if self.touched.is_empty() && !self.shared.has_news() {
                self.answer_requests();
                return;
            }
        }
    }

    fn take(&mut self, index: usize, news: News) {
        let now = self.clock.mono();
        let Some(unit) = self.units.get_mut(index) else { return };
        match news {
            News::Available(end) => unit.cycle.handle_available(end),
            News::Pulled(answer) => unit.take_pulled(now, answer),
            News::Begun(offset, answer) => {
                if let Some((reservation, order)) = unit.take_begun(now, offset, answer) {
                    let (shared, offset) = (Arc::clone(&self.shared), order.event.offset);
                    let ended = move |end| shared.tell(index, News::Finished(offset, Box::new(end)));
                    self.manager.activate(reservation, order).on_ready(ended);
                }
            }
            News::Finished(offset, end) => {
                let at = At { now, unix: self.clock.unix(), allowance: &mut self.allowance };
                unit.take_finished(at, offset, &end, &self.shared);
            }
            News::Settled(offset, answer) => unit.take_settled(now, self.clock.unix(), offset, answer, &self.shared),
        }
        self.touched.insert(index);
    }

    /// Carries out what the unit's cycle wants, then notes its next deadline and whether it waits for a permit.
    fn pump(&mut self, index: usize) {
        let Some(unit) = self.units.get_mut(index) else { return };
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
            let Some(unit) = self.units.get_mut(index).filter(|unit| unit.wants_permit()) else { continue };
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
            if let Some(unit) = self.units.get_mut(index) {
                unit.timer = None;
                unit.refusal_is_over(now);
            }
            self.touched.insert(index);
        }
    }

    fn stop(&mut self) {
        for (index, unit) in self.units.iter_mut().enumerate() {
            unit.cycle.stop();
            self.touched.insert(index);
        }
    }

    fn answer_requests(&self) {
        for request in self.shared.take_requests() {
            request.complete(unit::statuses(&self.units, self.clock.as_ref()));
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
