//! `latent check`: the configuration, offline.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::config::{self, NamedFiles};
use crate::error::CliError;
use crate::output::{Form, Output};

/// Arguments of `latent check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  latent check -c latent.toml

It looks at the configuration, its manifest, schemas and components, not into the data directory: what `latent run` refuses because of what \
is stored there, such as a topic that was left out, only `latent run` tells.")]
pub(crate) struct CheckArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// Every problem at once, each with its line. With `--json` the document says `valid` either way.
///
/// # Errors
/// [`CliError::Config`].
pub(crate) fn check(args: &CheckArgs, output: &mut Output) -> Result<(), CliError> {
    match config::load(&args.config, NamedFiles::MustExist) {
        Ok(loaded) => {
            if output.form() == Form::Human {
                output.warnings(&loaded.warnings);
            }
            let config = &loaded.config;
            let document = json!({ "valid": true, "problems": [], "warnings": loaded.warnings });
            let (topics, services, triggers) = (config.topics.len(), config.services.len(), config.trigger_count());
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
