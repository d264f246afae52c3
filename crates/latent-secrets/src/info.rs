//! What may be told of a secret.

use latent_core::{ProviderId, TenantId, UnixMillis};

use crate::{SecretError, SecretName, SecretProtocol, SecretPurpose};

/// All that may be told of a secret: everything but its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretInfo {
    /// Its name.
    pub name: SecretName,
    /// What it is for.
    pub purpose: SecretPurpose,
    /// Whose it is.
    pub tenant: TenantId,
    /// The provider that shows it.
    pub provider: ProviderId,
    /// What is spoken with its destination.
    pub protocol: SecretProtocol,
    /// The server it may be shown to, in lower case.
    pub server_name: String,
    /// That server's port.
    pub port: u16,
    /// 1 at first; one more with each rotation, revocation and new secret under the name.
    pub version: u64,
    /// When this version was written.
    pub written: UnixMillis,
    /// From when on it is no longer used, if ever.
    pub expires: Option<UnixMillis>,
    /// Whether it was revoked: then there is no value any more.
    pub revoked: bool,
}

/// Whether a secret can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretState {
    /// It can.
    Current,
    /// Its expiry has come.
    Expired,
    /// It was revoked.
    Revoked,
}

impl SecretState {
    /// The word for it in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl SecretInfo {
    /// Whether it can be used at `now`. At its expiry it no longer can.
    pub fn state(&self, now: UnixMillis) -> SecretState {
        match self.expires {
            _ if self.revoked => SecretState::Revoked,
            Some(expires) if now >= expires => SecretState::Expired,
            _ => SecretState::Current,
        }
    }
}

/// What is in a store, damaged files included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Survey {
    /// The secrets that can be read, by name.
    pub secrets: Vec<SecretInfo>,
    /// What is wrong with those that cannot.
    pub unreadable: Vec<SecretError>,
}
