//! `latent deadletter replay`.

use std::collections::BTreeMap;

use clap::Args;
use latent_core::{Place, TopicName};
use serde::Serialize;
use serde_json::json;

use super::letter::NoLetter;
use super::walk::Walk;
use super::{ConfigArgs, Letter, Selection, open};
use crate::access::{Access, unexpected};
use crate::control::{Answer, ControlError, Fault, Placed, ReplayOrder, ReplayRefused, Replayed, Request};
use crate::error::CliError;
use crate::output::Output;

/// Arguments of `latent deadletter replay`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent deadletter replay triage.dead/0/3 triage.dead/0/4
  latent deadletter replay --all --trigger triage --reason exhausted --dry-run

Each event goes to the topic it came from, with its key, content and attributes, under the uid `UID#N`; every trigger of that topic sees \
it. It knows which event it is again, so that a handler that derives its keys publishes under the same ones. A dead letter that was replayed \
before is told with the place of its replay and not replayed again: the same command can be run again after any crash. Once an event is not \
stored, later ones of its key are not tried.

Exit status: 3 when any is uncertain, else 1 when any was refused, else 0.")]
pub(crate) struct ReplayArgs {
    /// Where the dead letters lie, as `latent deadletter list` says
    #[arg(value_name = "TOPIC/PARTITION/OFFSET", required_unless_present = "all", conflicts_with_all = ["all", "Selection"])]
    places: Vec<Place>,
    /// All of a trigger, of a topic or with a reason
    #[arg(long, requires = "Selection")]
    all: bool,
    #[command(flatten)]
    selection: Selection,
    /// Say only what would be done
    #[arg(long)]
    dry_run: bool,
    /// Replay also what was replayed before
    #[arg(long, conflicts_with = "all")]
    again: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn replay(args: &ReplayArgs, output: &mut Output) -> Result<(), CliError> {
    let (config, mut access) = open(&args.config.config, "latent deadletter replay")?;
    let mut replayer = Replayer { again: args.again, dry_run: args.dry_run, failed: BTreeMap::new(), counts: ReplayCounts::default() };
    if args.all {
        let topics = args.selection.topics(&config)?;
        let mut walk = Walk::begin(&mut access, &topics, None)?;
        while let Some(page) = walk.page(&mut access, output)? {
            for letter in page.iter().filter(|letter| args.selection.includes(letter)) {
                replayer.replay(letter, &mut access, output)?;
            }
            output.flush()?;
        }
        if replayer.counts.letters() == 0 {
            return args.selection.nothing_found(&config, output);
        }
    } else {
        // A partition has the letters of a key in the order in which they were parked.
        let mut places = args.places.clone();
        places.sort();
        places.dedup();
        for place in &places {
            match Letter::at(&mut access, place) {
                Ok(letter) => replayer.replay(&letter, &mut access, output)?,
                Err(NoLetter::Not(fault)) => replayer.told(place, Err(fault), output)?,
                Err(NoLetter::Failed(error)) => return Err(error),
            }
        }
    }
    let counts = replayer.counts;
    if counts.refused + counts.uncertain > 0 { Err(CliError::Unreplayed { counts }) } else { Ok(()) }
}

/// What became of the dead letters of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(crate) struct ReplayCounts {
    /// Published again, or would be.
    pub(crate) replayed: u64,
    /// Published again before.
    pub(crate) duplicates: u64,
    /// Not published again; those that were not tried included.
    pub(crate) refused: u64,
    /// May be published again.
    pub(crate) uncertain: u64,
}

impl ReplayCounts {
    /// All of them.
    pub(crate) const fn letters(self) -> u64 {
        self.replayed + self.duplicates + self.refused + self.uncertain
    }
}

struct Replayer {
    again: bool,
    dry_run: bool,
    /// Topics and keys of events that were not published again and may be another time, with the place of the dead letter.
    failed: BTreeMap<(TopicName, String), Place>,
    counts: ReplayCounts,
}

impl Replayer {
    fn replay(&mut self, letter: &Letter, access: &mut Access, output: &mut Output) -> Result<(), CliError> {
        let line = (letter.letter.place.topic.clone(), letter.event.key.clone());
        if let Some(earlier) = self.failed.get(&line) {
            return self.told(&letter.place, Err(ReplayRefused::HeldBack(earlier.clone()).into()), output);
        }
        let answer = self.ask(&letter.place, access)?;
        // What can never be published again holds nothing back, and neither do events without a key.
        if answer.as_ref().is_err_and(|fault| !fault.is_not_replayable()) && !letter.event.key.is_empty() {
            self.failed.insert(line, letter.place.clone());
        }
        self.told(&letter.place, answer, output)
    }

    fn ask(&self, place: &Place, access: &mut Access) -> Result<Result<Replayed, Fault>, CliError> {
        let doing = || format!("replaying {place}");
        let order = ReplayOrder { letter: place.to_string(), event: false, again: self.again, dry_run: self.dry_run };
        match access.try_ask(Request::Replay(order)) {
            Ok(Answer::Replayed(replayed)) => Ok(Ok(replayed)),
            Ok(_) => Err(unexpected(&doing())),
            Err(ControlError::Refused(fault)) => Ok(Err(fault)),
            Err(source) if source.may_have_happened() && !self.dry_run => Err(CliError::Unanswered { doing: doing(), source }),
            Err(source) => Err(CliError::Control { doing: doing(), source }),
        }
    }

    fn told(&mut self, letter: &Place, answer: Result<Replayed, Fault>, output: &mut Output) -> Result<(), CliError> {
        let counter = match &answer {
            Ok(Replayed::Stored(Placed { duplicate: true, .. })) => &mut self.counts.duplicates,
            Ok(_) => &mut self.counts.replayed,
            Err(fault) if fault.uncertain => &mut self.counts.uncertain,
            Err(_) => &mut self.counts.refused,
        };
        *counter += 1;
        output.line(&document(letter, &answer), || words(letter, &answer))
    }
}

fn document(letter: &Place, answer: &Result<Replayed, Fault>) -> serde_json::Value {
    let letter = letter.to_string();
    match answer {
        Ok(Replayed::Stored(Placed { topic, partition, offset, uid, duplicate })) => {
            json!({ "letter": letter, "topic": topic, "partition": partition, "offset": offset, "uid": uid, "duplicate": duplicate })
        }
        Ok(Replayed::Would { topic, uid }) => json!({ "letter": letter, "topic": topic, "uid": uid, "dry_run": true }),
        Err(fault) => json!({ "letter": letter, "error": fault }),
    }
}

fn words(letter: &Place, answer: &Result<Replayed, Fault>) -> String {
    match answer {
        Ok(Replayed::Stored(Placed { topic, partition, offset, uid, duplicate: false })) => {
            format!("{letter}: replayed as {topic}/{partition}/{offset}, uid {uid}")
        }
        Ok(Replayed::Stored(Placed { topic, partition, offset, uid, duplicate: true })) => {
            format!("{letter}: was replayed before, as {topic}/{partition}/{offset}, uid {uid}")
        }
        Ok(Replayed::Would { topic, uid }) => format!("{letter}: would be replayed to {topic}, uid {uid}"),
        Err(fault) => format!("{letter}: {}: {}", fault.kind, fault.message_after_kind()),
    }
}
