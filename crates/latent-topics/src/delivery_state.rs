//! What is remembered of deliveries, and the form it is written in. A pure model: entries in, state out.
//!
//! One log for all bindings. Each line of a binding (one partition) is declared once and then known by a number. Entries, with
//! little-endian numbers, after one byte that says which:
//!
//! | kind | fields |
//! |---|---|
//! | 1 header | version u32 |
//! | 2 unit | unit u32, partition u32, start u64 (everything below is settled), binding length u8 and text, topic length u8 and text |
//! | 3 settled | unit u32, first offset u64, end u64 (exclusive) |
//! | 4 attempts | unit u32, offset u64, attempts u32, not before u64 (milliseconds since 1970, 0: at once) |
//! | 5 verdict | unit u32, offset u64, attempts u32, reason u8, known u8 (1: a last run follows), activation 16 bytes, component 32 bytes, detail length u16 and text |
//! | 6 forgotten | unit u32 |
//!
//! Losing an entry means that an event may run again: the safe direction. An entry that cannot be read was written by another program and
//! is refused.

use std::collections::BTreeMap;

use bytes::Bytes;
use latent_core::{ActivationId, BindingId, ComponentDigest, Offset, Partition, TerminationReason, TopicName, UnixMillis, Verdict};
use latent_node::delivery::SettledSet;

/// The version this code writes, and the only one it reads.
const VERSION: u32 = 1;

/// One partition of one binding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitKey {
    /// The binding.
    pub binding: BindingId,
    /// Its topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: Partition,
}

/// Why a file of deliveries cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateDamage {
    /// Written by another version.
    #[error("it has version {found} and this program reads version {VERSION}")]
    Version {
        /// The version found.
        found: u32,
    },
    /// An entry is not one of the kinds, too short or too long.
    #[error("an entry of {bytes} bytes cannot be understood")]
    Entry {
        /// Its size.
        bytes: usize,
    },
    /// An entry speaks of a binding that was never declared.
    #[error("an entry speaks of unit {unit}, which is not declared")]
    UnknownUnit {
        /// The number.
        unit: u32,
    },
}

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Header { version: u32 },
    Unit { unit: u32, start: Offset, key: UnitKey },
    Settled { unit: u32, first: Offset, end: Offset },
    Attempts { unit: u32, offset: Offset, attempts: u32, not_before: UnixMillis },
    Verdict { unit: u32, offset: Offset, verdict: Verdict },
    Forgotten { unit: u32 },
}

