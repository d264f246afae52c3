//! What people and machines are told of a migration: how far it is, what became of each partition, and how the command ends.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use latent_bridge::migrate::{Compared, Finding, Held};
use latent_core::Offset;
use serde::Serialize;
use serde_json::json;

use super::Work;
use crate::error::CliError;
use crate::output::{Form, Output};

/// Why a partition is not the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct PartitionFinding {
    /// The topic.
    pub(crate) topic: String,
    /// The partition.
    pub(crate) partition: u32,
    /// A name of `docs/errors.md`.
    pub(crate) kind: &'static str,
    /// In words.
    pub(crate) message: String,
    /// Events may be in the destination of which nobody knows.
    #[serde(skip)]
    pub(crate) is_uncertain: bool,
}

/// What became of all partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(crate) struct MigrationCounts {
    /// Partitions.
    pub(crate) partitions: u64,
    /// Of them, those that are the same on both sides.
    pub(crate) same: u64,
    /// Events published by this run.
    pub(crate) copied: u64,
    /// Events that were in the destination already.
    pub(crate) already_there: u64,
    /// Events of the destination that have expired in the source since they were copied.
    pub(crate) expired: u64,
    /// Records of the source that cannot be read and were passed over.
    pub(crate) passed_over: u64,
    /// Partitions of the source that took more since the run began.
    pub(crate) grown: u64,
}

/// Shows how far a migration is, to people at a terminal, and tells what comes up on the way.
pub(super) struct Voice {
    bar: ProgressBar,
    /// Offsets of what is done.
    done: u64,
}

impl Voice {
    /// For partitions from one offset to another; each is read once more in the end, or only then.
    pub(super) fn new(ranges: &[(Offset, Offset)], is_read_once: bool, form: Form) -> Self {
        let offsets: u64 = ranges.iter().map(|(first, end)| end.0.saturating_sub(first.0)).sum();
        let length = offsets.saturating_mul(if is_read_once { 1 } else { 2 });
        Self { bar: bar(length, form), done: 0 }
    }

    /// A partition was read up to an offset of the source.
    pub(super) fn at(&self, work: &Work, source: Offset) {
        self.bar.set_position(self.done.saturating_add(source.0.saturating_sub(work.first.0)));
        self.bar.set_message(format!("{}/p{}", work.topic, work.partition));
    }

    /// A partition was read to its end.
    pub(super) fn done(&mut self, work: &Work) {
        self.done = self.done.saturating_add(work.end.0.saturating_sub(work.first.0));
        self.bar.set_position(self.done);
    }

    /// Records that were passed over.
    pub(super) fn passed_over(&self, work: &Work, offsets: &[Offset], output: &Output) {
        for offset in offsets {
            let document = json!({ "topic": work.topic, "partition": work.partition.0, "offset": offset.0, "skipped": "unreadable" });
            let words =
                format_args!("{}/p{}: source offset {offset} cannot be read as an event and was passed over", work.topic, work.partition);
            self.bar.suspend(|| output.note(&document, words));
        }
    }

