//! Opening the broker behind topics: for a node and its commands as the configuration says, with the credential from the secret store;
//! for commands without a node as the environment says. The two never mix.

use std::env::VarError;
use std::path::{Path, PathBuf};

use latent_bridge::nats_bus::{NatsCredentials, NatsOptions, NatsRoots};
use latent_bridge::{BridgeManifest, BusError, NatsBus};
use latent_core::{Clock as _, SystemClock};
use latent_secrets::{BindError, BusBinding, SecretError};

use crate::archive_keys;
use crate::config::Config;
use crate::control::Fault;
use crate::error::CliError;
use crate::secret_store;

/// The broker of commands without a node.
pub(crate) const URL: &str = "AV_NATS_URL";
/// Who asks.
pub(crate) const USER: &str = "AV_NATS_USER";
/// The password of who asks.
pub(crate) const PASSWORD: &str = "AV_NATS_PASSWORD";
/// What goes with [`URL`].
pub(crate) const WHERE: [&str; 2] = ["AV_NATS_CA_FILE", "AV_NATS_TLS_FIRST"];

/// In the bus's words where provisioning mends what it found.
const BY_PROVISIONING: &str = "by provisioning it";

/// What of the environment cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EnvironmentFault {
    /// It does not say which broker.
    Broker,
    /// It does not say who the operator is, or names somebody who must not be it.
    Operator,
    /// One of its variables, which the reason names.
    Variable,
}

impl EnvironmentFault {
    /// The end of a command, with the reason.
    pub(crate) fn because(self, reason: String) -> CliError {
        CliError::Environment { fault: self, reason }
    }

    /// What failed.
    pub(crate) const fn what(self) -> &'static str {
        match self {
            Self::Broker => "the broker is not known",
            Self::Operator => "the operator of the broker is not known",
            Self::Variable => "the environment cannot be used",
        }
    }

    /// What to do about it.
    pub(crate) const fn next_step(self) -> &'static str {
        match self {
            Self::Broker => {
                "set AV_NATS_URL to the broker, such as nats://nats.example.net:4222, and where it asks for them AV_NATS_CA_FILE, AV_NATS_USER \
                 with AV_NATS_PASSWORD, and AV_NATS_TLS_FIRST; docs/bus.md says what they are"
            }
            Self::Operator => {
                "set AV_NATS_USER and AV_NATS_PASSWORD to those of an operator; `latent broker permissions` prints what that user may do, and \
                 docs/bus.md says what the variables are"
            }
            Self::Variable => "correct what it names, or take it out of the environment; docs/bus.md says what each variable is",
        }
    }
}

/// Why the broker could not be opened. Nothing was published or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BrokerError {
    /// The store of secrets cannot be used.
    #[error(transparent)]
    Store(#[from] SecretError),
    /// The credential cannot be used.
    #[error(transparent)]
    Credential(#[from] BindError),
    /// The credential is no password.
    #[error("the secret {name} is not UTF-8 text, which a password on a broker is")]
    NotText {
        /// Its name.
        name: String,
    },
    /// A control key of the archive.
    #[error("a control key of the archive cannot be used: {0}")]
    ControlKey(SecretError),
    /// There are no secrets, or no broker.
    #[error("{0}")]
    Configuration(&'static str),
    /// Another process has the outbox of the topics that are archived.
    #[error("the archive's outbox {} is held by {holder}, and two nodes on one outbox would publish each other's events", outbox.display())]
    Outbox {
        /// Where it is.
        outbox: PathBuf,
        /// Who has it, in its own words.
        holder: String,
    },
    /// The broker, or what is on it.
    #[error("{error}")]
    Bus {
        /// What the bus says.
        error: BusError,
        /// Where the broker is.
        place: String,
        /// Who we are there; `None`: nobody.
        user: Option<String>,
    },
}

impl BrokerError {
    /// The name used in machine-readable output and `docs/errors.md`.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Store(error) | Self::ControlKey(error) => error.kind(),
            Self::Credential(_) | Self::NotText { .. } | Self::Configuration(_) => "bus-credential",
            Self::Outbox { .. } => "outbox-in-use",
            Self::Bus { error, .. } => error.kind(),
        }
    }

    /// True when the broker may be there another time, with nothing changed here.
    pub(crate) const fn may_pass(&self) -> bool {
        matches!(self, Self::Bus { error, .. } if !error.is_permanent())
    }

    /// What to do about it.
    pub(crate) fn next_step(&self) -> String {
        match self {
            Self::Store(_) => "see to the store of secrets; `latent secret put --bus` makes one that is missing".to_owned(),
            Self::ControlKey(_) => "correct the file, or control_key_files in [archive]; docs/archive.md shows how to make a key".to_owned(),
            Self::Credential(_) => {
                "store it with `latent secret put NAME --bus --server-name … --port …`; `latent secret list` shows what there is".to_owned()
            }
            Self::NotText { .. } => "store the password itself with `latent secret rotate`".to_owned(),
            Self::Configuration(_) => "correct [engine] and [secrets] in the configuration".to_owned(),
            Self::Outbox { .. } => "stop that process, or give this one an outbox of its own: AV_COLD_OUTBOX_DIR names it, and without it the \
                                    outbox is below data_dir"
                .to_owned(),
            Self::Bus { error: BusError::Config { problem }, .. } if problem.contains(BY_PROVISIONING) => {
                "correct what it names; an operator makes streams that are missing: `latent broker provision -c FILE`, or `latent bus provision \
                 --engine nats` without a configuration".to_owned()
            }
            Self::Bus { error: BusError::Config { .. }, .. } => "correct what it names and run it again".to_owned(),
            Self::Bus { place, user, .. } => {
                let user = user.as_ref().map_or_else(
                    || "somebody without a name may use it".to_owned(),
                    |user| format!("user {user:?} has this password and may do what `latent broker permissions` prints"),
                );
                format!("see that the broker runs at {place} and that {user}, then run it again")
            }
        }
    }
}

