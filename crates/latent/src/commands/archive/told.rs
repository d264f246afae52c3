//! What people and machines are told of a verification, and the bar that moves meanwhile.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};
use latent_bridge::cold::ColdStore;
use latent_bridge::cold::verify::VerifyReport;
use serde_json::{Value, json};

use super::destination;
use crate::control::Fault;
use crate::error::CliError;
use crate::output::{Form, Output, printable};

/// Moves on a person's terminal only.
pub(super) fn spinner(form: Form) -> ProgressBar {
    if form != Form::Human || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})").unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::new_spinner().with_style(style)
}

/// What was seen so far.
pub(super) fn so_far(report: &VerifyReport) -> String {
    let VerifyReport { segments, objects, records, bytes, findings, .. } = report;
    let wrong = match findings.total() {
        0 => String::new(),
        count => format!(", {count} wrong"),
    };
    format!("verified {segments} segments and {objects} single events with {records} records, {} MB{wrong}", bytes / 1_000_000)
}

/// Asking for a part that an archive does not have is a mistake.
pub(super) fn nothing_of(store: &dyn ColdStore, uri: &str, topic: Option<&str>, partition: Option<u32>) -> Result<(), CliError> {
    let option = match (topic, partition) {
        (None, None) => return Ok(()),
        (Some(topic), Some(_)) if destination::has_topic(store, uri, topic)? => "--partition",
        (Some(_), _) => "--topic",
        (None, Some(_)) => "--partition",
    };
    Err(CliError::Value { option, reason: format!("the archive {uri} has nothing of it") })
}

/// A place in which nobody archived anything: nothing was verified or restored, which must not look as if all were well.
pub(super) fn no_archive(doing: &str, uri: &str) -> CliError {
    let message = format!("there is no archive at {uri:?}: it has neither segments nor single events");
    CliError::Log { doing: format!("{doing} {uri}"), fault: Fault::refused("config", message) }
}

/// The findings, one a line.
pub(super) fn findings(report: &VerifyReport, output: &mut Output) -> Result<(), CliError> {
    for finding in report.findings.kept() {
        output.line(&json!({ "finding": finding }), || printable(&finding.to_string()))?;
    }
    let untold = report.findings.total().saturating_sub(report.findings.kept().len() as u64);
    if untold > 0 {
        output.hint(format_args!("and {untold} more"));
    }
    Ok(())
}

/// The numbers of a report as a document.
pub(super) fn document(report: &VerifyReport) -> Value {
    let counts: serde_json::Map<_, _> =
        report.findings.counts().iter().map(|(kind, count)| (kind.word().to_owned(), json!(count))).collect();
    json!({
        "partitions": report.partitions,
        "segments": report.segments,
        "proven_segments": report.proven_segments,
        "objects": report.objects,
        "records": report.records,
        "damaged": report.damaged,
        "bytes": report.bytes,
        "compared_with_log": report.compared,
        "unattested_ends": report.unattested_ends,
        "waiting": report.waiting,
        "findings": report.findings.total(),
        "findings_by_kind": counts,
    })
}

/// The numbers for people: what was seen, then what could not be told. `has_log`: the log was there to be compared with.
pub(super) fn sentences(report: &VerifyReport, has_log: bool) -> Vec<String> {
    let VerifyReport { partitions, segments, proven_segments, objects, records, damaged, compared, unattested_ends, waiting, .. } = report;
    let wrong = match report.findings.total() {
        0 => "nothing is wrong".to_owned(),
        1 => "1 thing is wrong".to_owned(),
        count => format!("{count} things are wrong"),
    };
    let mut out = vec![format!("{partitions} partitions: {segments} segments and {objects} single events with {records} records; {wrong}")];
    if *damaged > 0 {
        out.push(format!("{damaged} records were damaged in the log before they were archived; their offsets are kept"));
    }
    if segments > proven_segments {
        out.push(format!(
            "{} segments were checked without a proof of who made them; --key names the control keys",
            segments - proven_segments
        ));
    }
    if *unattested_ends > 0 {
        out.push(format!("the end of {unattested_ends} partitions is not attested: what is missing behind their last segment would not be found; --head names what `latent archive status --json` printed"));
    }
    if *waiting > 0 {
        out.push(format!(
            "{waiting} events are not in the archive yet, and as many exports wait or more; verify again when `latent bus maintain` leaves none pending"
        ));
    }
    if *objects > 0 && *compared == 0 {
        let beside = if has_log {
            ", as the log has none of them any more"
        } else {
            "; with -c they are compared with the log, as far as it still has them"
        };
        out.push(format!("single events carry no proof: their content was compared with nothing{beside}"));
    }
    out
}
