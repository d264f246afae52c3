//! `latent why`: the whole story of one event, each part from where it is known.
//!
//! `story` is what is known, as data and as its document; `gather` asks for it; `words` tells it to people.

mod gather;
mod story;
mod words;

use std::path::PathBuf;

use clap::Args;
use latent_core::{Clock as _, SystemClock};

use crate::access::{Access, Stopped, without_bindings};
use crate::config::{self, NamedFiles};
use crate::data_dir::DataDir;
use crate::error::CliError;
use crate::output::Output;

/// Arguments of `latent why`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent why triage.events 0192f0c1-5c1e-7b6e-8a43-000000000000
  latent why triage.events 0192f0c1-5c1e-7b6e-8a43-000000000000 --json

The event, its dead letters and its replays come from the log; what each trigger does with it from the trigger's memory; its runs, with \
what they published and wrote, from the journal of the running node, which is bounded and ends with the node.")]
pub(crate) struct WhyArgs {
    /// The event's topic
    topic: String,
    /// Its uid
    uid: String,
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// Runs `latent why`.
///
/// # Errors
/// [`CliError::NotFound`] when neither the event nor a replay of it can be read, and what node and log say.
pub(crate) fn why(args: &WhyArgs, output: &mut Output) -> Result<(), CliError> {
    let config = config::load(&args.config, NamedFiles::NotNeeded)?.config;
    let stopped = Stopped { bindings: &without_bindings, config: Some(&config) };
    let access = Access::open_knowing(&DataDir::new(&config.node.data_dir), "latent why", stopped)?;
    if config.engine.broker().is_some() {
        output.hint("what a trigger decided of an event on a broker is not kept: the event and its dead letters are told, and its runs as long as the node remembers them");
    }
    let story = gather::Gatherer::new(access, &config, &args.topic).story(&args.uid)?;
    output.line(&story.document(), || words::tell(&story, SystemClock::start().unix().0).trim_end().to_owned())
}
