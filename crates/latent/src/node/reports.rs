//! What a node says of itself on the control socket, and what a data directory says while no node runs on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use latent_bridge::{BusError, EmbeddedBroker, EventBus, MaintenanceReport, TopicStatistics};
use latent_capabilities::PoolSnapshot;
use latent_core::{ActivationId, Clock, Offset, Partition, Place, SystemClock};
use latent_nats::{NatsPublisher, NatsSnapshot};
use latent_node::AuditStatus;
use latent_node::delivery::{BindingStatus, CycleState, DeliveryHandle, EventState, EventStatus};
use latent_topics::{DeliveryStore, UnitKey};

use super::accounting::AccountingBound;
use super::calls::Callee;
use super::composition::Composition;
use super::lane_status;
use super::reload::Reloader;
use super::remembering::{removed_events, removed_triggers};
use super::stream_status::{stopped_streams, stream_statuses};
use crate::access::log_error;
use crate::administration::{self, AdminError, Unread};
use crate::config::Config;
use crate::config::settings::{StartPosition, TriggerConfig};
use crate::control::{
    ActivationCounts, AuditCounts, BindingState, ClockInfo, ControlTarget, EventHistory, Fault, Forgotten, Invocation, Invoked,
    JournalReach, LatencyMillis, NodeInfo, NodeSummary, PoolUse, ProviderSummary, PublicationCounts, ReloadOrder, Reloaded, RemovedTrigger,
    RevokeOrder, Revoked, RouteOrder, Routed, ServiceInfo, TriggerEvent, TriggerStatus, runs_of,
};
use crate::engine::Engine;
use crate::error::CliError;
use crate::host::ClockWatch;
use crate::log::Log;
use crate::maintenance::{MaintainError, Maintainer};

/// The running node as commands see it.
pub(super) struct Reports {
    pub(super) reloader: Reloader,
    pub(super) log: Log,
    pub(super) deliveries: DeliveryHandle,
    pub(super) composition: Arc<Composition>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) maintainer: Arc<Maintainer>,
    pub(super) watch: Arc<ClockWatch>,
}

impl Reports {
    /// What the node's memory can add up to.
    pub(super) fn accounting(&self) -> AccountingBound {
        AccountingBound::of_node(&self.composition)
    }

    pub(super) fn name(&self) -> String {
        self.reloader.config().node.name.clone()
    }
}

impl ControlTarget for Reports {
    fn engine(&self) -> Engine {
        self.log.engine()
    }

    fn bus(&self) -> Result<Arc<dyn EventBus>, Fault> {
        Ok(self.log.bus())
    }

    fn node_info(&self) -> NodeInfo {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        NodeInfo { name: self.name(), version, pid: std::process::id(), engine: self.engine().word().to_owned() }
    }

    fn trigger_status(&self) -> Vec<TriggerStatus> {
        let of_lanes = lane_status::of(self.composition.providers.lane_monitors());
        let told = |status: BindingStatus| {
            let status = running_status(status);
            of_lanes.get(&status.id).map_or(status.clone(), |consumers| consumers.status(status))
        };
        let mut statuses: Vec<_> = self.deliveries.statuses().wait().into_iter().map(told).collect();
        statuses.extend(self.composition.providers.monitor().into_iter().flat_map(stream_statuses));
        statuses.sort_by(|one, other| one.id.cmp(&other.id));
        statuses
    }

