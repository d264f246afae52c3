//! What `latent dev` says, each message for people and for machines. Pure.

use latent_core::Place;
use latent_node::JournalEntry;
use serde_json::{Value, json};

use super::hands::Said;
use crate::control::Difference;
use crate::output::printable;

/// Files that a line names at most.
const FILES_NAMED_MAX: usize = 3;
/// Digits of a component's digest in a line for people.
const DIGEST_SHOWN: usize = "sha256:".len() + 12;
/// What holds a message beside its text.
const MESSAGE_BYTES: usize = 512;
/// What holds a line of a log beside its text.
const LINE_BYTES: usize = 64;

/// One thing that is said.
#[derive(Debug)]
pub(super) enum Message {
    /// A build begins.
    Building(Building),
    /// A build ended well.
    Built(Ended),
    /// A build failed.
    BuildFailed(Failed),
    /// The node serves.
    Started(Started),
    /// Something else is in force.
    InForce(InForce),
    /// Settings or components were not taken in.
    Refused {
        /// As in `docs/errors.md`.
        kind: String,
        /// What and why, on lines of their own.
        message: String,
        /// What there is instead.
        instead: Instead,
    },
    /// Something to know.
    Note(String),
    /// An activation ended.
    Activation(Box<JournalEntry>),
    /// Activations that nobody took in time.
    LeftOut(u64),
}

/// What there is instead of what was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instead {
    /// What was in force before.
    WhatRan,
    /// No node runs yet.
    Nothing,
}

/// See [`Message::Building`].
#[derive(Debug)]
pub(super) struct Building {
    /// What is built.
    pub(super) project: String,
    /// Services that run it.
    pub(super) services: Vec<String>,
    /// Files for whose sake, as a person would name them; empty for the first build.
    pub(super) changed: Vec<String>,
    /// The command.
    pub(super) command: String,
}

/// See [`Message::Built`].
#[derive(Debug)]
pub(super) struct Ended {
    /// What was built.
    pub(super) project: String,
    /// How long it took.
    pub(super) millis: u64,
    /// The compiler's warnings.
    pub(super) output: Said,
}

/// See [`Message::BuildFailed`].
#[derive(Debug)]
pub(super) struct Failed {
    /// What could not be built.
    pub(super) project: String,
    /// How long it took.
    pub(super) millis: u64,
    /// The compiler's errors.
    pub(super) output: Said,
    /// What to do, where something other than the source is to be mended.
    pub(super) next: Option<String>,
}

/// See [`Message::Started`].
#[derive(Debug)]
pub(super) struct Started {
    /// The node's name.
    pub(super) node: String,
    /// Its data.
    pub(super) data: String,
    /// Where calls lead.
    pub(super) routes: Vec<Route>,
}

/// See [`Message::InForce`].
#[derive(Debug)]
pub(super) struct InForce {
    /// Of the configuration.
    pub(super) epoch: u64,
    /// What changed.
    pub(super) changes: Vec<Difference>,
    /// Routes that lead elsewhere than before.
    pub(super) routes: Vec<Route>,
    /// What is not as the configuration says.
    pub(super) notes: Vec<String>,
}

/// Where the calls of a service lead.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct Route {
    /// The service.
    pub(super) service: String,
    /// Digest of the component.
    pub(super) component: String,
    /// How often it was led elsewhere.
    pub(super) generation: u64,
}

/// Whether words are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paint {
    /// No.
    Plain,
    /// For a terminal.
    Colours,
}

#[derive(Debug, Clone, Copy)]
enum Colour {
    Good,
    Bad,
    Decided,
    Faint,
}

impl Paint {
    fn word(self, colour: Colour, word: &str) -> String {
        let code = match (self, colour) {
            (Self::Plain, _) => return word.to_owned(),
            (_, Colour::Good) => "32",
            (_, Colour::Bad) => "1;31",
            (_, Colour::Decided) => "33",
            (_, Colour::Faint) => "2",
        };
        format!("\u{1b}[{code}m{word}\u{1b}[0m")
    }
}

