//! Publishing a dead letter again: the words, and the work over a log. The record is made where the log is, because a client may not
//! write the host's attributes.
//!
//! A replay has the uid `<uid>#<number>` and says which dead letter it came from. That is what makes it safe to ask again after any
//! crash: what is there with this letter's name on it is the answer, and of two who ask at once, the second is told the first one's.

use latent_bridge::{BusError, EventBus, PublishAck};
use latent_core::{DeadLetter, FirstPublication, NewRecord, Place, Record, Replay, StoredRecord, TerminationReason};
use serde::{Deserialize, Serialize};

use super::protocol::{Fault, Placed};
use crate::limits;

/// Which dead letter is to be published again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplayOrder {
    /// Its place, `TOPIC/PARTITION/OFFSET`.
    pub(crate) letter: String,
    /// The place is that of the event itself, which was never parked: a broker has given it up.
    #[serde(default)]
    pub(crate) event: bool,
    /// Also if it was published again before.
    #[serde(default)]
    pub(crate) again: bool,
    /// Say only what would be done.
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// What became of a [`ReplayOrder`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Replayed {
    /// The event lies there; a duplicate was there before.
    Stored(Placed),
    /// A dry run: it would be published to this topic under this uid.
    Would {
        /// The original topic.
        topic: String,
        /// The uid.
        uid: String,
    },
}

/// Why a dead letter is not published again. Nothing was stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReplayRefused {
    /// The place holds nothing.
    #[error("there is no record at {0}")]
    NoRecord(Place),
    /// The place holds something else.
    #[error("the record at {0} is no dead letter")]
    NoLetter(Place),
    /// The event could not be read when it was parked.
    #[error("the event {0} could not be read, so there is nothing to publish; the dead letter has what bytes there are of it")]
    Undecodable(Place),
    /// It was never an event of a topic.
    #[error("{0} is a message of a stream, which has no replays; publish the dead letter's payload to its subject again")]
    OfStream(Place),
    /// The event's uid leaves no room for a number behind it.
    #[error("the event's uid has {bytes} bytes, which leaves no room for `#{number}` behind it")]
    LongUid {
        /// What it has.
        bytes: usize,
        /// Which replay this would be.
        number: u32,
    },
    /// The event was published again too often.
    #[error("the event was published again {0} times already")]
    TooMany(u32),
    /// An earlier event of the same key was not published, and this one must not overtake it.
    #[error("it was not tried: {0}, an earlier dead letter of its key, was not published again")]
    HeldBack(Place),
}

impl ReplayRefused {
    /// The name used in machine-readable output and `docs/errors.md`.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::NoRecord(_) | Self::NoLetter(_) => "no-dead-letter",
            Self::Undecodable(_) | Self::OfStream(_) | Self::LongUid { .. } | Self::TooMany(_) => "not-replayable",
            Self::HeldBack(_) => "held-back",
        }
    }
}

impl From<ReplayRefused> for Fault {
    fn from(refused: ReplayRefused) -> Self {
        let permanent = !matches!(refused, ReplayRefused::HeldBack(_));
        Self { permanent, ..Self::refused(refused.kind(), refused.to_string()) }
    }
}

impl Fault {
    /// True when the event of a dead letter can never be published again, whatever is tried.
    pub(crate) fn is_not_replayable(&self) -> bool {
        self.kind == ReplayRefused::TooMany(0).kind()
    }
}

/// Publishes a dead letter again, once.
pub(super) fn replay(bus: &dyn EventBus, order: &ReplayOrder) -> Result<Replayed, Fault> {
    let letter = Letter::read(bus, order)?;
    loop {
        let replays = letter.replays(bus)?;
        if let Some(own) = replays.own.filter(|_| !order.again) {
            return Ok(Replayed::Stored(Placed { duplicate: true, ..own.into() }));
        }
        let replay = Replay::of(letter.first.clone(), letter.place.clone(), replays.next);
        let record = letter.record(&replay)?;
        if order.dry_run {
            let uid = record.uid.map(|uid| uid.as_str().to_owned()).unwrap_or_default();
            return Ok(Replayed::Would { topic: letter.first.place.topic.as_str().to_owned(), uid });
        }
        let ack = bus.submit_record(letter.first.place.topic.as_str(), record).wait()?;
        // A duplicate of another letter's replay, made since this one looked: the next number is free or leads on.
        if !ack.duplicate || letter.is_own(bus, &ack)? {
            return Ok(Replayed::Stored(ack.into()));
        }
    }
}

