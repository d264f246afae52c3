//! What is remembered of triggers, whether a node runs or not: of those that are gone, and of one event. The memory is that of
//! deliveries; which triggers are configured is told by whoever asks.

use std::collections::BTreeSet;

use latent_bridge::{BusError, EmbeddedBroker, EventBus as _};
use latent_core::{BindingId, Clock as _, Place, SystemClock, TopicName, UnixMillis};
use latent_topics::{DeliveryStore, TopicsError, UnitKey};

use crate::config::settings::{StartPosition, TriggerConfig};
use crate::control::{EventWord, Fault, ForgetRefused, Forgotten, RemovedTrigger, TriggerEvent};

/// The memory of a directory, if anything was ever remembered in it.
///
/// # Errors
/// When it cannot be read or understood.
pub(crate) fn memory_of(log: &EmbeddedBroker) -> Result<Option<std::sync::Arc<DeliveryStore>>, Fault> {
    DeliveryStore::open_existing(log).map_err(fault)
}

fn fault(error: TopicsError) -> Fault {
    match error {
        TopicsError::Bus(error) => Fault::from(error),
        other => Fault::refused("node", other.to_string()),
    }
}

/// Triggers that are remembered and not configured.
pub(crate) fn removed_triggers(store: &DeliveryStore, configured: &[TriggerConfig]) -> Vec<RemovedTrigger> {
    removed(store, configured).map(|(id, topic)| RemovedTrigger { id: id.to_string(), topic: topic.to_string() }).collect()
}

fn removed(store: &DeliveryStore, configured: &[TriggerConfig]) -> impl Iterator<Item = (BindingId, TopicName)> {
    let configured: BTreeSet<_> = configured.iter().map(|trigger| trigger.id.clone()).collect();
    store.bindings().into_iter().filter(move |(id, _)| !configured.contains(id))
}

/// Forgets a trigger that is not configured. Nothing of it may run. `next` says what to do with one that is configured.
///
/// # Errors
/// [`ForgetRefused`]; an uncertain fault when some of it may be forgotten.
pub(crate) fn forget(
    store: Option<&DeliveryStore>,
    configured: &[TriggerConfig],
    id: &str,
    next: &'static str,
) -> Result<Forgotten, Fault> {
    let unknown = || ForgetRefused::Unknown { id: id.to_owned() };
    let binding = BindingId::parse(id).map_err(|_| unknown())?;
    if configured.iter().any(|trigger| trigger.id == binding) {
        return Err(ForgetRefused::Configured { id: id.to_owned(), next }.into());
    }
    let half_way = |error| Fault { uncertain: true, permanent: false, ..fault(error) };
    let store = store.ok_or_else(unknown)?;
    let (topic, partitions) = store.forget(&binding).map_err(half_way)?.ok_or_else(unknown)?;
    Ok(Forgotten { id: id.to_owned(), topic: topic.to_string(), partitions: partitions as u64 })
}

/// Triggers of a topic that are gone, for the story of an event in it.
pub(crate) fn removed_events(store: &DeliveryStore, configured: &[TriggerConfig], topic: &TopicName) -> Vec<TriggerEvent> {
    let of_topic = removed(store, configured).filter(|(_, read)| read == topic);
    of_topic.map(|(id, _)| event_of(&id, EventWord::Removed)).collect()
}

/// What each configured trigger of the topic would do with the event at `place` if its node were started.
///
/// # Errors
/// [`BusError`] when the place's partition does not exist.
pub(crate) fn stopped_events(
    log: &EmbeddedBroker,
    store: Option<&DeliveryStore>,
    configured: &[TriggerConfig],
    place: &Place,
) -> Result<Vec<TriggerEvent>, BusError> {
    let (first, _) = log.bounds(place.topic.as_str(), place.partition)?;
    let of_topic = configured.iter().filter(|trigger| trigger.topic == place.topic);
    let event = |trigger: &TriggerConfig| {
        let known = if place.offset < first { event_of(&trigger.id, EventWord::Expired) } else { remembered_event(trigger, store, place) };
        let dead_letter_topic = trigger.dead_letter.as_ref().map(|topic| topic.as_str().to_owned());
        TriggerEvent { attempts_max: trigger.max_deliveries, dead_letter_topic, ..known }
    };
    Ok(of_topic.map(event).collect())
}

fn remembered_event(trigger: &TriggerConfig, store: Option<&DeliveryStore>, place: &Place) -> TriggerEvent {
    let key = UnitKey { binding: trigger.id.clone(), topic: trigger.topic.clone(), partition: place.partition };
    let event = |state| event_of(&trigger.id, state);
    let Some((store, unit)) = store.and_then(|store| Some((store, store.unit_of(&key)?))) else {
        // Never started: it would begin at one of the two ends.
        return event(if trigger.start == StartPosition::Earliest { EventWord::Pending } else { EventWord::Settled });
    };
    let clock = SystemClock::start();
    let remembered = store.remembered(unit, &clock, trigger.retry_delay_max_millis);
    if remembered.settled.contains(place.offset) {
        return event(EventWord::Settled);
    }
    if let Some((_, verdict)) = remembered.verdicts.iter().find(|(offset, _)| *offset == place.offset) {
        return TriggerEvent {
            reason: Some(verdict.reason.kind().to_owned()),
            attempts: Some(verdict.attempts),
            ..event(EventWord::Condemned)
        };
    }
    let Some((_, attempts, due)) = remembered.attempts.iter().find(|(offset, ..)| *offset == place.offset) else {
        return event(EventWord::Pending);
    };
    let wait = u64::try_from(due.since(clock.mono()).as_millis()).unwrap_or(u64::MAX);
    let UnixMillis(now) = clock.unix();
    let next_attempt_at = (wait > 0).then(|| now.saturating_add(wait));
    let state = if wait > 0 { EventWord::Delayed } else { EventWord::Pending };
    TriggerEvent { attempts: Some(*attempts), next_attempt_at, ..event(state) }
}

fn event_of(id: &BindingId, state: EventWord) -> TriggerEvent {
    let attempts = (state == EventWord::Pending).then_some(0);
    TriggerEvent { id: id.to_string(), state, reason: None, attempts, attempts_max: 0, next_attempt_at: None, dead_letter_topic: None }
}
