//! `latent bus provision`.

use std::path::Path;

use clap::Args;
use latent_bridge::{BridgeManifest, BusError, EmbeddedBroker, NatsBus};
use serde_json::json;

use super::location::{Location, LocationArgs, manifest_for};
use crate::access::{Access, log_error};
use crate::broker;
use crate::config::Config;
use crate::control::Fault;
use crate::data_dir::DataDir;
use crate::engine::engine_options;
use crate::error::CliError;
use crate::output::Output;

/// Arguments of `latent bus provision`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent bus provision --engine embedded:data --manifest bridge.yaml
  latent bus provision --engine nats --manifest bridge.yaml --plan

On the embedded engine it creates the data directory, with -c by the manifest that the configuration names. On a broker it makes the streams \
of the manifest's topics or brings them to it, as the user that AV_NATS_USER names, and loses no event by it; --plan shows what it would do.")]
pub(crate) struct ProvisionArgs {
    #[command(flatten)]
    location: LocationArgs,
    /// Show what would be made and changed on the broker, and change nothing
    #[arg(long)]
    plan: bool,
}

pub(super) fn provision(args: &ProvisionArgs, output: &mut Output) -> Result<(), CliError> {
    match args.location.locate()? {
        Location::Broker(manifest) => on_broker(args, &manifest, output),
        Location::NodeOnBroker(config) => Err(not_as_the_node(&config)),
        Location::Directory { .. } if args.plan => {
            let reason = "there is a plan of a broker only: --engine nats".to_owned();
            Err(CliError::Value { option: "--plan", reason })
        }
        Location::Directory { dir, manifest } => {
            let Some(file) = args.location.manifest.clone().or(manifest) else {
                let reason = "with --engine the manifest must be named: --manifest bridge.yaml".to_owned();
                return Err(CliError::Value { option: "--manifest", reason });
            };
            in_directory(&dir, &file, output)
        }
    }
}

/// A node's user may not make streams, and nothing is tried with it.
fn not_as_the_node(config: &Config) -> CliError {
    let file = config.path.display();
    CliError::Value {
        option: "-c with [engine] kind = \"nats\"",
        reason: format!(
            "streams are made by an operator and not by the node's own user; set that one's AV_NATS_USER and AV_NATS_PASSWORD, and run \
             `latent broker provision -c {file}`"
        ),
    }
}

fn on_broker(args: &ProvisionArgs, file: &Path, output: &mut Output) -> Result<(), CliError> {
    let options = broker::options_from_environment(file)?;
    let manifest = manifest_for(file)?;
    let (place, sought) = (options.servers.join(", "), broker::Place::named_in(&options));
    if args.plan {
        const DOING: &str = "planning the streams on the broker";
        let planned = NatsBus::plan(options, &manifest).map_err(|error| sought.failed(error).during(DOING))?;
        output.line(&planned, || planned.to_string().trim_end().to_owned())?;
        if planned.is_refused() {
            let problem = planned.refusals().join("; ");
            return Err(sought.failed(BusError::Config { problem }).during(DOING));
        }
        return Ok(());
    }
    let bus = NatsBus::provision_with(options, &manifest).map_err(|error| sought.failed(error).during("provisioning the broker"))?;
    told(bus.manifest(), &place, output)
}

/// Creates the directory. One that is there already is an error and stays as it is; a starting node brings it to its manifest.
fn in_directory(data: &DataDir, file: &Path, output: &mut Output) -> Result<(), CliError> {
    let manifest = manifest_for(file)?;
    let dir = data.log();
    Access::refuse_running_node(data)?;
    let options = engine_options("latent bus provision", Some(file));
    match EmbeddedBroker::provision_with(dir, &manifest, options) {
        Ok(_) => {}
        // Looked for before schemas are, so it is the reason wherever it is true.
        Err(error @ BusError::Config { .. }) if matches!(EmbeddedBroker::is_provisioned(dir), Ok(true)) => {
            return Err(CliError::Provisioned { dir: dir.to_owned(), fault: Fault::from(&error) });
        }
        Err(BusError::InUse { holder, .. }) => return Err(CliError::Held { dir: dir.to_owned(), holder: format!("held by {holder}") }),
        Err(error) => return Err(log_error(dir, &error)),
    }
    told(&manifest, &dir.display().to_string(), output)
}

fn told(manifest: &BridgeManifest, place: &str, output: &mut Output) -> Result<(), CliError> {
    let partitions: u64 = manifest.topics.iter().map(|topic| u64::from(topic.partitions)).sum();
    let document = json!({ "name": manifest.name, "topics": manifest.topics.len(), "partitions": partitions });
    output.line(&document, || format!("provisioned {place} (topics: {}, partitions: {partitions})", manifest.topics.len()))
}