impl BrokerError {
    /// The end of a command that was `doing` something.
    pub(crate) fn during(self, doing: &str) -> CliError {
        CliError::Broker { doing: doing.to_owned(), source: Box::new(self) }
    }
}

impl From<BrokerError> for Fault {
    fn from(error: BrokerError) -> Self {
        Self { permanent: !error.may_pass(), ..Self::refused(error.kind(), error.to_string()) }
    }
}

/// Opens the bus of a configuration for its node, and changes nothing on the broker.
///
/// # Errors
/// [`BrokerError`].
pub(crate) fn open(config: &Config) -> Result<NatsBus, BrokerError> {
    open_archiving(config, true)
}

/// As [`open`], for a command: a cold store is not touched before something is written to it, so whoever only looks leaves nothing there.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_for_command(config: &Config) -> Result<NatsBus, BrokerError> {
    open_archiving(config, false)
}

/// As [`open`], for who only reads: the outbox of archived topics belongs to who publishes to them, a running node, and is left alone.
///
/// # Errors
/// [`BrokerError`].
pub(crate) fn open_to_read(config: &Config) -> Result<NatsBus, BrokerError> {
    open_with(options_of(config)?, &config.engine.manifest)
}

fn open_archiving(config: &Config, probes_at_start: bool) -> Result<NatsBus, BrokerError> {
    let mut archive = archive_keys::options_on_broker(config).map_err(BrokerError::ControlKey)?;
    archive.probes_at_start = probes_at_start;
    open_with(NatsOptions { archive: Some(archive), ..options_of(config)? }, &config.engine.manifest)
}

/// Options without an archive.
fn options_of(config: &Config) -> Result<NatsOptions, BrokerError> {
    let broker = config.engine.broker().ok_or(BrokerError::Configuration("the configuration has no broker"))?;
    let secrets = config.secrets.as_ref().ok_or(BrokerError::Configuration("the configuration has no [secrets]"))?;
    let (peer, credential) = (&broker.peer, &broker.bus_credential);
    let store = secret_store::open(secrets)?;
    let binding = BusBinding::new(peer.server_name(), peer.address().port());
    let binding = binding.map_err(|_| BrokerError::Configuration("the server's name cannot be bound"))?;
    let secret = store.resolve_bus_credential(&credential.secret, &binding, SystemClock::start().unix())?;
    let password = std::str::from_utf8(secret.value()).map_err(|_| BrokerError::NotText { name: credential.secret.to_string() })?;
    let mut options = NatsOptions::new(&format!("tls://{}", peer.address()));
    options.credentials = Some(NatsCredentials::UserPassword { user: credential.user.clone(), password: password.to_owned() });
    options.roots = NatsRoots::Der(peer.roots().map(<[u8]>::to_vec).collect());
    options.server_name = Some(peer.server_name().to_owned());
    options.tls_first = broker.tls_first;
    options.connection_name = format!("latent-{}", config.node.name);
    options.archive = None;
    Ok(with_manifest(options, &config.engine.manifest_path))
}

