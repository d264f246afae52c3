//! What is published: events of every kind, by uid, until the bus has acknowledged each, and never far ahead of those that ran.

use std::sync::atomic::{AtomicU64, Ordering};

use latent_bridge::{EventBus, NatsBus};
use latent_core::{Attributes, MediaType, NewRecord, Partition, Uid};
use latent_testkit::wait_until;

use super::KEYS;
use super::world::World;

const AHEAD_MAX: u64 = 2_000;
const BATCH: u64 = 50;

/// How an event ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Once,
    Late,
    Reject,
    Fail,
}

impl Kind {
    /// Of a hundred, four are refused, five fail at first, and one always.
    pub(super) const fn of(number: u64) -> Self {
        match (number * 37) % 100 {
            0..4 => Self::Reject,
            4..9 => Self::Late,
            9 => Self::Fail,
            _ => Self::Once,
        }
    }

    const fn verb(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Late => "late",
            Self::Reject => "reject",
            Self::Fail => "fail",
        }
    }
}

pub(super) struct Publishing<'a> {
    world: &'a World,
    pub(super) events: u64,
    pub(super) published: AtomicU64,
    /// Events that ran, about.
    pub(super) handled: AtomicU64,
}

impl<'a> Publishing<'a> {
    pub(super) const fn new(world: &'a World, events: u64) -> Self {
        Self { world, events, published: AtomicU64::new(0), handled: AtomicU64::new(0) }
    }

    pub(super) fn run(&self) {
        let bus = self.world.bus();
        for first in (0..self.events).step_by(usize::try_from(BATCH).unwrap()) {
            while first > self.handled.load(Ordering::SeqCst) + AHEAD_MAX {
                wait_until("events run", || first <= self.handled.load(Ordering::SeqCst) + AHEAD_MAX);
            }
            let mut left: Vec<_> = (first..self.events.min(first + BATCH)).map(event).collect();
            while !left.is_empty() {
                left = publish(&bus, left);
            }
            self.published.store(self.events.min(first + BATCH), Ordering::SeqCst);
        }
    }
}

pub(super) fn uid(number: u64) -> String {
    format!("event-{number}")
}

fn event(number: u64) -> NewRecord {
    let text = format!("witness:{}:{number}", Kind::of(number).verb());
    let uid = Uid::parse(&uid(number)).unwrap();
    // Neighbours have different keys, and each key has every kind.
    let key = format!("key-{}", (number ^ (number >> 7)) % KEYS);
    let media_type = MediaType::parse("text/plain").unwrap();
    NewRecord::new(Some(uid), &key, media_type, Attributes::parse(Vec::new()).unwrap(), text.into()).unwrap()
}

/// Publishes once; what was not acknowledged is left.
fn publish(bus: &NatsBus, records: Vec<NewRecord>) -> Vec<NewRecord> {
    let results = bus.publish_batch("in", &records);
    let handed_over = records.len();
    let failed = |(record, result): (NewRecord, latent_bridge::PublishResult)| {
        let error = result.err()?;
        assert!(!error.is_permanent(), "{error}");
        Some(record)
    };
    let left: Vec<_> = records.into_iter().zip(results).filter_map(failed).collect();
    if left.len() == handed_over {
        wait_until("the topic answers again", || bus.bounds("in", Partition(0)).is_ok());
    }
    left
}
