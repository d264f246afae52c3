//! `latent completions`: a script for the shell.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::error::CliError;
use crate::output::Output;

/// Arguments of `latent completions`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  mkdir -p ~/.local/share/bash-completion/completions\n  latent completions bash > ~/.local/share/bash-completion/completions/latent"
)]
pub(crate) struct CompletionsArgs {
    /// The shell to write for
    shell: Shell,
}

/// Prints the script.
///
/// # Errors
/// [`CliError::Output`].
pub(crate) fn completions(args: &CompletionsArgs, output: &mut Output) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "latent", &mut script);
    output.text(String::from_utf8_lossy(&script).trim_end())
}
