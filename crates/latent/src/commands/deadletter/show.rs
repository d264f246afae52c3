//! `latent deadletter show`.

use clap::Args;
use latent_core::{Attributes, Place};
use serde::Serialize;
use serde_json::value::RawValue;

use super::letter::{LetterDocument, OriginalDocument};
use super::{ConfigArgs, Letter, open};
use crate::access::{Access, unexpected};
use crate::commands::bus::{AttributesDocument, readable, value_of};
use crate::control::{Answer, ControlError, Fault, Placed, ReplayOrder, Replayed, Request};
use crate::error::CliError;
use crate::limits;
use crate::output::{Output, printable};
use crate::timestamp::timestamp;

/// Arguments of `latent deadletter show`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  latent deadletter show triage.dead/0/3 --json")]
pub(crate) struct ShowArgs {
    /// Where it lies, as `latent deadletter list` says
    #[arg(value_name = "TOPIC/PARTITION/OFFSET")]
    place: Place,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn show(args: &ShowArgs, output: &mut Output) -> Result<(), CliError> {
    let (_, mut access) = open(&args.config.config, "latent deadletter show")?;
    let letter = Letter::at(&mut access, &args.place)?;
    let replay = replay_of(&mut access, &args.place)?;
    let value = value_of(&letter.event)?;
    output.line(&document(&letter, &replay, &value), || text(&letter, &replay, &value))
}

/// Whether the event was published again out of the letter.
enum ReplayState {
    Replayed(Placed),
    NotYet,
    Never(Fault),
}

/// Asks for what a replay would do.
fn replay_of(access: &mut Access, place: &Place) -> Result<ReplayState, CliError> {
    const DOING: &str = "looking for a replay of the dead letter";
    let order = ReplayOrder { letter: place.to_string(), event: false, again: false, dry_run: true };
    match access.try_ask(Request::Replay(order)) {
        Ok(Answer::Replayed(Replayed::Stored(place))) => Ok(ReplayState::Replayed(place)),
        Ok(Answer::Replayed(Replayed::Would { .. })) => Ok(ReplayState::NotYet),
        Ok(_) => Err(unexpected(DOING)),
        Err(ControlError::Refused(fault)) if fault.is_not_replayable() => Ok(ReplayState::Never(fault)),
        Err(ControlError::Refused(fault)) => Err(CliError::Log { doing: DOING.to_owned(), fault }),
        Err(source) => Err(CliError::Control { doing: DOING.to_owned(), source }),
    }
}

/// The stable document.
#[derive(Debug, Serialize)]
struct WholeDocument<'l> {
    #[serde(flatten)]
    letter: LetterDocument<'l>,
    activation: Option<String>,
    component: Option<String>,
    /// The event's first publication, when it was a replay.
    first: Option<OriginalDocument<'l>>,
    replayed: Option<&'l Placed>,
    not_replayable: Option<&'l str>,
    media_type: &'l str,
    attributes: AttributesDocument<'l>,
    payload_bytes: usize,
    value: &'l RawValue,
}

fn document<'l>(letter: &'l Letter, replay: &'l ReplayState, value: &'l RawValue) -> WholeDocument<'l> {
    let Letter { place: _, letter: dead, event } = letter;
    let (replayed, not_replayable) = match replay {
        ReplayState::Replayed(place) => (Some(place), None),
        ReplayState::NotYet => (None, None),
        ReplayState::Never(fault) => (None, Some(fault.message.as_str())),
    };
    WholeDocument {
        letter: letter.document(),
        activation: dead.verdict.activation.map(|activation| activation.to_string()),
        component: dead.verdict.component.map(|component| component.to_string()),
        first: dead.origin.as_ref().map(OriginalDocument::from),
        replayed,
        not_replayable,
        media_type: &event.media_type,
        attributes: AttributesDocument::of_client(&event.attributes),
        payload_bytes: event.payload.0.len(),
        value,
    }
}

fn text(letter: &Letter, replay: &ReplayState, value: &RawValue) -> String {
    let Letter { place, letter: dead, event } = letter;
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let mut lines = vec![
        ("dead letter", place.to_string()),
        ("trigger", dead.binding.to_string()),
        ("reason", dead.verdict.reason.kind().to_owned()),
        ("detail", or_dash(letter.detail().to_owned())),
        ("attempts", dead.verdict.attempts.to_string()),
        ("parked at", timestamp(event.stored_at)),
        ("activation", or_dash(dead.verdict.activation.map(|activation| activation.to_string()).unwrap_or_default())),
        ("component", or_dash(dead.verdict.component.map(|component| component.to_string()).unwrap_or_default())),
        ("event", dead.place.to_string()),
        ("uid", or_dash(dead.uid.as_ref().map(|uid| uid.as_str().to_owned()).unwrap_or_default())),
        ("key", or_dash(event.key.clone())),
        ("stored at", or_dash(dead.stored_at.map(|at| timestamp(at.0)).unwrap_or_default())),
    ];
    lines.extend(dead.origin.as_ref().map(|first| ("replay of", format!("{}, uid {}", first.place, first.uid))));
    lines.push(("replayed", replay_words(replay)));
    lines.push(("media type", event.media_type.clone()));
    let attributes = Attributes::stored(event.attributes.clone()).unwrap_or_default();
    lines.extend(attributes.client().map(|(name, value)| ("attribute", format!("{name}: {value}"))));
    lines.push(("payload", payload_words(&readable(event, value), event.payload.0.len())));
    let lines: Vec<_> = lines.iter().map(|(name, text)| format!("{name:<12} {}", printable(text))).collect();
    lines.join("\n")
}

fn replay_words(replay: &ReplayState) -> String {
    match replay {
        ReplayState::Replayed(Placed { topic, partition, offset, uid, .. }) => format!("{topic}/{partition}/{offset}, uid {uid}"),
        ReplayState::NotYet => "not yet".to_owned(),
        ReplayState::Never(fault) => format!("cannot be: {}", fault.message),
    }
}

/// A large payload is cut for people.
fn payload_words(text: &str, bytes: usize) -> String {
    let chars_max = limits::SHOWN_PAYLOAD_CHARS.max_usize();
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… ({bytes} bytes in all; --json shows them)", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_payload_is_cut_at_its_bound_and_no_other_is() {
        let max = limits::SHOWN_PAYLOAD_CHARS.max_usize();
        for chars in [0, max - 1, max] {
            let text = "ü".repeat(chars);
            assert_eq!(payload_words(&text, chars * 2), text);
        }
        let cut = payload_words(&"ü".repeat(max + 1), 7);
        assert_eq!(cut, format!("{}… (7 bytes in all; --json shows them)", "ü".repeat(max)));
    }
}
