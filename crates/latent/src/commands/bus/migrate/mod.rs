//! `latent bus migrate`: topics from one log to another, in their order, with their uids and bytes, and both compared in the end.
//!
//! What is decided is decided in `latent_bridge::migrate`. `place` says which logs, `plan` which partitions and why not, `archives` which would be
//! harmed, `source` reads, `driving` does what a machine asks for, `progress_file` keeps how far it is, `report` says what came of it.
//!
//! ```text
//! plan ── for each partition: copy ── progress after each batch ── for each partition: compare both sides ── report
//! ```

mod archives;
mod driving;
mod place;
mod plan;
mod progress_file;
mod report;
mod source;

use std::path::PathBuf;

use clap::Args;
use latent_bridge::InOrder;
use latent_bridge::migrate::{Compared, Comparing, Copied, Copying, Finding, Progress, UnreadableRecords};
use latent_core::{Offset, Partition};

use crate::control::Fault;
use crate::error::CliError;
use crate::output::Output;
use archives::ControlKey;
use place::Place;
use plan::{Unmigratable, plan};
use progress_file::ProgressFile;
pub(crate) use report::{MigrationCounts, PartitionFinding};
use report::{Report, Voice};
use source::Source;

/// As others know it while it has a directory.
const HOLDER: &str = "latent bus migrate";

/// Arguments of `latent bus migrate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent bus migrate --from embedded:data --to nats --manifest bridge.yaml
  latent bus migrate github.events --from config:cluster.toml --to embedded:data
  latent bus migrate --from embedded:data --to nats --manifest bridge.yaml --verify-only

PLACE is `embedded:DIR`, a node's data directory; `nats`, the broker that AV_NATS_URL names, with --manifest; or `config:FILE`, the log of a \
node's configuration. The destination must be provisioned, with the same partitions and under the same name of the manifest, and its topics \
empty or left by an earlier run. The source may be in use, of a running node too; the destination must not be.

Every event keeps its partition, its place in the order, uid, key, media type, attributes and bytes. Offsets and the time of storing are those \
of the destination: retention begins anew. Run it again after a crash: it goes on where it was and doubles nothing, whatever the broker still \
knows of uids. In the end both sides are read again and compared, with a SHA-256 of each partition.

Stop who publishes before the last run, and change [engine] after it. docs/migrate.md has the whole procedure.

Exit status: 0 if both sides are the same, else 3 if what became of a publication is not known, else 1.")]
pub(crate) struct MigrateArgs {
    /// Topics; all of the source unless said
    topics: Vec<String>,
    /// Where the events are
    #[arg(long, value_name = "PLACE")]
    from: String,
    /// Where they are to be
    #[arg(long, value_name = "PLACE")]
    to: String,
    /// The manifest of the topics, with `nats`
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// File that keeps how far it is; one in the working directory unless said
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
    /// Pass over records of the source that cannot be read, and say which, instead of ending their partition there
    #[arg(long)]
    skip_unreadable: bool,
    /// Copy nothing: only compare both sides
    #[arg(long)]
    verify_only: bool,
}

/// One partition, and where the source ended when the run began.
struct Work {
    topic: String,
    partition: Partition,
    first: Offset,
    end: Offset,
    copied: Copied,
    finding: Option<Finding>,
}

pub(super) fn migrate(args: &MigrateArgs, output: &mut Output) -> Result<(), CliError> {
    let (from, to) =
        (Place::parse("--from", &args.from, args.manifest.as_deref())?, Place::parse("--to", &args.to, args.manifest.as_deref())?);
    if args.manifest.is_some() && !from.needs_manifest() && !to.needs_manifest() {
        let reason = "it goes with `nats`; the other places have their manifests".to_owned();
        return Err(CliError::Value { option: "--manifest", reason });
    }
    let (source_name, destination_name) = (from.identity()?, to.identity()?);
    if source_name == destination_name {
        return Err(CliError::Value { option: "--to", reason: format!("it is the source itself, {source_name}") });
    }
    let source_manifest = from.manifest()?;
    let planned = plan(&source_manifest, &to.manifest()?, &args.topics).map_err(refused)?;
    // A comparison publishes nothing.
    if !args.verify_only {
        let key = if to.needs_manifest() { ControlKey::Missing } else { ControlKey::AtHand };
        let first_partitions = planned.iter().filter(|(_, partition)| *partition == Partition(0));
        archives::refuse(&source_manifest, &to.archiving()?, first_partitions.map(|(topic, _)| topic.as_str()), key)?;
    }
    let file = ProgressFile::at(args.progress.clone(), &source_name, &destination_name);
    let (mut file, noted) = if args.verify_only { file.look() } else { file.take() }?;
    if let Some(problem) = noted {
        output.hint(format_args!("{}: {problem}; everything is compared from the beginning", file.path().display()));
    }
    let (mut source, destination) = (from.open_source()?, to.open_destination()?);
    let mut work = planned.into_iter().map(|(topic, partition)| survey(&mut *source, topic, partition)).collect::<Result<Vec<_>, _>>()?;
    let mut run = Run { source: &mut *source, destination: &*destination, file: &mut file, unreadable: unreadable_of(args) };
    let mut voice = Voice::new(&work.iter().map(|work| (work.first, work.end)).collect::<Vec<_>>(), args.verify_only, output.form());
    if !args.verify_only {
        run.copy_all(&mut work, &mut voice, output)?;
    }
    let mut report = Report::default();
    for mut work in work {
        let compared = run.compare(&mut work, &mut voice, args.verify_only, output)?;
        let has_grown = run.has_grown(&work);
        report.partition(&work, compared, has_grown, &mut voice, output)?;
    }
    voice.end();
    report.end(args.verify_only, file.path(), output)
}

