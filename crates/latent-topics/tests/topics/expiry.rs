//! Retention wins over a binding that is slow: what has expired is neither delivered nor taken for damaged.

use latent_bridge::EventBus;
use latent_core::{Offset, Partition, UnixMillis};
use latent_node::delivery::{Settlement, Source, SourceError};
use latent_topics::StartAt;

use crate::store::{Bench, clock, key};

/// Three events that have expired, then `kept` that have not.
fn bench(directory: &std::path::Path, kept: usize) -> Bench {
    let bench = Bench::open(directory);
    bench.publish(3);
    assert_eq!(bench.bus.maintain(UnixMillis(u64::MAX)).unwrap().expired_records, 3);
    bench.publish(kept);
    bench
}

#[test]
fn a_listing_begins_with_the_first_event_that_is_kept_and_says_which_that_is() {
    let directory = tempfile::tempdir().unwrap();
    let bench = bench(directory.path(), 2);
    let (mut source, _) = bench.source(StartAt::Earliest);
    for (from, expected) in [(0, vec![3, 4]), (2, vec![3, 4]), (4, vec![4]), (5, vec![])] {
        let listing = source.pull(Offset(from), 10).wait().unwrap();
        assert_eq!(listing.heads.iter().map(|head| head.offset.0).collect::<Vec<_>>(), expected, "from {from}");
        assert_eq!(listing.first, Offset(3));
    }
}

#[test]
fn an_expired_event_is_not_taken_for_damaged_nor_a_damaged_one_for_expired() {
    let directory = tempfile::tempdir().unwrap();
    let bench = bench(directory.path(), 2);
    let (mut source, _) = bench.source(StartAt::Earliest);
    let expired = SourceError::Expired { first: Offset(3) };
    let begin = |source: &mut dyn Source, offset| source.begin(Offset(offset), 1).wait().map(|event| event.offset.0);
    assert_eq!([0, 2, 3].map(|offset| begin(&mut source, offset)), [Err(expired.clone()), Err(expired.clone()), Ok(3)]);
    // The first one that is kept is damaged: a read that begins below it fails at it.
    let topic = directory.path().join("topics/in");
    let segment =
        std::fs::read_dir(topic).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.extension().is_some_and(|of| of == "seg"));
    let segment = segment.unwrap();
    let mut content = std::fs::read(&segment).unwrap();
    let at = content.windows(7).position(|bytes| bytes == b"event 0").unwrap();
    content[at] ^= 1;
    std::fs::write(&segment, content).unwrap();
    let undecodable = Err(SourceError::Undecodable);
    assert_eq!([2, 3, 4].map(|offset| begin(&mut source, offset)), [Err(expired), undecodable, Ok(4)]);
}

#[test]
fn what_has_expired_is_done_with_for_the_next_process_too() {
    let directory = tempfile::tempdir().unwrap();
    {
        let bench = Bench::open(directory.path());
        bench.publish(4);
        let (mut source, _) = bench.source(StartAt::Earliest);
        source.settle(Offset(2), Settlement::Acknowledged).wait().unwrap();
        source.begin(Offset(0), 1).wait().unwrap();
        source.begin(Offset(3), 1).wait().unwrap();
        assert_eq!(bench.bus.maintain(UnixMillis(u64::MAX)).unwrap().expired_records, 4);
        bench.publish(1);
        assert!(matches!(source.begin(Offset(1), 1).wait(), Err(SourceError::Expired { first: Offset(4) })));
    }
    let bench = Bench::open(directory.path());
    bench.store.give_up_lost_offsets(&bench.bus).unwrap();
    assert_eq!(bench.bus.bounds("in", Partition(0)).unwrap(), (Offset(4), Offset(5)), "nothing was lost");
    let (_, unit) = bench.source(StartAt::Earliest);
    let remembered = bench.store.remembered(unit, &clock(), 1_000);
    assert_eq!((remembered.settled.floor(), remembered.settled.above_count(), remembered.attempts), (Offset(4), 0, Vec::new()));
}

#[test]
fn a_new_binding_has_missed_nothing_that_had_expired_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let bench = bench(directory.path(), 2);
    let (first, end) = bench.bus.bounds("in", Partition(0)).unwrap();
    let unit = bench.store.declare(&[(key("new", "in"), StartAt::At(first), end)]).unwrap()[0];
    let settled = bench.store.remembered(unit, &clock(), 1_000).settled;
    assert_eq!((settled.floor(), settled.unsettled_in(Offset(0), first), settled.unsettled_in(first, end)), (Offset(3), 0, 2));
}
