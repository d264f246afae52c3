//! `latent secret`: credentials at rest. A value comes from standard input or a file and goes nowhere but into the store.
//!
//! `value` reads one, `expiry` reads times to come, `shown` is what may be told of a secret.

mod expiry;
mod shown;
mod value;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use latent_core::{Clock as _, ProviderId, SystemClock, TenantId, UnixMillis};
use latent_secrets::{BusBinding, LocalSecretStore, NewSecret, SecretError, SecretInfo, SecretName, SecretPurpose, TlsBinding};

use self::expiry::Expiry;
use self::shown::ShownSecret;
use crate::config::settings::SecretsConfig;
use crate::config::{self, NamedFiles};
use crate::error::CliError;
use crate::exit::ExitStatus;
use crate::output::{Form, Output};
use crate::secret_store;
use crate::timestamp::timestamp_seconds;

/// `latent secret`.
#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Store a credential for one tenant, provider and TLS server, or the node's own for its broker
    Put(PutArgs),
    /// Replace a credential's value; what used the old one lets go of it
    Rotate(RotateArgs),
    /// Show every credential: whose, for which server, which version, until when; never a value
    List(ListArgs),
    /// Take a credential back: its value is gone
    Revoke(RevokeArgs),
}

/// Arguments of `latent secret put`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent secret put acme-bus --tenant acme --provider broker --server-name nats.example.net --port 4222 --value-file password.txt
  pass show nats/acme | latent secret put acme-bus --tenant acme --provider broker --server-name nats.example.net --port 4222 --expires 90d
  latent secret put edge-1-bus --bus --server-name nats.example.net --port 4222 --value-file password.txt

The value has 1 to 4,096 bytes of any kind; one line end behind it is cut off. There is no option for the value itself: other users can see \
arguments. The name of a revoked credential may be used again.