    fn node_summary(&self) -> NodeSummary {
        let (deliveries, publications) = (self.deliveries.totals(), self.composition.publisher.totals());
        let providers: Vec<_> = self.composition.providers.publishers().iter().map(provider_summary).collect();
        let with_providers = |own: u64, of: fn(&PublicationCounts) -> u64| {
            providers.iter().fold(own, |sum, provider| sum.saturating_add(of(&provider.publications)))
        };
        #[allow(clippy::cast_precision_loss, reason = "milliseconds of at most a day are exact in an f64")]
        let latency = deliveries.append_to_settled.map(|latency| LatencyMillis { p50: latency.p50 as f64, p99: latency.p99 as f64 });
        let audit = self.composition.audit.status();
        NodeSummary {
            activations: ActivationCounts { success: deliveries.success, rejected: deliveries.rejected, failed: deliveries.failed },
            events_settled: deliveries.settled,
            publications: PublicationCounts {
                receipts: with_providers(publications.receipts, |of| of.receipts),
                duplicates: with_providers(publications.duplicates, |of| of.duplicates),
                failures: with_providers(publications.failures, |of| of.failures),
                uncertain: with_providers(publications.uncertain, |of| of.uncertain),
            },
            append_to_settled_ms: latency,
            accounting: self.accounting(),
            providers,
            pools: pool_use(self.composition.providers.pools()),
            audit: audit_counts(&audit),
            warnings: audit_warning(&audit).into_iter().chain(self.log.warning()).collect(),
        }
    }

    fn statistics(&self) -> Result<Vec<TopicStatistics>, Fault> {
        Ok(self.log.statistics()?)
    }

    fn maintain(&self) -> Result<MaintenanceReport, MaintainError> {
        self.maintainer.run()
    }

    fn abandon(&self, activation: ActivationId) {
        // False: it has just ended by itself.
        let _ = self.composition.manager.cancel(activation);
    }

    fn invoke(&self, invocation: Invocation, handed_over: &dyn Fn(ActivationId)) -> Result<Invoked, Fault> {
        let config = self.reloader.config();
        let callee = Callee {
            manager: &self.composition.manager,
            catalog: &self.composition.catalog,
            clock: self.clock.as_ref(),
            services: &config.services,
            memory_bytes_max: self.composition.memory_bytes_max(),
        };
        callee.invoke(invocation, handed_over).map_err(Fault::from)
    }

    fn reload(&self, order: ReloadOrder) -> Result<Reloaded, Fault> {
        self.reloader.reload(&order).map_err(Fault::from)
    }

    fn services(&self) -> Result<Vec<ServiceInfo>, AdminError> {
        Ok(administration::list(&self.composition.catalog))
    }

    fn route_service(&self, order: &RouteOrder) -> Result<Routed, AdminError> {
        let routed = administration::route(&self.composition.catalog, order)?;
        tracing::info!(
            service = routed.service,
            tenant = routed.tenant,
            route = routed.route,
            publication = routed.publication,
            generation = routed.generation,
            "an operator pointed a route"
        );
        Ok(routed)
    }

    fn revoke_service(&self, order: &RevokeOrder) -> Result<Vec<Revoked>, AdminError> {
        let revoked = administration::revoke(&self.composition.catalog, &Unread::new(), order).inspect_err(|error| {
            if error.is_uncertain() {
                tracing::error!(service = order.service, "{error}");
            }
        })?;
        for Revoked { service, digest, tenant } in &revoked {
            tracing::warn!(service, digest, tenant, "an operator revoked a component for good");
        }
        Ok(revoked)
    }

    fn clock(&self) -> Result<ClockInfo, AdminError> {
        Ok(administration::clock(&self.watch))
    }

    fn confirm_clock(&self) -> Result<ClockInfo, AdminError> {
        let confirmed = administration::confirm_clock(&self.watch)?;
        tracing::info!("an operator confirmed the wall clock");
        Ok(confirmed)
    }

