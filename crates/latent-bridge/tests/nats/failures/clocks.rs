//! The wall clock steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use latent_bridge::{EventBus, NatsBus};
use latent_core::{Clock, MonoTime, Offset, Partition, SystemClock, Uid, UnixMillis};
use latent_testkit::broker::Broker;
use latent_testkit::require_broker;

use crate::live::{manifest, options, record, spec, stored_in};

/// A wall clock that a test sets; the other time is the real one.
struct Stepped {
    unix_millis: AtomicU64,
    real: SystemClock,
}

impl Clock for Stepped {
    fn mono(&self) -> MonoTime {
        self.real.mono()
    }

    fn unix(&self) -> UnixMillis {
        UnixMillis(self.unix_millis.load(Ordering::SeqCst))
    }
}

/// The wall clock moves while a publication, a page and a lookup wait for the broker: each ends as if it had not.
fn calls_under_way(broker: &Broker, bus: &NatsBus, clock: &Stepped, steps: &[u64]) {
    for (n, step) in steps.iter().enumerate() {
        let uid = format!("waiting-{n}");
        broker.pause();
        let publication = bus.submit_record("t", record(&uid, "k", "x"));
        let page = bus.submit_fetch("t", Partition(0), Offset(1), 3);
        let lookup = bus.submit_find("t", "k", &Uid::parse("u0").unwrap());
        clock.unix_millis.store(*step, Ordering::SeqCst);
        broker.resume();
        assert!(publication.wait().is_ok_and(|ack| !ack.duplicate));
        assert_eq!(page.wait().unwrap().len(), 3);
        assert_eq!(lookup.wait().unwrap().map(|found| found.offset), Some(1));
    }
}

/// BUG-55, where it concerns the bus: the wall clock says when an event was stored and nothing else. Waits, lookups and maintenance go by
/// another time, and sequences come from the broker.
#[test]
fn bug_55_steps_of_the_wall_clock_change_stored_at_and_nothing_else() {
    require_broker!();
    let broker = Broker::start(spec());
    let clock = Arc::new(Stepped { unix_millis: AtomicU64::new(0), real: SystemClock::start() });
    let mut options = options(&broker);
    options.clock = Arc::clone(&clock) as _;
    let bus = NatsBus::provision_with(options, &manifest(1)).unwrap();
    const NOW: u64 = 1_800_000_000_000;
    const HOUR: u64 = 3_600_000;
    let steps = [NOW, NOW - HOUR, NOW + HOUR, 0, u64::MAX, NOW];
    let mut offsets = Vec::new();
    for (n, step) in steps.into_iter().enumerate() {
        // A publication begins under one time and is looked up and read under the next.
        clock.unix_millis.store(step, Ordering::SeqCst);
        let uid = format!("u{n}");
        let ack = bus.publish_record("t", &record(&uid, "k", "x")).unwrap();
        clock.unix_millis.store(steps[steps.len() - 1 - n], Ordering::SeqCst);
        assert_eq!(bus.find_event_by_uid("t", "k", &uid).unwrap().map(|found| found.offset), Some(ack.offset));
        assert_eq!(bus.find_event_by_uid("t", "k", &format!("absent-{n}")), Ok(None));
        assert!(bus.publish_record("t", &record(&uid, "k", "x")).unwrap().duplicate);
        offsets.push(ack.offset);
        for now in [0, step, u64::MAX] {
            assert_eq!(bus.maintenance(now), Ok(0));
        }
    }
    calls_under_way(&broker, &bus, &clock, &steps);
    let read = stored_in(&bus, Partition(0));
    let read = &read[..steps.len()];
    assert!(read.iter().map(|stored| stored.offset.0).eq(offsets) && read.len() == steps.len());
    assert!(read.iter().zip(steps).all(|(stored, step)| stored.record.stored_at == UnixMillis(step)), "{read:?}");
}
