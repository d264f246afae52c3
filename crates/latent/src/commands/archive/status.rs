//! `latent archive status`, and what a configuration says of archives.

use std::path::{Path, PathBuf};

use clap::Args;
use latent_bridge::cold::export::AttestedHead;
use latent_bridge::manifest::ColdFormat;
use latent_core::Partition;
use serde_json::json;

use super::place::{Proof, ProofArgs};
use crate::access::{Access, CommandBus, Stopped, without_bindings};
use crate::config::{self, NamedFiles};
use crate::control::Fault;
use crate::data_dir::DataDir;
use crate::engine::Engine;
use crate::error::CliError;
use crate::output::{Form, Output};
use crate::table::Table;

/// Arguments of `latent archive status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent archive status -c latent.toml
  latent archive status -c latent.toml --json > heads.jsonl

INTENTS are events whose way into the archive has begun and is not finished; those in quarantine need somebody to look. For topics with \
`cold_format: segments` COLD is the last offset that is in the archive. The lines of --json attest that with a proof: kept apart from the \
archive, they are what `latent archive verify --head` needs to find what is missing at its end.

A node that runs is asked; else the directory is opened, and --key names the control keys that heads are checked with.")]
pub(crate) struct StatusArgs {
    /// Configuration file of the node
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
    #[command(flatten)]
    proof: ProofArgs,
}

/// A topic that is archived.
pub(super) struct ArchivedTopic {
    pub(super) name: String,
    pub(super) partitions: u32,
    pub(super) uri: String,
    pub(super) format: ColdFormat,
}

impl ArchivedTopic {
    /// The word of manifests and documents.
    const fn format_word(&self) -> &'static str {
        match self.format {
            ColdFormat::Segments => "segments",
            ColdFormat::Objects => "objects",
        }
    }
}

/// The log of a configuration, and its topics that are archived.
pub(super) struct ArchivedLog {
    pub(super) bus: CommandBus,
    pub(super) engine: Engine,
    pub(super) topics: Vec<ArchivedTopic>,
    /// Keys and heads.
    pub(super) proof: Proof,
}

/// Opens the log of a configuration.
pub(super) fn archived(path: &Path, holder: &str, proof: &ProofArgs) -> Result<ArchivedLog, CliError> {
    let config = config::load(path, NamedFiles::NotNeeded)?.config;
    let engine = if config.engine.broker().is_some() { Engine::Nats } else { Engine::Embedded };
    let topics = config.engine.manifest.topics.iter().filter_map(|topic| {
        let format = topic.retention.cold_format.unwrap_or(ColdFormat::Objects);
        let uri = topic.retention.cold_uri.clone()?;
        Some(ArchivedTopic { name: topic.name.clone(), partitions: topic.partitions, uri, format })
    });
    let topics = topics.collect();
    let stopped = Stopped { bindings: &without_bindings, config: Some(&config) };
    let bus = CommandBus::of(Access::open_knowing(&DataDir::new(&config.node.data_dir), holder, stopped)?)?;
    let keys = proof.key_bytes(&config.archive.control_key_files)?;
    if !keys.is_empty() {
        let keys: Vec<_> = keys.iter().map(|key| **key).collect();
        bus.bus().set_control_keys(&keys).map_err(|error| CliError::Value { option: "--key", reason: error.to_string() })?;
    }
    let proof = proof.read(&config.archive.control_key_files)?;
    Ok(ArchivedLog { bus, engine, topics, proof })
}

impl ArchivedLog {
    /// The heads of a topic's partitions.
    pub(super) fn heads(&self, topic: &str, partitions: u32) -> Result<Vec<AttestedHead>, CliError> {
        let failed =
            |partition, error| CliError::Log { doing: format!("reading the head of {topic}/p{partition}"), fault: Fault::from(&error) };
        let head = |partition| {
            let head = self.bus.bus().archive_head(topic, Partition(partition)).transpose()?;
            Some(head.map_err(|error| failed(partition, error)))
        };
        (0..partitions).filter_map(head).collect()
    }
}

/// Prints intents, then each topic's partitions.
pub(super) fn status(args: &StatusArgs, output: &mut Output) -> Result<(), CliError> {
    let archived = archived(&args.config, "latent archive status", &args.proof)?;
    let intents = archived.bus.bus().archive_statistics();
    if output.form() == Form::Json {
        if let Some(intents) = intents {
            output.json(&json!({ "intents": intents }))?;
        }
    } else if let Some(intents) = intents {
        let quarantined = match intents.intents_quarantined {
            0 => String::new(),
            count => format!(", {count} of them in quarantine"),
        };
        output.text(&format!("{} of at most {} intents wait{quarantined}", intents.intents, intents.intents_max))?;
    }
    let mut table = Table::new(&["TOPIC", "PARTITION", "FORMAT", "SEGMENTS", "COLD", "ARCHIVE"]);
    for topic in &archived.topics {
        let heads = archived.heads(&topic.name, topic.partitions)?;
        if heads.is_empty() {
            let row = [&*topic.name, "all", topic.format_word(), "-", "-", &*topic.uri];
            table.push(row.map(str::to_owned).to_vec());
            if output.form() == Form::Json {
                output.json(&json!({ "topic": topic.name, "format": topic.format_word(), "archive": topic.uri }))?;
            }
        }
        for AttestedHead { head, document } in heads {
            if output.form() == Form::Json {
                output.json(&json!({
                    "topic": topic.name,
                    "partition": head.place.partition.0,
                    "format": topic.format_word(),
                    "archive": topic.uri,
                    "segments": head.segments,
                    "cold": head.last.0,
                    "document": document,
                }))?;
            }
            let (partition, segments, last) = (head.place.partition.to_string(), head.segments.to_string(), head.last.to_string());
            table.push(vec![topic.name.clone(), partition, topic.format_word().to_owned(), segments, last, topic.uri.clone()]);
        }
    }
    if output.form() == Form::Json {
        return Ok(());
    }
    if archived.topics.is_empty() {
        output.hint("no topic of the manifest has a cold_uri");
        return Ok(());
    }
    table.to_string().lines().try_for_each(|line| output.text(line))
}
