//! Which data directory a command is about: named by the configuration or by `--engine`.

use std::path::PathBuf;

use clap::Args;

use crate::access::{Access, without_bindings};
use crate::config::{self, EngineConfig, NamedFiles};
use crate::data_dir::DataDir;
use crate::error::CliError;

/// The arguments every bus command takes.
#[derive(Debug, Args)]
pub(super) struct LocationArgs {
    /// Configuration file of the node
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml", conflicts_with = "engine")]
    config: PathBuf,
    /// The engine itself: `embedded:DIR`, where DIR is a node's data directory
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
}

/// A data directory, and the manifest if the configuration names one.
#[derive(Debug)]
pub(super) struct Location {
    pub(super) dir: DataDir,
    pub(super) manifest: Option<PathBuf>,
}

impl LocationArgs {
    pub(super) fn locate(&self) -> Result<Location, CliError> {
        if let Some(engine) = &self.engine {
            return Ok(Location { dir: directory_of(engine)?, manifest: None });
        }
        let config = config::load(&self.config, NamedFiles::NotNeeded)?.config;
        let EngineConfig::Embedded { manifest_path, .. } = config.engine;
        Ok(Location { dir: DataDir::new(&config.node.data_dir), manifest: Some(manifest_path) })
    }

    /// The way to the data, for a command that others know as `holder` while it has the directory.
    pub(super) fn access(&self, holder: &str) -> Result<Access, CliError> {
        Access::open(&self.locate()?.dir, holder, &without_bindings)
    }
}

fn directory_of(engine: &str) -> Result<DataDir, CliError> {
    if engine == "nats" || engine.starts_with("nats:") {
        return Err(CliError::NotBuilt { what: "the engine nats".to_owned(), instead: "use --engine embedded:DIR or -c latent.toml" });
    }
    match engine.strip_prefix("embedded:") {
        Some(dir) if !dir.is_empty() => Ok(DataDir::new(dir.as_ref())),
        _ => Err(CliError::Value { option: "--engine", reason: format!("{engine:?} is neither `embedded:DIR` nor `nats`") }),
    }
}
