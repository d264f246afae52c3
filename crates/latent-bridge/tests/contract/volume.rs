//! Reads that are larger than any page, beside writes.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use latent_bridge::EventBus;
use latent_core::Partition;

use super::Engine;
use super::stored::assert_in_order;
use crate::support::fixtures::{manifest, record};

/// What each of the four publishers adds at most, so that the test stays small whatever the machine does.
const ADDED_MAX: usize = 300;

/// BUG-52: a read that is larger than any buffer on its way is whole, and the publications beside it are acknowledged meanwhile.
pub(crate) fn three_thousand_records_are_fetched_whole_while_others_publish<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 1)]));
    let (bus, done) = (engine.bus(), AtomicBool::new(false));
    let payload = Bytes::from(vec![7; 4_096]);
    let records: Vec<_> = (0..3_000).map(|n| record(&format!("u{n}"), "k", payload.clone())).collect();
    assert!(bus.publish_batch("t", &records).iter().all(Result::is_ok));
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (payload, done) = (&payload, &done);
            scope.spawn(move || {
                let more = (0..ADDED_MAX).take_while(|_| !done.load(Ordering::SeqCst));
                more.for_each(|n| drop(bus.publish_record("t", &record(&format!("w{writer}-{n}"), "w", payload.clone())).unwrap()));
            });
        }
        for max in [999, 1_000, 1_001, 1_024, 3_000, 1_000_000] {
            check_fetch::<E>(bus, max);
        }
        let (_, end) = bus.bounds("t", Partition(0)).unwrap();
        let found = bus.find_event_by_uid("t", "k", "u2999").unwrap().unwrap();
        assert!(found.offset < end.0);
        done.store(true, Ordering::SeqCst);
    });
}

/// A fetch from the beginning gives `max` records, or all that were there before it, and none that came after it.
fn check_fetch<E: Engine>(bus: &dyn EventBus, max: usize) {
    let (first, before) = bus.bounds("t", Partition(0)).unwrap();
    let events = bus.fetch("t", 0, 0, max).unwrap();
    let (_, after) = bus.bounds("t", Partition(0)).unwrap();
    assert!(events.iter().take(3_000).enumerate().all(|(n, event)| event.uid == format!("u{n}")), "{max}");
    assert_in_order::<E>(first, events.iter().map(|event| latent_core::Offset(event.offset)));
    if max <= 3_000 {
        assert_eq!(events.len(), max);
        return;
    }
    let last = events.last().unwrap().offset;
    assert!(events.len() >= 3_000 && last + 1 >= before.0 && last < after.0, "{} of {before} to {after}", events.len());
}
