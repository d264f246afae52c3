//! `latent run`: the node, until it is told to stop.

use std::path::PathBuf;

use clap::Args;

use crate::config::{self, NamedFiles};
use crate::error::CliError;
use crate::node;
use crate::output::Output;

/// Arguments of `latent run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent run -c latent.toml
  LATENT_LOG=debug latent run -c latent.toml
  LATENT_LOG=info,guest=debug latent run -c latent.toml

LATENT_LOG chooses what the node writes to standard error: a level (error, warn, info, debug, trace), or levels for parts of it; what \
functions say is the part `guest`. It is info unless set.")]
pub(crate) struct RunArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// Checks the configuration as `latent check` does, schemas apart, then runs the node.
///
/// # Errors
/// [`CliError::Config`] before anything is started; [`CliError::Node`] and [`CliError::Held`] of the node.
pub(crate) fn run(args: &RunArgs, output: &mut Output) -> Result<(), CliError> {
    let loaded = config::load(&args.config, NamedFiles::ComponentsMustExist)?;
    output.warnings(&loaded.warnings);
    node::run(loaded.config, output)
}
