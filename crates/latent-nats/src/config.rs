//! The configuration of one provider: a draft as it is written, and what it becomes when it is checked. No secret has a place in it.
//!
//! The JSON form is camelCase with `formatVersion` 1; unknown and repeated fields are refused, and what is missing is named.

use std::net::SocketAddrV4;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use latent_core::{CoreError, IdempotencyNamespace, Limit, LogicalTopic, StreamName, Subject, TenantId};
use rustls::pki_types::{CertificateDer, DnsName, ServerName};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::mapping::{Mapping, Mappings};
use crate::{ConfigError, endpoint, limits};

/// A configuration as it is written, unchecked. Every field that an operator must decide is `None` until it is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NatsDraft {
    /// Version of this form: 1.
    pub format_version: Option<u64>,
    /// Where the broker is.
    pub endpoint: Option<EndpointDraft>,
    /// Whom to trust.
    pub roots: Option<RootsDraft>,
    /// Separates idempotency keys of this provider from those of others on the same streams (P-035).
    pub idempotency_namespace: Option<String>,
    /// Largest payload, in bytes (P-018).
    pub payload_ceiling_bytes: Option<u64>,
    /// Longest time for one publication, in milliseconds (P-028).
    pub operation_timeout_millis: Option<u64>,
    /// Duplicate window the operator has set on the streams, in milliseconds (P-029). Recorded only.
    pub duplicate_window_millis: Option<u64>,
    /// What is published where.
    pub mappings: Option<Vec<MappingDraft>>,
}

/// Where the broker is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointDraft {
    /// IPv4 address and port.
    pub address: Option<String>,
    /// The identical address, for one that is not public.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_non_public_peer: Option<String>,
    /// The name that the certificate must be valid for.
    pub server_name: Option<String>,
}

/// Whom to trust. At least one choice must be made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RootsDraft {
    /// The public roots that are compiled in.
    #[serde(default)]
    pub public: bool,
    /// The operator's own, in DER form; base64 in JSON.
    #[serde(default)]
    pub der: Vec<String>,
}

impl RootsDraft {
    /// One root in DER form and no public ones.
    pub fn only(der: &[u8]) -> Self {
        Self { public: false, der: vec![STANDARD.encode(der)] }
    }
}

/// What is published where.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MappingDraft {
    /// The tenant.
    pub tenant: Option<String>,
    /// The topic as its functions name it.
    pub topic: Option<String>,
    /// The subject on the broker.
    pub subject: Option<String>,
    /// The stream that stores the subject.
    pub stream: Option<String>,
}

/// A checked configuration. One that exists can be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsConfig {
    draft: NatsDraft,
    peer: Peer,
    pub(crate) public_roots: bool,
    pub(crate) namespace: IdempotencyNamespace,
    pub(crate) payload_ceiling_bytes: u64,
    pub(crate) operation_timeout_millis: u64,
    pub(crate) mappings: Mappings,
}

impl NatsDraft {
    /// Checks everything that can be checked without a network.
    ///
    /// # Errors
    /// [`ConfigError`] naming the field and what to write there.
    pub fn check(self) -> Result<NatsConfig, ConfigError> {
        let version = require(self.format_version, "formatVersion", "write 1")?;
        if version != 1 {
            return Err(ConfigError::Version { found: version });
        }
        let endpoint = require(self.endpoint.as_ref(), "endpoint", "give the broker's address and serverName")?;
        let chosen = require(self.roots.as_ref(), "roots", "set public to true, or give the broker's root in der")?;
        let peer = endpoint.check(chosen)?;
        let namespace = require(self.idempotency_namespace.as_deref(), "idempotencyNamespace", "choose a text and keep it for ever")?;
        let namespace = IdempotencyNamespace::parse(namespace).map_err(name_error("idempotencyNamespace"))?;
        let bounded = |value, field, limit: &Limit, advice| {
            let value = require(value, field, advice)?;
            limit.check(value).map_err(|error| ConfigError::Limit { field, error })
        };
        let ceiling = &limits::PAYLOAD_CEILING_BYTES;
        let payload_ceiling_bytes = bounded(self.payload_ceiling_bytes, "payloadCeilingBytes", ceiling, "choose at most 262144 bytes")?;
        let timeout = &limits::OPERATION_TIMEOUT_MILLIS;
        let operation_timeout_millis = bounded(self.operation_timeout_millis, "operationTimeoutMillis", timeout, "choose 10 to 30000 ms")?;
        let window = &limits::DUPLICATE_WINDOW_MILLIS;
        bounded(self.duplicate_window_millis, "duplicateWindowMillis", window, "write what the streams are set to, in ms")?;
        let written = require(self.mappings.as_ref(), "mappings", "map at least one topic of a tenant to a subject and a stream")?;
        let count = limits::MAPPINGS.check(written.len() as u64);
        count.map_err(|error| ConfigError::Limit { field: "mappings", error })?;
        let mappings = written.iter().enumerate().map(|(index, mapping)| mapping.check(index)).collect::<Result<_, _>>()?;
        let mappings = Mappings::check(mappings)?;
        let tenants = limits::CREDENTIALS.check(mappings.tenants().len() as u64);
        tenants.map_err(|error| ConfigError::Limit { field: "mappings", error })?;
        let public_roots = chosen.public;
        Ok(NatsConfig { peer, public_roots, namespace, payload_ceiling_bytes, operation_timeout_millis, mappings, draft: self })
    }
}

