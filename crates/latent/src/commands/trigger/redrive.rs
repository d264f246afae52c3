//! `latent trigger redrive`: what a broker has delivered as often as it may, and nobody settled, is in its stream and comes to nobody any more.
//! The operator's user sees where; the events are published again as replays of dead letters are.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Args;
use latent_bridge::nats_bus::found_durables;
use latent_core::{Offset, Partition, Place, TopicName};
use latent_nats::lanes::LaneInput;
use latent_nats::triggers::BindingInput;
use serde_json::{Value, json};

use crate::access::{Access, Stopped, unexpected, without_bindings};
use crate::broker::Place as BrokerPlace;
use crate::commands::broker::operator_options;
use crate::commands::deadletter::ReplayCounts;
use crate::config::{self, Config, NamedFiles, nearest};
use crate::control::{Answer, ControlError, Event, Fault, Placed, ReplayOrder, ReplayRefused, Replayed, Request};
use crate::data_dir::DataDir;
use crate::error::CliError;
use crate::output::Output;

/// Arguments of `latent trigger redrive`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent trigger redrive triage-github --dry-run
  latent trigger redrive triage-github

It looks at the trigger's consumers as the operator that AV_NATS_USER and AV_NATS_PASSWORD name, as `latent broker` does. What lies between \
the last event before which everything is settled and the last one that was delivered, while nothing is unsettled, the broker has given up on, \
but for events among them that were settled out of order: those would run once more. Each goes to its topic again as `latent deadletter replay` \
does it, under the uid `UID#N`, once, however often this is run; every trigger of the topic sees it. Of a raw stream the sequences are told, \
and whoever may publishes them again.

Exit status: 3 when any is uncertain, else 1 when any was refused, else 0.")]
pub(crate) struct RedriveArgs {
    /// Id of the trigger
    id: String,
    /// Say only what would be done
    #[arg(long)]
    dry_run: bool,
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// A consumer of the trigger.
struct Consumer {
    stream: String,
    name: String,
    /// What its messages are events of; `None` for a raw stream.
    of: Option<(TopicName, Partition)>,
}

const HOLDER: &str = "latent trigger redrive";

pub(super) fn redrive(args: &RedriveArgs, output: &mut Output) -> Result<(), CliError> {
    let config = config::load(&args.config, NamedFiles::NotNeeded)?.config;
    let consumers = consumers_of(&config, &args.id)?;
    let options = operator_options(&config)?;
    let place = BrokerPlace::named_in(&options);
    let named = consumers.iter().map(|consumer| (consumer.stream.clone(), consumer.name.clone())).collect();
    let found = found_durables(options, named);
    let found =
        found.map_err(|error| CliError::Broker { doing: "looking at consumers".to_owned(), source: Box::new(place.failed(error)) })?;
    let missing = consumers.iter().zip(&found).filter(|(_, found)| found.is_none());
    let missing: Vec<_> = missing.map(|(consumer, _)| format!("stream {} has no consumer {}", consumer.stream, consumer.name)).collect();
    if !missing.is_empty() {
        return Err(CliError::Node {
            what: format!("what the broker has given up on of trigger {} cannot be told", args.id),
            why: missing.join("; "),
            next: "make what is missing with `latent broker provision --apply`; a consumer that is made anew delivers what it begins with again".to_owned(),
        });
    }
    let stranded = consumers.iter().zip(found).filter_map(|(consumer, found)| Some((consumer, found?.stranded()?)));
    let stranded: Vec<_> = stranded.collect();
    if stranded.is_empty() {
        output.hint(format_args!("the broker has given up on nothing of trigger {}", args.id));
        return Ok(());
    }
    let stopped = Stopped { bindings: &without_bindings, config: Some(&config) };
    let access = Access::open_knowing(&DataDir::new(&config.node.data_dir), HOLDER, stopped)?;
    let mut redriver = Redriver { access, dry_run: args.dry_run, failed: BTreeSet::new(), counts: ReplayCounts::default() };
    for (consumer, sequences) in stranded {
        match &consumer.of {
            Some((topic, partition)) => redriver.redrive((topic, *partition), sequences, output)?,
            None => told_raw(consumer, &sequences, output)?,
        }
    }
    let counts = redriver.counts;
    if counts.refused + counts.uncertain > 0 { Err(CliError::Unreplayed { counts }) } else { Ok(()) }
}

/// The trigger's consumers, by the configuration.
fn consumers_of(config: &Config, id: &str) -> Result<Vec<Consumer>, CliError> {
    let lanes = config.lanes.iter().flat_map(|lanes| lanes.installed.lanes()).map(|lane| lane.draft());
    let lanes = lanes.filter(|lane| lane.trigger.as_str() == id).map(|lane| Consumer {
        stream: lane.stream.to_string(),
        name: lane.consumer.to_string(),
        of: match &lane.input {
            LaneInput::Event { topic, partition } => Some((topic.clone(), *partition)),
            LaneInput::Raw => None,
        },
    });
    let bindings = config.streams.iter().flat_map(|streams| streams.triggers.bindings());
    let bindings = bindings.filter(|binding| binding.trigger().as_str() == id).map(|binding| Consumer {
        stream: binding.stream().to_string(),
        name: binding.consumer().to_string(),
        of: match binding.input() {
            BindingInput::Event { topic, partition } => Some((topic.clone(), *partition)),
            BindingInput::Values => None,
        },
    });
    let consumers: Vec<_> = lanes.chain(bindings).collect();
    if !consumers.is_empty() {
        return Ok(consumers);
    }
    if config.triggers.iter().any(|trigger| trigger.id.as_str() == id) {
        let reason = format!("trigger {id:?} is woken by the log of this node, which gives nothing up");
        return Err(CliError::Value { option: "ID", reason });
    }
    let known: BTreeSet<String> = config
        .lane_triggers()
        .map(|lane| lane.trigger.id.to_string())
        .chain(config.streams.iter().flat_map(|streams| streams.triggers.bindings()).map(|binding| binding.trigger().to_string()))
        .collect();
    let nearest = nearest(id, known.iter().map(String::as_str)).map(str::to_owned);
    Err(CliError::UnknownTrigger { trigger: id.to_owned(), nearest, known: known.into_iter().collect() })
}

/// A raw message is nobody's event: it is told where it lies.
fn told_raw(consumer: &Consumer, sequences: &RangeInclusive<u64>, output: &mut Output) -> Result<(), CliError> {
    let Consumer { stream, name, .. } = consumer;
    let (first, last) = (sequences.start(), sequences.end());
    let document = json!({ "stream": stream, "consumer": name, "first": first, "last": last });
    output.line(&document, || {
        format!(
            "{stream}: the broker has given up on messages of consumer {name} from sequence {first} to {last}; whoever may publishes them to \
             their subject again (`nats stream get {stream} SEQUENCE` shows one)"
        )
    })
}

struct Redriver {
    access: Access,
    dry_run: bool,
    /// Keys of which an event was not published: later ones must not overtake it.
    failed: BTreeSet<(Partition, String)>,
    counts: ReplayCounts,
}

/// Events read at a time.
const PAGE: u64 = 128;

impl Redriver {
    fn redrive(
        &mut self,
        (topic, partition): (&TopicName, Partition),
        sequences: RangeInclusive<u64>,
        output: &mut Output,
    ) -> Result<(), CliError> {
        let (mut next, last) = (*sequences.start(), *sequences.end());
        while next <= last {
            let read = Request::Fetch { topic: topic.to_string(), partition: partition.0, offset: next, max: PAGE };
            let doing = format!("reading {topic}/{partition}/{next}");
            let Answer::Events(events) = self.access.ask(&doing, read)? else { return Err(unexpected(&doing)) };
            let Some(end) = events.last().map(|event| event.offset.saturating_add(1)) else { break };
            for event in events.iter().filter(|event| event.offset <= last) {
                let place = Place { topic: topic.clone(), partition, offset: Offset(event.offset) };
                self.publish(&place, event, output)?;
            }
            next = end;
        }
        Ok(())
    }