Exit status: 3 when it is stored and a power failure may yet undo it.")]
pub(crate) struct PutArgs {
    /// Its name, as configurations say it: letters, digits, `_` and `-`
    name: String,
    /// The node's own, for the broker behind its topics (bus_credential of [engine]); no tenant's
    #[arg(long, conflicts_with_all = ["tenant", "provider"])]
    bus: bool,
    /// The tenant that it belongs to
    #[arg(long, required_unless_present = "bus")]
    tenant: Option<String>,
    /// The provider that shows it
    #[arg(long, value_name = "ID", required_unless_present = "bus")]
    provider: Option<String>,
    /// The name that the server's certificate is checked against
    #[arg(long, value_name = "NAME")]
    server_name: String,
    /// The server's port
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    #[command(flatten)]
    expires: ExpiresArg,
    #[command(flatten)]
    value: ValueArg,
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// Arguments of `latent secret rotate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  latent secret rotate acme-bus --value-file password.txt --expires never

A running node sees it at once: connections that were made with the old value are not used again, and what has started ends as it would \
have. Not so the node's own for its broker (--bus): that is read when the node starts, so start it again after the rotation. The expiry belongs \
to the value: where the old one had one, say when the new one expires.

Exit status: 3 when it is stored and a power failure may yet undo it.")]
pub(crate) struct RotateArgs {
    /// The credential
    name: String,
    #[command(flatten)]
    expires: ExpiresArg,
    #[command(flatten)]
    value: ValueArg,
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// Arguments of `latent secret list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  latent secret list -c latent.toml --json

STATE: `current`; `expired`, its expiry has come; `revoked`, it has no value any more.

Exit status: 1 when a file of the store is damaged; the others are shown all the same.")]
pub(crate) struct ListArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// Arguments of `latent secret revoke`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  latent secret revoke acme-bus

A running node sees it at once and shows the credential to nobody any more; its own for its broker (--bus) it goes on with until it ends. The \
broker knows nothing of it: change the password there, too.

Exit status: 3 when it is revoked and a power failure may yet undo it.")]
pub(crate) struct RevokeArgs {
    /// The credential
    name: String,
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// When a value expires.
#[derive(Debug, Args)]
struct ExpiresArg {
    /// When it expires: `never`, a duration such as `90d`, `12h` or `30min`, or a time such as `2027-01-31` or `2027-01-31T12:00:00Z`
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
}

/// Where a value comes from.
#[derive(Debug, Args)]
struct ValueArg {
    /// Read the value from this file; from standard input if left out
    #[arg(long, value_name = "FILE")]
    value_file: Option<PathBuf>,
}

/// Runs `latent secret …`.
///
/// # Errors
/// [`CliError`].
pub(crate) fn secret(command: &SecretCommand, output: &mut Output) -> Result<(), CliError> {
    let now = SystemClock::start().unix();
    match command {
        SecretCommand::Put(args) => put(args, now, output),
        SecretCommand::Rotate(args) => rotate(args, now, output),
        SecretCommand::List(args) => list(args, now, output),
        SecretCommand::Revoke(args) => revoke(args, now, output),
    }
}

/// Who shows a credential to whom.
enum Destination {
    Provider(TlsBinding),
    Bus(BusBinding),
}

fn put(args: &PutArgs, now: UnixMillis, output: &mut Output) -> Result<(), CliError> {
    const DOING: &str = "storing the secret";
    let name = name_of(&args.name)?;
    let rule = |option, error: latent_core::CoreError| CliError::Value { option, reason: error.to_string() };
    let destination = match (&args.tenant, &args.provider) {
        (Some(tenant), Some(provider)) => Destination::Provider(TlsBinding {
            tenant: TenantId::parse(tenant).map_err(|error| rule("--tenant", error))?,
            provider: ProviderId::parse(provider).map_err(|error| rule("--provider", error))?,
            server_name: args.server_name.clone(),
            port: args.port,
        }),
        // The parser asks for both or for --bus.
        _ => Destination::Bus(BusBinding::new(&args.server_name, args.port).map_err(|error| rule("--bus", error))?),
    };
    let expires = args.expires.read(now)?.unwrap_or(Expiry::Never);
    let place = Place::of(&args.config)?;
    place.prepare().map_err(|source| failed(DOING, source))?;
    let store = place.open(DOING)?;
    let value = value::read(args.value.value_file.as_deref())?;
    let new = match &destination {
        Destination::Provider(binding) => NewSecret::tls(&name, binding, &value, expires.at()),
        Destination::Bus(binding) => NewSecret::bus(&name, binding, &value, expires.at()),
    };
    let stored = store.put(new, now);
    told(&stored.map_err(|source| failed(DOING, source))?, "stored", now, output)
}

fn rotate(args: &RotateArgs, now: UnixMillis, output: &mut Output) -> Result<(), CliError> {
    const DOING: &str = "rotating the secret";
    let name = name_of(&args.name)?;
    let expires = args.expires.read(now)?;
    let store = Place::of(&args.config)?.open(DOING)?;
    let expires = match expires {
        Some(expires) => expires,
        None if expired_once(&store, &name, DOING)? => {
            let reason = "the value that is to be replaced has an expiry, which the new one does not inherit; say when that one expires, \
                          or `--expires never`";
            return Err(CliError::Value { option: "--expires", reason: reason.to_owned() });
        }
        None => Expiry::Never,
    };
    let value = value::read(args.value.value_file.as_deref())?;
    let rotated = store.rotate(&name, &value, expires.at(), now);
    let rotated = rotated.map_err(|source| failed(DOING, source))?;
    told(&rotated, "rotated", now, output)?;
    tell_of_restart(&rotated, "a running node goes on with the old value, also when it connects again; start it again", output)
}

/// A node reads its own credential for its broker once.
fn tell_of_restart(info: &SecretInfo, words: &str, output: &mut Output) -> Result<(), CliError> {
    if info.purpose == SecretPurpose::BusCredential {
        output.flush()?;
        output.note(&serde_json::json!({ "note": words, "secret": info.name.as_str(), "restart": true }), words);
    }
    Ok(())
}

/// Whether the secret as it is has an expiry. What cannot be read is told by the change itself.
fn expired_once(store: &LocalSecretStore, name: &SecretName, doing: &'static str) -> Result<bool, CliError> {
    let secrets = store.survey().map_err(|source| failed(doing, source))?.secrets;
    Ok(secrets.iter().any(|info| info.name == *name && !info.revoked && info.expires.is_some()))
}

fn list(args: &ListArgs, now: UnixMillis, output: &mut Output) -> Result<(), CliError> {
    const DOING: &str = "listing the secrets";
    let survey = Place::of(&args.config)?.open(DOING)?.survey().map_err(|source| failed(DOING, source))?;
    match output.form() {
        Form::Json => survey.secrets.iter().try_for_each(|info| output.json(&ShownSecret::of(info, now)))?,
        Form::Human => shown::table(&survey.secrets, now).lines().try_for_each(|line| output.text(line))?,
    }
    let mut unreadable = survey.unreadable.into_iter();
    let Some(first) = unreadable.next() else { return Ok(()) };
    for error in unreadable {
        output.note(&serde_json::json!({ "unreadable": { "kind": error.kind(), "message": error.to_string() } }), &error);
    }
    Err(failed(DOING, first))
}

fn revoke(args: &RevokeArgs, now: UnixMillis, output: &mut Output) -> Result<(), CliError> {
    const DOING: &str = "revoking the secret";
    let name = name_of(&args.name)?;
    let revoked = Place::of(&args.config)?.open(DOING)?.revoke(&name, now);
    let revoked = revoked.map_err(|source| failed(DOING, source))?;
    told(&revoked, "revoked", now, output)?;
    tell_of_restart(&revoked, "a running node goes on with it until it ends, and does not start without another one", output)
}

fn told(info: &SecretInfo, done: &str, now: UnixMillis, output: &mut Output) -> Result<(), CliError> {
    output.line(&ShownSecret::of(info, now), || {
        let until = info.expires.filter(|_| !info.revoked).map(|at| format!(", until {}", timestamp_seconds(at.0)));
        let SecretInfo { name, version, server_name, port, .. } = info;
        format!("{done} {name}, version {version}, for {server_name}:{port}{}", until.unwrap_or_default())
    })
}

/// What was given is not repeated: it may be the value, in the wrong place.
fn name_of(text: &str) -> Result<SecretName, CliError> {
    SecretName::parse(text).map_err(|error| CliError::Value { option: "NAME", reason: error.to_string() })
}

fn failed(doing: &'static str, source: SecretError) -> CliError {
    CliError::Secret { doing, source }
}

impl ExpiresArg {
    fn read(&self, now: UnixMillis) -> Result<Option<Expiry>, CliError> {
        let read = self.expires.as_deref().map(|text| Expiry::parse(text, now)).transpose();
        read.map_err(|reason| CliError::Value { option: "--expires", reason })
    }
}

/// Where a configuration says that its secrets are.
struct Place {
    data_dir: PathBuf,
    secrets: SecretsConfig,
}

impl Place {
    fn of(config: &Path) -> Result<Self, CliError> {
        let loaded = config::load(config, NamedFiles::NotNeeded)?.config;
        let secrets = loaded.secrets.ok_or_else(|| CliError::NoSecretStore { config: config.to_owned() })?;
        Ok(Self { data_dir: loaded.node.data_dir, secrets })
    }