/// What the environment says of the broker, for a manifest in that file.
///
/// # Errors
/// [`CliError::Environment`] naming the variable and what to set it to.
pub(crate) fn options_from_environment(manifest: &Path) -> Result<NatsOptions, CliError> {
    let url = url_of(std::env::var(URL)).map_err(|reason| EnvironmentFault::Broker.because(reason))?;
    let told = |error: BusError| if let BusError::Config { problem } = error { problem } else { error.to_string() };
    let options = NatsOptions::from_environment(&url).map_err(|error| {
        let reason = told(error);
        let fault = if reason.starts_with("AV_NATS_") { EnvironmentFault::Variable } else { EnvironmentFault::Broker };
        fault.because(reason)
    })?;
    if options.roots != NatsRoots::System {
        let [ca_file, _] = WHERE;
        options.check().map_err(|error| EnvironmentFault::Variable.because(format!("{ca_file}: {}", told(error))))?;
    }
    // There is no control key in an environment, so nothing is archived from here.
    Ok(with_manifest(NatsOptions { connection_name: "latent-bus".to_owned(), archive: None, ..options }, manifest))
}

/// The broker's address, or why there is none (D-19).
fn url_of(variable: Result<String, VarError>) -> Result<String, String> {
    match variable {
        Ok(url) if url.is_empty() => Err(format!("{URL} is set and empty")),
        Ok(url) => Ok(url),
        Err(VarError::NotUnicode(_)) => Err(format!("{URL} is not UTF-8")),
        Err(VarError::NotPresent) => Err(format!("{URL} is not set")),
    }
}

/// Opens a bus with these options; the error names where it was sought.
///
/// # Errors
/// [`BrokerError::Bus`].
pub(crate) fn open_with(options: NatsOptions, manifest: &BridgeManifest) -> Result<NatsBus, BrokerError> {
    let place = Place::named_in(&options);
    let outbox = options.archive.as_ref().and_then(|archive| archive.outbox.clone());
    NatsBus::open_with(options, manifest).map_err(|error| match error {
        BusError::OutboxInUse { outbox: name, holder } => BrokerError::Outbox { outbox: outbox.unwrap_or_else(|| name.into()), holder },
        error => place.failed(error),
    })
}

/// Where a broker is sought, and as whom: for errors about it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    place: String,
    user: Option<String>,
}

impl Place {
    /// That of these options.
    pub(crate) fn named_in(options: &NatsOptions) -> Self {
        let user = match &options.credentials {
            Some(NatsCredentials::UserPassword { user, .. }) => Some(user.clone()),
            Some(NatsCredentials::Token(_)) | None => None,
        };
        Self { place: options.servers.join(", "), user }
    }

    /// What the bus says of it.
    pub(crate) fn failed(&self, error: BusError) -> BrokerError {
        BrokerError::Bus { error, place: self.place.clone(), user: self.user.clone() }
    }
}

/// Schemas that the manifest refers to lie in its folder.
pub(crate) fn with_manifest(options: NatsOptions, manifest: &Path) -> NatsOptions {
    // A bare file name has the empty path as its parent, which names the working directory.
    match manifest.parent() {
        Some(folder) => options.with_manifest_folder(folder),
        None => options,
    }
}

#[cfg(test)]
mod tests {
    use std::env::VarError;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;

    use super::url_of;

    #[test]
    fn an_address_that_is_empty_or_no_text_is_told_as_that_and_never_as_unset() {
        assert_eq!(url_of(Ok("tls://a:4222".to_owned())).as_deref(), Ok("tls://a:4222"));
        assert_eq!(url_of(Ok(String::new())), Err("AV_NATS_URL is set and empty".to_owned()));
        assert_eq!(url_of(Err(VarError::NotPresent)), Err("AV_NATS_URL is not set".to_owned()));
        let no_text = OsString::from_vec(vec![0xff]);
        assert_eq!(url_of(Err(VarError::NotUnicode(no_text))), Err("AV_NATS_URL is not UTF-8".to_owned()));
    }
}
