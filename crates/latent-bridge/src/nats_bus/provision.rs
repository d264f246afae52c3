//! The beginning of every bus: what can be said of a manifest before there is a connection, and the plan.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_nats::Event;

use super::NatsBus;
use super::api::Api;
use super::connect::connect;
use super::options::NatsOptions;
use super::signals::Signals;
use super::streams::{self, Plan};
use crate::cold::ArchiveOptions;
use crate::cold::archive::Archive;
use crate::cold::places;
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
    let stores = options.archive.as_ref().and_then(|archive| archive.stores.as_deref());
    places::check(manifest, stores)?;
    options.server_addrs()?;
    schema::resolve(manifest, &options.schema_roots)
}

/// The archive that the manifest asks for. Nobody is dialled but its stores.
pub(super) fn open_archive(options: &NatsOptions, manifest: &BridgeManifest) -> Result<Option<Archive>, BusError> {
    let Some(archive) = &options.archive else { return Ok(None) };
    let outbox = outbox_of(archive, manifest);
    Archive::open(&archive.storage, manifest, archive, &outbox, &format!("the bus {} on NATS", manifest.name))
}

/// Where the outbox of this bus is.
pub(super) fn outbox_of(archive: &ArchiveOptions, manifest: &BridgeManifest) -> PathBuf {
    archive.outbox.clone().unwrap_or_else(|| default_outbox(&manifest.name))
}

/// Where the outbox of a bus is when nobody says (B-070): two deployments never share one by accident.
fn default_outbox(name: &str) -> PathBuf {
    Path::new("data/cold-outbox").join(outbox_name(name))
}

/// The last part of the path of a deployment's outbox (B-070): every byte of the manifest's name but letters, digits, `-` and `_` is
/// percent-encoded.
pub fn outbox_name(manifest_name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let encoded = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    manifest_name.bytes().map(encoded).collect()
}

/// Enough for every request of provisioning, each of which has its own limit: connecting, and four for each topic.
pub(super) fn time_of(manifest: &BridgeManifest) -> Duration {
    let requests = u32::try_from(manifest.topics.len()).unwrap_or(u32::MAX).saturating_mul(4).saturating_add(1);
    Duration::from_millis(limits::CONNECTOR_OPERATION_MILLIS.default).saturating_mul(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B-070.
    #[test]
    fn the_outbox_of_a_deployment_is_named_after_it_and_no_other_one_has_that_name() {
        assert_eq!(default_outbox("prod-1_eu"), Path::new("data/cold-outbox/prod-1_eu"));
        for (name, expected) in [("a.b", "a%2Eb"), ("a/../b", "a%2F%2E%2E%2Fb"), ("..", "%2E%2E"), ("ä %", "%C3%A4%20%25")] {
            assert_eq!(outbox_name(name), expected);
        }
    }
}
