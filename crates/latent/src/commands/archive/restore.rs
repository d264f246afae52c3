//! `latent archive restore`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use latent_bridge::BusError;
use latent_bridge::cold::ColdStore;
use latent_bridge::cold::restore::{Progress, Restoration, RestoreError, RestoreReport, RestoredPartition, Step};
use latent_bridge::cold::segment::Attest;
use latent_bridge::cold::verify::{FindingKind, Known, Verification};
use latent_core::Partition;
use serde_json::json;

use super::destination::Destination;
use super::place::{self, ProofArgs};
use super::told;
use crate::access::CommandBus;
use crate::commands::bus::LocationArgs;
use crate::control::Fault;
use crate::engine::Engine;
use crate::error::CliError;
use crate::limits;
use crate::output::Output;

/// Arguments of `latent archive restore`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent archive restore --archive /mnt/archive --key control.key
  latent archive restore --archive /mnt/archive --topic orders --into orders.restored --progress restore.json
  latent archive restore --archive /mnt/archive --engine nats --manifest bridge.yaml

The archive is verified first; if anything is wrong with it, nothing is published. Then its events are published under their own uids, \
with key, media type, attributes and bytes as they were, in the order of each partition; at the end all of them are read back and compared. \
Offsets and the time of storing are those of the log they go to. An event that is there with the same uid is not stored twice; one with \
other content ends the command, and nothing is ever replaced.

It can be interrupted and run again. --progress names a file that says how far it was; without one everything is published again, and what is \
there is known by its uid.

Exit status: 3 when the last event may be stored, 1 if anything failed, else 0.")]
pub(crate) struct RestoreArgs {
    /// The archive, as `cold_uri` names it: a folder, or a store's URI
    #[arg(long, value_name = "URI")]
    archive: String,
    #[command(flatten)]
    location: LocationArgs,
    #[command(flatten)]
    proof: ProofArgs,
    /// Only this topic
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only this partition
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// Publish into this topic instead of the one of the same name
    #[arg(long, value_name = "TOPIC")]
    into: Option<String>,
    /// Keep in this file how far it is
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
}

/// Restores, and tells what became of each partition.
pub(super) fn restore(args: &RestoreArgs, output: &mut Output) -> Result<(), CliError> {
    let proof = args.proof.read(&args.location.control_key_files()?)?;
    if proof.keys.is_none() {
        output.hint("no control key was given or is configured: everything is checked but who made the archive; name one with --key");
    }
    proof.refuse_heads_of_several(args.topic.as_deref())?;
    let store = place::open(&args.archive)?;
    let progress = args.progress.as_deref().map_or_else(|| Ok(Progress::of("")), |file| progress_in(file, &words_of(args)?))?;
    let (topic, into) = (args.topic.as_deref(), args.into.as_deref());
    Destination { location: &args.location, archive: &args.archive, store: &*store, topic, into }.check(output)?;
    let mut access = args.location.access("latent archive restore")?;
    let engine = access.engine()?;
    let bus = CommandBus::of(access)?;
    let archive = Verification {
        store: &*store,
        topic: args.topic.as_deref(),
        partition: args.partition.map(Partition),
        keys: proof.keys.as_ref().map(|keys| keys as &dyn Attest),
        heads: &proof.heads,
        log: None,
        dense: false,
        known: Known { formats: &proof.formats, accepts_unproven: args.proof.accept_unproven, ..Known::default() },
    };
    let restoration = Restoration { archive, bus: &**bus.bus(), key_by_key: engine == Engine::Nats, into: args.into.as_deref() };
    let bar = told::spinner(output.form());
    let mut keep = |progress: &Progress| args.progress.as_deref().map_or(Ok(()), |file| write_whole(file, &progress.to_json()));
    let ended = restoration.run(progress, &mut keep, &mut |step| {
        bar.tick();
        bar.set_message(step_words(step));
    });
    bar.finish_and_clear();
    match ended {
        Ok(report) => tell(args, &report, (&*store, proof.heads.is_empty()), output),
        Err(error @ RestoreError::SeveralTopics { .. }) => Err(CliError::Value { option: "--into", reason: error.to_string() }),
        Err(RestoreError::Unsound { report }) => {
            told::findings(&report, output)?;
            let findings = report.findings.total();
            let unknown = report.findings.counts().get(&FindingKind::UnknownKey).copied().unwrap_or_default();
            Err(CliError::UnsoundArchive { findings, lacks_key: findings == unknown })
        }
        Err(error) => Err(failed(args, &error)),
    }
}

