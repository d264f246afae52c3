//! Sequences that are not there.

use latent_bridge::{EventBus, NatsBus, PublishAck};
use latent_core::{Offset, Partition};
use latent_testkit::broker::Broker;
use latent_testkit::require_broker;

use crate::live::{STREAM, beside, manifest, options, record, spec, with_topic};

fn publish(bus: &NatsBus, prefix: &str, count: usize) -> Vec<PublishAck> {
    let records: Vec<_> = (0..count).map(|n| record(&format!("{prefix}{n}"), &format!("key-{n}"), "x")).collect();
    bus.publish_batch("t", &records).into_iter().map(Result::unwrap).collect()
}

fn offsets(bus: &NatsBus, partition: u32, from: u64, max: usize) -> Vec<u64> {
    bus.fetch("t", partition, from, max).unwrap().into_iter().map(|event| event.offset).collect()
}

/// BUG-48. Partitions share the stream's sequences, and some were deleted: a gap is neither an error nor an end.
#[test]
fn bug_48_gaps_are_passed_over_and_what_lies_behind_them_is_read_and_found() {
    require_broker!();
    let (broker, bus) = with_topic(spec(), 4);
    let acks = publish(&bus, "u", 100);
    beside(&broker, async |admin| {
        let stream = admin.jetstream().get_stream(STREAM).await.unwrap();
        for sequence in (10..=20).chain([55]) {
            assert!(stream.delete_message(sequence).await.unwrap());
        }
    });
    let is_there = |offset: u64| !(10..=20).contains(&offset) && offset != 55;
    let fresh = NatsBus::open_with(options(&broker), &manifest(4)).unwrap();
    for (partition, bus) in (0..4).flat_map(|partition| [(partition, &bus), (partition, &fresh)]) {
        for from in [1, 9, 15, 55, 100] {
            for max in [1, 7, 1_000] {
                let mut expected: Vec<_> = acks.iter().filter(|ack| ack.partition == partition).map(|ack| ack.offset).collect();
                expected.retain(|offset| *offset >= from && is_there(*offset));
                expected.sort_unstable();
                expected.truncate(max);
                assert_eq!(offsets(bus, partition, from, max), expected, "partition {partition} from {from}, {max}");
            }
        }
    }
    for (n, ack) in acks.iter().enumerate() {
        let found = fresh.find_event_by_uid("t", &format!("key-{n}"), &ack.uid).unwrap();
        assert_eq!(found.map(|found| found.offset), is_there(ack.offset).then_some(ack.offset), "{ack:?}");
    }
}

/// BUG-49. Never used, emptied, and with a first sequence that is not 1: nothing below the asked offset is ever read, and what lies beyond
/// the end is empty by the broker's word.
#[test]
fn bug_49_reads_from_anywhere_of_an_empty_or_cut_stream_give_what_is_there() {
    require_broker!();
    let purged_to = |broker: &Broker, first: u64| {
        beside(broker, async |admin| {
            admin.jetstream().get_stream(STREAM).await.unwrap().purge().sequence(first).await.unwrap();
        });
    };
    for (case, count, first) in [("never used", 0, 1_u64), ("emptied", 60, 61), ("first is 50", 60, 50)] {
        let (broker, bus) = with_topic(spec(), 1);
        publish(&bus, "old", count);
        purged_to(&broker, first);
        let last = count as u64;
        let expected = |from: u64| (first.max(from)..=last).collect::<Vec<_>>();
        let bounds = bus.bounds("t", Partition(0)).unwrap();
        assert_eq!(bounds, (Offset(first), Offset(last + 1)), "{case}");
        for from in [0, 1, first - 1, first, last, last + 1, last + 1_000, 1 << 63, u64::MAX] {
            for max in [1, 1_000, usize::MAX] {
                let mut expected = expected(from);
                expected.truncate(max);
                assert_eq!(offsets(&bus, 0, from, max), expected, "{case}: {max} from {from}");
            }
        }
        // Published while somebody reads far beyond the end.
        std::thread::scope(|scope| {
            let publishing = scope.spawn(|| publish(&bus, "new", 3));
            loop {
                let is_last_round = publishing.is_finished();
                assert_eq!(offsets(&bus, 0, last + 1_000, 10), [0; 0], "{case}");
                if is_last_round {
                    break;
                }
            }
        });
        assert_eq!(offsets(&bus, 0, last + 1, 10), [last + 1, last + 2, last + 3], "{case}: numbering goes on");
    }
}
