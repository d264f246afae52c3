//! Our side: a node with bindings on lanes, put together as `latent run` does it, with its pools, a sealed credential, admission, engine,
//! the delivery driver, and every bound in force.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use latent_bridge::nats_bus::read_record;
use latent_core::{
    BindingId, Budget, ConsumerName, ContractName, DeliveredEvent, Epoch, FunctionName, Offset, Partition, ServiceName, StoredRecord,
    StreamName, Subject, TenantId, Ticket, TopicName, Verdict,
};
use latent_nats::lanes::limits::HOT;
use latent_nats::lanes::{LaneBinding, LaneDraft, LaneInput, LaneMessage, LaneMonitor, LaneTopics, LanesDraft, NatsLanes, Unplaced};
use latent_nats::{NatsPools, RootsDraft};
use latent_node::delivery::{
    BindingSpec, DeliveryDriver, DeliveryHandle, DeliveryPolicy, Intake, PartitionSpec, Remembered, Source, SourceError,
};
use latent_node::{InboundTarget, Principal};
use latent_wasmtime::HANDLER_CONTRACT;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::super::super::measure::interrupted;
use super::super::super::publish::{Target, broken, parsed};
use super::super::pull::ours::{HANDLE, Half, SERVICE, STALL, TENANT, credential, endpoint, provider_of};
use super::{ACK_WAIT_MILLIS, GROUP, PAYLOAD_CEILING_BYTES, filter, lane};
use crate::error::CliError;
use crate::stop::StopSignal;

const DOING: &str = "preparing lanes";
/// Of each binding: a whole event.
const INPUT_BYTES: u64 = 4_096;

/// Lanes that nobody drives, and the bindings on them.
pub(super) struct Installed {
    lanes: NatsLanes,
    monitor: LaneMonitor,
    pub(super) bindings: Vec<BindingSpec>,
}

/// Lanes that are driven by tasks of their half's runtime.
pub(super) struct Node {
    pub(super) half: Half,
    pub(super) monitor: LaneMonitor,
    pub(super) deliveries: DeliveryHandle,
    stop_driver: watch::Sender<bool>,
    stop_lanes: watch::Sender<bool>,
    driver: JoinHandle<()>,
    lanes: JoinHandle<()>,
}

impl Node {
    /// A node whose service is this component, with a binding for each of these lanes. `folder` is new.
    pub(super) fn start(component: &[u8], target: &Target, folder: &Path, lanes: Range<usize>) -> Result<Self, CliError> {
        let half = Half::start(component)?;
        let Installed { lanes, monitor, bindings } = install(&half.pools, target, folder, lanes)?;
        let driver = DeliveryDriver::new(Arc::clone(&half.manager), Arc::clone(&half.pools.clock), bindings);
        let (driver, deliveries) = driver.map_err(|error| broken(DOING, &error))?;
        let ((stop_driver, driver_stopped), (stop_lanes, lanes_stopped)) = (watch::channel(false), watch::channel(false));
        let driver = half.runtime.spawn(driver.run(driver_stopped));
        let lanes = half.runtime.spawn(lanes.run(lanes_stopped));
        Ok(Self { half, monitor, deliveries, stop_driver, stop_lanes, driver, lanes })
    }

    /// Waits until so many events are settled, and gives when that was seen.
    pub(super) fn until_settled(&self, events: u64, look: Duration, stop: &StopSignal) -> Result<Instant, CliError> {
        let (mut known, mut since) = (0, Instant::now());
        loop {
            let settled = self.deliveries.settled();
            if settled >= events {
                return Ok(Instant::now());
            }
            interrupted(stop)?;
            if settled != known {
                (known, since) = (settled, Instant::now());
            } else if since.elapsed() > STALL {
                return Err(self.stalled(events));
            }
            std::thread::sleep(look);
        }
    }

