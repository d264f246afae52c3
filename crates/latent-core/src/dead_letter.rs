//! The form of a dead letter: an event that will not run (again), kept in a topic with why, and the way back. Values and text only;
//! when an event becomes one is the delivery cycle's business.
//!
//! A dead letter is the event as it was, payload, key, media type and a client's attributes, with attributes of the host that say what
//! happened to it. Its uid is derived from whose event it was, so that parking it twice stores it once.
//! A replay is the event as it was under a uid of its own, with attributes that say which event it is again.

use std::fmt::Write as _;

use crate::place::number;
use crate::{
    ActivationId, Attributes, BindingId, ComponentDigest, CoreError, Offset, Partition, Place, TopicName, Uid, UnixMillis,
    length_delimited_sha256, limits,
};

/// The names of the host's attributes.
mod names {
    pub(super) const REASON: &str = "Latent-Dead-Reason";
    pub(super) const BINDING: &str = "Latent-Dead-Binding";
    pub(super) const TOPIC: &str = "Latent-Dead-Topic";
    pub(super) const PARTITION: &str = "Latent-Dead-Partition";
    pub(super) const OFFSET: &str = "Latent-Dead-Offset";
    pub(super) const ATTEMPTS: &str = "Latent-Dead-Attempts";
    pub(super) const ACTIVATION: &str = "Latent-Dead-Activation";
    pub(super) const COMPONENT: &str = "Latent-Dead-Component";
    pub(super) const DETAIL: &str = "Latent-Dead-Detail";
    pub(super) const UID: &str = "Latent-Dead-Uid";
    pub(super) const STORED_AT: &str = "Latent-Dead-Stored-At";
    pub(super) const ORIGIN: &str = "Latent-Dead-Origin";
    pub(super) const ORIGIN_UID: &str = "Latent-Dead-Origin-Uid";
    pub(super) const ORIGIN_STORED_AT: &str = "Latent-Dead-Origin-Stored-At";
    pub(super) const REPLAY: &str = "Latent-Dead-Replay";
    pub(super) const LETTER: &str = "Latent-Dead-Letter";
}

/// Why an event will never run again. The words are those of dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TerminationReason {
    /// The handler rejected it, or it can never be handled by this function.
    Rejected,
    /// Its attempts are used up.
    Exhausted,
    /// It is not a readable record.
    Undecodable,
}

impl TerminationReason {
    /// Every reason.
    pub const ALL: [Self; 3] = [Self::Rejected, Self::Exhausted, Self::Undecodable];

    /// The name used in status, logs and dead letters.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Exhausted => "exhausted",
            Self::Undecodable => "undecodable",
        }
    }
}

/// Why an event will never run (again), as it is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// In one word.
    pub reason: TerminationReason,
    /// Runs there were.
    pub attempts: u32,
    /// The last one; `None` when there was none, or when it is not known any more.
    pub activation: Option<ActivationId>,
    /// What that one ran.
    pub component: Option<ComponentDigest>,
    detail: String,
}

impl Verdict {
    /// A verdict with what is known of the last run. `detail` is the handler's or the host's reason: what is not printable ASCII is
    /// replaced by `?`, and what is beyond `limits::HOST_ATTRIBUTE_VALUE_BYTES` is cut.
    pub fn new(reason: TerminationReason, attempts: u32, last: Option<(ActivationId, ComponentDigest)>, detail: &str) -> Self {
        let printable = detail.chars().map(|c| if ('\x20'..='\x7e').contains(&c) { c } else { '?' });
        let detail: String = printable.take(limits::HOST_ATTRIBUTE_VALUE_BYTES.max_usize()).collect();
        let (activation, component) = last.unzip();
        Self { reason, attempts, activation, component, detail: detail.trim_matches(' ').to_owned() }
    }

    /// Why, in the words of the handler or the host; may be empty.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

/// `dead-` and the SHA-256 of the parts, in hex.
fn dead_uid(parts: &[&[u8]]) -> Result<Uid, CoreError> {
    let text = length_delimited_sha256(parts).iter().fold("dead-".to_owned(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    });
    Uid::parse(&text)
}

/// The first publication of an event: what keys are derived from, however often it is published again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstPublication {
    /// Where it lies, or lay.
    pub place: Place,
    /// Its uid there.
    pub uid: Uid,
    /// When it was stored there.
    pub stored_at: UnixMillis,
}

