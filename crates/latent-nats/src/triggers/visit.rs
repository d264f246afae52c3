//! One visit of one binding, carried out: `Visit` decides, this moves the bytes.
//!
//! The order is that of T-035: a reservation with the manager, one request and one connection of the pools, then the network. What a
//! visit holds goes back in the opposite order, the socket first, whichever way it ends. What may happen at most once (T-036) is written
//! once.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use latent_capabilities::{Lease, Origin};
use latent_core::{
    ActivationId, ActivationOutcome, ComponentDigest, Deadline, Offset, Partition, TerminationReason, Ticket, TopicName, UnixMillis,
    Verdict, settle_margin,
};
use latent_nats_proto::triggers::{AckNumbers, Delivery, Inspect, InspectError, Pull, Pulled, Settle, SettleAnswer, Settlement};
use latent_nats_proto::{Connection as Standing, Ended, Exchange as _, UncertainCause};
use latent_node::delivery::{Backlog, Condemned, Confirmation, Handed, PutOff, Unsettled, Visit, VisitEnd, VisitNext, VisitSettlement};
use latent_node::{ActivationEnd, CallOrder, InboundOrder, LocalActivationManager, Reservation};

use super::binding::{BindingInput, TriggerBinding};
use super::board::Sentence;
use super::fault::StepFault;
use super::ingress::conflicting_media_type;
use super::install::Installed;
use super::limits;
use super::report::{LastStep, StepEnd};
use super::run::StepOutcome;
use super::stop::Stop;
use super::topics::Delivered;
use super::trouble::{Trouble, of_connect, of_inspection, of_pool, of_pull, of_refused, of_reservation, of_status};
use crate::Connection;
use crate::deadline::{Timer, sleep};

/// What is known of the last run of a message.
#[derive(Default)]
struct Last {
    ran: Option<(ActivationId, ComponentDigest)>,
    detail: String,
}

/// What was handed out is nothing to run a function with.
struct Unfit {
    /// As what an activation would have ended; `None`: it is no event.
    outcome: Option<ActivationOutcome>,
    why: String,
}

fn stored_at(message: &Delivery<'_>) -> UnixMillis {
    UnixMillis(message.numbers.stored_unix_nanos / 1_000_000)
}

/// What every part of a visit needs.
pub(super) struct Place<'a> {
    pub(super) installed: &'a Installed,
    pub(super) binding: &'a TriggerBinding,
    pub(super) index: usize,
    manager: &'a Arc<LocalActivationManager>,
}

/// Visits a binding.
pub(crate) async fn visit(installed: &Installed, index: usize, manager: &Arc<LocalActivationManager>, stop: &mut Stop) -> StepOutcome {
    let Some(binding) = installed.config.bindings().get(index) else { return StepOutcome::Retired };
    let place = Place { installed, binding, index, manager };
    let known = installed.board.begin(index);
    // The route is pinned and admission taken before anything else, so that what is pulled can run.
    let reservation = match manager.reserve_inbound(binding.target()) {
        Ok(reservation) => reservation,
        Err(refusal) => return place.failed(None, None, of_reservation(&refusal)),
    };
    let clock = &*installed.client.clock;
    let deadline = Deadline::after(clock.mono(), binding.policy().operation_timeout_millis);
    let lease = match place.lease(deadline, stop).await {
        Ok(Some(lease)) => lease,
        Ok(None) => return StepOutcome::Stopped,
        Err(trouble) if trouble.is_retired => return StepOutcome::Retired,
        Err(trouble) => return place.failed(None, Some(&reservation), trouble),
    };
    let sleep = pin!(sleep(deadline, clock));
    let mut timer = Timer::new(sleep, deadline);
    let mut machine = Visit::begin(binding.policy(), deadline, known);
    place.carry(&mut machine, reservation, lease, &mut timer, stop).await
}

