//! The store: changes under the lock, reads without.

use std::fmt;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use latent_core::UnixMillis;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::access::{self, Kind};
use crate::directory::{Directory, SUFFIX, failed, normal};
use crate::handle::{self, BindError, TlsProviderCredential};
use crate::lock::Lock;
use crate::replace::{Disk, Steps, replace};
use crate::seal::{NONCE_BYTES, Nonce};
use crate::sight::Sight;
use crate::store_file::{self, STORE};
use crate::{BusBinding, NewSecret, ResolvedSecret, SealingKey, SecretError, SecretInfo, SecretName, Survey, TlsBinding, limits, record};

/// Secrets in one directory, sealed under one key.
pub struct LocalSecretStore {
    directory: PathBuf,
    key: SealingKey,
    steps: Box<dyn Steps>,
    lock_wait: Duration,
}

/// One secret as it was read.
pub(crate) struct Opened {
    pub(crate) info: SecretInfo,
    /// The padded value; empty when it is revoked.
    pub(crate) text: Zeroizing<Vec<u8>>,
    /// Of the whole file, which holds a random nonce: no two writings have the same.
    pub(crate) fingerprint: Fingerprint,
    /// The file that it was read from.
    pub(crate) sight: Sight,
}

/// SHA-256 of a file of the store.
pub(crate) type Fingerprint = [u8; 32];

impl LocalSecretStore {
    /// Opens the store in a directory that is its owner's alone (0700). The directory may be empty: the first secret makes a store
    /// of it.
    ///
    /// # Errors
    /// [`SecretError::Directory`] saying what is wrong with the directory and what to run, [`SecretError::WrongKey`], and what else
    /// keeps the file `store` from being read.
    pub fn open(directory: &Path, key: SealingKey) -> Result<Self, SecretError> {
        Self::open_with(directory, key, Box::new(Disk), Duration::from_millis(limits::SECRET_LOCK_MILLIS.default))
    }

