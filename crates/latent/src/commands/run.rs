//! `latent run`: the node, until it is told to stop.

use std::path::PathBuf;

use clap::Args;

use crate::config::{self, ComponentFiles};
use crate::error::CliError;
use crate::node;
use crate::output::Output;

/// Arguments of `latent run`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  latent run -c latent.toml")]
pub(crate) struct RunArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// Checks the configuration as `latent check` does, then runs the node.
///
/// # Errors
/// [`CliError::Config`] before anything is started; [`CliError::Node`] and [`CliError::Held`] of the node.
pub(crate) fn run(args: &RunArgs, output: &mut Output) -> Result<(), CliError> {
    let loaded = config::load(&args.config, ComponentFiles::MustExist)?;
    output.warnings(&loaded.warnings);
    node::run(loaded.config, output)
}
