//! What a provider holds instead of a secret, and the secret at the moment it is needed.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use latent_core::UnixMillis;
use zeroize::Zeroizing;

use crate::binding::BindMismatch;
use crate::sight::Sight;
use crate::store::{Fingerprint, Opened};
use crate::{BusBinding, LocalSecretStore, SecretError, SecretName, SecretPurpose, SecretState, TlsBinding, seal};

/// Why a credential cannot be bound or resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// There is no such secret.
    #[error("there is no secret {name}; store it with `latent secret put`")]
    Missing {
        /// The name asked for.
        name: SecretName,
    },
    /// It is another secret than the one that was asked for.
    #[error("the secret {name} cannot be used here: {mismatch}")]
    Mismatch {
        /// Its name.
        name: SecretName,
        /// What is not as expected.
        mismatch: BindMismatch,
    },
    /// It was revoked.
    #[error("the secret {name} is revoked; store another one under that name with `latent secret put`")]
    Revoked {
        /// Its name.
        name: SecretName,
    },
    /// Its expiry has come.
    #[error("the secret {name} has expired; store its successor with `latent secret rotate`")]
    Expired {
        /// Its name.
        name: SecretName,
    },
    /// The store does not show it.
    #[error(transparent)]
    Unreadable(#[from] SecretError),
}

/// Why a credential has no value now. A secret is checked each time as it was when it was bound.
pub type ResolveError = BindError;

/// Why material that was resolved earlier is no longer to be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCurrent {
    /// Another value took its place, or the secret now belongs elsewhere.
    #[error("the credential was rotated")]
    Rotated,
    /// Its expiry has come.
    #[error("the credential has expired")]
    Expired,
    /// It was revoked.
    #[error("the credential is revoked")]
    Revoked,
    /// The secret is gone.
    #[error("the credential is no longer in the store")]
    Missing,
    /// The store does not say.
    #[error("whether the credential is current is not known: {error}")]
    Unreadable {
        /// Why.
        error: SecretError,
    },
}

/// A handle to one credential for one tenant, provider and TLS server. It holds no secret; `Debug` shows the name.
#[derive(Clone)]
pub struct TlsProviderCredential(Arc<Bound>);

struct Bound {
    store: Arc<LocalSecretStore>,
    name: SecretName,
    /// Where the secret's file is: kept, because checks are made before each publication.
    path: PathBuf,
    expected: TlsBinding,
}

impl TlsProviderCredential {
    pub(crate) fn bind(store: Arc<LocalSecretStore>, name: &SecretName, expected: &TlsBinding, now: UnixMillis) -> Result<Self, BindError> {
        match usable(&store, name, (TLS, expected), now) {
            // It is the one that is asked for; whether it can be used is asked again each time it is needed. A node whose credential has
            // expired must be able to start, and works on when its successor is stored.
            Ok(_) | Err(BindError::Revoked { .. } | BindError::Expired { .. }) => {}
            Err(error) => return Err(error),
        }
        let path = store.path_of(name);
        Ok(Self(Arc::new(Bound { store, name: name.clone(), path, expected: expected.clone() })))
    }

    /// The name of the secret.
    pub fn name(&self) -> &SecretName {
        &self.0.name
    }

    /// Whether it was bound for exactly this tenant, provider and server.
    pub fn is_bound_to(&self, binding: &TlsBinding) -> bool {
        let TlsBinding { tenant, provider, server_name, port } = &self.0.expected;
        let same_server = server_name.eq_ignore_ascii_case(&binding.server_name) && *port == binding.port;
        *tenant == binding.tenant && *provider == binding.provider && same_server
    }