    fn publish(&mut self, place: &Place, event: &Event, output: &mut Output) -> Result<(), CliError> {
        let line = (place.partition, event.key.clone());
        let answer = if self.failed.contains(&line) { Err(ReplayRefused::HeldBack(place.clone()).into()) } else { self.ask(place)? };
        if answer.as_ref().is_err_and(|fault: &Fault| !fault.is_not_replayable()) && !event.key.is_empty() {
            self.failed.insert(line);
        }
        let counter = match &answer {
            Ok(Replayed::Stored(Placed { duplicate: true, .. })) => &mut self.counts.duplicates,
            Ok(_) => &mut self.counts.replayed,
            Err(fault) if fault.uncertain => &mut self.counts.uncertain,
            Err(_) => &mut self.counts.refused,
        };
        *counter += 1;
        output.line(&document(place, &answer), || words(place, &answer))
    }

    fn ask(&mut self, place: &Place) -> Result<Result<Replayed, Fault>, CliError> {
        let doing = || format!("publishing {place} again");
        let order = ReplayOrder { letter: place.to_string(), event: true, again: false, dry_run: self.dry_run };
        match self.access.try_ask(Request::Replay(order)) {
            Ok(Answer::Replayed(replayed)) => Ok(Ok(replayed)),
            Ok(_) => Err(unexpected(&doing())),
            Err(ControlError::Refused(fault)) => Ok(Err(fault)),
            Err(source) if source.may_have_happened() && !self.dry_run => Err(CliError::Unanswered { doing: doing(), source }),
            Err(source) => Err(CliError::Control { doing: doing(), source }),
        }
    }
}

fn document(place: &Place, answer: &Result<Replayed, Fault>) -> Value {
    let event = place.to_string();
    match answer {
        Ok(Replayed::Stored(Placed { topic, partition, offset, uid, duplicate })) => {
            json!({ "event": event, "topic": topic, "partition": partition, "offset": offset, "uid": uid, "duplicate": duplicate })
        }
        Ok(Replayed::Would { topic, uid }) => json!({ "event": event, "topic": topic, "uid": uid, "dry_run": true }),
        Err(fault) => json!({ "event": event, "error": fault }),
    }
}

fn words(place: &Place, answer: &Result<Replayed, Fault>) -> String {
    match answer {
        Ok(Replayed::Stored(Placed { topic, partition, offset, uid, duplicate: false })) => {
            format!("{place}: published again as {topic}/{partition}/{offset}, uid {uid}")
        }
        Ok(Replayed::Stored(Placed { topic, partition, offset, uid, duplicate: true })) => {
            format!("{place}: was published again before, as {topic}/{partition}/{offset}, uid {uid}")
        }
        Ok(Replayed::Would { topic, uid }) => format!("{place}: would be published to {topic} again, uid {uid}"),
        Err(fault) => format!("{place}: {}: {}", fault.kind, fault.message_after_kind()),
    }
}
