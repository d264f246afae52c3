//! `latent dev`: the node of an application folder while somebody writes it. Sources that change are built, components that change are
//! taken in as `latent reload` does, and each activation is a line with what its function said under it.
//!
//! ```text
//! workshop thread: files ─ look ─▶ foreman ─ work ─▶ hands (cargo) / reload ─┐
//! main thread:     node, its driver ─ each activation's end ─────────────────┴─▶ voice thread ─▶ standard output
//! ```
//! Decided here:
//! - What is built is read off a component's path (`project`); a component from elsewhere is taken in when its file changes. There is
//!   no setting for it.
//! - Files are looked at every `dev_look_millis` instead of being told of by the system: it costs some thousand `stat` calls a second,
//!   needs no library for each system, and works on file systems that tell nobody (network, container mounts).
//! - Nothing is lost on the way to a new component, because it is the reload of a running node: what runs ends on the old one.
//! - Nothing but a file that changes makes anything happen again. What can be wrong without a file to mend it (a held directory, a
//!   missing `latent.toml`) ends the command as it ends `latent run`.

mod foreman;
mod hands;
mod message;
mod project;
mod scan;
mod voice;
mod workshop;

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use clap::Args;
use tokio::runtime::Runtime;

use crate::config::{self, NamedFiles};
use crate::error::CliError;
use crate::limits;
use crate::logging;
use crate::node::{self, Node, Signals};
use crate::output::Output;
use hands::Hands;
use message::{Message, Paint, Started};
use voice::Voice;
use workshop::{StartOrder, Workshop, routes_of};

/// The configuration of an application folder.
const CONFIG: &str = "latent.toml";
/// The log of the node: what functions say stands under their activations already.
const LOG_FILTER: &str = "warn,guest=off,async_nats=error";
/// How long a reader has for the last lines.
const LAST_LINES_WAIT: Duration = Duration::from_secs(1);

/// Arguments of `latent dev`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent dev hello
  latent dev . --json

DIR holds a latent.toml, as `latent new` makes one, with the embedded engine. A component below a Cargo project's target folder is built when a source of that \
project changes; any other component is taken in when its file changes. A build that fails, or a component that cannot be used, leaves \
what runs as it is and says why. Ctrl-C ends the node in order.

Each activation is a line on standard output: outcome, service, trigger, topic/partition@offset, attempt, time and fuel, with what the \
function said under it. The node's own log goes to standard error; LATENT_LOG chooses what (warn,guest=off unless set).")]
pub(crate) struct DevArgs {
    /// Folder of the application
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

/// Serves the application until SIGTERM or SIGINT.
///
/// # Errors
/// [`CliError::Config`] for settings that cannot be used, and those of [`Node::start`] that no change of a file can mend.
pub(crate) fn dev(args: &DevArgs, output: &mut Output) -> Result<(), CliError> {
    logging::to_stderr(LOG_FILTER)?;
    let unreadable = |error: std::io::Error| CliError::Input { file: args.dir.clone(), reason: error.to_string() };
    // Programs that build run in other folders.
    let config_path = std::path::absolute(&args.dir).map_err(unreadable)?.join(CONFIG);
    let config = config::load_for_dev(&config_path, NamedFiles::NotNeeded)?.config;
    output.flush()?;
    let runtime = node::runtime()?;
    let signals = Signals::listen(&runtime)?;
    let paint = if output.is_coloured() { Paint::Colours } else { Paint::Plain };
    let (voice, printer) = Voice::printing(Output::new(output.form()), paint)?;
    let hands = Arc::new(Hands::default());
    let (starter, orders) = tokio::sync::mpsc::channel(1);
    let workshop = Workshop::new(&config, Arc::clone(&hands), voice.clone(), starter);
    let working = Working::begin(workshop)?;
    let served = serve_orders(orders, Parts { runtime: &runtime, signals, hands: &hands, voice: &voice });
    let worked = working.end(&hands);
    let printed = printer.end(LAST_LINES_WAIT);
    // What may still block on the log's threads must not keep the process.
    runtime.shutdown_timeout(LAST_LINES_WAIT);
    served.and(worked).and(printed)
}

/// What a node is started with.
struct Parts<'a> {
    runtime: &'a Runtime,
    signals: Signals,
    hands: &'a Arc<Hands>,
    voice: &'a Voice,
}

/// Waits for a configuration that can be started, and serves it. Ends with a signal or when there is nothing more to wait for.
fn serve_orders(mut orders: tokio::sync::mpsc::Receiver<StartOrder>, parts: Parts<'_>) -> Result<(), CliError> {
    let Parts { runtime, signals, hands, voice } = parts;
    let mut waiting = signals.clone();
    loop {
        let order = runtime.block_on(async {
            tokio::select! {
                order = orders.recv() => order,
                () = waiting.next() => None,
            }
        });
        let Some(StartOrder { config, answer }) = order else { return Ok(()) };
        match Node::start(config, "latent dev", runtime, Some(signals.clone())) {
            Ok(node) => {
                let speaking = voice.clone();
                node.on_end(Arc::new(move |entry| speaking.say(Message::Activation(Box::new(entry.clone())))))?;
                runtime.spawn(end_work(node.stopping(), Arc::clone(hands)));
                let target = node.target();
                let routes = routes_of(target.as_ref());
                voice.say(Message::Started(Started { node: node.name(), data: node.data().display().to_string(), routes }));
                // An error means that the workshop has ended, and with it the command.
                let _ = answer.send(Ok(target));
                runtime.block_on(node.serve());
                return Ok(());
            }
            // A component or a setting can be mended.
            Err(error @ (CliError::Node { .. } | CliError::Config(_))) => {
                let _ = answer.send(Err(error));
            }
            Err(error) => return Err(error),
        }
    }
}

/// A build is not waited for when the node is told to stop.
async fn end_work(mut stopping: tokio::sync::watch::Receiver<bool>, hands: Arc<Hands>) {
    // A sender that is gone has stopped too.
    let _ = stopping.wait_for(|stopping| *stopping).await;
    hands.stop();
    tokio::time::sleep(Duration::from_millis(limits::DEV_BUILD_STOP_MILLIS.default)).await;
    hands.kill();
}

/// The workshop's thread.
struct Working {
    ended: mpsc::Receiver<Result<(), CliError>>,
}

impl Working {
    fn begin(workshop: Workshop) -> Result<Self, CliError> {
        let (end, ended) = mpsc::channel();
        let work = move || {
            // Nobody waits for it any more when it takes too long to end.
            let _ = end.send(workshop.work());
        };
        let spawned = std::thread::Builder::new().name("latent-workshop".to_owned()).spawn(work);
        spawned.map(|_| Self { ended }).map_err(|error| CliError::Node {
            what: "there is no thread to build on".to_owned(),
            why: error.to_string(),
            next: "free threads and run it again".to_owned(),
        })
    }

    /// Ends what is being built, by force if it takes too long.
    fn end(self, hands: &Hands) -> Result<(), CliError> {
        let grace = Duration::from_millis(limits::DEV_BUILD_STOP_MILLIS.default);
        hands.stop();
        self.ended
            .recv_timeout(grace)
            .or_else(|_| {
                hands.kill();
                self.ended.recv_timeout(grace)
            })
            // It hangs in something that is no build; the process ends without it.
            .unwrap_or(Ok(()))
    }
}