impl Entry {
    pub(crate) const fn header() -> Self {
        Self::Header { version: VERSION }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::new();
        match self {
            Self::Header { version } => {
                bytes.push(1);
                bytes.extend(version.to_le_bytes());
            }
            Self::Unit { unit, start, key } => {
                bytes.push(2);
                bytes.extend(unit.to_le_bytes());
                bytes.extend(key.partition.0.to_le_bytes());
                bytes.extend(start.0.to_le_bytes());
                for text in [key.binding.as_str(), key.topic.as_str()] {
                    // Both names are bounded well below 255 bytes by their types.
                    bytes.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
                    bytes.extend(text.as_bytes());
                }
            }
            Self::Settled { unit, first, end } => {
                bytes.push(3);
                bytes.extend(unit.to_le_bytes());
                bytes.extend(first.0.to_le_bytes());
                bytes.extend(end.0.to_le_bytes());
            }
            Self::Attempts { unit, offset, attempts, not_before } => {
                bytes.push(4);
                bytes.extend(unit.to_le_bytes());
                bytes.extend(offset.0.to_le_bytes());
                bytes.extend(attempts.to_le_bytes());
                bytes.extend(not_before.0.to_le_bytes());
            }
            Self::Verdict { unit, offset, verdict } => {
                bytes.push(5);
                bytes.extend(unit.to_le_bytes());
                bytes.extend(offset.0.to_le_bytes());
                encode_verdict(verdict, &mut bytes);
            }
            Self::Forgotten { unit } => {
                bytes.push(6);
                bytes.extend(unit.to_le_bytes());
            }
        }
        Bytes::from(bytes)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, StateDamage> {
        let mut fields = Fields(bytes);
        let entry = Self::decode_fields(&mut fields).filter(|_| fields.0.is_empty());
        entry.ok_or(StateDamage::Entry { bytes: bytes.len() })
    }

    fn decode_fields(fields: &mut Fields<'_>) -> Option<Self> {
        Some(match fields.array::<1>()? {
            [1] => Self::Header { version: fields.u32()? },
            [2] => {
                let (unit, partition, start) = (fields.u32()?, Partition(fields.u32()?), Offset(fields.u64()?));
                let binding = BindingId::parse(fields.text()?).ok()?;
                let topic = TopicName::parse(fields.text()?).ok()?;
                Self::Unit { unit, start, key: UnitKey { binding, topic, partition } }
            }
            [3] => Self::Settled { unit: fields.u32()?, first: Offset(fields.u64()?), end: Offset(fields.u64()?) },
            [4] => Self::Attempts {
                unit: fields.u32()?,
                offset: Offset(fields.u64()?),
                attempts: fields.u32()?,
                not_before: UnixMillis(fields.u64()?),
            },
            [5] => Self::Verdict { unit: fields.u32()?, offset: Offset(fields.u64()?), verdict: decode_verdict(fields)? },
            [6] => Self::Forgotten { unit: fields.u32()? },
            _ => return None,
        })
    }
}

const REASONS: [(TerminationReason, u8); 3] =
    [(TerminationReason::Rejected, 1), (TerminationReason::Exhausted, 2), (TerminationReason::Undecodable, 3)];

fn encode_verdict(verdict: &Verdict, bytes: &mut Vec<u8>) {
    bytes.extend(verdict.attempts.to_le_bytes());
    bytes.extend(REASONS.iter().find(|(reason, _)| *reason == verdict.reason).map(|(_, code)| *code));
    let last = verdict.activation.zip(verdict.component);
    bytes.push(u8::from(last.is_some()));
    if let Some((activation, component)) = last {
        bytes.extend(activation.as_bytes());
        bytes.extend(component.as_bytes());
    }
    // Bounded well below that by its type.
    bytes.extend(u16::try_from(verdict.detail().len()).unwrap_or(u16::MAX).to_le_bytes());
    bytes.extend(verdict.detail().as_bytes());
}

fn decode_verdict(fields: &mut Fields<'_>) -> Option<Verdict> {
    let attempts = fields.u32()?;
    let [code] = fields.array::<1>()?;
    let (reason, _) = REASONS.into_iter().find(|(_, known)| *known == code)?;
    let last = match fields.array::<1>()? {
        [0] => None,
        [1] => Some((ActivationId::from_random(fields.array()?), ComponentDigest::from_bytes(fields.array()?))),
        _ => return None,
    };
    let length = fields.array().map(u16::from_le_bytes)?;
    let detail = fields.text_of(usize::from(length))?;
    // What a verdict cannot hold was not written by one.
    Some(Verdict::new(reason, attempts, last, detail)).filter(|verdict| verdict.detail() == detail)
}

/// Takes fields off the front of an entry.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn array<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let (head, rest) = self.0.split_first_chunk::<BYTES>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        let [length] = self.array::<1>()?;
        self.text_of(usize::from(length))
    }

    fn text_of(&mut self, length: usize) -> Option<&'a str> {
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}

/// What is remembered of one unit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct UnitState {
    pub(crate) settled: SettledSet,
    pub(crate) attempts: BTreeMap<Offset, (u32, UnixMillis)>,
    pub(crate) verdicts: BTreeMap<Offset, Verdict>,
}

/// What is remembered of all units.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DeliveryState {
    numbers: BTreeMap<UnitKey, u32>,
    /// The one topic of each binding.
    topics: BTreeMap<BindingId, TopicName>,
    units: BTreeMap<u32, UnitState>,
    /// Above every number that was ever declared, so that notes of a unit that was forgotten can never be taken for another's.
    next_unit: u32,
}

impl UnitState {
    /// The offset after the last one that is known here.
    pub(crate) fn seen_end(&self) -> Offset {
        let settled = self.settled.ranges().last().map_or(self.settled.floor(), |(_, end)| end);
        let noted = self.attempts.keys().next_back().max(self.verdicts.keys().next_back());
        settled.max(noted.map_or(Offset(0), |offset| Offset(offset.0.saturating_add(1))))
    }
}

