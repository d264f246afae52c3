//! The words of the command line.

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::commands::archive::ArchiveCommand;
use crate::commands::bench::BenchCommand;
use crate::commands::broker::BrokerCommand;
use crate::commands::bus::BusCommand;
use crate::commands::check::CheckArgs;
use crate::commands::clock::ClockCommand;
use crate::commands::completions::CompletionsArgs;
use crate::commands::deadletter::DeadletterCommand;
use crate::commands::dev::DevArgs;
use crate::commands::invoke::InvokeArgs;
use crate::commands::new::NewArgs;
use crate::commands::reload::ReloadArgs;
use crate::commands::run::RunArgs;
use crate::commands::secret::SecretCommand;
use crate::commands::service::ServiceCommand;
use crate::commands::trigger::TriggerCommand;
use crate::commands::why::WhyArgs;
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
    /// Run an application while it is written: build what changes, take it in, show each activation
    Dev(DevArgs),
    /// Check a configuration: every problem at once, each with its line
    Check(CheckArgs),
    /// Make a function's project that builds and runs as it is
    New(NewArgs),
    /// Let a running node take its configuration in again
    Reload(ReloadArgs),
    /// Run a function once and print its result
    Invoke(InvokeArgs),
    /// Publish to and read from the log behind the topics
    #[command(subcommand, after_help = "Example:\n  latent bus topics -c latent.toml")]
    Bus(BusCommand),
    /// See what the triggers do
    #[command(subcommand, after_help = "Example:\n  latent trigger status -c latent.toml")]
    Trigger(TriggerCommand),
    /// See which events will not run again and why, and publish them again
    #[command(subcommand, after_help = "Example:\n  latent deadletter list -c latent.toml")]
    Deadletter(DeadletterCommand),
    /// Tell what became of one event: runs, outputs, dead letters, replays
    Why(WhyArgs),
    /// See what may be called, point routes, revoke for good
    #[command(subcommand, after_help = "Example:\n  latent service list -c latent.toml")]
    Service(ServiceCommand),
    /// Keep credentials, sealed, for the providers that show them
    #[command(subcommand, after_help = "Example:\n  latent secret list -c latent.toml")]
    Secret(SecretCommand),
    /// Set a broker up for a node: its streams, and who may do what there
    #[command(subcommand, after_help = "Example:\n  latent broker permissions -c latent.toml > new.conf && mv new.conf authorization.conf")]
    Broker(BrokerCommand),
    /// See whether the wall clock is believed, or say that it is right
    #[command(subcommand, after_help = "Example:\n  latent clock status -c latent.toml")]
    Clock(ClockCommand),
    /// See what is archived, whether it is sound, and bring it back
    #[command(subcommand, after_help = "Example:\n  latent archive verify --archive /mnt/archive")]
    Archive(ArchiveCommand),
    /// Measure the project's own speed, as ratios to loops by hand
    #[command(subcommand, after_help = "Example:\n  latent bench bus")]
    Bench(BenchCommand),
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
            Self::Test(_) => "test",
        }
    }
}

/// The parser's message in three lines: what it says first, its hint or else the form of the command, and which help to read.
/// `words` are those of the command line, the program's name first.
pub(crate) fn usage_error(error: &clap::Error, words: impl IntoIterator<Item = String>) -> CliError {
    if let Some(error) = misplaced(error) {
        return error;
    }
    let rendered = error.render().to_string();
    let lines: Vec<_> = rendered.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let tail = ["tip: ", "Usage: ", "[possible values: ", "For more information"];
    let after = |start: &str| lines.iter().find_map(|line| line.strip_prefix(start));
    // A list of missing arguments follows the first line, indented.
    let first: Vec<_> = lines.iter().take_while(|line| !tail.iter().any(|start| line.starts_with(start))).copied().collect();
    let values = after("[possible values: ").map(|values| format!("it is one of: {}", values.trim_end_matches(']')));
    let why = after("tip: ").map(str::to_owned).or(values).or_else(|| after("Usage: ").map(|usage| format!("the form is: {usage}")));
    CliError::Usage {
        what: first.join(" ").trim_start_matches("error: ").to_owned(),
        why: why.unwrap_or_else(|| "it is not a form of this command".to_owned()),
        next: format!("see `{} --help`", command_of(words)),
    }
}

/// Words that people type where they do not stand, and the command they belong to.
const MISPLACED: &[(&str, &[&str])] = &[
    ("bus", &["provision", "topics", "publish", "fetch", "find", "tail", "stats", "maintain"]),
    ("trigger", &["status"]),
    ("service", &["list", "route", "revoke"]),
    ("broker", &["permissions"]),
    ("clock", &["confirm"]),
    ("secret", &["put", "rotate"]),
    ("archive", &["verify", "restore"]),
];

/// A command that is part of another one.
fn misplaced(error: &clap::Error) -> Option<CliError> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let (group, _) = MISPLACED.iter().find(|(_, words)| words.contains(&&**word))?;
    Some(CliError::Usage {
        what: format!("there is no such command: {word}"),
        why: format!("{word} is a part of `latent {group}`"),
        next: format!("use `latent {group} {word}`; see `latent {group} {word} --help`"),
    })
}

/// The command that the words name, as far as they name one.
fn command_of(words: impl IntoIterator<Item = String>) -> String {
    let root = Cli::command();
    let (mut command, mut path) = (&root, vec!["latent"]);
    for word in words.into_iter().skip(1) {
        if let Some(inner) = command.find_subcommand(&word) {
            command = inner;
            path.push(inner.get_name());
        }
    }
    path.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three_lines(words: &[&str]) -> (String, String, String) {
        let error = Cli::try_parse_from(words).unwrap_err();
        let error = usage_error(&error, words.iter().map(|&word| word.to_owned()));
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
    fn a_wrong_value_leads_to_the_help_of_its_own_command() {
        let (what, why, next) = three_lines(&["latent", "--json", "new", "a", "--lang", "cobol"]);
        assert!(what.contains("cobol") && !what.contains("--help"), "{what}");
        assert_eq!((&*why, &*next), ("it is one of: rust, js, python", "see `latent new --help`"));
        let (what, _, next) = three_lines(&["latent", "bus", "fetch", "find", "--max", "many"]);
        assert!(what.contains("many"), "{what}");
        assert_eq!(next, "see `latent bus fetch --help`");
    }

    #[test]
    fn a_command_typed_without_its_group_is_recognised() {
        for (words, command) in [
            (&["latent", "tail", "t", "--from-start"][..], "latent bus tail"),
            (&["latent", "publish"], "latent bus publish"),
            (&["latent", "trigger", "topics"], "latent bus topics"),
            (&["latent", "status"], "latent trigger status"),
        ] {
            let (_, why, next) = three_lines(words);
            assert!(next.contains(&format!("`{command}`")) && why.contains("is a part of"), "{why} {next}");
        }
    }

    #[test]
    fn every_misplaced_word_is_a_command_where_it_is_said_to_be() {
        let root = Cli::command();
        for (group, words) in MISPLACED {
            let group = root.find_subcommand(group).unwrap();
            assert!(words.iter().all(|word| group.find_subcommand(word).is_some()), "{words:?}");
        }
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
