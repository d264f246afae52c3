//! `latent archive verify`.

use std::path::PathBuf;

use clap::Args;
use latent_bridge::EventBus;
use latent_bridge::cold::segment::Attest;
use latent_bridge::cold::verify::{Verification, VerifyReport};
use latent_core::Partition;
use serde_json::json;

use super::place::{self, Proof, ProofArgs};
use super::{status, told};
use crate::control::Fault;
use crate::engine::Engine;
use crate::error::CliError;
use crate::output::{Form, Output};

/// Arguments of `latent archive verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent archive verify -c latent.toml
  latent archive verify --archive /mnt/copy --key control.key --head heads.jsonl
  latent archive verify --archive /mnt/copy --topic orders --json

With --archive no node, no log and no network is needed: a copy of the archive is enough. What is compared with: each segment says which \
segment it follows; with --key each must be proven with a control key; with --head nothing may be missing at the end. Without --archive the \
archives are those that the manifest names, and what is still in the log is compared with it, event by event.

Each thing that is wrong is a line with topic, partition and offsets. Everything is read; nothing is changed.

Exit status: 1 if anything is wrong, else 0.")]
pub(crate) struct VerifyArgs {
    /// The archive, as `cold_uri` names it: a folder, or a store's URI. Without it, the archives of the configuration's topics
    #[arg(long, value_name = "URI", conflicts_with = "config")]
    archive: Option<String>,
    /// Configuration file of the node
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
    #[command(flatten)]
    proof: ProofArgs,
    /// Only this topic
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only this partition
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// Offsets of single events have no gaps, as those of the embedded engine: a gap is a missing event
    #[arg(long)]
    dense: bool,
}

/// Tells what is wrong, then the numbers; fails if anything is.
pub(super) fn verify(args: &VerifyArgs, output: &mut Output) -> Result<(), CliError> {
    let mut total = 0;
    match &args.archive {
        Some(uri) => total += one(args, uri, args.topic.as_deref(), &args.proof.read(&[])?, None, output)?,
        None => {
            let mut archived = status::archived(&args.config, "latent archive verify", &args.proof)?;
            let topics = std::mem::take(&mut archived.topics);
            let wanted = topics.iter().filter(|topic| args.topic.as_ref().is_none_or(|wanted| *wanted == topic.name));
            let wanted: Vec<_> = wanted.collect();
            if let Some(topic) = args.topic.as_ref().filter(|_| wanted.is_empty()) {
                return Err(CliError::Value { option: "--topic", reason: format!("no topic {topic:?} of the manifest has a cold_uri") });
            }
            if wanted.is_empty() {
                output.hint("no topic of the manifest has a cold_uri");
            }
            for topic in wanted {
                let heads = archived.heads(&topic.name, topic.partitions)?;
                archived.proof.heads = heads.into_iter().map(|head| head.head).collect();
                let log = Some((&**archived.bus.bus() as &dyn EventBus, archived.engine));
                total += one(args, &topic.uri, Some(&topic.name), &archived.proof, log, output)?;
            }
        }
    }
    if total == 0 { Ok(()) } else { Err(CliError::UnsoundArchive { findings: total }) }
}

/// Verifies one archive; returns how many things are wrong with it.
fn one(
    args: &VerifyArgs,
    uri: &str,
    topic: Option<&str>,
    proof: &Proof,
    log: Option<(&dyn EventBus, Engine)>,
    output: &mut Output,
) -> Result<u64, CliError> {
    let store = place::open(uri)?;
    let verification = Verification {
        store: &*store,
        topic,
        partition: args.partition.map(Partition),
        keys: proof.keys.as_ref().map(|keys| keys as &dyn Attest),
        heads: &proof.heads,
        log: log.map(|(log, _)| log),
        dense: args.dense || log.is_some_and(|(_, engine)| engine == Engine::Embedded),
    };
    let bar = told::spinner(output.form());
    let report = verification.run(&mut |report: &VerifyReport| {
        bar.tick();
        bar.set_message(told::so_far(report));
    });
    bar.finish_and_clear();
    let doing = format!("verifying the archive {uri}");
    let report =
        report.map_err(|error| CliError::Log { doing, fault: Fault::passing(super::Task::Verifying.kind(), error.to_string()) })?;
    if log.is_none() && report.partitions == 0 && (args.topic.is_some() || args.partition.is_some()) {
        let option = if args.topic.is_some() { "--topic" } else { "--partition" };
        return Err(CliError::Value { option, reason: format!("the archive {uri} has nothing of it") });
    }
    told::findings(&report, output)?;
    let document = json!({ "verified": { "archive": uri, "topic": topic, "report": told::document(&report) } });
    match output.form() {
        Form::Json => output.json(&document)?,
        Form::Human => {
            let sentences = told::sentences(&report);
            let (first, rest) = sentences.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
            output.text(&format!("{}{first}", topic.map_or_else(String::new, |topic| format!("{topic}: "))))?;
            rest.iter().for_each(|sentence| output.hint(sentence));
        }
    }
    Ok(report.findings.total())
}