/// What the host writes on a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The binding that could not handle the event.
    pub binding: BindingId,
    /// Where the event lies, or lay.
    pub place: Place,
    /// Why.
    pub verdict: Verdict,
    /// The event's uid, if it could be read.
    pub uid: Option<Uid>,
    /// When the event was stored, if that could be read.
    pub stored_at: Option<UnixMillis>,
    /// Of an event that was a replay: the event it was first.
    pub origin: Option<FirstPublication>,
}

impl DeadLetter {
    /// The uid of the dead letter.
    ///
    /// # Errors
    /// As [`DeadLetter::uid_for`].
    pub fn letter_uid(&self) -> Result<Uid, CoreError> {
        Self::uid_for(&self.binding, &self.place)
    }

    /// The uid that the dead letter of a binding's event at `place` has, or would have: `dead-` and the SHA-256, in hex, of a label, the
    /// binding, and the event's topic, partition and offset. Two bindings never share one, and the same event of one binding always has
    /// the same.
    ///
    /// # Errors
    /// None in fact: the text is short and printable.
    pub fn uid_for(binding: &BindingId, place: &Place) -> Result<Uid, CoreError> {
        let (partition, offset) = (place.partition.0.to_le_bytes(), place.offset.0.to_le_bytes());
        let (binding, topic) = (binding.as_str().as_bytes(), place.topic.as_str().as_bytes());
        dead_uid(&[b"lsf-dead-letter-v1", binding, topic, &partition, &offset])
    }

    /// The uid to park under where [`DeadLetter::letter_uid`] belongs to another event, as after a topic was begun anew while its dead letters
    /// were kept: it depends on the event as well.
    ///
    /// # Errors
    /// As [`DeadLetter::uid_for`].
    pub fn other_uid(&self, payload: &[u8]) -> Result<Uid, CoreError> {
        let first = self.letter_uid()?;
        let event = self.uid.as_ref().map_or("", |uid| uid.as_str());
        let stored_at = self.stored_at.unwrap_or(UnixMillis(0)).0.to_le_bytes();
        dead_uid(&[b"lsf-dead-letter-of-event-v1", first.as_str().as_bytes(), event.as_bytes(), &stored_at, payload])
    }

    /// The event as it was published first; `None` when it could not be read.
    pub fn first(&self) -> Option<FirstPublication> {
        let own = || Some(FirstPublication { place: self.place.clone(), uid: self.uid.clone()?, stored_at: self.stored_at? });
        self.origin.clone().or_else(own)
    }

    /// Which replay the event was; 0 when it was none.
    pub fn replay_number(&self) -> u32 {
        let (Some(origin), Some(uid)) = (&self.origin, &self.uid) else { return 0 };
        let replay = uid.as_str().strip_prefix(origin.uid.as_str()).and_then(|rest| rest.strip_prefix('#'));
        replay.and_then(number).unwrap_or_default()
    }

