//! What can be wrong with a configuration or an installation. All of it is found before anything is dialled.

use latent_capabilities::{EpochConflict, RegistrationRefused};
use latent_core::{CoreError, LimitError, TenantId};

use crate::endpoint::PeerClass;

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Something that has no default is missing.
    #[error("{field} is missing; {advice}")]
    Missing {
        /// The field, as a path in the JSON form.
        field: &'static str,
        /// What to write there.
        advice: &'static str,
    },
    /// The document is not of this form.
    #[error("the configuration cannot be read: {problem}")]
    Form {
        /// What the reader says; positions and names of keys, no values of secrets (there are none).
        problem: String,
    },
    /// A version this program does not know.
    #[error("formatVersion is {found} and this program knows 1")]
    Version {
        /// The version found.
        found: u64,
    },
    /// The socket is not one explicit IPv4 address with a port.
    #[error(
        "endpoint.address {text:?} is not an IPv4 address with a port, such as 192.0.2.10:4222; names and IPv6 are outside of this profile"
    )]
    Address {
        /// What was written, cut to 80 characters.
        text: String,
    },
    /// The address never names one peer.
    #[error("endpoint.address {address} is {class} and can never be a peer; give the broker's own address")]
    NeverAPeer {
        /// The address.
        address: String,
        /// What it is.
        class: PeerClass,
    },
    /// The address is not public and was not opted in.
    #[error("endpoint.address {address} is {class}; to allow exactly it, write allowNonPublicPeer = {address:?}")]
    NotPublic {
        /// The address.
        address: String,
        /// What it is.
        class: PeerClass,
    },
    /// The opt-in names another address.
    #[error("allowNonPublicPeer is {allowed:?} and endpoint.address is {address:?}; the opt-in must be the identical address")]
    OtherOptIn {
        /// The address dialled.
        address: String,
        /// The address opted in, cut to 80 characters.
        allowed: String,
    },
    /// The server name is not a DNS name.
    #[error("endpoint.serverName {name:?} is not a DNS name; give the name that the broker's certificate is for")]
    ServerName {
        /// What was written, cut to 80 characters.
        name: String,
    },
    /// No trust root was chosen.
    #[error("no trust root is chosen; set roots.public to true, or give the broker's root in roots.der")]
    NoRoots,
    /// A root that cannot be one.
    #[error(
        "roots.der[{index}] is not a certificate in DER form (as base64 in the JSON form); convert it with `openssl x509 -outform der`"
    )]
    Root {
        /// Its place.
        index: usize,
    },
    /// A number outside its limit.
    #[error("{field}: {error}")]
    Limit {
        /// The field.
        field: &'static str,
        /// The limit.
        #[source]
        error: LimitError,
    },
    /// A name that breaks its rule.
    #[error("{field}: {error}")]
    Name {
        /// The field, with its index.
        field: String,
        /// The rule.
        #[source]
        error: CoreError,
    },
    /// The same topic of a tenant is mapped twice.
    #[error("mappings[{index}] maps topic {topic} of tenant {tenant} a second time; keep one")]
    DoubleMapping {
        /// The second one.
        index: usize,
        /// The tenant.
        tenant: TenantId,
        /// The topic.
        topic: String,
    },
    /// A subject of two tenants (P-006).
    #[error("mappings[{index}] gives subject {subject} to tenant {tenant}, and it belongs to tenant {owner}; a subject has one tenant")]
    SharedSubject {
        /// The second one.
        index: usize,
        /// The subject.
        subject: String,
        /// The second tenant.
        tenant: TenantId,
        /// The first one.
        owner: TenantId,
    },
    /// A binding of a trigger configuration that cannot be used.
    #[error("bindings[{index}]{}: {problem}", .id.as_ref().map(|id| format!(" ({id:?})")).unwrap_or_default())]
    Binding {
        /// Its place.
        index: usize,
        /// Its id as written, cut to 80 characters.
        id: Option<String>,
        /// What is wrong.
        #[source]
        problem: crate::triggers::BindingProblem,
    },
    /// A lane that cannot be used.
    #[error("lanes[{index}] ({id}): {problem}")]
    Lane {
        /// Its place.
        index: usize,
        /// Its id.
        id: latent_core::BindingId,
        /// What is wrong.
        #[source]
        problem: crate::lanes::LaneProblem,
    },
    /// A subject that is expected in two streams.
    #[error(
        "mappings[{index}] expects subject {subject} in stream {stream}, and another mapping in {other}; a subject is stored in one stream"
    )]
    TwoStreams {
        /// The second one.
        index: usize,
        /// The subject.
        subject: String,
        /// The stream it expects.
        stream: String,
        /// The stream of the first one.
        other: String,
    },
}

/// An installation that cannot be made. Nothing was installed and nothing dialled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// A configured tenant has no credential (X-008, T-010).
    #[error("tenant {tenant} is configured and has no credential; give it one")]
    NoCredential {
        /// The tenant.
        tenant: TenantId,
    },
    /// A credential is for a tenant that is not configured.
    #[error("a credential is given for tenant {tenant}, which the configuration does not name; remove it, or configure the tenant")]
    UnknownTenant {
        /// The tenant.
        tenant: TenantId,
    },
    /// Two credentials for one tenant.
    #[error("tenant {tenant} has two credentials; give one")]
    TwoCredentials {
        /// The tenant.
        tenant: TenantId,
    },
    /// More than the slots (P-014).
    #[error("too many credentials: {0}")]
    TooManyCredentials(LimitError),
    /// The handle was bound to something else.
    #[error("the credential of tenant {tenant} is bound to another tenant, provider, server name or port; bind it for this provider")]
    OtherBinding {
        /// The tenant.
        tenant: TenantId,
    },
    /// A trigger needs somebody who knows topics.
    #[error("binding {binding} reads a topic or has a dead-letter topic, and nobody who knows topics was given; install it with one")]
    NoTopics {
        /// The binding.
        binding: latent_core::BindingId,
    },
    /// A user name that is empty, too long, or not printable.
    #[error("the user name of tenant {tenant} is not printable ASCII of 1 to 128 bytes")]
    Username {
        /// The tenant.
        tenant: TenantId,
    },
    /// The TLS library refuses what was configured.
    #[error("TLS cannot be set up: {problem}")]
    Tls {
        /// What it says.
        problem: String,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {problem}")]
    Random {
        /// What it says.
        problem: String,
    },
    /// The pools have no room.
    #[error(transparent)]
    Pools(#[from] RegistrationRefused),
    /// Another epoch is in force.
    #[error(transparent)]
    Epoch(#[from] EpochConflict),
}