    /// What an earlier run noted is not there.
    pub(super) fn disbelieved(&self, work: &Work, output: &Output) {
        let words = format_args!(
            "{}/p{}: what an earlier run noted is not to be found on both sides; it is compared from the beginning",
            work.topic, work.partition
        );
        self.bar.suspend(|| output.hint(words));
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// Only people at a terminal see it.
fn bar(length: u64, form: Form) -> ProgressBar {
    if form == Form::Json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent}% {per_sec} {eta} {msg}");
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[derive(Serialize)]
struct SideDocument {
    records: u64,
    sha256: String,
}

impl From<Held> for SideDocument {
    fn from(held: Held) -> Self {
        Self { records: held.records, sha256: held.digest.to_string() }
    }
}

#[derive(Serialize)]
struct PartitionDocument<'w> {
    topic: &'w str,
    partition: u32,
    same: bool,
    copied: u64,
    already_there: u64,
    expired: u64,
    passed_over: u64,
    grown: bool,
    source: Option<SideDocument>,
    destination: Option<SideDocument>,
    finding: Option<&'w PartitionFinding>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Report {
    counts: MigrationCounts,
    findings: Vec<PartitionFinding>,
}

impl Report {
    /// Tells and counts one partition. `compared` is missing where that could not be tried.
    pub(super) fn partition(
        &mut self,
        work: &Work,
        compared: Option<Compared>,
        has_grown: bool,
        voice: &mut Voice,
        output: &mut Output,
    ) -> Result<(), CliError> {
        // What kept it from being copied says more than what is missing by it.
        let finding = work.finding.clone().or_else(|| compared.as_ref().and_then(|compared| compared.finding.clone()));
        let finding = finding.map(|finding| found(work, &finding));
        let (expired, passed_over) = compared.as_ref().map_or((0, 0), |compared| (compared.expired, compared.passed_over));
        self.counts.partitions += 1;
        self.counts.same += u64::from(finding.is_none());
        self.counts.copied += work.copied.copied;
        self.counts.already_there += work.copied.already_there;
        self.counts.expired += expired;
        self.counts.passed_over += passed_over;
        self.counts.grown += u64::from(has_grown);
        let document = PartitionDocument {
            topic: &work.topic,
            partition: work.partition.0,
            same: finding.is_none(),
            copied: work.copied.copied,
            already_there: work.copied.already_there,
            expired,
            passed_over,
            grown: has_grown,
            source: compared.as_ref().map(|compared| compared.source.into()),
            destination: compared.as_ref().map(|compared| compared.destination.into()),
            finding: finding.as_ref(),
        };
        let words = || partition_words(&document);
        voice.bar.suspend(|| output.line(&document, words).and_then(|()| output.flush()))?;
        self.findings.extend(finding);
        Ok(())
    }

    /// The summary, and how the command ends.
    pub(super) fn end(self, is_comparison: bool, progress: &Path, output: &mut Output) -> Result<(), CliError> {
        let Self { counts, findings } = self;
        let MigrationCounts { partitions, same, copied, already_there, expired, passed_over, grown } = counts;
        output.line(&json!({ "counts": counts }), || {
            format!(
                "{same} of {partitions} partitions are the same on both sides: {copied} events copied, {already_there} already there, {expired} \
                 expired in the source since, {passed_over} passed over"
            )
        })?;
        if grown > 0 {
            output.hint(format_args!(
                "the source took more since this run began ({grown} of {partitions} partitions): stop who publishes to it and run it again"
            ));
        }
        if !findings.is_empty() {
            return Err(CliError::Unmigrated { counts, findings, is_comparison });
        }
        if !is_comparison {
            output.hint(format_args!("{} keeps how far it is, for a further run; remove it when there is to be none", progress.display()));
        }
        Ok(())
    }
}

fn found(work: &Work, finding: &Finding) -> PartitionFinding {
    PartitionFinding {
        topic: work.topic.clone(),
        partition: work.partition.0,
        kind: finding.kind(),
        message: finding.to_string(),
        is_uncertain: finding.is_uncertain(),
    }
}

fn partition_words(of: &PartitionDocument<'_>) -> String {
    let PartitionDocument { topic, partition, copied, already_there, .. } = of;
    let mut words = format!("{topic}/p{partition}: ");
    let _ = match of.finding {
        None => write!(words, "the same on both sides ({copied} copied, {already_there} already there)"),
        Some(finding) => write!(words, "{}", finding.message),
    };
    for (name, side) in [("source", &of.source), ("destination", &of.destination)] {
        if let Some(SideDocument { records, sha256 }) = side {
            let _ = write!(words, "\n  {name:<11} {records} events, SHA-256 {sha256}");
        }
    }
    words
}
