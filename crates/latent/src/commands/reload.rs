//! `latent reload`: a running node takes its configuration in again.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::access::{Access, unexpected};
use crate::config::{self, NamedFiles};
use crate::control::{Answer, ControlError, ReloadOrder, Reloaded, Request};
use crate::data_dir::DataDir;
use crate::error::CliError;
use crate::limits;
use crate::output::Output;

/// Arguments of `latent reload`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent reload -c latent.toml --dry-run
  latent reload -c latent.toml --expect-epoch 3 --json

The node reads the file it was started with: services, grants, triggers and the owners of topics are taken in, all of them or none. A \
service whose component's file holds another component gets a new publication; what runs ends on the old one. A changed trigger ends what \
it has begun and goes on where it was. What only a start can take in ([node], [engine], [limits], the manifest) is refused with its name.

Exit status: 0 if the configuration is in force or nothing differs, 1 if it was refused and nothing changed, 2 if the file is wrong, 3 if \
the node did not answer.")]
pub(crate) struct ReloadArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
    /// Show what differs and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Only if the configuration in force has this epoch
    #[arg(long, value_name = "EPOCH")]
    expect_epoch: Option<u64>,
}

const DOING: &str = "the reload";

/// Runs `latent reload`.
///
/// # Errors
/// [`CliError::Config`] for a wrong file; [`CliError::Node`] when no node runs; [`CliError::Log`] with the node's reason.
pub(crate) fn reload(args: &ReloadArgs, output: &mut Output) -> Result<(), CliError> {
    // Looked at here too, so that a mistake is told with its lines.
    let config = config::load(&args.config, NamedFiles::ComponentsMustExist)?.config;
    let Some(mut client) = Access::try_node(&DataDir::new(&config.node.data_dir))? else {
        return Err(CliError::Node {
            what: "there is nothing to reload".to_owned(),
            why: format!("no node is running on {}", config.node.data_dir.display()),
            next: "start the node, which reads the configuration".to_owned(),
        });
    };
    let file = args.config.canonicalize().ok().map(|path| path.display().to_string());
    let order = ReloadOrder { expected_epoch: args.expect_epoch, dry_run: args.dry_run, file };
    client.wait_for_answers(Duration::from_millis(limits::RELOAD_WAIT_MILLIS.default));
    let reloaded = match client.call(Request::Reload(order)) {
        Ok(Answer::Reloaded(reloaded)) => reloaded,
        Ok(_) => return Err(unexpected(DOING)),
        Err(ControlError::Refused(fault)) => return Err(CliError::Log { doing: DOING.to_owned(), fault }),
        Err(source) if source.may_have_happened() => return Err(CliError::Unanswered { doing: DOING.to_owned(), source }),
        Err(source) => return Err(CliError::Control { doing: DOING.to_owned(), source }),
    };
    output.line(&reloaded, || sentences(&reloaded, args.dry_run))
}

fn sentences(reloaded: &Reloaded, dry_run: bool) -> String {
    let Reloaded { file, epoch, changes, .. } = reloaded;
    let mut lines: Vec<_> = changes.iter().map(ToString::to_string).collect();
    lines.push(match (changes.is_empty(), dry_run) {
        (true, _) => format!("the node runs what {file} says; epoch {epoch}"),
        (false, true) => format!("nothing was changed; epoch {epoch} is in force"),
        (false, false) => format!("{file} is in force; epoch {epoch}"),
    });
    lines.extend(reloaded.notes.iter().cloned());
    lines.join("\n")
}