    /// Makes the directory, and the data directory when the store is to lie there: secrets may well be the first thing in it.
    fn prepare(&self) -> Result<(), SecretError> {
        if self.secrets.directory.parent() == Some(&self.data_dir) {
            std::fs::create_dir_all(&self.data_dir).map_err(|error| SecretError::Io {
                operation: "making",
                file: self.data_dir.clone(),
                reason: error.to_string(),
            })?;
        }
        LocalSecretStore::prepare(&self.secrets.directory)
    }

    fn open(&self, doing: &'static str) -> Result<LocalSecretStore, CliError> {
        secret_store::open(&self.secrets).map_err(|source| failed(doing, source))
    }
}

/// How a command ends on which the store said this.
pub(crate) const fn status(error: &SecretError) -> ExitStatus {
    match error {
        SecretError::NotDurable { .. } => ExitStatus::Uncertain,
        SecretError::ValueEmpty | SecretError::ValueTooLong | SecretError::Destination { .. } | SecretError::ExpiryPassed { .. } => {
            ExitStatus::Wrong
        }
        _ => ExitStatus::Failed,
    }
}

/// What to do about it.
pub(crate) const fn next_step(error: &SecretError) -> &'static str {
    match error {
        SecretError::Directory { .. } | SecretError::File { .. } => {
            "do what it says and run the command again; `latent secret put` makes a directory that is missing"
        }
        SecretError::Key { .. } => "correct that, or key_file or key_credential in [secrets]; docs/secrets.md says what a key is",
        SecretError::WrongKey { .. } => "correct key_file or key_credential in [secrets]",
        SecretError::Damaged { .. } => "put the file back from a backup; docs/secrets.md says what else can be done",
        SecretError::Locked { .. } => "run the command again when that is done",
        SecretError::Exists { .. } => "use `latent secret rotate` for a new value, or another name",
        SecretError::NotFound { .. } => "see `latent secret list`, and correct the name",
        SecretError::Revoked { .. } => "use `latent secret put`",
        SecretError::ValueEmpty | SecretError::ValueTooLong => "look at the file or command that the value comes from",
        SecretError::Destination { .. } => "correct --server-name or --port",
        SecretError::ExpiryPassed { .. } => "correct --expires",
        SecretError::NotDurable { .. } => "look at the disk and at `latent secret list`; another rotation makes it certain",
        _ => "correct that and run the command again",
    }
}