impl Place<'_> {
    /// One request of the pools, and with it the right to one connection. It waits no longer than a turn may take; `None` when the driver
    /// stops meanwhile.
    async fn lease(&self, deadline: Deadline, stop: &mut Stop) -> Result<Option<Lease<Connection>>, Trouble> {
        let Self { installed, binding, index, .. } = self;
        let clock = &*installed.client.clock;
        let tenant = installed.places.get(*index).copied().unwrap_or_default();
        // The pools add what every call needs for its encoding.
        let staged = binding.ingress_bytes().saturating_sub(latent_capabilities::limits::CALL_SCRATCH_BYTES.default);
        let call = installed.registration.call(tenant, staged).map_err(of_pool)?;
        let patience = deadline.narrowed(clock.mono(), limits::CONNECTION_WAIT_MILLIS.default);
        let sleep = pin!(sleep(patience, clock));
        let mut timer = Timer::new(sleep, patience);
        match stop.race(timer.race(call)).await {
            None => Ok(None),
            Some(None) => Err(Trouble::new(StepFault::PoolFull, "every connection of the tenant is in use".to_owned())),
            Some(Some(granted)) => granted.map(Some).map_err(of_pool),
        }
    }

    /// Does what the machine says, until it says no more.
    async fn carry(
        &self,
        machine: &mut Visit,
        reservation: Reservation,
        mut lease: Lease<Connection>,
        timer: &mut Timer<'_>,
        stop: &mut Stop,
    ) -> StepOutcome {
        let Self { installed, index, .. } = self;
        let clock = &*installed.client.clock;
        let asked_at = clock.mono();
        match stop.race(self.inspect(&mut lease, timer)).await {
            None => machine.stop(),
            Some(Err(trouble)) => return self.failed_and_parked(lease, &reservation, trouble),
            Some(Ok(backlog)) => {
                if installed.board.inspected(*index, backlog, clock.mono()) {
                    self.tell_stranded(backlog.delivered_up_to);
                }
                machine.inspected(clock.mono(), Some(backlog));
            }
        }
        if machine.next() == VisitNext::Pull {
            if let Err(trouble) = self.look_again(&reservation, &mut lease) {
                return self.failed_and_parked(lease, &reservation, trouble);
            }
            installed.board.pulling(*index);
            match stop.race(self.pull(&mut lease, timer)).await {
                None => machine.stop(),
                Some(Err(trouble)) => return self.failed_and_parked(lease, &reservation, installed.board.placed(*index, trouble)),
                Some(Ok(handed)) => {
                    let timeout = self.binding.policy().operation_timeout_millis;
                    let passed_over = |handed| installed.board.passed_over(*index, handed, timeout, asked_at);
                    if let Some(sequence) = handed.and_then(passed_over) {
                        self.tell_stranded(sequence);
                    }
                    self.forget_another(machine, &mut lease);
                    machine.pulled(Ok(handed));
                }
            }
        }
        let generation = reservation.generation();
        let mut last = Last::default();
        if let VisitNext::Run { until } = machine.next() {
            installed.board.handed(*index, clock.unix());
            last = self.run(machine, reservation, &mut lease, until, (timer, stop)).await;
        } else if let VisitNext::End(VisitEnd::OutOfRange(handed)) = machine.next() {
            let max = self.binding.policy().source_deliveries_max;
            let why = format!("message {} was delivered {} times and the consumer allows {max}", handed.sequence, handed.delivery);
            return self.failed(Some(handed), Some(&reservation), Trouble::new(StepFault::DeliveredTooOften, why));
        } else {
            drop(reservation);
        }
        if let VisitNext::Park(reason) = machine.next() {
            self.put_into_dead_letters(machine, reason, &last, &mut lease, (timer, stop)).await;
        }
        if let VisitNext::Settle(settlement) = machine.next() {
            self.settle(machine, settlement, &mut lease, timer, stop).await;
        }
        let VisitNext::End(end) = machine.next() else { return StepOutcome::Stopped };
        self.ended(end, generation, lease)
    }

    /// The connection, and the first of the three operations.
    async fn inspect(&self, lease: &mut Lease<Connection>, timer: &mut Timer<'_>) -> Result<Backlog, Trouble> {
        let client = &self.installed.client;
        client.connect(self.tenant(), lease, timer).await.map_err(|fault| of_connect(&fault))?;
        let profile = self.binding.profile();
        let Some(connection) = lease.connection() else { return Err(Trouble::lost()) };
        let (link, mut wire) = connection.parts();
        let mut inspect = Inspect::begin(link, &profile).map_err(of_refused)?;
        wire.drive(&mut inspect, timer).await;
        let end = inspect.finish();
        if end.connection == Standing::Close {
            lease.discard();
        }
        let state = end.result.map_err(|error: InspectError| of_inspection(&error, self.binding.stream(), self.binding.consumer()))?;
        Ok(Backlog {
            pending: state.pending,
            unacknowledged: state.ack_pending,
            delivered_up_to: state.delivered_stream_sequence,
            deliveries: state.delivered_consumer_sequence,
            settled_up_to: state.ack_floor_stream_sequence,
        })
    }

    /// The second look, ahead of the pull: what could not run, or has another credential by now, is not asked for (T-012, X-012).
    fn look_again(&self, reservation: &Reservation, lease: &mut Lease<Connection>) -> Result<(), Trouble> {
        reservation.may_start().map_err(|refused| Trouble::new(StepFault::Ineligible, refused.to_string()))?;
        self.installed.client.current(self.tenant(), lease).map_err(|fault| of_connect(&fault))
    }

    /// The second operation.
    async fn pull(&self, lease: &mut Lease<Connection>, timer: &mut Timer<'_>) -> Result<Option<Handed>, Trouble> {
        let profile = self.binding.profile();
        let Some(connection) = lease.connection() else { return Err(Trouble::lost()) };
        let (link, mut wire) = connection.parts();
        let mut pull = Pull::begin(link, &profile).map_err(of_refused)?;
        wire.drive(&mut pull, timer).await;
        let end = pull.finish();
        if end.connection == Standing::Close {
            lease.discard();
        }
        match end.result {
            Ok(Pulled::Message(numbers)) => Ok(Some(Handed { sequence: numbers.stream_sequence, delivery: numbers.deliveries })),
            Ok(Pulled::Status(status)) if status.is_quiet() => Ok(None),
            Ok(Pulled::Status(status)) => Err(of_status(status)),
            Err(error) => Err(of_pull(error)),
        }
    }

    /// A stream that was made anew has other messages at the same places.
    fn forget_another(&self, machine: &mut Visit, lease: &mut Lease<Connection>) {
        let Some(message) = lease.connection().and_then(Connection::delivery) else { return };
        let AckNumbers { stream_sequence, stored_unix_nanos, .. } = message.numbers;
        if self.installed.board.verdict(self.index, stream_sequence, stored_unix_nanos).is_none() {
            machine.forget_condemned();
        }
    }

    /// Runs the function on the message that the connection holds. Ends only when the activation has.
    async fn run(
        &self,
        machine: &mut Visit,
        reservation: Reservation,
        lease: &mut Lease<Connection>,
        until: Deadline,
        (timer, stop): (&mut Timer<'_>, &mut Stop),
    ) -> Last {
        let Self { installed, index, manager, .. } = self;
        let clock = &*installed.client.clock;
        let activation = reservation.activation();
        let handed = self.hand_over(reservation, lease, until);
        let mut ticket = match handed {
            Some(Ok(ticket)) => ticket,
            Some(Err(unfit)) => {
                let kind = unfit.outcome.as_ref().map_or(TerminationReason::Undecodable.kind(), ActivationOutcome::kind);
                installed.board.unfit(*index, kind);
                match unfit.outcome {
                    Some(outcome) => machine.finished(clock.mono(), &outcome),
                    None => machine.undecodable(),
                }
                return Last { detail: unfit.why, ..Last::default() };
            }
            None => {
                machine.stop();
                return Last::default();
            }
        };
        // What has ended has ended, also when the stop comes at the same moment.
        let ended = tokio::select! {
            biased;
            ended = timer.race(&mut ticket) => ended,
            () = stop.given() => None,
        };
        let end = match ended {
            Some(end) => {
                // A node that stops cancels what still runs: that is a stop, and no failure of the function (T-048).
                if end.report.outcome == ActivationOutcome::Cancelled && stop.is_given() {
                    machine.stop();
                }
                end
            }
            None => {
                // Its store and its cell are gone before anything of this visit goes back (T-018).
                manager.cancel(activation);
                let end = ticket.await;
                if stop.is_given() {
                    machine.stop();
                }
                end
            }
        };
        installed.board.ended(*index, end.report.outcome.kind());
        machine.finished(clock.mono(), &end.report.outcome);
        self.tell_end(machine, &end);
        Last { ran: Some((end.activation, end.digest)), detail: end.detail() }
    }

    /// Gives the message that the connection holds to its function; `None` when there is none.
    fn hand_over(
        &self,
        reservation: Reservation,
        lease: &mut Lease<Connection>,
        deadline: Deadline,
    ) -> Option<Result<Ticket<ActivationEnd>, Unfit>> {
        let Self { installed, binding, manager, .. } = self;
        let message = lease.connection().and_then(Connection::delivery)?;
        if let BindingInput::Event { .. } = binding.input() {
            let event = installed.topics.as_ref().map(|topics| topics.event(self.delivered(&message)));
            let (event, origin) = match event? {
                Ok(event) => event,
                Err(why) => return Some(Err(Unfit { outcome: None, why })),
            };
            return Some(Ok(manager.activate(reservation, InboundOrder { event, origin, deadline })));
        }
        if let Some(found) = conflicting_media_type(message.headers) {
            let why = format!("the message's media type is {found}");
            let outcome = ActivationOutcome::InvalidArguments { reason: why.clone() };
            return Some(Err(Unfit { outcome: Some(outcome), why }));
        }
        let arguments = Bytes::copy_from_slice(message.payload);
        let origin = self.origin(message.numbers.stream_sequence, stored_at(&message));
        Some(Ok(manager.call(reservation, CallOrder { arguments, deadline, origin, trace: None })))
    }

    fn delivered<'m>(&'m self, message: &Delivery<'m>) -> Delivered<'m> {
        let AckNumbers { stream_sequence: sequence, deliveries: delivery, .. } = message.numbers;
        Delivered {
            binding: self.binding,
            handed: Handed { sequence, delivery },
            stored_at: stored_at(message),
            headers: message.headers,
            payload: message.payload,
        }
    }

    /// Keeps the message in the dead-letter topic: one publication of its own, between activation and settlement. What cannot be parked
    /// comes again, and is parked then without running (D-22).
    async fn put_into_dead_letters(
        &self,
        machine: &mut Visit,
        reason: TerminationReason,
        last: &Last,
        lease: &mut Lease<Connection>,
        (timer, stop): (&mut Timer<'_>, &mut Stop),
    ) {
        let Self { installed, index, .. } = self;
        let Some((topics, message)) = installed.topics.as_ref().zip(lease.connection().and_then(Connection::delivery)) else {
            return machine.parked(installed.client.clock.mono(), false);
        };
        let stored_unix_nanos = message.numbers.stored_unix_nanos;
        let message = self.delivered(&message);
        let Handed { sequence, delivery } = message.handed;
        let runs = u32::try_from(delivery).unwrap_or(u32::MAX).min(self.binding.policy().deliveries_max);
        let verdict = installed.board.verdict(*index, sequence, stored_unix_nanos);
        let verdict = verdict.unwrap_or_else(|| Verdict::new(reason, runs, last.ran, &last.detail));
        let condemned = Condemned { sequence, reason };
        installed.board.condemn(*index, Sentence { condemned, stored_unix_nanos, verdict: verdict.clone() });
        let parking = topics.park(message, verdict);
        let parked = stop.race(timer.race(parking)).await.flatten();
        if matches!(parked, Some(Ok(()))) {
            installed.board.parked(*index);
        } else if let Some(Err(why)) = &parked {
            installed.board.troubled(*index, StepFault::NotParked, why);
            self.tell_not_parked(sequence, why);
        }
        machine.parked(installed.client.clock.mono(), matches!(parked, Some(Ok(()))));
    }

    /// The third operation. Neither a stop nor a failure repeats it or turns it into another (T-050).
    async fn settle(
        &self,
        machine: &mut Visit,
        settlement: VisitSettlement,
        lease: &mut Lease<Connection>,
        timer: &mut Timer<'_>,
        stop: &mut Stop,
    ) {
        if self.installed.client.current(self.tenant(), lease).is_err() {
            return machine.withhold(Unsettled::CredentialChanged);
        }
        let command = match settlement {
            VisitSettlement::Acknowledge => Settlement::Acknowledge,
            VisitSettlement::Terminate(_) => Settlement::Terminate,
            VisitSettlement::RetryAfter { millis } => Settlement::RetryAfter { nanos: millis.saturating_mul(1_000_000) },
        };
        let Some(connection) = lease.connection() else { return machine.settled(Confirmation::NotSent) };
        let (link, mut wire) = connection.parts();
        let Ok(mut settle) = Settle::begin(link, command) else {
            lease.discard();
            return machine.settled(Confirmation::NotSent);
        };
        // Who stops does not wait for a broker that says nothing for longer than the settle margin.
        let margin = std::time::Duration::from_millis(settle_margin(self.binding.policy().operation_timeout_millis));
        let was_driven = tokio::select! {
            biased;
            () = wire.drive(&mut settle, timer) => true,
            () = async { stop.given().await; tokio::time::sleep(margin).await } => false,
        };
        if !was_driven {
            settle.ended(Ended::Cancelled);
        }
        let end = settle.finish();
        if end.connection == Standing::Close {
            lease.discard();
        }
        if end.answer == SettleAnswer::Uncertain(UncertainCause::PermissionOfAnother) {
            self.tell_settlement_refused();
        }
        machine.settled(match end.answer {
            SettleAnswer::Confirmed => Confirmation::Confirmed,
            SettleAnswer::NotSent(_) => Confirmation::NotSent,
            SettleAnswer::Uncertain(_) => Confirmation::Uncertain,
        });
    }

    fn ended(&self, end: VisitEnd, generation: latent_core::RouteGeneration, lease: Lease<Connection>) -> StepOutcome {
        let Self { installed, index, .. } = self;
        let binding = *index;
        let report = |handed, end| LastStep { epoch: installed.epoch, binding, handed: Some(handed), generation: Some(generation), end };
        match end {
            VisitEnd::Idle => {
                self.park(lease);
                self.tell_over(installed.board.quiet(binding, false));
                StepOutcome::Idle { binding }
            }
            VisitEnd::Delayed => {
                self.park(lease);
                self.tell_over(installed.board.quiet(binding, true));
                StepOutcome::Delayed { binding }
            }
            VisitEnd::Empty => {
                self.park(lease);
                self.tell_over(installed.board.quiet(binding, false));
                StepOutcome::Empty { binding }
            }
            VisitEnd::Stopped => StepOutcome::Stopped,
            VisitEnd::TooLate | VisitEnd::Failed | VisitEnd::OutOfRange(_) => {
                let why = "connecting and asking left no time to run anything before the deadline".to_owned();
                self.park(lease);
                self.failed_at(None, Some(generation), Trouble::new(StepFault::DeadlineExceeded, why))
            }
            VisitEnd::Settled { handed, settlement, confirmation } => {
                self.park(lease);
                let step = report(handed, StepEnd::Settled { settlement, confirmation });
                self.tell_over(installed.board.settled(step, self.put_off(handed, settlement)));
                self.tell_settled(step);
                StepOutcome::Reported(step)
            }
            VisitEnd::Unsettled { handed, why } => {
                // The message is still this connection's: it is not used for anything else.
                drop(lease);
                let step = report(handed, StepEnd::Unsettled(why));
                self.tell_over(installed.board.settled(step, None));
                self.tell_settled(step);
                StepOutcome::Reported(step)
            }
        }
    }

    /// Until when the broker keeps a message to itself, as far as this process knows.
    fn put_off(&self, handed: Handed, settlement: VisitSettlement) -> Option<(PutOff, UnixMillis)> {
        let VisitSettlement::RetryAfter { millis } = settlement else { return None };
        let clock = &*self.installed.client.clock;
        let off = PutOff { sequence: handed.sequence, until: clock.mono().plus_millis(millis) };
        Some((off, UnixMillis(clock.unix().0.saturating_add(millis))))
    }

    /// What keys are derived from: the message's place. A stream whose name is no topic's gives none.
    fn origin(&self, sequence: u64, stored_at: UnixMillis) -> Option<Origin> {
        let topic = TopicName::parse(self.binding.stream().as_str()).ok()?;
        let (binding, partition, offset) = (self.binding.trigger().clone(), Partition(0), Offset(sequence));
        Some(Origin { binding, topic, partition, offset, stored_at: Some(stored_at) })
    }

    fn tenant(&self) -> usize {
        self.installed.places.get(self.index).copied().unwrap_or_default()
    }

    /// Leaves the connection for the tenant's next visit, with the time of its last use, by which the next checkout knows how far to trust
    /// it. One that is out of step is dropped.
    fn park(&self, mut lease: Lease<Connection>) {
        match lease.connection() {
            Some(connection) if connection.is_in_step() => connection.set_used(self.installed.client.clock.mono()),
            _ => lease.discard(),
        }
        lease.park();
    }

    /// A failure before anything was handed out. What is wrong with this binding is no reason to dial for the next one.
    fn failed_and_parked(&self, lease: Lease<Connection>, reservation: &Reservation, trouble: Trouble) -> StepOutcome {
        self.park(lease);
        self.failed(None, Some(reservation), trouble)
    }

    fn failed(&self, handed: Option<Handed>, reservation: Option<&Reservation>, trouble: Trouble) -> StepOutcome {
        self.failed_at(handed, reservation.map(Reservation::generation), trouble)
    }

    fn failed_at(&self, handed: Option<Handed>, generation: Option<latent_core::RouteGeneration>, mut trouble: Trouble) -> StepOutcome {
        let Self { installed, index, binding, .. } = self;
        let step = LastStep { epoch: installed.epoch, binding: *index, handed, generation, end: StepEnd::Failed(trouble.fault) };
        // The wait says less than what is waited for, which another binding of the tenant may have seen.
        let is_of_tenant = |other: usize| installed.places.get(other) == installed.places.get(*index);
        if trouble.fault == StepFault::Backoff
            && let Some((fault, why)) = installed.board.cause_of_backoff(is_of_tenant)
        {
            trouble = Trouble::new(fault, why.to_string());
        }
        let is_news = installed.board.failed(step, trouble.fault, &trouble.why);
        if is_news && let Some(left_out) = installed.voice.may_speak(installed.client.clock.mono(), limits::LOG_LINES_PER_SECOND.default) {
            let (id, kind, why, address) = (binding.id(), trouble.fault.kind(), &trouble.why, installed.client.address());
            tracing::warn!(triggers = %installed.logical_id, %address, binding = %id, kind, why, left_out, "a trigger cannot get on");
        }
        StepOutcome::Reported(step)
    }
}
