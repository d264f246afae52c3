//! Which log a command is about: named by the configuration or by `--engine`.

use std::path::{Path, PathBuf};

use clap::Args;
use latent_bridge::manifest::ColdFormat;
use latent_bridge::{BridgeManifest, EmbeddedBroker, NatsBus, TopicSpec};

use crate::access::{Access, without_bindings};
use crate::broker::{self, BrokerError};
use crate::config::{self, Config, EngineConfig, NamedFiles, read_manifest};
use crate::data_dir::DataDir;
use crate::engine::Engine;
use crate::error::CliError;

/// Whether a broker's event of this topic is archived when it is published, which takes a control key. Segments are made by a node later.
pub(super) fn is_archived_at_once(topic: &TopicSpec) -> bool {
    topic.retention.cold_uri.is_some() && topic.retention.cold_format != Some(ColdFormat::Segments)
}

/// The option of an engine that has no control key, for an error.
pub(crate) const KEYLESS: &str = "--engine nats";

/// The log of a data directory, by its real path.
pub(super) fn identity_of_directory(dir: &DataDir) -> String {
    let path = std::fs::canonicalize(dir.log()).unwrap_or_else(|_| dir.log().to_owned());
    format!("embedded:{}", path.display())
}

/// The topics on the broker of a configuration.
pub(super) fn identity_of_node(config: &Config) -> String {
    let address = config.engine.broker().map(|broker| broker.peer.address().to_string()).unwrap_or_default();
    format!("nats:tls://{address}/{}", config.engine.manifest.name)
}

/// The topics on the broker of the environment, with this manifest.
pub(super) fn identity_in_environment(file: &Path) -> Result<String, CliError> {
    // The environment first: without it no file is worth a look.
    let servers = broker::options_from_environment(file)?.servers.join(",");
    Ok(format!("nats:{servers}/{}", manifest_for(file)?.name))
}

/// The arguments every bus command takes.
#[derive(Debug, Args)]
pub(crate) struct LocationArgs {
    /// Configuration file of the node
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml", conflicts_with = "engine")]
    config: PathBuf,
    /// The engine itself: `embedded:DIR`, where DIR is a node's data directory, or `nats`, the broker that AV_NATS_URL names
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// The manifest of the topics: with `--engine nats`, and with `provision`
    #[arg(long, value_name = "FILE")]
    pub(super) manifest: Option<PathBuf>,
}

/// Where a log is.
#[derive(Debug)]
pub(super) enum Location {
    /// In a data directory. The manifest is the one that the configuration names.
    Directory {
        /// The directory.
        dir: DataDir,
        /// Its node's manifest.
        manifest: Option<PathBuf>,
    },
    /// On the broker of a node's configuration.
    NodeOnBroker(Box<Config>),
    /// On the broker that the environment names, with this manifest.
    Broker(PathBuf),
}

impl LocationArgs {
    pub(super) fn locate(&self) -> Result<Location, CliError> {
        if let Some(engine) = &self.engine {
            return self.of_engine(engine);
        }
        let config = config::load(&self.config, NamedFiles::NotNeeded)?.config;
        if config.engine.broker().is_some() {
            return Ok(Location::NodeOnBroker(Box::new(config)));
        }
        let EngineConfig { manifest_path, .. } = config.engine;
        Ok(Location::Directory { dir: DataDir::new(&config.node.data_dir), manifest: Some(manifest_path) })
    }

    fn of_engine(&self, engine: &str) -> Result<Location, CliError> {
        if engine == Engine::Nats.word() {
            let Some(manifest) = &self.manifest else {
                let reason = "with --engine nats the manifest must be named: --manifest bridge.yaml".to_owned();
                return Err(CliError::Value { option: "--manifest", reason });
            };
            return Ok(Location::Broker(manifest.clone()));
        }
        let wrong = |reason: String| Err(CliError::Value { option: "--engine", reason });
        match engine.split_once(':') {
            Some(("embedded", dir)) if !dir.is_empty() => Ok(Location::Directory { dir: DataDir::new(dir.as_ref()), manifest: None }),
            Some(("nats", _)) => wrong("the broker of `--engine nats` is named by AV_NATS_URL in the environment".to_owned()),
            _ => wrong(format!("{engine:?} is neither `embedded:DIR` nor `nats`")),
        }
    }

    /// As [`LocationArgs::locate`], for a command that looks at a log as it is.
    pub(super) fn locate_existing(&self) -> Result<Location, CliError> {
        let location = self.locate()?;
        if self.manifest.is_some() && !matches!(location, Location::Broker(_)) {
            let reason = "this log has its manifest; --manifest goes with --engine nats, and with `latent bus provision`".to_owned();
            return Err(CliError::Value { option: "--manifest", reason });
        }
        Ok(location)
    }

