//! What can go wrong with the store. No variant holds a value, a part of one, its hash or its length.

use std::path::PathBuf;

use latent_core::UnixMillis;

use crate::SecretName;
use crate::limits::{SECRET_VALUE_BYTES, SECRETS};

/// Why the store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The directory is not its owner's alone, or not there.
    #[error("the secret store {} {problem}", directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// What is wrong with it, and what to run.
        problem: AccessProblem,
    },
    /// A file of the store is not its owner's alone.
    #[error("the file {} {problem}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with it, and what to run.
        problem: AccessProblem,
    },
    /// There is no key to seal with.
    #[error("the sealing key {origin} {problem}")]
    Key {
        /// The file or credential.
        origin: String,
        /// What is wrong with it.
        problem: KeyProblem,
    },
    /// A control key of the archive cannot be had.
    #[error("the control key file {} {problem}", file.display())]
    ControlKey {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: KeyProblem,
    },
    /// The store is whole and was sealed under another key.
    #[error("the secret store {} was sealed under another key; give the key that it was made with", directory.display())]
    WrongKey {
        /// The store.
        directory: PathBuf,
    },
    /// A file is not what was written.
    #[error("{} is damaged: {problem}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Another process is changing the store.
    #[error("the secret store is being changed by {}; try again when that is done", match holder {
        Some(pid) => format!("the process {pid}"),
        None => "another process".to_owned(),
    })]
    Locked {
        /// The lock.
        file: PathBuf,
        /// The process that has it, where it said so.
        holder: Option<u32>,
    },
    /// There is such a secret already.
    #[error("the secret {name} exists; rotate it, or revoke it before another one gets its name")]
    Exists {
        /// Its name.
        name: SecretName,
    },
    /// There is no such secret.
    #[error("there is no secret {name}; `latent secret list` shows those that there are")]
    NotFound {
        /// The name asked for.
        name: SecretName,
    },
    /// The secret was revoked.
    #[error("the secret {name} is revoked; put a new one under that name")]
    Revoked {
        /// Its name.
        name: SecretName,
    },
    /// The value is empty.
    #[error("the value is empty; a secret has 1 to {} bytes", SECRET_VALUE_BYTES.max)]
    ValueEmpty,
    /// The value is too long.
    #[error("the value is longer than {} bytes, which is the most that a secret may have", SECRET_VALUE_BYTES.max)]
    ValueTooLong,
    /// The destination is none.
    #[error("the destination is not acceptable: {problem}")]
    Destination {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// It would be expired from the start.
    #[error("the secret {name} would have expired already, at {expires} ms since 1970; give a time to come")]
    ExpiryPassed {
        /// Its name.
        name: SecretName,
        /// The expiry given.
        expires: UnixMillis,
    },
    /// There is no room for another secret.
    #[error("the secret store is full: at most {} secrets; put the new one under the name of a revoked one, or use another store", SECRETS.max)]
    Full,
    /// The system said no; nothing was changed.
    #[error("{operation} {} failed: {reason}", file.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The file or directory.
        file: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// The change is made, and whether it outlives a power failure is not known.
    #[error("{} is changed, but its sync failed and a power failure may bring back what was there before: {reason}", file.display())]
    NotDurable {
        /// The file.
        file: PathBuf,
        /// The system's words.
        reason: String,
    },
}

/// Why a directory or file is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessProblem {
    /// It is not there.
    #[error("does not exist")]
    Missing,
    /// It is a symbolic link.
    #[error("is a symbolic link, which is not followed; name what it points to")]
    Symlink,
    /// It is something else.
    #[error("is not a {expected}")]
    Kind {
        /// What it should be.
        expected: &'static str,
    },
    /// It belongs to somebody else.
    #[error("belongs to user {owner}, not to {ours}; run as its owner, or `{command}`")]
    Owner {
        /// Whose it is.
        owner: u32,
        /// Who we are.
        ours: u32,
        /// What to run.
        command: String,
    },
    /// Others may read or change it.
    #[error("is open to others (mode {mode:04o}); run `{command}`")]
    Mode {
        /// Its permissions.
        mode: u32,
        /// What to run.
        command: String,
    },
}

/// Why there is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyProblem {
    /// Its file may not be used.
    #[error("{0}")]
    Access(AccessProblem),
    /// It is no key.
    #[error("is neither 32 bytes nor 64 hexadecimal digits; make one with `head -c 32 /dev/urandom > FILE && chmod 600 FILE`")]
    Form,
    /// It protects nothing.
    #[error("holds zeros or 0xFF, which protect nothing; make one with `head -c 32 /dev/urandom > FILE && chmod 600 FILE`")]
    Weak,
    /// It could not be read.
    #[error("cannot be read: {reason}")]
    Unreadable {
        /// The system's words.
        reason: String,
    },
    /// systemd gave no credentials.
    #[error("is a systemd credential and CREDENTIALS_DIRECTORY {0}; start it from a unit with LoadCredential=, or name a key file")]
    NoCredentials(&'static str),
    /// Its name is not that of a credential.
    #[error("is not the name of a systemd credential: a name has no `/`, is not empty, `.` or `..`, and has at most 255 bytes")]
    Name,
}

impl SecretError {
    /// The name used in machine-readable output and `docs/errors.md`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Directory { .. } | Self::File { .. } => "secret-access",
            Self::Key { .. } => "secret-key",
            Self::ControlKey { .. } => "control-key",
            Self::WrongKey { .. } => "secret-wrong-key",
            Self::Damaged { .. } => "secret-damaged",
            Self::Locked { .. } => "secret-locked",
            Self::Exists { .. } => "secret-exists",
            Self::NotFound { .. } => "secret-not-found",
            Self::Revoked { .. } => "secret-revoked",
            Self::ValueEmpty | Self::ValueTooLong => "secret-value",
            Self::Destination { .. } => "secret-destination",
            Self::ExpiryPassed { .. } => "secret-expiry",
            Self::Full => "secret-full",
            Self::Io { .. } => "secret-io",
            Self::NotDurable { .. } => "secret-not-durable",
        }
    }
}