impl Message {
    /// About as much memory as it takes.
    pub(super) fn bytes(&self) -> usize {
        let text = match self {
            Self::Activation(entry) => {
                entry.ended.detail.len()
                    + entry.log.iter().map(|line| line.text.len() + LINE_BYTES).sum::<usize>()
                    + size_of::<JournalEntry>()
            }
            Self::Built(Ended { output, .. }) | Self::BuildFailed(Failed { output, .. }) => output.bytes.len(),
            Self::Refused { message, .. } | Self::Note(message) => message.len(),
            Self::InForce(InForce { changes, notes, .. }) => {
                changes.iter().map(|change| change.name.len() + change.from.len() + change.to.len() + MESSAGE_BYTES).sum::<usize>()
                    + notes.iter().map(String::len).sum::<usize>()
            }
            Self::Building(_) | Self::Started(_) | Self::LeftOut(_) => 0,
        };
        text + MESSAGE_BYTES
    }

    /// True for what may be counted instead of shown when nobody reads.
    pub(super) const fn is_activation(&self) -> bool {
        matches!(self, Self::Activation(_))
    }

    /// One JSON object.
    pub(super) fn document(&self) -> Value {
        match self {
            Self::Building(Building { project, services, changed, command }) => {
                json!({ "event": "building", "project": project, "services": services, "changed": changed, "command": command })
            }
            Self::Built(Ended { project, millis, output }) => {
                json!({ "event": "built", "project": project, "millis": millis, "output": text_of(output), "output_bytes_left_out": output.bytes_left_out })
            }
            Self::BuildFailed(Failed { project, millis, output, next }) => json!({
                "event": "build-failed", "project": project, "millis": millis,
                "output": text_of(output), "output_bytes_left_out": output.bytes_left_out, "next": next,
            }),
            Self::Started(Started { node, data, routes }) => {
                json!({ "event": "started", "node": node, "data": data, "routes": routes })
            }
            Self::InForce(InForce { epoch, changes, routes, notes }) => {
                json!({ "event": "in-force", "epoch": epoch, "changes": changes, "routes": routes, "notes": notes })
            }
            Self::Refused { kind, message, instead } => {
                json!({ "event": "refused", "kind": kind, "message": message, "serving": *instead == Instead::WhatRan })
            }
            Self::Note(note) => json!({ "event": "note", "note": note }),
            Self::Activation(entry) => activation_document(entry),
            Self::LeftOut(activations) => json!({ "event": "left-out", "activations": activations }),
        }
    }

    /// One or more lines.
    pub(super) fn text(&self, paint: Paint) -> String {
        match self {
            Self::Building(building) => building_text(building),
            Self::Built(Ended { project, millis, output }) => {
                let done = format!("{} {project} in {}", paint.word(Colour::Good, "built"), seconds(*millis));
                lines(done, indented(output))
            }
            Self::BuildFailed(failed) => failed_text(failed, paint),
            Self::Started(Started { node, data, routes }) => {
                let serving = format!("{} {node}; its data is in {data}; Ctrl-C ends it", paint.word(Colour::Good, "serving"));
                lines(serving, routes.iter().map(route_text).collect())
            }
            Self::InForce(in_force) => in_force_text(in_force, paint),
            Self::Refused { message, instead, .. } => {
                let refused = match instead {
                    Instead::WhatRan => format!("{}; what was in force still is:", paint.word(Colour::Bad, "not taken in")),
                    Instead::Nothing => format!("{}; waiting for a change:", paint.word(Colour::Bad, "cannot start yet")),
                };
                lines(refused, message.lines().map(printable).collect())
            }
            Self::Note(note) => printable(note),
            Self::Activation(entry) => activation_text(entry, paint),
            Self::LeftOut(activations) => format!("{activations} activations are not shown: they ended faster than these lines are read"),
        }
    }
}

/// A line and what stands indented under it.
fn lines(first: String, below: Vec<String>) -> String {
    below.into_iter().fold(first, |text, line| text + "\n    " + &line)
}

fn text_of(said: &Said) -> String {
    String::from_utf8_lossy(&said.bytes).trim_end().to_owned()
}

fn indented(said: &Said) -> Vec<String> {
    let mut lines: Vec<_> = text_of(said).lines().map(printable).collect();
    if said.bytes_left_out > 0 {
        lines.push(format!("… and {} more bytes", said.bytes_left_out));
    }
    lines
}

#[allow(clippy::cast_precision_loss, reason = "shown with one digit")]
fn seconds(millis: u64) -> String {
    format!("{:.1} s", millis as f64 / 1_000.0)
}

fn building_text(Building { project, services, changed, command }: &Building) -> String {
    let for_whom =
        if services.len() == 1 && services.first() == Some(project) { String::new() } else { format!(" for {}", services.join(", ")) };
    let why = match (changed.len(), changed.len().saturating_sub(FILES_NAMED_MAX)) {
        (0, _) => String::new(),
        (_, 0) => format!(" ({} changed)", changed.join(", ")),
        (_, more) => format!(" ({} and {more} more changed)", changed.iter().take(FILES_NAMED_MAX).cloned().collect::<Vec<_>>().join(", ")),
    };
    printable(&format!("building {project}{for_whom}{why}: {command}"))
}

