//! The configuration of a broker's triggers: a draft as it is written, and what it becomes when it is checked (T-019). No secret has a
//! place in it.
//!
//! The JSON form is camelCase with `formatVersion` 1; unknown and repeated fields are refused, and what is missing is named.

use std::collections::BTreeMap;

use latent_core::TenantId;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::binding::TriggerBinding;
use super::fault::BindingProblem;
use super::limits;
use crate::{ConfigError, EndpointDraft, Peer, RootsDraft};

/// A configuration as it is written, unchecked. Every field that an operator must decide is `None` until it is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TriggerDraft {
    /// Version of this form: 1.
    pub format_version: Option<u64>,
    /// Where the broker is.
    pub endpoint: Option<EndpointDraft>,
    /// Whom to trust.
    pub roots: Option<RootsDraft>,
    /// Wait after a rotation that found nothing, in milliseconds (T-028).
    pub poll_interval_millis: Option<u64>,
    /// Which consumer wakes which function.
    pub bindings: Option<Vec<BindingDraft>>,
}

/// One binding as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BindingDraft {
    /// Its id, once in a configuration.
    pub id: Option<String>,
    /// For whom the function runs.
    pub tenant: Option<String>,
    /// The subject of the principal that it runs as; the id when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The service.
    pub service: Option<String>,
    /// The interface that the function belongs to.
    pub contract: Option<String>,
    /// The function.
    pub function: Option<String>,
    /// The service's route; its default one when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The stream.
    pub stream: Option<String>,
    /// Its durable consumer, which an operator has made (T-011).
    pub consumer: Option<String>,
    /// The consumer's one filter, without wildcards.
    pub filter: Option<String>,
    /// What the function is given: `wit-values`, the payload as its arguments (T-006), or `event`, the record that a topic's stream keeps.
    /// `wit-values` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// With `event`: the topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// With `event`: its partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u64>,
    /// The trigger that it is a part of, for derived keys and dead letters; the id when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// The topic that keeps what never runs (again); without one it is terminated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<String>,
    /// Runs of one message; `maxDeliver`, or one less with a dead-letter topic, when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_deliveries: Option<u64>,
    /// Largest payload, in bytes (T-024).
    pub payload_ceiling_bytes: Option<u64>,
    /// The one deadline of a delivery, in milliseconds (T-026).
    pub operation_timeout_millis: Option<u64>,
    /// Deliveries of one message, as the consumer has it (T-029).
    pub max_deliver: Option<u64>,
    /// How long the broker waits for a settlement, in milliseconds, as the consumer has it (T-030).
    pub ack_wait_millis: Option<u64>,
    /// Delay before a message is delivered again after its function failed, in milliseconds (T-031).
    pub nak_delay_millis: Option<u64>,
    /// What each activation may use (T-003).
    pub budget: Option<BudgetDraft>,
}

/// What each activation may use, as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BudgetDraft {
    /// Instructions.
    pub cpu_fuel: Option<u64>,
    /// Linear memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// Wall time, in milliseconds; at most the operation timeout (T-027).
    pub wall_time_millis: Option<u64>,
    /// Publications.
    pub outbound_requests: Option<u64>,
    /// Log, in bytes.
    pub log_bytes: Option<u64>,
}

/// A checked configuration. One that exists can be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriggerConfig {
    draft: TriggerDraft,
    peer: Peer,
    public_roots: bool,
    poll_interval_millis: u64,
    bindings: Vec<TriggerBinding>,
    /// Each once, in the order of first mention: a tenant's place in the pools.
    tenants: Vec<TenantId>,
}

