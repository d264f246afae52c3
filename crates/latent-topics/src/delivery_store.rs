//! The durable memory of deliveries on the embedded engine: the pure state, and the log it is written to. Entries are handed to the
//! log in the order in which the state takes them, under one lock, so the file can always be replayed to the same state.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use latent_bridge::embedded::{Durability, StateLog};
use latent_bridge::{BusError, EmbeddedBroker, EventBus as _};
use latent_core::{BindingId, Clock, Offset, Ticket, TopicName, UnixMillis, Verdict};
use latent_node::delivery::{Remembered, SourceError};

use crate::delivery_state::{DeliveryState, Entry};
use crate::read_ahead::Room;
use crate::{StateDamage, TopicsError, UnitKey};

/// Name of the log: `state/deliveries.log`.
const LOG: &str = "deliveries";

/// The log is compacted when it is larger than this and than four times what a compacted one needs.
const COMPACT_ABOVE_BYTES: u64 = 1_048_576;

/// Where a binding that nothing is known of begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    /// With the first event that is kept.
    Earliest,
    /// With the next event that is appended.
    Latest,
    /// With the event at this offset. As [`StartAt::Earliest`] when it is the first one that is kept, and then what had expired before
    /// is none of the binding's events.
    At(Offset),
}

/// See the module.
pub struct DeliveryStore {
    log: StateLog,
    inner: Mutex<Inner>,
    /// A compaction is on its way.
    compacting: Arc<AtomicBool>,
    /// Size of the log when it could not be compacted last; 0 after a success.
    compaction_failed_at_bytes: Arc<AtomicU64>,
    /// What the node's sources may read ahead of what begins.
    pub(crate) room: Arc<Room>,
}

struct Inner {
    state: DeliveryState,
    /// Size of the fewest entries that give this state, when that was last looked at.
    compacted_bytes: u64,
}

type Written = Ticket<Result<(), SourceError>>;

impl DeliveryStore {
    /// As [`DeliveryStore::open`], if anything was ever remembered in this directory.
    ///
    /// # Errors
    /// As [`DeliveryStore::open`].
    pub fn open_existing(broker: &EmbeddedBroker) -> Result<Option<Arc<Self>>, TopicsError> {
        if broker.has_state_log(LOG) { Self::open(broker).map(Some) } else { Ok(None) }
    }

    /// Reads what is remembered.
    ///
    /// # Errors
    /// [`TopicsError`] when the log cannot be read or understood. Nothing is changed then.
    pub fn open(broker: &EmbeddedBroker) -> Result<Arc<Self>, TopicsError> {
        let log = broker.state_log(LOG)?;
        let mut state = DeliveryState::default();
        let mut damage: Result<(), StateDamage> = Ok(());
        let (mut entries, mut orphans) = (0_u64, 0_u64);
        let report = log.replay(|bytes| {
            entries += 1;
            match Entry::decode(bytes).and_then(|entry| state.apply(entry)) {
                // The declaration was damaged. Without it nobody can say whose note this is: the safe direction is to run again.
                Err(StateDamage::UnknownUnit { .. }) => orphans += 1,
                answer => damage = damage.clone().and(answer),
            }
        })?;
        damage?;
        if orphans > 0 {
            tracing::warn!(orphans, "notes of deliveries belong to a damaged declaration and are left out: its events run again");
        }
        if report.torn > 0 || report.damaged > 0 {
            tracing::warn!(torn = report.torn, damaged = report.damaged, "notes of deliveries were lost: events may run again");
        }
        if entries == 0 {
            log.append(Entry::header().encode(), Durability::Synced).wait()?;
        }
        let compacted_bytes = size_of_entries(&encoded(&state));
        Ok(Arc::new(Self {
            log,
            inner: Mutex::new(Inner { state, compacted_bytes }),
            compacting: Arc::default(),
            compaction_failed_at_bytes: Arc::default(),
            room: Arc::default(),
        }))
    }