    /// `attributes` of the event with what the host says of it.
    ///
    /// # Errors
    /// [`CoreError`] when they do not fit, which their limits rule out.
    pub fn write(&self, attributes: Attributes) -> Result<Attributes, CoreError> {
        let Self { binding, place, verdict, uid, stored_at, origin } = self;
        let mut host = vec![
            (names::REASON, verdict.reason.kind().to_owned()),
            (names::BINDING, binding.as_str().to_owned()),
            (names::TOPIC, place.topic.as_str().to_owned()),
            (names::PARTITION, place.partition.to_string()),
            (names::OFFSET, place.offset.to_string()),
            (names::ATTEMPTS, verdict.attempts.to_string()),
        ];
        host.extend(verdict.activation.map(|activation| (names::ACTIVATION, activation.to_string())));
        host.extend(verdict.component.map(|component| (names::COMPONENT, component.to_string())));
        host.extend(Some(verdict.detail.clone()).filter(|detail| !detail.is_empty()).map(|detail| (names::DETAIL, detail)));
        host.extend(uid.as_ref().map(|uid| (names::UID, uid.as_str().to_owned())));
        host.extend(stored_at.map(|at| (names::STORED_AT, at.0.to_string())));
        if let Some(FirstPublication { place, uid, stored_at }) = origin {
            host.push((names::ORIGIN, place.to_string()));
            host.push((names::ORIGIN_UID, uid.as_str().to_owned()));
            host.push((names::ORIGIN_STORED_AT, stored_at.0.to_string()));
        }
        attributes.with_host(host.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Reads what the host wrote; `None` when these are not the attributes of a dead letter.
    pub fn read(attributes: &Attributes) -> Option<Self> {
        let text = |name| attributes.host(name);
        let reason = text(names::REASON)?;
        let reason = TerminationReason::ALL.into_iter().find(|known| known.kind() == reason)?;
        let activation = text(names::ACTIVATION).and_then(ActivationId::parse);
        let component = text(names::COMPONENT).and_then(|text| ComponentDigest::parse(text).ok());
        let (attempts, detail) = (number(text(names::ATTEMPTS)?)?, text(names::DETAIL).unwrap_or_default().to_owned());
        Some(Self {
            binding: BindingId::parse(text(names::BINDING)?).ok()?,
            place: place(attributes)?,
            verdict: Verdict { reason, attempts, activation, component, detail },
            uid: text(names::UID).and_then(|uid| Uid::parse(uid).ok()),
            stored_at: text(names::STORED_AT).and_then(number).map(UnixMillis),
            origin: origin(attributes),
        })
    }
}

/// What the host writes on an event that is published again out of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// Which replay of the event it is, from 1.
    pub number: u32,
    /// The dead letter that it was published from.
    pub letter: Place,
    /// Where the event lies, or lay, when it was published first.
    pub place: Place,
    /// Its uid then.
    pub uid: Uid,
    /// When it was stored then.
    pub stored_at: UnixMillis,
}

impl Replay {
    /// Replay `number` of an event out of the dead letter at `letter`.
    pub fn of(first: FirstPublication, letter: Place, number: u32) -> Self {
        let FirstPublication { place, uid, stored_at } = first;
        Self { number, letter, place, uid, stored_at }
    }

    /// The event it is again.
    pub fn first(&self) -> FirstPublication {
        FirstPublication { place: self.place.clone(), uid: self.uid.clone(), stored_at: self.stored_at }
    }

    /// The uid of this replay: `<uid>#<number>`.
    ///
    /// # Errors
    /// [`CoreError::Text`] when the event's own uid leaves no room for that.
    pub fn replay_uid(&self) -> Result<Uid, CoreError> {
        Uid::parse(&format!("{}#{}", self.uid, self.number))
    }

    /// `attributes` of the dead letter with the way back in place of what was wrong.
    ///
    /// # Errors
    /// [`CoreError`] when they do not fit, which their limits rule out.
    pub fn write(&self, attributes: Attributes) -> Result<Attributes, CoreError> {
        let host = [
            (names::REPLAY, self.number.to_string()),
            (names::LETTER, self.letter.to_string()),
            (names::TOPIC, self.place.topic.as_str().to_owned()),
            (names::PARTITION, self.place.partition.to_string()),
            (names::OFFSET, self.place.offset.to_string()),
            (names::UID, self.uid.as_str().to_owned()),
            (names::STORED_AT, self.stored_at.0.to_string()),
        ];
        attributes.with_host(host.map(|(name, value)| (name.to_owned(), value)).into())
    }

