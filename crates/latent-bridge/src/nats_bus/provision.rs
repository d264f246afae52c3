//! The beginning of every bus: what can be said of a manifest before there is a connection, and the plan.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Event;

use super::NatsBus;
use super::api::Api;
use super::connect::connect;
use super::options::NatsOptions;
use super::signals::Signals;
use super::streams::{self, Plan};
use crate::connector::{ConnectorExecutor, ConnectorFault};
use crate::{BridgeManifest, BusError, TopicSchema, limits, schema};

impl NatsBus {
    /// What [`NatsBus::provision_with`] would do. Connects, looks, and changes nothing.
    ///
    /// # Errors
    /// [`BusError::Config`] for options or a manifest that cannot be used; what keeps the broker from being asked.
    pub fn plan(options: NatsOptions, manifest: &BridgeManifest) -> Result<Plan, BusError> {
        preflight(&options, manifest)?;
        let (manifest, limit) = (manifest.clone(), time_of(manifest));
        let executor = ConnectorExecutor::new("latent-nats-bus")?;
        let planned = executor.submit_within(limit, async move {
            let api = connected(&options).await?;
            streams::plan(&api, &manifest).await
        });
        planned.wait().map_err(|fault| of_fault(fault, "reading the broker's streams"))?
    }
}

/// The API on a connection of its own.
pub(super) async fn connected(options: &NatsOptions) -> Result<Api, BusError> {
    let signals = Signals::default();
    let hearing = signals.clone();
    let hear = move |event: Event| _ = hearing.hear(&event);
    Ok(Api::new(connect(options, hear).await?, signals))
}

/// What a connector's fault is where nothing was handed over.
pub(super) fn of_fault(fault: ConnectorFault, doing: &str) -> BusError {
    match fault {
        ConnectorFault::TimedOut => BusError::Timeout { operation: format!("{doing}: {fault}") },
        ConnectorFault::Busy => BusError::Busy { limit: limits::CONNECTOR_QUEUE.name },
        other => BusError::Backend(other.to_string()),
    }
}

/// Checks a manifest and compiles its schemas, before anything is dialled: what is wrong here never reaches a broker (B-024, B-028).
pub(super) fn preflight(options: &NatsOptions, manifest: &BridgeManifest) -> Result<BTreeMap<String, Arc<TopicSchema>>, BusError> {
    manifest.validate()?;
    if let Some(topic) = manifest.topics.iter().find(|topic| topic.retention.cold_uri.is_some()) {
        let problem = format!("topic {:?}: retention.cold_uri is not supported by the engine on NATS yet; leave it out", topic.name);
        return Err(BusError::Config { problem });
    }
    options.server_addrs()?;
    schema::resolve(manifest, &options.schema_roots)
}

/// Enough for every request of provisioning, each of which has its own limit: connecting, and four for each topic.
pub(super) fn time_of(manifest: &BridgeManifest) -> Duration {
    let requests = u32::try_from(manifest.topics.len()).unwrap_or(u32::MAX).saturating_mul(4).saturating_add(1);
    Duration::from_millis(limits::CONNECTOR_OPERATION_MILLIS.default).saturating_mul(requests)
}
