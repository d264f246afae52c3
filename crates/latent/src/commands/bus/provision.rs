//! `latent bus provision`.

use std::path::PathBuf;

use clap::Args;
use latent_bridge::{BusError, EmbeddedBroker};
use serde_json::json;

use super::location::LocationArgs;
use crate::access::{Access, log_error};
use crate::config::read_manifest;
use crate::control::Fault;
use crate::engine::engine_options;
use crate::error::CliError;
use crate::output::Output;

/// Arguments of `latent bus provision`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  latent bus provision --engine embedded:data --manifest bridge.yaml")]
pub(crate) struct ProvisionArgs {
    #[command(flatten)]
    location: LocationArgs,
    /// The manifest; with -c the one the configuration names
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
}

/// Creates the directory. One that is there already is an error and stays as it is; a starting node brings it to its manifest.
pub(super) fn provision(args: &ProvisionArgs, output: &mut Output) -> Result<(), CliError> {
    let location = args.location.locate()?;
    let Some(file) = args.manifest.clone().or(location.manifest) else {
        let reason = "with --engine the manifest must be named: --manifest bridge.yaml".to_owned();
        return Err(CliError::Value { option: "--manifest", reason });
    };
    let manifest = read_manifest(&file).map_err(|refusal| CliError::Manifest { file: file.clone(), reason: refusal.to_string() })?;
    let dir = location.dir.log();
    Access::refuse_running_node(&location.dir)?;
    let options = engine_options("latent bus provision", Some(&file));
    match EmbeddedBroker::provision_with(dir, &manifest, options) {
        Ok(_) => {}
        // Looked for before schemas are, so it is the reason wherever it is true.
        Err(error @ BusError::Config { .. }) if matches!(EmbeddedBroker::is_provisioned(dir), Ok(true)) => {
            return Err(CliError::Provisioned { dir: dir.to_owned(), fault: Fault::from(&error) });
        }
        Err(BusError::InUse { holder, .. }) => return Err(CliError::Held { dir: dir.to_owned(), holder: format!("held by {holder}") }),
        Err(error) => return Err(log_error(dir, &error)),
    }
    let partitions: u64 = manifest.topics.iter().map(|topic| u64::from(topic.partitions)).sum();
    let document = json!({ "name": manifest.name, "topics": manifest.topics.len(), "partitions": partitions });
    output.line(&document, || format!("provisioned {} (topics: {}, partitions: {partitions})", dir.display(), manifest.topics.len()))
}
