//! Asks node and log for what they know of one event. Every question is bounded, and so is their number.

use std::collections::{BTreeMap, BTreeSet};

use latent_core::{Attributes, BindingId, DeadLetter, Offset, Partition, Place, Replay, TopicName, Uid};
use latent_nats::triggers::BindingInput;

use super::story::{Replayed, Story};
use crate::access::{Access, unexpected};
use crate::commands::bus::ask_about;
use crate::commands::deadletter::Letter;
use crate::config::Config;
use crate::config::settings::LaneTrigger;
use crate::control::{Answer, ControlError, Event, EventHistory, Placed, Request, RunOutput, TriggerEvent};
use crate::error::CliError;
use crate::limits;

const DOING: &str = "asking for the event's story";

/// See the module.
pub(super) struct Gatherer<'a> {
    access: Access,
    topic: &'a str,
    /// Topics that a trigger of the configuration names for its dead letters.
    dead_letter_topics: BTreeSet<String>,
    /// Triggers that a broker wakes for this topic, which remembers what was decided.
    on_broker: Vec<TriggerEvent>,
}

impl<'a> Gatherer<'a> {
    pub(super) fn new(access: Access, config: &Config, topic: &'a str) -> Self {
        let named = config.dead_letter_topics();
        let topic_of = |topic: &TopicName| topic.as_str().to_owned();
        let mut on_broker = BTreeMap::new();
        for binding in config.streams.iter().flat_map(|streams| streams.triggers.bindings()) {
            if matches!(binding.input(), BindingInput::Event { topic: of, .. } if of.as_str() == topic) {
                let (id, most) = (binding.trigger().to_string(), binding.policy().deliveries_max);
                on_broker.insert(id.clone(), TriggerEvent::on_broker(id, most, binding.dead_letter().map(topic_of)));
            }
        }
        for LaneTrigger { trigger, .. } in config.lane_triggers().filter(|lane| lane.trigger.topic.as_str() == topic) {
            let id = trigger.id.to_string();
            let told = TriggerEvent::on_broker(id.clone(), trigger.max_deliveries, trigger.dead_letter.as_ref().map(topic_of));
            on_broker.insert(id, told);
        }
        let on_broker = on_broker.into_values().collect();
        Self { access, topic, dead_letter_topics: named.map(|topic| topic.as_str().to_owned()).collect(), on_broker }
    }

    pub(super) fn story(mut self, uid: &str) -> Result<Story, CliError> {
        let event = self.event(uid)?;
        let replay_of = event.as_ref().and_then(replay_in);
        let first_uid = replay_of.as_ref().map_or(uid, |replay| replay.uid.as_str()).to_owned();
        let replays = self.replays(&first_uid, uid)?;
        let place = event.as_ref().and_then(|event| self.place_of(event));
        // A replay tells where the event lay that it is again.
        let lay = replays.first().map(|replayed| replayed.replay.place.clone());
        let place = place.or(lay).ok_or_else(|| CliError::NotFound { topic: self.topic.to_owned(), uid: uid.to_owned() })?;
        let mut history = self.history(&place)?;
        let untold = |trigger: &TriggerEvent| history.triggers.iter().all(|told| told.id != trigger.id);
        let more: Vec<_> = std::mem::take(&mut self.on_broker).into_iter().filter(untold).collect();
        history.triggers.extend(more);
        self.look_up_outputs(&mut history)?;
        let letters = self.letters(&history, &place, uid)?;
        let is_letter = event.clone().and_then(|event| Letter::of(&place.topic, event));
        Ok(Story { topic: self.topic.to_owned(), uid: uid.to_owned(), event, place, is_letter, history, letters, replays })
    }

    fn event(&mut self, uid: &str) -> Result<Option<Event>, CliError> {
        let find = Request::Find { topic: self.topic.to_owned(), key: None, uid: uid.to_owned() };
        let Answer::Found(place) = ask_about(&mut self.access, self.topic, DOING, find)? else { return Err(unexpected(DOING)) };
        let Some(place) = place else { return Ok(None) };
        // Retention may have taken it between the two questions.
        Ok(self.fetch(&place)?.filter(|event| event.uid == uid))
    }

    fn fetch(&mut self, place: &Placed) -> Result<Option<Event>, CliError> {
        let read = Request::Fetch { topic: place.topic.clone(), partition: place.partition, offset: place.offset, max: 1 };
        let Answer::Events(events) = self.access.ask(DOING, read)? else { return Err(unexpected(DOING)) };
        Ok(events.into_iter().find(|event| event.offset == place.offset))
    }

