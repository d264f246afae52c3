//! The store as a whole: over real files, with time by hand.

mod access;
mod binding;
mod bounds;
mod crash;
mod currency;
mod damage;
mod golden;
mod key;
mod lock;
mod marker;
mod properties;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use latent_core::{ProviderId, TenantId, UnixMillis};
use tempfile::TempDir;

use crate::replace::Steps;
use crate::{LocalSecretStore, NewSecret, SealingKey, SecretName, TlsBinding};

/// When everything happens, unless a test says otherwise.
const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
/// A later moment.
const LATER: UnixMillis = UnixMillis(NOW.0 + 1_000);
const VALUE: &[u8] = b"correct horse";
const KEY: [u8; 32] = [7; 32];

fn name() -> SecretName {
    SecretName::parse("acme-bus").unwrap()
}

fn binding() -> TlsBinding {
    TlsBinding {
        tenant: TenantId::parse("acme").unwrap(),
        provider: ProviderId::parse("broker").unwrap(),
        server_name: "nats.example.net".into(),
        port: 4222,
    }
}

/// A directory of its own for each test.
struct Place {
    temp: TempDir,
}

impl Place {
    fn empty() -> Self {
        let ours = std::fs::Permissions::from_mode(0o700);
        Self { temp: tempfile::Builder::new().permissions(ours).tempdir().unwrap() }
    }

    /// With the secret `acme-bus` in it.
    fn with_secret() -> Self {
        let place = Self::empty();
        place.store().put(NewSecret::tls(&name(), &binding(), VALUE, None), NOW).unwrap();
        place
    }

    fn path(&self) -> &Path {
        self.temp.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Another store over the same directory each time, as another process would have it.
    fn store(&self) -> Arc<LocalSecretStore> {
        Arc::new(LocalSecretStore::open(self.path(), SealingKey::from_bytes(&KEY)).unwrap())
    }

    fn store_over(&self, steps: impl Steps + 'static) -> LocalSecretStore {
        LocalSecretStore::open_with(self.path(), SealingKey::from_bytes(&KEY), Box::new(steps), Duration::ZERO).unwrap()
    }

    /// The value that a provider would get now.
    fn value(&self) -> Vec<u8> {
        self.store().bind_tls_credential(&name(), &binding(), NOW).unwrap().resolve(NOW).unwrap().value().to_vec()
    }
}
