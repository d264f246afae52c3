//! Who watches a bus is told of what can be read, never of what cannot yet.

use std::sync::{Arc, Condvar, Mutex};

use latent_bridge::AppendWatcher;
use latent_core::{Offset, Partition};

use super::Engine;
use crate::support::fixtures::{manifest, record};

/// What a watcher was told last, as topic, partition and next offset.
#[derive(Default)]
struct Told {
    last: Mutex<Option<(String, Partition, Offset)>>,
    changed: Condvar,
}

impl AppendWatcher for Told {
    fn appended(&self, topic: &str, partition: Partition, next: Offset) {
        *self.last.lock().unwrap() = Some((topic.to_owned(), partition, next));
        self.changed.notify_all();
    }
}

impl Told {
    /// Waits until it is told something, and forgets it.
    fn next(&self) -> (String, Partition, Offset) {
        let mut last = self.last.lock().unwrap();
        loop {
            match last.take() {
                Some(told) => return told,
                None => last = self.changed.wait(last).unwrap(),
            }
        }
    }
}

pub(crate) fn a_watcher_is_told_after_the_record_is_readable<E: Engine>() {
    let engine = E::provision(&manifest(&[("s", 1), ("t", 8)]));
    let (bus, told) = (engine.bus(), Arc::new(Told::default()));
    bus.watch_appends(Arc::clone(&told) as _);
    for (topic, uid, partition) in [("t", "a", Partition(3)), ("t", "b", Partition(3)), ("s", "a", Partition(0))] {
        let ticket = bus.submit_record(topic, record(uid, "agent-inst-1", "x"));
        let (of_topic, of_partition, next) = told.next();
        assert_eq!((of_topic.as_str(), of_partition), (topic, partition));
        let (_, end) = bus.bounds(topic, partition).unwrap();
        let read = bus.fetch(topic, partition.0, 0, 10).unwrap().pop().unwrap();
        assert_eq!((read.uid.as_str(), end), (uid, next), "readable when told, before the answer is looked at");
        let ack = ticket.wait().unwrap();
        assert_eq!((ack.offset, Offset(ack.offset).next()), (read.offset, Some(next)));
    }
}

pub(crate) fn a_watcher_replaces_the_earlier_one<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 1)]));
    let (earlier, later) = (Arc::new(Told::default()), Arc::new(Told::default()));
    engine.bus().watch_appends(Arc::clone(&earlier) as _);
    engine.bus().watch_appends(Arc::clone(&later) as _);
    engine.bus().publish_record("t", &record("u", "k", "x")).unwrap();
    later.next();
    assert_eq!(*earlier.last.lock().unwrap(), None);
}
