//! `latent archive verify`.

use std::path::{Path, PathBuf};

use clap::Args;
use latent_bridge::EventBus;
use latent_bridge::cold::segment::Attest;
use latent_bridge::cold::verify::{FindingKind, Known, Verification, VerifyReport};
use latent_bridge::manifest::ColdFormat;
use latent_core::Partition;
use serde_json::json;

use super::expected::{self, Expected};
use super::heads::UnreadHead;
use super::place::{self, Proof, ProofArgs};
use super::{heads, status, told};
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
archives are those that the manifest names, and what is still in the log is compared with it, event by event; what has left the log, and on a \
broker all that is acknowledged, must be there, or be waiting: also where a whole partition, topic or archive is gone.

Each thing that is wrong is a line with topic, partition and offsets. Everything is read; nothing is changed.

Exit status: 1 if anything is wrong, except holes with --accept-holes, else 0.")]
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
    /// Holes that the archive names itself are told and are no failure: they stay for good, and what is there is sound
    #[arg(long)]
    accept_holes: bool,
}

/// Tells what is wrong, then the numbers; fails if anything is.
pub(super) fn verify(args: &VerifyArgs, output: &mut Output) -> Result<(), CliError> {
    let mut total = Total::default();
    match &args.archive {
        Some(uri) => {
            let proof = args.proof.read(&[])?;
            proof.refuse_heads_of_several(args.topic.as_deref())?;
            let one = One { uri, topic: args.topic.as_deref(), proof: &proof, log: None, expected: None };
            total.add(&one.verify(args, output)?);
        }
        None => of_configuration(args, &mut total, output)?,
    }
    let read = heads::all_read(&total.unread);
    match total.findings - if args.accept_holes { total.holes } else { 0 } {
        0 => read,
        // The key that is missing is the same one.
        findings if findings == total.unknown_keys && read.is_err() => read,
        findings => Err(CliError::UnsoundArchive { findings, lacks_key: findings == total.unknown_keys }),
    }
}

/// What was found in all archives together.
#[derive(Default)]
struct Total {
    findings: u64,
    unknown_keys: u64,
    holes: u64,
    waiting: u64,
    unread: Vec<UnreadHead>,
}

impl Total {
    fn add(&mut self, report: &VerifyReport) {
        self.findings += report.findings.total();
        self.holes += report.findings.holes();
        self.unknown_keys += report.findings.counts().get(&FindingKind::UnknownKey).copied().unwrap_or_default();
        self.waiting += report.waiting;
    }
}

fn of_configuration(args: &VerifyArgs, total: &mut Total, output: &mut Output) -> Result<(), CliError> {
    let mut archived = status::archived(&args.config, "latent archive verify", &args.proof)?;
    let topics = std::mem::take(&mut archived.topics);
    archived.proof.formats = topics.iter().map(|topic| (topic.name.clone(), topic.format)).collect::<Vec<(String, ColdFormat)>>();
    let wanted = topics.iter().filter(|topic| args.topic.as_ref().is_none_or(|wanted| *wanted == topic.name));
    let wanted: Vec<_> = wanted.collect();
    if let Some(topic) = args.topic.as_ref().filter(|_| wanted.is_empty()) {
        return Err(CliError::Value { option: "--topic", reason: format!("no topic {topic:?} of the manifest has a cold_uri") });
    }
    if wanted.is_empty() {
        output.hint("no topic of the manifest has a cold_uri");
    }
    for topic in wanted {
        if let Some(partition) = args.partition.filter(|partition| *partition >= topic.partitions) {
            let reason = format!("topic {:?} has partitions 0 to {}, and {partition} is none of them", topic.name, topic.partitions - 1);
            return Err(CliError::Value { option: "--partition", reason });
        }
        let heads = archived.heads(&topic.name, topic.partitions, &mut total.unread);
        archived.proof.heads = heads.into_iter().map(|head| head.head).collect();
        let mut expected = expected::of(&archived, topic)?;
        // Intents of the topics before this one are not those of this one.
        expected.waiting = expected.waiting.saturating_sub(total.waiting);
        let one = One {
            uri: &topic.uri,
            topic: Some(&topic.name),
            proof: &archived.proof,
            log: Some((&**archived.bus.bus(), archived.engine)),
            expected: Some(&expected),
        };
        total.add(&one.verify(args, output)?);
    }
    Ok(())
}

/// One archive, and what it is compared with.
struct One<'o> {
    uri: &'o str,
    topic: Option<&'o str>,
    proof: &'o Proof,
    log: Option<(&'o dyn EventBus, Engine)>,
    /// With a log.
    expected: Option<&'o Expected>,
}

impl One<'_> {
    fn verify(&self, args: &VerifyArgs, output: &mut Output) -> Result<VerifyReport, CliError> {
        let Self { uri, topic, proof, log, expected } = *self;
        let store = if expected.is_some() { place::open_expected(uri)? } else { place::open(uri)? };
        let verification = Verification {
            store: &*store,
            topic,
            partition: args.partition.map(Partition),
            keys: proof.keys.as_ref().map(|keys| keys as &dyn Attest),
            heads: &proof.heads,
            log: log.map(|(log, _)| log),
            dense: args.dense || log.is_some_and(|(_, engine)| engine == Engine::Embedded),
            known: Known {
                expected: expected.map_or(&[], |expected| &expected.partitions),
                waiting: expected.map_or(0, |expected| expected.waiting),
                formats: &proof.formats,
                accepts_unproven: args.proof.accept_unproven,
            },
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
        if log.is_none() && report.partitions == 0 && report.findings.total() == 0 {
            told::nothing_of(&*store, uri, args.topic.as_deref(), args.partition)?;
            // Heads may say that nothing was written yet.
            if proof.heads.is_empty() {
                return Err(told::no_archive("verifying the archive", uri));
            }
        }
        told::findings(&report, output)?;
        self.tell(&report, output)?;
        Ok(report)
    }

    fn tell(&self, report: &VerifyReport, output: &mut Output) -> Result<(), CliError> {
        let Self { uri, topic, .. } = *self;
        let document = json!({ "verified": { "archive": uri, "topic": topic, "report": told::document(report) } });
        match output.form() {
            Form::Json => output.json(&document),
            Form::Human => {
                let sentences = told::sentences(report, self.log.is_some());
                let (first, rest) = sentences.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
                output.text(&format!("{}{first}", topic.map_or_else(String::new, |topic| format!("{topic}: "))))?;
                rest.iter().for_each(|sentence| output.hint(sentence));
                if self.expected.is_some() && !uri.contains("://") && !Path::new(uri).is_dir() {
                    output.hint(format_args!("there is no folder {uri}: it was not made yet, or is not mounted, or is gone"));
                }
                Ok(())
            }
        }
    }
}
