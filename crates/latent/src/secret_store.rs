//! Opening the store of secrets that a configuration names: for the commands that change it, and for a node that uses it.

use latent_secrets::{LocalSecretStore, SealingKey, SecretError};

use crate::config::settings::{KeySource, SecretsConfig};

/// Reads the key and opens the store.
///
/// # Errors
/// [`SecretError`] naming the file and what to do.
pub(crate) fn open(secrets: &SecretsConfig) -> Result<LocalSecretStore, SecretError> {
    let key = match &secrets.key {
        KeySource::File(file) => SealingKey::from_file(file),
        KeySource::Credential(name) => SealingKey::from_systemd_credential(name),
    };
    LocalSecretStore::open(&secrets.directory, key?)
}