    /// The numbers of the units asked for, in order. Those that nothing is known of are declared durably, sharing commits; with
    /// [`StartAt::Latest`], everything below the end given is settled for them.
    ///
    /// # Errors
    /// [`TopicsError::TopicChanged`] when a binding's state belongs to another topic; [`TopicsError::Bus`].
    pub fn declare(&self, asked: &[(UnitKey, StartAt, Offset)]) -> Result<Vec<u32>, TopicsError> {
        let mut inner = self.lock();
        for (key, ..) in asked {
            if let Some(known) = inner.state.topic_of(&key.binding).filter(|known| **known != key.topic) {
                let (known, asked) = (known.to_string(), key.topic.to_string());
                return Err(TopicsError::TopicChanged { binding: key.binding.clone(), known, asked });
            }
        }
        let (mut units, mut written) = (Vec::new(), Vec::new());
        for (key, start, end) in asked {
            if let Some(unit) = inner.state.number(key) {
                units.push(unit);
                continue;
            }
            let unit = inner.state.free_number();
            units.push(unit);
            let start = match start {
                StartAt::Earliest => Offset(0),
                StartAt::Latest => *end,
                StartAt::At(offset) => *offset,
            };
            let entry = Entry::Unit { unit, start, key: key.clone() };
            inner.state.apply(entry.clone())?;
            written.push(self.log.append(entry.encode(), Durability::Synced));
            // The log's queue is bounded; so is what waits in it.
            if written.len() >= DECLARED_AT_ONCE {
                wait_for_all(&mut written)?;
            }
        }
        wait_for_all(&mut written)?;
        Ok(units)
    }

    /// Gives up, in every partition, the offsets that are known of deliveries and that the log has lost from its end: a new event there
    /// would be taken for one that is settled. For whoever opens the log, before anything is published.
    ///
    /// # Errors
    /// [`BusError`] when the log cannot be asked or cannot give them up.
    pub fn give_up_lost_offsets(&self, broker: &EmbeddedBroker) -> Result<(), BusError> {
        for (key, seen) in self.lock().state.seen_ends() {
            // A topic or partition that is gone has no new events.
            let Ok((_, end)) = broker.bounds(key.topic.as_str(), key.partition) else { continue };
            if seen > end {
                let UnitKey { binding, topic, partition } = key;
                tracing::warn!(%binding, %topic, %partition, %end, %seen, "the log has lost events that were delivered; their offsets are given up");
                broker.raise_next(topic.as_str(), *partition, seen)?;
            }
        }
        Ok(())
    }

    /// Every binding that something is remembered of, with its topic.
    pub fn bindings(&self) -> Vec<(BindingId, TopicName)> {
        self.lock().state.bindings().map(|(binding, topic)| (binding.clone(), topic.clone())).collect()
    }

    /// Forgets everything about a binding that does not run. Survives a power cut. If the binding comes back, it starts anew.
    /// `None` when nothing was remembered of it; else its topic and the number of partitions that something was remembered of.
    ///
    /// # Errors
    /// [`TopicsError::Bus`] when it cannot be made durable; some of it may be forgotten then.
    pub fn forget(&self, binding: &BindingId) -> Result<Option<(TopicName, usize)>, TopicsError> {
        let mut inner = self.lock();
        let Some(topic) = inner.state.topic_of(binding).cloned() else { return Ok(None) };
        let units = inner.state.units_of(binding);
        let mut written = Vec::new();
        for (_, unit) in &units {
            let entry = Entry::Forgotten { unit: *unit };
            inner.state.apply(entry.clone())?;
            written.push(self.log.append(entry.encode(), Durability::Synced));
            if written.len() >= DECLARED_AT_ONCE {
                wait_for_all(&mut written)?;
            }
        }
        wait_for_all(&mut written)?;
        Ok(Some((topic, units.len())))
    }

    /// The number of a unit that was declared before.
    pub fn unit_of(&self, key: &UnitKey) -> Option<u32> {
        self.lock().state.number(key)
    }

    /// What a new cycle is told of a unit whose delays are at most `delay_millis_max`.
    pub fn remembered(&self, unit: u32, clock: &dyn Clock, delay_millis_max: u64) -> Remembered {
        let inner = self.lock();
        let Some(state) = inner.state.unit(unit) else { return Remembered::default() };
        let (mono, unix) = (clock.mono(), clock.unix());
        let attempts = state.attempts.iter().map(|(offset, (attempts, not_before))| {
            // However far the wall clock was off when this was written, no event waits longer than a delay can be.
            let wait = not_before.0.saturating_sub(unix.0).min(delay_millis_max);
            (*offset, *attempts, mono.plus_millis(wait))
        });
        let verdicts = state.verdicts.iter().map(|(offset, verdict)| (*offset, verdict.clone()));
        Remembered { settled: state.settled.clone(), attempts: attempts.collect(), verdicts: verdicts.collect() }
    }