/// One mapping, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapped<'a> {
    /// Whose functions publish.
    pub tenant: &'a TenantId,
    /// The topic as they name it.
    pub topic: &'a LogicalTopic,
    /// The subject on the broker.
    pub subject: &'a Subject,
    /// The stream that must keep it.
    pub stream: &'a StreamName,
}

/// The one socket that may be dialled, and whom its peer must prove to be: checked. What a provider and a node's own bus have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub(crate) address: SocketAddrV4,
    pub(crate) server_name: ServerName<'static>,
    server_name_text: String,
    pub(crate) roots: Vec<CertificateDer<'static>>,
}

impl EndpointDraft {
    /// Checks address, opt-in, name and roots, without a network.
    ///
    /// # Errors
    /// [`ConfigError`] naming the field and what to write there.
    pub fn check(&self, roots: &RootsDraft) -> Result<Peer, ConfigError> {
        let address = require(self.address.as_deref(), "endpoint.address", "give the broker's IPv4 address with its port")?;
        let address = endpoint::check(address, self.allow_non_public_peer.as_deref())?;
        let name = require(self.server_name.as_deref(), "endpoint.serverName", "give the name that the certificate is for")?;
        let (server_name, server_name_text) = server_name(name)?;
        Ok(Peer { address, server_name, server_name_text, roots: self::roots(roots)? })
    }
}

impl Peer {
    /// The socket that is dialled.
    pub const fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// The name that the peer's certificate must be valid for, in lower case.
    pub fn server_name(&self) -> &str {
        &self.server_name_text
    }

    /// The operator's own roots, in DER form.
    pub fn roots(&self) -> impl Iterator<Item = &[u8]> {
        self.roots.iter().map(|root| root.as_ref())
    }
}

impl NatsConfig {
    /// Reads the JSON form.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn from_json(json: &[u8]) -> Result<Self, ConfigError> {
        let size = limits::CONFIG_BYTES.check(json.len().max(limits::CONFIG_BYTES.default_usize()) as u64);
        size.map_err(|error| ConfigError::Limit { field: "the document", error })?;
        let draft: NatsDraft = serde_json::from_slice(json).map_err(|error| ConfigError::Form { problem: error.to_string() })?;
        draft.check()
    }

    /// The JSON form. Reading it again gives an equal configuration.
    pub fn to_json(&self) -> String {
        // A draft is texts, numbers and lists: writing it cannot fail.
        serde_json::to_string_pretty(&self.draft).unwrap_or_default()
    }

    /// The socket that is dialled.
    pub fn address(&self) -> SocketAddrV4 {
        self.peer.address
    }

    /// The name that the peer's certificate must be valid for, in lower case.
    pub fn server_name(&self) -> &str {
        self.peer.server_name()
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The largest payload, in bytes.
    pub fn payload_ceiling_bytes(&self) -> u64 {
        self.payload_ceiling_bytes
    }

    /// Every tenant that has a mapping, each once: whose credentials an installation needs.
    pub fn tenants(&self) -> &[TenantId] {
        self.mappings.tenants()
    }

    /// The topics that a tenant's functions can publish to through it.
    pub fn topics_of<'a>(&'a self, tenant: &'a TenantId) -> impl Iterator<Item = &'a LogicalTopic> {
        self.mappings.all().iter().filter(move |mapping| mapping.tenant == *tenant).map(|mapping| &mapping.topic)
    }

    /// What is published where.
    pub fn mapped(&self) -> impl Iterator<Item = Mapped<'_>> {
        self.mappings.all().iter().map(|Mapping { tenant, topic, subject, stream }| Mapped { tenant, topic, subject, stream })
    }

    /// The duplicate window that the operator says the streams have, in milliseconds (P-029).
    pub fn duplicate_window_millis(&self) -> u64 {
        self.draft.duplicate_window_millis.unwrap_or_default()
    }

    /// Whether the public roots are trusted, too.
    pub fn trusts_public_roots(&self) -> bool {
        self.public_roots
    }

    /// The operator's own roots, in DER form.
    pub fn roots(&self) -> impl Iterator<Item = &[u8]> {
        self.peer.roots()
    }

    /// SHA-256 of the configuration, which holds no secret.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.to_json()).into()
    }

    /// What it takes in memory, for the account of installed configurations.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        let roots: usize = self.peer.roots.iter().map(|root| root.len()).sum();
        (size_of::<Self>() + 3 * self.to_json().len() + roots) as u64
    }
}