    /// Reads and unseals the secret as it is now, after the same checks as when it was bound.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub fn resolve(&self, now: UnixMillis) -> Result<ResolvedSecret, ResolveError> {
        let Bound { store, name, expected, .. } = &*self.0;
        Ok(ResolvedSecret::of(usable(store, name, (TLS, expected), now)?))
    }

    /// Whether what was resolved with this stamp may still be used at `now`: whether the same writing of the secret stands in the
    /// store, and has not expired. It looks at a file and its directory, and reads only when they are not as they were.
    ///
    /// # Errors
    /// [`NotCurrent`].
    pub fn check(&self, stamp: &Stamp, now: UnixMillis) -> Result<(), NotCurrent> {
        let Bound { store, name, path, .. } = &*self.0;
        if !store.is_in_sight(&stamp.0.sight, path) {
            match store.fingerprint(name) {
                Ok(Some(found)) if found == stamp.0.fingerprint => {}
                Ok(Some(_)) => return Err(self.what_changed()),
                Ok(None) => return Err(NotCurrent::Missing),
                Err(error) => return Err(NotCurrent::Unreadable { error }),
            }
        }
        match stamp.0.expires {
            Some(expires) if now >= expires => Err(NotCurrent::Expired),
            _ => Ok(()),
        }
    }

    fn what_changed(&self) -> NotCurrent {
        match self.0.store.read(&self.0.name) {
            Ok(Some(opened)) if opened.info.revoked => NotCurrent::Revoked,
            Ok(Some(_)) => NotCurrent::Rotated,
            Ok(None) => NotCurrent::Missing,
            Err(error) => NotCurrent::Unreadable { error },
        }
    }
}

impl fmt::Debug for TlsProviderCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsProviderCredential").field(&self.0.name).finish()
    }
}

/// Which writing of a secret was resolved. It tells nothing of the value. It keeps the file open, so that no other file can pass for
/// it.
#[derive(Clone)]
pub struct Stamp(Arc<Writing>);

struct Writing {
    name: SecretName,
    version: u64,
    expires: Option<UnixMillis>,
    fingerprint: Fingerprint,
    sight: Sight,
}

impl PartialEq for Stamp {
    fn eq(&self, other: &Self) -> bool {
        self.0.fingerprint == other.0.fingerprint
    }
}

impl Eq for Stamp {}

impl Stamp {
    /// The secret's version.
    pub fn version(&self) -> u64 {
        self.0.version
    }

    /// From when on it is no longer current, whatever happens to the store.
    pub fn expires(&self) -> Option<UnixMillis> {
        self.0.expires
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stamp").field("name", &self.0.name).field("version", &self.0.version).finish_non_exhaustive()
    }
}

/// A secret in memory, wiped when it is dropped. It cannot be cloned; `Debug` shows the name.
pub struct ResolvedSecret {
    text: Zeroizing<Vec<u8>>,
    stamp: Stamp,
}

impl ResolvedSecret {
    fn of(Opened { info, text, fingerprint, sight }: Opened) -> Self {
        let writing = Writing { name: info.name, version: info.version, expires: info.expires, fingerprint, sight };
        Self { text, stamp: Stamp(Arc::new(writing)) }
    }

    /// The secret.
    pub fn value(&self) -> &[u8] {
        // Its form was checked when it was read.
        seal::value_of(&self.text).unwrap_or_default()
    }

    /// What tells later whether it is still current.
    pub const fn stamp(&self) -> &Stamp {
        &self.stamp
    }
}

impl fmt::Debug for ResolvedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ResolvedSecret").field(&self.stamp.0.name).finish()
    }
}

const TLS: SecretPurpose = SecretPurpose::TlsProviderCredential;

/// A secret's purpose and destination.
type Expected<'e> = (SecretPurpose, &'e TlsBinding);

/// A node's own credential as it is now.
pub(crate) fn resolve_bus(
    store: &LocalSecretStore,
    name: &SecretName,
    expected: &BusBinding,
    now: UnixMillis,
) -> Result<ResolvedSecret, ResolveError> {
    Ok(ResolvedSecret::of(usable(store, name, (SecretPurpose::BusCredential, expected.stored()), now)?))
}

/// The secret, when it is the one expected and can be used at `now`.
fn usable(store: &LocalSecretStore, name: &SecretName, expected: Expected<'_>, now: UnixMillis) -> Result<Opened, BindError> {
    let opened = store.read(name)?.ok_or_else(|| BindError::Missing { name: name.clone() })?;
    let (purpose, binding) = expected;
    binding.check(purpose, &opened.info).map_err(|mismatch| BindError::Mismatch { name: name.clone(), mismatch })?;
    match opened.info.state(now) {
        SecretState::Current => Ok(opened),
        SecretState::Revoked => Err(BindError::Revoked { name: name.clone() }),
        SecretState::Expired => Err(BindError::Expired { name: name.clone() }),
    }
}