    /// The triggers are asked first: a run that ends in between is then shown twice, as running and as ended, and not missed.
    fn event_history(&self, place: &Place) -> Result<EventHistory, Fault> {
        let Place { topic, partition, offset } = place;
        let config = self.reloader.config();
        let dead_letters: BTreeMap<_, _> =
            config.cycle_triggers().filter_map(|trigger| Some((&trigger.id, trigger.dead_letter.as_ref()?))).collect();
        // What a broker has not handed out here it may have handed out elsewhere, or it is done with.
        let on_broker: BTreeSet<_> = config.lane_triggers().map(|lane| &lane.trigger.id).collect();
        let monitors = self.composition.providers.lane_monitors();
        let as_settled = |mut status: EventStatus| {
            let is_unseen = status.state == EventState::Unseen && on_broker.contains(&status.binding);
            if is_unseen && *offset <= lane_status::settled_up_to(monitors, &status.binding, *partition) {
                status.state = EventState::Settled;
            }
            status
        };
        let statuses = self.deliveries.event(topic.clone(), *partition, *offset).wait();
        let is_known = |status: &EventStatus| status.state != EventState::Unseen || !on_broker.contains(&status.binding);
        let mut triggers: Vec<_> = statuses
            .into_iter()
            .map(as_settled)
            .filter(is_known)
            .map(|status| {
                let dead_letter = dead_letters.get(&status.binding).map(|topic| topic.as_str().to_owned());
                TriggerEvent::of(status, dead_letter)
            })
            .collect();
        triggers.extend(self.reloader.store().into_iter().flat_map(|store| removed_events(store, &config.triggers, topic)));
        let manager = &self.composition.manager;
        let (runs, runs_left_out) = runs_of(&manager.journal_of_event(topic, *partition, *offset));
        let (entries, oldest) = manager.journal_reach();
        let journal = Some(JournalReach { entries: entries as u64, oldest_queued_at: oldest.map(|at| at.0) });
        Ok(EventHistory { runs, runs_left_out, journal, ..EventHistory::of_triggers(triggers) })
    }

    fn removed_triggers(&self) -> Result<Vec<RemovedTrigger>, Fault> {
        let configured = &self.reloader.config().triggers;
        Ok(self.reloader.store().map_or_else(Vec::new, |store| removed_triggers(store, configured)))
    }

    fn forget_trigger(&self, id: &str) -> Result<Forgotten, Fault> {
        let forgotten = self.reloader.forget(id)?;
        tracing::info!(trigger = id, topic = forgotten.topic, "an operator had a removed trigger forgotten");
        Ok(forgotten)
    }
}

fn running_status(status: BindingStatus) -> TriggerStatus {
    TriggerStatus {
        id: status.id.to_string(),
        engine: Engine::Embedded.word().to_owned(),
        state: match status.state {
            CycleState::Idle => BindingState::Idle,
            CycleState::Delayed => BindingState::Delayed,
            CycleState::Busy => BindingState::Busy,
            CycleState::Saturated => BindingState::Saturated,
            CycleState::Stalled => BindingState::Stalled,
            CycleState::Stopped => BindingState::Stopped,
        },
        pending: Some(status.pending),
        unacknowledged: Some(status.unacknowledged),
        delayed: status.delayed,
        dead_lettered: status.dead_lettered,
        last_outcome: status.last_outcome.map(str::to_owned),
        last_delivery_at: status.last_delivery_at.map(|at| at.0),
        next_attempt_at: status.next_attempt_at.map(|at| at.0),
        topic: status.topic.to_string(),
        partitions: status.partitions,
        settled: Some(status.acknowledged.saturating_add(status.terminated)),
        terminated: Some(status.terminated),
        exhausted: Some(status.exhausted),
        expired_unread: status.expired_unread,
        stranded: 0,
        stranded_at: None,
        last_error: status.obstacle.or(status.last_failure.map(|(failure, _)| failure)),
    }
}

/// What a data directory says of its bindings while no node runs on it.
///
/// # Errors
/// [`CliError`] when the state cannot be read.
pub(crate) fn stopped_status(config: &Config, log: &EmbeddedBroker) -> Result<Vec<TriggerStatus>, CliError> {
    let store = DeliveryStore::open(log).map_err(|error| CliError::Node {
        what: "the memory of deliveries cannot be read".to_owned(),
        why: error.to_string(),
        next: "mend the reason and ask again".to_owned(),
    })?;
    let mut statuses = Vec::new();
    for trigger in &config.triggers {
        let status = stopped_trigger(trigger, log, &store).map_err(|error| log_error(&config.node.data_dir, &error))?;
        statuses.push(status);
    }
    statuses.extend(stopped_streams(config));
    statuses.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(statuses)
}

