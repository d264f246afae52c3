//! `latent trigger`: every binding, what it is doing and what is left; the state of those that are gone; and in `redrive` what a broker gave up.

mod redrive;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use latent_core::{Clock as _, SystemClock};

use crate::access::{Access, Stopped, unexpected, without_bindings};
use crate::config::{self, Config, NamedFiles, nearest};
use crate::control::{Answer, ControlError, Forgotten, RemovedTrigger, Request, TriggerStatus};
use crate::data_dir::DataDir;
use crate::error::CliError;
use crate::node;
use crate::output::{Form, Output};
use crate::table::Table;
use crate::timestamp::{time_until, timestamp};

/// `latent trigger`.
#[derive(Debug, Subcommand)]
pub(crate) enum TriggerCommand {
    /// Show every binding: state, backlog, last outcome
    Status(StatusArgs),
    /// Forget the state of a trigger that is not configured any more
    Forget(ForgetArgs),
    /// Publish again what the broker has given up on
    Redrive(redrive::RedriveArgs),
}

/// Arguments of `latent trigger status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent trigger status -c latent.toml --json
  latent trigger status --removed

A trigger that is taken out of the configuration is remembered, so that it goes on where it was if it comes back; --removed lists those.")]
pub(crate) struct StatusArgs {
    /// List those that are not configured any more and whose state is kept, instead
    #[arg(long)]
    removed: bool,
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// Arguments of `latent trigger forget`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  latent trigger forget triage-old

Only for a trigger that is not configured; on a running node, not since its last reload. What it had done is not known any more then: if a \
trigger of this id comes back, it starts anew, and by default with the oldest event that is kept.")]
pub(crate) struct ForgetArgs {
    /// Id of the trigger
    id: String,
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// Runs `latent trigger …`.
///
/// # Errors
/// [`CliError`].
pub(crate) fn trigger(command: &TriggerCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        TriggerCommand::Status(args) if args.removed => removed(args, output),
        TriggerCommand::Status(args) => status(args, output),
        TriggerCommand::Forget(args) => forget(args, output),
        TriggerCommand::Redrive(args) => redrive::redrive(args, output),
    }
}

/// Of a running node its live numbers; of a stopped one what its directory says.
fn status(args: &StatusArgs, output: &mut Output) -> Result<(), CliError> {
    let config = config::load(&args.config, NamedFiles::NotNeeded)?.config;
    let stopped = |log: &latent_bridge::EmbeddedBroker| node::stopped_status(&config, log);
    let stopped = Stopped { bindings: &stopped, config: Some(&config) };
    let mut access = Access::open_knowing(&DataDir::new(&config.node.data_dir), "latent trigger status", stopped)?;
    let statuses = every_status(&mut access)?;
    match output.form() {
        Form::Json => statuses.iter().try_for_each(|status| output.json(status)),
        Form::Human => {
            table(&statuses, SystemClock::start().unix().0).lines().try_for_each(|line| output.text(line))?;
            // Notes beside the answer: without them the answer still holds.
            warnings_of(&mut access).into_iter().for_each(|warning| output.hint(format_args!("warning: {warning}")));
            if let Some(words) = every_removed(&mut access).ok().and_then(|removed| removed_words(&removed)) {
                output.hint(words);
            }
            Ok(())
        }
    }
}

/// What a running node wants its operator to know.
fn warnings_of(access: &mut Access) -> Vec<String> {
    match access.ask("asking for the node's counters", Request::Summary) {
        Ok(Answer::Summary(summary)) => summary.warnings,
        _ => Vec::new(),
    }
}

fn removed(args: &StatusArgs, output: &mut Output) -> Result<(), CliError> {
    let (_, mut access) = open(&args.config, "latent trigger status")?;
    let removed = every_removed(&mut access)?;
    match output.form() {
        Form::Json => removed.iter().try_for_each(|trigger| output.json(trigger)),
        Form::Human => {
            let mut table = Table::new(&["TRIGGER", "TOPIC"]);
            removed.into_iter().for_each(|RemovedTrigger { id, topic }| table.push(vec![id, topic]));
            table.to_string().lines().try_for_each(|line| output.text(line))
        }
    }
}

fn open(config: &Path, holder: &str) -> Result<(Config, Access), CliError> {
    let config = config::load(config, NamedFiles::NotNeeded)?.config;
    let stopped = Stopped { bindings: &without_bindings, config: Some(&config) };
    let access = Access::open_knowing(&DataDir::new(&config.node.data_dir), holder, stopped)?;
    Ok((config, access))
}

fn forget(args: &ForgetArgs, output: &mut Output) -> Result<(), CliError> {
    let (_, mut access) = open(&args.config, "latent trigger forget")?;
    let doing = || format!("forgetting trigger {}", args.id);
    match access.try_ask(Request::ForgetTrigger { id: args.id.clone() }) {
        Ok(Answer::Forgotten(forgotten)) => output.line(&forgotten, || forgotten_words(&forgotten)),
        Ok(_) => Err(unexpected(&doing())),
        Err(ControlError::Refused(fault)) if fault.is_unknown_trigger() => {
            let known: Vec<_> = every_removed(&mut access)?.into_iter().map(|trigger| trigger.id).collect();
            let nearest = nearest(&args.id, known.iter().map(String::as_str)).map(str::to_owned);
            Err(CliError::UnknownTrigger { trigger: args.id.clone(), nearest, known })
        }
        Err(ControlError::Refused(fault)) => Err(CliError::Log { doing: doing(), fault }),
        Err(source) if source.may_have_happened() => Err(CliError::Unanswered { doing: doing(), source }),
        Err(source) => Err(CliError::Control { doing: doing(), source }),
    }
}

fn forgotten_words(Forgotten { id, topic, partitions }: &Forgotten) -> String {
    let partitions = if *partitions == 1 { "1 partition".to_owned() } else { format!("{partitions} partitions") };
    format!("forgotten: trigger {id} and what it had done in {partitions} of {topic}")
}

/// Triggers that a note names at most.
const REMOVED_NAMED_MAX: usize = 8;

fn removed_words(removed: &[RemovedTrigger]) -> Option<String> {
    let named: Vec<_> = removed.iter().take(REMOVED_NAMED_MAX).map(|trigger| trigger.id.as_str()).collect();
    let more = match removed.len().saturating_sub(REMOVED_NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let words = || format!("the state of removed triggers is kept: {}{more}; `latent trigger forget ID` forgets one", named.join(", "));
    (!named.is_empty()).then(words)
}

fn every_removed(access: &mut Access) -> Result<Vec<RemovedTrigger>, CliError> {
    const DOING: &str = "asking for the removed triggers";
    let mut all: Vec<RemovedTrigger> = Vec::new();
    loop {
        let after = all.last().map(|trigger| trigger.id.clone());
        let Answer::RemovedTriggers { triggers, more } = access.ask(DOING, Request::RemovedTriggers { after: after.clone() })? else {
            return Err(unexpected(DOING));
        };
        // Each page must lie after the one before it, or this would never end.
        let advances = triggers.last().is_some_and(|last| after.is_none_or(|after| last.id > after));
        if more && !advances {
            return Err(unexpected(DOING));
        }
        all.extend(triggers);
        if !more {
            return Ok(all);
        }
    }
}

fn every_status(access: &mut Access) -> Result<Vec<TriggerStatus>, CliError> {
    const DOING: &str = "asking for the triggers' status";
    let mut all: Vec<TriggerStatus> = Vec::new();
    loop {
        let after = all.last().map(|status| status.id.clone());
        let Answer::Statuses { statuses, more } = access.ask(DOING, Request::TriggerStatus { after: after.clone() })? else {
            return Err(unexpected(DOING));
        };
        // Each page must lie after the one before it, or this would never end.
        let advances = statuses.last().is_some_and(|last| after.is_none_or(|after| last.id > after));
        if more && !advances {
            return Err(unexpected(DOING));
        }
        all.extend(statuses);
        if !more {
            return Ok(all);
        }
    }
}

const HEADINGS: &[&str] = &[
    "TRIGGER",
    "TOPIC",
    "STATE",
    "PENDING",
    "RUNNING",
    "DELAYED",
    "DEAD",
    "TERMINATED",
    "EXHAUSTED",
    "LAST OUTCOME",
    "LAST DELIVERY",
    "NEXT ATTEMPT",
    "LAST ERROR",
];
/// Under the table of a running node: these columns say nothing of the time before.
const CAPTION: &str =
    "DEAD, TERMINATED, EXHAUSTED and the LAST columns: since the node started, or the trigger was last changed by a reload";

/// What people see at `now`, in milliseconds since 1970.
fn table(statuses: &[TriggerStatus], now: u64) -> String {
    let mut table = Table::new(HEADINGS);
    for status in statuses {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let numbers = [status.pending, status.unacknowledged, Some(status.delayed), Some(status.dead_lettered)];
        let mut row = vec![status.id.clone(), status.topic.clone(), status.state.word().to_owned()];
        row.extend(numbers.map(|number| or_dash(number.map(|number| number.to_string()))));
        row.extend([
            or_dash(status.terminated.map(|count| count.to_string())),
            or_dash(status.exhausted.map(|count| count.to_string())),
            or_dash(status.last_outcome.clone()),
            or_dash(status.last_delivery_at.map(timestamp)),
            or_dash(status.next_attempt_at.map(|at| time_until(at, now))),
            or_dash(status.last_error.clone()),
        ]);
        table.push(row);
    }
    let counted = statuses.iter().any(|status| status.terminated.is_some());
    let caption = if counted { format!("{CAPTION}\n") } else { String::new() };
    format!("{table}{}{}{caption}", expired_words(statuses), stranded_words(statuses))
}

/// Retention wins over a slow trigger. That is rare, so it is no column, and it is loss, so it is not left out.
fn expired_words(statuses: &[TriggerStatus]) -> String {
    let expired = statuses.iter().filter(|status| status.expired_unread > 0);
    expired
        .map(|TriggerStatus { id, topic, expired_unread, .. }| {
            format!("{id}: retention of {topic} removed events before they were handled: {expired_unread}\n")
        })
        .collect()
}

/// What a broker gave up is nobody's until somebody has looked.
fn stranded_words(statuses: &[TriggerStatus]) -> String {
    let stranded = statuses.iter().filter(|status| status.stranded > 0);
    stranded
        .map(|TriggerStatus { id, topic, stranded, stranded_at, .. }| {
            let last = stranded_at.map(|at| format!(", the last with sequence {at}")).unwrap_or_default();
            format!("{id}: the broker delivers messages of {topic} no more that nobody settled: {stranded}{last}\n")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::BindingState;

    fn status(state: BindingState) -> TriggerStatus {
        let count = (state != BindingState::Stopped).then_some(3);
        TriggerStatus {
            id: "t".to_owned(),
            engine: "embedded".to_owned(),
            state,
            pending: Some(1),
            unacknowledged: Some(0),
            delayed: 1,
            dead_lettered: 0,
            last_outcome: None,
            last_delivery_at: None,
            next_attempt_at: Some(12_000),
            topic: "in".to_owned(),
            partitions: 1,
            settled: count,
            terminated: count,
            exhausted: count,
            expired_unread: 0,
            stranded: 0,
            stranded_at: None,
            last_error: count.map(|_| "trap: unreachable".to_owned()),
        }
    }

    /// The cells of the one row, and the lines under it.
    fn shown(status: TriggerStatus) -> (Vec<String>, Vec<String>) {
        let text = table(&[status], 0);
        let mut lines = text.lines().skip(1);
        let cells = lines.next().unwrap_or_default().split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        (cells.map(str::to_owned).collect(), lines.map(str::to_owned).collect())
    }

    #[test]
    fn a_stopped_node_has_dashes_where_it_does_not_know() {
        let (cells, below) = shown(status(BindingState::Stopped));
        assert_eq!(cells, ["t", "in", "stopped", "1", "0", "1", "0", "-", "-", "-", "-", "in 12 s", "-"]);
        assert!(below.is_empty(), "{below:?}");
    }

    #[test]
    fn what_is_not_known_is_a_dash_and_what_was_given_up_is_told() {
        let unknown =
            TriggerStatus { pending: None, unacknowledged: None, stranded: 2, stranded_at: Some(9), ..status(BindingState::Stopped) };
        let (cells, below) = shown(unknown);
        assert_eq!(cells[2..5], ["stopped", "-", "-"]);
        assert_eq!(below, ["t: the broker delivers messages of in no more that nobody settled: 2, the last with sequence 9"]);
    }

    #[test]
    fn removed_triggers_are_named_up_to_eight() {
        let removed = |count: usize| (0..count).map(|n| RemovedTrigger { id: format!("t{n}"), topic: "in".to_owned() }).collect::<Vec<_>>();
        assert_eq!(removed_words(&removed(0)), None);
        let words = |count| removed_words(&removed(count)).unwrap();
        assert_eq!(words(2), "the state of removed triggers is kept: t0, t1; `latent trigger forget ID` forgets one");
        assert!(words(8).contains("t7; ") && words(9).contains("t7 and 1 more; "), "{}", words(9));
    }

    #[test]
    fn events_that_expired_before_they_were_handled_are_told_under_the_table() {
        for state in [BindingState::Idle, BindingState::Stopped] {
            let (_, below) = shown(TriggerStatus { expired_unread: 7, ..status(state) });
            assert_eq!(below[0], "t: retention of in removed events before they were handled: 7");
        }
    }

    #[test]
    fn a_running_node_s_counters_are_said_to_begin_with_it() {
        let (cells, below) = shown(status(BindingState::Delayed));
        assert_eq!(cells, ["t", "in", "delayed", "1", "0", "1", "0", "3", "3", "-", "-", "in 12 s", "trap: unreachable"]);
        assert_eq!(below, [CAPTION]);
    }
}