fn unreadable_of(args: &MigrateArgs) -> UnreadableRecords {
    if args.skip_unreadable { UnreadableRecords::PassOver } else { UnreadableRecords::End }
}

fn refused(refused: Unmigratable) -> CliError {
    match refused {
        Unmigratable::UnknownTopic(unknown) => unknown,
        Unmigratable::Unfit { problems } => {
            let next = "provision the destination with the manifest of the source (`latent bus provision`); docs/migrate.md says how";
            CliError::Unmigratable { problems, next }
        }
    }
}

fn survey(source: &mut dyn Source, topic: String, partition: Partition) -> Result<Work, CliError> {
    let (first, end) = source.bounds(&topic, partition).map_err(|error| CliError::Log {
        doing: format!("looking where {topic}/p{partition} of the source ends"),
        fault: Fault::from(&error),
    })?;
    Ok(Work { topic, partition, first, end, copied: Copied::default(), finding: None })
}

/// Both sides and what is known of them.
struct Run<'r> {
    source: &'r mut dyn Source,
    destination: &'r dyn InOrder,
    file: &'r mut ProgressFile,
    unreadable: UnreadableRecords,
}

impl Run<'_> {
    /// Copies partition by partition. What ends one of them leaves the others; what ends a side ends all.
    fn copy_all(&mut self, work: &mut [Work], voice: &mut Voice, output: &mut Output) -> Result<(), CliError> {
        let at_work = self.file.progress().at_work.clone();
        let is_at_work =
            |one: &Work| at_work.as_ref().is_some_and(|(topic, partition)| *topic == one.topic && *partition == one.partition.0);
        // What was under way when an earlier run ended may come late: it must find its place taken, and not another partition's record there.
        work.sort_by_key(|one| !is_at_work(one));
        let mut lost: Option<Finding> = None;
        for one in work.iter_mut() {
            match &lost {
                Some(lost) => one.finding = Some(lost.clone()),
                None => self.copy(one, voice, output)?,
            }
            lost = lost.or_else(|| one.finding.clone().filter(Finding::is_of_a_side));
        }
        work.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        Ok(())
    }

    fn copy(&mut self, work: &mut Work, voice: &mut Voice, output: &mut Output) -> Result<(), CliError> {
        let known = self.file.progress().positions.get(&(work.topic.clone(), work.partition.0)).copied();
        self.file.begin(&work.topic, work.partition)?;
        let mut copying = Copying::new(work.end, self.unreadable, known);
        let mut way =
            driving::Way { topic: &work.topic, partition: work.partition, source: &mut *self.source, destination: self.destination };
        let mut was_told = false;
        while way.copy_on(&mut copying) {
            if copying.was_disbelieved() && !std::mem::replace(&mut was_told, true) {
                voice.disbelieved(work, output);
            }
            voice.passed_over(work, &copying.take_passed_over(), output);
            if let Some(position) = copying.position() {
                voice.at(work, position.source);
                self.file.note(&work.topic, work.partition, position)?;
            }
        }
        voice.passed_over(work, &copying.take_passed_over(), output);
        if let Some(position) = copying.position() {
            self.file.note(&work.topic, work.partition, position)?;
        }
        self.file.save()?;
        voice.done(work);
        (work.copied, work.finding) = (copying.counts(), copying.finding().cloned());
        Ok(())
    }

    /// Reads both sides again. `None` where that was not tried because a side could not be used.
    fn compare(
        &mut self,
        work: &mut Work,
        voice: &mut Voice,
        is_first_reading: bool,
        output: &mut Output,
    ) -> Result<Option<Compared>, CliError> {
        if work.finding.as_ref().is_some_and(Finding::is_of_a_side) {
            return Ok(None);
        }
        let known = self.file.progress().positions.get(&(work.topic.clone(), work.partition.0)).copied();
        let mut comparing = Comparing::new(work.end, self.unreadable, known);
        let mut way =
            driving::Way { topic: &work.topic, partition: work.partition, source: &mut *self.source, destination: self.destination };
        while way.compare_on(&mut comparing) {
            let passed_over = comparing.take_passed_over();
            // A copy has told them.
            if is_first_reading {
                voice.passed_over(work, &passed_over, output);
            }
            voice.at(work, comparing.position());
        }
        voice.done(work);
        Ok(Some(comparing.compared()))
    }

    /// Whether the source took more since the run began. A source that cannot be asked is not known to have.
    fn has_grown(&mut self, work: &Work) -> bool {
        self.source.bounds(&work.topic, work.partition).is_ok_and(|(_, end)| end > work.end)
    }
}

/// An empty progress between two logs.
fn progress_between(source: &str, destination: &str) -> Progress {
    Progress { source: source.to_owned(), destination: destination.to_owned(), ..Progress::default() }
}