fn step_words(step: Step<'_>) -> String {
    match step {
        Step::Verifying(report) => told::so_far(report),
        Step::Publishing(one) => format!("{}/p{}: {} records published", one.topic, one.partition, one.records),
        Step::Comparing(one) => format!("{}/p{}: {} of {} records compared", one.topic, one.partition, one.compared, one.records),
    }
}

fn failed(args: &RestoreArgs, error: &RestoreError) -> CliError {
    let fault = match (error, args.progress.as_deref()) {
        (RestoreError::Publish { cause, .. }, _) => Fault { message: error.to_string(), ..Fault::from(cause) },
        (RestoreError::Bus(cause), _) => Fault::from(cause),
        (RestoreError::NotThere { .. }, Some(file)) => {
            let message = format!(
                "{error}; {} says that it was published: remove that file if the log was made anew since, and run the command again",
                file.display()
            );
            Fault::refused(super::Task::Restoring.kind(), message)
        }
        (RestoreError::Progress { .. }, _) => Fault::refused(super::Task::Restoring.kind(), error.to_string()),
        _ => Fault::passing(super::Task::Restoring.kind(), error.to_string()),
    };
    CliError::Log { doing: format!("restoring from {}", args.archive), fault }
}

fn tell(
    args: &RestoreArgs,
    report: &RestoreReport,
    (store, no_heads): (&dyn ColdStore, bool),
    output: &mut Output,
) -> Result<(), CliError> {
    for one in &report.partitions {
        output.line(&json!({ "restored": one }), || sentence(one))?;
    }
    told::findings(&report.verified, output)?;
    if report.verified.findings.holes() > 0 {
        output.hint("what the archive names as holes was lost before it was archived, and is not restored");
    }
    if report.partitions.is_empty() {
        told::nothing_of(store, &args.archive, args.topic.as_deref(), args.partition)?;
        // Heads may say that nothing was written yet.
        if no_heads {
            return Err(told::no_archive("restoring from", &args.archive));
        }
        output.hint("the archive has nothing to restore");
    }
    Ok(())
}

/// Partitions of the destination that a line for people names.
const PARTITIONS_NAMED_MAX: usize = 8;

fn sentence(one: &RestoredPartition) -> String {
    let RestoredPartition { topic, partition, records, already_there, damaged, compared, out_of_order, into, offsets } = one;
    let mut out = format!("{topic}/p{partition}: {records} records, {compared} compared");
    let places =
        offsets.iter().take(PARTITIONS_NAMED_MAX).map(|(partition, (first, last))| format!("p{partition} offsets {first} to {last}"));
    let places = places.collect::<Vec<_>>().join(", ");
    if !places.is_empty() {
        out.push_str(&format!(", now in {into}: {places}"));
    }
    if let Some(more) = offsets.len().checked_sub(PARTITIONS_NAMED_MAX).filter(|more| *more > 0) {
        out.push_str(&format!(" and in {more} more partitions"));
    }
    for (count, words) in [
        (already_there, "were there already"),
        (out_of_order, "lie behind later ones, which were there before"),
        (damaged, "offsets had a damaged record and are left out"),
    ] {
        if *count > 0 {
            out.push_str(&format!("; {count} {words}"));
        }
    }
    out
}

/// What is restored where to. The same words are the same restoration.
fn words_of(args: &RestoreArgs) -> Result<String, CliError> {
    let mut words = format!("the archive {}", args.archive);
    if let Some(topic) = &args.topic {
        words.push_str(&format!(", topic {topic}"));
    }
    if let Some(partition) = args.partition {
        words.push_str(&format!(", partition {partition}"));
    }
    words.push_str(", into ");
    if let Some(into) = &args.into {
        words.push_str(&format!("topic {into} of "));
    }
    words.push_str(&args.location.identity()?);
    Ok(words)
}

fn progress_in(file: &Path, words: &str) -> Result<Progress, CliError> {
    let Some(document) = place::text_of(PROGRESS, file, limits::RESTORE_PROGRESS_BYTES)? else { return Ok(Progress::of(words)) };
    let unusable = |reason| CliError::Value { option: PROGRESS, reason: format!("{}: {reason}", file.display()) };
    Progress::from_json(&document, words).map_err(unusable)
}

/// The option that names the file.
const PROGRESS: &str = "--progress";

/// The file is the old one or the new one, whenever the process ends.
fn write_whole(file: &Path, content: &str) -> Result<(), String> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".tmp");
    let write = || {
        // What lies there from before may be a pipe, which would be waited for, or lead elsewhere.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut written = fs::File::create_new(&beside)?;
        written.write_all(content.as_bytes())?;
        written.sync_data()?;
        fs::rename(&beside, file)
    };
    write().map_err(|error: std::io::Error| BusError::Backend(format!("{} cannot be written: {error}", file.display())).to_string())
}