    fn place_of(&self, event: &Event) -> Option<Place> {
        let topic = TopicName::parse(self.topic).ok()?;
        Some(Place { topic, partition: Partition(event.partition), offset: Offset(event.offset) })
    }

    /// The replays of what was published first as `first_uid`, but not the one that is asked about. Some that retention has removed leave a
    /// gap, up to `replay_gap`.
    fn replays(&mut self, first_uid: &str, asked: &str) -> Result<Vec<Replayed>, CliError> {
        let (mut replays, mut number, mut missing) = (Vec::new(), 0, 0);
        while missing < limits::REPLAY_GAP.default && number < limits::REPLAYS.max {
            number += 1;
            missing += 1;
            let Ok(uid) = Uid::parse(&format!("{first_uid}#{number}")) else { break };
            let Some(event) = self.event(uid.as_str())? else { continue };
            missing = 0;
            if let Some(replay) = replay_in(&event).filter(|_| event.uid != asked) {
                replays.push(Replayed { event, replay });
            }
        }
        Ok(replays)
    }

    fn history(&mut self, place: &Place) -> Result<EventHistory, CliError> {
        let Place { topic, partition, offset } = place;
        let request = Request::EventHistory { topic: topic.as_str().to_owned(), partition: partition.0, offset: offset.0 };
        match self.access.ask(DOING, request)? {
            Answer::EventHistory(history) => Ok(*history),
            _ => Err(unexpected(DOING)),
        }
    }

    /// Where the newest outputs lie: a receipt names no partition, and an uncertain one may be there.
    fn look_up_outputs(&mut self, history: &mut EventHistory) -> Result<(), CliError> {
        let outputs = history.runs.iter_mut().rev().flat_map(|run| &mut run.outputs);
        let worth_it = |output: &&mut RunOutput| output.offset.is_some() || output.cause.is_some();
        for output in outputs.filter(worth_it).take(limits::WHY_LOOKUPS.max_usize()) {
            let Some(uid) = &output.uid else { continue };
            let find = Request::Find { topic: output.topic.clone(), key: None, uid: uid.clone() };
            let found = match self.access.try_ask(find) {
                Ok(Answer::Found(found)) => found,
                // What cannot be looked up is told as the journal has it.
                Err(ControlError::Refused(_)) => continue,
                Ok(_) => return Err(unexpected(DOING)),
                Err(source) => return Err(CliError::Control { doing: DOING.to_owned(), source }),
            };
            output.in_log = Some(found.is_some());
            output.partition = found.as_ref().map(|place| place.partition);
            output.offset = found.map(|place| place.offset).or(output.offset);
        }
        Ok(())
    }

    /// The dead letter of each trigger. Where a trigger that is gone, or that was changed, had its dead letters is not known: it is looked
    /// for everywhere, first where it has them now. A letter of another event at the same place, as after a topic was begun anew, is not
    /// this one's.
    fn letters(&mut self, history: &EventHistory, place: &Place, event_uid: &str) -> Result<Vec<Letter>, CliError> {
        let mut letters = Vec::new();
        for trigger in &history.triggers {
            let Some(uid) = BindingId::parse(&trigger.id).and_then(|id| DeadLetter::uid_for(&id, place)).ok() else { continue };
            let own = trigger.dead_letter_topic.clone();
            let others = self.dead_letter_topics.iter().filter(|topic| Some(*topic) != own.as_ref()).cloned();
            let topics: Vec<_> = own.iter().cloned().chain(others).collect();
            let is_this = |letter: &Letter| letter.letter.uid.as_ref().is_none_or(|uid| uid.as_str() == event_uid);
            for topic in topics {
                if let Some(letter) = self.letter(&topic, &uid)?.filter(is_this) {
                    letters.push(letter);
                    break;
                }
            }
        }
        Ok(letters)
    }

    fn letter(&mut self, topic: &str, uid: &Uid) -> Result<Option<Letter>, CliError> {
        let find = Request::Find { topic: topic.to_owned(), key: None, uid: uid.as_str().to_owned() };
        let Answer::Found(found) = self.access.ask(DOING, find)? else { return Err(unexpected(DOING)) };
        let Some(found) = found else { return Ok(None) };
        let event = self.fetch(&found)?;
        Ok(event.zip(TopicName::parse(topic).ok()).and_then(|(event, topic)| Letter::of(&topic, event)))
    }
}

fn replay_in(event: &Event) -> Option<Replay> {
    Replay::read(&Attributes::stored(event.attributes.clone()).ok()?)
}