impl DeliveryState {
    /// Takes one entry. A settled offset is never unsettled by what comes later.
    pub(crate) fn apply(&mut self, entry: Entry) -> Result<(), StateDamage> {
        match entry {
            Entry::Header { version } if version == VERSION => {}
            Entry::Header { version } => return Err(StateDamage::Version { found: version }),
            Entry::Unit { unit, start, key } => {
                self.next_unit = self.next_unit.max(unit.saturating_add(1));
                self.topics.insert(key.binding.clone(), key.topic.clone());
                self.numbers.insert(key, unit);
                self.units.entry(unit).or_default().settled.insert_range(Offset(0), start);
            }
            Entry::Settled { unit, first, end } => {
                let state = self.unit_mut(unit)?;
                state.settled.insert_range(first, end);
                state.attempts.retain(|offset, _| *offset < first || *offset >= end);
                state.verdicts.retain(|offset, _| *offset < first || *offset >= end);
            }
            Entry::Attempts { unit, offset, attempts, not_before } => {
                let state = self.unit_mut(unit)?;
                if !state.settled.contains(offset) {
                    state.attempts.insert(offset, (attempts, not_before));
                }
            }
            Entry::Verdict { unit, offset, verdict } => {
                let state = self.unit_mut(unit)?;
                if !state.settled.contains(offset) {
                    state.verdicts.insert(offset, verdict);
                }
            }
            Entry::Forgotten { unit } => {
                self.unit_mut(unit)?;
                self.units.remove(&unit);
                self.numbers.retain(|_, number| *number != unit);
                self.topics.retain(|binding, _| self.numbers.keys().any(|key| key.binding == *binding));
            }
        }
        Ok(())
    }

    /// The units of a binding.
    pub(crate) fn units_of(&self, binding: &BindingId) -> Vec<(UnitKey, u32)> {
        self.numbers.iter().filter(|(key, _)| key.binding == *binding).map(|(key, unit)| (key.clone(), *unit)).collect()
    }

    /// Every binding that something is remembered of, with its topic.
    pub(crate) fn bindings(&self) -> impl Iterator<Item = (&BindingId, &TopicName)> {
        self.topics.iter()
    }

    pub(crate) fn number(&self, key: &UnitKey) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    /// A number that no unit has. Notes of an undeclared unit of that number lie before its declaration, so they stay without effect.
    pub(crate) const fn free_number(&self) -> u32 {
        self.next_unit
    }

    pub(crate) fn unit(&self, unit: u32) -> Option<&UnitState> {
        self.units.get(&unit)
    }

    /// Every unit with the offset after the last one that is known of it.
    pub(crate) fn seen_ends(&self) -> impl Iterator<Item = (&UnitKey, Offset)> {
        self.numbers.iter().filter_map(|(key, unit)| Some((key, self.units.get(unit)?.seen_end())))
    }

    /// The topic that a binding's state belongs to.
    pub(crate) fn topic_of(&self, binding: &BindingId) -> Option<&TopicName> {
        self.topics.get(binding)
    }

