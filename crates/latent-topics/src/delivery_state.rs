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
//!
//! Losing an entry means that an event may run again: the safe direction. An entry that cannot be read was written by another program and
//! is refused.

use std::collections::BTreeMap;

use bytes::Bytes;
use latent_core::{BindingId, Offset, Partition, TopicName, UnixMillis};
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
            _ => return None,
        })
    }
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
        let (text, rest) = self.0.split_at_checked(usize::from(length))?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}

/// What is remembered of one unit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct UnitState {
    pub(crate) settled: SettledSet,
    pub(crate) attempts: BTreeMap<Offset, (u32, UnixMillis)>,
}

/// What is remembered of all units.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DeliveryState {
    numbers: BTreeMap<UnitKey, u32>,
    /// The one topic of each binding.
    topics: BTreeMap<BindingId, TopicName>,
    units: BTreeMap<u32, UnitState>,
}

impl UnitState {
    /// The offset after the last one that is known here.
    pub(crate) fn seen_end(&self) -> Offset {
        let settled = self.settled.ranges().last().map_or(self.settled.floor(), |(_, end)| end);
        let attempted = self.attempts.last_key_value().map_or(Offset(0), |(offset, _)| Offset(offset.0.saturating_add(1)));
        settled.max(attempted)
    }
}

impl DeliveryState {
    /// Takes one entry. A settled offset is never unsettled by what comes later.
    pub(crate) fn apply(&mut self, entry: Entry) -> Result<(), StateDamage> {
        match entry {
            Entry::Header { version } if version == VERSION => {}
            Entry::Header { version } => return Err(StateDamage::Version { found: version }),
            Entry::Unit { unit, start, key } => {
                self.topics.insert(key.binding.clone(), key.topic.clone());
                self.numbers.insert(key, unit);
                self.units.entry(unit).or_default().settled.insert_range(Offset(0), start);
            }
            Entry::Settled { unit, first, end } => {
                let state = self.unit_mut(unit)?;
                state.settled.insert_range(first, end);
                state.attempts.retain(|offset, _| *offset < first || *offset >= end);
            }
            Entry::Attempts { unit, offset, attempts, not_before } => {
                let state = self.unit_mut(unit)?;
                if !state.settled.contains(offset) {
                    state.attempts.insert(offset, (attempts, not_before));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn number(&self, key: &UnitKey) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    /// A number that no unit has. Notes of an undeclared unit of that number lie before its declaration, so they stay without effect.
    pub(crate) fn free_number(&self) -> u32 {
        self.units.last_key_value().map_or(0, |(last, _)| last.saturating_add(1))
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