    /// What the topics are, as far as manifests say it: the configuration's or the one that is named, and what is in force in a directory.
    pub(crate) fn manifests(&self) -> Result<Vec<BridgeManifest>, CliError> {
        match self.locate_existing()? {
            Location::Broker(file) => Ok(vec![manifest_for(&file)?]),
            Location::NodeOnBroker(config) => Ok(vec![config.engine.manifest]),
            Location::Directory { dir, manifest } => {
                let named = manifest.map(|file| manifest_for(&file)).transpose()?;
                // A changed manifest is applied by the next start, before anything of the directory is archived. Of a directory that is not
                // provisioned yet, or cannot be read, opening it says more.
                let is_in_force = named.is_none() || Access::try_node(&dir)?.is_some();
                let kept = if is_in_force { EmbeddedBroker::manifest_of(dir.log()).ok() } else { None };
                Ok(named.into_iter().chain(kept).collect())
            }
        }
    }

    /// What tells the log from others, across runs. Nothing is opened.
    pub(crate) fn identity(&self) -> Result<String, CliError> {
        Ok(match self.locate_existing()? {
            Location::Directory { dir, .. } => identity_of_directory(&dir),
            Location::NodeOnBroker(config) => identity_of_node(&config),
            Location::Broker(file) => identity_in_environment(&file)?,
        })
    }

    /// Refuses to publish to a topic whose events are archived one by one, where there is no control key to do that with: at once, and not event
    /// by event.
    pub(crate) fn refuse_archived(&self, topic: &str) -> Result<(), CliError> {
        let Location::Broker(file) = self.locate_existing()? else { return Ok(()) };
        let manifest = manifest_for(&file)?;
        if !manifest.topics.iter().filter(|spec| is_archived_at_once(spec)).any(|spec| spec.name == topic) {
            return Ok(());
        }
        let reason = format!("topic {topic:?} has a cold_uri, and --engine nats has no control key to archive its events with");
        Err(CliError::Value { option: KEYLESS, reason })
    }

    /// Files of the control keys of the configuration, if there is one.
    pub(crate) fn control_key_files(&self) -> Result<Vec<PathBuf>, CliError> {
        if self.engine.is_some() {
            return Ok(Vec::new());
        }
        Ok(config::load(&self.config, NamedFiles::NotNeeded)?.config.archive.control_key_files)
    }

    /// The way to the data, for a command that others know as `holder` while it has the directory.
    pub(crate) fn access(&self, holder: &str) -> Result<Access, CliError> {
        self.locate_existing()?.access(holder)
    }

    /// As [`LocationArgs::access`], for a command that only reads: it leaves the archive's outbox to who publishes.
    pub(crate) fn access_to_read(&self, holder: &str) -> Result<Access, CliError> {
        self.locate_existing()?.access_to_read(holder)
    }
}

impl Location {
    /// The way to the data.
    pub(super) fn access(&self, holder: &str) -> Result<Access, CliError> {
        self.access_by(holder, broker::open_for_command)
    }

    /// As [`Location::access`], for a command that only reads.
    pub(super) fn access_to_read(&self, holder: &str) -> Result<Access, CliError> {
        self.access_by(holder, broker::open_to_read)
    }

    fn access_by(&self, holder: &str, open: fn(&Config) -> Result<NatsBus, BrokerError>) -> Result<Access, CliError> {
        match self {
            Self::Directory { dir, .. } => Access::open(dir, holder, &without_bindings),
            Self::NodeOnBroker(config) => {
                if let Some(node) = Access::try_node(&DataDir::new(&config.node.data_dir))? {
                    return Ok(Access::Node(node));
                }
                let opened = open(config);
                Access::to_broker(opened.map_err(|error| error.during(OPENING))?)
            }
            Self::Broker(file) => {
                // The environment first: without it no file is worth a look.
                let options = broker::options_from_environment(file)?;
                let opened = broker::open_with(options, &manifest_for(file)?);
                Access::to_broker(opened.map_err(|error| error.during(OPENING))?)
            }
        }
    }
}

const OPENING: &str = "opening the topics on the broker";

/// Reads a manifest that is named on the command line.
pub(super) fn manifest_for(file: &Path) -> Result<BridgeManifest, CliError> {
    read_manifest(file).map_err(|refusal| CliError::Manifest { file: file.to_owned(), reason: refusal.to_string() })
}
