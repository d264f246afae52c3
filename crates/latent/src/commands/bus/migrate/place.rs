//! One of the two logs: how it is named, what its manifest is, and how it is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use latent_bridge::{BridgeManifest, EmbeddedBroker, InOrder};

use super::super::location::{identity_in_environment, identity_of_directory, identity_of_node, manifest_for};
use super::HOLDER;
use super::source::{BusSource, NodeSource, Source};
use crate::access::{Access, log_error, open_directory};
use crate::broker;
use crate::config::{self, Config, NamedFiles};
use crate::data_dir::DataDir;
use crate::engine::Engine;
use crate::error::CliError;

const OPENING: &str = "opening the topics on the broker";

/// See the module.
pub(super) enum Place {
    /// An embedded log.
    Directory {
        /// The directory.
        dir: DataDir,
        /// What the configuration says of its topics, which the next start of its node brings in force before anything is archived.
        configured: Option<Box<BridgeManifest>>,
    },
    /// The broker of a node's configuration.
    OfNode(Box<Config>),
    /// The broker that the environment names, with this manifest.
    OfEnvironment(PathBuf),
}

impl Place {
    /// Reads `embedded:DIR`, `nats` or `config:FILE`.
    pub(super) fn parse(option: &'static str, text: &str, manifest: Option<&Path>) -> Result<Self, CliError> {
        if text == Engine::Nats.word() {
            let Some(manifest) = manifest else {
                let reason = format!("with {option} nats the manifest must be named: --manifest bridge.yaml");
                return Err(CliError::Value { option: "--manifest", reason });
            };
            return Ok(Self::OfEnvironment(manifest.to_owned()));
        }
        match text.split_once(':') {
            Some(("embedded", dir)) if !dir.is_empty() => Ok(Self::Directory { dir: DataDir::new(dir.as_ref()), configured: None }),
            Some(("config", file)) if !file.is_empty() => {
                let config = config::load(file.as_ref(), NamedFiles::NotNeeded)?.config;
                if config.engine.broker().is_some() {
                    return Ok(Self::OfNode(Box::new(config)));
                }
                Ok(Self::Directory { dir: DataDir::new(&config.node.data_dir), configured: Some(Box::new(config.engine.manifest)) })
            }
            _ => {
                let reason = format!("{text:?} is neither `embedded:DIR`, nor `nats`, nor `config:FILE`");
                Err(CliError::Value { option, reason })
            }
        }
    }

    /// Whether its manifest must be named beside it.
    pub(super) const fn needs_manifest(&self) -> bool {
        matches!(self, Self::OfEnvironment(_))
    }

    /// What tells it from other logs, across runs. Known before anything is opened.
    pub(super) fn identity(&self) -> Result<String, CliError> {
        Ok(match self {
            Self::Directory { dir, .. } => identity_of_directory(dir),
            Self::OfNode(config) => identity_of_node(config),
            Self::OfEnvironment(file) => identity_in_environment(file)?,
        })
    }

    /// The manifest of its topics.
    pub(super) fn manifest(&self) -> Result<BridgeManifest, CliError> {
        match self {
            Self::Directory { dir, .. } => match EmbeddedBroker::is_provisioned(dir.log()) {
                Ok(false) => Err(CliError::NotProvisioned { dir: dir.log().to_owned() }),
                _ => EmbeddedBroker::manifest_of(dir.log()).map_err(|error| log_error(dir.log(), &error)),
            },
            Self::OfNode(config) => Ok(config.engine.manifest.clone()),
            Self::OfEnvironment(file) => manifest_for(file),
        }
    }

    /// The manifest by which its events will be archived, as a destination that nobody uses.
    pub(super) fn archiving(&self) -> Result<BridgeManifest, CliError> {
        match self {
            Self::Directory { configured: Some(configured), .. } => Ok((**configured).clone()),
            _ => self.manifest(),
        }
    }

    /// Opens it for reading, through the node that has it if there is one.
    pub(super) fn open_source(&self) -> Result<Box<dyn Source>, CliError> {
        Ok(match self {
            Self::Directory { dir, .. } => match Access::try_node(dir)? {
                Some(node) => Box::new(NodeSource::new(node)),
                None => Box::new(BusSource::new(Arc::new(open_directory(dir, HOLDER)?))),
            },
            Self::OfNode(config) => {
                Box::new(BusSource::new(Arc::new(broker::open_to_read(config).map_err(|error| error.during(OPENING))?)))
            }
            Self::OfEnvironment(file) => Box::new(BusSource::new(Arc::new(of_environment(file)?))),
        })
    }

    /// Opens it for writing. A directory must be nobody else's.
    pub(super) fn open_destination(&self) -> Result<Box<dyn InOrder>, CliError> {
        Ok(match self {
            Self::Directory { dir, .. } => {
                Access::refuse_running_node(dir)?;
                Box::new(open_directory(dir, HOLDER)?)
            }
            Self::OfNode(config) => Box::new(broker::open_for_command(config).map_err(|error| error.during(OPENING))?),
            Self::OfEnvironment(file) => Box::new(of_environment(file)?),
        })
    }
}

fn of_environment(file: &Path) -> Result<latent_bridge::NatsBus, CliError> {
    let options = broker::options_from_environment(file)?;
    broker::open_with(options, &manifest_for(file)?).map_err(|error| error.during(OPENING))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_of_three_and_says_what_is_wrong_with_it() {
        let parse = |text: &str, manifest: Option<&str>| Place::parse("--from", text, manifest.map(Path::new));
        assert!(matches!(parse("embedded:data", None), Ok(Place::Directory { .. })));
        assert!(matches!(parse("nats", Some("bridge.yaml")), Ok(Place::OfEnvironment(_))));
        for (text, option) in [
            ("nats", "--manifest"),
            ("embedded:", "--from"),
            ("config:", "--from"),
            ("data", "--from"),
            ("nats:tls://a:1", "--from"),
            ("", "--from"),
        ] {
            assert!(matches!(parse(text, None), Err(CliError::Value { option: told, .. }) if told == option), "{text:?}");
        }
        assert!(matches!(parse("config:/nowhere/latent.toml", None), Err(CliError::Config(_))));
    }

    #[test]
    fn a_directory_is_known_by_its_real_path() {
        let temp = tempfile::tempdir().unwrap();
        let real = temp.path().join("data");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, temp.path().join("link")).unwrap();
        let identity = |name: &str| Place::Directory { dir: DataDir::new(&temp.path().join(name)), configured: None }.identity().unwrap();
        assert_eq!(identity("data"), identity("link"));
        assert_ne!(identity("data"), identity("other"));
    }
}
