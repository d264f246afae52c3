//! What a secret is for: its purpose, and the one destination it may be shown to.

use std::fmt;

use latent_core::{CoreError, ProviderId, TenantId, UnixMillis};

use crate::limits::SERVER_NAME_BYTES;
use crate::{SecretError, SecretInfo, SecretName};

/// What a secret may be used for. A purpose is stored with the secret, and no other one can stand in for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SecretPurpose {
    /// What a provider authenticates with, inside a TLS connection to one server.
    TlsProviderCredential,
    /// What a node shows to the broker behind its topics, inside a TLS connection. No tenant's.
    BusCredential,
    /// What an HTTP client would authenticate with.
    HttpCredential,
    /// What a guest may read.
    GuestReadable,
}

impl SecretPurpose {
    const ALL: [Self; 4] = [Self::TlsProviderCredential, Self::BusCredential, Self::HttpCredential, Self::GuestReadable];

    /// The word for it in files and output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TlsProviderCredential => "tls-provider-credential",
            Self::BusCredential => "bus-credential",
            Self::HttpCredential => "http-credential",
            Self::GuestReadable => "guest-readable",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|purpose| purpose.as_str() == text)
    }
}

impl fmt::Display for SecretPurpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is spoken with the destination of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SecretProtocol {
    /// A protocol inside TLS: nothing is shown before the server has proved its name.
    Tls,
    /// HTTP, whatever it is inside of.
    Http,
}

impl SecretProtocol {
    const ALL: [Self; 2] = [Self::Tls, Self::Http];

    /// The word for it in files and output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Http => "http",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.as_str() == text)
    }
}

impl fmt::Display for SecretProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whose credential is asked for, and for which TLS server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsBinding {
    /// The tenant that it belongs to.
    pub tenant: TenantId,
    /// The provider that shows it.
    pub provider: ProviderId,
    /// The name that the server's certificate is checked against. Compared without case, as names are.
    pub server_name: String,
    /// The server's port.
    pub port: u16,
}

/// What stands for the tenant of a node's own credential; its purpose tells it from one of a tenant of that name.
const NODE: &str = "node";
/// What stands for the provider that shows it: the node's own, for topics.
const TOPICS: &str = "topics";

/// The server that a node's own credential may be shown to: the broker behind its topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusBinding(TlsBinding);

impl BusBinding {
    /// For the server of this name, as its certificate is checked, on this port.
    ///
    /// # Errors
    /// None is known; the fixed words in it are checked as names are.
    pub fn new(server_name: &str, port: u16) -> Result<Self, CoreError> {
        let (tenant, provider) = (TenantId::parse(NODE)?, ProviderId::parse(TOPICS)?);
        Ok(Self(TlsBinding { tenant, provider, server_name: server_name.to_owned(), port }))
    }

    pub(crate) const fn stored(&self) -> &TlsBinding {
        &self.0
    }
}

/// A secret that is to be stored. It has no `Debug`, because it holds the value.
#[derive(Clone, Copy)]
pub struct NewSecret<'a> {
    /// Its name.
    pub name: &'a SecretName,
    /// What it is for.
    pub purpose: SecretPurpose,
    /// What is spoken with its destination.
    pub protocol: SecretProtocol,
    /// Whose it is, and where it may be shown.
    pub binding: &'a TlsBinding,
    /// The secret: 1 to 4,096 bytes of any kind.
    pub value: &'a [u8],
    /// From when on it is no longer used, if ever.
    pub expires: Option<UnixMillis>,
}

impl<'a> NewSecret<'a> {
    /// A credential of a provider for one TLS server.
    pub const fn tls(name: &'a SecretName, binding: &'a TlsBinding, value: &'a [u8], expires: Option<UnixMillis>) -> Self {
        Self { name, purpose: SecretPurpose::TlsProviderCredential, protocol: SecretProtocol::Tls, binding, value, expires }
    }

    /// A node's own credential for the broker behind its topics.
    pub const fn bus(name: &'a SecretName, binding: &'a BusBinding, value: &'a [u8], expires: Option<UnixMillis>) -> Self {
        Self { purpose: SecretPurpose::BusCredential, ..Self::tls(name, binding.stored(), value, expires) }
    }
}

/// The first thing in which a secret is not the one that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindMismatch {
    /// It is for something else.
    #[error("its purpose is {stored}, not {expected}")]
    Purpose {
        /// Its purpose.
        stored: SecretPurpose,
        /// The purpose asked for.
        expected: SecretPurpose,
    },
    /// It belongs to another tenant.
    #[error("it belongs to tenant {stored}, not {expected}")]
    Tenant {
        /// Its tenant.
        stored: TenantId,
        /// The tenant asked for.
        expected: TenantId,
    },
    /// Another provider shows it.
    #[error("it is for provider {stored}, not {expected}")]
    Provider {
        /// Its provider.
        stored: ProviderId,
        /// The provider asked for.
        expected: ProviderId,
    },
    /// Its destination does not speak TLS.
    #[error("it is for a destination that speaks {stored}, not {}", SecretProtocol::Tls)]
    Protocol {
        /// Its protocol.
        stored: SecretProtocol,
    },
    /// It is for a server of another name.
    #[error("it is for the server {stored:?}, not {expected:?}")]
    ServerName {
        /// Its server.
        stored: String,
        /// The server asked for.
        expected: String,
    },
    /// It is for another port.
    #[error("it is for port {stored}, not {expected}")]
    Port {
        /// Its port.
        stored: u16,
        /// The port asked for.
        expected: u16,
    },
}

impl TlsBinding {
    /// Whether a stored secret is the one that is asked for.
    pub(crate) fn check(&self, purpose: SecretPurpose, stored: &SecretInfo) -> Result<(), BindMismatch> {
        if stored.purpose != purpose {
            return Err(BindMismatch::Purpose { stored: stored.purpose, expected: purpose });
        }
        if stored.tenant != self.tenant {
            return Err(BindMismatch::Tenant { stored: stored.tenant.clone(), expected: self.tenant.clone() });
        }
        if stored.provider != self.provider {
            return Err(BindMismatch::Provider { stored: stored.provider.clone(), expected: self.provider.clone() });
        }
        if stored.protocol != SecretProtocol::Tls {
            return Err(BindMismatch::Protocol { stored: stored.protocol });
        }
        if !stored.server_name.eq_ignore_ascii_case(&self.server_name) {
            return Err(BindMismatch::ServerName { stored: stored.server_name.clone(), expected: self.server_name.clone() });
        }
        if stored.port != self.port {
            return Err(BindMismatch::Port { stored: stored.port, expected: self.port });
        }
        Ok(())
    }

    /// The server's name as it is stored: in lower case.
    pub(crate) fn stored_server_name(&self) -> Result<String, SecretError> {
        let lower = self.server_name.to_ascii_lowercase();
        if !is_stored_server_name(&lower) {
            return Err(SecretError::Destination {
                problem: "a server name is the DNS name or address that the certificate is checked against, at most 253 bytes, \
                          and does not end with a dot",
            });
        }
        if self.port == 0 {
            return Err(SecretError::Destination { problem: "port 0 is no destination; name the server's port" });
        }
        Ok(lower)
    }
}

/// A name or address in the form it is stored in.
pub(crate) fn is_stored_server_name(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'_' | b':');
    let ends = |byte: Option<&u8>| byte.is_some_and(|byte| !matches!(byte, b'.' | b'-'));
    let bytes = text.as_bytes();
    bytes.len() <= SERVER_NAME_BYTES.max_usize() && ends(bytes.first()) && ends(bytes.last()) && bytes.iter().copied().all(known)
}