impl MappingDraft {
    fn check(&self, index: usize) -> Result<Mapping, ConfigError> {
        let field = |name: &str| format!("mappings[{index}].{name}");
        let missing = |name, advice| ConfigError::Missing { field: name, advice };
        let tenant = self.tenant.as_deref().ok_or(missing("mappings[].tenant", "name the tenant"))?;
        let topic = self.topic.as_deref().ok_or(missing("mappings[].topic", "name the topic as functions do"))?;
        let subject = self.subject.as_deref().ok_or(missing("mappings[].subject", "give the subject to publish on"))?;
        let stream = self.stream.as_deref().ok_or(missing("mappings[].stream", "name the stream that stores the subject"))?;
        Ok(Mapping {
            tenant: TenantId::parse(tenant).map_err(name_error(&field("tenant")))?,
            topic: LogicalTopic::parse(topic).map_err(name_error(&field("topic")))?,
            subject: Subject::parse(subject).map_err(name_error(&field("subject")))?,
            stream: StreamName::parse(stream).map_err(name_error(&field("stream")))?,
        })
    }
}

fn require<T>(value: Option<T>, field: &'static str, advice: &'static str) -> Result<T, ConfigError> {
    value.ok_or(ConfigError::Missing { field, advice })
}

fn name_error(field: &str) -> impl FnOnce(CoreError) -> ConfigError {
    let field = field.to_owned();
    move |error| ConfigError::Name { field, error }
}

fn server_name(text: &str) -> Result<(ServerName<'static>, String), ConfigError> {
    let refused = || ConfigError::ServerName { name: text.chars().take(80).collect() };
    let lower = text.to_ascii_lowercase();
    let is_address = lower.parse::<std::net::IpAddr>().is_ok();
    let name = DnsName::try_from(lower.clone()).map_err(|_| refused())?;
    if is_address || lower.len() > latent_core::limits::SERVER_NAME_BYTES.max_usize() {
        return Err(refused());
    }
    Ok((ServerName::DnsName(name), lower))
}

fn roots(chosen: &RootsDraft) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    if !chosen.public && chosen.der.is_empty() {
        return Err(ConfigError::NoRoots);
    }
    let limited = |error| ConfigError::Limit { field: "roots.der", error };
    limits::ROOTS.check(chosen.der.len() as u64).map_err(limited)?;
    let decode = |(index, text): (usize, &String)| {
        // Four characters of base64 are at most three bytes: too long a text is not decoded.
        limits::ROOT_BYTES.check((text.len() / 4 * 3).saturating_sub(2).max(1) as u64).map_err(limited)?;
        let der = STANDARD.decode(text).map_err(|_| ConfigError::Root { index })?;
        limits::ROOT_BYTES.check(der.len() as u64).map_err(limited)?;
        let certificate = CertificateDer::from(der);
        let mut store = rustls::RootCertStore::empty();
        store.add(certificate.clone()).map_err(|_| ConfigError::Root { index })?;
        Ok(certificate)
    };
    chosen.der.iter().enumerate().map(decode).collect()
}

#[cfg(test)]
mod tests;