fn stopped_trigger(trigger: &TriggerConfig, log: &EmbeddedBroker, store: &DeliveryStore) -> Result<TriggerStatus, BusError> {
    let clock = SystemClock::start();
    let topic = trigger.topic.as_str();
    let partitions = log.partitions(topic)?;
    let (mut pending, mut expired_unread, mut delayed, mut next_attempt_at) = (0_u64, 0_u64, 0, None);
    for partition in (0..partitions).map(Partition) {
        let (first, end) = log.bounds(topic, partition)?;
        let key = UnitKey { binding: trigger.id.clone(), topic: trigger.topic.clone(), partition };
        let Some(unit) = store.unit_of(&key) else {
            // Never started: it would begin at one of the two ends.
            pending += if trigger.start == StartPosition::Earliest { end.0.saturating_sub(first.0) } else { 0 };
            continue;
        };
        let remembered = store.remembered(unit, &clock, trigger.retry_delay_max_millis);
        pending = pending.saturating_add(remembered.settled.unsettled_in(first, end));
        expired_unread = expired_unread.saturating_add(remembered.settled.unsettled_in(Offset(0), first));
        for (_, _, at) in remembered.attempts {
            let wait = u64::try_from(at.since(clock.mono()).as_millis()).unwrap_or(u64::MAX);
            if wait > 0 {
                delayed += 1;
                let at = clock.unix().0.saturating_add(wait);
                next_attempt_at = Some(next_attempt_at.map_or(at, |known: u64| known.min(at)));
            }
        }
    }
    Ok(TriggerStatus {
        id: trigger.id.to_string(),
        engine: Engine::Embedded.word().to_owned(),
        state: BindingState::Stopped,
        pending: Some(pending),
        unacknowledged: Some(0),
        delayed,
        dead_lettered: 0,
        last_outcome: None,
        last_delivery_at: None,
        next_attempt_at,
        topic: topic.to_owned(),
        partitions,
        settled: None,
        terminated: None,
        exhausted: None,
        expired_unread,
        stranded: 0,
        stranded_at: None,
        last_error: None,
    })
}
fn pool_use(snapshot: PoolSnapshot) -> PoolUse {
    let PoolSnapshot { running, queued, connections, bytes, .. } = snapshot;
    PoolUse { running, queued, connections, bytes }
}

fn audit_counts(status: &AuditStatus) -> AuditCounts {
    AuditCounts { written: status.written, dropped: status.dropped, failing: status.failing }
}

/// What an operator must know of an audit that has lost records: work goes on without them.
fn audit_warning(status: &AuditStatus) -> Option<String> {
    let lost = status.dropped > 0 || status.failing;
    let why = status.last_error.as_ref().map_or_else(|| "its queue was full".to_owned(), ToString::to_string);
    let now = if status.failing { "writing still fails" } else { "writing works again" };
    lost.then(|| {
        format!("{} audit records are lost since the start ({why}); {now}. Look at the disk of the data directory", status.dropped)
    })
}

fn provider_summary(publisher: &NatsPublisher) -> ProviderSummary {
    let NatsSnapshot {
        epoch,
        mappings,
        queued,
        running,
        connections,
        connected,
        connects_failed,
        parked_lost,
        attempts: _,
        possible_writes: _,
        acknowledged,
        duplicates,
        failures,
        uncertain,
    } = publisher.snapshot();
    ProviderSummary {
        id: publisher.reference().logical_id.to_string(),
        profile: publisher.reference().profile.to_string(),
        epoch: epoch.0,
        mappings,
        queued,
        running,
        connections,
        connected,
        connects_failed,
        parked_lost,
        publications: PublicationCounts { receipts: acknowledged, duplicates, failures, uncertain },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_audit_records_are_a_warning_that_says_whether_it_goes_on() {
        let status = |dropped, failing| AuditStatus { written: 9, dropped, queued: 0, failing, last_error: None };
        assert_eq!(audit_warning(&status(0, false)), None);
        let over = audit_warning(&status(3, false)).unwrap();
        assert!(over.starts_with("3 audit records are lost") && over.contains("works again"), "{over}");
        assert!(audit_warning(&status(0, true)).unwrap().contains("still fails"));
    }
}
