//! A bus that tells when an event is in, when its function asks for a publication and when that is durable. Everything else goes straight
//! to the log.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use latent_bridge::{AppendWatcher, BusError, EmbeddedBroker, EventBus, MaintenanceReport, PublishResult, RecordHead};
use latent_core::{NewRecord, Offset, Partition, StoredRecord, Ticket, UnixMillis};

use super::node::IN;

/// One event, with the publication that it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sighting {
    /// The event was durable, and the node was told of it.
    pub(super) appended_at: Instant,
    /// The host was asked for it: the first thing that the function does.
    pub(super) asked_at: Instant,
    /// It was durable.
    pub(super) stored_at: Instant,
}

/// Where the last one is left for who waits for it. One event at a time.
#[derive(Debug, Default)]
pub(super) struct Sightings {
    seen: Mutex<Seen>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct Seen {
    appended_at: Option<Instant>,
    whole: Option<Sighting>,
}

impl Sightings {
    fn appended(&self, at: Instant) {
        self.lock().appended_at = Some(at);
    }

    fn stored(&self, asked_at: Instant, stored_at: Instant) {
        let mut seen = self.lock();
        seen.whole = seen.appended_at.take().map(|appended_at| Sighting { appended_at, asked_at, stored_at });
        self.left.notify_one();
    }

    /// The next one, or `None` when there is none for so long.
    pub(super) fn take(&self, within: Duration) -> Option<Sighting> {
        let seen = self.left.wait_timeout_while(self.lock(), within, |seen| seen.whole.is_none());
        seen.unwrap_or_else(PoisonError::into_inner).0.whole.take()
    }

    // Only whole values are ever put there, so a poisoned lock guards such too.
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the node as it would be told anyway, after a look at the clock.
struct SeenAppends {
    node: Arc<dyn AppendWatcher>,
    sightings: Arc<Sightings>,
}

impl AppendWatcher for SeenAppends {
    fn appended(&self, topic: &str, partition: Partition, next: Offset) {
        if topic == IN {
            self.sightings.appended(Instant::now());
        }
        self.node.appended(topic, partition, next);
    }
}

/// See the module.
pub(super) struct WatchedBus {
    pub(super) log: Arc<EmbeddedBroker>,
    pub(super) sightings: Arc<Sightings>,
}

impl EventBus for WatchedBus {
    fn submit_record(&self, topic: &str, record: NewRecord) -> Ticket<PublishResult> {
        let (asked_at, sightings) = (Instant::now(), Arc::clone(&self.sightings));
        let abandoned = Err(BusError::Backend("the log ended before it answered".to_owned()));
        self.log.submit_record(topic, record).map_or(abandoned, move |result| {
            if result.is_ok() {
                sightings.stored(asked_at, Instant::now());
            }
            result
        })
    }

    fn submit_fetch(&self, topic: &str, partition: Partition, offset: Offset, max: usize) -> Ticket<Result<Vec<StoredRecord>, BusError>> {
        self.log.submit_fetch(topic, partition, offset, max)
    }

    fn submit_heads(&self, topic: &str, partition: Partition, offset: Offset, max: usize) -> Ticket<Result<Vec<RecordHead>, BusError>> {
        self.log.submit_heads(topic, partition, offset, max)
    }

    fn partitions(&self, topic: &str) -> Result<u32, BusError> {
        self.log.partitions(topic)
    }

    fn topics(&self) -> Vec<String> {
        self.log.topics()
    }

    fn bounds(&self, topic: &str, partition: Partition) -> Result<(Offset, Offset), BusError> {
        self.log.bounds(topic, partition)
    }

    fn watch_appends(&self, watcher: Arc<dyn AppendWatcher>) {
        self.log.watch_appends(Arc::new(SeenAppends { node: watcher, sightings: Arc::clone(&self.sightings) }));
    }

    fn maintain(&self, now: UnixMillis) -> Result<MaintenanceReport, BusError> {
        self.log.maintain(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sighting_is_taken_once() {
        let sightings = Sightings::default();
        assert_eq!(sightings.take(Duration::ZERO), None);
        let now = Instant::now();
        sightings.stored(now, now);
        assert_eq!(sightings.take(Duration::ZERO), None, "of no event that went in");
        sightings.appended(now);
        sightings.stored(now, now);
        let sighting = Sighting { appended_at: now, asked_at: now, stored_at: now };
        assert_eq!((sightings.take(Duration::ZERO), sightings.take(Duration::ZERO)), (Some(sighting), None));
    }
}
