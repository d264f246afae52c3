//! A dead letter as it was read, and what is printed of it.

use latent_core::{Attributes, DeadLetter, FirstPublication, Offset, Partition, Place, TopicName};
use serde::Serialize;

use crate::access::Access;
use crate::commands::bus::Cursor;
use crate::control::{Event, Fault, ReplayRefused};
use crate::error::CliError;

/// A dead letter that was read.
#[derive(Debug)]
pub(crate) struct Letter {
    /// Where it lies.
    pub(crate) place: Place,
    /// What the host wrote on it.
    pub(crate) letter: DeadLetter,
    /// The record.
    pub(crate) event: Event,
}

/// Why a place holds no dead letter that can be read.
pub(crate) enum NoLetter {
    /// The place does not hold one.
    Not(Fault),
    /// It could not be asked.
    Failed(CliError),
}

impl From<NoLetter> for CliError {
    fn from(none: NoLetter) -> Self {
        match none {
            NoLetter::Not(fault) => Self::Log { doing: DOING.to_owned(), fault },
            NoLetter::Failed(error) => error,
        }
    }
}

const DOING: &str = "reading the dead letter";

impl Letter {
    /// The dead letter that a record of `topic` is; `None` for any other record.
    pub(crate) fn of(topic: &TopicName, event: Event) -> Option<Self> {
        let letter = DeadLetter::read(&Attributes::stored(event.attributes.clone()).ok()?)?;
        let place = Place { topic: topic.clone(), partition: Partition(event.partition), offset: Offset(event.offset) };
        Some(Self { place, letter, event })
    }

    /// Reads the dead letter at a place.
    ///
    /// # Errors
    /// [`NoLetter`].
    pub(crate) fn at(access: &mut Access, place: &Place) -> Result<Self, NoLetter> {
        let mut cursor = Cursor { topic: place.topic.as_str().to_owned(), partition: place.partition.0, offset: place.offset.0 };
        let page = match cursor.page(access, 1) {
            Ok(page) => page,
            Err(CliError::Damaged { fault, .. }) => return Err(NoLetter::Not(fault)),
            Err(error) => return Err(NoLetter::Failed(error)),
        };
        let event = page.into_iter().find(|event| event.offset == place.offset.0);
        let event = event.ok_or_else(|| NoLetter::Not(ReplayRefused::NoRecord(place.clone()).into()))?;
        Self::of(&place.topic, event).ok_or_else(|| NoLetter::Not(ReplayRefused::NoLetter(place.clone()).into()))
    }

    /// Why, without the reason in front of it: it stands beside it.
    pub(crate) fn detail(&self) -> &str {
        let verdict = &self.letter.verdict;
        let after_reason = verdict.detail().strip_prefix(verdict.reason.kind()).and_then(|rest| rest.strip_prefix(": "));
        after_reason.unwrap_or(verdict.detail())
    }

    /// Its document.
    pub(crate) fn document(&self) -> LetterDocument<'_> {
        let DeadLetter { binding, place, verdict, uid, stored_at, origin: _ } = &self.letter;
        LetterDocument {
            place: self.place.to_string(),
            topic: self.place.topic.as_str(),
            partition: self.place.partition.0,
            offset: self.place.offset.0,
            reason: verdict.reason.kind(),
            trigger: binding.as_str(),
            attempts: verdict.attempts,
            detail: verdict.detail(),
            key: &self.event.key,
            parked_at: self.event.stored_at,
            event: OriginalDocument {
                topic: place.topic.as_str(),
                partition: place.partition.0,
                offset: place.offset.0,
                uid: uid.as_ref().map(|uid| uid.as_str()),
                stored_at: stored_at.map(|at| at.0),
            },
            replay: self.letter.replay_number(),
        }
    }
}

/// The stable document of `list`, and the beginning of that of `show`.
#[derive(Debug, Serialize)]
pub(crate) struct LetterDocument<'l> {
    place: String,
    topic: &'l str,
    partition: u32,
    offset: u64,
    reason: &'l str,
    trigger: &'l str,
    attempts: u32,
    detail: &'l str,
    key: &'l str,
    parked_at: u64,
    event: OriginalDocument<'l>,
    /// Which replay the event was; 0 for none.
    replay: u32,
}

/// An event that was parked, or its first publication.
#[derive(Debug, Serialize)]
pub(crate) struct OriginalDocument<'l> {
    topic: &'l str,
    partition: u32,
    offset: u64,
    uid: Option<&'l str>,
    stored_at: Option<u64>,
}

impl<'l> From<&'l FirstPublication> for OriginalDocument<'l> {
    fn from(FirstPublication { place, uid, stored_at }: &'l FirstPublication) -> Self {
        Self {
            topic: place.topic.as_str(),
            partition: place.partition.0,
            offset: place.offset.0,
            uid: Some(uid.as_str()),
            stored_at: Some(stored_at.0),
        }
    }
}
