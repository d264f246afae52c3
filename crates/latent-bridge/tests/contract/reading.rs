//! Reads from anywhere, of any length.

use latent_bridge::HeadContent;
use latent_core::{Offset, Partition};
use serde_json::json;

use super::Engine;
use super::stored::{page, stored, stored_in};
use crate::support::fixtures::{manifest, publish, record};

pub(crate) fn offsets_outside_of_what_is_stored_are_no_error<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 8)]));
    let bus = engine.bus();
    // Of partition 3, which gets records, and of 5, which stays as it was made.
    (0..3).for_each(|n| drop(bus.publish("t", "agent-inst-1", &json!(n)).unwrap()));
    for (partition, count) in [(3, 3), (5, 0)] {
        let partition = Partition(partition);
        let (first, end) = bus.bounds("t", partition).unwrap();
        let counts = |offset: Offset, max: usize| {
            let heads = bus.submit_heads("t", partition, offset, max).wait().unwrap();
            (bus.fetch("t", partition.0, offset.0, max).unwrap().len(), page(bus, "t", partition, offset, max).len(), heads.len())
        };
        for max in [1, 100, usize::MAX] {
            let all = count.min(max);
            for below in [Offset(0), Offset(first.0.saturating_sub(1)), first] {
                assert_eq!(counts(below, max), (all, all, all), "{partition} from {below}");
            }
            for beyond in [end.0, end.0 + 1, end.0 + 1_000, 1 << 63, u64::MAX - 1, u64::MAX] {
                assert_eq!(counts(Offset(beyond), max), (0, 0, 0), "{partition} from {beyond}");
            }
        }
        assert_eq!(counts(first, 0), (0, 0, 0));
    }
}

pub(crate) fn nothing_below_the_asked_offset_is_read_while_others_publish<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 1)]));
    let bus = engine.bus();
    publish(bus, "t", "old", 10);
    let (_, end) = bus.bounds("t", Partition(0)).unwrap();
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| publish(bus, "t", "new", 100));
        loop {
            // Asked before the reads, so that the last round sees everything.
            let last_round = publishing.is_finished();
            assert!(bus.fetch("t", 0, end.0 + 1_000, 10).unwrap().is_empty());
            let tail = bus.fetch("t", 0, end.0, 1_000).unwrap();
            assert!(tail.iter().all(|event| event.offset >= end.0 && event.uid.starts_with("new")));
            if last_round {
                assert_eq!(tail.len(), 100);
                break;
            }
        }
    });
}

pub(crate) fn pages_and_heads_follow_each_other_without_a_gap<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 3)]));
    let bus = engine.bus();
    publish(bus, "t", "a", 200);
    for partition in (0..3).map(Partition) {
        let all = stored_in(&engine, "t", partition);
        for max in [1, 7, 64, 5_000] {
            let (mut next, mut read, mut heads) = (Offset(0), Vec::new(), Vec::new());
            loop {
                let page = page(bus, "t", partition, next, max);
                assert!(page.len() <= max);
                let Some(last) = page.last() else { break };
                heads.extend(bus.submit_heads("t", partition, next, page.len()).wait().unwrap());
                next = Offset(last.offset.0 + 1);
                read.extend(page);
            }
            assert_eq!(read, all, "by {max}");
            let of_record = |stored: &latent_core::StoredRecord| {
                let payload_bytes = stored.record.payload.len() as u64;
                (stored.offset, HeadContent::Readable { key: stored.record.key.clone(), payload_bytes })
            };
            assert!(heads.into_iter().map(|head| (head.offset, head.content)).eq(all.iter().map(of_record)), "by {max}");
        }
    }
}

pub(crate) fn what_was_stored_is_read_the_same_after_a_restart<E: Engine>() {
    let engine = E::provision(&manifest(&[("s", 1), ("t", 4)]));
    publish(engine.bus(), "t", "a", 100);
    publish(engine.bus(), "s", "a", 10);
    let seen = |engine: &E| {
        let bounds: Vec<_> = (0..4).map(|partition| engine.bus().bounds("t", Partition(partition)).unwrap()).collect();
        let shown: Vec<_> = (0..4).flat_map(|partition| engine.bus().fetch("t", partition, 0, 1_000).unwrap()).collect();
        (engine.bus().topics(), bounds, shown, stored(engine, "t"), stored(engine, "s"))
    };
    let before = seen(&engine);
    let engine = engine.reopen();
    assert_eq!(seen(&engine), before);
    let ack = engine.bus().publish_record("t", &record("new", "key-0", "x")).unwrap();
    let (_, end) = before.1[ack.partition as usize];
    assert!(Offset(ack.offset) >= end, "no offset is given twice");
}
