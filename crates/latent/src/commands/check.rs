//! `latent check`: the configuration, offline.

use std::path::PathBuf;

use clap::Args;
use latent_bridge::EmbeddedBroker;
use serde_json::json;

use crate::config::{self, ComponentFiles, Config, EngineConfig};
use crate::engine::engine_options;
use crate::error::CliError;
use crate::output::{Form, Output};

/// Arguments of `latent check`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  latent check -c latent.toml")]
pub(crate) struct CheckArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// The schemas that the manifest names, which `latent run` needs when it brings them into the data directory.
fn check_schemas(config: &Config) -> Result<(), CliError> {
    let EngineConfig::Embedded { manifest, manifest_path: file, .. } = &config.engine;
    let checked = EmbeddedBroker::check_schemas(manifest, &engine_options("latent check", Some(file)));
    checked.map_err(|error| CliError::Manifest { file: file.clone(), reason: error.to_string() })
}

/// Every problem at once, each with its line. With `--json` the document says `valid` either way.
///
/// # Errors
/// [`CliError::Config`].
pub(crate) fn check(args: &CheckArgs, output: &mut Output) -> Result<(), CliError> {
    match config::load(&args.config, ComponentFiles::MustExist) {
        Ok(loaded) => {
            check_schemas(&loaded.config)?;
            if output.form() == Form::Human {
                output.warnings(&loaded.warnings);
            }
            let config = &loaded.config;
            let document = json!({ "valid": true, "problems": [], "warnings": loaded.warnings });
            let (topics, services, triggers) = (config.topics.len(), config.services.len(), config.triggers.len());
            let warnings = loaded.warnings.len();
            output.line(&document, || {
                let counts = format!("topics: {topics}, services: {services}, triggers: {triggers}, warnings: {warnings}");
                format!("{} is valid ({counts})", config.path.display())
            })
        }
        Err(error) => {
            if output.form() == Form::Json {
                output.json(&json!({ "valid": false, "problems": error.problems, "warnings": [] }))?;
            }
            Err(error.into())
        }
    }
}