    /// Waits until every lane was inspected.
    pub(super) fn until_inspected(&self, stop: &StopSignal) -> Result<(), CliError> {
        let since = Instant::now();
        while !self.monitor.lanes().iter().all(|lane| lane.is_inspected) {
            interrupted(stop)?;
            if since.elapsed() > STALL {
                return Err(self.stalled(0));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn stalled(&self, events: u64) -> CliError {
        let troubled = self.monitor.lanes().into_iter().find(|lane| lane.trouble.is_some());
        broken("delivering events", &format!("nothing happens before {events}: {:?}, {troubled:?}", self.deliveries.totals()))
    }

    /// Drains and ends. Every event that was begun ran once and succeeded.
    pub(super) fn stop(self, settled: u64) -> Result<(), CliError> {
        let totals = self.deliveries.totals();
        self.stop_driver.send_replace(true);
        self.half.runtime.block_on(self.driver).map_err(|error| broken("stopping a node", &error))?;
        self.stop_lanes.send_replace(true);
        self.half.runtime.block_on(self.lanes).map_err(|error| broken("stopping a node", &error))?;
        if (totals.success, totals.rejected, totals.failed, totals.settled) == (settled, 0, 0, settled) {
            return Ok(());
        }
        Err(broken("delivering events", &format!("{settled} were stored: {totals:?}; {:?}", self.monitor.failures())))
    }
}

/// Installs a binding for each of these lanes.
pub(super) fn install(pools: &NatsPools, target: &Target, folder: &Path, lanes: Range<usize>) -> Result<Installed, CliError> {
    let failed_with = |error: &dyn std::fmt::Display| broken(DOING, error);
    let lanes = lanes.map(|number| draft(target, number)).collect::<Result<_, _>>()?;
    let draft = LanesDraft { endpoint: endpoint(target), roots: RootsDraft::only(&target.root), lanes, hot_max: HOT.default };
    let config = draft.check().map_err(|error| failed_with(&error))?;
    let provider = provider_of(folder)?;
    let credential = credential(pools, target, folder, config.peer(), &provider)?;
    let installed = NatsLanes::install(pools, (&provider, &provider), (Epoch(1), None), config, vec![credential], Arc::new(Records));
    let (lanes, monitor) = installed.map_err(|error| failed_with(&error))?;
    let bindings = lanes.config().lanes().iter().enumerate().map(|(place, lane)| binding(lane, lanes.source(place)));
    let bindings = bindings.collect::<Result<_, _>>()?;
    Ok(Installed { lanes, monitor, bindings })
}

fn policy() -> DeliveryPolicy {
    DeliveryPolicy::default()
}

fn draft(target: &Target, number: usize) -> Result<LaneDraft, CliError> {
    let DeliveryPolicy { in_flight_max, deliveries_max, operation_timeout_millis, .. } = policy();
    Ok(LaneDraft {
        id: parsed(BindingId::parse(&lane(number)))?,
        trigger: parsed(BindingId::parse(&lane(number)))?,
        tenant: parsed(TenantId::parse(TENANT))?,
        input: LaneInput::Event { topic: parsed(TopicName::parse(&lane(number)))?, partition: Partition(0) },
        stream: parsed(StreamName::parse(&target.stream))?,
        consumer: parsed(ConsumerName::parse(&lane(number)))?,
        filter: parsed(Subject::parse(&filter(&target.subject, number)))?,
        group: Some(GROUP.to_owned()),
        max_in_flight: in_flight_max,
        max_deliveries: deliveries_max,
        payload_ceiling_bytes: PAYLOAD_CEILING_BYTES,
        ack_wait_millis: ACK_WAIT_MILLIS,
        operation_timeout_millis,
        dead_letter: None,
    })
}

fn binding(lane: &LaneBinding, source: Option<Box<dyn Source>>) -> Result<BindingSpec, CliError> {
    let (id, topic) = (lane.draft().id.clone(), parsed(TopicName::parse(lane.draft().id.as_str()))?);
    let source = source.ok_or_else(|| broken(DOING, &"a lane has no source"))?;
    let partition = PartitionSpec {
        partition: Partition(0),
        source,
        intake: Intake::HandedOut,
        remembered: Remembered::default(),
        known_end: Offset(0),
    };
    let target = InboundTarget {
        tenant: lane.draft().tenant.clone(),
        principal: Principal::trigger(&id),
        service: parsed(ServiceName::parse(SERVICE))?,
        contract: parsed(ContractName::parse(HANDLER_CONTRACT))?,
        function: parsed(FunctionName::parse(HANDLE))?,
        route: None,
        budget: Budget::default(),
        input_bytes_max: INPUT_BYTES,
    };
    Ok(BindingSpec { id, topic, target, policy: policy(), dead_letter: None, partitions: vec![partition] })
}

/// Messages are records of topics, read as a node reads them. There is no dead-letter topic.
struct Records;

impl LaneTopics for Records {
    fn event(&self, message: LaneMessage<'_>) -> Result<DeliveredEvent, String> {
        let LaneInput::Event { topic, partition } = &message.binding.draft().input else { return Err("no topic".to_owned()) };
        let record = read_record(message.headers, message.payload)?;
        let stored = StoredRecord { partition: *partition, offset: message.offset, record };
        Ok(DeliveredEvent::of_record(topic.clone(), stored, message.deliveries))
    }

    fn park(&self, _: &LaneBinding, _: Unplaced, _: Verdict) -> Ticket<Result<(), SourceError>> {
        Ticket::ready(Err(SourceError::Unavailable { reason: "nothing is parked here".to_owned() }))
    }
}
