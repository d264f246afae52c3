//! What is known of one event. The document is stable; docs/delivery.md describes it.

use latent_core::{Attributes, Place, Replay};
use serde::Serialize;

use crate::commands::bus::AttributesDocument;
use crate::commands::deadletter::{Letter, LetterDocument};
use crate::control::{Event, EventHistory, JournalReach, Run, TriggerEvent};

/// What is known.
pub(super) struct Story {
    pub(super) topic: String,
    pub(super) uid: String,
    /// The event; `None` when the log has it no more, and a replay of it told where it lay.
    pub(super) event: Option<Event>,
    /// Where it lies, or lay.
    pub(super) place: Place,
    /// The dead letter that it is itself.
    pub(super) is_letter: Option<Letter>,
    pub(super) history: EventHistory,
    /// Its dead letters, each with the trigger that could not handle it.
    pub(super) letters: Vec<Letter>,
    /// Its replays; of a replay, all those of the first publication.
    pub(super) replays: Vec<Replayed>,
}

/// A replay that the log has.
pub(super) struct Replayed {
    pub(super) event: Event,
    pub(super) replay: Replay,
}

impl Story {
    /// Which event it is again.
    pub(super) fn replay_of(&self) -> Option<Replay> {
        Replay::read(&Attributes::stored(self.event.as_ref()?.attributes.clone()).ok()?)
    }

    /// The dead letter of one of its triggers.
    pub(super) fn letter_of(&self, trigger: &str) -> Option<&Letter> {
        self.letters.iter().find(|letter| letter.letter.binding.as_str() == trigger)
    }

    pub(super) fn document(&self) -> StoryDocument<'_> {
        let EventHistory { triggers, triggers_left_out, runs, runs_left_out, journal } = &self.history;
        StoryDocument {
            topic: &self.topic,
            uid: &self.uid,
            partition: self.place.partition.0,
            offset: self.place.offset.0,
            event: self.event.as_ref().map(EventDocument::from),
            replay_of: self.replay_of().map(ReplayOfDocument::from),
            parked_from: self.is_letter.as_ref().map(Letter::document),
            triggers: triggers
                .iter()
                .map(|trigger| TriggerDocument { trigger, dead_letter: self.letter_of(&trigger.id).map(Letter::document) })
                .collect(),
            triggers_left_out: *triggers_left_out,
            runs,
            runs_left_out: *runs_left_out,
            journal: journal.as_ref(),
            replays: self.replays.iter().map(ReplayDocument::from).collect(),
        }
    }
}

/// The stable document.
#[derive(Debug, Serialize)]
pub(super) struct StoryDocument<'s> {
    topic: &'s str,
    uid: &'s str,
    partition: u32,
    offset: u64,
    event: Option<EventDocument<'s>>,
    replay_of: Option<ReplayOfDocument>,
    parked_from: Option<LetterDocument<'s>>,
    triggers: Vec<TriggerDocument<'s>>,
    triggers_left_out: u64,
    runs: &'s [Run],
    runs_left_out: u64,
    journal: Option<&'s JournalReach>,
    replays: Vec<ReplayDocument<'s>>,
}

#[derive(Debug, Serialize)]
struct EventDocument<'s> {
    key: &'s str,
    stored_at: u64,
    media_type: &'s str,
    payload_bytes: usize,
    attributes: AttributesDocument<'s>,
}

impl<'s> From<&'s Event> for EventDocument<'s> {
    fn from(event: &'s Event) -> Self {
        Self {
            key: &event.key,
            stored_at: event.stored_at,
            media_type: &event.media_type,
            payload_bytes: event.payload.0.len(),
            attributes: AttributesDocument::of_client(&event.attributes),
        }
    }
}

#[derive(Debug, Serialize)]
struct ReplayOfDocument {
    topic: String,
    partition: u32,
    offset: u64,
    uid: String,
    stored_at: u64,
    number: u32,
    letter: String,
}

impl From<Replay> for ReplayOfDocument {
    fn from(Replay { number, letter, place, uid, stored_at }: Replay) -> Self {
        Self {
            topic: place.topic.as_str().to_owned(),
            partition: place.partition.0,
            offset: place.offset.0,
            uid: uid.as_str().to_owned(),
            stored_at: stored_at.0,
            number,
            letter: letter.to_string(),
        }
    }
}

#[derive(Debug, Serialize)]
struct TriggerDocument<'s> {
    #[serde(flatten)]
    trigger: &'s TriggerEvent,
    dead_letter: Option<LetterDocument<'s>>,
}

#[derive(Debug, Serialize)]
struct ReplayDocument<'s> {
    uid: &'s str,
    partition: u32,
    offset: u64,
    stored_at: u64,
    number: u32,
    letter: String,
}

impl<'s> From<&'s Replayed> for ReplayDocument<'s> {
    fn from(Replayed { event, replay }: &'s Replayed) -> Self {
        Self {
            uid: &event.uid,
            partition: event.partition,
            offset: event.offset,
            stored_at: event.stored_at,
            number: replay.number,
            letter: replay.letter.to_string(),
        }
    }
}