fn failed_text(Failed { project, millis, output, next }: &Failed, paint: Paint) -> String {
    let failed =
        format!("{} {project} could not be built ({}); what was built before stays", paint.word(Colour::Bad, "error:"), seconds(*millis));
    let below = indented(output).into_iter().chain(next.as_ref().map(|next| format!("next: {next}")));
    lines(failed, below.collect())
}

fn route_text(Route { service, component, generation }: &Route) -> String {
    let shown = component.get(..DIGEST_SHOWN).unwrap_or(component);
    format!("{service} leads to component {shown}, generation {generation}")
}

fn in_force_text(InForce { epoch: _, changes, routes, notes }: &InForce, paint: Paint) -> String {
    // A component that changed is told by its route.
    let others = changes.iter().filter(|change| !(change.object == "service" && change.change == "component")).map(ToString::to_string);
    let below: Vec<_> = routes.iter().map(route_text).chain(others.map(|other| printable(&other))).chain(notes.iter().cloned()).collect();
    match (changes.is_empty(), below.is_empty()) {
        (true, true) => "nothing that runs is different".to_owned(),
        _ => lines(paint.word(Colour::Good, "in force"), below),
    }
}

/// How an outcome is seen at a glance: done, decided by the function, or gone wrong.
fn colour_of(outcome: &str) -> Colour {
    match outcome {
        "success" => Colour::Good,
        "rejected" | "retry" | "declared-failure" => Colour::Decided,
        _ => Colour::Bad,
    }
}

#[allow(clippy::cast_precision_loss, reason = "shown with one digit")]
fn activation_text(entry: &JournalEntry, paint: Paint) -> String {
    let outcome = paint.word(colour_of(entry.ended.kind), entry.ended.kind);
    let what = match &entry.delivery {
        Some(delivery) => {
            let Place { topic, partition, offset } = &delivery.place;
            let binding = &delivery.origin.binding;
            format!("{binding}  {topic}/{partition}@{offset}  attempt {}", delivery.count)
        }
        None => format!("{}#{}  called", entry.contract, entry.function),
    };
    let used = format!("{:.1} ms  fuel {}", entry.run_micros as f64 / 1_000.0, entry.fuel_used);
    let first = format!("{outcome}  {}  {what}  {used}", entry.service);
    let why = entry.ended.detail.lines().map(printable);
    // Lines with nothing on them would push away those with something.
    let said = entry.log.iter().filter(|line| !line.text.trim().is_empty());
    let said = said.map(|line| format!("{} {}", paint.word(Colour::Faint, &format!("{}:", line.source)), printable(&line.text)));
    let cut = (entry.log_bytes_cut > 0).then(|| format!("… and {} bytes beyond its budget for logs", entry.log_bytes_cut));
    lines(first, why.chain(said).chain(cut).collect())
}

fn activation_document(entry: &JournalEntry) -> Value {
    let delivery = entry.delivery.as_ref();
    let log: Vec<_> = entry.log.iter().map(|line| json!({ "source": line.source.to_string(), "text": line.text })).collect();
    json!({
        "event": "activation",
        "outcome": entry.ended.kind,
        "reason": entry.ended.detail,
        "service": entry.service.as_str(),
        "trigger": delivery.map(|delivery| delivery.origin.binding.as_str()),
        "topic": delivery.map(|delivery| delivery.place.topic.as_str()),
        "partition": delivery.map(|delivery| delivery.place.partition.0),
        "offset": delivery.map(|delivery| delivery.place.offset.0),
        "attempt": delivery.map(|delivery| delivery.count),
        "contract": entry.contract.as_str(),
        "function": entry.function.as_str(),
        "activation": entry.activation.to_string(),
        "component": entry.digest.to_string(),
        "generation": entry.generation.0,
        "started_at": entry.started_at.map(|at| at.0),
        "wait_micros": entry.wait_micros,
        "run_micros": entry.run_micros,
        "fuel": entry.fuel_used,
        "memory_bytes": entry.memory_bytes_peak,
        "outbound_requests": entry.outbound_requests,
        "log": log,
        "log_bytes_cut": entry.log_bytes_cut,
    })
}

#[cfg(test)]
pub(super) mod tests;