    /// Reads what the host wrote; `None` when these are not the attributes of a replay.
    pub fn read(attributes: &Attributes) -> Option<Self> {
        Some(Self {
            number: number(attributes.host(names::REPLAY)?)?,
            letter: attributes.host(names::LETTER)?.parse().ok()?,
            place: place(attributes)?,
            uid: Uid::parse(attributes.host(names::UID)?).ok()?,
            stored_at: UnixMillis(number(attributes.host(names::STORED_AT)?)?),
        })
    }
}

fn origin(attributes: &Attributes) -> Option<FirstPublication> {
    Some(FirstPublication {
        place: attributes.host(names::ORIGIN)?.parse().ok()?,
        uid: Uid::parse(attributes.host(names::ORIGIN_UID)?).ok()?,
        stored_at: UnixMillis(number(attributes.host(names::ORIGIN_STORED_AT)?)?),
    })
}

fn place(attributes: &Attributes) -> Option<Place> {
    let topic = TopicName::parse(attributes.host(names::TOPIC)?).ok()?;
    let partition = Partition(number(attributes.host(names::PARTITION)?)?);
    Some(Place { topic, partition, offset: Offset(number(attributes.host(names::OFFSET)?)?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place_of(offset: u64) -> Place {
        Place { topic: TopicName::parse("orders.new").unwrap(), partition: Partition(3), offset: Offset(offset) }
    }

    fn letter(detail: &str) -> DeadLetter {
        let last = Some((ActivationId::from_random([7; 16]), ComponentDigest::of(b"component")));
        DeadLetter {
            binding: BindingId::parse("orders").unwrap(),
            place: place_of(9),
            verdict: Verdict::new(TerminationReason::Exhausted, 5, last, detail),
            uid: Some(Uid::parse("u-1").unwrap()),
            stored_at: Some(UnixMillis(1_700_000_000_000)),
            origin: None,
        }
    }

    /// The letter of a replay.
    fn letter_of_replay(uid: &str) -> DeadLetter {
        let first = FirstPublication { place: place_of(4), uid: Uid::parse("u-1").unwrap(), stored_at: UnixMillis(3) };
        DeadLetter { uid: Some(Uid::parse(uid).unwrap()), origin: Some(first), ..letter("again") }
    }

    #[test]
    fn the_letter_of_a_replay_keeps_what_the_event_was_first() {
        let letter = letter_of_replay("u-1#2");
        let written = letter.write(given()).unwrap();
        assert_eq!(DeadLetter::read(&written), Some(letter.clone()));
        let names: Vec<_> = written.iter().map(|(name, _)| name).skip(12).collect();
        assert_eq!(names, ["Latent-Dead-Origin", "Latent-Dead-Origin-Uid", "Latent-Dead-Origin-Stored-At"]);
        let first = letter.first().unwrap();
        assert_eq!((first.place.clone(), first.uid.as_str(), first.stored_at), (place_of(4), "u-1", UnixMillis(3)));
        let replay = Replay::of(first.clone(), place_of(0), 3);
        assert_eq!((replay.replay_uid().unwrap().as_str(), replay.first()), ("u-1#3", first));
        assert_eq!(DeadLetter::read(&replay.write(written).unwrap()), None);
    }

    #[test]
    fn an_event_that_was_no_replay_was_first_where_it_lies() {
        let own = letter("why").first().unwrap();
        assert_eq!((own.place, own.uid.as_str()), (place_of(9), "u-1"));
        assert_eq!(DeadLetter { uid: None, ..letter("why") }.first(), None);
        let numbers = ["u-1#2", "u-1", "u-1#", "u-1#x", "u-1#02", "other#2"].map(|uid| letter_of_replay(uid).replay_number());
        assert_eq!((numbers, letter("why").replay_number()), ([2, 0, 0, 0, 0, 0], 0));
    }

    #[test]
    fn the_largest_letter_fits() {
        let text = |bytes: usize| "t".repeat(bytes);
        let place = |offset| Place {
            topic: TopicName::parse(&text(limits::TOPIC_NAME_BYTES.max_usize())).unwrap(),
            partition: Partition(u32::MAX),
            offset: Offset(offset),
        };
        let uid = Uid::parse(&text(limits::UID_BYTES.max_usize())).unwrap();
        let largest = DeadLetter {
            binding: BindingId::parse(&text(limits::NAME_BYTES.max_usize())).unwrap(),
            place: place(u64::MAX),
            uid: Some(uid.clone()),
            origin: Some(FirstPublication { place: place(u64::MAX), uid, stored_at: UnixMillis(u64::MAX) }),
            ..letter(&text(5_000))
        };
        let pairs = (0..12).map(|n| (format!("a{n:02}"), "v".repeat(233))).collect();
        assert!(largest.write(Attributes::parse(pairs).unwrap()).is_ok());
    }

    fn given() -> Attributes {
        Attributes::parse(vec![("X-Kind".to_owned(), "a".to_owned())]).unwrap()
    }

    #[test]
    fn what_is_written_on_a_letter_is_read_from_it() {
        let bare = Verdict::new(TerminationReason::Undecodable, 0, None, "");
        for letter in [letter("no such order"), DeadLetter { verdict: bare, uid: None, stored_at: None, ..letter("") }] {
            let written = letter.write(given()).unwrap();
            assert_eq!(written.client().collect::<Vec<_>>(), [("X-Kind", "a")]);
            assert_eq!(DeadLetter::read(&written), Some(letter));
        }
        assert_eq!(DeadLetter::read(&given()), None);
    }

    #[test]
    fn the_names_and_the_uid_are_pinned() {
        let written = letter("why").write(Attributes::default()).unwrap();
        let names: Vec<_> = written.iter().map(|(name, _)| name.trim_start_matches("Latent-Dead-")).collect();
        let expected =
            ["Reason", "Binding", "Topic", "Partition", "Offset", "Attempts", "Activation", "Component", "Detail", "Uid", "Stored-At"];
        assert_eq!(names, expected);
        let uid = letter("why").letter_uid().unwrap();
        assert_eq!(uid.as_str(), "dead-cc12b2b8b2c87bf957c957075d25c3ebb9c83a1c7d0528b3bfa2af5a552650b3");
    }

    #[test]
    fn the_uid_is_the_binding_s_and_the_event_s_and_nothing_else_s() {
        let own = letter("a").letter_uid().unwrap();
        assert_eq!(letter("b").letter_uid().unwrap(), own);
        let other = |change: fn(&mut DeadLetter)| {
            let mut other = letter("a");
            change(&mut other);
            other.letter_uid().unwrap()
        };
        let others = [
            other(|letter| letter.binding = BindingId::parse("other").unwrap()),
            other(|letter| letter.place.offset = Offset(10)),
            other(|letter| letter.place.partition = Partition(4)),
            other(|letter| letter.place.topic = TopicName::parse("orders.old").unwrap()),
        ];
        assert!(others.iter().all(|other| *other != own));
        // Where that one is taken, the event's own.
        let beside = letter("a").other_uid(b"x").unwrap();
        assert_eq!(letter("b").other_uid(b"x").unwrap(), beside);
        let mut later = letter("a");
        later.stored_at = Some(UnixMillis(1));
        for other in [own, letter("a").other_uid(b"y").unwrap(), later.other_uid(b"x").unwrap()] {
            assert_ne!(other, beside);
        }
    }

    #[test]
    fn a_detail_is_made_printable_and_cut() {
        let detail = |text: &str| Verdict::new(TerminationReason::Rejected, 1, None, text).detail().to_owned();
        assert_eq!(detail("a\r\nNats-Msg-Id: é "), "a??Nats-Msg-Id: ?");
        assert_eq!((detail(&"x".repeat(1_024)).len(), detail(&"é".repeat(2_000)).len()), (1_024, 1_024));
        assert!(letter(&"x".repeat(5_000)).write(given()).is_ok());
    }

    #[test]
    fn what_is_written_on_a_replay_is_read_from_it_and_it_is_no_letter() {
        let replay = Replay {
            number: 2,
            letter: Place { topic: TopicName::parse("orders.dead").unwrap(), ..place_of(0) },
            place: place_of(9),
            uid: Uid::parse("u-1").unwrap(),
            stored_at: UnixMillis(5),
        };
        assert_eq!(replay.replay_uid().unwrap().as_str(), "u-1#2");
        let written = replay.write(letter("why").write(given()).unwrap()).unwrap();
        assert_eq!((Replay::read(&written), DeadLetter::read(&written)), (Some(replay.clone()), None));
        assert_eq!(written.client().collect::<Vec<_>>(), [("X-Kind", "a")]);
        let long = Replay { uid: Uid::parse(&"u".repeat(255)).unwrap(), ..replay };
        assert!(long.replay_uid().is_err());
    }

    #[test]
    fn the_largest_letter_fits_the_header_block() {
        let name = |bytes: usize| "n".repeat(bytes);
        let letter = DeadLetter {
            binding: BindingId::parse(&name(64)).unwrap(),
            place: Place { topic: TopicName::parse(&name(120)).unwrap(), partition: Partition(u32::MAX), offset: Offset(u64::MAX) },
            uid: Some(Uid::parse(&name(256)).unwrap()),
            stored_at: Some(UnixMillis(u64::MAX)),
            ..letter(&name(5_000))
        };
        let largest = Attributes::parse((0..12).map(|n| (format!("a{n:02}"), "v".repeat(233))).collect()).unwrap();
        assert_eq!(DeadLetter::read(&letter.write(largest).unwrap()), Some(letter));
    }
}