    /// Makes a directory for a store, unless something is there. The one above it must be there.
    ///
    /// # Errors
    /// [`SecretError::Io`].
    pub fn prepare(directory: &Path) -> Result<(), SecretError> {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed("making", directory, error)),
            _ => Ok(()),
        }
    }

    /// As [`LocalSecretStore::open`], over other calls and with another patience.
    pub(crate) fn open_with(directory: &Path, key: SealingKey, steps: Box<dyn Steps>, lock_wait: Duration) -> Result<Self, SecretError> {
        let store = Self { directory: normal(directory), key, steps, lock_wait };
        store.directory()?;
        Ok(store)
    }

    /// Stores a secret. A name whose secret was revoked may be used again; its version goes on.
    ///
    /// # Errors
    /// [`SecretError::Exists`], and every other [`SecretError`] but those of rotations.
    pub fn put(&self, new: NewSecret<'_>, now: UnixMillis) -> Result<SecretInfo, SecretError> {
        let server_name = new.binding.stored_server_name()?;
        check_value(new.value)?;
        check_expiry(new.name, new.expires, now)?;
        let directory = Directory::open(&self.directory)?;
        let lock = Lock::take(&directory, self.lock_wait)?;
        self.begin(&directory)?;
        let version = match self.read_in(&directory, new.name)? {
            Some(old) if !old.info.revoked => return Err(SecretError::Exists { name: new.name.clone() }),
            Some(old) => self.version_after(&directory, &old.info)?,
            None if directory.secret_files()?.len() >= limits::SECRETS.max_usize() => return Err(SecretError::Full),
            None => 1,
        };
        let info = SecretInfo {
            name: new.name.clone(),
            purpose: new.purpose,
            tenant: new.binding.tenant.clone(),
            provider: new.binding.provider.clone(),
            protocol: new.protocol,
            server_name,
            port: new.binding.port,
            version,
            written: now,
            expires: new.expires,
            revoked: false,
        };
        self.write(&directory, &lock, info, Some(new.value))
    }

    /// Replaces a secret's value and expiry; its version grows by one. What was there before is no longer current.
    ///
    /// # Errors
    /// [`SecretError::NotFound`], [`SecretError::Revoked`], and those of every change.
    pub fn rotate(&self, name: &SecretName, value: &[u8], expires: Option<UnixMillis>, now: UnixMillis) -> Result<SecretInfo, SecretError> {
        check_value(value)?;
        check_expiry(name, expires, now)?;
        self.change(name, Some(value), |old| SecretInfo { written: now, expires, ..old })
    }

    /// Takes a secret back: its value goes, its name and destination stay, its version grows by one.
    ///
    /// # Errors
    /// [`SecretError::NotFound`], [`SecretError::Revoked`], and those of every change.
    pub fn revoke(&self, name: &SecretName, now: UnixMillis) -> Result<SecretInfo, SecretError> {
        self.change(name, None, |old| SecretInfo { written: now, revoked: true, ..old })
    }

    /// What may be told of every secret, by name.
    ///
    /// # Errors
    /// The first secret that cannot be read; [`LocalSecretStore::survey`] shows the others as well.
    pub fn list(&self) -> Result<Vec<SecretInfo>, SecretError> {
        let Survey { secrets, unreadable } = self.survey()?;
        unreadable.into_iter().next().map_or(Ok(secrets), Err)
    }

    /// As [`LocalSecretStore::list`]; one damaged file hides no other.
    ///
    /// # Errors
    /// What keeps the directory from being read, and [`SecretError::WrongKey`].
    pub fn survey(&self) -> Result<Survey, SecretError> {
        let directory = self.directory()?;
        let mut survey = Survey::default();
        for file in directory.secret_files()? {
            let name = file.strip_suffix(SUFFIX).and_then(|name| SecretName::parse(name).ok());
            let read = match name {
                Some(name) => self.read_in(&directory, &name),
                None => Err(SecretError::Damaged { file: directory.file(&file), problem: "its name is not that of a secret" }),
            };
            match read {
                Ok(Some(opened)) => survey.secrets.push(opened.info),
                // Taken away by hand while we looked.
                Ok(None) => {}
                Err(error) => survey.unreadable.push(error),
            }
        }
        Ok(survey)
    }

    /// A handle to a credential, after everything that must be right was checked: purpose, tenant, provider, protocol, server name
    /// and port, and that it can be used at `now`.
    ///
    /// # Errors
    /// [`BindError`] naming the first thing that is not as expected.
    pub fn bind_tls_credential(
        self: &Arc<Self>,
        name: &SecretName,
        expected: &TlsBinding,
        now: UnixMillis,
    ) -> Result<TlsProviderCredential, BindError> {
        TlsProviderCredential::bind(Arc::clone(self), name, expected, now)
    }

    /// A node's own credential as it is now, after everything that must be right was checked: purpose, server name and port, and that it
    /// can be used at `now`.
    ///
    /// # Errors
    /// [`BindError`] naming the first thing that is not as expected.
    pub fn resolve_bus_credential(&self, name: &SecretName, expected: &BusBinding, now: UnixMillis) -> Result<ResolvedSecret, BindError> {
        handle::resolve_bus(self, name, expected, now)
    }

    /// One secret, believed: its lines and value are proved.
    pub(crate) fn read(&self, name: &SecretName) -> Result<Option<Opened>, SecretError> {
        self.read_in(&Directory::open(&self.directory)?, name)
    }

    /// The fingerprint of what is stored now, believed or not.
    pub(crate) fn fingerprint(&self, name: &SecretName) -> Result<Option<Fingerprint>, SecretError> {
        Ok(Directory::open(&self.directory)?.read(&file_of(name))?.map(|content| fingerprint_of(&content)))
    }

    /// Whether the file that was read then still stands under the secret's name, in a directory that is still ours alone. `false`
    /// says nothing; the fingerprint does.
    pub(crate) fn is_in_sight(&self, sight: &Sight, path: &Path) -> bool {
        let directory = self.directory.symlink_metadata();
        directory.is_ok_and(|found| access::owner_only(&self.directory, &found, Kind::Directory).is_ok()) && sight.is_at(path)
    }

    /// Where a secret's file is.
    pub(crate) fn path_of(&self, name: &SecretName) -> PathBuf {
        self.directory.join(file_of(name))
    }

    /// The directory, with a key that fits where there is a store.
    fn directory(&self) -> Result<Directory, SecretError> {
        let directory = Directory::open(&self.directory)?;
        if !store_file::check(&directory, &self.key)? && !directory.secret_files()?.is_empty() {
            return Err(store_file_missing(&directory));
        }
        Ok(directory)
    }

    fn read_in(&self, directory: &Directory, name: &SecretName) -> Result<Option<Opened>, SecretError> {
        let file = file_of(name);
        let Some((sight, content)) = directory.read_kept(&file)? else { return Ok(None) };
        let damaged = |problem| SecretError::Damaged { file: directory.file(&file), problem };
        let sealed = record::decode(name, &content).map_err(damaged)?;
        let Some((info, text)) = sealed.open(&self.key) else {
            // Which of the two it is, only the store's own file tells.
            if !store_file::check(directory, &self.key)? {
                return Err(store_file_missing(directory));
            }
            return Err(damaged("it was changed, or sealed under another key"));
        };
        Ok(Some(Opened { info, text, fingerprint: fingerprint_of(&content), sight }))
    }

    /// Makes a store of an empty directory.
    fn begin(&self, directory: &Directory) -> Result<(), SecretError> {
        if store_file::check(directory, &self.key)? {
            return Ok(());
        }
        if !directory.secret_files()?.is_empty() {
            return Err(store_file_missing(directory));
        }
        let content = store_file::encode(&self.key, &nonce(directory)?).ok_or_else(|| unsealed(directory))?;
        replace(&*self.steps, directory, STORE, &content)
    }

    fn change(
        &self,
        name: &SecretName,
        value: Option<&[u8]>,
        to: impl FnOnce(SecretInfo) -> SecretInfo,
    ) -> Result<SecretInfo, SecretError> {
        let directory = Directory::open(&self.directory)?;
        let lock = Lock::take(&directory, self.lock_wait)?;
        let old = self.read_in(&directory, name)?.ok_or_else(|| SecretError::NotFound { name: name.clone() })?.info;
        if old.revoked {
            return Err(SecretError::Revoked { name: name.clone() });
        }
        let version = self.version_after(&directory, &old)?;
        self.write(&directory, &lock, SecretInfo { version, ..to(old) }, value)
    }

    fn version_after(&self, directory: &Directory, old: &SecretInfo) -> Result<u64, SecretError> {
        let damaged = || SecretError::Damaged { file: directory.file(&file_of(&old.name)), problem: "its version cannot grow" };
        old.version.checked_add(1).ok_or_else(damaged)
    }

    fn write(&self, directory: &Directory, _held: &Lock, info: SecretInfo, value: Option<&[u8]>) -> Result<SecretInfo, SecretError> {
        let content = record::encode(&self.key, &nonce(directory)?, &info, value).ok_or_else(|| unsealed(directory))?;
        replace(&*self.steps, directory, &file_of(&info.name), &content)?;
        Ok(info)
    }
}