/// The replays of one event that are in the log.
struct Replays {
    /// The last one that came from the letter asked about.
    own: Option<PublishAck>,
    /// The number after the last one.
    next: u32,
}

/// A dead letter that has an event to publish, or that event itself.
struct Letter {
    place: Place,
    /// Which replay the event was; 0 when it was none.
    number: u32,
    first: FirstPublication,
    record: Record,
}

impl Letter {
    fn read(bus: &dyn EventBus, order: &ReplayOrder) -> Result<Self, Fault> {
        let place: Place = order.letter.parse().map_err(BusError::from)?;
        let mut records = bus.submit_fetch(place.topic.as_str(), place.partition, place.offset, 1).wait()?;
        let stored = records.pop().filter(|stored: &StoredRecord| stored.offset == place.offset);
        let record = stored.ok_or_else(|| ReplayRefused::NoRecord(place.clone()))?.record;
        if order.event {
            return Ok(Self::of_event(place, record));
        }
        let letter = DeadLetter::read(&record.attributes).ok_or_else(|| ReplayRefused::NoLetter(place.clone()))?;
        let first = letter.first().ok_or_else(|| match letter.verdict.reason {
            TerminationReason::Undecodable => ReplayRefused::Undecodable(letter.place.clone()),
            _ => ReplayRefused::OfStream(letter.place.clone()),
        })?;
        Ok(Self { first, place, number: letter.replay_number(), record })
    }

    /// An event that is to be published again without a dead letter: the way back leads to itself.
    fn of_event(place: Place, record: Record) -> Self {
        let (first, number) = match Replay::read(&record.attributes) {
            Some(replay) => (replay.first(), replay.number),
            None => (FirstPublication { place: place.clone(), uid: record.uid.clone(), stored_at: record.stored_at }, 0),
        };
        Self { place, number, first, record }
    }

    /// Looks for the event's replays upwards from the letter's own number. Those below that retention has removed leave a gap, and so
    /// may those of other letters, up to `replay_gap`.
    fn replays(&self, bus: &dyn EventBus) -> Result<Replays, Fault> {
        let begin = self.number.saturating_add(1);
        let mut replays = Replays { own: None, next: begin };
        let mut number = begin;
        while u64::from(number - replays.next) < limits::REPLAY_GAP.default && u64::from(number) <= limits::REPLAYS.max {
            let Ok(uid) = Replay::of(self.first.clone(), self.place.clone(), number).replay_uid() else { break };
            if let Some(found) = bus.submit_find(self.first.place.topic.as_str(), &self.record.key, &uid).wait()? {
                replays.next = number + 1;
                if self.is_own(bus, &found)? {
                    replays.own = Some(found);
                }
            }
            number += 1;
        }
        Ok(replays)
    }

    /// Whether the event there came from this letter.
    fn is_own(&self, bus: &dyn EventBus, place: &PublishAck) -> Result<bool, BusError> {
        let (partition, offset) = (latent_core::Partition(place.partition), latent_core::Offset(place.offset));
        let records = bus.submit_fetch(&place.topic, partition, offset, 1).wait()?;
        let record = records.iter().find(|stored| stored.offset == offset);
        Ok(record.and_then(|stored| Replay::read(&stored.record.attributes)).is_some_and(|replay| replay.letter == self.place))
    }

    fn record(&self, replay: &Replay) -> Result<NewRecord, Fault> {
        if u64::from(replay.number) > limits::REPLAYS.max {
            return Err(ReplayRefused::TooMany(replay.number - 1).into());
        }
        let no_room = |_| ReplayRefused::LongUid { bytes: self.first.uid.as_str().len(), number: replay.number };
        let uid = replay.replay_uid().map_err(no_room)?;
        let Record { key, media_type, attributes, payload, .. } = &self.record;
        let attributes = replay.write(attributes.clone()).map_err(BusError::from)?;
        Ok(NewRecord::new(Some(uid), key, media_type.clone(), attributes, payload.clone()).map_err(BusError::from)?)
    }
}

#[cfg(test)]
mod tests;