    /// Notes attempts made on an event. Survives a kill of the process.
    pub(crate) fn note_attempts(&self, unit: u32, offset: Offset, attempts: u32, not_before: UnixMillis) -> Written {
        self.write(Entry::Attempts { unit, offset, attempts, not_before }, Durability::Written)
    }

    /// Notes that an event never runs again. Survives a kill of the process.
    pub(crate) fn note_verdict(&self, unit: u32, offset: Offset, verdict: Verdict) -> Written {
        self.write(Entry::Verdict { unit, offset, verdict }, Durability::Written)
    }

    /// Settles an event. Survives a power cut.
    pub(crate) fn settle(&self, unit: u32, offset: Offset) -> Written {
        let end = Offset(offset.0.saturating_add(1));
        self.write(Entry::Settled { unit, first: offset, end }, Durability::Synced)
    }

    /// Forgets what is below `first`, where everything has expired. Survives a kill of the process; after a power cut it is noted again.
    pub(crate) fn forget_expired(&self, unit: u32, first: Offset) {
        let known = self.lock().state.unit(unit).is_none_or(|state| state.settled.floor() >= first);
        if !known {
            let expired = Entry::Settled { unit, first: Offset(0), end: first };
            self.write(expired, Durability::Written).on_ready(move |answer| {
                if let Err(error) = answer {
                    tracing::warn!(unit, %first, %error, "it could not be noted which events have expired; the next start notes it");
                }
            });
        }
    }

    fn write(&self, entry: Entry, durability: Durability) -> Written {
        let mut inner = self.lock();
        if let Err(damage) = inner.state.apply(entry.clone()) {
            return Ticket::ready(Err(SourceError::Unavailable { reason: damage.to_string() }));
        }
        let written = self.log.append(entry.encode(), durability);
        self.compact_if_large(&mut inner);
        written.map_or(Err(unavailable(None)), |answer| answer.map_err(|error| unavailable(Some(&error))))
    }

    /// Called with the state locked, so that what the compacted log begins with is what was handed over before it.
    fn compact_if_large(&self, inner: &mut Inner) {
        let threshold = COMPACT_ABOVE_BYTES.max(inner.compacted_bytes.saturating_mul(4));
        let len_bytes = self.log.len_bytes();
        // After a failure not before it has grown again: the disk that refused it is likely to be full.
        let failed_at_bytes = self.compaction_failed_at_bytes.load(Ordering::Acquire);
        let is_large = len_bytes > threshold.max(failed_at_bytes.saturating_add(COMPACT_ABOVE_BYTES));
        if !is_large || self.compacting.swap(true, Ordering::AcqRel) {
            return;
        }
        let entries = encoded(&inner.state);
        inner.compacted_bytes = size_of_entries(&entries);
        let (compacting, failed_at) = (Arc::clone(&self.compacting), Arc::clone(&self.compaction_failed_at_bytes));
        self.log.replace(&entries).on_ready(move |answer| {
            failed_at.store(if answer.is_ok() { 0 } else { len_bytes }, Ordering::Release);
            compacting.store(false, Ordering::Release);
            if let Err(error) = answer {
                tracing::warn!(%error, "the log of deliveries could not be compacted; it goes on growing");
            }
        });
    }

    // No guarded section panics half-way, so a poisoned lock still guards a whole state.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn encoded(state: &DeliveryState) -> Vec<Bytes> {
    state.entries().iter().map(Entry::encode).collect()
}

fn size_of_entries(entries: &[Bytes]) -> u64 {
    entries.iter().map(|entry| entry.len() as u64 + ENTRY_OVERHEAD_BYTES).sum()
}

/// Entries handed over before their commits are waited for.
const DECLARED_AT_ONCE: usize = 256;

fn wait_for_all(written: &mut Vec<Ticket<Result<(), BusError>>>) -> Result<(), BusError> {
    written.drain(..).try_for_each(Ticket::wait)
}

/// What the log adds to each entry, for the estimate of a compacted size.
const ENTRY_OVERHEAD_BYTES: u64 = 16;

fn unavailable(error: Option<&BusError>) -> SourceError {
    let reason = error.map_or_else(|| "the log ended before it answered".to_owned(), ToString::to_string);
    SourceError::Unavailable { reason }
}