impl fmt::Debug for LocalSecretStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalSecretStore").field("directory", &self.directory).finish_non_exhaustive()
    }
}

fn file_of(name: &SecretName) -> String {
    format!("{name}{SUFFIX}")
}

fn fingerprint_of(content: &[u8]) -> Fingerprint {
    Sha256::digest(content).into()
}

fn check_value(value: &[u8]) -> Result<(), SecretError> {
    match value.len() {
        0 => Err(SecretError::ValueEmpty),
        bytes if bytes > limits::SECRET_VALUE_BYTES.max_usize() => Err(SecretError::ValueTooLong),
        _ => Ok(()),
    }
}

fn check_expiry(name: &SecretName, expires: Option<UnixMillis>, now: UnixMillis) -> Result<(), SecretError> {
    match expires {
        Some(expires) if expires <= now => Err(SecretError::ExpiryPassed { name: name.clone(), expires }),
        _ => Ok(()),
    }
}

fn nonce(directory: &Directory) -> Result<Nonce, SecretError> {
    let mut nonce = [0; NONCE_BYTES];
    let filled = getrandom::fill(&mut nonce);
    filled.map_err(|error| failed("random numbers for", directory.path(), std::io::Error::other(error.to_string())))?;
    Ok(nonce)
}

fn unsealed(directory: &Directory) -> SecretError {
    failed("sealing in", directory.path(), std::io::Error::other("the text is too long"))
}

fn store_file_missing(directory: &Directory) -> SecretError {
    let problem = "it is missing and secrets are there; put it back from where the directory was copied";
    SecretError::Damaged { file: directory.file(STORE), problem }
}