    /// The fewest entries that give this state again.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries = vec![Entry::header()];
        for (key, unit) in &self.numbers {
            let unit = *unit;
            let Some(state) = self.units.get(&unit) else { continue };
            entries.push(Entry::Unit { unit, start: state.settled.floor(), key: key.clone() });
            entries.extend(state.settled.ranges().map(|(first, end)| Entry::Settled { unit, first, end }));
            let attempts = state.attempts.iter();
            entries.extend(attempts.map(|(offset, (attempts, not_before))| Entry::Attempts {
                unit,
                offset: *offset,
                attempts: *attempts,
                not_before: *not_before,
            }));
            let verdicts = state.verdicts.iter();
            entries.extend(verdicts.map(|(offset, verdict)| Entry::Verdict { unit, offset: *offset, verdict: verdict.clone() }));
        }
        entries
    }

    fn unit_mut(&mut self, unit: u32) -> Result<&mut UnitState, StateDamage> {
        self.units.get_mut(&unit).ok_or(StateDamage::UnknownUnit { unit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(partition: u32) -> UnitKey {
        UnitKey { binding: BindingId::parse("b").unwrap(), topic: TopicName::parse("t").unwrap(), partition: Partition(partition) }
    }

    fn any_entry() -> impl Strategy<Value = Entry> {
        prop_oneof![
            (0_u32..3, 0_u64..20, 0_u64..5).prop_map(|(unit, first, length)| Entry::Settled {
                unit,
                first: Offset(first),
                end: Offset(first + length)
            }),
            (0_u32..3, 0_u64..20, 1_u32..5, any::<u64>()).prop_map(|(unit, offset, attempts, at)| Entry::Attempts {
                unit,
                offset: Offset(offset),
                attempts,
                not_before: UnixMillis(at)
            }),
            (0_u32..3, 0_u64..20, 0_u32..5, any::<Option<[u8; 16]>>(), any::<u8>(), ".{0,40}").prop_map(
                |(unit, offset, attempts, last, reason, detail)| Entry::Verdict {
                    unit,
                    offset: Offset(offset),
                    verdict: Verdict::new(
                        TerminationReason::ALL[usize::from(reason % 3)],
                        attempts,
                        last.map(|id| (ActivationId::from_random(id), ComponentDigest::of(&id))),
                        &detail
                    )
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn compacted_entries_give_the_same_state(entries in proptest::collection::vec(any_entry(), 0..60)) {
            let mut state = DeliveryState::default();
            for unit in 0..3 {
                state.apply(Entry::Unit { unit, start: Offset(u64::from(unit)), key: key(unit) }).unwrap();
            }
            for entry in entries {
                prop_assert_eq!(&Entry::decode(&entry.encode()).unwrap(), &entry);
                state.apply(entry).unwrap();
            }
            let mut again = DeliveryState::default();
            for entry in state.entries() {
                again.apply(Entry::decode(&entry.encode()).unwrap()).unwrap();
            }
            prop_assert_eq!(again, state);
        }

        #[test]
        fn any_bytes_are_an_entry_or_a_typed_refusal(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(entry) = Entry::decode(&bytes) {
                prop_assert_eq!(&entry.encode()[..], &bytes[..]);
            }
        }
    }

    #[test]
    fn what_cannot_be_understood_is_refused_with_its_reason() {
        let mut state = DeliveryState::default();
        assert_eq!(state.apply(Entry::Header { version: 2 }), Err(StateDamage::Version { found: 2 }));
        let settled = Entry::Settled { unit: 7, first: Offset(0), end: Offset(1) };
        assert_eq!(state.apply(settled), Err(StateDamage::UnknownUnit { unit: 7 }));
        assert_eq!(Entry::decode(&[]), Err(StateDamage::Entry { bytes: 0 }));
    }

    #[test]
    fn what_is_forgotten_leaves_nothing_behind_and_others_stay() {
        let mut state = DeliveryState::default();
        let other = UnitKey { binding: BindingId::parse("other").unwrap(), ..key(0) };
        for (unit, key) in [(0, key(0)), (1, key(1)), (2, other.clone())] {
            state.apply(Entry::Unit { unit, start: Offset(5), key }).unwrap();
        }
        let binding = BindingId::parse("b").unwrap();
        assert_eq!(state.units_of(&binding).iter().map(|(_, unit)| *unit).collect::<Vec<_>>(), [0, 1]);
        for unit in [0, 1] {
            state.apply(Entry::Forgotten { unit }).unwrap();
        }
        assert_eq!((state.topic_of(&binding), state.unit(0), state.number(&key(1))), (None, None, None));
        assert_eq!((state.number(&other), state.bindings().count()), (Some(2), 1));
        assert_eq!(state.free_number(), 3);
        assert_eq!(state.apply(Entry::Forgotten { unit: 0 }), Err(StateDamage::UnknownUnit { unit: 0 }));
        // The binding may come back, bound to another topic.
        let again = UnitKey { topic: TopicName::parse("t2").unwrap(), ..key(0) };
        state.apply(Entry::Unit { unit: state.free_number(), start: Offset(0), key: again.clone() }).unwrap();
        assert_eq!(state.unit(state.number(&again).unwrap()).unwrap().settled.floor(), Offset(0));
    }

    #[test]
    fn an_attempt_on_a_settled_event_is_forgotten() {
        let mut state = DeliveryState::default();
        state.apply(Entry::Unit { unit: 0, start: Offset(0), key: key(0) }).unwrap();
        let attempts = Entry::Attempts { unit: 0, offset: Offset(0), attempts: 1, not_before: UnixMillis(0) };
        state.apply(attempts.clone()).unwrap();
        state.apply(Entry::Settled { unit: 0, first: Offset(0), end: Offset(1) }).unwrap();
        state.apply(attempts).unwrap();
        assert!(state.unit(0).unwrap().attempts.is_empty());
    }
}