impl TriggerDraft {
    /// Checks everything that can be checked without a network.
    ///
    /// # Errors
    /// [`ConfigError`] naming the field and what to write there.
    pub fn check(self) -> Result<TriggerConfig, ConfigError> {
        let missing = |field, advice| ConfigError::Missing { field, advice };
        let version = self.format_version.ok_or(missing("formatVersion", "write 1"))?;
        if version != 1 {
            return Err(ConfigError::Version { found: version });
        }
        let endpoint = self.endpoint.as_ref().ok_or(missing("endpoint", "give the broker's address and serverName"))?;
        let roots = self.roots.as_ref().ok_or(missing("roots", "set public to true, or give the broker's root in der"))?;
        let (peer, public_roots) = (endpoint.check(roots)?, roots.public);
        let interval = self.poll_interval_millis.ok_or(missing("pollIntervalMillis", "choose 10 to 1000 ms"))?;
        let limited = |field: &'static str| move |error| ConfigError::Limit { field, error };
        let poll_interval_millis = limits::POLL_INTERVAL_MILLIS.check(interval).map_err(limited("pollIntervalMillis"))?;
        let written = self.bindings.as_ref().ok_or(missing("bindings", "bind at least one consumer to a function"))?;
        limits::BINDINGS.check(written.len() as u64).map_err(limited("bindings"))?;
        let (bindings, tenants) = check_bindings(written)?;
        limits::TENANTS.check(tenants.len() as u64).map_err(limited("bindings"))?;
        let config = TriggerConfig { peer, public_roots, poll_interval_millis, bindings, tenants, draft: self };
        limits::CONFIG_BYTES.check(size_of_json(config.to_json().len())).map_err(limited("the document"))?;
        Ok(config)
    }
}

/// A document below its bound counts as at it: the limit has one value.
const fn size_of_json(bytes: usize) -> u64 {
    let bound = limits::CONFIG_BYTES.default;
    if (bytes as u64) < bound { bound } else { bytes as u64 }
}

/// Checks each binding, then all together (T-008, T-009).
fn check_bindings(written: &[BindingDraft]) -> Result<(Vec<TriggerBinding>, Vec<TenantId>), ConfigError> {
    let (mut ids, mut consumers, mut filters) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let (mut bindings, mut tenants) = (Vec::with_capacity(written.len()), Vec::new());
    for (index, draft) in written.iter().enumerate() {
        let wrong = |problem| ConfigError::Binding { index, id: draft.id.as_deref().map(shortened), problem };
        let binding = TriggerBinding::check(draft).map_err(wrong)?;
        if let Some(first) = ids.insert(binding.id().clone(), index) {
            return Err(wrong(BindingProblem::SameId { first }));
        }
        let pair = (binding.stream().clone(), binding.consumer().clone());
        if let Some(first) = consumers.insert(pair, index) {
            let (stream, consumer) = (binding.stream().clone(), binding.consumer().clone());
            return Err(wrong(BindingProblem::SameConsumer { stream, consumer, first }));
        }
        let owner = filters.entry(binding.filter().clone()).or_insert_with(|| binding.tenant().clone());
        if owner != binding.tenant() {
            let (filter, owner) = (binding.filter().clone(), owner.clone());
            return Err(wrong(BindingProblem::SharedFilter { filter, owner }));
        }
        if !tenants.contains(binding.tenant()) {
            tenants.push(binding.tenant().clone());
        }
        bindings.push(binding);
    }
    Ok((bindings, tenants))
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

impl TriggerConfig {
    /// Reads the JSON form.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn from_json(json: &[u8]) -> Result<Self, ConfigError> {
        let size = limits::CONFIG_BYTES.check(size_of_json(json.len()));
        size.map_err(|error| ConfigError::Limit { field: "the document", error })?;
        let draft: TriggerDraft = serde_json::from_slice(json).map_err(|error| ConfigError::Form { problem: error.to_string() })?;
        draft.check()
    }

    /// The JSON form, which may be kept: it holds no secret. Reading it again gives an equal configuration.
    pub fn to_json(&self) -> String {
        // A draft is texts, numbers and lists: writing it cannot fail.
        serde_json::to_string_pretty(&self.draft).unwrap_or_default()
    }

    /// The socket that is dialled and whom it must prove to be.
    pub const fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Whether the public roots are trusted, too.
    pub const fn trusts_public_roots(&self) -> bool {
        self.public_roots
    }

    /// Wait after a rotation that found nothing, in milliseconds.
    pub const fn poll_interval_millis(&self) -> u64 {
        self.poll_interval_millis
    }

    /// The bindings, in the order in which they were written.
    pub fn bindings(&self) -> &[TriggerBinding] {
        &self.bindings
    }

    /// Every tenant that has a binding, each once: whose credentials an installation needs.
    pub fn tenants(&self) -> &[TenantId] {
        &self.tenants
    }

    /// SHA-256 of the configuration.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.to_json()).into()
    }

    /// Memory that an installation is charged (T-033).
    pub fn installation_bytes(&self) -> u64 {
        let roots: usize = self.peer.roots().map(<[u8]>::len).sum();
        let bindings = self.bindings.len() as u64 * limits::BINDING_BYTES.default;
        limits::INSTALLATION_BYTES.default + bindings + 6 * roots as u64
    }
}
