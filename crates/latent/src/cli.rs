//! The words of the command line.

use clap::{Args, Parser, Subcommand};

use crate::commands::bus::BusCommand;
use crate::commands::check::CheckArgs;
use crate::commands::completions::CompletionsArgs;
use crate::commands::new::NewArgs;
use crate::commands::run::RunArgs;
use crate::commands::trigger::TriggerCommand;
use crate::error::CliError;

/// WebAssembly functions on durable event streams
#[derive(Debug, Parser)]
#[command(
    name = "latent",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Examples:\n  latent new triage --lang rust\n  latent run -c latent.toml\n  latent bus tail triage.results --from-start\n\n\
                  Exit status: 0 done, 1 the operation failed, 2 the command or configuration is wrong, 3 the operation may have happened."
)]
pub(crate) struct Cli {
    /// Print JSON for machines: one document, or one object a line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a node until SIGTERM or SIGINT
    Run(RunArgs),
    /// Check a configuration: every problem at once, each with its line
    Check(CheckArgs),
    /// Make a function's project that builds and runs as it is
    New(NewArgs),
    /// Publish to and read from the log behind the topics
    #[command(subcommand, after_help = "Example:\n  latent bus topics -c latent.toml")]
    Bus(BusCommand),
    /// See what the triggers do
    #[command(subcommand, after_help = "Example:\n  latent trigger status -c latent.toml")]
    Trigger(TriggerCommand),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// A command of a later version
    #[command(flatten)]
    Later(LaterCommand),
}

/// Commands that are planned. They answer that they are not built, instead of looking like a typing mistake.
#[derive(Debug, Subcommand)]
pub(crate) enum LaterCommand {
    /// Not built in this version
    #[command(hide = true)]
    Dev(LaterArgs),
    /// Not built in this version
    #[command(hide = true)]
    Invoke(LaterArgs),
    /// Not built in this version
    #[command(hide = true)]
    Archive(LaterArgs),
    /// Not built in this version
    #[command(hide = true)]
    Deadletter(LaterArgs),
    /// Not built in this version
    #[command(hide = true)]
    Broker(LaterArgs),
    /// Not built in this version
    #[command(hide = true)]
    Secret(LaterArgs),
    /// Not built in this version
    #[command(hide = true)]
    Bench(LaterArgs),
    /// Not built in this version
    #[command(hide = true)]
    Service(LaterArgs),
    /// Not built in this version
    #[command(hide = true)]
    Reload(LaterArgs),
    /// Not built in this version
    #[command(hide = true)]
    Clock(LaterArgs),
    /// Not built in this version
    #[command(hide = true)]
    Why(LaterArgs),
    /// Not built in this version
    #[command(hide = true)]
    Test(LaterArgs),
}

/// Whatever follows.
#[derive(Debug, Args)]
pub(crate) struct LaterArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<String>,
}

impl LaterCommand {
    /// As it was typed.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Dev(_) => "dev",
            Self::Invoke(_) => "invoke",
            Self::Archive(_) => "archive",
            Self::Deadletter(_) => "deadletter",
            Self::Broker(_) => "broker",
            Self::Secret(_) => "secret",
            Self::Bench(_) => "bench",
            Self::Service(_) => "service",
            Self::Reload(_) => "reload",
            Self::Clock(_) => "clock",
            Self::Why(_) => "why",
            Self::Test(_) => "test",
        }
    }
}

/// The parser's message in three lines: what it says first, its hint or else the form of the command, and which help to read.
pub(crate) fn usage_error(rendered: &str) -> CliError {
    let lines: Vec<_> = rendered.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let usage = lines.iter().find_map(|line| line.strip_prefix("Usage: "));
    let tip = lines.iter().find_map(|line| line.strip_prefix("tip: "));
    // A list of missing arguments or possible values follows the first line, indented.
    let first: Vec<_> = lines.iter().take_while(|line| !line.starts_with("tip: ") && !line.starts_with("Usage: ")).copied().collect();
    let what = first.join(" ").trim_start_matches("error: ").to_owned();
    let why = match (tip, usage) {
        (Some(tip), _) => tip.to_owned(),
        (None, Some(usage)) => format!("the form is: {usage}"),
        (None, None) => "it is not a form of this command".to_owned(),
    };
    let words = usage.unwrap_or("latent").split_whitespace().take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
    let command = words.collect::<Vec<_>>().join(" ");
    CliError::Usage { what, why, next: format!("see `{command} --help`") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn three_lines(words: &[&str]) -> (String, String, String) {
        let error = Cli::try_parse_from(words).unwrap_err();
        let error = usage_error(&error.render().to_string());
        (error.to_string(), error.why(), error.next_step())
    }

    #[test]
    fn a_wrong_command_is_told_in_three_lines() {
        let (what, why, next) = three_lines(&["latent", "bus", "publish", "t", "--fiel", "f"]);
        assert!(what.contains("--fiel") && why.contains("--file"), "{what} {why}");
        assert_eq!(next, "see `latent bus publish --help`");
        let (what, why, next) = three_lines(&["latent", "bus", "publish", "t"]);
        assert!(what.contains("--file") && why.starts_with("the form is: latent bus publish"), "{what} {why}");
        assert_eq!(next, "see `latent bus publish --help`");
        let (what, _, next) = three_lines(&["latent", "busy"]);
        assert!(what.contains("busy"), "{what}");
        assert_eq!(next, "see `latent --help`");
    }

    #[test]
    fn every_command_that_is_shown_has_an_example() {
        fn walk(command: &clap::Command, path: &str) {
            let shown = !command.is_hide_set() && command.get_name() != "help";
            if shown {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example"), "{path} {} has no example", command.get_name());
                command.get_subcommands().for_each(|inner| walk(inner, &format!("{path} {}", command.get_name())));
            }
        }
        Cli::command().debug_assert();
        walk(&Cli::command(), "");
    }
}
