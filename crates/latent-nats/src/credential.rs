//! What a tenant authenticates with: a handle to a secret, and with a user name a password, without one a token.

use std::fmt;

use latent_core::TenantId;
use latent_secrets::TlsProviderCredential;

use crate::limits;

/// A tenant's credential. Holds a handle; the secret itself is read when a connection authenticates, and forgotten.
#[derive(Clone)]
pub struct NatsCredential {
    tenant: TenantId,
    username: Option<String>,
    secret: TlsProviderCredential,
}

impl NatsCredential {
    /// Authenticates with a user name and a password.
    pub fn password(tenant: TenantId, username: &str, secret: TlsProviderCredential) -> Self {
        Self { tenant, username: Some(username.to_owned()), secret }
    }

    /// Authenticates with a token.
    pub fn token(tenant: TenantId, secret: TlsProviderCredential) -> Self {
        Self { tenant, username: None, secret }
    }

    /// Whose it is.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    pub(crate) fn username(&self) -> Option<&str> {
        self.username.as_deref()
    }

    pub(crate) fn secret(&self) -> &TlsProviderCredential {
        &self.secret
    }

    /// Whether a text can be a user's name: 1 to `username_bytes` visible ASCII characters.
    pub fn is_username(name: &str) -> bool {
        (1..=limits::USERNAME_BYTES.max_usize()).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
    }

    pub(crate) fn has_usable_username(&self) -> bool {
        self.username().is_none_or(Self::is_username)
    }
}

impl fmt::Debug for NatsCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsCredential").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}
