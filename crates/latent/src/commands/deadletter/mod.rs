//! `latent deadletter`: events that will not run (again), why, and their way back.
//!
//! `letter` is one dead letter as it was read and printed, `walk` reads dead-letter topics from their oldest letter on; each command has
//! a file.

mod letter;
mod list;
mod replay;
mod show;
mod walk;

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use latent_core::{TerminationReason, TopicName};

use crate::access::{Access, Stopped, without_bindings};
use crate::config::{self, Config, NamedFiles, nearest};
use crate::data_dir::DataDir;
use crate::error::CliError;
use crate::output::Output;
pub(crate) use letter::{Letter, LetterDocument};
pub(crate) use replay::ReplayCounts;

/// `latent deadletter`.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadletterCommand {
    /// List dead letters, oldest first
    List(list::ListArgs),
    /// Show one dead letter whole: what happened, the event, whether it was replayed
    Show(show::ShowArgs),
    /// Publish the events of dead letters again, each once
    Replay(replay::ReplayArgs),
}

/// Which of the dead letters are meant.
#[derive(Debug, Args)]
struct Selection {
    /// Only those of this trigger
    #[arg(long, value_name = "ID")]
    trigger: Option<String>,
    /// Only this dead-letter topic, whether a trigger names it now or not
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only those with this reason
    #[arg(long, value_name = "REASON", value_parser = PossibleValuesParser::new(TerminationReason::ALL.map(TerminationReason::kind)))]
    reason: Option<String>,
}

/// Where the configuration is.
#[derive(Debug, Args)]
struct ConfigArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// Runs `latent deadletter …`.
///
/// # Errors
/// [`CliError`].
pub(crate) fn deadletter(command: &DeadletterCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        DeadletterCommand::List(args) => list::list(args, output),
        DeadletterCommand::Show(args) => show::show(args, output),
        DeadletterCommand::Replay(args) => replay::replay(args, output),
    }
}

fn open(path: &Path, holder: &str) -> Result<(Config, Access), CliError> {
    let config = config::load(path, NamedFiles::NotNeeded)?.config;
    let stopped = Stopped { bindings: &without_bindings, config: Some(&config) };
    let access = Access::open_knowing(&DataDir::new(&config.node.data_dir), holder, stopped)?;
    Ok((config, access))
}

impl Selection {
    /// The topics to be read, sorted: the one that is named, else every one that a trigger names.
    fn topics(&self, config: &Config) -> Result<Vec<TopicName>, CliError> {
        if let Some(topic) = &self.topic {
            let topic = TopicName::parse(topic).map_err(|error| CliError::Value { option: "--topic", reason: error.to_string() })?;
            return Ok(vec![topic]);
        }
        let mut topics: Vec<_> = config.dead_letter_topics().cloned().collect();
        topics.sort();
        topics.dedup();
        Ok(topics)
    }

    fn includes(&self, letter: &Letter) -> bool {
        let letter = &letter.letter;
        self.trigger.as_ref().is_none_or(|trigger| *trigger == letter.binding.as_str())
            && self.reason.as_ref().is_none_or(|reason| *reason == letter.verdict.reason.kind())
    }

    /// What nothing found means: a trigger that nobody knows is told from one that has no dead letters.
    fn nothing_found(&self, config: &Config, output: &Output) -> Result<(), CliError> {
        let of_streams = || config.streams.iter().flat_map(|streams| streams.triggers.bindings()).map(|binding| binding.trigger().as_str());
        let known = || config.cycle_triggers().map(|trigger| trigger.id.as_str()).chain(of_streams());
        if let Some(trigger) = self.trigger.as_ref().filter(|trigger| self.topic.is_none() && !known().any(|id| id == **trigger)) {
            let nearest = nearest(trigger, known()).map(str::to_owned);
            return Err(CliError::UnknownTrigger { trigger: trigger.clone(), nearest, known: known().map(str::to_owned).collect() });
        }
        if self.topic.is_none() && config.dead_letter_topics().next().is_none() {
            output.hint(format_args!("no trigger of {} names a dead-letter topic; --topic names one", config.path.display()));
        } else {
            output.hint("there are none");
        }
        Ok(())
    }
}
